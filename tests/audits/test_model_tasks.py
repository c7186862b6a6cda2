"""audit_model on models that predict numbers, give labels alone, or give several labels; and all records' risk."""

import json

import numpy as np
import pyarrow.parquet
import pytest
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import dosimeter as dm
from dosimeter.audits.result import RecordRisk, write_risk
from dosimeter.engine import RunOptions, Store
from dosimeter.models import HardLabels, MultiLabel, Perturbation, Predictions
from dosimeter.models.regression import standardised

QUIET = RunOptions(engine="inline", progress=False)
FAST = {"guard": False, "resamples": 0}
X, Y = load_diabetes(return_X_y=True)
Y = Y + np.random.default_rng(0).normal(size=len(Y))  # a target of fractions
COINS = dm.fair_coins(len(X), 1)
D, L = (part[:500] for part in load_digits(return_X_y=True))
DCOINS = dm.fair_coins(500, 3)
SEVERAL = np.stack([L % 2, L > 4, L % 3 == 0], axis=1).astype(int)
SEVERAL ^= np.random.default_rng(1).random(SEVERAL.shape) < 0.2


@pytest.fixture(scope="module")
def regressor():
    return RandomForestRegressor(20, random_state=0).fit(X[COINS], Y[COINS])


@pytest.fixture(scope="module")
def classifier():
    return RandomForestClassifier(10, min_samples_leaf=3, random_state=0).fit(D[DCOINS], L[DCOINS])


def test_a_regression_is_found_out_and_audited(regressor, tmp_path):
    audit = dm.audit_model(regressor, data=(X, Y), included=COINS)
    assert audit.metadata.task == "regression" and audit.metadata.outputs == "predictions"
    assert audit.headline.low > 1 and audit.guard.checked and not audit.guard.shift
    assert audit.metadata.error.members < audit.metadata.error.nonmembers / 2
    assert audit.metadata.accuracy.members is None
    assert {row.group for row in audit.subgroups} == {"target"} and len(audit.subgroups) == 4
    assert any(e.method.startswith("epsilon-star") for e in audit.estimates)
    assert dm.Audit.from_json(audit.to_json()).to_dict() == audit.to_dict()
    audit.to_html(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "The model predicts numbers" in page and "standardised residual" in page and "TNR" in page


@pytest.mark.slow
def test_references_sharpen_a_regression(regressor, tmp_path):
    kept = RunOptions(engine="inline", progress=False, store=Store(tmp_path / "store"))
    audit = dm.audit_model(regressor, data=(X, Y), included=COINS, references=6, run=kept, **FAST)
    sharper, loss = audit.details.attacks
    assert sharper.attack in ("lira", "rmia-online") and sharper.epsilon > loss.epsilon and sharper.auc > loss.auc
    again = dm.audit_model(regressor, data=(X, Y), included=COINS, references=6, run=kept, **FAST)
    assert again.provenance.cached == 6 and again.estimates == audit.estimates
    for attack in ("rmia", "informia-online", "lira-offline", "watson"):
        one = dm.audit_model(regressor, data=(X, Y), included=COINS, references=4, attack=attack, run=QUIET, **FAST)
        assert one.headline.low > 0, attack


def test_a_function_says_that_whole_numbers_are_numbers(regressor):
    whole = np.round(Y)
    audit = dm.audit_model(regressor.predict, data=(X, whole), included=COINS, task="regression", **FAST)
    assert audit.metadata.task == "regression" and audit.headline.low > 1
    sides = (X[COINS], whole[COINS]), (X[~COINS], Y[~COINS])  # one side of whole numbers alone
    assert dm.audit_model(regressor, members=sides[0], nonmembers=sides[1], **FAST).metadata.task == "regression"


@pytest.mark.parametrize(
    ("model", "y", "options", "message"),
    [
        (DecisionTreeClassifier().fit(X, Y > 150), Y, {}, "is a classifier, and a target such as"),
        (DecisionTreeClassifier().fit(X, Y > 150), Y > 150, {"task": "regression"}, "is a classifier"),
        (Ridge().fit(X, Y), np.where(Y > 150, "a", "b"), {}, "the model predicts numbers"),
        (Ridge().fit(X, Y), np.round(Y), {"task": "classification"}, "predicts numbers and is not a classifier"),
        (Ridge().fit(X, Y), Y, {"task": "clustering"}, "task"),
        (Ridge().fit(X, Y), Y, {"outputs": "labels"}, "outputs='labels' is for one class"),
        (Ridge().fit(X, Y), Y, {"outputs": "logits"}, "a regression predicts numbers"),
        (Ridge().fit(X, np.stack([Y, Y], 1)), Y, {}, "predicts 2 numbers for each record"),
        (lambda rows: rows[:, 0], Y > 150, {"task": "multi-label"}, "several labels at once"),
        (lambda rows: rows[:, 0], Y > 150, {"queries": 3}, "outputs='labels' too"),
        (lambda rows: rows[:, 0], Y > 150, {"outputs": "labels"}, "is not a label"),
        (lambda rows: np.full(len(rows), "a"), Y > 150, {"outputs": "labels"}, "answers 'a' where the labels"),
        (lambda rows: rows[:, 0], Y > 150, {"outputs": "labels", "queries": 0}, "queries must be"),
        (lambda rows: rows[:, 0], np.eye(2)[(Y > 150).astype(int)], {}, "argmax"),
        (lambda rows: rows[:, :2], np.stack([Y > 150, Y > 50, Y > 99], 1), {}, r"for 3 labels; return one"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(model, y, options, message):
    with pytest.raises(dm.InputError, match=message) as error:
        dm.audit_model(model, data=(X, y), included=COINS, guard=False, **options)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_labels_alone_prove_a_loss(classifier, tmp_path):
    tree = DecisionTreeClassifier(random_state=0).fit(D[DCOINS], L[DCOINS])
    audit = dm.audit_model(tree, data=(D, L), included=DCOINS, outputs="labels", queries=8, resamples=0)
    assert audit.headline.low > 0.5 and audit.metadata.queries == 8 and audit.metadata.outputs == "labels"
    assert any("8 times for each record (4000 questions)" in note for note in audit.metadata.warnings)
    audit.to_html(tmp_path / "a.html")
    assert "The model gave labels alone, 8 for each record" in (tmp_path / "a.html").read_text(encoding="utf-8")
    same = {"data": (D, L), "included": DCOINS, "outputs": "labels", **FAST}
    one, other = (dm.audit_model(m, queries=4, **same) for m in (classifier, lambda rows: classifier.predict(rows)))
    assert one.estimates == other.estimates
    names = np.array([f"digit {label}" for label in L])
    words = DecisionTreeClassifier(random_state=0).fit(D[DCOINS], names[DCOINS])
    named = dm.audit_model(words, **{**same, "data": (D, names)}, queries=1)
    assert named.headline.low > 0.5
    calibrated = dm.audit_model(classifier, **same, queries=6, references=6, run=QUIET)
    assert calibrated.details.attacks[0].auc > calibrated.details.attacks[1].auc


def test_each_record_is_perturbed_alike_for_all_models():
    table = np.column_stack([np.arange(50) / 7, np.arange(50) % 3, np.arange(50) * 3])
    table[3, 0] = np.nan
    change = Perturbation.of(table, 5)
    first, last = change.copy(table, 0, 9), change.copy(table, 8, 9)
    assert np.array_equal(first, change.copy(table, 0, 9), equal_nan=True) and np.isnan(first[3, 0])
    assert np.nanstd(first[:, 0] - table[:, 0]) < np.nanstd(last[:, 0] - table[:, 0])
    assert set(last[:, 1]) == {0, 1, 2} and (last[:, 1] != table[:, 1]).any()  # categories stay categories
    assert (last[:, 2] == np.round(last[:, 2])).all() and last[:, 2].min() >= 0
    images = np.random.default_rng(0).integers(0, 255, (4, 5, 5)).astype(np.uint8)
    assert Perturbation.of(images, 0).copy(images, 3, 4).dtype == np.uint8
    with pytest.raises(dm.InputError, match="only tables and arrays"):
        Perturbation.of(["a text"], 0)


def test_labels_of_modules_are_their_highest_scores():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2)
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    truth = module(torch.tensor(rows)).argmax(1).numpy()
    assert HardLabels(module, None).losses(rows, truth).correct.all()
    single = torch.nn.Linear(3, 1)
    truth = (single(torch.tensor(rows))[:, 0] > 0).numpy().astype(int)
    assert HardLabels(single, None).losses(rows, truth).correct.all()
    assert Predictions(single).losses(rows, np.zeros(20)).values.shape == (20,)


def test_several_labels_at_once(tmp_path):
    forest = RandomForestClassifier(10, random_state=0).fit(D[DCOINS], SEVERAL[DCOINS])
    audit = dm.audit_model(forest, data=(D, SEVERAL), included=DCOINS, resamples=0)
    assert audit.metadata.task == "multi-label" and audit.headline.low > 1 and audit.guard.checked
    assert {row.group for row in audit.subgroups} == {"labels set"}
    audit.to_html(tmp_path / "a.html")
    assert "several labels at once" in (tmp_path / "a.html").read_text(encoding="utf-8")
    sharper = dm.audit_model(forest, data=(D, SEVERAL), included=DCOINS, references=4, run=QUIET, **FAST)
    assert sharper.headline.low > audit.headline.low


def test_losses_of_several_labels_are_those_of_all_together():
    rng = np.random.default_rng(2)
    logits, truth = rng.normal(0, 3, (30, 4)), rng.integers(0, 2, (30, 4))
    found = MultiLabel(lambda rows: logits).losses(np.zeros((30, 1)), truth).values
    p = np.prod(1 / (1 + np.exp(np.where(truth == 1, -logits, logits))), axis=1)
    assert found == pytest.approx(-np.log(p / (1 - p)))
    shares = MultiLabel(lambda rows: 1 / (1 + np.exp(-logits))).losses(np.zeros((30, 1)), truth)
    assert shares.kind == "probabilities" and shares.values == pytest.approx(found)
    network = MLPClassifier((8,), max_iter=20, random_state=0).fit(D, SEVERAL)
    by_list = RandomForestClassifier(3, random_state=0).fit(D, SEVERAL)
    for model in (network, by_list):
        assert np.isfinite(MultiLabel(model).losses(D, SEVERAL).values).all()


def test_residuals_are_standardised_by_what_is_usual_around_a_prediction():
    rng = np.random.default_rng(3)
    size = np.repeat([1.0, 100.0], 500)
    residuals, predictions = rng.normal(0, 1, 1000) * size, size + rng.random(1000) / 10
    values = standardised(residuals, predictions)
    assert values[:500].mean() == pytest.approx(1) and values[500:].mean() == pytest.approx(1)
    assert not standardised(np.zeros(5), np.zeros(5)).any()


@pytest.mark.once
@pytest.mark.parametrize("kind", ["regression", "labels"])
def test_without_a_leak_the_level_holds(kind):
    """The model saw none of the records: at most 5 % of audits may claim a loss."""
    rng = np.random.default_rng(7)
    tree = DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, Y)
    labels = DecisionTreeClassifier(random_state=0).fit(X, Y > 150)
    false = 0
    for _ in range(40):
        rows = rng.normal(0, 0.05, (100, X.shape[1]))
        if kind == "regression":
            target = 150 + rng.normal(0, 70, 100) * (1 + np.abs(rows[:, 0]) * 20)
            audit = dm.audit_model(tree, data=(rows, target), included=dm.fair_coins(100), **FAST)
        else:
            target = rng.random(100) < 0.5
            audit = dm.audit_model(
                labels, data=(rows, target), included=dm.fair_coins(100), outputs="labels", queries=3, **FAST
            )
        false += audit.headline.low > 0
    assert false <= 7  # 5 % of 40 is 2; more than 7 has probability below 0.001


def test_the_risk_of_all_records(classifier, tmp_path):
    audit = dm.audit_model(classifier, data=(D, L), included=DCOINS, references=4, run=QUIET, **FAST)
    table = audit.risk_table().to_pydict()
    assert sorted(table["index"]) == list(range(500)) and len(audit.exposed) == 20
    order = np.array(table["index"])
    assert np.array_equal(np.array(table["member"]), DCOINS[order])
    assert table["label"] == [str(label) for label in L[order]]
    assert table["score"] == sorted(table["score"], reverse=True)
    assert set(np.round(np.array(table["agreement"]) * 2)) <= {0.0, 1.0, 2.0}
    assert table["index"][0] == audit.exposed[0].record
    assert table["share_of_nonmembers"][0] == audit.exposed[0].threshold_fpr
    assert "agreement" not in audit.to_json() and "record_risk" not in json.loads(audit.to_json())
    with pytest.raises(dm.InputError, match="does not hold its records"):
        dm.Audit.from_json(audit.to_json()).risk_table()
    path = write_risk(audit.risk_table(), tmp_path / "risk.parquet")
    assert pyarrow.parquet.read_table(path).num_rows == 500 and path.stat().st_mode & 0o077 == 0
    assert write_risk(audit.risk_table(), tmp_path / "risk.csv").read_text().startswith('"index"')
    with pytest.raises(dm.InputError, match=r"neither a \.parquet nor a \.csv"):
        write_risk(audit.risk_table(), tmp_path / "risk.txt")


def test_risk_of_persons_and_of_scores():
    ids = np.repeat(np.arange(100), 5)
    coins = dm.fair_coins(500, 4, groups=ids)
    tree = DecisionTreeClassifier(random_state=0).fit(D[coins], L[coins])
    persons = dm.audit_model(tree, data=(D, L), included=coins, groups=ids, **FAST).risk_table().to_pydict()
    assert sorted(persons["index"]) == list(range(100))
    assert [bool(coins[ids == i].all()) for i in persons["index"]] == persons["member"]
    sides = dm.Scores([3.0, 1.0], [2.0, 0.0])
    plain = RecordRisk.of(sides, (np.arange(2), np.arange(2))).table().to_pydict()
    assert plain["share_of_nonmembers"] == [0.0, 0.5, 0.5, 1.0] and plain["index"] == [0, 0, 1, 1]


def test_tnr_at_low_fnr_is_the_other_end_of_the_curve():
    from dosimeter.audits.scores import audit_scores

    rng = np.random.default_rng(4)
    members, nonmembers = rng.normal(1, 1, 2000), rng.normal(0, 1, 2000)
    curve = audit_scores(dm.Scores(members, nonmembers), resamples=0).curve
    turned = audit_scores(dm.Scores(-nonmembers, -members), resamples=0).curve
    assert [(p.fnr, p.tnr, p.tnr_low) for p in curve.tnr_at_fnr] == [
        (p.fpr, p.tpr, p.tpr_low) for p in turned.tpr_at_fpr
    ]
    point = curve.tnr_at_fnr[2]
    assert (members < point.threshold).mean() <= point.fnr and (nonmembers < point.threshold).mean() == point.tnr
    assert point.limit == point.tnr_low > 0


def test_the_command_writes_the_risk_of_all_records(tmp_path, capsys, monkeypatch):
    from dosimeter.cli import main

    rng = np.random.default_rng(5)
    scores = tmp_path / "scores.npz"
    np.savez(scores, members=rng.normal(1, 1, 200), nonmembers=rng.normal(0, 1, 200))
    monkeypatch.setattr("sys.argv", ["dosimeter", "audit", str(scores), "--records", str(tmp_path / "risk.parquet")])
    with pytest.raises(SystemExit) as done:
        main()
    told = capsys.readouterr()
    assert done.value.code == 0 and "it names members" in told.err and "FNR" in told.out
    assert pyarrow.parquet.read_table(tmp_path / "risk.parquet").num_rows == 400
