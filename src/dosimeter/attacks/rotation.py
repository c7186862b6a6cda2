"""Every model as the target once, attacked with all the others as its shadow models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.attacks.signals import Array, read_shadows
from dosimeter.attacks.table import SHADOW_ATTACKS, others_of


def leave_one_out(attack: str | Callable[..., Any], outputs: Any, included: Any, **options: Any) -> FloatArray:
    """Attack each of K models with the other K − 1 as its shadow models.

    Where models come in pairs that share out the records, both models of a pair are left out: the numbers of models
    with and without a record would otherwise tell what the target was trained on.

    Named attacks remove the target from running sums, so that all K together cost about as much as one call for each
    row of targets; a function is called K times. `variance="auto"` is decided once, for K − 1 shadow models.

    Args:
        attack: "loss", "watson", "lira", "lira-offline", "rmia" or "rmia-online", or any function (target, shadows,
            included, **options) that returns a score for each of the n records of a target (n,).
        outputs: Signals (K, n) of the models, high for a likely member.
        included: Booleans (K, n): which model was trained on which record.
        **options: The same as when the attack is called itself, e.g. `variance="global"` for "lira".

    Returns:
        Scores (K, n), high for a likely member.

    Raises:
        InputError: If the attack or an option is unknown, or a record has too few shadow models for the attack.

    >>> import numpy as np
    >>> from dosimeter.attacks import leave_one_out
    >>> outputs = np.array([[3.0, 0.1], [0.2, 2.0], [2.5, 0.3], [0.1, 1.8]])
    >>> leave_one_out("watson", outputs, outputs > 1).round(2)
    array([[ 2.85, -0.2 ],
           [ 0.1 ,  1.8 ],
           [ 2.35,  0.2 ],
           [-0.1 ,  1.6 ]])
    """
    signals, mask = read_shadows(outputs, included)
    if signals.shape[0] < 2:
        raise InputError("outputs holds 1 model; leaving one out needs at least 2: train more models.")
    if not isinstance(attack, str):
        return _by_calls(attack, signals, mask, options)
    row = SHADOW_ATTACKS[check.choice("attack", attack, tuple(SHADOW_ATTACKS))]
    return row.rotated(row.form(options, mask, left_out=True), signals, mask)


def _by_calls(attack: Callable[..., Any], signals: Array, mask: BoolArray, options: dict[str, Any]) -> FloatArray:
    if not callable(attack):
        raise InputError(f"attack must be one of {', '.join(SHADOW_ATTACKS)} or a function, got {check.show(attack)}.")
    scores = np.empty(signals.shape)
    for model, others in enumerate(others_of(mask)):
        row = check.finite_array(
            "the attack's scores", attack(signals[model], signals[others], mask[others], **options)
        )
        if row.size != signals.shape[1]:
            raise InputError(
                f"the attack returns {row.size} scores for {signals.shape[1]} records; return one for each record."
            )
        scores[model] = row
    return scores
