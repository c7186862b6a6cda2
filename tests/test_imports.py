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


@pytest.mark.parametrize("module", ["dosimeter", "dosimeter.estimators.bayesian", "dosimeter.audits.scores.run"])
def test_nothing_heavy_comes_along(module):
    loaded = run(f"import sys, {module}; print(*(n for n in {HEAVY!r} if n in sys.modules))")
    assert loaded == ""


def test_every_public_name_is_there():
    code = "import dosimeter; print(*(n for n in dosimeter.__all__ if not hasattr(dosimeter, n)))"
    assert run(code) == ""
    assert run("import dosimeter; print(dosimeter.__all__ == sorted(dosimeter.__all__))") == "True"


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
