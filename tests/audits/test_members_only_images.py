"""Members-only audits of images: judges of the generator, copies of members, and what is said of both."""

import numpy as np
import pytest

from dosimeter import InputError, audit_members_only
from dosimeter.attacks import stacked
from dosimeter.attacks.stacked import Content, content_scores
from dosimeter.audits.members_only import pair_classifier
from dosimeter.audits.result import Audit
from dosimeter.evidence import Scores


def images(count, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count)
    return rng.normal(size=(count, 6, 6)).cumsum(axis=1).cumsum(axis=2) + 3 * y[:, None, None], y


def brightness(rows):
    return np.stack([np.zeros(len(rows)), rows.mean(axis=(1, 2))], axis=1)


def audited(generator, **options):
    return audit_members_only(brightness, images(240, 0), generator=generator, references=0, repeats=1, **options)


@pytest.fixture(scope="module")
def good():
    return audited(lambda count, seed: images(count, seed % 1000 + 5))


def page_of(audit, folder):
    audit.to_html(folder / "audit.html")
    return (folder / "audit.html").read_text(encoding="utf-8")


def test_a_generator_of_the_same_kind_is_not_told(good, tmp_path):
    check = good.details.generator
    assert not check.decides and abs(check.auc - 0.5) < 0.25
    assert check.nearest.closeness < 0.2 and check.nearest.generated == pytest.approx(check.nearest.real, abs=0.1)
    assert check.counted in {judge.name for judge in check.judges}
    assert "no power" not in good.headline.claim
    page = page_of(good, tmp_path)
    assert "How well generated records pass for members" in page and "Best correlation with a member" in page
    assert Audit.from_json(good.to_json()).details == good.details


def test_where_the_generator_decides_the_verdict_says_so(tmp_path):
    audit = audited(lambda count, seed: (np.random.default_rng(seed).normal(size=(count, 6, 6)), np.arange(count) % 2))
    assert audit.details.generator.decides and audit.details.generator.auc > 0.95
    assert "the generator decides" in audit.headline.claim and "told from generated records" in audit.headline.claim
    assert any("ε̃ has no power" in warning for warning in audit.headline.warnings)
    assert "the generator decides nearly every guess" in page_of(audit, tmp_path)


@pytest.mark.parametrize("given", [False, True])
def test_near_copies_of_members_are_refused(given):
    X, y = images(240, 0)

    def shaken(count, seed):
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, len(X), count)
        return X[rows] * 1.3 + rng.normal(0.0, 0.02, (count, 6, 6)), y[rows]

    with pytest.raises(InputError, match="the generated images are nearly copies of members"):
        audit_members_only(
            brightness, (X, y), **({"generated": shaken(400, 1)} if given else {"generator": shaken}), references=0
        )


def test_without_torch_the_audit_says_which_judge_is_missing(monkeypatch, tmp_path):
    for module in (stacked, pair_classifier):
        monkeypatch.setattr(module, "has_torch", lambda: False)
    audit = audited(lambda count, seed: images(count, seed % 1000 + 5))
    check = audit.details.generator
    assert [judge.name for judge in check.judges] == [stacked.TREES]
    assert check.missing in audit.headline.warnings and "torch is not installed" in check.missing
    assert "Torch is not installed, so no convolutional network" in page_of(audit, tmp_path)


def test_the_judge_that_tells_better_counts():
    """A loud spot at a random place, at the same length: trees on components do not see it, a network does."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    records = rng.normal(size=(480, 10, 10, 1))
    member = np.arange(480) % 2 == 0
    for row in np.flatnonzero(~member):
        top, left = rng.integers(0, 6, 2)
        records[row, top : top + 4, left : left + 4] *= 5.0
    records /= np.linalg.norm(records.reshape(480, -1), axis=1)[:, None, None, None]
    content = Content("image", records, None)
    found = content_scores(content.take(slice(0, 330)), member[:330], content.take(slice(330, 480)), seed=0)
    aucs = {j.name: Scores(j.audit[member[330:]], j.audit[~member[330:]]).auc for j in found.judges}
    assert aucs[stacked.TREES] < 0.75 and aucs[stacked.NETWORK] > 0.9
    assert found.counted != stacked.TREES
    assert np.array_equal(found.audit, next(j.audit for j in found.judges if j.name == found.counted))
