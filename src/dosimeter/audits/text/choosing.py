"""Which score is the headline, decided on reference fine-tunes whose coins tell nothing about those of the audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dosimeter._validate import InputError
from dosimeter.audits.text.scores import SCORES, available, score_of
from dosimeter.audits.text.sheet import CanarySheet
from dosimeter.audits.text.subject import Asked
from dosimeter.evidence import OneRun

__all__ = ["choose_score"]


def choose_score(asked: Asked, sheet: CanarySheet, references: Sequence[tuple[Any, CanarySheet]]) -> tuple[str, str]:
    """Take the score with the largest mean AUC on the references, each with the coins of its own sheet.

    Returns:
        The score, and how it was decided on.

    Raises:
        InputError: If there is no reference, or one shares its coins with the audited sheet.
    """
    pairs = list(references)
    if not pairs:
        raise InputError("score='auto' needs references=[(model, sheet), …]; pass some, or fix a score beforehand.")
    strengths: list[dict[str, float]] = []
    for index, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], CanarySheet):
            raise InputError(f"references[{index}] must be a pair (model, sheet); pass a CanarySheet of its own coins.")
        model, other = pair
        if other.coin_seed == sheet.coin_seed or other.mask_hash == sheet.mask_hash:
            raise InputError(
                f"references[{index}] has the coins of the audited sheet, so a score chosen on it would know them; "
                "train it on sheet.again()."
            )
        there = Asked.read(model, asked.tokenizer, asked.base)
        passes = there.passes(there.encode(other))
        secrets = [canary.secret for canary in other.canaries]
        groups = None if other.groups is None else np.array(other.groups)
        strengths.append(
            {
                name: OneRun(score_of(name, passes, secrets), other.included, groups=groups).as_scores().auc
                for name in available(passes)
            }
        )
    names = [name for name in strengths[0] if all(name in row for row in strengths)]
    if not asked.compared:
        names = [name for name in names if not SCORES[name].needs_base]
    means = {name: float(np.mean([row[name] for row in strengths])) for name in names}
    best = max(means, key=lambda name: means[name])
    return best, f"chosen on {len(strengths)} reference fine-tune(s), by AUC"
