"""The search for neighbouring data sets against SciPy's cdist in blocks, on Adult and MNIST.

python bench/sensitivity.py [--rows 45222] [--pairs 4000] [--images 1000]; the data come from `dosimeter.datasets`.
Times are seconds of CPU. cdist is timed on `--pairs` records against as many and scaled to the number of pairs of the
search, each pair counted once; the ratio says how many times faster the search is. cdist has no SSIM: there the peer
is one pair after the other with SciPy's filters.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from scipy.ndimage import uniform_filter
from scipy.spatial.distance import cdist

from dosimeter.datasets import load
from dosimeter.datasets.sensitivity import bounded, unbounded

METRICS = {"hamming": "hamming", "manhattan": "cityblock", "euclidean": "euclidean", "cosine": "cosine"}
BLOCK = 1000


def cpu(call):
    """(seconds of CPU, result)."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def cdist_in_blocks(a, b, metric):
    """The largest distance and the row sums, a block at a time."""
    best, sums = -np.inf, np.zeros(len(a))
    for i in range(0, len(a), BLOCK):
        for j in range(0, len(b), BLOCK):
            values = cdist(a[i : i + BLOCK], b[j : j + BLOCK], metric)
            best = max(best, values.max())
            sums[i : i + BLOCK] += values.sum(axis=1)
    return best, sums


def ssim_of_pairs(images, count):
    """−SSIM with 8×8 windows for `count` pairs, one after the other."""
    total = 0.0
    for k in range(count):
        x, y = images[k], images[-1 - k]
        mx, my, xx, yy, xy = (uniform_filter(v, 8)[4:-3, 4:-3] for v in (x, y, x * x, y * y, x * y))
        top = (2 * mx * my + 1e-4) * (2 * (xy - mx * my) + 9e-4)
        total -= float(np.mean(top / ((mx**2 + my**2 + 1e-4) * (xx - mx**2 + yy - my**2 + 9e-4))))
    return total


def row(what, records, seconds, peer, **more):
    line = {"search": what, "records": records, "seconds": round(seconds, 2), "ratio": round(peer / seconds, 1), **more}
    print(json.dumps(line), flush=True)


def tables(rows, sample):
    X = load("adult").X[:rows].astype(np.float64)
    order = np.random.default_rng(0).permutation(len(X))
    D, U = X[order[: len(X) // 2]], X[order[len(X) // 2 :]]
    sample = min(sample, len(D))
    for name, metric in METRICS.items():
        seconds, (best, _) = cpu(lambda m=metric: cdist_in_blocks(D[:sample], U[:sample], m))
        a_pair = seconds / sample**2
        best *= X.shape[1] if name == "hamming" else 1
        agrees = float(bounded(D[:sample], U[:sample], distance=name, rows_of_d=[]).distances[0])
        if not np.isclose(agrees, best, rtol=1e-9):
            raise SystemExit(f"{name}: {agrees} is not cdist's {best}")
        seconds, found = cpu(lambda n=name: unbounded(X, distance=n))
        row(f"unbounded {name}", len(X), seconds, a_pair * len(X) * (len(X) - 1) / 2, row=int(found.rows[0]))
        seconds, found = cpu(lambda n=name: bounded(D, U, distance=n))
        row(f"bounded {name}", len(X), seconds, a_pair * len(D) * len(U), pairs=len(D) * len(U))


def images(count):
    X = load("mnist").X[:count].reshape(count, 28, 28).astype(np.float64)
    pairs = min(2000, count)
    seconds, _ = cpu(lambda: ssim_of_pairs(X, pairs))
    for window in ("8x8", "gaussian"):
        mine, found = cpu(lambda w=window: unbounded(X, distance=f"negative-ssim-{w}"))
        peer = seconds / pairs * count * (count - 1) / 2
        row(f"unbounded negative-ssim-{window}", count, mine, peer, row=int(found.rows[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=45222)
    parser.add_argument("--pairs", type=int, default=4000)
    parser.add_argument("--images", type=int, default=1000)
    given = parser.parse_args()
    tables(given.rows, given.pairs)
    images(given.images)


if __name__ == "__main__":
    main()
