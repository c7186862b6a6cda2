"""The measures of the house: sizes, names, types and signatures that a later change must not undo."""

import ast
import inspect
import re
import tomllib
from collections import Counter, defaultdict
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import dosimeter

ROOT = Path(__file__).parent.parent
SOURCE = Path(dosimeter.__file__).parent
FILES = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
UPPER = {name: text for name, text in FILES.items() if name.startswith(("audits/", "report/"))}
AUDITS = [name for name in dosimeter.__all__ if name.startswith("audit_")]


@cache
def trees():
    """The syntax trees of all files: two seconds that only the process that runs these tests should take."""
    return {name: ast.parse(text) for name, text in FILES.items()}


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_have_at_most_450_lines():
    assert {name: n for name, text in FILES.items() if (n := len(text.splitlines())) > 450} == {}


@pytest.mark.once
def test_functions_have_at_most_80_lines_besides_their_docstring():
    long = {}
    for name, tree in trees().items():
        for node in functions(tree):
            first = node.body[0]
            text = first.end_lineno - first.lineno + 1 if ast.get_docstring(node) is not None else 0
            lines = node.end_lineno - node.lineno + 1 - text
            if lines > 80:
                long[f"{name}: {node.name}"] = lines
    assert long == {}


def test_no_function_is_above_complexity_15():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "C901" in project["tool"]["ruff"]["lint"]["select"]  # make lint runs it
    assert project["tool"]["ruff"]["lint"]["mccabe"]["max-complexity"] <= 15


def test_results_are_typed():
    untyped = re.compile(r"\b(?:dict|[Mm]apping|Dict|MutableMapping)\[str, Any\]")
    assert sum(len(untyped.findall(text)) for text in UPPER.values()) < 40
    report = [text for name, text in UPPER.items() if name.startswith("report/")]
    assert sum(text.count(".get(") for text in report) < 20


@pytest.mark.parametrize("name", AUDITS)
def test_audits_have_few_parameters_and_one_default_of_delta(name):
    parameters = inspect.signature(getattr(dosimeter, name)).parameters
    assert len(parameters) < 18
    assert "run" in parameters or name in ("audit_scores", "audit_canaries")  # which start no workers
    if "delta" in parameters:
        assert parameters["delta"].default == 1e-5
    assert "processes" not in parameters


def test_workers_is_the_word_everywhere():
    named = {
        f"{name}: {argument.arg}"
        for name, tree in trees().items()
        for node in functions(tree)
        for argument in chain(node.args.args, node.args.kwonlyargs)
        if argument.arg in ("processes", "n_jobs", "num_workers")
    }
    assert named == set()


# Words that said what a value was found by, not what it is; and words of a private vocabulary.
VAGUE = {"found", "way", "ways", "lesson", "taught", "contest", "witness"}


def test_names_of_audits_and_pages_say_what_things_are():
    names = set()
    for name, tree in trees().items():
        if name in UPPER:
            for node in ast.walk(tree):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names.add((name, node.id))
                elif isinstance(node, ast.arg):
                    names.add((name, node.arg))
                elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                    names.add((name, node.name))
    vague = {one for one in names if one[1].lower().strip("_") in VAGUE}
    assert vague == {("audits/synthetic/result.py", "found")}  # a key of the JSON


# Both are public, and their folders say what they are entries of.
TWICE = {"Entry": {"audits/board", "engine"}}


def test_a_class_name_stands_once():
    places = defaultdict(list)
    for name, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name.rpartition("/")[0])
    twice = {name: set(folders) for name, folders in places.items() if len(folders) > 1}
    assert twice == TWICE


def test_nothing_changes_the_search_path_for_good_or_dispatches_by_signature():
    changed = {name for name, text in FILES.items() if re.search(r"sys\.path\.(?:append|insert|extend)", text)}
    assert changed == {"pipelines/subjects.py"}  # which takes it back: test_cli_run
    assert FILES["pipelines/subjects.py"].count("sys.path.remove") == 1
    launch = "".join(text for name, text in FILES.items() if name.startswith("pipelines/launch"))
    assert "inspect.signature" not in launch


def test_there_is_one_of_each():
    defined = Counter()
    for tree in trees().values():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                defined[node.name] += 1
    for name in ("take", "fingerprint", "auc_with_error", "dataset"):  # auc_with_error is DeLong's
        assert defined[name] == 1, name
    assert not {"_take", "take_rows", "_fingerprint", "_delong", "midranks"} & set(defined)
    assert [name for name, text in FILES.items() if re.search(r"^ATTACKS\b", text, re.MULTILINE)] == [
        "attacks/table.py"
    ]


# What each folder of its kind has; and what a folder makes plain: a command and what it calls, an attack and the models
# or records that it is for, a bound and how it is verified.
CONVENTION = {"__init__", "page", "run", "result", "charts", "measure", "records"}
PLAIN = {
    *("calibration", "regression", "table", "text", "outputs", "evidence", "nearest", "scores", "encoding", "words"),
    *("ranks", "rates", "images", "tables", "walk", "classes", "pretrained", "sources"),
}


def test_a_module_name_stands_once_or_its_folder_makes_the_difference_plain():
    folders = defaultdict(set)
    for name in FILES:
        folder, _, file = name.rpartition("/")
        if folder != "cli":  # a command has the name of what it runs
            folders[file.removesuffix(".py")].add(folder)
    assert {name for name, places in folders.items() if len(places) > 1} - CONVENTION == PLAIN
