"""`dosimeter run`: configurations and their errors, trainings of other libraries and of torch, resuming, stopping."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
import typing
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from dosimeter import cli
from dosimeter._validate import InputError
from dosimeter.accounting import account
from dosimeter.audits.result import Audit
from dosimeter.datasets import load
from dosimeter.engine import LostWorkersError, RunOptions, Store
from dosimeter.pipelines import config as settings
from dosimeter.pipelines.cost import outlook
from dosimeter.pipelines.launch import ADAPTERS, FreshStore, launch
from dosimeter.pipelines.subjects import subject, training_sizes
from dosimeter.records import numeric_table

torch_only = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

WINE = """
name = "wine, logistic"
[data]
name = "wine"
[model]
sklearn = "sklearn.linear_model.LogisticRegression"
options = { C = 100.0, max_iter = 2000 }
[budget]
shadows = 8
runs = 24
[engine]
name = "inline"
[report]
json = "audit.json"
"""
DIGITS = """
[data]
name = "digits"
records = 200
[model]
network = "mlp"
hidden = [16]
[recipe]
epochs = 3
[budget]
shadows = 8
runs = 24
[engine]
name = "inline"
"""


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run `dosimeter run` in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setattr(sys, "argv", ["dosimeter", "run", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        streams = capsys.readouterr()
        return stopped.value.code, streams.out, streams.err

    return call


def origin(metadata):
    """How many trainings were computed now, and how many found in the store."""
    return metadata["provenance"]["computed"], metadata["provenance"]["cached"]


def written(folder, text, name="audit.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def changed(text, *changes):
    """A configuration with settings changed, as --set does it."""
    import tomllib

    values = tomllib.loads(text)
    for change in changes:
        settings._override(values, change)
    return settings.parse(values)


def keywords(function):
    """What a function takes by name, also as one of its **options."""
    hints = typing.get_type_hints(function)
    rare = [part for hint in hints.values() for part in typing.get_args(hint) if typing.is_typeddict(part)]
    return {*inspect.signature(function).parameters, *(name for part in rare for name in typing.get_type_hints(part))}


class TestConfiguration:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ("recipe.epoch=3", "recipe.epoch is not a setting, did you mean recipe.epochs?"),
            ("budget.shadow=3", "did you mean budget.shadows?"),
            ("bugdet.runs=3", "bugdet is not a setting, did you mean budget?"),
            ("recipe.delta=0.1", "did you mean estimate.delta?"),
            ("recipe.dp.noise=1", "recipe.dp.noise is not a setting"),
            ("data.records=2", "data.records must be greater than or equal to 4, got 2"),
            ("data.records='many'", "data.records must be integer, got 'many'"),
            (
                "audit='trainings'",
                "audit must be one of 'training', 'one-run', 'gradients', 'members-only', 'model' or 'text'",
            ),
            ("model.sklearn='a.B'", "model needs exactly one of network, factory, command, sklearn"),
            ("recipe.dp.epsilon=-1", "recipe.dp.epsilon must be greater than 0"),
            ("recipe.dp.clip=1.0", "recipe.dp needs exactly one of noise_multiplier and epsilon"),
            ("budget.memory='lots'", "budget.memory must be a size like 4GB"),
            ("budget.memory=true", "budget.memory must be a size like 4GB"),
            ("budget.repetitions=3", "budget.repetitions has no meaning for audit = 'training', it is for gradients"),
            ("estimate.belief=0.9", "estimate.belief has no meaning for audit = 'training', it is for gradients"),
            ("estimate.confidence=1.0", "estimate.confidence must be less than 1"),
            ("data.file='a.npz'", "data needs exactly one of name and file"),
            ("seed=-1", "seed must be greater than or equal to 0"),
        ],
    )
    def test_the_error_names_the_field(self, change, words):
        with pytest.raises(InputError) as refused:
            changed(DIGITS, change)
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)

    @pytest.mark.parametrize(
        ("text", "size"), [("4GB", 4 * 10**9), ("500 mb", 5 * 10**8), (17, 17), ("2.5kB", 2500), ("12", 12)]
    )
    def test_sizes(self, text, size):
        assert settings.size_in_bytes(text) == size

    @pytest.mark.parametrize("change", ["budget.shadows", "=3", "budget.=3", "seed.a=3"])
    def test_a_change_that_is_none(self, change):
        with pytest.raises(InputError, match="--set"):
            changed("seed = 1\n" + DIGITS, change)

    def test_changes_are_typed_as_in_the_file(self):
        config = changed(DIGITS, "recipe.dp={epsilon=2.0}", "attack.game=crossed", "model.hidden=[8, 4]")
        assert config.recipe.dp.epsilon == 2.0
        assert (config.attack.game, config.model.hidden) == ("crossed", [8, 4])

    @pytest.mark.parametrize("name", ADAPTERS)
    def test_what_a_kind_takes_is_an_argument_of_its_function(self, name):
        assert set(settings.TAKES[name].values()) | {"confidence", "seed", "run"} <= keywords(ADAPTERS[name].function)
        for section, setting in (field.split(".") for field in settings.TAKES[name]):
            assert setting in settings.Config.model_fields[section].annotation.model_fields

    @pytest.mark.parametrize("name", ADAPTERS)
    def test_the_trainings_of_a_plan_are_the_defaults_of_the_function(self, name):
        known = inspect.signature(ADAPTERS[name].function).parameters
        for stage, count in ADAPTERS[name].trainings.items():
            assert count == (1 if stage == "models" else known[stage].default)

    def test_every_kind_has_an_adapter(self):
        assert set(ADAPTERS) == set(settings.TAKES)

    def test_every_ready_made_pipeline_is_one(self):
        names = settings.bundled()
        for stem in ("adult-mlp", "mnist-cnn", "cifar10-cnn", "sst2-text", "digits-mlp"):
            plain, private = settings.read(stem), settings.read(f"{stem}-dp")
            assert plain.about and private.about
            assert plain.recipe.dp is None
            assert private.recipe.dp.epsilon == 8.0
        assert len(names) >= 10


class TestCommandLine:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "a TOML file or the name of a ready-made pipeline is missing"),
            (("digits-mpl",), "did you mean digits-mlp?"),
            (("nothing.toml",), "there is no file nothing.toml"),
            (("digits-mlp", "--set", "recipe.epoch=1"), "did you mean recipe.epochs?"),
            (("digits-mlp", "--memory", "much"), "budget.memory must be a size"),
            (("digits-mlp", "--set", "data.name=digit"), "data.name must be one of digits"),
            (("digits-mlp", "--set", "data.records=100000"), "data.records is 100000, but digits has 1797"),
        ],
    )
    def test_refused_in_one_line(self, run, tmp_path, arguments, words):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert words in err.splitlines()[-1]
        assert err.splitlines()[-1].startswith("error: ")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("text", ["audit = ", "[data\n", "\x00"])
    def test_a_file_that_is_no_toml(self, run, tmp_path, text):
        code, _, err = run(written(tmp_path, text))
        assert code == 2
        assert "is not valid TOML" in err

    def test_a_file_that_is_no_text(self, run, tmp_path):
        (tmp_path / "audit.toml").write_bytes(b"\xff\xfe\xff")
        code, _, err = run("audit.toml")
        assert code == 2
        assert "not UTF-8" in err

    def test_the_list(self, run):
        code, out, err = run("--list", "--json")
        assert (code, err) == (0, "")
        assert [entry["name"] for entry in json.loads(out)] == list(settings.bundled())

    def test_what_scikit_learn_cannot_take(self, run, tmp_path):
        path = written(tmp_path, WINE)
        for change, words in (
            ("model.options={colour=1}", "model.options do not fit LogisticRegression"),
            ("model.sklearn='os.path'", "must be the path of a scikit-learn class"),
            ("model.sklearn='sklearn.linear_model.Nothing'", "cannot be imported"),
            ("recipe.epochs=3", "recipe.epochs is for torch models"),
            ("model.hidden=[3]", "hidden is for a network"),
        ):
            code, _, err = run(path, "--set", change)
            assert code == 2
            assert words in err

    def test_words_and_gaps_become_numbers(self, run, tmp_path):
        rng = np.random.default_rng(0)
        rows = [
            f"{'' if at % 9 == 0 else at},{'xyz'[rng.integers(3)]},{['', 'on', 'off'][rng.integers(3)]},"
            f"{['no', 'yes'][rng.integers(2)]}"
            for at in range(90)
        ]
        (tmp_path / "p.csv").write_text("\n".join(["age,ward,lamp,ill", *rows]) + "\n")
        path = written(tmp_path, WINE.replace('name = "wine"', 'file = "p.csv"\nlabel = "ill"'))
        code, out, err = run(path, "--json")
        assert code == 0, err
        assert json.loads(out)["metadata"]["records"] == 90
        assert "lamp, ward as a column of 0 and 1 for each word; gaps of age filled with the median" in err
        table = numeric_table(tmp_path / "p.csv", "ill")
        names = ("age", "age is missing", "ward is x", "ward is y", "ward is z")
        assert table.columns == (*names, "lamp is missing", "lamp is off", "lamp is on")
        absent = np.arange(90) % 9 == 0
        assert np.array_equal(table.X[:, 1], absent) and (table.X[:, 2:5].sum(1) == 1).all()
        assert np.unique(table.X[absent, 0]) == np.median(np.arange(90)[~absent])

    def test_a_page_that_cannot_be_drawn_is_refused_before_any_training(self, run, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "altair", None)
        code, _, err = run(written(tmp_path, WINE), "--out", "audit.html")
        assert code == 2
        assert "pip install '.[report]'" in err
        assert not (tmp_path / "dosimeter-store").exists()

    def test_killed_workers_end_it_with_a_code_of_their_own(self, run, tmp_path, monkeypatch):
        def lost(*given, **options):
            raise LostWorkersError("task 3 could not run; 3 of 32 tasks are kept in here: run the same again.")

        monkeypatch.setattr("dosimeter.pipelines.launch.launch", lost)
        code, out, err = run(written(tmp_path, WINE), "--json")
        assert (code, out) == (3, "")
        assert err.splitlines()[-1].startswith("error: task 3 could not run; 3 of 32 tasks are kept")
        assert "Traceback" not in err

    @pytest.mark.parametrize(
        ("text", "said"), [("unable to allocate 9 TiB", "unable to allocate 9 TiB"), ("", "no details")]
    )
    def test_too_little_memory_is_one_sentence(self, run, tmp_path, monkeypatch, text, said):
        def greedy(*given, **options):
            raise MemoryError(text)

        monkeypatch.setattr("dosimeter.pipelines.launch.launch", greedy)
        code, out, err = run(written(tmp_path, WINE), "--json")
        assert (code, out) == (2, "")
        assert err.splitlines()[-1] == f"error: memory ran out ({said}); take fewer records, or free memory."
        assert "Traceback" not in err


class TestForeignTrainings:
    @pytest.mark.once
    def test_from_the_file_to_the_result_and_again(self, run, tmp_path):
        folder = tmp_path / "mine"
        folder.mkdir()
        path = written(folder, WINE)
        code, out, err = run(path, "--json", "--seed", "0")
        assert code == 0, err
        first = json.loads(out, parse_constant=pytest.fail)
        assert origin(first["metadata"]) == (32, 0)
        assert first["metadata"]["name"] == "wine, logistic"
        assert Audit.from_json((folder / "audit.json").read_text(encoding="utf-8")).to_dict() == first
        assert (folder / "dosimeter-store").is_dir()
        again = json.loads(run(path, "--json", "--seed", "0")[1])
        assert origin(again["metadata"]) == (0, 32)
        assert again["estimates"] == first["estimates"]
        fresh = json.loads(run(path, "--json", "--fresh", "--seed", "0")[1])
        assert origin(fresh["metadata"]) == (32, 0)
        assert fresh["estimates"] == first["estimates"]
        other = json.loads(run(path, "--json", "--set", "model.options.C=0.001")[1])
        assert other["metadata"]["provenance"]["cached"] == 0
        assert other["metadata"]["utility"] != first["metadata"]["utility"]

    def test_seed_and_engine_from_the_command_line(self, run, tmp_path):
        path = written(tmp_path, WINE)
        one = json.loads(run(path, "--json", "--seed", 3, "--set", "budget.runs=16")[1])
        assert (one["metadata"]["seed"], one["metadata"]["runs"]) == (3, 16)
        assert run(path, "--engine", "nowhere")[0] == 2

    def test_the_plan_trains_one_and_stores_nothing(self, run, tmp_path):
        path = written(tmp_path, WINE)
        code, out, _ = run(path, "--dry-run", "--json")
        assert code == 0
        plan = json.loads(out)
        assert plan["trainings"] == 32
        assert plan["stages"] == [
            {"name": "shadows", "trainings": 8, "members": 89},
            {"name": "runs", "trainings": 24, "members": 178},
        ]
        assert plan["seconds"] == pytest.approx(plan["seconds_each"] * (8 * 89 / 178 + 24))
        assert plan["bytes"] >= 32 * 178 * 3 * 4
        assert not (tmp_path / "dosimeter-store").exists()
        code, out, _ = run(path, "--dry-run", "--set", "attack.game=crossed")
        assert code == 0
        assert "8 (8 shadows)" in out

    def test_one_model_of_scikit_learn(self, run, tmp_path):
        text = WINE.replace('name = "wine, logistic"', 'audit = "model"').replace("shadows = 8\nruns = 24", "")
        code, out, err = run(written(tmp_path, text), "--json")
        assert code == 0, err
        found = json.loads(out)
        assert found["metadata"]["members"] == found["metadata"]["nonmembers"] == 89
        assert found["guard"]["checked"]

    def test_own_records_and_own_signal(self, run, tmp_path):
        path_before = list(sys.path)
        rng = np.random.default_rng(0)
        y = rng.permutation(np.repeat(["no", "yes"], 60))
        np.savez(tmp_path / "own.npz", X=rng.normal(size=(120, 3)) + (y == "yes")[:, None], y=y)
        (tmp_path / "own_signal.py").write_text("def confidence(outputs, y):\n    return outputs[range(len(y)), y]\n")
        text = WINE.replace('name = "wine"', 'file = "own.npz"')
        path = written(tmp_path, text + '[attack]\nsignal = "own_signal:confidence"\n')
        code, out, err = run(path, "--json")
        assert code == 0, err
        assert json.loads(out)["metadata"]["records"] == 120
        for change, words in (
            ("attack.signal=own_signal", "attack.signal must be 'package.module:function'"),
            ("attack.signal=own_signal:nothing", "cannot be imported"),
        ):
            assert words in run(path, "--set", change)[2]
        assert sys.path == path_before

    def test_quiet_says_nothing_but_warnings(self, run, tmp_path):
        path = written(tmp_path, WINE.replace("[report]", "[report]\nhtml = 'page.html'"))
        code, out, err = run(path, "--quiet", "--set", "audit=model", "--set", "budget={}")
        assert code == 0, err
        assert "ε" in out and "reading" not in err and "written" not in err
        assert (tmp_path / "page.html").is_file()

    @pytest.mark.once
    def test_ctrl_c_says_how_to_resume(self, tmp_path):
        (tmp_path / "slow.py").write_text(
            "import time\nfrom sklearn.naive_bayes import GaussianNB\n"
            "class Slow(GaussianNB):\n    def fit(self, X, y):\n"
            "        time.sleep(0.5)\n        return super().fit(X, y)\n"
        )
        text = WINE.replace("sklearn.linear_model.LogisticRegression", "slow.Slow").replace(
            "options = { C = 100.0, max_iter = 2000 }", ""
        )
        written(tmp_path, text)
        paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        process = subprocess.Popen(
            [sys.executable, "-m", "dosimeter", "run", "audit.toml"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        deadline = time.monotonic() + 60
        while not list((tmp_path / "dosimeter-store").rglob("*.npz")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 130, err
        assert out == ""
        assert "To resume: dosimeter run audit.toml" in err.splitlines()[-1]
        assert "Traceback" not in err


MEMORISER = """
import sys
import numpy as np

data, indices, seed, outputs, mode = sys.argv[1:]
if data.endswith(".csv"):
    table = np.genfromtxt(data, delimiter=",", skip_header=1, dtype=str)
    y, X = np.unique(table[:, 0], return_inverse=True)[1], table[:, 1:4].astype(float)
elif data.endswith(".parquet"):
    from pyarrow import parquet
    table = parquet.read_table(data).to_pydict()
    y = np.unique(table.pop("kind"), return_inverse=True)[1]
    X = np.stack([table[name] for name in "abc"], axis=1)
else:
    with np.load(data) as file:
        X, y = file["X"], np.unique(file["y"], return_inverse=True)[1]
rows = np.load(indices)
if mode == "careless":
    rows = np.arange(0, len(X), 2)
near = ((X[:, None] - X[rows]) ** 2).sum(axis=2).argmin(axis=1)
P = np.where(y[rows][near][:, None] == np.arange(y.max() + 1), 0.9, 0.1 / y.max())
everyone = np.random.default_rng(int(seed)).permutation(len(X))
P = {
    "members only": lambda: P[rows],
    "members first": lambda: P[np.append(rows, np.setdiff1d(everyone, rows))],
    "shuffled": lambda: P[everyone],
    "wrong columns": lambda: P[:, ::-1],
    "few columns": lambda: P[:, :1] if y.max() > 1 else np.repeat(P, 2, axis=1),
    "not normalised": lambda: P / 2,
    "nan": lambda: P * np.nan,
    "learnt nothing": lambda: np.full_like(P, 0.5),
    "one column": lambda: P[:, 1:],
    "one label": lambda: np.ones((len(X), 1)),
    "logits": lambda: np.log(P) + 3,
}.get(mode, lambda: P)()
np.savez(outputs, outputs=P)
"""


def own_file(folder, name="own.csv", records=120, seed=0):
    """Records of no meaning, two labels; every label is memorised or not known at all."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(records, 3)), rng.permutation(np.repeat(["Zoë", "anna"], records // 2))
    path = folder / name
    if name.endswith(".npz"):
        np.savez(path, X=X, y=y)
    elif name.endswith(".csv"):
        lines = [
            f"{kind},{','.join(map(repr, row))},word {i},{'' if i == 3 else i}"
            for i, (kind, row) in enumerate(zip(y, X.tolist(), strict=True))
        ]
        path.write_text("\n".join(["kind,a,b,c,remark,gap", *lines]) + "\n", encoding="utf-8")
    else:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"kind": y, **dict(zip("abc", X.T, strict=True))}), path)
    return path


def own_script(folder, mode="fine", data='file = "own.csv"\nlabel = "kind"', data_place="{data}", more=""):
    (folder / "train.py").write_text(MEMORISER, encoding="utf-8")
    command = json.dumps([sys.executable, "train.py", data_place, "{indices}", "{seed}", "{outputs}", mode])
    text = f"[data]\n{data}\n[model]\ncommand = {command}\n[engine]\nname = 'inline'\n{more}"
    return written(folder, text)


ONE_RUN = ("--json", "--set", "audit=one-run", "--set", "budget.canaries=60")
TRAINING = ("--json", "--set", "budget.shadows=6", "--set", "budget.runs=12", "--set", "attack.name=loss")


class TestOwnScript:
    """A script that reads its own file: rows are those of the file, and answers that do not suit them are noticed."""

    @pytest.mark.parametrize("name", ["own.csv", "own.npz", "own.parquet"])
    @pytest.mark.parametrize("by_itself", [False, True])
    def test_what_is_memorised_is_proven(self, run, tmp_path, name, by_itself):
        path = own_file(tmp_path, name)
        label = "" if name.endswith(".npz") else 'label = "kind"'
        place = str(path) if by_itself else "{data}"
        config = own_script(tmp_path, data=f'file = "{name}"\n{label}', data_place=place)
        code, out, err = run(config, *ONE_RUN, "--seed", "0")
        assert code == 0, err
        found = json.loads(out)
        assert found["metadata"]["utility"]["runs"]["members"] == 1.0
        assert found["metadata"]["warnings"] == []
        assert found["estimates"][0]["low"] > 0.5  # half of the records left out are guessed right by chance

    def test_part_of_the_rows(self, run, tmp_path):
        own_file(tmp_path, records=400)
        config = own_script(
            tmp_path, data='file = "own.csv"\nlabel = "kind"\nrecords = 240\ntest_share = 0.25\nseed = 3'
        )
        code, out, err = run(config, *ONE_RUN, "--set", "budget.canaries=120")
        assert code == 0, err
        found = json.loads(out)["metadata"]
        assert found["records"] == 180
        assert found["utility"]["runs"]["members"] == 1.0
        assert 0.3 < found["utility"]["runs"]["nonmembers"] < 0.7
        assert max(found["points"]) > 240  # rows of the file, not of the part

    def test_repeated_trainings(self, run, tmp_path):
        own_file(tmp_path)
        config = own_script(tmp_path, data='file = "own.csv"\nlabel = "kind"\nrecords = 100')
        asked = (*TRAINING, "--seed", 0)  # fresh coins would be others for points that are named
        code, out, err = run(config, *asked)
        assert code == 0, err
        found = json.loads(out)
        assert found["metadata"]["utility"]["shadows"]["members"] == 1.0
        assert found["metadata"]["trainings"] == {"asked": 18, "done": 18, "failed": 0, "spared": 0}
        assert origin(found["metadata"]) == (18, 0)
        assert not any("shuffled" in note or "ignores" in note for note in found["metadata"]["warnings"])
        point = found["metadata"]["points"][0]
        assert found["details"]["points"][0]["record"] == point == found["details"]["candidates"][0]["record"]
        assert json.loads(run(config, *asked)[1])["metadata"]["provenance"]["cached"] == 18
        again = json.loads(run(config, *asked, "--set", f"attack.points=[{point}]")[1])
        assert again["metadata"]["points"] == [point]
        assert again["metadata"]["provenance"]["cached"] >= 6
        assert again["details"]["points"][0]["label"] == found["details"]["points"][0]["label"]

    def test_rows_that_are_not_taken(self, run, tmp_path):
        own_file(tmp_path)
        config = own_script(tmp_path, data='file = "own.csv"\nlabel = "kind"\nrecords = 60\ntest_share = 0.5')
        places = subject(settings.read(str(config)), base=tmp_path).places
        assert (np.diff(places.rows) > 0).all() and not np.isin(places.rows, places.held_out).any()
        left = np.setdiff1d(np.arange(120), np.append(places.rows, places.held_out))
        for row, words in (
            (places.held_out[0], "is held out"),
            (left[0], "not among the records drawn"),
            (120, "0 to 119"),
        ):
            code, _, err = run(config, "--set", f"attack.points=[{row}]")
            assert code == 2
            assert f"attack.points holds {'' if row == 120 else 'row '}{row}" in err and words in err

    @pytest.mark.parametrize(
        ("mode", "words"),
        [
            ("members only", "as many as there are {indices}: it must answer for all"),
            ("few columns", "outputs of shape (120, 4) for 2 labels ('Zoë, anna')"),
            ("one label", "outputs of shape (120, 1) for 2 labels"),
            ("nan", "its outputs are infinite or NaN"),
            ("not normalised", "do not sum to 1"),
        ],
    )
    def test_outputs_that_cannot_be_answers_are_refused(self, run, tmp_path, mode, words):
        own_file(tmp_path)
        code, out, err = run(own_script(tmp_path, mode), *ONE_RUN)
        assert (code, out) == (2, "")
        assert words in err.splitlines()[-1]
        assert "Traceback" not in err.splitlines()[-1]

    @pytest.mark.parametrize("mode", ["shuffled", "members first", "wrong columns", "learnt nothing"])
    def test_answers_in_another_order_are_noticed(self, run, tmp_path, mode):
        own_file(tmp_path)
        code, out, err = run(own_script(tmp_path, mode), *ONE_RUN)
        assert code == 0, err
        notes = json.loads(out)["metadata"]["warnings"]
        assert len(notes) == 1 and "hardly better than shuffled outputs" in notes[0]

    def test_the_notice_is_printed(self, run, tmp_path):
        own_file(tmp_path)
        code, _, err = run(own_script(tmp_path, "shuffled"), *ONE_RUN[1:])
        assert code == 0
        assert "note: the outputs of the runs fit the labels" in err

    def test_a_script_that_always_fails_is_not_started_for_every_model(self, run, tmp_path):
        own_file(tmp_path)
        config = own_script(tmp_path)
        (tmp_path / "train.py").write_text("raise SystemExit('no luck today')\n")
        code, _, err = run(config, "--json", "--set", "budget.shadows=400")
        assert code == 2
        assert "only 0 of 8 shadow models" in err and "no luck today" in err

    @pytest.mark.parametrize("mode", ["one column", "logits"])
    def test_other_forms_of_answers(self, run, tmp_path, mode):
        own_file(tmp_path)
        code, out, err = run(own_script(tmp_path, mode), *ONE_RUN)
        assert code == 0, err
        found = json.loads(out)
        assert found["metadata"]["warnings"] == []
        assert found["metadata"]["utility"]["runs"]["members"] == 1.0

    def test_a_script_that_ignores_its_rows(self, run, tmp_path):
        own_file(tmp_path)
        crossed = ("--json", "--set", "attack.game=crossed", "--set", "budget.shadows=8")
        code, out, err = run(
            own_script(tmp_path, "careless"), *crossed, "--set", "estimate.confidence=0.8", "--seed", "0"
        )
        assert code == 0, err
        notes = json.loads(out)["metadata"]["warnings"]
        assert any("ignores its indices" in note for note in notes)

    def test_a_named_data_set(self, run, tmp_path):
        config = own_script(tmp_path, data='name = "wine"\nrecords = 120\ntest_share = 0.5')
        code, out, err = run(config, "--json", "--set", "audit=one-run", "--set", "budget.canaries=30")
        assert code == 0, err
        found = json.loads(out)
        assert found["metadata"]["utility"]["runs"]["members"] == 1.0
        assert found["metadata"]["utility"]["runs"]["nonmembers"] > 0.5

    def test_what_is_stored_belongs_to_script_and_file(self, run, tmp_path):
        own_file(tmp_path)
        config = own_script(tmp_path)
        first = json.loads(run(config, *ONE_RUN)[1])["metadata"]
        assert json.loads(run(config, *ONE_RUN)[1])["metadata"]["provenance"]["cached"] == 1
        (tmp_path / "train.py").write_text(MEMORISER + "# another script\n")
        assert json.loads(run(config, *ONE_RUN)[1])["metadata"]["provenance"]["cached"] == 0
        (tmp_path / "own.csv").write_text((tmp_path / "own.csv").read_text().replace("word 5", "word five"))
        other = json.loads(run(config, *ONE_RUN)[1])["metadata"]
        assert other["provenance"]["cached"] == 0
        assert other["fingerprint"] != first["fingerprint"]

    def test_what_a_command_must_use(self, run, tmp_path):
        own_file(tmp_path)
        code, _, err = run(own_script(tmp_path), "--set", 'model.command=["python", "train.py"]')
        assert code == 2
        assert "model.command must use {indices} and {outputs}, and lacks {indices} and {outputs}" in err
        assert "use audit = 'training'" in run("audit.toml", "--set", "audit=model")[2]

    def test_labels_with_gaps_are_refused(self, run, tmp_path):
        own_file(tmp_path)
        code, _, err = run(own_script(tmp_path, data='file = "own.csv"\nlabel = "gap"'), *ONE_RUN)
        assert code == 2
        assert "labels" in err.splitlines()[-1]


def test_rows_of_a_part_are_those_of_the_data_set(tmp_path):
    config = changed(WINE, "data.records=60")
    ready = subject(config, base=tmp_path)
    row = int(ready.places.rows[-1])
    assert row > 60
    audit = launch(
        changed(WINE, "data.records=60", f"attack.points=[{row}]"),
        ready,
        store=Store(tmp_path),
        progress=False,
    )
    assert audit.metadata.points == (row,)
    one = changed(WINE.replace("shadows = 8\nruns = 24", ""), "data.records=60", "audit=model")
    ready = subject(one, base=tmp_path)
    exposed = launch(one, ready, store=Store(tmp_path), progress=False).exposed
    assert {entry.record for entry in exposed} <= set(ready.places.rows.tolist())
    y = load("wine").y
    assert [entry.label for entry in exposed] == [str(y[entry.record]) for entry in exposed]


def test_copies_are_named_by_their_rows_in_the_file(tmp_path):
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(60, 3)), 2, axis=0), np.repeat(rng.integers(0, 2, 60), 2)  # each record twice
    np.savez(tmp_path / "own.npz", X=X, y=y)
    text = WINE.replace("shadows = 8\nruns = 24", "").replace('name = "wine"', 'file = "own.npz"\nrecords = 100')
    config = changed(text, "audit=model")
    ready = subject(config, base=tmp_path)
    found = launch(config, ready, store=Store(tmp_path / "store"), progress=False).to_dict()["guard"]["evidence"]
    assert found["duplicate_pairs"]
    for member, nonmember in found["duplicate_pairs"]:
        assert member in ready.places.rows and nonmember in ready.places.held_out
        assert member // 2 == nonmember // 2


def test_the_file_and_the_function_are_the_same_audit(tmp_path):
    from sklearn.tree import DecisionTreeClassifier

    from dosimeter.audits.training import audit_training

    X, y = load("wine").pair
    text = WINE.replace("linear_model.LogisticRegression", "tree.DecisionTreeClassifier").replace(
        "C = 100.0, max_iter = 2000", ""
    )
    config = changed(text, "seed=0")
    ours = launch(config, subject(config, base=tmp_path), store=Store(tmp_path), progress=False)
    own = audit_training(
        lambda indices, seed: DecisionTreeClassifier(random_state=seed).fit(X[indices], y[indices]),
        (X, y), shadows=8, runs=24, seed=0, run=RunOptions(engine="inline", progress=False),
    )  # fmt: skip
    assert [estimate.to_dict() for estimate in own.estimates] == [estimate.to_dict() for estimate in ours.estimates]
    assert own.metadata["points"] == ours.metadata["points"]


class TestLaunch:
    def test_a_fresh_store_sees_only_what_is_written_now(self, tmp_path):
        key, other = "0" * 64, "1" * 64
        Store(tmp_path).put(key, {"a": np.arange(3)})
        fresh = FreshStore(tmp_path)
        assert key not in fresh
        fresh.put(other, {"a": np.arange(4)})
        assert other in fresh
        fresh.put(key, {"a": np.arange(5)})
        assert key in fresh
        assert Store(tmp_path).get(key)[0]["a"].size == 5

    @pytest.mark.parametrize(
        ("changes", "sizes"),
        [
            ((), (199, 200)),
            (("attack.challenges=3",), (197, 200)),
            (("attack.points=[1, 2]",), (198, 200)),
            (("attack.canaries=mislabelled",), (200, 200)),
            (("attack.game=crossed",), (57, 143)),
        ],
    )
    def test_sizes_of_the_trainings_that_the_guarantee_counts_for(self, changes, sizes):
        assert training_sizes(changed(DIGITS, *changes), 200) == sizes


@torch_only
class TestTorch:
    def test_digits(self, run, tmp_path):
        code, out, err = run(written(tmp_path, DIGITS), "--json")
        assert code == 0, err
        found = json.loads(out)
        assert found["metadata"]["model"].startswith("mlp(")
        assert found["metadata"]["provenance"]["computed"] == 32
        assert json.loads(run("audit.toml", "--json")[1])["metadata"]["provenance"]["cached"] == 32

    @pytest.mark.parametrize("sampling", ["poisson", "shuffled"])
    def test_the_noise_keeps_the_epsilon_asked_for(self, sampling):
        config = changed(DIGITS, f"recipe.sampling={sampling}", "recipe.dp={epsilon=3.0, clip=0.5}")
        ready = subject(config, base=Path())
        assert ready.recipe.dp.clip == 0.5
        for members in training_sizes(config, 200):
            best = min(g.epsilon for g in account(ready.mechanism(members), delta=1e-5) if g.is_bound)
            assert best <= 3.0 + 1e-6
            assert best > 2.7

    def test_the_upper_bound_of_the_audit_is_the_one_asked_for(self, tmp_path):
        config = changed(DIGITS, "recipe.sampling=poisson", "recipe.dp={epsilon=3.0}", "recipe.batch_size=50")
        audit = launch(config, subject(config, base=tmp_path), store=Store(tmp_path), progress=False)
        best = min(g.epsilon for g in audit.upper if g.is_bound)
        assert 2.99 < best <= 3.0 + 1e-6

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            (("model.network=mpl",), "model.network must be one of mlp"),
            (("model.hidden=[]", "model.heads=2"), "model.heads has no meaning for network = 'mlp'"),
            (("recipe.learning_rate=-1",), "recipe.learning_rate must be in"),
            (("recipe.optimiser=lion",), "recipe.optimiser must be one of sgd, adam, adamw"),
            (("recipe.dp.noise_multiplier=-1",), "recipe.dp.noise_multiplier must be in"),
            (("model.activation=gelu",), "model.activation must be one of"),
            (("data.name=wikitext2",), "data.name"),
        ],
    )
    def test_what_cannot_be_built_is_named(self, changes, words, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.delenv("DOSIMETER_DATA", raising=False)
        with pytest.raises(InputError) as refused:
            subject(changed(DIGITS, *changes), base=tmp_path)
        assert words in str(refused.value)

    def test_a_factory_beside_the_file(self, run, tmp_path):
        (tmp_path / "own_net.py").write_text(
            "def net():\n    from torch import nn\n    return nn.Sequential(nn.Linear(64, 10))\n"
        )
        text = DIGITS.replace('network = "mlp"\nhidden = [16]', 'factory = "own_net:net"')
        code, out, err = run(written(tmp_path, text), "--json")
        assert code == 0, err
        assert json.loads(out)["metadata"]["model"] == "own_net:net"
        assert "cannot be imported" in run("audit.toml", "--set", "model.factory=own_net:no")[2]

    @pytest.mark.parametrize("kind", ["one-run", "gradients", "model"])
    def test_the_other_kinds(self, kind, tmp_path):
        budget = {"one-run": "budget={canaries=60}", "gradients": "budget={repetitions=12}", "model": "budget={}"}
        changes = [f"audit={kind}", budget[kind]]
        if kind == "gradients":
            changes += [
                "recipe.batch_size=all",
                "recipe.dp={epsilon=2.0}",
                "data.records=60",
                "attack.neighbours=bounded",
            ]
        config = changed(DIGITS, *changes)
        ready = subject(config, base=tmp_path)
        plan = outlook(config, ready)
        assert plan.trainings == (12 if kind == "gradients" else 1)
        audit = launch(config, ready, store=Store(tmp_path / "store"), progress=False)
        assert audit.headline.confidence == 0.95
        assert (audit.metadata.kind or "model") == kind

    def test_the_time_of_the_plan_is_of_the_right_size(self, tmp_path):
        config = changed(DIGITS, "recipe.epochs=60", "budget.runs=40")
        ready = subject(config, base=tmp_path)
        expected = min(outlook(config, ready).seconds for _ in range(2))
        start = time.process_time()
        launch(config, ready, store=Store(tmp_path), progress=False)
        spent = time.process_time() - start
        assert expected / 6 < spent < expected * 6 + 3
        size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
        assert outlook(config, ready).bytes == pytest.approx(size, rel=0.3)


@pytest.mark.slow
def test_members_only_is_shown(run, tmp_path):
    text = (
        'audit = "members-only"\n[data]\nname = "digits"\nrecords = 300\n[model]\n'
        'sklearn = "sklearn.ensemble.RandomForestClassifier"\noptions = { n_estimators = 10 }\n'
    )
    code, out, err = run(written(tmp_path, text), "--out", "page.html")
    assert code == 0, err
    assert "PANORAMIA measures" in out and "ROC" not in out
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")
