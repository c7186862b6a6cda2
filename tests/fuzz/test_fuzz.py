"""Thousands of broken inputs to every public function: a valid answer or one plain refusal."""

import json
import math
import os
import warnings

import numpy as np
import pytest
from fuzz_calls import CALLS, JUNK
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter._validate import show

MORE = 45 if os.environ.get("DOSIMETER_CHAOS") == "long" else 1  # times as many examples in `make chaos`
CALLED = [0]
RESULTS = {"Estimate", "Guarantee", "InputError", "Validity"}  # what comes out, not what a caller passes in
FILES = {
    "OpacusTranscript",
    "Store",
}  # tests/audits and tests/chaos hold their bad input
# They train models in every call that goes through: tests/audits holds their bad input.
TRAINING = {"audit_gradients", "audit_members_only", "audit_one_run", "audit_synthetic", "audit_training"}
# They need a language model or its texts: tests/audits holds their bad input too.
LANGUAGE = {"CanarySheet", "DosimeterCallback", "audit_canaries", "canary_sheet"}


def test_every_public_name_is_fuzzed():
    covered = {name.split(" ")[0].split(",")[0].split(".")[0] for name in CALLS}
    assert set(dm.__all__) <= covered | RESULTS | TRAINING | LANGUAGE | FILES


@pytest.mark.parametrize("name", CALLS)
def test_the_good_call_is_good(name):
    function, arguments = CALLS[name]
    try:
        assert sound(function(**arguments))
    except dm.InputError:
        assert name in ("Scores.from_file", "OneRun.from_file", "Audit.from_json")


def sound(result):
    """A valid answer: no NaN anywhere, and strict JSON where there is JSON."""
    if isinstance(result, (list, tuple)):
        return all(map(sound, result))
    if isinstance(result, dm.Estimate):
        numbers = [result.epsilon, result.low, result.high, result.delta, result.confidence]
        assert not any(map(math.isnan, numbers))
        assert 0 <= result.low <= result.high
        assert math.isfinite(result.low)
        assert "nan" not in result.claim
    if isinstance(result, float):
        return not math.isnan(result)
    if isinstance(result, np.ndarray):
        return bool(np.isfinite(result).all())
    if hasattr(result, "to_dict"):
        json.dumps(result.to_dict(), allow_nan=False)
    return True


def refuse_or_answer(function, arguments):
    CALLED[0] += 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", "Warning: converting a masked element")
        try:
            result = function(**arguments)
        except dm.InputError as error:
            message = str(error)
            assert message
            assert "\n" not in message
            assert len(message) <= 500
            return
    assert sound(result)


PLACES = st.integers(0, len(JUNK) - 1)  # of junk; Hypothesis itself must not look at objects that fail when looked at


@pytest.mark.once
@pytest.mark.parametrize("name", CALLS)
def test_one_broken_argument(name):
    """Every argument of every call takes every piece of junk."""
    function, good = CALLS[name]
    failures = []
    for argument in good:
        for number, value in enumerate(JUNK):
            try:
                refuse_or_answer(function, good | {argument: value})
            except Exception as error:
                failures.append(f"{argument}={show(value)} (JUNK[{number}]): {type(error).__name__}: {error!s:.100}")
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures[:40])


@pytest.mark.parametrize("name", [name for name, (_, good) in CALLS.items() if good])
@settings(max_examples=25 * MORE, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_several_broken_arguments(name, data):
    function, good = CALLS[name]
    chosen = data.draw(st.lists(st.sampled_from(sorted(good)), min_size=1, unique=True))
    refuse_or_answer(function, good | {argument: JUNK[data.draw(PLACES)] for argument in chosen})


NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=64),
    st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308]),
)
SCORE_CALLS = [
    name for name, (_, arguments) in CALLS.items() if isinstance(arguments.get("evidence"), (dm.Scores, dm.OneRun))
]


@pytest.mark.parametrize("name", SCORE_CALLS)
@settings(max_examples=40 * MORE, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(NUMBERS, max_size=6),
    st.lists(NUMBERS, max_size=6),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_any_scores_any_level(name, members, nonmembers, delta, confidence):
    """Whatever evidence can be built, at any δ and confidence, gets an answer or a refusal."""
    function, good = CALLS[name]

    def call(**options):
        if isinstance(good["evidence"], dm.Scores):
            evidence = dm.Scores(members, nonmembers)
        else:
            included = [True] * len(members) + [False] * len(nonmembers)
            evidence = dm.OneRun(members + nonmembers, included)
        return function(**(options | {"evidence": evidence}))

    refuse_or_answer(call, good | {"delta": delta, "confidence": confidence})


@pytest.mark.parametrize("function", [dm.clopper_pearson, dm.jeffreys, dm.bayesian, dm.gaussian, dm.advantage])
@settings(max_examples=60 * MORE, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.one_of(st.integers(0, 3), st.integers(0, 10**9), st.just(10**9)), min_size=4, max_size=4),
    st.one_of(st.just(0.0), st.just(1e-12), st.floats(0, 1, exclude_max=True)),
    st.one_of(st.floats(0, 1, exclude_min=True, exclude_max=True), st.just(1 - 1e-9), st.just(1e-9)),
    st.sampled_from(["lower", "both"]),
)
def test_any_counts_any_level(function, cells, delta, confidence, sides):
    options = {"delta": delta, "confidence": confidence} | ({} if function is dm.advantage else {"sides": sides})

    def call(**given):
        return function(dm.Counts(**dict(zip(("tp", "fn", "fp", "tn"), cells, strict=True))), **given)

    refuse_or_answer(call, options)
