"""The pages of audits that train: how they were run, intervals side by side, the points, a claim's wealth, guesses."""

import dataclasses
import math
import re

import numpy as np
import pytest

from dosimeter.audits import page as audit_page
from dosimeter.audits.one_run import audit_one_run
from dosimeter.audits.page.facts import page_of
from dosimeter.audits.result import Audit
from dosimeter.audits.training import audit_training
from dosimeter.engine import RunOptions
from dosimeter.report.markup import epsilon

RECORDS = 60
DATA = (np.zeros((RECORDS, 1)), np.zeros(RECORDS))
COMMON = {"seed": 0, "signal": lambda outputs, labels: outputs, "run": RunOptions(engine="inline", progress=False)}
HOSTILE = "<script>alert('x')</script>"


def train(indices, seed):
    if seed % 29 == 0:
        raise RuntimeError(HOSTILE)
    outputs = np.random.default_rng(seed).laplace(size=RECORDS)
    outputs[indices] += 3.0
    return lambda records: outputs


@pytest.fixture(scope="module")
def audits() -> dict[str, Audit]:
    return {
        "challenge": audit_training(train, DATA, shadows=24, runs=60, name=HOSTILE, **COMMON),
        "several": audit_training(train, DATA, shadows=24, runs=30, challenges=6, **COMMON),
        "crossed": audit_training(train, DATA, shadows=40, game="crossed", challenges=6, **COMMON),
        "rejected": audit_training(train, DATA, shadows=24, runs=300, claim=(0.2, 1e-5), **COMMON),
        "standing": audit_training(train, DATA, shadows=24, runs=80, claim=(2.0, 1e-5), **COMMON),
        "one-run": audit_one_run(train, DATA, count=RECORDS, **COMMON),
    }


@pytest.fixture(scope="module")
def pages(audits) -> dict[str, str]:
    return {name: audit_page.to_html(audit) for name, audit in audits.items()}


def headings(page: str) -> list[str]:
    return re.findall(r'<section id="([\w-]+)"', page)


def shown(page: str) -> set[str]:
    return set(re.findall(r'data-chart="(\w+)"', page))


@pytest.mark.parametrize(
    ("name", "sections", "charts"),
    [
        ("challenge", ["game", "intervals", "points"], {"intervals", "distributions", "roc"}),
        ("several", ["game", "intervals", "points"], {"intervals", "distributions", "roc"}),
        ("crossed", ["game", "intervals", "points"], {"intervals", "distributions", "roc"}),
        ("rejected", ["game", "claim", "points"], {"wealth", "distributions", "roc"}),
        ("standing", ["game", "claim", "intervals", "points"], {"wealth", "intervals", "distributions", "roc"}),
        ("one-run", ["game", "guesses", "intervals"], {"guesses", "intervals", "distributions", "roc"}),
    ],
)
def test_sections_and_charts_of_each_kind(pages, name, sections, charts):
    page = pages[name]
    found = headings(page)
    assert found[: 3 + len(sections)] == ["verdict", "evidence", "roc", *sections]
    assert shown(page) == {"region", *charts}
    assert page.count("<script>alert") == 0


@pytest.mark.parametrize("name", ["standing", "one-run"])
def test_a_page_comes_back_from_json(audits, pages, name):
    again = Audit.from_json(audits[name].to_json())
    assert page_of(again.metadata.kind) is not None
    assert (again.details, again.metadata) == (audits[name].details, audits[name].metadata)
    assert audit_page.to_html(again) == pages[name]


def test_how_it_was_run_is_told(audits, pages):
    page = pages["challenge"]
    assert "24 shadow models were trained on random halves" in page
    assert "60 models were trained on all other records" in page
    assert "credible is not confidence" in page
    failed = audits["challenge"].metadata.failed
    assert failed and f"seed {failed[0].seed}" in page
    assert "&lt;script&gt;alert" in page
    crossed = pages["crossed"]
    assert "the other 20 were then attacked" in crossed
    assert "If the scores were independent, which nothing guarantees" in crossed
    assert audits["one-run"].metadata.mask_hash in pages["one-run"]


def test_the_intervals_drawn_are_those_of_the_estimates(audits, pages):
    audit = audits["challenge"]
    spec = audit_page.charts(audit)["intervals"]
    rows = next(rows for rows in spec["datasets"].values() if "high" in rows[0])
    for row, estimate in zip(rows, audit.estimates, strict=True):
        assert row["row"] == estimate.method
        assert row["low"] == pytest.approx(estimate.low)
        if math.isfinite(estimate.high):
            assert row["high"] == pytest.approx(estimate.high)
        assert (row["kind"] == "holds for any training") == estimate.validity.is_bound
    narrower = audit.details.joint.narrower
    assert narrower is None or f"{100 * narrower:.3g}" in pages["challenge"]


def test_the_threshold_is_drawn_where_it_was_fixed(audits):
    audit = audits["challenge"]
    rows = audit_page.charts(audit)["distributions"]["datasets"]["threshold"]
    assert rows[0]["x"] == audit.distributions.threshold
    outside = dataclasses.replace(audit, distributions=dataclasses.replace(audit.distributions, threshold=1e9))
    assert "threshold" not in audit_page.charts(outside)["distributions"]["datasets"]


def test_the_wealth_path_ends_where_the_claim_fell(audits, pages):
    audit = audits["rejected"]
    claim = audit.details.claim
    page = pages["rejected"]
    assert f"was rejected after {claim.rejected_at} of at most 300 runs" in page
    spec = audit_page.charts(audit, width=330)["wealth"]
    rows = max(spec["datasets"].values(), key=len)
    assert rows[-1]["x"] == claim.rejected_at
    assert rows[-1]["y"] == pytest.approx(claim.log_wealth[-1])
    assert "was not rejected in 80 runs. That does not prove it." in pages["standing"]


def test_the_points_are_listed_with_their_counts(audits, pages):
    audit, page = audits["several"], pages["several"]
    for point in audit.details.points:
        assert f"{point.tp} of {point.tp + point.fn}" in page
        assert epsilon(point.epsilon) in page
    assert "The next candidates" in page


def test_a_long_path_is_thinned_and_keeps_its_ends(audits):
    audit = audits["standing"]
    path = tuple(np.linspace(0.0, 2.0, 5000).tolist())
    claim = dataclasses.replace(audit.details.claim, log_wealth=path)
    long = dataclasses.replace(audit, details=dataclasses.replace(audit.details, claim=claim))
    rows = max(audit_page.charts(long)["wealth"]["datasets"].values(), key=len)
    assert len(rows) <= 400
    assert (rows[0]["x"], rows[-1]["x"], rows[-1]["y"]) == (1, 5000, 2.0)
