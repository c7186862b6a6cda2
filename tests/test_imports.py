"""What `import dosimeter` costs and brings along, each measured in a fresh process."""

import statistics
import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "sklearn", "ray", "altair", "pandas", "scipy.stats", "scipy.optimize", "dp_accounting", "typer"),
    *("rich", "click", "pyarrow", "pydantic"),
)


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module",
    [
        "dosimeter",
        "dosimeter.estimators.with_assumptions",
        "dosimeter.audits.scores.run",
        "dosimeter.audits.model, dosimeter.audits.training, dosimeter.audits.gradients, dosimeter.audits.synthetic",
    ],
)
def test_nothing_heavy_comes_along(module):
    loaded = run(f"import sys, {module}; print(*(n for n in {HEAVY!r} if n in sys.modules))")
    assert loaded == ""


def test_every_public_name_is_there():
    code = "import dosimeter; print(*(n for n in dosimeter.__all__ if not hasattr(dosimeter, n)))"
    assert run(code) == ""
    assert run("import dosimeter; print(dosimeter.__all__ == sorted(dosimeter.__all__))") == "True"


def test_tab_completion_shows_the_public_names_and_imports_none_of_them():
    code = "import sys, dosimeter as d; print(sorted(dir(d)) == sorted([*d.__all__, '__version__']))"
    assert run(f"{code}; print(*(n for n in {HEAVY!r} if n in sys.modules))") == "True"
    for name in ("Recipe", "Privacy", "Store", "RunOptions", "OpacusTranscript"):
        assert run(f"import dosimeter as d; print({name!r} in dir(d), d.{name}.__name__)") == f"True {name}"


def test_what_is_imported_later_is_public():
    assert run("import dosimeter as d; print(set(d._LATER) <= set(d.__all__))") == "True"


def seconds(module):
    return float(run(f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"))


def test_as_quick_as_scipy_stats():
    ratios = []
    for _ in range(4):
        pairs = [(seconds("dosimeter"), seconds("scipy.stats")) for _ in range(3)]
        ratios.append(statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs))
        if ratios[-1] <= 1.3:
            return
    pytest.fail(f"import dosimeter takes {min(ratios):.2f} times as long as import scipy.stats")
