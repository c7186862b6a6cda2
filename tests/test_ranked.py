"""The ranked walk: order, ties, the allowance for δ, tightness."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from dosimeter import Estimate, InputError, OneRun, Scores, Validity, fair_coins
from dosimeter.estimators import ranked as module
from dosimeter.estimators import walk
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.ranked import largest_provable, logit_bound, ranked


def coins(records: int, mu: float, seed: int) -> OneRun:
    bits = fair_coins(records, seed)
    return OneRun(np.random.default_rng(seed).normal(mu * bits, 1), bits, mask_seed=seed)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40))
def test_as_few_right_guesses_as_any_order_of_ties(records: list[tuple[int, bool]]) -> None:
    scores, inside = (np.array(column, float) for column in zip(*records, strict=True))
    inside = inside.astype(bool)
    if inside.all() or not inside.any():
        return
    upper, lower = module.fewest_right(OneRun(scores, inside))
    ordered = np.sort(scores)[::-1]
    for cut in range(scores.size + 1):
        edge = ordered[cut - 1] if cut else np.inf
        above, tied = scores > edge, scores == edge
        part = cut - int(above.sum())
        assert upper[cut] == np.sum(inside & above) + max(0, part - int(np.sum(tied & ~inside)))
    assert np.array_equal(lower, module.fewest_right(OneRun(-scores, ~inside))[0])


def test_the_walk_needs_coins() -> None:
    with pytest.raises(InputError, match="use lower_bound for pools"):
        ranked(Scores([1.0], [0.0]))


@pytest.mark.parametrize(("records", "delta"), [(1000, 0.0), (1000, 1e-5), (2000, 0.01), (10**6, 1e-5), (10**9, 1e-6)])
def test_allowance_is_paid_for(records: int, delta: float) -> None:
    epsilon = np.array([0.0, 1.0, 4.0])
    allowed, cost = module._Level(records, delta, 0.05).allowances(epsilon)
    mean = records * delta / (1 + np.exp(epsilon))
    assert np.allclose(cost, mean / (allowed + 1), rtol=1e-6, atol=1e-15)
    assert np.all(cost <= 0.025 + 1e-12)
    assert np.all((allowed == 0) | (mean / np.maximum(allowed, 1) > 0.025))  # the least allowance that does it


def test_bound_is_the_closed_form_at_the_level_of_its_band() -> None:
    evidence = coins(1915, 1.0, 4)
    found = ranked(evidence, order="two-sided")
    d = found.details
    level = d["local_level"]
    by_hand = special.logit(special.betaincinv(d["correct"], d["guesses"] - d["correct"] + 1, level))
    assert found.low == pytest.approx(by_hand, rel=1e-12)
    edges = np.array(walk.BAND_EDGES)
    band = int(np.searchsorted(edges, found.low, "right")) - 1
    last = int(walk.checkpoints(1915)[-1])
    assert level == walk.local_levels(last, np.full(edges.size, 1 - 0.95))[band]


def test_logit_bound_at_the_ends() -> None:
    value = logit_bound(np.array([10, 10, 10**9]), np.array([0, 10, 10**9]), 1e-3)
    assert value[0] == -np.inf
    assert value[1] == pytest.approx(-np.log(1e-3 ** (-1 / 10) - 1))
    assert value[2] == pytest.approx(np.log(10**9 / -np.log(1e-3)), rel=1e-6)


def test_tightness() -> None:
    """m = 2000, μ = 1, δ = 1e-5: what the walk has always given."""
    bounds = [ranked(coins(2000, 1.0, 100 + s), delta=1e-5).low for s in range(60)]
    assert np.mean(bounds) > 1.7


@pytest.mark.parametrize("bound", [ranked, lower_bound])
def test_robust_where_only_one_side_leaks(bound: Callable[..., Estimate]) -> None:
    """Hard records, in or out, have very low scores: an order by distance from the median starts with noise."""
    found = []
    for s in range(20):
        rng, bits = np.random.default_rng(s), fair_coins(2000, s)
        scores = rng.normal(bits, 1)
        scores[:600] = -rng.exponential(10, 600)
        found.append(bound(OneRun(scores, bits)).low)
    assert np.mean(found) > 1.0


@pytest.mark.parametrize("bound", [ranked, lower_bound])
def test_robust_where_only_the_other_side_leaks(bound: Callable[..., Estimate]) -> None:
    """An over-fitted classifier: no member has a high loss, and 4 % of the non-members do."""
    found = []
    for s in range(20):
        rng, bits = np.random.default_rng(s), fair_coins(2000, s)
        found.append(bound(OneRun(rng.normal(size=2000) - 6 * (~bits & (rng.random(2000) < 0.04)), bits)).low)
    assert np.mean(found) > 1.4


def test_large_delta_budget_does_not_collapse() -> None:
    """m·δ = 10, where a term m·δ in the level would leave nothing to prove with."""
    bits = fair_coins(1_000_000, 1)
    scores = np.random.default_rng(0).normal(bits, 1.0)
    assert ranked(OneRun(scores, bits, mask_seed=1), delta=1e-5).low > 2.8


def test_perfect_attack_reaches_what_is_provable() -> None:
    perfect = OneRun(np.arange(2000.0), np.arange(2000) >= 1000)
    found = ranked(perfect, delta=1e-5)
    assert found.low == pytest.approx(found.details["largest_provable"])
    assert 5.5 < found.low < 6.5
    assert largest_provable(100, 0.0, 0.05) < largest_provable(1000, 0.0, 0.05)


def test_smallest_evidence() -> None:
    assert ranked(OneRun([1.0, 0.0], [1, 0])).low == 0


def test_labels() -> None:
    bits = fair_coins(200, 3)
    run = OneRun(np.where(bits, 1.0, 0.0), bits, mask_seed=3)
    assert ranked(run).validity is Validity.FINITE_SAMPLE
    assert ranked(run).neighbours == "add/remove"
    assert "ε" in str(ranked(run))
    half = OneRun(np.arange(100.0), np.arange(100) < 50)
    assert any("half" in w for w in ranked(half).warnings)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"order": "sideways"}, "order"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -0.1}, "delta"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        ranked(coins(20, 1, 0), **arguments)


def test_bad_evidence_is_named() -> None:
    with pytest.raises(InputError, match="evidence"):
        ranked([1.0, 2.0])
    with pytest.raises(InputError, match="evidence"):
        lower_bound("scores.npz")
