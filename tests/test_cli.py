"""The command line as a user meets it: what stands on which stream, and the exit code."""

import inspect
import json
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import dosimeter as dm
from dosimeter import cli, selftest
from dosimeter.accounting import account
from dosimeter.audits.scores import audit_scores
from dosimeter.estimate import plain
from dosimeter.estimators.with_assumptions import bayesian

COMMANDS = [command.name for command in cli.app.registered_commands]
COUNTS = ["--tp", "65", "--fn", "35", "--fp", "25", "--tn", "75"]


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, columns=120):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["dosimeter", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        streams = capsys.readouterr()
        return stopped.value.code, streams.out, streams.err

    return call


@pytest.fixture
def answer(run):
    """The JSON a command prints, and that it prints nothing else."""

    def call(*arguments, code=0):
        got, out, err = run(*arguments, "--json")
        assert (got, err) == (code, "")
        assert out.endswith("\n")
        assert out.count("\n") == 1
        return json.loads(out, parse_constant=pytest.fail)

    return call


@pytest.fixture
def refused(run, tmp_path):
    """Exit code 2, one line on standard error, nothing on standard output, nothing written."""

    def call(*arguments):
        before = sorted(tmp_path.rglob("*"))
        code, out, err = run(*arguments)
        assert code == 2
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert sorted(tmp_path.rglob("*")) == before
        return err

    return call


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "scores.npz", members=rng.normal(1, 1, 200), nonmembers=rng.normal(0, 1, 200))
    return dm.Scores.from_file(tmp_path / "scores.npz")


@pytest.fixture
def canaries(tmp_path):
    coins = dm.fair_coins(400, seed=1)
    np.savez(tmp_path / "canaries.npz", included=coins, scores=np.random.default_rng(0).normal(coins, 1))
    return dm.OneRun.from_file(tmp_path / "canaries.npz")


class TestJson:
    def test_estimate(self, answer):
        given = ["--delta", "0.05", "--confidence", "0.95", "--method", "bayesian", "--sides", "both"]
        found = answer("estimate", *COUNTS, *given)
        counts = dm.Counts(tp=65, fn=35, fp=25, tn=75)
        assert found == bayesian(counts, delta=0.05, confidence=0.95, sides="both").to_dict()
        assert found["low"] == pytest.approx(0.52179, abs=5e-6)  # the worked example
        assert found["high"] == pytest.approx(1.26665, abs=5e-6)

    @pytest.mark.parametrize(
        ("method", "low", "high"),
        [("clopper-pearson", 0.29515, 1.48873), ("jeffreys", 0.32095, 1.45637)],  # the worked example
    )
    def test_estimate_by_other_methods(self, answer, method, low, high):
        found = answer("estimate", *COUNTS, "--delta", "0.05", "--method", method, "--sides", "both")
        assert found["method"] == method
        assert found["low"] == pytest.approx(low, abs=5e-6)
        assert found["high"] == pytest.approx(high, abs=5e-6)

    def test_estimate_defaults_to_a_lower_bound(self, answer):
        found = answer("estimate", *["--tp", "1000", "--fn", "0", "--fp", "0", "--tn", "1000", "--confidence", "0.9"])
        assert found["low"] == pytest.approx(5.80906, abs=5e-6)  # one-sided Clopper–Pearson
        assert found["high"] is None

    def test_estimate_gaussian(self, answer):
        found = answer("estimate", *COUNTS, "--method", "gaussian")
        assert found == dm.gaussian(dm.Counts(tp=65, fn=35, fp=25, tn=75)).to_dict()

    def test_audit(self, answer, scores):
        found = answer("audit", "scores.npz", "--delta", "1e-5")
        assert found == audit_scores(scores, delta=1e-5).to_dict()
        assert found["estimates"][0]["method"] == "lower-bound"
        assert found["estimates"][0] == dm.lower_bound(scores, delta=1e-5).to_dict()

    def test_audit_of_losses(self, answer, tmp_path):
        rng = np.random.default_rng(0)
        np.savez(tmp_path / "l.npz", member_losses=rng.gamma(2, 5, 200), nonmember_losses=rng.gamma(3, 5, 200))
        methods = [e["method"] for e in answer("audit", "l.npz")["estimates"]]
        assert methods[0] == "lower-bound"
        assert methods[-2:] == ["epsilon-star-parametric", "epsilon-star-empirical"]

    @pytest.mark.parametrize(
        ("given", "options"),
        [
            (["--threshold", "naive"], {"threshold": "naive"}),
            (["--threshold", "0.5"], {"threshold": 0.5}),
            (["--threshold", "-0.5"], {"threshold": -0.5}),
            (["--fpr", "0.1"], {"fpr": 0.1}),
            (["--confidence", "0.9", "--seed", "3"], {"confidence": 0.9, "seed": 3}),
        ],
    )
    def test_audit_options(self, answer, scores, given, options):
        assert answer("audit", "scores.npz", *given) == audit_scores(scores, delta=1e-5, **options).to_dict()

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_audit_of_a_table(self, answer, tmp_path, scores, ending):
        values = np.concatenate([scores.members, scores.nonmembers]).tolist()
        member = [1] * scores.members.size + [0] * scores.nonmembers.size
        if ending == "csv":
            rows = "".join(f"{v!r},{m}\n" for v, m in zip(values, member, strict=True))
            (tmp_path / "t.csv").write_text("score,member\n" + rows)
        else:
            import pyarrow as pa
            from pyarrow import parquet

            parquet.write_table(pa.table({"score": values, "member": member}), tmp_path / "t.parquet")
        assert answer("audit", f"t.{ending}") == audit_scores(scores, delta=1e-5).to_dict()

    def test_audit_of_named_columns(self, answer, run, refused, tmp_path, scores):
        values = np.concatenate([scores.members, scores.nonmembers]).tolist()
        seen = ["yes"] * scores.members.size + ["No"] * scores.nonmembers.size
        rows = "".join(f"{v!r},{-v!r},{m}\n" for v, m in zip(values, seen, strict=True))
        (tmp_path / "t.csv").write_text("confidence,my_loss,seen\n" + rows)
        named = ["--member-column", "seen"]
        by_score = answer("audit", "t.csv", "--score-column", "confidence", *named)
        assert by_score == audit_scores(scores, delta=1e-5).to_dict()
        by_loss = answer("audit", "t.csv", "--loss-column", "my_loss", *named)
        assert by_loss["estimates"][0]["low"] == by_score["estimates"][0]["low"]
        code, _, err = run("audit", "t.csv", "--score-column", "my_loss", *named)
        assert code == 0 and "my_loss is read as losses" in err
        assert "--member-column" in refused("audit", "t.csv", "--score-column", "confidence")
        assert "--score-column is for a table" in refused("audit", "m.onnx", "--score-column", "confidence")

    @pytest.mark.parametrize(
        ("given", "options"),
        [
            ([], {}),
            (["--guesses", "100"], {"guesses": 100}),
            (["--guesses", "50,0", "--term", "steinke"], {"guesses": (50, 0), "term": "steinke"}),
            (["--method", "betting"], {"method": "betting"}),
            (["--method", "f-dp", "--guesses", "100"], {"method": "f-dp", "guesses": 100}),
            (["--mask-seed", "1", "--guesses", "ranked"], {"guesses": "ranked"}),
        ],
    )
    def test_one_run(self, answer, canaries, given, options):
        found = answer("one-run", "canaries.npz", "--delta", "1e-5", *given)
        assert found == dm.one_run(canaries, delta=1e-5, **options).to_dict()

    @pytest.mark.parametrize("real", [False, True])
    def test_panoramia(self, answer, tmp_path, real):
        coins, rng = dm.fair_coins(600, 1), np.random.default_rng(0)
        baseline, attack = rng.normal(0.3 * coins), rng.normal(1.5 * coins)
        np.savez(tmp_path / "game.npz", included=coins, baseline=baseline, attack=attack)
        found = answer("panoramia", "game.npz", *(["--real-nonmembers"] if real else []))
        expected = dm.panoramia(baseline=None if real else dm.OneRun(baseline, coins), attack=dm.OneRun(attack, coins))
        assert found == expected.to_dict()
        assert found["validity"] == ("finite-sample, random split" if real else "measurement")

    def test_account(self, answer):
        given = ["--noise-multiplier", "1.1", "--sample-rate", "0.02", "--steps", "500", "--delta", "1e-5"]
        expected = account(noise_multiplier=1.1, sample_rate=0.02, steps=500, delta=1e-5)
        assert answer("account", *given) == plain([item.to_dict() for item in expected])

    def test_claim_that_is_broken(self, answer, tmp_path):
        coins = dm.fair_coins(1500, 1)
        runs = dm.OneRun(np.random.default_rng(0).normal(3.0 * coins), coins)
        np.savez(tmp_path / "runs.npz", scores=runs.scores, included=coins)
        found = answer("claim", "runs.npz", "--epsilon", "1", code=1)
        assert found == dm.claim(runs, epsilon=1.0, delta=1e-5).to_dict()
        assert found["details"]["rejected"]

    def test_claim_that_stands(self, answer, tmp_path):
        coins = dm.fair_coins(300, 1)
        np.savez(tmp_path / "runs.npz", scores=np.random.default_rng(0).normal(size=300), included=coins)
        for profile in ([], ["--mu", "0.27"], ["--noise-multiplier", "3.7"]):
            assert not answer("claim", "runs.npz", "--epsilon", "1", *profile)["details"]["rejected"]

    @pytest.mark.parametrize("independent", [False, True])
    def test_claim_about_one_run(self, answer, tmp_path, independent):
        coins = dm.fair_coins(1500, 1)
        canaries = dm.OneRun(np.random.default_rng(0).normal(3.0 * coins), coins)
        np.savez(tmp_path / "canaries.npz", scores=canaries.scores, included=coins)
        flags = ["--one-run", *(["--independent"] if independent else []), "--noise-multiplier"]
        found = answer("claim", "canaries.npz", *flags, "2", "--steps", "4", code=1)
        mechanism = dm.DpSgd(2.0, 1.0, 4)
        assert found == dm.claim(canaries, mechanism=mechanism, independent=independent).to_dict()
        assert found["validity"] == "assumes the mechanism's family"
        assert not answer("claim", "canaries.npz", *flags, "0.5", "--steps", "4")["details"]["rejected"]

    @pytest.mark.slow
    def test_selftest(self, run):
        code, out, err = run("selftest", "--trials", "1", "--records", "100", "--json")
        assert code in (0, 1)
        assert err == ""
        rows = json.loads(out, parse_constant=pytest.fail)["rows"]
        assert len(rows) == selftest.count_rows()


class TestForPeople:
    @pytest.mark.parametrize("columns", [80, 120])
    def test_audit(self, run, tmp_path, columns):
        rng = np.random.default_rng(0)
        np.savez(tmp_path / "l.npz", member_losses=rng.gamma(2, 5, 200), nonmember_losses=rng.gamma(3, 5, 200))
        code, out, err = run("audit", "l.npz", columns=columns)
        assert code == 0
        result = audit_scores(dm.Scores.from_file(tmp_path / "l.npz"), delta=1e-5)
        words = " ".join(out.split())
        assert words.startswith(result.headline.claim)
        for estimate in result.estimates:
            assert f"│ {estimate.method} " in out
        assert "AUC" in out
        assert "Not checked" in err
        assert max(map(len, out.splitlines())) <= columns

    def test_the_claim_of_an_estimate_is_printed_whole(self, run):
        _, out, err = run("estimate", *COUNTS, "--sides", "both", columns=80)
        counts = dm.Counts(tp=65, fn=35, fp=25, tn=75)
        claim = dm.clopper_pearson(counts, delta=1e-5, sides="both").claim
        assert claim in " ".join(out.split())
        assert err == ""

    def test_warnings_go_to_standard_error(self, run, scores):
        _, out, err = run("audit", "scores.npz", "--threshold", "naive")
        assert "warning (" not in out
        assert re.search(r"warning \(clopper-pearson, .*\): the threshold was chosen on the same data", err)

    @pytest.mark.parametrize(
        "arguments",
        [
            ["one-run", "canaries.npz"],
            ["claim", "canaries.npz", "--epsilon", "8"],
            ["account", "-z", "1.1"],
            ["plan", "--members", "100"],
        ],
        ids=lambda a: a[0],
    )
    def test_the_other_tables(self, run, canaries, arguments):
        code, out, _ = run(*arguments, columns=80)
        assert code == 0
        assert "┏" in out
        assert max(map(len, out.splitlines())) <= 200

    def test_the_same_seed_the_same_text(self, run, scores):
        assert run("audit", "scores.npz", "--seed", "3") == run("audit", "scores.npz", "--seed", "3")

    def test_an_audit_keeps_measured_and_proven_apart(self, run, scores):
        _, out, err = run("audit", "scores.npz")
        text = " ".join(out.split())
        assert out.index("Measured by this attack") < out.index("Proven\n")
        for bound in audit_scores(scores, delta=1e-5).estimates[:2]:
            act = {"replace": "replacing", "add/remove": "adding or removing"}[bound.neighbours]
            assert f"guarantee below ε = {bound.low:.4g} at δ = 1e-05 for {act} one record" in text
        proven = text[text.index("Proven ") :]
        assert "may find" not in proven and "every number of guesses" not in text
        assert err.count("the scores come from one model") == 1  # once for all the methods that it is about

    def test_scores_the_wrong_way_round_are_named(self, run, tmp_path):
        rng = np.random.default_rng(0)
        np.savez(tmp_path / "s.npz", members=rng.normal(-2, 1, 200), nonmembers=rng.normal(0, 1, 200))
        _, _, err = run("audit", "s.npz")
        assert err.count("the scores look the wrong way round") == 1

    def test_epsilon_star_of_few_losses_cannot_tell(self, run, tmp_path):
        np.savez(tmp_path / "l.npz", member_losses=np.linspace(0, 1, 40), nonmember_losses=np.linspace(5, 6, 40))
        _, out, _ = run("audit", "l.npz")
        assert out.count("cannot tell") == 2 and "11." not in out


class TestLog:
    def test_what_is_done_and_each_task(self, run, tmp_path):
        rows = "".join(f"{i},{i % 5},{i % 2}\n" for i in range(40))
        (tmp_path / "t.csv").write_text("a,b,label\n" + rows)
        tree = "sklearn.tree.DecisionTreeClassifier"
        text = f'seed = 1\n[data]\nfile = "t.csv"\n[model]\nsklearn = "{tree}"\n[budget]\nshadows = 8\nruns = 20\n'
        (tmp_path / "t.toml").write_text(text + '[engine]\nname = "inline"\n')
        said = {level: run("run", "t.toml", "--fresh", "--quiet", *level)[2] for level in ((), ("-v",), ("-vv",))}
        assert "tasks" not in said[()]
        assert re.search(
            r"^\d\d:\d\d:\d\d dosimeter: shadow models \(1 of 2\): \d+ tasks$", said[("-v",)], re.MULTILINE
        )
        assert "task 1 of" not in said[("-v",)] and "runs (2 of 2): task 1 of" in said[("-vv",)]
        assert "tasks" not in run("run", "t.toml", "--fresh", "--quiet")[2], "the log ends with its command"

    def test_quiet_and_verbose_stand_in_the_help(self, run):
        for command in ("audit", "run", "demo", "selftest"):
            text = run(command, "--help")[1]
            assert "--quiet" in text and "--verbose" in text and "-v" in text


class TestHelp:
    def test_the_commands_of_the_design_are_there(self):
        assert {"demo", "audit", "estimate", "one-run", "panoramia", "account", "choose", "claim"} < set(COMMANDS)
        assert {"plan", "selftest"} < set(COMMANDS)

    def test_no_command_is_a_call_for_help(self, run):
        code, out, err = run()
        assert (code, err) == (0, "")
        assert all(f" {name} " in out for name in COMMANDS)

    @pytest.mark.parametrize("command", COMMANDS)
    @pytest.mark.parametrize("columns", [80, 120])
    def test_every_command_shows_an_example(self, run, command, columns):
        code, out, err = run(command, "--help", columns=columns)
        assert (code, err) == (0, "")
        assert "Example" in out
        assert re.search(rf"^ +dosimeter {command}\b", out, re.MULTILINE)

    @pytest.mark.parametrize("command", [*COMMANDS, *(f"store {name}" for name in ("ls", "verify", "gc", "export"))])
    def test_a_flag_has_no_type(self, run, command):
        _, out, _ = run(*command.split(), "--help", columns=100)
        assert "bool" not in out and "--help" in out

    @pytest.mark.parametrize("group", [[], ["store"]])
    def test_groups_show_an_example_too(self, run, group):
        _, out, _ = run(*group, "--help", columns=100)
        assert "Example" in out and "bool" not in out

    def test_the_version(self, run):
        assert run("--version") == (0, f"dosimeter {dm.__version__}\n", "")

    @pytest.mark.parametrize("command", ["audit", "estimate", "one-run", "panoramia", "claim"])
    def test_the_example_can_be_copied_and_does_what_it_says(self, run, tmp_path, command):
        _, out, _ = run(command, "--help", columns=80)
        lines = out.splitlines()
        code = [line for line in lines if line.startswith("  ")]  # as it stands on the screen, spaces and all
        script = "\n".join(code).replace("python -c", f"{sys.executable} -c")
        script = script.replace("dosimeter " + command, f"{sys.executable} -m dosimeter {command}")
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == (1 if command == "claim" else 0), done.stderr
        text = inspect.getdoc(getattr(cli, command.replace("-", "_")))
        first_number = re.search(r"\d+(\.\d+)?", text[text.rindex("\n\n") :])
        assert first_number.group() in done.stdout


REFUSED = [
    (["nosuch"], "nosuch"),
    (["--bogus"], "--bogus"),
    (["audit"], "file"),
    (["audit", "none.npz"], "none.npz does not exist"),
    (["audit", "a.txt"], "ending"),
    (["audit", "x" * 5000 + ".npz"], "cannot be read"),
    (["audit", "."], "ending"),
    (["audit", "a.npz", "--delta"], "--delta"),
    (["audit", "a.npz", "--delta", "x"], "--delta"),
    (["audit", "a.npz", "b.npz"], "b.npz"),
    (["estimate", "--tp", "1"], "--fn"),
    (["estimate", *COUNTS, "--tp", "1.5"], "--tp"),
    (["estimate", *COUNTS, "--tp", "-1"], "tp must be between 0"),
    (["estimate", *COUNTS, "--tp", "0", "--fn", "0"], "tp + fn (members) is 0"),
    (["estimate", *COUNTS, "--delta", "1"], "delta must be in [0, 1), got 1"),
    (["estimate", *COUNTS, "--delta", "nan"], "delta must be a finite number"),
    (["estimate", *COUNTS, "--confidence", "95"], "confidence must be in (0, 1), got 95"),
    (["estimate", *COUNTS, "--method", "wald"], "clopper-pearson, jeffreys, bayesian, gaussian"),
    (["estimate", *COUNTS, "--sides", "upper"], "sides must be one of lower, both"),
    (["estimate", *COUNTS, "--method", "gaussian", "--delta", "0"], "delta must be above 0 here"),
    (["claim", "r.npz", "--epsilon", "1", "--mu", "1", "--noise-multiplier", "1"], "exclude each other"),
    (["account", "-z", "0"], "noise_multiplier"),
    (["account", "-z", "1", "--delta", "0"], "delta"),
    (["account", "-z", "1", "--method", "magic"], "methods must be one of"),
    (["choose", "--records", "10", "--batch-size", "5", "--epochs", "1"], "exactly one of"),
    (["plan", "--members", "0"], "members"),
    (["selftest", "--trials", "0"], "trials must be at least 1, got 0"),
    (["selftest", "--records", "5"], "records must be at least 100, got 5"),
]
# Commands and mistakes that end before --json could be read.
PLAIN_ONLY = [row for row in REFUSED if row[0][0] in ("demo", "--bogus", "nosuch") or row[0][-1] == "--delta"]
WITH_JSON = [([*arguments, "--json"], words) for arguments, words in REFUSED if (arguments, words) not in PLAIN_ONLY]


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [*REFUSED, *WITH_JSON],
        ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
    )
    def test_one_line_and_code_2(self, refused, arguments, words):
        assert words in refused(*arguments)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            (["--guesses", "0"], "guesses"),
            (["--guesses", "401"], "400 records"),
            (["--guesses", "300,300"], "600 guesses about 400 records"),
            (["--guesses", "best"], "guesses must be one of learned, ranked"),
            (["--guesses", "1,2,3"], "guesses"),
            (["--guesses", "--5"], "guesses"),
            (["--guesses", "²"], "guesses"),
            (["--guesses", "9" * 5000], "guesses"),
            (["--method", "f-dp"], "fixed in advance"),
            (["--method", "betting", "--guesses", "5"], "betting"),
            (["--term", "x"], "term must be one of"),
            (["--mask-seed", "2"], "not the mask"),
            (["--delta", "-1"], "delta must be"),
        ],
    )
    def test_one_run(self, refused, canaries, given, words):
        assert words in refused("one-run", "canaries.npz", *given)

    @pytest.mark.parametrize("command", ["audit", "one-run", "panoramia", "claim"])
    @pytest.mark.parametrize("content", [b"", b"PK", b"\0" * 100, b"score,member\n1,2\n"])
    @pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
    @pytest.mark.once
    def test_broken_files(self, refused, tmp_path, command, content, ending):
        (tmp_path / f"broken.{ending}").write_bytes(content)
        refused(command, f"broken.{ending}", *(["--epsilon", "1"] if command == "claim" else []))

    @pytest.mark.parametrize("command", ["audit", "one-run", "panoramia", "claim"])
    def test_missing_arrays_are_listed(self, refused, tmp_path, command):
        np.savez(tmp_path / "a.npz", something=[1.0], other=[2.0])
        error = refused(command, "a.npz", *(["--epsilon", "1"] if command == "claim" else []))
        assert "it holds other, something" in error

    def test_panoramia(self, refused, tmp_path):
        np.savez(tmp_path / "a.npz", baseline=[1.0, 2.0], attack=[1.0, 2.0, 3.0], included=[1, 0, 1])
        assert "scores has 2 records but included has 3" in refused("panoramia", "a.npz")
        np.savez(tmp_path / "b.npz", baseline=[1.0, 2.0], attack=[1.0, 2.0], included=[1, 0])
        assert "guesses" in refused("panoramia", "b.npz", "--guesses", "1,1")

    def test_nothing_but_json_when_a_bound_is_infinite(self, answer):
        assert (
            answer("estimate", *["--tp", "90", "--fn", "10", "--fp", "0", "--tn", "100", "--sides", "both"])["high"]
            is None
        )


class TestProcess:
    """The same through a real process."""

    def test_json_and_streams(self, tmp_path):
        given = [*COUNTS, *["--delta", "0.05", "--method", "bayesian", "--sides", "both", "--json"]]
        done = subprocess.run([sys.executable, "-m", "dosimeter", "estimate", *given], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["low"] == pytest.approx(0.52179, abs=5e-6)

    def test_a_refusal(self, tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", "dosimeter", "audit", "none.npz"], capture_output=True, text=True, cwd=tmp_path
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "error: none.npz does not exist or is not a file; check the path.\n"
        assert list(tmp_path.iterdir()) == []

    def test_a_plain_terminal_that_knows_no_greek(self, tmp_path):
        for given, code in ((["estimate", *COUNTS], 0), (["estimate", *COUNTS, "--json"], 0), (["audit", "ε.npz"], 2)):
            done = subprocess.run(
                [sys.executable, "-m", "dosimeter", *given],
                capture_output=True,
                cwd=tmp_path,
                env={"PYTHONIOENCODING": "ascii", "PATH": ""} | _python_path(),
            )
            assert done.returncode == code
            assert b"Traceback" not in done.stderr


def _python_path():
    import os

    return {name: value for name, value in os.environ.items() if name.startswith("PYTHON") and "IOENC" not in name}


@pytest.mark.slow
def test_quick_selftest(run):
    started = time.process_time()
    code, out, _ = run("selftest", "--quick", columns=160)
    used = time.process_time() - started
    assert code == 0, out
    bounds = re.search(r"(\d+) of (\d+) rows labelled as valid bounds keep their level", out)
    assert bounds.group(1) == bounds.group(2)
    assert used < 30, f"{used:.1f} s of CPU time"
