"""Scores of texts against plain Python, one text at a time."""

import statistics
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter import InputError
from dosimeter.attacks import (
    calibrated_min_k_plus_plus,
    error_zone,
    mean_log_probability,
    min_k,
    min_k_plus_plus,
    reference_ratio,
    token_informia,
    window_signs,
    zlib_ratio,
)

ROWS = st.lists(st.lists(st.floats(-30, 0), min_size=1, max_size=12), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.floats(0.05, 1))
def test_against_plain_python(rows, k):
    def lowest(row):
        return statistics.fmean(sorted(row)[: max(1, int(k * len(row) + 1e-9))])

    np.testing.assert_allclose(mean_log_probability(rows), [statistics.fmean(r) for r in rows], atol=1e-12)
    np.testing.assert_allclose(min_k(rows, k), [lowest(r) for r in rows], atol=1e-12)
    standard = [[(v + 2) / (1 + i) for i, v in enumerate(r)] for r in rows]
    means, deviations = [[-2.0] * len(r) for r in rows], [[1.0 + i for i in range(len(r))] for r in rows]
    np.testing.assert_allclose(min_k_plus_plus(rows, means, deviations, k), [lowest(r) for r in standard], atol=1e-12)
    np.testing.assert_allclose(min_k(rows, 1.0), mean_log_probability(rows), atol=1e-12)


def test_reference_and_zlib():
    tokens, reference = [[-1.0, -2.0], [-3.0]], [[-2.0, -2.0, -2.0], [-1.0]]
    np.testing.assert_allclose(reference_ratio(tokens, reference), [0.5, -2.0])
    texts = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "zażółć \ud800"]
    sizes = [len(zlib.compress(t.encode("utf-8", "surrogatepass"))) for t in texts]
    np.testing.assert_allclose(zlib_ratio(tokens, texts), [-3 / sizes[0], -3 / sizes[1]])


def test_arrays_of_single_precision_and_exact_shares():
    rows = np.full((3, 10), -1.0, np.float32)
    rows[:, :3] = -4
    np.testing.assert_allclose(min_k(rows, 0.3), -4)
    np.testing.assert_allclose(min_k([np.arange(-100.0, 0)], 0.29), np.arange(-100.0, -71).mean())


def test_uniform_distributions_count_as_zero():
    assert min_k_plus_plus([[-1.0, -2.0]], [[-1.0, -1.0]], [[0.0, 2.0]], 1.0) == pytest.approx(-0.25)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_log_probability([]), "tokens must be a list"),
        (lambda: mean_log_probability("abc"), "tokens must be a list"),
        (lambda: mean_log_probability([[-1.0], []]), r"tokens\[1\] is \[\]"),
        (lambda: mean_log_probability([[-1.0], [[-1.0]]]), r"tokens\[1\]"),
        (lambda: mean_log_probability([[-1.0], ["a"]]), r"tokens\[1\]"),
        (lambda: mean_log_probability([[-1.0], [-1.0, np.nan]]), r"tokens\[1\]\[1\] is nan"),
        (lambda: mean_log_probability([[-1.0], [-np.inf]]), r"tokens\[1\]\[0\] is -inf"),
        (lambda: mean_log_probability([[-1.0], [-1.0, 0.5]]), r"tokens\[1\]\[1\] is 0.5, above 0"),
        (lambda: reference_ratio([[-1.0]], [[-1.0], [-1.0]]), "reference has 2 texts but tokens has 1"),
        (lambda: zlib_ratio([[-1.0]], "text"), "texts is one string"),
        (lambda: zlib_ratio([[-1.0]], ["a", "b"]), "texts is 2 texts for 1 rows"),
        (lambda: zlib_ratio([[-1.0]], [b"a"]), r"texts\[0\] is b'a', not a text"),
        (lambda: min_k([[-1.0]], 0), "k must be"),
        (lambda: min_k([[-1.0]], 1.5), "k must be"),
        (
            lambda: min_k_plus_plus([[-1.0], [-1.0]], [[-1.0], [-1.0, -2.0]], [[1.0], [1.0]]),
            r"means\[1\] and tokens\[1\]",
        ),
        (lambda: min_k_plus_plus([[-1.0]], [[-1.0]], [[1.0], [1.0]]), r"deviations\[1\]"),
        (lambda: min_k_plus_plus([[-1.0]], [[-1.0]], [[-1.0]]), r"deviations\[0\]\[0\] is below 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


_RNG = np.random.default_rng(3)
_SIZES = (1, 2, 5, 17, 60)
_TOKENS, _BASE, _MOVED = ([sign * _RNG.exponential(2.0, n) for n in _SIZES] for sign in (-1, -1, 1))
_RANKS = [_RNG.integers(0, 3, n) for n in _SIZES]


class TestBesideTheBaseModel:
    """Scores that compare with the base model, each by a slow second route."""

    def test_windows(self):
        expected = []
        for own, other in zip(_TOKENS, _BASE, strict=True):
            gained = own - other
            shares = []
            for width in (min(w, gained.size) for w in (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)):
                sums = [gained[i : i + width].sum() for i in range(gained.size - width + 1)]
                shares.append(np.mean(np.array(sums) > 0))
            expected.append(np.mean(shares))
        np.testing.assert_allclose(window_signs(_TOKENS, _BASE), expected)

    def test_error_zone(self):
        found = error_zone(_TOKENS, _BASE, _RANKS)
        for score, own, other, rank in zip(found, _TOKENS, _BASE, _RANKS, strict=True):
            gained = (own - other)[rank > 0]
            if gained.size:
                up, down = gained[gained > 0].sum(), -gained[gained < 0].sum()
                assert score == pytest.approx(np.log(up + 1e-3) - np.log(down + 1e-3))
            else:
                assert score == pytest.approx(1e6 + (own - other).mean())

    def test_the_best_remembered_texts_come_first(self):
        """The quotient of the released code would give them 0."""
        tokens, base = [[-0.01, -0.01], [-0.5, -0.6], [-3.0, -3.0]], [[-5.0, -5.0], [-5.0, -5.0], [-2.0, -4.0]]
        found = error_zone(tokens, base, [[0, 0], [1, 1], [2, 2]])
        assert found[0] > found[1] > found[2]

    def test_informia_and_calibrated(self):
        found = token_informia(_TOKENS, _BASE, _MOVED)
        expected = [(a - b + c).mean() for a, b, c in zip(_TOKENS, _BASE, _MOVED, strict=True)]
        np.testing.assert_allclose(found, expected)
        deviations = [np.full(n, 2.0) for n in _SIZES]
        both = (_BASE, _TOKENS, deviations)
        np.testing.assert_allclose(
            calibrated_min_k_plus_plus(_TOKENS, _BASE, deviations, both),
            min_k_plus_plus(_TOKENS, _BASE, deviations) - min_k_plus_plus(*both),
        )

    @pytest.mark.parametrize(
        "call",
        [
            lambda: window_signs([[-1.0]], [[-1.0, -2.0]]),
            lambda: error_zone([[-1.0]], [[-1.0]], [[1, 2]]),
            lambda: token_informia([[-1.0]], [[-1.0]], [[0.1, 0.2]]),
        ],
    )
    def test_lengths_that_differ(self, call):
        with pytest.raises(InputError, match="differ in length"):
            call()

    def test_a_reference_of_three_parts(self):
        with pytest.raises(InputError, match="reference must be"):
            calibrated_min_k_plus_plus([[-1.0]], [[-1.0]], [[1.0]], [[-1.0]])
