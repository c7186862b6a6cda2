"""The shift guard: exact p-values, false alarms, power, copies, class balance, masks, bad input."""

import itertools
import json
import math
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.audits.blind import auc_with_error, midranks, rank_sum_p_value
from dosimeter.audits.duplicates import record_hashes
from dosimeter.audits.guard import Guard, _runs_p, check_mask, check_shift, class_balance_p
from dosimeter.audits.records import thumbnails, word_hashes
from dosimeter.evidence import OneRun, Scores, fair_coins

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


def rng_of(seed):
    return np.random.default_rng(seed)


# --- the p-value and the AUC ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [2, 4, 6])
def test_rank_sum_agrees_with_all_labellings(members):
    values = np.array([0.0, 1, 1, 1, 2, 2, 3, 5])
    inside = np.zeros(8, bool)
    inside[-members:] = True
    inside[[1, 6]] = inside[[6, 1]]
    ranks = midranks(values)
    sums = np.array([ranks[list(chosen)].sum() for chosen in itertools.combinations(range(8), members)])
    exact = np.mean(sums >= ranks[inside].sum() - 1e-9)
    draws = 20_000
    found = rank_sum_p_value(values, inside, draws, rng_of(0))
    assert abs(found - exact) < 4 * math.sqrt(exact * (1 - exact) / draws) + 1e-4


@pytest.mark.parametrize(("m", "n"), [(8, 8), (3, 12), (12, 3), (6, 30)])
def test_bernstein_never_goes_below_the_exact_tail(m, n):
    values = np.arange(m + n, dtype=float)
    inside = values >= n
    assert rank_sum_p_value(values, inside, 3, rng_of(1)) >= 1 / math.comb(m + n, m)


def test_a_strong_shift_gets_a_small_p_value_from_few_relabellings():
    values = np.arange(600.0)
    assert rank_sum_p_value(values, values >= 300, 50, rng_of(0)) < 1e-30


def test_rank_sum_agrees_with_the_normal_law():
    rng = rng_of(5)
    values, inside = rng.normal(size=2000), np.arange(2000) < 800
    values[inside] += 0.08
    rank_sum = midranks(values)[inside].sum()
    z = (rank_sum - 800 * 2001 / 2) / math.sqrt(800 * 1200 * 2001 / 12)
    expected = math.erfc(z / math.sqrt(2)) / 2
    assert 0.001 < expected < 0.5
    assert rank_sum_p_value(values, inside, 20_000, rng) == pytest.approx(expected, abs=0.015)


def test_p_value_is_valid_with_ties_and_unequal_sizes():
    # Normal approximations fail here: 5 members, 150 non-members, all scores equal but four.
    values = np.zeros(155)
    values[:4] = [1, 2, 3, 4]
    found = []
    for seed in range(600):
        rng = rng_of(seed)
        inside = np.zeros(155, bool)
        inside[rng.choice(155, 5, replace=False)] = True
        found.append(rank_sum_p_value(values, inside, 199, rng))
    found = np.array(found)
    for level in (0.01, 0.05, 0.2):
        assert np.mean(found <= level) <= level + 3.5 * math.sqrt(level * (1 - level) / 600)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=2, max_size=25),
    st.lists(st.integers(0, 6), min_size=2, max_size=25),
)
def test_delong_agrees_with_the_double_sum(members, nonmembers):
    scores = Scores(np.array(members, float), np.array(nonmembers, float))
    wins = (scores.members[:, None] > scores.nonmembers) + 0.5 * (scores.members[:, None] == scores.nonmembers)
    variance = wins.mean(1).var(ddof=1) / len(members) + wins.mean(0).var(ddof=1) / len(nonmembers)
    auc, error = auc_with_error(scores)
    assert auc == pytest.approx(wins.mean(), abs=1e-12)
    assert auc == pytest.approx(scores.auc, abs=1e-12)
    if variance > 1e-12:
        assert error == pytest.approx(math.sqrt(variance), rel=1e-9)
    else:
        assert 0 < error < 0.5


def test_midranks_share_ties():
    assert midranks(np.array([3.0, 1, 3, 2, 3])).tolist() == [4, 1, 4, 2, 4]


# --- false alarms and power ----------------------------------------------------------------------------------------


def test_false_alarms_with_the_linear_candidate():
    # P[Bin(200, 0.05) ≥ 20] = 0.003
    alarms = 0
    for seed in range(200):
        data = rng_of(seed).normal(size=(120, 6))
        alarms += check_shift(data[:50], data[50:], seed=seed).shift
    assert alarms < 20


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


# --- kinds of records ----------------------------------------------------------------------------------------------


def sentences(rng, count, *, first=0):
    rank = np.arange(1, 801)
    share = 1 / rank
    share[first : first + 60] *= 2.0 if first else 1.0
    words = np.array([f"w{i}" for i in rank])
    return [" ".join(row) for row in words[rng.choice(800, (count, 40), p=share / share.sum())]]


def test_texts():
    rng = rng_of(0)
    members, nonmembers = sentences(rng, 400), sentences(rng, 400)
    guard = check_shift(members, nonmembers)
    assert guard.evidence["kind"] == "text"
    assert not guard.shift
    assert guard.evidence["near_duplicates"] == 0
    assert check_shift(members, sentences(rng, 400, first=40)).shift
    assert check_shift(members, [text.upper() for text in nonmembers]).shift  # the words are equal, the form is not


def test_copied_texts():
    rng = rng_of(1)
    members, nonmembers = sentences(rng, 300), sentences(rng, 300)
    nonmembers[4] = "\n " + members[9].replace(" ", "  ")
    changed = members[17].split()
    changed[20] = "other"
    nonmembers[8] = " ".join(changed)
    evidence = check_shift(members, nonmembers).evidence
    assert evidence["duplicates"] == 1
    assert evidence["duplicate_pairs"] == [[9, 4]]
    assert evidence["near_duplicates"] == 1
    assert evidence["near_duplicate_pairs"] == [[17, 8]]
    assert any("1 of 300 non-members (0.333 %) is an exact copy of a member" in w for w in evidence["warnings"])


def test_texts_without_words():
    guard = check_shift(["", "!"] * 20 + ["word"], ["?", " ."] * 20)
    assert guard.checked
    assert guard.evidence["near_duplicates"] == 0


def test_images():
    rng = rng_of(2)
    images = rng.integers(0, 256, (600, 20, 16, 3), dtype=np.uint8)
    images[400] = images[7]
    images[401] = np.clip(images[8] * 0.7 + 20, 0, 255)
    images[402] = np.clip(images[9] + rng.normal(0, 3, images[9].shape), 0, 255)
    guard = check_shift(images[:300], images[300:])
    assert guard.evidence["kind"] == "image"
    assert not guard.shift
    assert guard.evidence["duplicate_pairs"] == [[7, 100]]
    assert guard.evidence["near_duplicate_pairs"] == [[8, 101], [9, 102]]
    first = check_shift(images[:300].transpose(0, 3, 1, 2), images[300:].transpose(0, 3, 1, 2))
    assert first.to_dict() == guard.to_dict()
    other = check_shift(images[:300], images[300:].astype(np.float32))
    assert other.evidence["duplicates"] == 1
    darker = (images[300:] * 0.9).astype(np.uint8)
    assert check_shift(images[:300], darker).shift


def test_thumbnails_are_block_means():
    images = rng_of(0).normal(size=(5, 16, 24, 2))
    blocks = images.reshape(5, 8, 2, 8, 3, 2).mean(axis=(2, 4)).reshape(5, -1)
    expected = np.concatenate([blocks, images.mean(axis=(1, 2)), images.std(axis=(1, 2))], axis=1)
    np.testing.assert_allclose(thumbnails(images), expected, atol=1e-12)
    assert thumbnails(images[:, :3, :11]).shape == (5, 3 * 8 * 2 + 4)


def test_categories_and_missing_values():
    rng = rng_of(3)
    table = np.empty((1200, 3), object)
    table[:, 0] = rng.choice(["red", "green", None], 1200)
    table[:, 1] = rng.normal(size=1200)
    table[:, 2] = rng.choice(["x", "y"], 1200)
    guard = check_shift(table[:600], table[600:])
    assert not guard.shift
    assert guard.evidence["missing_values"] == sum(value is None for value in table[:, 0])
    moved = table[600:].copy()
    moved[:, 0] = rng.choice(["red", "green", None], 600, p=[0.2, 0.4, 0.4])
    assert check_shift(table[:600], moved).shift
    assert check_shift(table[:600].tolist(), table[600:].tolist()).to_dict() == guard.to_dict()


def test_missing_values_alone_are_a_shift_even_in_small_samples():
    rng = rng_of(4)
    members, nonmembers = rng.normal(size=(40, 3)), rng.normal(size=(40, 3))
    members[:30, 1] = np.nan
    guard = check_shift(members, nonmembers)
    assert guard.shift
    assert guard.evidence["missing_values"] == 30


def test_extreme_features():
    rng = rng_of(0)
    flat = check_shift(np.ones((30, 2)), np.zeros((40, 2)))
    assert flat.shift
    assert flat.evidence["auc"] == 1
    assert flat.evidence["auc_low"] < 1
    same = check_shift(np.ones((30, 2)), np.ones((40, 2)))
    assert not same.shift
    assert same.evidence["auc"] == 0.5
    assert same.evidence["p_value"] == 1
    assert check_shift(rng.normal(size=(60, 2)) * 1e300, rng.normal(size=(60, 2)) * 1e300).checked
    wide = rng.normal(size=(400, 700))
    wide[:200, 650] += 1.5
    assert check_shift(wide[:200], wide[200:]).shift


# --- copies --------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_exact_copies_agree_with_sets(data):
    rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, -0.0, 1.5, math.nan])), min_size=1, max_size=15)
    members, nonmembers = data.draw(rows), data.draw(rows)

    def key(row):
        return (row[0], "nan" if row[1] != row[1] else row[1] + 0.0)

    seen = {key(row) for row in members}
    try:
        evidence = check_shift(np.array(members, float), np.array(nonmembers, float)).evidence
    except InputError as error:
        assert "same records" in str(error)
        assert seen <= {key(r) for r in nonmembers} or {key(r) for r in nonmembers} <= seen
        return
    copied = [j for j, row in enumerate(nonmembers) if key(row) in seen]
    assert evidence["duplicates"] == len(copied)
    assert [j for _, j in evidence["duplicate_pairs"]] == copied[:5]
    assert all(key(members[i]) == key(nonmembers[j]) for i, j in evidence["duplicate_pairs"])
    assert evidence["duplicates_within_members"] == len(members) - len(seen)


def test_hashes_tell_simple_rows_apart():
    bits = np.array(list(itertools.product([0.0, 1.0], repeat=14)))
    assert np.unique(record_hashes(bits)).size == len(bits)
    assert np.unique(record_hashes(bits.astype(np.uint8), as_bytes=True)).size == len(bits)


def test_near_copies_of_table_rows():
    rng = rng_of(6)
    members, nonmembers = rng.normal(size=(1000, 12)), rng.normal(size=(1000, 12))
    nonmembers[10:40] = members[200:230] + rng.normal(size=(30, 12)) * 1e-3
    nonmembers[0] = members[0]
    guard = check_shift(members, nonmembers)
    assert guard.evidence["near_duplicates"] == 30
    assert guard.evidence["near_duplicate_pairs"][0] == [200, 10]
    assert guard.evidence["duplicates"] == 1
    assert any("30 of 1000 non-members (3 %) are each nearly a copy" in w for w in guard.evidence["warnings"])


def test_one_smooth_feature_is_not_called_near_copies():
    rng = rng_of(7)
    evidence = check_shift(rng.normal(size=3000), rng.normal(size=3000)).evidence
    assert evidence["near_duplicates"] > 0
    assert evidence["warnings"] == []


def test_the_same_records_are_refused():
    rng = rng_of(8)
    data = rng.normal(size=(50, 3))
    for members, nonmembers in ((data, data[::-1]), (data, data[:20]), (data[:20], data)):
        with pytest.raises(InputError, match="members and nonmembers are the same records"):
            check_shift(members, nonmembers)
    texts = [f"text {i}" for i in range(30)]
    with pytest.raises(InputError, match="same records"):
        check_shift(texts, [text + " " for text in texts])
    coarse = rng.integers(0, 2, (400, 3))  # eight possible rows: copies are natural
    assert check_shift(coarse[:150], coarse[150:]).evidence["duplicates"] == 250


# --- class balance -------------------------------------------------------------------------------------------------


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


# --- masks ---------------------------------------------------------------------------------------------------------


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
    assert fair["warnings"] == []
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


# --- the verdict ---------------------------------------------------------------------------------------------------


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
        (([[1, 2], [3]], np.ones((3, 2))), {}, "mixed lengths"),
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


def test_words_are_counted_for_each_text():
    hashes, counts = word_hashes(["One two one", "", "TWO"])
    assert counts.tolist() == [3, 0, 1]
    assert hashes[0] == hashes[2] != hashes[1] == hashes[3]


def test_large_tables_are_sampled_and_fast():
    rng = rng_of(0)
    members, nonmembers = rng.normal(size=(100_000, 20)), rng.normal(size=(100_000, 20))
    nonmembers[99_999] = members[5]
    start = time.process_time()
    guard = check_shift(members, nonmembers)
    assert time.process_time() - start < 5
    assert guard.evidence["records_used"] == 20_000
    assert guard.evidence["duplicate_pairs"] == [[5, 99_999]]
    unequal = check_shift(members[:500], nonmembers, max_records=3000)
    assert unequal.evidence["records_used"] == 3000


def test_importing_the_guard_does_not_import_scikit_learn():
    code = "import sys, dosimeter.audits.guard; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
