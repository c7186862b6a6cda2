"""Images from flow matching in torch: a network learns the way from noise to images (Lipman et al. 2023).

An image on the way is x(t) = (1 − t)·noise + t·image, with times t spread evenly. The network learns the velocity
image − noise, given x(t), t and the class. New images follow it in steps of Euler. They start from noise alone or, part
of the way along, from a member mixed with noise (Meng et al. 2022), which keeps the coarse structure of the member and
makes the fine one new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._progress import Progress
from dosimeter._validate import FloatArray, InputError, IntArray, show
from dosimeter.engine import Store
from dosimeter.engine.tasks import hash_of_arrays
from dosimeter.generators.flow_network import HALVINGS, colour_space
from dosimeter.generators.flow_training import NEAR, FlowData, FlowRecipe, flow_key, trained_network
from dosimeter.generators.images import without_images
from dosimeter.generators.pixels import Float32Array, Images, read_images
from dosimeter.generators.protocol import check_count, require_members, streams
from dosimeter.generators.vae import framed, unframed
from dosimeter.training.chain import torch_module

TOGETHER = 100  # images that are made at once
VERSION = "1"  # raise it when the same arguments give other images
PREDICTIONS = ("velocity", "image")


@dataclass(frozen=True)
class FlowMatching:
    """Generate images by flow matching, with a network that is trained on the members; needs torch.

    With a store, a stopped training resumes, and a second fit trains nothing.

    Args:
        steps: Training steps.
        start: Where new images start on the way from noise (0) to a member (1). Above 0 each new image keeps the coarse
            structure of a random member of its class.
        conditional: Whether the network knows the labels. If not, images come without labels, and an audit trains a
            labeler.
        flips: Whether mirrored members count as members; not for digits or letters.
        prediction: What the network gives: the "velocity", or the "image" at the end of the way.
        width: How many filters its layers have at half of the size.
        batch: How many images each training step has.
        learning_rate: The largest rate of its schedule.
        moves: How many steps of Euler lead from noise to an image.
        store: Where the training and the images are kept; None keeps nothing.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to.

    >>> FlowMatching(steps=500).fit((images, labels), seed=0).sample(10, seed=1)  # doctest: +SKIP
    """

    steps: int = 3000
    start: float = 0.0
    conditional: bool = True
    flips: bool = False
    prediction: str = "velocity"
    width: int = 32
    batch: int = 64
    learning_rate: float = 2e-3
    moves: int = 40
    store: Store | None = field(default=None, repr=False)
    name: str = "flow matching"
    minimum: int = 200

    def fit(self, members: Any, *, seed: int) -> FittedFlow:
        """Train the network, or take it from the store.

        Args:
            members: Images X, or (X, y); labels make the images of each class.
            seed: Decides every random choice.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few, or an argument is out of range.
        """
        records = require_members(members, kind="image", minimum=self.minimum, caller="flow matching")
        self._check()
        torch = torch_module()
        images = read_images(records if self.conditional else records._replace(y=None))
        planes = framed(images, HALVINGS)
        space = colour_space(planes)
        data = FlowData(space.inside(planes), images.codes, images.classes.size, space)
        recipe = FlowRecipe(self.steps, self.flips, self.prediction, self.width, self.batch, self.learning_rate)
        number = check.seed(seed)
        key = _key(recipe, images, number)
        network = trained_network(torch, recipe, data, number, key, self.store)
        return FittedFlow(self, without_images(images), network, data, _Pixels.of(images), key)

    def _check(self) -> None:
        for name in ("steps", "width", "batch", "moves"):
            check.whole(name, getattr(self, name), 1, "pass a larger number")
        check.within("learning_rate", self.learning_rate, 0.0, 1.0, "pass e.g. 0.002", include="()")
        check.within("start", self.start, 0.0, 1.0, "pass 0 for noise alone, or e.g. 0.4", include="[)")
        check.choice("prediction", self.prediction, PREDICTIONS)
        check.flag("conditional", self.conditional)
        check.flag("flips", self.flips)
        if self.width % 8:
            raise InputError(f"width must be a multiple of 8, got {self.width}; pass e.g. 32.")
        if self.store is not None and not isinstance(self.store, Store):
            raise InputError(f"store must be a Store, got {show(self.store)}; pass Store('folder').")


def _key(recipe: FlowRecipe, images: Images, seed: int) -> str:
    """The key of a trained network: all that it depends on."""
    data = hash_of_arrays({"rows": images.rows, "codes": images.codes, "shape": np.array(images.shape)})
    return flow_key(vars(recipe), seed, version=VERSION, data=data)


@dataclass(frozen=True)
class _Pixels:
    """How pixels were scaled to run from 0 to 1."""

    low: float
    high: float

    @classmethod
    def of(cls, images: Images) -> _Pixels:
        return cls(float(images.rows.min()), float(images.rows.max()))

    def back(self, rows: Float32Array) -> FloatArray:
        return np.clip(rows.astype(np.float64), 0.0, 1.0) * (self.high - self.low) + self.low


@dataclass(frozen=True, eq=False)
class FittedFlow:
    """The trained network, the members in its space, the form of the images, and the key of the training."""

    recipe: FlowMatching
    images: Images
    network: Any
    data: FlowData
    pixels: _Pixels
    key: str

    def sample(self, count: int, *, seed: int) -> Any:
        """Sample `count` new images, with labels if the network knows them."""
        size, store = check_count(count), self.recipe.store
        how = {"of": self.key, "start": self.recipe.start, "moves": self.recipe.moves, "count": size}
        key = flow_key(how, check.seed(seed), version=VERSION)
        kept = None if store is None else store.get(key)
        if kept is not None:
            return self.images.write(kept[0]["rows"].astype(np.float64), kept[0]["codes"])
        pick, noise = streams(seed, 2)
        shares = np.bincount(self.data.codes, minlength=self.data.classes) / self.data.codes.size
        codes: IntArray = pick.choice(shares.size, size, p=shares).astype(np.int64)
        rows = self._made(codes, pick, noise).astype(np.float32)
        if store is not None:
            store.put(key, {"rows": rows, "codes": codes}, {"what": "flow matching, images", "count": size})
        return self.images.write(rows.astype(np.float64), codes)

    def _made(self, codes: IntArray, pick: np.random.Generator, noise: np.random.Generator) -> FloatArray:
        """Rows of pixels of these classes, from noise or from members mixed with it."""
        torch, start = torch_module(), self.recipe.start
        grid = np.linspace(0.0, 1.0, self.recipe.moves + 1)
        times = np.append(start, grid[grid > start])
        parts = []
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        text = f"Making {codes.size} images by flow matching"
        try:
            with torch.inference_mode(), Progress(codes.size, text, label="making images") as progress:
                progress.announce()
                for first in range(0, codes.size, TOGETHER):
                    label = codes[first : first + TOGETHER]
                    x = torch.from_numpy((1.0 - start) * self.data.space.noise(label.size, noise))
                    if start > 0:
                        x = x + start * torch.from_numpy(self.data.images[self._members(label, pick)])
                    for now, after in pairwise(times):
                        x = x + (after - now) * self._velocity(torch, x, now, torch.from_numpy(label))
                    planes = self.data.space.outside(x.numpy())
                    parts.append(self.pixels.back(unframed(planes, self.images.shape)))
                    progress.advance(first + label.size)
        finally:
            torch.set_num_threads(threads)
        return np.concatenate(parts)

    def _velocity(self, torch: Any, x: Any, now: float, label: Any) -> Any:
        found = self.network(x.float(), torch.full((len(x),), now), label)
        return found if self.recipe.prediction == "velocity" else (found - x) / max(1.0 - now, NEAR)

    def _members(self, codes: IntArray, rng: np.random.Generator) -> IntArray:
        """A random member of each class."""
        rows = np.empty(codes.size, np.int64)
        for code in np.unique(codes):
            mine = np.flatnonzero(codes == code)
            rows[mine] = rng.choice(np.flatnonzero(self.data.codes == code), mine.size)
        return rows
