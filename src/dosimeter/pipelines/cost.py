"""What an audit will take, in time and on disk, from one of its trainings that is done and timed first."""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError, show
from dosimeter.engine import Store
from dosimeter.engine.work import cores
from dosimeter.pipelines.config import Config
from dosimeter.pipelines.launch import ADAPTERS
from dosimeter.pipelines.subjects import Subject
from dosimeter.training import train_many

__all__ = ["Outlook", "PlannedStage", "outlook"]


class PlannedStage(NamedTuple):
    """Trainings of one kind: how many, each on how many records."""

    name: str
    trainings: int
    members: int


@dataclass(frozen=True)
class Outlook:
    """What an audit will take, from a training that was really done and timed.

    `seconds_each` is the processor time of the largest training, `bytes_each` what the store keeps of each.
    """

    name: str
    audit: str
    records: int
    stages: tuple[PlannedStage, ...]
    how: str
    group: int
    seconds_each: float
    workers: int
    seconds: float
    bytes_each: int
    noise_multiplier: float | None

    @property
    def trainings(self) -> int:
        """All trainings of the audit."""
        return sum(stage.trainings for stage in self.stages)

    @property
    def bytes(self) -> int:
        """What the store will hold of them."""
        return self.trainings * self.bytes_each

    def to_dict(self) -> dict[str, Any]:
        """Return plain values only."""
        stages = [stage._asdict() for stage in self.stages]
        return {**asdict(self), "stages": stages, "trainings": self.trainings, "bytes": self.bytes}


@dataclass(frozen=True)
class _Probe:
    """What one task of an audit took: seconds and bytes for each of its `group` models, and how they were trained."""

    seconds: float
    bytes: int
    how: str
    group: int


def outlook(config: Config, subject: Subject) -> Outlook:
    """Time one task of the audit's largest trainings, as the audit would do it, and count all of them.

    Args:
        config: The audit.
        subject: Its records and training, made ready by `subjects.subject`.

    Returns:
        Trainings, time and disk; nothing is kept of the training that was timed.

    Raises:
        InputError: If that training fails.
    """
    stages = _stages(config, subject)
    largest = max(stages, key=lambda stage: stage.members)
    chosen = np.zeros((largest.trainings, subject.records), bool)
    chosen[:, np.random.default_rng(config.seed).permutation(subject.records)[: largest.members]] = True
    with subject.importable():
        probe = (_probe_foreign if subject.recipe is None else _probe_torch)(subject, chosen)
    workers = config.engine.workers or (1 if config.engine.name == "inline" else cores())
    whole = sum(
        math.ceil(math.ceil(stage.trainings / probe.group) / workers)
        * min(probe.group, stage.trainings)
        * (probe.seconds * _visits(subject, stage.members) / _visits(subject, largest.members))
        for stage in stages
    )
    dp = None if subject.recipe is None else subject.recipe.dp
    return Outlook(
        name=subject.name,
        audit=config.audit,
        records=subject.records,
        stages=stages,
        how=probe.how,
        group=probe.group,
        seconds_each=probe.seconds,
        workers=workers,
        seconds=whole,
        bytes_each=probe.bytes,
        noise_multiplier=None if dp is None else dp.noise_multiplier,
    )


def _stages(config: Config, subject: Subject) -> tuple[PlannedStage, ...]:
    """The trainings of an audit, with the defaults of its function for what the configuration leaves out."""
    counts = {
        name: int(getattr(config.budget, name, None) or default)
        for name, default in ADAPTERS[config.audit].trainings.items()
    }
    if config.audit == "training" and config.attack.game == "crossed":  # the shadow models are the runs
        del counts["runs"]
    half = {"shadows": max(1, subject.records // 2)}
    return tuple(PlannedStage(name, count, half.get(name, subject.records)) for name, count in counts.items() if count)


def _visits(subject: Subject, members: int) -> int:
    """How often a training looks at a record: the work is about proportional to it."""
    recipe = subject.recipe
    return members if recipe is None else recipe.length(members) * recipe.batch(members)


def _probe_torch(subject: Subject, chosen: npt.NDArray[np.bool_]) -> _Probe:
    """The first group of the audit's models, trained in this process and stored in a temporary folder."""
    assert subject.recipe is not None
    held = subject.held_out
    with tempfile.TemporaryDirectory(prefix="dosimeter-") as folder:
        trained = train_many(
            subject.train,
            subject.recipe,
            subject.data,
            chosen,
            np.arange(len(chosen)),
            evaluate_on="data" if held is None else np.concatenate([subject.data[0], held[0]]),
            engine="inline",
            store=Store(folder),
        )
        start = time.process_time()
        first = next(trained)
        spent = time.process_time() - start
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    if first.failed is not None:
        raise InputError(f"the first training failed: {first.failed}.")
    group = min(first.plan.group, len(chosen))
    return _Probe(spent / group, size // group, f"{first.plan.strategy}: {first.plan.reason}", group)


def _probe_foreign(subject: Subject, chosen: npt.NDArray[np.bool_]) -> _Probe:
    """One training by the user's function."""
    start = time.monotonic()
    try:
        model = subject.train(np.flatnonzero(chosen[0]), 0)
        ask = next((getattr(model, n) for n in ("predict_proba", "decision_function") if hasattr(model, n)), model)
        outputs = np.asarray(ask(subject.data[0]))
    except Exception as error:  # the training is the user's
        raise InputError(f"the first training raised {type(error).__name__}: {show(str(error), 200)}.") from None
    return _Probe(time.monotonic() - start, outputs.nbytes + 1000, "your own training", 1)
