"""What an audit of gradients records: the typed parts that its page draws and its file holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dosimeter._validate import InputError
from dosimeter.audits.parts import Count, Part, Positive, Rate, Text
from dosimeter.audits.result import Details, TrainedMetadata
from dosimeter.estimate import plain

__all__ = [
    "DETAILS",
    "METADATA",
    "Advantages",
    "BeliefPaths",
    "BeliefsAboveTarget",
    "ChosenNeighbour",
    "EpsilonRow",
    "FinalBeliefs",
    "GradientsDetails",
    "GradientsMetadata",
    "LocalSensitivities",
    "LossAdversary",
    "MeanBeliefs",
    "MedianBeliefs",
    "ModelAccuracy",
    "NoiseSeen",
    "PrivacyTarget",
]


def _same_length(part: str, length: int, **columns: tuple[Any, ...] | None) -> None:
    """Refuse columns of other lengths, which no chart could draw."""
    for name, column in columns.items():
        if column is not None and len(column) != length:
            raise InputError(f"{part}.{name} has {len(column)} entries, {length} belong there.")


# --- what the noise was to reach --------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivacyTarget(Part):
    """The ε that the runs are compared with, and what it allows the adversary.

    `advantage` is 2Φ(μ/2) − 1 of the noise, `advantage_classic` that of Bernau et al. 2021 for (ε, δ). The last four
    are known where the audit trained the models itself: to what the noise was scaled ("global" or "local"), its
    multiplier, the same over the sensitivity, and whether the audit chose it.
    """

    epsilon: Positive | None = None
    delta: Rate | None = None
    mu: Positive | None = None
    belief: Rate | None = None
    advantage: Rate | None = None
    advantage_classic: Rate | None = None
    noise: str | None = None
    noise_multiplier: Positive | None = None
    noise_over_sensitivity: Positive | None = None
    chosen: bool | None = None


@dataclass(frozen=True)
class ChosenNeighbour(Part):
    """Which record D and D′ differ in: the row removed from D, the row of the other records added, and why these.

    `distance` is how far apart they are by the distance named `by`; None where the choice was given.
    """

    kind: str | None = None
    removed: Count | None = None
    added: Count | None = None
    distance: float | None = None
    by: str | None = None


# --- what the adversary saw -------------------------------------------------------------------------------


@dataclass(frozen=True)
class MedianBeliefs(Part):
    """The median belief in D after each step shown, for the runs on D and on D′; None for a world without runs."""

    on_d: tuple[Rate, ...] | None = None
    on_d_prime: tuple[Rate, ...] | None = None


@dataclass(frozen=True)
class BeliefPaths(Part):
    """The beliefs in D over the steps: those of some runs, and the medians of all, from the prior ½ on."""

    step: tuple[Count, ...]
    run: tuple[Count, ...]
    beliefs: tuple[tuple[Rate, ...], ...]
    trained_on_d: tuple[bool, ...]
    median: MedianBeliefs

    def __post_init__(self) -> None:
        if not self.step:
            raise InputError("trajectories.step is empty.")
        _same_length("trajectories", len(self.run), beliefs=self.beliefs, trained_on_d=self.trained_on_d)
        for path in self.beliefs:
            _same_length("trajectories", len(self.step), beliefs=path)
        _same_length("trajectories.median", len(self.step), on_d=self.median.on_d, on_d_prime=self.median.on_d_prime)


@dataclass(frozen=True)
class MeanBeliefs(Part):
    """The mean final belief in D of the runs on D and on D′; None for a world without runs."""

    on_d: Rate | None = None
    on_d_prime: Rate | None = None


@dataclass(frozen=True)
class FinalBeliefs(Part):
    """The shares of runs by their belief after the last step, between the edges of common bins."""

    edges: tuple[Rate, ...]
    on_d: tuple[Rate, ...] | None
    on_d_prime: tuple[Rate, ...] | None
    mean: MeanBeliefs

    def __post_init__(self) -> None:
        if len(self.edges) < 2:
            raise InputError(f"final.edges has {len(self.edges)} entries, at least 2 belong there.")
        _same_length("final", len(self.edges) - 1, on_d=self.on_d, on_d_prime=self.on_d_prime)


@dataclass(frozen=True)
class LocalSensitivities(Part):
    """The distance of the clipped sums of D and D′ over the steps: its median and the middle 90 % of the runs.

    `limit` is the global sensitivity, which clipping enforces; files call it "global", which is not a name in Python.
    """

    step: tuple[Count, ...]
    low: tuple[Positive, ...]
    median: tuple[Positive, ...]
    high: tuple[Positive, ...]
    limit: Positive | None = None
    largest: Positive | None = None

    __pydantic_config__ = {  # noqa: RUF012  (what reads a file looks for it here)
        **Part.__pydantic_config__,
        "alias_generator": lambda name: "global" if name == "limit" else name,
    }

    def __post_init__(self) -> None:
        if not self.step:
            raise InputError("sensitivities.step is empty.")
        _same_length("sensitivities", len(self.step), low=self.low, median=self.median, high=self.high)

    def __getitem__(self, name: str) -> Any:
        return self.limit if name == "global" else super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        return ("global" if name == "limit" else name for name in super().__iter__())

    def to_dict(self) -> dict[str, Any]:
        """Give the fields as strict JSON values, under the names that files have."""
        return {name: plain(self[name]) for name in self}


@dataclass(frozen=True)
class NoiseSeen(Part):
    """The deviation of the noise along Δ over the one that the runs state, with its limits and the number of steps."""

    steps: Count
    ratio: Positive
    low: Positive
    high: Positive | None
    confidence: Rate


# --- what that says ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpsilonRow(Part):
    """One ε′ as the chart shows it: its name, a shorter one for a phone, its interval and its validity."""

    name: str
    phone: str
    epsilon: Positive | None
    low: Positive | None
    high: Positive | None
    validity: str


@dataclass(frozen=True)
class Advantages(Part):
    """The adversary's advantage along the trajectories and by counted guesses; `expected` at the full sensitivity."""

    trajectory: float
    trajectory_low: float
    trajectory_high: float
    counting: float
    counting_low: float
    counting_high: float
    expected: Rate | None = None


@dataclass(frozen=True)
class BeliefsAboveTarget(Part):
    """δ′: how often the belief in the truth ended above that of the target ε, and how often it should.

    `share_low` and `share_high` are `low` and `high` under the names that the first files gave them.
    """

    share: Rate
    low: Rate
    high: Rate
    expected: Rate | None
    epsilon: Positive
    belief: Rate
    repetitions: Count
    confidence: Rate
    share_low: Rate
    share_high: Rate


@dataclass(frozen=True)
class LossAdversary(Part):
    """Yeom's loss-threshold adversary on the same models: the mean advantage, its interval, and the bounds for it.

    The bounds are None where (ε, δ) is not a guarantee.
    """

    advantage: float
    advantage_low: float
    advantage_high: float
    bound_yeom: Rate | None
    bound_generic: Rate | None
    bound_gaussian: Rate | None
    members: Count
    nonmembers: Count


@dataclass(frozen=True)
class ModelAccuracy(Part):
    """The mean accuracy on the test records, their number, and where the middle 90 % of the models lie."""

    accuracy: Rate
    low: Rate
    high: Rate
    records: Count


@dataclass(frozen=True)
class GradientsDetails(Details):
    """What the page of a gradient audit draws; a part is None where the audit could not know it.

    `yeom` and `utility` are there with records to ask the models about, `neighbour` where the audit chose or was given
    D′, `delta_prime` where there is a target, `noise` where a step held the differing record.
    """

    target: PrivacyTarget | None = None
    trajectories: BeliefPaths | None = None
    final: FinalBeliefs | None = None
    sensitivities: LocalSensitivities | None = None
    epsilons: tuple[EpsilonRow, ...] = ()
    advantage: Advantages | None = None
    noise: NoiseSeen | None = None
    delta_prime: BeliefsAboveTarget | None = None
    neighbour: ChosenNeighbour | None = None
    yeom: LossAdversary | None = None
    training_accuracy: Rate | None = None
    utility: ModelAccuracy | None = None


@dataclass(frozen=True, kw_only=True)
class GradientsMetadata(TrainedMetadata):
    """The runs that were watched, and how they were trained where the audit did it.

    `neighbours` is the relation of D and D′, `recipe` what `Recipe.to_dict` gives, `clipping` and `sensitivity` are
    words for the page, `training` says how the models were trained together.
    """

    repetitions: Count | None = None
    trained_on_d: Count | None = None
    steps: Count | None = None
    neighbours: Text | None = None
    neighbour: ChosenNeighbour | None = None
    recipe: Mapping[str, Any] | None = None
    clipping: str | None = None
    sensitivity: str | None = None
    training: str | None = None
    coins_seed: int | None = None
    fingerprint: str | None = None


DETAILS, METADATA = GradientsDetails, GradientsMetadata
