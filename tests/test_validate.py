import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dosimeter import _validate as check
from dosimeter._validate import InputError

NOT_A_NUMBER = [
    None,
    True,
    np.True_,
    "0.5",
    b"1",
    1 + 2j,
    Decimal("0.5"),
    [0.5],
    (0.5,),
    {},
    object(),
    np.array([0.5]),
    np.array([[0.5]]),
    np.array(True),
    np.array("0.5"),
    np.array(1 + 2j),
    np.array(None),
    np.array("2020-01-01", "M8[D]"),
    np.ma.masked,
    np.zeros((), [("a", float)]),
]
NOT_FINITE = [
    float("nan"),
    float("inf"),
    -float("inf"),
    np.float32("nan"),
    np.array(np.inf),
    10**400,
    Fraction(10**400),
]


class TestReal:
    @pytest.mark.parametrize("value", NOT_A_NUMBER + NOT_FINITE)
    def test_refuses_with_name_and_remedy(self, value):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InputError, match=r"^size must be .*got .*; pass one\.$"):
                check.real("size", value, "pass one")

    @pytest.mark.parametrize("value", [2, 2.0, np.int8(2), np.float32(2), np.array(2), np.array(2.0), Fraction(2)])
    def test_takes_every_kind_of_real_number(self, value):
        result = check.real("size", value, "pass one")
        assert result == 2.0
        assert type(result) is float

    def test_a_long_value_is_cut_in_the_message(self):
        with pytest.raises(InputError) as caught:
            check.real("size", "x" * 10_000, "pass one")
        assert len(str(caught.value)) < 200


class TestWithin:
    @pytest.mark.parametrize(
        ("include", "inside", "outside"),
        [("[]", (0, 1), (-1e-300, 1.0000001)), ("[)", (0,), (1,)), ("(]", (1,), (0,)), ("()", (0.5,), (0, 1))],
    )
    def test_brackets(self, include, inside, outside):
        for value in inside:
            assert check.within("rate", value, 0.0, 1.0, "pass e.g. 0.5", include=include) == value
        for value in outside:
            with pytest.raises(InputError, match=r"rate must be in .*0, 1.*; pass e\.g\. 0\.5\."):
                check.within("rate", value, 0.0, 1.0, "pass e.g. 0.5", include=include)

    def test_an_infinite_end_is_shown_open(self):
        with pytest.raises(InputError, match=r"in \[0, inf\), got -1"):
            check.within("rate", -1, 0.0, float("inf"), "pass more")


class TestWhole:
    def test_whole_floats_count(self):
        assert check.whole("n", 3.0, 0, "pass n") == 3
        assert type(check.whole("n", np.float64(3), 0, "pass n")) is int

    def test_large_integers_stay_exact(self):
        assert check.whole("n", 2**53 + 1, 0, "pass n") == 2**53 + 1

    @pytest.mark.parametrize("value", [2.5, -1, 11, -0.5, 1e300])
    def test_refuses(self, value):
        with pytest.raises(InputError, match=r"^n must be .*; pass n\.$"):
            check.whole("n", value, 0, "pass n", 10)


class TestNamedChecks:
    @pytest.mark.parametrize("value", [-1e-9, 1, 1.5, "1e-5", None, float("nan")])
    def test_delta(self, value):
        with pytest.raises(InputError, match=r"^delta must be"):
            check.delta(value)

    @pytest.mark.parametrize("value", [0, 0.0, np.float64(0), np.array(0.0)])
    def test_delta_zero_is_refused_where_it_must_be(self, value):
        assert check.delta(value) == 0.0
        with pytest.raises(InputError, match=r"delta must be (above|in \()"):
            check.delta(value, zero=False, why_not_zero="it is infinite there")

    def test_the_reason_is_in_the_message(self):
        with pytest.raises(InputError, match="got 0: it is infinite there"):
            check.delta(0, zero=False, why_not_zero="it is infinite there")

    @pytest.mark.parametrize("value", [0, 1, 95, -0.1, "95 %", None])
    def test_confidence(self, value):
        with pytest.raises(InputError, match=r"^confidence must be"):
            check.confidence(value)

    @pytest.mark.parametrize("value", [-1, 0.5, None, "0", float("inf")])
    def test_seed(self, value):
        with pytest.raises(InputError, match=r"^seed must be"):
            check.seed(value)

    @pytest.mark.parametrize("value", ["c", None, 1, ["a"], "A"])
    def test_choice(self, value):
        assert check.choice("way", "a", ("a", "b")) == "a"
        with pytest.raises(InputError, match=r"^way must be one of a, b, got"):
            check.choice("way", value, ("a", "b"))


class TestFiniteArray:
    @pytest.mark.parametrize(
        "values",
        [
            None,
            "abc",
            b"abc",
            3.0,
            [],
            [[1.0], [2.0]],
            [[1.0], [1.0, 2.0]],
            [1.0, None],
            [1.0, "2"],
            [1 + 1j],
            [10**400],
            {1.0, 2.0},
            {"a": 1.0},
            (x for x in [1.0]),
            np.zeros((2, 2)),
            np.array(["2020-01-01"], "M8[D]"),
            np.zeros(2, [("a", float)]),
            np.array([1.0, 2.0], object),
            np.ma.array([1.0, 2.0], mask=[False, True]),
            np.array([0.0, np.longdouble("1e4000")]),
        ],
        ids=lambda v: type(v).__name__,
    )
    def test_refuses(self, values):
        with pytest.raises(InputError, match=r"^scores"):
            check.finite_array("scores", values)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("size", [3, 1000])
    def test_names_the_first_bad_entry_and_counts_them(self, bad, size):
        values = np.zeros(size)
        values[[1, 2]] = bad
        with pytest.raises(InputError, match=rf"^scores\[1\] is {bad}, and 2 of {size} values are not finite; remove"):
            check.finite_array("scores", values)

    def test_opposite_infinities_do_not_cancel(self):
        with pytest.raises(InputError, match=r"^scores\[0\] is inf"):
            check.finite_array("scores", [np.inf, -np.inf])

    def test_finite_values_with_an_infinite_sum_pass(self):
        assert check.finite_array("scores", np.full(100, 1.7e308)).size == 100

    def test_minimum(self):
        with pytest.raises(InputError, match=r"at least 3 value\(s\), got 2"):
            check.finite_array("scores", [1, 2], minimum=3)

    @pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", ">f8", "g"])
    def test_kinds_of_numbers(self, dtype):
        result = check.finite_array("scores", np.array([0, 1], dtype))
        assert result.dtype == np.float64
        assert result.tolist() == [0.0, 1.0]

    def test_an_array_without_masked_entries_passes(self):
        assert check.finite_array("scores", np.ma.array([1.0, 2.0], mask=False)).tolist() == [1.0, 2.0]

    @given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=8))
    def test_accepts_exactly_the_finite_ones(self, values):
        if np.all(np.isfinite(values)):
            assert check.finite_array("scores", values).tolist() == values
        else:
            with pytest.raises(InputError):
                check.finite_array("scores", values)


class TestBitsAndFrozen:
    @pytest.mark.parametrize("values", [[0, 1, 1], [False, True, True], np.array([0.0, 1.0, 1.0])])
    def test_bits(self, values):
        assert check.bits("included", values).tolist() == [False, True, True]

    @pytest.mark.parametrize("values", [[0, 2], [-1, 1], [0.5], ["0"], [], [[0, 1]], [np.nan]])
    def test_bits_refuses(self, values):
        with pytest.raises(InputError, match=r"^included"):
            check.bits("included", values)

    def test_names_the_bit(self):
        with pytest.raises(InputError, match=r"included\[2\] is 7; included must hold only 0 and 1"):
            check.bits("included", [0, 1, 7])

    def test_frozen_copies_only_what_is_shared(self):
        source = np.arange(3.0)
        copied, kept = check.frozen(source, source), check.frozen(own := np.arange(3.0), [0, 1, 2])
        source[0] = 9
        assert copied[0] == 0
        assert kept is own
        for array in (copied, kept):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


def test_show_is_one_short_line():
    assert "\n" not in check.show(np.zeros((50, 50)))
    assert len(check.show("x" * 500)) <= 60
