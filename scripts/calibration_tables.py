"""Make the committed calibration tables of the ranked walk and of the uniform band: `make tables`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scipy import special

from dosimeter.estimators import limits, walk

PACKAGE = Path(__file__).parent.parent / "src" / "dosimeter" / "estimators"
SAFETY = 1e-12  # absolute, far above what FFT rounding and cut tails can add


def walk_levels(width: float, chunk: int = 12) -> None:
    """α(checkpoint, band of ε, local level), each the largest over the q of the band."""
    points = walk.checkpoints(walk.TABLE_REACH)
    level = np.concatenate([10.0 ** np.arange(-12, -5, 0.5), 1e-5 * 1.1 ** np.arange(0, 112)])
    edges = special.expit(np.array(walk.BAND_EDGES))
    # equal steps of the angle θ, q = sin² θ, are equal steps in standard deviations of the longest walk
    step = width / (2 * np.sqrt(points[-1]))
    last = np.arcsin(np.sqrt(1 - 3e-7))  # above: q^r ≥ every level at every checkpoint, so nothing can cross
    theta = [np.arcsin(np.sqrt(q)) for q in edges] + [last]
    alpha = np.zeros((points.size, edges.size, level.size))
    started = time.time()
    for row in range(edges.size):
        cuts = np.linspace(theta[row], theta[row + 1], 2 + int((theta[row + 1] - theta[row]) / step))
        q = np.sin(cuts) ** 2
        for start in range(0, q.size - 1, chunk):
            below, above = q[:-1][start : start + chunk], q[1:][start : start + chunk]
            bounds = walk.limits(points, np.tile(below, level.size), np.repeat(level, below.size))
            crossed = walk.crossing(points, bounds.reshape(level.size, below.size, points.size), above)
            alpha[:, row] = np.maximum(alpha[:, row], crossed.max(axis=1).T)
        print(f"band {row}: {cuts.size - 1} intervals, {time.time() - started:.0f} s", file=sys.stderr, flush=True)
    alpha = np.maximum.accumulate(alpha, axis=2) + SAFETY
    np.savez_compressed(PACKAGE / "walk_levels.npz", level=level, alpha=_round_up(alpha))


def band_levels(largest: int = 10**6) -> None:
    """α(sample size, local level) of the uniform band."""
    size = [1]
    while size[-1] < largest:
        ratio = 1.25 if size[-1] < limits.ALL_ORDERS else 1.5
        size.append(min(max(size[-1] + 1, int(size[-1] * ratio)), largest))
    size = sorted({*size, limits.ALL_ORDERS})  # above it orders thin out, so it is the worst of its neighbours
    level = np.concatenate([10.0 ** np.arange(-12, -5, 0.5), 1e-5 * 1.15 ** np.arange(0, 74)])
    started = time.time()
    alpha = np.empty((len(size), level.size))
    for row, n in enumerate(size):
        alpha[row] = limits.violation(n, level)
        print(f"band of {n} records, {time.time() - started:.0f} s", file=sys.stderr, flush=True)
    alpha = np.maximum.accumulate(alpha, axis=1) + SAFETY
    np.savez_compressed(PACKAGE / "band_levels.npz", size=np.array(size), level=level, alpha=_round_up(alpha))


def _round_up(values: np.ndarray) -> np.ndarray:
    """float32 from above, with three digits kept so that the file compresses."""
    scale = 10.0 ** (np.floor(np.log10(values)) - 3)
    return np.nextafter((np.ceil(values / scale) * scale).astype(np.float32), np.float32(np.inf))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=["walk", "band", "all"], nargs="?", default="all")
    parser.add_argument(
        "--width", type=float, default=0.2, help="interval of q, in standard deviations of the longest walk"
    )
    arguments = parser.parse_args()
    if arguments.table in ("walk", "all"):
        walk_levels(arguments.width)
    if arguments.table in ("band", "all"):
        band_levels()
