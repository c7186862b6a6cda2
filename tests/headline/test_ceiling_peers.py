"""The bench beside the headline: answers of other libraries are kept, and used for the same question alone."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def ceiling(monkeypatch, tmp_path):
    """The bench, with libraries that answer a draw with its number."""
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("ceiling_under_test", BENCH / "ceiling.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses and tuples look their module up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "KEPT", tmp_path / "ceiling.json")
    module.jobs = []

    def asked(environment, file, job):
        module.jobs.append((environment, job["form"], job["name"], job["first"], job["draws"]))
        return "not to be had" if environment == "opake" else list(range(job["first"], job["draws"]))

    monkeypatch.setattr(module, "_asked", asked)
    return module


def test_only_missing_draws_are_asked_for(ceiling):
    assert ceiling.peers(["no leak"], 2) == {name: {"no leak": [0, 1]} for name in ("jax-privacy", "PrivacyGuard")}
    ceiling.jobs.clear()
    assert ceiling.peers(["no leak"], 3)["jax-privacy"] == {"no leak": [0, 1, 2]}
    assert ("jax-privacy", "", "no leak", 2, 3) in ceiling.jobs
    assert ceiling.peers(["no leak"], 1)["PrivacyGuard"] == {"no leak": [0]}  # fewer are asked for than are kept


def test_answers_of_another_version_are_not_used(ceiling):
    ceiling.peers(["no leak"], 2)
    kept = json.loads(ceiling.KEPT.read_text(encoding="utf-8"))
    kept["jax-privacy"]["asked"]["installed"][0][0] = "jax-privacy==1.0.0"
    kept["PrivacyGuard"]["asked"]["records"] = 10
    ceiling.KEPT.write_text(json.dumps(kept), encoding="utf-8")
    ceiling.jobs.clear()
    ceiling.peers(["no leak"], 2)
    assert {job[3] for job in ceiling.jobs} == {0} and len(ceiling.jobs) == 4
