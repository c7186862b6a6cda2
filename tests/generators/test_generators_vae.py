"""The convolutional VAE: forms, classes, repeatability, bad input."""

import numpy as np
import pytest

from dosimeter._validate import InputError
from dosimeter.generators import ConvolutionalVae, check_copies, same_shape
from dosimeter.generators.pixels import read_images
from dosimeter.generators.protocol import read_members

torch = pytest.importorskip("torch")

from dosimeter.generators.vae import framed, unframed  # noqa: E402

SMALL = ConvolutionalVae(latent=4, width=8, epochs=40, learning_rate=1e-2)


def blobs(count=300, size=8, seed=0):
    """A bright spot in the upper half (class 0) or the lower half (class 1); the last column is black."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    row, column = 1 + y * size // 2, rng.integers(1, 6, count)
    place = np.arange(size)
    distance = (place[:, None] - row[:, None, None]) ** 2 + (place - column[:, None, None]) ** 2
    X = np.exp(-distance / 2.0) * rng.uniform(0.7, 1.0, (count, 1, 1))
    X[:, :, -1] = 0
    return X.astype(np.float32), y


@pytest.fixture(scope="module")
def fitted():
    return SMALL.fit(blobs(400), seed=0)


def test_images_look_like_their_class(fitted):
    members = blobs(400)
    X, y = fitted.sample(400, seed=1)
    same_shape(members, (X, y), count=400)
    assert (X[:, :, -1] == 0).all() and np.isin(X, members[0]).all()
    lower = X[:, 4:].sum(axis=(1, 2)) > X[:, :4].sum(axis=(1, 2))
    assert np.mean(lower == (y == 1)) > 0.9
    assert check_copies(members, (X, y)) == 0
    bright = [images.max(axis=(1, 2)).mean() for images in (members[0], X)]
    assert bright[1] > 0.6 * bright[0]  # spots, not an even grey


def test_the_seeds_decide(fitted):
    first, _ = fitted.sample(30, seed=2)
    assert np.array_equal(first, fitted.sample(30, seed=2)[0])
    assert not np.array_equal(first, fitted.sample(30, seed=3)[0])
    quick = ConvolutionalVae(latent=2, width=4, epochs=1)
    members = blobs(200)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    made = [quick.fit(members, seed=s).sample(5, seed=0)[0] for s in (0, 0, 1)]
    assert np.array_equal(made[0], made[1]) and not np.array_equal(made[0], made[2])
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("shape", [(6, 5), (7, 9, 3), (3, 6, 10), (5, 5, 1)])
def test_frames_are_undone(shape):
    X = np.random.default_rng(0).uniform(size=(4, *shape)).astype(np.float32)
    X.reshape(-1)[:2] = 0, 1  # so that the range is kept as it is
    planes = framed(read_images(read_members(X)))
    assert planes.shape[2] % 4 == 0 and planes.shape[3] % 4 == 0
    assert np.allclose(unframed(planes, shape).reshape(X.shape), X)


def test_colour_images_of_bytes_come_back_as_such():
    X = np.random.default_rng(1).integers(0, 256, (200, 6, 7, 3)).astype(np.uint8)
    made = ConvolutionalVae(latent=2, width=4, epochs=1).fit(X, seed=0).sample(3, seed=0)
    assert made.shape == (3, 6, 7, 3) and made.dtype == np.uint8


def test_constant_images_stay_constant():
    X = np.full((200, 4, 4), 9, np.uint8)
    assert (ConvolutionalVae(latent=2, width=4, epochs=1).fit(X, seed=0).sample(3, seed=0) == 9).all()


@pytest.mark.parametrize(
    ("model", "members", "words"),
    [
        (SMALL, np.zeros((100, 8, 8)), "at least 200 members"),
        (SMALL, np.zeros((300, 8)), "needs images"),
        (ConvolutionalVae(epochs=0), np.zeros((300, 8, 8)), "epochs"),
        (ConvolutionalVae(learning_rate=0), np.zeros((300, 8, 8)), "learning_rate"),
        (SMALL, np.full((300, 8, 8), np.nan), "not finite"),
    ],
)
def test_bad_input_is_refused(model, members, words):
    with pytest.raises(InputError, match=words):
        model.fit(members, seed=0)
