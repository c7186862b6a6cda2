"""Every bound keeps its level on mechanisms whose ε is known; every uncorrected scan is seen to break it.

Coins are fresh, as they are for users, so a test of correct code can fail by chance: each says how often.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from dosimeter import OneRun, Scores, fair_coins, selftest
from dosimeter.audits.model import audit_model
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.ranked import ranked
from dosimeter.selftest import CoverageRow, broken

pytestmark = pytest.mark.slow
FALSE_ALARM = 1e-5  # of each test of a level below, were the level used to the full
Draw = Callable[[np.random.Generator], Scores | OneRun]


@pytest.fixture(scope="module")
def table() -> list[CoverageRow]:
    return list(selftest.rows(trials=16, records=200, seed=11))


def most(trials: int, alpha: float = 0.05) -> int:
    """As many violations as a bound of level alpha has, except with probability FALSE_ALARM."""
    found = np.arange(trials + 1)
    return int(found[special.bdtrc(found, trials, alpha) <= FALSE_ALARM][0])


def generators(trials: int, *key: int) -> Iterator[np.random.Generator]:
    return (np.random.default_rng([trial, *key]) for trial in range(trials))


def violations(draw: Draw, truth: float, trials: int, **arguments: object) -> int:
    return sum(lower_bound(draw(rng), **arguments).low > truth + 1e-9 for rng in generators(trials, 77))


class TestTable:
    """Wrong with probability at most `selftest.FALSE_ALARM` = 0.001, over all rows together."""

    def test_no_valid_bound_breaks_its_level(self, table: list[CoverageRow]) -> None:
        assert broken(table) == []

    def test_every_way_in_is_on_trial(self, table: list[CoverageRow]) -> None:
        bounds = {row.estimator.split(":")[0].split(",")[0] for row in table if row.is_bound}
        assert bounds >= {"lower_bound", "audit_scores", "audit_model", "audit_one_run", "audit_training", "claim"}
        assert {row.estimator for row in table if "replace" in row.estimator}
        assert any(row.estimator.startswith("limit at FPR") and row.is_bound for row in table)
        assert {row.validity for row in table} >= {
            "finite-sample",
            "finite-sample, random split",
            "finite-sample, independent runs",
            "exploratory",
            "credible",
        }
        assert len(table) == selftest.count_rows()

    def test_uncorrected_scans_break_it(self, table: list[CoverageRow]) -> None:
        """The check can fail: the same rows relabelled as bounds are reported."""
        naive = [replace(row, is_bound=True) for row in table if row.estimator == "bayesian, naive"]
        assert any("no leak" in row.mechanism for row in broken(naive))

    def test_gaussian_assumption_fails_on_laplace(self, table: list[CoverageRow]) -> None:
        row = next(r for r in table if r.estimator == "gaussian, uniform" and r.mechanism.startswith("Laplace"))
        assert row.rate > 0.5 and not row.is_bound

    def test_something_is_proven(self, table: list[CoverageRow]) -> None:
        """A bound that is always 0 would hold too."""
        for row in table:
            if row.is_bound and row.truth >= 1 and row.mechanism.startswith(("Laplace", "randomised")):
                assert row.mean > 0.1 * row.truth or "as if" in row.estimator, row

    def test_replacing_leaks_twice_what_removing_does(self, table: list[CoverageRow]) -> None:
        rows = [row for row in table if row.mechanism == "Laplace ε=1, one model" and row.estimator.startswith("lower")]
        replaced, removed = rows
        assert (replaced.truth, removed.truth) == (2.0, 1.0)
        assert removed.mean < 1 < replaced.mean


def no_leak(members: int, nonmembers: int) -> Draw:
    return lambda rng: Scores(rng.normal(size=members), rng.normal(size=nonmembers))


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
@pytest.mark.parametrize("sizes", [(5, 5), (31, 17), (208, 208), (205, 410), (40, 3000)])
def test_default_call_at_any_size(sizes: tuple[int, int], neighbours: str) -> None:
    """False alarms: 1e-5 for each size."""
    assert violations(no_leak(*sizes), 0.0, 100, neighbours=neighbours) <= most(100)


def test_default_call_on_many_records() -> None:
    """10^5 records; false alarm 1e-5."""
    assert violations(no_leak(50_000, 50_000), 0.0, 12) <= most(12)


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("0/1", lambda rng, n: (rng.random(n) < 0.5).astype(float)),
        ("0/1, few ones", lambda rng, n: (rng.random(n) < 0.05).astype(float)),
        ("four values", lambda rng, n: rng.integers(0, 4, n).astype(float)),
        ("half of them tied", lambda rng, n: np.maximum(rng.normal(size=n), 0.0)),
    ],
)
def test_default_call_on_ties(name: str, score: Callable[[np.random.Generator, int], object]) -> None:
    """False alarms: 1e-5 for each pattern."""
    assert violations(lambda rng: Scores(score(rng, 250), score(rng, 350)), 0.0, 100) <= most(100)


@pytest.mark.parametrize("sizes", [(5, 5), (710, 710), (100, 5000)])
def test_constant_scores_prove_nothing(sizes: tuple[int, int]) -> None:
    scores = Scores(np.ones(sizes[0]), np.ones(sizes[1]))
    assert lower_bound(scores).low == 0
    assert lower_bound(OneRun(np.ones(sum(sizes)), np.arange(sum(sizes)) < sizes[0])).low == 0


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_level_is_kept_where_epsilon_is_attained(confidence: float) -> None:
    """Randomised response meets the law of the tables exactly; false alarms 1e-5."""

    def draw(rng: np.random.Generator) -> Scores:
        p = special.expit(1.0)
        return Scores(rng.random(150) < p, rng.random(150) > p)

    found = violations(draw, 2.0, 150, confidence=confidence)
    assert found <= most(150, 1 - confidence)
    if confidence == 0.5:
        assert found >= 10  # and little is given away


def fake_model(scores: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A record is its row number; the loss falls as the score rises."""
    right = special.expit(scores / 4)
    return lambda x: np.column_stack([right, 1 - right])[x[:, 0].astype(int)]


FAST = {"guard": False, "resamples": 0}


@pytest.mark.parametrize(("shown", "chance"), [(6, 0.3), (60, 0.15), (240, 0.1)])
def test_a_model_that_publishes_records(shown: int, chance: float) -> None:
    """Exactly (0, δ)-DP, through `audit_model`, for both relations; false alarms 1e-5.

    Published records are the highest and lowest scores at once, in more models than 1 in 20.
    """
    n, trials, found = 120, 40, np.zeros(2)
    delta = chance * (1 - (1 - shown / (2 * n)) * (1 - shown / (2 * n - 1)))
    x, y = np.arange(2.0 * n)[:, None], np.zeros(2 * n, int)
    for rng in generators(trials, 5, shown):
        scores = rng.normal(size=2 * n)
        if rng.random() < chance:
            picked = rng.permutation(2 * n)[:shown]
            scores[picked] += np.where(picked < n, 20.0, -20.0)
        audit = audit_model(fake_model(scores), members=(x[:n], y[:n]), nonmembers=(x[n:], y[n:]), delta=delta, **FAST)
        assert [e.neighbours for e in audit.estimates[:2]] == ["replace", "add/remove"]
        found += [estimate.low > 0 for estimate in audit.estimates[:2]]
    assert found.max() <= most(trials)


class TestPersons:
    """200 people with 10 records each that are nearly copies of each other; false alarms 1e-5 each."""

    people = np.repeat(np.arange(200), 10)

    def scores(self, rng: np.random.Generator) -> np.ndarray:
        return rng.normal(size=200)[self.people] + 0.1 * rng.normal(size=self.people.size)

    def by_split(self, rng: np.random.Generator) -> Scores:
        scores, member = self.scores(rng), (rng.permutation(200) < 100)[self.people]
        return Scores(scores[member], scores[~member], groups=(self.people[member], self.people[~member]))

    def by_coins(self, rng: np.random.Generator) -> OneRun:
        return OneRun(self.scores(rng), fair_coins(2000, groups=self.people), groups=self.people)

    def test_split(self) -> None:
        assert violations(self.by_split, 0.0, 120) <= most(120)

    def test_coins(self) -> None:
        assert violations(self.by_coins, 0.0, 120) <= most(120)

    def test_by_record_it_would_break(self) -> None:
        """The test can fail: without groups the same scores prove a leak that is not there."""
        found = 0
        for rng in generators(40, 3):
            scores, member = self.scores(rng), (rng.permutation(200) < 100)[self.people]
            found += lower_bound(Scores(scores[member], scores[~member])).low > 0
        assert found > most(40)

    def test_through_a_model(self) -> None:
        found, x, y = np.zeros(3), np.arange(2000.0)[:, None], np.zeros(2000, int)
        for rng in generators(10, 4):
            model, member = fake_model(self.scores(rng)), (rng.permutation(200) < 100)[self.people]
            ids = self.people[member], self.people[~member]
            split = audit_model(
                model, members=(x[member], y[member]), nonmembers=(x[~member], y[~member]), groups=ids, **FAST
            )
            mask = fair_coins(2000, groups=self.people)
            coins = audit_model(model, data=(x, y), included=mask, groups=self.people, **FAST)
            found += [e.low > 0 for e in (*split.estimates[:2], coins.headline)]
        assert found.max() <= most(10)


@pytest.mark.parametrize("delta", [0.002, 0.02])
def test_plain_leak_of_delta_is_not_counted_as_epsilon(delta: float) -> None:
    """With probability δ a run publishes its coin: (0, δ)-DP, where the allowance is at work; false alarms 1e-5."""

    def draw(rng: np.random.Generator) -> Scores:
        members, nonmembers = rng.normal(size=300), rng.normal(size=300)
        members[rng.random(300) < delta], nonmembers[rng.random(300) < delta] = 9.0, -9.0
        return Scores(members, nonmembers, independent=True)

    assert violations(draw, 0.0, 100, delta=delta) <= most(100)


@pytest.mark.parametrize("estimator", [ranked, lower_bound])
def test_one_run_that_reveals_everything_at_once(estimator: Callable) -> None:
    """(0, δ)-DP by one public coin, δ = .04 and m·δ = 16: only Markov's inequality is true here; false alarms 1e-5."""
    found = 0
    for rng in generators(150, 5):
        bits = fair_coins(400)
        scores = np.where(bits, 5.0, -5.0) if rng.random() < 0.04 else rng.normal(size=400)
        found += estimator(OneRun(scores + 1e-3 * rng.normal(size=400), bits), delta=0.04).low > 0
    assert found <= most(150)


def test_row_arithmetic() -> None:
    row = CoverageRow("g", "e", "m", 0.0, 0.0, "finite-sample", True, 200, 10, 0.05, 0.1)
    assert row.rate == 0.05
    assert row.p_value == pytest.approx(0.5452, abs=1e-3)  # P[Bin(200, .05) ≥ 10]
    assert broken([row]) == []
    assert broken([replace(row, violations=40)]) != []
