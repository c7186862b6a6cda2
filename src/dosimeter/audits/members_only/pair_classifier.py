"""Tell members from generated records: one classifier for baseline and attack, with the answers of other models.

`check_generator` says how well generated records pass for members. `propensity_bounds` bounds ε on the condition that
the log-odds of a record say how likely it is a member. These are the mean over all baselines, each of which sees the
records and a reference model. The same bound for each reference model in the target's place is the control: those never
saw the audit members, so what is proven about them is an error of the log-odds. The largest of these is subtracted from
every target's bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks.references import reference
from dosimeter.attacks.stacked import (
    Scored,
    answers,
    content_scores,
    has_torch,
    joined,
    stacked_out_of_fold,
    stacked_scores,
)
from dosimeter.audits.members_only.records import AuditRecords, BothSides, RecordSet
from dosimeter.audits.members_only.result import (
    GeneratorCheck,
    JudgeResult,
    NearestMembers,
    PropensityBin,
    PropensityCheck,
)
from dosimeter.engine import RunOptions
from dosimeter.estimate import Estimate, number
from dosimeter.estimators.propensity import propensity_bound
from dosimeter.estimators.propensity_run import PropensityRun, reliability
from dosimeter.evidence import Scores
from dosimeter.models import access

Trainer: TypeAlias = Callable[[Any, Any, int], Any]
SHARED_REFERENCES = 2  # models that baseline and attack both see
SHARED_SHARE = 1 / 2  # of the members for the generator, for the shared references
REFERENCE_SHARE = 6 / 7  # of its pool, for each other reference model: nearly as many records as the target had
FIRST_PART = 0.05  # of the ROC curve: false-positive rates up to this one


class Pair(NamedTuple):
    """Scores of the audit members and of the non-members beside them; higher means member."""

    members: FloatArray
    nonmembers: FloatArray

    @property
    def auc(self) -> float:
        return Scores(self.members, self.nonmembers).auc

    @property
    def first_part(self) -> float:
        """Mean TPR over the FPRs up to FIRST_PART; tied scores count as one group."""
        curve = Scores(self.members, self.nonmembers).curve
        fpr = np.concatenate([[0.0], curve.fp / self.nonmembers.size])
        tpr = np.concatenate([[0.0], curve.tp / self.members.size])
        grid = np.linspace(0.0, FIRST_PART, 201)
        return float(np.interp(grid, fpr, tpr).mean())


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says of the training and of the audit records, the loss in the first column."""

    train: FloatArray
    audit: FloatArray


@dataclass(frozen=True, eq=False)
class ReferencePools:
    """Members that reference models may learn from, by the records that they are asked about afterwards."""

    train: RecordSet
    audit: RecordSet

    @property
    def size(self) -> int:
        """How many records a reference model learns from."""
        return round(REFERENCE_SHARE * min(len(self.train), len(self.audit)))


@dataclass(frozen=True, eq=False)
class PairClassifier:
    """A classifier of members against non-members, with the scores of the records' content already computed."""

    records: AuditRecords
    member: BoolArray
    content: Scored
    seed: int

    def score(self, *seen: Answers, rows: IntArray | None = None) -> Pair:
        """Scores of the audit pairs by a classifier that sees the content's score and these answers.

        The last answers are also compared with each of the others: a loss that is low where others find it high.
        """
        train = _columns(self.content.train, [a.train for a in seen])
        audit = _columns(self.content.audit, [a.audit for a in seen])
        chosen = np.arange(self.member.size) if rows is None else rows
        scores = stacked_scores(train[chosen], self.member[chosen], audit, seed=self.seed)
        return Pair(scores[: self.records.pairs], scores[self.records.pairs :])

    def score_out_of_fold(self, *seen: Answers) -> Pair:
        """Scores of the training records, out of fold: the only ones that may be looked at before the audit."""
        columns = _columns(self.content.train, [a.train for a in seen])
        scores = stacked_out_of_fold(columns, self.member, seed=self.seed)
        return Pair(scores[self.member], scores[~self.member])

    def ask(self, model: Any, run: RunOptions) -> Answers:
        """The answers of a model that takes records as the caller gave them."""
        box = access(model, batch_size=run.batch_size, device=run.device)
        return self._answers(lambda side: answers(box, side.X, side.y))

    def ask_trained(self, on: RecordSet, *, seed: int, variant: int = 0, trainer: Trainer | None = None) -> Answers:
        """The answers of a model that is trained on these records, by the caller's function or by the default."""
        return self._answers(train_reference(on, seed, variant, trainer))

    def _answers(self, ask: Callable[[RecordSet], FloatArray]) -> Answers:
        return Answers(_ask_both(ask, self.records.train), _ask_both(ask, self.records.audit))


def _ask_both(ask: Callable[[RecordSet], FloatArray], sides: BothSides) -> FloatArray:
    return np.concatenate([ask(sides.members), ask(sides.nonmembers)])


def train_reference(
    on: RecordSet, seed: int, variant: int, trainer: Trainer | None
) -> Callable[[RecordSet], FloatArray]:
    """Train a model on these records; give it as a function from records to what it says of them."""
    if trainer is None:
        ask = reference(on.content, seed=seed, variant=variant)
        return lambda records: ask(records.content)
    model = trainer(on.X, on.y, seed)
    if model is None:
        raise InputError("reference returned None; it must train a model on (X, y, seed) and return it.")
    box = access(model)
    return lambda records: answers(box, records.X, records.y)


def pair_classifier(records: AuditRecords, *, seed: int, rows: IntArray | None = None) -> PairClassifier:
    """Score the content of the records; with `rows` the classifier is trained on these training records alone."""
    train, audit = (
        joined([sides.members.content, sides.nonmembers.content]) for sides in (records.train, records.audit)
    )
    member = np.arange(len(train)) < len(records.train.members)
    if rows is None:
        return PairClassifier(records, member, content_scores(train, member, audit, seed=seed), seed)
    some = content_scores(train.take(rows), member[rows], audit, seed=seed)
    scores = np.zeros(member.size)
    scores[rows] = some.train
    return PairClassifier(records, member, Scored(scores, some.audit), seed)


def _columns(content: FloatArray, seen: Sequence[FloatArray]) -> FloatArray:
    against = [seen[-1][:, 0] - other[:, 0] for other in seen[:-1]]
    if len(against) > 1:
        against.append(np.mean(against, axis=0))
    return np.column_stack([content, *seen, *against])


def reference_pools(records: AuditRecords, *, seed: int) -> tuple[RecordSet, ReferencePools]:
    """Members for the shared references, and those for reference models that take the target's place.

    The shared references get half of the generator's members. The others get all of them, as the target did, and the
    members that they are not asked about.
    """
    held = records.for_generator
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(held))
    shared = held.rows(order[: round(SHARED_SHARE * order.size)])
    return shared, ReferencePools(_both(held, records.audit.members), _both(held, records.train.members))


def ask_reference(
    classifier: PairClassifier,
    pools: ReferencePools,
    size: int,
    *,
    seed: int,
    variant: int,
    trainer: Trainer | None = None,
) -> Answers:
    """The answers of two models of one kind, trained on `size` members each and asked about others.

    Two, so that they can learn from about as many members as the target did and not from the generator's alone.
    """
    asked = []
    uses = ((pools.train, classifier.records.train), (pools.audit, classifier.records.audit))
    for (pool, sides), child in zip(uses, np.random.SeedSequence(seed).spawn(2), strict=True):
        drawing, training = child.spawn(2)
        rows = np.random.default_rng(drawing).permutation(len(pool))[:size]
        ask = train_reference(pool.rows(rows), int(training.generate_state(1)[0]), variant, trainer)
        asked.append(_ask_both(ask, sides))
    return Answers(*asked)


def _both(first: RecordSet, second: RecordSet) -> RecordSet:
    return RecordSet(_stacked(first.X, second.X), _stacked(first.y, second.y), joined([first.content, second.content]))


def _stacked(first: Any, second: Any) -> Any:
    """Two arrays, tables or lists, one after the other."""
    if first is None or isinstance(first, list):
        return first if first is None else [*first, *second]
    if hasattr(first, "iloc"):
        pandas: Any = import_module("pandas")
        return pandas.concat([first, second])
    return np.concatenate([first, second])


DECIDES = 0.95  # the AUC of a judge above which the generator decides what is measured
NO_NETWORK = (
    "torch is not installed, so no convolutional network judged the generated images: trees alone may pass images that "
    "such a network tells with certainty"
)


def check_generator(content: Scored, pairs: int, kind: str, nearest: NearestMembers | None) -> GeneratorCheck:
    """What each judge of the content tells of the audit pairs, the members first."""
    judges = tuple(
        JudgeResult(judge.name, Scores(judge.audit[:pairs], judge.audit[pairs:]).auc) for judge in content.judges
    )
    auc = Scores(content.audit[:pairs], content.audit[pairs:]).auc
    missing = NO_NETWORK if kind == "image" and not has_torch() else None
    return GeneratorCheck(judges, content.counted, auc, auc > DECIDES, nearest, missing)


def generator_warnings(check: GeneratorCheck) -> list[str]:
    """What a reader must know of the generator before the number."""
    found = []
    if check.decides:
        found.append(
            f"without the model, members are told from generated records with an AUC of {check.auc:.3g}: the generator "
            "decides most of the guesses, and where ε̃ is 0, ε̃ has no power; use a better generator, or real non-members"
        )
    if check.missing is not None:
        found.append(check.missing)
    return found


UNCALIBRATED = "the baselines' chances do not agree with who the members are, so the condition of this bound fails"


@dataclass(frozen=True, eq=False)
class PropensityBounds:
    """The bounds of every target, those that need the order of the log-odds alone, and the check of the log-odds."""

    estimates: tuple[Estimate, ...]
    ordered: tuple[float, ...]
    check: PropensityCheck


def propensity_bounds(attacks: Mapping[str, Pair], baselines: Sequence[Pair], confidence: float) -> PropensityBounds:
    """Bound ε of each target from all pairs, every record with its own log-odds."""
    controls = tuple(
        propensity_bound(_evidence(own, [b for b in baselines if b is not own]), confidence=confidence).epsilon
        for own in baselines
        if len(baselines) > 1
    )
    slack = max(controls, default=0.0)
    runs = [replace(_evidence(pair, baselines), slack=slack) for pair in attacks.values()]
    agreed = reliability(runs[0], level=1.0 - confidence)
    check = PropensityCheck(tuple(PropensityBin(*row) for row in agreed.bins), agreed.calibrated, controls)
    estimates = tuple(
        _labelled(propensity_bound(run, confidence=confidence), name if len(attacks) > 1 else "", check)
        for name, run in zip(attacks, runs, strict=True)
    )
    ordered = tuple(propensity_bound(run.ordered(), confidence=confidence).epsilon for run in runs)
    return PropensityBounds(estimates, ordered, check)


def _evidence(attack: Pair, baselines: Sequence[Pair]) -> PropensityRun:
    """What the attack says beyond the baselines, pair by pair; both give log-odds, so that they can be subtracted."""
    odds: list[FloatArray] = [np.mean([pair[side] for pair in baselines], axis=0) for side in (0, 1)]
    return PropensityRun.from_pairs((attack[0] - odds[0], attack[1] - odds[1]), (odds[0], odds[1]))


def _labelled(estimate: Estimate, name: str, check: PropensityCheck) -> Estimate:
    """The estimate with the target's name, and with what speaks against its condition."""
    warnings = [] if check.calibrated else [UNCALIBRATED]
    shown = max(check.controls, default=0.0)
    if shown > 0:
        warnings.append(
            f"the same bound for a reference model that never saw these members is {number(shown)}, so models know "
            "something of the records that the baselines do not; this was subtracted"
        )
    if not check.controls:
        warnings.append("there are no reference models, so nothing shows how much a model without a leak would get")
    return replace(
        estimate,
        claim=f"{name}: {estimate.claim}" if name else estimate.claim,
        warnings=(*estimate.warnings, *warnings),
        details={**estimate.details, "target": name or "model"},
    )
