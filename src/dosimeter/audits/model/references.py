"""Reference models: what models that were trained without a record, or with it, say of that record.

A reference never sees which records the audited model was trained on, so nothing that an attack learns from it costs
the bound anything. Two things would break that, and both are kept out here. Which records a reference gets, and in
which order it sees them, depends on the content of the records alone: in an audit of members against non-members the
place in the list tells which side a record is on. And the attack is chosen on the references, never on the target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._progress import stages
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.model.attack import PLAIN, Question, digests, signals_of
from dosimeter.audits.model.pool import Pool
from dosimeter.audits.training.repeatable import Pipeline
from dosimeter.audits.training.shadows import Trainings, collect
from dosimeter.engine import RunOptions
from dosimeter.models import BlackBox
from dosimeter.models.black_box import Batched
from dosimeter.models.fresh import fresh_copy
from dosimeter.records import count, take
from dosimeter.training import Recipe
from dosimeter.training.identity import Identity, identity

__all__ = ["ReferenceSignals", "read_references"]

FEWEST = 2  # one with each record and one without it
BLIND = 1e-6  # the chance that masks drawn without looking are refused
MOST = 1024  # a digest has bits for so many pairs


@dataclass(frozen=True, eq=False)
class ReferenceSignals:
    """What the references say of each record: (models, records), members first, then non-members.

    `included` tells which records each reference was trained on. `trained` is how their trainings went, None for
    models that were given, and `known` what keys of a store know of them. `signals_are_losses` says that the signals
    are minus the losses, not residuals or how stable labels are.
    """

    signals: FloatArray
    included: BoolArray
    trained: Trainings | None = None
    known: Identity | None = None
    signals_are_losses: bool = True

    @property
    def online(self) -> bool:
        """Whether every record is in some references and out of others."""
        inside = self.included.sum(axis=0)
        return bool((inside > 0).all() and (inside < len(self.included)).all())


def read_references(
    model: Any,
    pool: Pool,
    references: Any,
    *,
    question: Question = PLAIN,
    masks: Any = None,
    train: Any = None,
    recipe: Recipe | None = None,
    run: RunOptions,
    seed: int,
) -> Callable[[], ReferenceSignals]:
    """Check what was asked for, and return the function that trains or asks the references.

    Args:
        model: The audited model; a scikit-learn estimator is cloned where `train` is None.
        pool: The records of the audit.
        references: How many to train, or a list of trained models.
        question: What models are asked about each record.
        masks: For trained models, which records of `data` (or of members, then non-members) each was trained on.
        train: A function (indices, seed) that returns a model, or with `recipe` a factory of torch modules.
        recipe: How the factory's modules are trained.
        run: Where the references are trained.
        seed: Decides which records each reference gets.

    Returns:
        A function without arguments.

    Raises:
        InputError: If an argument cannot be used; nothing was trained then.
    """
    if pool.labels is None:
        raise InputError("references need labels; pass (X, y).")
    if isinstance(references, (int, np.integer)) and not isinstance(references, bool):
        if masks is not None:
            raise InputError("reference_masks belong to trained models; pass references=[…], or leave the masks out.")
        wanted = check.whole("references", references, FEWEST, "pass how many to train, e.g. 16", MOST)
        trainer = _trainer(model, pool, question, train, recipe)
        return lambda: trainer(wanted, run, seed)
    if train is not None or recipe is not None:
        raise InputError("train and recipe make references, and trained ones were given; pass references=16.")
    if isinstance(references, (str, bytes)) or not isinstance(references, Sequence) or not references:
        raise InputError(
            f"references must be how many to train or a list of models, got {check.show(references)}; pass e.g. 16."
        )
    boxes = [question.box(one, batch_size=run.batch_size, device=run.device) for one in references]
    included = _given_masks(masks, len(boxes), pool)
    _check_classes(model, boxes, question, pool)
    return lambda: ReferenceSignals(
        np.stack([signals_of(question.ask(box, pool)) for box in boxes]),
        included,
        signals_are_losses=question.signals_are_losses,
    )


def _check_classes(model: Any, boxes: Sequence[BlackBox], question: Question, pool: Pool) -> None:
    """Refuse references that predict other classes than the audited model, before they are asked about all records.

    A model that does not name its classes is asked about one record, and their number is compared.
    """
    if pool.task != "classification":
        return
    one = take(pool.inside[0], np.array([0]))
    own, *others = (_classes(box, one) for box in (question.box(model), *boxes))
    for place, other in enumerate(others):
        named = own[1] is not None and other[1] is not None
        if other != own if named else other[0] != own[0]:
            raise InputError(
                f"reference {place} predicts {_in_words(*other)}, the audited model {_in_words(*own)}; pass "
                "references of the same classes."
            )


def _classes(box: BlackBox, one: Any) -> tuple[int | None, tuple[Any, ...] | None]:
    """How many classes a model gives scores for, and their names if it has them; None where it gives labels alone."""
    if not isinstance(box, Batched):
        return None, None
    if box.classes is not None:
        return len(box.classes), tuple(box.classes)
    return box.class_count(one), None


def _in_words(count: int | None, names: tuple[Any, ...] | None) -> str:
    return f"{count} classes" + ("" if names is None else f" ({check.show(list(names), 60)})")


def _given_masks(masks: Any, models: int, pool: Pool) -> BoolArray:
    """Masks in the order members, then non-members; without any, the models saw none of the records."""
    if masks is None:
        return np.zeros((models, pool.size), bool)
    array = check.any_array("reference_masks", masks)
    if array.shape != (models, pool.size) or array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all():
        raise InputError(
            f"reference_masks must hold True and False in shape ({models}, {pool.size}), one row for each reference "
            f"and one column for each record, got type {array.dtype} and shape {array.shape}; pass that."
        )
    included: BoolArray = array.astype(bool)[:, pool.order]
    full = np.flatnonzero(included.all(axis=0))
    if full.size:
        raise InputError(
            f"record {int(pool.order[full[0]])} is in all {models} references ({full.size} such records): nothing "
            "tells how a model without it behaves; pass references that left it out."
        )
    _check_blind(included, pool)
    return included


def _check_blind(included: BoolArray, pool: Pool) -> None:
    """Refuse masks that depend on the audited model's own: such references reveal who is in, and no bound holds."""
    from scipy.stats import hypergeom

    names = np.arange(pool.size) if pool.persons is None else pool.persons
    units, first = np.unique(names, return_index=True)
    drawn = np.stack([np.bincount(names, row, minlength=units.size) > 0 for row in included])
    member = first < count(pool.inside[0])
    both, chosen = drawn[:, member].sum(axis=1), drawn.sum(axis=1)
    law = hypergeom(units.size, int(member.sum()), chosen)
    chance = np.minimum(law.sf(both - 1), law.cdf(both))
    worst = int(np.argmin(chance))
    if chance[worst] < BLIND / (2 * len(included)):
        raise InputError(
            f"reference {worst} was trained on {both[worst]} of {member.sum()} members and on "
            f"{chosen[worst] - both[worst]} of {(~member).sum()} non-members, which chance does not do: it tells who "
            "is a member, and no bound would hold; pass references whose records were drawn without looking."
        )


Trainer = Callable[[int, RunOptions, int], ReferenceSignals]


def _trainer(model: Any, pool: Pool, question: Question, train: Any, recipe: Recipe | None) -> Trainer:
    """How references are made: a factory with a recipe, the caller's function, or clones of the audited estimator."""
    if recipe is not None and question != PLAIN:
        raise InputError(
            "recipe trains classifiers that are asked for scores; pass train=, a function (indices, seed) that returns "
            "a model, for a regression, several labels or labels alone."
        )
    if recipe is not None and (not isinstance(recipe, Recipe) or not callable(train)):
        raise InputError("recipe says how train=, a factory of torch modules, is trained; pass both.")
    if train is not None and not callable(train):
        raise InputError(f"train must be a function (indices, seed), got {check.show(train)}; it returns a model.")
    own = None if train is not None else _Cloned.of(model)

    def make(wanted: int, run: RunOptions, seed: int) -> ReferenceSignals:
        names = digests(pool)
        order = np.argsort(names, kind="stable")
        persons = None if pool.persons is None else pool.persons[order]
        masks = _masks(names[order], persons, wanted, seed)
        pipeline = _pipeline(pool, order, own or train, recipe, question, run)
        seeds = [int(s) for s in np.random.SeedSequence([seed, 19]).generate_state(wanted)]
        with stages({"reference models": wanted}):
            trained = collect(pipeline.run(masks, seeds), masks, stage="reference")
        trained.require(FEWEST, "reference models")
        signals, included = np.empty_like(trained.signals), np.empty_like(masks[trained.kept])
        signals[:, order], included[:, order] = trained.signals, masks[trained.kept]
        return ReferenceSignals(signals, included, trained, pipeline.known, question.signals_are_losses)

    return make


def _pipeline(
    pool: Pool, order: IntArray, fit: Any, recipe: Recipe | None, question: Question, run: RunOptions
) -> Pipeline:
    """The training of references as the engine runs it, with the records in the order of their content."""
    X, y = pool.joined()
    codes = np.zeros(order.size, np.int64)
    if pool.task == "classification":
        codes = np.unique(y[order], return_inverse=True)[1].astype(np.int64)
    if recipe is not None:
        known = identity(fit) if run.store is not None else None
        return Pipeline(fit, recipe, np.asarray(take(X, order)), codes, None, None, run, known)
    fits = fit if isinstance(fit, _Cloned) else _Own(fit, pool.order[order])
    asked = _LabelOdds(fits, take(X, order), y[order], question)
    known = identity(asked) if run.store is not None else None
    return Pipeline(asked, None, np.arange(order.size), codes, None, _as_given, run, known)


def _as_given(outputs: Any, y: Any) -> Any:
    return outputs


@dataclass(frozen=True, eq=False)
class _LabelOdds:
    """Train on some of the records, and answer with the signal of every record."""

    fit: Callable[[Any, Any, IntArray, int], Any]
    X: Any
    y: Any
    question: Question

    def __call__(self, rows: IntArray, seed: int) -> Callable[[Any], FloatArray]:
        model = self.fit(self.X, self.y, rows, seed)
        return lambda _: self.question.signals(model, self.X, self.y)


@dataclass(frozen=True, eq=False)
class _Own:
    """The caller's function, which names rows as the caller's records stand."""

    train: Callable[[IntArray, int], Any]
    places: IntArray

    def __call__(self, X: Any, y: Any, rows: IntArray, seed: int) -> Any:
        return self.train(self.places[rows], seed)


@dataclass(frozen=True, eq=False)
class _Cloned:
    """Fit fresh copies of the audited scikit-learn estimator, each with its own random state."""

    model: Any

    @classmethod
    def of(cls, model: Any) -> _Cloned:
        """Copy the estimator once, so that one that cannot be copied is refused before anything is trained."""
        if not hasattr(model, "get_params") or not hasattr(model, "fit"):
            raise InputError(
                f"references are trained like the model, and {type(model).__name__} cannot be fitted again; pass "
                "train=, a function (indices, seed) that returns a model, or references=[…] that you have trained."
            )
        try:
            return cls(fresh_copy(model))
        except Exception as error:  # whatever the estimator's constructor raises
            raise InputError(
                f"{type(model).__name__} cannot be cloned ({check.show(str(error), 120)}); pass train=, a function "
                "(indices, seed) that returns a model."
            ) from None

    def __call__(self, X: Any, y: Any, rows: IntArray, seed: int) -> Any:
        return fresh_copy(self.model, seed).fit(take(X, rows), y[rows])


def _masks(names: Any, persons: IntArray | None, wanted: int, seed: int) -> BoolArray:
    """Who is in which reference: coins that depend on a record's, or a person's, content and on the seed alone.

    References come in pairs that share out the records, so that each record is in half of them.
    """
    units = names if persons is None else _of_persons(names, persons)
    key = int(seed).to_bytes(16, "little")
    bits = np.array([np.frombuffer(hashlib.blake2b(n.encode(), key=key).digest(), np.uint8) for n in units])
    coins = np.unpackbits(bits, axis=1)[:, : (wanted + 1) // 2].T.astype(bool)
    masks = np.repeat(coins, 2, axis=0)[:wanted]
    masks[1::2] = ~masks[1::2]
    included = masks if persons is None else masks[:, persons]
    if not included.any(axis=1).all() or included.all(axis=1).any():
        raise InputError(f"{included.shape[1]} records are too few to share out between references; pass more records.")
    return included


def _of_persons(names: Any, persons: IntArray) -> list[str]:
    """A digest of all records of each person."""
    order = np.lexsort((names, persons))
    starts = np.flatnonzero(np.diff(persons[order], prepend=-1))
    return ["".join(part) for part in np.split(names[order], starts[1:])]
