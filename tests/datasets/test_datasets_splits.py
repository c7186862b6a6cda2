"""Splits by seed, halves by fair coins, fingerprints."""

import hashlib
import pickle

import numpy as np
import pytest
from dataset_forms import wikitext_npz
from hypothesis import given, settings
from hypothesis import strategies as st

import dosimeter
from dosimeter import InputError
from dosimeter.datasets import Dataset, half, load, split
from dosimeter.records import fingerprint


def numbered(records):
    """Records that say their own number."""
    X = np.arange(records, dtype=np.float32)[:, None]
    y = np.arange(records) % 3
    raw = {"place": np.arange(records)}
    return Dataset("numbered", X, y, ("number",), ("a", "b", "c"), "here", fingerprint(X, y), "tabular", raw)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 20), st.integers(0, 2**40))
def test_parts_are_disjoint_and_whole(sizes, more, seed):
    data = numbered(sum(sizes) + more)
    parts = split(data, sizes=sizes, seed=seed)
    assert [len(part) for part in parts] == sizes
    seen = np.concatenate([part.X[:, 0] for part in parts])
    assert len(np.unique(seen)) == len(seen)
    for part in parts:
        np.testing.assert_array_equal(part.y, part.X[:, 0].astype(int) % 3)
        np.testing.assert_array_equal(part.raw["place"], part.X[:, 0])
        assert part.fingerprint == fingerprint(part.X, part.y)
    again = split(data, sizes=sizes, seed=seed)
    assert [a.fingerprint for a in again] == [part.fingerprint for part in parts]
    assert split(data, sizes=sizes[:1], seed=seed)[0].fingerprint == parts[0].fingerprint


def test_each_record_is_as_likely_in_each_part():
    """600 seeds of 10 out of 40: counts have mean 150 and deviation 10.6; 5 deviations for 40 records, p < 3e-5."""
    data, seen = numbered(40), np.zeros(40)
    for seed in range(600):
        seen[split(data, sizes=(10,), seed=seed)[0].raw["place"]] += 1
    assert np.abs(seen - 150).max() < 5 * np.sqrt(600 * 0.25 * 0.75)


@settings(deadline=None)
@given(st.integers(2, 300), st.integers(0, 2**32))
def test_halves_follow_the_coins(records, seed):
    data, coins = numbered(records), dosimeter.fair_coins(records, seed)
    if coins.all() or not coins.any():
        with pytest.raises(InputError, match="on one side"):
            half(data, seed=seed)
        return
    (X, y), (other, labels) = half(data, seed=seed)
    np.testing.assert_array_equal(X[:, 0], np.flatnonzero(coins))
    np.testing.assert_array_equal(other[:, 0], np.flatnonzero(~coins))
    np.testing.assert_array_equal(y, data.y[coins])
    np.testing.assert_array_equal(labels, data.y[~coins])


def test_halves_go_into_an_audit():
    from sklearn.linear_model import LogisticRegression

    from dosimeter.audits.model import audit_model

    members, nonmembers = half(load("wine"), seed=1)
    model = LogisticRegression(max_iter=500).fit(*members)
    audit = audit_model(model, members=members, nonmembers=nonmembers, delta=1e-5)
    assert audit.estimates[0].epsilon >= 0


def test_texts_without_labels(tmp_path):
    from dosimeter.models import dataset

    made = wikitext_npz(None)
    data = load("wikitext2", folder=made.write(tmp_path), verify=False)
    members, nonmembers = half(data, seed=0)
    assert sorted([*members[0].tolist(), *nonmembers[0].tolist()]) == sorted(made.X)
    assert members[1] is None
    texts, labels = dataset(members)
    assert texts == members[0].tolist() and labels is None
    (part,) = split(data, sizes=[3], seed=0)
    assert part.y is None and set(part.X.tolist()) < set(made.X)


def test_take():
    data = numbered(10)
    assert data.take([3, 1]).X[:, 0].tolist() == [3, 1]
    mask = np.arange(10) % 2 == 0
    assert data.take(mask).raw["place"].tolist() == [0, 2, 4, 6, 8]
    for rows, words in (
        (["a"], "rows must be"),
        ([], "rows must be"),
        ([10], "rows holds 10"),
        ([-1], "rows holds -1"),
    ):
        with pytest.raises(InputError, match=words):
            data.take(rows)
    with pytest.raises(InputError, match="rows must be"):
        data.take(mask[:5])


@pytest.mark.parametrize(
    ("sizes", "words"),
    [((0,), r"sizes\[0\]"), ((5, 6), "add up to 11"), ((), "sizes must be"), ("5", "sizes must be"), ((1.5,), "whole")],
)
def test_bad_sizes(sizes, words):
    with pytest.raises(InputError, match=words):
        split(numbered(10), sizes=sizes, seed=0)


def test_bad_dataset_and_seed():
    with pytest.raises(InputError, match="dataset must be a Dataset"):
        split((1, 2), sizes=(1,), seed=0)
    with pytest.raises(InputError, match="dataset must be a Dataset"):
        half(None, seed=0)
    for act in (lambda: half(numbered(9), seed=-1), lambda: split(numbered(9), sizes=(1,), seed="x")):
        with pytest.raises(InputError, match="seed"):
            act()


def test_records_and_labels_must_pair_up():
    with pytest.raises(InputError, match="3 values for 2 records"):
        Dataset("x", np.zeros((2, 1)), np.zeros(3), (), (), "", "", "tabular")


def test_fingerprint_by_hand():
    X, y = np.array([[1.0, 2.0]], np.float32), np.array([7])
    by_hand = b"<f4 (1, 2)\n" + X.tobytes() + b"<i8 (1,)\n" + y.tobytes()
    assert fingerprint(X, y) == hashlib.sha256(by_hand).hexdigest()
    texts = np.array(["a", "é"], np.dtypes.StringDType())
    assert fingerprint(texts, None) == hashlib.sha256("text (2,)\n1:a2:énone\n".encode()).hexdigest()


def test_fingerprint_tells_content_shape_and_type_apart():
    X, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(3)
    other = X.copy()
    other[2, 3] = np.nextafter(other[2, 3], 0)
    texts = [np.array(t, np.dtypes.StringDType()) for t in (["ab", "c"], ["a", "bc"])]
    cases = [(X, y), (other, y), (X, y + 1), (X, None), (X.reshape(3, 2, 2), y), (X.astype(np.float64), y)]
    found = [fingerprint(*case) for case in cases] + [fingerprint(t, None) for t in texts]
    assert len(set(found)) == len(found)
    assert fingerprint(np.asfortranarray(X), y) == fingerprint(X, y) == fingerprint(X.astype(">f4"), y)


def test_travels_to_another_process():
    data = numbered(5)
    copy = pickle.loads(pickle.dumps(data))  # noqa: S301 - what multiprocessing does
    assert copy.fingerprint == data.fingerprint and copy.raw["place"].tolist() == [0, 1, 2, 3, 4]
    assert not copy.X.flags.writeable
