"""Texts with labels: a generator for the texts of each class, and the classes by their shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, show
from dosimeter.datasets.dataset import Array
from dosimeter.generators.protocol import Fitted, Members, check_count, streams
from dosimeter.generators.table import is_absent


@dataclass(frozen=True, eq=False)
class FittedClasses:
    """The classes, their shares among the members, and what has learnt the texts of each."""

    classes: Array
    shares: FloatArray
    texts: tuple[Fitted, ...]

    def sample(self, count: int, *, seed: int) -> tuple[list[str], Array]:
        """Sample `count` texts with their labels: a class by its share, then a text of this class."""
        size = check_count(count)
        pick, *own = streams(seed, 1 + self.shares.size)
        codes = pick.choice(self.shares.size, size, p=self.shares)
        made = np.empty(size, object)
        for code, (fitted, rng) in enumerate(zip(self.texts, own, strict=True)):
            mine = np.flatnonzero(codes == code)
            if mine.size:
                made[mine] = fitted.sample(mine.size, seed=int(rng.integers(1 << 31)))
        return made.tolist(), self.classes[codes]


def fit_classes(
    learn: Callable[[list[str], int], Fitted], members: Members, *, minimum: int, seed: Any
) -> FittedClasses:
    """Fit the texts of each class on their own by `learn(texts, seed)`; a class needs `minimum` members."""
    gone = next((row for row, value in enumerate(members.y.tolist()) if is_absent(value)), None)
    if gone is not None:
        raise InputError(f"the label of members[{gone}] is missing; remove the records without label.")
    classes, codes, counts = np.unique(members.y, return_inverse=True, return_counts=True)
    few = int(np.argmin(counts))
    if counts[few] < minimum:
        raise InputError(
            f"class {show(classes[few].item())} has {counts[few]} members, and the generator needs at least {minimum} "
            "of each class; pass more or leave this class out."
        )
    seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(check.seed(seed)).spawn(classes.size)]
    texts = [[members.X[row] for row in np.flatnonzero(codes == code)] for code in range(classes.size)]
    fitted = tuple(learn(part, number) for part, number in zip(texts, seeds, strict=True))
    return FittedClasses(classes, counts / members.size, fitted)
