"""Baseline and attack on one game: the same classifiers, the same records, other models' answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks.references import reference
from dosimeter.attacks.stacked import Scored, answers, content_scores, joined, stacked_out_of_fold, stacked_scores
from dosimeter.audits.members_only.game import Game, Part, take
from dosimeter.audits.members_only.null_band import Pair
from dosimeter.models import access

Trainer: TypeAlias = Callable[[Any, Any, int], Any]
ANCHORS = 2
ANCHOR_SHARE = 1 / 2  # of D_G, for the references that baseline and attack both see
STAND_IN_SHARE = 2 / 3  # of its pool, for each stand-in


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says of the training and of the audit records, the loss in the first column."""

    train: FloatArray
    audit: FloatArray


@dataclass(frozen=True, eq=False)
class Contest:
    """A game with the scores of its content: everything that baseline and attack have in common."""

    game: Game
    member: BoolArray
    content: Scored
    seed: int

    def score(self, *seen: Answers, rows: IntArray | None = None) -> Pair:
        """Scores of the audit pairs by a classifier that sees the content's score and these answers.

        The last of them is also set against each of the others: a loss that is low where others find it high.
        """
        train = _columns(self.content.train, [a.train for a in seen])
        audit = _columns(self.content.audit, [a.audit for a in seen])
        chosen = np.arange(self.member.size) if rows is None else rows
        found = stacked_scores(train[chosen], self.member[chosen], audit, seed=self.seed)
        return Pair(found[: self.game.pairs], found[self.game.pairs :])

    def rehearse(self, *seen: Answers) -> Pair:
        """Out-of-fold scores of the training records: what may be looked at before the audit."""
        found = stacked_out_of_fold(_columns(self.content.train, [a.train for a in seen]), self.member, seed=self.seed)
        return Pair(found[self.member], found[~self.member])

    def ask(self, model: Any, *, batch_size: int | None = None, device: str | None = None) -> Answers:
        """The answers of a model that takes records as they came."""
        box = access(model, batch_size=batch_size, device=device)
        return self._answers(lambda part: answers(box, part.X, part.y))

    def _answers(self, ask: Callable[[Part], FloatArray]) -> Answers:
        train, audit = (
            np.concatenate([ask(self.game.real[name]), ask(self.game.made[name])]) for name in ("train", "audit")
        )
        return Answers(train, audit)

    def helped(self, part: Part, *, seed: int, variant: int = 0, trainer: Trainer | None = None) -> Answers:
        """The answers of a model that is trained on this part, by the caller's function or by the default."""
        return self._answers(self.trained(part, seed, variant, trainer))

    def trained(self, part: Part, seed: int, variant: int, trainer: Trainer | None) -> Callable[[Part], FloatArray]:
        """A model trained on this part, as a function from records to what it says of them."""
        if trainer is None:
            ask = reference(part.content, seed=seed, variant=variant)
            return lambda p: ask(p.content)
        model = trainer(part.X, part.y, seed)
        if model is None:
            raise InputError("reference returned None; it must train a model on (X, y, seed) and return it.")
        box = access(model)
        return lambda p: answers(box, p.X, p.y)


def contest(game: Game, *, seed: int, rows: IntArray | None = None) -> Contest:
    """Score the content of a game; with `rows` the classifier is trained on these training records alone."""
    train = joined([game.real["train"].content, game.made["train"].content])
    audit = joined([game.real["audit"].content, game.made["audit"].content])
    member = np.arange(len(train)) < len(game.real["train"])
    if rows is None:
        return Contest(game, member, content_scores(train, member, audit, seed=seed), seed)
    found = content_scores(train.take(rows), member[rows], audit, seed=seed)
    scores = np.zeros(member.size)
    scores[rows] = found.train
    return Contest(game, member, Scored(scores, found.audit), seed)


def _columns(content: FloatArray, seen: Sequence[FloatArray]) -> FloatArray:
    against = [seen[-1][:, 0] - other[:, 0] for other in seen[:-1]]
    if len(against) > 1:
        against.append(np.mean(against, axis=0))
    return np.column_stack([content, *seen, *against])


def anchor_and_pools(game: Game, *, seed: int) -> tuple[Part, dict[str, Part]]:
    """Members for the anchors, and those for stand-ins that are asked about the training or the audit records.

    The anchors get half of D_G, the stand-ins the other half and the part that they are not asked about.
    """
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(game.held))
    cut = round(ANCHOR_SHARE * order.size)
    anchor, rest = _rows(game.held, order[:cut]), _rows(game.held, order[cut:])
    return anchor, {"train": _both(rest, game.real["audit"]), "audit": _both(rest, game.real["train"])}


def stand_in(
    field: Contest, pools: dict[str, Part], *, seed: int, variant: int, trainer: Trainer | None = None
) -> Answers:
    """The answers of two models of one kind, each asked about the part of the members that it never saw.

    Two, so that they can learn from about as many members as the target did and not from D_G alone.
    """
    size = round(STAND_IN_SHARE * min(map(len, pools.values())))
    found = {}
    for name, child in zip(("train", "audit"), np.random.SeedSequence(seed).spawn(2), strict=True):
        drawing, training = child.spawn(2)
        rows = np.random.default_rng(drawing).permutation(len(pools[name]))[:size]
        ask = field.trained(_rows(pools[name], rows), int(training.generate_state(1)[0]), variant, trainer)
        found[name] = np.concatenate([ask(field.game.real[name]), ask(field.game.made[name])])
    return Answers(found["train"], found["audit"])


def _rows(part: Part, rows: IntArray) -> Part:
    return Part(take(part.X, rows), take(part.y, rows), part.content.take(rows))


def _both(first: Part, second: Part) -> Part:
    return Part(_stacked(first.X, second.X), _stacked(first.y, second.y), joined([first.content, second.content]))


def _stacked(first: Any, second: Any) -> Any:
    """Two arrays, tables or lists, one after the other."""
    if first is None or isinstance(first, list):
        return first if first is None else [*first, *second]
    if hasattr(first, "iloc"):
        pandas: Any = import_module("pandas")
        return pandas.concat([first, second])
    return np.concatenate([first, second])
