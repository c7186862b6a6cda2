"""From scores to the audit: bounds, copies, utility and the regulators' criteria, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.audits.assemble import distributions, risk_of, roc
from dosimeter.audits.model.attack import attack_result, sides_of
from dosimeter.audits.model.pool import by_group
from dosimeter.audits.result import Audit, ExposedRecord, Guard, RecordRisk, Subgroup
from dosimeter.audits.synthetic.disclosure import Ground, copies, inference, linkability, singling_out
from dosimeter.audits.synthetic.result import Criterion, PublishedRows, SyntheticDetails, SyntheticMetadata
from dosimeter.audits.synthetic.rows import Rows
from dosimeter.audits.synthetic.scores import STACK
from dosimeter.audits.synthetic.utility import utility
from dosimeter.engine import RunOptions
from dosimeter.estimate import Estimate, Level
from dosimeter.estimators.lower_bound import game_of, lower_bound
from dosimeter.estimators.ranked import ranked
from dosimeter.evidence import OneRun, Scores

MOST_EXPOSED = 10
ISOLATED = 0.1  # of the records: those with the most distant neighbours


@dataclass(frozen=True)
class Shared:
    """What both ways of auditing a release take."""

    delta: float
    confidence: float
    secret: Any
    target: Any
    name: str | None
    run: RunOptions

    @property
    def workers(self) -> int | None:
        """How many threads compare rows."""
        return 1 if self.run.engine == "inline" and self.run.workers is None else self.run.workers

    def unit(self, by_person: bool) -> str:
        """What one coin belongs to."""
        return "person" if by_person else "record"

    def check_columns(self, pool: Rows) -> None:
        """Refuse names of columns that do not exist, before anything is fitted."""
        self.target_of(pool)
        self.secrets_of(pool)

    def target_of(self, pool: Rows) -> int | None:
        """The column that a model is trained to predict."""
        if self.target is not None:
            return pool.place_of(self.target, "target")
        return len(pool.fields) - 1 if len(pool.fields) > 1 else None

    def secrets_of(self, pool: Rows) -> list[int]:
        """The columns that are guessed from the others."""
        if self.secret is None:
            target = self.target_of(pool)
            return [] if target is None else [target]
        names = (
            [self.secret] if isinstance(self.secret, (str, int)) else check.listed("secret", self.secret, "pass names")
        )
        return [pool.place_of(name, "secret") for name in names]


def assembled(
    evidences: Mapping[str, OneRun | Scores],
    guard: Guard,
    ground: Ground,
    distance: FloatArray,
    isolation: FloatArray,
    published: PublishedRows,
    meta: SyntheticMetadata,
    shared: Shared,
    names: Any,
    fitted: BoolArray,
) -> Audit:
    """Put the audit together; the first of the evidences is the attack of the headline."""
    attack, evidence = next(iter(evidences.items()))
    at: Level = {"delta": shared.delta, "confidence": shared.confidence}
    estimates = _estimates(evidence, published, at)
    sides, finest = sides_of(evidence), sides_of(evidences.get(STACK, evidence))  # a headline may tie the surest
    perfect = float(estimates[0].details["largest_provable"])
    rest = np.setdiff1d(np.arange(len(ground.pool)), np.flatnonzero(fitted))
    return Audit(
        estimates=estimates,
        guard=guard,
        risk=risk_of(estimates),
        curve=roc(sides, shared.confidence),
        distributions=replace(distributions(finest.members, finest.nonmembers), name="score"),
        subgroups=_isolated(evidence, isolation, at),
        exposed=_exposed(evidence, finest, names),
        details=SyntheticDetails(
            published=replace(published, perfect=perfect),
            attacks=tuple(
                attack_result(
                    name,
                    one,
                    estimates[0] if name == attack else lower_bound(one, **at),
                    headline=name == attack,
                )
                for name, one in evidences.items()
            ),
            copies=copies(ground, distance, float(np.median(isolation))),
            criteria=_criteria(ground, shared),
            utility=utility(
                ground.pool,
                np.flatnonzero(fitted),
                rest,
                ground.release,
                shared.target_of(ground.pool),
                ground.seed,
            ),
        ),
        record_risk=RecordRisk.of(finest, _parted(evidence, names)),
        metadata=meta,
    )


def _estimates(evidence: OneRun | Scores, published: PublishedRows, at: Level) -> tuple[Estimate, ...]:
    """The headline, which says how many rows were published, and what stands beside it."""
    head = lower_bound(evidence, **at)
    source = "members" if evidence.unit == "record" else "records"  # of persons, who are the members
    told = (
        f" {published.rows} rows were published from {published.members} {source} "
        f"({published.per_member:.3g} for each); more of them may show more."
    )
    bounds = [replace(head, claim=head.claim + told)]
    if game_of(evidence) == "split":
        other = lower_bound(evidence, **at, neighbours="add/remove")
        bounds.append(replace(other, claim=other.claim + told))
    if isinstance(evidence, OneRun):
        bounds.append(ranked(evidence, **at))
    return tuple(bounds)


def _criteria(ground: Ground, shared: Shared) -> tuple[Criterion, ...]:
    criteria = [singling_out(ground), linkability(ground)]
    criteria += [inference(ground, place) for place in shared.secrets_of(ground.pool)]
    return tuple(one for one in criteria if one is not None)


def _parted(evidence: OneRun | Scores, names: Any) -> tuple[Any, Any]:
    """The names of the units that were in, and of those that were not."""
    if isinstance(evidence, OneRun):
        return names[evidence.included], names[~evidence.included]
    return names[: evidence.members.size], names[evidence.members.size :]


def _isolated(evidence: OneRun | Scores, isolation: FloatArray, at: Level) -> tuple[Subgroup, ...]:
    """The bounds of the most isolated records and of the others; for persons there is none."""
    if evidence.unit != "record" or isolation.size != evidence.total:
        return ()
    limit = float(np.quantile(isolation, 1 - ISOLATED))
    values = np.where(isolation > limit, "the most isolated tenth", "the others")
    return by_group(evidence, {"distance to the nearest other record": _parted(evidence, values)}, **at)


def _exposed(evidence: OneRun | Scores, sides: Scores, names: Any) -> tuple[ExposedRecord, ...]:
    """The units that were in and that the attack is surest of."""
    inside = _parted(evidence, names)[0]
    first: IntArray = np.argsort(-sides.members, kind="stable")[:MOST_EXPOSED]
    above = sides.nonmembers.size - np.searchsorted(sides.sorted_nonmembers, sides.members[first], "left")
    return tuple(
        ExposedRecord(inside[i].item(), float(sides.members[i]), float(a / sides.nonmembers.size), "")
        for i, a in zip(first, above, strict=True)
    )
