"""jax-privacy's one-run bound, with its defaults, on the draws of the ceiling."""

from __future__ import annotations

import numpy as np
from ceiling import ALPHA, DELTA, answer
from jax_privacy import auditing


def bound(scores: np.ndarray, inside: np.ndarray) -> float:
    """The larger ε is, the more is claimed."""
    return float(auditing.CanaryScoreAuditor(scores[inside], scores[~inside]).epsilon_one_run(ALPHA, DELTA))


if __name__ == "__main__":
    answer(bound)
