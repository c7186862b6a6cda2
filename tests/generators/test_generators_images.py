"""Images: pixel maps, forms, the mixture in principal components, bad input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.generators import PcaMixture, check_copies, same_shape
from dosimeter.generators.images import ClassMixture, fit_mixture, parts_for
from dosimeter.generators.pixels import pixel_map, read_images
from dosimeter.generators.protocol import read_members


def rng_of(seed):
    return np.random.default_rng(seed)


def bars(count=600, seed=0, size=8):
    """Images with an upright (class 0) or a lying bar (class 1) of random place and brightness; the rim is black."""
    rng = rng_of(seed)
    y = np.arange(count) % 2
    X = np.zeros((count, size, size))
    place, light = rng.integers(1, size - 1, count), rng.uniform(0.5, 1.0, count)
    rows = np.arange(count)
    X[rows[y == 0], 1:-1, place[y == 0]] = light[y == 0, None]
    X[rows[y == 1], place[y == 1], 1:-1] = light[y == 1, None]
    return X * rng.uniform(0.8, 1.0, X.shape), y


@pytest.fixture(scope="module")
def made():
    members = bars()
    return members, PcaMixture().fit(members, seed=0).sample(1000, seed=1)


def test_images_and_labels_keep_form_and_shares(made):
    members, (X, y) = made
    same_shape(members, (X, y), count=1000)
    assert X.shape == (1000, 8, 8) and y.dtype == members[1].dtype
    assert abs(y.mean() - 0.5) < 5 * 0.5 / math.sqrt(1000)
    assert check_copies(members, (X, y)) < 0.01


def test_every_pixel_has_the_members_values_and_frequencies(made):
    members, (X, y) = made
    assert (X[:, 0] == 0).all() and (X[:, :, -1] == 0).all()
    assert np.isin(X, members[0]).all()
    for code in (0, 1):
        old, new = members[0][members[1] == code], X[y == code]
        assert np.abs((old > 0).mean(axis=0) - (new > 0).mean(axis=0)).max() < 5 * 0.5 / math.sqrt(len(new)) + 0.04


def test_classes_look_like_themselves(made):
    members, (X, y) = made
    upright = lambda images: images.max(axis=1).sum(axis=1) < images.max(axis=2).sum(axis=1)  # noqa: E731
    assert np.array_equal(upright(members[0]), members[1] == 0)
    assert np.mean(upright(X) == (y == 0)) > 0.8


def test_the_seeds_decide_and_labels_are_optional():
    X, _ = bars(200)
    model = PcaMixture(dimensions=10, parts=2)
    fitted = model.fit(X, seed=0)
    first = fitted.sample(20, seed=3)
    assert isinstance(first, np.ndarray)
    assert np.array_equal(first, model.fit(X, seed=0).sample(20, seed=3))
    assert not np.array_equal(first, fitted.sample(20, seed=4))


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3), (3, 6, 5)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_shapes_and_types_stay(shape, dtype):
    X = (rng_of(0).uniform(size=(80, *shape)) * 255).astype(dtype)
    made = PcaMixture().fit(X, seed=0).sample(30, seed=0)
    assert made.shape == (30, *shape) and made.dtype == dtype
    same_shape(X, made)


def test_one_image_can_be_sampled_and_an_absent_class_is_no_matter():
    members = bars(200)
    X, y = PcaMixture().fit(members, seed=0).sample(1, seed=0)
    assert X.shape == (1, 8, 8) and y.shape == (1,)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 300), st.integers(2, 400), st.integers(0, 10**6))
def test_a_pixel_map_keeps_order_and_gives_only_values_seen(old, new, seed):
    rng = rng_of(seed)
    members, model = np.round(rng.normal(size=(old, 3)) * 2), rng.normal(size=(new, 3)) * 5
    members[:, 2] = 7.0
    mapped = pixel_map(members, model)(model)
    for pixel in range(3):
        assert np.isin(mapped[:, pixel], members[:, pixel]).all()
        assert (np.diff(mapped[np.argsort(model[:, pixel], kind="stable"), pixel]) >= 0).all()


def test_a_pixel_map_gives_the_members_distribution():
    rng = rng_of(1)
    members, model = rng.choice([0.0, 1.0, 5.0], (3000, 1), p=[0.7, 0.2, 0.1]), rng.gamma(2.0, size=(6000, 1))
    mapped = pixel_map(members, model)(rng.gamma(2.0, size=(6000, 1)))
    for value in (0.0, 1.0, 5.0):
        assert abs((mapped == value).mean() - (members == value).mean()) < 0.03


def test_a_mixture_is_fitted_and_drawn_from():
    rng = rng_of(2)
    centres = np.array([[-5.0, 0.0], [5.0, 2.0]])
    points = centres[rng.integers(0, 2, 3000)] + rng.normal(size=(3000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.3]])
    found = fit_mixture(points, 2, rng)
    drawn = found.draw(20_000, rng)
    assert np.abs(drawn.mean(axis=0) - points.mean(axis=0)).max() < 0.3
    assert np.abs(np.cov(drawn.T) - np.cov(points.T)).max() < 1.0
    assert found.draw(0, rng).shape == (0, 2)
    known = ClassMixture(np.array([0.25, 0.75]), centres, np.zeros((2, 2, 2)), None).draw(8000, rng)
    assert abs((known[:, 0] > 0).mean() - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 8000)


def test_the_number_of_parts_grows_to_a_limit():
    assert [parts_for(n) for n in (10, 450, 10**6)] == [1, 3, 40]


@pytest.mark.parametrize(
    ("model", "members", "words"),
    [
        (PcaMixture(), np.zeros((20, 4, 4)), "at least 50 members, got 20"),
        (PcaMixture(), np.zeros((60, 4)), "needs images, got tables"),
        (PcaMixture(), np.full((60, 4, 4), np.nan), "image 0 has a value that is not finite"),
        (PcaMixture(), np.full((60, 4, 4), "a"), "pixel values"),
        (PcaMixture(), np.zeros((60, 4, 0)), "pixel values"),
        (PcaMixture(dimensions=0), np.zeros((60, 4, 4)), "dimensions"),
        (PcaMixture(parts=0), np.zeros((60, 4, 4)), "parts"),
        (PcaMixture(), (np.zeros((60, 4, 4)), np.arange(60) // 59), "class 1 has 1 members and needs 10"),
        (PcaMixture(), (np.zeros((60, 4, 4)), np.zeros(3)), "one label for each"),
    ],
)
def test_bad_input_is_refused(model, members, words):
    with pytest.raises(InputError, match=words):
        model.fit(members, seed=0)


def test_constant_images_stay_constant():
    made = PcaMixture().fit(np.full((60, 4, 4), 3, np.uint8), seed=0).sample(10, seed=0)
    assert (made == 3).all()


def test_images_are_read_as_rows():
    X, y = bars(40)
    found = read_images(read_members((X, np.array(["up", "down"])[y])))
    assert np.array_equal(found.rows.reshape(X.shape), X)
    assert np.array_equal(found.classes[found.codes], np.array(["up", "down"])[y])
