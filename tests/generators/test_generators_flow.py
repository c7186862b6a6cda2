"""Flow matching: the space of its noise, forms, classes, a training that resumes, what is kept, bad input."""

import numpy as np
import pytest

from dosimeter._validate import InputError
from dosimeter.engine import Store
from dosimeter.generators import FlowMatching, check_copies, nearest_members, same_shape

torch = pytest.importorskip("torch")

from dosimeter.generators import flow_training  # noqa: E402
from dosimeter.generators.flow_network import colour_space, flow_network  # noqa: E402

SMALL = FlowMatching(steps=60, width=8, batch=32, moves=8, learning_rate=5e-3)


def halves(count=240, seed=0, size=8):
    """Grey images with a bright upper half (class 0) or lower half (class 1), and some noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    X = rng.uniform(0.0, 0.15, (count, size, size)) + rng.uniform(0.0, 0.2, (count, 1, 1))
    for code in (0, 1):
        X[y == code, code * size // 2 : (code + 1) * size // 2] += 0.5
    return np.rint(200 * X).astype(np.uint8), y


@pytest.fixture(scope="module")
def fitted():
    return SMALL.fit(halves(), seed=0)


def test_images_look_like_their_class_and_are_not_members(fitted):
    members = halves()
    X, y = fitted.sample(80, seed=1)
    same_shape(members, (X, y), count=80)
    lower = X[:, 4:].mean(axis=(1, 2)) > X[:, :4].mean(axis=(1, 2))
    assert np.mean(lower == (y == 1)) > 0.9
    assert X.min() >= members[0].min() and X.max() <= members[0].max()
    assert check_copies(members, (X, y)) == 0


def test_the_seeds_decide_and_torch_stays_as_it_was(fitted):
    assert np.array_equal(fitted.sample(20, seed=2)[0], fitted.sample(20, seed=2)[0])
    assert not np.array_equal(fitted.sample(20, seed=2)[0], fitted.sample(20, seed=3)[0])
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    quick = FlowMatching(steps=2, width=8, moves=1)
    made = [quick.fit(halves(), seed=seed).sample(4, seed=0)[0] for seed in (0, 0, 1)]
    assert np.array_equal(made[0], made[1]) and not np.array_equal(made[0], made[2])
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_start_on_the_way_keeps_what_a_member_looks_like():
    X, y = halves()
    untrained = {"steps": 1, "width": 8, "moves": 2}
    near = [
        float(
            np.median(
                nearest_members(X, FlowMatching(start=start, **untrained).fit((X, y), seed=0).sample(60, seed=1)[0])
            )
        )
        for start in (0.0, 0.95)
    ]
    assert near[1] > 0.98 > near[0]


@pytest.mark.parametrize("shape", [(6, 5), (7, 9, 3), (3, 6, 10), (9, 8, 1)])
def test_every_form_of_images_comes_back(shape):
    X = np.random.default_rng(0).normal(size=(200, *shape)).astype(np.float32)
    made = FlowMatching(steps=2, width=8, moves=1, flips=True).fit(X, seed=0).sample(5, seed=0)
    same_shape(X, made, count=5)


def test_without_labels_on_request():
    made = FlowMatching(steps=2, width=8, moves=1, conditional=False).fit(halves(), seed=0).sample(5, seed=0)
    assert isinstance(made, np.ndarray) and made.shape == (5, 8, 8)


def test_noise_has_the_power_of_the_images_in_every_colour_and_frequency():
    rng = np.random.default_rng(0)
    wide = np.repeat(rng.normal(size=(2000, 1, 4, 4)), 2, axis=3)
    fine = 0.5 * rng.normal(size=(2000, 1, 4, 8))
    mixed = np.array([[1.0, 0.5], [-0.5, 1.0]])
    planes = np.einsum("dc,nchw->ndhw", mixed, np.concatenate([wide, fine], axis=1)).astype(np.float32) + 3.0
    space = colour_space(planes)
    inside = space.inside(planes)
    assert np.allclose(space.outside(inside), planes, atol=1e-4)
    assert np.allclose(np.cov(np.moveaxis(inside, 1, 0).reshape(2, -1)), np.eye(2), atol=0.02)
    noise = space.outside(space.noise(2000, rng))
    covariances = [np.cov(np.moveaxis(part - part.mean(axis=0), 1, 0).reshape(2, -1)) for part in (noise, planes)]
    assert np.allclose(*covariances, atol=0.05)
    apart = [np.linalg.solve(mixed, np.moveaxis(part, 1, 0).reshape(2, -1)) for part in (noise, planes)]
    steps = [(np.diff(part.reshape(2, -1, 8)) ** 2).mean(axis=(1, 2)) for part in apart]
    assert np.allclose(*steps, rtol=0.1) and steps[0][0] < 1.0  # white noise would have 2


def test_a_new_network_does_not_move_the_noise():
    network = flow_network(torch, 3, 2, 8)
    x = torch.randn(2, 3, 8, 8)
    assert (network(x, torch.tensor([0.1, 0.9]), torch.tensor([0, 1])) == 0).all()


def test_a_stopped_training_resumes_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(flow_training, "CHUNK", 2)
    recipe = {"steps": 6, "width": 8, "batch": 8, "moves": 2, "learning_rate": 0.01}
    whole = FlowMatching(**recipe).fit(halves(), seed=0).sample(6, seed=1)[0]
    kept = FlowMatching(**recipe, store=Store(tmp_path / "store"))
    trained, chunks = flow_training._train, []

    def stopped(*arguments):
        if len(chunks) == 2:
            raise KeyboardInterrupt
        chunks.append(arguments)
        trained(*arguments)

    monkeypatch.setattr(flow_training, "_train", stopped)
    with pytest.raises(KeyboardInterrupt):
        kept.fit(halves(), seed=0)
    chunks.clear()
    assert np.array_equal(kept.fit(halves(), seed=0).sample(6, seed=1)[0], whole)
    assert len(chunks) == 1  # the last one alone
    chunks.clear()
    again = kept.fit(halves(), seed=0)
    monkeypatch.setattr(type(again), "_made", None)  # images that were made before are not made again
    assert np.array_equal(again.sample(6, seed=1)[0], whole) and not chunks
    assert len(kept.store.ls()) == 2  # the network and the images; checkpoints are gone


def test_the_rate_rises_and_falls():
    recipe = flow_training.FlowRecipe(1000, False, "velocity", 8, 8, 0.01)
    assert recipe.rate(0) == pytest.approx(1e-4) and recipe.rate(500) == 0.01
    assert recipe.rate(999) < 1e-5 and recipe.rate(850) == pytest.approx(0.005, rel=1e-3)


@pytest.mark.parametrize("prediction", ["velocity", "image"])
def test_training_lowers_the_error(prediction):
    X, y = halves(480)
    made = [
        FlowMatching(steps=steps, width=8, batch=32, moves=8, learning_rate=5e-3, prediction=prediction)
        .fit(X[y == 0], seed=0)
        .sample(40, seed=1)
        .mean(axis=0)
        for steps in (1, 60)
    ]
    real = X[y == 0].mean(axis=0)
    assert np.abs(made[1] - real).mean() < max(12.0, np.abs(made[0] - real).mean())


@pytest.mark.parametrize(
    ("generator", "members", "message"),
    [
        (FlowMatching(), np.zeros((20, 8, 8)), "at least 200 members, got 20"),
        (FlowMatching(), np.zeros((300, 4)), "needs images, got tables"),
        (FlowMatching(steps=0), np.zeros((300, 8, 8)), "steps"),
        (FlowMatching(width=10), np.zeros((300, 8, 8)), "multiple of 8, got 10"),
        (FlowMatching(start=1.0), np.zeros((300, 8, 8)), "start"),
        (FlowMatching(prediction="noise"), np.zeros((300, 8, 8)), "prediction"),
        (FlowMatching(flips=2), np.zeros((300, 8, 8)), "flips"),
        (FlowMatching(store="folder"), np.zeros((300, 8, 8)), "store must be a Store"),
    ],
)
def test_bad_input_is_refused_before_the_training(generator, members, message):
    with pytest.raises(InputError, match=message):
        generator.fit(members, seed=0)
