"""Claims that stop an audit of a training, thresholds from pilots, bounds by point, the guarantee of a game."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_games import SMALL, as_they_are, facts, kept_in, laplace, seeds_of, simulated, trained, valid

import dosimeter as dm
from dosimeter import Counts, InputError, OneRun
from dosimeter.accounting import rdp
from dosimeter.audits.assemble import guarantees, tightest
from dosimeter.audits.training import audit_training, intervals
from dosimeter.audits.training.intervals import Claim, Evidence, by_point, mechanism_of, pilot_threshold
from dosimeter.engine import Store
from dosimeter.estimators.claim import gaussian_profile
from dosimeter.training import Privacy, Recipe

# --- claims ---------------------------------------------------------------------------------------------------


def test_a_rejected_claim_stops_the_training_and_makes_no_other_statement(tmp_path):
    def train(indices, seed):
        trained(tmp_path, seed)
        return laplace(6.0)(indices, seed)

    options = {"signal": as_they_are, "attack": "loss", "shadows": 8, "runs": 300, "points": [1], "claim": (1.0, 1e-5)}
    audit = audit_training(train, SMALL, **options, **kept_in(Store(tmp_path)))
    used = audit.metadata["runs"]
    assert used == audit.details["claim"]["rejected_at"] < 300
    assert len(seeds_of(tmp_path)) == 8 + used
    assert [e.method for e in audit.estimates] == ["claim"]
    assert audit.headline.details["rejected_at"] == used, "the test of all runs at once stops at the same one"
    assert audit.headline.low > 1.0
    path = audit.details["claim"]["log_wealth"]
    assert len(path) == used
    assert path[-1] >= audit.details["claim"]["needed_log_wealth"] > max(path[:-1])
    assert audit.details["points"][0]["epsilon"] is None
    assert set(audit.curve["tpr_low"]) == {0.0}, "no band at a time that the data chose"
    valid(audit)
    again = audit_training(train, SMALL, **options, **kept_in(Store(tmp_path)))
    assert len(seeds_of(tmp_path)) == 8 + used, "nothing is trained again"
    assert facts(again) == facts(audit)


def test_a_claim_that_stands_leaves_the_bounds_for_the_whole_budget():
    audit = simulated(0.0, 1, shadows=8, runs=40, points=[1], claim=(0.5, 0.0))
    assert audit.metadata["runs"] == 40
    assert not audit.details["claim"]["rejected"]
    assert [e.method for e in audit.estimates[:2]] == ["claim", "lower-bound"]


def test_a_claimed_profile():
    found = Claim.read(gaussian_profile(1.0), delta=1e-5, confidence=0.95)
    assert found.epsilon == pytest.approx(4.377178, abs=2e-6)
    assert len(found.test.pairs) > 5
    pairs = Claim.read([(2.0, 1e-5), (1.0, 0.01)], delta=1e-3, confidence=0.9)
    assert (pairs.epsilon, pairs.delta, len(pairs.test.pairs)) == (2.0, 1e-5, 2)
    with pytest.raises(InputError, match="claim must be"):
        Claim.read("no", delta=1e-5, confidence=0.95)


# --- thresholds, points and guarantees ------------------------------------------------------------------------

SCORES = st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=30)


@given(SCORES, SCORES, st.floats(0.1, 10), st.floats(-5, 5))
def test_a_pilot_threshold_parts_its_scores_whatever_the_scale(inside, outside, factor, shift):
    def hits(a, b, threshold):
        return [int(np.sum(np.array(v) >= threshold)) for v in (a, b)]

    first = pilot_threshold(np.array(inside), np.array(outside), delta=0.0, confidence=0.95)
    moved = pilot_threshold(
        factor * np.array(inside) + shift, factor * np.array(outside) + shift, delta=0.0, confidence=0.95
    )
    at, other = hits(inside, outside, first), hits(inside, outside, (moved - shift) / factor)
    assert sum(at) >= 1
    if np.isclose((moved - shift) / factor, first, atol=1e-6):
        return
    assert at == other


def test_a_pilot_threshold_maximises_the_jeffreys_bound():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(1.5, 1, 40), rng.normal(0, 1, 30)
    at = pilot_threshold(inside, outside, delta=1e-5, confidence=0.95)

    def bound(threshold):
        return dm.jeffreys(dm.Scores(inside, outside).counts_at(threshold), delta=1e-5).low

    assert bound(at) == max(bound(t) for t in np.concatenate([inside, outside]))


def test_bounds_by_point_are_those_of_their_counts():
    rng = np.random.default_rng(1)
    coins = rng.random((60, 5)) < 0.5
    coins[:, 4] = True  # never out: nothing can be shown
    evidence = Evidence(rng.normal(2.0 * coins, 1), coins, 1.0)
    found = by_point(evidence, delta=1e-5, confidence=0.95)
    for i in range(4):
        counts = OneRun(evidence.scores[:, i], coins[:, i]).as_scores().counts_at(1.0)
        assert Counts(tp=found.tp[i], fn=found.fn[i], fp=found.fp[i], tn=found.tn[i]) == counts
        assert found.epsilon[i] == pytest.approx(dm.clopper_pearson(counts, delta=1e-5, confidence=0.99).low)
    assert found.epsilon[4] == 0.0 and found.advantage()[4] is None
    best = intervals.worst_point(evidence, delta=1e-5, confidence=0.95)
    assert best.low == found.epsilon.max() > 0


@pytest.mark.parametrize("sampling", ["poisson", "shuffled"])
@pytest.mark.parametrize("length", [{"epochs": 3}, {"steps": 40}])
def test_the_guarantee_covers_every_size_of_the_game(sampling, length):
    recipe = Recipe(batch_size=16, sampling=sampling, dp=Privacy(1.1), **length)
    worst, notes = mechanism_of(recipe, 90, 110)
    most = rdp(worst, delta=1e-5).epsilon
    assert all(rdp(recipe.mechanism(n), delta=1e-5).epsilon <= most + 1e-9 for n in range(90, 111))
    upper, missing = guarantees(worst, 1e-5, ["add/remove"])
    shuffled = sampling == "shuffled"  # has no guarantee for add/remove neighbours, and a note says so
    assert notes == [] and len(missing) == shuffled
    assert all("no guarantee for add/remove neighbours" in note for note in missing)
    assert (tightest(upper, "add/remove") is None) == shuffled
    assert upper, "a mechanism without such a guarantee keeps its own neighbours"
    assert mechanism_of(replace(recipe, dp=None), 90, 110) == (None, [])
    assert mechanism_of(replace(recipe, dp=Privacy(0.0)), 90, 110)[0] is None
