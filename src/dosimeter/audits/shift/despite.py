"""A bound despite a shift: every pair of a member and a non-member counts with its own chance.

Classifiers that never see the model give the log-odds of each record, fitted without the pair that it belongs to. If
they are right, up to their slope, the right guesses about pairs bound ε although the two sides differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, IntArray
from dosimeter.audits.shift.blind import cross_fitted_log_odds, views_of
from dosimeter.audits.shift.records import read_records, thumbnails
from dosimeter.estimate import Estimate, number
from dosimeter.estimators.propensity import propensity_bound
from dosimeter.estimators.propensity_run import PropensityRun, reliability
from dosimeter.evidence import Scores
from dosimeter.records import take

FEWEST_PAIRS = 50  # fewer prove next to nothing, and their slope is not known
MOST_PAIRS = 10_000
FOLDS = 3
UNCALIBRATED = "the classifiers' chances do not agree with who the members are, so the condition of this bound fails"


def bound_despite_shift(
    members: Any, nonmembers: Any, scores: Scores, *, labels: Any, delta: float, confidence: float, seed: int
) -> Estimate | None:
    """Bound the ε of replacing one record where members and non-members differ without the model.

    Args:
        members: Records that were trained on.
        nonmembers: Records that were not, of the same kind.
        scores: The score of each of these records; how far apart the scores of a pair are says how sure its guess is.
        labels: A pair of label arrays, or None.
        delta: The δ of the guarantee that is tested.
        confidence: The confidence of the bound.
        seed: Decides pairs and folds.

    Returns:
        The bound, conditional on the chances; None where there are too few pairs.
    """
    records = read_records(members, nonmembers, labels)
    pairs = min(*records.sizes, MOST_PAIRS)
    if pairs < FEWEST_PAIRS:
        return None
    rng = np.random.default_rng(np.random.SeedSequence([seed, 3]))
    rows: list[IntArray] = [rng.permutation(size)[:pairs] for size in records.sizes]
    sides = [take(side, own) for side, own in zip((records.members, records.nonmembers), rows, strict=True)]
    if records.kind == "image":
        sides = [thumbnails(side) for side in sides]
    coded = None
    if records.labels is not None:
        coded = np.concatenate([side[own] for side, own in zip(records.labels, rows, strict=True)])
    fold = np.tile(rng.permutation(pairs) % FOLDS, 2)  # a pair is one fold: neither helps to judge the other
    odds = cross_fitted_log_odds(views_of(records.kind, sides[0], sides[1], coded), np.arange(2 * pairs) < pairs, fold)
    seen: tuple[FloatArray, FloatArray] = (scores.members[rows[0]], scores.nonmembers[rows[1]])
    return _estimate(PropensityRun.from_pairs(seen, (odds[:pairs], odds[pairs:])), delta, confidence)


def _estimate(run: PropensityRun, delta: float, confidence: float) -> Estimate:
    bound = propensity_bound(run, delta=delta, confidence=confidence)
    ordered = propensity_bound(run.ordered(), delta=delta, confidence=confidence).epsilon
    agreed = reliability(run, level=1.0 - confidence)
    return replace(
        bound,
        claim=f"{bound.claim} If only their order is right, ε is at least {number(ordered)}.",
        warnings=bound.warnings if agreed.calibrated else (*bound.warnings, UNCALIBRATED),
        details={
            **bound.details,
            "calibrated": agreed.calibrated,
            "by_order": ordered,
            "reliability": [row._asdict() for row in agreed.bins],
        },
    )
