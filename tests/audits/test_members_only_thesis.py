"""The thesis's protocol: no gate, every threshold, a helper trained as the target is, O(1) on the target's losses."""

import itertools
from functools import cache

import numpy as np
import pytest
from members_games import draw, memoriser, sampler
from sklearn.linear_model import LogisticRegression

from dosimeter import Audit, InputError, OneRun, Validity, audit_members_only, fair_coins
from dosimeter.audits.members_only.page import sections
from dosimeter.audits.members_only.thesis import _both_thresholds, helper_trainer
from dosimeter.audits.verify import verify
from dosimeter.estimators.ranked import guess, logit_bound

ASKED = {"generator": sampler, "references": 3, "repeats": 2, "seed": 5}


@cache
def audited():
    X, y = draw(420, 1)
    models = {"none": LogisticRegression().fit(*draw(420, 2)), "strong": memoriser(X, y, 4.0)}
    return audit_members_only(models, (X, y), nonmembers=draw(180, 3), protocol="thesis", **ASKED)


@pytest.mark.once
def test_its_values_prove_nothing_and_stand_beside_the_honest_ones():
    audit = audited()
    last = audit.estimates[-4:]
    assert [e.method for e in last] == ["panoramia, thesis"] * 2 + ["one-run, thesis"] * 2
    assert all(e.validity is Validity.EXPLORATORY and e.low == 0.0 for e in last)
    assert audit.headline.method == "panoramia" and audit.headline.validity is Validity.MEASUREMENT
    assert audit.metadata["protocol"] == "thesis"
    none, strong = audit.details["thesis"]["targets"]
    assert strong["epsilon"] > none["epsilon"] and strong["one_run"] > none["one_run"]
    honest = audit.details["targets"]
    assert honest[0]["epsilon"] == 0.0 and honest[1]["epsilon"] > 0
    found = verify(Audit.from_json(audit.to_json()))
    again = [f for f in found.findings if f.subject == "panoramia, thesis"]
    assert found.valid and [f.recomputed for f in again] == pytest.approx([none["epsilon"], strong["epsilon"]])


def test_no_gate_and_all_thresholds():
    """{c+ε}_lb and c_lb are the largest points of their curves; ε̃ is the difference whoever stands out."""
    found = audited().details["thesis"]
    assert found["c_lb"] == pytest.approx(max(found["curve"]["bound"]))
    for row in found["targets"]:
        assert row["c_plus_epsilon_lb"] == pytest.approx(max(row["curve"]["bound"]))
        assert row["epsilon"] == pytest.approx(max(0.0, row["c_plus_epsilon_lb"] - found["c_lb"]))


def test_the_page_has_both_values_with_what_each_may_claim():
    text = "".join(sections(audited(), {}))
    assert "As the thesis has it" in text and "ε̃ (honest)" in text and "prove nothing" in text
    assert "a new LogisticRegression with the target&#x27;s settings" in text


def test_one_run_tries_all_pairs_of_thresholds():
    rng = np.random.default_rng(0)
    coins = fair_coins(40, seed=3)
    run = OneRun(np.round(rng.normal(1.5 * coins, 1), 1), coins, 3)
    best = max(
        float(logit_bound(k_in + k_out, guess(run, k_in=k_in, k_out=k_out).correct, 0.05))
        for k_in, k_out in itertools.product(range(41), repeat=2)
        if 0 < k_in + k_out <= 40
    )
    assert _both_thresholds(run, 0.05) == pytest.approx(max(0.0, best))


def test_the_helper_is_the_targets_clone_or_the_callers():
    seen = []

    def train(X, y, seed):
        seen.append((len(X), seed))
        return LogisticRegression().fit(X, y)

    model = LogisticRegression(C=0.01)
    trainer, words = helper_trainer(model, None)
    X, y = draw(60, 7)
    clone = trainer(X, y, 1)
    assert clone is not model and clone.C == 0.01 and hasattr(clone, "coef_") and "LogisticRegression" in words
    assert helper_trainer(model, train) == (train, "trained by helper_train")
    assert helper_trainer(lambda rows: rows, None)[0] is None
    known = memoriser(X, y, 0.0)
    audit = audit_members_only(known, draw(200, 8), protocol="thesis", helper_train=train, **{**ASKED, "references": 0})
    assert len(seen) == 1 and audit.details["thesis"]["helper"] == "trained by helper_train"
    assert audit.details["thesis"]["nonmembers"] == "generated"


def _broken(X, y, seed):
    raise RuntimeError("no memory")


def test_the_helpers_that_are_compared_are_trained_as_the_target_is():
    """Table 7.1: the thesis's helper on generated records, on real non-members, and none."""
    seen = []

    def train(X, y, seed):
        seen.append((len(X), seed))
        return LogisticRegression().fit(X, y)

    X, y = draw(420, 1)
    model, asked = memoriser(X, y, 4.0), {**ASKED, "references": 0}
    audit = audit_members_only(model, (X, y), nonmembers=draw(180, 3), protocol="thesis", helper_train=train, **asked)
    assert len(seen) == 2 and len({seed for _, seed in seen}) == 1
    rows = {row["helper"]: row["auc"] for row in audit.details["strength"]["helper"]}
    plain = audit_members_only(model, (X, y), nonmembers=draw(180, 3), **asked)
    small = {row["helper"]: row["auc"] for row in plain.details["strength"]["helper"]}
    assert rows.keys() == small.keys()
    assert rows["no helper"] == small["no helper"]
    for name in ("helper on generated records", "helper on real non-members"):
        assert rows[name] != small[name]
    assert audit.headline.epsilon == plain.headline.epsilon  # the honest protocol keeps its own helper


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"protocol": "paper"}, "protocol must be 'honest' or 'thesis', got 'paper'"),
        ({"helper_train": 3, "protocol": "thesis"}, "helper_train must be a function"),
        ({"helper_train": _broken}, "pass that too, or leave it out"),
        ({"helper_train": _broken, "protocol": "thesis"}, r"could not be trained .*RuntimeError: no memory"),
    ],
)
def test_bad_input_is_one_sentence(arguments, match):
    with pytest.raises(InputError, match=match):
        audit_members_only(memoriser(*draw(9, 1), 0.0), draw(200, 8), **ASKED, **arguments)
