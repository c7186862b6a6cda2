"""`dosimeter store`: look after the folder in which finished tasks are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli._shared import JsonFlag, err, out, print_json, table

if TYPE_CHECKING:
    from dosimeter.engine.store import Store

store = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@store.callback()
def look_after() -> None:
    """Look after a store: list, verify, tidy up, export.

    Example: what is in it, and whether all of it is intact

        dosimeter store ls dosimeter-store

        dosimeter store verify dosimeter-store
    """


Folder = Annotated[Path, typer.Argument(help="The folder of the store.", show_default=False)]


@store.command()
def ls(folder: Folder, json: JsonFlag = False) -> None:
    """List the entries, oldest first.

    Example:

        dosimeter store ls store
    """
    with _opened(folder) as opened:
        entries = opened.ls()
    if json:
        print_json([vars(entry) for entry in entries])
        return
    rows = [(e.key[:12], e.created, size(e.bytes), ", ".join(e.arrays), _brief(e.info)) for e in entries]
    total = sum(entry.bytes for entry in entries)
    table(f"{_entries(len(entries))}, {size(total)}", ["key", "created (UTC)", "size", "arrays", "info"], rows)


@store.command()
def verify(folder: Folder, json: JsonFlag = False) -> None:
    """Read every entry and compare checksums; damaged ones go to quarantine/ and the exit code is 1.

    Example:

        dosimeter store verify store
    """
    with _opened(folder) as opened:
        damaged = opened.verify()
    if json:
        print_json({"damaged": damaged})
    elif damaged:
        for key in damaged:
            out.print(f"damaged: {key}", soft_wrap=True)
        out.print(_moved(folder, damaged), soft_wrap=True)
    else:
        out.print("Every entry is intact.")
    raise typer.Exit(1 if damaged else 0)


def _moved(folder: Path, damaged: list[str]) -> str:
    """What became of the damaged entries: some may lie in a folder that others own."""
    stuck = sum(any((folder / key[:2]).glob(f"{key}.*")) for key in damaged)
    if not stuck:
        return "They were moved to quarantine/; the next run computes them again."
    return f"{stuck} of {len(damaged)} could not be moved to quarantine/: check who may write to the store."


@store.command()
def gc(
    folder: Folder,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Remove entries of this age, e.g. 30d, 12h, 45min.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", help="Keep this key (its first digits are enough); may be repeated.", show_default=False
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it; without this the command only says what would go.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Say what unfinished or damaged writes have left and, if asked for, which entries are old; remove it with --yes.

    Example:

        dosimeter store gc store --older-than 30d --yes
    """
    from dosimeter._validate import InputError

    if keep and older_than is None:
        raise InputError(
            "--keep says what stays but not what goes; add --older-than, e.g. --older-than 0d for the rest."
        )
    age = None if older_than is None else _seconds(older_than)
    with _opened(folder) as opened:
        removed = opened.gc(keep=_keys(opened, keep) if keep else None, older_than=age, dry_run=not yes)
    if json:
        print_json({**vars(removed), "removed": yes})
        return
    leftovers = "1 leftover" if removed.leftovers == 1 else f"{removed.leftovers} leftovers"
    found = f"{_entries(len(removed.keys))} and {leftovers}, {size(removed.bytes)} in all"
    out.print(f"Removed {found}." if yes else f"Would remove {found}; nothing was removed: add --yes.")


@store.command()
def export(
    folder: Folder,
    target: Annotated[Path, typer.Argument(help="A .zip file, or the folder of another store.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Copy every sound entry to a .zip file or into the folder of another store.

    Example:

        dosimeter store export store results.zip
    """
    with _opened(folder) as opened:
        keys = opened.export(target)
    if json:
        print_json({"target": str(target), "keys": keys})
    else:
        out.print(f"Copied {_entries(len(keys))} to {target}.", markup=False, soft_wrap=True)


@contextmanager
def _opened(folder: Path) -> Iterator[Store]:
    """A store that is there already; its warnings go to standard error, one line each."""
    import warnings

    from dosimeter._validate import InputError
    from dosimeter.engine.store import Store

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; pass the folder of a store.")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        opened = Store(folder)
        if not opened.exists:
            raise InputError(f"{folder} is empty, not a store; pass the folder of a store.")
        yield opened
    for warning in found:
        err.print(f"warning: {warning.message}", markup=False, soft_wrap=True)


def _keys(opened: Store, prefixes: list[str]) -> list[str]:
    from dosimeter._validate import InputError

    known = [entry.key for entry in opened.ls()]
    found = []
    for prefix in prefixes:
        matches = [key for key in known if key.startswith(prefix.lower())]
        if len(matches) != 1:
            raise InputError(
                f"--keep {prefix} fits {len(matches)} entries; pass more digits, see `dosimeter store ls`."
            )
        found += matches
    return found


def _seconds(text: str) -> float:
    from dosimeter._validate import InputError

    units = {"min": 60.0, "h": 3600.0, "d": 86400.0, "s": 1.0}
    for unit, seconds in units.items():
        number = text.strip().removesuffix(unit)
        if number != text.strip() and number.strip().replace(".", "", 1).isdecimal():
            return float(number) * seconds
    raise InputError(f"--older-than must be a number with d, h, min or s, got {text!r}; pass e.g. 30d.")


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def size(count: int) -> str:
    """Bytes for people."""
    left = float(count)
    for unit in ("B", "kB", "MB"):
        if left < 1000:
            return f"{left:.0f} {unit}" if unit == "B" else f"{left:.1f} {unit}"
        left /= 1000
    return f"{left:.1f} GB"


def _brief(info: dict[str, object]) -> str:
    text = ", ".join(f"{name}={value}" for name, value in info.items())
    return text if len(text) <= 80 else text[:79] + "…"
