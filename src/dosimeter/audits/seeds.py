"""The seed of an audit that draws coins: fresh unless given, and the same one when an audit resumes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter.engine import Store
from dosimeter.evidence import fresh_seed


def audit_seed(seed: Any, store: Store | None, *what: Any) -> int:
    """Take the seed given, or draw a fresh one: a constant is not a coin.

    A store keeps a fresh seed under `what`, the things that make this audit the same one, so that an audit that was
    interrupted resumes with its own coins.
    """
    if seed is not None:
        return check.seed(seed)
    if store is None:
        return fresh_seed()
    key = hashlib.sha256(("seed of an audit: " + repr(what)).encode()).hexdigest()
    for _ in range(2):
        kept = store.get(key)
        if kept is not None:
            return int(kept[0]["seed"])
        store.put(key, {"seed": np.array(fresh_seed())}, {"what": "the seed of an audit"})
    return fresh_seed()  # the store loses what it is given; the audit still has its own coins
