"""The shift guard: false alarms, power, class balance, masks, the verdict, bad input."""

import itertools
import json
import math
import subprocess
import sys
import time

import numpy as np
import pytest

from dosimeter._validate import InputError
from dosimeter.audits.shift.guard import Guard, check_shift, class_balance_p
from dosimeter.audits.shift.mask import _runs_p, check_mask
from dosimeter.evidence import OneRun, fair_coins

KEYS = {
    "auc",
    "auc_low",
    "auc_high",
    "p_value",
    "candidates",
    "epsilon_blind",
    "duplicates",
    "near_duplicates",
    "duplicates_within_members",
    "class_balance_p",
    "records_used",
    "reasons",
    "warnings",
}
rng_of = np.random.default_rng


# --- false alarms and power -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_false_alarms_with_the_linear_candidate():
    # P[Bin(200, 0.05) ≥ 20] = 0.003
    alarms = 0
    for seed in range(200):
        data = rng_of(seed).normal(size=(120, 6))
        alarms += check_shift(data[:50], data[50:], seed=seed).shift
    assert alarms < 20


@pytest.mark.slow
def test_false_alarms_with_choice_between_candidates_and_labels():
    # P[Bin(60, 0.05) ≥ 10] = 0.0008
    alarms = 0
    for seed in range(60):
        rng = rng_of(1000 + seed)
        data, label = rng.standard_cauchy(size=(240, 3)), rng.integers(0, 4, 240)
        alarms += check_shift((data[:120], label[:120]), (data[120:], label[120:]), seed=seed).shift
    assert alarms < 10


def test_a_modest_shift_is_found():
    for seed in range(5):
        rng = rng_of(seed)
        members, nonmembers = rng.normal(size=(2000, 20)), rng.normal(size=(2000, 20))
        nonmembers[:, :3] += 0.2
        guard = check_shift(members, nonmembers, seed=seed)
        assert guard.shift
        # Even the best classifier has AUC Φ(0.2·√3/√2) = 0.5968.
        assert 0.53 < guard.evidence["auc"] < 0.63
        assert guard.evidence["auc_low"] > 0.5


def test_a_shift_that_only_trees_see():
    rng = rng_of(0)
    members, nonmembers = rng.normal(size=(800, 4)), rng.normal(size=(800, 4))
    members[:, 1] = np.abs(members[:, 1]) * np.sign(members[:, 0])
    guard = check_shift(members, nonmembers)
    assert guard.shift
    assert [c["classifier"] for c in guard.evidence["candidates"]] == ["trees", "trees"]


def test_blind_epsilon_respects_a_known_one():
    # The likelihood ratio of Laplace(0) and Laplace(1) is at most e, so no test of one record passes ε = 1.
    rng = rng_of(3)
    guard = check_shift(rng.laplace(1, 1, 6000), rng.laplace(0, 1, 6000))
    assert 0.5 < guard.evidence["epsilon_blind"] <= 1


def test_labels_that_follow_from_features_differently_are_a_shift():
    rng = rng_of(4)
    members, nonmembers = rng.normal(size=(700, 3)), rng.normal(size=(700, 3))
    guard = check_shift((members, members[:, 0] > 0), (nonmembers, nonmembers[:, 0] < 0))
    assert guard.shift
    assert guard.evidence["class_balance_p"] > 0.01


def test_class_balance_alone_is_a_reason():
    rng = rng_of(5)
    members, nonmembers = rng.normal(size=(60, 30)), rng.normal(size=(60, 30))
    guard = check_shift(members, nonmembers, labels=(["a"] * 42 + ["b"] * 18, ["a"] * 18 + ["b"] * 42))
    assert guard.shift
    assert any("classes are distributed differently" in reason for reason in guard.evidence["reasons"])
    only = Guard(True, True, {**guard.evidence, "p_value": 0.4})
    assert "their classes are distributed differently" in str(only)


def test_bundled_data():
    datasets = pytest.importorskip("sklearn.datasets")
    digits, cancer = datasets.load_digits(), datasets.load_breast_cancer()
    for features, labels in ((digits.images, digits.target), (cancer.data, cancer.target)):
        order = rng_of(0).permutation(len(features))
        half = len(order) // 2
        guard = check_shift(
            (features[order[:half]], labels[order[:half]]), (features[order[half:]], labels[order[half:]])
        )
        assert not guard.shift, str(guard)
        assert guard.evidence["near_duplicates"] == guard.evidence["duplicates"] == 0
        order = np.argsort(features.reshape(len(features), -1).mean(axis=1), kind="stable")
        guard = check_shift(features[order[:half]], features[order[half:]])
        assert guard.shift
        assert guard.evidence["auc"] > 0.95
        assert guard.evidence["epsilon_blind"] > 2


# --- class balance --------------------------------------------------------------------------------------------


def test_chi_square_of_two_classes():
    # 200 (65·75 − 35·25)² / (100·100·90·110) = 32.3232, one degree of freedom.
    found = class_balance_p(np.repeat([0, 1], [65, 35]), np.repeat([0, 1], [25, 75]))
    assert found == pytest.approx(math.erfc(math.sqrt(200 * 4000**2 / (1e4 * 9900) / 2)), rel=1e-12)


def test_chi_square_agrees_with_permutations():
    rng = rng_of(0)
    a, b = rng.integers(0, 4, 300), rng.choice(4, 200, p=[0.3, 0.3, 0.2, 0.2])
    table = np.stack([np.bincount(a), np.bincount(b)])
    total = table.sum(axis=0)
    drawn = rng.multivariate_hypergeometric(total, 300, size=20_000)
    seen, spread = [(((x - 0.6 * total) ** 2) / (0.6 * total)).sum(axis=-1) for x in (table[0], drawn)]
    assert class_balance_p(a, b) == pytest.approx(np.mean(spread >= seen - 1e-9), abs=0.015)


def test_rare_classes_are_put_together():
    assert class_balance_p(np.arange(500), np.arange(500, 900)) == 1
    found = [
        class_balance_p(rng_of(s).geometric(0.3, 90) - 1, rng_of(900 + s).geometric(0.3, 70) - 1) for s in range(600)
    ]
    assert np.mean(np.array(found) <= 0.05) < 0.05 + 3.5 * math.sqrt(0.0475 / 600)


def test_continuous_targets_are_cut_at_deciles():
    rng = rng_of(1)
    data = rng.normal(size=(600, 2))
    guard = check_shift((data[:300], rng.normal(size=300)), (data[300:], rng.normal(size=300)))
    assert guard.evidence["class_balance_p"] > 0.01
    guard = check_shift((data[:300], rng.normal(size=300)), (data[300:], rng.normal(1, 1, size=300)))
    assert guard.evidence["class_balance_p"] < 1e-6


# --- masks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inside", "outside"), [(1, 1), (1, 6), (5, 5), (3, 7), (6, 2)])
def test_runs_agree_with_all_arrangements(inside, outside):
    total = inside + outside
    counts = []
    for chosen in itertools.combinations(range(total), inside):
        mask = np.isin(np.arange(total), chosen)
        counts.append(1 + np.count_nonzero(mask[1:] != mask[:-1]))
    counts = np.array(counts)
    for runs in np.unique(counts):
        expected = min(1, 2 * min(np.mean(counts <= runs), np.mean(counts >= runs)))
        assert _runs_p(int(runs), inside, outside) == pytest.approx(expected, rel=1e-9)


def test_masks():
    scores = np.zeros(2000)
    fair = check_mask(OneRun(scores, fair_coins(2000, 3), 3))
    assert fair["warnings"] == ()
    assert fair["seed_checked"]
    assert fair["runs_p"] > 0.001
    assert fair["balance_p"] > 0.001
    half = check_mask(OneRun(scores, np.arange(2000) < 1000))
    assert half["runs"] == 2
    assert half["runs_p"] < 1e-9
    assert half["balance_p"] == 1
    assert len(half["warnings"]) == 2
    turns = check_mask(OneRun(scores, np.arange(2000) % 2 == 0))
    assert any("changes 1999 times" in warning for warning in turns["warnings"])
    skewed = check_mask(OneRun(scores, rng_of(0).random(2000) < 0.3))
    assert skewed["balance_p"] < 1e-9
    assert "too far from half" in skewed["warnings"][0]
    assert check_mask(OneRun([0.0, 1.0], [0, 1]))["runs_p"] == 1
    large = check_mask(OneRun(np.zeros(10**6), fair_coins(10**6, 0)))
    assert 0.001 < large["runs_p"] <= 1
    with pytest.raises(InputError, match="one_run must be a OneRun"):
        check_mask([0, 1])


# --- the verdict ----------------------------------------------------------------------------------------------


def test_evidence_is_complete_plain_and_repeatable():
    rng = rng_of(0)
    members, nonmembers = rng.normal(size=(200, 4)), rng.normal(size=(150, 4))
    first, again = (check_shift(members, nonmembers, seed=7) for _ in range(2))
    assert set(first.evidence) >= KEYS
    text = json.dumps(first.to_dict(), allow_nan=False)
    assert text == json.dumps(again.to_dict(), allow_nan=False)
    other = check_shift(members, nonmembers, seed=8)
    assert other.evidence["auc"] != first.evidence["auc"]
    values = json.loads(text)
    assert str(Guard(values["shift"], values["checked"], values["evidence"])) == values["verdict"]


def test_verdict_sentences():
    found = {
        "auc": 0.612,
        "auc_low": 0.584,
        "auc_high": 0.641,
        "p_value": 0.00012,
        "level": 0.05,
        "confidence": 0.95,
        "class_balance_p": None,
        "duplicates": 0,
        "nonmembers": 400,
    }
    assert str(Guard(True, True, found)) == (
        "Members and non-members differ even without the model: a classifier that never saw it tells them apart with "
        "AUC 0.61 (95 % interval 0.58–0.64, p = 0.00012); every ε below is suspect."
    )
    calm = Guard(
        False, True, {**found, "auc": 0.5, "auc_low": 0.47, "auc_high": 0.53, "p_value": 0.63, "duplicates": 2}
    )
    assert str(calm) == (
        "No shift was found: a classifier that never saw the model tells members from non-members with AUC 0.50 "
        "(95 % interval 0.47–0.53, p = 0.63). 2 of 400 non-members (0.5 %) are exact copies of members."
    )
    assert str(Guard(False, False)).startswith("Not checked: only scores were given")


def test_too_few_records_are_not_checked_but_copies_are_counted():
    rng = rng_of(0)
    data = rng.normal(size=(30, 2))
    guard = check_shift(data[:25], data[24:])
    assert not guard.checked
    assert not guard.shift
    assert set(guard.evidence) >= KEYS
    assert guard.evidence["duplicates"] == 1
    assert str(guard).startswith("Not checked: nonmembers holds 6 records")


def test_a_confidence_beyond_the_relabellings_is_told():
    rng = rng_of(0)
    data = rng.normal(size=(60, 2))
    guard = check_shift(data[:30], data[30:], confidence=1 - 1e-7)
    assert any("relabellings resolve" in warning for warning in guard.evidence["warnings"])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones((3, 2)), np.ones((3, 4))), {}, "they must be alike"),
        ((np.ones((3, 2)), []), {}, "nonmembers holds no record"),
        (([], ["text"]), {}, "members holds no record|the other numbers"),
        ((["a"], np.ones(3)), {}, "the other numbers"),
        ((["a", 3], ["b"]), {}, r"members\[1\] is 3, not a text"),
        (("text", ["b"]), {}, "members must be a list of texts"),
        (([[1, 2], [3]], np.ones((3, 2))), {}, "no token numbers, but the other side does"),
        ((np.array([[1.0, 2], [3, np.inf]]), np.ones((3, 2))), {}, r"members\[1, 1\] is infinite"),
        ((3, np.ones((3, 2))), {}, "members must be an array of records"),
        ((np.ones((3, 2), complex), np.ones((3, 2))), {}, "members must be an array of records"),
        ((np.ones((3, 0)), np.ones((3, 0))), {}, "hold nothing"),
        ((np.ones((3, 2)), np.ones((3, 2))), {"kind": "sound"}, "kind must be one of"),
        ((np.ones((3, 2)), np.ones((3, 2))), {"kind": "image"}, "as images"),
        ((np.ones((3, 2)), np.ones((3, 2))), {"kind": "text"}, "must be a list of texts"),
        ((np.ones((3, 2)), np.ones((3, 2))), {"labels": [1, 2, 3]}, "labels must be a pair"),
        ((np.ones((3, 2)), np.ones((3, 2))), {"labels": ([1, 2], [1, 2, 3])}, "there are 3 records"),
        (((np.ones((3, 2)), [1, 2, 3]), np.ones((3, 2))), {}, "both sides or for neither"),
        (((np.ones((3, 2)), [1, 2, 3], 4), np.ones((3, 2))), {}, r"must be \(X, y\)"),
        (((np.ones((2, 2)), [1, 2]), (np.zeros((2, 2)), [1, 2])), {"labels": ([1, 2], [1, 2])}, "labels once"),
        ((np.ones((3, 2)), np.zeros((3, 2))), {"confidence": 1.0}, "confidence must be in"),
        ((np.ones((3, 2)), np.zeros((3, 2))), {"permutations": 0}, "permutations must be"),
        ((np.ones((3, 2)), np.zeros((3, 2))), {"max_records": 3}, "max_records must be"),
        ((np.ones((3, 2)), np.zeros((3, 2))), {"seed": -1}, "seed must be"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(InputError, match=message):
        check_shift(*arguments, **options)


@pytest.mark.once
def test_large_tables_are_sampled_and_fast():
    rng = rng_of(0)
    members, nonmembers = rng.normal(size=(100_000, 20)), rng.normal(size=(100_000, 20))
    nonmembers[99_999] = members[5]
    start = time.process_time()
    guard = check_shift(members, nonmembers)
    assert time.process_time() - start < 5
    assert guard.evidence["records_used"] == 20_000
    assert guard.evidence["duplicate_pairs"] == ((5, 99_999),)
    unequal = check_shift(members[:500], nonmembers, max_records=3000)
    assert unequal.evidence["records_used"] == 3000


def test_importing_the_guard_does_not_import_scikit_learn():
    code = "import sys, dosimeter.audits.shift.guard; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
