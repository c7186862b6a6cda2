"""Exported names: their docstrings have an example that runs, and say what goes in and what comes out."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import dosimeter

DOCS = Path(__file__).parent.parent / "docs" / "api"
PACKAGES = ("accounting", "attacks", "datasets", "engine", "generators", "identifiability", "models", "training")
PAGES = {name: f"{name}.md" for name in PACKAGES}


def exported():
    """Every function and class that a package exports or a page of the reference shows, once."""
    paths = [f"{name}.{one}" for name in NAMED for one in importlib.import_module(name).__all__]
    for page in sorted(DOCS.glob("*.md")):
        paths += re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    values = {}
    for path in paths:
        module, _, name = path.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        if inspect.isfunction(value) or inspect.isclass(value):
            values[f"{value.__module__}.{name}"] = value
    return values


NAMED = ("dosimeter", *(f"dosimeter.{part}" for part in PACKAGES))
NAMES = exported()
NOT_A_VERB = ("The", "A", "An", "What", "Whether", "How", "One", "That", "Every", "Where", "All", "It", "This")


@pytest.mark.parametrize("name", [name for name, value in NAMES.items() if inspect.isfunction(value)])
def test_functions_say_what_goes_in_and_what_comes_out(name):
    function = NAMES[name]
    text = inspect.getdoc(function) or ""
    parameters = list(inspect.signature(function).parameters)
    assert ">>>" in text, "an example"
    assert re.search(r"^Returns:$", text, re.MULTILINE), "what it returns"
    described = re.findall(r"^    \**(\w+): ", text, re.MULTILINE)
    assert [one for one in parameters if one not in described] == []
    assert text.split()[0] not in NOT_A_VERB, "the first sentence says what to do"


@pytest.mark.parametrize("name", [name for name in dosimeter.__all__ if inspect.isclass(getattr(dosimeter, name))])
def test_classes_of_the_front_door_have_an_example(name):
    value = getattr(dosimeter, name)
    text = inspect.getdoc(value) or ""
    assert issubclass(value, Exception) or ">>>" in text
    assert text.split()[0] not in NOT_A_VERB


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_of_a_package_lists_its_names_and_no_others(package):
    page = (DOCS / PAGES[package]).read_text(encoding="utf-8")
    listed = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    public = {name for name in importlib.import_module(f"dosimeter.{package}").__all__ if not name.isupper()}
    assert listed == public


def test_the_package_exports_what_exists():
    assert [name for name in dosimeter.__all__ if not hasattr(dosimeter, name)] == []
