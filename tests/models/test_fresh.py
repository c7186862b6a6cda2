"""Unfitted copies: of estimators that scikit-learn copies, of those whose constructors copy a list, of neither."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dosimeter as dm
from dosimeter.engine import RunOptions, Store
from dosimeter.models.fresh import fresh_copy

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(300, 4)), RNG.integers(0, 2, 300)


class Lists(ClassifierMixin, BaseEstimator):
    """A forest whose constructor copies a list, as CatBoost does with cat_features."""

    def __init__(self, columns=(), random_state=None):
        self.columns = list(columns)
        self.random_state = random_state

    def fit(self, rows, labels):
        self.inner_ = RandomForestClassifier(5, random_state=self.random_state).fit(rows[:, self.columns], labels)
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, rows):
        return self.inner_.predict_proba(rows[:, self.columns])


class Changes(Lists):
    """One whose constructor adds a column."""

    def __init__(self, columns=(), random_state=None):
        super().__init__([*columns, 1], random_state)


def test_what_scikit_learn_refuses_is_made_anew_and_unfitted():
    model = Lists([0, 2]).fit(X, Y)
    with pytest.raises(RuntimeError):
        clone(model)
    fresh = fresh_copy(model, 7)
    assert fresh.columns == [0, 2] and fresh.columns is not model.columns
    assert fresh.random_state == 7 and not hasattr(fresh, "inner_") and model.random_state is None


def test_estimators_inside_others_are_made_anew_with_their_seeds():
    model = make_pipeline(StandardScaler(), Lists([1, 3])).fit(X, Y)
    fresh = fresh_copy(model, 2**40 + 3)
    assert fresh.get_params()["lists__random_state"] == 3
    assert fresh.get_params()["lists__columns"] == [1, 3]
    assert not hasattr(fresh[0], "mean_") and hasattr(model[0], "mean_")
    assert fresh.fit(X, Y).predict_proba(X).shape == (300, 2)


def test_a_constructor_that_changes_what_it_is_given_is_refused():
    with pytest.raises(RuntimeError, match="changes the parameter columns"):
        fresh_copy(Changes([0, 2]).fit(X, Y))


def test_an_audit_trains_references_of_it_and_resumes(tmp_path):
    coins = dm.fair_coins(300, 1)
    model = Lists([0, 2]).fit(X[coins], Y[coins])
    run = RunOptions(engine="inline", progress=False, store=Store(tmp_path / "store"))
    for cached in (0, 4):
        audit = dm.audit_model(model, data=(X, Y), included=coins, references=4, resamples=0, run=run)
        assert audit.provenance.cached == cached
