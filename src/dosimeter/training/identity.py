"""What tells one function of the caller from another in the keys of a store: everything that it can reach."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.training.reach import UnreachableStateError, reach


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
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    usual = {"dtype": "torch.float32", "device": "cpu"}
    found = {"dtype": str(torch.get_default_dtype()), "device": str(torch.get_default_device())}
    return {name: value for name, value in found.items() if value != usual[name]}
