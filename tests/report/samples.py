"""Audits to draw: full, bare, shifted, contradictory, and with hostile names."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from dosimeter.accounting import PrivacyRegion, account
from dosimeter.audits.audit import Audit, Guard
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


@cache
def full(noise: float = 1.1) -> Audit:
    """Everything a model audit may hold."""
    audit = bare()
    rng = np.random.default_rng(1)
    upper = tuple(account(noise_multiplier=noise, sample_rate=0.02, steps=1000, delta=1e-5))
    tight = min((g for g in upper if g.is_bound), key=lambda g: g.epsilon)
    edges = np.linspace(0, 6, 41)
    fpr = np.linspace(0.002, 0.998, 700)
    fnr = (1 - fpr**0.8) * 0.999 + 0.0005
    epsilon = np.log(np.maximum((1 - 1e-5 - fnr) / fpr, (1 - 1e-5 - fpr) / fnr).clip(1))
    return dataclasses.replace(
        audit,
        upper=upper,
        region=PrivacyRegion(audit.headline, tight).to_dict(),
        guard=Guard(False, True, {"blind_auc": 0.503, "interval": [0.48, 0.52], "p_value": 0.42, "level": 0.05}),
        distributions={
            "edges": edges,
            "members": np.histogram(rng.gamma(1.3, 0.75, 3000), edges, density=True)[0],
            "nonmembers": np.histogram(rng.gamma(1.6, 0.9, 3000), edges, density=True)[0],
            "name": "loss",
        },
        star={"fpr": fpr, "fnr": fnr, "epsilon": epsilon, "best": int(np.argmax(epsilon))},
        subgroups=(
            group("age", "under 25", 1.9, 1e-5, True),
            group("age", "25 to 40", 0.8, 0.3, False),
            group("age", "over 40", 0.0, 0.9, False),
        ),
        exposed=tuple({"record": i, "score": -0.01 * i, "threshold_fpr": 0.001 * i, "label": "a"} for i in range(12)),
        metadata={**audit.metadata, "model": "a classifier", "unit_of_privacy": "one record", "clipping": "norm 1.0"},
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
    return dataclasses.replace(full(), guard=Guard(True, True, {"blind_auc": 0.71}))


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
