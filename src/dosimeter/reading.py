"""Text and JSON from files that come from outside; sizes are checked before memory is taken."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, Never

from dosimeter._validate import InputError, show

JSON_BYTES = 1 << 26
JSON_DEPTH = 64


def read_text(path: str | os.PathLike[str], *, limit: int = 1 << 28) -> str:
    """The text of a file of at most `limit` bytes."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file} does not exist or is not a file; check the path.")
    size = file.stat().st_size
    if not 0 < size <= limit:
        raise InputError(f"{file} has {size} bytes, between 1 and {limit} can be read; check the file.")
    try:
        return file.read_text(encoding="utf-8")
    except (UnicodeDecodeError, PermissionError) as error:
        raise InputError(f"{file} cannot be read as text ({type(error).__name__}); check the file.") from None


def strict_json(text: str | bytes, *, what: str = "the file") -> Any:
    """Read JSON that can mean one thing only.

    Refused: a key that is given twice, NaN and infinite numbers (also 1e400), text that is not UTF-8, more than 64
    levels, more than 64 MiB.

    Args:
        text: The JSON, as text or as UTF-8 bytes.
        what: What the messages call it, for example the file's name.

    Raises:
        InputError: If the text is anything else.

    Example:
        >>> strict_json('{"low": 1.5}')
        {'low': 1.5}
    """
    decoded = _json_text(text, what)
    try:
        try:
            values = _decoded(decoded, what)
            finite = _check_tree(values, what)
        except json.JSONDecodeError:
            raise
        except (ValueError, OverflowError) as error:  # a whole number of thousands of digits
            if isinstance(error, InputError):
                raise
            finite = False
        if not finite:  # the same once more, looking at the digits of each number, to name the one that is not finite
            values = _decoded(
                decoded,
                what,
                parse_float=lambda digits: _finite(float(digits), digits, what),
                parse_int=lambda digits: _finite_whole(digits, what),
            )
            _check_tree(values, what)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{what} is not JSON: {error.msg}, line {error.lineno} column {error.colno}; write it again."
        ) from None
    except RecursionError:
        raise _too_deep(what) from None
    return values


def _decoded(text: str, what: str, **numbers: Any) -> Any:
    return json.loads(
        text,
        parse_constant=lambda word: _not_finite(word, what),
        object_pairs_hook=lambda pairs: _without_repeats(pairs, what),
        **numbers,
    )


def _json_text(text: str | bytes, what: str) -> str:
    if not isinstance(text, str | bytes):
        raise InputError(f"{what} must be JSON text, got {show(text)}; pass a text or bytes.")
    if len(text) > JSON_BYTES:
        raise InputError(f"{what} has {len(text)} bytes, and JSON is read up to {JSON_BYTES}; check the file.")
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{what} is not UTF-8 text; write it again.") from None
    if not decoded.strip():
        raise InputError(f"{what} is empty; write it again.")
    return decoded


def _not_finite(digits: str, what: str) -> Never:
    raise InputError(f"{what} holds the number {digits[:30]}, which is not finite; write it again.")


def _finite(value: float, digits: str, what: str) -> float:
    return value if math.isfinite(value) else _not_finite(digits, what)


def _finite_whole(digits: str, what: str) -> int:
    if len(digits) > 300:  # a float64 ends at 309 digits
        _finite(float(digits), digits, what)
    return int(digits)


def _without_repeats(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise InputError(f"{what} gives the key {show(name)} more than once; write it again.")
        values[name] = value
    return values


_SCALARS = {float, int, bool, type(None)}  # a column of these holds no text and no further level


def _check_tree(values: Any, what: str) -> bool:
    """Refuse too many levels, and text that cannot be written; answer whether all numbers are finite."""
    level, depth, finite = [values], 0, True
    while level:
        for value in level:
            if isinstance(value, str) and not value.isascii():
                _check_text(value, what)
            elif isinstance(value, float | int):
                finite = finite and math.isfinite(value)
        holders = [value for value in level if isinstance(value, dict | list)]
        if holders and depth == JSON_DEPTH:
            raise _too_deep(what)
        level = []
        for holder in holders:
            if _SCALARS.issuperset(map(type, holder)):
                finite = finite and math.isfinite(sum(filter(None, holder)))
            else:
                level += holder
            if isinstance(holder, dict):
                level += holder.values()
        depth += 1
    return finite


def _check_text(text: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{what} holds {show(text)}, half of a surrogate pair; write it again.") from None


def _too_deep(what: str) -> InputError:
    return InputError(f"{what} is nested more than {JSON_DEPTH} levels deep; write it again.")
