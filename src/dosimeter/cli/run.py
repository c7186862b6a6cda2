"""`dosimeter run`: an audit that trains, from a TOML file or a ready-made pipeline; resumable."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dosimeter.cli._shared import JsonFlag, Quiet, Verbose, err, note, out, print_json, table

if TYPE_CHECKING:
    from dosimeter.engine import Store
    from dosimeter.pipelines.config import Config
    from dosimeter.pipelines.cost import Outlook


Source = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE|NAME",
        help="A TOML file, or the name of a ready-made pipeline (see --list); with --init your records.",
    ),
]
Init = Annotated[
    bool,
    typer.Option("--init", help="Write a commented TOML file for your own records (.csv, .npz, .parquet), and stop."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Time one training; print how many there are, how long they take, and disk.")
]
Resume = Annotated[
    bool, typer.Option("--resume/--fresh", help="Resume from what the store holds, or train everything again.")
]
Engine = Annotated[
    str | None, typer.Option("--engine", help="inline, local, ray or ray://host:port instead of the file's.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Another setting, e.g. budget.shadows=8; may be repeated.", show_default=False),
]


def run(
    source: Source = None,
    listed: Annotated[bool, typer.Option("--list", help="List the ready-made pipelines.")] = False,
    init: Init = False,
    dry_run: DryRun = False,
    resume: Resume = True,
    engine: Engine = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes; one for each core by default.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="Limit for all workers together, e.g. 4GB.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of every random choice, instead of the file's.")
    ] = None,
    changes: Changes = None,
    html: Annotated[
        Path | None, typer.Option("--out", help="Write the page here (default: FILE or NAME with .html).")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    json: JsonFlag = False,
) -> None:
    """Train as a TOML file says, attack, and bound ε; resume a run that was stopped.

    Example: the digits in less than a minute, then with DP-SGD, then what Adult would take

        dosimeter run digits-mlp

        dosimeter run digits-mlp-dp --set recipe.dp.epsilon=2

        dosimeter run adult-mlp --dry-run

    `dosimeter run --init patients.csv` writes patients.toml with every setting explained, for your own records.

    A file has the sections [data], [model], [recipe], [attack], [estimate], [budget], [engine], [store] and [report];
    `dosimeter run --list` names the ready-made ones.

    A script of your own: command = ["python", "train.py", "{data}", "{indices}", "{seed}", "{outputs}"] in [model]. It
    gets the path of the data, that of a .npy file with the rows to train on (in the file's own order), a seed, and the
    path to write an .npz file to, with an array `outputs`: row i is its answer for row i of the data.
    """
    from dosimeter._validate import InputError
    from dosimeter.pipelines import config as settings

    if listed:
        _list(json)
        return
    if init:
        _init(source)
        return
    if source is None:
        raise InputError("a TOML file or the name of a ready-made pipeline is missing; see `dosimeter run --list`.")
    given = {"engine.name": engine, "engine.workers": workers, "budget.memory": memory, "seed": seed}
    quoted = [f"{name}={_toml(value)}" for name, value in given.items() if value is not None]
    config = settings.read(source, [*(changes or ()), *quoted])
    path = Path(source)
    base = path.parent if path.is_file() else Path()
    page = html or (base / config.report.html if config.report.html else None)
    if page is not None:
        _needs_charts("--out" if html else "report.html")
    store = _store(base / config.store.folder, resume)
    try:
        _run(config, store, base, page, path.stem, dry_run=dry_run, quiet=quiet, json=json)
    except KeyboardInterrupt:
        again = shlex.join(["dosimeter", *(word for word in sys.argv[1:] if word != "--fresh")])
        err.print(
            f"stopped; what is finished is kept in {store.folder}. To resume: {again}", markup=False, soft_wrap=True
        )
        raise typer.Exit(130) from None


def _init(source: str | None) -> None:
    """Write a commented file, beside the records that are named, or for records that are not there yet."""
    from dosimeter._files import write_text
    from dosimeter._validate import InputError
    from dosimeter.pipelines.template import template, template_for

    given = Path(source or "audit.toml")
    is_toml = given.suffix.lower() == ".toml"
    target = given if is_toml else given.with_name(given.name.removesuffix(".gz")).with_suffix(".toml")
    if target.exists():
        raise InputError(f"{target} is there already; move it away, or name another file to write.")
    told = ""
    if is_toml:
        text = template({"data.file": '"patients.csv"', "data.label": '"diagnosis"'}, name=target.name)
    else:
        text, told = template_for(given, name=target.name)
    write_text(target, text)
    if told:
        err.print(f"note: {told}", markup=False, soft_wrap=True)
    err.print(
        f"written: {target}. Next: dosimeter run {shlex.quote(str(target))} --dry-run", markup=False, soft_wrap=True
    )


def _run(
    config: Config, store: Store, base: Path, page: Path | None, stem: str, *, dry_run: bool, quiet: bool, json: bool
) -> None:
    from dosimeter._files import write_text
    from dosimeter.cli._shared import show_audit
    from dosimeter.pipelines.launch import launch
    from dosimeter.pipelines.subjects import subject

    note(f"reading {config.data.name or config.data.file}", quiet=quiet)
    prepared = subject(config, base=base, store=store)
    if config.data.file is not None:
        note(f"read {prepared.source}", quiet=quiet)
    if dry_run:
        from dosimeter.pipelines.cost import outlook

        expected = outlook(config, prepared)
        if json:
            print_json({**expected.to_dict(), "store": str(store.folder)})
        else:
            _plan(expected, store)
        return
    audit = launch(config, prepared, store=store, progress=not quiet)
    if json:
        print_json(audit.to_dict())
    else:
        show_audit(audit)
    if config.report.json_file is not None:
        write_text(base / config.report.json_file, audit.to_json() + "\n")
        note(f"written: {base / config.report.json_file}", quiet=quiet)
    if page is None and not json and _charts(quiet):
        page = base / f"{stem}.html"
    if page is not None:
        audit.to_html(page)
        note(f"written: {page}", quiet=quiet)


def _plan(expected: Outlook, store: Store) -> None:
    from dosimeter._progress import duration
    from dosimeter.cli.store import size

    parts = " + ".join(f"{stage.trainings} {stage.name}" for stage in expected.stages)
    sizes = ", ".join(f"{stage.members} for {stage.name}" for stage in expected.stages)
    rows: list[tuple[str, Any]] = [
        ("audit", expected.audit),
        ("records", f"{expected.records}; in a training: {sizes}"),
        ("trainings", f"{expected.trainings} ({parts})"),
        ("how", f"{expected.how}; each process trains {_models(expected.group)} at a time"),
        ("one training", f"{expected.seconds_each:.2g} s of processor time, measured now"),
        ("expected time", f"about {duration(expected.seconds)} with {_processes(expected.workers)}"),
        ("disk", f"{size(expected.bytes)} ({size(expected.bytes_each)} for each training) in {store.folder}"),
    ]
    if expected.noise_multiplier is not None:
        rows.insert(4, ("noise multiplier", f"{expected.noise_multiplier:.4g}"))
    table(f"Plan: {expected.name}", ["what", "how much"], rows)


def _models(count: int) -> str:
    return "one model" if count == 1 else f"{count} models"


def _processes(count: int) -> str:
    return "one process on a free core" if count == 1 else f"{count} processes on free cores"


def _list(json: bool) -> None:
    from dosimeter.pipelines import config as settings

    found = [(name, settings.read(name)) for name in settings.bundled()]
    if json:
        print_json([{"name": name, "audit": c.audit, "data": c.data.name, "about": c.about} for name, c in found])
        return
    table("Ready-made pipelines", ["name", "data", "about"], [(name, c.data.name, c.about) for name, c in found])
    out.print("`dosimeter run NAME --dry-run` says how long one will take.", markup=False)


def _store(folder: Path, resume: bool) -> Store:
    from dosimeter.engine import Store
    from dosimeter.pipelines.launch import FreshStore

    return Store(folder) if resume else FreshStore(folder)


def _toml(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f'"{value}"'


def _charts(quiet: bool) -> bool:
    from importlib.util import find_spec

    if all(find_spec(name) for name in ("altair", "vl_convert")):
        return True
    note("note: no page is written; it needs the extra report; from a checkout: pip install '.[report]'", quiet=quiet)
    return False


def _needs_charts(option: str) -> None:
    from dosimeter._validate import require

    for module in ("altair", "vl_convert"):
        require(module, extra="report", caller=option)
