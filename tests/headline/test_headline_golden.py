"""The headline bound: golden numbers, what may not change it, ties, the smallest evidence, its cost."""

import time

import numpy as np
import pytest
from scipy import special, stats

from dosimeter import InputError, OneRun, Scores, Validity, fair_coins, lower_bound, ranked
from dosimeter.estimators.headline import Bins, coins, coins_bound, pools_bound, rank_bins
from dosimeter.estimators.headline.learning import Learner, View
from dosimeter.estimators.headline.pools import _Search
from dosimeter.estimators.headline.tables import leaks_of
from dosimeter.estimators.lower_bound import proven_epsilon


def coins_case(seed: int, records: int, mu: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    inside = rng.random(records) < 0.5
    return rng.normal(mu * inside, 1), inside


def leakers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    inside = rng.random(2000) < 0.5
    scores = rng.normal(size=2000)
    return scores + 8 * (inside & (rng.random(2000) < 0.02)), inside


# Made by `python tests/headline/test_headline_golden.py`, which prints the two columns of numbers again.
@pytest.mark.parametrize(
    ("scores", "inside", "delta", "expected"),
    [
        (*coins_case(1, 200, 2.0), 0.0, 2.813281),
        (*coins_case(2, 2000, 1.0), 1e-5, 2.068750),
        (*coins_case(2, 2000, 1.0), 1e-3, 1.073101),
        (np.round(coins_case(2, 2000, 1.0)[0]), coins_case(2, 2000, 1.0)[1], 0.0, 1.911719),
        ((np.arange(400) % 2 == 0) * 1.0, np.arange(400) % 2 == 0, 0.0, 4.722656),
        (np.zeros(400), np.arange(400) % 2 == 0, 0.0, 0.0),
        (*leakers(), 1e-5, 2.140000),
    ],
)
def test_coins(scores: np.ndarray, inside: np.ndarray, delta: float, expected: float) -> None:
    assert lower_bound(OneRun(scores, inside), delta=delta).low == pytest.approx(expected, abs=1e-6)


def pools_case(seed: int, mu: float, sizes: tuple[int, int]) -> Scores:
    rng = np.random.default_rng(seed)
    return Scores(rng.normal(mu, 1, sizes[0]), rng.normal(0, 1, sizes[1]))


@pytest.mark.once
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_more_records_told_apart_perfectly_prove_hardly_less(delta: float) -> None:
    """Not small tables where one would do: 42 records a side proved .2 less than 41, and 62 proved .5 less than 60."""
    ranks = (np.arange(2 * records) for records in range(20, 64))
    proven = [pools_bound(rank_bins(1.0 * rank, 2 * rank >= rank.size), delta, 0.05).epsilon for rank in ranks]
    assert np.all(proven >= np.maximum.accumulate(proven) - 0.15) and proven[-1] > proven[0] + 2.4


@pytest.mark.once
@pytest.mark.parametrize("share", [0.5, 0.3])
def test_two_groups_of_ties_that_are_all_right_prove_more_the_larger_they_are(share: float) -> None:
    """Not one group alone: 95 coins told apart by a tree's leaves proved 2.55, and 100 proved 3.29."""
    proven = []
    for total in range(20, 260, 10):
        outside = round(share * total)
        bins = Bins(np.array([outside, total - outside]), np.array([0, total - outside]))
        proven.append(coins_bound(bins, 0.0, 0.05).epsilon)
    most = special.logit(0.05 ** (1 / np.arange(20, 260, 10)))
    assert np.all(np.diff(proven) > 0) and np.all(np.array(proven) > 0.75 * most)


TWO_VALUES = Scores(np.repeat([1.0, 0.0], [300, 100]), np.repeat([1.0, 0.0], [100, 300]))


@pytest.mark.parametrize(
    ("scores", "delta", "neighbours", "expected"),
    [
        (pools_case(4, 1.0, (1000, 1000)), 0.0, "replace", 3.44),
        (pools_case(4, 1.0, (1000, 1000)), 1e-5, "replace", 3.48),
        (pools_case(4, 1.0, (1000, 1000)), 1e-5, "add/remove", 1.705),
        (pools_case(5, 1.5, (100, 3000)), 0.0, "replace", 4.43),
        (TWO_VALUES, 0.0, "replace", 1.87),
        (Scores(np.ones(710), np.ones(710)), 0.0, "replace", 0.0),
    ],
)
def test_pools(scores: Scores, delta: float, neighbours: str, expected: float) -> None:
    found = lower_bound(scores, delta=delta, neighbours=neighbours)
    assert found.low == pytest.approx(expected, abs=1e-9)
    assert found.neighbours == neighbours


def test_neither_row_order_nor_an_increasing_transform_changes_a_digit() -> None:
    scores, inside = coins_case(2, 2000, 1.0)
    first = lower_bound(OneRun(scores, inside), delta=1e-5)
    order = np.random.default_rng(0).permutation(2000)
    for other in (OneRun(scores[order], inside[order]), OneRun(np.exp(scores), inside)):
        assert lower_bound(other, delta=1e-5).to_dict() == first.to_dict()
    pools = pools_case(4, 1.0, (1000, 700))
    found = lower_bound(pools, delta=1e-5)
    turned = Scores(np.exp(pools.members[::-1]), np.exp(np.sort(pools.nonmembers)))
    assert lower_bound(turned, delta=1e-5).to_dict() == found.to_dict()


@pytest.mark.parametrize("size", [*range(5, 60, 7), 100, 208, 710, 1000, 5000])
def test_constant_scores_prove_nothing(size: int) -> None:
    constant = Scores(np.full(size, 2.5), np.full(size + size % 3, 2.5))
    assert lower_bound(constant).low == 0
    assert lower_bound(constant, delta=1e-5, neighbours="add/remove").low == 0
    assert lower_bound(OneRun(np.ones(2 * size), np.arange(2 * size) % 2)).low == 0
    assert ranked(OneRun(np.ones(2 * size), np.arange(2 * size) % 2)).low == 0


def steps(seed: int, records: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """A tenth of the members and of the non-members for certain, little between them: what reference models give."""
    rng = np.random.default_rng(seed)
    inside = rng.random(records) < 0.5
    told = rng.random(records) < 0.1
    return np.where(told, np.where(inside, 9, -9) + rng.random(records), rng.normal(0.3 * inside, 1)), inside


@pytest.mark.once
def test_ends_that_rise_by_themselves_prove_as_much_as_the_walk() -> None:
    runs = [OneRun(*steps(seed)) for seed in range(4)]
    walked = np.mean([ranked(run, delta=1e-5).low for run in runs])
    assert np.mean([lower_bound(run, delta=1e-5).low for run in runs]) > walked
    split = [lower_bound(run.as_scores(), delta=1e-5, neighbours="add/remove").low for run in runs]
    assert np.mean(split) > 0.5 * walked


def test_prefixes_prove_what_a_learner_that_is_wrong_would_give_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that takes the ends for noise and reveals nearly all costs no more than a share of the level."""

    class Wrong(Learner):
        def view(self, low: int, high: int, design: np.ndarray | None = None) -> View:
            flat = np.full(self._whole.member.shape[1], -1.0)
            return View(low, high, np.array([1.0, 0.0, 0.0]), (flat, None, None))

    monkeypatch.setattr(coins, "Learner", Wrong)
    for seed in range(3):
        run = OneRun(*steps(seed))
        assert lower_bound(run, delta=1e-5).low > 0.8 * ranked(run, delta=1e-5).low


def test_bins_never_part_equal_scores() -> None:
    rng = np.random.default_rng(0)
    for size in (2, 3, 10, 333, 2000):
        scores = rng.integers(0, 1 + size // 4, size).astype(float)
        member = rng.random(size) < 0.5
        bins = rank_bins(scores, member)
        ordered = np.sort(scores)
        inner = bins.edges[1:-1]
        assert np.all(ordered[inner - 1] < ordered[inner])
        assert bins.total == size and bins.members.sum() == member.sum()
        assert np.all(bins.members <= bins.records) and np.all(bins.records > 0)


def test_bound_is_a_function_of_its_bins() -> None:
    """What a verifier recomputes from the counts alone."""
    scores, inside = coins_case(2, 2000, 1.0)
    found = lower_bound(OneRun(scores, inside), delta=1e-5)
    kept = Bins(*(np.array(found.details["bins"][name]) for name in ("records", "members")))
    assert coins_bound(kept, 1e-5, 1 - 0.95).epsilon == found.low
    pools = lower_bound(pools_case(4, 1.0, (1000, 700)), delta=1e-5)
    kept = Bins(*(np.array(pools.details["bins"][name]) for name in ("records", "members")))
    assert pools_bound(kept, 1e-5, 1 - 0.95, "replace").epsilon == pools.low


def test_independent_runs_bound_their_two_worlds() -> None:
    pools = pools_case(4, 1.0, (1000, 1000))
    runs = lower_bound(Scores(pools.members, pools.nonmembers, independent=True), delta=1e-5)
    assert runs.low == pytest.approx(lower_bound(pools, delta=1e-5, neighbours="add/remove").low, rel=0.1)
    assert runs.validity is Validity.INDEPENDENT_RUNS and runs.neighbours == "add/remove"
    replaced = lower_bound(Scores(pools.members, pools.nonmembers, independent=True), delta=1e-5, neighbours="replace")
    assert replaced.low == runs.low and replaced.neighbours == "replace"


def test_independent_runs_pay_little_for_delta() -> None:
    """δ = 0.01 over 100 perfectly separated runs: at most three of them tell their world but for 2 % of audits."""
    perfect = Scores(np.arange(50.0) + 50, np.arange(50.0), independent=True)
    assert lower_bound(perfect, delta=0.01).low > 1.5
    assert leaks_of(100, 0.01, 0.05)[0] == 3
    assert leaks_of(100, 0.0, 0.05) == (0, 0.0)


def test_coins_do_not_replace() -> None:
    with pytest.raises(InputError, match="coins add or remove"):
        lower_bound(OneRun([1.0, 0.0], [1, 0]), neighbours="replace")
    with pytest.raises(InputError, match="one of add/remove, replace"):
        lower_bound(Scores([1.0], [0.0]), neighbours="zero-out")


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.01, 0.5])
def test_smallest_evidence(delta: float) -> None:
    assert lower_bound(Scores([1.0], [0.0]), delta=delta).low == 0
    assert lower_bound(OneRun([1.0, 0.0], [1, 0]), delta=delta).low == 0
    assert "So few records cannot prove any" in lower_bound(Scores([1.0], [0.0])).claim


@pytest.mark.parametrize("distance", [0.0, 0.5, 3.0, 50.0])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 7), (3, 1000), (40, 40), (501, 333)])
def test_any_sizes_give_a_number_below_the_ceiling(sizes: tuple[int, int], distance: float) -> None:
    scores = pools_case(7, distance, sizes)
    for neighbours in ("replace", "add/remove"):
        found = lower_bound(scores, delta=1e-5, neighbours=neighbours)
        assert 0 <= found.low <= found.details["largest_provable"]


@pytest.mark.parametrize(("inside", "outside"), [(7, 300), (103, 97), (205, 410), (300, 7), (1010, 990)])
def test_the_ceiling_is_that_of_the_better_perfect_attack(inside: int, outside: int) -> None:
    included = np.arange(inside + outside) < inside
    weak = np.arange(inside + outside) % 2.0
    for perfect in (included.astype(float), -np.arange(included.size, dtype=float)):  # two values, all different
        for evidence in (OneRun, lambda x, mask: Scores(x[mask], x[~mask])):
            for delta in (0.0, 1e-3):
                most = lower_bound(evidence(weak, included), delta=delta).details["largest_provable"]
                assert lower_bound(evidence(perfect, included), delta=delta).low <= most


def test_add_remove_is_half_of_replace_without_delta() -> None:
    scores = pools_case(9, 1.0, (400, 600))
    assert lower_bound(scores, neighbours="add/remove").low == pytest.approx(lower_bound(scores).low / 2)


def test_claim_says_whose_epsilon_the_counts_and_the_ceiling() -> None:
    claim = lower_bound(pools_case(4, 1.0, (1000, 1000)), delta=1e-5).claim
    assert "for replacing one record" in claim and "ranked higher" in claim and "1 of 20 audits" in claim
    perfect = lower_bound(Scores(np.arange(50.0) + 50, np.arange(50.0)))
    assert perfect.claim.endswith("This is close to the most that an audit of so many records can prove.")
    silent = lower_bound(Scores(np.arange(50.0), np.arange(50.0)))
    assert "A perfect attack on so many records could have proven" in silent.claim


@pytest.mark.once
def test_counts_of_a_claim_can_be_checked_or_it_says_that_some_count_more() -> None:
    """Of a claim that says nothing of weights, the counts alone are as rare as it says."""
    rng = np.random.default_rng(5)
    plain = 0
    for mu in np.repeat([0.4, 1.0, 5.0], 3):
        included = rng.random(1000) < 0.5
        run = OneRun(rng.normal(mu * included, 1), included)
        for found in (lower_bound(run), lower_bound(run.as_scores())):
            n, k, other, below = (found.details["tested"][name] for name in _TESTED)
            if found.neighbours == "add/remove":
                tail = stats.binom.sf(k + other - below - 1, n + other, special.expit(found.low))
            else:
                tail = stats.nchypergeom_fisher.sf(k - 1, n + other, k + below, n, np.exp(found.low))
            weighed = "the more it counts" in found.claim
            assert found.low == 0 or (tail > 0.05) == weighed
            plain += found.low > 0 and not weighed
    assert plain > 2


_TESTED = ("upper", "upper_members", "lower", "lower_members")


def test_scores_the_wrong_way_round_are_named() -> None:
    scores = pools_case(4, 3.0, (100, 100))
    turned = lower_bound(Scores(-scores.members, -scores.nonmembers))
    assert any("the wrong way round" in warning for warning in turned.warnings)
    assert not lower_bound(scores).warnings
    few = lower_bound(Scores(np.arange(15.0), np.arange(100.0, 1100.0)))
    assert any("the wrong way round" in warning for warning in few.warnings)
    assert not lower_bound(Scores(np.arange(5.0), np.arange(5.0) + 10)).warnings


def test_margins_of_hidden_records_do_not_decide_later_tables() -> None:
    """Tables that the margins leave nothing to chance in are planned all the same: later sizes build on them."""
    records = np.full(6, 30)
    sizes, rungs = [], []
    for hidden in ([15, 15, 15, 15], [30, 0, 0, 30]):  # as many members, the same labels revealed
        search = _Search.of(Bins(records, np.array([*hidden[:2], 15, 15, *hidden[2:]])), 1e-6, 0.05, "replace", False)
        view = search.learner.view(2, 4)
        plan = search.plan(view, 0.0, planned_at=0.0)
        assert plan is not None
        sizes.append(plan.size)
        rungs.append([(rung.table._replace(above=0), round(rung.share, 9)) for rung in search.rungs(view, 0.1)])
    assert sizes[0] == sizes[1]
    assert rungs[0] == rungs[1] and rungs[0]


def test_a_split_with_few_leakers_proves_about_as_much_as_coins() -> None:
    scores, inside = leakers()
    assert lower_bound(Scores(scores[inside], scores[~inside]), delta=1e-5).low > 1.6


def test_cost_grows_like_a_sort() -> None:
    rng = np.random.default_rng(0)
    coins = fair_coins(10**6, seed=1)
    evidence = OneRun(rng.normal(coins, 1), coins)
    lower_bound(evidence, delta=1e-5)
    began = time.perf_counter()
    lower_bound(evidence, delta=1e-5)
    assert time.perf_counter() - began < 5  # half a second on a quiet machine


if __name__ == "__main__":
    for case in test_coins.pytestmark[0].args[1]:
        print(f"coins: {lower_bound(OneRun(*case[:2]), delta=case[2]).low:.6f}, was {case[3]}")
    for case in test_pools.pytestmark[0].args[1]:
        print(f"pools: {lower_bound(case[0], delta=case[1], neighbours=case[2]).low:.6f}, was {case[3]}")


def test_the_number_alone_is_that_of_the_estimate():
    rng = np.random.default_rng(3)
    scores = Scores(rng.normal(1, 1, 90), rng.normal(0, 1, 130).round(1))
    coins = OneRun(rng.normal(size=101) + (inside := rng.random(101) < 0.5), inside)
    for evidence in (scores, Scores(scores.members, scores.nonmembers, independent=True), coins):
        for options in ({}, {"delta": 1e-3, "confidence": 0.9, "neighbours": "add/remove"}):
            assert proven_epsilon(evidence, **options) == lower_bound(evidence, **options).low
