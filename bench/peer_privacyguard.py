"""The tasks of the benchmark, done with PrivacyGuard."""

from __future__ import annotations

from collections.abc import Callable

import data
import torch
from privacy_guard.analysis.mia.mia_results import MIAResults

Work = Callable[[], object]

torch.set_num_threads(1)


def lower_bound(members: int) -> Work:
    inside, outside = (torch.from_numpy(side) for side in data.scores(members))
    return lambda: float(MIAResults(inside, outside).compute_acc_auc_ci_epsilon(data.DELTA)[2])
