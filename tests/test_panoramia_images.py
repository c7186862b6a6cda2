"""The experiment on images: small images, networks looked at on the way, DP-SGD, and what is kept of an audit."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from experiments.panoramia import images  # noqa: E402

SETTINGS = {
    "members": 400,
    "side": 8,
    "width": 4,
    "batch": 64,
    "learning_rate": 0.005,
    "epochs": [1, 3],
    "references": 3,
}


def pictures(count=800, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, count)
    X = rng.uniform(size=(count, 16, 16, 3)) + y[:, None, None, None] / 10
    return X.astype(np.float32), y


def test_small_images_are_means_over_squares():
    X, _ = pictures(3)
    found = images.small(X, 8)
    assert found.shape == (3, 8, 8, 3)
    assert np.allclose(found, (X[:, ::2, ::2] + X[:, 1::2, ::2] + X[:, ::2, 1::2] + X[:, 1::2, 1::2]) / 4)


def test_networks_on_the_way_are_those_of_shorter_trainings():
    X, y = pictures(200)
    X = images.small(X, 8)
    both, short = images.networks(X, y, SETTINGS, 5), images.networks(X, y, {**SETTINGS, "epochs": [1]}, 5)
    assert list(both) == [1, 3]
    asked = [images._asked(module)(X) for module in (both[1], short[1], both[3])]
    assert np.array_equal(asked[0], asked[1]) and not np.allclose(asked[0], asked[2])


def test_a_control_learns_from_other_images(monkeypatch):
    X, y = pictures(1200)
    asked, given, networks = [], [], images.networks

    def parts(name, sizes, seed):
        asked.append(list(sizes))
        return [(X[at : at + 400], y[at : at + 400]) for at in (0, 400, 800)][: len(sizes)]

    def spied(rows, labels, settings, seed):
        given.append(rows)
        return networks(rows, labels, settings, seed)

    monkeypatch.setattr(images, "parts", parts)
    monkeypatch.setattr(images, "networks", spied)
    images.audited({**SETTINGS, "control": True}, 3)
    assert asked == [[400] * 3]
    assert np.array_equal(given[0], images.small(X[800:], SETTINGS["side"]))


def test_an_audit_is_kept_as_plain_numbers(monkeypatch):
    X, y = pictures()
    monkeypatch.setattr(images, "parts", lambda name, sizes, seed: [(X[:400], y[:400]), (X[400:], y[400:])])
    settings = {**SETTINGS, "dp": [2.0], "dp_batch": 100, "dp_learning_rate": 0.005}
    row = json.loads(json.dumps(images.audited(settings, 3)))
    assert [target["name"] for target in row["targets"]] == ["DP, ε = 2", "1 epochs", "3 epochs"]
    assert row["members"] == 400 and row["seed"] == 3 and row["real"] is not None
    for target in row["targets"]:
        assert 0 <= target["train"] <= 1 and 0 <= target["test"] <= 1 and target["epsilon"] >= 0
