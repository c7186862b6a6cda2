"""What a training is, as a value: everything but the model, the records and the seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.accounting import DpSgd, Sampling

OPTIMISERS = ("sgd", "adam")
SAMPLINGS = ("shuffled", "poisson")
LOSSES = ("cross-entropy",)


@dataclass(frozen=True)
class Model:
    """A factory of modules with the name and version that keys of a store are made of."""

    factory: Callable[[], Any]
    name: str
    version: str = "1"

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise InputError(f"factory must be a function that returns a new module, got {check.show(self.factory)}.")
        for name in ("name", "version"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise InputError(f"{name} must be a text, got {check.show(getattr(self, name))}; pass e.g. 'mlp-2'.")

    def __call__(self) -> Any:
        return self.factory()

    def to_dict(self) -> dict[str, str]:
        """What a key of a store needs."""
        return {"name": self.name, "version": self.version}


@dataclass(frozen=True)
class Privacy:
    """DP-SGD (Abadi et al., 2016, Alg. 1) with flat clipping.

    Each record's gradient is clipped to norm `clip`, the sum gets Gaussian noise of standard deviation
    `noise_multiplier` · `clip`, and the result is divided by the (expected) batch size.

    `noise_multiplier=0` clips without noise and has no guarantee.
    """

    noise_multiplier: float
    clip: float = 1.0

    def __post_init__(self) -> None:
        remedy = "pass the noise over the clipping norm, e.g. 1.1"
        noise = check.within("noise_multiplier", self.noise_multiplier, 0.0, math.inf, remedy, include="[)")
        clip = check.within("clip", self.clip, 0.0, math.inf, "pass the clipping norm, e.g. 1", include="()")
        object.__setattr__(self, "noise_multiplier", noise)
        object.__setattr__(self, "clip", clip)


@dataclass(frozen=True)
class Recipe:
    """How to train: optimiser, length, batches, loss and, with `dp`, clipping and noise.

    Exactly one of `epochs` and `steps` is given. `sampling="shuffled"` passes over a fresh permutation of the members
    in each epoch in fixed batches, the last one smaller; `"poisson"` draws each member into each batch independently
    with probability batch_size / members. `batch_size=None` takes all members in every step. `weight_decay` is added
    to the gradient, as `torch.optim` does; Adam has torch's β = (0.9, 0.999) and ε = 1e-8.
    """

    optimiser: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = 128
    sampling: str = "shuffled"
    dp: Privacy | None = None
    loss: str = "cross-entropy"

    def __post_init__(self) -> None:
        check.choice("optimiser", self.optimiser, OPTIMISERS)
        check.choice("sampling", self.sampling, SAMPLINGS)
        check.choice("loss", self.loss, LOSSES)
        rate = check.within("learning_rate", self.learning_rate, 0.0, math.inf, "pass e.g. 0.1", include="()")
        momentum = check.within("momentum", self.momentum, 0.0, 1.0, "pass e.g. 0.9", include="[)")
        decay = check.within("weight_decay", self.weight_decay, 0.0, math.inf, "pass e.g. 5e-4", include="[)")
        if self.optimiser == "adam" and momentum:
            raise InputError(f"momentum={momentum:g} has no meaning for adam; leave it at 0.")
        if (self.epochs is None) == (self.steps is None):
            raise InputError(f"pass exactly one of epochs and steps, got epochs={self.epochs} and steps={self.steps}.")
        if self.dp is not None and not isinstance(self.dp, Privacy):
            raise InputError(f"dp must be a Privacy or None, got {check.show(self.dp)}; pass Privacy(1.1, clip=1).")
        object.__setattr__(self, "learning_rate", rate)
        object.__setattr__(self, "momentum", momentum)
        object.__setattr__(self, "weight_decay", decay)
        for name in ("epochs", "steps", "batch_size"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check.whole(name, value, 1, f"pass a positive number of {name}"))

    def batch(self, members: int) -> int:
        """Records in a batch (expected, for Poisson) when the model has this many members."""
        return members if self.batch_size is None else min(self.batch_size, members)

    def length(self, members: int) -> int:
        """Steps of a training on this many members."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return self.epochs * math.ceil(members / self.batch(members))

    def mechanism(self, records: int) -> DpSgd:
        """What is run on this many members, as the accountants read it."""
        records = check.whole("records", records, 1, "pass the number of members of the model")
        if self.dp is None:
            raise InputError("dp is None: this training has no guarantee to account for; pass dp=Privacy(1.1, clip=1).")
        if self.dp.noise_multiplier == 0:
            raise InputError("noise_multiplier is 0: this training has no guarantee; pass e.g. 1.1.")
        batch = self.batch(records)
        poisson = self.sampling == "poisson"
        # A shuffled pass has ⌈n/b⌉ batches and uses each record once: the rate says how many passes the steps are.
        rate = batch / records if poisson else 1 / math.ceil(records / batch)
        return DpSgd(self.dp.noise_multiplier, rate, self.length(records), sampling=Sampling(self.sampling))

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON and for keys of a store."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """The recipe that `to_dict` wrote."""
        dp = values.get("dp")
        return cls(**{**values, "dp": None if dp is None else Privacy(**dp)})
