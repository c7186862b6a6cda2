"""Audit one trained model from its black-box outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.accounting import Composition, DpSgd, Gaussian
from dosimeter.accounting.mechanism import Mechanism
from dosimeter.attacks.table import CALIBRATED
from dosimeter.audits.assemble import both_sides, distributions, guarantees, numbers, written
from dosimeter.audits.model.attack import (
    At,
    Question,
    Target,
    attack_alone,
    read_attack,
    read_question,
    read_similar,
    sides_of,
)
from dosimeter.audits.model.pool import Groups, Pool, by_group, read_pool
from dosimeter.audits.model.reference_attack import attack_with_references
from dosimeter.audits.model.references import ReferenceSignals, read_references
from dosimeter.audits.parts import ShiftEvidence
from dosimeter.audits.result import Audit, Distributions, ExposedRecord, Metadata, RecordRisk, Roc, StarCurve
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.scores.result import Accuracy, ErrorSize, Fingerprints, ScoresMetadata
from dosimeter.audits.shift.despite import bound_despite_shift
from dosimeter.audits.shift.guard import Guard, check_shift
from dosimeter.engine import RunOptions
from dosimeter.engine.options import RunKeywords
from dosimeter.estimate import Estimate, plain
from dosimeter.estimators.epsilon_star import transformed_losses
from dosimeter.estimators.goodness_of_fit import goodness_of_fit
from dosimeter.estimators.rates import Threshold
from dosimeter.evidence import Scores, mask_hash
from dosimeter.geometry import epsilon_from_rates
from dosimeter.models import Losses, task_of
from dosimeter.models.outputs import Task
from dosimeter.records import fingerprint
from dosimeter.training import Recipe

MOST_EXPOSED = 20
COINS_CONFIDENCE = 0.999  # of the shift check where fair coins decided: a false alarm would accuse a valid audit


class ScoreKeywords(TypedDict, total=False):
    """Arguments of `audit_scores` that an audit of a model passes on."""

    threshold: Threshold
    fpr: float | None
    resamples: int


class ReferenceKeywords(TypedDict, total=False):
    """How reference models are made, and what the attack does with them."""

    attack: str
    train: Callable[..., Any]
    recipe: Recipe
    reference_masks: Any


class QuestionKeywords(TypedDict, total=False):
    """What the model predicts, and how it may be asked."""

    task: Task
    outputs: str
    queries: int


class ModelKeywords(ScoreKeywords, ReferenceKeywords, QuestionKeywords, RunKeywords, total=False):
    """What else `audit_model` takes: `strict` is now guard="strict" and works for one more version."""

    aggregate: str
    strict: bool


def audit_model(
    model: Any,
    *,
    members: Any = None,
    nonmembers: Any = None,
    data: Any = None,
    included: Any = None,
    mask_seed: int | None = None,
    groups: Any = None,
    references: int | Sequence[Any] | None = None,
    subgroups: Groups | None = None,
    mechanism: Mechanism | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guard: bool | str = True,
    seed: int = 0,
    metadata: Mapping[str, Any] | None = None,
    run: RunOptions | None = None,
    **options: Unpack[ModelKeywords],
) -> Audit:
    """Audit a trained model from its black-box outputs.

    There are two ways in. With `data` and `included`, fair coins have decided which records of one pool the model was
    trained on (`fair_coins`): the bound is for adding or removing one record and assumes nothing about the records.
    With `members` and `nonmembers`, the model was trained on some records and others of the same kind were held out:
    the bound is for replacing one record, beside one for adding or removing one, and members and non-members must be
    a random split of one population.

    The model predicts a class, a number (the attack then reads residuals) or several labels at once (y is a table of 0
    and 1); which of them is found out from the model and the target. Records may have missing values and columns of
    categories, as a data frame has them, if the model takes them.

    Args:
        model: A callable, a scikit-learn estimator, a torch module, the path of an .onnx file, or a
            `models.HuggingFace`.
        members: Records that the model was trained on: (X, y), or the path of a file.
        nonmembers: Held-out records of the same kind.
        data: One pool of records, instead of members and nonmembers.
        included: The coins: True for the records of `data` that the model was trained on.
        mask_seed: The seed given to `fair_coins`; the mask is checked against it.
        groups: The person behind each record: ids of `data`, or a pair (ids of members, ids of nonmembers).
        references: How many reference models to train on random halves of the records, e.g. 16, or a list of models
            that were trained already. They sharpen the attack; none of them sees which records the model was trained
            on. A scikit-learn estimator is cloned; for other models pass `train`.
        subgroups: A name and (values of members, values of nonmembers), or values of `data`; classes are always
            looked at.
        mechanism: The DP training (`DpSgd`, `Gaussian`), if there was one: the accountants' upper bounds, for the same
            neighbours, then stand beside the lower bound.
        delta: The δ of the guarantees that are tested.
        confidence: The confidence of every bound.
        guard: Whether to look for a shift between members and non-members first; "strict" refuses every number where
            one is found.
        seed: Decides halves, samples of the guard and the bootstrap; the headline draws nothing.
        metadata: Notes for the page, e.g. {"unit_of_privacy": "one person"}.
        run: Where the model runs, and how many records it is asked at once.
        **options: `attack`: with references e.g. "rmia-online"; "auto" (the default) takes the one that proves most
            about the references themselves. Without references "auto" is "calibrated": the loss, weighed with how
            far it is from that of similar records ("loss" where there are no labels or fewer than 200 records).
            `train`: a function (indices, seed) that returns a model trained on these rows of `data` (or of members,
            then nonmembers), or a factory of torch modules with `recipe`. `reference_masks`: for trained references,
            who was trained on what, (models, records); without it they saw none of the records. `task`,
            "classification", "regression" or "multi-label", where it cannot be found out. `outputs`: what a function
            or module returns, e.g. "logits"; "labels" asks any model for labels alone, `queries` times for each record
            (32): once as it is, then perturbed. `aggregate`: how the scores
            of a person's records become one, "mean" (the default) or "max". `threshold`, `fpr` and `resamples` of
            `audit_scores`.

    Returns:
        The audit, its headline first.

    Raises:
        InputError: If an argument cannot be used; nothing was computed then.

    >>> audit_model(model, data=(X, y), included=mask).to_html("audit.html")  # doctest: +SKIP
    """
    delta, confidence, seed = check.delta(delta), check.confidence(confidence), check.seed(seed)
    columns = check.mapping("subgroups", subgroups, "pass {name: (values of members, values of nonmembers)}")
    notes = plain(check.mapping("metadata", metadata, "pass e.g. {'unit_of_privacy': 'one person'}"))
    asked = _options(run, options, guard)
    if mechanism is not None and not isinstance(mechanism, (DpSgd, Gaussian, Composition)):
        raise InputError(
            f"mechanism must be DpSgd, Gaussian or Composition, got {check.show(mechanism)}; pass one or None."
        )
    pool = read_pool(members, nonmembers, data, included, mask_seed=mask_seed, groups=groups)
    pool = replace(pool, task=task_of(model, pool.inside[1], asked.question.get("task")))
    question, asked_so = read_question(
        pool.task, pool, outputs=asked.question.get("outputs"), queries=asked.question.get("queries"), seed=seed
    )
    box = question.box(model, batch_size=asked.run.batch_size, device=asked.run.device)
    train_references = _references(model, pool, references, question, asked, seed)
    similar = read_similar(asked.attack, pool) if train_references is None else None
    verdict = _guard(pool, confidence, seed) if guard else SWITCHED_OFF
    if asked.strict and (verdict.shift or not verdict.checked):
        raise InputError(f"strict refuses a number: {verdict} Draw members and nonmembers from one distribution.")
    losses = question.ask(box, pool)
    by_loss = pool.evidence(-losses[0].values, -losses[1].values, asked.aggregate, from_loss=True)
    at: At = {"delta": delta, "confidence": confidence}
    given: dict[str, Any] = {**asked.scores, "seed": seed}
    plain_audit = audit_scores(by_loss, **at, **given)
    target = Target(pool, losses, by_loss, plain_audit, asked.aggregate, at, given)
    audit, evidence, others = (
        attack_alone(target, similar)
        if train_references is None
        else attack_with_references(target, asked.attack, train_references())
    )
    star = None if plain_audit.curve is None else star_curve(plain_audit.curve, delta)
    scores, loss_scores = sides_of(evidence), sides_of(by_loss)
    # Ranks of a calibrated score hide how large a lead is, so without references the loss itself ranks the pairs.
    despite = _despite_shift(pool, verdict, loss_scores if train_references is None else scores, at, seed)
    relations = [estimate.neighbours or "" for estimate in audit.estimates if estimate.method == audit.headline.method]
    upper, missing = guarantees(mechanism, delta, relations, evidence.unit)
    region, risk = both_sides(audit.estimates, upper, evidence.unit)
    return replace(
        audit,
        estimates=(*audit.estimates, *despite),
        guard=verdict,
        upper=upper,
        region=region,
        risk=risk,
        distributions=_distributions(loss_scores, pool.task),
        star=star,
        subgroups=by_group(evidence, pool.columns(columns), **at),
        exposed=most_exposed(scores, pool),
        record_risk=RecordRisk.of(scores, pool.names(), pool.shown_labels(), others),
        metadata=replace(
            _described(audit.metadata, pool, losses, loss_scores, seed),
            name=notes.pop("name", None),
            model=type(model).__name__ if not isinstance(model, str) else model,
            queries=question.queries,
            warnings=(*audit.metadata.warnings, *missing, *asked_so, *_notes(pool, losses)),
            mechanism=None if mechanism is None else written(mechanism),
            notes=notes,
        ),
    )


def _described(
    metadata: Metadata, pool: Pool, losses: tuple[Losses, Losses], scores: Scores, seed: int
) -> ScoresMetadata:
    """What is worth recording of the records and of the model's answers about them."""
    assert isinstance(metadata, ScoresMetadata)
    return replace(
        metadata,
        task=None if pool.labels is None else pool.task,
        outputs=losses[0].kind,
        clipped=losses[0].clipped + losses[1].clipped,
        accuracy=Accuracy(*(_accuracy(side) for side in losses)),
        error=_error(losses),
        goodness_of_fit=_fit(scores, seed),
        fingerprint=Fingerprints(fingerprint(*pool.inside), fingerprint(*pool.outside)),
        mask_hash=None if pool.included is None else mask_hash(pool.included),
    )


class _Asked(NamedTuple):
    """The options of an audit, sorted by what they are for."""

    run: RunOptions
    scores: ScoreKeywords
    attack: str
    references: ReferenceKeywords
    question: QuestionKeywords
    aggregate: str
    strict: bool


def _options(run: RunOptions | None, options: Mapping[str, Any], guard: bool | str) -> _Asked:
    """Where to run, what `audit_scores` takes, how references are made, and whether a shift refuses every number."""
    rest = dict(options)

    def popped(keywords: Any) -> Any:
        return {name: rest.pop(name) for name in keywords.__annotations__ if name in rest}

    scores: ScoreKeywords = popped(ScoreKeywords)
    attack = read_attack(rest.pop("attack", "auto"))
    made: ReferenceKeywords = popped(ReferenceKeywords)
    question: QuestionKeywords = popped(QuestionKeywords)
    if not isinstance(guard, bool) and not (isinstance(guard, str) and guard == "strict"):
        raise InputError(f"guard must be True, False or 'strict', got {check.show(guard)}; pass one of these.")
    strict = check.flag("strict", rest.pop("strict", False)) or guard == "strict"
    aggregate = rest.pop("aggregate", "mean")
    where = RunOptions.read(run, rest, caller="audit_model", depth=4)
    return _Asked(where, scores, attack, made, question, aggregate, strict)


def _references(
    model: Any, pool: Pool, references: Any, question: Question, asked: _Asked, seed: int
) -> Callable[[], ReferenceSignals] | None:
    """The function that trains the references; None where none were asked for."""
    if references is None:
        alone = asked.attack in ("auto", "loss", *CALIBRATED)
        given = [*asked.references, *([] if alone else [f"attack={asked.attack!r}"])]
        if given:
            raise InputError(f"{given[0]} is for reference models, and none were asked for; pass references=16.")
        return None
    if asked.attack in CALIBRATED:
        raise InputError(f"attack={asked.attack!r} takes the model alone; leave references or attack out.")
    made = asked.references
    return read_references(
        model,
        pool,
        references,
        question=question,
        masks=made.get("reference_masks"),
        train=made.get("train"),
        recipe=made.get("recipe"),
        run=asked.run,
        seed=seed,
    )


SWITCHED_OFF = Guard(
    shift=False, checked=False, evidence=ShiftEvidence(reasons=("the check was switched off (guard=False).",))
)


def _accuracy(losses: Losses) -> float | None:
    return None if losses.correct is None else float(np.mean(losses.correct))


def _error(losses: tuple[Losses, Losses]) -> ErrorSize | None:
    """How far predictions are off on both sides, for a regression."""
    residuals = [side.signals for side in losses if side.kind == "predictions" and side.signals is not None]
    return ErrorSize(*(float(np.sqrt(np.mean(side**2))) for side in residuals)) if residuals else None


def _notes(pool: Pool, losses: tuple[Losses, Losses]) -> list[str]:
    """What is worth knowing of the records and of the model's answers."""
    notes = []
    if pool.missing:
        notes.append(
            f"{pool.missing} {'value' if pool.missing == 1 else 'values'} of the records are missing; the model was "
            "asked about these records as they are, so it has to handle that"
        )
    sides = zip(("members", "nonmembers"), losses, strict=True)
    return [*notes, *(f"{name}: {warning}" for name, side in sides for warning in side.warnings)]


def _distributions(scores: Scores, task: str) -> Distributions:
    """Densities of the losses; of a regression, of the sizes of residuals, which are easier to read than squares."""
    if task != "regression":
        return distributions(-scores.members, -scores.nonmembers)
    sizes = (np.sqrt(np.maximum(-side, 0.0)) for side in (scores.members, scores.nonmembers))
    return replace(distributions(*sizes), name="standardised residual")


def _guard(pool: Pool, confidence: float, seed: int) -> Guard:
    """Do members and non-members differ without the model? Fair coins cannot cause that: there the test is strict."""
    return check_shift(
        pool.inside[0],
        pool.outside[0],
        labels=pool.guard_labels(),
        groups=pool.groups,
        confidence=confidence if pool.included is None else max(confidence, COINS_CONFIDENCE),
        seed=seed,
    )


def _despite_shift(pool: Pool, verdict: Guard, scores: Scores, at: At, seed: int) -> tuple[Estimate, ...]:
    """A bound that holds although members and non-members differ; none for persons, nor for coins, which need none."""
    if not verdict.shift or pool.included is not None or pool.groups is not None:
        return ()
    labels = pool.guard_labels()
    estimate = bound_despite_shift(pool.inside[0], pool.outside[0], scores, labels=labels, **at, seed=seed)
    return () if estimate is None else (estimate,)


def _fit(scores: Scores, seed: int) -> dict[str, Any] | None:
    """How well a Gaussian mixture describes the losses as Epsilon* fits them, transformed (App. B.2).

    On at most 20 000 of each kind; the p-value of one component is that of the fit behind the parametric form.
    """
    if min(scores.members.size, scores.nonmembers.size) < 400:
        return None
    rng = np.random.default_rng(np.random.SeedSequence([seed, 2]))
    fits = {}
    sides = transformed_losses(-scores.members, -scores.nonmembers)
    for name, values in zip(("members", "nonmembers"), sides, strict=True):
        some = values if values.size <= 20_000 else rng.choice(values, 20_000, replace=False)
        size = min(100, some.size // 4)
        try:
            fits[name] = goodness_of_fit(some, components=(1, 2, 5, 10), sample_sizes=(size,), seed=seed).to_dict()
        except InputError as error:  # e.g. a tree that gives every member the same loss: nothing can be fitted
            fits[name] = {"not_fitted": str(error)}
    return fits


def star_curve(curve: Roc, delta: float, rates: tuple[float, float] = (0.001, 0.999)) -> StarCurve | None:
    """The ε that each pair of empirical rates forces along the thinned ROC, and where it is largest."""
    fpr, fnr = np.asarray(curve.fpr, float), 1 - np.asarray(curve.tpr, float)
    keep = (fpr > rates[0]) & (fpr < rates[1]) & (fnr > rates[0]) & (fnr < rates[1])
    if not keep.any():
        return None
    epsilon = epsilon_from_rates(fpr[keep], fnr[keep], delta)
    return StarCurve(
        tuple(fpr[keep].tolist()), tuple(fnr[keep].tolist()), numbers(epsilon), best=int(np.argmax(epsilon))
    )


def most_exposed(scores: Scores, pool: Pool) -> tuple[ExposedRecord, ...]:
    """The members that the attack is surest of, with the share of non-members that look as much like members."""
    count = min(MOST_EXPOSED, scores.members.size)
    first = np.argsort(-scores.members, kind="stable")[:count]
    above = scores.nonmembers.size - np.searchsorted(scores.sorted_nonmembers, scores.members[first], "left")
    return tuple(
        ExposedRecord(
            record=pool.name_of_member(int(i)),
            score=float(scores.members[i]),
            threshold_fpr=float(a / scores.nonmembers.size),
            label=pool.label_of_member(int(i)),
        )
        for i, a in zip(first, above, strict=True)
    )
