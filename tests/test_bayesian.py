"""The joint posterior of ε. Its second route is mpmath: F = ∫ f_FNR(x) [I_hi(x) − I_lo(x)] dx by tanh-sinh quadrature.

`python tests/test_bayesian.py` computes the golden values again and writes tests/golden/bayesian.json (minutes).
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter import geometry
from dosimeter._validate import InputError
from dosimeter.estimate import Validity
from dosimeter.estimators.joint_posterior import CountRows, cdf_and_density, joint_posterior, quantile
from dosimeter.estimators.with_assumptions import bayesian, best_threshold, posterior_cdf, posterior_density
from dosimeter.evidence import Counts, Scores

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden" / "bayesian.json"

# (FN, TP, FP, TN), δ, and the two probabilities whose quantiles are stored
CASES = [
    ((35, 65, 25, 75), 0.05, (0.025, 0.975)),
    ((35, 65, 25, 75), 1e-12, (0.025, 0.975)),
    ((350, 650, 250, 750), 0.05, (0.025, 0.975)),
    ((1750, 3250, 1250, 3750), 1e-5, (0.025, 0.975)),
    ((17500, 32500, 12500, 37500), 1e-5, (0.025, 0.975)),
    ((175000, 325000, 125000, 375000), 1e-5, (0.025, 0.975)),
    ((0, 487, 512, 1), 1e-5, (0.05, 0.95)),
    ((0, 100, 0, 100), 1e-5, (0.05, 0.95)),
    ((100, 0, 100, 0), 1e-5, (0.05, 0.95)),
    ((500, 500, 0, 1000), 1e-5, (0.025, 0.975)),
    ((499, 1, 0, 500), 1e-5, (0.025, 0.975)),
    ((25, 25, 25, 25), 0.0, (0.025, 0.975)),
    ((0, 1000, 0, 1000), 1e-5, (0.1, 0.9)),
    ((0, 1, 0, 1), 0.0, (0.05, 0.95)),
    ((0, 1, 0, 1), 1e-5, (0.05, 0.95)),
    ((10, 90, 0, 100), 1e-5, (0.05, 0.95)),
    ((0, 5, 5, 0), 0.3, (0.9, 0.95)),
    ((0, 100, 100, 0), 1e-7, (0.05, 0.95)),
    ((1000, 0, 0, 1000), 1e-4, (0.05, 0.95)),
    ((85, 15, 2, 98), 1e-4, (0.05, 0.95)),
    ((3, 4, 1, 200), 0.9, (0.999, 0.9999)),
    ((0, 10**9, 0, 10**9), 1e-12, (0.05, 0.95)),
    ((10**9, 0, 0, 10**9), 1e-12, (0.05, 0.95)),
    ((3 * 10**8, 7 * 10**8, 2 * 10**8, 8 * 10**8), 1e-5, (0.05, 0.95)),
]


class ReferenceBeta:
    """Beta(k+½, m+½) in mpmath."""

    def __init__(self, k: int, m: int) -> None:
        self.k, self.m = k, m
        self.a, self.b = mp.mpf(2 * k + 1) / 2, mp.mpf(2 * m + 1) / 2
        self.constant = mp.loggamma(self.a + self.b) - mp.loggamma(self.a) - mp.loggamma(self.b)
        self.mode = mp.atan2(mp.sqrt(k), mp.sqrt(m))
        self.spread = 1 / (mp.sqrt(2 * k) + mp.sqrt(2 * m))

    def marks(self) -> list[mp.mpf]:
        """Angles asin √x around the bulk, to cut the integrals at."""
        angles = [self.mode + self.spread * j for j in (-13, -6, -3, -1, 1, 3, 6, 13)]
        return [t for t in angles if 0 < t < mp.pi / 2]

    def density_of_angle(self, t: mp.mpf) -> mp.mpf:
        power = (2 * self.k * mp.log(mp.sin(t)) if self.k else 0) + (2 * self.m * mp.log(mp.cos(t)) if self.m else 0)
        return 2 * mp.exp(self.constant + power)

    def density(self, x: mp.mpf) -> mp.mpf:
        return mp.exp(self.constant + (self.a - 1) * mp.log(x) + (self.b - 1) * mp.log(1 - x))

    def cdf(self, x: mp.mpf) -> mp.mpf:
        if not 0 < x < 1:
            return mp.mpf(x >= 1)
        if self.k + self.m < 3000:
            return mp.betainc(self.a, self.b, 0, x, regularized=True)
        t = mp.asin(mp.sqrt(x))
        start, stop = max(mp.mpf(0), self.mode - 13 * self.spread), min(mp.pi / 2, self.mode + 13 * self.spread)
        if not start < t < stop:
            return mp.mpf(t >= stop)
        if t < self.mode:
            return mp.quad(self.density_of_angle, [start, t], method="gauss-legendre")
        return 1 - mp.quad(self.density_of_angle, [t, stop], method="gauss-legendre")


def reference(counts: tuple[int, int, int, int], epsilon: float, delta: float) -> tuple[mp.mpf, mp.mpf]:
    """F(ε) and dF/dε in 30 digits, from the boundary of the region."""
    x_post, y_post = ReferenceBeta(*counts[:2]), ReferenceBeta(*counts[2:])
    e, d = mp.exp(mp.mpf(epsilon)), mp.mpf(delta)
    c = 1 - d

    def lo(x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
        return max((c - e * x, -e * x), ((c - x) / e, -(c - x) / e), (mp.mpf(0), mp.mpf(0)))

    def hi(x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
        return min((d + (1 - x) * e, (1 - x) * e), (1 + (d - x) / e, (x - d) / e), (mp.mpf(1), mp.mpf(0)))

    def inside(t: mp.mpf) -> mp.mpf:
        x = mp.sin(t) ** 2
        return x_post.density_of_angle(t) * (y_post.cdf(hi(x)[0]) - y_post.cdf(lo(x)[0]))

    def moving(t: mp.mpf) -> mp.mpf:
        x = mp.sin(t) ** 2
        (low, low_speed), (high, high_speed) = lo(x), hi(x)
        speed = y_post.density(high) * high_speed if 0 < high < 1 else mp.mpf(0)
        speed -= y_post.density(low) * low_speed if 0 < low < 1 else mp.mpf(0)
        return x_post.density_of_angle(t) * speed

    images = [mp.sin(t) ** 2 for t in y_post.marks()]
    kinks = [c / (1 + e), 1 - c / (1 + e), c, d, *(lo(y)[0] for y in images), *(hi(y)[0] for y in images)]
    start = max(mp.mpf(0), x_post.mode - 13 * x_post.spread)
    stop = min(mp.pi / 2, x_post.mode + 13 * x_post.spread)
    angles = x_post.marks() + [mp.asin(mp.sqrt(x)) for x in kinks if 0 <= x <= 1]
    cuts = [start]
    for t in sorted([t for t in angles if start < t < stop] + [stop]):
        if t - cuts[-1] > mp.mpf(10) ** -22:
            cuts.append(t)
    return mp.quad(inside, cuts), mp.quad(moving, cuts)


def write_golden() -> None:
    """One evaluation near each quantile gives F, dF/dε and, by a Newton step, the quantile (0 if F(0) ≥ p)."""
    source = "mpmath tanh-sinh quadrature of the region's definition in 30 digits: python tests/test_bayesian.py"
    entries = []
    with mp.workdps(30):
        for counts, delta, tails in CASES:
            for p in tails:
                near = float(f"{_solve(counts, p, delta):.9g}")
                cdf, density = reference(counts, near, delta)
                entries.append(
                    {
                        "counts": counts,
                        "delta": delta,
                        "epsilon": near,
                        "cdf": float(cdf),
                        "density": float(density),
                        "probability": p,
                        "value": max(0.0, float(near - (cdf - p) / density)),
                        "tolerance": 1e-9,
                        "source": source,
                    }
                )
                print(entries[-1], flush=True)
    GOLDEN.write_text(json.dumps(entries, indent=1) + "\n")


def _solve(counts: tuple[int, ...], probability: float, delta: float) -> float:
    return float(quantile(_rows(counts), np.array([probability]), delta)[0])


def _rows(*counts: tuple[int, ...]) -> CountRows:
    fn, tp, fp, tn = np.array(counts, float).T
    return fn, tp, fp, tn


def _counts(values: tuple[int, ...]) -> Counts:
    fn, tp, fp, tn = values
    return Counts(fn=fn, tp=tp, fp=fp, tn=tn)


def _golden() -> list[dict]:
    return json.loads(GOLDEN.read_text())


# --- golden values ----------------------------------------------------------------------------------------


def test_golden_file_covers_every_case() -> None:
    stored = {(tuple(g["counts"]), g["delta"], g["probability"]) for g in _golden()}
    assert stored == {(counts, delta, p) for counts, delta, tails in CASES for p in tails}


def test_golden_cdf_and_density() -> None:
    for g in _golden():
        counts = _counts(g["counts"])
        assert posterior_cdf(counts, g["epsilon"], g["delta"]) == pytest.approx(g["cdf"], abs=1e-10), g
        assert posterior_density(counts, g["epsilon"], g["delta"]) == pytest.approx(g["density"], rel=1e-8), g


def test_golden_quantiles() -> None:
    for g in _golden():
        found = _solve(tuple(g["counts"]), g["probability"], g["delta"])
        assert found == pytest.approx(g["value"], abs=g["tolerance"]), g


# The paper's worked example, the example of its code, N = 1e6, and a perfect attack
@pytest.mark.parametrize(
    ("counts", "delta", "confidence", "low", "high", "digits"),
    [
        ((35, 65, 25, 75), 0.05, 0.95, 0.52179, 1.26665, 6e-6),
        ((0, 487, 512, 1), 1e-5, 0.90, 0.143895, 6.415596, 6e-7),
        ((175000, 325000, 125000, 375000), 1e-5, 0.95, 0.95029, 0.96071, 6e-6),
        ((0, 100, 0, 100), 1e-5, 0.90, 4.8964, 12.1961, 6e-5),
    ],
)
def test_golden_intervals(counts, delta, confidence, low, high, digits) -> None:
    found = bayesian(_counts(counts), delta=delta, confidence=confidence, sides="both")
    assert (found.low, found.high) == (pytest.approx(low, abs=digits), pytest.approx(high, abs=digits))


def test_golden_perfect_attack_one_sided() -> None:
    found = bayesian(Counts(fn=0, tp=1000, fp=0, tn=1000), delta=1e-5, confidence=0.9)
    assert found.low == pytest.approx(7.59565, abs=6e-6)
    assert found.high == math.inf


def test_mpmath_agrees_at_fresh_points() -> None:
    with mp.workdps(20):
        for counts, epsilon, delta in [((3, 17, 1, 9), 1.3, 0.01), ((0, 6, 4, 0), 0.4, 1e-3), ((2, 0, 0, 7), 2.5, 0.0)]:
            cdf, density = reference(counts, epsilon, delta)
            assert posterior_cdf(_counts(counts), epsilon, delta) == pytest.approx(float(cdf), abs=1e-12)
            assert posterior_density(_counts(counts), epsilon, delta) == pytest.approx(float(density), rel=1e-10)


def test_simulation_agrees() -> None:
    counts, delta, draws = (4, 16, 3, 27), 0.02, 400_000
    rng = np.random.default_rng(5)
    fnr = rng.beta(counts[0] + 0.5, counts[1] + 0.5, draws)
    fpr = rng.beta(counts[2] + 0.5, counts[3] + 0.5, draws)
    epsilon = geometry.epsilon_from_rates(fpr, fnr, delta)
    for e in (0.0, 0.5, 1.5, 2.5, 4.0):
        cdf = posterior_cdf(_counts(counts), e, delta)
        assert abs(np.mean(epsilon <= e) - cdf) < 5 * math.sqrt(max(cdf * (1 - cdf), 1e-9) / draws) + 1e-6


# --- laws -------------------------------------------------------------------------------------------------

cell = st.one_of(st.integers(0, 3), st.integers(0, 10**3), st.integers(0, 10**9))
tables = st.tuples(cell, cell, cell, cell).filter(lambda c: c[0] + c[1] > 0 and c[2] + c[3] > 0)
deltas = st.one_of(st.sampled_from([0.0, 1e-12, 1e-9, 1e-5, 1e-3, 0.05, 0.9]), st.floats(0, 0.9))
levels = st.floats(1e-4, 1 - 1e-4)


@given(tables, deltas, levels)
@settings(max_examples=300, deadline=None)
def test_quantile_inverts_cdf(counts, delta, probability) -> None:
    epsilon = _solve(counts, probability, delta)
    cdf = posterior_cdf(_counts(counts), epsilon, delta)
    if epsilon == 0:
        assert cdf >= probability - 1e-12
    else:
        assert cdf == pytest.approx(probability, abs=1e-10)


@given(tables, deltas)
@settings(max_examples=150, deadline=None)
def test_cdf_rises_from_0_to_1_and_density_is_its_slope(counts, delta) -> None:
    middle = _solve(counts, 0.6, delta)
    grid = np.concatenate([np.linspace(0, 2 * middle + 1, 40), [50.0, 200.0, 699.0, 5000.0]])
    cdf = posterior_cdf(_counts(counts), grid, delta)
    assert np.all((cdf >= 0) & (cdf <= 1))
    assert np.all(np.diff(cdf) >= -5e-11)
    assert cdf[-1] == 1
    assert np.all(posterior_density(_counts(counts), grid, delta) >= 0)


@given(tables, deltas, levels)
@settings(max_examples=100, deadline=None)
def test_symmetries(counts, delta, probability) -> None:
    fn, tp, fp, tn = counts
    epsilon = _solve(counts, probability, delta)
    cdf = posterior_cdf(_counts(counts), epsilon, delta)
    for other in [(fp, tn, fn, tp), (tp, fn, tn, fp)]:
        assert posterior_cdf(_counts(other), epsilon, delta) == pytest.approx(cdf, abs=1e-10)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.05])
@pytest.mark.parametrize("counts", [(35, 65, 25, 75), (25, 25, 25, 25), (0, 20, 3, 0), (350, 650, 250, 750)])
def test_density_integrates_to_what_the_mass_at_zero_leaves(counts, delta) -> None:
    points, weights = np.polynomial.legendre.leggauss(40)
    edges = np.concatenate([[0.0], quantile(_rows(*[counts] * 60), np.linspace(0.001, 0.999, 60), delta), [60.0]])
    edges = np.unique(np.concatenate([edges, np.linspace(0, 60, 121)]))
    half = np.diff(edges) / 2
    grid = ((edges[1:] + edges[:-1]) / 2)[:, None] + half[:, None] * points
    density = posterior_density(_counts(counts), grid.ravel(), delta).reshape(grid.shape)
    total = float((density * weights * half[:, None]).sum())
    assert total == pytest.approx(1 - posterior_cdf(_counts(counts), 0.0, delta), abs=1e-9)


# a zero cell would push the interval up without end instead
@given(st.tuples(*[st.integers(1, 10**5)] * 4), st.sampled_from([2, 5, 100]))
@settings(max_examples=60, deadline=None)
def test_more_data_at_the_same_rates_narrows_the_interval(counts, times) -> None:
    few, many = _counts(counts), _counts(tuple(times * c for c in counts))
    before, after = (bayesian(c, delta=1e-5, sides="both") for c in (few, many))
    assert after.high - after.low < before.high - before.low


def test_no_leak_without_delta_is_never_excluded_nor_zero() -> None:
    assert posterior_cdf(Counts(fn=25, tp=25, fp=25, tn=25), 0.0, 0.0) == pytest.approx(0, abs=1e-13)
    assert bayesian(Counts(fn=25, tp=25, fp=25, tn=25)).low > 0
    assert bayesian(Counts(fn=25, tp=25, fp=25, tn=25), delta=0.3).low == 0


# --- the best threshold -----------------------------------------------------------------------------------


def _every_threshold(scores: Scores, delta: float, confidence: float) -> np.ndarray:
    curve = scores.curve
    tp, fp = curve.tp.astype(float), curve.fp.astype(float)
    counts = (scores.members.size - tp, tp, fp, scores.nonmembers.size - fp)
    return quantile(counts, np.full(tp.size, 1 - confidence), delta)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
@pytest.mark.parametrize("kind", ["none", "laplace", "inverted", "ties", "separated", "constant", "one"])
@pytest.mark.parametrize("size", [40, 1500])
def test_pruned_sweep_equals_the_full_one(kind: str, delta: float, size: int) -> None:
    rng = np.random.default_rng(size)
    members, nonmembers = rng.laplace(size=size), rng.laplace(size=size // 2)
    if kind == "laplace":
        members = members + 1
    elif kind == "inverted":
        members = members - 2
    elif kind == "ties":
        members, nonmembers = np.round(members + 1), np.round(nonmembers)
    elif kind == "separated":
        members = members + 100
    elif kind == "constant":
        members, nonmembers = np.zeros(size), np.zeros(size)
    elif kind == "one":
        members = members[:1]
    scores = Scores(members, nonmembers)
    low = _every_threshold(scores, delta, 0.95)
    place, best = best_threshold(scores, delta, 0.95)
    assert best == pytest.approx(low.max(), abs=1e-9)
    assert low[place] == pytest.approx(low.max(), abs=1e-9)


def test_blocks_are_bounded_from_the_right_side() -> None:
    rng = np.random.default_rng(2)
    tp, fp = np.sort(rng.integers(0, 200, 50)).astype(float), np.sort(rng.integers(0, 200, 50)).astype(float)
    for i, j in [(0, 9), (10, 30), (31, 49)]:
        best = (200 - tp[[j]], tp[[j]], fp[[i]], 200 - fp[[i]])
        worst = (200 - tp[[i]], tp[[i]], fp[[j]], 200 - fp[[j]])
        rows = slice(i, j + 1)
        inside = joint_posterior((200 - tp[rows], tp[rows], fp[rows], 200 - fp[rows]))
        for epsilon in (0.1, 0.5, 1.0):
            bound, _ = cdf_and_density(joint_posterior(best, worst), np.array([epsilon]), 1e-5, density=False)
            cdf, _ = cdf_and_density(inside, np.full(j - i + 1, epsilon), 1e-5, density=False)
            assert bound[0] <= cdf.min() + 1e-12


# --- estimates --------------------------------------------------------------------------------------------

PAPER = Counts(fn=35, tp=65, fp=25, tn=75)


def _scores(size: int = 400, independent: bool = False) -> Scores:
    rng = np.random.default_rng(1)
    return Scores(rng.normal(size=size) + 1, rng.normal(size=size), independent=independent)


def test_estimate_says_that_it_is_credible() -> None:
    found = bayesian(PAPER, delta=0.05)
    assert found.method == "bayesian"
    assert found.validity is Validity.CREDIBLE
    assert found.epsilon == found.low
    assert found.high == math.inf
    assert found.counts == PAPER
    assert "posterior probability 95 %" in found.claim
    assert "not a confidence bound" in found.claim


def test_one_sided_bound_is_the_two_sided_one_at_twice_the_tail() -> None:
    one, two = bayesian(PAPER, delta=0.05, confidence=0.95), bayesian(PAPER, delta=0.05, confidence=0.9, sides="both")
    assert one.low == pytest.approx(two.low, abs=1e-12)
    assert two.high > two.low


def test_ends_that_meet_stay_in_order() -> None:
    many = Counts(tp=10**9, fn=10**9, fp=10**9, tn=10**9)
    found = bayesian(many, delta=1e-12, confidence=4e-16, sides="both")
    assert found.low <= found.high == pytest.approx(found.low, rel=1e-9)


def test_scores_at_a_fixed_threshold_and_at_a_fixed_fpr() -> None:
    scores = _scores(independent=True)
    fixed = bayesian(scores, delta=1e-5, threshold=0.7)
    assert fixed.threshold == 0.7
    assert fixed.counts == scores.counts_at(0.7)
    assert fixed.low == bayesian(scores.counts_at(0.7), delta=1e-5).low
    assert fixed.validity is Validity.CREDIBLE
    at_fpr = bayesian(scores, delta=1e-5, fpr=0.05)
    assert at_fpr.counts.fp <= 0.05 * 400
    assert at_fpr.low == bayesian(at_fpr.counts, delta=1e-5).low


@pytest.mark.parametrize("options", [{"threshold": 0.7}, {"fpr": 0.05}, {"threshold": "split", "seed": 7}])
def test_scores_of_one_model_are_exploratory(options) -> None:
    found, runs = bayesian(_scores(), delta=1e-5, **options), bayesian(_scores(independent=True), delta=1e-5, **options)
    assert (found.low, found.counts, found.threshold) == (runs.low, runs.counts, runs.threshold)
    assert (found.validity, runs.validity) == (Validity.EXPLORATORY, Validity.CREDIBLE)
    assert (found.neighbours, runs.neighbours) == ("replace", "add/remove")
    assert "nothing guarantees" in found.claim and "independent=True" in found.warnings[-1]


def test_split_is_the_default_and_bounds_on_the_other_half() -> None:
    scores = _scores(independent=True)
    found = bayesian(scores, delta=1e-5, seed=7)
    assert found.to_dict() == bayesian(scores, delta=1e-5, seed=7, threshold="split").to_dict()
    pilot, rest = scores.split(7)
    place, _ = best_threshold(pilot, 1e-5, 0.95)
    assert found.threshold == pilot.curve.thresholds[place]
    assert found.counts == rest.counts_at(found.threshold)
    assert found.validity is Validity.CREDIBLE


def test_naive_is_exploratory_and_says_why() -> None:
    scores = _scores()
    found = bayesian(scores, delta=1e-5, threshold="naive")
    place, low = best_threshold(scores, 1e-5, 0.95)
    assert found.threshold == scores.curve.thresholds[place]
    assert found.low == pytest.approx(low, abs=1e-12)
    assert found.validity is Validity.EXPLORATORY
    assert "chosen on the data that bounds it" in found.claim
    assert found.warnings
    assert found.low >= bayesian(scores, delta=1e-5, threshold=0.7).low


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"threshold": 0.5}, "threshold"),
        ({"threshold": "naive"}, "threshold"),
        ({"fpr": 0.1}, "fpr"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -0.1}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": 1 - 1e-12}, "confidence"),
        ({"sides": "upper"}, "sides"),
    ],
)
def test_bad_arguments_are_named(arguments, names) -> None:
    with pytest.raises(InputError, match=names):
        bayesian(PAPER, **arguments)


@pytest.mark.parametrize(
    "epsilon", [-0.1, math.nan, math.inf, "1", None, [0.1, -2.0], [[1.0]], [[1.0], [1.0, 2.0]], []]
)
def test_bad_epsilon_is_named(epsilon) -> None:
    for function in (posterior_cdf, posterior_density):
        with pytest.raises(InputError, match="epsilon"):
            function(PAPER, epsilon, 0.05)


def test_other_bad_input() -> None:
    with pytest.raises(InputError, match="evidence"):
        bayesian([1, 2, 3])
    with pytest.raises(InputError, match="counts"):
        posterior_cdf((35, 65, 25, 75), 1.0)
    with pytest.raises(InputError, match="threshold"):
        bayesian(_scores(), threshold="best")
    with pytest.raises(InputError, match="exclude"):
        bayesian(_scores(), threshold=0.1, fpr=0.1)


def test_extreme_levels_and_arrays() -> None:
    assert bayesian(PAPER, confidence=1e-15).low > bayesian(PAPER, confidence=1e-6).low
    assert 0 < bayesian(PAPER, confidence=1 - 1e-9).low < bayesian(PAPER, confidence=0.99999).low
    values = posterior_cdf(PAPER, np.array([0.2, 1.0]), 0.05)
    assert values.shape == (2,)
    assert isinstance(posterior_cdf(PAPER, 1.0, 0.05), float)
    assert values[1] == pytest.approx(posterior_cdf(PAPER, 1.0, 0.05), abs=1e-15)
    assert posterior_cdf(PAPER, np.linspace(0, 3, 5000), 0.05)[-1] == pytest.approx(
        posterior_cdf(PAPER, 3, 0.05), abs=1e-15
    )
    assert posterior_cdf(Counts(fn=0, tp=1, fp=1, tn=0), 1e4, 1e-300) == 1


if __name__ == "__main__":
    sys.exit(write_golden())
