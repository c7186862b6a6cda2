"""The page of a members-only audit: the measurement is called one, the charts are there, names are escaped."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import samples
from test_page import words_of

from dosimeter import Audit, audit_members_only
from dosimeter.audits import page as audit_page
from dosimeter.audits.members_only.result import BaselineWithRecords, MembersOnlyDetails
from dosimeter.audits.page import charts

pytestmark = pytest.mark.slow

NAMES = {"precision-recall", "bound-recall", "reference-models", "baseline-size", "propensities", "difference-recall"}


def draw(count, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3))
    return X, (X[:, 0] + rng.normal(size=count) > 0).astype(np.int64)


def generator(count, seed):
    X, y = draw(count, seed + 1000)
    return 1.1 * X, y


def plain(rows):
    return np.stack([np.zeros(len(rows)), 2 * rows[:, 0]], axis=1)


def memoriser(X, y):
    known = {row.tobytes(): label for row, label in zip(X, y, strict=True)}

    def model(rows):
        sign = np.array([2.0 * known[r.tobytes()] - 1 if r.tobytes() in known else 0.0 for r in rows])
        return np.stack([np.zeros(len(rows)), rows[:, 0] + 5 * sign], axis=1)

    return model


@cache
def audit() -> Audit:
    """Two models, one of which leaks, with reference models and real non-members."""
    members = draw(300, 1)
    models = {"leaks": memoriser(*members), "does not": plain}
    return audit_members_only(models, members, generator=generator, nonmembers=draw(200, 2), references=3, repeats=3)


@cache
def without_references(name: str = "model", source: str = "sampler") -> Audit:
    """One model and generated records only, with names of the caller."""

    class Named:
        def sample(self, count, *, seed):
            return generator(count, seed)

    Named.name = source
    members = draw(300, 1)
    return audit_members_only({name: memoriser(*members)}, members, generator=Named(), references=0, repeats=2)


def details() -> MembersOnlyDetails:
    assert isinstance(audit().details, MembersOnlyDetails)
    return audit().details


def test_charts_are_there_in_both_widths():
    for width in (720, 330):
        assert set(charts(audit(), width=width)) >= NAMES


def test_the_page_calls_it_a_measurement_and_shows_the_baseline():
    page = audit_page.to_html(without_references())
    for text in ("ε̃ is a measurement", "c_lb", "How strong the baseline is"):
        assert text in page
    for name in ("measured", "curves", "references", "strength", "records"):
        assert f'<section id="{name}"' in page
    assert "How well members are recognised" not in page  # that ROC would hold the gap of the generator


def test_what_was_measured_is_what_the_details_hold():
    text = words_of(audit_page.to_html(audit()), "measured")
    for target in details().targets:
        assert f"{target.name} {target.epsilon:.4g} {target.epsilon_raw:.4g}" in text
    real = details().real
    assert f"({real.pairs} pairs) there is no gap c." in text and f"prove ε ≥ {real.one_run:.4g}." in text


def test_reference_models_are_named_and_so_is_who_stands_out():
    text = words_of(audit_page.to_html(audit()), "references")
    assert "3 reference models, trained on members outside the audit" in text and "Standing out: leaks." in text
    assert f"their limit, {details().targets[0].verdict.auc_limit:.4g}." in text
    assert "3 more learnt from half as many records" in text


@pytest.mark.parametrize("make", [audit, without_references])
def test_the_page_from_json_is_the_same(make):
    assert audit_page.to_html(Audit.from_json(make().to_json())) == audit_page.to_html(make())


@pytest.mark.parametrize("make", [audit, without_references])
def test_the_card_shows_the_measurement_and_no_bound(make):
    page = audit_page.to_html(make())
    verdict = words_of(page, "verdict")
    assert f"Measured ε̃ = {make().headline.epsilon:.4g}" in verdict and "ε ≥" not in verdict
    assert "not a bound (validity: measurement), so no value of ε is excluded from below" in words_of(page, "evidence")
    assert "No guarantee is excluded" in words_of(page, "person")


@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize(
    ("c_lb", "line"),
    [
        ((0.1, 0.2, 0.4), "rises from 0.1 (90 records) to 0.4 (360)"),
        ((0.4, 0.2, 0.1), "falls from 0.4 (90 records) to 0.1 (360)"),
        ((0.1, 0.5, 0.4), "moves up and down, from 0.1 (90 records) to 0.4 (360)"),
        ((0.3, 0.3 + 1e-12, 0.3), "stays at 0.3"),
    ],
)
def test_what_is_said_of_the_baseline_agrees_with_its_line(rising, c_lb, line):
    sizes = tuple(BaselineWithRecords(0.5, n, c, 0.6) for n, c in zip((90, 180, 360), c_lb, strict=True))
    strength = replace(details().strength, size=sizes, rising=rising, rising_p_value=0.01 if rising else 0.5)
    page = audit_page.to_html(replace(audit(), details=replace(details(), strength=strength)))
    text = words_of(page, "strength")
    assert f"Over all training sizes c_lb {line}." in text
    assert ("c_lb is too low and ε̃ too high" in text) == rising
    assert ("no gain beyond chance was found" in text) != rising


def test_the_line_of_the_baseline_is_the_one_of_the_audit():
    sizes = details().strength.size
    text = words_of(audit_page.to_html(audit()), "strength")
    for size in sizes:
        assert f"trained on {size.records} records {size.c_lb:.4g} {size.auc:.3g}" in text


def test_without_references_the_page_says_what_is_missing():
    page = audit_page.to_html(without_references())
    assert "There were no reference models" in page and "reference-models" not in charts(without_references())
    assert "never saw these members" not in page and "the reference models show" not in page
    assert "A reference model is" not in page
    with_them = words_of(audit_page.to_html(audit()), "measured")
    assert "it does better with the model than with models that never saw these members." in with_them


def test_hostile_names_stay_text():
    page = audit_page.to_html(without_references(samples.BREAKOUT, samples.HOSTILE))
    assert samples.HOSTILE not in page and "<img src=x" not in page
