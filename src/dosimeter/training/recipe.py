"""What a training is, as a value: everything but the model, the records and the seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting import DpSgd, Sampling
from dosimeter.evidence import fair_coins, fresh_seed
from dosimeter.training.asking import check_device_name, device_kind

OPTIMISERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine", "one-cycle")
PRECISIONS = ("float32", "float64", "bf16")
FEWEST_OF_A_CYCLE = 4  # steps: with fewer a cycle has no way up
SAMPLINGS = ("shuffled", "poisson")
LOSSES = ("cross-entropy",)
SENSITIVITIES = ("global", "local")


Augment = Callable[[Any, Any], Any]  # (records, torch's generator) → records of the same shape
_LATER = {"schedule": "constant", "device": None, "precision": None, "augment": None}  # fields of later versions


@dataclass(frozen=True)
class Model:
    """Name a factory of modules, for the keys of a store.

    Args:
        factory: Returns a new module at each call.
        name: What the module is.
        version: Change it whenever the module changes.

    Raises:
        InputError: If the factory is not a function, or a name is not a text.

    >>> Model(dict, "mlp", version="2").to_dict()
    {'name': 'mlp', 'version': '2'}
    """

    factory: Callable[[], Any]
    name: str
    version: str = "1"

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise InputError(
                f"factory must be a function that returns a new module, got {check.show(self.factory)}; pass the "
                "function, not what it returns."
            )
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
    """Describe DP-SGD (Abadi et al., 2016, Alg. 1) with flat clipping.

    Each record's gradient is clipped to norm `clip`, the sum gets Gaussian noise of standard deviation
    `noise_multiplier` · `clip`, and the result is divided by the (expected) batch size.

    Args:
        noise_multiplier: The noise over the clipping norm; 0 clips without noise and has no guarantee.
        clip: The clipping norm.
        microbatches: In how many micro-batches a batch is divided (as TensorFlow Privacy does): the mean gradient of
            each is clipped and their sum is divided by their number. None clips the gradient of each record. One record
            then moves the sum by up to 2 · `clip` instead of `clip`, because it changes a whole clipped mean:
            accountants are told so, and the same noise gives less privacy.
        sensitivity: "global", or "local" to scale the noise of each step to the distance ‖Δ‖ of the clipped sums of two
            neighbouring data sets instead of `clip`: a device of gradient audits (Bernau et al., 2021) that depends on
            the data and is not differentially private.

    Raises:
        InputError: If a number is out of range.

    >>> Recipe(epochs=1, batch_size=100, sampling="poisson", dp=Privacy(1.1)).mechanism(5000).steps
    50
    """

    noise_multiplier: float
    clip: float = 1.0
    sensitivity: str = "global"
    microbatches: int | None = None

    def __post_init__(self) -> None:
        remedy = "pass the noise over the clipping norm, e.g. 1.1"
        noise = check.within("noise_multiplier", self.noise_multiplier, 0.0, math.inf, remedy, include="[)")
        clip = check.within("clip", self.clip, 0.0, math.inf, "pass the clipping norm, e.g. 1", include="()")
        object.__setattr__(self, "noise_multiplier", noise)
        object.__setattr__(self, "clip", clip)
        check.choice("sensitivity", self.sensitivity, SENSITIVITIES)
        if self.microbatches is not None:
            remedy = "pass the number of micro-batches in a batch, or None to clip the gradient of each record"
            object.__setattr__(self, "microbatches", check.whole("microbatches", self.microbatches, 1, remedy))
            if self.sensitivity == "local":
                raise InputError("sensitivity='local' is for gradients of single records; leave microbatches out.")

    def __repr__(self) -> str:
        later = "" if self.microbatches is None else f", microbatches={self.microbatches}"
        return (
            f"Privacy(noise_multiplier={self.noise_multiplier!r}, clip={self.clip!r}, "
            f"sensitivity={self.sensitivity!r}{later})"
        )

    @property
    def reach(self) -> float:
        """How far one record that is added, removed or zeroed out moves the clipped sum, in clipping norms."""
        return 1.0 if self.microbatches is None else 2.0


@dataclass(frozen=True)
class Dirac:
    """Canaries of a white-box audit (Nasr et al., 2023): gradients of norm `clip` at one coordinate and 0 elsewhere.

    `coordinates` count through the trained parameters in the module's order. A canary that is `included` is one more
    record: it is drawn into batches at their rate and its gradient is added to the clipped sum before the noise. The
    transcript's `canaries` are the scores of an adversary who sees the noisy gradients. They are high for those that
    are in.

    With `subtract` the adversary knows the records and their batches, as the guarantee allows, and subtracts the
    records' clipped gradients: only the noise and the canary itself are left at its coordinate. For noisy Poisson
    batches the score is then the log-likelihood ratio of "in" to "out", which no other test beats. Otherwise it is the
    sum over all steps, in units of the sum over a batch. Without `subtract` the records' gradients stay in that sum:
    a one-run bound is valid all the same, but they are further noise and cost power.
    """

    coordinates: tuple[int, ...]
    included: tuple[bool, ...]
    subtract: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "subtract", check.flag("subtract", self.subtract))
        places = check.finite_array("coordinates", self.coordinates)
        whole = tuple(check.whole("coordinates", value, 0, "pass places of parameters") for value in places.tolist())
        if len(set(whole)) < len(whole):
            raise InputError("coordinates name a parameter twice; give each canary its own.")
        bits = tuple(check.bits("included", self.included).tolist())
        if len(bits) != len(whole):
            raise InputError(f"included has {len(bits)} values for {len(whole)} coordinates; pass one for each.")
        object.__setattr__(self, "coordinates", whole)
        object.__setattr__(self, "included", bits)

    @classmethod
    def draw(cls, count: int, *, parameters: int, seed: int | None = None) -> Dirac:
        """Canaries at random among so many parameters, each in or out by a fair coin; fresh ones without a seed."""
        parameters = check.whole("parameters", parameters, 1, "pass how many parameters the model trains")
        count = check.whole("count", count, 1, "pass a number of canaries up to that of parameters", parameters)
        key = fresh_seed() if seed is None else check.seed(seed)
        rng = np.random.default_rng(np.random.SeedSequence(key))
        places = rng.choice(parameters, count, replace=False)
        return cls(tuple(places.tolist()), tuple(fair_coins(count, key).tolist()))


@dataclass(frozen=True)
class Recipe:
    """Say how to train: optimiser, length, batches, loss and, with `dp`, clipping and noise.

    Args:
        optimiser: "sgd", "adam" or "adamw"; the latter two have torch's β = (0.9, 0.999) and ε = 1e-8.
        learning_rate: The length of a step; with a schedule, of the longest.
        momentum: That of SGD.
        weight_decay: Added to the gradient, as `torch.optim` does; "adamw" shrinks the weights by it instead.
        epochs: How often each member is used; either this or `steps` is given.
        steps: How many steps.
        batch_size: Records in a batch; None takes all members in every step.
        sampling: "shuffled" passes over a fresh permutation of the members in each epoch in fixed batches, the last one
            smaller; "poisson" draws each member into each batch independently with probability batch_size / members.
        dp: Clipping and noise; None trains without them.
        loss: "cross-entropy".
        accumulate: The number of parts in which the gradient of a batch is summed up, for large batches in little
            memory.
        canaries: Gradients that go into the sums of DP-SGD and are observed in the transcript.
        schedule: "constant"; "cosine", which falls towards 0 over all steps (`CosineAnnealingLR`); or "one-cycle",
            which rises from 1/25 of the learning rate to all of it in the first 30 % of the steps and falls to a
            250 000th (`OneCycleLR` without its cycle of the momentum).
        device: Where models train, e.g. "cuda" or "cuda:1"; None for the CPU. Start, batches and order are the same on
            every device. Noise, dropout and the last digits are not.
        precision: "float32" or "float64" for the parameters and all else; "bf16" computes products in bfloat16 and
            keeps parameters and gradients in float32. None keeps the type that the module has.
        augment: A function (records, generator) that returns as many records of the same shape and type: tensors, and
            torch's generator to draw from. It is called for each batch of each model; with `dp` for one record at a
            time, so that no record gets into the gradient of another.

    Raises:
        InputError: If a value is out of range, or both or neither of `epochs` and `steps` are given.

    >>> Recipe(epochs=3, batch_size=32).length(members=100)
    12
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
    accumulate: int = 1
    canaries: Dirac | None = None
    schedule: str = "constant"
    device: str | None = None
    precision: str | None = None
    augment: Augment | None = None

    def __post_init__(self) -> None:
        check.choice("optimiser", self.optimiser, OPTIMISERS)
        check.choice("sampling", self.sampling, SAMPLINGS)
        check.choice("loss", self.loss, LOSSES)
        rate = check.within("learning_rate", self.learning_rate, 0.0, math.inf, "pass e.g. 0.1", include="()")
        momentum = check.within("momentum", self.momentum, 0.0, 1.0, "pass e.g. 0.9", include="[)")
        decay = check.within("weight_decay", self.weight_decay, 0.0, math.inf, "pass e.g. 5e-4", include="[)")
        if self.optimiser != "sgd" and momentum:
            raise InputError(f"momentum={momentum:g} has no meaning for {self.optimiser}; leave it at 0.")
        if (self.epochs is None) == (self.steps is None):
            raise InputError(f"pass exactly one of epochs and steps, got epochs={self.epochs} and steps={self.steps}.")
        if self.dp is not None and not isinstance(self.dp, Privacy):
            raise InputError(f"dp must be a Privacy or None, got {check.show(self.dp)}; pass Privacy(1.1, clip=1).")
        if self.canaries is not None and (self.dp is None or not isinstance(self.canaries, Dirac)):
            raise InputError(
                f"canaries must be a Dirac in a recipe with dp, got {check.show(self.canaries)} and dp={self.dp}; "
                "pass Dirac.draw(…) and dp=Privacy(…)."
            )
        object.__setattr__(self, "learning_rate", rate)
        object.__setattr__(self, "momentum", momentum)
        object.__setattr__(self, "weight_decay", decay)
        for name in ("epochs", "steps", "batch_size", "accumulate"):
            value = getattr(self, name)
            if value is not None or name == "accumulate":
                object.__setattr__(self, name, check.whole(name, value, 1, f"pass a positive number of {name}"))
        self._check_additions()

    def _check_additions(self) -> None:
        check.choice("schedule", self.schedule, SCHEDULES)
        if self.precision is not None:
            check.choice("precision", self.precision, PRECISIONS)
        object.__setattr__(self, "device", check_device_name(self.device))
        if self.augment is not None and not callable(self.augment):
            raise InputError(
                f"augment must be a function (records, generator) or None, got {check.show(self.augment)}; pass one."
            )
        count = None if self.dp is None else self.dp.microbatches
        if count is None:
            return
        if self.batch_size is None or self.batch_size % count:
            raise InputError(
                f"microbatches={count} must divide batch_size, got batch_size={self.batch_size}; pass a multiple of it."
            )
        if self.canaries is not None:
            raise InputError("canaries are gradients of single records; leave microbatches out.")

    def __repr__(self) -> str:
        # It is part of what tells one audit from another in a store, so a field that came later shows only if used.
        shown = [f"{name}={value!r}" for name, value in self._used().items()]
        return f"Recipe({', '.join(shown)})"

    def _used(self) -> dict[str, Any]:
        """The fields, of the later ones those that are not at their default; the augmentation by its name."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        if self.augment is not None:
            values["augment"] = str(getattr(self.augment, "__qualname__", type(self.augment).__qualname__))
        return {name: value for name, value in values.items() if name not in _LATER or value != _LATER[name]}

    def on(self, device: str | None) -> Recipe:
        """The same training on the device of `RunOptions`; two that contradict each other are refused."""
        if device is None or device == self.device or (self.device is None and device_kind(device) == "cpu"):
            return self
        if self.device is not None:
            raise InputError(f"recipe has device={self.device!r} and run has device={device!r}; name one of them.")
        return replace(self, device=device)

    def rates(self, steps: int) -> FloatArray | None:
        """The learning rate of each of so many steps, as torch's schedulers have it; None if it is always the same."""
        if self.schedule == "constant":
            return None
        at = np.arange(steps)
        if self.schedule == "cosine":
            return np.asarray(self.learning_rate * (1 + np.cos(np.pi * at / steps)) / 2)
        if steps < FEWEST_OF_A_CYCLE:
            raise InputError(
                f"schedule='one-cycle' needs at least {FEWEST_OF_A_CYCLE} steps, got {steps}; train longer, or pass "
                "schedule='cosine'."
            )
        top, low = self.learning_rate, self.learning_rate / 25
        turn = 0.3 * steps - 1
        way = np.where(at <= turn, at / turn, (at - turn) / (steps - 1 - turn))
        start, end = np.where(at <= turn, low, top), np.where(at <= turn, top, low / 1e4)
        return np.asarray(end + (start - end) / 2 * (1 + np.cos(np.pi * way)))

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
        if self.dp.sensitivity == "local":
            raise InputError(
                "sensitivity='local' scales the noise to the records, so this training is not differentially private "
                "and has no guarantee; pass sensitivity='global'."
            )
        batch = self.batch(records)
        poisson = self.sampling == "poisson"
        # A shuffled pass has ⌈n/b⌉ batches and uses each record once: the rate says how many passes the steps are.
        rate = batch / records if poisson else 1 / math.ceil(records / batch)
        # Accountants take the noise over what one record that is added or removed can move; so told, what they say of
        # replaced records holds too.
        noise = self.dp.noise_multiplier / self.dp.reach
        return DpSgd(noise, rate, self.length(records), sampling=Sampling(self.sampling))

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON and for keys of a store.

        A field that later versions added is there only if it is used, so that the keys of other recipes stay. The
        augmentation is there by its name.
        """
        values = self._used()
        for name in ("dp", "canaries"):
            part = values[name]
            values[name] = None if part is None else asdict(part)
        if self.dp is not None and self.dp.microbatches is None:
            del values["dp"]["microbatches"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """The recipe that `to_dict` wrote; an augmentation is written by its name, so the function must be put back."""
        parts = {"dp": Privacy, "canaries": Dirac}
        made = {name: kind(**values[name]) for name, kind in parts.items() if values.get(name) is not None}
        return cls(**{**values, **made})
