"""The experiment on CIFAR-10 with a trained generator: its networks, groups and rows."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from experiments.panoramia import cifar  # noqa: E402

SETTINGS = {
    "side": 8,
    "members": 350,
    "splits": [0.6, 0.2, 0.2],
    "steps": 2,
    "start": 0.0,
    "width": 8,
    "batch": 64,
    "learning_rate": 0.002,
    "epochs": [1, 2],
    "dp": [10],
    "dp_epochs": 1,
    "dp_batch": 64,
    "dp_learning_rate": 0.005,
    "controls": 1,
    "references": 3,
    "first_seed": 0,
    "seeds": 1,
}


@pytest.fixture
def pictures(monkeypatch):
    def parts(name, sizes, seed):
        rng = np.random.default_rng(seed)
        found = []
        for size in sizes:
            y = rng.integers(0, 10, size)
            found.append(((rng.uniform(size=(size, 8, 8, 3)) + y[:, None, None, None] / 10).astype(np.float32) / 2, y))
        return found

    monkeypatch.setattr(cifar, "parts", parts)


def test_wider_and_residual_networks_are_larger():
    sizes = [sum(p.numel() for p in cifar.network(kind, 8).parameters()) for kind in cifar.NETWORKS]
    assert sizes == sorted(sizes) and len(set(sizes)) == 3
    assert cifar.network("wide", 8)(torch.zeros(2, 3, 16, 16)).shape == (2, 10)


def test_members_others_and_fresh_images_are_apart(pictures):
    drawn = cifar.images(SETTINGS, 0)
    assert [X.shape for X, _ in drawn] == [(350, 8, 8, 3)] * 3 and drawn[0][0].dtype == np.uint8
    found = cifar.targets("controls", drawn, SETTINGS, 0, None)
    assert list(found) == ["never saw them 1, 1 epochs", "never saw them 1, 2 epochs"]
    same = cifar.trained("plain", *drawn[2], SETTINGS, [1], 1)[1]
    X = cifar._planes(drawn[0][0][:5])
    with torch.inference_mode():
        assert torch.equal(found["never saw them 1, 1 epochs"][0](X), same(X))


def test_rows_of_a_group(pictures):
    rows = cifar.audited("lengths", SETTINGS, 0, None)
    assert [row["target"] for row in rows] == ["1 epochs", "2 epochs"]
    assert json.loads(json.dumps(rows)) == rows
    assert {row["key"] for row in rows} == {f"8 pixels | 350 members | lengths | 0 | {n} epochs" for n in (1, 2)}
    row = rows[0]
    assert (
        0 <= row["epsilon"] <= row["c_plus_epsilon_lb"]
        and row["judge"] in row["judges"]
        and row["decides"] in (True, False)
    )
    assert cifar.table(rows).count("\n") == 3


def test_what_is_measured_has_the_settings_of_the_file():
    import tomllib

    config = tomllib.loads((cifar.FOLDER / "config.toml").read_text(encoding="utf-8"))["cifar"]
    assert all(set(config[size]) == set(SETTINGS) for size in cifar.SIZES)
    assert all(row["key"].split(" | ")[2] in cifar.GROUPS for row in cifar.rows())


def test_networks_with_dp_and_of_other_sizes_are_trained(pictures):
    drawn = cifar.images(SETTINGS, 0)
    found = cifar.targets("private", drawn, SETTINGS, 0, None) | cifar.targets("sizes", drawn, SETTINGS, 0, None)
    assert {name: (what["network"], what["dp"]) for name, (_, what) in found.items()} == {
        "DP, ε = 10": ("plain", 10),
        **{kind: (kind, None) for kind in cifar.NETWORKS},
    }
    for module, _ in found.values():
        assert np.isfinite(cifar._asked(module)(drawn[1][0][:20])).all()
