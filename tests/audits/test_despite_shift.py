"""A bound despite a shift: a difference without a leak proves nothing, a leak shows, and the gate never takes it."""

import json
from functools import cache

import numpy as np
import pytest

from dosimeter import Audit, Validity, audit_model
from dosimeter.audits.gate import Outcome, gate
from dosimeter.audits.model.page import sections
from dosimeter.audits.shift.despite import FEWEST_PAIRS, bound_despite_shift
from dosimeter.audits.verify import verify
from dosimeter.evidence import Scores


def shifted(count, seed):
    """Members are further to the right, where every model has a lower loss; one label in two is a coin."""
    rng = np.random.default_rng(seed)
    sides = []
    for mean in (1.0, 0.0):
        X = rng.normal(size=(count, 3))
        X[:, 0] += mean
        sides.append((X, rng.integers(0, 2, count)))
    return sides


def model(known=None, strength=0.0):
    """Surer of every label the further right a record lies, and surer still of the labels that it knows."""
    labels = {} if known is None else {row.tobytes(): label for row, label in zip(*known, strict=True)}
    truth = {}

    def logits(rows):
        sign = np.array([2.0 * labels.get(r.tobytes(), 0.5) - 1.0 for r in rows])
        base = np.array([2.0 * truth[r.tobytes()] - 1.0 for r in rows]) * rows[:, 0]
        return np.stack([np.zeros(len(rows)), base + strength * sign], axis=1)

    return logits, truth


@cache
def audited(strength, seed=1):
    inside, outside = shifted(400, seed)
    logits, truth = model(inside if strength else None, strength)
    for X, y in (inside, outside):
        truth.update({row.tobytes(): label for row, label in zip(X, y, strict=True)})
    return audit_model(logits, members=inside, nonmembers=outside, outputs="logits", resamples=0)


def conditional(audit):
    (found,) = [e for e in audit.estimates if e.method == "propensity"]
    return found


def test_a_shift_without_a_leak_fools_the_headline_and_not_this_bound():
    audit = audited(0.0)
    assert audit.guard.shift and audit.headline.low > 0.5
    found = conditional(audit)
    assert found.low == 0.0 and found.validity is Validity.CONDITIONAL and found.neighbours == "replace"
    assert found.details["calibrated"]


def test_a_leak_shows_despite_the_shift_and_is_verified_but_never_taken_by_the_gate():
    audit = audited(2.0)
    found = conditional(audit)
    assert found.low > found.details["by_order"] >= 0 and found.low > 0.5
    assert "holds if" in found.claim and "only their order" in found.claim
    again = verify(Audit.from_json(audit.to_json()))
    assert again.valid and next(f for f in again.findings if f.subject == "propensity").recomputed == pytest.approx(
        found.low, abs=1e-9
    )
    rules = {v.rule: v.outcome for v in gate(audit, max_epsilon=100.0)}
    assert rules["no shift"] is Outcome.FAIL  # a conditional number does not heal the shift
    assert "despite the shift" in sections(audit, {})[0]


def test_a_forged_table_is_contradicted():
    values = json.loads(audited(2.0).to_json())
    (found,) = [e for e in values["estimates"] if e["method"] == "propensity"]
    found["details"]["table"][3] = found["details"]["table"][2]
    assert not verify(Audit.from_dict(values)).valid


def test_no_such_bound_without_a_shift_with_coins_or_with_few_pairs():
    inside, outside = shifted(FEWEST_PAIRS - 1, 3)
    scores = Scores(inside[0][:, 0], outside[0][:, 0])
    asked = {"labels": None, "delta": 0.0, "confidence": 0.95, "seed": 0}
    assert bound_despite_shift(inside[0], outside[0], scores, **asked) is None
    (X, y), _ = shifted(300, 4)
    plain = audit_model(lambda rows: np.stack([rows[:, 1], rows[:, 2]], axis=1), members=(X[:150], y[:150]),
                        nonmembers=(X[150:], y[150:]), outputs="logits", resamples=0)  # fmt: skip
    assert not plain.guard.shift and all(e.method != "propensity" for e in plain.estimates)
