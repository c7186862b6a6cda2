"""Values of JSON as typed values: read strictly, or refused with the first thing that is wrong."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from dosimeter._validate import InputError, show

__all__ = ["checked", "first_fault"]

T = TypeVar("T")


def checked(kind: type[T], values: object, what: str, remedy: str = "write it with Audit.to_json") -> T:
    """Check values against a type and build it.

    JSON has lists where the types have tuples, so the values pass as JSON.

    Args:
        kind: A dataclass of parts, or a pydantic model.
        values: What `dosimeter.reading.strict_json` read.
        what: What the message calls the values.
        remedy: What the message advises.

    Returns:
        The typed value.

    Raises:
        InputError: If a field is missing, of another type or out of range.

    >>> from dosimeter.audits.result import TrainingCounts
    >>> checked(TrainingCounts, {"asked": 3, "done": 3}, "the counts").done
    3
    """
    try:
        text = json.dumps(values, allow_nan=False)
        return cast(T, _adapter(cast(Any, kind)).validate_json(text))
    except ValidationError as error:
        raise InputError(f"{what} {first_fault(error)}; {remedy}.") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON ({show(str(error))}); {remedy}.") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def first_fault(error: ValidationError) -> str:
    """Say the first fault that pydantic found, as "has a bad field (what is wrong, got value)"."""
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"] if not str(part).startswith(("constrained", "function-")))
    message = fault["msg"][:1].lower() + fault["msg"][1:]
    got = "" if fault["type"] == "missing" else f", got {show(fault['input'])}"
    return f"has a bad {place[:120] or 'value'} ({message[:160]}{got})"
