"""Broken files, values and options for every command: a valid answer or one plain refusal."""

import contextlib
import inspect
import io
import json
import os
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from fuzz_calls import COINS, RUNS, SCORES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dosimeter import cli

WORDS = [
    *(
        "",
        " ",
        "-",
        "--",
        "x",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "-1",
        "0",
        "1",
        "2",
        "0.5",
        "1e-5",
        "0.95",
        "1.5",
        "1e9999",
    ),
    *(
        "½",
        "²",
        "٣",
        "ε",
        "\\",
        "\udcff",
        "a\nb",
        "[bold]",
        "%s",
        "{}",
        "None",
        "true",
        "9" * 400,
        "1,1",
        "1,2,3",
        ",",
        "--json",
    ),
    *(
        "split",
        "naive",
        "uniform",
        "ranked",
        "bayesian",
        "both",
        "betting",
        "f-dp",
        "gaussian",
        "steinke",
        "rdp",
        "shuffled",
    ),
    *("good.npz", "runs.npz", "broken.npz", "none.npz", ".", "/", "..", "a.txt", "/dev/null", "good.csv"),
]
CALLED = [0]
# Commands that run for long, write files or need extras have tests of their own; broken options stop them before that.
COMMAND = cli._command()
SLOW = {"demo", "selftest", "plan", "choose", "run"}


def commands():
    """(name, file arguments, options that take a value, flags) of every command."""
    found = []
    for registered in cli.app.registered_commands:
        parameters = inspect.signature(registered.callback, eval_str=True).parameters.values()
        files, valued, flags = [], [], []
        for parameter in parameters:
            declared = parameter.annotation.__metadata__[0]
            names = [n for n in getattr(declared, "param_decls", None) or () if n.startswith("--")]
            name = names[0] if names else "--" + parameter.name.replace("_", "-")
            if type(declared).__name__ == "ArgumentInfo":
                files.append(parameter.name)
            elif parameter.annotation.__origin__ is bool:
                flags.append(name)
            else:
                valued.append(name)
        found.append((registered.name, files, valued, flags))
    return found


@pytest.fixture(scope="module")
def folder():
    """A folder with good and broken files; nothing may be added to it."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        np.savez("good.npz", members=SCORES.members, nonmembers=SCORES.nonmembers)
        np.savez("runs.npz", scores=RUNS.scores, included=COINS, baseline=RUNS.scores, attack=RUNS.scores)
        Path("good.csv").write_text("score,member\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
        Path("broken.npz").write_bytes(Path("good.npz").read_bytes()[:300])
        yield Path(name)
        os.chdir(here)


def run(arguments):
    out, err = io.StringIO(), io.StringIO()
    before, build = sys.argv, cli._command
    sys.argv, cli._command = ["dosimeter", *arguments], lambda: COMMAND  # it costs more than most commands
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stopped:
            cli.main()
    finally:
        sys.argv, cli._command = before, build
    return stopped.value.code, out.getvalue(), err.getvalue()


def check_run(arguments, folder):
    CALLED[0] += 1
    before = sorted(path.name for path in folder.iterdir())
    code, out, err = run(arguments)
    shown = (arguments, code, out[:200], err[:500])
    assert code in (0, 1, 2), shown
    assert "Traceback" not in err, shown
    if code == 2:
        assert out == "", shown
        assert err.startswith("error: "), shown
        assert err.count("\n") == 1, shown
    elif "--json" in arguments and "--help" not in arguments:
        json.loads(out, parse_constant=pytest.fail)
    assert sorted(path.name for path in folder.iterdir()) == before, shown


@pytest.mark.parametrize("command", [c for c in commands() if c[0] not in SLOW], ids=lambda c: c[0])
def test_commands(command, folder):
    """Broken files, broken values, missing and doubled options, in every combination that chance brings."""
    name, files, valued, flags = command
    chance = random.Random(name)
    good = {"--tp": "5", "--fn": "3", "--fp": "2", "--tn": "7", "--epsilon": "1", "--noise-multiplier": "1"}
    good |= {"--delta": "1e-5", "--confidence": "0.9", "--max-epsilon": "1", "--steps": "2"}
    for _ in range(60):
        arguments = [name]
        for _ in files:
            arguments.append(chance.choice(["good.npz", "runs.npz", "good.csv", chance.choice(WORDS)]))
        for option in valued:
            if option == "--junit":
                continue
            if option in good and chance.random() < 0.8:
                arguments += [option, good[option]]
            if chance.random() < 0.15:
                arguments += [option, chance.choice(WORDS)]
        arguments += [flag for flag in flags if chance.random() < 0.3]
        if chance.random() < 0.1:
            arguments.append(chance.choice(WORDS))
        check_run(arguments, folder)


@pytest.mark.parametrize("command", [c for c in commands() if c[0] in SLOW], ids=lambda c: c[0])
def test_slow_commands_stop_before_they_start(command, folder):
    name, files, valued, _ = command
    for option in valued:
        for word in ("nan", "x", "", "-1", "1e9999", "²", "\udcff"):
            if option in ("--folder", "--sampling", "--neighbours", "--output"):
                continue
            arguments = [name, *("none.npz" for _ in files), option, word]
            code, _, err = run(arguments)
            assert code == 2, (arguments, err)
            assert err.startswith("error: ")
            assert err.count("\n") == 1


READERS = (["audit"], ["one-run"], ["panoramia"], ["claim", "--epsilon", "1"])


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=400), st.sampled_from(["npz", "csv", "parquet"]), st.booleans(), st.sampled_from(READERS))
def test_files_of_any_bytes(folder, content, ending, headed, command):
    path = folder / f"any.{ending}"
    start = {"npz": b"PK\x03\x04", "csv": b"score,member\n", "parquet": b"PAR1"}[ending] if headed else b""
    path.write_bytes(start + content)
    try:
        code, out, err = run([*command, path.name, "--json"])
        assert code in (0, 1, 2)
        if code == 2:
            assert (out, err.count("\n")) == ("", 1)
            assert err.startswith("error: ")
    finally:
        path.unlink()
