"""Named checks of arguments, so that every refusal reads alike: argument, value, remedy."""

from __future__ import annotations

import importlib
import itertools
import math
import numbers
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


MOST_RECORDS = 10**9
MOST_ITEMS = 10**5
DEEPEST = 32  # levels of a mapping; an audit that holds it is read to 64
LONGEST = 490  # characters of a message; with "error: " before it a line stays below 500


class InputError(ValueError):
    """Input that cannot be used; the message names the argument, the value and the remedy.

    It is one line of at most 490 characters: a longer one is cut in the middle, so that the remedy stays.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(sentence(message))


def sentence(message: object) -> str:
    """A message on one line of bounded length, cut in the middle."""
    text = " ".join(str(message).splitlines())
    if len(text) <= LONGEST:
        return text
    head = LONGEST * 3 // 5
    return f"{text[:head]} … {text[head + 3 - LONGEST :]}"


def show(value: object, limit: int = 60) -> str:
    """A short printable form of any value for an error message."""
    if isinstance(value, str | bytes) and len(value) > limit:
        value = value[:limit]
    try:
        text = " ".join(repr(value).split())
    except Exception:  # nested too deeply, too many digits, or a class of the caller's that fails
        return f"a value of type {type(value).__name__[:limit]}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def real(name: str, value: Any, remedy: str) -> float:
    """A finite real number, else an error that ends with the remedy."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, np.ndarray)):
        raise InputError(f"{name} must be a number, got {show(value)}; {remedy}.")
    if isinstance(value, np.ndarray) and value.ndim != 0:
        raise InputError(f"{name} must be one number, got an array of shape {value.shape}; {remedy}.")
    if isinstance(value, np.ndarray) and (value.dtype.kind not in "iuf" or np.ma.is_masked(value)):
        raise InputError(f"{name} must be a number, got {show(value)}; {remedy}.")
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        raise InputError(f"{name} must be a finite number, got {show(value)}; {remedy}.") from None
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, got {number}; {remedy}.")
    return number


def within(name: str, value: Any, low: float, high: float, remedy: str, *, include: str = "[]") -> float:
    """A real number in an interval; `include` gives the brackets, e.g. "[)"."""
    number = real(name, value, remedy)
    above = number >= low if include[0] == "[" else number > low
    below = number <= high if include[1] == "]" else number < high
    if not (above and below):
        left = include[0] if math.isfinite(low) else "("
        right = include[1] if math.isfinite(high) else ")"
        raise InputError(f"{name} must be in {left}{low:g}, {high:g}{right}, got {number:g}; {remedy}.")
    return number


def whole(name: str, value: Any, low: int, remedy: str, high: int | None = None) -> int:
    """A whole number from `low` (to `high`); 3.0 counts as 3."""
    number = real(name, value, remedy)
    if number != math.floor(number):
        raise InputError(f"{name} must be a whole number, got {number:g}; {remedy}.")
    if number < low or (high is not None and number > high):
        span = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InputError(f"{name} must be {span}, got {number:.15g}; {remedy}.")
    return int(value)


def delta(value: Any, *, zero: bool = True, why_not_zero: str = "") -> float:
    """A DP δ in [0, 1), or in (0, 1) where the method cannot take 0."""
    remedy = "pass the failure probability of the guarantee, e.g. 1e-5"
    if not zero and not isinstance(value, bool) and isinstance(value, numbers.Real) and value == 0:
        raise InputError(f"delta must be above 0 here, got 0: {why_not_zero}; pass e.g. 1e-5.")
    return within("delta", value, 0.0, 1.0, remedy, include="[)" if zero else "()")


def confidence(value: Any) -> float:
    """A confidence level in (0, 1)."""
    level = within("confidence", value, 0.0, 1.0, "pass e.g. 0.95", include="()")
    if 1 - level == 1:
        raise InputError(f"confidence must be above 1e-16, got {level:g}; pass e.g. 0.95.")
    return level


def seed(value: Any) -> int:
    """A non-negative whole seed."""
    return whole("seed", value, 0, "pass a non-negative whole number")


def choice(name: str, value: Any, options: Sequence[str]) -> str:
    """One of a closed list of names."""
    if not isinstance(value, str) or value not in options:
        raise InputError(f"{name} must be one of {', '.join(options)}, got {show(value)}; choose one of these.")
    return value


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} must be True or False, got {show(value)}; pass one of them.")
    return bool(value)


def mapping(name: str, value: Any, remedy: str) -> Mapping[str, Any]:
    """A mapping with names as keys; None counts as empty."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{name} must be a mapping of names, got {show(value)}; {remedy}.")
    _check_depth(name, value)
    return value


def _check_depth(name: str, value: Any) -> None:
    """Refuse what is nested too deeply to be written as JSON, and what holds itself."""
    level: dict[int, Any] = {0: value}
    for _ in range(DEEPEST):
        inside = (
            part
            for holder in level.values()
            for part in (holder.values() if isinstance(holder, Mapping) else holder)
            if isinstance(part, Mapping | list | tuple)
        )
        level = {id(part): part for part in inside}
        if not level:
            return
    raise InputError(f"{name} is nested more than {DEEPEST} levels deep; make it flat.")


def listed(name: str, values: Any, remedy: str) -> list[Any]:
    """The items of a sequence that is not endless."""
    try:
        items = list(itertools.islice(values, MOST_ITEMS + 1))
    except Exception:  # not a sequence, or one of the caller's that fails
        raise InputError(f"{name} must be a list, got {show(values)}; {remedy}.") from None
    if len(items) > MOST_ITEMS:
        raise InputError(f"{name} must hold at most {MOST_ITEMS} items, got {show(values)}; {remedy}.")
    return items


def text(name: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be a text, got {show(value)}; write it in quotes.")
    return str(value)


def texts(name: str, value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list | tuple):
        raise InputError(f"{name} must be a list of texts, got {show(value)}; pass e.g. [].")
    return tuple(text(f"{name}[{place}]", item) for place, item in enumerate(value))


def fields(name: str, values: Any, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """The values of a mapping that has these keys and no others."""
    remedy = "pass what to_dict returned"
    found = dict(mapping(name, {} if values is None else values, remedy))
    for key in required:
        if key not in found:
            raise InputError(f"{name} has no {key}; {remedy}.")
    for key in found:
        if key not in (*required, *optional):
            raise InputError(f"{name} has the unknown key {show(key)}; {remedy}.")
    return found


def engine(value: Any) -> str:
    """The name of an engine."""
    if not isinstance(value, str) or not (value in ("inline", "local", "ray") or value.startswith("ray://")):
        raise InputError(
            f"engine must be inline, local, ray or ray://host:port, got {show(value)}; choose one of these."
        )
    return value


def any_array(name: str, values: Any) -> npt.NDArray[Any]:
    """Values as an array of any type; one that is too long is refused before it takes memory."""
    check_length(name, values)
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name} must be a flat array of numbers; its rows have mixed lengths.") from None
    except MemoryError:
        raise InputError(f"{name} does not fit into memory; take a sample.") from None
    except Exception as error:  # a class of the caller's that fails
        raise InputError(f"{name} cannot be read as an array ({type(error).__name__}); pass numbers.") from None


def finite_array(name: str, values: Any, *, minimum: int = 1) -> FloatArray:
    """A one-dimensional float64 array of finite numbers; names the first offending entry."""
    raw = any_array(name, values)
    if raw.dtype.kind not in "biuf":
        kind = "objects" if raw.dtype.kind == "O" else f"type {raw.dtype}"
        raise InputError(f"{name} must hold numbers, got an array of {kind}; convert it to float first.")
    if raw.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, got shape {raw.shape}; pass one number for each record.")
    if raw.size < minimum:
        raise InputError(f"{name} must hold at least {minimum} value(s), got {raw.size}; pass more records.")
    if np.ma.is_masked(values):
        index = int(np.argmax(np.ma.getmaskarray(values)))
        raise InputError(f"{name}[{index}] is masked; remove the masked records first.")
    with np.errstate(over="ignore"):  # a longdouble beyond float64 becomes inf and is named below
        array = raw.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()
    if not np.isfinite(total):  # one pass; overflow of a finite sum only costs the second look
        bad = ~np.isfinite(array)
        if bad.any():
            index = int(np.argmax(bad))
            raise InputError(
                f"{name}[{index}] is {array[index]}, and {int(bad.sum())} of {array.size} values are not "
                "finite; remove or repair these records first."
            )
    return array


def check_length(name: str, values: Any, *, rows: bool = False) -> None:
    """Refuse what is too long from its shape alone; a broadcast array or a range takes no memory until it is read."""
    try:
        length = values.size if isinstance(values, np.ndarray) and not rows else len(values)
    except OverflowError:  # a range beyond what len can say
        length = sys.maxsize
    except Exception:  # no length: NumPy says what it is
        return
    if length > MOST_RECORDS:
        raise InputError(f"{name} must hold at most {MOST_RECORDS} values, got {length}; take a sample.")


def frozen(array: npt.NDArray[Any], source: Any) -> npt.NDArray[Any]:
    """A read-only array that does not share memory with what the caller may still change."""
    owned = array.copy() if np.may_share_memory(array, np.asarray(source)) else array
    owned.flags.writeable = False
    return owned


def bits(name: str, values: Any, *, minimum: int = 1) -> BoolArray:
    """A one-dimensional array of 0/1 or False/True."""
    array = finite_array(name, values, minimum=minimum)
    bad = (array != 0) & (array != 1)
    if bad.any():
        index = int(np.argmax(bad))
        raise InputError(f"{name}[{index}] is {array[index]:g}; {name} must hold only 0 and 1.")
    return array.astype(bool)


def require(module: str, *, extra: str, caller: str) -> ModuleType:
    """Import a module of an extra, or say which extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{caller} needs {package}; from a checkout: pip install '.[{extra}]'") from error


LARGEST = 1e100  # squares of signals must stay far from the largest float


def matrix(name: str, values: Any, dimensions: tuple[int, ...] = (1, 2)) -> npt.NDArray[Any]:
    """Finite numbers in their own precision; names the first entry that is not."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name} must be an array of numbers; its rows have mixed lengths.") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must hold numbers, got an array of type {array.dtype}; convert it to float first.")
    if array.ndim not in dimensions:
        shapes = " or ".join({1: "(records,)", 2: "(models, records)"}[size] for size in dimensions)
        raise InputError(f"{name} must have shape {shapes}, got {array.shape}; reshape it.")
    if array.size == 0:
        raise InputError(f"{name} is empty, of shape {array.shape}; pass at least one model and one record.")
    if np.ma.is_masked(values):
        index = tuple(int(i) for i in np.argwhere(np.ma.getmaskarray(values))[0])
        raise InputError(f"{name}{list(index)} is masked; remove the masked records first.")
    with np.errstate(invalid="ignore"):
        peak = max(float(array.max()), -float(array.min()))
    if not peak <= LARGEST:
        _refuse(name, array)
    return array


def _refuse(name: str, array: npt.NDArray[Any]) -> None:
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(array) <= LARGEST)
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f"{name}[{', '.join(map(str, index))}]"
    raise InputError(
        f"{place} is {array[index]}, and {int(bad.sum())} of {array.size} values are not finite or beyond "
        f"{LARGEST:g}; repair or remove these records first."
    )


def labels_of(labels: Any, records: int, name: str = "labels") -> IntArray:
    """Class codes of one label for each record."""
    array = np.asarray(labels)
    if array.shape != (records,):
        raise InputError(f"{name} has shape {array.shape} for {records} records; pass one label for each record.")
    if array.dtype.kind not in "biufUS":
        raise InputError(f"{name} must hold numbers or strings, got type {array.dtype}; encode them first.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        index = int(np.argmax(~np.isfinite(array)))
        raise InputError(f"{name}[{index}] is {array[index]}; give every record a label.")
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def table(name: str, values: Any, columns: int | None = None) -> FloatArray:
    """Features (records, columns) as float64; one column may come flat."""
    array = matrix(name, values).astype(np.float64, copy=False)
    array = array[:, None] if array.ndim == 1 else array
    if columns is not None and array.shape[1] != columns:
        raise InputError(f"{name} has {array.shape[1]} columns, expected {columns}; pass the same features everywhere.")
    return array
