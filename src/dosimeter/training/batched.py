"""Train many models: the fastest way that suits the module, in small groups, one process for each core."""

from __future__ import annotations

import copy
import io
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.training import _pool, arguments, convolutional, dense, functional, sequential
from dosimeter.training.chain import chain, mixes_records, obstacle, torch_module
from dosimeter.training.draws import Draws
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Model, Recipe

STRATEGIES = ("auto", "dense", "convolutional", "functional", "sequential")
CACHE = 6_500_000  # bytes of a group's weights and activations that still run at full speed
SHORT = 3.0  # seconds of work below which starting processes does not pay
Factory = Callable[[], Any]


@dataclass(frozen=True)
class Plan:
    """What the engine picked, and why."""

    strategy: str
    reason: str
    group: int
    processes: int

    def __str__(self) -> str:
        together = f"{self.group} models together" if self.group > 1 else "one model at a time"
        where = f"{self.processes} processes" if self.processes > 1 else "this process"
        return f"{self.strategy}: {self.reason}; {together} in {where}."


@dataclass(frozen=True)
class Trained:
    """One trained model: what was asked for, or why it failed."""

    index: int
    seed: int
    plan: Plan
    outputs: npt.NDArray[Any] | None = None
    state: dict[str, npt.NDArray[Any]] | None = None
    accuracy: float | None = None
    failed: str | None = None
    transcript: Transcript | None = None

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
    processes: int | None = None,
    return_models: bool = False,
    neighbour: Neighbour | None = None,
) -> Iterator[Trained]:
    """Train a model for each row of `memberships` (models, records) from its seed; yields them in order as they finish.

    `factory` returns a new module that gives logits; it is called under the model's seed. `evaluate_on` says what each
    model is asked after training: "data" (all records of the data), other records, or a pair of records and labels;
    labels also give the accuracy. `strategy`, `group` (models that train together; "probe" measures which number is
    fastest) and `processes` override what the engine picks. With `neighbour`, a full-batch DP recipe also writes the
    transcript that a gradient audit reads. The numbers depend on the seeds and, in the last bits, on `strategy` and
    `group`, never on `processes`.
    """
    torch_module()
    if not isinstance(recipe, Recipe):
        raise InputError(f"recipe must be a Recipe, got {check.show(recipe)}; pass e.g. Recipe(epochs=10).")
    check.choice("strategy", strategy, STRATEGIES)
    x, y = arguments.records(data)
    members = arguments.memberships(memberships, len(x))
    numbers = arguments.seeds(seeds, len(members))
    if neighbour is not None:
        arguments.watched(neighbour, recipe, len(x), members)
    template = _start(factory, 0)
    x = arguments.cast(x, template)
    shared = {"x": x, "y": y, **arguments.evaluation(evaluate_on, x, y, template)}
    arguments.outputs(template, x, y)
    plan = _plan(template, recipe, (x, y), members, strategy, group, processes, neighbour)
    plan, ship, starts = _shipment(factory, template, plan, recipe, numbers, members)
    shared = {**shared, "members": np.packbits(members, axis=1), **starts}
    tasks = [
        {
            "ship": ship,
            "recipe": recipe.to_dict(),
            "strategy": plan.strategy,
            "models": list(range(at, min(at + plan.group, len(members)))),
            "seeds": numbers[at : at + plan.group],
            "state": return_models,
            "even": bool(np.ptp(members.sum(axis=1)) == 0),
            "neighbour": None if neighbour is None else (neighbour.removed, neighbour.added),
        }
        for at in range(0, len(members), plan.group)
    ]
    return _results(tasks, shared, plan)


def _results(tasks: list[dict[str, Any]], shared: dict[str, npt.NDArray[Any]], plan: Plan) -> Iterator[Trained]:
    for task, found in zip(tasks, _pool.run(train_task, tasks, shared, plan.processes), strict=True):
        for index, seed, one in zip(task["models"], task["seeds"], found, strict=True):
            yield Trained(index, seed, plan, **one)


def train_task(task: dict[str, Any], shared: _pool.Arrays) -> list[dict[str, Any]]:
    """Train one group of models and ask them: a pure function of its arguments."""
    torch = torch_module()
    recipe, x, y = Recipe.from_dict(task["recipe"]), torch.from_numpy(shared["x"]), torch.from_numpy(shared["y"])
    neighbour = None if task["neighbour"] is None else Neighbour(*task["neighbour"])
    draws = []
    for model, seed in zip(task["models"], task["seeds"], strict=True):
        chosen = np.unpackbits(shared["members"][model], count=len(x)).astype(bool)
        draws.append(Draws(seed, recipe, np.flatnonzero(chosen)))
    with _one_thread():
        made = task["ship"] if callable(task["ship"]) else pickle.loads(task["ship"])  # noqa: S301 made by this process's parent
        if "starts" in shared:
            modules = [_from_start(made, shared["starts"][model]) for model in task["models"]]
        else:
            modules = [_start(made, drawn.start) for drawn in draws]
        transcripts = _train(task["strategy"], modules, recipe, (x, y), draws, neighbour, task["even"])
        labels = shared.get("asked_y")
        asked = torch.from_numpy(shared["asked"]) if "asked" in shared else None
        return [
            _answer(module, transcript, seed, asked, labels, task["state"])
            for module, transcript, seed in zip(modules, transcripts, task["seeds"], strict=True)
        ]


def _train(
    strategy: str,
    modules: list[Any],
    recipe: Recipe,
    data: Any,
    draws: list[Draws],
    neighbour: Neighbour | None,
    even: bool = False,
) -> list[Transcript | None]:
    if strategy == "dense":
        layers = chain(modules[0])
        assert isinstance(layers, list)
        return dense.train(modules, layers, recipe, data, draws, neighbour, even)
    if strategy == "functional":
        functional.train(modules, recipe, data, draws)
        return [None] * len(modules)
    way = convolutional if strategy == "convolutional" else sequential
    return way.train(modules, recipe, data, draws, neighbour)


def _answer(
    module: Any, transcript: Transcript | None, seed: int, asked: Any, labels: Any, state: bool
) -> dict[str, Any]:
    torch = torch_module()
    tensors = module.state_dict()
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values() if tensor.is_floating_point()):
        return {"failed": f"the weights became infinite or NaN in the training from seed {seed}"}
    found: dict[str, Any] = {"transcript": transcript}
    if asked is not None:
        with torch.no_grad():
            parts = [module(asked[at : at + 4096]) for at in range(0, len(asked), 4096)]
        found["outputs"] = outputs = torch.cat(parts).numpy()
        if labels is not None:
            guess = outputs.reshape(len(outputs)) > 0 if outputs.size == len(outputs) else outputs.argmax(1)
            found["accuracy"] = float(np.mean(guess == labels))
    if state:
        found["state"] = {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}
    return found


def _plan(
    template: Any,
    recipe: Recipe,
    data: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    members: npt.NDArray[np.bool_],
    strategy: str,
    group: int | str | None,
    processes: int | None,
    neighbour: Neighbour | None,
) -> Plan:
    mixing = mixes_records(template)
    if recipe.dp is not None and mixing is not None:
        raise InputError(
            f"the model has {mixing}, which mixes the records of a batch, so DP-SGD cannot clip; use GroupNorm."
        )
    torch = torch_module()
    few = torch.from_numpy(data[0][:2].copy()), torch.from_numpy(data[1][:2].copy())
    picked, reason = _pick(template, recipe, few, strategy, neighbour)
    batch = recipe.batch(int(members.sum(axis=1).max()))
    if group == "probe":
        size = _probe(picked, template, recipe, data, members)
    elif group is None:
        size = _group(picked, template, batch, data[0][0].size, len(members))
    else:
        size = check.whole("group", group, 1, 'pass how many models train together, or "probe"')
    size = min(size, len(members))
    tasks = -(-len(members) // size)
    if processes is None:
        work = _seconds(picked, template, recipe, data[0], members)
        count = 1 if work < SHORT else min(_pool.cores(), tasks)
    else:
        count = min(check.whole("processes", processes, 1, "pass how many processes may work"), tasks)
    return Plan(picked, reason, size, count)


def _pick(
    template: Any, recipe: Recipe, few: tuple[Any, Any], strategy: str, neighbour: Neighbour | None
) -> tuple[str, str]:
    """The strategy and why, or a refusal of the one asked for."""
    layers, hindrance = chain(template), obstacle(template)
    against: dict[str, str | None] = {"sequential": None}
    against["dense"] = hindrance or (layers if isinstance(layers, str) else None)
    # Without DP the convolutional loop is the module's own, in another memory layout: nothing hinders it.
    unsuited = convolutional.suits(template)
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
    refused = hindrance or functional.works(template, *few, recipe.dp is not None)
    if neighbour is not None:
        refused = "the vmap path writes no transcript"
    if strategy == "functional":
        if refused is not None:
            raise InputError(f"strategy='functional' cannot train this model: {refused}; use strategy='auto'.")
        return strategy, "asked for"
    if refused is None:
        return "functional", f"not dense ({against['dense']}), and torch.func.vmap takes it"
    return "sequential", refused


def _group(strategy: str, template: Any, batch: int, inputs: int, models: int) -> int:
    """Models that train together: as many as stay in the cache, 4 to 16, and at most an eighth of all.

    Neither timing nor the number of cores has a say, so that a run repeats bit by bit on every machine of a kind.
    """
    if strategy in ("sequential", "convolutional"):
        return 1
    sizes = [parameter.numel() for parameter in template.parameters()]
    widths = [parameter.shape[0] for parameter in template.parameters() if parameter.ndim > 1]
    numbers = 3 * sum(sizes) + batch * (inputs + 2 * sum(widths))
    return int(2 ** np.clip(np.round(np.log2(min(CACHE / (4 * numbers), models / 8))), 2, 4))


def _probe(strategy: str, template: Any, recipe: Recipe, data: Any, members: npt.NDArray[np.bool_]) -> int:
    """The fastest of 4, 8 and 16 in a few steps; two tenths of a second each at least."""
    if strategy in ("sequential", "convolutional"):
        return 1
    torch = torch_module()
    tensors = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    short = replace(recipe, epochs=None, steps=3)
    best, chosen = np.inf, 4
    for size in (4, 8, 16):
        rows = [np.flatnonzero(members[at % len(members)]) for at in range(size)]
        spent, rounds = 0.0, 0
        with _one_thread():
            while spent < 0.2 or rounds < 2:
                modules = [copy.deepcopy(template) for _ in range(size)]
                draws = [Draws(at, short, row) for at, row in enumerate(rows)]
                start = time.process_time()
                _train(strategy, modules, short, tensors, draws, None)
                spent, rounds = spent + (time.process_time() - start) * (rounds > 0), rounds + 1
        if spent / ((rounds - 1) * size) < best:
            best, chosen = spent / ((rounds - 1) * size), size
    return chosen


def _seconds(
    strategy: str, template: Any, recipe: Recipe, x: npt.NDArray[Any], members: npt.NDArray[np.bool_]
) -> float:
    """A rough guess at the work: three forward passes a step, in groups about a third of that."""
    torch = torch_module()
    counts = members.sum(axis=1).tolist()
    rows = torch.from_numpy(x[: recipe.batch(max(counts))].copy())
    with _one_thread(), torch.no_grad():
        template(rows)
        start = time.perf_counter()
        template(rows)
        once = time.perf_counter() - start
    share = {"dense": 1.5, "functional": 2.0}.get(strategy, 4.0)
    if recipe.dp is not None:
        share *= {"dense": 2.0, "convolutional": 4.0, "functional": 20.0}.get(strategy, float(len(rows)))
    return share * once * sum(recipe.length(count) for count in counts)


def _shipment(
    factory: Factory,
    template: Any,
    plan: Plan,
    recipe: Recipe,
    seeds: list[int],
    members: npt.NDArray[np.bool_],
) -> tuple[Plan, Any, dict[str, npt.NDArray[Any]]]:
    """How the model gets into other processes: its factory; else a copy of it and its starting weights."""
    if plan.processes == 1:
        return plan, factory, {}
    maker = factory.factory if isinstance(factory, Model) else factory
    if _importable(getattr(maker, "__module__", None)) and (sent := _pickled(factory)) is not None:
        return plan, sent, {}
    sent = _pickled(template) if all(_importable(type(part).__module__) for part in template.modules()) else None
    if sent is None:
        reason = f"{plan.reason}; other processes cannot import the model, so define it in a module to use them"
        return replace(plan, processes=1, reason=reason), factory, {}
    starts = []
    for seed, row in zip(seeds, members, strict=True):
        module = _start(factory, Draws(seed, recipe, np.flatnonzero(row)).start)
        starts.append(np.concatenate([p.detach().numpy().ravel() for p in module.parameters()]))
    return plan, sent, {"starts": np.stack(starts)}


def _importable(module: str | None) -> bool:
    return module is not None and (module != "__main__" or hasattr(sys.modules["__main__"], "__file__"))


def _pickled(value: Any) -> bytes | None:
    buffer = io.BytesIO()
    try:
        pickle.dump(value, buffer)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return buffer.getvalue()


def _start(factory: Factory, seed: int) -> Any:
    """A new module from the factory, with weights drawn from the seed."""
    torch = torch_module()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = factory()
    if not isinstance(module, torch.nn.Module) or not any(p.requires_grad for p in module.parameters()):
        raise InputError(f"factory must return a torch module with parameters to train, got {check.show(module)}.")
    return module


def _from_start(template: Any, start: npt.NDArray[Any]) -> Any:
    torch = torch_module()
    module = copy.deepcopy(template)
    flat, at = torch.from_numpy(np.array(start)), 0
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(flat[at : at + parameter.numel()].view(parameter.shape))
            at += parameter.numel()
    return module


@contextmanager
def _one_thread() -> Iterator[None]:
    torch = torch_module()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
