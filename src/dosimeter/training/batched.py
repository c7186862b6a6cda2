"""Train many models: the fastest way that suits the module, in small groups, one process for each core."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import engine as engines
from dosimeter._validate import BoolArray, InputError
from dosimeter.engine import Store, Task
from dosimeter.training import arguments, groups
from dosimeter.training.asking import Observed, device_kind, gpus_of, require_device
from dosimeter.training.cargo import Cargo, packed
from dosimeter.training.chain import torch_module
from dosimeter.training.groups import Factory, TrainGroup
from dosimeter.training.identity import Identity, identity
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.planning import Plan, plan
from dosimeter.training.recipe import Model, Recipe

LOOPS = "2"  # raise it when the training loops give other numbers: stored models are then trained again
DENSE_LOOPS = "4"  # the same for dense networks
IMAGE_LOOPS = "3"  # and for others on images
PRIVATE_IMAGE_LOOPS = "4"  # and for convolutional ones with DP-SGD
CHANGED_IMAGE_LOOPS = "5"  # for those that normalise groups of channels, and with DP-SGD if watched or on full batches


@dataclass(frozen=True)
class Trained:
    """Hold one trained model: what was asked for, or why it failed.

    Attributes:
        index: The row of `memberships`.
        seed: The seed that it was trained from.
        plan: How it was trained.
        outputs: Logits for the records that it was asked about.
        state: Its parameters, with `return_models=True`.
        accuracy: The share of right answers, where labels are known.
        failed: Why there is no model.
        transcript: What its steps show, with `neighbour` or canaries.
        cached: Whether it was found in the store.
        key: The name of its group there.
        observed: What a function saw of the model, with `evaluate_on=Observed(…)`.
    """

    index: int
    seed: int
    plan: Plan
    outputs: npt.NDArray[Any] | None = None
    state: dict[str, npt.NDArray[Any]] | None = None
    accuracy: float | None = None
    failed: str | None = None
    transcript: Transcript | None = None
    cached: bool = False
    key: str | None = None
    observed: npt.NDArray[np.float64] | None = None

    def module(self, factory: Factory) -> Any:
        """The model as a module in eval mode; needs `return_models=True`."""
        if self.state is None:
            raise InputError("there is no state to load; train with return_models=True, and see `failed`.")
        torch = torch_module()
        module = factory()
        module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in self.state.items()})
        return module.eval()


def train_many(
    factory: Factory,
    recipe: Recipe,
    data: tuple[npt.ArrayLike, npt.ArrayLike],
    memberships: npt.ArrayLike,
    seeds: npt.ArrayLike,
    *,
    evaluate_on: Any = None,
    strategy: str = "auto",
    group: int | str | None = None,
    return_models: bool = False,
    neighbour: Neighbour | None = None,
    engine: str = "local",
    workers: int | None = None,
    store: Store | None = None,
    key: str | Identity | None = None,
    memory: int | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> Iterator[Trained]:
    """Train a model for each row of `memberships` from its seed.

    The numbers depend on the seeds and, in the last bits, on `strategy` and `group`, never on the engine.

    Args:
        factory: Returns a new module that gives logits; it is called under the model's seed.
        recipe: How to train.
        data: The pair (X, y).
        memberships: Booleans (models, records): who is trained on what.
        seeds: One seed for each model.
        evaluate_on: What to ask each trained model: "data" (all records), records, a pair (records, labels), or
            `Observed(function, …)` for a function that is given the model as well.
        strategy: "auto", "dense", "convolutional", "functional" or "sequential".
        group: How many models train together; "probe" measures which number is fastest.
        return_models: Whether the parameters come back too.
        neighbour: Also write the transcript that a gradient audit reads, with a DP recipe.
        engine: That of `dosimeter.engine.run`.
        workers: How many processes; by default short work stays in this one.
        store: Where finished models are kept; what it holds is not trained again.
        key: Stands in the store's keys for the factory, instead of everything that it can reach.
        memory: Bytes that all processes may use together.
        timeout: Seconds that one group may take.
        progress: Whether to show a bar.

    Returns:
        An iterator over the models in order, as they finish.

    Raises:
        InputError: If the data, the recipe and the module do not fit together.

    >>> models = list(train_many(factory, Recipe(epochs=5), (X, y), masks, range(len(masks))))  # doctest: +SKIP
    """
    torch_module()
    x, y, members, numbers = arguments.checked(data, memberships, seeds, recipe, neighbour)
    if not str(engine).startswith("ray"):  # a cluster may have the GPUs that this machine lacks
        require_device(recipe.device, recipe.precision)
    known, template = _known(factory, key, store), groups.started(factory, 0, recipe.precision)
    observe = evaluate_on.function if isinstance(evaluate_on, Observed) else None
    x, asked = arguments.suited(template, recipe, x, y, evaluate_on)
    picked = plan(template, recipe, (x, y), members, strategy, group, workers)
    inside = engine == "inline" or (engine == "local" and picked.workers == 1 and timeout is None)
    own_functions = (factory, recipe.augment, observe)
    cargo = _cargo(own_functions, known, inside=inside)
    if cargo is None:
        inside, picked = True, _alone(picked)
        cargo = [Cargo(function) for function in own_functions]
    own = bool(asked) and asked["asked"] is not x
    common = {
        **_named(known, factory, template, x, keyed=store is not None),
        **_asked_for(recipe, picked.strategy, return_models, neighbour, keyed=store is not None),
        "asked": None if not asked else "records" if own else "data",
        **({} if observe is None else {"observed": identity(observe, strict=store is not None).text}),
    }
    sent = [None if function is None else one for function, one in zip(own_functions, cargo, strict=True)]
    results = engines.run(
        TrainGroup(cargo[0], sent[1], recipe.device, sent[2]),
        _tasks(common, members, numbers, picked.group),
        shared={"x": x, "y": y, **(asked if own else {})},
        engine="inline" if inside else engine,
        workers=picked.workers if workers is not None or engine == "local" else None,
        store=store,
        version=_version(picked.strategy, x, recipe, _changed(template, recipe, members, neighbour)),
        timeout=None if inside else timeout,
        memory=memory,
        progress=progress,
        keep_workers=True,
        gpus=gpus_of(recipe.device),
    )
    return _models(results, picked)


def _cargo(functions: tuple[Any, ...], known: Identity, *, inside: bool) -> list[Cargo] | None:
    """The caller's functions on their way to a task, or None if one of them cannot go to another process."""
    if inside:
        return [Cargo(function) for function in functions]
    sent = []
    for at, function in enumerate(functions):
        modules = known.modules if at == 0 or function is None else _known(function, None, None).modules
        sent.append(Cargo.packed(function, modules))
    return None if any(one is None for one in sent) else [one for one in sent if one is not None]


def _alone(picked: Plan) -> Plan:
    """The plan for a factory that only this process can call."""
    reason = f"{picked.reason}; the factory cannot be sent to other processes, so all models train in this one"
    return replace(picked, workers=1, reason=reason)


def _changed(template: Any, recipe: Recipe, members: BoolArray, neighbour: Neighbour | None) -> bool:
    """Whether a convolutional network has other bits than in the version before."""
    normalises = any(isinstance(part, torch_module().nn.GroupNorm) for part in template.modules())
    if recipe.dp is None or neighbour is not None or normalises:
        return normalises or neighbour is not None
    return any(recipe.batch(count) >= count for count in members.sum(axis=1).tolist())


def _version(strategy: str, x: npt.NDArray[Any], recipe: Recipe, changed: bool) -> str:
    images = IMAGE_LOOPS
    if strategy == "convolutional" and (changed or recipe.dp is not None):
        images = CHANGED_IMAGE_LOOPS if changed else PRIVATE_IMAGE_LOOPS
    loops = DENSE_LOOPS if strategy == "dense" else images if x.ndim == 4 else LOOPS
    return f"{loops}, torch {torch_module().__version__}, numpy {np.__version__}"


def _named(known: Identity, factory: Factory, template: Any, x: npt.NDArray[Any], *, keyed: bool) -> dict[str, Any]:
    """What the keys of a store know of the factory; nothing without a store."""
    if not keyed:
        return {"factory": None, "model": None}
    return {"factory": known.text, "model": _identity(factory, template, x)}


def _asked_for(
    recipe: Recipe, strategy: str, state: bool, neighbour: Neighbour | None, *, keyed: bool
) -> dict[str, Any]:
    rows = None if neighbour is None else [neighbour.removed, neighbour.added]
    values = recipe.to_dict()
    if "device" in values:  # one GPU is as good as the next
        values["device"] = device_kind(recipe.device)
    if values.get("device") == "cpu":
        del values["device"]
    if recipe.augment is not None:
        values["augment"] = identity(recipe.augment, strict=keyed).text
    return {"recipe": values, "strategy": strategy, "state": bool(state), "neighbour": rows}


def _tasks(common: dict[str, Any], members: BoolArray, seeds: list[int], size: int) -> list[Task]:
    """One task for each group of models that train together."""
    tasks = []
    for at in range(0, len(members), size):
        rows, own = members[at : at + size], seeds[at : at + size]
        even = bool(np.ptp(rows.sum(axis=1)) == 0)
        given = {**common, "members": [packed(row) for row in rows], "seeds": own, "even": even}
        tasks.append(Task("train", given, own[0]))
    return tasks


def _known(factory: Any, key: str | Identity | None, store: Store | None) -> Identity:
    if isinstance(key, Identity):
        return key
    return identity(factory, key=key, strict=store is not None)


def _models(results: Iterator[engines.Result], picked: Plan) -> Iterator[Trained]:
    index = 0
    for result in results:
        seeds = result.task.arguments["seeds"]
        lost: dict[str, Any] = {"failed": f"{result.error} (see {result.info.get('log')})"}
        found = [lost] * len(seeds) if result.arrays is None else groups.separated(result.arrays, result.info)
        for seed, one in zip(seeds, found, strict=True):
            yield Trained(index, seed, picked, cached=result.cached, key=result.key, **one)
            index += 1


def _identity(factory: Factory, template: Any, x: npt.NDArray[Any]) -> dict[str, Any]:
    """What the factory makes: the architecture, the weights from one seed and the answers to two records.

    This tells one model from another also where the caller answers for the key.
    """
    torch = torch_module()
    digest = hashlib.sha256(repr(template).encode())
    for name, part in template.state_dict().items():
        digest.update(name.encode() + part.detach().contiguous().numpy().tobytes())
    with torch.no_grad(), groups.one_thread():
        answer = template.eval()(torch.from_numpy(x[:2].copy())).double().numpy()
    digest.update(" ".join(f"{value:.3g}" for value in answer.ravel()).encode())
    named = factory.to_dict() if isinstance(factory, Model) else {}
    return {**named, "fingerprint": digest.hexdigest()}
