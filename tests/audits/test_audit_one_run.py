"""The audit with one training run: canaries by fair coins, their mask kept and checked, guesses, bounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier
from training_games import HERE, as_they_are, kept_in, laplace, of_version_1, origin, valid

import dosimeter as dm
from dosimeter import InputError, OneRun, Validity, estimate, fair_coins, mask_hash
from dosimeter.audits.one_run.run import audit_one_run, path_of_guesses
from dosimeter.audits.verify import verify
from dosimeter.engine import RunOptions, Store
from dosimeter.training import Privacy, Recipe

X, Y = load_digits(return_X_y=True)
X, Y = X[:300], Y[:300]
RECORDS = 200
SMALL = (np.zeros((RECORDS, 1)), np.zeros(RECORDS))


def tree(indices, seed):
    return DecisionTreeClassifier(random_state=seed).fit(X[indices], Y[indices])


def simulated(epsilon, seed, **options):
    return audit_one_run(
        laplace(epsilon, RECORDS),
        SMALL,
        signal=as_they_are,
        seed=seed,
        **{"count": RECORDS, "delta": 0.0, **HERE, **options},
    )


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.slow
def test_every_bound_keeps_its_level(epsilon):
    repetitions = 120
    wrong = np.zeros(4, int)  # headline, ranked, betting, fixed guesses; f-DP needs delta above 0
    for seed in range(repetitions):
        found = simulated(epsilon, seed).estimates
        assert all(e.validity == Validity.FINITE_SAMPLE for e in found)
        wrong += [e.low > epsilon for e in found]
    assert (wrong <= int(binom.ppf(0.999, repetitions, 0.05))).all(), wrong


def test_the_bound_by_hand():
    audit = simulated(4.0, 3, count=150)
    meta = audit.metadata
    rows, coins = np.array(meta["points"]), fair_coins(150, meta["seeds"]["coins"])
    assert meta["mask_hash"] == mask_hash(coins)
    members = np.ones(RECORDS, bool)
    members[rows] = coins
    run = int(np.random.SeedSequence(3).spawn(6)[2].generate_state(1)[0])
    outputs = laplace(4.0, RECORDS)(np.flatnonzero(members), run)(None)
    again = dm.one_run(OneRun(outputs[rows], coins), delta=0.0)
    assert audit.headline.low == again.low
    assert 1.0 < again.low < 4.0
    assert (meta["members"], meta["nonmembers"]) == (coins.sum(), (~coins).sum())


def test_one_training_leaks_and_reference_models_help():
    alone = audit_one_run(tree, (X, Y), count=250, seed=0, **HERE)
    assert origin(alone.metadata) == (1, 0)
    helped = audit_one_run(tree, (X, Y), count=250, shadows=16, seed=0, **HERE)
    assert helped.metadata["provenance"]["computed"] == 17
    assert helped.headline.low > 0.3
    assert [e.method for e in helped.estimates] == ["one-run", "ranked", "rank betting", "one-run", "one-run f-DP"]
    assert helped.metadata["kind"] == "one-run"
    assert max(helped.curve.tpr_low) == 0, "records of one run are no independent tries, so there is no band"


def test_a_constant_predictor_proves_nothing():
    audit = audit_one_run(lambda indices, seed: lambda x: np.full((len(x), 10), 0.1), (X, Y), **HERE)
    assert [e.low for e in audit.estimates] == [0.0] * 5


def test_a_saved_mask_is_checked():
    first = simulated(3.0, 1, count=80)
    coins = fair_coins(80, first.metadata["seeds"]["coins"])
    kept = first.metadata["mask_hash"]
    again = simulated(3.0, 1, count=80, included=coins, expected_hash=kept)
    assert again.to_json() == first.to_json()
    other = coins.copy()
    other[0] ^= True
    with pytest.raises(InputError, match="another mask"):
        simulated(3.0, 1, count=80, included=other, expected_hash=kept)
    with pytest.raises(InputError, match="another mask"):
        simulated(3.0, 2, count=80, expected_hash=kept)
    with pytest.raises(InputError, match="81 coins for 80 canaries"):
        simulated(3.0, 1, count=80, included=np.append(coins, True))
    own = simulated(3.0, 1, count=80, included=other)
    assert own.metadata["seeds"]["coins"] is None, "the seed does not draw this mask"
    half = np.arange(80) % 2 == 0
    fixed = simulated(3.0, 1, count=80, included=half)
    assert any("exactly half" in w for w in fixed.headline.warnings)


def test_rows_of_the_data_as_canaries():
    audit = audit_one_run(tree, (X, Y), canaries=np.arange(40, 120), **HERE)
    assert audit.metadata["points"] == tuple(range(40, 120))
    assert audit.metadata["canaries"] == "given rows"
    random = audit_one_run(tree, (X, Y), **HERE)
    assert random.metadata["count"] == 150 and random.metadata["canaries"] == "random rows"
    assert len(set(random.metadata["points"])) == 150


def test_an_audit_is_json_of_the_schema_and_comes_back():
    audit = simulated(2.0, 0, delta=1e-5)
    valid(audit)
    assert dm.Audit.from_json(audit.to_json()).to_json() == audit.to_json()
    older = dm.Audit.from_dict(of_version_1(audit))
    assert older.details == audit.details
    assert older.metadata == replace(audit.metadata, provenance=None, notes={"unit_of_privacy": "one patient"})


def test_a_file_with_impossible_guesses_is_refused():
    values = simulated(2.0, 0).to_dict()
    values["details"]["guesses"]["correct"][0] = 10_000
    with pytest.raises(InputError, match=r"details.*guesses"):
        dm.Audit.from_dict(values)


def test_nothing_is_trained_twice(tmp_path):
    store = Store(tmp_path)
    first = audit_one_run(tree, (X, Y), shadows=16, count=60, **kept_in(store))
    again = audit_one_run(tree, (X, Y), shadows=16, count=60, **kept_in(store))
    assert origin(again.metadata) == (0, 17)
    assert again.headline == first.headline


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=60))
def test_the_path_of_guesses_counts_what_a_loop_counts(pairs):
    scores, coins = np.array([float(s) for s, _ in pairs]), np.array([c for _, c in pairs])
    found = path_of_guesses(scores, coins)
    order = np.argsort(-scores, kind="stable")
    for r, right in zip(found.guesses, found.correct, strict=True):
        k_in, k_out = r - r // 2, r // 2
        assert right == coins[order[:k_in]].sum() + (~coins[order[len(order) - k_out :]]).sum()
    assert found.guesses[-1] == len(pairs)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"count": 0}, "count must be at least 1"),
        ({"count": 301}, "300 records"),
        ({"count": 3}, "dosimeter plan"),
        ({"canaries": [1, 1]}, "names a row twice"),
        ({"canaries": [400]}, "rows are 0 to 299"),
        ({"canaries": [1, 2, 3], "count": 2}, "leave count out"),
        ({"canaries": "mislabelled"}, "cannot see"),
        ({"attack": "lira"}, "needs reference models"),
        ({"shadows": 2}, "0 or at least 4"),
        ({"delta": -1}, "delta must be in"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"included": [1, 0, 2], "count": 3}, "only 0 and 1"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_trained(options, says):
    def train(indices, seed):
        raise AssertionError("trained")

    with pytest.raises(InputError, match=says):
        audit_one_run(train, (X, Y), **{**HERE, **options})


def test_a_training_that_fails_ends_the_audit_with_its_reason():
    def train(indices, seed):
        raise RuntimeError("no luck today")

    with pytest.raises(InputError, match=r"only 0 of 1 runs worked.*no luck today"):
        audit_one_run(train, (X, Y), **HERE)


def test_too_few_reference_models_for_a_canary_are_named():
    def one_of_each_pair(indices, seed):
        if 299 not in indices:
            raise RuntimeError("no luck today")
        return tree(indices, seed)

    with pytest.raises(InputError, match="in all or none of the 4 reference models"):
        audit_one_run(one_of_each_pair, (X, Y), canaries=np.arange(250), shadows=8, **HERE)


@pytest.mark.parametrize("canaries", ["mislabelled", "out-of-distribution", "clip-bkd"])
def test_a_private_network_with_crafted_canaries(canaries):
    torch = pytest.importorskip("torch")

    def network():
        return torch.nn.Linear(64, 10)

    recipe = Recipe(epochs=5, batch_size=30, sampling="poisson", learning_rate=0.5, dp=Privacy(0.8))
    pixels = (X / 16).astype(np.float32)
    audit = audit_one_run(
        network, (pixels, Y), recipe=recipe, canaries=canaries, count=60, run=RunOptions(progress=False)
    )
    assert audit.metadata["count"] == 60
    assert min(audit.metadata["points"]) == len(Y)
    assert min(g.epsilon for g in audit.upper if g.is_bound) >= audit.headline.low
    assert not audit.region.contradiction


def test_dirac_gradients_see_what_the_losses_do_not(tmp_path):
    torch = pytest.importorskip("torch")

    def factory():
        return torch.nn.Linear(64, 10)

    recipe = Recipe(steps=40, batch_size=None, dp=Privacy(4.0, 1.0), learning_rate=0.1)
    common = {"recipe": recipe, "canaries": "dirac", "count": 500, "seed": 3, **kept_in(Store(tmp_path))}
    audit = audit_one_run(factory, (X / 16, Y), **common)
    upper = min(bound.epsilon for bound in audit.upper if bound.is_bound)
    assert 0.2 < audit.headline.low < upper
    assert audit.metadata["canaries"] == "Dirac gradients"
    assert audit.metadata["attack"] == "noisy gradients, records known"
    family = audit.estimates[-1]
    assert family.method == "mechanism's family" and family.validity is Validity.ASSUMES_FAMILY
    assert audit.headline.low < family.low < upper and not family.details["rejected"]
    assert audit.headline.validity is Validity.FINITE_SAMPLE and not family.validity.is_bound
    assert audit.metadata["count"] == 500
    assert audit.metadata["utility"]["runs"]["members"] > 0.3
    audit.to_html(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "subtracts their clipped gradients" in page and "holds only if the training is the stated mechanism" in page
    assert verify(audit).of("mechanism's family").standing == "follows"
    said, higher = (f"ε = {estimate.number(low)}" for low in (family.low, family.low + 0.1))
    more = replace(family, epsilon=family.low + 0.1, low=family.low + 0.1, claim=family.claim.replace(said, higher))
    forged = verify(replace(audit, estimates=(*audit.estimates[:-1], more)))
    assert forged.of("mechanism's family").standing == "does not follow"
    again = audit_one_run(factory, (X / 16, Y), **common)
    assert origin(again.metadata) == (0, 1)
    assert again.headline == audit.headline
    alone = audit_one_run(factory, (X / 16, Y), **{**common, "canaries": "dirac-gradients-only"})
    assert alone.metadata["attack"] == "noisy gradients" and alone.headline.low < audit.headline.low
    assert all(e.validity is not Validity.ASSUMES_FAMILY for e in alone.estimates)
    hidden = audit_one_run(factory, (X / 16, Y), **{**common, "canaries": None, "count": 150})
    assert hidden.headline.low < audit.headline.low
    with pytest.raises(InputError, match="count"):
        audit_one_run(factory, (X / 16, Y), **{**common, "count": 651})
    with pytest.raises(InputError, match="gradients in DP-SGD"):
        audit_one_run(factory, (X / 16, Y), **{**common, "recipe": Recipe(steps=3)})
    with pytest.raises(InputError, match="leave shadows at 0"):
        audit_one_run(factory, (X / 16, Y), **common, shadows=16)
