"""The audit of a training pipeline: its level on trainings of known ε, the games, trees and networks on digits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from training_games import HERE, RECORDS, SMALL, X, Y, as_they_are, facts, laplace, of_version_1, simulated, tree, valid

import dosimeter as dm
from dosimeter import OneRun, Validity, fair_coins, mask_hash
from dosimeter.audits.training import audit_training
from dosimeter.audits.training.result import CandidateRow
from dosimeter.audits.training.shadows import halves
from dosimeter.engine import RunOptions, Store
from dosimeter.training import Privacy, Recipe

# --- the level, on trainings of known ε -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "repetitions"), [(0.0, 40), (1.0, 500)])
def test_the_whole_pipeline_keeps_its_level(epsilon, repetitions):
    level = 0.05
    wrong = {"lower-bound": 0, "clopper-pearson": 0}
    for seed in range(repetitions):
        audit = simulated(epsilon, seed, attack="watson", shadows=6, runs=14)
        low = {e.method: e.low for e in audit.estimates}
        for name in wrong:
            wrong[name] += low[name] > epsilon
    most = int(binom.ppf(0.999, repetitions, level))
    assert all(count <= most for count in wrong.values()), wrong


@pytest.mark.once
def test_several_points_and_the_crossed_game_keep_the_level():
    repetitions, level, epsilon = 30, 0.1, 1.0
    most = int(binom.ppf(0.999, repetitions, level))
    for game in ("challenge", "crossed"):
        wrong = 0
        for seed in range(repetitions):
            audit = simulated(
                epsilon, seed, attack="lira", game=game, shadows=16, runs=8, challenges=4, confidence=1 - level
            )
            wrong += max(e.low for e in audit.estimates if e.validity.is_bound) > epsilon
        assert wrong <= 2 * most, game  # two bounds, each at this level


@pytest.mark.once
def test_a_true_claim_is_rarely_rejected_and_a_false_one_soon():
    rejected = [
        simulated(1.0, seed, shadows=8, runs=40, points=[3], claim=(1.0, 0.0)).details["claim"]["rejected"]
        for seed in range(20)
    ]
    assert sum(rejected) <= int(binom.ppf(0.999, 20, 0.05))
    audit = simulated(6.0, 0, shadows=12, runs=200, points=[3], claim=(1.0, 0.0))
    assert audit.details["claim"]["rejected"]
    counts = audit.metadata["trainings"]
    assert counts["asked"] == counts["done"] + counts["spared"] and counts["spared"] > 0 == counts["failed"]
    assert audit.metadata["runs"] < 100


def test_the_bound_grows_with_the_leak_and_stays_below_it():
    found = [simulated(e, 3, shadows=8, runs=200, points=[0]).headline.low for e in (0.0, 2.0, 5.0)]
    assert found[0] == 0.0
    assert found[0] < found[1] < found[2]
    assert 0.5 < found[1] < 2.0
    assert 1.5 < found[2] < 5.0


# --- what is measured ------------------------------------------------------------------------------------------


def test_the_headline_by_hand():
    """The coins, the members and the seeds again, by another route: one training after the other."""
    audit = simulated(3.0, 11, shadows=8, runs=50, points=[7])
    children = np.random.SeedSequence(11).spawn(6)
    coins = fair_coins(50, int(children[2].generate_state(1)[0]))
    seeds = np.random.SeedSequence(int(children[3].generate_state(1)[0])).generate_state(50)
    rest = np.delete(np.arange(RECORDS), 7)
    scores = []
    for coin, seed in zip(coins, seeds, strict=True):
        indices = np.append(rest, 7) if coin else rest
        scores.append(laplace(3.0)(indices, int(seed))(None)[7])
    again = dm.lower_bound(OneRun(np.array(scores), coins), delta=0.0)
    assert audit.headline.low == again.low > 0
    assert audit.metadata["mask_hash"] == mask_hash(coins)
    threshold = audit.distributions["threshold"]
    counts = OneRun(np.array(scores), coins).as_scores().counts_at(threshold)
    exact = next(e for e in audit.estimates if e.method == "clopper-pearson")
    assert exact.counts == counts
    assert exact.low == dm.clopper_pearson(counts, delta=0.0, sides="both").low


def test_auto_takes_lira_for_signals_that_may_be_no_log_odds():
    assert simulated(2.0, 0, attack="auto", shadows=8, runs=12).metadata["attack"] == "lira"
    assert audit_training(tree, (X, Y), shadows=8, runs=12, **HERE).metadata["attack"] == "rmia"


def test_members_of_every_run():
    seen = []

    def train(indices, seed):
        seen.append(np.isin(np.arange(RECORDS), indices))
        return laplace(1.0)(indices, seed)

    audit = audit_training(
        train, SMALL, signal=as_they_are, attack="loss", shadows=16, runs=20, challenges=3, delta=0.0, **HERE
    )
    points = list(audit.metadata["points"])
    shadows, runs = np.array(seen[:16]), np.array(seen[16:])
    assert len(set(points)) == 3 and len(runs) == 20
    others = np.delete(np.arange(RECORDS), points)
    assert runs[:, others].all(), "the rest is fixed"
    assert 0.2 < runs[:, points].mean() < 0.8
    assert 0.3 < shadows.mean() < 0.7
    assert audit.metadata["mask_hash"] == mask_hash(runs[:, points].ravel())


def test_the_crossed_game_trains_nothing_further_and_keeps_its_halves_apart():
    audit = simulated(4.0, 2, attack="lira", game="crossed", shadows=40, challenges=5)
    assert audit.metadata["provenance"]["computed"] == 40
    assert audit.metadata["runs"] == 20
    masks = fair_coins(40 * RECORDS, audit.metadata["seeds"]["masks"]).reshape(40, RECORDS)
    assert audit.metadata["mask_hash"] == mask_hash(masks[20:, list(audit.metadata["points"])].ravel())
    assert audit.headline.validity == Validity.FINITE_SAMPLE
    assert audit.headline.warnings == ()
    counted = {e.method: e.validity for e in audit.estimates}
    assert counted["clopper-pearson"] == counted["bayesian"] == Validity.EXPLORATORY
    assert counted["clopper-pearson, worst point"] == Validity.INDEPENDENT_RUNS


def test_the_worst_point_is_found():
    """One record leaks, the others do not."""

    def train(indices, seed):
        outputs = np.random.default_rng(seed).normal(size=RECORDS)
        outputs[5] += 6.0 * np.isin(5, indices)
        return lambda records: outputs

    for select in ("accuracy", "auc"):
        audit = audit_training(train, SMALL, signal=as_they_are, shadows=32, runs=60, select=select, **HERE)
        assert audit.metadata["points"] == (5,)
        assert audit.headline.low > 1.5
        assert audit.details.candidates[0] == CandidateRow(5, pytest.approx(1.0, abs=0.05), chosen=True)


def test_a_function_as_attack_scores_like_the_named_one():
    def watson(target, shadows, included):
        return target - np.where(included, 0.0, shadows).sum(axis=0) / (~included).sum(axis=0)

    named = simulated(3.0, 5, attack="watson", shadows=16, runs=40, points=[2, 4])
    own = simulated(3.0, 5, attack=watson, shadows=16, runs=40, points=[2, 4])
    assert own.metadata["attack"] == "watson"
    assert own.headline.low == pytest.approx(named.headline.low)
    assert own.distributions["threshold"] == pytest.approx(named.distributions["threshold"])


# --- real models ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trees():
    # Seed 0 challenges record 7, which trees of half the data betray and trees of all do not; seeds 1 to 9 prove 2.5.
    held = (X[:60] + 0.5, Y[:60])
    return audit_training(tree, (X, Y), shadows=24, runs=48, nonmembers=held, name="trees", seed=1, **HERE)


def test_a_tree_leaks(trees):
    assert trees.headline.low > 1.5
    assert trees.headline.method == "lower-bound"
    assert trees.guard.checked and not trees.guard.shift
    assert [e.method for e in trees.estimates] == ["lower-bound", "clopper-pearson", "jeffreys", "bayesian", "gaussian"]
    assert all(e.claim.endswith(".") for e in trees.estimates)
    used = trees.metadata["utility"]
    assert used["runs"]["members"] > 0.95
    assert 0.3 < used["shadows"]["nonmembers"] < 1
    assert trees.metadata["kind"] == "training"


def test_an_audit_is_json_of_the_schema_and_comes_back(trees):
    valid(trees)
    assert dm.Audit.from_json(trees.to_json()).to_json() == trees.to_json()
    older = dm.Audit.from_dict(of_version_1(trees))
    assert older.details == trees.details
    assert older.metadata == replace(trees.metadata, provenance=None, notes={"unit_of_privacy": "one patient"})


def test_a_constant_predictor_proves_nothing():
    def constant(indices, seed):
        return lambda records: np.full((len(records), 10), 0.1)

    audit = audit_training(constant, (X, Y), shadows=8, runs=40, **HERE)
    assert [e.low for e in audit.estimates if e.validity.is_bound] == [0.0, 0.0]
    assert audit.details["points"][0]["advantage"] == 0.0


def test_the_joint_interval_is_narrower_and_says_what_that_costs():
    audit = simulated(2.0, 1, shadows=16, runs=200, points=[3])
    joint = audit.details["joint"]
    by_name = {e.method: e for e in audit.estimates}
    widths = [by_name[name].high - by_name[name].low for name in ("bayesian", "clopper-pearson")]
    assert joint["narrower"] == pytest.approx(1 - widths[0] / widths[1])
    assert joint["narrower"] > 0.2
    assert "credible is not confidence" in joint["caveat"]
    assert any("credible is not confidence" in w for w in by_name["bayesian"].warnings)
    assert any("upper end" in w for w in by_name["clopper-pearson"].warnings)


# --- networks -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network():
    torch = pytest.importorskip("torch")
    return lambda: torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))


QUIET = RunOptions(progress=False)
PIXELS = (X / 16).astype(np.float32)


def test_a_private_network_keeps_below_its_guarantee(network):
    recipe = Recipe(epochs=4, batch_size=20, sampling="poisson", learning_rate=0.5, dp=Privacy(1.0, clip=1.0))
    audit = audit_training(network, (PIXELS, Y), recipe=recipe, shadows=16, runs=32, canaries="mislabelled", run=QUIET)
    proven = [g.epsilon for g in audit.upper if g.is_bound]
    assert min(proven) >= audit.headline.low
    assert audit.region.upper.epsilon == min(proven)
    assert not audit.region.contradiction
    assert audit.metadata["points"][0] >= len(Y), "a canary stands after the data"
    assert audit.metadata["canaries"] == "mislabelled"
    assert audit.risk.upper_words


def test_an_overfitted_network_leaks_and_its_store_is_used(network, tmp_path):
    recipe = Recipe(epochs=40, batch_size=32, learning_rate=0.3)
    options = {
        "recipe": recipe,
        "shadows": 32,
        "runs": 48,
        "run": RunOptions(store=Store(tmp_path), progress=False),
        "seed": 1,
    }
    first = audit_training(network, (PIXELS, Y), **options)
    assert first.headline.low > 1.0
    assert first.upper == () and first.region is None
    again = audit_training(network, (PIXELS, Y), **options)
    assert again.metadata["provenance"]["computed"] == 0
    assert facts(first) == facts(again)


@pytest.mark.parametrize("canaries", ["out-of-distribution", "clip-bkd", "given"])
def test_canaries_are_appended(network, canaries):
    recipe = Recipe(epochs=10, batch_size=32, learning_rate=0.3)
    given = (1 - PIXELS[:3], (Y[:3] + 1) % 10) if canaries == "given" else canaries
    audit = audit_training(
        network, (PIXELS, Y), recipe=recipe, shadows=8, runs=16, canaries=given, challenges=2, run=QUIET
    )
    assert all(point >= len(Y) for point in audit.metadata["points"])
    assert len(audit.metadata["points"]) == 2
    assert audit.metadata["canaries"] == canaries


@given(st.integers(2, 20), st.integers(20, 60), st.integers(0, 2**31), st.data())
def test_paired_shadow_models_hold_each_record_equally_often(models, records, seed, data):
    paired = data.draw(st.integers(0, models))
    masks = halves(models, records, seed, paired=paired)
    last = paired // 2 * 2
    assert (masks[:last].sum(axis=0) == last // 2).all()
    coins = fair_coins(models * records, seed).reshape(models, records)
    assert (masks[last:] == coins[last:]).all()  # models that are attacked: independent coins
    assert (
        halves(models + 2, records, seed)[: models // 2 * 2] == halves(models, records, seed)[: models // 2 * 2]
    ).all()
