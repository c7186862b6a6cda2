"""The smoothed bootstrap of images: moments, contrast, piled-up pixels, forms, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.generators import PcaMixture, SmoothedBootstrap, check_copies, same_shape
from dosimeter.generators.smoothed import Shaken, _components


def waves(count=800, size=6, seed=0):
    """Smooth images of two classes whose contrast differs from image to image by a factor of up to ten."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    places = np.linspace(0.0, np.pi, size)
    patterns = np.stack([np.outer(np.cos(a * places), np.cos(b * places)) for a in range(3) for b in range(3)])
    weights = rng.normal(size=(count, 9)) * np.geomspace(1.0, 0.1, 9) * rng.uniform(0.2, 2.0, (count, 1))
    return np.tensordot(weights, patterns, 1) + 0.5 * y[:, None, None], y


@pytest.fixture(scope="module")
def made():
    members = waves()
    return members, SmoothedBootstrap().fit(members, seed=0).sample(4000, seed=1)


def test_form_shares_and_no_copies(made):
    members, (X, y) = made
    same_shape(members, (X, y), count=4000)
    assert abs(y.mean() - 0.5) < 5 * 0.5 / np.sqrt(4000)
    assert check_copies(members, (X, y)) == 0


def test_means_of_classes_and_covariance_stay(made):
    (A, a), (X, y) = made
    for code in (0, 1):
        gap = np.abs(A[a == code].mean(axis=0) - X[y == code].mean(axis=0)).max()
        assert gap < 5 * A[a == code].std(axis=0).max() / np.sqrt(1500)
    old, new = (np.cov(d.reshape(len(d), -1).T) for d in (A[a == 0], X[y == 0]))
    assert np.abs(old - new).max() < 0.15 * np.abs(old).max()


def test_contrast_differs_from_image_to_image_as_it_does_for_members(made):
    (A, _), (X, _) = made
    old, new = (np.log(images.std(axis=(1, 2))) for images in (A, X))
    assert np.abs(np.quantile(old, [0.1, 0.5, 0.9]) - np.quantile(new, [0.1, 0.5, 0.9])).max() < 0.15
    mixed = PcaMixture(parts=1).fit(made[0], seed=0).sample(4000, seed=1)[0]
    assert np.log(mixed.std(axis=(1, 2))).std() < 0.8 * new.std()  # what one Gaussian for each class lacks


def test_pixels_stay_in_the_members_range_and_piles_stay_piles():
    X, y = waves()
    X = np.clip(X, 0.0, None)  # about a third of the values are 0
    X[:, 0] = 0.0
    made, labels = SmoothedBootstrap().fit((X, y), seed=0).sample(4000, seed=1)
    assert (made[:, 0] == 0).all()
    for code in (0, 1):
        old, new = X[y == code], made[labels == code]
        assert (new >= old.min(axis=0)).all() and (new <= old.max(axis=0)).all()
        assert np.abs((old == 0).mean(axis=0) - (new == 0).mean(axis=0)).max() < 0.08


def test_less_smoothing_is_nearer_to_the_members():
    X, _ = waves(300)
    rows = X.reshape(300, -1)

    def distance(smoothing):
        made = SmoothedBootstrap(smoothing=smoothing).fit(X, seed=0).sample(200, seed=1).reshape(200, -1)
        return np.median(np.sqrt(((made[:, None] - rows) ** 2).sum(axis=2)).min(axis=1))

    near, middle, far = (distance(h) for h in (0.05, 0.2, 1.0))
    assert near < middle < far


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.floats(0.1, 1.0), st.integers(0, 10**6))
def test_noise_has_the_strength_of_the_member_in_each_band(band, size, smoothing, seed):
    rng = np.random.default_rng(seed)
    place = rng.normal(size=(1, size))
    drawn = Shaken(place, smoothing, band, None).draw(4000, rng)
    for start in range(0, size, band):
        here = slice(start, min(start + band, size))
        strength = np.mean(place[0, here] ** 2)
        assert np.allclose(
            drawn[:, here].mean(axis=0),
            np.sqrt(1 - smoothing**2) * place[0, here],
            atol=5 * smoothing * np.sqrt(strength / 4000) + 1e-12,
        )
        assert np.allclose(drawn[:, here].var(axis=0), smoothing**2 * strength, rtol=0.2)


def test_components_rebuild_the_rows_and_have_variance_one():
    rows = np.random.default_rng(3).normal(size=(50, 4)) @ np.diag([3.0, 1.0, 0.1, 0.0])
    rows -= rows.mean(axis=0)
    places, spread, basis = _components(rows)
    assert places.shape == (50, 3) and np.allclose((places**2).mean(axis=0), 1.0)
    assert np.allclose(places * spread @ basis, rows)
    assert np.allclose(np.sort(spread**2)[::-1], np.sort(np.linalg.eigvalsh(rows.T @ rows / 50))[::-1][:3])


def test_the_seeds_decide_and_labels_are_optional():
    X, _ = waves(200)
    fitted = SmoothedBootstrap().fit(X, seed=0)
    first = fitted.sample(20, seed=3)
    assert isinstance(first, np.ndarray)
    assert np.array_equal(first, SmoothedBootstrap().fit(X, seed=0).sample(20, seed=3))
    assert not np.array_equal(first, fitted.sample(20, seed=4))


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3), (3, 6, 5)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_shapes_and_types_stay(shape, dtype):
    X = (np.random.default_rng(0).uniform(size=(80, *shape)) * 255).astype(dtype)
    made = SmoothedBootstrap().fit(X, seed=0).sample(30, seed=0)
    assert made.shape == (30, *shape) and made.dtype == dtype


def test_constant_images_stay_constant():
    made = SmoothedBootstrap().fit(np.full((60, 4, 4), 3, np.uint8), seed=0).sample(10, seed=0)
    assert (made == 3).all()


@pytest.mark.parametrize(
    ("model", "members", "words"),
    [
        (SmoothedBootstrap(), np.zeros((20, 4, 4)), "at least 50 members, got 20"),
        (SmoothedBootstrap(), np.zeros((60, 4)), "needs images, got tables"),
        (SmoothedBootstrap(), np.full((60, 4, 4), np.nan), "image 0 has a value that is not finite"),
        (SmoothedBootstrap(smoothing=0.0), np.zeros((60, 4, 4)), "smoothing"),
        (SmoothedBootstrap(smoothing=1.5), np.zeros((60, 4, 4)), "smoothing"),
        (SmoothedBootstrap(band=0), np.zeros((60, 4, 4)), "band"),
        (SmoothedBootstrap(), (np.zeros((60, 4, 4)), np.arange(60) // 59), "class 1 has 1 members and needs 10"),
    ],
)
def test_bad_input_is_refused(model, members, words):
    with pytest.raises(InputError, match=words):
        model.fit(members, seed=0)
