"""Audits to draw: full, bare, shifted, contradictory, and with hostile names."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from dosimeter.accounting import DpSgd
from dosimeter.audits.model import audit_model
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores
from dosimeter.evidence import Scores

HOSTILE = "<script>alert('x')</script>"
BREAKOUT = '</script></style><img src=x onerror=alert(1)>" onload="alert(2)\u2028\u2029\x00\ud800'


@cache
def bare(strength: float = 1.3, n: int = 1500) -> Audit:
    """What scores alone give."""
    rng = np.random.default_rng(0)
    losses = rng.gamma(strength, 0.75, n), rng.gamma(1.6, 0.9, n)
    return audit_scores(Scores.from_losses(*losses), resamples=20)


SIDE = 390
SIZE = 2 * SIDE
AGES = ("under 25", "25 to 40", "over 40")


@cache
def full(noise: float = 1.1, shift: float = 0.0, guard: bool = True) -> Audit:
    """Everything a model audit may hold: a model that has learnt the young by heart, trained with noise."""
    notes = {"model": "a classifier", "unit_of_privacy": "one record", "clipping": "norm 1.0"}
    return audited("age", AGES, notes, noise=noise, shift=shift, guard=guard)


def audited(
    group: str,
    ages: tuple[str, str, str],
    notes: dict[str, Any],
    *,
    noise: float = 1.1,
    shift: float = 0.0,
    guard: bool = True,
    persons: tuple[Any, Any] | None = None,
) -> Audit:
    """The audit of a model whose losses are known, by the names of its groups and the notes of its caller."""
    rng = np.random.default_rng(1)
    records = rng.normal(size=(SIZE, 4)) + shift * (np.arange(SIZE) >= SIDE)[:, None]
    age = rng.integers(0, 3, SIZE)
    shape = np.where(np.arange(SIZE) < SIDE, np.array([0.3, 1.0, 1.6])[age], 1.6)
    losses = rng.gamma(shape, 0.9).clip(1e-9)
    known = {row.tobytes(): loss for row, loss in zip(records, losses, strict=True)}

    def model(rows: Any) -> Any:
        wanted = np.array([known[row.tobytes()] for row in rows])
        return np.stack([-np.log(np.expm1(wanted)), np.zeros(len(rows))], axis=1)

    names, labels = np.array(ages)[age], np.zeros(SIZE, int)
    return audit_model(
        model,
        members=(records[:SIDE], labels[:SIDE]),
        nonmembers=(records[SIDE:], labels[SIDE:]),
        mechanism=DpSgd(noise, 0.02, 1000),
        subgroups={group: (names[:SIDE], names[SIDE:])},
        groups=persons,
        guard=guard,
        resamples=20,
        metadata=notes,
    )


def shifted() -> Audit:
    """Members and non-members that differ without the model."""
    return full(shift=0.5)


@cache
def hostile() -> Audit:
    """Names of groups and persons, notes and warnings that try to leave their place."""
    notes = {"name": BREAKOUT, "model": HOSTILE, HOSTILE: {BREAKOUT: HOSTILE}}
    persons = tuple([f"{HOSTILE}{BREAKOUT}{side}{i}" for i in range(SIDE)] for side in ("in", "out"))
    audit = audited(HOSTILE, (BREAKOUT, "x" * 5000, "'\"><b>"), notes, persons=persons)
    return replace(audit, metadata=replace(audit.metadata, warnings=(HOSTILE,)))


@cache
def without_limits() -> Audit:
    """An audit of the first version of the files: no bound of a group holds beside another, no TPR has a limit."""
    values = json.loads(full().to_json())
    values["schema"] = 1
    for row in values["subgroups"]:
        del row["joint_confidence"]
    for point in values["curve"]["tpr_at_fpr"]:
        del point["limit_threshold"]
    return Audit.from_json(json.dumps(values))
