"""The tasks of the benchmark, done with jax-privacy."""

from __future__ import annotations

from collections.abc import Callable

import data
import numpy as np
from jax_privacy import auditing

Work = Callable[[], object]


def lower_bound(members: int) -> Work:
    inside, outside = data.scores(members)
    return lambda: _clopper_pearson(inside, outside)


def mean_lower_bound(members: int, draws: int) -> Work:
    samples = [data.scores(members, seed) for seed in range(draws)]
    return lambda: float(np.mean([_clopper_pearson(*sample) for sample in samples]))


def one_run(records: int) -> Work:
    scores, included = data.canaries(records)

    def work() -> float:
        auditor = auditing.CanaryScoreAuditor(scores[included], scores[~included])
        return float(auditor.epsilon_one_run(0.05, data.DELTA))

    return work


def one_run_inversion(records: int, correct: int) -> Work:
    """The inversion for given counts: the private function below `epsilon_one_run`."""
    return lambda: float(auditing._epsilon_one_run(0.0, records, records, correct, 0.05, data.DELTA))


def _clopper_pearson(inside: np.ndarray, outside: np.ndarray) -> float:
    return float(auditing.CanaryScoreAuditor(inside, outside).epsilon_clopper_pearson(0.05, data.DELTA))
