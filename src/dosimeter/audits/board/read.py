"""A folder of audits as typed rows: every file read as strictly as a gate does, damaged ones listed.

Nothing outside of the folder is opened: symbolic links are not followed, neither to files nor to folders.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from dosimeter import _validate as check
from dosimeter._progress import Progress
from dosimeter._validate import InputError
from dosimeter.audits.gate import MAX_DELTA, InvalidAuditError, Outcome, gate
from dosimeter.audits.page import facts
from dosimeter.audits.page.facts import Conclusion
from dosimeter.audits.result import Audit
from dosimeter.audits.verify import Finding, Standing, Verification, verify
from dosimeter.reading import JSON_BYTES

__all__ = ["Board", "DamagedFile", "Entry", "Limits", "Status", "board"]

MOST_FILES = 10_000
MOST_FOLDERS = 1_000
DEEPEST = 8
MANY = 100  # files after which a person wants to know how far it is


class Status(StrEnum):
    """Whether an audit keeps the limits of the board."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    NO_LIMIT = "no limit"


@dataclass(frozen=True)
class Limits:
    """What every audit of a board is held to; the same limits as those of a gate."""

    max_epsilon: float | None = None
    max_delta: float = MAX_DELTA
    min_confidence: float | None = None
    require_neighbours: str | None = None

    @property
    def any(self) -> bool:
        """Whether any limit was set; one on δ alone does not count."""
        return any(v is not None for v in (self.max_epsilon, self.min_confidence, self.require_neighbours))


@dataclass(frozen=True)
class Entry:
    """One audit: what it is about, both ends of its ε, and whether it keeps the limits.

    `proven` is the lower bound (0 where nothing is proven), None where the headline is not a bound; then `measured` has
    its value. `guaranteed` is for the same neighbours, None where there is none. `dated` says that the audit states its
    date; otherwise `when` is the time of its file. `page` is the page beside the file, if there is one.
    """

    path: str
    model: str
    version: str
    kind: str
    when: datetime
    dated: bool
    standing: Conclusion
    proven: float | None
    measured: float | None
    guaranteed: float | None
    neighbours: str | None
    unit: str
    delta: float
    confidence: float
    validity: str
    status: Status
    reasons: tuple[str, ...]
    page: str | None


@dataclass(frozen=True)
class DamagedFile:
    """A file that is not an audit, or not a valid one, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Board:
    """The audits of a folder, by model and time, and the files that could not be read."""

    folder: str
    entries: tuple[Entry, ...]
    damaged: tuple[DamagedFile, ...]
    limits: Limits
    verified: bool

    def to_html(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write one self-contained page, by default `board.html` in the folder, and return its path."""
        from dosimeter.audits.board.page import write_board

        return write_board(self, Path(self.folder, "board.html") if path is None else Path(path))


def board(
    folder: str | os.PathLike[str],
    *,
    max_epsilon: float | None = None,
    max_delta: float = MAX_DELTA,
    min_confidence: float | None = None,
    require_neighbours: str | None = None,
    recompute: bool = False,
    progress: bool = False,
) -> Board:
    """Read every audit of a folder, and of the folders in it, and hold each to limits.

    An audit belongs to the model that its metadata name (`name`, else `model`), with the version of `model_version` and
    the date of `created` (ISO 8601); without these its file name and the time of its file stand in.

    Args:
        folder: The folder; JSON files in it are taken for audits.
        max_epsilon: The largest ε that a headline may prove.
        max_delta: The largest δ at which it may stand.
        min_confidence: The least confidence of a headline.
        require_neighbours: Whose ε is limited: "add/remove" or "replace".
        recompute: Compute every bound again from its evidence, as a gate does. That takes seconds for an audit.
        progress: Show on standard error how far it is.

    Returns:
        The board: its entries, the files that could not be read, and `to_html`.

    Raises:
        InputError: If the folder does not exist, holds more than 10 000 JSON files, or a limit cannot be one.

    >>> board("audits", max_epsilon=2).to_html()  # doctest: +SKIP
    """
    limits = Limits(max_epsilon, max_delta, min_confidence, require_neighbours)
    _check(limits)
    recompute = check.flag("recompute", recompute)
    try:
        root = Path(folder)
    except TypeError:
        raise InputError(f"folder must be a path, got {check.show(folder)}; pass a folder with audits.") from None
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; pass one with the JSON files of audits.")
    entries: list[Entry] = []
    damaged: list[DamagedFile] = []
    files = sorted(_json_files(root))
    with Progress(len(files), f"Reading {len(files)} files", label="reading audits") as shown:
        if progress and (recompute or len(files) > MANY):
            shown.announce()
        for number, (name, link) in enumerate(files, start=1):
            try:
                if link:
                    raise InputError("it is a symbolic link, which is not followed")
                entries.append(_entry(root, name, *_read(root / name), limits, recompute))
            except InputError as error:
                damaged.append(DamagedFile(name, str(error)))
            except OSError as error:
                damaged.append(DamagedFile(name, f"it cannot be read ({error.strerror or type(error).__name__})"))
            shown.advance(number)
    entries.sort(key=lambda e: (e.model.casefold(), e.when, e.version, e.path))
    return Board(str(root), tuple(entries), tuple(damaged), limits, recompute)


def _json_files(root: Path) -> Iterator[tuple[str, bool]]:
    """The JSON files below a folder, by their path in it, and whether each is a link; links to folders are left out."""
    waiting, files, seen = [("", 0)], 0, 0
    while waiting:
        inside, depth = waiting.pop()
        seen += 1
        if seen > MOST_FOLDERS:
            raise InputError(f"{root} has more than {MOST_FOLDERS} folders in it; pass one of them.")
        with os.scandir(root / inside) as entries:
            for entry in entries:
                name = f"{inside}/{entry.name}" if inside else entry.name
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if depth < DEEPEST:
                        waiting.append((name, depth + 1))
                elif entry.name.lower().endswith(".json"):
                    files += 1
                    if files > MOST_FILES:
                        raise InputError(f"{root} holds more than {MOST_FILES} JSON files; pass a folder inside it.")
                    yield name, entry.is_symlink()


def _read(path: Path) -> tuple[bytes, datetime]:
    """The bytes of a plain file and when it was changed; what became a link in the meantime is not opened."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        known = os.fstat(file.fileno())
        if not stat.S_ISREG(known.st_mode):
            raise InputError("it is not a plain file")
        if known.st_size > JSON_BYTES:
            raise InputError(f"it has {known.st_size} bytes, and an audit is read up to {JSON_BYTES}")
        return file.read(JSON_BYTES + 1), datetime.fromtimestamp(known.st_mtime, UTC)


def _entry(root: Path, name: str, text: bytes, changed: datetime, limits: Limits, recompute: bool) -> Entry:
    audit = Audit.from_json(text)
    lower, stated = facts.shown(audit)
    meta = audit.metadata
    stated_date = _date(meta.notes.get("created") or meta.notes.get("date"))
    status, reasons = _judged(audit, limits, recompute)
    stem = name.rpartition("/")[2][: -len(".json")]
    return Entry(
        path=name,
        model=str(meta.name or meta.model or meta.notes.get("model") or stem),
        version=str(meta.notes.get("model_version") or stem),
        kind=meta.kind or "model or scores",
        when=stated_date or changed,
        dated=stated_date is not None,
        standing=facts.conclusion(audit),
        proven=lower.low if lower.validity.is_bound else None,
        measured=None if lower.validity.is_bound else lower.epsilon,
        guaranteed=None if stated is None else stated.epsilon,
        neighbours=lower.neighbours,
        unit=facts.unit(audit),
        delta=lower.delta,
        confidence=lower.confidence,
        validity=str(lower.validity),
        status=status,
        reasons=reasons,
        page=_page(root, name),
    )


def _date(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _page(root: Path, name: str) -> str | None:
    """The page beside an audit, if it is a plain file."""
    beside = f"{name[: -len('.json')]}.html"
    try:
        return beside if stat.S_ISREG(os.lstat(root / beside).st_mode) else None
    except OSError:
        return None


def _judged(audit: Audit, limits: Limits, recompute: bool) -> tuple[Status, tuple[str, ...]]:
    """Whether an audit keeps the limits, and the rules that it does not keep."""
    if not limits.any:
        if recompute and (wrong := verify(audit).contradictions):
            raise InvalidAuditError(f"the audit is not valid: {wrong[0].subject}: {wrong[0].reason}")
        return Status.NO_LIMIT, ()
    verdicts = gate(
        audit,
        max_epsilon=limits.max_epsilon,
        max_delta=limits.max_delta,
        min_confidence=limits.min_confidence,
        require_neighbours=limits.require_neighbours,
        allow_unverified=not recompute,
        verification=None if recompute else _as_stated(audit),
    )
    stopped = [v for v in verdicts if not v.passed]
    if not stopped:
        return Status.PASS, ()
    failed = any(v.outcome is Outcome.FAIL for v in stopped)
    return Status.FAIL if failed else Status.UNDECIDED, tuple(f"{v.rule}: {v.reason}" for v in stopped)


def _as_stated(audit: Audit) -> Verification:
    """The numbers as the file states them; nothing was computed again."""
    findings = tuple(
        Finding(e.method, Standing.UNKNOWN, "it was not computed again", e.epsilon, most=facts.ceiling(e))
        for e in audit.estimates
    )
    return Verification(findings, None if audit.curve is None else audit.curve.auc)


def _check(limits: Limits) -> None:
    """Refuse limits that cannot be limits before any file is read."""
    for name, value, most in (("max_epsilon", limits.max_epsilon, math.inf), ("max_delta", limits.max_delta, 1.0)):
        if value is not None:
            check.within(name, value, 0.0, most, "pass a limit, e.g. 2", include="[)" if most > 1 else "[]")
    if limits.min_confidence is not None:
        check.confidence(limits.min_confidence)
    if limits.require_neighbours is not None:
        check.choice("require_neighbours", limits.require_neighbours, ("add/remove", "replace"))
