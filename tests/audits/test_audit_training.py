"""The whole audit of a training pipeline: simulated trainings of known ε, trees and networks on digits, faults."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

import dosimeter as dm
from dosimeter import Counts, InputError, OneRun, Validity, fair_coins, mask_hash
from dosimeter.accounting import rdp
from dosimeter.audits import intervals
from dosimeter.audits.claims import Claim
from dosimeter.audits.intervals import Evidence, by_point, mechanism_of, pilot_threshold
from dosimeter.audits.training import audit_training
from dosimeter.datasets import load
from dosimeter.engine import Store
from dosimeter.estimators.claim import gaussian_profile
from dosimeter.training import Privacy, Recipe

X, Y = load_digits(return_X_y=True)
X, Y = X[:200], Y[:200]
HERE = {"engine": "inline", "progress": False}
RECORDS = 24
SMALL = (np.zeros((RECORDS, 1)), np.zeros(RECORDS))


def as_they_are(outputs, labels):
    return outputs


def laplace(epsilon: float):
    """A training whose output for each record is its own Laplace noise, moved by ε when the record is in: exactly ε."""

    def train(indices, seed):
        outputs = np.random.default_rng(seed).laplace(size=RECORDS)
        outputs[indices] += epsilon
        return lambda records: outputs

    return train


def tree(indices, seed):
    return DecisionTreeClassifier(random_state=seed).fit(X[indices], Y[indices])


def trained(folder: Path, seed: int) -> None:
    """Note a training in a file: what a function holds in memory would be part of its identity in a store."""
    with (folder / "seeds").open("a") as file:
        file.write(f"{seed}\n")


def seeds_of(folder: Path) -> list[str]:
    return (folder / "seeds").read_text().split()


def simulated(epsilon: float, seed: int, **options):
    return audit_training(
        laplace(epsilon), SMALL, signal=as_they_are, delta=0.0, seed=seed, **{"attack": "loss", **HERE, **options}
    )


def facts(audit) -> dict:
    """Everything an audit says but where its trainings came from."""
    found = audit.to_dict()
    del found["metadata"]["trainings"]
    return found


def valid(audit) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "audit.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(audit.to_json()), schema)


# --- the level, on trainings of known ε -------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "repetitions"), [(0.0, 40), (1.0, 500)])
def test_the_whole_pipeline_keeps_its_level(epsilon, repetitions):
    level = 0.05
    wrong = {"ranked": 0, "clopper-pearson": 0}
    for seed in range(repetitions):
        audit = simulated(epsilon, seed, attack="watson", shadows=6, runs=14)
        low = {e.method: e.low for e in audit.estimates}
        for name in wrong:
            wrong[name] += low[name] > epsilon
    most = int(binom.ppf(0.999, repetitions, level))
    assert all(count <= most for count in wrong.values()), wrong


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


def test_a_true_claim_is_rarely_rejected_and_a_false_one_soon():
    rejected = [
        simulated(1.0, seed, shadows=8, runs=40, points=[3], claim=(1.0, 0.0)).details["claim"]["rejected"]
        for seed in range(20)
    ]
    assert sum(rejected) <= int(binom.ppf(0.999, 20, 0.05))
    audit = simulated(6.0, 0, shadows=12, runs=200, points=[3], claim=(1.0, 0.0))
    assert audit.details["claim"]["rejected"]
    assert audit.metadata["runs"] < 100


def test_the_bound_grows_with_the_leak_and_stays_below_it():
    found = [simulated(e, 3, shadows=8, runs=200, points=[0]).headline.low for e in (0.0, 2.0, 5.0)]
    assert found[0] == 0.0
    assert found[0] < found[1] < found[2]
    assert 0.5 < found[1] < 2.0
    assert 1.5 < found[2] < 5.0


# --- what is played ---------------------------------------------------------------------------------------


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
    again = dm.lower_bound(OneRun(np.array(scores), coins), delta=0.0, seed=11)
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
    points = audit.metadata["points"]
    shadows, runs = np.array(seen[:16]), np.array(seen[16:])
    assert len(set(points)) == 3 and len(runs) == 20
    others = np.delete(np.arange(RECORDS), points)
    assert runs[:, others].all(), "the rest is fixed"
    assert 0.2 < runs[:, points].mean() < 0.8
    assert 0.3 < shadows.mean() < 0.7
    assert audit.metadata["mask_hash"] == mask_hash(runs[:, points].ravel())


def test_the_crossed_game_trains_nothing_further_and_keeps_its_halves_apart():
    audit = simulated(4.0, 2, attack="lira", game="crossed", shadows=40, challenges=5)
    assert audit.metadata["trainings"]["computed"] == 40
    assert audit.metadata["runs"] == 20
    masks = fair_coins(40 * RECORDS, audit.metadata["seeds"]["masks"]).reshape(40, RECORDS)
    assert audit.metadata["mask_hash"] == mask_hash(masks[20:, audit.metadata["points"]].ravel())
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
        assert audit.metadata["points"] == [5]
        assert audit.headline.low > 1.5
        assert audit.details["candidates"][0] == {"record": 5, "weight": pytest.approx(1.0, abs=0.05), "chosen": True}


def test_a_function_as_attack_scores_like_the_named_one():
    def watson(target, shadows, included):
        return target - np.where(included, 0.0, shadows).sum(axis=0) / (~included).sum(axis=0)

    named = simulated(3.0, 5, attack="watson", shadows=16, runs=40, points=[2, 4])
    own = simulated(3.0, 5, attack=watson, shadows=16, runs=40, points=[2, 4])
    assert own.metadata["attack"] == "watson"
    assert own.headline.low == pytest.approx(named.headline.low)
    assert own.distributions["threshold"] == pytest.approx(named.distributions["threshold"])


# --- real models ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trees():
    return audit_training(tree, (X, Y), shadows=24, runs=48, nonmembers=(X[:60] + 0.5, Y[:60]), name="trees", **HERE)


def test_a_tree_leaks(trees):
    assert trees.headline.low > 1.5
    assert trees.headline.method == "ranked"
    assert trees.guard.checked and not trees.guard.shift
    assert [e.method for e in trees.estimates] == ["ranked", "clopper-pearson", "jeffreys", "bayesian", "gaussian"]
    assert all(e.claim.endswith(".") for e in trees.estimates)
    used = trees.metadata["utility"]
    assert used["runs"]["members"] > 0.95
    assert 0.3 < used["shadows"]["nonmembers"] < 1
    assert trees.metadata["kind"] == "training"


def test_an_audit_is_json_of_the_schema_and_comes_back(trees):
    valid(trees)
    assert dm.Audit.from_json(trees.to_json()).to_json() == trees.to_json()


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


# --- claims -----------------------------------------------------------------------------------------------


def test_a_rejected_claim_stops_the_training_and_makes_no_other_statement(tmp_path):
    def train(indices, seed):
        trained(tmp_path, seed)
        return laplace(6.0)(indices, seed)

    options = {"signal": as_they_are, "attack": "loss", "shadows": 8, "runs": 300, "points": [1], "claim": (1.0, 1e-5)}
    audit = audit_training(train, SMALL, store=Store(tmp_path), **options, **HERE)
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
    again = audit_training(train, SMALL, store=Store(tmp_path), **options, **HERE)
    assert len(seeds_of(tmp_path)) == 8 + used, "nothing is trained again"
    assert facts(again) == facts(audit)


def test_a_claim_that_stands_leaves_the_bounds_for_the_whole_budget():
    audit = simulated(0.0, 1, shadows=8, runs=40, points=[1], claim=(0.5, 0.0))
    assert audit.metadata["runs"] == 40
    assert not audit.details["claim"]["rejected"]
    assert [e.method for e in audit.estimates[:2]] == ["claim", "ranked"]


def test_a_claimed_profile():
    found = Claim.read(gaussian_profile(1.0), delta=1e-5, confidence=0.95)
    assert found.epsilon == pytest.approx(4.377178, abs=2e-6)
    assert len(found.test.pairs) > 5
    pairs = Claim.read([(2.0, 1e-5), (1.0, 0.01)], delta=1e-3, confidence=0.9)
    assert (pairs.epsilon, pairs.delta, len(pairs.test.pairs)) == (2.0, 1e-5, 2)
    with pytest.raises(InputError, match="claim must be"):
        Claim.read("no", delta=1e-5, confidence=0.95)


# --- thresholds, points and guarantees --------------------------------------------------------------------

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
    assert bool(notes) == (sampling == "shuffled")
    assert mechanism_of(replace(recipe, dp=None), 90, 110) == (None, [])
    assert mechanism_of(replace(recipe, dp=Privacy(0.0)), 90, 110)[0] is None


# --- faults -----------------------------------------------------------------------------------------------


def test_failed_trainings_are_counted_and_keep_their_coins(tmp_path):
    def train(indices, seed):
        if seed % 5 == 0:
            raise RuntimeError("no luck today")
        if seed % 7 == 0:
            return lambda records: np.full(RECORDS, np.nan)
        return laplace(4.0)(indices, seed)

    store = Store(tmp_path)
    audit = audit_training(
        train, SMALL, signal=as_they_are, attack="loss", shadows=20, runs=60, points=[2], store=store, **HERE
    )
    failed = audit.metadata["failed"]
    assert {f["stage"] for f in failed} == {"shadow", "run"}
    assert all(f["seed"] % 5 == 0 or f["seed"] % 7 == 0 for f in failed)
    assert "no luck today" in failed[0]["reason"] or "NaN" in failed[0]["reason"]
    assert audit.metadata["trainings"]["failed"] == len(failed) > 5
    assert audit.metadata["runs"] == 60
    cells = audit.details["points"][0]
    assert cells["tp"] + cells["fn"] + cells["fp"] + cells["tn"] == 60
    assert any("trainings failed" in w for w in audit.metadata["warnings"])
    logs = [part.split("(see ")[1].rstrip(")") for f in failed if "(see " in (part := f["reason"])]
    assert logs and all("no luck today" in text or "NaN" in text for text in (Path(log).read_text() for log in logs))


def one_sided_seed(runs: int) -> int:
    """A seed whose coins for one point all fall on one side."""
    return next(
        seed
        for seed in range(10_000)
        if len(set(fair_coins(runs, int(np.random.SeedSequence(seed).spawn(6)[2].generate_state(1)[0])).tolist())) == 1
    )


def test_coins_on_one_side_are_refused_before_anything_is_trained():
    def train(indices, seed):
        raise AssertionError("trained")

    with pytest.raises(InputError, match="all 8 coins of the game fell on one side"):
        audit_training(train, (X, Y), runs=8, shadows=8, seed=one_sided_seed(8), confidence=0.9, **HERE)


def test_a_claim_rejected_by_coins_of_one_side_waits_for_the_other():
    """The first eight runs all have the point in: a claim of ε = 0 may fall by then, but there is no curve yet."""
    seed = one_sided_seed(8)
    audit = simulated(30.0, seed, shadows=8, runs=60, points=[3], claim=(0.0, 0.0))
    claim = audit.details["claim"]
    assert claim["rejected"]
    assert audit.metadata["runs"] > 8
    assert min(audit.metadata["members"], audit.metadata["nonmembers"]) == 1 or claim["rejected_at"] > 8


def test_too_many_failures_end_the_audit_with_the_first_reason():
    def train(indices, seed):
        raise RuntimeError("no luck today")

    with pytest.raises(InputError, match=r"only 0 of 8 shadow models that teach the attack worked.*no luck today"):
        audit_training(train, (X, Y), shadows=8, runs=40, **HERE)


def test_a_class_that_is_missing_is_a_failure_of_that_model():
    labels = np.array([0] * 20 + [1] * 19 + [2])
    features = np.arange(40.0)[:, None]

    def train(indices, seed):
        return DecisionTreeClassifier(random_state=seed).fit(features[indices], labels[indices])

    audit = audit_training(train, (features, labels), shadows=24, runs=24, points=[3], **HERE)
    assert all("classes" in f["reason"] for f in audit.metadata["failed"])
    assert 2 < audit.metadata["trainings"]["failed"] < 22


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"game": "chess"}, "game must be one of"),
        ({"attack": "magic"}, "attack must be one of"),
        ({"select": "luck"}, "select must be one of"),
        ({"shadows": 3}, "at least 4"),
        ({"shadows": 7, "game": "crossed"}, "at least 8"),
        ({"runs": 0}, "runs must be at least 1"),
        ({"runs": 4}, "dosimeter plan"),
        ({"runs": 10, "claim": (8.0, 1e-5)}, "dosimeter plan"),
        ({"challenges": 2, "claim": (1.0, 1e-5)}, "challenges=1"),
        ({"game": "crossed", "claim": (1.0, 1e-5)}, "challenges=1"),
        ({"points": [200]}, "rows are 0 to 199"),
        ({"points": [3, 3]}, "names a row twice"),
        ({"points": [0.5]}, "row numbers"),
        ({"points": [1], "canaries": "mislabelled"}, "exclude each other"),
        ({"canaries": "mislabelled"}, "cannot see"),
        ({"canaries": "yellow"}, "canaries must be one of"),
        ({"canaries": (X[:2, :3], Y[:2])}, "shape"),
        ({"challenges": 200}, "leaves no fixed record"),
        ({"challenges": 201}, "200 candidates"),
        ({"delta": 1.0}, "delta must be in"),
        ({"confidence": 0}, "confidence must be in"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"store": "folder"}, "store must be a Store"),
        ({"engine": "abacus"}, "engine must be"),
        ({"recipe": "slow"}, "recipe must be a Recipe"),
        ({"signal": 3}, "signal must be a function"),
        ({"name": 3}, "name must be a text"),
        ({"nonmembers": (X[:, :3], Y)}, "nonmembers has records of shape"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_trained(options, says):
    def train(indices, seed):
        raise AssertionError("trained")

    with pytest.raises(InputError, match=says):
        audit_training(train, (X, Y), **{**HERE, **options})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (X, "pair"),
        ((X, Y[:5]), "one label a record"),
        ((X, Y + 0.5), "whole numbers"),
        ((X[:0], Y[:0]), "array of records"),
        ((np.array([object()] * 4), Y[:4]), "array of records"),
    ],
)
def test_bad_data_are_refused(data, says):
    with pytest.raises(InputError, match=says):
        audit_training(tree, data, **HERE)
    with pytest.raises(InputError, match="train must be a function"):
        audit_training("tree", (X, Y), **HERE)


def test_a_signal_that_fails_is_named():
    def broken(outputs, labels):
        raise KeyError("gone")

    with pytest.raises(InputError, match="signal raised KeyError"):
        audit_training(tree, (X, Y), signal=broken, shadows=8, runs=40, **HERE)
    with pytest.raises(InputError, match="one number a record"):
        audit_training(tree, (X, Y), signal=lambda outputs, labels: outputs, shadows=8, runs=40, **HERE)


def test_classes_instead_of_probabilities_are_explained():
    def train(indices, seed):
        return tree(indices, seed).predict

    with pytest.raises(InputError, match="one number a record for 10 classes: return probabilities"):
        audit_training(train, (X, Y), shadows=8, runs=40, **HERE)


def test_a_data_set_is_taken_as_it_is():
    data = load("digits").take(np.arange(200))
    pixels, labels = data.pair

    def train(indices, seed):
        return DecisionTreeClassifier(random_state=seed).fit(pixels[indices], labels[indices])

    found = [audit_training(train, given, shadows=6, runs=12, **HERE) for given in (data, data.pair)]
    assert facts(found[0]) == facts(found[1])


# --- nothing is lost --------------------------------------------------------------------------------------


def test_a_second_run_trains_nothing_and_says_the_same(tmp_path):
    store = Store(tmp_path)
    first = audit_training(tree, (X, Y), shadows=8, runs=24, store=store, **HERE)
    again = audit_training(tree, (X, Y), shadows=8, runs=24, store=store, **HERE)
    assert first.metadata["trainings"] == {"computed": 32, "cached": 0, "failed": 0}
    assert again.metadata["trainings"] == {"computed": 0, "cached": 32, "failed": 0}
    assert facts(first) == facts(again)
    longer = audit_training(tree, (X, Y), shadows=8, runs=30, store=store, **HERE)
    assert longer.metadata["trainings"]["computed"] == 6, "more runs begin with the old ones"
    other = audit_training(tree, (X, Y), shadows=8, runs=24, store=store, name="other data", **HERE)
    assert other.metadata["trainings"]["cached"] == 0


SCRIPT = """
import json, sys, time
import numpy as np
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier
from dosimeter import audit_training
from dosimeter.engine import Store

X, Y = load_digits(return_X_y=True)
X, Y = X[:150], Y[:150]

def tree(indices, seed):
    time.sleep(0.02)
    return DecisionTreeClassifier(random_state=seed).fit(X[indices], Y[indices])

if __name__ == "__main__":
    audit = audit_training(tree, (X, Y), shadows=12, runs=30, engine=sys.argv[2], workers=2, store=Store(sys.argv[1]),
                           progress=False, seed=5)
    print(audit.to_json())
"""


def test_killed_at_any_moment_it_ends_with_the_same_bits(tmp_path):
    script = tmp_path / "audit.py"
    script.write_text(SCRIPT)

    def start(store, engine):
        command = [sys.executable, str(script), str(store), engine]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def entries(store):
        return len(list(store.glob("??/*.json")))

    for least, engine in ((3, "local"), (20, "inline")):
        process = start(tmp_path / "killed", engine)
        deadline = time.monotonic() + 120
        while entries(tmp_path / "killed") < least and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    kept = entries(tmp_path / "killed")
    assert 20 <= kept < 42
    own = runpy.run_path(str(script))
    whole = audit_training(own["tree"], (own["X"], own["Y"]), shadows=12, runs=30, seed=5, **HERE)
    process = start(tmp_path / "killed", "inline")
    ends = {"killed": json.loads(process.communicate(timeout=180)[0]), "whole": json.loads(whole.to_json())}
    counts = {name: found["metadata"].pop("trainings") for name, found in ends.items()}
    assert ends["killed"] == ends["whole"]
    assert counts["whole"] == {"computed": 42, "cached": 0, "failed": 0}
    assert counts["killed"]["cached"] >= kept


# --- networks ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network():
    torch = pytest.importorskip("torch")
    return lambda: torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))


PIXELS = (X / 16).astype(np.float32)


def test_a_private_network_keeps_below_its_guarantee(network):
    recipe = Recipe(epochs=4, batch_size=20, sampling="poisson", learning_rate=0.5, dp=Privacy(1.0, clip=1.0))
    audit = audit_training(
        network, (PIXELS, Y), recipe=recipe, shadows=16, runs=32, canaries="mislabelled", progress=False
    )
    proven = [g.epsilon for g in audit.upper if g.is_bound]
    assert min(proven) >= audit.headline.low
    assert audit.region["upper"]["epsilon"] == min(proven)
    assert not audit.region["contradiction"]
    assert audit.metadata["points"][0] >= len(Y), "a canary stands after the data"
    assert audit.metadata["canaries"] == "mislabelled"
    assert "upper_words" in audit.risk


def test_an_overfitted_network_leaks_and_its_store_is_used(network, tmp_path):
    recipe = Recipe(epochs=40, batch_size=32, learning_rate=0.3)
    options = {"recipe": recipe, "shadows": 32, "runs": 48, "store": Store(tmp_path), "progress": False}
    first = audit_training(network, (PIXELS, Y), **options)
    assert first.headline.low > 1.0
    assert first.upper == () and first.region is None
    again = audit_training(network, (PIXELS, Y), **options)
    assert again.metadata["trainings"]["computed"] == 0
    assert facts(first) == facts(again)


@pytest.mark.parametrize("canaries", ["out-of-distribution", "clip-bkd", "given"])
def test_canaries_are_appended(network, canaries):
    recipe = Recipe(epochs=10, batch_size=32, learning_rate=0.3)
    given = (1 - PIXELS[:3], (Y[:3] + 1) % 10) if canaries == "given" else canaries
    audit = audit_training(
        network, (PIXELS, Y), recipe=recipe, shadows=8, runs=16, canaries=given, challenges=2, progress=False
    )
    assert all(point >= len(Y) for point in audit.metadata["points"])
    assert len(audit.metadata["points"]) == 2
    assert audit.metadata["canaries"] == canaries
