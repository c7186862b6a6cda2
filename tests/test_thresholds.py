import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.estimators.limits import threshold_at_fpr
from dosimeter.estimators.rates import choose, clopper_pearson, counts_over_curve, jeffreys, rule
from dosimeter.evidence import Scores

TIED = st.lists(st.integers(-3, 3), min_size=1, max_size=25)


def highest(scores):
    return float(scores.curve.thresholds[0])


class TestRule:
    def test_what_was_asked_for(self):
        assert rule(None, None, "split") == "split"
        assert rule("naive", None, "split") == "naive"
        assert rule(0.5, None, "split") == 0.5
        assert rule(np.float32(0.5), None, "split") == 0.5
        assert rule(None, 0.01, "split") == "fpr"

    @pytest.mark.parametrize("threshold", ["best", "", True, np.nan, np.inf, [0.5], np.array([0.5]), 1j, b"split", {}])
    def test_refuses_thresholds(self, threshold):
        with pytest.raises(InputError, match=r"^threshold must be"):
            rule(threshold, None, "split")

    @pytest.mark.parametrize("fpr", [-0.1, 1, 2, np.nan, "0.1", True, [0.1]])
    def test_refuses_rates(self, fpr):
        with pytest.raises(InputError, match=r"^fpr must be"):
            rule(None, fpr, "split")

    def test_one_of_the_two(self):
        with pytest.raises(InputError, match=r"threshold='split' and fpr=0\.1 exclude each other"):
            rule("split", 0.1, "split")


class TestThresholdAtFpr:
    @given(TIED, TIED, st.floats(0, 0.999) | st.integers(0, 24).map(lambda k: k / 25))
    def test_the_lowest_one_with_few_enough_false_positives(self, members, nonmembers, fpr):
        scores = Scores(members, nonmembers)
        threshold = threshold_at_fpr(scores, fpr)
        allowed = fpr * len(nonmembers) * (1 + 1e-12)
        assert scores.counts_at(threshold).fp <= allowed
        lower = [v for v in set(nonmembers) if v < threshold]
        if lower:
            assert scores.counts_at(max(lower)).fp > allowed

    @given(TIED, TIED, TIED, st.floats(0, 0.999))
    def test_the_members_have_no_say(self, members, others, nonmembers, fpr):
        assert threshold_at_fpr(Scores(members, nonmembers), fpr) == threshold_at_fpr(Scores(others, nonmembers), fpr)

    def test_a_rate_that_is_a_whole_number_of_records(self):
        scores = Scores(np.arange(10.0), np.arange(10.0))
        assert [scores.counts_at(threshold_at_fpr(scores, k / 10)).fp for k in range(10)] == list(range(10))

    def test_no_false_positive_at_the_largest_number_there_is(self):
        largest = np.finfo(float).max
        assert threshold_at_fpr(Scores([0.0], [largest]), 0.0) > largest


class TestChoose:
    def test_fixed(self):
        choice = choose(Scores([1, 2, 3], [0, 1]), 2.0, None, 0, "split", highest)
        assert choice.counts.to_dict() == {"tp": 2, "fn": 1, "fp": 0, "tn": 2}
        assert not choice.naive

    def test_split_bounds_on_the_other_half(self):
        scores = Scores(np.arange(100.0), np.arange(50.0))
        pilot, rest = scores.split(7)
        choice = choose(scores, "split", None, 7, "naive", highest)
        assert choice.threshold == highest(pilot)
        assert choice.counts == rest.counts_at(choice.threshold)
        assert not choice.naive

    def test_naive_says_so(self):
        scores = Scores(np.arange(100.0), np.arange(50.0))
        choice = choose(scores, None, None, 0, "naive", highest)
        assert choice.naive
        assert choice.counts == scores.counts_at(99.0)

    def test_by_rate(self):
        choice = choose(Scores(np.arange(100.0), np.arange(50.0)), None, 0.1, 0, "split", highest)
        assert choice.counts.fp == 5
        assert "FPR 0.1" in choice.how

    @pytest.mark.parametrize("seed", [-1, 0.5, "a", None])
    def test_seed(self, seed):
        with pytest.raises(InputError, match=r"^seed"):
            choose(Scores([1, 2], [1, 2]), "split", None, seed, "split", highest)


class TestThroughAnEstimator:
    @given(TIED, TIED)
    def test_counts_over_the_curve(self, members, nonmembers):
        scores = Scores(members, nonmembers)
        for cells, threshold in zip(zip(*counts_over_curve(scores), strict=True), scores.curve.thresholds, strict=True):
            counts = scores.counts_at(threshold)
            assert cells == (counts.fn, counts.tp, counts.fp, counts.tn)

    @pytest.mark.parametrize("estimator", [clopper_pearson, jeffreys])
    def test_naive_is_the_largest_bound_over_all_thresholds(self, estimator):
        rng = np.random.default_rng(3)
        scores = Scores(rng.normal(1, 1, 60), rng.normal(0, 1, 40))
        naive = estimator(scores, threshold="naive")
        fixed = [estimator(scores, threshold=float(t)).low for t in scores.curve.thresholds]
        assert naive.low == max(fixed)
        assert str(naive.validity) == "exploratory"
        assert any("chosen on the same data" in w for w in naive.warnings)
        assert "this level is not kept" in naive.claim

    def test_a_fixed_threshold_and_its_rate_agree(self):
        rng = np.random.default_rng(3)
        scores = Scores(rng.normal(1, 1, 500), rng.normal(0, 1, 400))
        by_rate = clopper_pearson(scores, fpr=0.1)
        by_number = clopper_pearson(scores, threshold=by_rate.threshold)
        assert by_rate.low == by_number.low
        assert by_rate.counts == by_number.counts
        assert by_rate.counts.fp == 40

    def test_counts_take_no_threshold(self):
        counts = Scores([1, 2], [0, 1]).counts_at(1)
        for options in ({"threshold": 0.5}, {"threshold": "split"}, {"fpr": 0.1}):
            with pytest.raises(InputError, match="leave them out"):
                clopper_pearson(counts, **options)
