"""Images told apart: the convolutional classifier, and the judge of content that also sees principal components."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dosimeter.attacks import stacked
from dosimeter.attacks.stacked import Content, content_scores

PATTERNS = np.linalg.qr(np.random.default_rng(9).normal(size=(36, 36)))[0]


def images(count, seed, *, cut=36):
    """Images of which the components differ in size by a factor of 100; those from `cut` on are left out."""
    size = np.geomspace(1.0, 0.01, 36) * (np.arange(36) < cut)
    return (np.random.default_rng(seed).normal(size=(count, 36)) * size @ PATTERNS).reshape(count, 6, 6, 1)


def content(records):
    return Content("image", records, np.zeros(len(records), np.int64))


def judged(cut):
    """AUC out of fold and on new images, of real ones against such without their small components."""
    train, audit = (np.concatenate([images(150, s), images(150, s + 10, cut=cut)]) for s in (0, 1))
    member = np.arange(300) < 150
    found = content_scores(content(train), member, content(audit), seed=0)
    return [roc_auc_score(member, scores) for scores in found[:2]]


@pytest.mark.parametrize("torch", [True, False])
def test_small_components_that_a_generator_leaves_out_are_seen(monkeypatch, torch):
    if torch:
        pytest.importorskip("torch")
    else:
        monkeypatch.setattr(stacked, "has_torch", lambda: False)
    assert min(judged(24)) > 0.9
    assert all(abs(value - 0.5) < 5 * np.sqrt(301 / (12 * 150 * 150)) for value in judged(36))


def test_images_that_are_all_the_same_are_told_apart_by_nothing():
    pytest.importorskip("torch")
    same = content(np.ones((60, 4, 4, 1)))
    found = content_scores(same, np.arange(60) < 30, same, seed=0)
    assert np.ptp(found.audit) == 0


def test_a_seed_gives_one_classifier_and_leaves_torch_as_it_was():
    torch = pytest.importorskip("torch")
    from dosimeter.attacks.image_classifier import image_classifier

    X = np.concatenate([images(40, 2), images(40, 3) + 1.0])
    y = (np.arange(80) >= 40).astype(np.int64)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, same, other = (image_classifier(X, y, classes=2, seed=seed)(X) for seed in (0, 0, 1))
    assert np.array_equal(first, same) and not np.array_equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.mean(first.argmax(axis=1) == y) > 0.95
