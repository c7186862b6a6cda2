"""Train many models: the fastest way that suits the module, in small groups, one process for each core."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter import engine as engines
from dosimeter._validate import BoolArray, InputError
from dosimeter.engine import Store, Task
from dosimeter.training import arguments, groups
from dosimeter.training.chain import torch_module
from dosimeter.training.groups import Cargo, Factory, TrainGroup
from dosimeter.training.identity import Identity, identity
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.planning import STRATEGIES, Plan, plan
from dosimeter.training.recipe import Model, Recipe

LOOPS = "2"  # raise it when the training loops give other numbers: stored models are then trained again
DENSE_LOOPS = "4"  # the same for dense networks
IMAGE_LOOPS = "3"  # and for others on images


@dataclass(frozen=True)
class Trained:
    """One trained model: what was asked for, or why it failed.

    `cached` says that it was found in the store, `key` is the name of its group there.
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
    processes: int | None = None,
    store: Store | None = None,
    key: str | Identity | None = None,
    memory: int | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> Iterator[Trained]:
    """Train a model for each row of `memberships` (models, records) from its seed; yields them in order as they finish.

    `factory` returns a new module that gives logits; it is called under the model's seed. `evaluate_on` says what each
    model is asked after training: "data" (all records of the data), other records, or a pair of records and labels;
    labels also give the accuracy. `strategy` and `group` (models that train together; "probe" measures which number is
    fastest) override what is picked. With `neighbour`, a DP recipe also writes the transcript that a gradient audit
    reads.

    `engine`, `processes`, `store`, `memory` and `timeout` (seconds for a group) are those of `dosimeter.engine.run`:
    what the store holds is not trained again, and a group whose process dies is trained once more elsewhere. Short work
    stays in this process unless `processes` is given. A key of the store holds what the factory can reach, as for
    `train_foreign`; `key` stands for the factory instead. The numbers depend on the seeds and, in the last bits, on
    `strategy` and `group`, never on the engine.
    """
    torch_module()
    if not isinstance(recipe, Recipe):
        raise InputError(f"recipe must be a Recipe, got {check.show(recipe)}; pass e.g. Recipe(epochs=10).")
    check.choice("strategy", strategy, STRATEGIES)
    x, y = arguments.records(data)
    members = arguments.memberships(memberships, len(x))
    numbers = arguments.seeds(seeds, len(members))
    arguments.watched(neighbour, recipe, len(x), members)
    known = _known(factory, key, store)
    template = groups.started(factory, 0)
    x = arguments.cast(x, template)
    asked = arguments.evaluation(evaluate_on, x, y, template)
    arguments.outputs(template, x, y)
    picked = plan(template, recipe, (x, y), members, strategy, group, processes)
    inside = engine == "inline" or (engine == "local" and picked.processes == 1 and timeout is None)
    cargo = Cargo(factory) if inside else Cargo.packed(factory, known.modules)
    if cargo is None:
        inside, cargo = True, Cargo(factory)
        reason = f"{picked.reason}; the factory cannot be sent to other processes, so all models train in this one"
        picked = replace(picked, processes=1, reason=reason)
    common = {
        "factory": known.text if store is not None else None,
        "model": _identity(factory, template, x) if store is not None else None,
        "recipe": asdict(recipe),
        "strategy": picked.strategy,
        "state": bool(return_models),
        "neighbour": None if neighbour is None else [neighbour.removed, neighbour.added],
        "asked": None if not asked else "data" if asked["asked"] is x else "records",
    }
    loops = DENSE_LOOPS if picked.strategy == "dense" else IMAGE_LOOPS if x.ndim == 4 else LOOPS
    results = engines.run(
        TrainGroup(cargo),
        _tasks(common, members, numbers, picked.group),
        shared={"x": x, "y": y, **(asked if common["asked"] == "records" else {})},
        engine="inline" if inside else engine,
        workers=picked.processes if processes is not None or engine == "local" else None,
        store=store,
        version=f"{loops}, torch {torch_module().__version__}, numpy {np.__version__}",
        timeout=None if inside else timeout,
        memory=memory,
        progress=progress,
        keep_workers=True,
    )
    return _models(results, picked)


def _tasks(common: dict[str, Any], members: BoolArray, seeds: list[int], size: int) -> list[Task]:
    """One task for each group of models that train together."""
    tasks = []
    for at in range(0, len(members), size):
        rows, own = members[at : at + size], seeds[at : at + size]
        even = bool(np.ptp(rows.sum(axis=1)) == 0)
        given = {**common, "members": [groups.packed(row) for row in rows], "seeds": own, "even": even}
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
