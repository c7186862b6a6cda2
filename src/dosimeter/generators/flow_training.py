"""The training of flow matching: in chunks of steps that a store keeps, so that a stopped one resumes to the same bits.

Each chunk draws its randomness from a seed of its own. A checkpoint holds the parameters, their running average and the
two moments of AdamW.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter._progress import Progress
from dosimeter._validate import IntArray
from dosimeter.datasets.dataset import Array
from dosimeter.engine import Store, Task, key_of
from dosimeter.generators.flow_network import ColourSpace, flow_network
from dosimeter.generators.pixels import Float32Array

CHUNK = 100  # steps between two checkpoints
WARM = 100  # steps in which the rate rises
FALLING = 0.3  # of the steps, at the end: the rate falls to 0
AVERAGE = 0.9985  # the share of the past in the running average of the parameters
NEAR = 0.05  # the least 1 − t by which an error of the predicted image is divided
MOMENTS = {"first": "exp_avg", "second": "exp_avg_sq"}


@dataclass(frozen=True)
class FlowRecipe:
    """How a network is trained."""

    steps: int
    flips: bool
    prediction: str
    width: int
    batch: int
    learning_rate: float

    @property
    def chunks(self) -> int:
        return math.ceil(self.steps / CHUNK)

    def rate(self, step: int) -> float:
        """The learning rate: rising at first, falling as a cosine at the end."""
        left = (self.steps - step) / (FALLING * self.steps)
        falling = 1.0 if left >= 1.0 else 0.5 - 0.5 * math.cos(math.pi * left)
        return self.learning_rate * min(1.0, (step + 1) / WARM) * falling


@dataclass(frozen=True, eq=False)
class FlowData:
    """The members in decorrelated colours, their classes by number, and the space that noise is drawn in."""

    images: Float32Array
    codes: IntArray
    classes: int
    space: ColourSpace


def trained_network(torch: Any, recipe: FlowRecipe, data: FlowData, seed: int, key: str, store: Store | None) -> Any:
    """The network with its averaged parameters, trained or from the store."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        network = flow_network(torch, data.images.shape[1], data.classes, recipe.width)
    kept = None if store is None else store.get(_key(key, "trained", seed))
    if kept is None:
        average = _average(torch, network, recipe, data, seed, key, store)
    else:
        average = _parts(torch, network, kept[0]["average"])
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(average[name])
    return network.eval()


def _average(
    torch: Any, network: Any, recipe: FlowRecipe, data: FlowData, seed: int, key: str, store: Store | None
) -> dict[str, Any]:
    """Train chunk by chunk, from the last one that is in the store; the averaged parameters by name."""
    state = _State(torch, network)
    first = 0
    for chunk in range(recipe.chunks, 0, -1):
        kept = None if store is None else store.get(_key(key, chunk, seed))
        if kept is not None:
            state.load(kept[0])
            first = chunk
            break
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the order of sums, and so the bits, must not depend on the machine's cores
    text = f"Training flow matching on {len(data.images)} images, {recipe.steps} steps"
    try:
        with Progress(recipe.steps, text, label="training flow matching") as progress:
            progress.announce()
            for chunk in range(first, recipe.chunks):
                progress.advance(CHUNK * chunk)
                _train(torch, state, recipe, data, np.random.SeedSequence([seed, chunk]), chunk, progress)
                if store is not None:
                    store.put(_key(key, chunk + 1, seed), state.arrays(), {"what": "flow matching, on the way"})
                    store.discard(_key(key, chunk, seed))
    finally:
        torch.set_num_threads(threads)
    if store is not None:
        info = {"what": "flow matching, trained", "steps": recipe.steps}
        store.put(_key(key, "trained", seed), {"average": _flat(state.average)}, info)
        store.discard(_key(key, recipe.chunks, seed))
    return state.average


def flow_key(arguments: Mapping[str, Any], seed: int, *, version: str = "", data: str = "") -> str:
    """The key in a store of a training, of a part of it, or of images that were made with it."""
    function: Any = trained_network  # its name says where the entry comes from
    return key_of(function, Task("flow matching", dict(arguments), seed), version=version, shared_fingerprint=data)


def _key(key: str, part: int | str, seed: int) -> str:
    return flow_key({"of": key, "part": part}, seed)


def _train(
    torch: Any,
    state: _State,
    recipe: FlowRecipe,
    data: FlowData,
    seeds: np.random.SeedSequence,
    chunk: int,
    progress: Progress,
) -> None:
    """The steps of one chunk."""
    rng = np.random.default_rng(seeds)
    for step in range(CHUNK * chunk, min(recipe.steps, CHUNK * (chunk + 1))):
        rows = rng.integers(0, len(data.images), recipe.batch)
        image = data.images[rows]
        if recipe.flips:
            mirrored = rng.random(recipe.batch) < 0.5
            image[mirrored] = image[mirrored][..., ::-1]
        noise, times = data.space.noise(recipe.batch, rng), rng.random(recipe.batch, np.float32)
        x, z, t = (torch.from_numpy(part) for part in (image, noise, times))
        along = t[:, None, None, None]
        found = state.network(z + along * (x - z), t, torch.from_numpy(data.codes[rows]))
        error = found - (x - z) if recipe.prediction == "velocity" else (found - x) / (1.0 - along).clamp(min=NEAR)
        state.step((error**2).mean(), recipe.rate(step))
        progress.advance(step + 1)


class _State:
    """A network in training, its averaged parameters and its optimiser, as arrays that a store can keep."""

    def __init__(self, torch: Any, network: Any) -> None:
        self.torch, self.network = torch, network
        self.named = dict(network.named_parameters())
        self.average = {name: parameter.detach().clone() for name, parameter in self.named.items()}
        self.optimiser = torch.optim.AdamW(network.parameters(), 1.0, weight_decay=0.01)
        self.steps = 0

    def step(self, loss: Any, rate: float) -> None:
        self.optimiser.param_groups[0]["lr"] = rate
        self.optimiser.zero_grad()
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.steps += 1
        share = min(AVERAGE, self.steps / (self.steps + 10.0))  # early on, the average must not hold on to the start
        with self.torch.no_grad():
            for name, parameter in self.named.items():
                self.average[name].lerp_(parameter, 1.0 - share)

    def arrays(self) -> dict[str, Array]:
        """Everything that the rest of the training depends on."""
        moments = {
            short: _flat({name: self.optimiser.state[p][moment] for name, p in self.named.items()})
            for short, moment in MOMENTS.items()
        }
        return {"steps": np.array(self.steps), "now": _flat(self.named), "average": _flat(self.average), **moments}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Go back to where the arrays were taken."""
        torch = self.torch
        parts = {what: _parts(torch, self.network, arrays[what]) for what in ("now", "average", *MOMENTS)}
        self.steps = int(arrays["steps"])
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(parts["now"][name])
                self.average[name].copy_(parts["average"][name])
                moments = {m: torch.empty_like(parameter).copy_(parts[short][name]) for short, m in MOMENTS.items()}
                self.optimiser.state[parameter] = {"step": torch.tensor(float(self.steps)), **moments}


def _flat(named: Mapping[str, Any]) -> Array:
    """Tensors one after the other, each in the order of its indices."""
    return np.concatenate([tensor.detach().contiguous().numpy().reshape(-1) for tensor in named.values()])


def _parts(torch: Any, network: Any, flat: Array) -> dict[str, Any]:
    """The tensors again, by the names and shapes of the network's parameters."""
    shapes = {name: parameter.shape for name, parameter in network.named_parameters()}
    ends = np.cumsum([shape.numel() for shape in shapes.values()])[:-1]
    cut = np.split(np.array(flat), ends)
    return {
        name: torch.from_numpy(part).reshape(shape) for (name, shape), part in zip(shapes.items(), cut, strict=True)
    }
