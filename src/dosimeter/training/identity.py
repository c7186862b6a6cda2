"""What tells one function of the caller from another in the keys of a store: its code and the data it refers to."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Mapping
from functools import partial
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from dosimeter.training.groups import installed

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def identity(function: Any) -> str:
    """The function's name and a hash of its code, defaults, closure and the globals it uses, followed into its helpers.

    Of objects other than numbers, texts, arrays, containers, functions and data classes only what `repr` of a
    scikit-learn estimator or the name of the type says is seen.
    """
    digest = hashlib.sha256()
    _feed(function, digest, set())
    found = function.func if isinstance(function, partial) else function
    name = getattr(found, "__qualname__", type(found).__qualname__)
    return f"{getattr(found, '__module__', '')}.{name} {digest.hexdigest()[:32]}"


def _feed(value: Any, digest: Any, seen: set[int]) -> None:
    if isinstance(value, _PLAIN):
        digest.update(f"{type(value).__name__} {value!r};".encode())
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    digest.update(f"{type(value).__qualname__}(".encode())
    if isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _feed(key, digest, seen)
            _feed(item, digest, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(item, digest, seen)
    elif isinstance(value, set | frozenset):
        digest.update(" ".join(sorted(map(repr, value))).encode())
    elif isinstance(value, partial):
        for part in (value.func, value.args, value.keywords):
            _feed(part, digest, seen)
    elif inspect.ismethod(value):
        _feed(value.__func__, digest, seen)
        _feed(value.__self__, digest, seen)
    elif inspect.isfunction(value):
        _feed_function(value, digest, seen)
    elif isinstance(value, type):
        _feed_class(value, digest, seen)
    elif dataclasses.is_dataclass(value):
        _feed_class(type(value), digest, seen)
        for field in dataclasses.fields(value):
            _feed(getattr(value, field.name), digest, seen)
    elif callable(getattr(value, "get_params", None)):
        digest.update(repr(value).encode())
    elif not isinstance(value, ModuleType) and callable(value) and hasattr(value, "__dict__"):
        _feed_class(type(value), digest, seen)
        _feed(vars(value), digest, seen)
    digest.update(b")")


def _feed_function(function: Any, digest: Any, seen: set[int]) -> None:
    digest.update(f"{function.__module__}.{function.__qualname__}".encode())
    if installed(inspect.getmodule(function)):
        return
    code = function.__code__
    _feed_code(code, digest)
    _feed([function.__defaults__, function.__kwdefaults__], digest, seen)
    for cell in function.__closure__ or ():
        try:
            _feed(cell.cell_contents, digest, seen)
        except ValueError:  # a cell that is still empty
            digest.update(b"empty")
    for name in sorted(_names(code)):
        if name in function.__globals__:
            digest.update(name.encode())
            _feed(function.__globals__[name], digest, seen)


def _feed_code(code: CodeType, digest: Any) -> None:
    digest.update(code.co_code + repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _feed_code(constant, digest)
        else:
            digest.update(repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant).encode())


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _feed_class(kind: type, digest: Any, seen: set[int]) -> None:
    digest.update(f"{kind.__module__}.{kind.__qualname__}".encode())
    if installed(inspect.getmodule(kind)):
        return
    for base in kind.__mro__[:-1]:
        for name, member in sorted(vars(base).items()):
            if inspect.isfunction(member):
                digest.update(name.encode())
                _feed(member, digest, seen)
