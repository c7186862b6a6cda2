"""Epsilon* (Negoescu et al., 2024): both landscapes, the simulation study, goodness of fit, under their numbers."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter.engine import Store
from dosimeter.estimators.epsilon_star import transformed_losses
from dosimeter.estimators.goodness_of_fit import GoodnessOfFit, goodness_of_fit

from ..exhibits import Found
from ..shared import markdown
from . import landscape, simulation
from .landscape import Landscape, Outcome

CONFIG: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "config.toml").read_text(encoding="utf-8")
)
SAMPLED = 10_000  # losses of each kind in Figure 3
LEVEL = 0.05
LIMITS = {1: 1.0, 2: 0.3}  # what the paper finds all models with DP, or all models, to be below
ENDS, MIDDLE = 0.01, (0.05, 0.95)  # error rates at the ends of the curve, and elsewhere


@lru_cache(maxsize=4)
def _explored(size: str, which: str, store: Store | None) -> Landscape:
    return landscape.explore(CONFIG[size][which], store)


def _rises(outcomes: list[Outcome]) -> float:
    return float(all(before.mean < after.mean for before, after in pairwise(outcomes)))


def figure1(size: str, store: Store | None = None) -> Found:
    """The landscape of Purchase-100, or of its stand-in."""
    found = _explored(size, "purchase", store)
    numbers: dict[str, float] = {}
    for outcome in found.plain:
        if outcome.strategy.epochs in (10, 50, 100) and size != "mini":
            numbers[f"figure1.{outcome.strategy.epochs}.epsilon"] = outcome.mean
            numbers[f"figure1.{outcome.strategy.epochs}.accuracy"] = 100 * outcome.utility
    numbers["figure1.rises"] = _rises(found.plain)
    numbers["figure1.overfits"] = float(found.plain[-1].training_accuracy > 0.999)
    numbers["figure1.below"] = float(all(0 < max(o.epsilons) < LIMITS[1] for o in found.private))
    numbers["figure1.reduced"] = float(found.plain[-1].mean > 8 * np.median([o.mean for o in found.private]))
    return _landscape(1, numbers, found)


def figure2(size: str, store: Store | None = None) -> Found:
    """The landscape of Adult."""
    found = _explored(size, "adult", store)
    first, *longer = found.plain
    best = float(np.mean([o.utility < first.utility for o in found.private]))
    numbers = {
        "figure2.below": float(all(0 < max(o.epsilons) < LIMITS[2] for o in found.outcomes)),
        "figure2.rises": _rises(found.plain),
        "figure2.private": float(max(o.mean for o in found.private) < min(o.mean for o in longer)),
        "figure2.elbow": float(best > 0.5),
    }
    return _landscape(2, numbers, found)


def _landscape(number: int, numbers: dict[str, float], found: Landscape) -> Found:
    from . import pictures

    models = sum(len(o.epsilons) for o in found.outcomes)
    limit = LIMITS[number]
    above = sum(e >= limit for o in found.private for e in o.epsilons)
    caption = (
        f"{found.data}: {models} models of {len(found.outcomes)} strategies, {found.members} members and "
        f"{found.nonmembers} others. A point is a strategy (mean over its models, bars from the smallest to the "
        f"largest), dashed: the frontier; along the sides: densities by category. Utility is {found.measure}. "
        f"{above} of {sum(len(o.epsilons) for o in found.private)} models with DP have an ε* of {limit:g} or more."
    )
    on_line = {point.name for point in found.points if point.frontier}
    best: dict[str, Outcome] = {}
    for outcome in sorted(found.outcomes, key=lambda o: o.utility):
        best[outcome.strategy.group] = outcome
    highest = max(found.private, key=lambda o: o.mean)
    chosen = {o.strategy.name for o in (*best.values(), *found.plain, highest)} | on_line
    rows = [
        [
            o.strategy.name,
            f"{o.mean:.3f} ({min(o.epsilons):.3f} to {max(o.epsilons):.3f})",
            f"{o.utility:.4f} ({min(o.utilities):.4f} to {max(o.utilities):.4f})",
            f"{o.training_accuracy:.3f}",
            "yes" if o.strategy.name in on_line else "",
        ]
        for o in sorted(found.outcomes, key=lambda o: o.mean)
        if o.strategy.name in chosen
    ]
    head = ["strategy", "ε*, mean (range)", f"{found.measure}, mean (range)", "training accuracy", "frontier"]
    name = found.data.removesuffix("_all")
    title = f"Strategies on {name}: without DP, the best of each ε, the highest with DP, and the frontier"
    table = markdown(head, rows)
    return Found(numbers, {title: table}, {f"figure{number}.svg": (caption, pictures.landscape(found))})


def figure3(size: str) -> Found:
    """Both ratios against (TPR + FPR)/2."""
    from . import pictures

    found = simulation.ratios(SAMPLED, CONFIG[size]["simulation"]["repeats"])
    ends, middle = simulation.spread(found, 0.0, ENDS), simulation.spread(found, *MIDDLE)
    peak = max((r for r in found if r.repeat < 0), key=lambda r: r.value)
    numbers = {
        "figure3.noise": float(ends > 10 * middle > 0),
        "figure3.signal": float(peak.rate < ENDS),
    }
    caption = (
        f"N(0, 1) for members, N(3, 1) for others, {SAMPLED} of each: the spread of the samples about the exact ratio "
        f"is {ends:.3f} where the error rate is below {ENDS:g} and {middle:.4f} where it is from {MIDDLE[0]:g} to "
        f"{MIDDLE[1]:g}."
    )
    return Found(numbers, figures={"figure3.svg": (caption, pictures.ratios(found))})


@lru_cache(maxsize=2)
def _study(size: str) -> list[dict[str, Any]]:
    settings = CONFIG[size]["simulation"]
    return simulation.study(settings["sizes"], settings["repeats"])


def _cells(size: str) -> dict[tuple[str, int, str], dict[str, Any]]:
    return {(c["losses"], c["n"], c["form"]): c for c in simulation.summary(_study(size))}


def figure4(size: str) -> Found:
    """Identical distributions."""
    from . import pictures

    cells, sizes = _cells(size), CONFIG[size]["simulation"]["sizes"]
    means = {form: [cells["gamma.0", n, form]["mean"] for n in sizes] for form in pictures.FORMS}
    numbers = {
        "figure4.closer": float(all(0 <= p < e for p, e in zip(*means.values(), strict=True))),
        "figure4.falls": float(all(before > after for values in means.values() for before, after in pairwise(values))),
    }
    caption = "Γ(2, 5) for members and others alike: ε* of every repeat; dashed: the truth, 0."
    figure = {"figure4.svg": (caption, pictures.study(_study(size), ["gamma.0"]))}
    return Found(numbers, {"Means and standard deviations, δ = 1e-5": _table(size, ["gamma.0"])}, figure)


def figure5(size: str) -> Found:
    """Distributions farther and farther apart."""
    from . import pictures

    cells, sizes = _cells(size), CONFIG[size]["simulation"]["sizes"]
    apart = [f"gamma.{d}" for d in (1, 2, 3)]

    def off(name: str, n: int, form: str) -> float:
        return float(cells[name, n, form]["mean"] - cells[name, n, form]["exact"])

    everywhere = [(name, n) for name in apart for n in sizes]
    numbers = {
        "figure5.undershoots": float(
            all(off(*at, "empirical") < 0 < cells[(*at, "empirical")]["mean"] for at in everywhere)
        ),
        "figure5.nearer": float(all(abs(off(*at, "parametric")) < abs(off(*at, "empirical")) for at in everywhere)),
        "figure5.mitigated": float(
            all(abs(off(name, sizes[-1], "empirical")) < abs(off(name, sizes[0], "empirical")) for name in apart)
        ),
    }
    caption = "Γ(2, 5) for members, Γ(2 + d, 5) for others: ε* of every repeat; dashed: the truth."
    names = [f"gamma.{d}" for d in range(4)]
    figure = {"figure5.svg": (caption, pictures.study(_study(size), names))}
    return Found(numbers, {"Farther apart: means and standard deviations, δ = 1e-5": _table(size, names)}, figure)


def _table(size: str, names: list[str]) -> str:
    cells, sizes = _cells(size), CONFIG[size]["simulation"]["sizes"]
    rows = []
    for name in names:
        for n in sizes:
            own = [cells[name, n, form] for form in ("parametric", "empirical", "any rate")]
            values = [f"{c['mean']:.3f} ± {c['sd']:.3f}" for c in own]
            rows.append([name.rsplit(".", 1)[-1], str(n), f"{own[0]['exact']:.3f}", *values])
    head = ["d", "n", "exact", "parametric", "empirical, rates in (0.001, 0.999)", "empirical, any rate"]
    return markdown(head, rows)


def figure6(size: str, store: Store | None = None) -> Found:
    """Normal mixtures against transformed training losses, without and with DP."""
    from . import pictures

    settings, found = CONFIG[size]["simulation"], _explored(size, "adult", store)
    fits: dict[str, GoodnessOfFit] = {}
    for panel, outcome in (("a", found.plain[-1]), ("b", found.most_private)):
        losses, _ = transformed_losses(*outcome.losses)
        fits[f"{panel}: {outcome.strategy.name}"] = goodness_of_fit(
            losses, components=settings["components"], sample_sizes=settings["samples"]
        )
    plain, private = fits.values()
    shares = [float(np.mean(fit.p_values > LEVEL)) for fit in (plain, private)]
    single = [float(np.mean(fit.p_values[:, 0] > LEVEL)) for fit in (plain, private)]
    numbers = {
        "figure6.most": float(min(shares) > 0.5),
        "figure6.more": float(shares[1] > shares[0]),
        "figure6.normal.plain": float(single[0] > 0.5),
        "figure6.normal.private": float(single[1] > 0.5),
    }
    rows = [
        [name, f"{share:.0%}", f"{one:.0%}", *(f"{p:.2g}" for p in fit.p_values[-1])]
        for (name, fit), share, one in zip(fits.items(), shares, single, strict=True)
    ]
    head = [
        "model",
        "p > 0.05",
        "the same, 1 component",
        *(f"{c} comp., {plain.sample_sizes[-1]}" for c in plain.components),
    ]
    title = (
        "KS p-values of normal mixtures against transformed training losses: shares, and those of the largest sample"
    )
    caption = f"{found.data}: p-values of the two-sample KS test; pale: rejected."
    return Found(numbers, {title: markdown(head, rows)}, {"figure6.svg": (caption, pictures.fits(fits))})


PARTS = {
    "fig1": figure1,
    "fig2": figure2,
    "fig3": figure3,
    "fig4": figure4,
    "fig5": figure5,
    "fig6": figure6,
}
