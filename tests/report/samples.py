"""Audits to draw: full, bare, shifted, contradictory, and with hostile names."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from dosimeter.accounting import DpSgd
from dosimeter.audits.model import audit_model
from dosimeter.audits.result import Audit, Guard
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
    rng = np.random.default_rng(1)
    records = rng.normal(size=(SIZE, 4)) + shift * (np.arange(SIZE) >= SIDE)[:, None]
    ages = rng.integers(0, 3, SIZE)
    shape = np.where(np.arange(SIZE) < SIDE, np.array([0.3, 1.0, 1.6])[ages], 1.6)
    losses = rng.gamma(shape, 0.9).clip(1e-9)
    known = {row.tobytes(): loss for row, loss in zip(records, losses, strict=True)}

    def model(rows: Any) -> Any:
        wanted = np.array([known[row.tobytes()] for row in rows])
        return np.stack([-np.log(np.expm1(wanted)), np.zeros(len(rows))], axis=1)

    names, labels = np.array(AGES)[ages], np.zeros(SIZE, int)
    return audit_model(
        model,
        members=(records[:SIDE], labels[:SIDE]),
        nonmembers=(records[SIDE:], labels[SIDE:]),
        mechanism=DpSgd(noise, 0.02, 1000),
        subgroups={"age": (names[:SIDE], names[SIDE:])},
        guard=guard,
        resamples=20,
        metadata={"model": "a classifier", "unit_of_privacy": "one record", "clipping": "norm 1.0"},
    )


def group(name: str, value: str, epsilon: float, p: float, flagged: bool) -> dict[str, Any]:
    return {
        "group": name,
        "value": value,
        "members": 300,
        "nonmembers": 310,
        "epsilon": epsilon,
        "advantage": 0.2,
        "p_value": p,
        "flagged": flagged,
        "joint_confidence": 0.95,
    }


def shifted() -> Audit:
    """Members and non-members that differ without the model."""
    return full(shift=0.5)


def hostile() -> Audit:
    """Names, labels and metadata that try to leave their place."""
    audit = full()
    return dataclasses.replace(
        audit,
        subgroups=(group(HOSTILE, BREAKOUT, 1.0, 0.1, True), group(HOSTILE, "x" * 5000, 0.5, 0.2, False)),
        exposed=({"record": HOSTILE, "score": 0.1, "threshold_fpr": 0.0, "label": BREAKOUT},),
        guard=Guard(False, True, {HOSTILE: BREAKOUT}),
        distributions={**dict(audit.distributions or {}), "name": HOSTILE + BREAKOUT},
        metadata={**audit.metadata, "model": HOSTILE, HOSTILE: {BREAKOUT: HOSTILE}, "warnings": [HOSTILE]},
    )
