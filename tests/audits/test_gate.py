"""The gate: rules against an audit that is verified first, what must never pass, exit codes, JUnit and Markdown."""

import json
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from training_games import simulated

from dosimeter import InputError, Scores
from dosimeter.audits.gate import InvalidAuditError, Outcome, gate, junit, markdown, passed
from dosimeter.audits.result import Audit, FailedTraining, TrainingCounts
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.shift.guard import Guard
from dosimeter.cli import main
from dosimeter.estimators.lower_bound import lower_bound

RNG = np.random.default_rng(0)
SCORES = Scores(RNG.normal(2, 1, 150), RNG.normal(0, 1, 150))


@pytest.fixture(scope="module")
def audit() -> Audit:
    return audit_scores(SCORES, resamples=0)


def outcome(verdicts, rule: str) -> Outcome:
    return next(v.outcome for v in verdicts if v.rule.startswith(rule))


def test_rules(audit: Audit) -> None:
    low = audit.headline.low
    assert gate(audit, max_epsilon=low + 0.01)[0].outcome is Outcome.PASS
    assert gate(audit, max_epsilon=low - 0.01)[0].outcome is Outcome.FAIL
    tpr = audit.curve.tpr_at_fpr[1].tpr
    kept, broken = (gate(audit, max_tpr_at_fpr={0.01: limit})[0].outcome for limit in (tpr, tpr - 0.01))
    assert kept is Outcome.PASS and broken is Outcome.FAIL
    assert outcome(gate(audit, min_confidence=0.95), "min-confidence") is Outcome.PASS
    assert outcome(gate(audit, min_confidence=0.99), "min-confidence") is Outcome.FAIL
    assert passed(gate(audit, max_epsilon=low))


def test_what_nobody_checked_is_said(audit: Audit) -> None:
    verdicts = gate(audit, max_epsilon=50, allow_undecided=True)
    assert outcome(verdicts, "shift") is Outcome.NOTE and passed(verdicts)
    with pytest.warns(DeprecationWarning, match="require_no_shift"):
        verdicts = gate(audit, require_no_shift=True)
    assert outcome(verdicts, "require-no-shift") is Outcome.FAIL


def test_a_large_delta_fails() -> None:
    for delta in (0.9, 0.002):
        loose = audit_scores(SCORES, delta=delta, resamples=0)
        assert outcome(gate(loose, max_epsilon=50, allow_undecided=True), "max-delta") is Outcome.FAIL
    assert outcome(gate(loose, max_epsilon=50, max_delta=0.01), "max-delta") is Outcome.PASS


@pytest.mark.parametrize("size", [1, 3, 20])
def test_an_audit_that_could_not_have_failed_is_undecided(size: int) -> None:
    scores = Scores(np.arange(size) + 100.0, np.arange(size) + 0.0)
    audit = audit_scores(scores, resamples=0)
    most = lower_bound(scores, delta=1e-5).details["largest_provable"]
    verdicts = gate(audit, max_epsilon=most + 0.1)
    assert verdicts[0].outcome is Outcome.UNDECIDED and not passed(verdicts)
    through = gate(audit, max_epsilon=most + 0.1, allow_undecided=True)
    assert through[0].outcome is Outcome.NOTE and "undecided" in through[0].reason and passed(through)


def test_reversed_scores_are_undecided() -> None:
    audit = audit_scores(Scores(SCORES.nonmembers, SCORES.members), resamples=0)
    verdicts = gate(audit, max_epsilon=2, max_tpr_at_fpr={0.1: 0.5})
    assert [v.outcome for v in verdicts[:2]] == [Outcome.UNDECIDED] * 2 and "wrong way round" in verdicts[0].reason


def test_a_shift_fails(audit: Audit) -> None:
    found = {"p_value": 0.001, "level": 0.05, "class_balance_p": None, "auc": 0.9, "auc_low": 0.8, "auc_high": 0.95}
    guard = Guard(shift=True, checked=True, evidence={**found, "confidence": 0.95, "duplicates": 0, "reasons": ["x"]})
    shifted = replace(audit, guard=guard)
    assert outcome(gate(shifted, max_epsilon=50), "no shift") is Outcome.FAIL
    assert outcome(gate(shifted, max_epsilon=50, allow_shift=True), "no shift") is Outcome.NOTE


def test_neighbours(audit: Audit) -> None:
    one = replace(audit, estimates=(audit.headline,))
    assert outcome(gate(one, require_neighbours="replace"), "require") is Outcome.PASS
    assert outcome(gate(one, require_neighbours="add/remove"), "require") is Outcome.FAIL
    other = lower_bound(SCORES, delta=1e-5, neighbours="add/remove")
    both = replace(audit, estimates=(audit.headline, other))
    with pytest.raises(InputError, match="the headline of one model is for replacing"):
        gate(replace(audit, estimates=(other, audit.headline)), max_epsilon=9)
    limit = (other.low + audit.headline.low) / 2
    assert gate(both, max_epsilon=limit)[0].outcome is Outcome.FAIL
    assert passed(gate(both, max_epsilon=limit, require_neighbours="add/remove"))


def test_failed_trainings() -> None:
    audit = simulated(1.0, 1, shadows=16, runs=184)
    asked = audit.metadata.trainings.asked
    assert asked == 200
    why = FailedTraining(stage="challenges", index=0, seed=1, reason="out of memory")
    for failed, kept in ((2, True), (3, False)):
        counts = TrainingCounts(asked=asked, done=asked - failed, failed=failed)
        told = replace(audit, metadata=replace(audit.metadata, trainings=counts, failed=(why,) * failed))
        options = {"max_epsilon": 50, "max_delta": 1.0, "allow_undecided": True}
        assert (outcome(gate(told, **options), "failed trainings") is Outcome.PASS) is kept
        assert passed(gate(told, **options, allow_failed=True))
    missing = TrainingCounts(asked=asked, done=asked - 50)
    with pytest.raises(InputError, match="trainings were asked for"):
        gate(replace(audit, metadata=replace(audit.metadata, trainings=missing)), max_epsilon=50)


def test_much_confidence_and_equal_scores_are_undecided() -> None:
    sure = audit_scores(SCORES, confidence=0.9995, resamples=0)
    verdict = gate(sure, max_epsilon=sure.headline.low + 0.01)[0]
    assert verdict.outcome is Outcome.UNDECIDED and "99.9 %" in verdict.reason
    equal = audit_scores(Scores(np.zeros(200), np.zeros(200)), resamples=0)
    verdict = gate(equal, max_epsilon=1)[0]
    assert verdict.outcome is Outcome.UNDECIDED and "all scores are equal" in verdict.reason


def test_an_audit_without_evidence_does_not_pass(audit: Audit) -> None:
    values = json.loads(audit.to_json())
    values["schema"] = 1
    for estimate in values["estimates"]:
        del estimate["neighbours"]
    values["estimates"][0]["details"] = {}
    values["estimates"][0].update(low=0.1, epsilon=0.1)
    older = Audit.from_dict(values)
    assert outcome(gate(older, max_epsilon=1), "verified") is Outcome.FAIL
    assert passed(gate(older, max_epsilon=1, allow_unverified=True))


def test_a_changed_number_is_no_audit(audit: Audit) -> None:
    head = replace(audit.headline, epsilon=0.5, low=0.5, claim="With 95 % confidence the loss is at least ε = 0.5.")
    with pytest.raises(InvalidAuditError, match="lower-bound"):
        gate(replace(audit, estimates=(head, *audit.estimates[1:])), max_epsilon=1)
    with pytest.raises(InvalidAuditError, match="data: "):
        gate(audit, max_epsilon=50, data=Scores(SCORES.nonmembers, SCORES.members))


def test_bad_rules(audit: Audit) -> None:
    with pytest.raises(InputError, match="needs a limit; pass max_epsilon") as error:
        gate(audit)
    assert "--" not in str(error.value)
    with pytest.raises(InputError, match=r"the FPR 0\.5, the audit has"):
        gate(audit, max_tpr_at_fpr={0.5: 0.9})
    for name, value in (
        ("max_epsilon", -1),
        ("max_epsilon", "1"),
        ("max_delta", 2),
        ("min_confidence", 1),
        ("require_neighbours", "all"),
        ("max_tpr_at_fpr", [0.1]),
        ("allow_shift", "yes"),
    ):
        with pytest.raises(InputError, match="confidence" if "confidence" in name else name):
            gate(audit, **{"max_epsilon": 1, name: value})


def test_junit_and_markdown(audit: Audit) -> None:
    verdicts = gate(audit, max_epsilon=0.0, max_tpr_at_fpr={0.01: 1.0})
    suite = ET.fromstring(junit(verdicts))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (str(len(verdicts)), "1", "1")
    assert "ε ≥" in suite.find("testcase/failure").get("message")
    table = markdown(verdicts, name="a|b<script>")
    assert "does not pass" in table and "| FAIL | max-epsilon 0 |" in table
    assert "<script>" not in table.replace("\\<", "") and "a\\|b" in table


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["dosimeter", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.fixture
def file(audit: Audit, tmp_path: Path) -> Path:
    path = tmp_path / "audit.json"
    path.write_text(audit.to_json(), encoding="utf-8")
    return path


def test_command(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path = file.parent
    assert run(["gate", str(file), "--max-epsilon", "8"], monkeypatch) == 0
    outputs = ["--junit", str(tmp_path / "gate.xml"), "--markdown", str(tmp_path / "gate.md")]
    assert run(["gate", str(file), "--max-epsilon", "0.1", *outputs], monkeypatch) == 1
    assert (tmp_path / "gate.xml").read_text(encoding="utf-8").startswith("<?xml")
    assert (tmp_path / "gate.md").read_text(encoding="utf-8").startswith("### dosimeter gate: audit.json does not pass")
    shown = capsys.readouterr()
    assert "pass" in shown.out and "FAIL" in shown.out and "nothing proves who made this file" in shown.out
    for arguments in (["--max-tpr-at-fpr", "0.01"], [], ["--max-epsilon", "nan"], ["--max-tpr-at-fpr", "0.01=2"]):
        assert run(["gate", str(file), *arguments], monkeypatch) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "max_" not in error
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    assert run(["gate", str(tmp_path / "other.json"), "--max-epsilon", "1"], monkeypatch) == 2
    assert run(["gate", str(tmp_path / "missing.json"), "--max-epsilon", "1"], monkeypatch) == 2


@pytest.mark.parametrize("order", [("0.99", "0.01"), ("0.01", "0.99")])
def test_of_two_limits_for_one_rate_the_strictest_counts(file: Path, order, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [part for limit in order for part in ("--max-tpr-at-fpr", f"0.1={limit}")]
    assert run(["gate", str(file), *options], monkeypatch) == 1


def test_commands_verify_and_data(file: Path, monkeypatch, capsys) -> None:
    np.savez(file.parent / "scores.npz", members=SCORES.members, nonmembers=SCORES.nonmembers)
    np.savez(file.parent / "other.npz", members=SCORES.members + 1, nonmembers=SCORES.nonmembers)
    assert run(["verify", str(file)], monkeypatch) == 0
    assert "follows" in capsys.readouterr().out
    assert run(["verify", str(file), "--data", str(file.parent / "scores.npz"), "--json"], monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True
    assert run(["verify", str(file), "--data", str(file.parent / "other.npz")], monkeypatch) == 2
    assert run(["gate", str(file), "--max-epsilon", "9", "--data", str(file.parent / "other.npz")], monkeypatch) == 2


def test_the_ceiling_is_said_on_the_command_line(tmp_path: Path, monkeypatch, capsys) -> None:
    np.savez(tmp_path / "scores.npz", members=np.arange(20.0) + 50, nonmembers=np.arange(20.0))
    assert run(["audit", str(tmp_path / "scores.npz")], monkeypatch) == 0
    assert "the most that an audit of so many records can prove" in " ".join(capsys.readouterr().out.split())
