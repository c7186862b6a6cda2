"""What the attacks read: signals of targets and shadow models, and who was trained on what. Checked once.

A signal is a number for each record and model that is high for a likely member: the logit-scaled confidence in the
true label, or minus the loss. Matrices are (models, records). They are read in blocks of records and never copied as
a whole, so single precision costs no double.

`sides` makes counts, means and sums of squares of the models with and without each record, block by block;
`without_one` takes each model out of its side in closed form, which is what lets every model be the target once.
`best_attack` says which attack to take for how many shadow models, `require_models` that each record has enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray, matrix

Array = npt.NDArray[Any]
CELLS = 1 << 17  # numbers of one block: its few temporaries stay in the cache
ROUNDING = 16 * float(np.finfo(np.float64).eps)
LOST = 1e-6  # a sum of squares that falls by more than this factor is summed again
ENOUGH_FOR_LIRA = 16


class Signals(NamedTuple):
    """Checked input: target (T, n), shadows (K, n), included (K, n); `flat` when the target was (n,)."""

    target: Array
    shadows: Array
    included: BoolArray
    flat: bool

    def shaped(self, scores: FloatArray) -> FloatArray:
        """Scores (T, n) in the shape in which the target came."""
        return scores[0] if self.flat else scores


def read_signals(target: Any, shadows: Any, included: Any) -> Signals:
    """Check the three arrays of an attack with shadow models against each other."""
    signals, mask = read_shadows(shadows, included, "shadows")
    aims = matrix("target", target)
    if aims.shape[-1] != signals.shape[1]:
        raise InputError(
            f"target has {aims.shape[-1]} records but shadows has {signals.shape[1]}; pass the same records in both."
        )
    return Signals(np.atleast_2d(aims), signals, mask, aims.ndim == 1)


def read_shadows(outputs: Any, included: Any, name: str = "outputs") -> tuple[Array, BoolArray]:
    """Signals (K, n) of many models with the mask of who was trained on what."""
    signals = matrix(name, outputs, dimensions=(2,))
    mask = _mask(included)
    if mask.shape != signals.shape:
        raise InputError(
            f"included has shape {mask.shape} but {name} has {signals.shape}; both must be (models, records)."
        )
    return signals, mask


def _mask(included: Any) -> BoolArray:
    try:
        mask = np.asarray(included)
    except (ValueError, TypeError):
        raise InputError("included must be an array of True and False; its rows have mixed lengths.") from None
    if mask.dtype == np.bool_ and not np.ma.is_masked(included):
        return mask
    numbers = matrix("included", included, dimensions=(2,))
    bad = (numbers != 0) & (numbers != 1)
    if bad.any():
        model, record = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"included[{model}, {record}] is {numbers[model, record]}; included must hold only True and False."
        )
    return numbers.astype(bool)


def blocks(records: int, models: int) -> Iterator[slice]:
    """Slices of records whose matrices of all models hold about `CELLS` numbers."""
    width = max(1, CELLS // max(1, models))
    return (slice(start, min(start + width, records)) for start in range(0, records, width))


# --- moments of both sides --------------------------------------------------------------------------------
class Moments(NamedTuple):
    """Of one side: how many models, their mean, their sum of squared deviations from it; (n,) or (K, n)."""

    models: IntArray
    mean: FloatArray
    squares: FloatArray

    def at(self, part: slice) -> Moments:
        """Those of a block of records."""
        return Moments(self.models[part], self.mean[part], self.squares[part])


def counts(included: BoolArray) -> tuple[IntArray, IntArray]:
    """How many models were trained with and without each record."""
    inside = np.count_nonzero(included, axis=0).astype(np.int64)
    return inside, included.shape[0] - inside


def sides(shadows: Array, included: BoolArray) -> tuple[Moments, Moments]:
    """Moments of every record, with it and without it; a side with no model has mean 0 and squares 0."""
    records = shadows.shape[1]
    found = [Moments(np.empty(records, np.int64), np.empty(records), np.empty(records)) for _ in range(2)]
    for part in blocks(records, shadows.shape[0]):
        for whole, piece in zip(found, block_sides(shadows[:, part], included[:, part]), strict=True):
            for kept, new in zip(whole, piece, strict=True):
                kept[part] = new
    return found[0], found[1]


def block_sides(signals: Array, included: BoolArray) -> tuple[Moments, Moments]:
    """Moments of one block, in two passes around a pivot."""
    pivot = signals[0].astype(np.float64)
    x = np.subtract(signals, pivot, dtype=np.float64)
    weights = included.astype(np.float64)
    inside = _mean(x, weights)
    np.subtract(1.0, weights, out=weights)
    outside = _mean(x, weights)
    x -= np.where(included, inside[1], outside[1])
    x *= x
    outside_squares = np.einsum("kb,kb->b", x, weights)
    np.subtract(1.0, weights, out=weights)
    inside_squares = np.einsum("kb,kb->b", x, weights)
    return (
        Moments(inside[0], inside[1] + pivot, _cleaned(*inside, inside_squares)),
        Moments(outside[0], outside[1] + pivot, _cleaned(*outside, outside_squares)),
    )


def _mean(x: FloatArray, weights: FloatArray) -> tuple[IntArray, FloatArray]:
    count = weights.sum(axis=0).astype(np.int64)
    return count, np.einsum("kb,kb->b", x, weights) / np.maximum(count, 1)


def _cleaned(count: IntArray, mean: FloatArray, squares: FloatArray) -> FloatArray:
    """Squares that are rounding errors of a constant side become 0."""
    return np.where((count <= 1) | (squares <= count * (ROUNDING * mean) ** 2), 0.0, squares)


def without_one(signals: Array, own: BoolArray, side: Moments) -> Moments:
    """Moments (K, B) of one side of a block when model k is left out; `own` says which models are on that side.

    Removing x from n values with mean m leaves the mean m − (x−m)/(n−1) and the squares S − (x−m)² n/(n−1).
    Where little is left of S the difference is all rounding, and the squares are summed again.
    """
    count = side.models - own
    rest = np.maximum(count, 1)
    gap = np.where(own, signals - side.mean, 0.0)
    mean = side.mean - gap / rest
    squares = side.squares - gap * gap * (side.models / rest)
    squares[(count <= 1) | (side.squares == 0)] = 0.0
    lost = own & (count > 1) & (squares < LOST * side.squares)
    if lost.any():
        squares[lost] = _summed_again(signals, own, lost)
    return Moments(count, mean, squares)


def _summed_again(signals: Array, own: BoolArray, lost: BoolArray) -> FloatArray:
    """At most one model of three or more can carry nearly all squares, so there are few such pairs."""
    models, records = np.nonzero(lost)
    weights = own[:, records].astype(np.float64)
    weights[models, np.arange(models.size)] = 0.0
    x = signals[:, records].astype(np.float64)
    x -= x[np.argmax(weights, axis=0), np.arange(models.size)]
    count, mean = _mean(x, weights)
    return _cleaned(count, mean, np.einsum("kb,kb->b", (x - mean) ** 2, weights))


# --- how many shadow models an attack needs ---------------------------------------------------------------
class Need(NamedTuple):
    """The fewest shadow models with (`inside`) and without (`outside`) each record."""

    inside: int
    outside: int


def best_attack(shadows: int) -> str:
    """Name the attack to take with this many shadow models, each with its default options.

    - None: "loss". Nothing calibrates the signal, so expect little power at low false positive rates.
    - 1 to 15: "rmia", offline. One model without a record is enough. With 1 to 4 models it finds several times more
      members at 0.1 % false positives than LiRA, whose densities are then guesses.
    - 16 to 63: "lira", online; its variance="auto" is then "bayesian". With 16 models it passes RMIA (AUC .81 against
      .79, TPR .135 against .123 at 0.1 % FPR in a softmax regression with 10 classes), while the variance of each
      record alone is still too noisy (TPR .041).
    - 64 and more: "lira"; variance="auto" takes the variance of each record, as in the paper, which has caught up with
      the Bayesian one by then (TPR .164 against .165).

    Args:
        shadows: The number of shadow models.

    Returns:
        "loss", "rmia" or "lira".

    Raises:
        InputError: If the number is not a whole number from 0.

    >>> [best_attack(shadows) for shadows in (0, 4, 64)]
    ['loss', 'rmia', 'lira']
    """
    count = check.whole("shadows", shadows, 0, "pass the number of shadow models")
    if count == 0:
        return "loss"
    return "rmia" if count < ENOUGH_FOR_LIRA else "lira"


def enough(need: Need, inside: IntArray, outside: IntArray, *, left_out: bool = False) -> BoolArray:
    """Which records have the shadow models that an attack needs, even when each model is left out once."""
    extra = int(left_out)
    fits = outside >= need.outside + extra if need.outside else np.ones(outside.shape, bool)
    return fits & (inside >= need.inside + extra) if need.inside else fits


def require_models(attack: str, need: Need, inside: IntArray, outside: IntArray, *, left_out: bool = False) -> None:
    """Refuse masks that leave a record without the models the attack needs; name the first such record."""
    bad = np.flatnonzero(~enough(need, inside, outside, left_out=left_out))
    if not bad.size:
        return
    record = int(bad[0])
    extra = int(left_out)
    short_inside = need.inside and inside[record] < need.inside + extra
    found, side = (inside[record], "with") if short_inside else (outside[record], "without")
    sides = "with and without" if need.inside else "without"
    why = ", one of them as the target" if left_out else ""
    others = f" ({bad.size} such records)" if bad.size > 1 else ""
    raise InputError(
        f"{attack} needs at least {need.outside + extra} shadow models {sides} each record{why}; record {record} has "
        f"{int(found)} {side}{others}: train more shadow models or leave these records out."
    )
