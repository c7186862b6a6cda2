"""How strong the baseline is: c_lb against its training size and against its helper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dosimeter.audits.members_only.contest import Answers, Contest, contest
from dosimeter.audits.members_only.game import shown
from dosimeter.audits.members_only.null_band import Pair
from dosimeter.estimators.panoramia import panoramia

SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)
FEWEST = 30  # of either kind, for a classifier in three folds
WORDS = {"none": "no helper", "generated": "helper on generated records", "real": "helper on real non-members"}


def baseline_strength(
    field: Contest,
    helpers: Mapping[str, Answers | None],
    common: Sequence[Answers],
    *,
    guesses: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """c_lb and AUC of baselines that see less, all at one number of guesses and with the same coins."""
    level = 1.0 - confidence

    def row(pair: Pair) -> dict[str, Any]:
        evidence = shown(*pair, seed=seed)
        found = panoramia(baseline=None, attack=evidence, confidence=1.0 - level / 2, guesses=guesses)
        return {"c_lb": found.epsilon, "auc": pair.auc}

    full = field.score(*common)
    sizes: list[dict[str, Any]] = []
    pairs: dict[float, Pair] = {1.0: full}
    members, total = int(field.member.sum()), field.member.size
    for share, child in zip(SHARES, np.random.SeedSequence(seed).spawn(len(SHARES)), strict=True):
        kept = max(1, round(share * min(members, total - members)))
        if kept < FEWEST:
            continue
        if share < 1.0:
            rng = np.random.default_rng(child)
            rows = np.concatenate(
                [rng.permutation(np.flatnonzero(field.member == kind))[:kept] for kind in (True, False)]
            )
            pairs[share] = contest(field.game, seed=field.seed, rows=rows).score(*common, rows=rows)
        sizes.append({"share": share, "records": 2 * kept, **row(pairs[share])})
    variants = [{"helper": WORDS[k], **row(field.score(*(() if h is None else (h,))))} for k, h in helpers.items()]
    variants.append({"helper": "all that the baseline sees but a stand-in", **row(full)})
    rising, chance = False, None
    if 0.5 in pairs:
        compared = panoramia(
            baseline=shown(*pairs[0.5], seed=seed),
            attack=shown(*full, seed=seed),
            confidence=confidence,
            guesses=guesses,
        )
        chance = float(compared.details["null_p_value"])
        rising = chance <= level
    warnings = []
    if rising:
        warnings.append(
            "the baseline still gets better with more training records, so c_lb is too low and ε̃ too high: pass more "
            "members"
        )
    return {
        "size": sizes,
        "helper": variants,
        "guesses": guesses,
        "rising": rising,
        "rising_p_value": chance,
        "warnings": warnings,
    }
