"""Attacks that regulators ask about, each on records that were in and on a control of records that were not.

Only the difference between both is about the individual; the rest is what the release tells of the population, which
is what it is for. The control is drawn by the same coins, or held out by the same random split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.audits.synthetic.nearest import Nearest, nearest
from dosimeter.audits.synthetic.result import CopyCounts, Criterion, Disclosure
from dosimeter.audits.synthetic.rows import Numbers, Rows, Words
from dosimeter.audits.synthetic.space import Space, hashes
from dosimeter.estimators.limits import clopper_pearson_limits

MOST_TRIED = 2000  # records of either kind for attacks that look for neighbours again
QUERIES, COLUMNS_OF_QUERY = 500, 3
TOLERANCE = 0.05  # of the range of the middle 90 % of numbers: a guess this near is right
PAIRS = 20
NEAR = 0.01  # of the median distance between a record and the nearest other record

SINGLING_OUT, LINKABILITY, INFERENCE = "singling out", "linkability", "inference"
_NEEDS = {
    SINGLING_OUT: "a table, and queries that match one published row alone",
    LINKABILITY: "a table of at least two columns",
    INFERENCE: "a secret column of numbers, dates or words, and others to guess it from",
}


@dataclass(frozen=True, eq=False)
class Ground:
    """A release and the records around it: those that were in, and those that were not, as rows of one pool."""

    space: Space
    pool: Rows
    release: Rows
    inside: IntArray
    outside: IntArray
    confidence: float
    seed: int
    workers: int | None
    persons: IntArray | None = None  # behind each record of the pool

    def tried(self) -> tuple[IntArray, IntArray]:
        """Some records of either kind, at random, at most one of each person."""
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, 11]))
        some = []
        for side in (self.inside, self.outside):
            order = rng.permutation(side)
            if self.persons is not None:
                order = order[np.sort(np.unique(self.persons[order], return_index=True)[1])]
            some.append(np.sort(order[:MOST_TRIED]))
        return some[0], some[1]


def disclosure(inside: BoolArray, outside: BoolArray, confidence: float, *, exact: bool = True) -> Disclosure:
    """The rates of success on both sides, a limit of their difference, and the exact test that there is none.

    Where one coin decides about several tries there is no such test: they come together.
    """
    from scipy.stats import hypergeom  # slow to import

    a, b, n, m = int(inside.sum()), int(outside.sum()), inside.size, outside.size
    share = (1 - confidence) / 2  # each of the two limits may miss with half of what is left
    low = float(clopper_pearson_limits(np.array([a]), np.array([n]), share)[0][0])
    high = float(clopper_pearson_limits(np.array([b]), np.array([m]), share)[1][0])
    p_value = float(hypergeom.sf(a - 1, n + m, a + b, n))
    return Disclosure(a, n, b, m, a / n - b / m, low - high, min(1.0, p_value) if exact else None)


def not_stated(criteria: Sequence[Criterion]) -> list[str]:
    """A sentence for each criterion of the regulators that has no number."""
    stated = {one.criterion for one in criteria}
    return [
        f"{name}: nothing can be stated, since it needs {needs}."
        for name, needs in _NEEDS.items()
        if name not in stated
    ]


def copies(ground: Ground, distance: FloatArray, usual: float) -> CopyCounts:
    """Records that stand in the release as they are, or nearly, in and out."""
    published, first = np.unique(hashes(ground.release), return_index=True)
    own = hashes(ground.pool)
    at = np.searchsorted(published, own).clip(0, published.size - 1)
    copied = published[at] == own
    inside, outside = copied[ground.inside], copied[ground.outside]
    limit = NEAR * usual
    near = (distance <= limit) & ~copied
    examples = ground.inside[inside][:PAIRS]
    made = disclosure(inside, outside, ground.confidence, exact=ground.persons is None)
    return CopyCounts(
        rows=int(np.isin(hashes(ground.release), own[ground.inside]).sum()),
        inside=made.inside,
        inside_of=made.inside_of,
        outside=made.outside,
        outside_of=made.outside_of,
        near_inside=int(near[ground.inside].sum()),
        near_outside=int(near[ground.outside].sum()),
        near_limit=limit,
        p_value=made.p_value,
        pairs=tuple((int(row), int(first[at[row]])) for row in examples),
    )


def singling_out(ground: Ground) -> Criterion | None:
    """Queries of three columns that match one published row: do they match one record that was in, or one that was not?

    As in anonymeter (Giomi et al. 2023), but the control has as many records as the side that was in.
    """
    pool, release = ground.pool, ground.release
    if pool.kind != "tabular":
        return None
    rng = np.random.default_rng(np.random.SeedSequence([ground.seed, 12]))
    size = min(ground.inside.size, ground.outside.size)
    sides = [rng.choice(side, size, replace=False) for side in (ground.inside, ground.outside)]
    width = min(COLUMNS_OF_QUERY, len(pool.columns))
    middles = [
        float(np.nanmedian(c.values)) if isinstance(c, Numbers) and not np.isnan(c.values).all() else 0.0
        for c in release.columns
    ]
    hits: list[tuple[bool, bool]] = []
    for _ in range(4 * QUERIES):
        if len(hits) == QUERIES:
            break
        row = int(rng.integers(len(release)))
        columns = rng.choice(len(pool.columns), width, replace=False)
        tests = [_test(release, int(column), row, middles[column]) for column in columns]
        if _matches(tests, release).sum() == 1:
            matched = _matches(tests, pool)
            hits.append((int(matched[sides[0]].sum()) == 1, int(matched[sides[1]].sum()) == 1))
    if not hits:
        return None
    made = np.array(hits, bool)
    return Criterion(
        SINGLING_OUT,
        f"{len(hits)} queries of {width} columns that match one published row",
        disclosure(made[:, 0], made[:, 1], ground.confidence, exact=False),
    )


def _test(release: Rows, column: int, row: int, middle: float) -> tuple[int, Callable[[Rows], BoolArray]]:
    """What a query asks of one column: the same word, or a number beyond this one on its side of the middle."""
    values = release.columns[column]
    if isinstance(values, Words):
        word = values.levels[values.codes[row]] if values.codes[row] >= 0 else None
        return column, lambda rows: _is_word(rows, column, word)
    value = float(values.values[row])
    if np.isnan(value):
        return column, lambda rows: np.isnan(_numbers(rows, column))
    if value >= middle:
        return column, lambda rows: _numbers(rows, column) >= value
    return column, lambda rows: _numbers(rows, column) <= value


def _numbers(rows: Rows, column: int) -> FloatArray:
    values = rows.columns[column]
    assert isinstance(values, Numbers)
    return values.values


def _is_word(rows: Rows, column: int, word: str | None) -> BoolArray:
    values = rows.columns[column]
    assert isinstance(values, Words)
    code = -1 if word is None else next((i for i, level in enumerate(values.levels) if level == word), -2)
    return np.asarray(values.codes == code)


def _matches(tests: Sequence[tuple[int, Callable[[Rows], BoolArray]]], rows: Rows) -> BoolArray:
    kept = np.ones(len(rows), bool)
    for _, test in tests:
        kept &= test(rows)
    return kept


def linkability(ground: Ground) -> Criterion | None:
    """Two halves of a record's columns: is the same published row the nearest to both?"""
    count = len(ground.pool.columns)
    if ground.pool.kind != "tabular" or count < 2:
        return None
    order = np.random.default_rng(np.random.SeedSequence([ground.seed, 13])).permutation(count)
    halves = np.sort(order[: count // 2]), np.sort(order[count // 2 :])
    linked = []
    for side in ground.tried():
        first, second = (_nearest(ground, side, half).place for half in halves)
        linked.append(first == second)
    made = disclosure(linked[0], linked[1], ground.confidence)
    return Criterion(LINKABILITY, "both halves of the columns lead to the same published row", made)


def _nearest(ground: Ground, side: IntArray, columns: IntArray) -> Nearest:
    asked = ground.space.coordinates(ground.pool.take(side), columns.tolist())
    return nearest(asked, ground.space.coordinates(ground.release, columns.tolist()), workers=ground.workers)


def inference(ground: Ground, secret: int) -> Criterion | None:
    """Guess a column from the others by the nearest published row, beside what is known without the release."""
    pool, field = ground.pool, ground.pool.fields[secret]
    others = np.array([place for place in range(len(pool.columns)) if place != secret], np.int64)
    if not others.size or field.kind == "text":
        return None
    sides = ground.tried()
    right = []
    for side in sides:
        place = _nearest(ground, side, others).place
        right.append(_same(pool.take(side), ground.release.take(place), secret, pool))
    # The same guess from real records that were never in, of which each record is left out by itself.
    known = ground.space.coordinates(pool.take(sides[1]), others.tolist())
    asked = ground.space.coordinates(pool.take(sides[0]), others.tolist())
    baseline = None
    if len(known) > 1:
        by_others = sides[1][nearest(asked, known, workers=ground.workers).place]
        baseline = float(_same(pool.take(sides[0]), pool.take(by_others), secret, pool).mean())
    return Criterion(
        INFERENCE,
        f"{field.name} of the nearest published row, by all other columns",
        disclosure(right[0], right[1], ground.confidence),
        field.name,
        _majority(pool, sides, secret),
        baseline,
    )


def _same(truth: Rows, guess: Rows, column: int, pool: Rows) -> BoolArray:
    """Whether guesses are right: the same word, or a number that is near enough; a missing value is no secret."""
    a, b = truth.columns[column], guess.columns[column]
    if isinstance(a, Words) and isinstance(b, Words):
        names = np.array([*b.levels, "\0missing"])[b.codes]
        return np.asarray((np.array([*a.levels, "\0none"])[a.codes] == names) & (a.codes >= 0))
    assert isinstance(a, Numbers) and isinstance(b, Numbers)
    return np.asarray(np.abs(a.values - b.values) <= _tolerance(pool, column))


def _tolerance(pool: Rows, column: int) -> float:
    low, high = np.nanquantile(_numbers(pool, column), [0.05, 0.95])
    return TOLERANCE * float(high - low)


def _majority(pool: Rows, sides: tuple[IntArray, IntArray], column: int) -> float:
    """The success of guessing the most frequent value of the control for everybody who was in."""
    values = pool.columns[column]
    if isinstance(values, Words):
        seen = np.bincount(values.codes[sides[1]] + 1, minlength=len(values.levels) + 1)[1:]
        return float((values.codes[sides[0]] == int(np.argmax(seen))).mean())
    guess = float(np.nanmedian(values.values[sides[1]]))
    return float((np.abs(values.values[sides[0]] - guess) <= _tolerance(pool, column)).mean())
