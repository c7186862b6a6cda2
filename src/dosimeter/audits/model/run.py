"""Audit one trained model from its black-box outputs: the main job."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any, TypedDict, Unpack, cast

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting import Composition, DpSgd, Gaussian
from dosimeter.accounting.mechanism import Mechanism
from dosimeter.audits.assemble import both_sides, guarantees
from dosimeter.audits.model.pool import Pool, read_pool
from dosimeter.audits.model.subgroups import Groups, by_group
from dosimeter.audits.part import numbers
from dosimeter.audits.result import Audit, Distributions, ExposedRecord, Guard, Roc, StarCurve
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.scores.result import Accuracy, Fingerprints, ScoresMetadata
from dosimeter.audits.shift.guard import check_shift
from dosimeter.engine import RunOptions
from dosimeter.engine.options import RunKeywords
from dosimeter.estimate import plain
from dosimeter.estimators.epsilon_star import transformed_losses
from dosimeter.estimators.goodness_of_fit import goodness_of_fit
from dosimeter.estimators.thresholds import Threshold
from dosimeter.evidence import Scores, mask_hash
from dosimeter.geometry import epsilon_from_rates
from dosimeter.models import Losses, access

MOST_EXPOSED = 20
COINS_CONFIDENCE = 0.999  # of the shift check where fair coins decided: a false alarm would accuse a valid audit
BINS = 60


class ScoreKeywords(TypedDict, total=False):
    """Arguments of `audit_scores` that an audit of a model passes on."""

    threshold: Threshold
    fpr: float | None
    resamples: int


class ModelKeywords(ScoreKeywords, RunKeywords, total=False):
    """What else `audit_model` takes: `strict` is now guard="strict" and works for one more version."""

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
    aggregate: str = "mean",
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

    Args:
        model: A callable, a scikit-learn estimator, a torch module, the path of an .onnx file, or a
            `models.HuggingFace`.
        members: Records that the model was trained on: (X, y), or the path of a file.
        nonmembers: Held-out records of the same kind.
        data: One pool of records, instead of members and nonmembers.
        included: The coins: True for the records of `data` that the model was trained on.
        mask_seed: The seed given to `fair_coins`; the mask is checked against it.
        groups: The person behind each record: ids of `data`, or a pair (ids of members, ids of nonmembers).
        aggregate: How the scores of a person's records become one, "mean" or "max".
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
        **options: `threshold`, `fpr` and `resamples` of `audit_scores`.

    Returns:
        The audit, its headline first.

    Raises:
        InputError: If an argument cannot be used; nothing was computed then.

    >>> audit_model(model, data=(X, y), included=mask).to_html("audit.html")  # doctest: +SKIP
    """
    delta, confidence, seed = check.delta(delta), check.confidence(confidence), check.seed(seed)
    columns = check.mapping("subgroups", subgroups, "pass {name: (values of members, values of nonmembers)}")
    notes = plain(check.mapping("metadata", metadata, "pass e.g. {'unit_of_privacy': 'one person'}"))
    where, secondary, strict = _options(run, options, guard)
    if mechanism is not None and not isinstance(mechanism, (DpSgd, Gaussian, Composition)):
        raise InputError(
            f"mechanism must be DpSgd, Gaussian or Composition, got {check.show(mechanism)}; pass one or None."
        )
    pool = read_pool(members, nonmembers, data, included, mask_seed=mask_seed, groups=groups)
    verdict = _guard(pool, confidence, seed) if guard else SWITCHED_OFF
    if strict and (verdict.shift or not verdict.checked):
        raise InputError(f"strict refuses a number: {verdict} Draw members and nonmembers from one distribution.")
    box = access(model, batch_size=where.batch_size, device=where.device)
    losses = box.losses(*pool.inside), box.losses(*pool.outside)
    evidence = pool.evidence(-losses[0].values, -losses[1].values, aggregate)
    audit = audit_scores(evidence, delta=delta, confidence=confidence, seed=seed, **secondary)
    scores = evidence if isinstance(evidence, Scores) else evidence.as_scores()
    relations = [estimate.neighbours or "" for estimate in audit.estimates if estimate.method == audit.headline.method]
    upper, missing = guarantees(mechanism, delta, relations, evidence.unit)
    region, risk = both_sides(audit.estimates, upper, evidence.unit)
    assert isinstance(audit.metadata, ScoresMetadata)
    return replace(
        audit,
        guard=verdict,
        upper=upper,
        region=region,
        risk=risk,
        distributions=distributions(-scores.members, -scores.nonmembers),
        star=None if audit.curve is None else star_curve(audit.curve, delta),
        subgroups=by_group(evidence, pool.columns(columns), delta=delta, confidence=confidence),
        exposed=most_exposed(scores, pool),
        metadata=replace(
            audit.metadata,
            name=notes.pop("name", None),
            model=type(model).__name__ if not isinstance(model, str) else model,
            outputs=losses[0].kind,
            clipped=losses[0].clipped + losses[1].clipped,
            accuracy=Accuracy(*(_accuracy(side) for side in losses)),
            warnings=(
                *audit.metadata.warnings,
                *missing,
                *(f"members: {w}" for w in losses[0].warnings),
                *(f"nonmembers: {w}" for w in losses[1].warnings),
            ),
            goodness_of_fit=_fit(scores, seed),
            fingerprint=Fingerprints(fingerprint(*pool.inside), fingerprint(*pool.outside)),
            mask_hash=None if pool.included is None else mask_hash(pool.included),
            mechanism=None if mechanism is None else _told(mechanism),
            notes=notes,
        ),
    )


def _options(
    run: RunOptions | None, options: Mapping[str, Any], guard: bool | str
) -> tuple[RunOptions, ScoreKeywords, bool]:
    """Where to run, what goes on to `audit_scores`, and whether a shift refuses every number."""
    rest = dict(options)
    secondary = cast(ScoreKeywords, {name: rest.pop(name) for name in ScoreKeywords.__annotations__ if name in rest})
    strict = check.flag("strict", rest.pop("strict", False)) or guard == "strict"
    if not isinstance(guard, bool) and guard != "strict":
        raise InputError(f"guard must be True, False or 'strict', got {check.show(guard)}; pass one of these.")
    return RunOptions.read(run, rest, caller="audit_model"), secondary, strict


def _told(mechanism: Any) -> str:
    """A mechanism as it would be written in code: the repr of its fields would put enum reprs on the page."""

    def value(found: Any) -> str:
        if isinstance(found, (DpSgd, Gaussian, Composition)):
            return _told(found)
        if isinstance(found, tuple):
            inner = ", ".join(map(value, found))
            return f"({inner},)" if len(found) == 1 else f"({inner})"
        return repr(found.value) if isinstance(found, StrEnum) else repr(found)

    inside = ", ".join(f"{f.name}={value(getattr(mechanism, f.name))}" for f in fields(mechanism))
    return f"{type(mechanism).__name__}({inside})"


SWITCHED_OFF = Guard(shift=False, checked=False, evidence={"reasons": ["the check was switched off (guard=False)."]})


def _accuracy(losses: Losses) -> float | None:
    return None if losses.correct is None else float(np.mean(losses.correct))


def _guard(pool: Pool, confidence: float, seed: int) -> Guard:
    """Whether members and non-members differ without the model; coins cannot make them, so there the test is strict."""
    return check_shift(
        pool.inside[0],
        pool.outside[0],
        labels=pool.labels,
        groups=pool.groups,
        confidence=confidence if pool.included is None else max(confidence, COINS_CONFIDENCE),
        seed=seed,
    )


def _fit(scores: Scores, seed: int) -> dict[str, Any] | None:
    """How well a Gaussian mixture describes the losses as Epsilon* fits them, transformed (App. B.2).

    On at most 20 000 of each kind; the p-value of one component is that of the fit behind the parametric form.
    """
    if min(scores.members.size, scores.nonmembers.size) < 400:
        return None
    rng = np.random.default_rng(np.random.SeedSequence([seed, 2]))
    found = {}
    sides = transformed_losses(-scores.members, -scores.nonmembers)
    for name, values in zip(("members", "nonmembers"), sides, strict=True):
        some = values if values.size <= 20_000 else rng.choice(values, 20_000, replace=False)
        size = min(100, some.size // 4)
        try:
            found[name] = goodness_of_fit(some, components=(1, 2, 5, 10), sample_sizes=(size,), seed=seed).to_dict()
        except InputError as error:  # e.g. a tree that gives every member the same loss: nothing can be fitted
            found[name] = {"not_fitted": str(error)}
    return found


def distributions(members: FloatArray, nonmembers: FloatArray) -> Distributions:
    """Densities of both losses in common bins, over all but the outer 0.1 % of each side."""
    pooled = np.concatenate([members, nonmembers])
    low, high = np.quantile(pooled, [0.001, 0.999])
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    width = edges[1] - edges[0]
    shares = [np.histogram(np.clip(v, low, high), edges)[0] / (v.size * width) for v in (members, nonmembers)]
    return Distributions(numbers(edges), numbers(shares[0]), numbers(shares[1]))


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


def fingerprint(features: Any, labels: Any) -> str:
    """SHA-256 of a dataset's content, shape and type."""
    digest = hashlib.sha256()
    for part in (features, labels):
        for piece in _pieces(part):
            digest.update(piece)
    return digest.hexdigest()


def _pieces(part: Any) -> Iterator[bytes]:
    if hasattr(part, "tocsr"):
        csr = part.tocsr()
        yield from (piece for array in (csr.data, csr.indices, csr.indptr) for piece in _pieces(array))
    elif isinstance(part, (list, tuple)):
        yield f"list of {len(part)}".encode()
        yield from (piece for item in part for piece in _pieces(item))
    elif part is None or isinstance(part, str):
        yield repr(part).encode()
    else:
        array = np.asarray(part)
        yield f"{array.shape}{array.dtype}".encode()
        yield repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
