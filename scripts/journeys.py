"""Four journeys through the code, as a reader walks them: which files they pass, and how often they change the file.

A reader follows a run and reads each function where it is called first. `files` are those that they open, `switches`
how often the next function to read is in another file. `make journeys` writes both into docs/architecture.md.
With the source of version 0.1.0 on PYTHONPATH it counts that one, which took other keywords.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import dosimeter

HOME = Path(dosimeter.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
PLACE = re.compile(r"(<!-- journeys -->\n).*?(\n<!-- /journeys -->)", re.DOTALL)
FIRST_VERSION = not hasattr(dosimeter, "RunOptions")
LONGEST = 450  # lines of a file, at most: tests/test_house.py
INNER = ("<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<module>")  # read with what holds them


@dataclass(frozen=True)
class Journey:
    """The functions of one run in the order in which they are first called, as (file, function)."""

    name: str
    steps: tuple[tuple[str, str], ...]

    @property
    def files(self) -> list[str]:
        """Each file once, in the order in which it is opened."""
        return list(dict.fromkeys(file for file, _ in self.steps))

    @property
    def fewest(self) -> int:
        """As many files would hold the same lines if every one were as long as a file may be."""
        lines = sum(len((HOME / file).read_text(encoding="utf-8").splitlines()) for file in self.files)
        return -(-lines // LONGEST)

    @property
    def switches(self) -> int:
        """How often the next function is in another file."""
        files = [file for file, _ in self.steps]
        return sum(a != b for a, b in pairwise(files))


def follow(name: str, run: Callable[[], Any]) -> Journey:
    """Run it and note every function of dosimeter where it is first called."""
    home = str(HOME) + os.sep
    seen: dict[CodeType, tuple[str, str] | None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in seen:
            mine = code.co_filename.startswith(home) and code.co_name not in INNER
            # A class body is called like a function when its module is imported; it has no arguments and no caller.
            body = "__module__" in code.co_names and "__qualname__" in code.co_names
            seen[code] = (code.co_filename.removeprefix(home), code.co_qualname) if mine and not body else None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return Journey(name, tuple(step for step in seen.values() if step is not None))


# --- the four journeys ------------------------------------------------------------------------------------


def scores() -> None:
    """`dosimeter audit scores.npz` on the command line."""
    from dosimeter import cli

    rng = np.random.default_rng(0)
    np.savez("scores.npz", members=rng.normal(1, 1, 300), nonmembers=rng.normal(0, 1, 300))
    sys.argv = ["dosimeter", "audit", "scores.npz"]
    with contextlib.suppress(SystemExit):
        cli.main()


def model() -> None:
    """`audit_model(...)` of a forest with a mask of coins, then its page."""
    from sklearn.ensemble import RandomForestClassifier

    x, y = _records()
    inside = dosimeter.fair_coins(len(y), seed=0)
    forest = RandomForestClassifier(20, random_state=0).fit(x[inside], y[inside])
    sides: dict[str, Any] = {"data": (x, y), "included": inside}
    if FIRST_VERSION:
        sides = {"members": (x[inside], y[inside]), "nonmembers": (x[~inside], y[~inside])}
    dosimeter.audit_model(forest, **sides).to_html("model.html")


def training() -> None:
    """`audit_training(...)` of trees, then its page."""
    from sklearn.tree import DecisionTreeClassifier

    x, y = _records()

    def train(indices: Any, seed: int) -> Any:
        return DecisionTreeClassifier(random_state=seed).fit(x[indices], y[indices])

    where: dict[str, Any] = {"engine": "inline", "progress": False}
    run = where if FIRST_VERSION else {"run": dosimeter.RunOptions(**where)}
    audit = dosimeter.audit_training(train, (x, y), shadows=16, runs=24, seed=0, name="trees", **run)
    audit.to_html("training.html")


def members_only() -> None:
    """`audit_members_only(...)` of a forest, then its page."""
    from sklearn.ensemble import RandomForestClassifier

    x, y = _records(1000)
    forest = RandomForestClassifier(20, random_state=0).fit(x, y)
    run: dict[str, Any] = {} if FIRST_VERSION else {"run": dosimeter.RunOptions(progress=False)}
    audit = dosimeter.audit_members_only(forest, (x, y), references=0, repeats=2, **run)
    audit.to_html("members_only.html")


def _records(count: int = 400) -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x[:count] / 16.0, y[:count]


JOURNEYS: dict[str, tuple[str, Callable[[], None]]] = {
    "scores": ("`dosimeter audit scores.npz`", scores),
    "model": ("`audit_model` to page", model),
    "training": ("`audit_training` to page", training),
    "members_only": ("`audit_members_only` to page", members_only),
}


def walk(names: list[str]) -> list[Journey]:
    """Follow each journey twice: the first run only imports, so that the second has no modules in it."""
    found = []
    home = Path.cwd()
    for name in names:
        title, run = JOURNEYS[name]
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                follow(title, run)
                found.append(follow(title, run))
            finally:
                os.chdir(home)
    return found


def markdown(journeys: list[Journey]) -> str:
    """A table of all, and the files of each in order."""
    lines = ["| journey | files | files if all were full | switches | functions |", "|---|---|---|---|---|"]
    lines += [f"| {j.name} | {len(j.files)} | {j.fewest} | {j.switches} | {len(j.steps)} |" for j in journeys]
    for journey in journeys:
        lines += ["", f"**{journey.name}**", "", "```text", *_arrows(journey.files), "```"]
    return "\n".join(lines)


def _arrows(files: list[str], width: int = 110) -> list[str]:
    """Files in order, joined by arrows, broken before the width."""
    lines, line = [], ""
    for file in files:
        part = f" → {file}" if line or lines else file
        if len(line) + len(part) > width:
            lines.append(line)
            line = f"  →{part.removeprefix(' →')}"
        else:
            line += part
    return [*lines, line]


def main() -> None:
    """Print files and switches of each journey."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journeys", nargs="*", choices=[*JOURNEYS, []], help="all of them unless named")
    parser.add_argument("--write", action="store_true", help="write them into docs/architecture.md")
    options = parser.parse_args()
    journeys = walk(options.journeys or list(JOURNEYS))
    if options.write:
        text, places = PLACE.subn(
            lambda found: f"{found[1]}\n{markdown(journeys)}\n{found[2]}", PAGE.read_text("utf-8")
        )
        if places != 1:
            raise SystemExit(f"{PAGE.name} must have one place <!-- journeys -->…<!-- /journeys -->")
        PAGE.write_text(text, "utf-8")
    for journey in journeys:
        print(
            f"{journey.name}: {len(journey.files)} files (full: {journey.fewest}), {journey.switches} switches, "
            f"{len(journey.steps)} functions"
        )


if __name__ == "__main__":
    main()
