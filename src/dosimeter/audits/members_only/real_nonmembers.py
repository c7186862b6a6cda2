"""The same audit with real non-members (RM;RN): nothing is generated, so c = 0 and the bound is one on ε."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dosimeter._validate import InputError
from dosimeter.attacks.stacked import Content
from dosimeter.audits.members_only.contest import ANCHORS, Trainer, anchor_and_pools, contest
from dosimeter.audits.members_only.game import FEWEST, Game, Part, shown, take
from dosimeter.audits.scores.run import roc
from dosimeter.audits.shift.guard import Guard, check_shift
from dosimeter.audits.shift.records import read_records
from dosimeter.estimate import Estimate, Validity
from dosimeter.estimators.one_run import one_run
from dosimeter.estimators.panoramia import panoramia
from dosimeter.estimators.wording import change
from dosimeter.evidence import Scores
from dosimeter.models import dataset


@dataclass(frozen=True, eq=False)
class RealGame:
    """A game whose generated records are real non-members, and a part of those for a helper."""

    game: Game
    helper: Part


@dataclass(frozen=True, eq=False)
class RealAudit:
    """What real non-members add to an audit: estimates and curve of the first target, the details of all."""

    estimates: tuple[Estimate, ...]
    guard: Guard
    curve: dict[str, Any]
    details: dict[str, Any]


def cut_nonmembers(nonmembers: Any, game: Game, *, seed: int) -> RealGame:
    """Cut real non-members into parts for a helper, the classifier and the audit."""
    X, y = dataset(nonmembers)
    count = len(X) if isinstance(X, list) else int(X.shape[0])
    if count < 3 * FEWEST:
        raise InputError(
            f"nonmembers holds {count} records, and three parts of at least {FEWEST} need {3 * FEWEST}; pass at least "
            f"{3 * FEWEST}."
        )
    content = _content(X, y, game)
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(count)
    held = count // 5
    train = (count - held) // 2
    rows = np.split(order, [held, held + train])
    helper, first, second = (Part(take(X, r), take(y, r), content.take(r)) for r in rows)
    real, made = dict(game.real), {"train": first, "audit": second}
    for name in ("train", "audit"):
        size = min(len(real[name]), len(made[name]))
        real[name], made[name] = _first(real[name], size), _first(made[name], size)
    return RealGame(replace(game, real=real, made=made), helper)


def _first(part: Part, size: int) -> Part:
    rows = np.arange(size)
    return Part(take(part.X, rows), take(part.y, rows), part.content.take(rows))


def _content(X: Any, y: Any, game: Game) -> Content:
    """Real non-members in the form of the game, with its codes for the classes."""
    if hasattr(X, "iloc") and not all(kind.kind in "biuf" for kind in X.dtypes):
        raise InputError("nonmembers has columns of words; encode them as numbers in members and nonmembers first.")
    if (y is None) != (game.held.y is None):
        raise InputError("only one of members and nonmembers has labels; give labels for both or for neither.")
    records = read_records(game.held.X, X).nonmembers
    if y is None:
        return Content(game.kind, records, None)
    known: dict[Any, int] = {}
    for part in (game.held, game.helper, *game.real.values(), *game.made.values()):
        assert part.content.labels is not None
        known.update(zip(np.asarray(part.y).tolist(), part.content.labels.tolist(), strict=True))
    strange = [value for value in np.unique(y).tolist() if value not in known]
    if strange:
        raise InputError(f"nonmembers has the class {strange[0]!r}, which the members lack; leave it out.")
    return Content(game.kind, records, np.array([known[value] for value in y.tolist()], np.int64))


def _coin_seed(pair: Any, seed: int) -> int:
    """A seed for the coins that the scores have a part in: a constant is not a coin."""
    digest = hashlib.sha256(f"{seed} ".encode())
    for scores in pair:
        digest.update(np.asarray(scores, np.float64).tobytes())
    return int.from_bytes(digest.digest()[:6], "little")


def audit_real(
    targets: Mapping[str, Any],
    game: Game,
    real: RealGame,
    *,
    trainer: Trainer | None,
    confidence: float,
    seed: int,
    batch_size: int | None,
    device: str | None,
) -> RealAudit:
    """The attack of the members-only audit on real non-members, the shift check first; targets share all but models."""
    parts = [(real.game.real["audit"], real.game.made["audit"])]
    pairs = [((a.X, a.y), (b.X, b.y)) if a.y is not None else (a.X, b.X) for a, b in parts]
    guard = check_shift(*pairs[0], confidence=confidence, seed=seed)
    field = contest(real.game, seed=seed)
    anchor, _ = anchor_and_pools(game, seed=seed)
    common = [field.helped(anchor, seed=seed + k, variant=k, trainer=trainer) for k in range(ANCHORS)]
    attacks = [field.score(*common, field.ask(m, batch_size=batch_size, device=device)) for m in targets.values()]
    warnings = ("members and non-members differ even without the model: this is no bound",) if guard.shift else ()
    found: list[tuple[Estimate, ...]] = []
    for pair in attacks:
        evidence = shown(*pair, seed=_coin_seed(pair, seed))
        bound = panoramia(baseline=None, attack=evidence, confidence=confidence, seed=seed)
        run = one_run(evidence, delta=0.0, confidence=confidence)
        named = (("panoramia, real non-members", bound), ("one-run, real non-members", run))
        # The coins were thrown after training, so both bounds need records that chance alone made members.
        found.append(
            tuple(
                replace(
                    e,
                    method=name,
                    warnings=(*e.warnings, *warnings),
                    validity=Validity.RANDOM_SPLIT,
                    neighbours="replace",  # the other record of a pair was trained on instead
                    claim=e.claim.replace(change("add/remove"), change("replace")),
                )
                for name, e in named
            )
        )
    rows = [
        {"name": name, "epsilon": bound.epsilon, "one_run": run.epsilon, "auc": pair.auc}
        for name, pair, (bound, run) in zip(targets, attacks, found, strict=True)
    ]
    first = {key: rows[0][key] for key in ("epsilon", "one_run", "auc")}
    return RealAudit(
        estimates=found[0],
        guard=guard,
        curve=roc(Scores(*attacks[0]), confidence),
        details={**first, "pairs": real.game.pairs, "targets": rows},
    )
