"""Which way of training suits a module, how many models train together, and in how many processes."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.engine.work import cores
from dosimeter.training import convolutional, functional
from dosimeter.training.asking import device_kind
from dosimeter.training.chain import chain, mixes_records, obstacle, torch_module
from dosimeter.training.draws import Draws
from dosimeter.training.groups import one_thread, tensor, train
from dosimeter.training.recipe import Recipe

STRATEGIES = ("auto", "dense", "convolutional", "functional", "sequential")
CACHE = 6_500_000  # bytes of a group's weights and activations that still run at full speed
ON_GPU = 64  # models that train together on a GPU: a choice, which was not measured
SHORT = 3.0  # seconds of work below which starting processes does not pay


@dataclass(frozen=True)
class Plan:
    """What the engine picked, and why."""

    strategy: str
    reason: str
    group: int
    workers: int

    def __str__(self) -> str:
        together = f"{self.group} models together" if self.group > 1 else "one model at a time"
        where = f"{self.workers} processes" if self.workers > 1 else "this process"
        return f"{self.strategy}: {self.reason}; {together} in {where}."


def plan(
    template: Any,
    recipe: Recipe,
    data: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    members: npt.NDArray[np.bool_],
    strategy: str,
    group: int | str | None,
    workers: int | None,
) -> Plan:
    """What suits the module and the work, or what the caller asks for."""
    check.choice("strategy", strategy, STRATEGIES)
    mixing = mixes_records(template)
    if recipe.dp is not None and mixing is not None:
        raise InputError(
            f"the model has {mixing}, which mixes the records of a batch, so DP-SGD cannot clip; use GroupNorm."
        )
    if recipe.accumulate > 1 and mixing is not None:
        raise InputError(
            f"accumulate={recipe.accumulate} changes what {mixing} makes of a batch; use GroupNorm, or accumulate=1."
        )
    torch = torch_module()
    few = torch.from_numpy(data[0][:2].copy()), torch.from_numpy(data[1][:2].copy())
    picked, reason = _pick(template, recipe, few, strategy)
    batch = recipe.batch(int(members.sum(axis=1).max()))
    if group == "probe" and device_kind(recipe.device) == "cpu":
        size = _probe(picked, template, recipe, data, members)
    elif group is None or group == "probe":  # a GPU is not timed
        alike = batch >= members[0].sum() and bool((members == members[0]).all())
        size = _group(picked, template, batch, data[0][0].size, len(members), alike)
        if device_kind(recipe.device) != "cpu" and size > 1:
            size = ON_GPU
    else:
        size = check.whole("group", group, 1, 'pass how many models train together, or "probe"')
    size = min(size, len(members))
    tasks = -(-len(members) // size)
    if workers is None and device_kind(recipe.device) != "cpu":
        count = 1  # processes would share one GPU
    elif workers is None:
        work = _seconds(picked, template, recipe, data[0], members)
        count = 1 if work < SHORT else min(cores(), tasks)
    else:
        count = min(check.whole("workers", workers, 1, "pass how many processes may work"), tasks)
    return Plan(picked, reason, size, count)


def _pick(template: Any, recipe: Recipe, few: tuple[Any, Any], strategy: str) -> tuple[str, str]:
    """The strategy and why, or a refusal of the one asked for."""
    layers, hindrance = chain(template), obstacle(template)
    by_records = None if recipe.dp is None or recipe.dp.microbatches is None else "the recipe clips micro-batches"
    against: dict[str, str | None] = {"sequential": None}
    in_parts = "it clips micro-batches and adds up parts of a batch" if by_records and recipe.accumulate > 1 else None
    against["dense"] = hindrance or (layers if isinstance(layers, str) else None) or in_parts
    if against["dense"] is None and recipe.augment is not None:
        against["dense"] = "the recipe augments its records"
    if against["dense"] is None and recipe.precision == "bf16":
        against["dense"] = "the recipe mixes two precisions"
    # Without DP the convolutional loop is the module's own, in another memory layout: nothing hinders it.
    unsuited = convolutional.why_not(template) or by_records
    against["convolutional"] = (unsuited or hindrance) if recipe.dp is not None else convolutional.has_none(template)
    if strategy != "auto" and strategy != "functional":
        if against[strategy] is not None:
            raise InputError(
                f"strategy={strategy!r} cannot train this model: {against[strategy]}; use strategy='auto'."
            )
        return strategy, "asked for"
    for name, reason in (("dense", "a chain of dense layers"), ("convolutional", "it has convolutions")):
        if strategy == "auto" and against[name] is None:
            return name, reason
    refused = hindrance or functional.works(template, *few, recipe)
    if strategy == "functional":
        if refused is not None:
            raise InputError(f"strategy='functional' cannot train this model: {refused}; use strategy='auto'.")
        return strategy, "asked for"
    if refused is None:
        return "functional", f"not dense ({against['dense']}), and torch.func.vmap takes it"
    return "sequential", refused


def _group(strategy: str, template: Any, batch: int, inputs: int, models: int, alike: bool) -> int:
    """Models that train together: as many as stay in the cache, 4 to 16, and at most an eighth of all.

    Where all take the same full batches (`alike`), their first layers are one product that gains by its width. Neither
    timing nor the number of cores has a say, so that a run repeats bit by bit on every machine of a kind.
    """
    if strategy in ("sequential", "convolutional"):
        return 1
    if alike and strategy == "dense":
        return int(2 ** np.clip(np.round(np.log2(models / 8)), 2, 3))
    sizes = [parameter.numel() for parameter in template.parameters()]
    widths = [parameter.shape[0] for parameter in template.parameters() if parameter.ndim > 1]
    numbers = 3 * sum(sizes) + batch * (inputs + 2 * sum(widths))
    return int(2 ** np.clip(np.round(np.log2(min(CACHE / (4 * numbers), models / 8))), 2, 4))


def _probe(strategy: str, template: Any, recipe: Recipe, data: Any, members: npt.NDArray[np.bool_]) -> int:
    """The fastest of 4, 8 and 16 in a few steps; two tenths of a second each at least."""
    if strategy in ("sequential", "convolutional"):
        return 1
    tensors = tensor(data[0]), tensor(data[1])
    noise = None if recipe.dp is None else replace(recipe.dp, sensitivity="global")
    short = replace(recipe, epochs=None, steps=3, dp=noise, canaries=None)
    best, chosen = np.inf, 4
    for size in (4, 8, 16):
        rows = [np.flatnonzero(members[at % len(members)]) for at in range(size)]
        spent, rounds = 0.0, 0
        with one_thread():
            while spent < 0.2 or rounds < 2:
                modules = [copy.deepcopy(template) for _ in range(size)]
                draws = [Draws(at, short, row) for at, row in enumerate(rows)]
                start = time.process_time()
                train(strategy, modules, short, tensors, draws, None)
                spent, rounds = spent + (time.process_time() - start) * (rounds > 0), rounds + 1
        if spent / ((rounds - 1) * size) < best:
            best, chosen = spent / ((rounds - 1) * size), size
    return chosen


def _seconds(
    strategy: str, template: Any, recipe: Recipe, x: npt.NDArray[Any], members: npt.NDArray[np.bool_]
) -> float:
    """A rough guess at the work: three forward passes per step, in groups about a third of that."""
    torch = torch_module()
    counts = members.sum(axis=1).tolist()
    rows = torch.from_numpy(x[: recipe.batch(max(counts))].copy())
    with one_thread(), torch.no_grad():
        template(rows)
        start = time.perf_counter()
        template(rows)
        once = time.perf_counter() - start
    share = {"dense": 1.5, "functional": 2.0}.get(strategy, 4.0)
    if recipe.dp is not None:
        share *= {"dense": 2.0, "convolutional": 4.0, "functional": 20.0}.get(strategy, float(len(rows)))
    return share * once * sum(recipe.length(count) for count in counts)
