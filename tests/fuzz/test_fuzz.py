"""Thousands of broken inputs to every public function and command: a valid answer or one plain refusal."""

import contextlib
import inspect
import io
import json
import math
import os
import random
import sys
import tempfile
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter import cli
from dosimeter.audits.audit import Audit
from dosimeter.audits.scores import audit_scores

RNG = np.random.default_rng(0)
COINS = np.random.default_rng(1).random(60) < 0.5
SCORES = dm.Scores(RNG.normal(1, 1, 40), RNG.normal(0, 1, 30))
RUNS = dm.OneRun(RNG.normal(1.0 * COINS), COINS)
COUNTS = dm.Counts(tp=30, fn=10, fp=5, tn=25)
LOSSES = RNG.gamma(2, 5, 50), RNG.gamma(3, 5, 50)
LOWER = dm.clopper_pearson(COUNTS, delta=1e-5)
(UPPER,) = dm.account(noise_multiplier=1.0, delta=1e-5, methods=["gaussian"])


class Hostile:
    """An object that refuses to be looked at as a number."""

    def __float__(self):
        raise TypeError("no")

    def __repr__(self):
        return "a hostile\nobject"


JUNK = [
    *(None, True, False, np.True_, "", "x", "nan", "0.5", b"", b"ab", ..., NotImplemented, int, len, Hostile()),
    *(math.nan, math.inf, -math.inf, -0.0, -1, -1.5, 0, 0.5, 1, 1.0, 1.5, 2, 5e-324, -1e-300, 1e-300, 1e300, 1.7e308),
    *(10**400, -(10**400), 2**63, 2**64, 1j, complex(math.nan, 0), Decimal("0.5"), Fraction(1, 3), Fraction(10**400)),
    *([], [[]], [[1.0], [1.0, 2.0]], [1.0, None], [1.0, "a"], [math.nan], [math.inf, -math.inf], [1.0], [0, 1], [0, 2]),
    *([1.7e308] * 2, [True, False], ["a", "b"], [b"a"], [1j], [10**400], [[0.0, 1.0]], [{}], [None], [Hostile()]),
    *((), (1,), (0.5, 0.5), (1, 2, 3), (-1, 5), ("a", "b"), (None, None), ([1.0], [2.0])),
    *(
        {},
        {"a": 1.0},
        set(),
        {1.0},
        frozenset(),
        range(0),
        range(3),
        iter([1.0, 2.0]),
        (x for x in [1.0]),
        bytearray(b"1"),
    ),
    *(np.array(0.5), np.array(3), np.array(math.nan), np.array("0.5"), np.array(None), np.array(True), np.array(1j)),
    *(np.array([]), np.zeros((2, 2)), np.zeros((0, 3)), np.zeros((1, 1, 1)), np.array([1.0, math.nan]), np.zeros(3)),
    *(np.array(["a", "b"]), np.array([b"a"]), np.array([None, 1.0]), np.array([1j, 2j]), np.array([Hostile()])),
    *(
        np.array(["2020-01-01"], "M8[D]"),
        np.array([1, 2], "m8[s]"),
        np.zeros(2, [("a", float)]),
        np.array([2**63], "u8"),
    ),
    *(np.ma.masked, np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0]), np.float16(0.5), np.int8(-1)),
    *(
        np.longdouble("1e4000"),
        np.full(3, np.longdouble("1e4000")),
        np.array([1.7e308, -1.7e308]),
        np.float32(math.nan),
    ),
    *(np.array([0, 1], bool), np.array([5e-324, 0.0]), np.ones(200), np.arange(5)),
    *(
        SCORES,
        RUNS,
        COUNTS,
        LOWER,
        UPPER,
        dm.Gaussian(1.0),
        dm.DpSgd(1.0, 1.0, 3),
        dm.InputError("x"),
        dm.Validity.CREDIBLE,
    ),
    *("split", "naive", "uniform", "ranked", "both", "lower", "mixed", "in", "betting", "f-dp", "steinke", "empirical"),
    *("poisson", "shuffled", "without-replacement", "replace", "add/remove", "zero-out", "pld", "rdp", "gaussian"),
]

FEATURES = np.random.default_rng(0).normal(size=(24, 3))
CLASSES = np.arange(24) % 2
AUDIT = audit_scores(dm.Scores.from_losses(LOSSES[0][:12], LOSSES[1][:12]), resamples=0)

# One good call each; a test replaces some of its arguments.
CALLS = {
    "Scores": (dm.Scores, {"members": [1.0, 2.0], "nonmembers": [0.0, 1.0], "from_loss": False}),
    "Scores.from_losses": (dm.Scores.from_losses, {"members": [1.0, 2.0], "nonmembers": [0.0, 1.0]}),
    "Scores.counts_at": (SCORES.counts_at, {"threshold": 0.5}),
    "Scores.split": (SCORES.split, {"seed": 0}),
    "Scores.from_file": (dm.Scores.from_file, {"path": "nothing.npz"}),
    "OneRun": (dm.OneRun, {"scores": [1.0, 2.0], "included": [0, 1], "mask_seed": None}),
    "OneRun.from_file": (dm.OneRun.from_file, {"path": "nothing.npz", "mask_seed": None}),
    "Counts": (dm.Counts, {"tp": 1, "fn": 2, "fp": 3, "tn": 4}),
    "fair_coins": (dm.fair_coins, {"records": 10, "seed": 0}),
    "mask_hash": (dm.mask_hash, {"included": [0, 1]}),
    "lower_bound": (dm.lower_bound, {"evidence": SCORES, "delta": 1e-5, "confidence": 0.9, "seed": 0}),
    "ranked": (dm.ranked, {"evidence": RUNS, "delta": 1e-5, "confidence": 0.9, "order": "in", "seed": 0}),
    **{
        function.__name__: (
            function,
            {"evidence": SCORES, "delta": 1e-5, "confidence": 0.9, "threshold": None, "fpr": None, "seed": 0}
            | ({} if function is dm.advantage else {"sides": "lower"}),
        )
        for function in (dm.clopper_pearson, dm.jeffreys, dm.bayesian, dm.gaussian, dm.advantage)
    },
    **{
        f"{function.__name__} of counts": (
            function,
            {"evidence": COUNTS, "delta": 1e-5, "confidence": 0.9}
            | ({} if function is dm.advantage else {"sides": "both"}),
        )
        for function in (dm.clopper_pearson, dm.jeffreys, dm.bayesian, dm.gaussian, dm.advantage)
    },
    "epsilon_star": (
        dm.epsilon_star,
        {
            "member_losses": LOSSES[0],
            "nonmember_losses": LOSSES[1],
            "delta": 1e-5,
            "form": "parametric",
            "confidence": 0.9,
            "resamples": 5,
            "seed": 0,
            "rates": (0.001, 0.999),
            "clipped": 0,
        },
    ),
    "epsilon_star, empirical": (
        dm.epsilon_star,
        {
            "member_losses": LOSSES[0],
            "nonmember_losses": LOSSES[1],
            "delta": None,
            "form": "empirical",
            "confidence": 0.9,
            "resamples": 5,
            "rates": (0.001, 0.999),
        },
    ),
    "epsilon_star_mechanism": (dm.epsilon_star_mechanism, {"models": [LOSSES], "delta": 1e-5, "fpr_grid": [0.1, 0.5]}),
    "goodness_of_fit": (
        dm.goodness_of_fit,
        {"losses": LOSSES[0], "components": [1, 2], "sample_sizes": [10], "seed": 0},
    ),
    "one_run": (
        dm.one_run,
        {
            "evidence": RUNS,
            "delta": 1e-5,
            "confidence": 0.9,
            "guesses": 20,
            "term": "smaller",
            "method": "binomial",
            "seed": 0,
        },
    ),
    "one_run, betting": (
        dm.one_run,
        {"evidence": RUNS, "delta": 1e-5, "confidence": 0.9, "guesses": "ranked", "method": "betting", "seed": 0},
    ),
    "panoramia": (
        dm.panoramia,
        {"baseline": RUNS, "attack": RUNS, "confidence": 0.9, "guesses": "ranked", "resamples": 5, "seed": 0},
    ),
    "claim": (
        dm.claim,
        {"evidence": RUNS, "epsilon": 1.0, "delta": 1e-5, "confidence": 0.9, "profile": None, "thresholds": None},
    ),
    "ClaimTest": (
        dm.ClaimTest,
        {"epsilon": 1.0, "delta": 1e-5, "confidence": 0.9, "profile": None, "thresholds": None},
    ),
    "ClaimTest.update": (lambda **k: dm.ClaimTest(epsilon=1, delta=0).update(**k), {"score": 1.0, "included": 1}),
    "ClaimTest.update_many": (
        lambda **k: dm.ClaimTest(epsilon=1, delta=0).update_many(**k),
        {"scores": [1.0, 2.0], "included": [1, 0]},
    ),
    "ClaimTest.from_dict": (dm.ClaimTest.from_dict, {"state": dm.ClaimTest(epsilon=1, delta=0).to_dict()}),
    "Gaussian": (dm.Gaussian, {"noise_multiplier": 1.0, "steps": 3, "neighbours": "add/remove"}),
    "DpSgd": (
        dm.DpSgd,
        {"noise_multiplier": 1.0, "sample_rate": 0.5, "steps": 3, "sampling": "poisson", "neighbours": None},
    ),
    "Composition": (dm.Composition, {"parts": (dm.Gaussian(1.0), dm.Gaussian(2.0))}),
    "PrivacyRegion": (dm.PrivacyRegion, {"lower": LOWER, "upper": UPPER}),
    "account": (
        dm.account,
        {
            "value": None,
            "delta": 1e-5,
            "noise_multiplier": 1.1,
            "sample_rate": 1.0,
            "steps": 3,
            "sampling": "poisson",
            "neighbours": None,
            "methods": ["rdp", "gaussian"],
        },
    ),
    "noise_for_epsilon": (dm.noise_for_epsilon, {"epsilon": 1.0, "delta": 1e-5, "steps": 3, "neighbours": None}),
    "noise_for_belief": (dm.noise_for_belief, {"belief": 0.9, "delta": 1e-5, "prior": 0.5, "steps": 3}),
    "noise_for_advantage": (dm.noise_for_advantage, {"advantage": 0.1, "steps": 3, "sampling": "poisson"}),
    "noise_for_tpr": (dm.noise_for_tpr, {"tpr": 0.1, "fpr": 0.01, "steps": 3}),
    "audit_scores": (
        audit_scores,
        {
            "scores": dm.Scores.from_losses(LOSSES[0][:12], LOSSES[1][:12]),
            "delta": 1e-5,
            "confidence": 0.9,
            "threshold": None,
            "fpr": None,
            "resamples": 5,
            "seed": 0,
        },
    ),
    "Audit.from_json": (Audit.from_json, {"text": "{}"}),
    "audit_model": (
        dm.audit_model,
        {
            "model": lambda rows: np.column_stack([rows.sum(axis=1), np.ones(len(rows))]),
            "members": (FEATURES[:12], CLASSES[:12]),
            "nonmembers": (FEATURES[12:], CLASSES[12:]),
            "delta": 1e-5,
            "confidence": 0.9,
            "mechanism": None,
            "subgroups": None,
            "guard": False,
            "strict": False,
            "threshold": None,
            "fpr": None,
            "resamples": 0,
            "seed": 0,
            "metadata": None,
        },
    ),
    "check_shift": (
        dm.check_shift,
        {"members": FEATURES[:12], "nonmembers": FEATURES[12:], "labels": None, "confidence": 0.9, "seed": 0},
    ),
    "compare": (dm.compare, {"audits": [AUDIT, AUDIT], "names": ["a", "b"], "utilities": [0.5, 0.6]}),
}
RESULTS = {"Estimate", "Guarantee", "InputError", "Validity"}  # what comes out, not what a caller passes in
# They train models in every call that goes through: tests/audits holds their bad input.
TRAINING = {"audit_gradients", "audit_members_only", "audit_one_run", "audit_training"}


def test_every_public_name_is_fuzzed():
    covered = {name.split(" ")[0].split(",")[0].split(".")[0] for name in CALLS}
    assert set(dm.__all__) <= covered | RESULTS | TRAINING


@pytest.mark.parametrize("name", CALLS)
def test_the_good_call_is_good(name):
    function, arguments = CALLS[name]
    try:
        assert sound(function(**arguments))
    except dm.InputError:
        assert name in ("Scores.from_file", "OneRun.from_file", "Audit.from_json")


def sound(result):
    """A valid answer: no NaN anywhere, and strict JSON where there is JSON."""
    if isinstance(result, (list, tuple)):
        return all(map(sound, result))
    if isinstance(result, dm.Estimate):
        numbers = [result.epsilon, result.low, result.high, result.delta, result.confidence]
        assert not any(map(math.isnan, numbers))
        assert 0 <= result.low <= result.high
        assert math.isfinite(result.low)
        assert "nan" not in result.claim
    if isinstance(result, float):
        return not math.isnan(result)
    if isinstance(result, np.ndarray):
        return bool(np.isfinite(result).all())
    if hasattr(result, "to_dict"):
        json.dumps(result.to_dict(), allow_nan=False)
    return True


def refuse_or_answer(function, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", "Warning: converting a masked element")
        try:
            result = function(**arguments)
        except dm.InputError as error:
            message = str(error)
            assert message
            assert "\n" not in message
            assert len(message) < 1000
            return
    assert sound(result)


def junk():
    return st.sampled_from(range(len(JUNK))).map(JUNK.__getitem__)


@pytest.mark.parametrize("name", CALLS)
def test_one_broken_argument(name):
    """Every argument of every call takes every piece of junk."""
    function, good = CALLS[name]
    failures = []
    for argument in good:
        for number, value in enumerate(JUNK):
            try:
                refuse_or_answer(function, good | {argument: value})
            except Exception as error:
                failures.append(f"{argument}={value!r:.60} (JUNK[{number}]): {type(error).__name__}: {error!s:.100}")
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures[:40])


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_several_broken_arguments(name, data):
    function, good = CALLS[name]
    chosen = data.draw(st.lists(st.sampled_from(sorted(good)), min_size=1, unique=True))
    refuse_or_answer(function, good | {argument: data.draw(junk()) for argument in chosen})


NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=64),
    st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308]),
)
SCORE_CALLS = [
    name for name, (_, arguments) in CALLS.items() if isinstance(arguments.get("evidence"), (dm.Scores, dm.OneRun))
]


@pytest.mark.parametrize("name", SCORE_CALLS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(NUMBERS, max_size=6),
    st.lists(NUMBERS, max_size=6),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_any_scores_any_level(name, members, nonmembers, delta, confidence):
    """Whatever evidence can be built, at any δ and confidence, gets an answer or a refusal."""
    function, good = CALLS[name]

    def call(**options):
        if isinstance(good["evidence"], dm.Scores):
            evidence = dm.Scores(members, nonmembers)
        else:
            included = [True] * len(members) + [False] * len(nonmembers)
            evidence = dm.OneRun(members + nonmembers, included)
        return function(**(options | {"evidence": evidence}))

    refuse_or_answer(call, good | {"delta": delta, "confidence": confidence})


@pytest.mark.parametrize("function", [dm.clopper_pearson, dm.jeffreys, dm.bayesian, dm.gaussian, dm.advantage])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.one_of(st.integers(0, 3), st.integers(0, 10**9), st.just(10**9)), min_size=4, max_size=4),
    st.one_of(st.just(0.0), st.just(1e-12), st.floats(0, 1, exclude_max=True)),
    st.one_of(st.floats(0, 1, exclude_min=True, exclude_max=True), st.just(1 - 1e-9), st.just(1e-9)),
    st.sampled_from(["lower", "both"]),
)
def test_any_counts_any_level(function, cells, delta, confidence, sides):
    options = {"delta": delta, "confidence": confidence} | ({} if function is dm.advantage else {"sides": sides})

    def call(**given):
        return function(dm.Counts(**dict(zip(("tp", "fn", "fp", "tn"), cells, strict=True))), **given)

    refuse_or_answer(call, options)


# --- the command line -------------------------------------------------------------------------------------

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
# Commands that run for long, write files or need extras have tests of their own; broken options stop them before that.
COMMAND = typer.main.get_command(cli.app)
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
    before, app = sys.argv, cli.app
    sys.argv, cli.app = ["dosimeter", *arguments], COMMAND  # built once: it costs more than most commands
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stopped:
            cli.main()
    finally:
        sys.argv, cli.app = before, app
    return stopped.value.code, out.getvalue(), err.getvalue()


def check_run(arguments, folder):
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
