"""The filter of bad images, and how close images come to members."""

import numpy as np
import pytest

from dosimeter._validate import InputError
from dosimeter.generators import Filtered, OwnSampler, nearest_members


def images(count, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 1, 1, 1)) + rng.normal(size=(count, 6, 6, 3)).cumsum(axis=1).cumsum(axis=2)


def half_bad(count, seed):
    """Every second image is speckle."""
    made = images(count, seed + 100)
    made[::2] = np.random.default_rng(seed).normal(size=made[::2].shape)
    return made


def test_bad_images_are_dropped():
    pytest.importorskip("torch")
    fitted = Filtered(OwnSampler(half_bad), drop=0.5).fit(images(200, 0), seed=0)
    kept = fitted.sample(60, seed=1)
    speckle = np.abs(np.diff(kept, axis=1)).mean(axis=(1, 2, 3)) / kept.std(axis=(1, 2, 3))
    clean = np.abs(np.diff(images(60, 7), axis=1)).mean(axis=(1, 2, 3)) / images(60, 7).std(axis=(1, 2, 3))
    assert kept.shape == (60, 6, 6, 3) and np.mean(speckle < 2 * np.median(clean)) > 0.9
    assert np.array_equal(kept, fitted.sample(60, seed=1))


def test_the_filter_keeps_labels_and_says_what_it_does():
    pytest.importorskip("torch")

    def labelled(count, seed):
        made = half_bad(count, seed)
        return made, (np.arange(count) % 2).astype(np.int64)

    generator = Filtered(OwnSampler(labelled, name="own"), drop=0.5)
    X, y = generator.fit((images(200, 0), np.arange(200) % 2), seed=0).sample(40, seed=3)
    assert X.shape[0] == y.size == 40 and y.mean() > 0.8  # the speckle has the label 0
    assert generator.name == "own, worst 50 % dropped" and generator.minimum == 1


def test_bad_arguments_of_the_filter():
    for generator, message in ((Filtered("flow"), "generator"), (Filtered(OwnSampler(half_bad), drop=1.0), "drop")):
        with pytest.raises(InputError, match=message):
            generator.fit(images(60, 0), seed=0)
    with pytest.raises(InputError, match="needs images"):
        Filtered(OwnSampler(half_bad)).fit(np.zeros((60, 3)), seed=0)


def test_copies_mirror_images_and_strangers():
    X = np.random.default_rng(0).normal(size=(50, 6, 6, 3))
    found = nearest_members(X, np.stack([X[3], 3 * X[4, :, ::-1] - 1, np.ones((6, 6, 3))]))
    assert found[:2] == pytest.approx(1.0, abs=1e-5) and found[2] == 0
    assert nearest_members(X, np.random.default_rng(1).normal(size=(40, 6, 6, 3))).max() < 0.6
    first = np.moveaxis(X, -1, 1)
    assert nearest_members(first, first[:2, :, :, ::-1]) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("members", "made", "message"),
    [
        (np.zeros((5, 4)), np.zeros((5, 4)), "members must hold images"),
        (np.zeros((5, 4, 4)), np.zeros((5, 6, 6)), "resize"),
    ],
)
def test_other_records_are_refused(members, made, message):
    with pytest.raises(InputError, match=message):
        nearest_members(members, made)
