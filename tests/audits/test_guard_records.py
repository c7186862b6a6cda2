"""The shift guard on texts, images and tables, and the copies that it finds."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.audits.shift.guard import check_shift
from dosimeter.audits.shift.records import record_hashes, thumbnails, word_hashes

rng_of = np.random.default_rng


# --- kinds of records -----------------------------------------------------------------------------------------


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
    assert evidence["duplicate_pairs"] == ((9, 4),)
    assert evidence["near_duplicates"] == 1
    assert evidence["near_duplicate_pairs"] == ((17, 8),)
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
    assert guard.evidence["duplicate_pairs"] == ((7, 100),)
    assert guard.evidence["near_duplicate_pairs"] == ((8, 101), (9, 102))
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


def test_words_are_counted_for_each_text():
    hashes, counts = word_hashes(["One two one", "", "TWO"])
    assert counts.tolist() == [3, 0, 1]
    assert hashes[0] == hashes[2] != hashes[1] == hashes[3]


# --- copies ---------------------------------------------------------------------------------------------------


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
    assert guard.evidence["near_duplicate_pairs"][0] == (200, 10)
    assert guard.evidence["duplicates"] == 1
    assert any("30 of 1000 non-members (3 %) are each nearly a copy" in w for w in guard.evidence["warnings"])


def test_one_smooth_feature_is_not_called_near_copies():
    rng = rng_of(7)
    evidence = check_shift(rng.normal(size=3000), rng.normal(size=3000)).evidence
    assert evidence["near_duplicates"] > 0
    assert evidence["warnings"] == ()


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


def test_token_numbers_of_any_lengths_are_words():
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 50, size) for size in rng.integers(3, 12, 200)]
    other = [rng.integers(0, 50, size).tolist() for size in rng.integers(3, 12, 200)]
    found = check_shift(rows, other)
    assert found.checked and not found.shift and found.evidence["kind"] == "text"
    shifted = [rng.integers(20, 70, size) for size in rng.integers(3, 12, 200)]
    assert check_shift(rows, shifted).shift
    table = rng.integers(0, 50, (200, 7))  # all of one length by chance
    assert check_shift(rows, table).evidence["kind"] == "text"
    assert check_shift([*rows[:50], table[0]], [*rows[50:], table[0]]).evidence["duplicates"] == 1
    for wrong in (rng.normal(size=(200, 7)), [[0.5, 1.5]] * 200):
        with pytest.raises(InputError, match="nonmembers holds no token numbers"):
            check_shift(rows, wrong)
    with pytest.raises(InputError, match="mixed lengths"):
        check_shift([[0.5], [1.5, 2.5]] * 50, [[0.5], [1.5, 2.5]] * 50)
