"""A commented TOML file to start from: `dosimeter run --init`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import numpy as np

from dosimeter._validate import InputError
from dosimeter.columns import Columns, listed, read_columns
from dosimeter.pipelines.config import TAKES
from dosimeter.pipelines.keys import Key, keys
from dosimeter.records.sources import LABEL_COLUMNS, MOST_WORDS

__all__ = ["template", "template_for"]

_HEAD = """\
# An audit of a training on your own data. Lines without # are settings, the others show what can be set.
# `dosimeter run {name} --dry-run` says how long it takes, `dosimeter run {name}` runs it; stopped, it resumes.
"""
_START = {
    "audit": '"training"',
    "model.sklearn": '"sklearn.ensemble.RandomForestClassifier"',
    "model.options": "{ n_estimators = 50 }",
    "budget.shadows": "16",
    "budget.runs": "100",
    "report.json": '"audit.json"',
}
_OPTIONAL_TABLES = ("recipe.dp",)  # a table that is there switches something on


def template(settings: Mapping[str, str], *, name: str = "audit.toml") -> str:
    """Write every setting with what it means; those in `settings` are set, the others are comments.

    Args:
        settings: Values as TOML by key, e.g. {"data.file": '"patients.csv"'}.
        name: The name of the file that it is for.

    Returns:
        The text of the file.

    >>> "[budget]" in template({"data.file": '"patients.csv"'})
    True
    """
    chosen = {**_START, **settings}
    lines = [_HEAD.format(name=name)]
    for section, found in groupby(keys(), key=lambda key: key.section):
        listed = list(found)
        if section:
            off = section in _OPTIONAL_TABLES and not any(f"{section}.{key.name}" in chosen for key in listed)
            lines.append(f"\n{'# ' if off else ''}[{section}]")
        for key in listed:
            lines += _described(key, chosen.get(f"{section}.{key.name}".lstrip(".")))
    return "\n".join(lines) + "\n"


def template_for(path: Path, *, name: str) -> tuple[str, str]:
    """A template for a file of records, whose label column is found, and what models get for words and gaps in it."""
    columns = read_columns(path, missing=True)
    file = {"data.file": f"'{path.name}'" if "'" not in path.name else f'"{path.name}"'}
    if path.suffix.lower() == ".npz":
        return template(file, name=name), ""
    labels = [column for column in LABEL_COLUMNS if column in columns] or [list(columns)[-1]]
    if '"' in labels[0] or "\n" in labels[0] or "\\" in labels[0]:
        raise InputError(f"{path}: the column {labels[0]!r} has a name that TOML needs escaped; rename it.")
    return template({**file, "data.label": f'"{labels[0]}"'}, name=name), _coded(columns, labels[0])


def _coded(columns: Columns, label: str) -> str:
    """A note on columns of words and on gaps: what the models of a TOML file get instead."""
    features = {column: values for column, values in columns.items() if column != label}
    words = [column for column, values in features.items() if values.dtype.kind not in "biuf"]
    many = [column for column in words if len(set(map(str, features[column].tolist()))) > MOST_WORDS]
    few = [column for column in words if column not in many]
    gaps = [column for column, values in features.items() if values.dtype.kind == "f" and np.isnan(values).any()]

    def told(found: list[str], one: str, several: str, what: str) -> list[str]:
        return [f"{listed(found)} {one if len(found) == 1 else several} {what}"] * bool(found)

    said = told(few, "holds", "hold", "words, and models get a column of 0 and 1 for each word")
    said += told(gaps, "has", "have", "gaps, which get the median and are marked")
    said += told(many, "holds", "hold", f"more than {MOST_WORDS} different words and must be left out or coded")
    return f"{'; '.join(said)}. For another coding set model.command to a script of your own." if said else ""


def _described(key: Key, value: str | None) -> list[str]:
    only = "" if set(key.audits) == set(TAKES) else f"; only for {', '.join(key.audits)}"
    default = "" if key.default == "–" else f"; default: {key.default}"
    said = f"# {key.meaning} ({key.type}{default}{only})"
    return [said, f"{key.name} = {value}" if value is not None else f"# {key.name} = {key.example}"]
