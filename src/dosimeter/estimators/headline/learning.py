"""Learning from the revealed labels: a Bayes mixture over a library of shapes of leaks.

A shape is the log-odds ratio of every bin, at its middle rank. The bound holds whatever the library is; only its
tightness rests on it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cache, cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray
from dosimeter.estimators.headline.ranks import Bins

CAP = 14.0  # of every log-odds ratio
_PRIOR = (0.6, 0.28, 0.12)  # learned from the middle; few strong leakers among the members; among the non-members

# Shapes that the middle ranks can teach, and the share of each family.
_GAUSSIAN, _CAPPED, _ONE_SIDED, _WIDTH, _HEAVY, _POWER, _MANY = 0.42, 0.4, 0.04, 0.07, 0.12, 0.02, 0.04
_FINE_DISTANCES = np.geomspace(0.1, 9, 32).tolist()  # an error of 5 % in the distance costs 2 % of the bound
_DISTANCES = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1, 1.25, 1.5, 1.8, 2.2, 2.7, 3.3, 4, 5, 6.5, 9)
_CAPS = np.array([0.25, 0.5, 0.75, 1, 1.4, 2, 3, 4.5, 7])
_ONE_SIDED_CAPS = [(a, b) for a in (0.25, 0.7, 1.4) for b in (3.0, CAP)]
_WIDTHS = (0.5, 0.7, 0.85, 1.2, 1.5, 2)
_WIDTH_DISTANCES = (0, 0.3, 0.6, 1, 1.5, 2.2, 3.3, 5)
_FREEDOMS = (1, 2, 4)
_HEAVY_DISTANCES = (0.4, 0.7, 1, 1.5, 2.2, 3.3, 5)
_SCALES = (1.25, 1.6, 2.2, 3, 4.5, 8)

# Two ends that say nothing of each other.
_APART = 0.05  # of the leaks that the middle can teach
_SLOPES = (0.5, 1, 2, 5, 20)
_HEIGHTS = (0.7, 1.5, 2.5, 4, 6, 9)
_SPACING = 1.6  # of the ranks from which it rises
_OFFSETS = (0.0, 0.25)
_LEVELS = (-0.1, 0.0, 0.1, 0.25, 0.5)  # of an end that does not rise
_FLAT = 0.3  # of the prior of an end
_START_POWER = 0.5

# Few leakers, which the middle says nothing about.
_LEAKER_DISTANCES = (2.0, 4.0, 8.0)
_FEWEST = 8  # leakers
_ENOUGH = 40  # records that leak: fewer prove less, and get less prior
_FEW = 0.06  # of the members: a larger share shows in the middle

_AXIS = np.linspace(-20, 25, 1801)
_NORMAL = special.ndtr(_AXIS)
_LONG_AXIS = np.concatenate([-np.geomspace(1e4, 12, 60), np.linspace(-11.9, 16.9, 1153), np.geomspace(17, 1e4, 60)])
_HALF_AXIS = np.concatenate([np.linspace(0, 1, 200), np.geomspace(1.01, 200, 600)])


class Library(NamedTuple):
    """The shapes of each kind of leak, one row each, and their prior."""

    shapes: tuple[FloatArray, ...]
    prior: tuple[FloatArray, ...]


@lru_cache(maxsize=8)
def library(ranks: tuple[int, ...], share: float) -> Library:
    """All shapes at the middle rank of every bin; `share` is the share of members among the records."""
    edges, total = np.array(ranks), ranks[-1]
    at = np.clip((edges[:-1] + edges[1:]) / (2 * total), 1e-9, 1 - 1e-9)
    fractions = _fractions(min(0.3, _FEWEST / total))
    few = [fraction for fraction in fractions if fraction <= _FEW] or fractions[:1]
    many = [fraction for fraction in fractions if fraction not in few]
    families = [*_learnable(share, at), (_both_ends(many, share, at), _MANY)]
    learned = np.concatenate([shapes for shapes, _ in families])
    prior = np.concatenate([np.full(len(shapes), mass / max(len(shapes), 1)) for shapes, mass in families])
    worth = np.repeat(np.minimum(np.array(few) * total / _ENOUGH, 1.0) ** 2, len(_LEAKER_DISTANCES))
    ends = np.split(_both_ends(few, share, at), 2)
    return Library(
        tuple(np.clip(part, -CAP, CAP) for part in (learned, *ends)),
        (_PRIOR[0] * prior / prior.sum(), *(mass * worth / worth.sum() for mass in _PRIOR[1:])),
    )


def _learnable(share: float, at: FloatArray) -> list[tuple[FloatArray, float]]:
    """Families of shapes that show in the middle, each with its share."""
    gauss = np.stack([_gaussian(mu, 1.0, share, at) for mu in _DISTANCES])
    capped = np.clip(gauss[:, None, :], -_CAPS[None, :, None], _CAPS[None, :, None]).reshape(-1, at.size)
    one_sided = [np.clip(gauss[::2], *ends) for a, b in _ONE_SIDED_CAPS for ends in ((-a, b), (-b, a))]
    powers = [np.stack([_power(r, share, at), -_power(r, 1 - share, 1 - at)]) for r in _SCALES]
    return [
        (np.stack([_gaussian(mu, 1.0, share, at) for mu in _FINE_DISTANCES]), _GAUSSIAN),
        (capped, _CAPPED),
        (np.concatenate(one_sided), _ONE_SIDED),
        (np.stack([_gaussian(mu, sd, share, at) for sd in _WIDTHS for mu in _WIDTH_DISTANCES]), _WIDTH),
        (np.stack([_student(nu, mu, share, at) for nu in _FREEDOMS for mu in _HEAVY_DISTANCES]), _HEAVY),
        (np.concatenate(powers), _POWER),
    ]


def _both_ends(fractions: list[float], share: float, at: FloatArray) -> FloatArray:
    """Leakers among the members, then their mirror images among the non-members."""
    pairs = [(fraction, mu) for fraction in fractions for mu in _LEAKER_DISTANCES]
    inside = [_leakers(*pair, share, at) for pair in pairs]
    outside = [-_leakers(*pair, 1 - share, 1 - at) for pair in pairs]
    return np.array([*inside, *outside]).reshape(-1, at.size)


class EndShapes(NamedTuple):
    """Shapes of one end alone, their prior, and how many of them, the first ones, do not rise."""

    shapes: FloatArray
    prior: FloatArray
    flat: int


@lru_cache(maxsize=16)
def end_shapes(ranks: tuple[int, ...], total: int) -> EndShapes:
    """Shapes of bins from the middle, or beyond it, to an end: flat, or from some rank on rising with its logarithm.

    `ranks` are the edges of the bins, counted from that end.
    """
    edges = np.array(ranks)
    log_rank = np.log(np.clip((edges[:-1] + edges[1:]) / (2 * total), 0.25 / total, 0.5))
    starts = 0.5 / _SPACING ** np.arange(max(math.log(0.5 * total / _FEWEST) / math.log(_SPACING), 1))
    rows = [np.full(log_rank.size, level) for level in _LEVELS]
    prior = [1.0] * len(_LEVELS)
    for start in starts.tolist():
        for slope in _SLOPES:
            rise = slope * np.maximum(math.log(start) - log_rank, 0.0)
            for height in _HEIGHTS:
                if height <= 2 * rise.max():
                    rows += [np.minimum(rise, height) + offset for offset in _OFFSETS]
                    prior += [start**_START_POWER] * len(_OFFSETS)
    if len(rows) == len(_LEVELS):  # so few bins that no shape can rise among them
        rows, prior = [*rows, np.full(log_rank.size, _HEIGHTS[1])], [*prior, 1.0]
    flat, weights = len(_LEVELS), np.array(prior)
    weights[:flat] *= _FLAT / weights[:flat].sum()
    weights[flat:] *= (1 - _FLAT) / weights[flat:].sum()
    return EndShapes(np.array(rows), weights, flat)


def _fractions(first: float) -> list[float]:
    found = [first]
    while (following := found[-1] * 1.7) < 0.6:
        found.append(following)
    return found


def _gaussian(mu: float, width: float, share: float, at: FloatArray) -> FloatArray:
    """Members N(μ, width²), non-members N(0, 1)."""
    pooled = share * special.ndtr((_AXIS - mu) / width) + (1 - share) * _NORMAL
    x = np.interp(at, pooled, _AXIS)
    return np.asarray(x * x / 2 - ((x - mu) / width) ** 2 / 2 - math.log(width))


def _student(freedom: float, mu: float, share: float, at: FloatArray) -> FloatArray:
    """Student's t, shifted by μ for members: the log-odds ratio turns back in the tails."""
    pooled = share * special.stdtr(freedom, _LONG_AXIS - mu) + (1 - share) * special.stdtr(freedom, _LONG_AXIS)
    x = np.interp(at, pooled, _LONG_AXIS)
    return np.asarray((freedom + 1) / 2 * (np.log1p(x * x / freedom) - np.log1p((x - mu) ** 2 / freedom)))


def _power(scale: float, share: float, at: FloatArray) -> FloatArray:
    """Exponential scores, of a larger scale for members: the odds are a power of the rank at one end."""
    pooled = -share * np.expm1(-_HALF_AXIS / scale) - (1 - share) * np.expm1(-_HALF_AXIS)
    return np.asarray(np.interp(at, pooled, _HALF_AXIS) * (1 - 1 / scale) - math.log(scale))


def _leakers(fraction: float, mu: float, share: float, at: FloatArray) -> FloatArray:
    """Members N(0, 1) but for a fraction at N(μ, 1), non-members N(0, 1)."""
    members = (1 - fraction) * _NORMAL + fraction * special.ndtr(_AXIS - mu)
    pooled = share * members + (1 - share) * _NORMAL
    exponent = np.minimum(mu * np.interp(at, pooled, _AXIS) - mu * mu / 2, 30)
    return np.asarray(np.log1p(fraction * np.expm1(exponent)))


# --- the mixture --------------------------------------------------------------------------------------------------

BOTH, IN, OUT = KINDS = (0, 1, 2)  # the leak shows anywhere, at the upper end, at the lower end
_RISING = ((1, 1), (0, 1), (1, 0))  # which of two ends rises, the lower one and the upper one: at least one does
_UNLIKELY = 1e-3  # two ends less likely than this are left out
FLOOR = 0.02  # a kind less likely than this is not tested
ACTIVE = 0.10  # a kind less likely than this does not decide what is revealed
_LEAST = 3.0  # Kullback–Leibler divergence from "no leak" that makes a shape worth prior mass
_POINTS = (
    *(0.0, 0.1, 0.2, 0.35, 0.5, 0.7),
    *np.arange(0.9, 3, 0.3).tolist(),
    *np.arange(3, 6, 0.5).tolist(),
    *(6.0, 8.0, 11.0),
)
_Z, _CHANCE = 1.645, 0.05  # how often what cannot be rejected is rejected all the same
_HOPELESS = 0.01  # what such a shape counts


class View(NamedTuple):
    """What is known when the labels of bins low … high − 1 are revealed.

    `chance` is the probability of each kind of leak; `odds` the predicted log-odds ratio of every bin under it, None
    for a kind that is too unlikely to be tested.
    """

    low: int
    high: int
    chance: FloatArray
    odds: tuple[FloatArray | None, ...]

    def of(self, kind: int) -> FloatArray:
        """The log-odds ratios of a kind that is tested."""
        odds = self.odds[kind]
        assert odds is not None
        return odds

    @property
    def tested(self) -> tuple[int, ...]:
        return tuple(kind for kind in KINDS if self.odds[kind] is not None)

    @property
    def shares(self) -> FloatArray:
        """How the level is divided between the kinds."""
        kept = np.where(self.chance >= FLOOR, self.chance, 0.0)
        return np.asarray(kept / kept.sum())


class _Predictions:
    """What shapes of neighbouring bins predict, with their prior; no label has a part in it."""

    def __init__(self, shapes: FloatArray, prior: FloatArray, records: FloatArray, share: float) -> None:
        self.prior, self._shapes, self._records, self._share = prior, shapes, records, share
        self.log_odds = shapes + math.log(share / (1 - share))
        smaller = np.exp(-np.abs(self.log_odds))
        self.normaliser = np.maximum(self.log_odds, 0.0) + np.log1p(smaller)
        self.member = np.where(self.log_odds > 0, 1.0, smaller) / (1 + smaller)
        self._log_power: dict[int, FloatArray] = {}

    @cached_property
    def divergence(self) -> FloatArray:
        """Kullback–Leibler, from "no leak", over all records."""
        share, p = self._share, self.member
        each = p * (self.log_odds - math.log(share)) - self.normaliser + (p - 1) * math.log1p(-share)
        return np.asarray(each @ self._records)

    @cached_property
    def _leaning(self) -> FloatArray:
        return np.abs(self._shapes)

    @cached_property
    def _right(self) -> FloatArray:
        return np.asarray(special.expit(self._leaning))

    def provable(self, rows: slice, epsilon: float) -> FloatArray:
        """Weights of the shapes for a test at ε: what ε cannot be rejected for need not be tested for."""
        place = min(max(bisect_left(_POINTS, epsilon) - 1, 0), len(_POINTS) - 2)
        between = min(max((epsilon - _POINTS[place]) / (_POINTS[place + 1] - _POINTS[place]), 0.0), 1.0)
        power = (1 - between) * self._power(place)[rows] + between * self._power(place + 1)[rows]
        worth = np.maximum(np.exp(power) - _CHANCE, 0.0) + _HOPELESS
        return np.asarray(worth / worth.max())

    def _power(self, place: int) -> FloatArray:
        """About how likely each shape is to be rejected at one of a few ε, in logarithms."""
        if place not in self._log_power:
            epsilon, q = _POINTS[place], float(special.expit(_POINTS[place]))
            weight = np.maximum(self._leaning - epsilon, 0.0)
            weighed = weight * self._records
            drift = np.einsum("ij,ij->i", weighed, self._right) - q * weighed.sum(1)
            variance = np.einsum("ij,ij->i", weighed, weight) * q * (1 - q)
            self._log_power[place] = special.log_ndtr(drift / np.sqrt(variance + 1e-12) - _Z)
        return self._log_power[place]


@lru_cache(maxsize=8)
def _of_whole(ranks: tuple[int, ...], share: float) -> tuple[_Predictions, list[slice]]:
    """What the library predicts, and which of its shapes are of which kind."""
    shapes, prior = library(ranks, share)
    starts = np.concatenate([[0], np.cumsum([len(part) for part in shapes])])
    kinds = [slice(starts[kind], starts[kind + 1]) for kind in KINDS]
    whole = _Predictions(np.concatenate(shapes), np.concatenate(prior), np.diff(ranks).astype(float), share)
    _prune(whole, kinds)
    return whole, kinds


@lru_cache(maxsize=16)
def _of_end(ranks: tuple[int, ...], total: int, share: float, upper: bool) -> tuple[_Predictions, tuple[slice, slice]]:
    """What shapes of one end predict, and which of them are flat, which rise; `ranks` are counted from that end."""
    end, records = end_shapes(ranks, total), np.diff(ranks).astype(float)
    shapes = end.shapes[:, ::-1] if upper else -end.shapes
    found = _Predictions(shapes, end.prior, records[::-1] if upper else records, share)
    return found, (slice(0, end.flat), slice(end.flat, None))


class _Shapes:
    """What the labels of some neighbouring bins say of their shapes."""

    def __init__(self, predicted: _Predictions, bins: Bins) -> None:
        each = bins.members * predicted.log_odds - bins.records * predicted.normaliser
        self._log_likelihood = np.concatenate([np.zeros((len(each), 1)), np.cumsum(each, 1)], 1)
        with np.errstate(divide="ignore"):
            self._log_prior = np.log(predicted.prior)
        self.member, self.provable = predicted.member, predicted.provable

    def log_weights(self, low: int, high: int) -> FloatArray:
        """Prior times likelihood of the labels of bins low … high − 1, in logarithms."""
        return np.asarray(self._log_prior + self._log_likelihood[:, high] - self._log_likelihood[:, low])


class Learner:
    """A Bayes mixture over the library; `share` is the share of members among the records.

    A leak may also have two ends that say nothing of each other: then each end has a shape of its own, and what is
    revealed above the middle teaches about the upper end alone.
    """

    def __init__(self, bins: Bins, share: float) -> None:
        ranks = tuple(bins.edges.tolist())
        predicted, self._kinds = _of_whole(ranks, share)
        self._whole, self.base = _Shapes(predicted, bins), math.log(share / (1 - share))
        middle = self._middle = int(np.argmin(np.abs(bins.edges[1:-1] - bins.total / 2))) + 1
        from_top = tuple(bins.total - rank for rank in ranks[: middle - 1 : -1])
        below = _of_end(ranks[: middle + 1], bins.total, share, upper=False)
        above = _of_end(from_top, bins.total, share, upper=True)
        parts = [Bins(bins.records[part], bins.members[part]) for part in (slice(middle), slice(middle, None))]
        self._ends = _Shapes(below[0], parts[0]), _Shapes(above[0], parts[1])
        self._strengths = below[1], above[1]

    def view(self, low: int, high: int, design: FloatArray | None = None) -> View:
        """The view when bins low … high − 1 are revealed; no other label has a part in it.

        With a `design`, one ε for each kind, the odds are those of the shapes that can prove as much.
        """
        whole = self._whole.log_weights(low, high)
        lower = self._ends[0].log_weights(min(low, self._middle), min(high, self._middle))
        upper = self._ends[1].log_weights(max(low - self._middle, 0), max(high - self._middle, 0))
        sums = [
            [_log_sum(end[rows]) for rows in both] for end, both in zip((lower, upper), self._strengths, strict=True)
        ]
        apart = np.array([[math.log(_APART) + a + b for b in sums[1]] for a in sums[0]])
        most = max(float(whole.max()), float(apart.max()))
        weight, apart = np.exp(whole - most) * (1 - _APART), np.exp(apart - most)
        chance = np.array([weight[kind].sum() for kind in self._kinds])
        chance[BOTH] += sum(apart[rising] for rising in _RISING)
        odds: list[FloatArray | None] = []
        for kind, rows in enumerate(self._kinds):
            if chance[kind] < FLOOR * chance.sum():
                odds.append(None)
                continue
            epsilon = None if design is None else float(design[kind])
            inner = weight[rows] if epsilon is None else weight[rows] * self._whole.provable(rows, epsilon)
            member, mass = inner @ self._whole.member[rows], float(inner.sum())
            ending = cache(partial(self._end, (lower, upper), epsilon))
            for rising in _RISING if kind == BOTH else ():
                if apart[rising] > _UNLIKELY * chance[BOTH]:
                    ends = [ending(end, rising[end]) for end in (0, 1)]
                    counts = apart[rising] * max(kept for _, kept in ends)
                    member, mass = member + counts * np.concatenate([found for found, _ in ends]), mass + counts
            odds.append(np.clip(special.logit(member / mass) - self.base, -CAP, CAP))
        return View(low, high, chance / chance.sum(), tuple(odds))

    def _end(
        self, log_weights: tuple[FloatArray, FloatArray], epsilon: float | None, which: int, rising: int
    ) -> tuple[FloatArray, float]:
        """The predicted shares of members at one end, and the share of its shapes that can prove as much."""
        end, rows = self._ends[which], self._strengths[which][rising]
        weight = np.exp(log_weights[which][rows] - log_weights[which][rows].max())
        total = weight.sum()
        if epsilon is not None:
            weight *= end.provable(rows, epsilon)
        return weight @ end.member[rows] / weight.sum(), float(weight.sum() / total)


def _log_sum(values: FloatArray) -> float:
    return float(values.max() + np.log(np.exp(values - values.max()).sum()))


def _prune(whole: _Predictions, kinds: list[slice]) -> None:
    """Take the prior of the shapes that so many records cannot prove: they would pull every prediction down."""
    for rows in kinds:
        worth = whole.divergence[rows] >= min(_LEAST, 0.5 * whole.divergence[rows].max())
        kept = np.where(worth, whole.prior[rows], 0.0)
        whole.prior[rows] = kept * (whole.prior[rows].sum() / kept.sum())
