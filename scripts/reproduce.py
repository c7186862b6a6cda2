"""Run the papers' experiments and set their numbers beside ours: `make reproduce [PAPER=name] [SIZE=quick]`.

Each size does more than the one before: mini (seconds, data that come with scikit-learn), quick (minutes for each
paper), full (all papers in one night). Trained models are kept in `.reproduce/store` and not trained again.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

from dosimeter import InputError
from dosimeter.engine import Store

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from experiments import exhibits as book  # noqa: E402 (the folder is not installed)
from experiments.shared import plain, write_svg  # noqa: E402

EXPERIMENTS = ROOT / "experiments"
PAGE = ROOT / "docs" / "reproductions.md"
KEPT = ROOT / "docs" / "reproductions.json"
PICTURES = ROOT / "docs" / "img" / "reproductions"
STORE = ROOT / ".reproduce" / "store"
SIZES = book.SIZES
HEAD = """# Reproductions

Made by `make reproduce`: the papers' tables and figures beside our runs. Each has one of six verdicts: *agrees* (every
printed number, within its own uncertainty, and every claim), *agrees in direction* (the claims, not every number),
*differs*, *stand-in* (the data or the model are not those of the paper, so numbers are shown and not judged; the claims
must hold), *not possible here*, and *beyond the paper* (it has no counterpart; our own claims hold). *Size* says how
much was computed: mini (seconds, data that scikit-learn brings), quick (minutes) or full (a night for all papers); a
number is replaced only by one of the same size or a larger one.

`make reproduce` runs everything, `make reproduce PAPER=bayesian SIZE=quick` one paper in minutes, and with `ONLY=fig4`
one figure. Data sets are downloaded once or read from the folder that DOSIMETER_DATA names. Finished models are kept in
`.reproduce/store`: the same command resumes a run that was stopped.
"""


def papers() -> list[str]:
    """Folders that hold an experiment."""
    return sorted(path.parent.name for path in EXPERIMENTS.glob("*/run.py"))


def load(paper: str) -> ModuleType:
    """The experiment's run.py as the package experiments.<paper>: it may import files beside it and `..shared`."""
    parent = sys.modules.setdefault("experiments", ModuleType("experiments"))
    parent.__path__ = [str(EXPERIMENTS)]
    name, file = f"experiments.{paper}", EXPERIMENTS / paper / "run.py"
    known = sys.modules.get(name)
    bare = hasattr(known, "__path__") and getattr(known, "__file__", None) is None  # a file beside it came first
    if known is None or bare:
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def exhibits(paper: str) -> tuple[book.Exhibit, ...]:
    """The tables and figures of a paper."""
    return book.read(EXPERIMENTS / paper)


def call(function: Callable[..., Any], **given: Any) -> Any:
    """Call a function with those of the arguments that it takes."""
    takes = inspect.signature(function).parameters
    return function(**{name: value for name, value in given.items() if name in takes})


def reason(error: BaseException) -> str:
    """Why a part has no numbers, if an extra, a data set or a stored run is missing; any other error is raised."""
    if isinstance(error, (ImportError, book.NotRunError)):
        return str(error)
    if isinstance(error, InputError) and "DOSIMETER_DATA" in str(error):
        return f"{str(error).split()[0]} was not found; put its files into the folder that DOSIMETER_DATA names"
    raise error


def merged(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Old entries with the new ones, but none gives way to one of a smaller size, or a number to a reason."""

    def rank(entry: Mapping[str, Any]) -> int:
        return -1 if "reason" in entry else SIZES.index(entry["size"])

    kept = {name: dict(entry) for name, entry in old.items()}
    for name, entry in new.items():
        if name not in kept or rank(entry) >= rank(kept[name]):
            kept[name] = dict(entry)
    return kept


def run(
    paper: str, size: str, store: Store | None, kept: dict[str, Any], pictures: Path, only: str | None = None
) -> None:
    """Compute each part of a paper, or one of them, and put what came of it into `kept`."""
    parts, shown = load(paper).PARTS, exhibits(paper)
    asked = {name: [n for e in shown if e.part == name for n in e.asked(size)] for name in parts}
    chosen = [name for name in parts if only is None or name == only or name.startswith(f"{only}-")]
    if not chosen:
        raise SystemExit(f"{paper} has no part {only!r}; take one of {', '.join(parts)}")
    for name, wanted in asked.items():
        if wanted and name in chosen:
            _run_part(paper, name, wanted, size, store, kept.setdefault(paper, _nothing()), pictures / paper)


def _nothing() -> dict[str, Any]:
    return {"rows": {}, "tables": {}, "figures": {}, "seconds": {}}


def _run_part(
    paper: str,
    part: str,
    wanted: list[str],
    size: str,
    store: Store | None,
    kept: dict[str, Any],
    pictures: Path,
) -> None:
    start = time.perf_counter()
    try:
        found = call(load(paper).PARTS[part], size=size, store=store)
    except (ImportError, InputError, book.NotRunError) as error:
        why = {"reason": reason(error), "size": size}
        kept["rows"] = merged(kept["rows"], dict.fromkeys(wanted, why))
        return
    if set(found.numbers) != set(wanted):
        differ = ", ".join(sorted(set(found.numbers) ^ set(wanted)))
        raise SystemExit(f"{paper}, {part}: run.py and exhibits.toml disagree about {differ} in size {size}")
    rows = {name: {"value": float(value), "size": size} for name, value in found.numbers.items()}
    kept["rows"] = merged(kept["rows"], rows)
    kept["tables"] = merged(kept["tables"], {t: {"text": text, "size": size} for t, text in found.tables.items()})
    for name, (caption, chart) in found.figures.items():
        if name not in kept["figures"] or SIZES.index(size) >= SIZES.index(kept["figures"][name]["size"]):
            kept["figures"][name] = {"text": caption, "size": size}
            write_svg(pictures, name, chart)
    spent, known = round(time.perf_counter() - start, 1), kept["seconds"].get(part, {})
    kept["seconds"][part] = {**known, size: max(spent, known.get(size, 0.0))}  # later runs find models in the store


def page(kept: Mapping[str, Any]) -> str:
    """The whole page from what is kept."""
    shown = [paper for paper in papers() if paper in kept]
    verdicts = {title(paper): [verdict(e, kept[paper]) for e in exhibits(paper)] for paper in shown}
    return "\n".join([HEAD, book.summary(verdicts), "", *(section(paper, kept[paper]) for paper in shown)])


def title(paper: str) -> str:
    """The first line of the paper's README, without the signs that Markdown needs there."""
    readme = EXPERIMENTS / paper / "README.md"
    if not readme.exists():
        return paper
    return readme.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ").replace("\\*", "*")


def verdict(exhibit: book.Exhibit, found: Mapping[str, Any]) -> book.Verdict | None:
    """What the kept numbers say about an exhibit; None where a number is missing."""
    return exhibit.verdict({name: entry["value"] for name, entry in found["rows"].items() if "value" in entry})


def section(paper: str, found: Mapping[str, Any]) -> str:
    """A paper whose tables and figures have verdicts, in their order."""
    spent = {size: sum(part.get(size, 0.0) for part in found["seconds"].values()) for size in SIZES}
    times = ", ".join(f"{seconds:.0f} s ({size})" for size, seconds in spent.items() if seconds)
    lines = [
        f"\n## {plain(title(paper))}\n",
        f"`make reproduce PAPER={paper}`. Its parts took {times} together, without trainings that were in the store.",
    ]
    for exhibit in exhibits(paper):
        kept = (found["rows"], found["tables"], found["figures"])
        lines += book.section(exhibit, *kept, place=f"img/reproductions/{paper}")
    return "\n".join(lines) + "\n"


def finished(paper: str, size: str, kept: Mapping[str, Any]) -> bool:
    """Whether every row of this size has a number of this size or a larger one."""
    rows = kept.get(paper, {}).get("rows", {})
    wanted = [name for exhibit in exhibits(paper) for name in exhibit.asked(size)]
    return all("value" in rows.get(n, {}) and SIZES.index(rows[n]["size"]) >= SIZES.index(size) for n in wanted)


def read(file: Path) -> dict[str, Any]:
    """What earlier runs have kept."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def write(kept: Mapping[str, Any], file: Path, document: Path) -> None:
    """Keep the numbers and write the page, each whole or not at all."""
    for path, text in ((file, json.dumps(kept, indent=1, ensure_ascii=False) + "\n"), (document, page(kept))):
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def with_others(
    now: Mapping[str, Any], paper: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """What the file holds by now, with what a run has changed: others may have run another paper or part meanwhile."""
    there = now.get(paper, _nothing())
    changed = {
        what: {name: entry for name, entry in entries.items() if before.get(what, {}).get(name) != entry}
        for what, entries in after.items()
    }
    return {**now, paper: {what: {**there.get(what, {}), **entries} for what, entries in changed.items()}}


def main(arguments: list[str] | None = None) -> int:
    """Run, print one line for each exhibit, write the page after each paper; 1 if one does not come out as stated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", default="all", choices=["all", *papers()])
    size = parser.add_mutually_exclusive_group()
    for name in SIZES:
        size.add_argument(f"--{name}", dest="size", action="store_const", const=name, help=f"run the size {name}")
    parser.set_defaults(size="full")
    parser.add_argument("--resume", action="store_true", help="leave out papers whose rows are all there in this size")
    parser.add_argument(
        "--only",
        metavar="PART",
        help="one part of a paper, e.g. fig4 (with fig4-adult, if there is one); needs --paper",
    )
    parser.add_argument("--page", action="store_true", help="compute nothing, only write the page again")
    given = parser.parse_args(arguments)
    if given.only and given.paper == "all":
        parser.error("--only needs --paper")
    kept = read(KEPT)
    before = deepcopy(kept)
    if given.page:
        write(kept, KEPT, PAGE)
        return 0
    STORE.mkdir(parents=True, exist_ok=True)
    (STORE.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    failed = 0
    for paper in papers() if given.paper == "all" else [given.paper]:
        if given.resume and finished(paper, given.size, kept):
            print(f"{paper}: all rows of size {given.size} are there", file=sys.stderr)
            continue
        print(f"{paper}, {given.size}: running", file=sys.stderr, flush=True)
        try:
            run(paper, given.size, Store(STORE), kept, PICTURES, given.only)
        except KeyboardInterrupt:
            print("stopped; the same command resumes from what the store holds", file=sys.stderr)
            return 130
        except (Exception, SystemExit):  # the other papers of a night continue
            traceback.print_exc()
            failed += 1
            continue
        kept = with_others(read(KEPT), paper, before.get(paper, _nothing()), kept[paper])
        write(kept, KEPT, PAGE)
        failed += report(paper, kept[paper])
    return 1 if failed else 0


def report(paper: str, found: Mapping[str, Any]) -> int:
    """Print the verdicts of a paper; how many are not what was stated."""
    failed = 0
    for exhibit in exhibits(paper):
        came = verdict(exhibit, found)
        failed += came not in (None, exhibit.stated)
        mark = "--  " if came is None else "ok  " if came is exhibit.stated else "OFF "
        print(f"{mark} {paper}, {exhibit.number}: {came or 'not run'}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
