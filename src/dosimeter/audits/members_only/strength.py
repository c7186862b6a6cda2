"""How strong the baseline is: c_lb against its training size and against its helper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dosimeter._validate import IntArray
from dosimeter.audits.members_only.null_band import Pair
from dosimeter.audits.members_only.pair_classifier import Answers, PairClassifier, pair_classifier
from dosimeter.audits.members_only.result import BaselineStrength, BaselineWithHelper, BaselineWithRecords
from dosimeter.audits.members_only.split import coin_evidence
from dosimeter.estimators.panoramia import panoramia

SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)
FEWEST = 30  # of either kind, for a classifier in three folds
HELPERS = {"none": "no helper", "generated": "helper on generated records", "real": "helper on real non-members"}
ALL_SHARED = "all that the baseline sees except a reference model"
RISING = (
    "the baseline still gets better with more training records, so c_lb is too low and ε̃ too high: pass more members"
)


def baseline_strength(
    classifier: PairClassifier,
    helpers: Mapping[str, Answers | None],
    shared: Sequence[Answers],
    *,
    guesses: int,
    confidence: float,
    seed: int,
) -> BaselineStrength:
    """c_lb and AUC of baselines that see less, all at one number of guesses and with the same coins."""
    level = 1.0 - confidence

    def c_lb(pair: Pair) -> float:
        evidence = coin_evidence(*pair, seed=seed)
        return panoramia(baseline=None, attack=evidence, confidence=1.0 - level / 2, guesses=guesses).epsilon

    full = classifier.score(*shared)
    sizes: list[BaselineWithRecords] = []
    pairs: dict[float, Pair] = {1.0: full}
    members, total = int(classifier.member.sum()), classifier.member.size
    for share, child in zip(SHARES, np.random.SeedSequence(seed).spawn(len(SHARES)), strict=True):
        kept = max(1, round(share * min(members, total - members)))
        if kept < FEWEST:
            continue
        if share < 1.0:
            rows = _some_rows(classifier, kept, child)
            smaller = pair_classifier(classifier.records, seed=classifier.seed, rows=rows)
            pairs[share] = smaller.score(*shared, rows=rows)
        sizes.append(BaselineWithRecords(share, 2 * kept, c_lb(pairs[share]), pairs[share].auc))
    scored = {HELPERS[name]: classifier.score(*(() if a is None else (a,))) for name, a in helpers.items()}
    scored[ALL_SHARED] = full
    chance = None if 0.5 not in pairs else _chance_of_rise(pairs[0.5], full, guesses, confidence, seed)
    rising = chance is not None and chance <= level
    return BaselineStrength(
        size=tuple(sizes),
        helper=tuple(BaselineWithHelper(name, c_lb(pair), pair.auc) for name, pair in scored.items()),
        guesses=guesses,
        rising=rising,
        rising_p_value=chance,
        warnings=(RISING,) if rising else (),
    )


def _some_rows(classifier: PairClassifier, kept: int, seeds: np.random.SeedSequence) -> IntArray:
    """As many training records of either kind."""
    rng = np.random.default_rng(seeds)
    return np.concatenate([rng.permutation(np.flatnonzero(classifier.member == kind))[:kept] for kind in (True, False)])


def _chance_of_rise(half: Pair, full: Pair, guesses: int, confidence: float, seed: int) -> float:
    """The p-value of the baseline's gain from half of the records to all of them."""
    compared = panoramia(
        baseline=coin_evidence(*half, seed=seed),
        attack=coin_evidence(*full, seed=seed),
        confidence=confidence,
        guesses=guesses,
    )
    return float(compared.details["null_p_value"])
