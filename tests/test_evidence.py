import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.evidence import Counts, OneRun, Scores, fair_coins, mask_hash

TIED = st.lists(st.integers(-3, 3), min_size=1, max_size=25)


class Incomparable:
    """Like the missing value of pandas, whose comparisons are neither true nor false."""

    def __ne__(self, other):
        return self

    __hash__ = None

    def __bool__(self):
        raise TypeError("ambiguous")


class TestCounts:
    def test_rates(self):
        counts = Counts(tp=65, fn=35, fp=25, tn=75)
        assert (counts.members, counts.nonmembers) == (100, 100)
        assert (counts.tpr, counts.fnr, counts.fpr) == (0.65, 0.35, 0.25)
        assert Counts(**counts.to_dict()) == counts

    def test_whole_floats_become_integers(self):
        assert Counts(tp=1.0, fn=np.int64(2), fp=np.float32(3), tn=4).to_dict() == {"tp": 1, "fn": 2, "fp": 3, "tn": 4}
        assert all(type(v) is int for v in Counts(tp=1.0, fn=np.int64(2), fp=3, tn=4).to_dict().values())

    @pytest.mark.parametrize("bad", [-1, 0.5, float("nan"), float("inf"), None, "3", True, [1], 2**60])
    @pytest.mark.parametrize("cell", ["tp", "fn", "fp", "tn"])
    def test_refuses(self, cell, bad):
        cells = {"tp": 1, "fn": 1, "fp": 1, "tn": 1} | {cell: bad}
        with pytest.raises(InputError, match=rf"^{cell} must be .*; pass a count of records"):
            Counts(**cells)

    @pytest.mark.parametrize("side", [("tp", "fn"), ("fp", "tn")])
    def test_both_kinds_are_needed(self, side):
        cells = {"tp": 1, "fn": 1, "fp": 1, "tn": 1} | dict.fromkeys(side, 0)
        with pytest.raises(InputError, match=r"is 0; an attack needs at least one record of each kind"):
            Counts(**cells)

    def test_a_billion_of_each(self):
        assert Counts(tp=10**9, fn=0, fp=0, tn=10**9).members == 10**9

    def test_frozen(self):
        with pytest.raises(AttributeError):
            Counts(tp=1, fn=1, fp=1, tn=1).tp = 2


class TestScores:
    @given(TIED, TIED)
    def test_the_curve_counts_ties_exactly(self, members, nonmembers):
        curve = Scores(members, nonmembers).curve
        assert curve.thresholds.tolist() == sorted(set(members + nonmembers), reverse=True)
        for threshold, tp, fp in zip(*curve, strict=True):
            assert tp == sum(v >= threshold for v in members)
            assert fp == sum(v >= threshold for v in nonmembers)

    @given(TIED, TIED)
    def test_auc_counts_ties_half(self, members, nonmembers):
        wins = sum((m > n) + 0.5 * (m == n) for m in members for n in nonmembers)
        assert Scores(members, nonmembers).auc == pytest.approx(wins / (len(members) * len(nonmembers)), abs=1e-15)

    @given(TIED, TIED, st.floats(-4, 4))
    def test_counts_at_any_threshold(self, members, nonmembers, threshold):
        counts = Scores(members, nonmembers).counts_at(threshold)
        assert counts.tp == sum(v >= threshold for v in members)
        assert counts.fp == sum(v >= threshold for v in nonmembers)
        assert (counts.members, counts.nonmembers) == (len(members), len(nonmembers))

    def test_minus_zero_ties_with_zero(self):
        scores = Scores([0.0], [-0.0])
        assert scores.curve.thresholds.size == 1
        assert scores.auc == 0.5

    def test_subnormal_and_largest_numbers(self):
        scores = Scores([5e-324, 1.7e308], [0.0, -1.7e308])
        assert scores.auc == 1.0
        assert scores.curve.tp.tolist() == [1, 2, 2, 2]

    def test_later_changes_by_the_caller_do_not_matter(self):
        members, nonmembers = np.arange(4.0), np.arange(3.0)
        scores = Scores(members, nonmembers)
        window = Scores(members[::2], nonmembers[1:])
        members[:] = 99
        nonmembers[:] = 99
        assert scores.members.tolist() == [0, 1, 2, 3]
        assert scores.nonmembers.tolist() == [0, 1, 2]
        assert window.members.tolist() == [0, 2]

    @pytest.mark.parametrize("name", ["members", "nonmembers", "sorted_members", "sorted_nonmembers"])
    def test_nobody_can_write_into_it(self, name):
        scores = Scores([3.0, 1.0, 2.0], np.array([1.0, 0.0]))
        with pytest.raises(ValueError, match="read-only"):
            getattr(scores, name)[0] = 5
        with pytest.raises(AttributeError):
            setattr(scores, name, np.zeros(3))

    def test_nobody_can_write_into_its_curve(self):
        for column in Scores([3.0, 1.0], [1.0]).curve:
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 5

    def test_a_float_array_of_the_caller_stays_writable(self):
        members = np.arange(4.0)
        Scores(members, members)
        members[0] = 7

    @pytest.mark.parametrize("name", ["members", "nonmembers"])
    @pytest.mark.parametrize("bad", [[], [np.nan], [[1.0]], ["a"], None, 1.0, [1.0, None], [1j]])
    def test_refuses(self, name, bad):
        with pytest.raises(InputError, match=rf"^{name}\b"):
            Scores(**{"members": [1.0], "nonmembers": [1.0]} | {name: bad})

    def test_from_losses_turns_the_sign(self):
        scores = Scores.from_losses([0.1, 0.2], [3.0])
        assert scores.members.tolist() == [-0.1, -0.2]
        assert scores.nonmembers.tolist() == [-3.0]
        assert scores.from_loss
        assert scores.auc == 1.0

    def test_from_losses_names_the_losses(self):
        with pytest.raises(InputError, match=r"^nonmember_losses\[0\] is nan"):
            Scores.from_losses([0.1], [np.nan])

    def test_split_is_a_partition_by_seed(self):
        scores = Scores(np.arange(11.0), np.arange(100, 107.0))
        first, second = scores.split(3)
        assert sorted([*first.members, *second.members]) == scores.members.tolist()
        assert sorted([*first.nonmembers, *second.nonmembers]) == scores.nonmembers.tolist()
        assert (first.members.size, first.nonmembers.size) == (5, 3)
        again, _ = scores.split(3)
        other, _ = scores.split(4)
        assert again.members.tolist() == first.members.tolist() != other.members.tolist()

    def test_split_needs_two_of_each(self):
        with pytest.raises(InputError, match="needs at least 2 members and 2 non-members"):
            Scores([1.0], [1.0, 2.0]).split(0)
        with pytest.raises(InputError, match=r"^seed"):
            Scores([1.0, 2.0], [1.0, 2.0]).split(-1)

    @pytest.mark.slow
    def test_ten_million_scores(self):
        rng = np.random.default_rng(0)
        members, nonmembers = rng.normal(1, 1, 5_000_000), rng.normal(0, 1, 5_000_000)
        started = time.process_time()
        scores = Scores(members, nonmembers)
        auc, points = scores.auc, scores.curve.thresholds.size
        used = time.process_time() - started
        assert auc == pytest.approx(0.76025, abs=1e-3)  # Φ(1/√2), seven standard errors
        assert points == 10_000_000
        assert used < 15, f"{used:.1f} s of CPU time"  # 2 to 3 s on an idle machine


class TestCoins:
    def test_the_same_seed_the_same_coins(self):
        assert np.array_equal(fair_coins(1000, 5), fair_coins(1000, seed=5))
        assert not np.array_equal(fair_coins(1000, 5), fair_coins(1000, 6))

    def test_they_are_fair(self):
        coins = fair_coins(1_000_000, 0)
        assert coins.dtype == bool
        assert abs(coins.mean() - 0.5) < 0.0025  # five standard errors
        assert abs(np.mean(coins[1:] == coins[:-1]) - 0.5) < 0.0025

    def test_they_are_fresh_without_a_seed(self):
        assert not np.array_equal(fair_coins(1000), fair_coins(1000))

    def test_no_generator_with_the_same_seed_shares_them(self):
        """A user's own noise from the same seed must not know the coins."""
        for seed in (0, 1, 7):
            coins = fair_coins(5000, seed)
            for stream in (np.random.default_rng(seed), np.random.RandomState(seed), np.random.default_rng([seed, 0])):
                assert abs(np.mean((stream.random(5000) < 0.5) == coins) - 0.5) < 0.035
            noise = np.random.default_rng(seed).normal(size=5000)
            assert lower_bound(OneRun(noise, coins, mask_seed=seed), confidence=0.9999).low == 0

    def test_one_coin_for_each_person(self):
        ids = np.array(["b", "a", "b", "c", "a", "b"])
        coins = fair_coins(6, 3, groups=ids)
        assert all(len(set(coins[ids == name].tolist())) == 1 for name in "abc")
        assert np.array_equal(coins[[0, 1, 3]], fair_coins(3, 3))  # in the order of their first record

    @pytest.mark.parametrize("records", [0, -1, 1.5, None, "5", 10**15, float("nan")])
    def test_refuses_records(self, records):
        with pytest.raises(InputError, match=r"^records"):
            fair_coins(records, 0)

    @pytest.mark.parametrize("seed", [-1, 0.5, "1"])
    def test_refuses_seeds(self, seed):
        with pytest.raises(InputError, match=r"^seed"):
            fair_coins(3, seed)

    def test_the_hash_tells_masks_apart(self):
        masks = [[1], [0], [1, 0], [1, 0, 1], [1, 0, 1, 0], [1, 0, 1, 1], [0] * 8, [0] * 9]
        hashes = {mask_hash(mask) for mask in masks}
        assert len(hashes) == len(masks)
        assert all(len(h) == 64 for h in hashes)
        assert mask_hash([1, 0]) == mask_hash(np.array([True, False])) == mask_hash([1.0, 0.0])

    @pytest.mark.parametrize("bad", [[], [2], None, "01", [[0, 1]]])
    def test_the_hash_refuses(self, bad):
        with pytest.raises(InputError, match=r"^included"):
            mask_hash(bad)


class TestOneRun:
    def test_a_mask_is_checked_against_its_seed(self):
        coins = fair_coins(100, 7)
        assert OneRun(np.zeros(100), coins, mask_seed=7).mask_warnings == ()
        changed = coins.copy()
        changed[3] ^= True
        with pytest.raises(InputError, match=r"not the mask that fair_coins\(100, seed=7\) draws"):
            OneRun(np.zeros(100), changed, mask_seed=7)
        with pytest.raises(InputError, match="not the mask"):
            OneRun(np.zeros(100), coins, mask_seed=8)

    def test_an_exact_half_is_warned_of(self):
        mask = np.arange(100) % 2 == 0
        (warning,) = OneRun(np.zeros(100), mask).mask_warnings
        assert "exactly half of the 100 records" in warning

    def test_a_lopsided_mask_is_warned_of(self):
        (warning,) = OneRun(np.zeros(1000), np.arange(1000) < 700).mask_warnings
        assert "700 of 1000" in warning

    def test_fair_coins_are_seldom_warned_of(self):
        warned = sum(bool(OneRun(np.zeros(1001), fair_coins(1001, seed)).mask_warnings) for seed in range(300))
        assert warned == 0

    @pytest.mark.parametrize(
        ("scores", "included", "words"),
        [
            ([1, 2, 3], [1, 0], "scores has 3 records but included has 2"),
            ([1, 2], [1, 1], "all in"),
            ([1, 2], [0, 0], "all out"),
            ([1, 2], [0, 2], r"included\[1\] is 2"),
            ([1, np.nan], [0, 1], r"scores\[1\] is nan"),
            ([], [], "scores must hold"),
            ([1], [1], "all in"),
        ],
    )
    def test_refuses(self, scores, included, words):
        with pytest.raises(InputError, match=words):
            OneRun(scores, included)

    @pytest.mark.parametrize("seed", ["x", -1, 0.5])
    def test_refuses_seeds(self, seed):
        with pytest.raises(InputError, match="seed"):
            OneRun([1, 2], [0, 1], mask_seed=seed)

    def test_immutable_and_apart_from_the_caller(self):
        scores, included = np.arange(3.0), np.array([True, False, True])
        run = OneRun(scores, included)
        scores[:] = 9
        included[:] = False
        assert run.scores.tolist() == [0, 1, 2]
        assert run.included.tolist() == [True, False, True]
        for name in ("scores", "included"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(run, name)[0] = 0

    def test_as_scores(self):
        scores = OneRun([3, 1, 2], [1, 0, 1]).as_scores()
        assert scores.members.tolist() == [3, 2]
        assert scores.nonmembers.tolist() == [1]


class TestPersons:
    def test_one_score_for_each_person(self):
        scores = Scores([1.0, 3.0, 5.0], [0.0, 2.0], groups=([7, 7, 8], [9, 9]))
        assert scores.members.tolist() == [2.0, 5.0] and scores.nonmembers.tolist() == [1.0]
        assert scores.unit == "person" and scores.records == 5 and scores.total == 3
        most = Scores([1.0, 3.0, 5.0], [0.0, 2.0], groups=([7, 7, 8], [9, 9]), aggregate="max")
        assert most.members.tolist() == [3.0, 5.0]

    def test_losses_keep_their_sign(self):
        scores = Scores.from_losses([1.0, 3.0], [0.5], groups=(["a", "a"], ["b"]))
        assert scores.members.tolist() == [-2.0] and scores.from_loss

    def test_row_order_changes_no_digit(self):
        rng = np.random.default_rng(0)
        values, ids = rng.normal(size=300), rng.integers(0, 40, 300)
        order = rng.permutation(300)
        first = Scores(values, [0.0], groups=(ids, [99]))
        second = Scores(values[order], [0.0], groups=(ids[order], [99]))
        assert np.array_equal(np.sort(first.members), np.sort(second.members))

    def test_coins_of_a_person(self):
        run = OneRun([1.0, 2.0, 0.0], [1, 1, 0], groups=["a", "a", "b"])
        assert run.scores.tolist() == [1.5, 0.0] and run.included.tolist() == [True, False]
        assert run.as_scores().unit == "person"

    @pytest.mark.parametrize(
        ("groups", "named"),
        [
            (([1, 2], [3]), r"groups\[0\] has 2 ids for 3 records"),
            (([1, 1, 2], [2]), "is a member and a non-member"),
            (([1, None, 2], [3]), r"groups\[0\]\[1\] is missing"),
            (([1.0, float("nan"), 2.0], [3.0]), r"groups\[0\]\[1\] is missing"),
            ((np.array(["2026-01-01", "NaT", "2026-01-03"], "M8[D]"), [3]), r"groups\[0\]\[1\] is missing"),
            ((["a", Incomparable(), "b"], ["c"]), r"groups\[0\]\[1\] is missing"),
            (([1, 2, 3], [2.0]), "is a member and a non-member"),  # a column with a gap is read as floats
            ((["1", "2", "3"], [2.0]), "is a member and a non-member"),
            ([1, 2, 3], "must be a pair"),
            (("abc", [3]), "flat array of ids"),
        ],
    )
    def test_refuses_ids_of_scores(self, groups, named):
        with pytest.raises(InputError, match=named):
            Scores([1.0, 2.0, 3.0], [0.0], groups=groups)

    def test_refuses_a_person_in_and_out(self):
        with pytest.raises(InputError, match="'a' has records in and out"):
            OneRun([1.0, 2.0, 0.0], [1, 0, 0], groups=["a", "a", "b"])

    def test_from_a_file(self, tmp_path):
        path = tmp_path / "scores.csv"
        path.write_text("score,member,group\n1,1,ann\n3,1,ann\n0,0,bob\n")
        assert Scores.from_file(path).members.tolist() == [2.0]
        np.savez(tmp_path / "s.npz", members=[1.0, 3.0], nonmembers=[0.0], member_groups=[1, 1], nonmember_groups=[2])
        assert Scores.from_file(tmp_path / "s.npz").members.tolist() == [2.0]
        np.savez(tmp_path / "t.npz", members=[1.0], nonmembers=[0.0], member_groups=[1])
        with pytest.raises(InputError, match="only one of member_groups"):
            Scores.from_file(tmp_path / "t.npz")
