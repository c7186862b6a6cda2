"""Audit a synthetic data set: who was among the records that its generator was fitted to?

With the generator at hand, a fair coin decides for each record (or person) whether the generator is fitted to it. The
published rows are compared with all records, and the guesses of coins prove an ε for adding or removing one record.
The coins are independent and come from a stored seed. What is measured with, ranks, bins and words, comes from all
records; the weights of the attack come from reference releases with coins of their own. For a release that exists, the
members and records that were held out at random take the place of coins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

import dosimeter
from dosimeter import _validate as check
from dosimeter._persons import persons
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.accounting import Composition, DpSgd, Gaussian, Guarantee
from dosimeter.accounting.mechanism import Mechanism
from dosimeter.audits.assemble import audit_seed, both_sides, guarantees, written
from dosimeter.audits.result import Audit
from dosimeter.audits.synthetic import existing, scores
from dosimeter.audits.synthetic.adapter import FitSample, generator_of
from dosimeter.audits.synthetic.assembled import Shared, assembled
from dosimeter.audits.synthetic.comparison import alone, compare, lone_ratio
from dosimeter.audits.synthetic.disclosure import Ground
from dosimeter.audits.synthetic.releases import Made, Source, make_releases
from dosimeter.audits.synthetic.result import PublishedRows, SyntheticMetadata
from dosimeter.audits.synthetic.rows import Rows, packed, read_real
from dosimeter.audits.synthetic.space import fit_space
from dosimeter.audits.training.intervals import BY_COINS, check_budget
from dosimeter.audits.training.result import CoinSeeds
from dosimeter.engine import RunOptions
from dosimeter.engine.options import RunKeywords, own_keywords
from dosimeter.engine.tasks import hash_of_arrays
from dosimeter.estimate import Level
from dosimeter.evidence import OneRun, fair_coins, mask_hash
from dosimeter.training.identity import function_name

__all__ = ["audit_synthetic"]

MOST_AUDITED = 20_000  # units with a coin when no number is given; all others are always in
FEWEST_REFERENCES = 2
FEWEST_COINS = 14  # fewer leave a release of less than 2 records in more than one of a thousand draws
_SEEDS = ("units", "coins", "masks", "releases", "tables", "attacks")
_DEFAULTS = {"rows": None, "runs": 1, "key": None, "name": None, "guard": True}


class SyntheticKeywords(RunKeywords, total=False):
    """Rare arguments of `audit_synthetic`."""

    rows: int | None
    runs: int
    key: str | None
    name: str | None
    guard: bool


def audit_synthetic(
    generate: Any = None,
    data: Any = None,
    *,
    synthetic: Any = None,
    members: Any = None,
    nonmembers: Any = None,
    references: int = 8,
    audit_records: int | None = None,
    groups: Any = None,
    secret: Any = None,
    target: Any = None,
    mechanism: Mechanism | Guarantee | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int | None = None,
    run: RunOptions | None = None,
    **options: Unpack[SyntheticKeywords],
) -> Audit:
    """Audit a synthetic data set: prove an ε for its generator, count copies, measure utility.

    With `generate` and `data` the audit fits the generator itself, to records that fair coins chose: the bound is for
    adding or removing one record and assumes nothing. With `synthetic`, `members` and `nonmembers` it looks at a
    release that exists: the bound is for replacing one record, and holds if chance decided who was a member. More
    published rows show more: the claim says how many there were for each member.

    Args:
        generate: A function (records, seed) that learns from these records alone and returns rows of the same columns;
            or an object or class with `fit` and `sample` (SDV, CTGAN, synthcity, …).
        data: Real records: a table (data frame, array, pyarrow table, mapping of columns, or the path of a .csv or
            .parquet file), images or texts; or (X, y).
        synthetic: Published rows, for a release that exists.
        members: The records that it was made from.
        nonmembers: Records that were held out at random.
        references: How many further releases to make from records with coins of their own. They teach the attack what
            to look for. 0 compares with the records themselves.
        audit_records: How many records (or persons) have a coin; all others are always in, so that the generator is
            fitted to nearly all of the data. None for all, at most 20 000.
        groups: The person behind each record of `data`, or a pair (ids of members, ids of nonmembers): one coin, and
            one score, for each person.
        secret: The columns to guess from the others: a name or several; None for the target, () for none.
        target: The column that a model is trained to predict, for the utility; None for the labels of (X, y), or the
            last column.
        mechanism: The generator's DP mechanism (`Gaussian`, …), or its stated `Guarantee`.
        delta: The δ of the guarantees that are tested.
        confidence: The confidence of every bound.
        seed: Decides coins, references and samples. None draws a fresh one, which the store and the result keep.
        run: Where the generator runs, and where releases are kept.
        **options: `rows`, how many rows an object with `sample` publishes (default: as many as it has members, on
            average); `runs`, how many releases to audit, each with its own coins; `key`, a text that stands for the
            generator in the keys of the store; `name`, for the page; `guard=False` switches off the check of members
            against nonmembers.

    Returns:
        The audit, its headline first.

    Raises:
        InputError: If an argument cannot be used, before anything is fitted; or if the generator failed.

    >>> import numpy as np
    >>> table = np.random.default_rng(0).normal(size=(400, 4))
    >>> def copy_rows(records, seed):  # a generator that publishes its records, a little blurred
    ...     return records + 0.001 * np.random.default_rng(seed).normal(size=records.shape)
    >>> here = RunOptions(engine="inline", progress=False)
    >>> audit_synthetic(copy_rows, table, references=2, seed=0, run=here).headline.low > 3
    True
    """
    delta, confidence = check.delta(delta), check.confidence(confidence)
    own, rest = own_keywords(options, _DEFAULTS)
    where = RunOptions.read(run, rest, caller="audit_synthetic")
    if mechanism is not None and not isinstance(mechanism, (DpSgd, Gaussian, Composition, Guarantee)):
        raise InputError(
            f"mechanism must be a Guarantee, Gaussian, DpSgd or Composition, got {check.show(mechanism)}; pass one "
            f"or None."
        )
    shared = Shared(delta, confidence, secret, target, own["name"], where)
    if generate is None:
        if synthetic is None or members is None or nonmembers is None or data is not None:
            raise InputError(
                "pass generate and data, or synthetic, members and nonmembers: a release alone cannot be audited "
                "without "
                "records that were never in."
            )
        audit = existing.audit_existing(synthetic, members, nonmembers, groups, shared, seed, guard=own["guard"])
    else:
        if data is None or synthetic is not None or members is not None or nonmembers is not None:
            raise InputError("generate is fitted to data; pass data, and neither synthetic, members nor nonmembers.")
        audit = _with_coins(generate, data, references, audit_records, groups, shared, seed, own)
    return _beside(audit, mechanism, delta)


def _beside(audit: Audit, mechanism: Mechanism | Guarantee | None, delta: float) -> Audit:
    """The audit with the guarantee of the generator beside its bound."""
    if mechanism is None:
        return audit
    unit, relations = audit.metadata.unit, [e.neighbours or "" for e in audit.estimates if e.method == "lower-bound"]
    upper: tuple[Guarantee, ...]
    notes: list[str] = []
    if isinstance(mechanism, Guarantee):
        upper, told = (mechanism,), str(mechanism)
    else:
        upper, notes = guarantees(mechanism, delta, relations, unit)
        told = written(mechanism)
    region, risk = both_sides(audit.estimates, upper, unit)
    meta = replace(audit.metadata, mechanism=told, warnings=(*audit.metadata.warnings, *notes))
    return replace(audit, upper=upper, region=region, risk=risk, metadata=meta)


@dataclass(frozen=True, eq=False)
class _Coins:
    """Who has a coin, and what the coins said.

    `units` is how many there are, `audited` those with a coin, `place` the unit of each record, and `coins` (releases,
    audited units): those of the audited releases, then those of the references.
    """

    units: int
    audited: IntArray
    place: IntArray
    coins: BoolArray
    names: Any

    @property
    def records(self) -> IntArray:
        """The records whose unit has a coin."""
        return np.flatnonzero(np.isin(self.place, self.audited))

    @property
    def unit_of(self) -> IntArray:
        """For each of these records, its place among the units with a coin."""
        return np.searchsorted(self.audited, self.place[self.records])

    def members(self) -> BoolArray:
        """Who is in which release: (releases, records)."""
        inside = np.ones((len(self.coins), self.place.size), bool)
        inside[:, self.records] = self.coins[:, self.unit_of]
        return inside


def _with_coins(
    generate: Any,
    data: Any,
    references: Any,
    audit_records: Any,
    groups: Any,
    shared: Shared,
    seed: int | None,
    own: Mapping[str, Any],
) -> Audit:
    """Fit, publish, attack."""
    count = check.whole("references", references, 0, "pass the number of reference releases, e.g. 8, or 0")
    if 0 < count < FEWEST_REFERENCES:
        raise InputError(f"references must be 0 or at least {FEWEST_REFERENCES}, got {count}; pass e.g. 8.")
    runs = check.whole("runs", own["runs"], 1, "pass how many releases to audit")
    source, empty = _source(data)
    ids = None if groups is None else persons("groups", groups, len(source.rows))
    units = len(source.rows) if ids is None else ids.names.size
    chosen = _chosen(audit_records, units, shared.unit(ids is not None))
    if chosen < FEWEST_COINS and chosen == units:
        raise InputError(
            f"only {chosen} {shared.unit(ids is not None)}s have a coin, so that a release may be fitted to next to "
            f"none of them; pass at least {FEWEST_COINS}."
        )
    rows = None if own["rows"] is None else check.whole("rows", own["rows"], 2, "pass how many rows to publish")
    shared.check_columns(source.rows)
    usual = max(2, round(len(source.rows) * (1 - chosen / units / 2)))
    function = generator_of(generate, rows, usual)
    name = function_name(getattr(function, "generator", function))
    seed = audit_seed(
        seed, shared.run.store, "synthetic", name, hash_of_arrays(packed(source.rows)), count, chosen, runs
    )
    children = np.random.SeedSequence(seed).spawn(len(_SEEDS))
    seeds = {key: int(child.generate_state(1)[0]) for key, child in zip(_SEEDS, children, strict=True)}
    check_budget(runs * chosen, delta=shared.delta, confidence=shared.confidence)
    coins = _coins(units, chosen, runs, count, seeds, None if ids is None else ids)
    numbers = [int(s) for s in np.random.SeedSequence(seeds["releases"]).generate_state(runs + count)]
    made = make_releases(function, source, coins.members(), numbers, audited=runs, key=own["key"], run=shared.run)
    notes = [f"column {check.show(column)} has no value at all and was left out" for column in empty]
    if isinstance(function, FitSample) and not function.seeded():
        notes.append("the generator takes no seed, so that the same seed does not give the same audit again")
    return _attacked(source, coins, made, runs, count, seeds, shared, seed, name, notes)


def _source(data: Any) -> tuple[Source, list[str]]:
    rows, empty = read_real(data, "data")
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        from dosimeter.columns import read_columns

        data = read_columns(data, missing=True)
    records = getattr(data, "pair", data)
    return Source(records, rows, tuple(empty)), empty


def _chosen(audit_records: Any, units: int, unit: str) -> int:
    if audit_records is None:
        return min(units, MOST_AUDITED)
    return check.whole(
        "audit_records", audit_records, 1, f"pass how many of the {units} {unit}s have a coin, or None for all", units
    )


def _coins(units: int, chosen: int, runs: int, references: int, seeds: Mapping[str, int], ids: Any) -> _Coins:
    rng = np.random.default_rng(np.random.SeedSequence(seeds["units"]))
    audited = np.sort(rng.choice(units, chosen, replace=False))
    own = fair_coins(runs * chosen, seeds["coins"]).reshape(runs, chosen)
    others = fair_coins(max(references, 1) * chosen, seeds["masks"]).reshape(-1, chosen)[:references]
    coins = np.concatenate([own, others])
    place = np.arange(units) if ids is None else ids.place
    if own.all() or not own.any():
        raise InputError(f"all {own.size} coins came up the same; pass more records.")
    drawn = _Coins(units, audited, place, coins, None if ids is None else ids.names)
    if not drawn.members().sum(axis=1).min() >= 2:
        raise InputError("a release would be fitted to fewer than 2 records; pass more data.")
    return drawn


def _attacked(
    source: Source,
    coins: _Coins,
    made: Made,
    runs: int,
    references: int,
    seeds: Mapping[str, int],
    shared: Shared,
    seed: int,
    name: str,
    notes: Sequence[str],
) -> Audit:
    kept = np.array([place for place, release in enumerate(made.releases) if release is not None])
    releases = [release for release in made.releases if release is not None]
    if references and len(releases) - runs < FEWEST_REFERENCES:
        raise InputError(
            f"only {len(releases) - runs} of {references} reference releases worked, and {FEWEST_REFERENCES} are "
            f"needed; "
            f"repair generate. The first failure: {made.failed[0].reason}"
        )
    pool, audited = source.rows, coins.records
    space = fit_space(pool)
    asked, workers = pool.take(audited), shared.workers
    isolation = alone(space, asked, workers)
    compared = compare(
        space, asked, releases, isolation, seed=seeds["tables"], workers=workers, progress=shared.run.progress
    )
    masks = coins.coins[kept][runs:]
    if references:
        unit_masks, record_masks = masks, masks[:, coins.unit_of]
        level: Level = {"delta": shared.delta, "confidence": shared.confidence}
        attacked = scores.attack(
            compared.seen, runs, record_masks, coins.unit_of, coins.audited.size, unit_masks, level
        ).scores
    else:
        attacked = _without_references(asked, isolation, releases, compared.seen.close, coins)
    own_coins = coins.coins[:runs].ravel()
    each = None if coins.names is None else np.arange(own_coins.size)
    evidences = {key: OneRun(values.ravel(), own_coins, seeds["coins"], each) for key, values in attacked.items()}
    inside = coins.coins[0][coins.unit_of]
    member_rows = coins.members()[0]
    ground = Ground(
        space,
        pool,
        releases[0],
        audited[inside],
        audited[~inside],
        shared.confidence,
        seeds["attacks"],
        workers,
        None if coins.names is None else coins.place,
    )
    distance = np.full(len(pool), np.inf)
    distance[audited] = compared.first.distance
    published = PublishedRows(
        len(releases[0]), int(member_rows.sum()), coins.audited.size, coins.units - coins.audited.size, 0.0
    )
    meta = replace(
        _metadata(pool, coins, made, own_coins, shared),
        model=name,
        attack=next(iter(evidences)),
        references=references,
        runs=runs,
        rows=len(releases[0]),
        seed=seed,
        seeds=CoinSeeds(seeds["masks"] if references else None, seeds["coins"]),
        warnings=(*notes, *_notes(coins)),
    )
    rows_of = coins.audited if coins.names is None else np.asarray(coins.names)[coins.audited]
    return assembled(
        evidences, BY_COINS, ground, distance, isolation, published, meta, shared, np.tile(rows_of, runs), member_rows
    )


def _metadata(pool: Rows, coins: _Coins, made: Made, own_coins: BoolArray, shared: Shared) -> SyntheticMetadata:
    """What was audited, on what, by which coins."""
    return SyntheticMetadata(
        kind="synthetic",
        name=shared.name,
        game="coins",
        columns=tuple((field.name, field.kind) for field in pool.fields),
        members=int(own_coins.sum()),
        nonmembers=int((~own_coins).sum()),
        records=len(pool),
        unit=shared.unit(coins.names is not None),
        mask_hash=mask_hash(own_coins),
        fingerprint=hash_of_arrays(packed(pool)),
        trainings=made.trainings,
        failed=made.failed,
        provenance=made.provenance,
        delta=shared.delta,
        confidence=shared.confidence,
        version=dosimeter.__version__,
    )


def _without_references(
    asked: Rows, isolation: FloatArray, releases: Sequence[Rows], close: FloatArray, coins: _Coins
) -> dict[str, FloatArray]:
    """The distance to each release beside that to the nearest other record, whoever was in."""
    ratios = np.stack([lone_ratio(asked, isolation, *one) for one in zip(releases, close, strict=True)])
    if coins.names is None:
        return {scores.CLOSE: ratios}
    largest = np.full((len(ratios), coins.audited.size), -np.inf)
    for row, values in zip(largest, ratios, strict=True):
        np.maximum.at(row, coins.unit_of, values)
    return {scores.CLOSE: largest}


def _notes(coins: _Coins) -> tuple[str, ...]:
    if coins.audited.size < coins.units:
        return ()
    return (
        "every record had a coin, so the generator was fitted to about half of the data; pass audit_records to keep "
        "the others always in",
    )
