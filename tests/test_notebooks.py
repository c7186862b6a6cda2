"""The notebooks of the docs: kept as they were run, and a fresh run prints the same."""

import importlib.util
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra 'test' is not installed")
pytest.importorskip("nbclient", reason="the extra 'test' is not installed")
pytest.importorskip("altair", reason="the extra 'report' is not installed")

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NEEDS = {"opacus": ("torch", "opacus")}
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
NEAR = 0.5  # of a number that a trained model gives


def script():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def forms(cell):
    return [set(output.data) for output in cell.outputs if output.output_type == "execute_result"]


def alike(first, second):
    words = [" ".join(NUMBER.sub("#", text).split()) for text in (first, second)]
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (first, second)]
    near = (abs(a - b) <= NEAR * max(abs(a), 0.5) for a, b in zip(*numbers, strict=False))
    return words[0] == words[1] and all(near)


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["opacus", "sklearn"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_was_run_from_top_to_bottom(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    kinds = set().union(*(form for cell in cells for form in forms(cell)))
    assert {"text/html", "image/svg+xml"} <= kinds, "a card and a chart"
    text = path.read_text(encoding="utf-8")
    assert "/tmp/" not in text and "/home/" not in text and "<script" not in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_a_fresh_run_prints_the_same(path):
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package)
    pytest.importorskip("ipykernel", reason="the extra 'notebook' is not installed")
    fresh, kept = code(script().executed(path)), code(nbformat.read(path, as_version=4))
    for now, before in zip(fresh, kept, strict=True):
        assert alike(printed(before), printed(now)), printed(now)
        assert forms(now) == forms(before)


def test_the_comparison_is_able_to_fail():
    assert alike("ε ≥ 2.5", "ε ≥ 2.9")
    assert not alike("ε ≥ 2.5", "ε ≥ 5.5")
    assert not alike("ε ≥ 2.5", "ε = 2.5")
