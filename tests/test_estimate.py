import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dosimeter.estimate import Estimate, Validity, number, percent, plain
from dosimeter.evidence import Counts


def make(**changes):
    values = {
        "epsilon": 1.0,
        "low": 1.0,
        "high": math.inf,
        "delta": 1e-5,
        "confidence": 0.95,
        "method": "test",
        "validity": Validity.FINITE_SAMPLE,
        "claim": "With 95 % confidence ε ≥ 1.",
    }
    return Estimate(**values | changes)


class TestEstimate:
    def test_the_closed_list_of_validities(self):
        assert [str(v) for v in Validity] == [
            "finite-sample",
            "finite-sample, random split",
            "finite-sample, independent runs",
            "credible",
            "assumes Gaussian",
            "assumes the mechanism's family",
            "conditional on the propensity model",
            "asymptotic",
            "instance metric",
            "measurement",
            "exploratory",
        ]
        bounds = [Validity.FINITE_SAMPLE, Validity.RANDOM_SPLIT, Validity.INDEPENDENT_RUNS]
        assert [v for v in Validity if v.is_bound] == bounds

    def test_prints_as_its_sentence(self):
        assert str(make()) == "With 95 % confidence ε ≥ 1."

    @pytest.mark.parametrize("field", ["epsilon", "low", "high", "delta", "confidence"])
    def test_never_holds_a_nan(self, field):
        with pytest.raises(ArithmeticError, match=rf"test: {field} came out as NaN"):
            make(**{field: float("nan")})

    def test_minus_zero_becomes_zero(self):
        assert math.copysign(1, make(low=-0.0).low) == 1

    def test_frozen(self):
        estimate = make(details={"a": 1}, warnings=["w"])
        assert estimate.warnings == ("w",)
        with pytest.raises(dataclasses.FrozenInstanceError):
            estimate.low = 3
        with pytest.raises(TypeError):
            estimate.details["a"] = 2

    def test_details_are_apart_from_the_caller(self):
        details = {"a": 1}
        estimate = make(details=details)
        details["a"] = 2
        assert estimate.details["a"] == 1

    def test_to_dict_is_strict_json_in_a_fixed_order(self):
        values = make(
            counts=Counts(tp=1, fn=2, fp=3, tn=4),
            threshold=np.float64(0.5),
            details={"array": np.array([1.0, np.inf]), "nan": np.nan, 3: (np.int64(1), Validity.CREDIBLE)},
        ).to_dict()
        assert list(values) == [
            *("epsilon", "low", "high", "delta", "confidence", "method", "validity", "neighbours", "claim"),
            *("threshold", "counts", "warnings", "details"),
        ]
        assert json.loads(json.dumps(values, allow_nan=False)) == values
        assert values["high"] is None
        assert values["counts"] == {"tp": 1, "fn": 2, "fp": 3, "tn": 4}
        assert values["details"] == {"array": [1.0, None], "nan": None, "3": [1, "credible"]}

    @given(
        st.floats(0, 1e300),
        st.floats(0, allow_infinity=True, allow_nan=False),
        st.sampled_from(list(Validity)),
        st.none() | st.floats(-1e300, 1e300),
    )
    def test_there_and_back(self, low, high, validity, threshold):
        low, high = sorted((low, high))
        first = make(low=low, high=high, validity=validity, threshold=threshold, counts=Counts(tp=1, fn=0, fp=1, tn=0))
        text = json.dumps(first.to_dict(), allow_nan=False)
        second = Estimate.from_dict(json.loads(text))
        assert second == first
        assert second.to_dict() == first.to_dict()


class TestWords:
    @pytest.mark.parametrize(
        ("value", "text"),
        [(0.0, "0"), (math.inf, "∞"), (1.0, "1"), (0.521789, "0.5218"), (12345.6, "1.235e+04"), (1e-7, "1e-07")],
    )
    def test_number(self, value, text):
        assert number(value) == text

    @pytest.mark.parametrize(("value", "text"), [(0.95, "95 %"), (0.999, "99.9 %"), (0.5, "50 %"), (0.07, "7 %")])
    def test_percent(self, value, text):
        assert percent(value) == text


def test_plain_goes_all_the_way_down():
    value = {"a": [np.float32(1), {"b": (np.nan, np.True_)}], "c": make(), "d": np.arange(2)}
    result = plain(value)
    json.dumps(result, allow_nan=False)
    assert result["a"] == [1.0, {"b": [None, True]}]
    assert result["c"]["method"] == "test"
    assert result["d"] == [0, 1]
    odd = [np.array(2), {3}, Validity.CREDIBLE, np.longdouble("1e4000"), np.clongdouble(1), Path("a"), 10**400, make]
    result = plain(odd)
    json.dumps(result, allow_nan=False)
    assert result[:7] == [2, [3], "credible", None, "(1+0j)", "a", 10**400]
    assert type(result[2]) is str and result[7].startswith("<function make")


def test_plot_draws_the_interval() -> None:
    altair = pytest.importorskip("altair", reason="the extra 'report' is not installed")
    from dosimeter import clopper_pearson

    counts = Counts(tp=65, fn=35, fp=25, tn=75)
    for sides in ("lower", "both"):
        chart = clopper_pearson(counts, delta=0.05, sides=sides).plot()
        assert isinstance(chart, altair.LayerChart)
        (row,) = chart.to_dict()["data"]["values"]
        assert row["low"] < row["high"] < float("inf")
