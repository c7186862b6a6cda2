"""A filter of bad images: those that a small convolutional network finds most clearly generated are dropped.

The network is trained on the generator's own members and on images made for this alone (Kazmi 2024, §6.2), so nothing
of the audit is used up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, show
from dosimeter.attacks.image_classifier import image_classifier
from dosimeter.generators.own import some_records
from dosimeter.generators.pixels import channels_last
from dosimeter.generators.protocol import Fitted, Generator, check_count, read_members, require_members, streams
from dosimeter.training.chain import torch_module


@dataclass(frozen=True)
class Filtered:
    """Drop the images of a generator that are most clearly generated; needs torch.

    Args:
        generator: A generator of images.
        drop: The share of its images that is dropped.
        label: What the page calls it; None for the generator's name and the share.

    >>> Filtered(SmoothedBootstrap(), drop=0.3).fit(images, seed=0).sample(10, seed=1)  # doctest: +SKIP
    """

    generator: Generator
    drop: float = 0.25
    label: str | None = None

    @property
    def name(self) -> str:
        """What the page calls it."""
        return self.label or f"{self.generator.name}, worst {100 * self.drop:.3g} % dropped"

    @property
    def minimum(self) -> int:
        """The fewest members that the generator can be fitted to."""
        return self.generator.minimum

    def fit(self, members: Any, *, seed: int) -> FittedFilter:
        """Fit the generator, then train the network on the members and on as many of its images.

        Args:
            members: Images X, or (X, y).
            seed: Decides every random choice.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are not images or too few, or an argument cannot be used.
        """
        if not hasattr(self.generator, "fit"):
            raise InputError(f"generator must be a generator with fit, got {show(self.generator)}; pass one.")
        check.within("drop", self.drop, 0.0, 1.0, "pass the share to drop, e.g. 0.25", include="()")
        records = require_members(members, kind="image", minimum=self.minimum, caller="the filter")
        torch_module()  # before the generator is fitted, which may take long
        fitting, made, training = (int(rng.integers(1 << 31)) for rng in streams(seed, 3))
        fitted = self.generator.fit(members, seed=fitting)
        own = read_members(fitted.sample(records.size, seed=made), name="generated")
        both = np.concatenate([channels_last(records.X), channels_last(own.X)])
        real = (np.arange(len(both)) < records.size).astype(np.int64)
        logits = image_classifier(both, real, classes=2, seed=training)
        return FittedFilter(fitted, self.drop, logits)


@dataclass(frozen=True, eq=False)
class FittedFilter:
    """The fitted generator, the share to drop, and the network's logits of generated and real."""

    fitted: Fitted
    drop: float
    logits: Any

    def sample(self, count: int, *, seed: int) -> Any:
        """Sample more images than asked for and keep the `count` that look most real, in the order they came."""
        size = check_count(count)
        made = read_members(self.fitted.sample(math.ceil(size / (1.0 - self.drop)), seed=seed), name="generated")
        found = self.logits(channels_last(made.X))
        lead: FloatArray = found[:, 1] - found[:, 0]
        return some_records(made, np.sort(np.argsort(-lead, kind="stable")[:size]))
