"""That which we call private (Erlingsson et al., 2019): its tables and figures."""

from __future__ import annotations

import math
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from scipy import stats

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
from dosimeter.report.canvas import CATEGORIES, WIDE, Canvas

from ..exhibits import Found
from ..shared import markdown
from .trained import DELTA, FPR, Bounds, Level, Runs, by_advantage

CONFIG = tomllib.loads((Path(__file__).parent / "config.toml").read_text(encoding="utf-8"))
NOISE = ("136.67", "13.76", "6.99", "1.06", "0.44")
RATE, STEPS = 0.02, 5000
ANALYSES = {"naive": "naive", "advanced": "advanced", "rdp": "rdp-classic"}
PRINTED_TPR = {"136.67": 0.05, "13.76": 0.053, "6.99": 0.056, "1.06": 0.078, "0.44": 0.089}  # Table 1


@lru_cache(maxsize=1)
def _analysed() -> dict[str, dict[str, Guarantee]]:
    """One run under four analyses, for each noise multiplier of Table 1."""
    found = {}
    for noise in NOISE:
        run = DpSgd(float(noise), sample_rate=RATE, steps=STEPS)
        found[noise] = {
            "naive": naive(run, delta=DELTA),
            "advanced": advanced(run, delta=DELTA),
            "rdp": rdp(run, delta=DELTA, conversion="classic", orders=PAPER_ORDERS),
            "pld": pld(run, delta=DELTA),
        }
    return found


def _asked(budget: float, analysis: str) -> float:
    """The noise multiplier with which an analysis gives this ε."""
    orders = PAPER_ORDERS if analysis == "rdp" else None
    given: dict[str, Any] = {"delta": DELTA, "sample_rate": RATE, "steps": STEPS, "orders": orders}
    return round(noise_for_epsilon(budget, method=ANALYSES[analysis], **given), 3)


@lru_cache(maxsize=4)
def _runs(size: str, store: Store | None) -> Runs:
    return Runs.of(CONFIG[size], store)


@lru_cache(maxsize=64)
def _level(size: str, store: Store | None, noise: float) -> Level:
    runs = _runs(size, store)
    return runs.level(noise, runs.settings["models" if noise in runs.settings["noise"] else "trials"])


@lru_cache(maxsize=64)
def _bounds(size: str, store: Store | None, noise: float) -> Bounds:
    return _runs(size, store).bounds(noise)


# --- parts ------------------------------------------------------------------------------------------------


def section4(size: str, store: Store | None = None) -> Found:
    """Train with the noise that each analysis asks for."""
    budgets, base = CONFIG[size]["budgets"], _level(size, store, 0.0)
    levels = {(b, name): _level(size, store, _asked(b, name)) for b in budgets for name in ANALYSES}
    shares = {key: level.training_accuracy / base.training_accuracy for key, level in levels.items()}
    numbers = {
        "section4.refined_is_better": float(
            all(shares[b, "naive"] <= shares[b, "advanced"] <= shares[b, "rdp"] for b in budgets)
        ),
        "section4.rdp_is_usable_at_10": float(shares[10.0, "rdp"] > 0.5 > shares[10.0, "naive"]),
    }
    if size != "mini":  # 200 steps on 900 digits leak too little to see
        leaks = (levels[b, "naive"].tpr < levels[b, "rdp"].tpr for b in budgets)
        numbers["section4.refined_leaks_more"] = float(all(leaks))
        for (budget, name), level in levels.items():
            numbers[f"section4.{budget:g}.{name}.accuracy"] = 100 * shares[budget, name]
            numbers[f"section4.{budget:g}.{name}.tpr"] = 100 * level.tpr
    rows = []
    for (budget, name), level in levels.items():
        accuracies = [f"{level.training_accuracy:.3f}", f"{shares[budget, name]:.0%}", f"{level.accuracy:.3f}"]
        attack = f"{level.tpr:.2%} ± {level.tpr_error:.2%}"
        rows.append([f"{budget:g}", name, f"{level.noise:g}", *accuracies, attack])
    head = ["ε", "analysis", "noise", "training accuracy", "of the baseline", "held-out accuracy", "TPR at FPR 5 %"]
    rows.append(["∞", "", "0", f"{base.training_accuracy:.3f}", "100%", f"{base.accuracy:.3f}", f"{base.tpr:.2%}"])
    title = "Our runs with the noise that each analysis asks for, and without noise"
    return Found(numbers, {title: markdown(head, rows)})


def table1() -> Found:
    """ε of one run under each analysis."""
    found = _analysed()
    numbers = {f"table1.{n}.{name}": found[n][name].epsilon for n in NOISE for name in ANALYSES}
    numbers["table1.ordered"] = float(all(found[n]["pld"].epsilon <= found[n]["rdp"].epsilon for n in NOISE))
    asked = [[b, *(f"{_asked(float(b), name):.4g}" for name in ANALYSES)] for b in ("0.05", "0.5", "1", "10", "100")]
    by_pld = [[n, f"{found[n]['rdp'].epsilon:.4g}", f"{found[n]['pld'].epsilon:.4g}"] for n in NOISE]
    return Found(
        numbers,
        {
            "The table rotated: the noise that each analysis asks for": markdown(["ε", *ANALYSES], asked),
            "Later than the paper: privacy-loss distributions": markdown(["noise", "RDP", "PLD"], by_pld),
        },
    )


def table1_trained(size: str, store: Store | None = None) -> Found:
    """Accuracy and attack of our own models at the noise of Table 1."""
    levels = [_level(size, store, noise) for noise in CONFIG[size]["noise"]]
    base, first, last = _level(size, store, 0.0), levels[0], levels[-1]
    allowed = FPR * math.exp(_analysed()[NOISE[0]]["pld"].epsilon) + DELTA
    accuracies = [level.training_accuracy for level in levels]
    numbers = {
        "table1.accuracy_rises": float(accuracies == sorted(accuracies)),
    }
    if size != "mini":
        within = first.tpr - 3 * first.tpr_error <= allowed
        numbers["table1.noisiest_within_guarantee"] = float(within and first.tpr < last.tpr)
        numbers["table1.leak_seen"] = float(last.tpr - 3 * last.tpr_error > FPR)
        for name, level in zip(NOISE, levels, strict=True):
            numbers[f"table1.{name}.accuracy"] = 100 * level.training_accuracy / base.training_accuracy
            numbers[f"table1.{name}.tpr"] = 100 * level.tpr
    return Found(numbers)


def table2() -> Found:
    """Eq. (1) at the printed rates."""
    numbers = {f"table2.{noise}": by_advantage(tpr - FPR) for noise, tpr in PRINTED_TPR.items()}
    rows = [
        [noise, f"{tpr:.1%}", f"{by_advantage(tpr - FPR):.4f}", f"{max(0.0, _direct(tpr)):.3f}"]
        for noise, tpr in PRINTED_TPR.items()
    ]
    title = "Proposition 1 used directly, ln((TPR − δ)/FPR), gives 14 to 19 times as much as Eq. (1)"
    return Found(numbers, {title: markdown(["noise", "printed TPR", "Eq. (1)", "direct"], rows)})


def _direct(tpr: float) -> float:
    return math.log((tpr - DELTA) / FPR)


def figure1() -> Found:
    """Table 2 as a picture."""
    found = _analysed()
    lower = {noise: by_advantage(tpr - FPR) for noise, tpr in PRINTED_TPR.items()}
    gaps = [found[n]["rdp"].epsilon / lower[n] for n in NOISE if lower[n] > 0]
    rows = [
        {"noise": float(n), "epsilon": found[n][name].epsilon, "bound": f"upper, {name}"}
        for n in NOISE
        for name in ANALYSES
    ] + [{"noise": float(n), "epsilon": low, "bound": "lower, Eq. (1)"} for n, low in lower.items() if low > 0]
    chart = _lines(rows, ["upper, naive", "upper, advanced", "upper, rdp", "lower, Eq. (1)"])
    caption = "Table 2 recomputed: upper bounds of three analyses, and Eq. (1) at the printed rates (0 is not drawn)."
    return Found({"figure1.gap": float(len(gaps) > 0 and min(gaps) >= 100)}, figures={"figure1.svg": (caption, chart)})


def _lines(rows: list[dict[str, Any]], order: list[str]) -> dict[str, Any]:
    canvas = Canvas(WIDE)
    alt = canvas.alt
    log = alt.Scale(type="log", nice=False)
    color = alt.Color("bound:N", sort=order, scale=alt.Scale(domain=order, range=list(CATEGORIES[: len(order)])))
    x = alt.X("noise:Q", scale=log, title="noise multiplier")
    y = alt.Y("epsilon:Q", scale=log, title="ε at δ = 1e-5")
    return canvas.finish(canvas.chart(rows).mark_line(point=True).encode(x=x, y=y, color=color), 320)


def figure2(size: str, store: Store | None = None) -> Found:
    """The region of privacy of our own models, over orders of magnitude of noise."""
    settings = CONFIG[size]
    asked = [_asked(b, name) for b in settings["budgets"] for name in ANALYSES]
    noises = sorted({*settings["noise"], *settings["further"], *asked}, reverse=True)
    levels = [_level(size, store, noise) for noise in noises]
    bounds = {noise: _bounds(size, store, noise) for noise in settings["noise"]}
    estimated = [level.from_best for level in levels]
    given = {"delta": DELTA, "sample_rate": settings["sample_rate"], "steps": settings["steps"]}
    upper = region_of_privacy(noises, **given, methods=("rdp", "pld"))
    tightest = {row["noise_multiplier"]: row["epsilon"] for row in upper.rows if row["method"] == "rdp"}
    numbers = {
        "figure2.contradictions": float(
            sum(b.contradictions for b in bounds.values()) <= 2
            and any(one.low > 0 for b in bounds.values() for one in b.lower.values())
        ),
        "figure2.below_upper": float(all(0 < lv.from_best <= tightest[lv.noise] for lv in levels if lv.noise <= 14)),
    }
    if size != "mini":
        numbers["figure2.falls_with_noise"] = float(stats.spearmanr(noises, estimated).statistic < -0.9)
        least = bounds[min(bounds)]
        proven = {name: bound.low for name, bound in least.lower.items()}
        numbers["figure2.canaries_prove_most"] = float(proven["gradient canaries"] == max(proven.values()) > 0)
    chart = _region(upper, levels, bounds).plot().properties(width=520, height=340, background="white")
    caption = (
        f"Region of privacy of logistic regressions on {_runs(size, store).data.name}. Eq. (1) is a point estimate, at "
        "the best threshold of the same records as in the paper; the others are 95 % lower bounds. 0 has no place on a "
        "logarithmic axis and is left out."
    )
    head = [
        "noise",
        "models",
        "ε by Eq. (1), FPR 5 %",
        "at the best threshold",
        "ε ≥, losses",
        "LiRA",
        "canaries",
        "ε ≤",
    ]
    rows = [[*_estimates(level), *_proven(bounds.get(level.noise))] for level in levels]
    title = "Point estimates (no confidence), 95 % lower bounds, and the upper bound by privacy-loss distributions"
    return Found(numbers, {title: markdown(head, rows)}, {"region.svg": (caption, chart.to_dict())})


def _estimates(level: Level) -> list[str]:
    return [f"{level.noise:g}", str(level.models), f"{level.from_rate:.4f}", f"{level.from_best:.4f}"]


def _proven(bounds: Bounds | None) -> list[str]:
    if bounds is None:
        return ["", "", "", ""]
    lower = (bounds.lower[name].low for name in ("losses", "LiRA", "gradient canaries"))
    return [*(f"{low:.3f}" for low in lower), f"{bounds.upper.epsilon:.4g}"]


def _region(upper: NoiseSweep, levels: list[Level], bounds: dict[float, Bounds]) -> NoiseSweep:
    """Upper bounds and all lower numbers as the rows of one picture."""
    rows = list(upper.rows)
    for level in levels:
        shown = {"Eq. (1), best threshold": (level.from_best, False)}
        if level.noise in bounds:
            shown |= {f"95 % bound, {name}": (b.low, True) for name, b in bounds[level.noise].lower.items()}
        for method, (epsilon, is_bound) in shown.items():
            row = {"noise_multiplier": level.noise, "method": method, "side": "lower"}
            rows.append({**row, "epsilon": epsilon, "is_bound": is_bound})
    return NoiseSweep(tuple(rows), DELTA)


PARTS = {
    "section4": section4,
    "table1": table1,
    "table1-trained": table1_trained,
    "table2": table2,
    "fig1": figure1,
    "fig2": figure2,
}
