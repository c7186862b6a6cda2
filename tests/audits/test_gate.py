"""The gate: rules against an audit, exit codes, JUnit."""

import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dosimeter import InputError, Scores, Validity
from dosimeter.audits.audit import Audit
from dosimeter.audits.gate import gate, junit
from dosimeter.audits.scores import audit_scores
from dosimeter.cli import main


@pytest.fixture(scope="module")
def audit() -> Audit:
    rng = np.random.default_rng(0)
    return audit_scores(Scores(rng.normal(2, 1, 500), rng.normal(0, 1, 500)), resamples=0)


def test_rules(audit: Audit) -> None:
    low = audit.headline.low
    assert gate(audit, max_epsilon=low + 0.01)[0].passed
    assert not gate(audit, max_epsilon=low - 0.01)[0].passed
    tpr = audit.curve["tpr_at_fpr"][1]["tpr"]
    passed, failed = (gate(audit, max_tpr_at_fpr={0.01: limit})[0].passed for limit in (tpr, tpr - 0.01))
    assert passed and not failed
    assert not gate(audit, require_no_shift=True)[0].passed  # nothing was checked
    assert len(gate(audit, max_epsilon=1, max_tpr_at_fpr={0.01: 0.5, 0.1: 0.9}, require_no_shift=True)) == 4


def test_a_measurement_is_held_to_the_limit_too(audit: Audit) -> None:
    head = replace(audit.headline, epsilon=1.2, low=0.0, validity=Validity.MEASUREMENT)
    measured = replace(audit, estimates=(head,), curve={"recall": []})
    passed, failed = (gate(measured, max_epsilon=limit)[0] for limit in (1.3, 1.1))
    assert passed.passed and not failed.passed
    assert "measures ε = 1.2" in failed.reason and "proves" not in failed.reason
    with pytest.raises(InputError, match="no ROC curve"):
        gate(measured, max_tpr_at_fpr={0.01: 0.5})


def test_bad_rules(audit: Audit) -> None:
    with pytest.raises(InputError, match="needs a rule"):
        gate(audit)
    with pytest.raises(InputError, match="the FPR 0"):
        gate(audit, max_tpr_at_fpr={0.5: 0.9})
    with pytest.raises(InputError, match="max_epsilon"):
        gate(audit, max_epsilon=-1)


def test_junit_is_well_formed(audit: Audit) -> None:
    suite = ET.fromstring(junit(gate(audit, max_epsilon=0.0, max_tpr_at_fpr={0.01: 1.0})))
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert "ε ≥" in suite.find("testcase/failure").get("message")


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["dosimeter", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_command(
    audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "audit.json"
    file.write_text(audit.to_json(), encoding="utf-8")
    assert run(["gate", str(file), "--max-epsilon", "50"], monkeypatch) == 0
    assert run(["gate", str(file), "--max-epsilon", "0.1", "--junit", str(tmp_path / "gate.xml")], monkeypatch) == 1
    assert (tmp_path / "gate.xml").read_text(encoding="utf-8").startswith("<?xml")
    shown = capsys.readouterr()
    assert "pass" in shown.out and "FAIL" in shown.out
    for arguments in (["--max-tpr-at-fpr", "0.01"], [], ["--max-epsilon", "nan"]):
        assert run(["gate", str(file), *arguments], monkeypatch) == 2
        assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    assert run(["gate", str(tmp_path / "other.json"), "--max-epsilon", "1"], monkeypatch) == 2
    assert run(["gate", str(tmp_path / "missing.json"), "--max-epsilon", "1"], monkeypatch) == 2


def test_audit_survives_json(audit: Audit) -> None:
    again = Audit.from_json(audit.to_json())
    assert again.to_dict() == audit.to_dict()
    for text in ("", "[]", "{}", '{"schema": 99}', "null"):
        with pytest.raises(InputError):
            Audit.from_json(text)
