"""What tells one function of the caller from another in the keys of a store: everything that it can reach."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.training.reach import UnreachableStateError, reach

_DECIMAL = "(28, 'ROUND_HALF_EVEN')"


@dataclass(frozen=True)
class Identity:
    """A function of the caller, as keys of a store know it.

    `text` goes into the keys; `given` says that the caller chose it. `modules` are the caller's own modules whose code
    and values the function uses, `versions` what stands for the code of others, and `replaced` members of installed
    classes that are not what was installed.
    """

    text: str
    given: bool = False
    modules: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def identity(function: Any, *, key: str | None = None, strict: bool = True) -> Identity:
    """The function's name and a hash of all that it can reach (see `training.reach`), or the key of the caller.

    Args:
        function: Any callable.
        key: Stands for the function instead: the caller answers for changing it whenever the training changes.
        strict: Refuse a function that reaches something without a state to hash, instead of passing over that.

    Raises:
        InputError: If something is reached that cannot be hashed and there is no key.

    >>> identity(len, key="trees, depth 3").text
    'key trees, depth 3'
    """
    if key is not None and (not isinstance(key, str) or not key.strip()):
        raise InputError(
            f"key must be a text or None, got {check.show(key)}; name what is trained, e.g. 'trees, run 2'."
        )
    name = function_name(function)
    try:
        found = reach(function, name, strict=strict and key is None)
    except UnreachableStateError as error:
        if key is not None or not strict:
            return Identity(f"key {key}", given=True)
        raise InputError(
            f"the store cannot know {name} again: {error}, which has no state that could be hashed. Keep it out of "
            "what the function uses, or pass key='…' and change that text whenever the training changes."
        ) from None
    text = f"{name} {found.digest[:32]}" if key is None else f"key {key}"
    return Identity(text, key is not None, found.modules, found.versions, found.replaced)


def function_name(function: Any) -> str:
    """What to call a function in a message: the name that it was defined under, or that of its class."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def ambient() -> dict[str, str]:
    """Settings of this process, other than the usual, that change what a training in it computes."""
    found = {}
    for library, settings in _SETTINGS.items():
        module = sys.modules.get(library)
        for name, (ask, usual) in settings.items() if module is not None else ():
            try:
                value = str(ask(module))
            except (AttributeError, TypeError, RuntimeError):  # another version of the library
                continue
            if value != usual:
                found[name] = value
    return found


def _sklearn_settings(sklearn: Any) -> str:
    usual = sklearn._config._global_config
    return str(sorted(pair for pair in sklearn.get_config().items() if pair[1] != usual.get(pair[0])))


# What to ask a library that is loaded, and what it usually answers.
_SETTINGS: dict[str, dict[str, tuple[Callable[[Any], Any], str]]] = {
    "torch": {
        "dtype": (lambda torch: torch.get_default_dtype(), "torch.float32"),
        "device": (lambda torch: torch.get_default_device(), "cpu"),
        "gradients": (lambda torch: torch.is_grad_enabled(), "True"),
        "inference": (lambda torch: torch.is_inference_mode_enabled(), "False"),
        "autocast": (lambda torch: torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"), "False"),
        "precision": (lambda torch: torch.get_float32_matmul_precision(), "highest"),
        "deterministic": (lambda torch: torch.are_deterministic_algorithms_enabled(), "False"),
    },
    "decimal": {
        "decimal": (lambda decimal: (decimal.getcontext().prec, decimal.getcontext().rounding), _DECIMAL),
    },
    "jax": {"jax_enable_x64": (lambda jax: jax.config.jax_enable_x64, "False")},
    "keras": {"keras_floatx": (lambda keras: keras.backend.floatx(), "float32")},
    "sklearn": {"sklearn": (_sklearn_settings, "[]")},
}
