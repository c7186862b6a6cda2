"""PANORAMIA (Kazmi 2024): the tables and figures of its chapters 6 to 8 under their own numbers, and the silence.

Tables and texts are trained and audited here; what is finished is kept in `.reproduce/store`. Images take longer: their
rows are read from results.json, which `cifar.py` writes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter.engine import Store

from ..exhibits import Found, NotRunError
from . import kept, stored, summary
from . import tables as markdown
from .summary import Row, mean

CONFIG: dict[str, Any] = tomllib.loads((Path(__file__).parent / "config.toml").read_text(encoding="utf-8"))
TRAINED = {"adult": "adult", "wikitext2": "language"}  # the section of config.toml; others are read from results.json
PRINTED = {"cifar10": (20, 50, 100), "celeba": (50, 100), "wikitext2": (12, 46, 92), "adult": (10, 100)}  # epochs
HELPERS = {"gen": "helper on generated records", "real": "helper on real non-members", "none": "no helper"}
RECALLS = (0.05, 0.1, 0.2, 0.4)  # at which precisions are compared
BUDGETS = {"dp.resnet": (1, 2, 4, 6, 10, 15, 20), "dp.wide": (1, 2, 10, 15, 20)}
SILENT, FEWEST = 0.95, 40  # share of the controls of each kind, and their number


@lru_cache(maxsize=16)
def audits(which: str, size: str, store: Store | None = None, half: bool = False) -> tuple[Row, ...]:
    """The audits of one kind of data, one for each seed; in mini, breast cancer takes the place of Adult."""
    if which not in TRAINED:
        return tuple(stored.rows(which, size))
    if size == "mini":
        return tuple(kept.rows("table", CONFIG["table"]["mini"], store, engine="inline"))
    settings = CONFIG[TRAINED[which]][size]
    if half:
        settings = {**settings, "members": settings["members"] // 2, "epochs": [max(settings["epochs"])]}
    return tuple(kept.rows(TRAINED[which], settings, store))


def _name(which: str, size: str) -> str:
    return "mini" if size == "mini" else which


def _unit(which: str) -> str:
    return "loss per token" if which == "wikitext2" else "accuracy"


# --- chapter 6 and 7 ----------------------------------------------------------------------------------------


def table61(which: str, size: str, store: Store | None = None) -> Found:
    """The target models."""
    rows, name = audits(which, size, store), _name(which, size)
    told = {f"Targets on {name}": markdown.of_targets(rows, _unit(which))}
    if size == "mini":
        return Found({"table61.mini.fits": float(summary.rises(rows, "train"))}, told)
    tests = [mean(rows, at, "test") for at in range(len(PRINTED[which]))]
    numbers = {f"table61.{name}.E{e}": 100 * test for e, test in zip(PRINTED[which], tests, strict=True)}
    numbers[f"table61.{name}.falls"] = float(all(before > after for before, after in pairwise(tests)))
    return Found(numbers, told)


def figure61(size: str) -> Found:
    """Whether generated images are copies, and whether they are told from real ones."""
    rows = stored.rows("generator", size)
    known = {row["data"] for row in rows}  # a kind of data that has no run of this size is shown in another one
    rows += [row for row in stored.kept() if row["key"] == "generator" and row["data"] not in known]
    told = {"The generators of images": markdown.of_image_generators(rows)}
    maps = [one for row in rows for one in row["maps"]]
    if maps:
        told["Starts and maps"] = markdown.of_maps(maps)
    tried = [row for row in stored.kept() if row["key"] == "trials"]
    if tried:
        told["Other ways that were tried"] = markdown.of_trials(tried)
    numbers = {
        "figure61.copies": float(all(0 < row["nearest"] <= row["nearest_real"] for row in rows)),
        "figure61.passes": float(not any(row["decides"] for row in rows)),
    }
    return Found(numbers, told)


def table71(which: str, size: str, store: Store | None = None) -> Found:
    """c_lb by helper."""
    rows = audits(which, size, store)
    found = {
        short: float(np.mean([row["strength"]["helper"][long] for row in rows])) for short, long in HELPERS.items()
    }
    numbers = {f"table71.{which}.{short}": value for short, value in found.items()}
    numbers[f"table71.{which}.best"] = float(found["gen"] > max(found["real"], found["none"]))
    numbers[f"table71.{which}.helps"] = float(min(found["gen"], found["real"]) > found["none"])
    return Found(numbers, {f"Baselines on {which}, one number of guesses for all": markdown.of_helpers(rows)})


def figure71(size: str) -> Found:
    """c_lb by the baseline's training size."""
    from . import pictures

    rows = audits("cifar10", size)
    ends = [(row["strength"]["size"][0]["c_lb"], row["strength"]["size"][-1]["c_lb"]) for row in rows]
    numbers = {
        "figure71.learns": float(all(0 <= first < last for first, last in ends)),
        "figure71.enough": float(not any(row["strength"]["rising"] for row in rows)),
    }
    caption = "c_lb at a fixed number of guesses against the records that the baseline was trained on, each seed."
    return Found(numbers, figures={"figure71.svg": (caption, pictures.of_strength(rows))})


# --- chapter 8 ----------------------------------------------------------------------------------------------


def _curves(row: Row) -> tuple[Row, list[Row]]:
    """The thesis's curves: the baseline's, and the targets' with the shortest training first."""
    return row["thesis"]["curve"], [target["thesis"]["curve"] for target in row["targets"]]


def figure81(which: str, size: str, store: Store | None = None) -> Found:
    """Precision against recall."""
    from . import pictures

    rows, name = audits(which, size, store), which

    def precisions(curve: Row) -> list[float]:
        return [summary.at_recall(curve, recall) for recall in RECALLS]

    means = [
        np.mean([precisions(curves) for curves in some], axis=0)
        for some in zip(*([_curves(row)[0], *_curves(row)[1]] for row in rows), strict=True)
    ]
    without, shortest, longest = means[0], means[1], means[-1]
    numbers = {
        f"figure81.{name}.more": float((longest >= shortest).all() and (longest > shortest).any()),
        f"figure81.{name}.above": float((longest > without).all()),
    }
    caption = f"Precision against recall, seed {rows[0]['seed']}; marks: where the bound of a line is largest."
    return Found(numbers, figures={f"figure81_{name}.svg": (caption, pictures.of_recall(rows[0], "precision"))})


def figure82(which: str, size: str, store: Store | None = None) -> Found:
    """{c+ε}_lb against recall."""
    from . import pictures

    rows, name = audits(which, size, store), _name(which, size)
    best = [curve["recall"][curve["best"]] for row in rows for curve in _curves(row)[1][-1:]]
    numbers = {f"figure82.{name}.rises": float(summary.rises(rows, "thesis", "c_eps_lb"))}
    if size != "mini":
        highest = mean(rows, -1, "thesis", "c_eps_lb")
        numbers[f"figure82.{name}.low_recall"] = float(highest > 0 and np.mean(best) < 0.5)
    caption = (
        f"{{c+ε}}_lb (of the baseline c_lb) against recall, seed {rows[0]['seed']}, each point at 97.5 % for its own "
        "recall alone; marks: the largest of a line, which the thesis takes."
    )
    return Found(numbers, figures={f"figure82_{name}.svg": (caption, pictures.of_recall(rows[0], "bound"))})


def table81(which: str, size: str, store: Store | None = None) -> Found:
    """c_lb, {c+ε}_lb, ε̃, RM;RN and O(1)."""
    rows, name = audits(which, size, store), _name(which, size)
    told = {f"Audits on {name}, 95 % confidence": markdown.of_audits(rows), f"Cost on {name}": markdown.of_cost(rows)}
    rises = float(summary.rises(rows, "thesis", "epsilon"))
    if size == "mini":
        return Found({"table81.mini.rises": rises}, told)
    numbers = {f"table81.{name}.c_lb": float(np.mean([row["thesis"]["c_lb"] for row in rows]))}
    for at, epochs in enumerate(PRINTED[which]):
        numbers[f"table81.{name}.E{epochs}.c_eps_lb"] = mean(rows, at, "thesis", "c_eps_lb")
        numbers[f"table81.{name}.E{epochs}.epsilon"] = mean(rows, at, "thesis", "epsilon")
        numbers[f"table81.{name}.E{epochs}.one_run"] = mean(rows, at, "thesis", "one_run")
        if which != "adult":
            numbers[f"table81.{name}.E{epochs}.real"] = mean(rows, at, "real")
    numbers[f"table81.{name}.rises"] = rises
    longest = mean(rows, -1, "thesis", "epsilon")
    prior = max(mean(rows, -1, "real"), mean(rows, -1, "thesis", "one_run"))
    if which == "adult":
        numbers[f"table81.{name}.above"] = float(longest > mean(rows, -1, "thesis", "one_run"))
        return Found(numbers | _half(size, store, told), told)
    numbers[f"table81.{name}.below"] = float(0 < longest < prior)
    return Found(numbers, told)


def _half(size: str, store: Store | None, told: dict[str, str]) -> dict[str, float]:
    """The network that was trained on half of the members, so that more real non-members are left."""
    rows, whole = audits("adult", size, store, half=True), audits("adult", size, store)
    told["Audits on adult, half of the members"] = markdown.of_audits(rows)
    c_lb = float(np.mean([row["thesis"]["c_lb"] for row in rows]))
    epsilon, real = mean(rows, -1, "thesis", "epsilon"), mean(rows, -1, "real")
    return {
        "table81.adult.half.c_lb": c_lb,
        "table81.adult.half.c_eps_lb": mean(rows, -1, "thesis", "c_eps_lb"),
        "table81.adult.half.epsilon": epsilon,
        "table81.adult.half.real": real,
        "table81.adult.half.one_run": mean(rows, -1, "thesis", "one_run"),
        "table81.adult.half.below": float(0 < epsilon < real),
        "table81.adult.half.weaker": float(0 < c_lb < np.mean([row["thesis"]["c_lb"] for row in whole])),
    }


def figure83(which: str, size: str, store: Store | None = None) -> Found:
    """True positives against guesses."""
    from . import pictures

    rows, name = audits(which, size, store), which
    leads = []
    for row in rows:
        baseline, targets = _curves(row)
        most = max(baseline["guesses"])
        grid = [share * most for share in (0.1, 0.2, 0.3)]
        found = [np.interp(grid, c["guesses"], summary.right_guesses(c)) for c in (baseline, targets[-1])]
        leads.append(found[1] - found[0])
    numbers = {f"figure83.{name}.more": float((np.mean(leads, axis=0) > 0).all())}
    caption = f"Right guesses against all guesses, seed {rows[0]['seed']}."
    return Found(numbers, figures={f"figure83_{name}.svg": (caption, pictures.of_guesses(rows[0]))})


def _gaps(losses: dict[str, Any], first: str, second: str) -> list[float]:
    """The difference of the mean losses of two kinds of records, under every model."""
    return [float(np.mean(sides[second]) - np.mean(sides[first])) for sides in losses.values()]


def losses(number: int, which: str, size: str, store: Store | None = None) -> Found:
    """Figures 8.4 and 8.5: losses of members, real non-members and generated records."""
    from . import pictures

    (row, *_), name = audits(which, size, store), f"figure{number}"
    told = {target["name"]: row["losses"][target["name"]] for target in row["targets"]}
    real, made = (_gaps(told, "members", other) for other in ("real non-members", "generated"))
    numbers = {
        f"{name}.real": float(all(before < after for before, after in pairwise([0.0, *real]))),
        f"{name}.generated": float(made[-1] > made[0] and made[-1] > 0),
    }
    if number == 85:
        helper = {"helper": row["losses"]["helper"]}
        apart = abs(_gaps(helper, "real non-members", "generated")[0])
        spread = float(np.std(helper["helper"]["real non-members"]))
        numbers[f"{name}.helper"] = float(apart > 0.1 * spread > 0)
    caption = (
        f"Distribution functions of the losses, seed {row['seed']}: 41 quantiles each of members, real non-members and "
        "generated records."
    )
    return Found(numbers, figures={f"{name}.svg": (caption, pictures.of_losses(row["losses"]))})


def figure86a(size: str) -> Found:
    """Models of three sizes, the smallest first."""
    from . import pictures

    (row, *_) = stored.rows("sizes", size)
    found = [target["thesis"]["epsilon"] for target in row["targets"]]
    numbers = {"figure86a.rises": float(all(a <= b for a, b in pairwise(found)) and found[-1] > found[0])}
    caption = "{c+ε}_lb of models of three sizes; dashed: c_lb."
    return Found(numbers, figures={"figure86a.svg": (caption, pictures.of_bounds(row))})


def _budgets(key: str, size: str) -> tuple[Row, dict[float, Row]]:
    """An audit of models with DP-SGD, and its targets by ε; that without DP has ε = ∞."""
    (row, *_) = stored.rows(key, size)
    return row, {float("inf") if t["dp"] is None else float(t["dp"]): t for t in row["targets"]}


def figure86b(size: str) -> Found:
    """Models with DP-SGD: the larger ε, the more is measured."""
    from . import pictures

    row, found = _budgets("dp.resnet", size)
    chosen = [found[e]["thesis"]["epsilon"] for e in (10.0, 15.0, float("inf"))]
    numbers = {"figure86b.rises": float(0 < chosen[0] < chosen[1] < chosen[2])}
    caption = "{c+ε}_lb of models with DP-SGD; dashed: c_lb."
    return Found(numbers, figures={"figure86b.svg": (caption, pictures.of_bounds(row))})


def private(name: str, key: str, size: str) -> Found:
    """Tables 8.2 and 8.3: ε̃ and O(1) of models with DP-SGD."""
    row, found = _budgets(key, size)
    numbers: dict[str, float] = {}
    for budget in (*BUDGETS[key], float("inf")):
        numbers[f"{name}.{budget:g}.epsilon"] = found[budget]["thesis"]["epsilon"]
        numbers[f"{name}.{budget:g}.one_run"] = found[budget]["thesis"]["one_run"]
    measured = [found[e]["thesis"]["epsilon"] for e in (10.0, 15.0, 20.0, float("inf"))]
    tight = [found[float(e)]["thesis"]["epsilon"] for e in BUDGETS[key] if e < 10]
    numbers[f"{name}.rises"] = float(measured[0] > 0 and all(a < b for a, b in pairwise(measured)))
    numbers[f"{name}.silent"] = float(max(tight) == 0 < measured[-1])
    return Found(numbers, {f"Models with DP-SGD, {key.split('.')[1]}": markdown.of_audits([row])})


def table84(size: str) -> Found:
    """Models with one guarantee and different gaps between training and test accuracy."""
    rows = stored.rows("dp.same", size)
    agree = [
        (first["train"] - first["test"] > other["train"] - other["test"])
        == (first["thesis"]["epsilon"] > other["thesis"]["epsilon"])
        for row in rows
        for first, other in [row["targets"][:2]]
        if first["thesis"]["epsilon"] != other["thesis"]["epsilon"]
    ]
    told = {f"Two models with ε = {row['targets'][0]['dp']:g}": markdown.of_targets([row], "accuracy") for row in rows}
    return Found({"table84.differ": float(bool(agree)), "table84.gap": float(bool(agree) and all(agree))}, told)


# --- beyond the thesis --------------------------------------------------------------------------------------


CONTROLS = {
    "tables": "networks on Adult, 300 members",
    "texts": "transformers on texts, 2000 members",
    "images": "networks on CIFAR-10, 8000 members",
}
LEAKS = {"tables": "adult", "images": "cifar10"}  # whose networks did see their members


def silence(kind: str, size: str, store: Store | None = None) -> Found:
    """Models that never saw the members give 0, and those that did are found: our protocol."""
    if kind == "tables":
        controls = [row["epsilon"] for row in kept.rows("silent", CONFIG["silent"][size], store)]
    else:
        rows = stored.rows("controls", size) if kind == "images" else _texts("silent_text", size, store)
        controls = [target["epsilon"] for row in rows for target in row["targets"]]
    if len(controls) < FEWEST:
        raise NotRunError(f"only {len(controls)} of {FEWEST} {kind} were run")
    leaks = _texts("short_text", size, store) if kind == "texts" else audits(LEAKS[kind], size, store)
    found = all(row["targets"][-1]["stands_out"] and row["targets"][-1]["epsilon"] > 0 for row in leaks)
    numbers = {f"silence.{kind}": float(np.mean(np.equal(controls, 0.0)) >= SILENT)}
    numbers[f"silence.found.{kind}"] = float(found)
    return Found(numbers, {f"Silence on {kind}": markdown.of_silence({CONTROLS[kind]: controls})})


def _texts(section: str, size: str, store: Store | None) -> tuple[Row, ...]:
    return tuple(kept.rows(section, CONFIG[section][size], store))


def generators(size: str, store: Store | None = None) -> Found:
    """MST with a stated ε beside the tree and the copula, by the judge and by the nearest member."""
    numbers: dict[str, float] = {}
    told: dict[str, str] = {}
    for data in ("adult", "bank_marketing"):
        found = tuple(kept.rows("generators", {**CONFIG["generators"][size], "data": data}, store))
        columns: dict[str, list[dict[str, Any]]] = {}
        for row in found:
            for one in row["rows"]:
                columns.setdefault(one["name"], []).append(one)
        aucs = {name: float(np.mean([one["auc"] for one in some])) for name, some in columns.items() if some[0]["auc"]}
        usual = float(np.mean([one["distance"] for one in columns["held-out records"]]))
        away = min(float(np.mean([one["distance"] for one in some])) for name, some in columns.items() if name in aucs)
        numbers[f"generators.{data}.noise"] = float(0.5 < aucs["MST, ε = 10"] < aucs["MST, ε = 1"])
        numbers[f"generators.{data}.tree"] = float(aucs["tree"] < aucs["MST, ε = 10"])
        numbers[f"generators.{data}.copies"] = float(away >= 0.9 * usual > 0)
        told[f"Generators on {data}"] = markdown.of_generators(columns)
    return Found(numbers, told)


def _each(name: str, function: Callable[..., Found], kinds: Sequence[str]) -> dict[str, Callable[..., Found]]:
    return {f"{name}-{kind}": partial(function, kind) for kind in kinds}


KINDS = ("cifar10", "celeba", "wikitext2", "adult")
PARTS: dict[str, Callable[..., Found]] = {
    **_each("tab61", table61, ("cifar10", "celeba", "adult")),
    "fig61": figure61,
    **_each("tab71", table71, KINDS),
    "fig71": figure71,
    **_each("fig81", figure81, KINDS),
    **_each("fig82", figure82, KINDS),
    **_each("tab81", table81, KINDS),
    **_each("fig83", figure83, KINDS),
    "fig84": partial(losses, 84, "celeba"),
    "fig85": partial(losses, 85, "wikitext2"),
    "fig86a": figure86a,
    "fig86b": figure86b,
    "tab82": partial(private, "table82", "dp.resnet"),
    "tab83": partial(private, "table83", "dp.wide"),
    "tab84": table84,
    **_each("silence", silence, tuple(CONTROLS)),
    "generators": generators,
}
