"""The page of a gradient audit: its charts in both widths, its sentences, and what is missing when data are."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import samples

from dosimeter import InputError
from dosimeter.accounting import Gaussian
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits import page as audit_page
from dosimeter.audits.gradients import audit_gradients, audit_transcripts
from dosimeter.audits.gradients import page as gradients_page
from dosimeter.audits.gradients.page import CHARTS
from dosimeter.audits.gradients.result import GradientsDetails
from dosimeter.audits.gradients.transcripts import NOT_PRIVATE, with_warnings
from dosimeter.audits.page import charts
from dosimeter.audits.result import Audit
from dosimeter.engine import RunOptions
from dosimeter.report.canvas import NARROW, WIDE
from dosimeter.training import Privacy, Recipe

STEPS, MU = 30, 1.5
N, DIMS = 40, 8


@cache
def simulated(runs: int = 200, both: bool = True) -> Audit:
    """Runs whose sensitivity falls over the steps below a global one of 6."""
    rng = np.random.default_rng(0)
    distances = np.linspace(5, 2, STEPS) * rng.uniform(0.8, 1.1, (runs, 1))
    deviation = 6 * math.sqrt(STEPS) / MU
    projections = deviation * distances * rng.standard_normal((runs, STEPS))
    world = rng.random(runs) < 0.5 if both else np.ones(runs, bool)
    seen = Transcripts(distances, projections, deviation, world, sensitivity=6.0)
    mechanism = Gaussian(2 * math.sqrt(STEPS) / MU, steps=STEPS, neighbours="replace")  # type: ignore[arg-type]
    return audit_transcripts(seen, delta=1e-3, mechanism=mechanism, name="simulated runs")


def manhattan(a, b):
    return np.abs(a[:, None] - b[None]).sum(axis=2)


def trained(distance=manhattan, **changes) -> Audit:
    """Small trainings, with everything that a gradient audit can show."""
    torch = pytest.importorskip("torch", reason="trainings need torch: dosimeter[torch]")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3 * N, DIMS)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    options = {
        "recipe": Recipe(steps=8, batch_size=None, learning_rate=0.2, dp=Privacy(0.0, clip=0.7)),
        "universe": (x[N : 2 * N], y[N : 2 * N]),
        "test": (x[2 * N :], y[2 * N :]),
        "repetitions": 60,
        "belief": 0.9,
        "delta": 1e-3,
        "seed": 1,
        "run": RunOptions(engine="inline", progress=False),
    }
    return audit_gradients(
        lambda: torch.nn.Linear(DIMS, 2), (x[:N], y[:N]), distance=distance, **{**options, **changes}
    )


@pytest.fixture(scope="module")
def complete() -> Audit:
    return trained()


@pytest.fixture(scope="module")
def page(complete) -> str:
    return audit_page.to_html(complete)


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def rows(chart) -> list:
    return [row for data in chart["datasets"].values() for row in data]


def test_every_chart_is_drawn_in_both_widths(complete, page):
    for width in (WIDE, NARROW):
        drawn = charts(complete, width=width)
        assert set(CHARTS) <= set(drawn)
        for name in CHARTS:
            assert any(layer.get("name") == "hover" for layer in drawn[name]["layer"])
    for name in CHARTS:
        assert page.count(f'data-chart="{name}"') == 1


def test_the_charts_show_the_audit():
    drawn, details = charts(simulated()), simulated().details
    medians = [row for row in rows(drawn["beliefs"]) if "text" in row and row["x"] == STEPS]
    assert {row["world"] for row in medians} == {"trained on D", "trained on D′"}
    by_world = {row["world"]: row["y"] for row in medians}
    assert by_world["trained on D"] == pytest.approx(details.trajectories.median.on_d[-1])
    assert by_world["trained on D"] > 0.5 > by_world["trained on D′"]
    epsilons = [row for row in rows(drawn["epsilons"]) if "row" in row]
    assert [row["row"] for row in epsilons[: len(details.epsilons)]] == [row.name for row in details.epsilons]
    assert [row["y"] for row in rows(drawn["sensitivities"]) if "name" in row] == [6.0]


def test_the_page_says_it_in_words(complete, page):
    text, details = words(page), complete.details
    choice, yeom, accuracy = details.neighbour, details.yeom, details.utility
    assert f"D′ is D with row {choice.removed} replaced by row {choice.added} of the other records." in text
    assert f"its manhattan distance is {choice.distance:.4g}" in text
    assert "What the adversary comes to believe" in text and "How much of the noise was needed" in text
    assert "Thin lines are 40 of 60 runs" in text
    assert f"The target is ε = {details.target.epsilon:.4g} at δ = 0.001" in text
    assert f"Their advantage is {yeom.advantage:.3g}; that of the adversary who reads the gradients" in text
    assert "e^ε − 1 + δ" in text and f"{N} members and {N} others" in text
    assert f"{100 * accuracy.accuracy:.3g} % of {N} test records" in text.replace("\u00a0", " ")
    assert "scaled to the global sensitivity" in text and "there is no shift to look for" in text


def test_after_json_it_is_the_same_page(complete, page):
    assert audit_page.to_html(Audit.from_json(complete.to_json())) == page


def test_a_run_without_guarantee_warns_in_the_verdict():
    local = trained(noise="local", repetitions=12)
    made = audit_page.to_html(local)
    verdict = words(made[made.index('id="verdict"') : made.index('id="adversary"')])
    assert NOT_PRIVATE in local.headline.warnings and "not differentially private" in verdict
    assert "scaled to the local sensitivity" in words(made)
    assert with_warnings(simulated(), []) is simulated()


def test_one_world_and_missing_parts_leave_no_gap():
    one = audit_page.to_html(simulated(both=False))
    assert "trained on D′" not in words(one[one.index('id="adversary"') : one.index('id="sensitivities"')])
    assert 'data-chart="roc"' not in one
    bare = audit_page.to_html(dataclasses.replace(simulated(), details=GradientsDetails()))
    assert "was not stated" in words(bare)
    assert not any(f'data-chart="{name}"' in bare for name in CHARTS)


def test_runs_without_a_target_say_so():
    noise = np.random.default_rng(1).standard_normal((20, 4))
    seen = Transcripts(np.ones((20, 4)), 3.0 * noise, 3.0, np.arange(20) % 2 == 0)
    text = words(audit_page.to_html(audit_transcripts(seen, delta=1e-3)))
    assert "No target was stated." in text and "The target is" not in text and "dotted line" not in text


def test_hostile_names_stay_text():
    def hostile(a, b):
        return manhattan(a, b)

    hostile.__name__ = samples.BREAKOUT
    made = audit_page.to_html(trained(hostile, name=samples.HOSTILE, repetitions=12))
    assert samples.HOSTILE not in made and "<img" not in made


def test_the_page_asks_for_nothing_by_key():
    source = Path(gradients_page.__file__).read_text(encoding="utf-8")
    assert ".get(" not in source and "Mapping[" not in source and "dict[" not in source


# --- files ------------------------------------------------------------------------------------------------


def test_the_file_keeps_its_names(complete):
    """Files of the first version and of this one have the same keys."""
    values = json.loads(complete.to_json())["details"]
    assert set(values["sensitivities"]) == {"step", "low", "median", "high", "global", "largest"}
    assert complete.details.sensitivities["global"] == complete.details.sensitivities.limit == 1.4
    assert complete.details.sensitivities.to_dict() == values["sensitivities"]
    assert set(values["neighbour"]) == {"kind", "removed", "added", "distance", "by"}


@pytest.mark.parametrize("kind", ["complete", "one world"])
def test_a_file_of_version_1_is_read(kind, complete):
    audit = complete if kind == "complete" else simulated(both=False)
    values = json.loads(audit.to_json())
    values["schema"] = 1
    values["curve"] = values["curve"] or {}
    values["metadata"] |= values["metadata"].pop("notes")
    values["metadata"] = {name: item for name, item in values["metadata"].items() if item is not None}
    values["details"] = {name: item for name, item in values["details"].items() if item is not None}
    del values["details"]["noise"]
    again = Audit.from_dict(values)
    assert again.details == dataclasses.replace(audit.details, noise=None)
    assert audit_page.to_html(again)


@pytest.mark.parametrize(
    ("place", "damage", "told"),
    [
        ("trajectories", lambda part: part["beliefs"].pop(), "trajectories"),
        ("trajectories", lambda part: part["beliefs"][3].pop(), "trajectories"),
        ("trajectories", lambda part: part["median"]["on_d"].append(0.5), "trajectories"),
        ("trajectories", lambda part: part["beliefs"][0].__setitem__(1, 1.5), "beliefs"),
        ("final", lambda part: part["on_d"].pop(), "final"),
        ("final", lambda part: part.update(edges=[]), "final"),
        ("sensitivities", lambda part: part["low"].pop(), "sensitivities"),
        ("sensitivities", lambda part: part.update({"global": "6"}), "sensitivities.global"),
        ("sensitivities", lambda part: part.update(limit=6.0), "sensitivities.limit is a field that no audit has"),
        ("neighbour", lambda part: part.update(removed="<b>"), "neighbour.removed"),
        ("yeom", lambda part: part.update(bound_yeom=2.0), "bound_yeom"),
        ("noise", lambda part: part.pop("ratio"), "noise.ratio"),
    ],
)
def test_a_damaged_file_is_refused(complete, place, damage, told):
    values = json.loads(complete.to_json())
    damage(values["details"][place])
    with pytest.raises(InputError, match=re.escape(told)):
        Audit.from_dict(values)
