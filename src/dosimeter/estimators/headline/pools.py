"""A random split into members and non-members of fixed numbers: one model, its members and held-out records.

As for coins, labels are revealed from the inside and teach the test its weights. The hidden records are then tested in
tables, upper ranks against lower ranks (`tables.py`), and for few strong leakers in rungs: so many outermost records
against all other hidden ones, each rung a table of its own (docs/headline.md, Theorem 6b). A swap of a member with a
non-member is one replacement, so an odds ratio of e^ε in a table tests the replace-one ε; for adding or removing one
record it is e^{2ε}. Everything below works on the log odds ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import BoolArray, FloatArray
from dosimeter.estimators.headline.coins import CELLS
from dosimeter.estimators.headline.ladder import LIMITS, kept
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
    leaks_of,
    null_cells,
    threshold,
)

_PART = 20  # at most this share of the bins left on a side is revealed at a time
_REFERENCE = 4.0  # hidden records for each tested one that a one-sided leak is compared with
_REFERENCE_SHARE = 0.2  # of all records, at least
# Of the limit, how much a plan on predicted counts may use; half as much where one label is scarce.
_MARGINS = {REPLACE: 0.95, ADD_REMOVE: 0.8}
_RARE = 2.0  # expected rare labels on either side of a table
_SCARCE = 400  # members, or non-members: with fewer, tables may hold fewer of them, but are predicted less well
_GAIN = 0.1  # standard deviations that a new test must be expected to gain: it costs what it reveals
_SIZE_STEPS = (0.5, 1, 2)  # of tables, from one cell to the next
_COARSER = 0.2  # standard deviations that larger tables must be expected to gain over smaller ones that δ costs nothing
_PLANNED = 0.85  # of an odds ratio: where a cut is asked what δ takes from it
_STEPS = (0.4, 0.7, 1.0)  # of the first design
_HALVINGS = 14  # of the range of log-odds, to find where they are centred
RUNG_SHARES = (0.6, 0.12, 0.1, 0.07, 0.05, 0.03, 0.03)  # of the level of few leakers
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
    cells = 2 * CELLS
    frozen = float(cells[np.searchsorted(cells, max(float(design.max()), cells[1]))])
    proof, plan = search.below(view, float(design[BOTH]) / DESIGN, frozen)
    for floor, top in pairwise(cells.tolist()):
        if top <= proof.epsilon + 1e-9:
            continue
        best, grid = nothing(bins.total), _grid(floor, top)
        if floor >= frozen:
            view, plan = search.following(view, plan, floor, top)
            best = search.largest(plan, view, grid)
        if best.epsilon < top - 1e-9:
            rungs = (search.largest_of_rung(rung, view, grid) for rung in search.rungs(view, top))
            best = max((best, *rungs), key=lambda found: found.epsilon)
        if best.epsilon > proof.epsilon:
            proof = best
        if best.epsilon < top - 1e-9:
            break
    return proof._replace(epsilon=proof.epsilon if neighbours == REPLACE else proof.epsilon / 2)


class _PoolPlan(NamedTuple):
    """The test of what the middle can teach: its tables, their least size, and what is taken off the count for δ."""

    pairings: list[Pairing]
    size: int
    allowance: int
    share: float  # of the level


class _Rung(NamedTuple):
    """One table of outermost records at an end against all other hidden ones, and its share of the level."""

    table: RankTable
    share: float


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
            share = float(np.clip(0.02 + 0.28 * math.log10(1 + cost.total), 0.02, 0.5))
        else:
            cost = DeltaCost(min(members, nonmembers) * delta, neighbours, flipped=nonmembers < members)
            share = float(np.clip(1.4 * math.sqrt(cost.total), 0.02, 0.5))
        learner = Learner(bins, members / bins.total)
        return cls(bins, learner, alpha, cost, share if delta > 0 else 0.0)

    @property
    def plenty(self) -> float:
        """How plentiful the rarer label is, up to 1: a function of the sizes alone."""
        members = int(self.bins.members.sum())
        return min(max(min(members, self.bins.total - members) / _SCARCE, 0.25), 1.0)

    @property
    def margin(self) -> float:
        """How much of the limit a plan on predicted counts may use."""
        return _MARGINS[self.cost.neighbours] * max(self.plenty, 0.5)

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

    def below(self, view: View, design: float, top: float) -> tuple[Proof, _PoolPlan | None]:
        """What is proven up to the first design, in a few steps, and the test of the last one.

        The tables of each step pay for δ from its own odds ratio on: the larger that is, the smaller they may be.
        """
        proof, plan = nothing(self.bins.total), None
        for floor, above in pairwise((0.0, *(top * part for part in _STEPS))) if self.pays else ((0.0, top),):
            plan, grid = self.plan(view, design, planned_at=max(floor, above / 2)), _grid(floor, above)
            best = self.largest(plan, view, grid)
            proof = max(proof, best, key=lambda found: found.epsilon)
            if best.epsilon < grid[-1]:
                break
        return proof, plan

    def following(self, view: View, plan: _PoolPlan | None, floor: float, top: float) -> tuple[View, _PoolPlan | None]:
        """The test of a later cell: the one there is, unless one of fewer bins is expected to show more."""
        middle, expected = (floor + top) / 2, -math.inf
        if plan is not None and BOTH in view.tested:
            expected = self._score(plan, view, top)
        if plan is not None and expected >= 0:  # else there is more to learn than to lose
            low, high = self._cut(view, middle)
            ahead = self.plan(view._replace(low=low, high=high), middle, planned_at=floor, size=plan.size)
            if ahead is None or self._score(ahead, view, top) <= expected + _GAIN:
                return view, plan
        while (following := self._reveal(view, np.full(len(KINDS), middle), view.chance >= ACTIVE)) is not None:
            view = following
        return view, self.plan(view, middle, planned_at=floor, size=None if plan is None else plan.size)

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
            best_low, best_high = self._cut(view, float(design[BOTH]))
            above, below = above and best_high > high, below and best_low < low
        if active[IN]:
            odds = view.of(IN)[high:]
            tested = max(records[high:][odds > design[IN]].sum(), kept(self.bins.total))
            above = above and not odds[0] > design[IN] and upper > kept(self.bins.total)
            below = below and not lower - records[low - 1] < max(_REFERENCE * tested, reference)
        if active[OUT]:
            odds = -view.of(OUT)[:low]
            tested = max(records[:low][odds > design[OUT]].sum(), kept(self.bins.total))
            below = below and not odds[-1] > design[OUT] and lower > kept(self.bins.total)
            above = above and not upper - records[high] < max(_REFERENCE * tested, reference)
        return bool(above), bool(below)

    def _cut(self, view: View, log_theta: float) -> tuple[int, int]:
        """The bins that a test at this odds ratio has a use for: below the first number, from the second one on.

        The closest law that allows no more has its log-odds clipped to a range of this length. The range lies where as
        many members are lost above it as are gained below it, since their number is fixed.
        """
        odds, base, records, low, high = view.of(BOTH), self.learner.base, self.bins.records, view.low, view.high
        above, below = special.expit(odds[high:] + base), special.expit(odds[:low] + base)
        least, most = float(odds.min()), float(odds.max())
        for _ in range(_HALVINGS):
            centre = (least + most) / 2
            top, bottom = special.expit(centre + base + log_theta / 2), special.expit(centre + base - log_theta / 2)
            lost = records[high:] @ np.maximum(above - top, 0.0) - records[:low] @ np.maximum(bottom - below, 0.0)
            least, most = (centre, most) if lost > 0 else (least, centre)
        useful = odds[high:] >= least + log_theta / 2, odds[:low][::-1] <= least - log_theta / 2
        if not useful[0].any() and not useful[1].any():  # no cut would do
            return low, high
        skipped = [int(np.argmax(side)) if side.any() else side.size - 1 for side in useful]
        best = low - skipped[1], high + skipped[0]
        sizes = records[best[1] :].sum(), records[: best[0]].sum()
        start, chance = _PLANNED * log_theta, float(view.chance[BOTH])
        above, below = (np.array(least + base + end * start / 2) for end in (1, -1))
        free = not self.pays or self._lost(np.array(start), *sizes, above, below, chance) <= 0
        return best if free else self._costly_cut(view, log_theta)

    def _costly_cut(self, view: View, log_theta: float) -> tuple[int, int]:
        """Where to cut so that one table of all bins outside shows most beyond an odds ratio and what δ takes."""
        odds, low, high, chance = view.of(BOTH), view.low, view.high, float(view.chance[BOTH])
        if odds[high] - odds[low - 1] >= log_theta:
            return low, high
        expected, records = special.expit(odds + self.learner.base) * self.bins.records, self.bins.records
        upper, above = (np.cumsum(x[high:][::-1])[::-1][None, :] for x in (records, expected))
        lower, below = (np.cumsum(x[:low])[:, None] for x in (records, expected))
        cells = null_cells(upper, lower, above + below, log_theta)
        start = null_cells(upper, lower, above + below, _PLANNED * log_theta)
        ends = np.log(start[0] / start[1]), np.log(start[2] / start[3])
        lost = self._lost(np.full(cells[0].shape, _PLANNED * log_theta), upper, lower, *ends, chance)
        beyond = above - cells[0] - lost
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
        counts = records[side]
        signs = np.full(counts.size, guess)

        def one(grid: FloatArray, weight: FloatArray, _n: FloatArray, _sign: FloatArray) -> FloatArray:
            return np.asarray(self.leaks * weight.max(1))  # δ of a split costs one table next to nothing

        return reach(counts, guess * odds[side], signs, signs * base, lost=one if self.leaks else None)

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
        limit = self.margin * self.limit(chance)
        return np.where(step <= limit, 0.0, slope / limit)

    # --- testing ------------------------------------------------------------------------------------------

    def plan(self, view: View, design: float, *, planned_at: float, size: int | None = None) -> _PoolPlan | None:
        """The test that is expected to show most beyond a design; no label of a tested record has a part in it.

        Its tables pay for δ from the odds ratio `planned_at` on. Their least size is near `size` if it is given.
        """
        if BOTH not in view.tested:
            return None
        sizes = SIZES if size is None else tuple(max(round(size * by), SIZES[0]) for by in _SIZE_STEPS)
        share, best, most = float(view.shares[BOTH]), None, -math.inf
        base, rare = self.learner.base, _RARE * self.plenty
        for least, pairings in layouts(self.bins, view, design, sizes, base, rare):
            plan = _PoolPlan(pairings, least, 0, share)
            tables = self._predicted(plan, view)
            if not tables.rows:
                continue
            if self.pays:
                plan = plan._replace(allowance=self._allowance(tables, planned_at, share))
            score = Tables(tables.rows, plan.allowance).score(max(planned_at, design))
            if best is None or score > most + (0.0 if best.allowance else _COARSER):
                best, most = plan, score
        return best

    def _predicted(self, plan: _PoolPlan, view: View) -> Tables:
        """The tables of a plan as the revealed labels predict them."""
        records, rows = self.bins.records, []
        expected = special.expit(view.of(BOTH) + self.learner.base) * records
        for pairing in plan.pairings:
            upper, lower = int(records[pairing.upper].sum()), int(records[pairing.lower].sum())
            above = float(expected[pairing.upper].sum())
            members = round(above + float(expected[pairing.lower].sum()))
            rows.append(RankTable(upper, lower, min(max(members, 1), upper + lower - 1), above, pairing.weight))
        return Tables.of(rows, plan.allowance)

    def _score(self, plan: _PoolPlan, view: View, log_theta: float) -> float:
        return self._predicted(plan, view).score(log_theta)

    def rungs(self, view: View, top: float) -> Iterator[_Rung]:
        """Tests of few leakers at one end: so many outermost hidden records against all other hidden ones.

        A rung is the least number of records that reject the upper edge of a cell with so few wrong guesses.
        """
        records, members = self.bins.records, self.bins.members
        hidden = self.bins.total - int(records[view.low : view.high].sum())
        inside = int(members.sum() - members[view.low : view.high].sum())
        for kind in view.tested:
            if kind == BOTH:
                continue
            side = np.arange(records.size - 1, view.high - 1, -1) if kind == IN else np.arange(view.low)
            lengths, found = np.cumsum(records[side]), np.cumsum(members[side])
            likely = inside if kind == IN else hidden - inside
            miss = (hidden - likely) / (likely * math.exp(top) + hidden - likely) if likely else 1.0
            for limit, part in zip(LIMITS.tolist(), RUNG_SHARES, strict=True):
                share = float(view.shares[kind]) * part
                enough = special.bdtr(limit + self.leaks, lengths, miss) <= self._level(share)
                for near, seen in zip(lengths[enough].tolist(), found[enough].tolist(), strict=True):
                    upper, above = (near, seen) if kind == IN else (hidden - near, inside - seen)
                    rung = _Rung(RankTable(upper, hidden - upper, inside, above, 1), share)
                    if self._affords(rung, top):
                        yield rung
                        break

    def _affords(self, rung: _Rung, log_theta: float) -> bool:
        """Whether a rung pays for δ at this odds ratio; its margins are those of all hidden records, known before."""
        if self.cost.total <= 0:
            return True
        factor = threshold(rung.table, math.exp(log_theta), self._level(rung.share))[1]
        return factor * self.cost.of(rung.table, log_theta) <= self.limit(rung.share)

    def largest_of_rung(self, rung: _Rung, view: View, grid: FloatArray) -> Proof:
        """The proof of the largest point of the grid that a rung rejects; ε = 0 if it rejects none."""
        level, above = self._level(rung.share), int(rung.table.above) - self.leaks
        at = _last(grid, lambda log_theta: above >= threshold(rung.table, math.exp(log_theta), level)[0])
        while at >= 0 and not self._affords(rung, float(grid[at])):
            at -= 1
        return self._proof(float(grid[at]), (rung.table,), view, self.leaks) if at >= 0 else nothing(self.bins.total)

    def _allowance(self, tables: Tables, planned_at: float, share: float) -> int:
        if self.leaks:
            return self.leaks * max(row.weight for row in tables.rows)
        return tables.least_allowance(planned_at, self.cost, self.margin * self.limit(share))

    def _level(self, share: float) -> float:
        """What δ leaves of the level for a test with this share."""
        return (1 - self.delta_share) * self.alpha * share

    def largest(self, plan: _PoolPlan | None, view: View, grid: FloatArray) -> Proof:
        """The proof of the largest point of the grid that this test rejects; ε = 0 if it rejects none."""
        # The margins must not decide the sizes of later tables, so a plan is kept even if they leave nothing to test.
        tables = Tables.of([] if plan is None else [pairing.observed(self.bins) for pairing in plan.pairings])
        if plan is None or not tables.rows:
            return nothing(self.bins.total)
        tables = Tables(tables.rows, plan.allowance)
        level = self._level(plan.share)
        at = _last(grid, lambda log_theta: tables.p_value(log_theta) <= level)
        if self.cost.total > 0:
            limit = self.limit(plan.share)
            while at >= 0 and tables.gamma(float(grid[at]), self.cost, limit) > limit:
                at -= 1
        if at < 0:
            return nothing(self.bins.total)
        return self._proof(float(grid[at]), tables.rows, view, tables.allowance)

    def _proof(self, log_theta: float, rows: Sequence[RankTable], view: View, allowance: int) -> Proof:
        upper, lower = sum(row.upper for row in rows), sum(row.lower for row in rows)
        above = int(sum(row.above for row in rows))
        below = sum(row.members for row in rows) - above
        learned = int(self.bins.records[view.low : view.high].sum())
        return Proof(log_theta, upper, above, lower, below, learned, allowance)


def _grid(floor: float, top: float) -> FloatArray:
    """The points above one log odds ratio and up to another that may be reported."""
    return np.arange(round(floor * _GRID) + 1, round(top * _GRID) + 1) / _GRID


def _last(grid: FloatArray, holds: Callable[[float], bool]) -> int:
    """The last point of a grid that a condition holds at, −1 if none; it holds up to there."""
    if holds(float(grid[-1])):  # most cells are rejected as a whole, or not at all
        return int(grid.size) - 1
    if not holds(float(grid[0])):
        return -1
    low, high = 0, grid.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(float(grid[middle])) else (low, middle)
    return low
