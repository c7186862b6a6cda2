"""Tell members from generated records: one classifier for baseline and attack, with the answers of other models.

`check_generator` says how well generated records pass for members. `propensity_bounds` bounds ε on the condition that
the log-odds of a record say how likely it is a member. These are the mean over all baselines, each of which sees the
records and a reference model. The same bound for each reference model in the target's place is the control: those never
saw the audit members, so what is proven about them is an error of the log-odds. The largest of these is subtracted from
every target's bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks.stacked import (
    Content,
    Scored,
    WordClassifier,
    answers,
    boosted,
    class_columns,
    content_scores,
    has_torch,
    joined,
    quiet_fit,
    stacked_out_of_fold,
    stacked_scores,
    token_columns,
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
from dosimeter.models import Outputs, access

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


FAMILIAR = (
    "reference models learn from the generator's members, whose words its texts repeat: a language model that saw none "
    "of the members may stand out; pass splits with a fourth share, e.g. (0.2, 0.25, 0.25, 0.3)"
)


def reference_pools(records: AuditRecords, *, seed: int) -> tuple[RecordSet, ReferencePools]:
    """Members for the shared references, and those for reference models that take the target's place.

    The shared references get half of the generator's members. The others get all of them, as the target did, and the
    members that they are not asked about. To a model that has learnt the generator's members by heart, generated
    records look familiar. So where reference models have a share of their own, they learn from none of these: then they
    are like a model that never saw any member, and the shared references get all of the generator's.
    """
    held, own = records.for_generator, records.for_references
    if own is not None:
        return held, ReferencePools(_both(own, records.audit.members), _both(own, records.train.members))
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
    """How each classifier of the content scores the audit pairs, members first."""
    judges = tuple(
        JudgeResult(judge.name, Scores(judge.audit[:pairs], judge.audit[pairs:]).auc) for judge in content.judges
    )
    auc = Scores(content.audit[:pairs], content.audit[pairs:]).auc
    missing = NO_NETWORK if kind == "image" and not has_torch() else None
    return GeneratorCheck(judges, content.counted, auc, auc > DECIDES, nearest, missing)


def generator_warnings(check: GeneratorCheck) -> list[str]:
    """What a reader must know of the generator before the number."""
    sentences = []
    if check.decides:
        sentences.append(
            f"without the model, members are told from generated records with an AUC of {check.auc:.3g}: the generator "
            "decides most of the guesses, and where ε̃ is 0, ε̃ has no power; use a better generator, or real non-members"
        )
    if check.missing is not None:
        sentences.append(check.missing)
    return sentences


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


Asked: TypeAlias = Callable[[Content], FloatArray]
IMAGE_EPOCHS = (6, 3, 12)
WEIGHTS = (0.05, 0.2, 0.35, 0.4)  # of uniform, one, two and three words in a row
_TOKEN = re.compile(r"\w+|[^\w\s]")


def reference(content: Content, *, seed: int, variant: int = 0) -> Asked:
    """Train a model on records and labels; returns a function from records to the columns of what it says of them.

    Tables: boosted trees or, for odd variants, a dense network; variants 2 and 3 of four are many deep trees, which
    fit the records too closely, and a network that is stopped early on, which does not yet. Images: a convolutional
    network that is trained shorter or longer, without torch a dense one. Texts: hashed words for a class, three words
    in a row for none.
    """
    if content.kind == "text" and content.labels is None:
        return _n_grams(content.records)
    assert content.labels is not None  # the audit asks for labels of everything but texts
    classes, codes = np.unique(content.labels, return_inverse=True)
    if classes.size < 2:
        return lambda asked: np.zeros((len(asked), 3))
    fitted = _classifier(content, codes, classes.size, seed, variant)

    def ask(asked: Content) -> FloatArray:
        logits = fitted(asked)
        assert asked.labels is not None
        place = np.searchsorted(classes, asked.labels).clip(0, classes.size - 1)
        known = classes[place] == asked.labels
        columns = class_columns(Outputs(logits, "logits"), place)
        columns[~known, 0] = columns[:, 0].max()  # a class that the training records lack
        return columns

    return ask


def _classifier(content: Content, codes: IntArray, classes: int, seed: int, variant: int) -> Asked:
    if content.kind == "image" and has_torch():
        from dosimeter.attacks.image_classifier import image_classifier

        epochs = IMAGE_EPOCHS[variant % len(IMAGE_EPOCHS)]
        logits = image_classifier(content.records, codes, classes=classes, seed=seed, epochs=epochs)
        return lambda asked: logits(asked.records)
    if content.kind == "text":
        model: Any = WordClassifier()
    else:
        model = _tabular(seed, variant % 4) if content.kind == "tabular" else _dense(seed)
    from threadpoolctl import threadpool_limits

    quiet_fit(model, _rows(content), codes)

    def logits_of(asked: Content) -> FloatArray:
        with threadpool_limits(1):
            return np.log(np.maximum(model.predict_proba(_rows(asked)), 1e-12))

    return logits_of


def _rows(content: Content) -> Any:
    """A row for each record: its hashed words and pairs of words, or all its numbers."""
    if content.kind != "text":
        return content.records.reshape(len(content), -1)
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(ngram_range=(1, 2)).transform(content.records)


def _tabular(seed: int, variant: int) -> Any:
    if variant % 2:
        return _dense(seed, short=variant == 3)
    return boosted(seed, leaves=63, rounds=80) if variant else boosted(seed, leaves=15, rounds=80)


def _dense(seed: int, *, short: bool = False) -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    length = {"max_iter": 8} if short else {"early_stopping": True, "n_iter_no_change": 3, "max_iter": 40}
    network = MLPClassifier((64,), alpha=1e-3, random_state=seed, **length)
    # boosted trees take missing values as they are, a network does not
    return make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler(), network)


def _n_grams(texts: list[str]) -> Asked:
    """Interpolated frequencies of one, two and three words in a row; the words that the texts lack are one word."""
    vocabulary: dict[str, int] = {}
    words, starts = _numbers(texts, lambda word: vocabulary.setdefault(word, len(vocabulary) + 1))
    size = len(vocabulary) + 1
    tables = [np.unique(codes[inside], return_counts=True) for codes, inside in _codes(words, starts, size)]

    def frequency(order: int, codes: IntArray) -> FloatArray:
        keys, counts = tables[order]
        if keys.size == 0:
            return np.zeros(codes.size)
        place = np.searchsorted(keys, codes).clip(0, keys.size - 1)
        return np.where(keys[place] == codes, counts[place], 0).astype(np.float64)

    def ask(asked: Content) -> FloatArray:
        tokens, begins = _numbers(asked.records, lambda word: vocabulary.get(word, 0))
        codes = _codes(tokens, begins, size)
        seen = [frequency(order, code) for order, (code, _) in enumerate(codes)]
        # How often the words before this one stood together: the frequency of the shorter n-gram, one place earlier.
        before = [np.full(tokens.size, float(words.size)), np.roll(seen[0], 1), np.roll(seen[1], 1)]
        mixed = np.full(tokens.size, WEIGHTS[0] / size)
        for weight, (_, inside), times, context in zip(WEIGHTS[1:], codes, seen, before, strict=True):
            mixed += weight * np.where(inside & (context > 0), times / np.maximum(context, 1.0), 0.0)
        return token_columns(np.split(np.log(mixed), begins[1:]))

    return ask


def _numbers(texts: list[str], number: Callable[[str], int]) -> tuple[IntArray, IntArray]:
    """The numbers of all words of all texts, and where each text begins; a text without a word has one unknown word."""
    numbers = [[number(word) for word in _TOKEN.findall(text.lower())] or [0] for text in texts]
    sizes = np.array([len(row) for row in numbers], np.int64)
    return np.fromiter(chain.from_iterable(numbers), np.int64, int(sizes.sum())), np.cumsum(sizes) - sizes


def _codes(words: IntArray, starts: IntArray, size: int) -> list[tuple[IntArray, BoolArray]]:
    """Codes of the one, two and three words that end at each word, and whether they lie within one text."""
    place = np.arange(words.size) - np.repeat(starts, np.diff(np.append(starts, words.size)))
    pairs = np.roll(words, 1) * size + words
    triples = np.roll(words, 2) * (size * size) + pairs
    return [(words, place >= 0), (pairs, place >= 1), (triples, place >= 2)]
