"""What a fine-tuning with DP-SGD guarantees, read from the Opacus engine that trained it."""

from __future__ import annotations

from typing import Any

from dosimeter._validate import InputError, show
from dosimeter.accounting import Composition, DpSgd, Gaussian
from dosimeter.accounting.mechanism import Mechanism

__all__ = ["read_mechanism"]


def read_mechanism(given: Any) -> Mechanism | None:
    """The mechanism of a training: as given, or from the history of an Opacus `PrivacyEngine` or accountant.

    Raises:
        InputError: If it is neither, or the engine has not counted a step.
    """
    if given is None or isinstance(given, (DpSgd, Gaussian, Composition)):
        return given
    history = getattr(getattr(given, "accountant", given), "history", None)
    if not isinstance(history, list):
        raise InputError(
            f"mechanism must be the PrivacyEngine of Opacus or a DpSgd, got {show(given)}; pass the engine that "
            "make_private was called on."
        )
    if not history:
        raise InputError("the accountant of mechanism has not counted a step; pass the engine after the training.")
    parts = tuple(
        DpSgd(float(noise), sample_rate=min(1.0, float(rate)), steps=int(steps)) for noise, rate, steps in history
    )
    return parts[0] if len(parts) == 1 else Composition(parts)
