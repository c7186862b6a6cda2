"""opake-auditing's one-run estimate on the draws of the ceiling: its default (Gaussian) form, or the (ε, δ) form."""

from __future__ import annotations

import numpy as np
from ceiling import ALPHA, DELTA, answer, asked_form
from opake import auditing
from opake.auditing.types import CoinFlip


def bound(scores: np.ndarray, inside: np.ndarray) -> float:
    """The ε at its own confidence; the default form assumes that the mechanism is Gaussian."""
    records = np.arange(scores.size)
    partition = CoinFlip(records.size, records, inside, records[inside], records[~inside], records.size)
    found = auditing.one_run(auditing.canary_scores(scores, canary_indices=records), coin_flip=partition)
    method = found.eps_delta() if asked_form() == "eps_delta" else found
    return float(method.epsilon_at(delta=DELTA, significance=ALPHA))


if __name__ == "__main__":
    answer(bound)
