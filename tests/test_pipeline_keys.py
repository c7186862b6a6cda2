"""Every key of a TOML file is explained, its example works, and what is written to start from runs."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from dosimeter import cli
from dosimeter._validate import InputError
from dosimeter.pipelines.config import TAKES, Config, parse, read
from dosimeter.pipelines.keys import KEYS, keys
from dosimeter.pipelines.template import template

ROOT = Path(__file__).parent.parent
FOUND = {f"{key.section}.{key.name}".lstrip("."): key for key in keys()}


def test_every_setting_has_words_and_no_others():
    assert list(FOUND) == list(KEYS)


def test_the_page_is_made_from_the_models():
    spec = importlib.util.spec_from_file_location("pipeline_keys", ROOT / "scripts" / "pipeline_keys.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    assert script.page(text) == text, "run python scripts/pipeline_keys.py"


def smallest(path):
    """A file with what a setting needs beside it."""
    values = {"data": {"file": "a.csv"}, "model": {"sklearn": "sklearn.tree.DecisionTreeClassifier"}}
    if path == "data.name":
        del values["data"]["file"]
    if path.startswith("recipe.") or (path.startswith("model.") and path not in ("model.sklearn", "model.options")):
        values["model"] = {} if path in ("model.factory", "model.command", "model.pretrained") else {"network": "mlp"}
    if path in ("recipe.dp.clip", "recipe.dp.microbatches"):
        values["recipe"] = {"dp": {"noise_multiplier": 1.0}}
    kinds = [kind for kind, takes in TAKES.items() if path in takes]
    return {"audit": kinds[0], **values} if kinds else values


@pytest.mark.parametrize("path", FOUND)
def test_the_example_is_a_value_that_the_file_takes(path):
    values = smallest(path)
    value = tomllib.loads(f"value = {FOUND[path].example}")["value"]
    *sections, name = path.split(".")
    place = values
    for section in sections:
        place = place.setdefault(section, {})
    place[name] = value
    config = parse(values)
    for section in sections:
        config = getattr(config, section)
    assert getattr(config, {"json": "json_file"}.get(name, name)) is not None


@pytest.mark.parametrize("path", FOUND)
def test_what_is_said_of_a_default_does_not_contradict_the_model(path):
    *sections, name = path.split(".")
    model = Config
    for section in sections:
        kind = model.model_fields[section].annotation
        model = next(one for one in (kind, *getattr(kind, "__args__", ())) if hasattr(one, "model_fields"))
    field = model.model_fields[{"json": "json_file"}.get(name, name)]
    if KEYS[path].default and path != "seed":
        assert field.get_default(call_default_factory=True, validated_data={}) is None


def test_kinds_that_take_a_setting_are_named():
    for path, key in FOUND.items():
        takers = {kind for kind, takes in TAKES.items() if path in takes}
        assert set(key.audits) == (takers or set(TAKES)), path


class TestInit:
    @pytest.fixture
    def run(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "120")

        def call(*arguments):
            monkeypatch.setattr(sys, "argv", ["dosimeter", "run", *arguments])
            with pytest.raises(SystemExit) as stopped:
                cli.main()
            streams = capsys.readouterr()
            return stopped.value.code, streams.out, streams.err

        return call

    def test_a_template_is_a_file_that_can_be_read(self, tmp_path):
        (tmp_path / "audit.toml").write_text(template({"data.file": '"a.csv"'}), encoding="utf-8")
        config = read(str(tmp_path / "audit.toml"))
        assert config.data.file == "a.csv" and config.budget.runs == 100

    def test_every_comment_can_become_a_setting(self):
        text = template({"data.file": '"a.csv"'})
        for path in FOUND:
            assert re.search(rf"^(# )?{path.rpartition('.')[2]} = ", text, re.MULTILINE), path
        for line in text.splitlines():
            if found := re.match(r"# (\w+ = .*)$", line):
                tomllib.loads(found[1])

    def test_for_records_with_a_label_of_their_own(self, run, tmp_path):
        rows = "\n".join(f"{i},{i % 7},{'yes' if i % 3 else 'no'}" for i in range(60))
        (tmp_path / "patients.csv").write_text(f"age,stay,diagnosis\n{rows}\n")
        code, out, err = run("--init", "patients.csv")
        assert (code, out) == (0, "") and "patients.toml" in err
        config = read("patients.toml")
        assert (config.data.file, config.data.label) == ("patients.csv", "diagnosis")
        quick = ["--set", "engine.name=inline", "--set", "budget.shadows=8", "--set", "budget.runs=20"]
        code, out, err = run("patients.toml", *quick, "--set", "model.options.n_estimators=3", "--quiet")
        assert code == 0, err
        assert "95 % confidence" in " ".join(out.split())  # whether it proves a leak is up to the coins
        code, out, err = run("--init", "patients.csv")
        assert code == 2 and "is there already" in err

    def test_words_and_gaps_are_told_at_once(self, run, tmp_path):
        rows = "".join(f"{at},{'ab'[at % 2]},{70 + at if at % 5 else ''},p{at},{at % 3 % 2}\n" for at in range(120))
        (tmp_path / "p.csv").write_text("age,ward,pulse,name,ill\n" + rows)
        code, _, err = run("--init", "p.csv")
        assert code == 0
        assert "ward holds words, and models get a column of 0 and 1 for each word" in err
        assert "pulse has gaps, which get the median" in err and "model.command" in err
        assert "name holds more than 100 different words" in err
        code, _, err = run("p.toml", "--dry-run")
        assert code == 2
        assert "120 different words in the column 'name'" in err

    def test_without_records(self, run, tmp_path):
        assert run("--init")[0] == 0
        assert read("audit.toml").data.file == "patients.csv"
        code, _, err = run("audit.toml")
        assert code == 2 and "patients.csv" in err
        assert run("--init", "missing.csv")[0] == 2

    def test_a_name_that_toml_would_misread(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        from dosimeter.pipelines.template import template_for

        (tmp_path / "a.csv").write_text('age,"di""ag"\n1,2\n3,4\n')
        with pytest.raises(InputError, match="rename it"):
            template_for(Path("a.csv"), name="a.toml")
