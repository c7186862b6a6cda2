"""A group of models that trains together, wherever it runs: a task of the engine.

The group is also what a store keeps. The last bits of a model may depend on its group: Poisson batches are padded to
the widest of the group, full batches of the same records share one product for all models, and vmap of convolutions
sums in another order. A model that was stored alone and found by another group would make a run that was interrupted
end with other bits than one that was not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.engine import Task
from dosimeter.training import convolutional, dense, dense_micro, functional, sequential
from dosimeter.training.asking import observed
from dosimeter.training.cargo import Arrays, Cargo, unpacked
from dosimeter.training.chain import chain, torch_module
from dosimeter.training.devices import parameter_type, seeded
from dosimeter.training.draws import Draws
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe

Factory = Callable[[], Any]
SERIES = ("distances", "projections", "deviations", "canaries")  # what a transcript holds; canaries may be None


@dataclass(frozen=True)
class TrainGroup:
    """Trains the models of a task and asks them; `factory` makes a module.

    The functions of the caller stand in the keys of a store by what identifies them, and the device by its kind: what
    this object holds does not count there.
    """

    factory: Cargo
    augment: Cargo | None = None
    device: str | None = None
    observe: Cargo | None = None

    def __call__(self, task: Task, shared: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
        """A pure function of the task and the shared arrays."""
        given, device = task.arguments, self.device or "cpu"
        augment = None if self.augment is None else self.augment.opened()
        recipe = Recipe.from_dict({**given["recipe"], "augment": augment, "device": self.device})
        x, y = tensor(shared["x"]).to(device), tensor(shared["y"]).to(device)
        neighbour = None if given["neighbour"] is None else Neighbour(*given["neighbour"])
        factory = self.factory.opened()
        rows = [np.flatnonzero(unpacked(text, len(x))) for text in given["members"]]
        draws = [Draws(seed, recipe, row) for seed, row in zip(given["seeds"], rows, strict=True)]
        with one_thread():
            modules = [started(factory, drawn.start, recipe.precision).to(device) for drawn in draws]
            transcripts = train(given["strategy"], modules, recipe, (x, y), draws, neighbour, given["even"])
            asked, labels = _asked(given["asked"], shared)
            found = [
                _answer(module, seed, asked if asked is None else asked.to(device), labels, given["state"])
                for module, seed in zip(modules, given["seeds"], strict=True)
            ]
            if self.observe is not None:
                function = self.observe.opened()
                assert labels is not None
                for module, one in zip(modules, found, strict=True):
                    if "failed" not in one:
                        one["observed"] = observed(function, module, asked.numpy(), labels)
        return _side_by_side(found, transcripts)


def tensor(array: npt.NDArray[Any]) -> Any:
    """An array as a tensor on the same memory, which nothing here writes to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch has no read-only tensors and says so
        return torch_module().from_numpy(array)


def train(
    strategy: str,
    modules: list[Any],
    recipe: Recipe,
    data: Any,
    draws: list[Draws],
    neighbour: Neighbour | None,
    even: bool = False,
) -> list[Transcript | None]:
    """Train modules of one architecture in place, each from its own draws."""
    if recipe.schedule != "constant" and len({drawn.steps for drawn in draws}) > 1:
        return _by_length(strategy, modules, recipe, data, draws, neighbour)
    if strategy == "dense":
        layers = chain(modules[0])
        assert isinstance(layers, list)
        micro = recipe.dp is not None and recipe.dp.microbatches is not None
        kind = dense_micro.MicroGroup if micro else dense.DenseGroup
        return dense.train(modules, layers, recipe, data, draws, neighbour, even, kind)
    way = {"functional": functional, "convolutional": convolutional, "sequential": sequential}[strategy]
    return way.train(modules, recipe, data, draws, neighbour)


def _by_length(
    strategy: str, modules: list[Any], recipe: Recipe, data: Any, draws: list[Draws], neighbour: Neighbour | None
) -> list[Transcript | None]:
    """Train the models of each length together: in one step all of them have the same learning rate."""
    found: dict[int, Transcript | None] = {}
    for steps in sorted({drawn.steps for drawn in draws}):
        some = [at for at, drawn in enumerate(draws) if drawn.steps == steps]
        chosen = [modules[at] for at in some], recipe, data, [draws[at] for at in some]
        found |= zip(some, train(strategy, *chosen, neighbour), strict=True)
    return [found[at] for at in range(len(modules))]


def _asked(kind: str | None, shared: Arrays) -> tuple[Any, npt.NDArray[Any] | None]:
    if kind is None:
        return None, None
    if kind == "data":
        return tensor(shared["x"]), shared["y"]
    return tensor(shared["asked"]), shared.get("asked_y")


def _answer(module: Any, seed: int, asked: Any, labels: Any, state: bool) -> dict[str, Any]:
    torch = torch_module()
    tensors = module.state_dict()
    if not all(bool(torch.isfinite(part).all()) for part in tensors.values() if part.is_floating_point()):
        return {"failed": f"the weights became infinite or NaN in the training from seed {seed}"}
    found: dict[str, Any] = {}
    if asked is not None:
        found["outputs"] = outputs = _outputs(module, asked)
        if labels is not None:
            guess = outputs.reshape(len(outputs)) > 0 if outputs.size == len(outputs) else outputs.argmax(1)
            found["accuracy"] = float(np.mean(guess == labels))
    if state:
        found["state"] = {name: part.detach().cpu().numpy().copy() for name, part in tensors.items()}
    return found


def _outputs(module: Any, asked: Any) -> npt.NDArray[Any]:
    """Logits of the records, in parts; images with their channels last: poolings and convolutions are faster so."""
    torch = torch_module()
    with torch.no_grad():
        if asked.ndim != 4:
            parts = [module(part) for part in asked.split(4096)]
        else:
            best = convolutional.layout(module, asked[:2])
            module.to(memory_format=best)
            parts = [module(part.contiguous(memory_format=best)) for part in asked.split(128)]
            module.to(memory_format=torch.contiguous_format)
    outputs: npt.NDArray[Any] = torch.cat(parts).cpu().numpy()
    return outputs


def _side_by_side(
    found: list[dict[str, Any]], transcripts: list[Transcript | None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Answers as arrays with a row for each model that did not fail, and what fits into JSON."""
    well = [at for at, one in enumerate(found) if "failed" not in one]
    arrays: dict[str, Any] = {}
    if well and "outputs" in found[well[0]]:
        arrays["outputs"] = np.stack([found[at]["outputs"] for at in well])
    if well and "observed" in found[well[0]]:
        arrays["observed"] = np.stack([found[at]["observed"] for at in well])
    for name in found[well[0]].get("state", ()) if well else ():
        arrays[f"state/{name}"] = np.stack([found[at]["state"][name] for at in well])
    watched = [transcripts[at] for at in well]
    if watched and watched[0] is not None:
        arrays |= {
            f"transcript/{name}": np.stack([getattr(one, name) for one in watched])
            for name in SERIES
            if getattr(watched[0], name) is not None
        }
    info = {key: [one.get(key) for one in found] for key in ("accuracy", "failed")}
    return arrays, info


def separated(arrays: Arrays, info: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The models of a task one by one, as `_side_by_side` joined them."""
    at = 0
    for failed, accuracy in zip(info["failed"], info["accuracy"], strict=True):
        if failed is not None:
            yield {"failed": failed}
            continue
        one: dict[str, Any] = {"accuracy": accuracy, "outputs": None, "state": None, "transcript": None}
        state, series = {}, {}
        for name, array in arrays.items():
            if name in ("outputs", "observed"):
                one[name] = array[at]
            elif name.startswith("state/"):
                state[name.removeprefix("state/")] = array[at]
            else:
                series[name.removeprefix("transcript/")] = array[at]
        one["state"], one["transcript"] = state or None, Transcript(**series) if series else None
        yield one
        at += 1


def started(factory: Factory, seed: int, precision: str | None = None) -> Any:
    """A new module from the factory, with weights drawn from the seed; on the CPU, whatever it will train on."""
    torch = torch_module()
    with seeded(seed):
        module = factory()
    if not isinstance(module, torch.nn.Module) or not any(p.requires_grad for p in module.parameters()):
        raise InputError(
            f"factory must return a torch module with parameters to train, got {check.show(module)}; pass e.g. "
            "lambda: torch.nn.Linear(8, 2)."
        )
    wanted = parameter_type(precision)
    return module if wanted is None else module.to(wanted)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes with one thread in this block."""
    torch = torch_module()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
