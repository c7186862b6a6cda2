"""The GitHub Action and the container: their shell steps run as they stand, with the inputs of a workflow."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dosimeter as dm

ROOT = Path(__file__).parent.parent
yaml = pytest.importorskip("yaml")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = [step for step in ACTION["runs"]["steps"] if "run" in step]

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the steps are for bash")


@pytest.fixture
def workflow(tmp_path):
    """Run the steps in their order, as a runner does; gives (exit code, summary, outputs, what was printed)."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, line in (("dosimeter", "-m dosimeter"), ("python", "")):
        script = commands / name
        script.write_text(f'#!/bin/bash\nexec "{sys.executable}" {line} "$@"\n')
        script.chmod(0o755)

    def run(**given):
        inputs = {name: field["default"] for name, field in ACTION["inputs"].items()} | {
            name.replace("_", "-"): value for name, value in given.items()
        }
        assert set(inputs) == set(ACTION["inputs"])
        files = {name: tmp_path / name.lower() for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
        printed = ""
        for file in files.values():
            file.write_text("")
        for step in STEPS:
            if step["name"] == "Install dosimeter" or (step.get("if") == "inputs.file != ''" and not inputs["file"]):
                continue
            values = {name: filled(text, inputs) for name, text in step.get("env", {}).items()}
            path = f"{commands}{os.pathsep}{os.environ['PATH']}"
            env = os.environ | values | {name: str(file) for name, file in files.items()} | {"PATH": path}
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            printed += done.stdout + done.stderr
            if done.returncode:
                break
        return done.returncode, *(file.read_text(encoding="utf-8") for file in files.values()), printed

    return run


def filled(text, inputs):
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(0)
    scores = dm.Scores(rng.normal(1, 1, 1000), rng.normal(0, 1, 1000))
    np.savez(tmp_path / "my scores.npz", members=scores.members, nonmembers=scores.nonmembers)
    return scores


@pytest.mark.slow
def test_audit_and_gate(workflow, scores, tmp_path):
    pytest.importorskip("altair", reason="the extra 'report' is not installed")
    code, summary, output, printed = workflow(file="my scores.npz", max_epsilon="4")
    assert code == 0, printed
    audit = dm.Audit.from_json((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert audit.headline.low == dm.lower_bound(scores, delta=1e-5).low
    assert "## Privacy audit" in summary and "max-epsilon 4" in summary
    assert output == f"epsilon={audit.headline.low}\n"
    assert (tmp_path / "audit.html").stat().st_size > 10_000
    code, summary, *_ = workflow(file="", max_epsilon="2", max_tpr_at_fpr="0.01=0.05", page="")
    assert code == 1
    assert "max-epsilon 2" in summary and "max-tpr-at-fpr" in summary


@pytest.mark.slow
def test_options_and_refusals(workflow, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(seen)},{'yes' if seen else 'no'}" for seen in (0, 1) for _ in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["conf,seen", *rows]))
    code, summary, _, printed = workflow(
        file="t.csv", audit_options="--score-column conf --member-column seen", page=""
    )
    assert code == 0, printed
    assert "## Privacy audit" in summary
    assert "max-epsilon" not in summary, "without a limit there is no gate"
    code, *_, printed = workflow(page="", gate_options="--allow-undecided")
    assert code == 2 and "gate needs a limit" in printed
    code, summary, _, printed = workflow(file="t.csv", page="")
    assert code == 2 and "--score-column" in printed and summary == ""


def test_nothing_from_a_workflow_is_put_into_a_script():
    for step in STEPS:
        assert "${{" not in step["run"], "an input in a script could hold commands"


def test_the_container_copies_what_it_installs():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.search(r"^ARG EXTRAS=(\S+)$", "\n".join(lines), re.MULTILINE)[1].split(",")
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras)
    assert {'readme = "README.md"', 'license-files = ["LICENSE"]'} <= set(project.splitlines())
