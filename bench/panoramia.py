"""Members-only statistics on many audit records, against the search of the thesis: python bench/panoramia.py.

The thesis looks for its bound by trial: for every threshold it walks through candidate values and takes the largest one
whose binomial tail is still below the level. It is timed on a few thresholds and scaled to all of them.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
from scipy.stats import binom

from dosimeter import OneRun, fair_coins, panoramia

CANDIDATES = np.arange(0.0, 10.0, 0.01)


def searched(correct: int, guesses: int, level: float) -> float:
    """The largest candidate c with P[Bin(r, sigmoid(c)) >= v] <= level, by trial."""
    found = 0.0
    for value in CANDIDATES:
        if binom.sf(correct - 1, guesses, 1.0 / (1.0 + math.exp(-value))) > level:
            break
        found = float(value)
    return found


def search_seconds(evidence: OneRun, level: float, thresholds: int) -> float:
    """CPU time of the search over all thresholds, from that of a few spread evenly."""
    right = np.cumsum(evidence.included[np.argsort(-evidence.scores)])
    places = np.linspace(0, right.size - 1, thresholds).astype(int)
    began = time.process_time()
    for place in places:
        searched(int(right[place]), int(place) + 1, level)
    return (time.process_time() - began) * right.size / thresholds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--thresholds", type=int, default=60, help="of the search that are really timed")
    arguments = parser.parse_args()
    coins = fair_coins(arguments.records, seed=1)
    rng = np.random.default_rng(2)
    baseline = OneRun(rng.normal(0.3 * coins), coins)
    attack = OneRun(rng.normal(1.0 * coins), coins)
    panoramia(baseline=baseline, attack=attack, guesses="ranked")  # the first call reads the tables
    print(f"{arguments.records} audit records")
    thesis = sum(search_seconds(e, 0.025, arguments.thresholds) for e in (baseline, attack))
    for guesses in ("naive", "ranked"):
        times = []
        for _ in range(5):
            began = time.process_time()
            found = panoramia(baseline=baseline, attack=attack, guesses=guesses)
            times.append(time.process_time() - began)
        ours = float(np.median(times))
        print(f"{guesses:8s} {ours:.4f} s CPU (measured ε̃ = {found.epsilon:.4f}); search {thesis / ours:,.0f} x slower")
    print(f"search   {thesis:.0f} s CPU, scaled from {arguments.thresholds} of {arguments.records} thresholds, twice")


if __name__ == "__main__":
    main()
