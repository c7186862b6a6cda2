"""What was measured, as Markdown."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter.estimators.goodness_of_fit import GoodnessOfFit

from ..shared import markdown
from . import landscape


def of_study(cells: list[dict[str, Any]]) -> dict[str, str]:
    """Mean and standard deviation of each form, one line for each distribution and sample size."""
    lines: dict[tuple[str, int], dict[str, str]] = {}
    for c in cells:
        line = lines.setdefault((c["losses"], c["n"]), {"exact": f"{c['exact']:.3f}"})
        line[c["form"]] = f"{c['mean']:.3f} ± {c['sd']:.3f}"
    forms = ["exact", "parametric", "empirical", "any rate"]
    rows = [[losses, f"{n}", *(line[form] for form in forms)] for (losses, n), line in lines.items()]
    header = ["losses", "n", "exact", "parametric", "empirical, rates in (0.001, 0.999)", "empirical, any rate"]
    return {"Simulation study: mean ± standard deviation of ε* over the repeats (δ = 1e-5)": markdown(header, rows)}


def of_fits(data: str, fits: dict[str, GoodnessOfFit]) -> dict[str, str]:
    """For each model and side: p-values of the largest sample for each number of components, and what passes."""
    first = next(iter(fits.values()))
    counts = [f"{c}" for c in first.components]
    rows = []
    for name, fit in fits.items():
        passed = fit.fewest_components()
        rows.append([name, f"{fit.sample_sizes[-1]}", *(f"{p:.2g}" for p in fit.p_values[-1]), f"{passed or 'none'}"])
    header = ["model; side", "samples", *(f"{c} comp." for c in counts), "fewest that pass at every size"]
    return {f"Mixtures of normals against held-out losses of {data}: KS p-values": markdown(header, rows)}


def of_landscape(data: str, settings: dict[str, Any], outcomes: list[landscape.Outcome]) -> dict[str, str]:
    """The strategies on the frontier and the most accurate of each category and length, with Theorem 2."""
    on_line = {p.name for p in landscape.points(outcomes) if p.frontier}
    best: dict[tuple[str, int], landscape.Outcome] = {}
    for o in outcomes:
        key = o.strategy.group, o.strategy.epochs
        if key not in best or np.mean(o.accuracies) > np.mean(best[key].accuracies):
            best[key] = o
    chosen = {o.strategy.name for o in best.values()} | on_line
    rows = []
    for o in sorted(outcomes, key=lambda o: float(np.mean(o.epsilons))):
        if o.strategy.name not in chosen:
            continue
        e, a = np.array(o.epsilons), np.array(o.accuracies)
        rows.append(
            [
                o.strategy.name,
                f"{e.mean():.3f} ({e.min():.3f} to {e.max():.3f})",
                f"{a.mean():.4f} ({a.min():.4f} to {a.max():.4f})",
                f"{o.mean_rates:.3f} ≤ {o.mean_of_models:.3f}",
                "yes" if o.strategy.name in on_line else "",
            ]
        )
    models = sum(len(o.epsilons) for o in outcomes)
    title = (
        f"Landscape of {data}: {models} models, {settings['repeats']} for each of {len(outcomes)} strategies, "
        f"{outcomes[0].losses[0].size} members; those on the frontier and the most accurate of each kind and length"
    )
    header = ["strategy", "ε*, mean (range)", "accuracy, mean (range)", "Theorem 2: ε̄ ≤ ln mean e^ε*", "frontier"]
    return {title: markdown(header, rows)}
