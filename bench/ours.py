"""The tasks of the benchmark, done with dosimeter."""

from __future__ import annotations

from collections.abc import Callable

import data
import numpy as np

import dosimeter as dm
from dosimeter.estimators import limits, walk
from dosimeter.estimators.one_run import one_run_bound
from dosimeter.estimators.panoramia import bound_curve
from dosimeter.estimators.with_assumptions import bayesian

Work = Callable[[], object]


def posterior_interval(fn: int, tp: int, fp: int, tn: int, delta: float) -> Work:
    def work() -> list[float]:
        found = bayesian(dm.Counts(tp=tp, fn=fn, fp=fp, tn=tn), delta=delta, confidence=0.95, sides="both")
        return [found.low, found.high]

    return work


def posterior_sweep(total: int) -> Work:
    members, nonmembers = data.scores(total // 2)
    return lambda: bayesian(dm.Scores(members, nonmembers), delta=data.DELTA, threshold="naive").low


def lower_bound(members: int) -> Work:
    inside, outside = data.scores(members)
    return lambda: dm.lower_bound(dm.Scores(inside, outside, independent=True), delta=data.DELTA).low


def mean_lower_bound(members: int, draws: int) -> Work:
    samples = [data.scores(members, seed) for seed in range(draws)]

    def work() -> float:
        runs = [dm.Scores(*sample, independent=True) for sample in samples]
        return float(np.mean([dm.lower_bound(scores, delta=data.DELTA).low for scores in runs]))

    return work


def one_run(records: int, method: str = "binomial", delta: float = data.DELTA) -> Work:
    scores, included = data.canaries(records)
    return lambda: dm.one_run(dm.OneRun(scores, included), delta=delta, method=method).low


def one_run_inversion(records: int, correct: int, term: str) -> Work:
    return lambda: one_run_bound(records=records, guesses=records, correct=correct, delta=data.DELTA, term=term)


def walk_level_from_table(records: int) -> Work:
    walk.level_table.cache_clear()
    return lambda: float(walk.local_levels(records, np.full(len(walk.BAND_EDGES), 0.025))[0])


def band_level_from_table(records: int) -> Work:
    limits.level_table.cache_clear()
    return lambda: limits.local_level(records, 0.025)


def walk_level_exact(records: int) -> Work:
    return lambda: walk.exact_level(walk.checkpoints(records), 0.025, 0.5)


def band_violation_exact(records: int) -> Work:
    level = np.array([limits.local_level(records, 0.025)])
    return lambda: float(limits.violation(records, level)[0])


def panoramia_curve(records: int) -> Work:
    scores, included = data.canaries(records)
    return lambda: float(bound_curve(dm.OneRun(scores, included), 0.025).bound.max())


def epsilon_star(members: int, resamples: int, form: str = "parametric") -> Work:
    inside, outside = data.losses(members)
    return lambda: dm.epsilon_star(inside, outside, delta=data.DELTA, resamples=resamples, form=form).epsilon
