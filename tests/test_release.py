"""What is said about a release stands in one place, and the files around the code are true."""

import re
import runpy
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import dosimeter as dm
from dosimeter.cli import gate_files

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_stands_in_one_place():
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/dosimeter/__init__.py"
    held = [
        path.relative_to(ROOT).as_posix()
        for path in [ROOT / "pyproject.toml", ROOT / "CITATION.cff", ROOT / "mkdocs.yml", *ROOT.glob("src/**/*.py")]
        if re.search(rf'version\S*\s*[:=]\s*"?{re.escape(dm.__version__)}\b', path.read_text(encoding="utf-8"))
    ]
    assert held == ["CITATION.cff", "src/dosimeter/__init__.py"]


def test_the_citation_is_of_this_version_and_licence():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^([a-z-]+): (.+)$", text, re.MULTILINE))
    assert fields["version"] == dm.__version__
    assert fields["license"] == PROJECT["project"]["license"]
    assert fields["type"] == "software" and fields["cff-version"] == "1.2.0"
    assert len(re.findall(r"^  - type: ", text, re.MULTILINE)) >= 6
    assert f"## {dm.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_only_the_python_that_the_suite_runs_on_is_claimed():
    claimed = re.findall(r"Python :: (\d+\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    assert claimed == ["3.11"]
    assert PROJECT["tool"]["mypy"]["python_version"] == claimed[0]


def test_contributing_has_the_order_of_imports_and_real_files():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    layers = [layer.replace("dosimeter.", "") for layer in PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]]
    assert " › ".join(layers) in " ".join(text.split())
    for path in re.findall(r"`((?:src|tests|docs)/[\w./-]+|\.[\w-]+\.yaml)`", text):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:audits|pipelines|selftest|generators|dosimeter)/[\w./]+\.py)`", text):
        assert (ROOT / "src/dosimeter" / path.removeprefix("dosimeter/")).is_file(), path
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([a-z-]+)`", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert len(re.findall(r"<!-- coverage -->.+<!-- /coverage -->", text)) == 1


def test_continuous_integration_runs_what_people_run():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    installs = "make --jobs 2 .venv/.test .venv-core/.test"
    assert [line for line in lines if line.startswith("make")] == [installs, "make test", "make test-core"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\nlint: style types\n" in makefile
    assert "\ntest: style\n\t$(MAKE) --no-print-directory --jobs 2 types suite\n" in makefile
    for part in ("style", "types", "suite"):
        assert f"\n{part}: $(VENV)/.test\n" in makefile
    assert "\ntest-core: $(CORE)/.test\n" in makefile


def test_tests_of_the_numeric_layers_need_no_second_environment():
    is_numeric = runpy.run_path(str(ROOT / "tests" / "conftest.py"))["is_numeric"]
    files = {path.name: is_numeric(path) for path in (ROOT / "tests").rglob("test_*.py")}
    for name in ("test_headline_proofs.py", "test_accounting_golden.py", "test_geometry.py"):
        assert files[name]
    for name in ("test_gate.py", "test_reproduce_epsilon_star.py", "test_imports.py", "test_training_paths.py"):
        assert not files[name]
    assert 20 <= sum(files.values()) < len(files) / 4


def test_the_hooks_run_what_make_lint_runs():
    config = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    tools = {"ruff check", "ruff format --check", "mypy", "lint-imports"}
    assert set(re.findall(r"entry: \.venv/bin/(.+)$", config, re.MULTILINE)) == tools
    for tool in tools:
        assert f"$(BIN)/{tool}" in (ROOT / "Makefile").read_text(encoding="utf-8")
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entry = re.search(r"^  entry: (\S+)$", hook, re.MULTILINE)[1]
    assert PROJECT["project"]["scripts"][entry] == "dosimeter.cli.gate_files:main"


def test_the_hook_checks_every_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, shift in (("weak", 0.0), ("strong", 4.0)):
        scores = dm.Scores(rng.normal(shift, 1, 400), rng.normal(0, 1, 400))
        (tmp_path / f"{name}.json").write_text(dm.audit_scores(scores).to_json(), encoding="utf-8")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dosimeter-gate-files", *arguments])
        with pytest.raises(SystemExit) as stopped:
            gate_files.main()
        return stopped.value.code, capsys.readouterr().out

    assert run("--max-epsilon", "3", "weak.json")[0] == 0
    code, out = run("--max-epsilon", "3", "weak.json", "strong.json")
    assert code == 1
    assert "weak.json:" in out and "strong.json:" in out
    assert run("--max-epsilon", "3") == (0, "")
    (tmp_path / "broken.json").write_text("{")
    assert run("broken.json", "weak.json")[0] == 2


def test_coverage_is_configured():
    assert PROJECT["tool"]["coverage"]["run"]["source"] == ["dosimeter"]
    if find_spec("coverage") is None:
        pytest.skip("coverage is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "coverage", "debug", "config"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


SCRIPTS = ["calibration_tables", "coverage_table", "journeys", "line_coverage", "pipeline_keys", "readme_picture"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_finds_what_it_imports(name):
    runpy.run_path(str(ROOT / "scripts" / f"{name}.py"), run_name="imported")
