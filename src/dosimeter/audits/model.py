"""Audit one trained model from its black-box outputs: the main job."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting import Composition, DpSgd, Gaussian, PrivacyRegion, account
from dosimeter.accounting.mechanism import Mechanism
from dosimeter.audits.audit import Audit, Guard
from dosimeter.audits.guard import check_shift
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.subgroups import Groups, by_group
from dosimeter.estimate import plain
from dosimeter.estimators.epsilon_star import transformed_losses
from dosimeter.estimators.goodness_of_fit import goodness_of_fit
from dosimeter.estimators.thresholds import Threshold
from dosimeter.evidence import Scores
from dosimeter.identifiability import risk_from_epsilon, risk_in_words
from dosimeter.models import Losses, access, dataset
from dosimeter.region import epsilon_from_rates

MOST_EXPOSED = 20
BINS = 60


def audit_model(
    model: Any,
    *,
    members: Any,
    nonmembers: Any,
    delta: float = 1e-5,
    confidence: float = 0.95,
    mechanism: Mechanism | None = None,
    subgroups: Groups | None = None,
    guard: bool = True,
    strict: bool = False,
    threshold: Threshold = None,
    fpr: float | None = None,
    resamples: int = 1000,
    batch_size: int | None = None,
    device: str | None = None,
    seed: int = 0,
    metadata: Mapping[str, Any] | None = None,
) -> Audit:
    """Audit a trained model: members are records it was trained on, nonmembers held-out records of the same kind.

    `model` is a callable, a scikit-learn estimator, a torch module, a path to an .onnx file or a `models.HuggingFace`.
    `members` and `nonmembers` are (X, y), or a path to a file. `mechanism` is the DP training (`DpSgd`, `Gaussian`), if
    there was one: then the accountants' upper bounds stand beside the lower bound. `subgroups` maps a name to (values
    of members, values of nonmembers); classes are always looked at. With `strict` a shift refuses every number.

    >>> audit_model(model, members=(X, y), nonmembers=(X2, y2)).to_html("audit.html")  # doctest: +SKIP
    """
    delta, confidence, seed = check.delta(delta), check.confidence(confidence), check.seed(seed)
    groups = check.mapping("subgroups", subgroups, "pass {name: (values of members, values of nonmembers)}")
    notes = plain(check.mapping("metadata", metadata, "pass e.g. {'unit_of_privacy': 'one person'}"))
    guard, strict = check.flag("guard", guard), check.flag("strict", strict)
    if mechanism is not None and not isinstance(mechanism, (DpSgd, Gaussian, Composition)):
        raise InputError(
            f"mechanism must be DpSgd, Gaussian or Composition, got {check.show(mechanism)}; pass one or None."
        )
    inside, outside = dataset(members), dataset(nonmembers)
    verdict = _guard(inside, outside, confidence, seed) if guard else Guard(shift=False, checked=False)
    if strict and (verdict.shift or not verdict.checked):
        raise InputError(f"strict refuses a number: {verdict} Draw members and nonmembers from one distribution.")
    box = access(model, batch_size=batch_size, device=device)
    found = box.losses(*inside), box.losses(*outside)
    scores = Scores.from_losses(found[0].values, found[1].values)
    audit = audit_scores(
        scores,
        delta=delta,
        confidence=confidence,
        threshold=threshold,
        fpr=fpr,
        resamples=resamples,
        seed=seed,
    )
    upper = () if mechanism is None else tuple(account(mechanism, delta=_account_delta(delta)))
    return replace(
        audit,
        guard=verdict,
        upper=upper,
        region=_region(audit, upper),
        risk=_risk(audit, upper),
        distributions=distributions(-scores.members, -scores.nonmembers),
        star=star_curve(audit.curve, delta),
        subgroups=by_group(
            scores,
            {**_classes(inside[1], outside[1]), **groups},
            delta=delta,
            confidence=confidence,
            seed=seed,
        ),
        exposed=most_exposed(scores, inside[1]),
        metadata={
            **audit.metadata,
            "model": type(model).__name__ if not isinstance(model, str) else model,
            "outputs": found[0].kind,
            "clipped": found[0].clipped + found[1].clipped,
            "accuracy": {"members": _accuracy(found[0]), "nonmembers": _accuracy(found[1])},
            "warnings": [
                *audit.metadata["warnings"],
                *(f"members: {w}" for w in found[0].warnings),
                *(f"nonmembers: {w}" for w in found[1].warnings),
            ],
            "goodness_of_fit": _fit(scores, seed),
            "fingerprint": {"members": fingerprint(*inside), "nonmembers": fingerprint(*outside)},
            "mechanism": None if mechanism is None else repr(mechanism),
            **notes,
        },
    )


def _classes(inside: Any, outside: Any) -> dict[str, Any]:
    return {} if inside is None or outside is None else {"class": (inside, outside)}


def _accuracy(losses: Losses) -> float | None:
    return None if losses.correct is None else float(np.mean(losses.correct))


def _guard(inside: Any, outside: Any, confidence: float, seed: int) -> Guard:
    return check_shift(
        inside[0], outside[0], labels=_classes(inside[1], outside[1]).get("class"), confidence=confidence, seed=seed
    )


def _account_delta(delta: float) -> float:
    if delta == 0:
        raise InputError(
            "delta is 0, but an accountant's ε needs delta above 0; pass e.g. 1e-5 or leave out mechanism."
        )
    return delta


def _best(upper: Any) -> Any:
    return min((g for g in upper if g.is_bound), key=lambda g: g.epsilon, default=None)


def _region(audit: Audit, upper: Any) -> dict[str, Any] | None:
    best = _best(upper)
    return None if best is None else PrivacyRegion(lower=audit.headline, upper=best).to_dict()


def _risk(audit: Audit, upper: Any) -> dict[str, Any]:
    best = _best(upper)
    if best is None:
        return dict(audit.risk)
    return {
        **audit.risk,
        "upper": risk_from_epsilon(best.epsilon, best.delta),
        "upper_words": risk_in_words(best.epsilon, best.delta, side="upper"),
    }


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


def distributions(members: FloatArray, nonmembers: FloatArray) -> dict[str, Any]:
    """Densities of both losses in common bins, over all but the outer 0.1 % of each side."""
    pooled = np.concatenate([members, nonmembers])
    low, high = np.quantile(pooled, [0.001, 0.999])
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    width = edges[1] - edges[0]
    shares = [np.histogram(np.clip(v, low, high), edges)[0] / (v.size * width) for v in (members, nonmembers)]
    return {"name": "loss", "edges": edges, "members": shares[0], "nonmembers": shares[1]}


def star_curve(
    curve: Mapping[str, Any], delta: float, rates: tuple[float, float] = (0.001, 0.999)
) -> dict[str, Any] | None:
    """The ε that each pair of empirical rates forces along the thinned ROC, and where it is largest."""
    fpr, fnr = np.asarray(curve["fpr"], float), 1 - np.asarray(curve["tpr"], float)
    keep = (fpr > rates[0]) & (fpr < rates[1]) & (fnr > rates[0]) & (fnr < rates[1])
    if not keep.any():
        return None
    epsilon = epsilon_from_rates(fpr[keep], fnr[keep], delta)
    return {"fpr": fpr[keep], "fnr": fnr[keep], "epsilon": epsilon, "best": int(np.argmax(epsilon))}


def most_exposed(scores: Scores, labels: npt.NDArray[Any] | None) -> tuple[dict[str, Any], ...]:
    """The members that the attack is surest of, with the share of non-members that look as much like members."""
    count = min(MOST_EXPOSED, scores.members.size)
    first = np.argsort(-scores.members, kind="stable")[:count]
    above = scores.nonmembers.size - np.searchsorted(scores.sorted_nonmembers, scores.members[first], "left")
    return tuple(
        {
            "record": int(i),
            "score": float(scores.members[i]),
            "threshold_fpr": float(a / scores.nonmembers.size),
            "label": "" if labels is None else str(labels[i]),
        }
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
