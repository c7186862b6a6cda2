"""The experiment on images with a trained generator: images, networks, attributes, and the rows of every group."""

import json
import tomllib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from test_reproduce import reproduce

torch = pytest.importorskip("torch")

RUN = reproduce.load("panoramia")
from dosimeter.attacks import image_classifier, stacked  # noqa: E402
from dosimeter.engine import Store  # noqa: E402
from dosimeter.generators import FlowMatching, SmoothedBootstrap  # noqa: E402
from dosimeter.models import MultiLabel  # noqa: E402
from experiments.panoramia import cifar, images, networks, stored, summary, trials  # noqa: E402

EXHIBITS = {exhibit.part: exhibit for exhibit in reproduce.exhibits("panoramia")}
SETTINGS = {
    "data": "made here",
    "attributes": False,
    "side": 8,
    "members": 350,
    "splits": [0.6, 0.2, 0.2],
    "steps": 2,
    "trials": {"velocity": 2, "image": 3},
    "start": 0.0,
    "low_pass": 0.75,
    "drop": 0.0,
    "starts": [0.0, 0.5],
    "shares": [1.0, 0.5],
    "mapped": 60,
    "width": 8,
    "batch": 64,
    "learning_rate": 0.002,
    "epochs": [1, 2, 3],
    "short_epochs": 1,
    "references": 3,
    "reference_epochs": 1,
    "controls": 1,
    "control_epochs": [1, 2, 3],
    "dp_resnet": [1, 2, 4, 6, 10, 15, 20],
    "dp_wide": [1, 2, 10, 15, 20],
    "dp_same": [20, 15],
    "dp_width": 8,
    "dp_epochs": 1,
    "dp_batch": 64,
    "dp_learning_rate": 0.005,
    "dp_other": {"dp_epochs": 2, "dp_batch": 128, "dp_learning_rate": 0.005},
    "first_seed": 0,
    "seeds": 1,
}
CIFAR_ONLY = {"trials", "short_epochs", "starts", "shares", "mapped", "controls", "control_epochs"}
CIFAR_ONLY |= {name for name in SETTINGS if name.startswith("dp_")}
ATTRIBUTES = {name: value for name, value in SETTINGS.items() if name not in CIFAR_ONLY} | {
    "attributes": True,
    "epochs": [1, 3],
    "drop": 0.2,
    "labeler_epochs": 1,
}


def pictures(name, sizes, seed):
    """Noise whose brightness says the class, in the form of a data set's parts."""
    rng = np.random.default_rng(seed)
    found = []
    for size in sizes:
        y = rng.integers(0, 10, size)
        found.append(((rng.uniform(size=(size, 8, 8, 3)) + y[:, None, None, None] / 10).astype(np.float32) / 2, y))
    return found


@pytest.fixture
def place(monkeypatch, tmp_path):
    """Images made here, results in a folder of the test, small generators, and judges that learn for a moment only."""
    boosted = stacked.boosted
    monkeypatch.setattr(stacked, "boosted", lambda seed, *, leaves, rounds: boosted(seed, leaves=4, rounds=5))
    quick = partial(image_classifier.image_judge, epochs=1)
    monkeypatch.setattr(image_classifier, "image_judge", quick)
    monkeypatch.setattr(trials, "image_judge", quick)
    monkeypatch.setattr(images, "parts", pictures)
    monkeypatch.setattr(stored, "FILE", tmp_path / "results.json")
    for module in (cifar, trials):
        monkeypatch.setattr(module, "FlowMatching", partial(FlowMatching, moves=2, width=8))
    RUN.audits.cache_clear()
    yield tmp_path
    RUN.audits.cache_clear()


def exhibits(place, parts):
    """What the exhibits of some parts make of the file of results."""
    known = {}
    for part in parts:
        reproduce.run("panoramia", "quick", None, known, place, part)
    return known["panoramia"]


# --- images and networks ----------------------------------------------------------------------------------


def test_small_images_are_means_over_squares():
    X = np.random.default_rng(0).uniform(size=(3, 16, 16, 3))
    means = (X[:, ::2, ::2] + X[:, 1::2, ::2] + X[:, ::2, 1::2] + X[:, 1::2, 1::2]) / 4
    assert np.allclose(images.small(X, 8), means)


def test_the_map_keeps_slow_waves_and_removes_fast_ones():
    at = np.arange(16) + 0.5
    slow, fast = (np.tile(np.cos(np.pi * k * at / 16)[:, None, None], (1, 16, 3))[None] for k in (3, 12))
    assert np.allclose(images.low_pass(slow + fast, 0.5), slow, atol=1e-12)
    whole = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3)).astype(np.uint8)
    assert images.low_pass(whole, 1.0) is whole
    smooth = images.low_pass(whole, 0.5)
    assert smooth.dtype == np.uint8 and smooth.std() < whole.std()


def test_a_mapped_generator_learns_from_the_originals_and_its_images_are_mapped():
    whole = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3)).astype(np.uint8)

    class Same:
        name, minimum = "the same", 1

        def fit(self, members, *, seed):
            self.members = members
            return self

        def sample(self, count, *, seed):
            return tuple(part[:count] for part in self.members)

    rows = np.arange(59, 9, -1)
    fitted = images.LowPassed(Same(), 0.5, whole).fit((images.low_pass(whole, 0.5)[rows], rows), seed=0)
    assert np.array_equal(fitted.inner.members[0], whole[rows])
    made, y = fitted.sample(20, seed=1)
    assert np.array_equal(made, images.low_pass(whole[rows[:20]], 0.5)) and np.array_equal(y, rows[:20])


def test_members_others_and_fresh_images_are_apart(monkeypatch, place):
    found = images.drawn(SETTINGS, 0)
    assert [X.shape for X, _ in found] == [(350, 8, 8, 3)] * 3 and found[0][0].dtype == np.uint8
    controls = cifar.networks("controls", found, SETTINGS, 0, None)
    assert list(controls.modules) == [f"never saw them 1, {k} epochs" for k in (1, 2, 3)]
    same = networks.trained("plain", *found[2], SETTINGS, [1, 2, 3], 1)[1]
    assert np.array_equal(
        networks.outputs(controls.modules["never saw them 1, 1 epochs"], found[0][0][:5]),
        networks.outputs(same, found[0][0][:5]),
    )


def test_attributes_follow_class_and_pixels():
    X = np.zeros((3, 8, 8, 1))
    X[1, :4], X[2, 4:] = 1.0, 1.0
    codes = images.attributes(X, np.array([9, 4, 3]))
    told = [{name for name, holds in zip(images.ATTRIBUTES, images.SETS[code], strict=True) if holds} for code in codes]
    assert told == [
        {"for the feet"},
        {"covers the trunk", "long sleeves", "opens in front", "bright", "brighter above"},
        {"covers the trunk", "covers the legs", "bright"},
    ]


def test_others_have_labels_of_several_members(place):
    inside, *others = images.drawn(ATTRIBUTES, 0)
    assert len(inside[0]) == 350
    rare = {code for code, count in zip(*np.unique(inside[1], return_counts=True), strict=True) if count < 10}
    assert rare and all(not rare & set(y.tolist()) and len(X) == len(y) for X, y in others)


def test_wider_and_residual_networks_are_larger():
    sizes = [sum(p.numel() for p in networks.network(kind, 8).parameters()) for kind in networks.NETWORKS]
    assert sizes == sorted(sizes) and len(set(sizes)) == 3
    assert networks.network("wide", 8)(torch.zeros(2, 3, 16, 16)).shape == (2, 10)


def test_networks_on_the_way_are_those_of_one_training_and_come_back_from_the_store(place):
    (X, y), *_ = images.drawn(SETTINGS, 0)
    store = Store(place / "store")
    both, alone = (networks.trained("plain", X, y, SETTINGS, e, 5, store) for e in ([1, 3], [1]))
    again = networks.trained("plain", X, y, SETTINGS, [1, 3], 5, store)
    asked = [networks.outputs(module, X[:9]) for module in (both[1], alone[1], both[3], again[3])]
    assert np.array_equal(asked[0], asked[1]) and not np.allclose(asked[0], asked[2])
    assert np.allclose(asked[2], asked[3], atol=1e-5)  # the layout in memory differs
    other = networks.trained("plain", X, 9 - y, SETTINGS, [1, 3], 5, store)  # other labels, another training
    assert not np.allclose(networks.outputs(other[3], X[:9]), asked[2])


def test_the_loss_of_a_set_is_that_of_its_labels_together(place):
    (X, y), *_ = images.drawn(ATTRIBUTES, 0)
    module = networks.trained("plain", X, y, ATTRIBUTES, [1], 0)[1]
    expected = MultiLabel(partial(networks.outputs, module), outputs="logits").losses(X, images.SETS[y])
    found = networks.asked(module, ATTRIBUTES).losses(X, y)
    assert np.allclose(found.values, expected.values, atol=1e-4)
    right = (networks.outputs(module, X) > 0) == (images.SETS[y] == 1)
    assert networks.accuracy(module, X, y, ATTRIBUTES) == pytest.approx(right.mean())


def test_a_labeler_draws_sets_that_members_have(place):
    (X, y), *_ = images.drawn(ATTRIBUTES, 0)
    dull = replace(SmoothedBootstrap(), minimum=50)
    made = networks.Labelled(dull, ATTRIBUTES).fit((X, y), seed=0).sample(40, seed=1)
    assert made[0].shape == (40, 8, 8, 3) and set(made[1]) <= set(y.tolist()) and len(set(made[1].tolist())) > 1


@pytest.mark.parametrize("kind", ["residual", "wide"])
def test_networks_with_dp_are_trained(place, kind):
    (X, y), *_ = images.drawn(SETTINGS, 0)
    found = networks.private(kind, X[:100], y[:100], 10, SETTINGS, 0, None)
    start = networks.network(kind, 8)
    assert np.isfinite(networks.outputs(found, X[:20])).all()
    assert sum(p.numel() for p in found.parameters()) == sum(p.numel() for p in start.parameters())


# --- rows and exhibits ------------------------------------------------------------------------------------


def test_the_lengths_fill_their_exhibits_and_are_not_computed_again(place, monkeypatch, capsys):
    rows = cifar.audited("lengths", SETTINGS, "quick", 0, Store(place / "store"))
    assert json.loads(json.dumps(rows)) == rows and [row["key"] for row in rows] == ["cifar10", "generator"]
    stored.keep(rows)
    (row, generator) = stored.kept()
    assert [target["name"] for target in row["targets"]] == ["1 epochs", "2 epochs", "3 epochs"]
    assert row["thesis"]["c_lb"] >= 0 and row["judge_auc"] == generator["judge_auc"] == row["judges"][row["judge"]]
    assert [(one["start"], one["share"]) for one in generator["maps"]] == [(0, 1), (0, 0.5), (0.5, 1), (0.5, 0.5)]
    parts = [f"{part}-cifar10" for part in ("tab61", "tab71", "fig81", "fig82", "tab81", "fig83")] + ["fig61", "fig71"]
    found = exhibits(place, parts)
    assert all("value" in entry for entry in found["rows"].values())
    assert set(found["rows"]) == {name for part in parts for name in EXHIBITS[part].asked("quick")}
    config = {"cifar": {"quick": SETTINGS}}
    monkeypatch.setattr(cifar.tomllib, "loads", lambda _: config)
    monkeypatch.setattr(cifar, "audited", lambda *_: pytest.fail("the rows are there"))
    cifar.main(["quick", "lengths"])
    assert "lengths, seed 0: cifar10" in capsys.readouterr().out


def test_other_ways_are_tried_with_every_map(place, monkeypatch, capsys):
    monkeypatch.setattr(cifar.tomllib, "loads", lambda _: {"cifar": {"quick": SETTINGS}})
    cifar.main(["quick", "trials"])
    assert "| image | 3 | auto-encoder | 48 |" in capsys.readouterr().out
    ((row,), kept) = stored.kept(), [("none", 192), ("low frequencies, 0.5", 48), ("auto-encoder", 48)]
    ways = [(one["prediction"], one["steps"], one["map"], one["numbers"]) for one in row["tried"]]
    assert ways == [(*way, *one) for way in (("velocity", 2), ("image", 3)) for one in kept]
    assert row["learnt"] == 210 and all(0 <= one["auc"] <= 1 for one in row["tried"])


def test_an_auto_encoder_keeps_what_its_images_have_in_common():
    (X, _), (others, _) = pictures("", (300, 300), 0)
    X, others = (
        np.rint(255 * images.small(part, 4).repeat(2, 1).repeat(2, 2)).astype(np.uint8) for part in (X, others)
    )
    seen = trials.auto_encoder(others, 12, seed=0)(X)
    assert seen.dtype == np.uint8 and seen.shape == X.shape
    apart = [np.mean((side - X.astype(float)) ** 2) for side in (seen, np.broadcast_to(others.mean(axis=0), X.shape))]
    assert apart[0] < 0.3 * apart[1]


def test_the_attributes_fill_their_exhibits(place):
    stored.keep(cifar.audited("attributes", ATTRIBUTES, "quick", 0, None))
    parts = [f"{part}-celeba" for part in ("tab61", "tab71", "fig81", "fig82", "tab81", "fig83")] + ["fig84"]
    found = exhibits(place, parts)
    assert set(found["rows"]) == {name for part in parts for name in EXHIBITS[part].asked("quick")}
    assert all("value" in entry for entry in found["rows"].values())
    (row,) = stored.rows("celeba", "quick")
    assert set(row["losses"]) == {"1 epochs", "3 epochs"} and len(row["losses"]["1 epochs"]["generated"]) == 41


def test_sizes_and_private_networks_fill_their_exhibits(place, monkeypatch):
    """Networks with DP-SGD are trained elsewhere; here networks that learnt nothing take their place."""
    monkeypatch.setattr(cifar, "private", lambda kind, X, y, epsilon, settings, seed, store: networks.network(kind, 8))
    monkeypatch.setattr(cifar, "generator_of", lambda *_: replace(SmoothedBootstrap(), minimum=50))
    for group in ("sizes", "private"):
        stored.keep(cifar.audited(group, SETTINGS, "quick", 0, None))
    parts = ("fig86a", "fig86b", "tab82", "tab83", "tab84")
    found = exhibits(place, parts)
    assert set(found["rows"]) == {name for part in parts for name in EXHIBITS[part].asked("quick")}
    assert all("value" in entry for entry in found["rows"].values())
    same = stored.rows("dp.same", "quick")
    assert [[target["dp"] for target in row["targets"]] for row in same] == [[20, 20], [15, 15]]
    assert [target["dp"] for target in stored.rows("dp.wide", "quick")[0]["targets"]] == [1, 2, 10, 15, 20, None]
    assert [t["name"] for t in stored.rows("sizes", "quick")[0]["targets"]] == list(networks.NETWORKS)


def test_a_row_takes_the_place_of_the_same_row(place):
    told = {"key": "cifar10", "size": "quick", "seed": 0, "data": "cifar10", "side": 16}
    stored.keep([{**told, "c_lb": 1.0}, {**told, "key": "sizes"}])
    stored.keep([{**told, "c_lb": 2.0}, {**told, "seed": 1, "c_lb": 3.0}])
    assert [row["c_lb"] for row in stored.rows("cifar10", "quick")] == [2.0, 3.0]
    stored.keep([{**told, "size": "full", "c_lb": 4.0}])
    assert [row["c_lb"] for row in stored.rows("cifar10", "full")] == [4.0]
    assert [row["c_lb"] for row in stored.rows("cifar10", "quick")] == [2.0, 3.0]  # sizes are not mixed
    with pytest.raises(reproduce.book.NotRunError):
        stored.rows("sizes", "full")


def test_groups_have_settings_and_rows_have_groups():
    config = tomllib.loads(cifar.CONFIG.read_text(encoding="utf-8"))
    for size in cifar.SIZES:
        assert set(config["cifar"][size]) == set(SETTINGS) and set(config["attributes"][size]) == set(ATTRIBUTES)
    keys = {key for some in cifar.KEYS.values() for key in some}
    assert all(row["key"] in keys and row["size"] in cifar.SIZES for row in stored.kept())
    with pytest.raises(SystemExit):
        cifar.main(["quick", "widths"])
    assert summary.quantiles({"a": {"b": [0.0, 1.0]}})["a"]["b"][20] == 0.5
