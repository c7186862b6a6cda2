"""Classifiers of scikit-learn, and things that look like them."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import GradientBoostingClassifier, IsolationForest, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from dosimeter import InputError
from dosimeter.models import access
from dosimeter.models.outputs import losses_from_logits, losses_from_probabilities

IRIS = load_iris(return_X_y=True)
CANCER = load_breast_cancer(return_X_y=True)


class OnlyProbabilities:
    """A classifier without decision_function."""

    def __init__(self, model):
        self.model, self.classes_ = model, model.classes_

    def predict_proba(self, X):
        return self.model.predict_proba(X)


@pytest.mark.parametrize("data", [IRIS, CANCER])
def test_routes_agree(data):
    X, y = data
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
    own = access(model).losses(X, y)
    plain = access(OnlyProbabilities(model)).losses(X, y)
    function = access(model.predict_proba).losses(X, y)
    margins = access(model.decision_function, outputs="logits").losses(X, y)
    assert (own.kind, plain.kind, function.kind) == ("logits", "probabilities", "probabilities")
    assert own.warnings == ()
    inside = np.abs(plain.values) < 15  # 1 − p has lost its digits beyond
    assert inside.mean() > 0.9
    for found in (plain, function, margins):
        assert found.values[inside] == pytest.approx(own.values[inside], abs=1e-6)
    assert plain.clipped == (np.abs(own.values) > 36.7368).sum()
    assert np.mean(own.correct) == model.score(X, y)


def test_saturated_model_keeps_its_tail():
    X = np.linspace(-60, 60, 400)[:, None]
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression(C=1e6, max_iter=1000).fit(X, y)
    model.coef_, model.intercept_ = np.array([[5.0]]), np.zeros(1)
    kept, lost = access(model).losses(X, y), access(OnlyProbabilities(model)).losses(X, y)
    assert kept.values == pytest.approx(-5 * np.abs(X[:, 0]))
    assert kept.clipped == 0
    assert lost.clipped > 300
    assert lost.values.min() > -40
    assert "clipped" in lost.warnings[-1]


def test_probabilities_where_the_margin_is_no_logit():
    X, y = IRIS
    forest = RandomForestClassifier(n_estimators=7, random_state=0).fit(X, y)
    bayes = GaussianNB().fit(X, y)
    one_against_rest = SGDClassifier(loss="log_loss", random_state=0).fit(X, y)
    for model in (forest, bayes, one_against_rest):
        found = access(model).losses(X, y)
        values, clipped = losses_from_probabilities(model.predict_proba(X), y)
        assert found.kind == "probabilities"
        assert np.array_equal(found.values, values)
        assert found.clipped == clipped


def test_boosted_trees_give_logits():
    X, y = IRIS
    model = GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, y)
    found = access(model).losses(X, y)
    assert found.kind == "logits"
    assert found.values == pytest.approx(losses_from_logits(model.decision_function(X), y))


@pytest.mark.parametrize("data", [IRIS, CANCER])
def test_margins_say_that_they_are_margins(data):
    X, y = data
    model = make_pipeline(StandardScaler(), LinearSVC()).fit(X, y)
    found = access(model).losses(X, y)
    assert found.values == pytest.approx(losses_from_logits(model.decision_function(X), y))
    assert found.kind == "logits"
    assert "margin and not a probability" in found.warnings[0]


def test_labels_go_through_classes():
    X, y = IRIS
    for names in (np.array(["c", "a", "b"]), np.array([40, 20, 30]), np.array([0.0, 7.0, -2.0])):
        model = LogisticRegression(max_iter=1000).fit(X, names[y])
        column = [model.classes_.tolist().index(name) for name in names[y].tolist()]
        expected = losses_from_logits(model.decision_function(X), column)
        assert access(model).losses(X, names[y]).values == pytest.approx(expected, abs=0)
    model = LogisticRegression(max_iter=1000).fit(X, np.array(["c", "a", "b"])[y])
    objects = np.array(["c", "a", "b"], dtype=object)[y]
    assert access(model).losses(X, objects).values.shape == (150,)
    with pytest.raises(InputError, match=r"labels\[0\] is 0, which is not one of the model's classes"):
        access(model).losses(X, y)
    wrong = objects.copy()
    wrong[[17, 40]] = "zebra"
    with pytest.raises(InputError, match=r"labels\[17\] is 'zebra'"):
        access(model).losses(X, wrong)


def test_boolean_classes():
    X, y = CANCER
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y == 1)
    number = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    assert access(model).losses(X, y == 1).values == pytest.approx(access(number).losses(X, y).values)


def test_the_route_is_kept_between_members_and_nonmembers():
    X, y = CANCER
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    box = access(model)
    a, b = box.losses(X[:1], y[:1]), box.losses(X, y)
    assert a.kind == b.kind


def test_refusals():
    X, y = IRIS
    with pytest.raises(InputError, match="has no classes_"):
        access(LogisticRegression())
    with pytest.raises(InputError, match="has no classes_"):
        access(IsolationForest(n_estimators=2).fit(X))
    with pytest.raises(InputError, match="neither predict_proba nor decision_function"):
        access(LinearRegression().fit(X, y))
    with pytest.raises(InputError, match="is the class LogisticRegression"):
        access(LogisticRegression)
    with pytest.raises(InputError, match="in pairs"):
        access(SVC(decision_function_shape="ovo").fit(X, y))
    with pytest.raises(InputError, match="one class"):
        access(RandomForestClassifier(n_estimators=2).fit(X, np.zeros(150, dtype=int)))
    several = MultiOutputClassifier(LogisticRegression(max_iter=500)).fit(X, np.stack([y, y], axis=1))
    with pytest.raises(InputError, match="several targets"):
        access(several)
    with pytest.raises(InputError, match=r"failed on records 0 to 149 \(ValueError"):
        access(LogisticRegression(max_iter=1000).fit(X, y)).losses(X[:, :2], y)
    with pytest.raises(InputError, match="outputs has no meaning for a scikit-learn"):
        access(GaussianNB().fit(X, y), outputs="logits")
