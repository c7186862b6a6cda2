"""A claimed guarantee, tested while the runs come in; and what a number of runs can show before any is trained."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.audits import part
from dosimeter.audits.training.intervals import Evidence
from dosimeter.audits.training.result import TestedClaim
from dosimeter.estimate import Estimate, number, percent
from dosimeter.estimators.claim import ClaimTest, Profile
from dosimeter.estimators.claim import claim as claim_estimate
from dosimeter.estimators.lower_bound import largest_provable

__all__ = ["Claim", "check_budget"]

PLAN = "`dosimeter plan` says what an audit of a given size can show"


@dataclass
class Claim:
    """A claimed guarantee and the test that watches the runs; `path` is ln wealth after each of them."""

    epsilon: float
    delta: float
    confidence: float
    profile: Profile | None
    test: ClaimTest
    path: list[float] = field(default_factory=list)

    @classmethod
    def read(cls, claim: Any, *, delta: float, confidence: float) -> Claim:
        """Read a claim from (ε, δ), from pairs (ε', δ') of which the first is the claim, or from a profile δ(ε).

        The claimed ε of a profile is the smallest at which it falls to `delta`.
        """
        profile: Profile | None = None
        if callable(claim):
            pair, profile = (_epsilon_at(claim, delta), delta), claim
        elif isinstance(claim, (tuple, list)) and len(claim) == 2 and all(_is_number(value) for value in claim):
            pair = (claim[0], claim[1])
        elif isinstance(claim, (tuple, list)) and claim and all(_is_pair(value) for value in claim):
            pair, profile = tuple(claim[0]), [(e, d) for e, d in claim]
        else:
            raise InputError(
                f"claim must be (ε, δ), a list of such pairs or a function δ(ε), got {check.show(claim)}; pass one."
            )
        test = ClaimTest(epsilon=pair[0], delta=pair[1], confidence=confidence, profile=profile)
        return cls(test.epsilon, test.delta, test.confidence, profile, test)

    def update(self, score: float, included: bool) -> bool:
        """Add a run to the test, and say whether the claim is rejected."""
        self.test.update(score, included)
        self.path.append(self.test.log_wealth)
        return self.test.rejected

    def estimate(self, evidence: Evidence) -> Estimate:
        """The verdict and the confidence sequence after the runs so far."""
        return claim_estimate(
            evidence.one_run(),
            epsilon=self.epsilon,
            delta=self.delta,
            confidence=self.confidence,
            profile=self.profile,
        )

    def result(self, budget: int) -> TestedClaim:
        """The path of the wealth, and what it had to reach."""
        return TestedClaim(
            epsilon=self.epsilon,
            delta=self.delta,
            rejected=self.test.rejected,
            rejected_at=self.test.rejected_at,
            budget=budget,
            log_wealth=part.numbers(self.path),
            needed_log_wealth=self.test.goal,
        )

    def reachable(self, runs: int) -> bool:
        """Whether a perfect attack could reject the claim in this many runs, with scores of two values or of many."""
        coins = np.arange(runs) % 2 == 0
        for spread in (0.0, 1.0):
            test = ClaimTest(epsilon=self.epsilon, delta=self.delta, confidence=self.confidence, profile=self.profile)
            test.update_many(spread * np.arange(runs) / runs + 2.0 * coins, coins)
            if test.rejected:
                return True
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(_is_number(end) for end in value)


def _epsilon_at(profile: Callable[[float], float], delta: float) -> float:
    """The smallest ε with profile(ε) ≤ δ, to 1e-9; a profile falls in ε."""
    if delta == 0:
        raise InputError("delta is 0, but the claimed ε of a profile is read off at delta; pass e.g. 1e-5.")
    try:
        if profile(0.0) <= delta:
            return 0.0
        high = 1.0
        while profile(high) > delta:
            high *= 2
            if high > 512:
                raise InputError(
                    f"claim: the profile stays above delta = {delta:g} up to ε = 512; pass another profile."
                )
        low = 0.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if profile(middle) > delta else (low, middle)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise InputError(f"claim must be a function δ(ε), but it fails ({check.show(error)}); pass one.") from None
    return high


def check_budget(coins: int, *, delta: float, confidence: float, claim: Claim | None = None) -> None:
    """Refuse an audit in which even a perfect attack could show nothing, or could not reject the claim."""
    if claim is not None:
        if not claim.reachable(coins):
            raise InputError(
                f"runs={coins} is too small: even a perfect attack could not reject the claim ε = "
                f"{number(claim.epsilon)} at {percent(confidence)} confidence; pass more runs. {PLAN}."
            )
        return
    if largest_provable(coins // 2, coins, "coins", "add/remove", delta, 1 - confidence) <= 0:
        raise InputError(
            f"{coins} coins (models × points) are too few: even a perfect attack could show nothing at "
            f"{percent(confidence)} confidence and delta = {delta:g}; pass more runs. {PLAN}."
        )
