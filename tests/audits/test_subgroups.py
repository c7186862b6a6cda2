"""Subgroups: DeLong's variance, Holm's correction, and who is flagged."""

import numpy as np
import pytest

from dosimeter import InputError, Scores
from dosimeter.audits.compare import compare
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.subgroups import by_group, delong, holm


def test_holm_by_hand() -> None:
    assert np.allclose(holm(np.array([0.01, 0.04, 0.03, 0.5])), [0.04, 0.09, 0.09, 0.5])
    assert holm(np.array([])).size == 0


def test_delong_against_simulation() -> None:
    rng = np.random.default_rng(0)
    found = [delong(Scores(rng.normal(0.5, 1, 80), rng.normal(0, 1, 120))) for _ in range(600)]
    aucs, variances = np.array(found).T
    assert aucs.var() == pytest.approx(variances.mean(), rel=0.15)
    tied = Scores([1, 2, 2, 3], [0, 2, 2, 2])
    assert delong(tied)[0] == pytest.approx(tied.auc)


def test_the_exposed_group_is_flagged_and_comes_first() -> None:
    rng = np.random.default_rng(1)
    who_m, who_n = np.repeat(["old", "young"], [200, 800]), np.repeat(["old", "young"], [200, 800])
    members = rng.normal(np.where(who_m == "old", 2.0, 0.2), 1)
    rows = by_group(
        Scores(members, rng.normal(0, 1, 1000)), {"age": (who_m, who_n)}, delta=1e-5, confidence=0.95, seed=0
    )
    assert [row["value"] for row in rows] == ["old", "young"]
    assert rows[0]["flagged"] and not rows[1]["flagged"]
    assert rows[0]["epsilon"] > rows[1]["epsilon"]


def test_equal_groups_are_seldom_flagged() -> None:
    flagged = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        groups = {"g": (rng.integers(0, 5, 400), rng.integers(0, 5, 400))}
        scores = Scores(rng.normal(0.5, 1, 400), rng.normal(0, 1, 400))
        flagged += any(r["flagged"] for r in by_group(scores, groups, delta=0.0, confidence=0.95, seed=0))
    assert flagged <= 13  # 5 of 100 expected at most


def test_small_groups_are_left_out_and_bad_columns_named() -> None:
    scores = Scores(np.arange(30.0), np.arange(30.0))
    assert by_group(scores, {"g": (np.arange(30), np.arange(30))}, delta=0.0, confidence=0.95, seed=0) == ()
    with pytest.raises(InputError, match="subgroups"):
        by_group(scores, {"g": ([1, 2], [1])}, delta=0.0, confidence=0.95, seed=0)


def test_compare_checks_its_lists() -> None:
    audit = audit_scores(Scores.from_losses(np.arange(50.0), np.arange(50.0) + 3), resamples=0)
    rows = compare([audit, audit], names=["a", "b"], utilities=[0.9, 0.8]).rows()
    assert [row["name"] for row in rows] == ["a", "b"] and rows[0]["epsilon_star"] is not None
    for arguments in ({"names": ["a"]}, {"utilities": [1.0]}, {"utilities": [1.0, float("nan")]}):
        with pytest.raises(InputError):
            compare([audit, audit], **arguments)
    with pytest.raises(InputError, match="audits"):
        compare([])
