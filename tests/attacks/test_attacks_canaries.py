"""Canaries are what they say: wrong labels, features outside the data's dependence, the least direction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter import InputError
from dosimeter.attacks import clip_bkd, mislabelled, out_of_distribution


def drawn(seed=0, records=60, shape=(3, 4), classes=4):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((records, *shape)), rng.integers(0, classes, records)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 60))
def test_mislabelled_records_are_of_the_data_with_another_label(seed, classes, count):
    x, y = drawn(seed, classes=classes)
    found = mislabelled(x, y, count, classes, seed)
    rows = {row.tobytes(): label for row, label in zip(x, y, strict=True)}
    assert len({row.tobytes() for row in found.X}) == count
    for row, label in zip(found.X, found.y, strict=True):
        assert rows[row.tobytes()] != label
        assert 0 <= label < classes
    again = mislabelled(x, y, count, classes, seed)
    np.testing.assert_array_equal(found.X, again.X)
    np.testing.assert_array_equal(found.y, again.y)


def test_every_wrong_label_is_as_likely():
    x, _ = drawn(records=3000, shape=(1,))
    found = mislabelled(x, np.full(3000, "b"), 3000, ["a", "b", "c", "d"], 0)
    names, counts = np.unique(found.y, return_counts=True)
    assert names.tolist() == ["a", "c", "d"]
    assert (np.abs(counts - 1000) < 4.5 * (3000 * 2 / 9) ** 0.5).all()
    assert "label that is not its own" in found.description


def test_corners_and_marginals():
    x, _ = drawn(1)
    corners = out_of_distribution(x, 500, 0, classes=3)
    assert corners.X.shape == (500, 3, 4)
    low, high = x.min(axis=0), x.max(axis=0)
    at_low = np.equal(corners.X, low)
    assert (at_low | np.equal(corners.X, high)).all()
    assert abs(at_low.mean() - 0.5) < 4.5 * 0.5 / 6000**0.5
    assert set(corners.y.tolist()) == {0, 1, 2}
    mixed = out_of_distribution(x, 500, 0, kind="marginals")
    assert mixed.y is None
    for place in np.ndindex(3, 4):
        assert set(mixed.X[(slice(None), *place)]) <= set(x[(slice(None), *place)])
    assert not (mixed.X[:, None] == x).all(axis=(2, 3)).any()
    assert corners.description != mixed.description


def test_integer_images_stay_integers():
    x = np.random.default_rng(0).integers(0, 256, (20, 5, 5), dtype=np.uint8)
    assert out_of_distribution(x, 4, 0).X.dtype == np.uint8
    assert clip_bkd(x, np.arange(20) % 2).X.dtype == np.float64


def test_clip_bkd_is_the_last_singular_vector_with_an_unlikely_label():
    rng = np.random.default_rng(0)
    scales = np.array([5.0, 3.0, 2.0, 1.0, 0.1])
    x = rng.standard_normal((400, 5)) * scales @ np.linalg.qr(rng.standard_normal((5, 5)))[0]
    y = (x @ np.linalg.svd(x)[2][-1] > 0).astype(int)  # the label follows the least direction itself
    found = clip_bkd(x, y, 3, scale=2.0)
    vector = np.linalg.svd(x)[2][-1]
    vector = vector * np.sign(vector[np.argmax(np.abs(vector))])
    np.testing.assert_allclose(found.X, np.tile(2 * np.linalg.norm(x, axis=1).mean() * vector, (3, 1)), rtol=1e-8)
    true = int(found.X[0] @ np.linalg.svd(x)[2][-1] > 0)
    assert found.y.tolist() == [1 - true] * 3


def test_clip_bkd_label_is_the_least_likely_of_ridge_regression():
    from sklearn.linear_model import Ridge

    for seed in range(5):
        x, y = drawn(seed, records=200, shape=(7,), classes=5)
        x += np.random.default_rng(seed).standard_normal((5, 7))[y]
        found = clip_bkd(x, y, scale=3.0)
        strength = 1e-3 * np.trace((x - x.mean(axis=0)).T @ (x - x.mean(axis=0))) / 7
        scores = Ridge(strength).fit(x, np.eye(5)[y]).predict(found.X)
        assert found.y[0] == np.argmin(scores[0])


def test_clip_bkd_uses_a_direction_that_no_record_has():
    x, y = drawn(2, shape=(6,))
    x[:, 4] = 0
    found = clip_bkd(x.astype(np.float32), y)
    assert found.X.dtype == np.float32
    np.testing.assert_allclose(found.X[0] / np.linalg.norm(found.X[0]), np.eye(6)[4], atol=1e-5)
    assert found.y[0] in y


X, Y = drawn()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mislabelled(X, Y, 0, 4, 0), "count"),
        (lambda: mislabelled(X, Y, 61, 4, 0), "count"),
        (lambda: mislabelled(X, Y, 3, 1, 0), "classes"),
        (lambda: mislabelled(X, Y, 3, ["a"], 0), "classes has 1"),
        (lambda: mislabelled(X, Y, 3, 2, 0), r"y\[\d+\] is [23], which is not among the 2 classes"),
        (lambda: mislabelled(X, Y[:5], 3, 4, 0), "y has shape"),
        (lambda: mislabelled(X * np.nan, Y, 3, 4, 0), r"X\[0, 0, 0\] is nan"),
        (lambda: mislabelled(np.arange(5), np.arange(5), 3, 5, 0), "X must hold numbers"),
        (lambda: out_of_distribution(X, 3, -1), "seed"),
        (lambda: out_of_distribution(X, 3, 0, kind="odd"), "kind must be one of"),
        (lambda: out_of_distribution([[1.0], [1.0, 2.0]], 3, 0), "X must be an array"),
        (lambda: clip_bkd(X, np.zeros(60)), "only the label"),
        (lambda: clip_bkd(X * 0, Y), "only zeros"),
        (lambda: clip_bkd(X, Y, scale=0), "scale"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
