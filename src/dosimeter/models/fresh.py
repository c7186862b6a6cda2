"""Unfitted copies of scikit-learn estimators and of those that behave like them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any


def fresh_copy(model: Any, seed: int | None = None) -> Any:
    """Copy an estimator without what it has learnt; with a seed, every random state in it is set.

    The constructor of CatBoost copies lists that it is given, and scikit-learn's own `clone` refuses it for that. Such
    an estimator is made anew from its parameters, and so is one that holds it.

    Raises:
        Exception: Whatever the estimator's constructor raises; RuntimeError if it changes a parameter.
    """
    from sklearn.base import clone

    try:
        fresh = clone(model)
    except RuntimeError:
        fresh = _made_anew(model)
    if seed is not None:
        names = [name for name in fresh.get_params() if name == "random_state" or name.endswith("__random_state")]
        if names:
            fresh.set_params(**dict.fromkeys(names, int(seed % 2**31)))
    return fresh


def _made_anew(model: Any) -> Any:
    """An estimator of the same class with the same parameters, as far as can be seen."""
    given = model.get_params(deep=False)
    fresh = type(model)(**{name: _copied(value) for name, value in given.items()})
    kept = fresh.get_params(deep=False)
    for name, value in given.items():
        if not _parts(value) and repr(kept.get(name)) != repr(value):
            raise RuntimeError(f"its constructor changes the parameter {name}")
    return fresh


def _copied(value: Any) -> Any:
    """A parameter, or the estimators in it, as in the steps of a pipeline."""
    if hasattr(value, "get_params") and not isinstance(value, type):
        return _made_anew(value)
    if type(value) in (list, tuple) and _parts(value):
        return type(value)(_copied(part) for part in value)
    return deepcopy(value)


def _parts(value: Any) -> bool:
    """Whether a parameter is an estimator or holds one."""
    if type(value) in (list, tuple):
        return any(_parts(part) for part in value)
    return hasattr(value, "get_params") and not isinstance(value, type)
