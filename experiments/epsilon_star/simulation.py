"""The simulation study: ε* of samples from known loss distributions, and the noise of ratios at the ends of the ROC."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from dosimeter import epsilon_star
from dosimeter.estimators.supremum import epsilon_star_from_tails

DELTA = 1e-5
SMALLEST = 1e-9  # rates below it are left out of Figure 3
END = 0.01  # a rate below it, or above its mirror, is at an end of the ROC curve


Floats = npt.NDArray[np.float64]


class Ratio(NamedTuple):
    """The logarithm of one ratio of Eq. (7) at a threshold. Repeat −1 is the truth.

    Its place is (TPR + FPR)/2, its rate the error rate that it is divided by.
    """

    at: int
    place: float
    rate: float
    kind: str
    value: float
    repeat: int


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


def ratios(n: int, repeats: int, seed: int = 1) -> list[Ratio]:
    """Both ratios of Figure 3 for normal losses at many thresholds: exactly (repeat −1) and from samples.

    Rates below 1e-9 are left out, as in the paper; so are those that a sample shows as 0.
    """
    losses = distributions()[0]
    thresholds = np.linspace(-6.0, 9.0, 151)  # a loss at or below the threshold is guessed a member
    found = list(_ratios(losses.members.cdf(thresholds), losses.nonmembers.cdf(thresholds), -1))
    for k, child in enumerate(np.random.SeedSequence(seed).spawn(repeats)):
        rng = np.random.default_rng(child)
        tpr, fpr = (
            np.searchsorted(np.sort(d.rvs(n, random_state=rng)), thresholds, "right") / n
            for d in (losses.members, losses.nonmembers)
        )
        found += _ratios(tpr, fpr, k)
    return found


def _ratios(tpr: Floats, fpr: Floats, repeat: int) -> Iterator[Ratio]:
    for at, (t, f) in enumerate(zip(tpr.tolist(), fpr.tolist(), strict=True)):
        for kind, above, below in (("(1 − δ − FNR)/FPR", t - DELTA, f), ("(1 − δ − FPR)/FNR", 1 - f - DELTA, 1 - t)):
            if below >= SMALLEST and above > 0:
                yield Ratio(at, (t + f) / 2, below, kind, math.log(above / below), repeat)


def spread(found: list[Ratio], low: float, high: float) -> float:
    """The standard deviation of samples about the exact ratio, where it is divided by a rate from `low` to `high`."""
    truth = {(r.at, r.kind): r for r in found if r.repeat < 0}
    pairs = [(r, truth[r.at, r.kind]) for r in found if r.repeat >= 0 and (r.at, r.kind) in truth]
    gaps = [r.value - exact.value for r, exact in pairs if low <= exact.rate <= high]
    return float(np.sqrt(np.mean(np.square(gaps))))
