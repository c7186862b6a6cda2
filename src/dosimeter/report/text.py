"""Numbers, names and strings as the page prints them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dosimeter.estimate import number
from dosimeter.estimators.wording import change

NOT_STATED = "not stated"
LONGEST = 400
_WORDS = {"auc": "AUC", "tpr": "TPR", "fpr": "FPR", "dp": "DP", "cpu": "CPU", "sha256": "SHA-256"}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")


def clean(value: object) -> str:
    """Any value as text that HTML, XML and JSON can hold: no control characters, no lone surrogates.

    Line and paragraph separators go as well: a chart's title becomes part of a program that they would break.
    """
    text = str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _CONTROL.sub("\ufffd", text)


def short(value: object) -> str:
    """A name that came with the data, as text and not endless."""
    text = clean(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def share(value: float | None) -> str:
    """A probability in percent with three digits, never rounded to certainty."""
    if value is None or math.isnan(value):
        return "unknown"
    if 0.999 < value < 1:
        return ">\u00a099.9\u00a0%"
    return f"{100 * value:.3g}\u00a0%"


def epsilon(value: float | None) -> str:
    """An ε: four digits, ∞ for an infinite or missing number."""
    return number(math.inf if value is None else float(value))


def whose(neighbours: str | None, unit: str = "record") -> str:
    """Whose ε a number is, e.g. "for replacing one record"; "" where it is not known."""
    if neighbours is None:
        return ""
    return f"for {change(neighbours, unit) or f'{clean(neighbours)} neighbours'}"


def joined(*parts: str) -> str:
    """Parts of a note, those that are there."""
    return "; ".join(part for part in parts if part)


def small(value: float) -> str:
    """A δ or p-value: plain where short, else with a power of ten."""
    return f"{value:.3g}" if value == 0 or value >= 1e-3 else f"{value:.3g}".replace("e-0", "e-")


def label(key: object) -> str:
    """A key of a mapping as words."""
    text = " ".join(_WORDS.get(word, word) for word in short(key).replace("_", " ").split(" "))
    return (text[:1].upper() + text[1:]).replace("P value", "p-value")


def value(item: Any) -> str:
    """A value of the metadata on one line."""
    if item is None or item == "":
        return NOT_STATED
    if isinstance(item, (bool, np.bool_)):
        return "yes" if item else "no"
    if isinstance(item, (float, np.floating)):
        return f"{float(item):.6g}"
    if isinstance(item, np.ndarray):
        item = item.tolist()
    if isinstance(item, (list, tuple)):
        shown = ", ".join(value(v) for v in item[:12])
        return f"{shown}, … ({len(item)} values)" if len(item) > 12 else shown or "none"
    if isinstance(item, Mapping):
        return "; ".join(f"{short(k)} = {value(v)}" for k, v in list(item.items())[:12]) or "none"
    return short(item)


def rows(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """A mapping as (name, text) rows, one level of nesting opened."""
    found: list[tuple[str, str]] = []
    for key, item in values.items():
        if isinstance(item, Mapping) and item:
            found += [(f"{label(key)}: {short(k).replace('_', ' ')}", value(v)) for k, v in item.items()]
        else:
            found.append((label(key), value(item)))
    return found


def thousands(number: int) -> str:
    """A whole number with a space between groups of three digits."""
    return f"{number:,}".replace(",", " ")
