"""One virtual environment for each library, made from the package index and reused while its recipe is the same."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".bench"

_NUMBERS = ["numpy==2.4.6", "scipy==1.17.1"]  # the same below every library, so that only the libraries differ
_CPU_WHEELS = ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]


class Step(NamedTuple):
    """Arguments of one `pip install`; `otherwise` is tried when they fail."""

    arguments: list[str]
    otherwise: list[str] | None = None


class Recipe(NamedTuple):
    """The `pip install` steps of an environment, and the file that a change of must install again."""

    steps: list[Step]
    follows: Path | None = None


# The torch of PrivacyGuard is named with its "+cpu" suffix: any looser request fetches gigabytes of CUDA libraries. For
# the same reason its wheel comes without the dependencies it declares, and what its statistics import is named here.
_CPU_TORCH = ["torch==2.13.0+cpu", "scikit-learn==1.9.1", *_NUMBERS]
_ATTACKS = ["sacroml==2.0.1", "adversarial-robustness-toolbox==1.20.1"]
RECIPES = {
    "dosimeter": Recipe([Step(["--editable", str(ROOT), *_NUMBERS])], ROOT / "pyproject.toml"),
    "privacy-estimates": Recipe([Step(["privacy-estimates==0.1.0.post1", *_NUMBERS])]),
    "jax-privacy": Recipe([Step(["jax-privacy==2.0.0", *_NUMBERS])]),
    "privacyguard": Recipe(
        [Step(_CPU_TORCH, [*_CPU_WHEELS, *_CPU_TORCH]), Step(["--no-deps", "privacyguard-platform==0.0.2"])]
    ),
    "opake": Recipe(
        [
            Step(_CPU_TORCH, [*_CPU_WHEELS, *_CPU_TORCH]),
            Step(["optree==0.20.0"]),
            Step(["--no-deps", *(f"opake-{part}==0.16.1" for part in ("auditing", "engine", "accounting", "base"))]),
        ]
    ),
    "power": Recipe(  # the peers of power.py; torch goes first, so that nothing that follows asks for another
        [
            Step(_CPU_TORCH, [*_CPU_WHEELS, *_CPU_TORCH]),
            Step([*_ATTACKS, *_CPU_TORCH], [*_CPU_WHEELS, *_ATTACKS, *_CPU_TORCH]),
            Step(["--no-deps", "privacyguard-platform==0.0.2"]),
        ]
    ),
}


class NotInstalledError(Exception):
    """An environment could not be made."""


def interpreter(name: str) -> Path:
    """The Python of an environment."""
    folder = "Scripts" if os.name == "nt" else "bin"
    return WORK / name / folder / "python"


def install(name: str) -> None:
    """Make the environment of a library, or leave it as it is if it was made by the same recipe."""
    recipe = RECIPES[name]
    stamp, wanted = WORK / name / "recipe.sha256", _fingerprint(recipe)
    if stamp.is_file() and stamp.read_text() == wanted and interpreter(name).exists():
        return
    print(f"installing {name} (once, minutes) ...", file=sys.stderr, flush=True)
    WORK.mkdir(exist_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", str(WORK / name)], name)
    for step in recipe.steps:
        pip = [str(interpreter(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        try:
            _run([*pip, *step.arguments], name)
        except NotInstalledError:
            if step.otherwise is None:
                raise
            _run([*pip, *step.otherwise], name)
    stamp.write_text(wanted)


def _fingerprint(recipe: Recipe) -> str:
    text = repr(recipe.steps) + sys.version + (recipe.follows.read_text() if recipe.follows else "")
    return hashlib.sha256(text.encode()).hexdigest()


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise NotInstalledError(f"{name}: {lines[-1] if lines else 'no message'}")
