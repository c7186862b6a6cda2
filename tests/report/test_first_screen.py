"""The first screen: a verdict as strong as what was proven, cards that agree, the region, and steps that follow."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from functools import cache

import numpy as np
import pytest
import samples
from test_page import words_of

from dosimeter.accounting import account
from dosimeter.audits import page as audit_page
from dosimeter.audits.page import facts
from dosimeter.audits.page.appendix import FIELDS
from dosimeter.audits.page.evidence import headline_ends
from dosimeter.audits.page.facts import TOLERABLE, Conclusion, verdict_words
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores
from dosimeter.estimate import Validity
from dosimeter.evidence import Scores

pytestmark = pytest.mark.slow


@cache
def nothing(size: int = 200) -> Audit:
    """Scores that tell nothing."""
    rng = np.random.default_rng(5)
    return audit_scores(Scores(rng.normal(size=size), rng.normal(size=size)), resamples=0)


@cache
def measured() -> Audit:
    """A headline that is not a bound, alone."""
    star = next(e for e in samples.full().estimates if e.method == "epsilon-star-parametric")
    audit = samples.full(guard=False)
    return dataclasses.replace(audit, estimates=(star,), upper=(), region=None, subgroups=())


VERDICTS = {
    "leak": (samples.full, Conclusion.LEAK, "Leak proven, if the split was random"),
    "none": (nothing, Conclusion.NONE, "No leak proven"),
    "shift": (samples.shifted, Conclusion.FAILED, "Check failed: nothing can be concluded"),
    "broken": (
        lambda: samples.full(8.0, guard=False),
        Conclusion.BROKEN,
        "Leak proven, above the guarantee, if the split was random",
    ),
    "measured": (measured, Conclusion.MEASURED, "Leak estimated, nothing proven"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_is_said_in_words_and_colour_before_any_epsilon(name: str) -> None:
    make, conclusion, heading = VERDICTS[name]
    audit = make()
    assert facts.conclusion(audit) is conclusion
    said, lead = verdict_words(audit, facts.verdict(audit))
    assert said == heading and "ε" not in said + lead
    page = audit_page.to_html(audit)
    assert f'<div class="verdict {conclusion}"><p>' in page and f">{heading}</h2>" in page
    text = words_of(page, "verdict")
    assert text.index(lead[:40]) < text.index("ε")


def test_a_condition_of_the_bound_is_part_of_the_verdict() -> None:
    """Coins need no condition; a split and runs do, and the words follow the validity alone."""
    audit = samples.full()
    for validity, told in (
        (Validity.FINITE_SAMPLE, ""),
        (Validity.RANDOM_SPLIT, "if chance alone decided"),
        (Validity.INDEPENDENT_RUNS, "if every score comes from a training run of its own"),
    ):
        heads = tuple(
            dataclasses.replace(e, validity=validity) if e.method == "lower-bound" else e for e in audit.estimates
        )
        changed = dataclasses.replace(audit, estimates=heads)
        heading, lead = verdict_words(changed, facts.verdict(changed))
        assert told in lead and (", if " in heading) == bool(told)
        assert "This holds" in lead or not told


def test_none_proven_is_never_none() -> None:
    text = words_of(audit_page.to_html(nothing()), "verdict")
    most = facts.ceiling(nothing().headline)
    assert "That is not proof of privacy" in text and "no leak found" not in text.lower()
    assert f"Could have been proven ε ≥ {most:.4g}" in text and "would have proven one" in text
    few = audit_scores(Scores([1.0], [0.0]), resamples=0)
    assert facts.conclusion(few) is Conclusion.NONE
    assert "No attack on so few records could have proven one" in verdict_words(few, facts.verdict(few))[1]


def test_the_three_cards_and_the_picture_are_about_one_pair() -> None:
    audit = samples.full()
    page = audit_page.to_html(audit)
    text = words_of(page, "verdict")
    lower, stated = facts.shown(audit)
    assert stated is not None and lower.neighbours == stated.neighbours == "replace"
    assert page.count('<dd class="big">') == 3
    assert f"ε ≥ {lower.low:.4g} for replacing one record" in text
    assert f"ε ≤ {stated.epsilon:.4g} for replacing one record" in text
    assert f"Below {lower.low:.4g}: excluded by the attack" in text
    assert f"Above {stated.epsilon:.4g}: excluded by the guarantee. In between: not known." in text
    rows = [r for data in audit_page.charts(audit)["region"]["datasets"].values() for r in data if "kind" in r]
    assert [(r["from"], r["to"]) for r in rows][:2] == [(0.0, lower.low), (lower.low, stated.epsilon)]


def test_a_bound_without_its_guarantee_gives_way_to_one_that_has_it_unless_it_alone_proves_something() -> None:
    audit = samples.full()
    adding = tuple(g for g in audit.upper if g.neighbours == "add/remove")
    one = dataclasses.replace(audit, upper=adding, region=None)
    assert facts.shown(one)[0].neighbours == "add/remove"
    silent = tuple(
        dataclasses.replace(e, epsilon=0.0, low=0.0) if e.neighbours == "add/remove" and e.validity.is_bound else e
        for e in one.estimates
    )
    lower, stated = facts.shown(dataclasses.replace(one, estimates=silent))
    assert lower.neighbours == "replace" and lower.low > 0 and stated is None


def test_there_are_three_steps_and_they_depend_on_the_result() -> None:
    titles = {}
    for name, (make, _, _) in VERDICTS.items():
        steps = facts.steps(make())
        assert len(steps) == 3 and len({s.title for s in steps}) == 3, name
        titles[name] = [s.title for s in steps]
    assert titles["leak"][:2] == ["Train with more noise", "Look at age = under 25 first"]
    assert titles["none"] == [
        "Compare with reference models",
        "Audit more records",
        "Audit persons, if a person has several records",
    ]
    assert titles["shift"][0] == "Draw the members by fair coins"
    assert titles["broken"][0] == "Do not release the model under this guarantee"
    listed = audit_page.to_html(nothing())
    assert listed.count('<ol class="steps"') == 1
    for step in facts.steps(nothing()):
        assert step.title in listed


def test_noise_is_not_computed_for_a_step_that_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> float:
        raise AssertionError("the noise was computed")

    monkeypatch.setattr(facts, "noise_for_epsilon", refused)
    assert len(facts.steps(nothing())) == 3
    with pytest.raises(AssertionError, match="the noise was computed"):
        facts.steps(samples.full())


def test_the_noise_of_the_step_keeps_what_it_promises() -> None:
    step = facts.steps(samples.full())[0]
    noise = float(re.search(r"noise multiplier of ([\d.]+)", step.text)[1])
    records, batch, epochs = map(
        int, re.search(r"For (\d+) records in Poisson batches of (\d+) over (\d+)", step.text).groups()
    )
    assert records == samples.full().metadata.members
    steps = round(epochs * records / batch)
    tight = account(noise_multiplier=noise, sample_rate=batch / records, steps=steps, delta=1e-5, methods=["pld"])[0]
    assert tight.is_bound and tight.neighbours == "add/remove" and tight.epsilon <= TOLERABLE
    assert math.exp(TOLERABLE) / (1 + math.exp(TOLERABLE)) == pytest.approx(0.75)


def test_more_records_prove_what_is_said() -> None:
    step = next(s for s in facts.steps(nothing()) if s.title == "Audit more records")
    few, now, many, most = re.search(
        r"On (\d+) records even a perfect attack proves only about ε ≥ (\S+); on (\d+) it .* about ε ≥ (\S+)\.",
        step.text,
    ).groups()
    assert (int(few), int(many)) == (400, 1600)
    assert float(now) == pytest.approx(facts.ceiling(nothing().headline), rel=1e-3)
    perfect = audit_scores(Scores(np.arange(800) + 800.0, np.arange(800) * 1.0), resamples=0).headline
    assert float(most) == pytest.approx(facts.ceiling(perfect), rel=1e-3)


def test_the_evidence_is_shown_in_counts_and_marked_on_the_curve() -> None:
    audit = samples.full()
    tested = audit.headline.details["tested"]
    text = words_of(audit_page.to_html(audit), "evidence")
    shares = {side: f"{100 * tested[f'{side}_members'] / tested[side]:.3g} %" for side in ("upper", "lower")}
    for side, like in (("upper", "most"), ("lower", "least")):
        counts = f"{tested[side]} {tested[f'{side}_members']} {shares[side]}"
        assert f"records that looked {like} like members {counts}" in text
    left, right = headline_ends(audit)
    sides = audit.metadata.members, audit.metadata.nonmembers
    assert left.tpr == tested["upper_members"] / sides[0]
    assert left.fpr == pytest.approx((tested["upper"] - tested["upper_members"]) / sides[1])
    assert right.tpr == 1 - tested["lower_members"] / sides[0]
    assert right.fpr == pytest.approx(1 - (tested["lower"] - tested["lower_members"]) / sides[1])
    caption = words_of(audit_page.to_html(audit), "roc")
    assert f"the {tested['upper']} that look most like members, {tested['upper_members']} of them members" in caption
    forged = dict(audit.headline.details) | {"tested": dict(tested) | {"upper_members": tested["upper_members"] - 1}}
    other = dataclasses.replace(audit.headline, details=forged)
    ends = headline_ends(dataclasses.replace(audit, estimates=(other, *audit.estimates[1:])))
    assert [e.from_left for e in ends] == [False], "counts that are not the end of the ranking are not marked"


def test_the_audit_can_be_saved_from_its_page() -> None:
    page = audit_page.to_html(samples.full())
    saved = re.search(r'href="data:application/json;base64,([^"]*)"', page)
    assert saved is not None
    assert Audit.from_json(base64.b64decode(saved[1])).to_json() == samples.full().to_json()


def test_mixtures_stand_in_the_appendix_with_their_weights() -> None:
    losses = [np.random.default_rng(s).gamma(2.0, 1.0, 500) for s in (0, 1)]
    from dosimeter.estimators.goodness_of_fit import goodness_of_fit

    fit = goodness_of_fit(losses[0], components=(1, 2), sample_sizes=(100,), seed=0).to_dict()
    audit = samples.full()
    meta = dataclasses.replace(
        audit.metadata, goodness_of_fit={"members": fit, "nonmembers": {"not_fitted": "all equal"}}
    )
    text = words_of(audit_page.to_html(dataclasses.replace(audit, metadata=meta)), "method")
    weights = fit["mixtures"][1]["weights"]
    assert f"{weights[0]:.3g} of N(" in text and "all equal" in text
    assert "goodness" not in text.lower()


def test_the_documented_keys_fill_the_fields_of_nist() -> None:
    notes = {
        keys[0]: f"what is stated of {field}" for field, keys in FIELDS if keys[0] not in ("neighbours", "mechanism")
    }
    page = audit_page.to_html(samples.audited("age", samples.AGES, {"model": "m", **notes}))
    text = words_of(page, "nist")
    assert f"Stated to the audit: {len(FIELDS)} of {len(FIELDS)}." in text
    for field, keys in FIELDS:
        assert field in text and f" {keys[0]} " in text
    assert json.dumps(text).count("not stated") == 0
