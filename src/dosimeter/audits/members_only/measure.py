"""ε̃ of each target: the attack that sees the target against a baseline that sees a reference model instead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.audits.members_only.pair_classifier import (
    SHARED_REFERENCES,
    Answers,
    Pair,
    PairClassifier,
    Trainer,
    ask_reference,
    pair_classifier,
    reference_pools,
)
from dosimeter.audits.members_only.records import coin_evidence
from dosimeter.audits.members_only.result import (
    BaselineResult,
    BaselineStrength,
    BaselineWithHelper,
    BaselineWithRecords,
    DifferenceRange,
    RecallCurve,
    ReferenceTest,
    ReferenceValues,
    TargetResult,
)
from dosimeter.estimate import Estimate, number, percent
from dosimeter.estimators.lower_bound import proven_epsilon
from dosimeter.estimators.panoramia import bound_curve, panoramia
from dosimeter.estimators.ranked import logit_bound

# --- against reference models ------------------------------------------------------------------------------
#
# Does an attack do better with the model than with models that never saw the audit members?
#
# Each reference model, trained without the audit members, takes the target's place in the same attack. If the target
# has not learnt from those members either, it is one more model of that kind, and the attack does as well with it as
# with the others, except by chance. The target stands out where its value lies above the prediction limit of theirs.
#
# The target learnt from all members, a reference model from fewer: it must not know those that it is asked about. A
# model that learnt from more records knows the distribution better, and the attack does better with it, leak or not. So
# some reference models learn from half as many records as the others, and the gain from half to whole is continued in a
# straight line up to the target's number. For a gain that falls off with the number of records the line lies above the
# truth (docs/honest-bounds.md, "What a model gains from more records").
#
# Two statistics are tested, each at half of the level: the area under the ROC curve, and the area under its first part,
# where a leak of few records shows. Both are over all records of the audit, shown or not, so the coins do not matter.
# The AUC is compared on the scale of normal quantiles: a straight line of AUCs would lead beyond 1.

FEWEST_REFERENCES = 3
LEVEL = 0.02  # at which a target without a leak stands out


def prediction_limit(
    values: npt.ArrayLike, level: float, *, floor: float = 0.0, smaller: npt.ArrayLike = (), more: float = 0.0
) -> float:
    """The limit that the value of one more model passes with probability `level`, if values are normal.

    mean + t·s·√(2 + 1/K), t the quantile of Student's law with K − 1 degrees of freedom. The reference models learn
    from one pool of members and the target may have learnt from others: the error of the pool, which they share, is
    taken to be as large as the error that is their own. `floor` is the least that s can be.

    `smaller` are the values of H models that learnt from half as many records, and m = `more` says how many such halves
    the target has beyond the reference models. Their gain is then continued: mean + m·(mean − mean of the smaller)
    + t·√(s²(2 + (1 + m)²/K) + h²m²/H), h the deviation of the smaller ones, with Welch's degrees of freedom. The larger
    of both limits counts: a model that learnt from more records does not do worse.
    """
    array, half = np.asarray(values, np.float64), np.asarray(smaller, np.float64)
    if array.size < FEWEST_REFERENCES:
        raise InputError(
            f"references must be at least {FEWEST_REFERENCES} to give a limit, got {array.size}; train more."
        )
    mean, variance = float(array.mean()), max(floor**2, float(array.var(ddof=1)))
    freedom = array.size - 1
    limit = mean + float(special.stdtrit(freedom, 1.0 - level)) * math.sqrt(variance * (2.0 + 1.0 / array.size))
    if half.size < FEWEST_REFERENCES or more <= 0:
        return limit
    parts = (
        variance * (2.0 + (1.0 + more) ** 2 / array.size),
        max(floor**2, float(half.var(ddof=1))) * more**2 / half.size,
    )
    squares = parts[0] ** 2 / freedom + parts[1] ** 2 / (half.size - 1)
    t = float(special.stdtrit(sum(parts) ** 2 / squares if squares > 0 else freedom, 1.0 - level))
    return max(limit, mean + more * (mean - float(half.mean())) + t * math.sqrt(sum(parts)))


def auc_limit(
    values: npt.ArrayLike, level: float, *, records: int, smaller: npt.ArrayLike = (), more: float = 0.0
) -> float:
    """The `prediction_limit` of AUCs, found on the scale of normal quantiles; 1, which no AUC passes, is its end.

    `records` is the number of members that the AUCs are over: half a record is as near as an AUC is taken to be to 1.
    """
    end = 1.0 - 0.5 / records
    scaled, half = (special.ndtri(np.clip(np.asarray(v, np.float64), 1.0 - end, end)) for v in (values, smaller))
    limit = float(special.ndtr(prediction_limit(scaled, level, smaller=half, more=more)))
    return limit if limit < end - 1e-12 else 1.0


def judge(
    target: Pair, references: Sequence[Pair], *, level: float, smaller: Sequence[Pair] = (), more: float = 0.0
) -> ReferenceTest:
    """Compare a target with the reference models; a target without a leak stands out with probability `level`."""
    aucs, half_aucs = ([r.auc for r in some] for some in (references, smaller))
    limit = auc_limit(aucs, level / 2, records=target.members.size, smaller=half_aucs, more=more)
    firsts = np.array([r.first_part for r in references])
    rate = float(firsts.mean())
    # The first part is made of few records: its error is at least that of as many coins.
    floor = math.sqrt(rate * (1.0 - rate) / target.members.size)
    halves = [r.first_part for r in smaller]
    first_limit = prediction_limit(firsts, level / 2, floor=floor, smaller=halves, more=more)
    auc, first = target.auc, target.first_part
    return ReferenceTest(auc > limit or first > first_limit, auc, limit, first, first_limit)


# --- each target against the baseline ----------------------------------------------------------------------

SHARES = (0.2, 0.3, 0.5)  # of the pairs: numbers of guesses to choose from; fewer make a bound of chance
CURVE_POINTS = 160


@dataclass(frozen=True, eq=False)
class Baseline:
    """What every target is compared with.

    `shared` are the answers that baseline and attack both see. There is one baseline for each reference model; `best`
    is the strongest of them. Without reference models there is one baseline, and it sees only what is shared. `smaller`
    are the scores with reference models that learnt from half as many records, and `more` says how many such halves the
    target has beyond the others.
    """

    shared: tuple[Answers, ...]
    names: tuple[str, ...]
    pairs: tuple[Pair, ...]
    answers: tuple[tuple[Answers, ...], ...]
    best: int
    has_references: bool
    smaller: tuple[Pair, ...] = ()
    more: float = 0.0

    @property
    def strongest(self) -> Pair:
        """The scores of the strongest baseline."""
        return self.pairs[self.best]

    def test(self, attack: Pair, level: float) -> ReferenceTest | None:
        """Whether the attack stands out from the reference models; None where there are none."""
        if not self.has_references:
            return None
        return judge(attack, self.pairs, level=min(level, LEVEL), smaller=self.smaller, more=self.more)

    def values(self) -> ReferenceValues | None:
        """How well the attack does with each reference model; None where there are none."""
        if not self.has_references:
            return None
        (aucs, firsts), (half_aucs, half_firsts) = (
            (tuple(p.auc for p in pairs), tuple(p.first_part for p in pairs)) for pairs in (self.pairs, self.smaller)
        )
        return ReferenceValues(self.names, aucs, firsts, half_aucs, half_firsts, self.more)

    def result(self, c_lb: float, level: float, coins: int) -> BaselineResult:
        """The strongest baseline as the page draws it."""
        curve = recall_curve(self.strongest, level / 2, coins)
        return BaselineResult(self.names[self.best], self.strongest.auc, c_lb, curve)


def train_baselines(
    classifier: PairClassifier, helper: Answers | None, references: int, trainer: Trainer | None, seed: int
) -> Baseline:
    """Train the reference models, and a baseline with each of them; or the helper's baseline alone."""
    shared: tuple[Answers, ...] = () if helper is None else (helper,)
    if not references:
        name = "the records alone" if helper is None else "the records and a helper"
        return Baseline(shared, (name,), (classifier.score(*shared),), (shared,), 0, has_references=False)
    pool, pools = reference_pools(classifier.records, seed=seed)
    halves = smaller_references(references)
    children = np.random.SeedSequence(seed).spawn(references + SHARED_REFERENCES + halves)
    seeds = [int(child.generate_state(1)[0]) for child in children]
    shared += tuple(
        classifier.ask_trained(pool, seed=seeds[k], variant=k, trainer=trainer) for k in range(SHARED_REFERENCES)
    )
    size, members = pools.size, classifier.records.counts.members

    def asked(k: int, records: int) -> tuple[Answers, ...]:
        own = seeds[SHARED_REFERENCES + k]
        return (*shared, ask_reference(classifier, pools, records, seed=own, variant=k, trainer=trainer))

    seen = tuple(asked(k, size) for k in range(references))
    pairs = tuple(classifier.score(*answers) for answers in seen)
    smaller = tuple(classifier.score(*asked(references + k, size - size // 2)) for k in range(halves))
    best = int(np.argmax([pair.auc for pair in pairs]))
    names = tuple(f"reference {k + 1}" for k in range(references))
    more = max(0.0, (members - size) / (size // 2))
    return Baseline(shared, names, pairs, seen, best, has_references=True, smaller=smaller, more=more)


def smaller_references(references: int) -> int:
    """How many more models learn from half as many records."""
    return max(FEWEST_REFERENCES, references // 2)


@dataclass(frozen=True, eq=False)
class CoinDraws:
    """The bound for each draw of the coins, and the guesses and right guesses behind it."""

    bounds: FloatArray
    counts: tuple[tuple[int, int], ...]


def bounds_of_draws(pair: Pair, guesses: str | int, level: float, seeds: Sequence[int]) -> CoinDraws:
    """The bound at one level for each draw of the coins; the same seed draws the same coins for every attack."""
    estimates = [
        panoramia(baseline=None, attack=coin_evidence(*pair, seed=seed), confidence=1.0 - level, guesses=guesses)
        for seed in seeds
    ]
    attacks = [e.details["attack"] for e in estimates]
    counts = tuple((int(attack["guesses"]), int(attack["correct"])) for attack in attacks)
    return CoinDraws(np.array([e.epsilon for e in estimates]), counts)


@dataclass(frozen=True, eq=False)
class Measurement:
    """How every target is measured: one baseline, one number of guesses, the same coins.

    `judge` is the AUC of a judge that sees the records alone, where it is so high that the generator decides.
    """

    baseline: Baseline
    without: CoinDraws
    guesses: str | int
    confidence: float
    coins: int
    seeds: tuple[int, ...]
    judge: float | None = None

    @property
    def level(self) -> float:
        """The chance of error of the whole measurement; each of its two bounds gets half."""
        return 1.0 - self.confidence

    def of(self, name: str, attack: Pair, *, alone: bool) -> tuple[Estimate, TargetResult]:
        """ε̃ of one target and what the page draws; `alone` says that it is the only one."""
        _refuse_constant(attack, name)
        test = self.baseline.test(attack, self.level)
        draws = bounds_of_draws(attack, self.guesses, self.level / 2, self.seeds)
        estimate = self._estimate("" if alone else name, attack, test, draws)
        return estimate, self._result(name, attack, test, estimate, draws)

    def _estimate(self, label: str, attack: Pair, test: ReferenceTest | None, draws: CoinDraws) -> Estimate:
        """ε̃ where the target stands out from the reference models, else 0; the details keep the difference itself.

        c_lb and {c+ε}_lb are medians over the draws of the coins: which record of a pair is shown is chance alone.
        """
        once = panoramia(
            baseline=coin_evidence(*self.baseline.strongest, seed=self.coins),
            attack=coin_evidence(*attack, seed=self.coins),
            confidence=self.confidence,
            guesses=self.guesses,
        )
        c, both = (float(np.median(some.bounds)) for some in (self.without, draws))
        raw = max(0.0, both - c)
        passed = test.stands_out if test is not None else once.details["null_p_value"] <= self.level
        return replace(
            once,
            epsilon=raw if passed else 0.0,
            claim=self._claim(label, c, both, passed),
            details={
                **once.details,
                "c_lb": c,
                "c_plus_epsilon_lb": both,
                "epsilon_raw": raw,
                "epsilon_of_first_throw": once.epsilon,
                "throws": self.without.bounds.size,
                "throw_counts": {"baseline": list(self.without.counts), "attack": list(draws.counts)},
                "stands_out": passed,
                "verdict": None if test is None else test.to_dict(),
                "target": label or "model",
            },
        )

    def _claim(self, label: str, c: float, both: float, passed: bool) -> str:
        """What was measured, in one sentence."""
        subject = f"{label}: " if label else ""
        models = len(self.baseline.pairs)
        against = f"{models} models that never saw these members" if self.baseline.has_references else "the baseline"
        values = f"{number(both)} with the model, {number(c)} without it, {percent(self.confidence)} confidence"
        if passed and both > c:
            return (
                f"{subject}PANORAMIA measures ε̃ = {number(both - c)} ({values}; the attack stands out from {against}): "
                "a measurement, and a lower bound on ε only if no baseline can do better"
                f"{self._judged('decides most of the guesses')}."
            )
        reason = "stands out, but proves no more than the baseline" if passed else f"does not stand out from {against}"
        return (
            f"{subject}PANORAMIA measures ε̃ = 0: the attack {reason} ({values}): "
            f"a measurement, not evidence of privacy{self._judged('decides and ε̃ has no power')}."
        )

    def _judged(self, outcome: str) -> str:
        """What is added to the claim where generated records give themselves away."""
        if self.judge is None:
            return ""
        told = f"members are told from generated records without the model (AUC {self.judge:.3g})"
        return f"; {told}, so the generator {outcome}"

    def _result(
        self, name: str, attack: Pair, test: ReferenceTest | None, estimate: Estimate, draws: CoinDraws
    ) -> TargetResult:
        details: dict[str, Any] = dict(estimate.details)
        tail = self.level / 2
        low, middle, high = np.quantile(draws.bounds - self.without.bounds, [tail, 0.5, 1.0 - tail])
        return TargetResult(
            name=name,
            epsilon=estimate.epsilon,
            epsilon_raw=details["epsilon_raw"],
            c_lb=details["c_lb"],
            c_plus_epsilon_lb=details["c_plus_epsilon_lb"],
            guesses=details["attack"]["guesses"],
            recall=details["attack"]["recall"],
            stands_out=details["stands_out"],
            auc=attack.auc,
            first_part=attack.first_part,
            verdict=test,
            one_run=proven_epsilon(coin_evidence(*attack, seed=self.coins), delta=0.0, confidence=self.confidence),
            throws=DifferenceRange(float(low), float(middle), float(high), draws.bounds.size),
            curve=recall_curve(attack, tail, self.coins),
        )


def _refuse_constant(attack: Pair, label: str) -> None:
    both = np.concatenate(attack)
    if (both == both[0]).all():
        raise InputError(
            f"all {both.size} guesses about {label} are identical: neither the records nor the answers tell anything "
            "apart; pass a model with outputs that vary and more members."
        )


def choose_guesses(
    classifier: PairClassifier, attacks: Sequence[Sequence[Answers]], baseline: Baseline, level: float
) -> int:
    """The number of guesses at which the attacks lead most on the training records, out of fold: one for all."""
    numbers = np.array([max(1, round(share * classifier.member.size)) for share in SHARES])

    def bounds(seen: Sequence[Answers]) -> FloatArray:
        right = _right(classifier.score_out_of_fold(*seen), numbers)
        return np.maximum(0.0, logit_bound(numbers, right, level / 2))

    lead = np.mean([bounds(seen) for seen in attacks], axis=0) - bounds(baseline.answers[baseline.best])
    return max(1, round(SHARES[int(np.argmax(lead))] * classifier.records.pairs))


def _right(pair: Pair, numbers: IntArray) -> IntArray:
    """How many of the highest scores are those of members."""
    order = np.argsort(-np.concatenate(pair), kind="stable")
    right: IntArray = np.cumsum(order < pair.members.size, dtype=np.int64)[numbers - 1]
    return right


def recall_curve(pair: Pair, level: float, coins: int) -> RecallCurve:
    """Precision and bound by recall, thinned for a screen, and where the bound is largest."""
    curve = bound_curve(coin_evidence(*pair, seed=coins), level)
    best = int(np.argmax(curve.bound))
    steps = np.unique(np.append(np.geomspace(1, curve.guesses.size, CURVE_POINTS).astype(np.int64) - 1, best))
    precision: FloatArray = curve.correct / curve.guesses
    return RecallCurve(
        recall=tuple(curve.recall[steps].tolist()),
        precision=tuple(precision[steps].tolist()),
        bound=tuple(curve.bound[steps].tolist()),
        guesses=tuple(curve.guesses[steps].tolist()),
        best=int(np.searchsorted(steps, best)),
    )


# --- how strong the baseline is: c_lb against its training size and its helper ------------------------------

BASELINE_SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)
FEWEST_OF_A_KIND = 30  # of either kind, for a classifier in three folds
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
    for share, child in zip(BASELINE_SHARES, np.random.SeedSequence(seed).spawn(len(BASELINE_SHARES)), strict=True):
        kept = max(1, round(share * min(members, total - members)))
        if kept < FEWEST_OF_A_KIND:
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
    baseline, attack = (coin_evidence(*pair, seed=seed) for pair in (half, full))
    compared = panoramia(baseline=baseline, attack=attack, confidence=confidence, guesses=guesses)
    return float(compared.details["null_p_value"])
