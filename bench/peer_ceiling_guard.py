"""PrivacyGuard's headline ε on the draws of the ceiling."""

from __future__ import annotations

import numpy as np
import torch
from ceiling import DELTA, answer
from privacy_guard.analysis.mia.mia_results import MIAResults


def bound(scores: np.ndarray, inside: np.ndarray) -> float:
    """The ε that it prints first; it is an estimate, not a lower bound."""
    sides = (torch.from_numpy(scores[inside]), torch.from_numpy(scores[~inside]))
    return float(MIAResults(*sides).compute_acc_auc_ci_epsilon(DELTA)[2])


if __name__ == "__main__":
    answer(bound)
