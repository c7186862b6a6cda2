"""The privacy-utility landscape: ε* and accuracy of many models of many strategies, Theorem 2 for their repeats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import epsilon_star, epsilon_star_mechanism
from dosimeter.accounting import noise_for_epsilon
from dosimeter.audits.compare.landscape import VALUE, Point
from dosimeter.audits.compare.landscape import strategies as summarised
from dosimeter.datasets import split
from dosimeter.engine import Store
from dosimeter.models.outputs import losses_from_logits
from dosimeter.training import Privacy, Recipe, train_many
from dosimeter.training.networks import network

from ..shared import announce, first_available

Settings = dict[str, Any]


@dataclass(frozen=True)
class Strategy:
    """A way to train; without ε there is no DP-SGD."""

    epochs: int
    batch_size: int
    epsilon: float | None = None
    clip: float | None = None

    @property
    def group(self) -> str:
        return "no DP" if self.epsilon is None else f"DP, ε = {self.epsilon:g}"

    @property
    def name(self) -> str:
        clip = "" if self.clip is None else f", clip {self.clip:g}"
        length = f"{self.epochs} epoch" + "s" * (self.epochs > 1)
        return f"{self.group}{clip}, {length}, batch {self.batch_size}"


@dataclass(frozen=True)
class Outcome:
    """The repeats of one strategy: ε*, accuracy on non-members, and both sides of Theorem 2."""

    strategy: Strategy
    epsilons: tuple[float, ...]
    accuracies: tuple[float, ...]
    mean_rates: float
    mean_of_models: float
    losses: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
    """Member and non-member losses of the first repeat."""


def strategies(settings: Settings) -> list[Strategy]:
    """Every combination of the settings, those without DP first in each batch size and number of epochs."""
    found = []
    for batch in settings["batch_sizes"]:
        for epochs in settings["epochs"]:
            found.append(Strategy(epochs, batch))
            found += [Strategy(epochs, batch, e, c) for e in settings["epsilons"] for c in settings["clips"]]
    return found


def explore(settings: Settings, store: Store | None, *, seed: int = 0) -> tuple[str, list[Outcome]]:
    """Train every strategy on the same random halves of the records; the name of the data set and the outcomes."""
    whole = first_available(settings["data"])
    members = min(settings["members"], len(whole) // 2)
    (part,) = split(whole, sizes=(2 * members,), seed=seed)
    x, y = part.pair
    assert y is not None
    halves = np.zeros((settings["repeats"], 2 * members), bool)
    for row, child in zip(halves, np.random.SeedSequence(seed).spawn(len(halves)), strict=True):
        row[np.random.default_rng(child).permutation(2 * members)[:members]] = True
    factory = network("mlp", x, len(whole.class_names), hidden=settings["hidden"])
    rate = settings["learning_rate"]
    outcomes, tried = [], strategies(settings)
    for at, strategy in enumerate(tried, start=1):
        announce(f"epsilon*, {whole.name}: {at} of {len(tried)}, {strategy.name}")
        outcomes.append(_outcome(strategy, factory, rate, (x, y), halves, store))
    return whole.name, outcomes


def recipe(strategy: Strategy, members: int, learning_rate: float) -> Recipe:
    """How a strategy trains this many members: Adam, and noise for its ε by Rényi accounting where it has one."""
    batch = min(strategy.batch_size, members)
    if strategy.epsilon is None or strategy.clip is None:
        return Recipe("adam", learning_rate, epochs=strategy.epochs, batch_size=batch)
    steps = strategy.epochs * math.ceil(members / batch)
    given = {"delta": delta_for(members), "sample_rate": batch / members, "steps": steps, "method": "rdp"}
    return Recipe(
        "adam",
        learning_rate,
        epochs=strategy.epochs,
        batch_size=batch,
        sampling="poisson",
        dp=Privacy(noise_for_epsilon(strategy.epsilon, **given), strategy.clip),
    )


def delta_for(members: int) -> float:
    """The paper's δ."""
    return 1 / (members * math.log(members))


def _outcome(
    strategy: Strategy,
    factory: Any,
    rate: float,
    data: tuple[Any, Any],
    halves: npt.NDArray[np.bool_],
    store: Store | None,
) -> Outcome:
    x, y = data
    members = int(halves[0].sum())
    delta = delta_for(members)
    pairs, accuracies = [], []
    seeds = range(len(halves))
    how = recipe(strategy, members, rate)
    trained = train_many(factory, how, (x, y), halves, seeds, evaluate_on="data", group=len(halves), store=store)
    for model, inside in zip(trained, halves, strict=True):
        if model.outputs is None:
            raise RuntimeError(f"{strategy.name}, repeat {model.index}: {model.failed}")
        losses = losses_from_logits(model.outputs, y)
        pairs.append((losses[inside], losses[~inside]))
        accuracies.append(float(np.mean(model.outputs.argmax(axis=1)[~inside] == y[~inside])))
    theorem = epsilon_star_mechanism(pairs, delta=delta)
    return Outcome(
        strategy,
        tuple(epsilon_star(*pair, delta=delta, resamples=0).epsilon for pair in pairs),
        tuple(accuracies),
        theorem.details["mean_rates"],
        theorem.details["mean_of_models"],
        pairs[0],
    )


def points(outcomes: list[Outcome]) -> list[Point]:
    """The points of the picture: mean and range over the repeats, and whether the frontier goes through them."""
    rows = [(o.strategy, e, a) for o in outcomes for e, a in zip(o.epsilons, o.accuracies, strict=True)]
    return summarised(
        np.array([e for _, e, _ in rows]),
        np.array([a for _, _, a in rows]),
        [s.name for s, _, _ in rows],
        [s.group for s, _, _ in rows],
        [VALUE] * len(rows),
    )


def without_dp(outcomes: list[Outcome]) -> Outcome:
    """The longest training without DP."""
    return max((o for o in outcomes if o.strategy.epsilon is None), key=lambda o: o.strategy.epochs)


def with_most_dp(outcomes: list[Outcome]) -> Outcome:
    """The longest training with the smallest ε."""
    private = [o for o in outcomes if o.strategy.epsilon is not None]
    return min(private, key=lambda o: (o.strategy.epsilon, -o.strategy.epochs))
