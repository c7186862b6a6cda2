"""What the documentation shows is what happens: its blocks are run, their output is compared, its links and lists hold.

Blocks of a page run in their order, in one empty folder. ```python is executed, and the ```text block after it is what
it prints; lines of ```console that start with $ are commands. A block with a file's name as its title is that file.
`...` stands for anything; under the title "prints, about" numbers may be off by a half, since a model was trained.
From `<!-- needs: torch -->` on, a page is for those who have these packages.
"""

import doctest
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import dosimeter
from dosimeter import cli
from dosimeter.datasets.catalogue import CATALOGUE

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$|^<!-- needs: ([\w, ]+) -->$', re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
NEAR = 0.5
ABOUT = "prints, about"


class Block(NamedTuple):
    """A fenced block, or the packages that the rest of the page needs."""

    kind: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block("needs", "", m[4]) if m[4] else Block(m[1], m[2] or "", m[3]) for m in found]


RUN = [page for page in PAGES if any(b.kind in ("python", "console") for b in blocks(page))]


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).with_suffix("").as_posix()


def same(expected: str, printed: str, *, about: bool) -> bool:
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not about:
        return doctest.OutputChecker().check_output(expected, printed, options)
    assert "..." not in expected, "a block with about numbers shows all that is printed"
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (expected, printed)]
    words = [" ".join(NUMBER.sub("#", text).split()) for text in (expected, printed)]
    return words[0] == words[1] and all(
        abs(a - b) <= NEAR * max(abs(a), 0.2) for a, b in zip(numbers[0], numbers[1], strict=True)
    )


class Shell:
    """Runs the commands of a page in this process; knows `dosimeter`, `> file` and `echo $?`."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys, self.monkeypatch = capsys, monkeypatch
        self.code = 0

    def run(self, command: str) -> str:
        if command == "echo $?":
            code, self.code = self.code, 0
            return f"{code}\n"
        assert self.code == 0, f"exit code {self.code} before {command!r}"
        line, _, target = command.partition(" > ")
        words = shlex.split(line)
        assert words[0] == "dosimeter", command
        self.monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        self.code = int(stopped.value.code or 0)
        printed = self.capsys.readouterr()
        assert self.code < 2, printed.err
        if not target:
            return printed.out
        Path(target).write_text(printed.out, encoding="utf-8")
        return ""

    def session(self, text: str, *, about: bool) -> None:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, expected = re.sub(r"\\\n\s*", "", part).partition("\n")
            printed = self.run(command)
            if expected.strip():
                assert same(expected, printed, about=about), f"$ {command}\n{printed}"


@pytest.fixture(autouse=True)
def catalogue() -> Iterator[None]:
    """A data set that a page adds is taken out again."""
    before = dict(CATALOGUE)
    yield
    CATALOGUE.clear()
    CATALOGUE.update(before)


@pytest.mark.parametrize("page", RUN, ids=name_of)
@pytest.mark.slow
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # what `python` is
    shell = Shell(capsys, monkeypatch)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = None
    for block in blocks(page):
        about = block.title == ABOUT
        if block.kind == "needs":
            for package in block.text.split(","):
                pytest.importorskip(package.strip())
        elif block.title and not about:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            exec(compile(block.text, page.name, "exec"), names)
            printed = capsys.readouterr().out
        elif block.kind == "console":
            shell.session(block.text, about=about)
        elif block.kind == "text" and printed is not None:
            assert same(block.text, printed, about=about), printed
            printed = None
    assert shell.code == 0, f"the last command gave exit code {shell.code}"


SOURCE = Path(dosimeter.__file__).parent
WITH_EXAMPLES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_examples_of_docstrings(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(str(error))
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


def test_every_user_of_the_design_has_a_tutorial() -> None:
    names = ["scores", "model", "references", "training", "one-run", "members-only", "gradients", "noise"]
    names += ["claim", "gate", "board", "language-models", "synthetic"]
    assert {page.stem for page in (DOCS / "tutorials").glob("*.md")} == set(names)
    assert {DOCS / "tutorials" / f"{name}.md" for name in names} <= set(RUN)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


def test_the_reference_has_every_public_name() -> None:
    listed = set()
    for page in (DOCS / "api").glob("*.md"):
        for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, name = path.rpartition(".")
            try:
                found = getattr(importlib.import_module(module), name)
            except ImportError as error:
                pytest.fail(f"{page.name}: {path}: {error}")
            assert found is not None
            listed.add(name)
    public = set(dosimeter.__all__)
    for part in ("accounting", "attacks", "datasets", "engine", "generators", "models", "audits.page", "training"):
        public |= set(importlib.import_module(f"dosimeter.{part}").__all__)
    assert {name for name in public if not name.isupper()} <= listed


def test_the_commands_are_all_listed() -> None:
    known = {command.name for command in cli.app.registered_commands} | {g.name for g in cli.app.registered_groups}
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `dosimeter ([a-z-]+)", page, re.MULTILINE)) == known


def listed_in_architecture() -> list[str]:
    """The paths of the listing in architecture.md; an indented name is in the folder above it."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    paths, folder = [], ""
    for line in re.findall(r'```text title="src/dosimeter"\n(.*?)```', text, re.DOTALL)[0].splitlines():
        name = line.split()[0]
        folder = "" if not line.startswith(" ") else folder
        paths.append(folder + name)
        folder = name if not line.startswith(" ") else folder
    return paths


def test_the_listing_of_the_architecture_is_the_folder() -> None:
    home = Path(dosimeter.__file__).parent
    listed = listed_in_architecture()
    assert len(listed) == len(set(listed))
    for path in listed:
        assert (home / path).is_dir() if path.endswith("/") else (home / path).is_file(), path
    here = {f"{p.name}/" for p in home.iterdir() if (p / "__init__.py").exists()} | {p.name for p in home.glob("*.py")}
    assert {path for path in listed if "/" not in path[:-1]} == here
    kinds = {f"audits/{p.name}/" for p in (home / "audits").iterdir() if (p / "__init__.py").exists()}
    assert kinds <= set(listed)


def test_the_journeys_of_the_architecture_pass_real_files() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    part = text[text.index("<!-- journeys -->") : text.index("<!-- /journeys -->")]
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", part, re.MULTILINE)
    journeys = re.findall(r"^\*\*(.+?)\*\*\n\n```text\n(.*?)```", part, re.DOTALL | re.MULTILINE)
    assert [row[0] for row in rows] == [title for title, _ in journeys] and len(rows) >= 2
    for row, (_, listing) in zip(rows, journeys, strict=True):
        files = [file.strip() for file in listing.replace("\n", " ").split("→")]
        assert len(files) == len(set(files)) == int(row[1])
        for file in files:
            assert (Path(dosimeter.__file__).parent / file).is_file(), f"{file}: run make journeys"


def test_the_site_lists_every_page() -> None:
    nav = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert nav == {page.relative_to(DOCS).as_posix() for page in PAGES}


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_a_network(tmp_path: Path) -> None:
    for package in ("mkdocs", "material", "mkdocstrings_handlers"):
        pytest.importorskip(package, reason="the extra 'docs' is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = list(tmp_path.rglob("*.html"))
    assert len(built) >= len(PAGES)
    for page in built:
        loaded = re.findall(
            r'<(?:link|script|img|iframe)\b[^>]*(?:src|href)="((?:https?:)?//[^"]+)"', page.read_text("utf-8")
        )
        assert not loaded, f"{page.name} loads {loaded[0]}"
    assert "lower_bound" in (tmp_path / "benchmark.html").read_text("utf-8"), "the tables of bench/ are missing"
    for page in (tmp_path / "api").glob("*.html"):
        assert "<blockquote" not in page.read_text("utf-8"), f"{page.name}: >>> was read as a quotation"


def test_formulas_are_typeset_and_code_is_not() -> None:
    pytest.importorskip("latex2mathml", reason="the extra 'docs' is not installed")
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert hooks.typeset("a $e^2$ b").startswith("a <math") and hooks.typeset("a $e^2$ b").endswith("</math> b")
    assert 'display="block"' in hooks.typeset("$$\n\\frac{1}{2}\n$$")
    for same_text in ("costs $5 and $6 more", "`$HOME` and `$PATH`", "```console\n$ ls $x$\n```", "x$y$z"):
        assert hooks.typeset(same_text) == same_text


def test_the_comparison_is_able_to_fail() -> None:
    assert same("ε = 1.0 ...\n", "ε = 1.0 at δ\n", about=False)
    assert not same("ε = 1.0\n", "ε = 1.1\n", about=False)
    assert same("ε = 1.0\n", "ε = 1.4\n", about=True)
    assert not same("ε = 1.0\n", "ε = 1.6\n", about=True)
    assert not same("ε is 1.0\n", "ε = 1.0\n", about=True)
