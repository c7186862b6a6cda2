"""Exported names below the audits: their docstrings have an example and say what goes in and what comes out."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import dosimeter

DOCS = Path(__file__).parent.parent / "docs" / "api"
PACKAGES = ("accounting", "attacks", "datasets", "engine", "models", "training")
PAGES = {name: f"{name}.md" for name in PACKAGES}


def exported():
    """Every function and class that is exported below the audits, once."""
    found = {}
    for name in ("dosimeter", *(f"dosimeter.{part}" for part in PACKAGES)):
        module = importlib.import_module(name)
        for one in module.__all__:
            value = getattr(module, one)
            if (inspect.isfunction(value) or inspect.isclass(value)) and ".audits." not in value.__module__:
                found[f"{value.__module__}.{one}"] = value
    return found


NAMES = exported()


@pytest.mark.parametrize("name", [name for name, value in NAMES.items() if inspect.isfunction(value)])
def test_functions_say_what_goes_in_and_what_comes_out(name):
    function = NAMES[name]
    text = inspect.getdoc(function) or ""
    parameters = list(inspect.signature(function).parameters)
    assert ">>>" in text, "an example"
    assert re.search(r"^Returns:$", text, re.MULTILINE), "what it returns"
    described = re.findall(r"^    \**(\w+): ", text, re.MULTILINE)
    assert [one for one in parameters if one not in described] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_of_a_package_lists_its_names_and_no_others(package):
    page = (DOCS / PAGES[package]).read_text(encoding="utf-8")
    listed = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    public = {name for name in importlib.import_module(f"dosimeter.{package}").__all__ if not name.isupper()}
    assert listed == public


def test_the_package_exports_what_exists():
    assert [name for name in dosimeter.__all__ if not hasattr(dosimeter, name)] == []
