"""The page of a gradient audit: its charts in both widths, its sentences, and what is missing when data are."""

from __future__ import annotations

import dataclasses
import math
import re
from functools import cache

import numpy as np
import pytest
import samples

from dosimeter.accounting import Gaussian
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits import page as audit_page
from dosimeter.audits.gradients.page import CHARTS
from dosimeter.audits.gradients.transcripts import NOT_PRIVATE, audit_transcripts, with_warnings
from dosimeter.audits.page.charts import charts
from dosimeter.audits.result import Audit
from dosimeter.report.theme import NARROW, WIDE

STEPS, MU = 30, 1.5


@cache
def audit(runs: int = 200, both: bool = True) -> Audit:
    """Runs whose sensitivity falls over the steps below a global one of 6."""
    rng = np.random.default_rng(0)
    distances = np.linspace(5, 2, STEPS) * rng.uniform(0.8, 1.1, (runs, 1))
    deviation = 6 * math.sqrt(STEPS) / MU
    projections = deviation * distances * rng.standard_normal((runs, STEPS))
    world = rng.random(runs) < 0.5 if both else np.ones(runs, bool)
    seen = Transcripts(distances, projections, deviation, world, sensitivity=6.0)
    mechanism = Gaussian(2 * math.sqrt(STEPS) / MU, steps=STEPS, neighbours="replace")  # type: ignore[arg-type]
    return audit_transcripts(seen, delta=1e-3, mechanism=mechanism, name="simulated runs")


@cache
def complete() -> Audit:
    found = audit()
    details = {
        **found.details,
        "neighbour": {"kind": "bounded", "removed": 17, "added": 4, "distance": 12.5, "by": "manhattan"},
        "yeom": {
            "advantage": 0.021,
            "advantage_low": 0.019,
            "advantage_high": 0.023,
            "bound_yeom": 1.0,
            "bound_generic": 0.93,
            "bound_gaussian": 0.547,
            "members": 1000,
            "nonmembers": 900,
        },
        "utility": {"accuracy": 0.801, "low": 0.77, "high": 0.82, "records": 900},
    }
    return dataclasses.replace(found, details=details)


@cache
def page() -> str:
    return audit_page.to_html(complete())


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_every_chart_is_drawn_in_both_widths():
    for width in (WIDE, NARROW):
        found = charts(complete(), width=width)
        assert set(CHARTS) <= set(found)
        for name in CHARTS:
            assert any(layer.get("name") == "hover" for layer in found[name]["layer"])
    for name in CHARTS:
        assert page().count(f'data-chart="{name}"') == 1


def test_the_charts_show_the_audit():
    found, details = charts(complete()), complete().details
    rows = [row for data in found["beliefs"]["datasets"].values() for row in data]
    medians = [row for row in rows if "text" in row and row["x"] == STEPS]
    assert {row["world"] for row in medians} == {"trained on D", "trained on D′"}
    by_world = {row["world"]: row["y"] for row in medians}
    assert by_world["trained on D"] == pytest.approx(details["trajectories"]["median"]["on_d"][-1])
    assert by_world["trained on D"] > 0.5 > by_world["trained on D′"]
    epsilons = [row for data in found["epsilons"]["datasets"].values() for row in data if "row" in row]
    assert [row["row"] for row in epsilons[: len(details["epsilons"])]] == [r["name"] for r in details["epsilons"]]
    limits = [row["y"] for data in found["sensitivities"]["datasets"].values() for row in data if "name" in row]
    assert limits == [6.0]


def test_the_page_says_it_in_words():
    text = words(page())
    assert "D′ is D with row 17 replaced by row 4 of the other records." in text
    assert "its manhattan distance is 12.5" in text
    assert "What the adversary comes to believe" in text and "How much of the noise was needed" in text
    assert f"The target is ε = {complete().details['target']['epsilon']:.4g} at δ = 0.001" in text
    assert "Their advantage is 0.021" in text and "e^ε − 1 + δ" in text
    assert "80.1 % of 900 test records" in text
    assert "there is no shift to look for" in text


def test_after_json_it_is_the_same_page():
    assert audit_page.to_html(Audit.from_json(complete().to_json())) == page()


def test_a_run_without_guarantee_warns_in_the_verdict():
    found = with_warnings(dataclasses.replace(audit(), upper=(), region=None), [NOT_PRIVATE])
    made = audit_page.to_html(found)
    verdict = words(made[made.index('id="verdict"') : made.index('id="adversary"')])
    assert "not differentially private" in verdict
    assert with_warnings(audit(), []) is audit()


def test_one_world_and_missing_parts_leave_no_gap():
    one = audit_page.to_html(audit(both=False))
    assert "trained on D′" not in words(one[one.index('id="adversary"') : one.index('id="sensitivities"')])
    assert 'data-chart="roc"' not in one
    bare = audit_page.to_html(dataclasses.replace(audit(), details={}))
    assert "was not stated" in words(bare)
    assert not any(f'data-chart="{name}"' in bare for name in CHARTS)


def test_hostile_names_stay_text():
    details = {
        **complete().details,
        "neighbour": {"removed": samples.HOSTILE, "added": 1, "distance": 1.0, "by": samples.BREAKOUT},
    }
    hostile = dataclasses.replace(
        complete(), details=details, metadata={**complete().metadata, "name": samples.HOSTILE}
    )
    made = audit_page.to_html(hostile)
    assert samples.HOSTILE not in made and "<img" not in made
