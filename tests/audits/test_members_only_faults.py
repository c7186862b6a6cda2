"""What the members-only audit refuses, and what it leaves out and says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from members_games import draw, memoriser, sampler

from dosimeter import InputError, audit_members_only
from dosimeter.audits.members_only.records import FEWEST, split_records

GOOD = draw(300, 17)
MODEL = memoriser(*GOOD, 2.0)


def refuse(match, *, model=MODEL, members=GOOD, **arguments):
    with pytest.raises(InputError, match=match):
        audit_members_only(model, members, **{"generator": sampler, "references": 3, "repeats": 1, **arguments})


def test_too_few_members_say_how_many():
    X, y = draw(100, 18)
    refuse(f"need {math.ceil(FEWEST / 0.3)}", members=(X, y))


def test_copies_are_refused_with_their_share():
    X, y = GOOD
    refuse("100 % of the generated", generator=lambda count, seed: (np.resize(X, (count, 4)), np.resize(y, count)))


def with_copies(X, y, share):
    """A sampler of which so many records are members."""

    def sample(count, seed):
        made, labels = sampler(count, seed)
        copies = round(share * count)
        made[:copies], labels[:copies] = X[:copies], y[:copies]
        return made, labels

    return sample


def test_a_few_copies_are_left_out_and_reported():
    X, y = GOOD
    arguments = {"splits": (0.4, 0.3, 0.3), "audit_size": None, "seed": 0}
    records = split_records((X, y), generator=with_copies(X, y, 0.04), **arguments)
    known = {row.tobytes() for row in X}
    sets = (records.for_helper, records.train.nonmembers, records.audit.nonmembers)
    assert not any(row.tobytes() in known for s in sets for row in s.X)
    assert records.counts.copies_left_out == records.counts.copies_of_members > 0
    assert any("left out" in w for w in records.warnings)
    refuse("exact copies", generator=with_copies(X, y, 0.08))
    made, labels = with_copies(X, y, 0.03)(300, 1)
    refuse("not copies of members", generated=(made, labels))


def test_copies_are_kept_where_members_repeat_each_other():
    rng = np.random.default_rng(25)
    X, y = rng.integers(0, 5, (300, 4)).astype(float), rng.integers(0, 2, 300)

    def alike(count, seed):
        r = np.random.default_rng(seed)
        made = r.integers(0, 5, (count, 4)) + np.where(r.random((count, 1)) < 0.9, 0.01 * r.random((count, 1)), 0.0)
        return made, r.integers(0, 2, count)

    records = split_records((X, y), generator=alike, splits=(0.4, 0.3, 0.3), audit_size=None, seed=0)
    assert records.counts.copies_of_members > 0 and records.counts.copies_left_out == 0
    assert any("were kept" in w for w in records.warnings)


def test_a_generator_that_repeats_itself_is_refused():
    X, y = draw(50, 19, real=False)
    refuse("repeat another one", generator=lambda count, seed: (np.resize(X, (count, 4)), np.resize(y, count)))


def test_other_shapes_missing_labels_and_nan_are_refused():
    refuse("shape", generator=lambda count, seed: (np.ones((count, 3)), np.zeros(count, int)))
    several = GOOD[0], np.stack([GOOD[1], 1 - GOOD[1]], axis=1)
    refuse("one label for each record", members=several)
    refuse("repeat another one", generator=lambda count, seed: np.ones((count, 4)))
    refuse("no labels", members=(GOOD[0], None))
    bad = GOOD[0].copy()
    bad[3, 1] = np.inf
    refuse("not finite", members=(bad, GOOD[1]))
    bad[3, 1] = np.nan  # a table may have missing values, if the model takes them
    refuse("NaN or infinite; repair the model or these records", members=(bad, GOOD[1]))
    refuse("repeat another one", generator=lambda count, seed: (np.full((count, 4), np.nan), np.zeros(count, int)))
    refuse("gave 10", generator=lambda count, seed: sampler(10, seed))
    refuse("generated holds 20", generated=sampler(20, 0))


def test_identical_guesses_are_refused(monkeypatch):
    monkeypatch.setattr(
        "dosimeter.audits.members_only.pair_classifier.stacked_scores",
        lambda train, member, audit, *, seed: np.ones(len(audit)),
    )
    refuse("guesses about model are identical", references=0)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"helper": "real"}, "no nonmembers"),
        ({"helper": "x"}, "helper must be one of"),
        ({"references": 2}, "0 or at least 3"),
        ({"reference": 3}, "reference must be"),
        ({"splits": (0.5, 0.6, 0.2)}, "add up"),
        ({"splits": (0.5, 0.5)}, "three shares"),
        ({"guesses": "all"}, "guesses must be one of"),
        ({"guesses": 10_000}, "guesses must be between"),
        ({"audit_size": 10}, "audit_size must be between"),
        ({"generator": 5}, "generator must be"),
        ({"filter": 5}, "filter must be a function"),
        ({"filter": lambda X, y: np.zeros(len(X), bool)}, "filter kept 0"),
        ({"model": {}}, "mapping"),
        ({"nonmembers": draw(100, 1)}, "nonmembers holds 100"),
        ({"nonmembers": (np.ones((300, 3)), np.zeros(300, int))}, "shape"),
        ({"confidence": 1.5}, "confidence"),
    ],
)
def test_bad_arguments(arguments, match):
    refuse(match, **arguments)
