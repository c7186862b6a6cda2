"""Files of scores as people have them: which column is what, and which word means member."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, show
from dosimeter.reading import listed, read_columns

Array = npt.NDArray[Any]

MEMBER_COLUMNS = ("member", "is_member", "membership", "is_train", "in_train", "in_training", "train", "split")
SCORE_COLUMNS = ("score", "scores", "loss", "losses")
YES = ("1", "1.0", "yes", "y", "true", "t", "member", "in", "train", "training")
NO = ("0", "0.0", "no", "n", "false", "f", "non-member", "nonmember", "out", "test", "holdout", "held-out")


@dataclass(frozen=True)
class ColumnNames:
    """The columns that a caller names; what is None is found by its name."""

    score: str | None = None
    loss: str | None = None
    member: str | None = None
    group: str | None = None


class ScoreTable(NamedTuple):
    """Values of members and of non-members, whether they are losses, and the persons behind them."""

    members: Any
    nonmembers: Any
    losses: bool
    groups: tuple[Any, Any] | None


def read_scores(path: str | os.PathLike[str], names: ColumnNames) -> ScoreTable:
    """Read scores or losses: two arrays, or a table with a row for each record.

    Raises:
        InputError: If a column is missing or ambiguous, or a word does not say who is a member.
    """
    columns = read_columns(path)
    if names == ColumnNames():
        for first, second in (("members", "nonmembers"), ("member_losses", "nonmember_losses")):
            if first in columns and second in columns:
                return ScoreTable(columns[first], columns[second], "loss" in first, _group_arrays(columns, path))
    value, losses = _value_column(columns, path, names)
    member = _column(columns, path, names.member, MEMBER_COLUMNS, "who is a member", "member")
    values, is_member = check.finite_array(value, columns[value]), membership(member, columns[member])
    if values.size != is_member.size:
        raise InputError(f"{value} has {values.size} rows but {member} has {is_member.size}; they must pair up.")
    if is_member.all() or not is_member.any():
        given = show(columns[member].tolist()[0])
        raise InputError(f"{path}: {member} is {given} in every row; both kinds of records are needed.")
    group = _find(columns, names.group or "group")
    if group is None and names.group is not None:
        raise _missing(columns, path, names.group, "group")
    ids = None if group is None else columns[group]
    groups = None if ids is None else (ids[is_member], ids[~is_member])
    return ScoreTable(values[is_member], values[~is_member], losses, groups)


def read_coins(path: str | os.PathLike[str]) -> tuple[FloatArray, BoolArray, Any]:
    """Read the scores, the coins and the persons (or None) of one run."""
    columns = read_columns(path)
    score = next((name for usual in ("scores", "score") if (name := _find(columns, usual))), None)
    coin = _find(columns, "included")
    if score is None or coin is None:
        raise InputError(f"{path} must hold scores and included; it holds {listed(columns)}. Rename them.")
    group = _find(columns, "group")
    values = check.finite_array(score, columns[score])
    return values, membership(coin, columns[coin]), None if group is None else columns[group]


def membership(name: str, values: Any) -> BoolArray:
    """Tell who is a member from 0 and 1, or from words such as yes, TRUE or train.

    Args:
        name: What messages call the column.
        values: A flat array of numbers, flags or words.

    Returns:
        True for members.

    Raises:
        InputError: If a value is none of these.

    >>> membership("is_train", np.array(["Yes", "no", "TRUE"])).tolist()
    [True, False, True]
    """
    array = np.asarray(values)
    if array.dtype.kind in "biuf" or array.ndim != 1:
        return check.bits(name, values)
    words = np.array([str(value).strip().lower() for value in array.tolist()])
    yes, no = np.isin(words, YES), np.isin(words, NO)
    unknown = ~(yes | no)
    if unknown.any():
        row = int(np.argmax(unknown))
        raise InputError(
            f"{name} is {show(array.tolist()[row])} in row {row}, which does not say whether the record is a member; "
            "write yes or no, true or false, 1 or 0, train or test, or name another column with --member-column."
        )
    return np.asarray(yes)


def _value_column(columns: Mapping[str, Array], path: object, names: ColumnNames) -> tuple[str, bool]:
    """The column of scores or losses, and whether a low value means member."""
    if names.score is not None and names.loss is not None:
        raise InputError("--score-column and --loss-column are both given; name one column.")
    if names.loss is not None:
        return _column(columns, path, names.loss, (), "the losses", "loss"), True
    name = _column(columns, path, names.score, SCORE_COLUMNS, "the scores or losses", "score")
    return name, _is_loss(name)


def _is_loss(name: str) -> bool:
    """Whether a name says that low values mean member; minus a loss is a score."""
    spelled = name.lower()
    return "loss" in spelled and not any(word in spelled for word in ("neg", "minus"))


def _column(
    columns: Mapping[str, Array], path: object, given: str | None, usual: tuple[str, ...], what: str, option: str
) -> str:
    """The column that is named, else the first of the usual names; capitals do not matter."""
    for name in (given,) if given is not None else usual:
        found = _find(columns, name)
        if found is not None:
            return found
    if given is not None:
        raise _missing(columns, path, given, option)
    raise InputError(
        f"{path} must hold {what} ({' or '.join(usual)}); it holds {listed(columns)}. Name the column with "
        f"--{option}-column (in Python, {option}=…), or write arrays members and nonmembers."
    )


def _missing(columns: Mapping[str, Array], path: object, name: str, option: str) -> InputError:
    return InputError(f"{path} has no column {show(name)} (--{option}-column); it holds {listed(columns)}.")


def _find(columns: Mapping[str, Array], name: str) -> str | None:
    if name in columns:
        return name
    alike = [column for column in columns if column.strip().lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _group_arrays(columns: Mapping[str, Array], path: object) -> tuple[Any, Any] | None:
    found = [columns.get(name) for name in ("member_groups", "nonmember_groups")]
    if found[0] is None and found[1] is None:
        return None
    if found[0] is None or found[1] is None:
        raise InputError(f"{path} has only one of member_groups and nonmember_groups; pass both or neither.")
    return found[0], found[1]
