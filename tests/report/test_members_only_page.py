"""The page of a members-only audit: the measurement is called one, the charts are there, names are escaped."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
import samples
from test_page import words_of

from dosimeter import Audit, audit_members_only
from dosimeter.audits import page as audit_page
from dosimeter.audits.page.charts import charts

NAMES = {"precision-recall", "bound-recall", "stand-ins", "baseline-size"}


def draw(count, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3))
    return X, (X[:, 0] + rng.normal(size=count) > 0).astype(np.int64)


@cache
def audit() -> Audit:
    X, y = draw(300, 1)
    known = {row.tobytes(): label for row, label in zip(X, y, strict=True)}

    def model(rows):
        sign = np.array([2.0 * known[r.tobytes()] - 1 if r.tobytes() in known else 0.0 for r in rows])
        return np.stack([np.zeros(len(rows)), rows[:, 0] + 5 * sign], axis=1)

    def plain(rows):
        return np.stack([np.zeros(len(rows)), 2 * rows[:, 0]], axis=1)

    def generator(count, seed):
        X, y = draw(count, seed + 1000)
        return 1.1 * X, y

    return audit_members_only({"leaks": model, "does not": plain}, (X, y), generator=generator, references=3, repeats=3)


def test_charts_are_there_in_both_widths():
    for width in (720, 330):
        assert set(charts(audit(), width=width)) >= NAMES


def test_the_page_calls_it_a_measurement_and_shows_the_baseline():
    page = audit_page.to_html(audit())
    for text in ("ε̃ is a measurement", "c_lb", "stand-ins", "How strong the baseline is", "leaks", "does not"):
        assert text in page
    for name in ("measured", "curves", "null", "strength", "game"):
        assert f'<section id="{name}"' in page
    assert "How well members are told apart" not in page  # that ROC would hold the gap of the generator


def test_the_page_from_json_is_the_same():
    assert audit_page.to_html(Audit.from_json(audit().to_json())) == audit_page.to_html(audit())


def test_the_card_shows_the_measurement_and_no_bound():
    page = audit_page.to_html(audit())
    verdict = words_of(page, "verdict")
    assert f"Measured ε̃ = {audit().headline.epsilon:.4g}" in verdict and "ε ≥" not in verdict
    assert "not a bound (validity: measurement), so no value of ε is excluded from below" in words_of(page, "region")
    assert "No guarantee is excluded" in words_of(page, "person")


@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize(("ends", "line"), [((0.1, 0.4), "rises from 0.1"), ((0.4, 0.1), "falls from 0.4")])
def test_what_is_said_of_the_baseline_agrees_with_its_line(rising, ends, line):
    sizes = [{"records": n, "c_lb": c, "auc": 0.6, "share": 0.5} for n, c in zip((90, 180), ends, strict=True)]
    strength = {**audit().details["strength"], "size": sizes, "rising": rising, "rising_p_value": 0.5 - 0.49 * rising}
    page = audit_page.to_html(dataclasses.replace(audit(), details={**audit().details, "strength": strength}))
    text = words_of(page, "strength")
    assert f"Over all training sizes c_lb {line} (90 records) to {ends[1]:g} (180)." in text
    assert ("c_lb is too low and ε̃ too high" in text) == rising
    assert ("no gain beyond chance was found" in text) != rising


def test_without_stand_ins_the_page_says_what_is_missing():
    targets = [{**t, "verdict": None} for t in audit().details["targets"]]
    found = dataclasses.replace(audit(), details={**audit().details, "null": None, "targets": targets})
    page = audit_page.to_html(found)
    assert "There were no stand-ins" in page and "stand-ins" not in charts(found)


def test_hostile_names_stay_text():
    targets = [{**t, "name": samples.BREAKOUT} for t in audit().details["targets"]]
    game = {**audit().details["game"], "generator": samples.HOSTILE}
    page = audit_page.to_html(
        dataclasses.replace(audit(), details={**audit().details, "targets": targets, "game": game})
    )
    assert samples.HOSTILE not in page and "<img src=x" not in page
