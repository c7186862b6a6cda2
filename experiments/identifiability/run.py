"""Quantifying identifiability (Bernau et al., 2021): every table and figure under its own number."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from dosimeter.engine import Store

from ..exhibits import Found
from ..shared import announce, markdown
from . import closed
from .trained import BELIEF, CLIP, RATE, SETTINGS, STEPS, WAYS, Cell, Way, cell, parts

DELTAS = (0.01, 0.001, 1e-6)
LEAST = 0.25  # of the clipping norm: a local sensitivity that is below it is hardly one
REACHES = 0.95  # of the clipping norm: from there on a local sensitivity counts as the global one


def _label(size: str, which: str) -> str:
    """What the rows of a data set are called; in mini, digits takes the place of all."""
    return "digits" if size == "mini" else which


def _four(size: str, which: str, store: Store | None) -> dict[str, Cell]:
    """The four ways of Table 2, by the paper's abbreviations."""
    return {way.short: cell(size, which, way, store) for way in WAYS}


# --- without training -------------------------------------------------------------------------------------


def figure1() -> Found:
    """The decision boundary."""
    from . import pictures

    numbers = {"figure1.boundary": closed.boundary(1.0), "figure1.boundary.more_noise": closed.boundary(3.0)}
    caption = "f(D) = 0, f(D′) = 1, σ = 1: the densities of the result, and the belief in each data set."
    return Found(numbers, figures={"figure1.svg": (caption, pictures.decision(1.0))})


def figure2() -> Found:
    """Error regions at two guarantees."""
    from . import pictures

    found = {epsilon: closed.play(epsilon, 1e-6).advantage for epsilon in (6.0, 3.0)}
    numbers = {f"figure2.{epsilon:g}": value for epsilon, value in found.items()}
    numbers["figure2.smaller"] = float(found[3.0] < found[6.0])
    caption = f"Shaded: where the adversary errs. {closed.DRAWS} games each; the advantage is 1 less both shaded areas."
    return Found(numbers, figures={"figure2.svg": (caption, pictures.errors((6.0, 3.0), 1e-6))})


def figure3() -> Found:
    """What ε means, and whether the belief stays below its bound."""
    from . import pictures

    epsilons = [epsilon for epsilon, _ in closed.table3(SETTINGS["adult"].beliefs, 0.001).values()]
    played = {(e, d): closed.play(e, d, dimensions=10) for e in epsilons for d in DELTAS[:2]}
    slack = {key: 3 * math.sqrt(key[1] / closed.DRAWS) for key in played}
    at = min(epsilons, key=lambda e: abs(e - 2.2))
    numbers = {f"figure3.advantage.{d:g}": played[at, d].advantage for d in DELTAS[:2]}
    numbers["figure3.belief"] = float(all(0 < p.above <= key[1] + slack[key] for key, p in played.items()))
    rows = [
        [f"{e:.3f}", f"{d:g}", f"{p.advantage:.4f}", f"{p.above:.2g}", f"{closed.play(6.0, d).above:.2g}"]
        for (e, d), p in played.items()
    ]
    title = "Ten dimensions: how often the belief is above its bound, and the same at ε = 6"
    table = markdown(["ε", "δ", "advantage", "beliefs above ρ_β", "the same at ε = 6"], rows)
    caption = "The bound on the belief, and the advantage at the noise of Eq. (1)."
    return Found(numbers, {title: table}, {"figure3.svg": (caption, pictures.meaning(DELTAS))})


def table1() -> Found:
    """How the search for the most dissimilar record grows."""
    small, large = closed.pairs_compared(512), closed.pairs_compared(2048)
    return Found({"table1.exponent": math.log(large / small) / math.log(4)})


def table3() -> Found:
    """ε and ρ_α of the paper's beliefs."""
    numbers = {}
    for name, data in (("mnist", "mnist"), ("others", "adult")):
        for belief, (epsilon, advantage) in closed.table3(SETTINGS[data].beliefs, SETTINGS[data].delta).items():
            numbers[f"table3.{name}.{belief:g}.epsilon"] = epsilon
            numbers[f"table3.{name}.{belief:g}.advantage"] = advantage
    return Found(numbers)


# --- trained ----------------------------------------------------------------------------------------------


def figure4(which: str, size: str, store: Store | None = None) -> Found:
    """Distances of records against local sensitivities, and what labels have to do with it."""
    from . import pairs, pictures

    label = _label(size, which)
    shown = pairs.extremes(size, which, 3 if which == "mnist" and size != "mini" else 1, store)
    cells = pairs.by_label(size, which, store)
    far, near = ([w.typical for w in shown if w.name.startswith(name)] for name in ("farthest", "nearest"))
    numbers = {
        f"figure4.{label}.larger": float(min(far) > max(near)),
        f"figure4.{label}.distance": float(
            cells["farthest", "equal"].advantage > cells["nearest", "different"].advantage
        ),
    }
    everything = [*shown, *cells.values()]
    rows = [
        [
            w.name,
            f"{w.pair.distance:.3g}",
            "equal" if w.pair.same_label else "different",
            f"{w.typical:.3f} ({w.low.min():.3f} to {w.high.max():.3f})",
            f"{w.advantage:.4f}",
        ]
        for w in everything
    ]
    data = parts(size, which)
    title = f"Pairs of {data.name} by {data.setting.distance}: global noise, ρ = 0.9"
    head = ["pair", "distance", "labels", "local sensitivity, median (lowest 5 % to highest 95 %)", "advantage"]
    caption = (
        f"{data.name}: the local sensitivity in each of 30 steps for pairs of records (a mark is the median of the "
        "runs in one step, the line the middle 90 % over all steps)."
    )
    return Found(
        numbers, {title: markdown(head, rows)}, {f"figure4_{which}.svg": (caption, pictures.of_pairs(everything))}
    )


def distances(which: str, size: str, store: Store | None = None) -> Found:
    """How well each distance follows the local sensitivity."""
    from . import pairs

    data, found = parts(size, which), pairs.compare(size, which, store)
    chosen, *others = sorted(found.follows, key=lambda f: f.distance != data.setting.distance)
    numbers = {
        f"distances.{_label(size, which)}.best": float(all(chosen.reached >= o.reached - 1e-9 for o in others)),
        f"distances.{_label(size, which)}.follows": float(chosen.over_x > 0.3),
        f"distances.{_label(size, which)}.equal": float(all(chosen.equal >= o.equal - 1e-9 for o in others)),
    }
    rows = [
        [f.distance, *(f"{v:.3f}" for v in (f.over_x, f.over_xy, f.equal, f.different, f.reached))]
        for f in found.follows
    ]
    rows.append(["mean local sensitivity", "", "", f"{found.equal:.3f}", f"{found.different:.3f}", ""])
    head = [
        "rank correlation with the local sensitivity",
        "over x",
        "over (x, y)",
        "equal labels",
        "different labels",
        "farthest pair / largest",
    ]
    return Found(numbers, {f"Distances and gradients of {data.name}": markdown(head, rows)})


def figure5(which: str, size: str, store: Store | None = None) -> Found:
    """Sensitivities over the steps."""
    from . import pictures

    label, cells = _label(size, which), _four(size, which, store)
    highest, typical = {}, {}
    for short, one in cells.items():
        seen = one.details.sensitivities
        assert seen is not None
        highest[short], typical[short] = max(seen.high), float(np.mean(seen.median))
    reaches = min(typical["LS U"], typical["GS U"]) >= REACHES * CLIP
    bounded = max(highest["LS B"], highest["GS B"]) < REACHES * 2 * CLIP and typical["GS B"] > LEAST * CLIP
    below = max(typical["LS U"], typical["GS U"]) < REACHES * CLIP and typical["GS U"] > LEAST * CLIP
    numbers = {
        f"figure5.{label}.bounded": float(bounded),
        f"figure5.{label}.unbounded": float(below if which == "adult" else reaches),
    }
    name, runs = parts(size, which).name, cells["LS B"].runs
    caption = f"{name}: the median local sensitivity in each step, ρ = 0.9, {runs} runs for each line."
    return Found(numbers, figures={f"figure5_{which}.svg": (caption, pictures.sensitivities(list(cells.values())))})


def table2(which: str, size: str, store: Store | None = None) -> Found:
    """Advantage and δ′ of four ways."""
    label, cells = _label(size, which), _four(size, which, store)
    numbers = {}
    if size != "mini":
        for short, one in cells.items():
            numbers[f"table2.{label}.{short}.advantage"] = one.advantage
            numbers[f"table2.{label}.{short}.delta"] = one.excess
    off = [abs(one.counted[0] - one.advantage) / one.counted[1] for one in cells.values()]
    numbers[f"table2.{label}.counted"] = float(max(off) < 3 and min(one.advantage for one in cells.values()) > 0)
    numbers[f"table2.{label}.smaller"] = float(cells["GS B"].advantage < 0.9 * cells["LS B"].advantage)
    numbers[f"table2.{label}.delta"] = float(
        all(0 < c.excess <= c.delta for c in cells.values() if c.way.scale == "local")
    )
    rows = [
        [
            short,
            str(c.runs),
            f"{c.advantage:.4f}",
            f"{c.counted[0]:.3f} ± {c.counted[1]:.3f}",
            f"{c.excess:.2g}",
            f"{c.largest_belief:.3f}",
            f"{c.audit.headline.low:.3f}",
            f"{c.details.utility.accuracy:.3f}" if c.details.utility else "",
        ]
        for short, c in cells.items()
    ]
    head = [
        "noise",
        "runs",
        "Adv, trajectories",
        "Adv, counted",
        "δ′",
        "largest belief",
        "ε at least (95 %)",
        "accuracy",
    ]
    return Found(numbers, {f"Four ways on {parts(size, which).name}, ρ = 0.9": markdown(head, rows)})


def figure6(which: str, size: str, store: Store | None = None) -> Found:
    """Final beliefs of four ways."""
    from . import pictures

    label, cells = _label(size, which), _four(size, which, store)
    means = {short: float(np.dot(*pictures.in_truth(one))) for short, one in cells.items()}
    apart = means["LS U"] - means["GS U"]
    numbers = {
        f"figure6.{label}.slightly": float(all(0.5 < mean < 0.6 for mean in means.values())),
        f"figure6.{label}.not_reached": float(0.5 < cells["GS B"].largest_belief < BELIEF),
        f"figure6.{label}.unbounded": float(
            apart > 0.01 if which == "adult" else min(means.values()) > 0.5 and abs(apart) < 0.01
        ),
    }
    text = ", ".join(f"{short} {mean:.3f}" for short, mean in means.items())
    caption = (
        f"{parts(size, which).name}, {cells['LS B'].runs} runs for each line; mean belief: {text}. Dashed: ρ = 0.9."
    )
    return Found(numbers, figures={f"figure6_{which}.svg": (caption, pictures.beliefs(list(cells.values())))})


def figure6d(size: str, store: Store | None = None) -> Found:
    """Test accuracy of four ways and without noise."""
    from dosimeter.training import Privacy, Recipe, train_many

    from . import pictures

    data = parts(size, "mnist")
    announce(f"identifiability, {size}: {data.name} without noise")
    recipe = Recipe("adam", RATE, steps=STEPS, batch_size=None, dp=Privacy(0.0, CLIP))
    members = np.ones((10, len(data.inside[0])), bool)
    asked = train_many(
        data.setting.factory, recipe, data.inside, members, range(10), evaluate_on=data.test, store=store
    )
    plain = np.mean([np.mean(one.outputs.argmax(axis=1) == data.test[1]) for one in asked if one.outputs is not None])
    found = {"no noise": float(plain)}
    for short, one in _four(size, "mnist", store).items():
        assert one.details.utility is not None
        found[short] = one.details.utility.accuracy
    numbers = {
        "figure6d.converges": float(plain > 0.7),
        "figure6d.bounded": float(found["LS B"] > found["GS B"]),
        "figure6d.learns": float(found["LS B"] > 0.5),
    }
    caption = (
        f"Test accuracy on {data.name} after 30 steps: " + ", ".join(f"{k} {v:.1%}" for k, v in found.items()) + "."
    )
    return Found(numbers, figures={"figure6d.svg": (caption, pictures.accuracies(found))})


def audited(number: int, which: str, size: str, store: Store | None = None) -> Found:
    """Figures 7 to 9: ε′ in three ways against ε, and both adversaries."""
    from . import pictures

    data = parts(size, which)
    cells = [
        cell(size, which, Way("bounded", scale, belief), store)
        for scale in ("local", "global")
        for belief in data.setting.beliefs
    ]
    local, others = cells[: len(cells) // 2], cells[len(cells) // 2 :]
    off = {
        way: float(np.mean([abs(getattr(c, way) / c.epsilon - 1) for c in local]))
        for way in ("by_sensitivities", "by_beliefs", "by_advantage")
    }
    loss = [c.details.yeom for c in cells if c.details.yeom is not None]
    numbers = {
        f"figure{number}.order": float(off["by_sensitivities"] < off["by_beliefs"] < off["by_advantage"]),
        f"figure{number}.underestimates": float(
            all(0 < max(c.by_sensitivities, c.by_beliefs) < c.epsilon for c in others)
        ),
        f"figure{number}.outperforms": float(
            all(
                c.advantage > (m.advantage_high if c.epsilon > 1 else m.advantage_low)
                for c, m in zip(cells, loss, strict=True)
            )
        ),
    }
    rows = [
        [
            c.way.short,
            f"{c.way.belief:g}",
            str(c.runs),
            f"{c.epsilon:.3f}",
            *(f"{v:.3f}" for v in (c.by_sensitivities, c.by_beliefs, c.by_advantage, c.audit.headline.low)),
            f"{c.advantage:.4f}",
            f"{m.advantage:.4f} ({m.advantage_low:.4f} to {m.advantage_high:.4f})",
        ]
        for c, m in zip(cells, loss, strict=True)
    ]
    head = [
        "noise",
        "ρ",
        "runs",
        "ε",
        "ε′ sensitivities",
        "ε′ largest belief",
        "ε′ advantage",
        "ε at least (95 %)",
        "Adv, gradients",
        "Adv, losses",
    ]
    title = f"Audit of ε on {data.name}, bounded; ε′ by Theorem 3 (the printed Eq. (6) lacks a factor 2)"
    caption = (
        f"{data.name}, bounded: ε′ against ε in three ways (a to c), and the advantage of both adversaries (d); with "
        "local noise that of the DP adversary is its bound."
    )
    return Found(numbers, {title: markdown(head, rows)}, {f"figure{number}.svg": (caption, pictures.targets(cells))})


DATA = ("mnist", "purchase", "adult")


def _each(name: str, function: Callable[..., Found]) -> dict[str, Callable[..., Found]]:
    return {f"{name}-{which}": partial(function, which) for which in DATA}


PARTS: dict[str, Callable[..., Found]] = {
    "fig1": figure1,
    "fig2": figure2,
    "fig3": figure3,
    "table1": table1,
    **_each("fig4", figure4),
    **_each("distances", distances),
    **_each("fig5", figure5),
    **_each("table2", table2),
    **_each("fig6", figure6),
    "fig6-d": figure6d,
    "table3": table3,
    "fig7": partial(audited, 7, "mnist"),
    "fig8": partial(audited, 8, "purchase"),
    "fig9": partial(audited, 9, "adult"),
}
