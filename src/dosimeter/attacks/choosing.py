"""Which attack to take for how many shadow models, and the check that each record has enough of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, InputError, IntArray

ENOUGH_FOR_LIRA = 16
ENOUGH_FOR_RECORD_VARIANCE = 64
ENOUGH_ON_A_SIDE = 8  # 64 models with fair coins leave hardly any record with fewer


class Need(NamedTuple):
    """The fewest shadow models with (`inside`) and without (`outside`) each record."""

    inside: int
    outside: int


def best_attack(shadows: int) -> str:
    """Name the attack to take with this many shadow models, each with its default options.

    - none: "loss". Nothing calibrates the signal, so expect little power at low false positive rates. - 1 to 15:
    "rmia", offline. One model without a record is enough; at 1 to 4 models it finds several times more members at 0.1 %
    false positives than LiRA, whose densities are then guesses. - 16 to 63: "lira", online; its variance="auto" is then
    "bayesian". At 16 models it passes RMIA (AUC .81 against .79, TPR .135 against .123 at 0.1 % FPR in a softmax
    regression with 10 classes), while the variance of each record alone is still too noisy (TPR .041). - 64 and more:
    "lira"; variance="auto" takes the variance of each record, as in the paper, which has caught up with the Bayesian
    one by then (TPR .164 against .165).

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


def auto_variance(models: int, inside: IntArray, outside: IntArray, mode: str) -> str:
    """What variance="auto" means: "record" from 64 models, 8 on each side of every record, otherwise "bayesian"."""
    fewest = int(outside.min()) if mode == "offline" else int(min(inside.min(), outside.min()))
    enough = models >= ENOUGH_FOR_RECORD_VARIANCE and fewest >= ENOUGH_ON_A_SIDE
    return "record" if enough else "bayesian"


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
