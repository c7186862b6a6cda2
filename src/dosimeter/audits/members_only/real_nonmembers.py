"""The same audit with real non-members (RM;RN in the paper): nothing is generated, so c = 0 and the bound is on ε."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.attacks.stacked import Content
from dosimeter.audits.assemble import roc
from dosimeter.audits.members_only.pair_classifier import (
    SHARED_REFERENCES,
    Pair,
    Trainer,
    pair_classifier,
    reference_pools,
)
from dosimeter.audits.members_only.records import FEWEST, AuditRecords, BothSides, RecordSet, coin_evidence
from dosimeter.audits.members_only.result import RealNonmembersResult, RealNonmembersTarget
from dosimeter.audits.result import Guard, Roc
from dosimeter.audits.shift.guard import check_shift
from dosimeter.audits.shift.records import coded_like, read_records
from dosimeter.engine import RunOptions
from dosimeter.estimate import Estimate, Validity, change
from dosimeter.estimators.one_run import one_run
from dosimeter.estimators.panoramia import panoramia
from dosimeter.evidence import Scores
from dosimeter.models import dataset
from dosimeter.records import take

SHIFTED = "members and non-members differ even without the model: this is not a bound"


@dataclass(frozen=True, eq=False)
class RealAudit:
    """What real non-members add to an audit: estimates and curve of the first target, the result of all."""

    estimates: tuple[Estimate, ...]
    guard: Guard
    curve: Roc
    result: RealNonmembersResult


def with_real_nonmembers(nonmembers: Any, records: AuditRecords, *, seed: int) -> AuditRecords:
    """Put real non-members in the place of the generated records: for a helper, the classifier and the audit."""
    X, y = dataset(nonmembers)
    count = len(X) if isinstance(X, list) else int(X.shape[0])
    if count < 3 * FEWEST:
        raise InputError(
            f"nonmembers holds {count} records, and three sets of at least {FEWEST} need {3 * FEWEST}; pass at least "
            f"{3 * FEWEST}."
        )
    content = _content(X, y, records)
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(count)
    held = count // 5
    train = (count - held) // 2
    rows = np.split(order, [held, held + train])
    helper, first, second = (RecordSet(take(X, r), take(y, r), content.take(r)) for r in rows)
    return replace(
        records,
        for_helper=helper,
        train=_same_size(records.train.members, first),
        audit=_same_size(records.audit.members, second),
    )


def _same_size(members: RecordSet, nonmembers: RecordSet) -> BothSides:
    rows = np.arange(min(len(members), len(nonmembers)))
    return BothSides(members.rows(rows), nonmembers.rows(rows))


def _content(X: Any, y: Any, records: AuditRecords) -> Content:
    """Real non-members in the form of the other records, with their codes for words and for the classes."""
    if (y is None) != (records.for_generator.y is None):
        raise InputError("only one of members and nonmembers has labels; give labels for both or for neither.")
    members = records.for_generator.X
    if hasattr(X, "columns") and hasattr(members, "columns") and list(X.columns) != list(members.columns):
        raise InputError(
            f"nonmembers has the columns {check.show(list(X.columns), 90)} and members "
            f"{check.show(list(members.columns), 90)}; pass the same columns in the same order."
        )
    read = read_records(members, X).nonmembers
    words = not all(np.asarray(side).dtype.kind in "biuf" for side in (members, X))
    if words and records.kind == "tabular":
        sides = [np.asarray(some.X).astype(object).reshape(len(some), -1) for some in records.sets]
        read = coded_like(np.concatenate(sides), np.concatenate([some.content.records for some in records.sets]), X)
    if y is None:
        return Content(records.kind, read, None)
    known: dict[Any, int] = {}
    for some in records.sets:
        assert some.content.labels is not None
        known.update(zip(np.asarray(some.y).tolist(), some.content.labels.tolist(), strict=True))
    strange = [value for value in np.unique(y).tolist() if value not in known]
    if strange:
        raise InputError(f"nonmembers has the class {strange[0]!r}, which the members lack; leave it out.")
    return Content(records.kind, read, np.array([known[value] for value in y.tolist()], np.int64))


def _coin_seed(pair: Pair, seed: int) -> int:
    """A seed for the coins that depends on the scores: a constant seed would not make them coins."""
    digest = hashlib.sha256(f"{seed} ".encode())
    for scores in pair:
        digest.update(np.asarray(scores, np.float64).tobytes())
    return int.from_bytes(digest.digest()[:6], "little")


def audit_real(
    targets: Mapping[str, Any],
    records: AuditRecords,
    *,
    trainer: Trainer | None,
    confidence: float,
    seed: int,
    run: RunOptions,
) -> RealAudit:
    """Run the attack on real non-members, the shift check first; targets differ in nothing but the model."""
    sides = records.audit.members, records.audit.nonmembers
    members, nonmembers = ((s.X, s.y) if s.y is not None else s.X for s in sides)
    guard = check_shift(members, nonmembers, confidence=confidence, seed=seed)
    classifier = pair_classifier(records, seed=seed)
    pool, _ = reference_pools(records, seed=seed)
    shared = [classifier.ask_trained(pool, seed=seed + k, variant=k, trainer=trainer) for k in range(SHARED_REFERENCES)]
    attacks = [classifier.score(*shared, classifier.ask(model, run)) for model in targets.values()]
    bounds = [_bounds(pair, guard, confidence, seed) for pair in attacks]
    rows = tuple(
        RealNonmembersTarget(name, bound.epsilon, coins.epsilon, pair.auc)
        for name, pair, (bound, coins) in zip(targets, attacks, bounds, strict=True)
    )
    return RealAudit(
        estimates=bounds[0],
        guard=guard,
        curve=roc(Scores(*attacks[0]), confidence),
        result=RealNonmembersResult(rows[0].epsilon, rows[0].one_run, rows[0].auc, records.pairs, rows),
    )


def _bounds(pair: Pair, guard: Guard, confidence: float, seed: int) -> tuple[Estimate, Estimate]:
    """Two bounds on the ε of replacing one record: from "member" guesses, and from guesses of both kinds."""
    evidence = coin_evidence(*pair, seed=_coin_seed(pair, seed))
    bound = panoramia(baseline=None, attack=evidence, confidence=confidence, seed=seed)
    run = one_run(evidence, delta=0.0, confidence=confidence)
    warnings = (SHIFTED,) if guard.shift else ()

    def renamed(estimate: Estimate, method: str) -> Estimate:
        # The coins were thrown after training, so both bounds need records that chance alone made members.
        return replace(
            estimate,
            method=method,
            warnings=(*estimate.warnings, *warnings),
            validity=Validity.RANDOM_SPLIT,
            neighbours="replace",  # the other record of a pair was trained on instead
            claim=estimate.claim.replace(change("add/remove"), change("replace")),
        )

    return renamed(bound, "panoramia, real non-members"), renamed(run, "one-run, real non-members")
