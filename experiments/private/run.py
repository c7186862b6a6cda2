"""That which we call private (Erlingsson et al., 2019): Table 1 both ways, Table 2, our runs, the region of privacy."""

from __future__ import annotations

import math
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from dosimeter import InputError
from dosimeter.accounting import (
    PAPER_ORDERS,
    DpSgd,
    Guarantee,
    NoiseSweep,
    advanced,
    naive,
    noise_for_epsilon,
    pld,
    rdp,
    region_of_privacy,
)
from dosimeter.engine import Store

from ..shared import markdown, write_svg
from . import trained

CONFIG = tomllib.loads((Path(__file__).parent / "config.toml").read_text(encoding="utf-8"))
NOISE = ("136.67", "13.76", "6.99", "1.06", "0.44")
BUDGETS = ("0.05", "0.5", "1", "10", "100")  # the ε that RDP gives for them
RATE, STEPS, DELTA = 0.02, 5000, trained.DELTA
PRINTED = (0.053, 0.056, 0.078, 0.089)  # true-positive rates of Table 2 at a false-positive rate of 5 %
ANALYSES = ("naive", "advanced", "rdp-classic", "pld")


@lru_cache(maxsize=1)
def _table1() -> dict[str, list[Guarantee]]:
    """One run under four analyses, for each noise multiplier."""
    found = {}
    for noise in NOISE:
        run = DpSgd(float(noise), sample_rate=RATE, steps=STEPS)
        classic = rdp(run, delta=DELTA, conversion="classic", orders=PAPER_ORDERS)
        found[noise] = [naive(run, delta=DELTA), advanced(run, delta=DELTA), classic, pld(run, delta=DELTA)]
    return found


@lru_cache(maxsize=1)
def _rotated() -> dict[str, dict[str, float]]:
    """The noise multiplier that each analysis asks for, for each ε."""
    given: dict[str, Any] = {"delta": DELTA, "sample_rate": RATE, "steps": STEPS}
    return {
        budget: {
            name: noise_for_epsilon(
                float(budget), **given, method=name, orders=PAPER_ORDERS if name == "rdp-classic" else None
            )
            for name in ANALYSES
        }
        for budget in BUDGETS
    }


@lru_cache(maxsize=2)
def _levels(size: str, store: Store | None) -> tuple[str, list[trained.Level]]:
    return trained.levels(CONFIG[size], store)


def results(size: str = "mini", store: Store | None = None) -> dict[str, float | Exception]:
    """Both readings of Table 1, Eq. (1) at the printed rates, and what must hold of our own runs."""
    found: dict[str, float | Exception] = {}
    for noise, guarantees in _table1().items():
        for name, guarantee in zip(("naive", "advanced", "rdp", "pld"), guarantees, strict=True):
            found[f"table1.{noise}.{name}"] = guarantee.epsilon
    for budget, noises in _rotated().items():
        found[f"rotated.{budget}.rdp"] = noises["rdp-classic"]
    for tpr in PRINTED:
        found[f"table2.{tpr}.advantage"] = math.log((1 - DELTA) / (1 - (tpr - trained.FPR)))
        found[f"table2.{tpr}.direct"] = math.log((tpr - DELTA) / trained.FPR)
    try:
        _, levels = _levels(size, store)
    except (ImportError, InputError) as error:
        return found | {"trained": error}
    noisiest, least = levels[0], levels[-1]
    found["trained.contradictions"] = float(sum(level.contradictions for level in levels))
    found["trained.tpr.136.67"] = noisiest.tpr
    found["trained.accuracy_falls"] = float(noisiest.accuracy < least.accuracy)
    if size != "mini":  # 200 steps and 200 canaries prove nothing yet
        found["trained.canaries_tighter"] = float(least.bounds["gradient canaries"].low > least.bounds["losses"].low)
    return found


def tables(size: str = "mini", store: Store | None = None) -> dict[str, str]:
    """Table 1 rotated, Table 2, and our runs with every bound."""
    rotated = [[b, *(f"{noises[name]:.4g}" for name in ANALYSES)] for b, noises in _rotated().items()]
    title = f"Table 1 rotated: the noise that each analysis asks for (q = {RATE}, {STEPS} steps, δ = {DELTA:g})"
    found = {title: markdown(["ε", "naive", "advanced", "RDP, as in the paper", "PLD"], rotated)}
    try:
        name, levels = _levels(size, store)
    except (ImportError, InputError):
        return found
    rows = []
    for level in levels:
        lows = [f"{level.bounds[attack].low:.3f}" for attack in ("losses", "LiRA", "gradient canaries")]
        rows.append(
            [
                f"{level.noise:g}",
                f"{level.accuracy:.3f}",
                f"{level.tpr:.4f}",
                f"{level.by_advantage:.4f}",
                f"{level.direct:.4f}",
                *lows,
                f"{level.upper.epsilon:.4g}",
            ]
        )
    settings = CONFIG[size]
    title = (
        f"Logistic regression on {name}, q = {settings['sample_rate']}, {settings['steps']} steps, "
        f"{settings['models']} models for each noise level, δ = {DELTA:g}"
    )
    header = [
        "noise",
        "accuracy",
        "TPR at FPR 5 %",
        "ε by Eq. (1), no confidence",
        "ε direct, no confidence",
        "ε ≥ (95 %), losses",
        "ε ≥ (95 %), LiRA",
        "ε ≥ (95 %), gradient canaries",
        "ε ≤, PLD",
    ]
    return found | {title: markdown(header, rows)}


def figures(size: str, folder: Path, store: Store | None = None) -> dict[str, str]:
    """The region of privacy of our own runs."""
    try:
        name, levels = _levels(size, store)
    except (ImportError, InputError):
        return {}
    chart = region(levels, CONFIG[size]).plot().properties(width=520, height=340, background="white")
    return {
        write_svg(folder, "region.svg", chart.to_dict()): (
            f"Region of privacy of logistic regressions on {name}: upper bounds of four analyses of the same runs, and "
            "what attacks show. Eq. (1) and its direct form are point estimates; the others are 95 % lower bounds. "
            "A bound of 0 has no place on a logarithmic axis and is left out."
        )
    }


def region(levels: list[trained.Level], settings: dict[str, Any]) -> NoiseSweep:
    """Upper bounds and all lower numbers of the levels as the rows of one picture."""
    upper = region_of_privacy(
        [level.noise for level in levels],
        delta=DELTA,
        sample_rate=settings["sample_rate"],
        steps=settings["steps"],
        methods=ANALYSES,
    )
    rows = list(upper.rows)
    for level in levels:
        shown = {f"95 % bound, {attack}": (b.low, True) for attack, b in level.bounds.items()}
        shown |= {"Eq. (1), estimate": (level.by_advantage, False), "direct, estimate": (level.direct, False)}
        for method, (epsilon, is_bound) in shown.items():
            rows.append(
                {
                    "noise_multiplier": level.noise,
                    "method": method,
                    "side": "lower",
                    "epsilon": epsilon,
                    "is_bound": is_bound,
                }
            )
    return NoiseSweep(tuple(rows), DELTA)
