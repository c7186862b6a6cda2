"""audit_model with reference models: what they buy, that they cost the bound nothing, and what is refused."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dosimeter as dm
from dosimeter.audits.model.pool import read_pool
from dosimeter.audits.model.reference_attack import choose_attack
from dosimeter.audits.model.references import ReferenceSignals, _masks, digests, read_references
from dosimeter.engine import RunOptions, Store

QUIET = RunOptions(engine="inline", progress=False)
X, Y = load_digits(return_X_y=True)
X, Y = X[:900] / 16, Y[:900]
COINS = dm.fair_coins(len(X), 3)


def forest(rows, seed=0):
    return RandomForestClassifier(15, min_samples_leaf=3, random_state=seed).fit(X[rows], Y[rows])


@pytest.fixture(scope="module")
def target():
    return forest(COINS)


@pytest.fixture(scope="module")
def audit(target):
    return dm.audit_model(target, data=(X, Y), included=COINS, references=8, run=QUIET)


@pytest.mark.once
def test_references_prove_more_than_the_loss(audit):
    sharper, loss = audit.details.attacks
    assert sharper.headline and not loss.headline and loss.attack == "loss"
    assert sharper.epsilon == audit.headline.low > loss.epsilon and sharper.auc > loss.auc + 0.1
    assert audit.headline.neighbours == "add/remove"
    assert audit.metadata.attack == sharper.attack and audit.metadata.references == 8
    assert audit.metadata.trainings.done == 8 and audit.provenance.computed == 8
    assert sum(row.chosen for row in audit.details.strength) == 1
    assert any(estimate.method.startswith("epsilon-star") for estimate in audit.estimates)


def test_the_audit_is_written_read_verified_and_drawn(audit, tmp_path):
    again = dm.Audit.from_json(audit.to_json())
    assert again.to_dict() == audit.to_dict() and again.details == audit.details
    audit.to_html(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "What the reference models bought" in page
    assert "None of them was told which records" in page


@pytest.mark.once
def test_a_split_bounds_the_replacement_of_a_record(target):
    split = (X[COINS], Y[COINS]), (X[~COINS], Y[~COINS])
    found = dm.audit_model(target, members=split[0], nonmembers=split[1], references=4, run=QUIET)
    assert [e.neighbours for e in found.estimates[:2]] == ["replace", "add/remove"]
    assert found.headline.low > found.details.attacks[1].epsilon


@pytest.mark.once
def test_the_same_call_gives_the_same_numbers_and_the_store_answers(target, tmp_path):
    kept = RunOptions(engine="inline", progress=False, store=Store(tmp_path / "store"))
    first, second = (dm.audit_model(target, data=(X, Y), included=COINS, references=4, run=kept) for _ in range(2))
    assert first.estimates == second.estimates
    assert first.provenance.computed == 4 and second.provenance.cached == 4


def test_records_decide_who_is_in_a_reference_and_not_their_side_or_place():
    one = read_pool((X[:40], Y[:40]), (X[40:70], Y[40:70]), None, None, mask_seed=None, groups=None)
    other = read_pool((X[40:70], Y[40:70]), (X[39::-1], Y[39::-1]), None, None, mask_seed=None, groups=None)
    names = digests(one), digests(other)
    masks = [_masks(n, None, 6, 5) for n in names]
    tables = [dict(zip(n, m.T.tolist(), strict=True)) for n, m in zip(names, masks, strict=True)]
    assert tables[0] == tables[1]
    assert (masks[0].sum(axis=0) == 3).all()  # each record is in half of them
    assert not np.array_equal(masks[0], _masks(names[0], None, 6, 6))


def test_a_training_that_heeds_the_order_of_its_rows_does_not_leak():
    """Members come first in the list; a model that remembers the first rows it saw must not tell them by that."""
    rng = np.random.default_rng(0)
    data, labels = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)

    def train(rows, seed):
        first = set(rows[: rows.size // 2].tolist())
        table = {tuple(row): i for i, row in enumerate(data)}

        def answer(asked):
            known = np.array([table[tuple(row)] in first for row in asked])
            truth = labels[[table[tuple(row)] for row in asked]]
            right = np.where(known, 0.95, 0.5)
            return np.stack([np.where(truth == 0, right, 1 - right), np.where(truth == 1, right, 1 - right)], axis=1)

        return answer

    def blind(asked):
        return np.full((len(asked), 2), 0.5)

    found = dm.audit_model(
        blind,
        members=(data[:200], labels[:200]),
        nonmembers=(data[200:], labels[200:]),
        references=8,
        train=train,
        attack="rmia-online",
        guard=False,
        run=QUIET,
    )
    assert found.headline.low == 0
    assert abs(found.curve.auc - 0.5) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("split", [False, True])
def test_without_a_leak_the_level_holds(split):
    """The target saw none of the records; references that were given did, by coins of their own."""
    rng = np.random.default_rng(11)
    false = 0
    for _ in range(30):
        scores = rng.normal(size=(7, 300))
        masks = rng.random((6, 300)) < 0.5
        masks[1::2] = ~masks[::2]
        scores[1:] += masks
        labels, rows = np.zeros(300, int), np.arange(300.0)[:, None]
        models = [_Fixed(row) for row in scores]
        shared = {"references": models[1:], "reference_masks": masks, "guard": False, "resamples": 0}
        if split:
            order = rng.permutation(300)
            masks[:] = masks[:, order]
            sides = (rows[order[:150]], labels[:150]), (rows[order[150:]], labels[:150])
            found = dm.audit_model(models[0], members=sides[0], nonmembers=sides[1], **shared)
        else:
            found = dm.audit_model(models[0], data=(rows, labels), included=dm.fair_coins(300), **shared)
        false += found.headline.low > 0
    assert false <= 6  # 5 % of 30 is 1.5; more than 6 has probability below 0.001


class _Fixed:
    """A model that gives record i the logit of a table."""

    def __init__(self, values):
        self.values = values

    def __call__(self, rows):
        logits = self.values[np.asarray(rows)[:, 0].astype(int)]
        return np.stack([logits + 3.0, np.zeros_like(logits)], axis=1)


def test_persons_are_in_a_reference_as_a_whole():
    ids = np.repeat(np.arange(150), 6)
    coins = dm.fair_coins(900, 4, groups=ids)
    found = dm.audit_model(forest(coins), data=(X, Y), included=coins, groups=ids, references=4, run=QUIET)
    assert found.metadata.unit == "person" and found.headline.details["unit"] == "person"
    pool = read_pool(None, None, (X, Y), coins, mask_seed=None, groups=ids)
    masks = read_references(forest(coins), pool, 4, run=QUIET, seed=0)().included
    ordered = ids[pool.order]
    assert all(np.unique(masks[:, ordered == person], axis=1).shape[1] == 1 for person in range(150))


@pytest.mark.slow
def test_pipelines_and_own_functions_and_given_models(target):
    pipe = make_pipeline(StandardScaler(), LogisticRegression(C=100.0, max_iter=50)).fit(X[COINS], Y[COINS])
    piped = dm.audit_model(pipe, data=(X, Y), included=COINS, references=4, run=QUIET)
    assert piped.metadata.references == 4

    def train(rows, seed):
        return forest(rows, seed)

    own = dm.audit_model(target, data=(X, Y), included=COINS, references=4, train=train, run=QUIET)
    assert own.headline.low > 0
    masks = np.array([dm.fair_coins(900, seed) for seed in (20, 21)])
    masks = np.concatenate([masks, ~masks])
    given = [forest(mask, 1) for mask in masks]
    beside = dm.audit_model(target, data=(X, Y), included=COINS, references=given, reference_masks=masks)
    assert beside.metadata.references == 4 and beside.metadata.trainings is None


def test_references_that_saw_none_of_the_records_are_offline(target):
    rest, labels = load_digits(return_X_y=True)
    given = [
        RandomForestClassifier(15, min_samples_leaf=3, random_state=s).fit(rest[900:] / 16, labels[900:])
        for s in (1, 2)
    ]
    found = dm.audit_model(target, data=(X, Y), included=COINS, references=given)
    assert found.metadata.attack == "rmia" and found.details.strength == ()


def test_the_choice_looks_at_references_alone():
    rng = np.random.default_rng(5)
    masks = rng.random((4, 200)) < 0.5
    masks = np.concatenate([masks, ~masks])[[0, 4, 1, 5, 2, 6, 3, 7]]
    hard = rng.normal(0, 4, 200)  # the signal differs by record, so the plain signal is weak
    references = ReferenceSignals(hard + masks * 2.0 + rng.normal(0, 0.5, (8, 200)), masks)
    pool = read_pool(None, None, (X[:200], Y[:200]), dm.fair_coins(200, 9), mask_seed=None, groups=None)
    attack, strength = choose_attack("auto", references, pool, "mean", delta=1e-5, confidence=0.95)
    by_name = {row.attack: row for row in strength}
    assert attack != "loss" and by_name[attack].epsilon > by_name["loss"].epsilon
    assert choose_attack("lira", references, pool, "mean", delta=1e-5, confidence=0.95)[0] == "lira"


def test_torch_modules_by_function_and_by_recipe():
    torch = pytest.importorskip("torch")
    from dosimeter.training import Recipe

    def network():
        return torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))

    inputs = X.astype(np.float32)

    def train(rows, seed):
        torch.manual_seed(seed)
        model = network()
        steps = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(20):
            steps.zero_grad()
            torch.nn.functional.cross_entropy(model(torch.tensor(inputs[rows])), torch.tensor(Y[rows])).backward()
            steps.step()
        return model

    model = train(np.flatnonzero(COINS), 0)
    own = dm.audit_model(model, data=(inputs, Y), included=COINS, references=4, train=train, run=QUIET)
    recipe = Recipe(epochs=3, batch_size=64, learning_rate=0.3)
    by_recipe = dm.audit_model(
        model, data=(inputs, Y), included=COINS, references=4, train=network, recipe=recipe, run=QUIET
    )
    assert own.metadata.references == by_recipe.metadata.references == 4


class _NoClone(BaseEstimator):
    """An estimator whose constructor changes its argument, which clone refuses."""

    classes_ = np.arange(10)

    def __init__(self, depth=3):
        self.depth = depth + 1

    def fit(self, rows, labels):
        return self

    def predict_proba(self, rows):
        return np.full((len(rows), 10), 0.1)


class _Few(_NoClone):
    """A classifier of other classes."""

    classes_ = np.arange(3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"references": 1}, "references must be"),
        ({"references": "many"}, "references must be how many to train or a list of models"),
        ({"references": []}, "references must be how many to train or a list of models"),
        ({"attack": "rmia"}, "attack='rmia' is for reference models, and none were asked for"),
        ({"train": forest}, "train is for reference models, and none were asked for"),
        ({"references": 4, "attack": "psychic"}, "attack"),
        ({"references": 4, "reference_masks": np.ones((4, 900), bool)}, "reference_masks belong to trained models"),
        ({"references": 4, "train": 7}, "train must be a function"),
        ({"references": [forest(COINS)], "reference_masks": np.ones((2, 900), bool)}, "reference_masks must hold"),
        ({"references": [forest(COINS)], "reference_masks": np.ones((1, 900), bool)}, "is in all 1 references"),
        ({"references": [forest(COINS), _Few()]}, r"reference 1 predicts 3 classes .* the audited model 10 classes"),
        ({"references": [lambda rows: np.full((len(rows), 4), 0.25)]}, r"reference 0 predicts 4 classes"),
    ],
)
def test_what_cannot_be_used_is_refused_before_any_training(target, change, message):
    with pytest.raises(dm.InputError, match=message):
        dm.audit_model(target, data=(X, Y), included=COINS, **change)


@pytest.mark.parametrize("groups", [None, np.repeat(np.arange(300), 3)])
def test_masks_that_know_the_members_are_refused(target, groups):
    """References that left out just the members tell who they are, even of a model that leaks nothing."""
    coins = dm.fair_coins(900, 8, groups=groups)
    blind = np.array([dm.fair_coins(900, seed, groups=groups) for seed in (20, 21)])
    blind = np.vstack([blind, ~blind[:1]])  # no record is in all of them
    asked = {"data": (X, Y), "included": coins, "groups": groups, "references": [target] * 4}
    for known in (coins, ~coins):
        with pytest.raises(dm.InputError, match=r"reference 3 was trained on .* which chance does not do"):
            dm.audit_model(target, **asked, reference_masks=np.vstack([blind, known]))


def test_an_estimator_that_cannot_be_cloned_and_a_function_are_refused():
    for model, message in ((_NoClone(), "cannot be cloned"), (lambda rows: rows, "cannot be fitted again")):
        with pytest.raises(dm.InputError, match=message):
            dm.audit_model(model, data=(X, Y), included=COINS, references=4, run=QUIET)
