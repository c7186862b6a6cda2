"""Trained models are kept: what is stored is not trained again, what has changed is, and a killed run resumes."""

import multiprocessing
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sample_models

from dosimeter.engine import DamagedEntryWarning, Store
from dosimeter.training import Neighbour, Privacy, Recipe, train_foreign, train_many

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")

X, Y = sample_models.images(60)
MEMBERS = sample_models.halves(8, 60)
SEEDS = list(range(8))
RECIPE = Recipe(epochs=2, batch_size=16)


def train(store, **changes):
    given = {"factory": sample_models.dense_net, "recipe": RECIPE, "data": (X, Y), "memberships": MEMBERS}
    given |= {"seeds": SEEDS, "evaluate_on": "data", "return_models": True, "store": store, **changes}
    return list(train_many(**given))


def same(some, others):
    for one, other in zip(some, others, strict=True):
        assert one.outputs.tobytes() == other.outputs.tobytes()
        assert {n: a.tobytes() for n, a in one.state.items()} == {n: a.tobytes() for n, a in other.state.items()}
        assert (one.index, one.seed, one.accuracy, one.failed) == (other.index, other.seed, other.accuracy, None)


def test_what_is_stored_is_not_trained_again(tmp_path):
    store = Store(tmp_path)
    first = train(store)
    again = train(store)
    assert not any(one.cached for one in first) and all(one.cached for one in again)
    same(first, again)
    same(first, train(None))
    assert all(one.cached for one in train(store, workers=2))  # the engine is no part of the key
    transcripts = {"recipe": replace(RECIPE, batch_size=None, dp=Privacy(1.0)), "neighbour": Neighbour(removed=0)}
    watched, again = train(store, **transcripts), train(store, **transcripts)
    assert all(one.cached for one in again)
    for one, other in zip(watched, again, strict=True):
        assert one.transcript.distances.tobytes() == other.transcript.distances.tobytes()


def gelu_net():
    net = sample_models.dense_net()
    net[2] = torch.nn.GELU()
    return net


class Scaled(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.inside, self.factor = sample_models.dense_net(), factor

    def forward(self, x):
        return self.factor * self.inside(x)


CHANGES = {
    "recipe": {"recipe": replace(RECIPE, learning_rate=0.11)},
    "record": {"data": (X + np.eye(1, 60).reshape(60, 1, 1, 1).astype(np.float32), Y)},
    "label": {"data": (X, np.where(np.arange(60) == 7, (Y + 1) % 3, Y))},
    "members": {"memberships": sample_models.halves(8, 60, seed=1)},
    "seeds": {"seeds": [*SEEDS[1:], 99]},
    "layer": {"factory": gelu_net},
    "question": {"evaluate_on": X[:5]},
    "strategy": {"strategy": "functional"},
    "group": {"group": 2},  # the last bits may depend on it
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_finds_nothing_old(tmp_path, change):
    store = Store(tmp_path)
    train(store)
    assert not any(one.cached for one in train(store, **CHANGES[change]))


def test_more_models_begin_with_the_groups_that_are_stored(tmp_path):
    def found(models):
        rows, seeds = sample_models.halves(14, 60)[:models], list(range(models))
        return [one.cached for one in train(Store(tmp_path), memberships=rows, seeds=seeds, group=4)]

    assert found(8) == [False] * 8
    assert found(9) == [True] * 8 + [False]
    assert found(14) == [True] * 8 + [False] * 6  # the ninth was stored as a group of one


def test_a_number_in_the_forward_counts(tmp_path):
    store = Store(tmp_path)
    assert not train(store, factory=lambda: Scaled(1.0))[0].cached
    assert train(store, factory=lambda: Scaled(1.0))[0].cached
    assert not train(store, factory=lambda: Scaled(2.0))[0].cached


def test_a_flipped_byte_is_trained_again(tmp_path):
    store = Store(tmp_path)
    first = train(store)
    file = next(tmp_path.glob("*/*.npz"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.warns(DamagedEntryWarning):
        again = train(store)
    same(first, again)
    assert 0 < sum(one.cached for one in again) < 8


def test_a_model_that_fails_is_kept_as_failed(tmp_path):
    wild = X.copy()
    wild[0] = 3e38
    members = np.ones((3, 60), bool)
    members[1:, 0] = False
    for cached in (False, True):
        found = train(Store(tmp_path), data=(wild, Y), memberships=members, seeds=[5, 6, 7])
        assert "seed 5" in found[0].failed and found[0].outputs is None
        assert [one.failed for one in found[1:]] == [None, None]
        assert [one.cached for one in found] == [cached] * 3
    assert found[1].outputs.shape == (60, 3)


SIXTY = (
    sample_models.dense_net,
    Recipe(epochs=12, batch_size=8, sampling="poisson", dp=Privacy(1.0)),
    (X, Y),
    sample_models.halves(60, 60),
    list(range(60)),
)


def sixty(store, pipe=None):
    found = list(train_many(*SIXTY, evaluate_on="data", group=4, workers=1, store=store))
    if pipe is not None:
        pipe.send(sum(one.cached for one in found))
    return found


@pytest.fixture
def one_thread():
    """A forked process would hang in threads that it has not inherited."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(sys.platform == "win32", reason="kills forked processes")
@pytest.mark.slow
def test_sixty_models_killed_ten_times(tmp_path, one_thread):
    store, rng, kills = Store(tmp_path / "store"), random.Random(1), 0
    fork = multiprocessing.get_context("fork")  # a new interpreter would import torch each time

    def start():
        ours, theirs = fork.Pipe()
        process = fork.Process(target=sixty, args=(store, theirs))
        process.start()
        return process, ours

    while kills < 10:
        before, (process, _) = len(store.ls()), start()
        while len(store.ls()) == before and process.is_alive():
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.1))
        if not process.is_alive():
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
    assert kills >= 5
    kept = len(store.ls())
    assert 0 < kept <= 15
    process, answer = start()
    assert answer.poll(120)
    assert answer.recv() == 4 * kept  # what was stored was not trained again
    process.join()
    assert store.verify() == []
    for one, other in zip(sixty(store), sixty(None), strict=True):
        assert one.cached and one.outputs.tobytes() == other.outputs.tobytes()


FLAT = X.reshape(60, -1)


def tree(indices, seed):
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=seed).fit(FLAT[indices], Y[indices])


def test_foreign_trainings_are_kept(tmp_path):
    store = Store(tmp_path)
    first, again = (list(train_foreign(tree, MEMBERS, SEEDS, FLAT, store=store)) for _ in range(2))
    assert not any(one.cached for one in first) and all(one.cached for one in again)
    for one, other in zip(first, again, strict=True):
        assert one.outputs.tobytes() == other.outputs.tobytes()
    other = list(train_foreign(lambda rows, seed: tree(rows, seed), MEMBERS, SEEDS, FLAT, store=store))
    assert not any(one.cached for one in other)
    newer = list(train_foreign(tree, MEMBERS, SEEDS, FLAT, store=store, version="2"))
    assert not any(one.cached for one in newer)


def test_a_training_that_raises_is_tried_again_and_reported(tmp_path):
    calls = []

    def fragile(indices, seed):
        calls.append(seed)
        if seed == 3:
            raise ValueError("no luck")
        return tree(indices, seed)

    found = list(train_foreign(fragile, MEMBERS, SEEDS, FLAT, store=Store(tmp_path)))
    assert [one.failed is None for one in found] == [seed != 3 for seed in SEEDS]
    assert calls.count(3) == 2
    assert "seed 3" in found[3].failed and "ValueError: no luck" in found[3].failed
    log = Path(found[3].failed.split("(see ")[1].rstrip(")"))
    assert "raise ValueError" in log.read_text()


def test_ray_trains_the_same(tmp_path):
    pytest.importorskip("ray", reason="dosimeter[ray]")
    same(train(None), train(Store(tmp_path), engine="ray", workers=2))
