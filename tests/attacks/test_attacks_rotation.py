"""Every model as the target once: the closed forms against the plain loop."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter import InputError
from dosimeter.attacks import leave_one_out, lira, loss, rmia, watson

pytestmark = pytest.mark.once  # NumPy alone


def drawn(seed, models=10, records=25):
    rng = np.random.default_rng(seed)
    included = np.stack([rng.permutation(np.arange(models) < models // 2) for _ in range(records)], axis=1)
    return rng.normal(0, 3, records) + rng.standard_normal((models, records)) + included, included


def by_loop(attack, outputs, included, **options):
    rest = [np.arange(len(outputs)) != k for k in range(len(outputs))]
    return np.stack([attack(outputs[k], outputs[r], included[r], **options) for k, r in enumerate(rest)])


CASES = [
    ("watson", watson, {}),
    *(
        ("lira", lira, {"mode": mode, "variance": variance})
        for mode in ("online", "offline")
        for variance in ("record", "global", "bayesian")
    ),
    ("rmia", rmia, {}),
    ("rmia", rmia, {"mode": "online", "gamma": 1.5, "population": np.arange(0, 25, 2)}),
    ("rmia", rmia, {"offline_a": 0.8}),
]


@pytest.mark.parametrize(("name", "attack", "options"), CASES)
def test_closed_form_is_the_loop(name, attack, options, monkeypatch):
    monkeypatch.setattr("dosimeter.attacks.signals.CELLS", 70)  # seven records in a block
    for seed in range(3):
        outputs, included = drawn(seed)
        found = leave_one_out(name, outputs, included, **options)
        np.testing.assert_allclose(found, by_loop(attack, outputs, included, **options), rtol=1e-8, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(1, 12), st.sampled_from(["record", "global", "bayesian"]))
def test_an_outlier_does_not_drown_the_others(seed, power, variance):
    """Leaving the outlier out must leave the squares of the others, not the rounding of its own."""
    outputs, included = drawn(seed, records=6)
    outputs[3, 2] += 10**power
    found = leave_one_out("lira", outputs, included, variance=variance)
    expected = by_loop(lira, outputs, included, variance=variance)
    np.testing.assert_allclose(found, expected, rtol=2e-3 if variance == "global" else 1e-4, atol=1e-4)


NUMBERS = (0.0, 1.0, -1.0, 0.1, 1e99, -1e99, 1e-99, 1e-200, 3e-308, 1e10, 745.0, -745.0)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(NUMBERS), min_size=28, max_size=28), st.sampled_from(CASES))
def test_extreme_signals_give_finite_scores(values, case):
    name, attack, options = case
    outputs = np.array(values).reshape(7, 4)
    included = (np.arange(7)[:, None] + np.arange(4)) % 2 == 0
    options = {key: value for key, value in options.items() if key != "population"}
    assert np.isfinite(leave_one_out(name, outputs, included, **options)).all()
    assert np.isfinite(attack(outputs[0][::-1], outputs[1:], included[1:], **options)).all()


def test_two_equal_models_and_one_apart():
    outputs = np.array([[0.1], [0.1], [5.0], [0.3], [0.3], [0.3], [0.2]]).repeat(3, axis=1)
    outputs[:, 1:] += np.random.default_rng(0).standard_normal((7, 2))
    included = np.array([1, 1, 1, 0, 0, 0, 0], bool)[:, None].repeat(3, axis=1)
    for variance in ("record", "bayesian"):
        found = leave_one_out("lira", outputs, included, variance=variance)
        np.testing.assert_allclose(found, by_loop(lira, outputs, included, variance=variance), rtol=1e-9)


def test_auto_is_decided_for_the_others():
    for models, variance in ((64, "bayesian"), (65, "record")):
        rng = np.random.default_rng(0)
        included = (np.arange(models)[:, None] + np.arange(5)) % 2 == 0
        outputs = rng.standard_normal((models, 5)) + included
        np.testing.assert_array_equal(
            leave_one_out("lira", outputs, included), leave_one_out("lira", outputs, included, variance=variance)
        )


def test_loss_needs_no_other_model():
    outputs, included = drawn(0)
    np.testing.assert_array_equal(leave_one_out("loss", outputs, included), outputs)
    labels = np.arange(25) % 3
    np.testing.assert_array_equal(
        leave_one_out("loss", outputs, included, labels=labels), np.stack([loss(row, labels=labels) for row in outputs])
    )


def test_any_function_is_called_for_every_model():
    outputs, included = drawn(0)

    def attack(target, shadows, included, power):
        assert shadows.shape == (9, 25) == included.shape
        return (target - shadows.mean(axis=0)) ** power

    found = leave_one_out(attack, outputs, included, power=3)
    np.testing.assert_allclose(found[4], (outputs[4] - np.delete(outputs, 4, 0).mean(axis=0)) ** 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o, i: leave_one_out("best", o, i), "attack must be one of"),
        (lambda o, i: leave_one_out(3, o, i), "attack must be one of .* or a function"),
        (lambda o, i: leave_one_out("watson", o, i, mode="online"), "mode is not an option of watson"),
        (
            lambda o, i: leave_one_out("lira", o, i, gamma=1),
            "gamma is not an option of lira; its options are: mode, variance",
        ),
        (lambda o, i: leave_one_out("lira", o[:1], i[:1]), "outputs holds 1 model"),
        (lambda o, i: leave_one_out("lira", o * np.nan, i), r"outputs\[0, 0\] is nan"),
        (lambda o, i: leave_one_out("lira", o[:, :3], i), "included has shape"),
        (lambda o, i: leave_one_out(lambda *_: [1.0], o, i), "returns 1 scores for 25 records"),
        (lambda o, i: leave_one_out(lambda t, *_: t * np.nan, o, i), r"scores\[0\] is nan"),
        (lambda o, i: leave_one_out("rmia", o + 9, i, scale="log"), "impossible on the scale"),
    ],
)
def test_bad_calls_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call(*drawn(0))


def test_a_record_with_too_few_models_is_named():
    outputs, included = drawn(0)
    included[:, 4] = np.arange(10) == 0
    with pytest.raises(InputError, match=r"needs at least 2 .*one of them as the target; record 4 has 1 with:"):
        leave_one_out("lira", outputs, included)
    assert np.isfinite(leave_one_out("watson", outputs, included)).all()


@pytest.mark.parametrize(
    "attack",
    [
        lambda t, s, i: lira(t, s, i, variance="bayesian"),
        lambda t, s, i: lira(t, s, i, mode="offline"),
        rmia,
        watson,
        lambda t, s, i: leave_one_out("lira", s, i),
        lambda t, s, i: leave_one_out("rmia", s, i),
    ],
)
def test_memory_stays_below_three_times_the_input(attack):
    rng = np.random.default_rng(0)
    shadows = rng.standard_normal((128, 30_000), dtype=np.float32)
    included = rng.random((128, 30_000)) < 0.5
    tracemalloc.start()
    try:
        attack(shadows[0], shadows, included)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 3 * (shadows.nbytes + included.nbytes)
