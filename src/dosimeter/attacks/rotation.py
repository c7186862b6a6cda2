"""Every model as the target once, attacked with all the others as its shadow models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.attacks import likelihood, relative
from dosimeter.attacks.choosing import require_models
from dosimeter.attacks.moments import counts
from dosimeter.attacks.signals import Array, read_shadows
from dosimeter.attacks.threshold import loss, watson, watson_rotated

ATTACKS: dict[str, Callable[..., FloatArray]] = {
    "loss": lambda target, shadows, included, **options: loss(target, **options),
    "watson": watson,
    "lira": likelihood.lira,
    "rmia": relative.rmia,
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "loss": ("labels",),
    "watson": (),
    "lira": ("mode", "variance"),
    "rmia": ("population", "mode", "gamma", "offline_a", "scale"),
}


def leave_one_out(attack: str | Callable[..., Any], outputs: Any, included: Any, **options: Any) -> FloatArray:
    """Scores (K, n) of K models, each attacked with the other K − 1 as shadow models.

    `attack` is "loss", "watson", "lira" or "rmia", whose `options` are the same as when called by name; or any function
    (target, shadows, included, **options) of a target (n,) that returns (n,) scores. The named ones remove the target
    from running sums and cost about as much as one attack for each target row; a function is called K times.
    `variance="auto"` is decided once, for K − 1 shadow models.
    """
    signals, mask = read_shadows(outputs, included)
    if signals.shape[0] < 2:
        raise InputError("outputs holds 1 model; leaving one out needs at least 2: train more models.")
    if not isinstance(attack, str):
        return _by_calls(attack, signals, mask, options)
    check.choice("attack", attack, tuple(ATTACKS))
    check_options(attack, options)
    sizes = counts(mask)
    if attack == "lira":
        lira_rule = lira_rule_of(mask, options, left_out=True)
        require_models(lira_rule.name, *sizes, left_out=True)
        return likelihood.lira_rotated(signals, mask, lira_rule)
    if attack == "rmia":
        rmia_rule = relative.read_rule(signals.shape[1], **options)
        relative.check_scale("outputs", signals, rmia_rule.scale)
        require_models(rmia_rule.name, *sizes, left_out=True)
        return relative.rmia_rotated(signals, mask, rmia_rule)
    if attack == "loss":
        return loss(signals, **options)
    require_models("watson", *sizes, left_out=True)
    return watson_rotated(signals, mask)


def lira_rule_of(included: BoolArray, options: dict[str, Any], *, left_out: bool) -> likelihood.Rule:
    """LiRA's options, with "auto" decided for this mask."""
    check_options("lira", options)
    rule = likelihood.read_rule(options.get("mode", "online"), options.get("variance", "auto"))
    return likelihood.decided(rule, included, left_out=left_out)


def check_options(attack: str, options: dict[str, Any]) -> None:
    """Say which option a named attack does not know."""
    for name in options:
        if name not in OPTIONS[attack]:
            takes = ", ".join(OPTIONS[attack]) or "none"
            raise InputError(f"{name} is no option of {attack}; its options are: {takes}.")


def _by_calls(attack: Callable[..., Any], signals: Array, mask: BoolArray, options: dict[str, Any]) -> FloatArray:
    if not callable(attack):
        raise InputError(f"attack must be one of {', '.join(ATTACKS)} or a function, got {check.show(attack)}.")
    scores = np.empty(signals.shape)
    for model in range(len(signals)):
        others = np.arange(len(signals)) != model
        row = check.finite_array(
            "the attack's scores", attack(signals[model], signals[others], mask[others], **options)
        )
        if row.size != signals.shape[1]:
            raise InputError(
                f"the attack returns {row.size} scores for {signals.shape[1]} records; return one for each record."
            )
        scores[model] = row
    return scores
