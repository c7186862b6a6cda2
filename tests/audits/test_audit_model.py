"""The whole audit of one trained model, on data bundled with scikit-learn."""

import json
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from dosimeter import InputError, Scores, fair_coins
from dosimeter.audits.model.pool import read_pool
from dosimeter.audits.model.run import audit_model, distributions, fingerprint, most_exposed
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores
from dosimeter.training.logistic import DpLogisticRegression

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "audit.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def digits() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    data = load_digits()
    inside = fair_coins(len(data.target), 0)
    x = data.data / 16
    return {"members": (x[inside], data.target[inside]), "nonmembers": (x[~inside], data.target[~inside])}


@pytest.fixture(scope="module")
def overfitted(digits) -> MLPClassifier:
    return MLPClassifier((128,), alpha=0.0, max_iter=400, random_state=0).fit(*digits["members"])


@pytest.fixture(scope="module")
def audit(digits, overfitted) -> Audit:
    return audit_model(overfitted, **digits, resamples=100)


def test_an_overfitted_model_is_caught(audit: Audit) -> None:
    assert audit.headline.method == "lower-bound" and audit.headline.low > 1.0
    assert audit.guard.checked and not audit.guard.shift
    assert [e.method for e in audit.estimates] == [
        "lower-bound",
        "lower-bound",
        "clopper-pearson",
        "bayesian",
        "gaussian",
        "advantage",
        "epsilon-star-parametric",
        "epsilon-star-empirical",
    ]
    assert audit.metadata["goodness_of_fit"] is not None
    assert len(audit.exposed) == 20 and audit.subgroups


def test_goodness_of_fit_is_that_of_the_losses_that_epsilon_star_fits(audit: Audit) -> None:
    star = next(e for e in audit.estimates if e.method == "epsilon-star-parametric")
    for side in ("members", "nonmembers"):
        found, fitted = audit.metadata["goodness_of_fit"][side], star.details[side]
        one = found["mixtures"][found["components"].index(1)]
        assert abs(one["means"][0] - fitted["mean"]) < 5 * fitted["sd"] / np.sqrt(found["fitted"])
        assert one["sds"][0] == pytest.approx(fitted["sd"], rel=0.5)


def test_a_model_that_gives_every_member_the_same_loss(digits) -> None:
    tree = DecisionTreeClassifier(random_state=0).fit(*digits["members"])
    found = audit_model(tree, **digits, resamples=100)
    assert found.headline.low > 2
    assert "not_fitted" in found.metadata["goodness_of_fit"]["members"]
    jsonschema.validate(json.loads(found.to_json()), SCHEMA)


def test_a_private_model_is_between_its_bounds(digits) -> None:
    model = DpLogisticRegression(noise_multiplier=20, steps=60, learning_rate=4.0).fit(*digits["members"])
    found = audit_model(model, **digits, mechanism=model.mechanism, resamples=0)
    proven = min(g.epsilon for g in found.upper if g.is_bound)
    assert 0 <= found.headline.low < proven
    assert found.region is not None and "upper" in found.risk


def test_json_follows_the_published_schema(audit: Audit) -> None:
    for one in (audit, audit_scores(Scores([1.0, 2.0], [0.0, 1.0]), resamples=0)):
        text = one.to_json()
        jsonschema.validate(json.loads(text), SCHEMA)
        assert Audit.from_json(text).to_dict() == one.to_dict()


def test_shift_is_named_and_strict_refuses(digits, overfitted) -> None:
    x, y = digits["nonmembers"]
    shifted = {"members": digits["members"], "nonmembers": (x + 0.2, y)}
    found = audit_model(overfitted, **shifted, resamples=0)
    assert found.guard.shift
    with pytest.raises(InputError, match="strict"):
        audit_model(overfitted, **shifted, strict=True)
    with pytest.raises(InputError, match="strict"):
        audit_model(overfitted, **digits, guard=False, strict=True)


def test_bad_input(digits, overfitted) -> None:
    (x, y), outside = digits["members"], digits["nonmembers"]
    empty = (x[:0], y[:0])
    for members, named in [((x, y[:-1]), "label"), ((x, y + 50), "label"), (empty, "record"), ((x, None), "label")]:
        with pytest.raises(InputError, match=named) as error:
            audit_model(overfitted, members=members, nonmembers=outside)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="same records"):
        audit_model(overfitted, members=(x, y), nonmembers=(x, y))
    with pytest.raises(InputError, match="delta"):
        audit_model(overfitted, **digits, delta=0, mechanism=DpLogisticRegression(noise_multiplier=1).mechanism)
    with pytest.raises(InputError):
        audit_model(lambda rows: np.full((len(rows), 10), np.nan), **digits)


def test_parts() -> None:
    shares = distributions(np.zeros(10), np.zeros(5))
    assert np.sum(shares["members"]) * (shares["edges"][1] - shares["edges"][0]) == pytest.approx(1)
    pool = read_pool(
        (np.zeros((3, 1)), ["a", "<b>", "c"]), (np.zeros((2, 1)), ["a", "c"]), None, None, mask_seed=None, groups=None
    )
    exposed = most_exposed(Scores([1.0, 5.0, 3.0], [4.0, 0.0]), pool)
    assert [e["record"] for e in exposed] == [1, 2, 0]
    assert [e["threshold_fpr"] for e in exposed] == [0.0, 0.5, 0.5]
    assert fingerprint(np.zeros(3), np.ones(3)) != fingerprint(np.zeros(3), np.zeros(3))


@pytest.mark.slow
def test_hundred_thousand_records_are_quick() -> None:
    """Everything after the model's own predictions, 100 000 + 100 000 records: 10 s of CPU at most."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200_000, 10)), rng.integers(0, 2, 200_000)
    model = LogisticRegression().fit(x[:1000], y[:1000])
    started = time.process_time()
    found = audit_model(model, members=(x[:100_000], y[:100_000]), nonmembers=(x[100_000:], y[100_000:]), resamples=200)
    assert time.process_time() - started < 20  # twice the aim: the machine may be busy
    assert len(found.to_json()) < 1_000_000
    assert replace(found, metadata={}).headline.low < 0.1
