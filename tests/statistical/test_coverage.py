"""Every bound keeps its level on mechanisms whose ε is known; every uncorrected scan is seen to break it."""

from dataclasses import replace

import numpy as np
import pytest

from dosimeter import OneRun, Scores, selftest
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.ranked import ranked
from dosimeter.selftest import Row, broken


@pytest.fixture(scope="module")
def table() -> list[Row]:
    return list(selftest.rows(trials=120, records=300, seed=11))


def test_no_valid_bound_breaks_its_level(table: list[Row]) -> None:
    assert broken(table) == []
    assert {row.validity for row in table} >= {"finite-sample", "finite-sample, independent runs", "credible"}


def test_uncorrected_scans_break_it(table: list[Row]) -> None:
    """The check can fail: the same rows relabelled as bounds are reported."""
    naive = [replace(row, is_bound=True) for row in table if row.estimator == "bayesian, naive"]
    assert any("no leak" in row.mechanism for row in broken(naive))


def test_gaussian_assumption_fails_on_laplace(table: list[Row]) -> None:
    row = next(r for r in table if r.estimator == "gaussian, uniform" and r.mechanism.startswith("Laplace"))
    assert row.rate > 0.5 and not row.is_bound


def violations(draw, truth: float, trials: int, **arguments: object) -> float:
    return float(
        np.mean(
            [lower_bound(draw(np.random.default_rng([s, 77])), seed=s, **arguments).low > truth for s in range(trials)]
        )
    )


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
def test_level_is_kept_and_nearly_used(confidence: float) -> None:
    """On no-leak data the level is almost reached: valid, and little is given away."""
    alpha, trials = 1 - confidence, 1500
    rate = violations(lambda r: Scores(r.normal(size=300), r.normal(size=300)), 0.0, trials, confidence=confidence)
    error = np.sqrt(alpha * (1 - alpha) / trials)
    assert rate < alpha + 4 * error
    assert rate > alpha / 4


def test_response_with_an_attained_epsilon() -> None:
    """Binary scores, ε = 2 reached exactly: the hardest case, all ties."""

    def draw(rng: np.random.Generator) -> Scores:
        p = np.exp(2) / (1 + np.exp(2))
        return Scores((rng.random(400) < p).astype(float), (rng.random(400) > p).astype(float))

    assert violations(draw, 2.0, 1000) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 1000)


@pytest.mark.parametrize("delta", [0.002, 0.02])
def test_plain_leak_of_delta_is_not_counted_as_epsilon(delta: float) -> None:
    """With probability δ a record's coin is published: (0, δ)-DP, m·δ up to 16, where the allowance is at work."""

    def draw(rng: np.random.Generator) -> Scores:
        members, nonmembers = rng.normal(size=400), rng.normal(size=400)
        members[rng.random(400) < delta], nonmembers[rng.random(400) < delta] = 9.0, -9.0
        return Scores(members, nonmembers)

    assert violations(draw, 0.0, 800, delta=delta) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 800)


def test_one_run_that_reveals_everything_at_once() -> None:
    """(0, δ)-DP by one public coin, δ = .04 and m·δ = 16: only Markov's inequality is true here."""
    found = 0
    for s in range(600):
        rng = np.random.default_rng([s, 5])
        bits = rng.random(400) < 0.5
        scores = np.where(bits, 5.0, -5.0) if rng.random() < 0.04 else rng.normal(size=400)
        found += ranked(OneRun(scores + 1e-3 * rng.normal(size=400), bits), delta=0.04, seed=s).low > 0
    assert found / 600 < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 600)


def test_row_arithmetic() -> None:
    row = Row("e", "m", 0.0, 0.0, "finite-sample", True, 200, 10, 0.05, 0.1)
    assert row.rate == 0.05
    assert row.p_value == pytest.approx(0.5452, abs=1e-3)  # P[Bin(200, .05) ≥ 10]
    assert broken([row]) == []
    assert broken([replace(row, violations=40)]) != []
