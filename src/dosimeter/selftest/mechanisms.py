"""Ways to draw evidence whose true ε is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.evidence import OneRun, Scores, fair_coins
from dosimeter.geometry import epsilon_from_mu

Rng = np.random.Generator
Draw = Callable[[Rng, int], Any]
DELTA = 1e-5


@dataclass(frozen=True)
class Mechanism:
    """A way to draw evidence whose true ε at δ is known.

    `truth` is the ε for adding or removing one record, which is also that of the two worlds of a run; `replaced` the ε
    for replacing one. Where the scores of two records are independent and each has ε, a replacement has 2ε. `roc` is
    the true TPR at an FPR. `draw` takes a generator and a number of records.
    """

    name: str
    delta: float
    truth: float
    draw: Draw
    replaced: float | None = None
    roc: Callable[[float], float] | None = None

    def epsilon(self, neighbours: str | None) -> float:
        """The true ε of the neighbours that an estimate names."""
        if neighbours != "replace":
            return self.truth
        assert self.replaced is not None, f"{self.name} has no truth for replacing a record"
        return self.replaced


class People(NamedTuple):
    """Scores of records, the person or class of each, and two ways to decide who is a member."""

    scores: FloatArray
    ids: IntArray
    coins: BoolArray
    split: BoolArray


class Training(NamedTuple):
    """A function (indices, seed) that trains, and how many records it has."""

    train: Callable[[IntArray, int], Callable[[Any], FloatArray]]
    records: int


# --- independent runs -------------------------------------------------------------------------------------


def _apart(members: Any, nonmembers: Any) -> Scores:
    return Scores(members, nonmembers, independent=True)


def _flipped(rng: Rng, bits: Any, epsilon: float) -> Any:
    """Randomised response: each bit as it is with probability e^ε/(1+e^ε)."""
    return np.where(rng.random(bits.shape) < special.expit(epsilon), bits, ~bits)


def _answers(rng: Rng, n: int, member: bool) -> Any:
    """Randomised response of ε = 1, as scores of 0 and 1."""
    return _flipped(rng, np.full(n, member), 1.0).astype(float)


def _leaky(rng: Rng, n: int, member: bool) -> Any:
    """Randomised response of ε = 1 that, with probability 0.01, tells the truth plainly: exactly (1, 0.01)-DP."""
    sign = 1.0 if member else -1.0
    return np.where(rng.random(n) < 0.01, 3 * sign, 2 * _answers(rng, n, member) - 1)


_ASKED = 0.05


def _told(rng: Rng, member: BoolArray) -> FloatArray:
    """One record in twenty is asked, and a "member" by randomised response of ε = 1 gets one of the highest scores."""
    says = (rng.random(member.size) < _ASKED) & _flipped(rng, member, 1.0)
    return np.asarray(rng.random(member.size) + 2.0 * says)


def _few(rng: Rng, n: int) -> FloatArray:
    """Scores of four values only, so nearly all of them are tied."""
    return rng.integers(0, 4, n).astype(np.float64)


GAUSSIAN_TRUTH = float(epsilon_from_mu(1.0, DELTA))

TWO_SAMPLES = (
    Mechanism("no leak", 0.0, 0.0, lambda r, n: _apart(r.normal(size=n), r.normal(size=n))),
    Mechanism("no leak, ties", 0.0, 0.0, lambda r, n: _apart(_few(r, n), _few(r, n))),
    Mechanism("no leak, unequal pools", 0.0, 0.0, lambda r, n: _apart(r.normal(size=n // 4), r.normal(size=2 * n))),
    Mechanism("Laplace ε=1", 0.0, 1.0, lambda r, n: _apart(r.laplace(1, 1, n), r.laplace(0, 1, n))),
    Mechanism("leaky response (1, 0.01)", 0.01, 1.0, lambda r, n: _apart(_leaky(r, n, True), _leaky(r, n, False))),
    Mechanism("Gaussian μ=1", DELTA, GAUSSIAN_TRUTH, lambda r, n: _apart(r.normal(1, 1, n), r.normal(0, 1, n))),
)


# --- one model, a random split ----------------------------------------------------------------------------


def _silent(members: int, nonmembers: int) -> Draw:
    return lambda rng, _: Scores(rng.normal(size=members), rng.normal(size=nonmembers))


def _bits(rng: Rng, n: int) -> Scores:
    return Scores(_few(rng, n) // 2, _few(rng, n) // 2)


def _split_response(rng: Rng, n: int) -> Scores:
    """Given these scores and how many are members, the labels follow the law that the bound's tables are tested by."""
    return Scores(_answers(rng, n, True), _answers(rng, n, False))


def _split_told(rng: Rng, n: int) -> Scores:
    scores = _told(rng, np.arange(2 * n) < n)
    return Scores(scores[:n], scores[n:])


# The odds ratio between a highest score and any other one.
_TOLD_SPLIT = 1.0 + float(np.log1p(-_ASKED * special.expit(-1.0)) - np.log1p(-_ASKED * special.expit(1.0)))
_SIDE = 208


def _published(records: int, chance: float) -> Draw:
    """With this probability the membership of so many random records is published, else nothing."""

    def draw(rng: Rng, _: int) -> Scores:
        scores = rng.normal(size=2 * _SIDE)
        if rng.random() < chance:
            shown = rng.permutation(2 * _SIDE)[:records]
            scores[shown] += np.where(shown < _SIDE, 20.0, -20.0)
        return Scores(scores[:_SIDE], scores[_SIDE:])

    return draw


def _publication(records: int, chance: float) -> Mechanism:
    """A replacement shows if one of its two records is published: exactly (0, δ)-DP, and more so for add/remove."""
    hidden = (1 - records / (2 * _SIDE)) * (1 - records / (2 * _SIDE - 1))
    name = f"publishes {records} of {2 * _SIDE} records, 1 model in {round(1 / chance)}"
    return Mechanism(name, chance * (1 - hidden), 0.0, _published(records, chance), 0.0)


def _normal_roc(fpr: float) -> float:
    return float(special.ndtr(special.ndtri(fpr) + 1))


SILENT = Mechanism("no leak, 208 + 208", 0.0, 0.0, _silent(208, 208), 0.0, lambda fpr: fpr)
PUBLISHED = _publication(10, 0.2)
LAPLACE = Mechanism(
    "Laplace ε=1, one model", 0.0, 1.0, lambda r, n: Scores(r.laplace(1, 1, n), r.laplace(0, 1, n)), 2.0
)
NORMAL = Mechanism(
    "Gaussian μ=1, one model",
    DELTA,
    GAUSSIAN_TRUTH,
    lambda r, n: Scores(r.normal(1, 1, n), r.normal(0, 1, n)),
    float(epsilon_from_mu(2**0.5, DELTA)),
    _normal_roc,
)
ONE_MODEL = (
    SILENT,
    Mechanism("no leak, 205 + 410", 0.0, 0.0, _silent(205, 410), 0.0),
    Mechanism("no leak, 5 + 5", 0.0, 0.0, _silent(5, 5), 0.0),
    Mechanism("0/1 scores", 0.0, 0.0, _bits, 0.0),
    Mechanism("constant scores", 0.0, 0.0, lambda r, n: Scores(np.ones(n), np.ones(n)), 0.0),
    Mechanism("randomised response ε=1, one model", 0.0, 1.0, _split_response, 2.0),
    LAPLACE,
    PUBLISHED,
    _publication(2 * _SIDE, 0.05),
    Mechanism(
        "leaky response, one model",
        1 - 0.99**2,
        1.0,
        lambda r, n: Scores(_leaky(r, n, True), _leaky(r, n, False)),
        2.0,
    ),
    NORMAL,
    Mechanism("few are told, ε=1, one model", 0.0, 1.0, _split_told, _TOLD_SPLIT),
)


# --- coins ------------------------------------------------------------------------------------------------


def _coins(records: int, groups: Any = None) -> BoolArray:
    """Fair coins as a user throws them: fresh ones."""
    while True:
        bits = fair_coins(records, groups=groups)
        if 0 < bits.sum() < records:
            return bits


def _public_coin(rng: Rng, m: int) -> OneRun:
    """With probability δ one public coin reveals every record at once, else nothing: exactly (0, δ)-DP."""
    bits, scores = _coins(m), rng.normal(size=m)
    return OneRun(np.where(bits, 10.0, -10.0) + scores if rng.random() < 0.03 else scores, bits)


def _response(rng: Rng, m: int) -> OneRun:
    bits = _coins(m)
    return OneRun(np.where(_flipped(rng, bits, 1.0), 1.0, -1.0) + 0.1 * rng.random(m), bits)


def _unrelated(rng: Rng, m: int) -> OneRun:
    return OneRun(rng.normal(size=m), _coins(m))


def _few_told(rng: Rng, m: int) -> OneRun:
    bits = _coins(m)
    return OneRun(_told(rng, bits), bits)


def _noisy(rng: Rng, m: int) -> OneRun:
    bits = _coins(m)
    return OneRun(rng.normal(bits, 1.0), bits)


ONE_RUN = (
    Mechanism("no leak", 0.0, 0.0, _unrelated),
    Mechanism("randomised response ε=1", 0.0, 1.0, _response),
    Mechanism("public coin (0, 0.03)", 0.03, 0.0, _public_coin),
    Mechanism("Gaussian μ=1", DELTA, GAUSSIAN_TRUTH, _noisy),
    Mechanism("few are told, ε=1", 0.0, 1.0, _few_told),
)
COINS = ONE_RUN[:3]
RUNS = (ONE_RUN[0], ONE_RUN[1], ONE_RUN[3])  # independent runs: a public coin across them is another design


# --- persons, classes, trainings --------------------------------------------------------------------------


def _people(shift: float) -> Draw:
    """200 persons with 10 records each, which are nearly copies of each other."""

    def draw(rng: Rng, _: int) -> People:
        ids = np.repeat(np.arange(200), 10)
        coins, split = _coins(ids.size, ids), (rng.permutation(200) < 100)[ids]
        noise = rng.laplace(size=200)[ids]
        if shift:  # the coins alone decide who is in, so the split must be theirs
            split = coins
        return People(noise + shift * coins, ids, coins, split)

    return draw


def _classes(rng: Rng, n: int) -> People:
    """Records of several classes, about 60 of each kind in a class."""
    ids = rng.integers(0, max(2, n // 60), 2 * n)
    return People(rng.normal(size=2 * n), ids, _coins(2 * n), rng.permutation(2 * n) < n)


def _laplace_training(epsilon: float) -> Draw:
    """The output for each record is Laplace noise of its own, moved by ε if the record is in: exactly ε."""

    def draw(_: Rng, n: int) -> Training:
        def train(indices: IntArray, seed: int) -> Callable[[Any], FloatArray]:
            outputs = np.random.default_rng(seed).laplace(size=n)
            outputs[indices] += epsilon
            return lambda records: outputs

        return Training(train, n)

    return draw


PEOPLE = (
    Mechanism("no leak, 200 persons × 10 records", 0.0, 0.0, _people(0.0), 0.0),
    Mechanism("Laplace ε=1 for a person", 0.0, 1.0, _people(1.0), 2.0),
)
CLASSES = (Mechanism("no leak, in classes", 0.0, 0.0, _classes, 0.0),)
TRAININGS = (
    Mechanism("training without a leak", 0.0, 0.0, _laplace_training(0.0)),
    Mechanism("training with Laplace ε=1", 0.0, 1.0, _laplace_training(1.0)),
)
