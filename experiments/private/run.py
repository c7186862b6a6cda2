"""That which we call private (Erlingsson et al., 2019): accountants on one run (Table 1), Table 2."""

from __future__ import annotations

import math

from dosimeter.accounting import PAPER_ORDERS, DpSgd, advanced, naive, pld, rdp

NOISE = ("136.67", "13.76", "6.99", "1.06", "0.44")


def results() -> dict[str, float]:
    """ε of one DP-SGD run (q = .02, 5000 steps, δ = 1e-5) under four accountants; Eq. (1) at the printed rates."""
    found: dict[str, float] = {}
    for noise in NOISE:
        run = DpSgd(float(noise), sample_rate=0.02, steps=5000)
        found[f"table1.{noise}.naive"] = naive(run, delta=1e-5).epsilon
        found[f"table1.{noise}.advanced"] = advanced(run, delta=1e-5).epsilon
        found[f"table1.{noise}.rdp"] = rdp(run, delta=1e-5, conversion="classic", orders=PAPER_ORDERS).epsilon
        found[f"table1.{noise}.pld"] = pld(run, delta=1e-5).epsilon
    for tpr in (0.053, 0.056):
        found[f"table2.{tpr}.advantage"] = math.log((1 - 1e-5) / (1 - (tpr - 0.05)))
        found[f"table2.{tpr}.direct"] = math.log((tpr - 1e-5) / 0.05)
    return found
