"""How hard generated records are to tell from real ones, with a classifier, on tables whose law is known."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from dosimeter.generators import GaussianCopula, PcaMixture, TreeModel

COUNT = 1200


def told_apart(real, made):
    """The AUC of a classifier on the half of the records that it has not seen."""
    X = np.concatenate([real, made]).reshape(len(real) + len(made), -1)
    y = np.repeat([1, 0], [len(real), len(made)])
    order = np.random.default_rng(0).permutation(y.size)
    train, test = order[: y.size // 2], order[y.size // 2 :]
    model = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(X[train], y[train])
    return roc_auc_score(y[test], model.predict_proba(X[test])[:, 1])


def normal(seed):
    """Five columns that depend on each other through a normal vector, two of them not normal themselves."""
    mix = np.random.default_rng(100).normal(size=(5, 5))
    z = np.random.default_rng(seed).normal(size=(COUNT, 5)) @ mix
    return np.column_stack([np.exp(z[:, 0] / 3), z[:, 1:4], np.round(z[:, 4])])


def words(seed):
    """Three unordered columns in one-hot form, each a shuffled function of the one before it in 9 of 10 records."""
    rng = np.random.default_rng(seed)
    shuffle = np.array([3, 0, 4, 1, 5, 2])
    a = rng.integers(0, 6, COUNT)
    b = np.where(rng.uniform(size=COUNT) < 0.9, shuffle[a], rng.integers(0, 6, COUNT))
    c = np.where(rng.uniform(size=COUNT) < 0.9, shuffle[b], rng.integers(0, 6, COUNT))
    return np.concatenate([np.eye(6)[column] for column in (a, b, c)], axis=1)


NOISE = 5 * np.sqrt(1 / (6 * COUNT))  # five standard errors of an AUC of 0.5 with COUNT / 2 records on either side


def independent(members, seed):
    """Every column drawn alone: right marginals, no dependence."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.choice(column, len(members)) for column in members.T])


def test_the_copula_is_right_for_normal_dependence():
    members, fresh = normal(1), normal(2)
    assert abs(told_apart(fresh, normal(3)) - 0.5) < NOISE
    made = GaussianCopula().fit(members, seed=0).sample(COUNT, seed=1)
    assert told_apart(fresh, made) < 0.5 + NOISE + 0.03
    assert told_apart(fresh, independent(members, 0)) > 0.8


def test_the_tree_is_right_for_words_in_a_chain_and_the_copula_is_not():
    members, fresh = words(1), words(2)
    tree, copula = (model.fit(members, seed=0).sample(COUNT, seed=1) for model in (TreeModel(), GaussianCopula()))
    assert told_apart(fresh, tree) < 0.5 + NOISE + 0.03
    assert told_apart(fresh, copula) > told_apart(fresh, tree) + 0.05


@pytest.mark.slow
def test_mixtures_are_better_images_than_one_gaussian():
    rng = np.random.default_rng(0)
    place = np.arange(8)

    def rings(count):
        size = rng.choice([1.0, 3.0], count) + 0.2 * rng.normal(size=count)
        distance = np.hypot(place[:, None] - 3.5, place - 3.5)
        return np.exp(-((distance - size[:, None, None]) ** 2)) + 0.05 * rng.normal(size=(count, 8, 8))

    members, fresh = rings(COUNT), rings(COUNT)
    one, many = (told_apart(fresh, PcaMixture(parts=k).fit(members, seed=0).sample(COUNT, seed=1)) for k in (1, 8))
    assert many < one - 0.05
