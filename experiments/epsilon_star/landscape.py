"""The privacy-utility landscape: ε* and utility of many models of many strategies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import Scores, epsilon_star
from dosimeter.accounting import noise_for_epsilon
from dosimeter.audits.compare.landscape import VALUE, Point
from dosimeter.audits.compare.landscape import strategies as summarised
from dosimeter.datasets import Dataset
from dosimeter.engine import Store
from dosimeter.models.outputs import losses_from_logits
from dosimeter.training import Privacy, Recipe, train_many
from dosimeter.training.networks import network

from ..shared import announce, first_available

Settings = dict[str, Any]
RATE, MOMENTUM = 0.01, 0.9


@dataclass(frozen=True)
class Strategy:
    """A way to train; without ε there is no DP-SGD."""

    epochs: int
    batch_size: int
    epsilon: float | None = None
    clip: float | None = None
    microbatches: int | None = None

    @property
    def group(self) -> str:
        """Its category in the picture."""
        return "no DP" if self.epsilon is None else f"DP, ε = {self.epsilon:g}"

    @property
    def name(self) -> str:
        """All of it in words."""
        clip = "" if self.clip is None else f", clip {self.clip:g}, micro-batches {self.microbatches}"
        length = f"{self.epochs} epoch" + "s" * (self.epochs > 1)
        return f"{self.group}{clip}, {length}, batch {self.batch_size}"


@dataclass(frozen=True)
class Outcome:
    """The models of one strategy: ε*, utility on non-members, training accuracy, and the losses of the first."""

    strategy: Strategy
    epsilons: tuple[float, ...]
    utilities: tuple[float, ...]
    training_accuracy: float
    losses: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]

    @property
    def mean(self) -> float:
        """ε*, mean over the models."""
        return float(np.mean(self.epsilons))

    @property
    def utility(self) -> float:
        """Utility, mean over the models."""
        return float(np.mean(self.utilities))


@dataclass(frozen=True)
class Landscape:
    """All strategies on one data set; the utility is AUROC for two classes and accuracy for more."""

    data: str
    members: int
    nonmembers: int
    measure: str
    outcomes: tuple[Outcome, ...]

    @property
    def plain(self) -> list[Outcome]:
        """Without DP, the shortest training first."""
        return sorted((o for o in self.outcomes if o.strategy.epsilon is None), key=lambda o: o.strategy.epochs)

    @property
    def private(self) -> list[Outcome]:
        """With DP."""
        return [o for o in self.outcomes if o.strategy.epsilon is not None]

    @property
    def most_private(self) -> Outcome:
        """The smallest ε with the smallest clipping norm and the most micro-batches."""
        return min(self.private, key=lambda o: (o.strategy.epsilon, o.strategy.clip, -(o.strategy.microbatches or 0)))

    @property
    def points(self) -> list[Point]:
        """The points of the picture: mean and range over the models, and whether the frontier goes through them."""
        rows = [(o.strategy, e, u) for o in self.outcomes for e, u in zip(o.epsilons, o.utilities, strict=True)]
        return summarised(
            np.array([e for _, e, _ in rows]),
            np.array([u for _, _, u in rows]),
            [s.name for s, _, _ in rows],
            [s.group for s, _, _ in rows],
            [VALUE] * len(rows),
        )


def strategies(settings: Settings) -> list[Strategy]:
    """Those without DP, then every combination with DP."""
    sizes = settings["batch_sizes"]
    found = [Strategy(epochs, sizes[0]) for epochs in settings["epochs"]]
    grid = product(settings["epsilons"], settings["clips"], sizes, settings["microbatches"])
    return found + [Strategy(settings["dp_epochs"], b, e, c, m) for e, c, b, m in grid]


def explore(settings: Settings, store: Store | None, *, seed: int = 0) -> Landscape:
    """Train every strategy several times on the same records."""
    whole = first_available(settings["data"])
    inside = _members(whole, settings, seed)
    x, y = whole.pair
    assert y is not None
    data = np.asarray(x, np.float32), np.asarray(y)
    factory = network("mlp", data[0], len(whole.class_names), hidden=settings["hidden"])
    outcomes, tried = [], strategies(settings)
    for at, strategy in enumerate(tried, start=1):
        announce(f"epsilon*, {whole.name}: {at} of {len(tried)}, {strategy.name}")
        outcomes.append(_outcome(strategy, factory, data, inside, settings["repeats"], store))
    measure = "AUROC" if len(whole.class_names) == 2 else "accuracy"
    return Landscape(whole.name, int(inside.sum()), int((~inside).sum()), measure, tuple(outcomes))


def _members(whole: Dataset, settings: Settings, seed: int) -> npt.NDArray[np.bool_]:
    """The fixed split: the first records of Adult (its training file), a random share elsewhere."""
    inside = np.zeros(len(whole), bool)
    if "members" in settings:
        inside[: settings["members"]] = True
    else:
        order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(whole))
        inside[order[: round(settings["share"] * len(whole))]] = True
    return inside


def recipe(strategy: Strategy, members: int) -> Recipe:
    """How a strategy trains this many members: SGD with momentum, and noise for its ε by Rényi accounting."""
    batch = min(strategy.batch_size, members)
    given: dict[str, Any] = {"momentum": MOMENTUM, "epochs": strategy.epochs, "batch_size": batch}
    if strategy.epsilon is None or strategy.clip is None:
        return Recipe("sgd", RATE, **given)
    steps = strategy.epochs * math.ceil(members / batch)
    asked: dict[str, Any] = {
        "delta": delta_for(members),
        "sample_rate": batch / members,
        "steps": steps,
        "method": "rdp",
    }
    quiet = Privacy(0.0, strategy.clip, microbatches=strategy.microbatches)
    noise = quiet.reach * noise_for_epsilon(strategy.epsilon, **asked)
    dp = Privacy(noise, strategy.clip, microbatches=strategy.microbatches)
    return Recipe("sgd", RATE, sampling="poisson", dp=dp, **given)


def delta_for(members: int) -> float:
    """The paper's δ."""
    return 1 / (members * math.log(members))


def _outcome(
    strategy: Strategy,
    factory: Any,
    data: tuple[Any, Any],
    inside: npt.NDArray[np.bool_],
    repeats: int,
    store: Store | None,
) -> Outcome:
    _, y = data
    members = int(inside.sum())
    masks = np.repeat(inside[None], repeats, axis=0)
    how = recipe(strategy, members)
    given: dict[str, Any] = {"evaluate_on": "data", "group": repeats, "store": store}
    pairs, utilities, right = [], [], []
    for model in train_many(factory, how, data, masks, range(repeats), **given):
        if model.outputs is None:
            raise RuntimeError(f"{strategy.name}, repeat {model.index}: {model.failed}")
        losses = losses_from_logits(model.outputs, y)
        pairs.append((losses[inside], losses[~inside]))
        utilities.append(_utility(model.outputs[~inside], y[~inside]))
        right.append(float(np.mean(model.outputs[inside].argmax(axis=1) == y[inside])))
    delta = delta_for(members)
    return Outcome(
        strategy,
        tuple(epsilon_star(*pair, delta=delta, resamples=0).epsilon for pair in pairs),
        tuple(utilities),
        float(np.mean(right)),
        pairs[0],
    )


def _utility(logits: npt.NDArray[Any], y: npt.NDArray[Any]) -> float:
    """AUROC for two classes, accuracy for more."""
    if logits.shape[1] > 2:
        return float(np.mean(logits.argmax(axis=1) == y))
    signal = (logits[:, 1] - logits[:, 0]).astype(np.float64)
    return Scores(signal[y == 1], signal[y == 0]).auc
