"""Samples for the tests of Epsilon*, and its values by a second route: dense scans and plain loops."""

import math

import numpy as np
from scipy import special


def ceiling(delta):
    return math.log((1 - 2 * delta) / delta)


def normal_losses(shift, n=400, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, n), rng.normal(shift, scale, n)


def brute_force(m1, s1, m2, s2, delta):
    """A dense scan of plain ratios: no brackets, no refinement, no logarithms."""
    z = -special.ndtri(delta)
    low, high = max(m1 - z * s1, m2 - z * s2), min(m1 + z * s1, m2 + z * s2)
    if low >= high:
        return ceiling(delta)
    edge = np.geomspace(1e-12, 1e-2, 5001)
    s = low + (high - low) * np.concatenate([np.linspace(0, 1, 50001), edge, 1 - edge])
    fnr, tpr = special.ndtr((s - m1) / s1), special.ndtr((m1 - s) / s1)
    tnr, fpr = special.ndtr((s - m2) / s2), special.ndtr((m2 - s) / s2)
    ratios = [(tpr - delta) / fpr, (tnr - delta) / fnr, (fnr - delta) / tnr, (fpr - delta) / tpr]
    return max(0.0, math.log(max(np.max(ratios), 1)))


def all_pairs(members, nonmembers, delta, rates=(0.001, 0.999)):
    """Every threshold in a plain loop."""
    best = 1.0
    for t in np.concatenate([members, nonmembers]):
        fnr, fpr = np.mean(members > t), np.mean(nonmembers <= t)
        if rates[0] < fnr < rates[1] and rates[0] < fpr < rates[1]:
            best = max(
                best,
                (1 - delta - fnr) / fpr,
                (1 - delta - fpr) / fnr,
                (fnr - delta) / (1 - fpr),
                (fpr - delta) / (1 - fnr),
            )
    return math.log(best)
