"""A release that exists: its members, and records that were held out at random, take the place of coins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import dosimeter
from dosimeter import _validate as check
from dosimeter._persons import two_sides
from dosimeter._validate import InputError, IntArray
from dosimeter.audits.model.run import SWITCHED_OFF
from dosimeter.audits.result import Audit, Guard
from dosimeter.audits.shift.guard import DISTINCT, check_shift
from dosimeter.audits.shift.records import UintArray
from dosimeter.audits.synthetic.assembled import Shared, assembled
from dosimeter.audits.synthetic.comparison import alone, lone_ratio
from dosimeter.audits.synthetic.disclosure import Ground
from dosimeter.audits.synthetic.nearest import nearest
from dosimeter.audits.synthetic.result import PublishedRows, SyntheticMetadata
from dosimeter.audits.synthetic.rows import Column, Numbers, Rows, Words, packed, read_real, read_release
from dosimeter.audits.synthetic.space import fit_space, hashes
from dosimeter.engine.tasks import hash_of_arrays
from dosimeter.evidence import Scores

__all__ = ["audit_existing"]

MOST_COMPARED = 20_000  # records of either side; a release may be of any size
HOLDOUT = "closeness, against other records"


def audit_existing(
    synthetic: Any, members: Any, nonmembers: Any, groups: Any, shared: Shared, seed: int | None, *, guard: bool
) -> Audit:
    """Score each record by how much nearer the release is than the nearest other record, whichever side that is on."""
    seed = 0 if seed is None else check.seed(seed)
    guard = check.flag("guard", guard)
    first, empty = read_real(members, "members")
    second = read_release(nonmembers, first, "nonmembers", left_out=empty)
    release = read_release(synthetic, first, "synthetic", left_out=empty)
    shared.check_columns(first)
    ids = None if groups is None else two_sides(groups, len(first), len(second))
    pool = joined(first, second)
    verdict = _guard(first, second, groups, shared, seed) if guard else SWITCHED_OFF
    rows = _compared(len(first), len(second), ids, seed)
    chosen = np.concatenate([rows[0], len(first) + rows[1]])
    space, asked = fit_space(pool), pool.take(chosen)
    neighbours = nearest(space.coordinates(asked), space.coordinates(release), workers=shared.workers)
    isolation = alone(space, asked, shared.workers)
    scores = lone_ratio(asked, isolation, release, neighbours.distance)
    sizes = rows[0].size
    evidence = Scores(
        scores[:sizes],
        scores[sizes:],
        groups=None
        if ids is None
        else tuple(side.names[side.place[part]] for side, part in zip(ids, rows, strict=True)),
        aggregate="max",
    )
    place = None if ids is None else np.concatenate([ids[0].place, ids[0].names.size + ids[1].place])
    distance = np.full(len(pool), np.inf)
    distance[chosen] = neighbours.distance
    ground = Ground(
        space,
        pool,
        release,
        rows[0],
        len(first) + rows[1],
        shared.confidence,
        seed,
        shared.workers,
        place,
    )
    meta = _metadata(first, second, release, evidence, shared, seed, [*_notes(first, second, release), *_left(empty)])
    names: Any = np.concatenate(rows) if evidence.groups is None else np.concatenate(evidence.groups)
    return assembled(
        {HOLDOUT: evidence},
        verdict,
        ground,
        distance,
        isolation,
        PublishedRows(len(release), len(first), evidence.total, len(first) - sizes, 0.0),
        meta,
        shared,
        names,
        np.arange(len(pool)) < len(first),
    )


def _metadata(
    first: Rows, second: Rows, release: Rows, evidence: Scores, shared: Shared, seed: int, notes: Sequence[str]
) -> SyntheticMetadata:
    return SyntheticMetadata(
        kind="synthetic",
        name=shared.name,
        game="split",
        attack=HOLDOUT,
        references=0,
        rows=len(release),
        columns=tuple((field.name, field.kind) for field in first.fields),
        members=evidence.members.size,
        nonmembers=evidence.nonmembers.size,
        records=len(first) + len(second),
        unit=evidence.unit,
        seed=seed,
        fingerprint=hash_of_arrays(packed(release)),
        delta=shared.delta,
        confidence=shared.confidence,
        warnings=tuple(notes),
        version=dosimeter.__version__,
    )


def joined(first: Rows, second: Rows) -> Rows:
    """Two sets of rows with the same columns as one."""
    columns = tuple(_both(a, b) for a, b in zip(first.columns, second.columns, strict=True))
    images = None
    if first.images is not None and second.images is not None:
        images = np.concatenate([first.images, second.images])
    texts = None if first.texts is None or second.texts is None else (*first.texts, *second.texts)
    return Rows(first.kind, first.fields, columns, images, texts)


def _both(a: Column, b: Column) -> Column:
    if isinstance(a, Numbers) and isinstance(b, Numbers):
        return Numbers(np.concatenate([a.values, b.values]))
    assert isinstance(a, Words) and isinstance(b, Words)
    known = {level: place for place, level in enumerate(dict.fromkeys((*a.levels, *b.levels)))}
    place = np.array([*(known[level] for level in b.levels), -1], np.int64)
    return Words(np.concatenate([a.codes, place[b.codes]]), tuple(known))


def _compared(members: int, nonmembers: int, ids: Any, seed: int) -> tuple[IntArray, IntArray]:
    """The records that are compared, at random where there are many; persons come with all their records."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    rows = []
    for place, size in enumerate((members, nonmembers)):
        if size <= MOST_COMPARED:
            rows.append(np.arange(size))
        elif ids is None:
            rows.append(np.sort(rng.choice(size, MOST_COMPARED, replace=False)))
        else:
            people = ids[place].names.size
            share = max(1, people * MOST_COMPARED // size)
            rows.append(np.flatnonzero(np.isin(ids[place].place, rng.choice(people, share, replace=False))))
    return rows[0], rows[1]


def _guard(first: Rows, second: Rows, groups: Any, shared: Shared, seed: int) -> Guard:
    """Whether members and held-out records differ without the release."""
    if first.kind == "tabular":
        pool = matrix(joined(first, second))
        sides: Any = pool[: len(first)], pool[len(first) :]
    elif first.kind == "image":
        sides = first.images, second.images
    else:
        sides = list(first.texts or ()), list(second.texts or ())
    return check_shift(*sides, groups=groups, kind=first.kind, confidence=shared.confidence, seed=seed)


def matrix(rows: Rows) -> npt.NDArray[np.float64]:
    """A table as numbers: words by their place in the alphabet, texts by their length."""
    columns = []
    for field, column in zip(rows.fields, rows.columns, strict=True):
        if isinstance(column, Numbers):
            columns.append(column.values)
            continue
        order = {level: float(place) for place, level in enumerate(sorted(column.levels))}
        value = [float(len(level)) if field.kind == "text" else order[level] for level in column.levels]
        columns.append(np.array([*value, np.nan])[column.codes])
    return np.stack(columns, axis=1)


def _left(empty: Sequence[str]) -> list[str]:
    return [f"column {check.show(name)} has no value at all and was left out" for name in empty]


def _notes(first: Rows, second: Rows, release: Rows) -> list[str]:
    """Warn of what looks like the wrong file."""
    own, held, made = (np.sort(hashes(rows)) for rows in (first, second, release))
    if _taken_from(held, made):
        raise InputError("every row of synthetic is one of nonmembers; pass the published rows, and records held out.")
    if _taken_from(own, made):
        return ["every published row is a copy of a member: a release of real records, or the wrong file as synthetic"]
    return []


def _taken_from(records: UintArray, made: UintArray) -> bool:
    """Whether the published rows are these records or some of them; in a table of few values that may be chance."""
    if np.array_equal(records, made):
        return True
    return bool(np.isin(made, records).all() and np.unique(records).size >= DISTINCT * records.size)
