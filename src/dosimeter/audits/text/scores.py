"""Scores of canaries: reductions of one pass of the model and of its base, fixed before the coins are looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.attacks import (
    calibrated_min_k_plus_plus,
    error_zone,
    mean_log_probability,
    min_k,
    min_k_plus_plus,
    reference_ratio,
    token_informia,
    window_signs,
    zlib_ratio,
)
from dosimeter.models.token_pass import Passes, TokenPass

__all__ = ["DEFAULT", "SCORES", "Score", "available", "read_score", "score_of"]

DEFAULT = "ratio"


@dataclass(frozen=True)
class Score:
    """One way to score a text; whether it needs the base model, and whether on the same batch as the model."""

    sentence: str
    function: Callable[[Passes, Sequence[str]], FloatArray]
    needs_base: bool = True
    together: bool = False


def _base(passes: Passes) -> TokenPass:
    assert passes.base is not None
    return passes.base


def _ratio(passes: Passes, _: Sequence[str]) -> FloatArray:
    return reference_ratio(passes.target.log_probability, _base(passes).log_probability)


def _loss(passes: Passes, _: Sequence[str]) -> FloatArray:
    return mean_log_probability(passes.target.log_probability)


def _zlib(passes: Passes, texts: Sequence[str]) -> FloatArray:
    return zlib_ratio(passes.target.log_probability, texts)


def _min_k(passes: Passes, _: Sequence[str]) -> FloatArray:
    return min_k(passes.target.log_probability)


def _moments(tokens: TokenPass) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...], tuple[FloatArray, ...]]:
    means = tuple(np.minimum(row, 0.0) for row in tokens.mean)  # a mean of −1e-9 may round to above 0
    return tokens.log_probability, means, tokens.deviation


def _min_k_plus_plus(passes: Passes, _: Sequence[str]) -> FloatArray:
    return min_k_plus_plus(*_moments(passes.target))


def _calibrated(passes: Passes, _: Sequence[str]) -> FloatArray:
    return calibrated_min_k_plus_plus(*_moments(passes.target), _moments(_base(passes)))


def _window_signs(passes: Passes, _: Sequence[str]) -> FloatArray:
    return window_signs(passes.target.log_probability, _base(passes).log_probability)


def _error_zone(passes: Passes, _: Sequence[str]) -> FloatArray:
    return error_zone(passes.target.log_probability, _base(passes).log_probability, passes.target.rank)


def _informia(passes: Passes, _: Sequence[str]) -> FloatArray:
    assert passes.divergence is not None
    return token_informia(passes.target.log_probability, _base(passes).log_probability, passes.divergence)


SCORES: Mapping[str, Score] = MappingProxyType(
    {
        "ratio": Score("mean log-ratio to the base model on the secret", _ratio),
        "loss": Score("minus the model's loss on the secret", _loss, needs_base=False),
        "zlib": Score("log-probability of the secret over its compressed size", _zlib, needs_base=False),
        "min-k": Score("mean of the least expected fifth of the tokens", _min_k, needs_base=False),
        "min-k++": Score("the same of standardised log-probabilities", _min_k_plus_plus, needs_base=False),
        "min-k++ calibrated": Score("Min-K%++ less that of the base model", _calibrated),
        "wbc": Score("share of windows of tokens that became likelier", _window_signs),
        "ez-mia": Score("rises against falls where the model still errs", _error_zone),
        "informia": Score("rise of the tokens and movement of the vocabulary", _informia, together=True),
    }
)


def read_score(score: object, *, base: bool, together: bool = True) -> str:
    """The score that is the headline; one that needs a base model is refused without one."""
    name = check.choice("score", score, list(SCORES))
    if (SCORES[name].needs_base and not base) or (SCORES[name].together and not together):
        raise InputError(
            f"score={name!r} compares with the base model, which is missing; pass base= (--base), the model that the "
            "training started from, or score='loss'."
        )
    return name


def available(passes: Passes) -> list[str]:
    """The scores that can be computed."""
    base, together = passes.base is not None, passes.divergence is not None
    return [
        name for name, score in SCORES.items() if (base or not score.needs_base) and (together or not score.together)
    ]


def score_of(name: str, passes: Passes, texts: Sequence[str]) -> FloatArray:
    """The scores of the texts."""
    return SCORES[name].function(passes, texts)
