"""An anytime-valid test of a claimed guarantee, while the runs come in.

In each run a fair coin S decides whether the record is in, the mechanism runs afresh, and its output gets
a score. Under (ε, δ) the payoff 1[E](1[S=1] − e^ε 1[S=0]) of an event E has mean at most δ/2, and so has its mirror
image; the sum of two such payoffs has mean at most δ. Whoever bets on them against a true claim ever multiplies the
wealth by 1/α with probability at most α (Ville). Here the wealth is spread over events, stakes and, for a claimed
profile, over several pairs (ε', δ').

The events are score ≥ τ ("in"), score ≤ τ ("out") and one of each at once ("both"). The thresholds τ are quantiles of
the *earlier* scores, set anew whenever the number of runs has doubled, so that every bet is placed before its run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.estimate import Estimate, Validity, number, percent
from dosimeter.evidence import OneRun

Profile = Callable[[float], float] | Sequence[tuple[float, float]]

LEVELS = (0.03, 0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.92, 0.97)
FRACTIONS = (0.1, 0.3, 0.6, 0.95)  # of the largest stake that cannot lose everything
SIDE_WEIGHTS = (0.15, 0.15, 0.7)  # in, out, both
PROFILE_EPSILONS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
WARM_UP = 8
CHUNK = 2048
STATE_VERSION = 1


def gaussian_profile(mu: float) -> Callable[[float], float]:
    """Give the profile δ(ε) of a μ-Gaussian mechanism, to claim it as a whole.

    Args:
        mu: μ of the mechanism, at least 0.

    Returns:
        The function ε ↦ δ.

    Raises:
        InputError: If μ is negative or infinite.

    >>> gaussian_profile(1.0)(1.0)
    0.126...
    """
    size = check.within("mu", mu, 0.0, math.inf, "pass the μ of the Gaussian mechanism", include="[)")
    return lambda epsilon: float(geometry.delta_from_mu(epsilon, size))


def wealth_log(*, hits_in: int, hits_out: int, runs: int, epsilon: float, delta: float, stake: float) -> float:
    """ln of the wealth of one constant stake: Π(1 + l(g − δ/2)) after `runs` runs.

    `hits_in` and `hits_out` are the runs with the event in which the record was in and out; 0 ≤ l < 1/(e^ε + δ/2).
    """
    total = check.whole("runs", runs, 0, "pass the number of runs")
    a = check.whole("hits_in", hits_in, 0, "pass the hits with the record in", total)
    b = check.whole("hits_out", hits_out, 0, "pass the hits with the record out", total - a)
    e = check.within("epsilon", epsilon, 0.0, 700.0, "pass the claimed ε")
    d = check.delta(delta)
    most = 1.0 / (math.exp(e) + d / 2)
    bet = check.within("stake", stake, 0.0, most, "pass a stake below 1/(e^ε + δ/2)", include="[)")
    win, lose, idle = 1 - d / 2, math.exp(e) + d / 2, d / 2
    return a * math.log1p(bet * win) + b * math.log1p(-bet * lose) + (total - a - b) * math.log1p(-bet * idle)


class _Bets:
    """The stakes of all bets against a list of pairs, as the log-factors of a win, a loss and an idle run."""

    def __init__(self, pairs: Sequence[tuple[float, float]]) -> None:
        epsilon = np.array([e for e, _ in pairs])[:, None]
        delta = np.array([d for _, d in pairs])[:, None]
        self.factors = []
        for mean in (delta / 2, delta):  # of one event, of one event of each kind
            stake = np.array(FRACTIONS) / (np.exp(epsilon) + mean)
            loss = np.broadcast_to(np.log1p(-np.array(FRACTIONS)), stake.shape)
            self.factors.append(tuple(f.ravel() for f in (np.log1p(stake * (1 - mean)), loss, np.log1p(-stake * mean))))

    def log_wealth(self, counts: FloatArray, runs: FloatArray) -> FloatArray:
        """ln of the mixed wealth; `counts` is (times, wins and losses, in and out, thresholds)."""
        thresholds = counts.shape[-1]
        low = np.arange((thresholds + 1) // 2)
        both = counts[:, :, 0, thresholds - 1 - low] + counts[:, :, 1, low]
        sides = ((counts[:, :, 0], 0), (counts[:, :, 1], 0), (both, 1))
        parts = np.empty((len(sides), counts.shape[0]))
        for row, ((side, kind), weight) in enumerate(zip(sides, SIDE_WEIGHTS, strict=True)):
            win, loss, idle = self.factors[kind]
            wins, losses = side[:, 0, :, None], side[:, 1, :, None]
            logs = wins * (win - idle)
            logs += losses * (loss - idle)
            logs += runs[:, None, None] * idle
            logs = logs.reshape(counts.shape[0], -1)
            top = logs.max(axis=1)
            logs -= top[:, None]
            parts[row] = top + np.log(np.exp(logs, out=logs).mean(axis=1)) + math.log(weight)
        return np.asarray(np.logaddexp.reduce(parts, axis=0))


class Marks(NamedTuple):
    """Numbers of runs on which bets were placed, and what had been won and lost by then: (wins/losses, in/out, τ)."""

    runs: FloatArray
    counts: FloatArray

    def top(self, goal: float) -> float:
        """An ε at which no wealth reaches the goal: ln W ≤ 2·wins·e^−ε is below it there."""
        return max(1.0, math.log(2.0 * max(1.0, float(self.runs[-1])) / goal) + 1.0)

    def wealth(self, pairs: Sequence[tuple[float, float]]) -> float:
        """ln of the largest wealth at a mark, of bets against these pairs (ε, δ)."""
        return float(_Bets(pairs).log_wealth(self.counts, self.runs).max())

    def bound(self, epsilon: float, delta: float, goal: float) -> float:
        """The ε up to which every claim (ε, δ) is rejected; `epsilon` is the one that was claimed."""
        grid = _grid(epsilon, self.top(goal))
        gaps = np.array([self.wealth([(e, delta)]) - goal for e in grid])
        kept = int(np.argmax(gaps < 0.0))
        if kept == 0:
            return 0.0
        from scipy.optimize import brentq

        return float(brentq(lambda e: self.wealth([(e, delta)]) - goal, grid[kept - 1], grid[kept], xtol=1e-12))

    def to_dict(self) -> dict[str, Any]:
        """Whole numbers as JSON values."""
        return {"runs": self.runs.astype(np.int64).tolist(), "counts": self.counts.astype(np.int64).tolist()}


def _grid(epsilon: float, top: float) -> FloatArray:
    return np.union1d(np.linspace(0.0, top, 13), min(epsilon, top))


class ClaimTest:
    """Watch independent runs, and say when a claimed (ε, δ), or a whole claimed profile, is no longer tenable.

    The verdict is valid at any time: looking after every run does not raise the error above 1 − `confidence`. `update`
    takes one run, `update_many` takes many; `to_dict` and `from_dict` carry the test over a restart.

    Args:
        epsilon: The claimed ε.
        delta: The claimed δ.
        confidence: One minus the probability of rejecting a claim that is true.
        profile: A claimed function δ(ε), or pairs (ε, δ), to be tested as a whole.
        thresholds: Thresholds fixed in advance (from a pilot), instead of learnt from the earlier scores.

    Raises:
        InputError: If an argument is out of range.

    >>> test = ClaimTest(epsilon=1.0, delta=1e-5, thresholds=[0.5])
    >>> for run in range(60):
    ...     test.update(score=float(run % 2), included=run % 2 == 1)
    >>> test.rejected
    True
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        confidence: float = 0.95,
        profile: Profile | None = None,
        thresholds: Sequence[float] | None = None,
    ) -> None:
        self.epsilon = check.within("epsilon", epsilon, 0.0, 700.0, "pass the claimed ε")
        self.delta = check.delta(delta)
        self.confidence = check.confidence(confidence)
        self.pairs = _claimed_pairs(self.epsilon, self.delta, profile)
        self.goal = -math.log1p(-self.confidence)
        self._fixed = thresholds is not None
        self._thresholds = None if thresholds is None else np.unique(check.finite_array("thresholds", thresholds))
        self._bets = _Bets(self.pairs)
        size = len(LEVELS) if self._thresholds is None else self._thresholds.size
        self._counts = np.zeros((2, 2, size))  # wins and losses × in and out × thresholds
        self._bet_runs = 0
        self._scores: list[FloatArray] = []
        self._trail: list[tuple[int, FloatArray]] = []  # counts at some of the past runs, for the lower bound
        self._next_mark = 1
        self.runs = 0
        self.log_wealth = 0.0
        self.max_log_wealth = 0.0
        self.rejected_at: int | None = None

    @property
    def rejected(self) -> bool:
        """Whether the claim has been rejected at any time so far."""
        return self.rejected_at is not None

    def update(self, score: float, included: bool | int) -> None:
        """Take in one run: its score, and whether the record was in."""
        self.update_many([score], [included])

    def update_many(self, scores: Any, included: Any) -> None:
        """Take in runs, the earliest first."""
        values, inside = check.finite_array("scores", scores), check.bits("included", included)
        if values.size != inside.size:
            raise InputError(f"scores has {values.size} runs but included has {inside.size}; they must pair up.")
        start = 0
        while start < values.size:
            stop = min(values.size, start + min(CHUNK, self._block_end() - self.runs))
            self._take(values[start:stop].copy(), inside[start:stop])
            start = stop

    def _block_end(self) -> int:
        """The number of runs at which the thresholds are set anew: 8, 16, 32, …"""
        if self._fixed:
            return self.runs + CHUNK
        return int(max(WARM_UP, 2 ** self.runs.bit_length()))

    def _take(self, scores: FloatArray, included: BoolArray) -> None:
        size = scores.size
        if self._thresholds is not None:
            counts = self._counts + np.cumsum(_events(scores, included, self._thresholds), axis=0)
            path = self._bets.log_wealth(counts, self._bet_runs + np.arange(1.0, size + 1))
            self._mark(counts)
            if self.rejected_at is None and path.max() >= self.goal:
                first = int(np.argmax(path >= self.goal))
                self.rejected_at = self.runs + first + 1
                self._trail.append((self._bet_runs + first + 1, counts[first]))
            self._counts, self._bet_runs = counts[-1], self._bet_runs + size
            self.log_wealth, self.max_log_wealth = float(path[-1]), max(self.max_log_wealth, float(path.max()))
        self.runs += size
        if not self._fixed:
            self._scores.append(scores)
            if self.runs == max(WARM_UP, 2 ** (self.runs.bit_length() - 1)):
                self._thresholds = np.quantile(np.concatenate(self._scores), LEVELS)

    def _mark(self, counts: FloatArray) -> None:
        """Keep the counts at every run at first, then at numbers of runs 2 % apart."""
        while self._next_mark <= self._bet_runs + counts.shape[0]:
            self._trail.append((self._next_mark, counts[self._next_mark - self._bet_runs - 1]))
            self._next_mark = max(self._next_mark + 1, math.ceil(1.02 * self._next_mark))

    def lower_bound(self) -> float:
        """The ε up to which every claim (ε, δ) at this δ is rejected by the same bets: a confidence sequence.

        Wealth is looked at at the marked runs, at the rejection and now, which is as valid as looking always.
        """
        return self._all_marks().bound(self.epsilon, self.delta, self.goal)

    def _all_marks(self) -> Marks:
        marks = [*self._trail, (self._bet_runs, self._counts)]
        return Marks(np.array([float(n) for n, _ in marks]), np.stack([c for _, c in marks]))

    def marks(self) -> Marks:
        """The few marks that the lower bound and the verdict rest on: with them alone both come out the same."""
        every = self._all_marks()
        low = every.bound(self.epsilon, self.delta, self.goal)
        tops = [*_grid(self.epsilon, every.top(self.goal)), low]
        looks = [_Bets([(e, self.delta)]).log_wealth(every.counts, every.runs).argmax() for e in tops]
        looks.append(self._bets.log_wealth(every.counts, every.runs).argmax())
        some = np.unique([*looks, every.runs.size - 1])
        few = Marks(every.runs[some], every.counts[some])
        return few if few.bound(self.epsilon, self.delta, self.goal) == low else every

    def to_dict(self) -> dict[str, Any]:
        """The whole state as plain JSON values."""
        return {
            "version": STATE_VERSION,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "confidence": self.confidence,
            "pairs": [list(pair) for pair in self.pairs],
            "fixed": self._fixed,
            "thresholds": None if self._thresholds is None else self._thresholds.tolist(),
            "counts": self._counts.tolist(),
            "bet_runs": self._bet_runs,
            "scores": np.concatenate(self._scores).tolist() if self._scores else [],
            "trail": [[n, counts.tolist()] for n, counts in self._trail],
            "next_mark": self._next_mark,
            "runs": self.runs,
            "log_wealth": self.log_wealth,
            "max_log_wealth": self.max_log_wealth,
            "rejected_at": self.rejected_at,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> ClaimTest:
        """A test that resumes where the one that wrote `state` stopped."""
        try:
            if state["version"] != STATE_VERSION:
                raise InputError(f"state has version {check.show(state['version'])}; this one reads {STATE_VERSION}.")
            pairs = [(e, d) for e, d in state["pairs"]]
            learnt = None if state["thresholds"] is None else check.finite_array("thresholds", state["thresholds"])
            test = cls(
                epsilon=state["epsilon"],
                delta=state["delta"],
                confidence=state["confidence"],
                profile=pairs,
                thresholds=state["thresholds"] if state["fixed"] else None,
            )
            shape = test._counts.shape
            test._thresholds = learnt
            test._counts = np.array(state["counts"], float).reshape(shape)
            test._trail = [(int(n), np.array(c, float).reshape(shape)) for n, c in state["trail"]]
            test._scores = [check.finite_array("scores", state["scores"])] if state["scores"] else []
            test._bet_runs, test.runs = int(state["bet_runs"]), int(state["runs"])
            test._next_mark = int(state["next_mark"])
            test.log_wealth, test.max_log_wealth = float(state["log_wealth"]), float(state["max_log_wealth"])
            test.rejected_at = None if state["rejected_at"] is None else int(state["rejected_at"])
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(f"state is not what ClaimTest.to_dict wrote ({check.show(error)}); start anew.") from None
        return test


def _events(scores: FloatArray, included: BoolArray, thresholds: FloatArray) -> FloatArray:
    """Wins and losses of each run, of betting "in" at score ≥ τ and "out" at score ≤ τ: (runs, win/loss, in/out, τ).

    A low "out" threshold is paired with a high "in" threshold; where both are one value, "out" means below it, so that
    the two events of a pair never meet.
    """
    low = np.arange((thresholds.size + 1) // 2)
    mirror = thresholds[thresholds.size - 1 - low]
    below = thresholds.copy()
    with np.errstate(over="ignore"):  # nothing lies below the lowest number
        below[low] = np.where(below[low] < mirror, below[low], np.nextafter(mirror, -np.inf))
    hit = np.stack([scores[:, None] >= thresholds, scores[:, None] <= below], axis=1)
    right = np.stack([included, ~included], axis=1)[:, :, None]
    return np.stack([hit & right, hit & ~right], axis=1).astype(float)


def _claimed_pairs(epsilon: float, delta: float, profile: Profile | None) -> list[tuple[float, float]]:
    """The pairs (ε', δ') to bet against: the claimed one first, then those of the profile."""
    if profile is None:
        return [(epsilon, delta)]
    given: list[tuple[Any, Any]]
    if callable(profile):
        try:
            given = [(e, profile(e)) for e in PROFILE_EPSILONS]
        except Exception as error:
            raise InputError(f"profile must be a function δ(ε), it fails ({check.show(error)}); pass one.") from None
    else:
        try:
            given = [(e, d) for e, d in check.listed("profile", profile, "pass pairs (ε, δ)")]
        except (TypeError, ValueError):  # also what `listed` says
            raise InputError(
                f"profile must be a function δ(ε) or a list of pairs (ε, δ), got {check.show(profile)}; pass either."
            ) from None
    pairs = [(epsilon, delta)]
    for e, d in given:
        size = check.within("profile ε", e, 0.0, 700.0, "pass pairs (ε, δ) of the claimed guarantee")
        chance = check.within(f"profile δ at ε = {size:g}", d, 0.0, 1.0, "pass the δ of the claimed guarantee there")
        if (size, chance) not in pairs:
            pairs.append((size, chance))
    return pairs


def claim(
    evidence: OneRun,
    *,
    epsilon: float,
    delta: float,
    confidence: float = 0.95,
    profile: Profile | None = None,
    thresholds: Sequence[float] | None = None,
) -> Estimate:
    """Test the claim "(ε, δ)-DP", or a whole claimed profile, on independent runs, the earliest first.

    Each record of `evidence` is one independent run: the score of its output, and whether the record in question was
    in, by a fair coin.

    Args:
        evidence: The runs, the earliest first.
        epsilon: The claimed ε.
        delta: The claimed δ.
        confidence: One minus the probability of rejecting a claim that is true.
        profile: A function δ(ε) (`gaussian_profile`, or one from an accountant), or pairs (ε, δ).
        thresholds: Thresholds fixed in advance, instead of learnt from the earlier scores.

    Returns:
        The lower bound on ε at δ that the same bets prove; `details["rejected"]` is the verdict.

    Raises:
        InputError: If an argument is out of range.

    >>> import numpy as np
    >>> from dosimeter import OneRun, fair_coins
    >>> coins = fair_coins(200, seed=1)
    >>> claim(OneRun(np.random.default_rng(0).normal(3 * coins), coins), epsilon=1.0, delta=1e-5).details["rejected"]
    True
    """
    if not isinstance(evidence, OneRun):
        raise InputError(f"evidence must be a OneRun, got {type(evidence).__name__}; build OneRun(scores, included).")
    test = ClaimTest(epsilon=epsilon, delta=delta, confidence=confidence, profile=profile, thresholds=thresholds)
    test.update_many(evidence.scores, evidence.included)
    low = test.lower_bound()
    what = f"(ε = {number(test.epsilon)}, δ = {test.delta:g})" + (" with its profile" if profile is not None else "")
    if test.rejected:
        verdict = f"The claim {what} is rejected with {percent(test.confidence)} confidence at run {test.rejected_at}"
    else:
        verdict = f"The claim {what} is not rejected at {percent(test.confidence)} confidence, which does not prove it"
    return Estimate(
        epsilon=low,
        low=low,
        high=math.inf,
        delta=test.delta,
        confidence=test.confidence,
        method="claim",
        validity=Validity.INDEPENDENT_RUNS,
        claim=f"{verdict}; with that confidence the {test.runs} independent runs show ε ≥ {number(low)} at this δ.",
        warnings=evidence.mask_warnings,
        details={
            "rejected": test.rejected,
            "rejected_at": test.rejected_at,
            "runs": test.runs,
            "e_value": math.exp(min(test.log_wealth, 700.0)),
            "log_wealth": test.log_wealth,
            "max_log_wealth": test.max_log_wealth,
            "needed_log_wealth": test.goal,
            "claimed_epsilon": test.epsilon,
            "pairs": test.pairs,
            "marks": test.marks().to_dict(),
        },
    )
