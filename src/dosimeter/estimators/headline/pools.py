"""A random split into members and non-members of fixed numbers: one model, its members and held-out records.

As for coins, labels are revealed from the inside and teach the test its weights. The hidden records are then tested in
tables, upper ranks against lower ranks (`tables.py`). A swap of a member with a non-member is one replacement, so an
odds ratio of e^ε in a table tests the replace-one ε; for adding or removing one record it is e^{2ε}.
Everything below works on the log odds ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.estimators.headline.coins import CELLS
from dosimeter.estimators.headline.learning import ACTIVE, BOTH, IN, KINDS, OUT, Learner, View
from dosimeter.estimators.headline.ranks import DESIGN, Bins, Proof, nothing, reach
from dosimeter.estimators.headline.tables import (
    ADD_REMOVE,
    REPLACE,
    SIZES,
    DeltaCost,
    Pairing,
    RankTable,
    Tables,
    layouts,
)

_PART = 20  # at most this share of the bins left on a side is revealed at a time
_REFERENCE = 4.0  # hidden records for each tested one that a one-sided leak is compared with
_REFERENCE_SHARE = 0.2  # of all records, at least
_MARGIN = 0.8  # of the limit: how much of it a plan on predicted counts may use
_CHEAP = 0.3  # an allowance of so many standard deviations is taken at once
_LEAK_SHARE = 0.5  # of the level: the most that runs given away by δ may cost
_SIZE_STEPS = (0.5, 1, 2)  # of tables, from one cell to the next
_PLANNED = (0.7, 0.85, 0.95)  # of the first design: from where on its tables must pay for δ
_GRID = 100  # points of the reported log odds ratio in a unit


def pools_bound(
    bins: Bins, delta: float, alpha: float, neighbours: str = REPLACE, *, independent: bool = False
) -> Proof:
    """The largest ε that (ε, δ)-DP is rejected at for these neighbours, at level alpha.

    With `independent` every score comes from a run of its own, and ε is that of the two worlds of a run.
    """
    if bins.records.size < 2:
        return nothing(bins.total)
    if independent:
        neighbours = ADD_REMOVE
    search = _Search.of(bins, delta, alpha, neighbours, independent)
    view, design = search.first()
    frozen = float(design.max())
    plans = search.plans(view, design / DESIGN, planned_at=tuple(share * frozen for share in _PLANNED), chosen={})
    proof, first = nothing(bins.total), True
    for floor, top in pairwise((2 * CELLS).tolist()):
        if top <= proof.epsilon + 1e-9:
            continue
        if floor >= frozen and floor > 0:
            view, design = search.later(view, (floor + top) / 2)
            plans, frozen, first = search.plans(view, design, planned_at=(floor,), chosen=plans), top, False
        start, end = max(floor, proof.epsilon), max(top, frozen) if first else top
        grid = np.arange(round(start * _GRID) + 1, round(end * _GRID) + 1) / _GRID
        if not grid.size:
            continue
        best = max((search.largest(plan, view, grid) for plan in plans.values()), key=lambda p: p.epsilon, default=None)
        if best is None or best.epsilon <= 0:
            break
        proof = best
        if best.epsilon < grid[-1] - 1e-9:
            break
        frozen = max(frozen, float(grid[-1]))
    return proof._replace(epsilon=proof.epsilon if neighbours == REPLACE else proof.epsilon / 2)


class _PoolPlan(NamedTuple):
    """The test of one kind of leak: its tables, its share of the level, and the table size it was made with."""

    tables: Tables
    share: float
    size: int


@dataclass(frozen=True)
class _Search:
    bins: Bins
    learner: Learner
    alpha: float
    cost: DeltaCost
    delta_share: float  # of the level, spent on δ; fixed by the sizes and δ alone
    leaks: int = 0  # independent runs: the members that δ may account for

    @classmethod
    def of(cls, bins: Bins, delta: float, alpha: float, neighbours: str, independent: bool) -> _Search:
        members = int(bins.members.sum())
        nonmembers = bins.total - members
        if independent:
            learner = Learner(bins, members / bins.total)
            leaks, missed = leaks_of(bins.total, delta, alpha)
            return cls(bins, learner, alpha, DeltaCost(0.0, neighbours), missed / alpha, leaks)
        if neighbours == REPLACE:
            cost = DeltaCost(members * nonmembers * delta, neighbours)
            share = float(np.clip(0.1 + 0.2 * math.log10(1 + cost.total), 0.1, 0.5))
        else:
            cost = DeltaCost(min(members, nonmembers) * delta, neighbours, flipped=nonmembers < members)
            share = float(np.clip(2 * math.sqrt(cost.total), 0.02, 0.5))
        learner = Learner(bins, members / bins.total)
        return cls(bins, learner, alpha, cost, share if delta > 0 else 0.0)

    @property
    def pays(self) -> bool:
        """Whether δ takes anything from a test."""
        return self.cost.total > 0 or self.leaks > 0

    def limit(self, share: float) -> float:
        """The most that a unit of δ may cost a test with this share of the level."""
        return self.delta_share * self.alpha * share / self.cost.total

    # --- revealing ----------------------------------------------------------------------------------------

    def first(self) -> tuple[View, FloatArray]:
        """Reveal until the test that can be expected to prove most has what it needs."""
        start = self.learner.view(0, 0)
        upto = np.cumsum(self._information(start.of(BOTH)))
        middle = int(np.clip(np.argmin(np.abs(upto - upto[-1] / 2)) + 1, 1, self.bins.records.size - 1))
        view = self.learner.view(middle, middle)
        while True:
            design = np.array([DESIGN * self._expected(view, kind) if kind in view.tested else 0.0 for kind in KINDS])
            likely = view.chance >= ACTIVE
            following = self._reveal(view, design, likely & (design >= 0.5 * design[likely].max()))
            if following is None:
                return view, design
            view = following

    def later(self, view: View, log_theta: float) -> tuple[View, FloatArray]:
        """Reveal what is of no use to a test at this odds ratio."""
        design = np.full(len(KINDS), log_theta)
        while (following := self._reveal(view, design, view.chance >= ACTIVE)) is not None:
            view = following
        return view, design

    def _information(self, odds: FloatArray) -> FloatArray:
        member = special.expit(odds + self.learner.base)
        return np.asarray(self.bins.records * member * (1 - member))

    def _reveal(self, view: View, design: FloatArray, active: BoolArray) -> View | None:
        """The next view, or None if no more is to be revealed."""
        above, below = self._wanted(view, design, active)
        if not above and not below:
            return None
        left = self.bins.records.size - view.high
        high = min(view.high + max(1, left // _PART), self.bins.records.size - 1) if above else view.high
        low = max(view.low - max(1, view.low // _PART), 1) if below else view.low
        return self.learner.view(low, high)

    def _wanted(self, view: View, design: FloatArray, active: BoolArray) -> tuple[bool, bool]:
        """Whether to reveal the next bin above, and below; the outermost bins always stay hidden."""
        records, low, high = self.bins.records, view.low, view.high
        above, below = high < records.size - 1, low > 1
        upper, lower, reference = records[high:].sum(), records[:low].sum(), _REFERENCE_SHARE * self.bins.total
        if active[BOTH]:
            odds = view.of(BOTH)
            best_low, best_high = self._best_cut(odds, low, high, float(design[BOTH]), float(view.chance[BOTH]))
            apart = odds[high] - odds[low - 1] >= design[BOTH]
            above, below = above and not apart and best_high > high, below and not apart and best_low < low
        if active[IN]:
            odds = view.of(IN)[high:]
            tested = records[high:][odds > design[IN]].sum()
            above = above and not odds[0] > design[IN]
            below = below and not lower - records[low - 1] < max(_REFERENCE * tested, reference)
        if active[OUT]:
            odds = -view.of(OUT)[:low]
            tested = records[:low][odds > design[OUT]].sum()
            below = below and not odds[-1] > design[OUT]
            above = above and not upper - records[high] < max(_REFERENCE * tested, reference)
        return bool(above), bool(below)

    def _best_cut(self, odds: FloatArray, low: int, high: int, log_theta: float, chance: float) -> tuple[int, int]:
        """Where to cut so that one table of all bins outside shows most beyond an odds ratio, in its deviations."""
        expected, records = special.expit(odds + self.learner.base) * self.bins.records, self.bins.records
        upper, above = (np.cumsum(x[high:][::-1])[::-1][None, :] for x in (records, expected))
        lower, below = (np.cumsum(x[:low])[:, None] for x in (records, expected))
        cells = _null_cells(upper, lower, above + below, log_theta)
        beyond = above - cells[0]
        if self.pays:
            start = _null_cells(upper, lower, above + below, _PLANNED[1] * log_theta)
            ends = np.log(start[0] / start[1]), np.log(start[2] / start[3])
            beyond = beyond - self._lost(np.full(beyond.shape, _PLANNED[1] * log_theta), upper, lower, *ends, chance)
        score = beyond * np.sqrt(sum(1 / cell for cell in cells))
        place = np.unravel_index(int(np.argmax(score)), score.shape)
        return int(place[0]) + 1, high + int(place[1])

    def _expected(self, view: View, kind: int) -> float:
        """The log odds ratio that a kind of leak can be expected to prove."""
        records, odds, base = self.bins.records.astype(float), view.of(kind), self.learner.base
        upper, lower = slice(view.high, None), slice(0, view.low)
        if kind == BOTH:
            centre = 0.5 * (odds[view.high] + odds[view.low - 1])
            sign = np.concatenate([np.ones(odds[upper].size), -np.ones(view.low)])
            leaning = sign * (np.concatenate([odds[upper], odds[lower]]) - centre)
            counts = np.concatenate([records[upper], records[lower]])

            def both(grid: FloatArray, weight: FloatArray, n: FloatArray, sign: FloatArray) -> FloatArray:
                used = (weight > 0) * n
                a, b = (used * (sign > 0)).sum(1), (used * (sign < 0)).sum(1)
                ends = centre + base + grid / 2, centre + base - grid / 2
                return self._lost(grid, a, b, *ends, float(view.chance[kind])) * 2 * weight.max(1)

            lost = both if self.pays else None
            return reach(counts, leaning, sign, sign * (centre + base), lost=lost, two_sided=True)
        side, guess = (upper, 1.0) if kind == IN else (lower, -1.0)
        hidden = float(records[upper].sum() + records[lower].sum())

        def one(grid: FloatArray, weight: FloatArray, n: FloatArray, _sign: FloatArray) -> FloatArray:
            used = ((weight > 0) * n).sum(1)
            sizes = (used, hidden - used) if kind == IN else (hidden - used, used)
            ends = (base + grid, base + 0 * grid) if kind == IN else (base + 0 * grid, base - grid)
            return self._lost(grid, *sizes, *ends, float(view.chance[kind])) * weight.max(1)

        counts = records[side]
        signs = np.full(counts.size, guess)
        return reach(counts, guess * odds[side], signs, signs * base, lost=one if self.pays else None)

    def _lost(
        self,
        grid: FloatArray,
        upper: FloatArray,
        lower: FloatArray,
        above: FloatArray,
        below: FloatArray,
        chance: float,
    ) -> FloatArray:
        """About how many members of one table an allowance for δ takes; `above` and `below` are log-odds."""
        if self.leaks:
            return np.full(grid.shape, float(self.leaks))
        upper, lower = np.maximum(upper, 1e-9), np.maximum(lower, 1e-9)
        p, q = special.expit(above), special.expit(below)
        spread = 1 / np.sqrt(1 / (upper * p * (1 - p)) + 1 / (lower * q * (1 - q)))
        each = 1.0 if self.cost.neighbours == REPLACE else lower + np.exp(grid / 2) * upper
        step = 0.63 * np.maximum(spread, 0.5) / (upper * p * lower * (1 - q)) * each
        slope = each / (np.exp(grid) * (upper * (1 - p) + lower * q) + lower * (1 - q) + upper * p)
        limit = _MARGIN * self.limit(chance)
        return np.where(step <= limit, 0.0, slope / limit)

    # --- testing ------------------------------------------------------------------------------------------

    def plans(
        self, view: View, design: FloatArray, *, planned_at: tuple[float, ...], chosen: Mapping[int, _PoolPlan]
    ) -> dict[int, _PoolPlan]:
        """The test of each kind; no label of a tested record has a part in the choice of its tables or allowance."""
        found = {}
        for kind in view.tested:
            before = chosen.get(kind)
            sizes = (
                SIZES if before is None else tuple(max(round(before.size * factor), SIZES[0]) for factor in _SIZE_STEPS)
            )
            plan = self._plan(view, kind, design, sizes if self.pays else SIZES[:1], planned_at)
            if plan is not None:
                found[kind] = plan
        return found

    def _plan(
        self, view: View, kind: int, design: FloatArray, sizes: tuple[int, ...], planned_at: tuple[float, ...]
    ) -> _PoolPlan | None:
        share, best = float(view.shares[kind]), None
        expected = special.expit(view.of(kind) + self.learner.base) * self.bins.records
        for size, pairings in layouts(self.bins, view, kind, design, sizes, self.learner.base):
            allowance, score, lost = 0, 0.0, 0.0
            if self.pays:
                tables = Tables.of([_predicted(pairing, self.bins.records, expected) for pairing in pairings])
                if not tables.rows:
                    continue
                for start in planned_at:
                    allowance = self._allowance(tables, start, share)
                    score, lost = Tables(tables.rows, allowance).score(max(start, float(design[kind])))
                    if best is None or score > best[0] or lost <= _CHEAP:
                        best = (score, size, pairings, allowance)
                    if lost <= _CHEAP:
                        break
                if lost <= _CHEAP:
                    break
            elif best is None:
                best = (score, size, pairings, allowance)
        if best is None:
            return None
        # Kept even if the margins leave nothing to test: they must not decide the sizes of later tables.
        return _PoolPlan(Tables.of([_observed(pairing, self.bins) for pairing in best[2]], best[3]), share, best[1])

    def _allowance(self, tables: Tables, planned_at: float, share: float) -> int:
        if self.leaks:
            return self.leaks * max(row.weight for row in tables.rows)
        return tables.least_allowance(planned_at, self.cost, _MARGIN * self.limit(share))

    def largest(self, plan: _PoolPlan, view: View, grid: FloatArray) -> Proof:
        """The proof of the largest point of the grid that this test rejects; ε = 0 if it rejects none."""
        if not plan.tables.rows:
            return nothing(self.bins.total)
        level = (1 - self.delta_share) * self.alpha * plan.share
        at = _last(grid, lambda log_theta: plan.tables.p_value(log_theta) <= level)
        if self.cost.total > 0:
            limit = self.limit(plan.share)
            while at >= 0 and plan.tables.gamma(float(grid[at]), self.cost) > limit:
                at -= 1
        if at < 0:
            return nothing(self.bins.total)
        rows = plan.tables.rows
        upper, lower = sum(row.upper for row in rows), sum(row.lower for row in rows)
        above = int(sum(row.above for row in rows))
        below = sum(row.members for row in rows) - above
        learned = int(self.bins.records[view.low : view.high].sum())
        return Proof(float(grid[at]), upper, above, lower, below, learned, plan.tables.allowance)


def _null_cells(upper: FloatArray, lower: FloatArray, members: FloatArray, log_theta: float) -> tuple[FloatArray, ...]:
    """Members and non-members above, then below, that tables are expected to hold at an odds ratio."""
    theta = math.exp(log_theta)
    b, c = theta * (upper + members) + lower - members, theta * upper * members
    mean = 2 * c / (b + np.sqrt(np.maximum(b * b - 4 * (theta - 1) * c, 0.0)))
    cells = (mean, upper - mean, members - mean, lower - members + mean)
    return tuple(np.maximum(cell, 0.5) for cell in cells)


def leaks_of(records: int, delta: float, alpha: float) -> tuple[int, float]:
    """How many of so many independent runs δ may give away, and the chance that it gives away more.

    A run of an (ε, δ)-DP mechanism tells its world with probability δ and is ε-DP otherwise (Kairouz, Oh and Viswanath
    2015), so the number of runs that tell is Binomial(records, δ).
    """
    leaks = 0
    while (missed := float(special.bdtrc(leaks, records, delta))) > _LEAK_SHARE * alpha:
        leaks += 1
    return leaks, missed


def _last(grid: FloatArray, holds: Callable[[float], bool]) -> int:
    """The last point of a grid that a condition holds at, −1 if none; it holds up to there."""
    if not holds(float(grid[0])):
        return -1
    low, high = 0, grid.size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(float(grid[middle])) else (low, middle)
    return low


def _observed(pairing: Pairing, bins: Bins) -> RankTable:
    upper, lower = pairing.upper, pairing.lower
    above, below = int(bins.members[upper].sum()), int(bins.members[lower].sum())
    records = int(bins.records[upper].sum()), int(bins.records[lower].sum())
    return RankTable(*records, above + below, above, pairing.weight)


def _predicted(pairing: Pairing, records: IntArray, expected: FloatArray) -> RankTable:
    """The table as the revealed labels predict it."""
    upper, lower = int(records[pairing.upper].sum()), int(records[pairing.lower].sum())
    above = float(expected[pairing.upper].sum())
    members = round(above + float(expected[pairing.lower].sum()))
    return RankTable(upper, lower, min(max(members, 1), upper + lower - 1), above, pairing.weight)
