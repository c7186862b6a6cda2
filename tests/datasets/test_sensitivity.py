"""The search for neighbouring data sets against all pairs by brute force, its laws and its refusals."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import correlate1d
from scipy.spatial.distance import cdist

from dosimeter import InputError
from dosimeter.datasets import distances, load, sensitivity
from dosimeter.datasets.sensitivity import bounded, unbounded

METRICS = {
    "hamming": lambda a, b: cdist(a, b, "hamming") * a.shape[1],
    "manhattan": lambda a, b: cdist(a, b, "cityblock"),
    "euclidean": lambda a, b: cdist(a, b, "euclidean"),
    "cosine": lambda a, b: cdist(a, b, "cosine"),
}


def table(rows, seed=0):
    """Columns as a coded table has them: numbers, small codes, one-hot columns, one that is constant."""
    rng = np.random.default_rng(seed)
    coded = np.eye(5)[rng.integers(0, 5, rows)]
    columns = (rng.normal(2, 1, (rows, 3)), rng.integers(0, 4, (rows, 2)), coded, np.full((rows, 1), 3.0))
    return np.concatenate([*columns, 2.5 * rng.integers(0, 2, (rows, 1))], axis=1)


def bits(rows, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (rows, 30)).astype(float)


def l3(a, b):
    return (np.abs(a[:, None] - b[None]) ** 3).sum(axis=2) ** (1 / 3)


def slow_ssim(x, y, window, span):
    """SSIM of two images with filters of SciPy."""
    weights = np.full(8, 1 / 8) if window == "8x8" else np.exp(-((np.arange(11) - 5) ** 2) / 4.5)
    weights = weights / weights.sum()
    before = len(weights) // 2

    def mean(image):
        filtered = correlate1d(correlate1d(image, weights, axis=0), weights, axis=1)
        after = len(weights) - 1 - before
        return filtered[before : image.shape[0] - after, before : image.shape[1] - after]

    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    mx, my = mean(x), mean(y)
    vx, vy, cov = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
    return np.mean((2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2)))


# --- against brute force ----------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [True, False])
@pytest.mark.parametrize("make", [table, bits])
@pytest.mark.parametrize("name", METRICS)
def test_unbounded_sums_are_those_of_all_pairs(name, make, most):
    X = make(83)
    sums = METRICS[name](X, X).sum(axis=1)
    found = unbounded(X, distance=name, count=10, most=most, block=20)
    order = np.argsort(-sums if most else sums, kind="stable")[:10]
    np.testing.assert_allclose(found.distances, sums[order], rtol=1e-10)
    np.testing.assert_allclose(sums[found.rows], found.distances, rtol=1e-10)
    assert not found.bounded
    assert (found.name, found.most, len(found)) == (name, most, 10)


@pytest.mark.parametrize("most", [True, False])
@pytest.mark.parametrize("make", [table, bits])
@pytest.mark.parametrize("name", METRICS)
def test_bounded_pairs_are_the_best_of_all_pairs(name, make, most):
    D, U = make(47, seed=1), make(61, seed=2)
    every = METRICS[name](D, U)
    found = bounded(D, U, distance=name, count=12, most=most, block=20)
    best = np.sort(every, axis=None)
    np.testing.assert_allclose(found.distances, best[::-1][:12] if most else best[:12], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(every[found.rows, found.other_rows], found.distances, rtol=1e-9, atol=1e-12)
    assert found.bounded


@pytest.mark.parametrize("window", ["8x8", "gaussian"])
def test_negative_ssim_against_another_implementation(window, monkeypatch):
    rng = np.random.default_rng(0)
    D, U = rng.random((5, 14, 12)), rng.random((7, 14, 12))
    U[3] = 0.5 * D[2] + 0.2
    every = np.array([[-slow_ssim(x, y, window, 2.0) for y in U] for x in D])
    found = bounded(D, U, distance=f"negative-ssim-{window}", count=35, data_range=2.0, block=3)
    np.testing.assert_allclose(found.distances, np.sort(every, axis=None)[::-1], rtol=1e-10)
    np.testing.assert_allclose(every[found.rows, found.other_rows], found.distances, rtol=1e-10)
    nearest = bounded(D, U, distance=f"negative-ssim-{window}", most=False, data_range=2.0)
    assert (nearest.rows[0], nearest.other_rows[0]) == (2, 3)
    sums = np.array([[-slow_ssim(x, y, window, 1.0) for y in U] for x in U])
    np.fill_diagonal(sums, 0)
    monkeypatch.setattr(distances, "_IMAGES_AT_ONCE", 2)
    alone = unbounded(U, distance=f"negative-ssim-{window}", count=7, data_range=1.0, block=4)
    np.testing.assert_allclose(alone.distances, np.sort(sums.sum(axis=1))[::-1], rtol=1e-9)


def test_ssim_names_shapes_and_range():
    images = np.random.default_rng(1).random((6, 9, 9))
    short = unbounded(images, distance="negative-ssim")
    assert short.name == "negative-ssim-8x8"
    span = images.max() - images.min()
    same = unbounded(255 * images[:, None], distance="negative-ssim-8x8", data_range=255 * span)
    assert same.distances[0] == pytest.approx(short.distances[0], rel=1e-9)
    last = unbounded(images[..., None], distance="negative-ssim-8x8")
    assert last.rows[0] == short.rows[0]
    alike = bounded(images[:1], images[1:], distance="negative-ssim", rows_of_d=[])
    assert -1 <= alike.distances[0] <= 1


def test_a_function_of_the_user():
    D, U = table(20, seed=3), table(30, seed=4)
    every = l3(D, U)
    found = bounded(D, U, distance=l3, count=3, block=7)
    np.testing.assert_allclose(found.distances, np.sort(every, axis=None)[::-1][:3])
    alone = unbounded(D, distance=l3, block=6)
    assert alone.distances[0] == pytest.approx(l3(D, D).sum(axis=1).max())
    assert found.name == alone.name == "l3"


@pytest.mark.parametrize("name", METRICS)
def test_real_digits(name):
    pytest.importorskip("sklearn")
    X = load("digits").X
    D, U = X[:700], X[700:]
    every = METRICS[name](D.astype(float), U.astype(float))
    for most in (True, False):
        found = bounded(D, U, distance=name, count=5, most=most)
        best = np.sort(every, axis=None)
        np.testing.assert_allclose(found.distances, best[::-1][:5] if most else best[:5], rtol=1e-7)
    sums = METRICS[name](X.astype(float), X.astype(float)).sum(axis=1)
    assert unbounded(X, distance=name).distances[0] == pytest.approx(sums.max(), rel=1e-9)


# --- exactness --------------------------------------------------------------------------------------------


def test_hamming_counts_are_whole_numbers():
    found = bounded(table(40), table(40, seed=5), distance="hamming", count=50)
    assert (found.distances == np.rint(found.distances)).all()


@pytest.mark.parametrize("name", ["euclidean", "cosine"])
def test_nearly_equal_records_far_from_the_origin_keep_their_order(name):
    rng = np.random.default_rng(6)
    D = 1e3 + rng.normal(size=(30, 5))
    U = 1e3 + rng.normal(size=(40, 5))
    direction = np.array([1.0, -1, 0, 0, 0])
    U[11], U[12], U[13] = D[7] + 3e-6 * direction, D[8] + 1e-6 * direction, D[9] + 2e-6 * direction
    found = bounded(D, U, distance=name, count=3, most=False)
    assert found.rows.tolist() == [8, 9, 7]
    assert found.other_rows.tolist() == [12, 13, 11]
    if name == "euclidean":
        np.testing.assert_allclose(found.distances, np.sqrt(2) * np.array([1e-6, 2e-6, 3e-6]), rtol=1e-5)


def test_whole_numbers_are_exact_in_single_precision():
    rng = np.random.default_rng(7)
    D, U = (rng.integers(0, 50, (60, 40)).astype(float) for _ in range(2))
    pairs = distances.SquaredPairs("euclidean", D, U, False)
    assert pairs.first.dtype == np.float32
    np.testing.assert_array_equal(pairs.block(slice(0, 60), slice(0, 60)), cdist(D, U, "sqeuclidean"))
    large = distances.SquaredPairs("euclidean", 1000 * D, 1000 * U, False)
    assert large.first.dtype == np.float64
    steps = distances.ManhattanPairs(D % 3, U % 3)
    assert steps.products.left.dtype == np.float32
    np.testing.assert_array_equal(steps.block(slice(0, 60), slice(0, 60)), cdist(D % 3, U % 3, "cityblock"))


def test_manhattan_sums_far_from_the_origin():
    X = 1e6 + np.random.default_rng(8).normal(size=(500, 3))
    found = unbounded(X, distance="manhattan", count=500)
    np.testing.assert_allclose(found.distances, cdist(X, X, "cityblock").sum(axis=1)[found.rows], rtol=1e-9)


# --- laws -------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([*METRICS]),
    st.integers(1, 40),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([table, bits]),
)
@settings(max_examples=60, deadline=None)
def test_the_size_of_the_blocks_does_not_matter(seed, name, block, count, most, make):
    D, U = make(17, seed), make(23, seed + 1)
    whole = bounded(D, U, distance=name, count=count, most=most, rows_of_d=[])
    parts = bounded(D, U, distance=name, count=count, most=most, rows_of_d=[], block=block)
    np.testing.assert_allclose(parts.distances, whole.distances, rtol=1e-9, atol=1e-12)
    if name in ("hamming", "manhattan") and make is bits:
        np.testing.assert_array_equal(parts.rows, whole.rows)
        np.testing.assert_array_equal(parts.other_rows, whole.other_rows)
    alone, cut = unbounded(U, distance=name, most=most), unbounded(U, distance=name, most=most, block=block)
    np.testing.assert_allclose(cut.distances, alone.distances, rtol=1e-9)


def test_ties_come_in_the_order_of_the_rows():
    D, U = np.zeros((4, 2)), np.ones((5, 2))
    for block in (1, 2, 3, 100):
        found = bounded(D, U, distance="hamming", count=7, block=block)
        assert list(zip(found.rows.tolist(), found.other_rows.tolist(), strict=True)) == [
            *((0, j) for j in range(5)),
            (1, 0),
            (1, 1),
        ]
    assert unbounded(np.tile([[0.0], [1.0]], (3, 1)), distance="manhattan", count=6).rows.tolist() == list(range(6))


def test_records_of_d_are_left_out_of_u():
    X = table(30)
    D, U = X[:10], X.copy()
    U[3] += 0.0
    found = bounded(D, U, distance="euclidean", count=200)
    assert found.left_out == 10
    assert found.other_rows.min() >= 10
    nearest = bounded(D, U, distance="euclidean", most=False)
    assert nearest.distances[0] > 0
    by_rows = bounded(D, U, distance="euclidean", count=200, rows_of_d=np.arange(10))
    np.testing.assert_array_equal(by_rows.other_rows, found.other_rows)
    twin = np.concatenate([U, D[:1]])  # equal values in a row that is not named stay in U∖D
    assert bounded(D, twin, distance="euclidean", most=False, rows_of_d=np.arange(10)).distances[0] == 0
    signed = bounded(np.array([[0.0, 1.0]]), np.array([[-0.0, 1.0], [1.0, 1.0]]), distance="hamming")
    assert signed.left_out == 1


def test_the_result_is_plain_json():
    found = bounded(table(5), table(6, seed=9), distance="cosine", count=2).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False))["bounded"] is True
    assert unbounded(table(5), distance="cosine").to_dict()["other_rows"] is None


def test_memory_stays_below_all_pairs():
    import tracemalloc

    X = np.random.default_rng(10).normal(size=(3000, 8))
    tracemalloc.start()
    unbounded(X, distance="euclidean", block=256)
    bounded(X[:1500], X[1500:], distance="euclidean", block=256)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 1500 * 1500 / 2


def test_progress_is_said_on_standard_error(capsys):
    X = table(30)
    unbounded(X, distance="euclidean", block=10, progress=True)
    bounded(X[:15], X[15:], distance="euclidean", block=10)
    lines = capsys.readouterr()
    assert lines.out == ""
    assert lines.err == "dosimeter: comparing records, 6 blocks of pairs.\n"


def test_progress_on_a_terminal_changes_no_number(monkeypatch, capsys):
    X = table(30)
    quiet = unbounded(X, distance="euclidean", block=10)
    monkeypatch.setattr(sensitivity.sys.stderr, "isatty", lambda: True, raising=False)
    shown = unbounded(X, distance="euclidean", block=10, progress=True)
    assert shown.to_dict() == quiet.to_dict()
    assert "comparing records, " not in capsys.readouterr().err


# --- refusals ---------------------------------------------------------------------------------------------

X = table(12)
HOLE = X.copy()
HOLE[4, 2] = np.nan


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: unbounded(HOLE, distance="hamming"), r"X\[4, 2\] is nan, and 1 of"),
        (lambda: bounded(X, HOLE, distance="hamming"), r"U\[4, 2\] is nan"),
        (lambda: bounded(HOLE, X, distance="hamming"), r"D\[4, 2\] is nan"),
        (lambda: unbounded(X[:, 0], distance="hamming"), r"one row for each record, got shape \(12,\)"),
        (lambda: unbounded(X[:1], distance="hamming"), "X has 1 record"),
        (lambda: unbounded([[1.0], [1.0, 2.0]], distance="hamming"), "mixed lengths"),
        (lambda: unbounded([["a"], ["b"]], distance="hamming"), "X must hold numbers"),
        (lambda: unbounded(1e200 * X, distance="euclidean"), "scale the records"),
        (lambda: unbounded(X, distance="chebyshev"), "distance must be one of hamming"),
        (lambda: unbounded(X, distance="hamming", count=13), "count must be between 1 and 12, got 13"),
        (lambda: unbounded(X, distance="hamming", count=0), "count must be"),
        (lambda: unbounded(X, distance="hamming", most=1), "most must be True or False"),
        (lambda: unbounded(X, distance="hamming", block=0), "block must be"),
        (lambda: unbounded(X, distance="hamming", progress="yes"), "progress must be True or False"),
        (lambda: unbounded(X, distance="negative-ssim"), "must hold grey images"),
        (lambda: unbounded(np.ones((3, 5, 5)), distance="negative-ssim"), "smaller than the window"),
        (lambda: unbounded(np.ones((3, 9, 9)), distance="negative-ssim", data_range=0), "data_range must be"),
        (lambda: unbounded(np.array([[1.0], [0.0]]), distance="cosine"), "row 1 of X is all zeros"),
        (lambda: bounded([[1.0]], [[1.0], [2.0], [0.0]], distance="cosine"), "row 2 of U is all zeros"),
        (lambda: bounded(X, X[:, :3], distance="hamming"), r"D has records of shape \(12,\), U of \(3,\)"),
        (lambda: bounded(X, X[3:7], distance="hamming"), "U∖D is empty: each of the 4 records of U is in D"),
        (lambda: bounded(X, X[:0], distance="hamming"), "U∖D is empty"),
        (lambda: bounded(X[:0], X, distance="hamming"), "D has no records"),
        (lambda: bounded(X, X, distance="hamming", rows_of_d=np.arange(12)), "U∖D is empty"),
        (lambda: bounded(X, X, distance="hamming", rows_of_d=[12]), "rows_of_d holds 12, and U has rows 0 to 11"),
        (lambda: bounded(X[:6], X, distance="hamming", count=37), "between 1 and 36"),
        (lambda: unbounded(X, distance=lambda a, b: a @ b[::-1].T), "is not symmetric"),
        (lambda: bounded(X[:6], X, distance=lambda a, b: a.sum(1)[:, None] - b.sum(1)), "is not symmetric"),
        (lambda: unbounded(X, distance=lambda a, b: np.zeros(3)), r"must return numbers of shape \(12, 12\)"),
        (lambda: unbounded(X, distance=lambda a, b: np.full((len(a), len(b)), np.nan)), "not finite"),
        (lambda: unbounded(X, distance=lambda a, b: 1 / 0), "failed on 12 × 12 records: ZeroDivisionError"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
