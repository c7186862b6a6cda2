"""DP-SGD under observation: the paper's data sets and networks, and one gradient audit for each cell of its tables."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import Audit
from dosimeter.accounting import Gaussian, noise_for_epsilon, rdp
from dosimeter.audits.gradients.result import GradientsDetails
from dosimeter.datasets import split
from dosimeter.engine import Store
from dosimeter.identifiability import belief_from_epsilon, epsilon_from_advantage, epsilon_from_belief

from ..shared import announce, first_available

CONFIG: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "config.toml").read_text(encoding="utf-8")
)
STEPS, CLIP, RATE = 30, 3.0, 0.005
ORDERS = (*(round(1 + k / 10, 1) for k in range(1, 100)), *range(12, 64))  # those of the released code
BELIEF = 0.9
Records = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def noise(belief: float, delta: float, conversion: str = "classic", neighbours: str = "add/remove") -> float:
    """The paper's noise multiplier: Rényi accounting of 30 full-batch steps; σ/C, so doubled for replaced records."""
    method = "rdp-classic" if conversion == "classic" else "rdp"
    epsilon = float(epsilon_from_belief(belief))
    return noise_for_epsilon(epsilon, delta=delta, steps=STEPS, neighbours=neighbours, method=method, orders=ORDERS)


def epsilon_classic(mu: float, delta: float) -> float:
    """ε of a μ-Gaussian mechanism by the accountant that the paper's noise comes from."""
    return rdp(Gaussian(1 / mu), delta=delta, conversion="classic", orders=ORDERS).epsilon


# --- data and networks ------------------------------------------------------------------------------------


def dense(*sizes: int) -> Any:
    """A network of dense layers with ReLU between them."""
    from torch import nn

    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def convolutional() -> Any:
    """The paper's network for MNIST: twice a 3 × 3 convolution to 16 channels, pooling and normalisation; 10 outputs.

    Batch normalisation mixes the records, so that no gradient belongs to one of them; groups of channels of one record
    are normalised instead.
    """
    from torch import nn

    def block(channels: int) -> list[Any]:
        return [nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(4, 16, affine=False)]

    return nn.Sequential(*block(1), *block(16), nn.Flatten(), nn.Linear(400, 10))


@dataclass(frozen=True)
class Setting:
    """A data set: how many records D has, the network, the distance that chooses D′, the paper's lowest belief."""

    records: int
    factory: Callable[[], Any]
    distance: str
    distances: tuple[str, ...]
    universe: int
    lowest: float = 0.53

    @property
    def delta(self) -> float:
        """1/|D|."""
        return 1 / self.records

    @property
    def beliefs(self) -> tuple[float, ...]:
        """Those of Table 3."""
        return (self.lowest, 0.75, BELIEF, 0.99)


TABULAR = ("hamming", "manhattan", "euclidean", "cosine")
SETTINGS = {
    "adult": Setting(1000, partial(dense, 104, 6, 6, 2), "manhattan", TABULAR, 4000),
    "purchase100": Setting(1000, partial(dense, 600, 128, 100), "hamming", TABULAR, 4000),
    "location30": Setting(1000, partial(dense, 446, 128, 30), "hamming", TABULAR, 3000),
    "mnist": Setting(100, convolutional, "negative-ssim-8x8", ("negative-ssim-8x8", "euclidean"), 2000, 0.52),
    "digits": Setting(200, partial(dense, 64, 16, 10), "euclidean", ("euclidean", "manhattan"), 800),
}


@dataclass(frozen=True, eq=False)
class Parts:
    """D, the other records of the universe, and test records, drawn at random and disjoint."""

    name: str
    inside: Records
    others: Records
    test: Records

    @property
    def setting(self) -> Setting:
        """The setting of this data set."""
        return SETTINGS[self.name]


@lru_cache(maxsize=4)
def parts(size: str, which: str) -> Parts:
    """The records of one data set of the paper; a named substitute where its file is missing."""
    given = CONFIG[size][which]
    whole = first_available(given["data"])
    setting = SETTINGS[whole.name]
    found = split(whole, sizes=(setting.records, setting.universe, given["test"]), seed=0)
    return Parts(whole.name, *(_numbers(whole.name, *part.pair) for part in found))


def _numbers(name: str, x: Any, y: Any) -> Records:
    values = np.asarray(x, np.float32)
    if name == "mnist":
        values = values.reshape(len(values), 1, 28, 28)
    elif name == "digits":
        values = (values / 16).astype(np.float32)
    return values, np.asarray(y, np.int64)


# --- one cell ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way to train: how D and D′ differ, what the noise is scaled to, and the belief that it aims at."""

    neighbours: str
    scale: str
    belief: float = BELIEF

    @property
    def short(self) -> str:
        """The paper's abbreviation, e.g. "LS B"."""
        return f"{'LS' if self.scale == 'local' else 'GS'} {'B' if self.neighbours == 'bounded' else 'U'}"


WAYS = tuple(
    Way(n, s) for n, s in (("bounded", "local"), ("unbounded", "local"), ("bounded", "global"), ("unbounded", "global"))
)


@dataclass(frozen=True, eq=False)
class Cell:
    """What a gradient audit of one way measured."""

    way: Way
    audit: Audit
    delta: float

    @property
    def details(self) -> GradientsDetails:
        """The parts of the audit."""
        assert isinstance(self.audit.details, GradientsDetails)
        return self.audit.details

    @property
    def epsilon(self) -> float:
        """The target."""
        return float(epsilon_from_belief(self.way.belief))

    @property
    def advantage(self) -> float:
        """The mean of 2Φ(√s/2) − 1 over the runs, s the sum of LS²/σ²: counting has the same mean and more variance."""
        assert self.details.advantage is not None
        return self.details.advantage.trajectory

    @property
    def counted(self) -> tuple[float, float]:
        """The advantage by counted guesses, as in the paper, and its standard error."""
        assert self.details.advantage is not None
        value = self.details.advantage.counting
        return value, float(np.sqrt(max(1 - value**2, 0.0) / self.runs))

    @property
    def runs(self) -> int:
        """How many models were trained."""
        count = self.audit.metadata["repetitions"]
        return int(count)

    @property
    def excess(self) -> float:
        """δ′: the probability of a belief above the target, from the sensitivities of the runs."""
        assert self.details.delta_prime is not None and self.details.delta_prime.expected is not None
        return self.details.delta_prime.expected

    @property
    def largest_belief(self) -> float:
        """The largest final belief in the truth over all runs."""
        return float(belief_from_epsilon(max(self.by_beliefs, 0.0)))

    @property
    def by_sensitivities(self) -> float:
        """ε′ of the worst run, by the accountant of the noise."""
        (found,) = (e for e in self.audit.estimates if e.method == "sensitivities")
        return epsilon_classic(found.details["mu"]["highest"], self.delta)

    @property
    def by_beliefs(self) -> float:
        """ε′ of the largest belief."""
        (found,) = (e for e in self.audit.estimates if e.method == "beliefs")
        return found.epsilon

    @property
    def by_advantage(self) -> float:
        """ε′ of the counted advantage by Theorem 3; the paper's Eq. (6) lacks its factor 2."""
        return float(epsilon_from_advantage(max(self.counted[0], 0.0), delta=self.delta, method="classic"))


@lru_cache(maxsize=128)
def cell(size: str, which: str, way: Way, store: Store | None) -> Cell:
    """One gradient audit: trained once, then read from the store."""
    found = parts(size, which)
    given = CONFIG[size][which]
    count = given["repetitions" if way.belief == BELIEF else "others"]
    announce(f"identifiability, {size}: {found.name}, {way.short}, ρ = {way.belief:g}, {count} models")
    audit = observed(found, way, count, store, test=found.test, distance=found.setting.distance)
    return Cell(way, audit, found.setting.delta)


def observed(found: Parts, way: Way, repetitions: int, store: Store | None, **given: Any) -> Audit:
    """Train models under observation; `given` says how D′ is chosen, and what the models are asked about."""
    from dosimeter.audits.gradients import audit_gradients
    from dosimeter.engine import RunOptions
    from dosimeter.training import Privacy, Recipe

    delta = found.setting.delta
    relation = "replace" if way.neighbours == "bounded" and way.scale == "global" else "add/remove"
    dp = Privacy(noise(way.belief, delta, neighbours=relation), CLIP, sensitivity=way.scale)
    # The released code trains with Adam at the paper's rate; plain SGD would hardly leave its start in 30 steps.
    return audit_gradients(
        found.setting.factory,
        found.inside,
        recipe=Recipe("adam", RATE, steps=STEPS, batch_size=None, dp=dp),
        universe=found.others,
        neighbours=way.neighbours,
        epsilon=float(epsilon_from_belief(way.belief)),
        delta=delta,
        repetitions=repetitions,
        seed=1,
        run=RunOptions(store=store, progress=store is not None),
        name=f"{found.name}, {way.short}, ρ = {way.belief:g}",
        **given,
    )
