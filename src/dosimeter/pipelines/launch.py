"""Run what a configuration says: which function, with which arguments, and beforehand what it will take."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints, is_typeddict

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError, show
from dosimeter.audits.model import audit_model
from dosimeter.audits.result import Audit
from dosimeter.audits.training.shadows import counted, provenance
from dosimeter.engine import RunOptions, Store
from dosimeter.engine.pool import cores
from dosimeter.pipelines import config as settings
from dosimeter.pipelines.own_order import in_own_order
from dosimeter.pipelines.subjects import CommandTraining, Subject, imported
from dosimeter.training import train_many

ANYWHERE = ("engine.name", "engine.workers", "budget.memory", "budget.timeout")  # one training may heed them too


@dataclass(frozen=True)
class Kind:
    """A kind of audit: its function, its first arguments and the settings that only it has, and its trainings."""

    module: str
    function: str
    arguments: Callable[[Subject, settings.Config, Store], tuple[tuple[Any, ...], dict[str, Any]]]
    trainings: tuple[str, ...] = ()

    def find(self) -> Callable[..., Audit]:
        """The function itself."""
        found: Callable[..., Audit] = getattr(importlib.import_module(self.module), self.function)
        return found


def launch(
    config: settings.Config, subject: Subject, *, store: Store, base: Path = Path(), progress: bool = True
) -> Audit:
    """Run the audit; what the store holds is not trained again. Rows are those of the data set, in its own order."""
    kind = KINDS[config.audit]
    function = kind.find()
    first, own = kind.arguments(subject, config, store)
    given = {**_settings(config, base), **own}
    if "points" in given:
        given["points"] = subject.places.positions("attack.points", given["points"])
    known = keywords_of(function)
    for field, (name, _) in _set_by_the_user(config).items():
        if name not in known and field not in ANYWHERE:
            raise InputError(f"{field} has no meaning for audit = {config.audit!r}; leave it out.")
    common: dict[str, Any] = {"name": subject.name, "store": store, "progress": progress}
    if config.audit in ("model", "members-only") or "seed" in config.model_fields_set:
        common["seed"] = config.seed  # else an audit that throws coins draws a fresh seed and keeps it in the store
    given = {**common, **given}
    if "run" in known:
        given["run"] = RunOptions(**{name: given.pop(name) for name in _WHERE if name in given})
    options = {name: value for name, value in given.items() if name in known}
    audit = in_own_order(function(*first, **options), subject.places, config.attack.canaries)
    if subject.fingerprint is None:
        return audit
    return replace(audit, metadata={**audit.metadata, "fingerprint": subject.fingerprint})


_WHERE = ("engine", "workers", "store", "memory", "timeout", "progress")


def keywords_of(function: Callable[..., Audit]) -> set[str]:
    """What a function takes by name, also as one of its **options."""
    rare = (get_args(hint) for hint in get_type_hints(function).values())
    return {*inspect.signature(function).parameters, *(name for part in rare for name in _fields(part))}


def _fields(part: tuple[Any, ...]) -> set[str]:
    return set(get_type_hints(part[0])) if part and is_typeddict(part[0]) else set()


def _set_by_the_user(config: settings.Config) -> dict[str, tuple[str, Any]]:
    """Settings that stand in the configuration: by field, the name of the argument and the value."""
    renamed = {"attack.name": "attack", "engine.name": "engine", "budget.canaries": "count"}
    found = {}
    for section in ("attack", "estimate", "budget", "engine"):
        part = getattr(config, section)
        for name in sorted(part.model_fields_set):
            if (value := getattr(part, name)) is not None:
                field = f"{section}.{name}"
                found[field] = (renamed.get(field, name), value)
    return found


def _settings(config: settings.Config, base: Path) -> dict[str, Any]:
    given = dict(_set_by_the_user(config).values())
    if "signal" in given:
        given["signal"] = imported("attack.signal", given["signal"], base)
    if "claim" in given:
        given["claim"] = (given["claim"], config.estimate.delta)
    return given


# --- the kinds --------------------------------------------------------------------------------------------


def _trained(subject: Subject, config: settings.Config, store: Store) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (subject.train, subject.data), {"recipe": subject.recipe, "nonmembers": subject.held_out}


def _gradients(subject: Subject, config: settings.Config, store: Store) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if subject.recipe is None or config.recipe.dp is None:
        raise InputError("recipe.dp is missing, but a gradient audit is one of DP-SGD with a torch model; add it.")
    recipe, target = subject.recipe, {}
    if config.recipe.dp.epsilon is not None and recipe.dp is not None:  # the audit finds the noise for its neighbours
        recipe = replace(recipe, dp=replace(recipe.dp, noise_multiplier=0.0))
        target = {"epsilon": config.recipe.dp.epsilon}
    return (subject.train, subject.data), {"recipe": recipe, "universe": subject.held_out, **target}


def _one_model(subject: Subject, config: settings.Config, store: Store) -> tuple[tuple[Any, ...], dict[str, Any]]:
    model, cached = one_model(subject, config, store)
    return (model,), {
        "members": subject.data,
        "nonmembers": subject.held_out,
        "mechanism": subject.mechanism(subject.records),
        "metadata": {
            "name": subject.name,
            "data": subject.source,
            "trainings": counted(1),
            "provenance": provenance(None, {}, computed=1 - cached, cached=int(cached)),
        },
    }


def _members_only(subject: Subject, config: settings.Config, store: Store) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (one_model(subject, config, store)[0], subject.data), {"nonmembers": subject.held_out}


def one_model(subject: Subject, config: settings.Config, store: Store) -> tuple[Any, bool]:
    """One model that is trained on all of the subject's records, and whether the store held it."""
    if isinstance(subject.train, CommandTraining):
        raise InputError(
            f"model.command gives outputs and no model, which audit = {config.audit!r} needs; use audit = 'training'."
        )
    if subject.recipe is None:
        return subject.train(np.arange(subject.records), config.seed), False
    everyone = np.ones((1, subject.records), bool)
    found = next(
        train_many(
            subject.train,
            subject.recipe,
            subject.data,
            everyone,
            [config.seed],
            return_models=True,
            engine=config.engine.name,
            processes=config.engine.workers,
            store=store,
            memory=config.budget.memory,
            timeout=config.budget.timeout,
        )
    )
    if found.failed is not None:
        raise InputError(f"the model could not be trained: {found.failed}.")
    return found.module(subject.train), found.cached


KINDS: Mapping[str, Kind] = {
    "training": Kind("dosimeter.audits.training.run", "audit_training", _trained, ("shadows", "runs")),
    "one-run": Kind("dosimeter.audits.one_run.run", "audit_one_run", _trained, ("shadows",)),
    "gradients": Kind("dosimeter.audits.gradients.run", "audit_gradients", _gradients, ("repetitions",)),
    "members-only": Kind("dosimeter.audits.members_only.run", "audit_members_only", _members_only),
    "model": Kind(audit_model.__module__, audit_model.__name__, _one_model),
}


class FreshStore(Store):
    """A store that keeps what is computed now and does not look at what it held before."""

    claims = False

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(folder)
        self._own: set[str] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._own and super().__contains__(key)

    def put(self, key: str, arrays: Mapping[str, npt.NDArray[Any]], info: Mapping[str, Any] | None = None) -> None:
        """Keep arrays and info under a key."""
        super().put(key, arrays, info)
        self._own.add(key)


# --- what it will take ------------------------------------------------------------------------------------


class Stage(NamedTuple):
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
    stages: tuple[Stage, ...]
    how: str
    group: int
    seconds_each: float
    workers: int
    seconds: float
    bytes_each: int
    noise_multiplier: float | None

    @property
    def trainings(self) -> int:
        return sum(stage.trainings for stage in self.stages)

    @property
    def bytes(self) -> int:
        return self.trainings * self.bytes_each

    def to_dict(self) -> dict[str, Any]:
        """Plain values only."""
        stages = [stage._asdict() for stage in self.stages]
        return {**asdict(self), "stages": stages, "trainings": self.trainings, "bytes": self.bytes}


def outlook(config: settings.Config, subject: Subject) -> Outlook:
    """Time one task of the audit's largest trainings as the audit would do it, and count."""
    stages = _stages(config, subject)
    largest = max(stages, key=lambda stage: stage.members)
    chosen = np.zeros((largest.trainings, subject.records), bool)
    chosen[:, np.random.default_rng(config.seed).permutation(subject.records)[: largest.members]] = True
    probe = _probe_foreign if subject.recipe is None else _probe_torch
    seconds, size, how, group = probe(subject, chosen)
    workers = config.engine.workers or (1 if config.engine.name == "inline" else cores())
    whole = sum(
        math.ceil(math.ceil(stage.trainings / group) / workers)
        * min(group, stage.trainings)
        * (seconds * _visits(subject, stage.members) / _visits(subject, largest.members))
        for stage in stages
    )
    dp = None if subject.recipe is None else subject.recipe.dp
    noise = None if dp is None else dp.noise_multiplier
    return Outlook(
        subject.name, config.audit, subject.records, stages, how, group, seconds, workers, whole, size, noise
    )


def _stages(config: settings.Config, subject: Subject) -> tuple[Stage, ...]:
    """The trainings of an audit, with the defaults of its function for what the configuration leaves out."""
    kind = KINDS[config.audit]
    defaults = inspect.signature(kind.find()).parameters
    counts = {name: int(getattr(config.budget, name) or defaults[name].default) for name in kind.trainings}
    if config.audit == "training" and config.attack.game == "crossed":
        del counts["runs"]
    if config.audit in ("one-run", "members-only", "model"):
        counts = {"models": 1, **counts}
    half = {"shadows": max(1, subject.records // 2)}
    return tuple(Stage(name, count, half.get(name, subject.records)) for name, count in counts.items() if count)


def _visits(subject: Subject, members: int) -> int:
    """How often a training looks at a record: the work is about proportional to it."""
    recipe = subject.recipe
    return members if recipe is None else recipe.length(members) * recipe.batch(members)


def _probe_torch(subject: Subject, chosen: npt.NDArray[np.bool_]) -> tuple[float, int, str, int]:
    """The first group of the audit's models, trained in this process and stored in a temporary folder."""
    assert subject.recipe is not None
    held = subject.held_out
    with tempfile.TemporaryDirectory(prefix="dosimeter-") as folder:
        found = train_many(
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
        first = next(found)
        spent = time.process_time() - start
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    if first.failed is not None:
        raise InputError(f"the first training failed: {first.failed}.")
    group = min(first.plan.group, len(chosen))
    return spent / group, size // group, f"{first.plan.strategy}: {first.plan.reason}", group


def _probe_foreign(subject: Subject, chosen: npt.NDArray[np.bool_]) -> tuple[float, int, str, int]:
    start = time.monotonic()
    try:
        model = subject.train(np.flatnonzero(chosen[0]), 0)
        ask = next((getattr(model, n) for n in ("predict_proba", "decision_function") if hasattr(model, n)), model)
        outputs = np.asarray(ask(subject.data[0]))
    except Exception as error:  # the training is the user's
        raise InputError(f"the first training raised {type(error).__name__}: {show(str(error), 200)}.") from None
    return time.monotonic() - start, outputs.nbytes + 1000, "a training of your own, one a process", 1
