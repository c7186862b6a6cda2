"""The simulation study: ε* of samples from known loss distributions, and the noise of ratios at the ends of the ROC."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dosimeter import epsilon_star
from dosimeter.estimators.supremum import epsilon_star_from_tails

DELTA = 1e-5
RATES = np.geomspace(1e-4, 0.5, 60)  # false-positive rates at which the ratios are looked at
END = 0.01  # a rate below it, or above its mirror, is at an end of the ROC curve


class Losses(NamedTuple):
    """Two known loss distributions."""

    name: str
    members: Any
    nonmembers: Any


@lru_cache
def _exact(name: str, delta: float) -> float:
    """ε* of named distributions without sampling noise."""
    (losses,) = (known for known in distributions() if known.name == name)
    return epsilon_star_from_tails(losses.members, losses.nonmembers, delta=delta)


def distributions() -> list[Losses]:
    """Normal losses three standard deviations apart, and Gamma losses with shapes 0 to 3 apart."""
    gammas = [Losses(f"gamma.{d}", stats.gamma(2, scale=5), stats.gamma(2 + d, scale=5)) for d in range(4)]
    return [Losses("normal.3", stats.norm(0, 1), stats.norm(3, 1)), *gammas]


def exact() -> dict[str, float]:
    """ε* of the study's loss distributions."""
    normal, *gammas = (losses.name for losses in distributions())
    found = {normal: _exact(normal, DELTA)}
    return found | {f"{name}.{delta:g}": _exact(name, delta) for delta in (1e-5, 1e-3) for name in gammas}


def study(sizes: list[int], repeats: int, seed: int = 0) -> list[dict[str, Any]]:
    """One row for each distribution, sample size, repeat and form: ε*, the exact value, and whether it sits at an end.

    `any rate` is the empirical form without its limits on the rates.
    """
    forms: dict[str, dict[str, Any]] = {
        "parametric": {"form": "parametric"},
        "empirical": {"form": "empirical"},
        "any rate": {"form": "empirical", "rates": (0.0, 1.0)},
    }
    rows = []
    known = distributions()
    cells = [(losses, n, k) for losses in known for n in sizes for k in range(repeats)]
    for (losses, n, k), child in zip(cells, np.random.SeedSequence(seed).spawn(len(cells)), strict=True):
        rng = np.random.default_rng(child)
        pair = losses.members.rvs(n, random_state=rng), losses.nonmembers.rvs(n, random_state=rng)
        for name, options in forms.items():
            found = epsilon_star(*pair, delta=DELTA, resamples=0, **options)
            fpr, fnr = found.details["fpr"], found.details["fnr"]
            rows.append(
                {
                    "losses": losses.name,
                    "n": n,
                    "repeat": k,
                    "form": name,
                    "epsilon": found.epsilon,
                    "exact": _exact(losses.name, DELTA),
                    "at_end": min(fpr, fnr, 1 - fpr, 1 - fnr) < END,
                }
            )
    return rows


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over the repeats, and the share of them that sit at an end."""
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["losses"], row["n"], row["form"]), []).append(row)
    found = []
    for (losses, n, form), group in cells.items():
        values = np.array([row["epsilon"] for row in group])
        found.append(
            {
                "losses": losses,
                "n": n,
                "form": form,
                "exact": group[0]["exact"],
                "mean": float(values.mean()),
                "sd": float(values.std(ddof=1)),
                "at_end": float(np.mean([row["at_end"] for row in group])),
            }
        )
    return found


def ends(n: int, repeats: int, seed: int = 1) -> list[dict[str, float]]:
    """ln TPR/FPR of normal losses at small false-positive rates: the exact value and that of each repeat.

    A repeat without a false positive at a rate has no ratio there and is left out.
    """
    losses = distributions()[0]
    thresholds = losses.nonmembers.ppf(RATES)  # a loss at or below the threshold is guessed a member
    truth = np.log(losses.members.cdf(thresholds) / RATES)
    rows = [{"fpr": float(f), "repeat": -1, "value": float(v)} for f, v in zip(RATES, truth, strict=True)]
    for k, child in enumerate(np.random.SeedSequence(seed).spawn(repeats)):
        rng = np.random.default_rng(child)
        inside, outside = (
            np.searchsorted(np.sort(d.rvs(n, random_state=rng)), thresholds, "right") / n
            for d in (losses.members, losses.nonmembers)
        )
        seen = np.flatnonzero((outside > 0) & (inside > 0))
        values = np.log(inside[seen] / outside[seen])
        rows += [{"fpr": float(RATES[i]), "repeat": k, "value": float(v)} for i, v in zip(seen, values, strict=True)]
    return rows


def spread(rows: list[dict[str, float]], low: float, high: float) -> float:
    """The standard deviation of the repeats about the exact ratio, over rates from `low` to `high`."""
    truth = {row["fpr"]: row["value"] for row in rows if row["repeat"] < 0}
    gaps = [row["value"] - truth[row["fpr"]] for row in rows if row["repeat"] >= 0 and low <= row["fpr"] <= high]
    return float(np.sqrt(np.mean(np.square(gaps))))


def predicted_spread(low: float, high: float, n: int) -> float:
    """The same by the delta method: the variance of ln TPR/FPR is (1 − TPR)/(n TPR) + (1 − FPR)/(n FPR)."""
    losses = distributions()[0]
    fpr = RATES[(low <= RATES) & (high >= RATES)]
    tpr = losses.members.cdf(losses.nonmembers.ppf(fpr))
    return float(np.sqrt(np.mean((1 - tpr) / (n * tpr) + (1 - fpr) / (n * fpr))))
