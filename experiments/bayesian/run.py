"""Bayesian Estimation of Differential Privacy (Zanella-Béguelin et al., 2023): its numbers, tables and figures."""

from __future__ import annotations

import json
import math
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from dosimeter.engine import Store
from dosimeter.estimate import Estimate

from ..exhibits import Found, NotRunError
from ..shared import markdown
from . import measure, once, widths

COVERAGE = Path(__file__).parents[2] / "docs" / "coverage.json"
COVERED = (
    "clopper-pearson, fixed",
    "clopper-pearson, uniform",
    "jeffreys, split",
    "bayesian, split",
    "bayesian, naive",
)
MECHANISMS = ("no leak", "Laplace ε=1", "Gaussian μ=1")
PRIVATE = "cifar10-dp"
LEARNS = 0.6  # test accuracy on CIFAR-10 that a network of the paper's size should reach on 20 000 images
FINE_TUNED = 0.86  # test accuracy on SST-2 that a fine-tuned MiniLM should reach
SEEN = 0.05  # an ε that an attack which sees nothing does not show
STEPS = {"mini": 50, "quick": 25, "full": 5}  # between error counts of 500 in Figure 5


def _measured(name: str, size: str, store: Store | None) -> measure.Kept:
    """What the models of a target showed: in mini trained now, in full what is missing, in quick what there is."""
    if size == "mini":
        with tempfile.TemporaryDirectory() as folder:
            measure.complete(name, None, folder=Path(folder))
            return measure.read(Path(folder))[name]
    if size == "full" or name not in measure.read():
        measure.complete(name, store)
    return measure.read()[name]


def _finished(name: str) -> measure.Kept:
    """What the models of a target showed, if all of them are trained."""
    kept = measure.read().get(name)
    if kept is None or kept.runs < measure.CONFIG[name]["runs"]:
        raise NotRunError(f"run `python experiments/bayesian/measure.py --only {name}` first: more than an hour")
    return kept


def figure1(size: str, store: Store | None = None) -> Found:
    """The posterior of ε for a network trained with DP."""
    from . import pictures

    kept = _measured(PRIVATE, size, store)
    joint = kept.as_printed()["joint"]
    cells = joint.counts
    assert cells is not None
    ends = {name: widths.interval(name, cells, widths.DELTA, widths.CONFIDENCE) for name in widths.METHODS}
    stated = measure.CONFIG[PRIVATE]["epsilon"]
    numbers = {"figure1.cifar10.below": float(kept.chance < 0.05 and joint.high < stated)}
    caption = (
        f"A CNN on CIFAR-10 trained with ε = {stated:g}, {kept.runs} challenge models with {len(kept.points)} points "
        "each: posterior density of ε at δ = 1e-5 at the best threshold, and 90 % intervals of three methods there."
    )
    return Found(numbers, figures={"figure1_cifar10.svg": (caption, pictures.posterior(cells, ends))})


def figure2() -> Found:
    """The region of privacy."""
    from . import pictures

    forced = widths.forced_by_tests(1.0)
    caption = "Regions of (ε, δ)-DP at δ = 0.05; between the lines of one colour lie the rates that ε allows."
    numbers = {"figure2.forced": forced, "figure2.contained": float(SEEN < forced <= 1.0 + 1e-9)}
    return Found(numbers, figures={"figure2.svg": (caption, pictures.regions())})


def section3() -> Found:
    """Section 3.1 and footnote 1."""
    numbers = {f"perfect.{name}": value for name, value in widths.perfect().items()}
    return Found(numbers | {"corner": widths.corner()})


def figure3() -> Found:
    """Section 3.2 and its figure."""
    from . import pictures

    found = widths.covered()
    numbers = {
        f"example.{name}.{end}": value
        for name, ends in widths.worked_example().items()
        for end, value in zip(("low", "high"), ends, strict=True)
    }
    numbers |= {"example.rectangle": 100 * found.rectangle, "example.regions": 100 * found.regions}
    caption = (
        "FN 35, TP 65, FP 25, TN 75, δ = 0.05: draws from the joint posterior, the regions of the ends of the joint "
        "interval, and the rectangle of two Jeffreys intervals."
    )
    numbers["example.mass"] = widths.mass()
    numbers["example.more"] = float(found.regions > found.rectangle >= 0.95)
    return Found(numbers, figures={"figure3.svg": (caption, pictures.rectangle())})


def figure4() -> Found:
    """Samples that an estimate within ± 0.15 takes."""
    from . import pictures

    needed = {name: widths.samples_needed(name) for name in widths.METHODS}
    numbers = {f"figure4.{name}": needed[name] for name in ("clopper_pearson", "joint")}
    numbers["figure4.saves"] = float(needed["joint"] < 0.5 * needed["jeffreys"] < 0.5 * needed["clopper_pearson"])
    caption = (
        "FPR = FNR = 40 %, δ = 1e-5: both ends of the 90 % interval for ε against the number of samples. Within ± 0.15 "
        f"after {needed['joint']:.0f} samples (joint), {needed['jeffreys']:.0f} (Jeffreys), "
        f"{needed['clopper_pearson']:.0f} (Clopper–Pearson)."
    )
    return Found(numbers, figures={"figure4.svg": (caption, pictures.samples())})


def figure5(size: str) -> Found:
    """Widths over all error rates."""
    from . import pictures

    rows = widths.over_rates(STEPS[size])
    gains = {
        n: [r[f"than_{n}"] for r in rows if r[f"than_{n}"] == r[f"than_{n}"]] for n in ("jeffreys", "clopper_pearson")
    }
    numbers = {f"figure5.{name}": 100 * max(values) for name, values in gains.items()}
    numbers["figure5.narrowest"] = float(all(min(values) > 0 for values in gains.values()))
    text = ", ".join(f"{min(v):.0%} to {max(v):.0%} narrower than {pictures.NAMES[n]}'s" for n, v in gains.items())
    caption = (
        f"Width of the joint interval for 1000 samples, δ = 1e-5, 90 %: {text}. Part of that is coverage given up."
    )
    cells = {(row["estimator"], row["mechanism"]): row for row in json.loads(COVERAGE.read_text(encoding="utf-8"))}
    lines = [
        [name, cells[name, MECHANISMS[0]]["validity"], *(f"{cells[name, m]['rate']:.1%}" for m in MECHANISMS)]
        for name in COVERED
    ]
    table = markdown(["method", "validity", *MECHANISMS], lines)
    title = "Coverage, from `make coverage-table`: how often the lower end is above the true ε (nominal 5 %)"
    return Found(numbers, {title: table}, {"figure5.svg": (caption, pictures.rates(rows))})


def figure7() -> Found:
    """The joint posterior as trials grow."""
    from . import pictures

    rows = widths.growing()
    areas = [row["area"] for row in rows]
    table = [[f"{r['trials']:.0f}", f"[{r['low']:.3f}, {r['high']:.3f}]", f"{r['area']:.3f}"] for r in rows]
    numbers = {
        "figure7.first": float(areas[0] > 0.9),
        "figure7.shrinks": float(all(after < 0.7 * before for before, after in pairwise(areas))),
    }
    caption = "The region between the ends of the 95 % joint interval, at the rates of the worked example."
    title = "Rates of the worked example, δ = 0.05"
    return Found(
        numbers,
        {title: markdown(["trials", "joint interval", "area between its regions"], table)},
        {"figure7.svg": (caption, pictures.growing())},
    )


def table2(names: tuple[str, ...], size: str, store: Store | None = None) -> Found:
    """The end-to-end system on trained targets."""
    from . import pictures

    if size == "mini":  # data that come with scikit-learn
        names = ("digits",)
    found = {name: _measured(name, size, store) for name in names}
    numbers: dict[str, float] = {}
    rows, spans = [], {}
    for name, kept in found.items():
        printed, ours = kept.as_printed(), kept.proven()
        label = f"table2.{name}"
        if size == "mini":
            numbers[f"{label}.leaks"] = float(ours.low > SEEN)
        else:
            numbers |= {f"{label}.{method}.low": one.low for method, one in printed.items()}
            numbers |= {f"{label}.{method}.high": one.high for method, one in printed.items()}
            numbers[f"{label}.accuracy"] = 100 * float(np.mean(kept.accuracy))
        rows.append(_row(name, kept, printed, ours))
        spans[_privacy(name)] = {
            "ours, 95 %": (ours.low, math.inf),
            **{pictures.NAMES[method]: (one.low, one.high) for method, one in printed.items()},
        }
    if size != "mini":
        plain, private = (found[name] for name in names)
        least, most = plain.proven().low, measure.CONFIG[names[1]]["epsilon"]
        below = SEEN < least > private.proven().low <= most
        numbers[f"table2.{names[0]}.private_below"] = float(below)
        ends = {method: one.high for method, one in plain.as_printed().items()}
        only = math.isfinite(ends.pop("joint")) and all(map(math.isinf, ends.values()))
        if names[0] == "sst2":
            numbers["table2.sst2.only_joint"] = float(least > SEEN and only)
    head = ["target", "models", "test accuracy", "samples", *pictures.NAMES.values(), "ours, 95 %, any threshold"]
    title = f"{measure.CONFIG[names[0]]['title']}: 90 % intervals at the best threshold, as in the paper, and ours"
    caption = (
        "Intervals at the best threshold of the same samples, as in the paper, and our lower bound, which holds for "
        "all thresholds together. A bar that reaches the right edge has no upper end."
    )
    figure = {f"table2_{names[0]}.svg": (caption, pictures.of_targets(spans))}
    return Found(numbers, {title: markdown(head, rows)}, figure)


def fine_tuned() -> Found:
    """The transformer fine-tuned itself: more than an hour of a core, so it is read and never trained here."""
    from . import pictures

    name = "sst2-fine-tuned"
    kept = _finished(name)
    printed, ours = kept.as_printed(), kept.proven()
    accuracy = float(np.mean(kept.accuracy))
    numbers = {f"{name}.{method}.low": one.low for method, one in printed.items()}
    numbers |= {f"{name}.{method}.high": one.high for method, one in printed.items()}
    numbers |= {f"{name}.accuracy": 100 * accuracy, f"{name}.learns": float(accuracy >= FINE_TUNED)}
    numbers[f"{name}.tells"] = float(kept.chance < 0.05)
    head = ["target", "models", "test accuracy", "samples", *pictures.NAMES.values(), "ours, 95 %, any threshold"]
    title = f"{measure.CONFIG[name]['title']}: 90 % intervals at the best threshold, as in the paper, and ours"
    return Found(numbers, {title: markdown(head, [_row(name, kept, printed, ours)])})


def one_run(size: str, store: Store | None = None) -> Found:
    """A network as large as the paper's, audited in the one run that trained it."""
    found = once.audited(size, store)
    if size == "mini":
        numbers = {"once.digits.leaks": float(found.bound.low > SEEN)}
    else:
        numbers = {
            "once.accuracy": 100 * found.accuracy,
            "once.learns": float(found.accuracy > LEARNS),
            "once.leaks": float(found.bound.low > SEEN),
        }
    row = [
        found.title,
        str(found.members),
        str(found.audited),
        f"{found.accuracy:.3f}",
        f"{found.auc:.3f}",
        f"ε ≥ {found.bound.low:.2f}",
    ]
    head = ["target", "trained on", "audited", "test accuracy", "AUC of the losses", "ours, 95 %, one run"]
    return Found(numbers, {f"{found.title}: one run": markdown(head, [row])})


def _target(name: str) -> str:
    return f"{measure.CONFIG[name]['title']}, {_privacy(name)}"


def _privacy(name: str) -> str:
    stated = measure.CONFIG[name].get("epsilon")
    return "no DP" if stated is None else f"ε = {stated:g}"


def _row(name: str, kept: measure.Kept, printed: dict[str, Estimate], ours: Estimate) -> list[str]:
    from . import pictures

    asked = measure.CONFIG[name]["runs"]
    runs = f"{kept.runs}" if kept.runs >= asked else f"{kept.runs} of {asked}"
    spans = [
        f"({one.low:.2f}, {'∞' if math.isinf(one.high) else f'{one.high:.2f}'})"
        for one in (printed[method] for method in pictures.NAMES)
    ]
    models = f"{len(kept.shadow_in)} shadow, {runs} challenge"
    samples = str(kept.runs * len(kept.points))
    return [_target(name), models, f"{np.mean(kept.accuracy):.3f}", samples, *spans, f"ε ≥ {ours.low:.2f}"]


PARTS = {
    "fig1": figure1,
    "fig2": figure2,
    "section3": section3,
    "fig3": figure3,
    "fig4": figure4,
    "fig5": figure5,
    "table2-sst2": partial(table2, ("sst2", "sst2-dp")),
    "table2-fine-tuned": fine_tuned,
    "table2-cifar10": partial(table2, ("cifar10", PRIVATE)),
    "table2-once": one_run,
    "fig7": figure7,
}
