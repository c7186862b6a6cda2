"""The default audit of one model: calibrated scores, fixed before anybody's membership is looked at."""

import json

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from dosimeter import Audit, InputError, audit_model, fair_coins

QUICK = {"guard": False, "resamples": 0}


class Answers:
    """A model that gives the label of row i the log-odds `odds[i]`; the first column of a record names its row."""

    def __init__(self, odds, labels):
        right = expit(odds)
        self._outputs = np.stack([1 - right, right], axis=1)
        self._outputs[labels == 0] = self._outputs[labels == 0][:, ::-1]

    def __call__(self, x):
        return self._outputs[np.asarray(x)[:, 0].astype(int)]


def records(size, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 4))
    x[:, 0] = rng.permutation(size)
    return rng, x, (x[:, 1] > 0).astype(int)


def split(x, y, member):
    return {"members": (x[member], y[member]), "nonmembers": (x[~member], y[~member])}


def model_of(x, y, odds):
    by_row, label = np.empty(len(x)), np.empty(len(x), int)
    rows = x[:, 0].astype(int)
    by_row[rows], label[rows] = odds, y
    return Answers(by_row, label)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["coins", "split"])
@pytest.mark.parametrize("levels", [None, 2])
def test_whole_default_audits_without_a_leak_keep_their_level(way, levels):
    said, calls = 0, 8
    for seed in range(calls):
        size = 201 + 22 * seed
        rng, x, y = records(size, seed)
        odds = 2 * x[:, 2] + x[:, 3] ** 2
        odds = odds if levels is None else np.round(odds / 4 * levels) / levels
        member = rng.random(size) < 0.5
        given = {"data": (x, y), "included": member} if way == "coins" else split(x, y, member)
        audit = audit_model(model_of(x, y, odds), **given, resamples=0, seed=seed)
        assert audit.metadata.attack == "calibrated"
        said += audit.headline.low > 0
    assert said <= binom.ppf(0.999, calls, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["coins", "split"])
def test_a_known_epsilon_is_not_exceeded(way):
    # Randomised response on each record's membership, ε = 1 for a coin, hidden below the difficulty of records.
    over, proven, calls = 0, [], 12
    for seed in range(calls):
        rng, x, y = records(901, seed)
        member = rng.random(901) < 0.5
        told = member ^ (rng.random(901) < expit(-1.0))
        model = model_of(x, y, 3 * x[:, 2] + 2 * told)
        given = {"data": (x, y), "included": member} if way == "coins" else split(x, y, member)
        low = audit_model(model, **given, delta=0.0, **QUICK).headline.low
        over += low > (1.0 if way == "coins" else 2.0)
        proven.append(low)
    assert over <= binom.ppf(0.999, calls, 0.05)
    assert np.mean(proven) > 0.3


@pytest.mark.once
@pytest.mark.parametrize("copies", [1, 5])
def test_who_is_a_member_has_no_part_in_a_score(copies):
    rng, x, y = records(401, 3)
    x[:, 1:] = np.repeat(x[:, 1:], copies, axis=0)[:401]
    y = (x[:, 1] > 0).astype(int)
    odds = x[:, 2] + np.repeat(rng.normal(size=401), copies)[:401]
    if copies > 1:
        x[:, 0] = np.arange(401) // copies  # true copies of a record, on both sides
    model = model_of(x, y, odds)
    found = []
    for seed in range(3):
        member = np.random.default_rng(seed).random(401) < 0.5
        audit = audit_model(model, **split(x, y, member), **QUICK)
        scores = np.empty(401)
        scores[member], scores[~member] = np.split(audit.record_risk.score, [member.sum()])
        found.append(scores)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def leaky(size=1201, seed=0):
    rng, x, y = records(size, seed)
    member = fair_coins(size, seed=seed)
    return model_of(x, y, 3 * x[:, 2] + 1.5 * member + 0.5 * rng.normal(size=size)), x, y, member


def test_calibration_finds_what_the_loss_does_not():
    model, x, y, member = leaky()
    audit = audit_model(model, data=(x, y), included=member, **QUICK)
    calibrated, loss = audit.details.attacks
    assert (calibrated.attack, calibrated.headline, loss.attack) == ("calibrated", True, "loss")
    assert calibrated.epsilon == audit.headline.low > loss.epsilon + 0.2
    assert calibrated.auc > loss.auc + 0.05
    plain = audit_model(model, data=(x, y), included=member, attack="loss", **QUICK)
    assert plain.headline.low == loss.epsilon
    assert plain.details.attacks == ()


def test_the_page_and_the_file_say_what_calibration_bought(tmp_path):
    model, x, y, member = leaky()
    audit = audit_model(model, data=(x, y), included=member, resamples=0)
    audit.to_html(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "What calibration bought" in page
    assert "calibrated (headline)" in page
    assert "non-members found at 1 % misses" in page
    again = Audit.from_json(audit.to_json())
    assert again.metadata.attack == "calibrated"
    assert [row.attack for row in again.details.attacks] == ["calibrated", "loss"]
    assert json.loads(audit.to_json())["metadata"]["references"] is None


@pytest.mark.parametrize("attack", ["calibrated-neighbours", "calibrated-class"])
def test_other_calibrations_can_be_asked_for(attack):
    model, x, y, member = leaky(601)
    audit = audit_model(model, data=(x, y), included=member, attack=attack, **QUICK)
    assert audit.metadata.attack == attack


def test_small_audits_take_the_loss_and_say_so_when_asked():
    model, x, y, member = leaky(199)
    assert audit_model(model, data=(x, y), included=member, **QUICK).metadata.attack is None
    with pytest.raises(InputError, match="takes labels and 200 records"):
        audit_model(model, data=(x, y), included=member, attack="calibrated", **QUICK)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"attack": "calibrated", "references": 4}, "takes the model alone"),
        ({"attack": "lira"}, "attack='lira' is for reference models"),
        ({"attack": "magic"}, "attack must be"),
    ],
)
def test_an_attack_that_does_not_fit_is_refused(options, sentence):
    model, x, y, member = leaky(301)
    with pytest.raises(InputError, match=sentence):
        audit_model(model, data=(x, y), included=member, **options)
