"""Subgroups: bounds that hold together, Holm's correction, and who is flagged."""

import numpy as np
import pytest

from dosimeter import InputError, Scores
from dosimeter.audits.compare import compare
from dosimeter.audits.model import pool
from dosimeter.audits.model.pool import by_group, holm
from dosimeter.audits.scores import audit_scores
from dosimeter.estimators.lower_bound import lower_bound


def test_holm_by_hand() -> None:
    assert np.allclose(holm(np.array([0.01, 0.04, 0.03, 0.5])), [0.04, 0.09, 0.09, 0.5])
    assert holm(np.array([])).size == 0


def test_the_exposed_group_is_flagged_and_comes_first() -> None:
    rng = np.random.default_rng(1)
    who_m, who_n = np.repeat(["old", "young"], [200, 800]), np.repeat(["old", "young"], [200, 800])
    members = rng.normal(np.where(who_m == "old", 2.0, 0.2), 1)
    rows = by_group(
        Scores(members, rng.normal(0, 1, 1000)),
        {"age": (who_m, who_n)},
        delta=1e-5,
        confidence=0.95,
    )
    assert [row["value"] for row in rows] == ["old", "young"]
    assert rows[0]["flagged"] and not rows[1]["flagged"]
    assert rows[0]["epsilon"] > rows[1]["epsilon"]


@pytest.mark.once
@pytest.mark.parametrize("confidence", [0.95, 0.5])
def test_rows_share_the_level(confidence: float) -> None:
    rng = np.random.default_rng(2)
    groups = {name: (rng.integers(0, k, 600), rng.integers(0, k, 600)) for name, k in (("a", 4), ("b", 3))}
    scores = Scores(rng.normal(1, 1, 600), rng.normal(0, 1, 600))
    rows = by_group(scores, groups, delta=1e-5, confidence=confidence)
    assert len(rows) == 7
    for row in rows:
        inside, outside = (side.astype(str) == row["value"] for side in groups[row["group"]])
        part = Scores(scores.members[inside], scores.nonmembers[outside])
        alone = lower_bound(part, delta=1e-5, confidence=1 - (1 - confidence) / 7)
        assert row["epsilon"] == alone.low
        assert row["joint_confidence"] == confidence
    assert [row["epsilon"] for row in rows] == sorted((row["epsilon"] for row in rows), reverse=True)


@pytest.mark.slow
def test_the_largest_of_many_bounds_holds() -> None:
    """No leak, 25 groups: "the largest bound is ε ≥ X" with X > 0 at most as often as the level allows."""
    trials, false = 120, 0
    who = np.repeat(np.arange(25), 40)
    for trial in range(trials):
        rng = np.random.default_rng([trial, 25])
        scores = Scores(rng.normal(size=1000), rng.normal(size=1000))
        rows = by_group(scores, {"class": (who, who)}, delta=0.0, confidence=0.95)
        false += max(row["epsilon"] for row in rows) > 0
    assert false <= trials * 0.05 + 3.5 * np.sqrt(trials * 0.05 * 0.95)  # 14; about 60 at 95 % for each row


def test_a_perfectly_separated_group_is_flagged() -> None:
    rng = np.random.default_rng(0)
    who = np.repeat(["apart", "rest"], [30, 500])
    members = np.where(who == "apart", 50.0, 0.0) + rng.normal(size=530)
    rows = by_group(Scores(members, rng.normal(size=530)), {"g": (who, who)}, delta=0.0, confidence=0.95)
    assert rows[0]["value"] == "apart" and rows[0]["flagged"]
    constant = Scores(np.zeros(530), np.zeros(530))
    assert not any(r["flagged"] for r in by_group(constant, {"g": (who, who)}, delta=0.0, confidence=0.95))


@pytest.mark.slow
def test_equal_groups_are_seldom_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "proven_epsilon", lambda *_, **__: 0.0)  # flags come from the p-values alone
    flagged = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        groups = {"g": (rng.integers(0, 5, 400), rng.integers(0, 5, 400))}
        scores = Scores(rng.normal(0.5, 1, 400), rng.normal(0, 1, 400))
        flagged += any(r["flagged"] for r in by_group(scores, groups, delta=0.0, confidence=0.95))
    assert flagged <= 13  # 5 of 100 expected at most


def test_small_groups_are_left_out_and_bad_columns_named() -> None:
    scores = Scores(np.arange(30.0), np.arange(30.0))
    assert by_group(scores, {"g": (np.arange(30), np.arange(30))}, delta=0.0, confidence=0.95) == ()
    with pytest.raises(InputError, match="subgroups"):
        by_group(scores, {"g": ([1, 2], [1])}, delta=0.0, confidence=0.95)


def test_compare_checks_its_lists() -> None:
    audit = audit_scores(Scores.from_losses(np.arange(50.0), np.arange(50.0) + 3), resamples=0)
    rows = compare([audit, audit], names=["a", "b"], utilities=[0.9, 0.8]).rows()
    assert [row["name"] for row in rows] == ["a", "b"] and rows[0]["epsilon_star"] is not None
    for arguments in ({"names": ["a"]}, {"utilities": [1.0]}, {"utilities": [1.0, float("nan")]}):
        with pytest.raises(InputError):
            compare([audit, audit], **arguments)
    with pytest.raises(InputError, match="audits"):
        compare([])
