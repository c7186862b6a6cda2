"""Run the audit that a configuration describes: one adapter for each kind, from the file to the function."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError
from dosimeter.audits.gradients import audit_gradients
from dosimeter.audits.members_only import audit_members_only
from dosimeter.audits.model import audit_model
from dosimeter.audits.one_run import audit_one_run
from dosimeter.audits.result import Audit, Provenance, TrainingCounts
from dosimeter.audits.training import audit_training
from dosimeter.engine import RunOptions, Store
from dosimeter.pipelines.config import TAKES, Config
from dosimeter.pipelines.language_audit import LanguageTraining, language_audit
from dosimeter.pipelines.own_order import in_own_order
from dosimeter.pipelines.subjects import CommandTraining, Subject, imported
from dosimeter.training import train_many

__all__ = ["ADAPTERS", "Adapter", "FreshStore", "launch"]


@dataclass(frozen=True)
class Job:
    """What an adapter hands on: what is audited, the file, where to run, and the arguments that the file sets."""

    subject: Subject
    config: Config
    run: RunOptions
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Adapter:
    """Say how one kind of audit is called from a configuration.

    Args:
        function: The audit; `config.TAKES` lists the settings that become its arguments.
        call: Calls it with the subject of a job.
        trainings: How many models it trains in each stage if the file sets no number: the defaults of the function.
        fresh_coins: Whether it draws a fresh seed, and keeps it in the store, if the file has none.
    """

    function: Callable[..., Audit]
    call: Callable[[Job], Audit]
    trainings: Mapping[str, int]
    fresh_coins: bool


def launch(config: Config, subject: Subject, *, store: Store, progress: bool = True) -> Audit:
    """Run the audit of a configuration.

    Args:
        config: What to run.
        subject: The records and the training, made ready by `subjects.subject`.
        store: Where finished trainings are kept; what it holds is not trained again.
        progress: Whether a bar on standard error shows the time left.

    Returns:
        The audit; rows are those of the data set, in its own order.

    Raises:
        InputError: If a setting cannot be used.
    """
    adapter = ADAPTERS[config.audit]
    run = RunOptions(
        engine=config.engine.name,
        workers=config.engine.workers,
        device=config.engine.device,
        store=store,
        memory=config.budget.memory,
        timeout=config.budget.timeout,
        progress=progress,
    )
    with subject.importable():  # until the last training is done: it may import modules of the user
        arguments = _arguments(config, subject)
        if not adapter.fresh_coins or "seed" in config.model_fields_set:
            arguments["seed"] = config.seed
        audit = adapter.call(Job(subject, config, run, {**arguments, "run": run}))
    audit = in_own_order(audit, subject.places, config.attack.canaries)
    if subject.fingerprint is None:
        return audit
    return replace(audit, metadata=replace(audit.metadata, fingerprint=subject.fingerprint))  # type: ignore[call-arg]


def _arguments(config: Config, subject: Subject) -> dict[str, Any]:
    """The settings in the file as arguments of the audit's function."""
    found = {TAKES[config.audit][field]: value for field, value in config.given().items()}
    if "signal" in found:
        found["signal"] = imported("attack.signal", found["signal"])
    if "claim" in found:
        found["claim"] = (found["claim"], config.estimate.delta)
    if "points" in found:
        found["points"] = subject.places.positions("attack.points", found["points"])
    return found


# --- the adapters -----------------------------------------------------------------------------------------


def _training(job: Job) -> Audit:
    subject = job.subject
    return audit_training(
        subject.train,
        subject.data,
        recipe=subject.recipe,
        nonmembers=subject.held_out,
        name=subject.name,
        **job.arguments,
    )


def _one_run(job: Job) -> Audit:
    subject = job.subject
    return audit_one_run(
        subject.train,
        subject.data,
        recipe=subject.recipe,
        nonmembers=subject.held_out,
        name=subject.name,
        **job.arguments,
    )


def _gradients(job: Job) -> Audit:
    subject, dp = job.subject, job.config.recipe.dp
    recipe = subject.recipe
    if recipe is None or recipe.dp is None or dp is None:
        raise InputError("recipe.dp is missing, but a gradient audit is one of DP-SGD with a torch model; add it.")
    if dp.epsilon is not None:  # the audit finds the noise for its neighbours
        recipe = replace(recipe, dp=replace(recipe.dp, noise_multiplier=0.0))
    return audit_gradients(
        subject.train,
        subject.data,
        recipe=recipe,
        universe=subject.held_out,
        epsilon=dp.epsilon,
        name=subject.name,
        **job.arguments,
    )


def _model(job: Job) -> Audit:
    subject = job.subject
    model, cached = _one_model(job)
    return audit_model(
        model,
        members=subject.data,
        nonmembers=subject.held_out,
        mechanism=subject.mechanism(subject.records),
        metadata={
            "name": subject.name,
            "data": subject.source,
            "trainings": TrainingCounts(asked=1, done=1),
            "provenance": Provenance(computed=1 - cached, cached=int(cached)),
        },
        **job.arguments,
    )


def _members_only(job: Job) -> Audit:
    subject = job.subject
    model, _ = _one_model(job)
    return audit_members_only(model, subject.data, nonmembers=subject.held_out, name=subject.name, **job.arguments)


def _text(job: Job) -> Audit:
    assert isinstance(job.subject.train, LanguageTraining)
    return language_audit(job.subject.train, name=job.subject.name, **job.arguments)


def _one_model(job: Job) -> tuple[Any, bool]:
    """One model that is trained on all of the subject's records, and whether the store held it."""
    subject, config = job.subject, job.config
    if isinstance(subject.train, CommandTraining):
        raise InputError(
            f"model.command gives outputs and no model, which audit = {config.audit!r} needs; use audit = 'training'."
        )
    if subject.recipe is None:
        return subject.train(np.arange(subject.records), config.seed), False
    trained = next(
        train_many(
            subject.train,
            subject.recipe,
            subject.data,
            np.ones((1, subject.records), bool),
            [config.seed],
            return_models=True,
            engine=job.run.engine,
            workers=job.run.workers,
            store=job.run.store,
            memory=job.run.memory,
            timeout=job.run.timeout,
        )
    )
    if trained.failed is not None:
        raise InputError(f"the model could not be trained: {trained.failed}.")
    return trained.module(subject.train), trained.cached


ADAPTERS: Mapping[str, Adapter] = {
    "training": Adapter(audit_training, _training, {"shadows": 64, "runs": 128}, fresh_coins=True),
    "one-run": Adapter(audit_one_run, _one_run, {"models": 1, "shadows": 0}, fresh_coins=True),
    "gradients": Adapter(audit_gradients, _gradients, {"repetitions": 1000}, fresh_coins=True),
    "members-only": Adapter(audit_members_only, _members_only, {"models": 1}, fresh_coins=False),
    "model": Adapter(audit_model, _model, {"models": 1}, fresh_coins=False),
    "text": Adapter(language_audit, _text, {"models": 1}, fresh_coins=True),
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
