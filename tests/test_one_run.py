import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from dosimeter._validate import InputError
from dosimeter.estimate import Validity
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.one_run import one_run, one_run_bound, one_run_mu_bound, one_run_p_value
from dosimeter.estimators.ranked import STAKES, allowances, by_confidence, guess, logit_bound, rank_betting, ranked
from dosimeter.estimators.walk import BAND_EDGES
from dosimeter.evidence import OneRun, fair_coins

GOLDEN = json.loads((Path(__file__).parent / "golden" / "one_run.json").read_text())


def cases(name):
    entry = GOLDEN[name]
    return [pytest.param(dict(case), entry["tolerance"], id=f"{name}-{i}") for i, case in enumerate(entry["cases"])]


def audit(records=2000, shift=1.0, seed=0):
    coins = fair_coins(records, seed)
    noise = np.random.default_rng(seed + 1).normal(size=records)
    return OneRun(noise + shift * coins, coins, mask_seed=seed)


# --- the binomial tail ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "tolerance"), cases("p_value_steinke"))
def test_p_value_golden(case, tolerance):
    expected = case.pop("value")
    assert one_run_p_value(**case, term="steinke") == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(("case", "tolerance"), cases("bound_steinke"))
def test_bound_golden(case, tolerance):
    expected = case.pop("value")
    assert one_run_bound(**case, confidence=0.95, term="steinke") == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(("case", "tolerance"), cases("bound_smaller"))
def test_bound_with_the_smaller_term(case, tolerance):
    expected = case.pop("value")
    assert one_run_bound(**case) == pytest.approx(expected, abs=tolerance)


def p_by_definition(m, r, v, epsilon, delta, term, only_in=False):
    """Every window i, summed from the pmf."""
    if v == 0:
        return 1.0
    pmf = stats.binom.pmf(np.arange(r + 1), r, 1 / (1 + math.exp(-epsilon)))
    steinke = 2 * m * delta * max(pmf[v - i : v].sum() / i for i in range(1, v + 1))
    coupling = m * delta / (1 + math.exp(epsilon)) / (2 if only_in else 1)
    extra = {"steinke": steinke, "coupling": coupling, "smaller": min(steinke, coupling)}[term]
    return min(1.0, pmf[v:].sum() + extra)


situations = st.tuples(st.integers(1, 80), st.floats(0, 1), st.integers(0, 400)).map(
    lambda t: (t[0] + t[2], t[0], round(t[0] * t[1]))
)


@settings(max_examples=200, deadline=None)
@given(
    situations,
    st.floats(0, 8),
    st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 0.1]),
    st.sampled_from(["steinke", "coupling", "smaller"]),
    st.booleans(),
)
def test_p_value_is_its_definition(situation, epsilon, delta, term, only_in):
    m, r, v = situation
    found = one_run_p_value(records=m, guesses=r, correct=v, epsilon=epsilon, delta=delta, term=term, only_in=only_in)
    assert found == pytest.approx(p_by_definition(m, r, v, epsilon, delta, term, only_in), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("epsilon", [0.0, 0.9, 1.05, 1.0986, 1.2, 3.0])
def test_p_value_is_its_definition_for_many_guesses(epsilon):
    m, r, v, delta = 20000, 20000, 15000, 1e-6
    pmf = stats.binom.pmf(np.arange(v), r, special.expit(epsilon))[::-1]
    extra = 2 * m * delta * np.max(np.cumsum(pmf) / np.arange(1, v + 1))
    expected = min(1.0, stats.binom.sf(v - 1, r, special.expit(epsilon)) + extra)
    found = one_run_p_value(records=m, guesses=r, correct=v, epsilon=epsilon, delta=delta, term="steinke")
    assert found == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    situations,
    st.sampled_from([1e-6, 1e-4, 1e-3, 0.01, 0.1]),
    st.sampled_from([0.3, 0.5, 0.9, 0.95, 0.999]),
    st.sampled_from(["steinke", "coupling", "smaller"]),
    st.booleans(),
)
def test_bound_is_the_largest_rejected_epsilon_of_a_dense_scan(situation, delta, confidence, term, only_in):
    m, r, v = situation
    arguments = {"records": m, "guesses": r, "correct": v, "delta": delta, "term": term, "only_in": only_in}
    bound = one_run_bound(**arguments, confidence=confidence)
    grid = np.linspace(0, 12, 301)
    rejected = grid[[one_run_p_value(**arguments, epsilon=e) <= 1 - confidence for e in grid]]
    assert bound >= (rejected[-1] if rejected.size else 0.0) - 1e-9
    if bound > 0:
        assert one_run_p_value(**arguments, epsilon=bound * (1 - 1e-9)) <= (1 - confidence) * (1 + 1e-7)
        above = bound * (1 + 1e-9) + 1e-9 + np.geomspace(1e-7, 5, 40)
        assert all(one_run_p_value(**arguments, epsilon=e) > 1 - confidence for e in above)


def test_rejection_region_of_the_coupling_term_need_not_start_at_zero():
    arguments = {"records": 100_000, "guesses": 1000, "correct": 1000, "delta": 1e-5, "term": "coupling"}
    assert one_run_p_value(**arguments, epsilon=0.0) > 0.05
    assert one_run_p_value(**arguments, epsilon=5.0) < 0.05
    assert one_run_bound(**arguments, confidence=0.95) > 5.7


@pytest.mark.parametrize(("case", "tolerance"), cases("worst_case"))
def test_terms_against_the_worst_mechanism(case, tolerance):
    exact, coupling, steinke = (case.pop(k) for k in ("exact", "coupling", "steinke"))
    assert one_run_p_value(**case, term="coupling") == pytest.approx(coupling, abs=tolerance)
    assert one_run_p_value(**case, term="steinke") == pytest.approx(steinke, abs=tolerance)
    if case["records"] <= 3:
        found = worst_mechanism(**case)
        assert found == pytest.approx(exact, abs=tolerance)
        assert found <= one_run_p_value(**case, term="smaller") + 1e-9


def worst_mechanism(records, guesses, correct, epsilon, delta):
    """The largest P[at least `correct` right] of any (ε, δ)-DP mechanism that answers with its guesses."""
    inputs = list(itertools.product((0, 1), repeat=records))
    outputs = [
        (chosen, values)
        for chosen in itertools.combinations(range(records), guesses)
        for values in itertools.product((0, 1), repeat=guesses)
    ]
    cells = {(s, y): k for k, (s, y) in enumerate(itertools.product(inputs, outputs))}
    neighbours = [(s, (*s[:i], 1 - s[i], *s[i + 1 :])) for s in inputs for i in range(records)]
    size = len(cells) + len(neighbours) * len(outputs)
    rows, limits = [], []
    for n, (s, t) in enumerate(neighbours):
        total = np.zeros(size)
        for k, y in enumerate(outputs):
            slack = len(cells) + n * len(outputs) + k
            row = np.zeros(size)
            row[cells[s, y]], row[cells[t, y]], row[slack] = 1, -math.exp(epsilon), -1
            rows.append(row)
            limits.append(0.0)
            total[slack] = 1
        rows.append(total)
        limits.append(delta)
    sums = np.zeros((len(inputs), size))
    gain = np.zeros(size)
    for (s, (chosen, values)), k in cells.items():
        sums[inputs.index(s), k] = 1
        if sum(s[i] == g for i, g in zip(chosen, values, strict=True)) >= correct:
            gain[k] = -1 / len(inputs)
    return -optimize.linprog(gain, np.array(rows), limits, sums, np.ones(len(inputs))).fun


@settings(max_examples=60, deadline=None)
@given(situations, st.sampled_from([0.0, 1e-6, 1e-3]), st.sampled_from(["steinke", "coupling", "smaller"]))
def test_bound_rises_with_right_guesses_and_falls_with_delta_and_confidence(situation, delta, term):
    m, r, v = situation
    arguments = {"records": m, "guesses": r, "correct": v, "delta": delta, "confidence": 0.9, "term": term}
    bound = one_run_bound(**arguments)
    if v < r:
        assert one_run_bound(**arguments | {"correct": v + 1}) >= bound - 1e-12
    assert one_run_bound(**arguments | {"delta": 3 * delta + 1e-9}) <= bound + 1e-12
    assert one_run_bound(**arguments | {"confidence": 0.95}) <= bound + 1e-12
    assert one_run_bound(**arguments | {"records": m + 100}) <= bound + 1e-12


def test_closed_form_without_delta():
    for r, v in [(1, 1), (7, 5), (1000, 900), (10**6, 690_000), (10**9, 10**9 - 3)]:
        bound = one_run_bound(records=r, guesses=r, correct=v, delta=0.0, confidence=0.5)
        assert one_run_p_value(records=r, guesses=r, correct=v, delta=0.0, epsilon=bound) == pytest.approx(
            0.5, rel=1e-6
        )
    everything_right = -math.log(math.expm1(-math.log(0.05) / 10**9))
    assert one_run_bound(records=10**9, guesses=10**9, correct=10**9, delta=0.0) == pytest.approx(everything_right)


@pytest.mark.parametrize("term", ["steinke", "coupling", "smaller"])
def test_corners(term):
    def bound(m, r, v, delta):
        return one_run_bound(records=m, guesses=r, correct=v, delta=delta, confidence=0.95, term=term)

    assert bound(100, 100, 0, 1e-5) == 0.0
    assert bound(100, 100, 50, 1e-5) == 0.0
    assert bound(1, 1, 1, 0.0) == 0.0
    assert bound(10**9, 1000, 1000, 0.5) == 0.0
    assert bound(1000, 1000, 900, 1e-12) == pytest.approx(bound(1000, 1000, 900, 0.0), abs=1e-8)
    assert 0 < bound(10**9, 10**6, 10**6, 1e-12) < bound(10**9, 10**6, 10**6, 0.0)
    assert bound(10**9, 10**9, 690_000_000, 1e-12) == pytest.approx(bound(10**9, 10**9, 690_000_000, 0.0), abs=1e-5)


def test_an_enormous_epsilon_is_never_rejected():
    for epsilon in (50.0, 700.0, 740.0, 1e300):
        assert one_run_p_value(
            records=10**6, guesses=10**6, correct=10**6, epsilon=epsilon, delta=1e-5
        ) == pytest.approx(1)


def test_one_guess_at_low_confidence():
    bound = one_run_bound(records=1, guesses=1, correct=1, delta=0.0, confidence=0.2)
    assert bound == pytest.approx(math.log(0.8 / 0.2))


def test_guesses_of_one_kind_pay_half():
    arguments = {"records": 10_000, "guesses": 1000, "correct": 990, "epsilon": 3.0, "delta": 1e-5, "term": "coupling"}
    tail = one_run_p_value(**arguments | {"delta": 0.0})
    both, one = one_run_p_value(**arguments), one_run_p_value(**arguments, only_in=True)
    assert one - tail == pytest.approx((both - tail) / 2)


def test_logit_bound_is_vectorised_and_empty_handed_without_a_right_guess():
    values = logit_bound([10, 10, 0], [0, 10, 0], 0.05)
    assert values[0] == values[2] == -math.inf
    assert values[1] == pytest.approx(math.log(0.05**0.1 / (1 - 0.05**0.1)))


# --- rank betting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "tolerance"), cases("betting"))
def test_betting_golden(case, tolerance):
    right = [1] * case["right"] + [0] * case["wrong"]
    assert rank_betting(right).epsilon == pytest.approx(case["value"], abs=tolerance)


def wealth_by_definition(right, epsilon):
    q = 1 / (1 + math.exp(-epsilon))
    paths = [np.cumprod([1 + stake * (x / q - 1) for x in right]) for stake in STAKES]
    return np.max(np.mean(paths, axis=0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=300), st.booleans(), st.sampled_from([0.5, 0.8, 0.95]))
def test_betting_is_its_definition(right, surest_first, confidence):
    right = sorted(right, reverse=True) if surest_first else right
    bound = rank_betting(right, confidence=confidence).epsilon
    goal = 1 / (1 - confidence)
    if bound > 0:
        assert wealth_by_definition(right, bound) == pytest.approx(goal, rel=1e-9)
    else:
        assert wealth_by_definition(right, 0.0) <= goal * (1 + 1e-9)


def test_no_prefix_is_lost_when_corners_are_kept():
    rng = np.random.default_rng(3)
    for shape in (np.linspace(0.99, 0.4, 20_000), np.full(20_000, 0.7), 0.5 + 0.4 * np.cos(np.arange(20_000) / 900)):
        right = rng.random(20_000) < shape
        bound = rank_betting(right).epsilon
        hits, misses = np.cumsum(right), np.cumsum(~right)
        logs = [hits * math.log1p(s * math.exp(-bound)) + misses * math.log1p(-s) for s in STAKES]
        assert np.max(special.logsumexp(logs, axis=0)) - math.log(len(STAKES)) == pytest.approx(math.log(20), rel=1e-9)


def test_betting_proves_something_where_records_times_delta_is_one():
    """m = 10⁵, δ = 1e-5: a few right guesses are given away, not the whole result."""
    rng = np.random.default_rng(0)
    coins = fair_coins(100_000, 1)
    evidence = OneRun(rng.normal(coins, 1.0), coins)
    found = rank_betting(evidence, delta=1e-5)
    assert 2.0 < found.low < rank_betting(evidence).low
    assert 0 < found.details["allowance"] < 40 and found.details["level_for_delta"] <= 0.025


def test_betting_pays_for_delta_before_the_labels():
    allowed, cost = allowances(100_000, 1e-5, 0.05, np.array([0.0, 2.5, 5.0]))
    assert allowed.tolist() == [19, 3, 0]  # the least j with mδ/((1+e^ε)(j+1)) ≤ 0.025
    assert cost == pytest.approx([0.5 / 20, special.expit(-2.5) / 4, special.expit(-5.0)])
    right = [1] * 500
    assert rank_betting(right).epsilon > rank_betting(right, delta=1e-6).epsilon > 0
    paid = rank_betting(right, delta=1e-5, records=100_000)
    j, share = paid.details["allowance"], paid.details["level_for_delta"]
    assert paid.epsilon == pytest.approx(rank_betting([1] * (500 - j) + [0] * j, confidence=0.95 + share).epsilon)
    assert rank_betting([1] * 15, delta=1e-5, records=100_000).epsilon == 0.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=200), st.sampled_from([1e-6, 1e-4, 1e-2, 0.3]))
def test_betting_with_an_allowance_is_its_definition(right, delta):
    """Each band of ε from 0 upwards: j right guesses become wrong ones, the wealth must reach 1/(α − cost)."""
    right = sorted(right, reverse=True)
    edges = [*BAND_EDGES, math.inf]
    expected = 0.0
    for low, high in itertools.pairwise(edges):
        (j,), (cost,) = allowances(len(right), delta, 0.05, np.array([low]))
        hits, misses = np.cumsum(right) - j, np.cumsum(~np.array(right)) + j

        def reached(e, hits=hits, misses=misses, cost=cost):
            ok = hits > 0
            if not ok.any():
                return False
            logs = [hits[ok] * math.log1p(s * math.exp(-e)) + misses[ok] * math.log1p(-s) for s in STAKES]
            return np.max(special.logsumexp(logs, axis=0)) - math.log(len(STAKES)) >= -math.log(0.05 - cost)

        if not reached(low):
            break
        top = min(high, 40.0)
        if reached(top - 1e-12):
            expected = high
            continue
        a, b = low, top
        for _ in range(80):
            a, b = ((a + b) / 2, b) if reached((a + b) / 2) else (a, (a + b) / 2)
        expected = a
        break
    assert rank_betting(right, delta=delta).epsilon == pytest.approx(expected, abs=1e-9)


def test_betting_holds_where_everything_is_revealed_at_once():
    """(0, δ)-DP by one public coin, m·δ = 12: a bound above 0 in at most 5 % of audits, and δ itself must be paid."""
    false, trials = 0, 400
    for trial in range(trials):
        rng = np.random.default_rng([trial, 3])
        bits = rng.random(300) < 0.5
        scores = rng.normal(size=300) + (20.0 * bits if rng.random() < 0.04 else 0.0)
        false += rank_betting(OneRun(scores, bits), delta=0.04).low > 0
    assert false <= trials * 0.05 + 3.5 * np.sqrt(trials * 0.05 * 0.95)


def test_betting_on_everything_wrong_is_zero():
    assert rank_betting([0, 0, 0]).epsilon == 0.0
    assert rank_betting([1]).epsilon == 0.0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(5, 60))
def test_orders_do_not_change_with_an_increasing_transform(seed, records):
    coins = fair_coins(records, seed)
    if coins.all() or not coins.any():
        return
    scores = np.random.default_rng(seed).normal(size=records)
    one, other = (by_confidence(OneRun(s, coins)) for s in (scores, np.exp(3 * scores)))
    assert np.array_equal(one, other)


def test_order_by_confidence_takes_both_ends_in_turn():
    evidence = OneRun([5.0, 4.0, 3.0, 2.0, 1.0], [1, 0, 0, 1, 0])
    # 5 "in" right, 1 "out" right, 4 "in" wrong, 2 "out" wrong, 3 "in" wrong
    assert by_confidence(evidence).tolist() == [True, True, False, False, False]


# --- f-DP -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "tolerance"), cases("mu"))
def test_mu_golden(case, tolerance):
    expected = case.pop("value")
    assert one_run_mu_bound(**case) == pytest.approx(expected, abs=tolerance)


def mu_rejected_by_definition(mu, m, made, right, level):
    r, h = level * right / m, level * (made - right) / m
    for i in range(right - 1, -1, -1):
        higher = max(h, float(special.ndtr(special.ndtri(min(r, 1.0)) - mu)))
        r, h = r + i / (made - i) * (higher - h), higher
    return r + h > made / m


@settings(max_examples=40, deadline=None)
@given(situations, st.sampled_from([0.8, 0.95]))
def test_mu_is_the_last_rejected_by_the_full_recursion(situation, confidence):
    m, made, right = situation
    mu = one_run_mu_bound(records=m, guesses=made, correct=right, confidence=confidence)
    if mu > 0:
        assert mu_rejected_by_definition(mu * (1 - 1e-7), m, made, right, 1 - confidence)
    assert not mu_rejected_by_definition(mu + 1e-7, m, made, right, 1 - confidence)


def test_mu_tends_to_its_limit():
    level, share, accuracy = 0.05, 1.0, 0.7
    limit = special.ndtri(level * share * accuracy) - special.ndtri(level * share * (1 - accuracy))
    found = one_run_mu_bound(records=10**6, guesses=10**6, correct=700_000)
    assert found == pytest.approx(limit, abs=5e-4)
    assert found <= limit


def test_mu_next_to_chance_ends_and_is_small():
    assert 0 < one_run_mu_bound(records=10**6, guesses=10**6, correct=505_000) < 0.0086
    assert one_run_mu_bound(records=10**6, guesses=10**6, correct=100_000) == 0.0


# --- the audit --------------------------------------------------------------------------------------------


def test_fixed_number_of_guesses():
    evidence = audit()
    even = one_run(evidence, delta=1e-5, guesses=101)
    assert even.details["k_in"] == 51
    assert even.details["k_out"] == 50
    order = np.argsort(evidence.scores)
    right = evidence.included[order[-51:]].sum() + (~evidence.included[order[:50]]).sum()
    assert even.details["correct"] == right
    expected = one_run_bound(records=2000, guesses=101, correct=int(right), delta=1e-5)
    assert even.epsilon == even.low == expected
    assert even.high == math.inf
    assert even.validity is Validity.FINITE_SAMPLE
    assert f"{right} of 101 guesses" in even.claim
    assert even.warnings == ()


def test_pairs_and_one_kind_of_guesses():
    evidence = audit(shift=2.0)
    only = one_run(evidence, delta=1e-5, guesses=(60, 0), term="coupling")
    v = only.details["correct"]
    halved = one_run_bound(records=2000, guesses=60, correct=v, delta=1e-5, term="coupling", only_in=True)
    assert only.epsilon == halved
    assert one_run(evidence, guesses=(0, 60)).epsilon > 0
    everything = one_run(evidence, guesses=(1000, 1000))
    assert everything.details["guesses"] == 2000


def test_terms_of_the_audit():
    evidence = audit(shift=3.0)
    found = {t: one_run(evidence, delta=1e-5, guesses=200, term=t).epsilon for t in ("smaller", "steinke", "coupling")}
    assert found["smaller"] == max(found["steinke"], found["coupling"])


def test_ties_at_the_cut_count_against_the_attack():
    coins = fair_coins(400, 3)
    coarse = OneRun(np.round(np.random.default_rng(0).normal(size=400) + 2 * coins), coins, mask_seed=3)
    estimate = one_run(coarse, guesses=100)
    assert "tied" in estimate.warnings[0]
    # A constant score proves nothing, even when the members come first in the file.
    for mask in (np.arange(400) < 200, np.arange(400) >= 200, np.arange(400) % 2 == 0):
        constant = OneRun(np.zeros(400), mask)
        assert guess(constant, k_in=50, k_out=50).correct == 0
        assert one_run(constant, method="betting").low == one_run(constant).low == 0


def test_ties_among_the_guessed_are_no_matter():
    evidence = OneRun([3.0, 3.0, 2.0, 1.0, 0.0, 0.0], [1, 1, 0, 1, 0, 0])
    assert one_run(evidence, guesses=(2, 2)).warnings == ()


def test_a_mask_that_is_no_coin_is_reported():
    half = OneRun(np.arange(100.0), np.arange(100) >= 50)
    for estimate in (one_run(half, guesses=20), one_run(half, method="betting"), one_run(half)):
        assert any("exactly half" in w for w in estimate.warnings)


def test_betting_by_way_of_the_audit():
    evidence = audit()
    estimate = one_run(evidence, delta=1e-6, method="betting")
    assert estimate == rank_betting(evidence, delta=1e-6)
    assert estimate.validity is Validity.FINITE_SAMPLE
    assert 0.5 < estimate.epsilon < 4.377


def test_f_dp_by_way_of_the_audit():
    estimate = one_run(audit(shift=2.0), delta=1e-5, guesses=200, method="f-dp")
    assert estimate.validity is Validity.ASSUMES_GAUSSIAN
    assert 0 < estimate.details["mu"] < 2.0
    assert 0 < estimate.epsilon < 9.997256
    with pytest.raises(InputError, match="delta must be above 0"):
        one_run(audit(), delta=0.0, guesses=200, method="f-dp")


def test_the_headline_is_the_default():
    evidence = audit(shift=2.0)
    estimate = one_run(evidence, delta=1e-5)
    assert estimate.method == "one-run"
    assert estimate.validity is Validity.FINITE_SAMPLE
    assert 1.0 < estimate.epsilon < 9.997256
    assert estimate.epsilon == lower_bound(evidence, delta=1e-5).epsilon
    assert one_run(evidence, delta=1e-5, guesses="ranked").epsilon == ranked(evidence, delta=1e-5).epsilon
    assert estimate.epsilon > 0.8 * max(one_run(evidence, delta=1e-5, guesses=r).epsilon for r in (50, 200, 1000))


@pytest.mark.parametrize("way", [{"guesses": 100}, {"guesses": (60, 0)}, {"method": "betting"}, {}])
@pytest.mark.slow
def test_level_is_kept_where_the_truth_is_known(way):
    """Randomised response with ε = 1 answers each coin with the largest probability allowed."""
    above, repeats = 0, 300
    for seed in range(repeats):
        rng = np.random.default_rng([7, seed])
        coins = rng.random(300) < 0.5
        answers = np.where(rng.random(300) < special.expit(1.0), coins, ~coins)
        evidence = OneRun(answers + 0.1 * rng.random(300), coins)
        above += one_run(evidence, confidence=0.9, **way).epsilon > 1.0
    assert stats.binom.sf(above - 1, repeats, 0.1) > 1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: one_run(e, guesses=3000), "asks for 3000 guesses about 2000 records"),
        (lambda e: one_run(e, guesses=(1500, 600)), "asks for 2100 guesses"),
        (lambda e: one_run(e, guesses=(0, 0)), "asks for 0 guesses"),
        (lambda e: one_run(e, guesses=0), "guesses must be at least 1"),
        (lambda e: one_run(e, guesses=(1, 2, 3)), "pair"),
        (lambda e: one_run(e, guesses=(1.5, 2)), r"guesses\[0\] must be a whole number"),
        (lambda e: one_run(e, guesses="best"), "guesses must be one of learned, ranked"),
        (lambda e: one_run(e, guesses=True), "guesses must be a number"),
        (lambda e: one_run(e, guesses=100, method="betting"), "betting"),
        (lambda e: one_run(e, method="f-dp", delta=1e-5), "fixed in advance"),
        (lambda e: one_run(e, method="exact"), "method must be one of"),
        (lambda e: one_run(e, term="both"), "term must be one of"),
        (lambda e: one_run(e, delta=1.0), "delta"),
        (lambda e: one_run(e, confidence=1.0), "confidence"),
        (lambda e: one_run(e.as_scores()), "must be a OneRun, got Scores"),
        (lambda e: rank_betting(e, records=10), "knows its own"),
        (lambda e: rank_betting([1, 0, 2]), "only 0 and 1"),
        (lambda e: rank_betting([1, 0], records=1), "records must be between 2"),
        (lambda e: one_run_bound(records=10, guesses=11, correct=5, delta=0.0), "guesses must be between 1 and 10"),
        (lambda e: one_run_bound(records=10, guesses=5, correct=6, delta=0.0), "correct must be between 0 and 5"),
        (lambda e: one_run_p_value(records=9, guesses=5, correct=5, delta=0.0, epsilon=-1.0), "epsilon"),
        (lambda e: one_run_mu_bound(records=0, guesses=1, correct=1), "records must be between 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call(audit())
