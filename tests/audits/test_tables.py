"""Data frames with categories, missing values and words as labels, through every audit that takes records."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import dosimeter as dm
from dosimeter.audits.members_only.real_nonmembers import with_real_nonmembers
from dosimeter.audits.members_only.records import split_records
from dosimeter.audits.shift.records import coded_like
from dosimeter.engine import RunOptions, Store

pandas = pytest.importorskip("pandas")
QUIET = RunOptions(engine="inline", progress=False)
FAST = {"resamples": 0, "run": QUIET}
RNG = np.random.default_rng(0)
SIZE = 400
TABLE = pandas.DataFrame(
    {
        "age": RNG.integers(18, 80, SIZE).astype(float),
        "income": RNG.lognormal(size=SIZE),
        "job": pandas.Categorical(RNG.choice(["a", "b", "c"], SIZE)),
        "town": RNG.choice(["x", "y", "z"], SIZE).astype(object),
        "children": pandas.array(RNG.integers(0, 40, SIZE), dtype="Int64"),
        "member": pandas.array(RNG.integers(0, 2, SIZE) == 1, dtype="boolean"),
    },
    index=RNG.permutation(SIZE) + 1000,
)
TABLE.iloc[:30, 0] = np.nan
TABLE.iloc[20:50, 2] = np.nan
TABLE.iloc[3:8, 4] = pandas.NA
ANSWER = pandas.Series(RNG.choice(["no", "yes"], SIZE), index=TABLE.index)
COINS = dm.fair_coins(SIZE, 0)
SPLIT = {"members": (TABLE[COINS], ANSWER[COINS]), "nonmembers": (TABLE[~COINS], ANSWER[~COINS])}
NARROW = TABLE[["age", "income", "job"]]


def pipeline():
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job", "town"]), (SimpleImputer(), ["age", "income", "children"])
    )
    return make_pipeline(columns, RandomForestClassifier(10, random_state=0))


def boosting(rows, seed=0):
    model = HistGradientBoostingClassifier(max_iter=10, categorical_features="from_dtype", random_state=seed % 2**31)
    return model.fit(NARROW.iloc[rows], ANSWER.iloc[rows])


@pytest.fixture(scope="module")
def piped():
    return pipeline().fit(TABLE[COINS], ANSWER[COINS])


def test_a_pipeline_with_and_without_references(piped, tmp_path):
    groups = {"town": TABLE["town"]}
    audit = dm.audit_model(piped, data=(TABLE, ANSWER), included=COINS, subgroups=groups, **FAST)
    assert audit.headline.low > 1 and audit.guard.checked and not audit.guard.shift
    assert {row.group for row in audit.subgroups} == {"class", "town"}
    assert any("65 values of the records are missing" in note for note in audit.metadata.warnings)
    audit.to_html(tmp_path / "a.html")
    kept = RunOptions(engine="inline", progress=False, store=Store(tmp_path / "store"))
    for _ in range(2):
        sharper = dm.audit_model(piped, **SPLIT, references=4, resamples=0, run=kept)
    assert sharper.provenance.cached == 4 and sharper.headline.low > 1


def test_boosting_with_categories_labels_alone_and_numbers():
    model = boosting(np.flatnonzero(COINS))
    for labels in (ANSWER, ANSWER.astype("category"), ANSWER.to_frame()):
        assert dm.audit_model(model, data=(NARROW, labels), included=COINS, guard=False, **FAST).metadata.members
    hard = dm.audit_model(model, data=(NARROW, ANSWER), included=COINS, outputs="labels", queries=4, **FAST)
    assert hard.metadata.queries == 4
    amount = TABLE["income"]
    columns = NARROW.drop(columns="income")
    numbers = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    numbers.fit(columns[COINS], amount[COINS])
    audit = dm.audit_model(numbers, data=(columns, amount), included=COINS, **FAST)
    assert audit.metadata.task == "regression"


def test_trainings_and_one_run():
    short = {"shadows": 6, "runs": 16, "seed": 0, "run": QUIET}
    audit = dm.audit_training(boosting, (NARROW, ANSWER), nonmembers=(NARROW.iloc[:40], ANSWER.iloc[:40]), **short)
    assert audit.details.points[0].label in ("no", "yes") and audit.metadata.model == "boosting"
    other = NARROW.assign(age=NARROW["age"] + 1)
    changed = dm.audit_training(boosting, (other, ANSWER), **short)
    assert changed.metadata.fingerprint != audit.metadata.fingerprint
    once = dm.audit_one_run(boosting, (NARROW, ANSWER), count=100, seed=0, run=QUIET)
    assert once.metadata.records == SIZE
    for nonmembers, message in (
        ((NARROW.to_numpy()[:, :2].astype(float), ANSWER), "the other is not"),
        ((NARROW, ANSWER.replace("no", "never")), "not a class of the data"),
    ):
        with pytest.raises(dm.InputError, match=message):
            dm.audit_training(boosting, (NARROW, ANSWER), nonmembers=nonmembers, **short)


def test_members_only(piped):
    some = {"references": 3, "repeats": 2, "run": QUIET}
    audit = dm.audit_members_only(piped, (TABLE, ANSWER), **some)
    assert audit.metadata.data_kind == "tabular"


def fresh(rows):
    """Records that nobody was trained on; one town is new."""
    table = TABLE.sample(rows, replace=True, random_state=1).reset_index(drop=True)
    table["age"] += RNG.random(rows)
    table.loc[:4, "town"] = "elsewhere"
    return table, pandas.Series(RNG.choice(["no", "yes"], rows))


@pytest.mark.parametrize("protocol", ["honest", "thesis"])
def test_members_only_beside_real_nonmembers(piped, protocol):
    some = {"references": 3, "repeats": 2, "run": QUIET, "protocol": protocol}
    audit = dm.audit_members_only(piped, (TABLE, ANSWER), nonmembers=fresh(300), **some)
    real = [estimate for estimate in audit.estimates if "real non-members" in estimate.method]
    assert len(real) == 2 and audit.guard.checked
    plain = dm.audit_members_only(piped, (TABLE, ANSWER), **some)
    assert audit.headline.epsilon == plain.headline.epsilon  # what they are beside is the same audit


def test_real_nonmembers_have_the_codes_of_the_members():
    records = split_records((TABLE, ANSWER), splits=(0.4, 0.3, 0.3), audit_size=None)
    table, answer = fresh(200)
    real = with_real_nonmembers((table, answer), records, seed=0)
    codes = {}
    for some in (*records.sets, *real.sets):
        for word, code in zip(some.X["town"].astype(str), some.content.records[:, 3].tolist(), strict=True):
            assert codes.setdefault(word, code) == code
    assert set(codes) == {"x", "y", "z", "elsewhere"} and len(set(codes.values())) == 4
    letters = np.array([["a", "b"], ["a", "c"], ["d", "c"]])
    coded = coded_like(letters, np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([["d", "z"], ["b", "b"]]))
    assert coded.tolist() == [[1.0, 2.0], [2.0, 0.0]]
    for wrong, message in (
        (table.assign(income="much"), r"nonmembers has 'much' in column 'income', where the members have numbers"),
        (table[["age", "income"]], r"columns"),
    ):
        with pytest.raises(dm.InputError, match=message):
            with_real_nonmembers((wrong, answer), records, seed=0)


def test_infinities_and_models_that_do_not_take_missing_values():
    infinite = NARROW.assign(age=np.inf)
    with pytest.raises(dm.InputError, match=r"X\[0\] has a value that is not finite"):
        dm.audit_model(boosting(np.arange(SIZE)), data=(infinite, ANSWER), included=COINS)
    plain = clone(RandomForestClassifier(2)).fit(np.zeros((4, 2)), [0, 1, 0, 1])
    with pytest.raises(dm.InputError, match="the model failed on records"):
        dm.audit_model(plain, data=(NARROW, ANSWER == "yes"), included=COINS, guard=False)
