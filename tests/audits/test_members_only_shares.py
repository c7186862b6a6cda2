"""Members for reference models alone: a model that learnt from the generator's members finds its texts familiar."""

import numpy as np
import pytest

from dosimeter import InputError, audit_members_only
from dosimeter.attacks.stacked import Content
from dosimeter.audits.members_only.measure import train_baselines
from dosimeter.audits.members_only.pair_classifier import pair_classifier, reference, reference_pools
from dosimeter.audits.members_only.records import split_records
from dosimeter.engine import RunOptions
from dosimeter.generators import NGram
from dosimeter.models import BlackBox
from dosimeter.models.outputs import Losses

WORDS = np.array([a + b + c for a in "bdfg" for b in "aei" for c in "lmnrs"])
THREE, FOUR = (0.4, 0.3, 0.3), (0.2, 0.25, 0.25, 0.3)
_language = np.random.default_rng(0)
FOLLOWS = _language.integers(0, WORDS.size, (WORDS.size, WORDS.size, 2))
FREQUENCIES = _language.dirichlet(np.full(WORDS.size, 0.3))


def texts(count, seed):
    """Ten words each; a word depends on the two before it, which a generator with pairs of words does not know."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(WORDS.size, (count, 10), p=FREQUENCIES)
    for at in range(2, 10):
        next_words = FOLLOWS[rows[:, at - 2], rows[:, at - 1], rng.integers(0, 2, count)]
        rows[:, at] = np.where(rng.random(count) < 0.3, rows[:, at], next_words)
    return [" ".join(WORDS[row]) for row in rows]


class Trigrams(BlackBox):
    """A language model that counts up to three words in a row."""

    def __init__(self, learnt):
        self.ask = reference(Content("text", list(learnt), None), seed=0)

    def outputs(self, X):
        raise NotImplementedError

    def losses(self, X, y=None):
        return Losses(self.ask(Content("text", list(X), None))[:, 0], 0, "log-probabilities", ())


@pytest.mark.parametrize(("splits", "low", "high"), [(THREE, 0.02, 0.2), (FOUR, -0.04, 0.02)])
def test_reference_models_are_like_models_that_never_saw_a_member(splits, low, high):
    """By how much their AUC falls short of that of models that learnt from as many other texts, over three audits.

    With three shares they learn from the generator's members and fall short, so such a model would stand out.
    """
    short = []
    for seed in range(3):
        records = split_records(texts(600, seed), generator=NGram(order=2), splits=splits, audit_size=None, seed=seed)
        classifier = pair_classifier(records, seed=0)
        baseline = train_baselines(classifier, None, 3, lambda X, y, at: Trigrams(X), seed)
        size = reference_pools(records, seed=seed)[1].size
        fresh = [Trigrams(texts(size, 50 + number)) for number in range(3)]
        aucs = [classifier.score(*baseline.shared, classifier.ask(model, RunOptions())).auc for model in fresh]
        short.append(np.mean(aucs) - np.mean([pair.auc for pair in baseline.pairs]))
    assert low < np.mean(short) < high


def test_a_fourth_share_is_for_reference_models_alone():
    members = texts(400, 7)
    records = split_records(members, generator=NGram(order=2), splits=FOUR, audit_size=None, seed=1)
    own = records.for_references
    parts = [records.for_generator, records.train.members, records.audit.members, own]
    assert [len(part) for part in parts] == [80, 100, 100, 120] and records.counts.reference_members == 120
    assert sorted(text for part in parts for text in part.X) == sorted(members)
    shared, pools = reference_pools(records, seed=0)
    assert shared is records.for_generator  # baseline and attack both see these models
    for pool, others in ((pools.audit, records.train), (pools.train, records.audit)):
        np.testing.assert_array_equal(pool.X, [*own.X, *others.members.X])
    assert pools.size == round(6 / 7 * 220)
    without = split_records(members, generator=NGram(order=2), splits=(0.2, 0.25, 0.25), audit_size=None, seed=1)
    assert without.for_references is None and without.counts.reference_members == 0
    assert without.audit.members.X == records.audit.members.X  # members that are left over are not used


def test_the_audit_says_what_reference_models_learn_from(tmp_path):
    members = texts(600, 8)
    how = {"generator": NGram(order=2), "reference": lambda X, y, at: Trigrams(X), "references": 3, "repeats": 2}
    audits = {splits: audit_members_only(Trigrams(members), members, **how, splits=splits) for splits in (THREE, FOUR)}
    told = {splits: any("fourth share" in text for text in a.headline.warnings) for splits, a in audits.items()}
    assert told == {THREE: True, FOUR: False}
    page = tmp_path / "page.html"
    audits[FOUR].to_html(page)
    assert "150 to audit, 180 for reference models alone" in page.read_text(encoding="utf-8")
    assert audits[FOUR].metadata["splits"] == FOUR and audits[FOUR].details["game"]["reference_members"] == 180


@pytest.mark.parametrize("splits", [(0.5, 0.5), (0.2, 0.2, 0.2, 0.2, 0.2)])
def test_other_numbers_of_shares_are_refused(splits):
    with pytest.raises(InputError, match="three shares, or four with one for the reference models"):
        audit_members_only(lambda X: X, texts(400, 9), splits=splits)
    with pytest.raises(InputError, match=r"add up to 1\.1"):
        audit_members_only(lambda X: X, texts(400, 9), splits=(0.4, 0.3, 0.3, 0.1))
