"""The transcript of somebody's own Opacus run: a hook that watches, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from dosimeter import _optional
from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.training import Transcript
from dosimeter.training.chain import torch_module

_TINY = 1e-6  # Opacus adds it to every norm before it divides


class OpacusTranscript:
    """Watches the steps of a `DPOptimizer`; D' is D without the record `removed` and with the record `added`.

    `model` and `optimizer` are those that `PrivacyEngine.make_private` returned, `criterion(outputs, labels)` the loss
    of the training, `removed` and `added` pairs (x, y) of one record; either may be None. With mini-batches
    `in_batch(step)` says whether the batch of a step, counted from 0, holds the differing record (or its place, in a
    run on the data set without it); the adversary knows the batches. Without it every batch is taken to hold it, as
    full batches do.

        with OpacusTranscript(model, optimizer, criterion, removed=(x, y)) as watch:
            ...  # the training as it is
        runs.append(watch.transcript)

    Transcripts of several runs, on D and on D', make `Transcripts.from_runs(runs, trained_on_d)` for
    `audit_transcripts`. The run has one more forward and backward pass of two records in each step, and the random
    numbers that it would have had.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        criterion: Callable[[Any, Any], Any],
        *,
        removed: tuple[Any, Any] | None = None,
        added: tuple[Any, Any] | None = None,
        in_batch: Callable[[int], bool] | None = None,
    ) -> None:
        opacus = _optional.require("opacus", extra="torch", caller="OpacusTranscript")
        if not _clips_flat(optimizer, opacus.optimizers):
            raise InputError(
                f"optimizer must be a DPOptimizer with flat clipping, got {type(optimizer).__name__}; pass what "
                'PrivacyEngine.make_private(…, clipping="flat") returned.'
            )
        if not isinstance(model, opacus.GradSampleModule):
            raise InputError(
                f"model must be a GradSampleModule, got {type(model).__name__}; pass what make_private returned."
            )
        if not callable(criterion) or (in_batch is not None and not callable(in_batch)):
            raise InputError("criterion and in_batch must be functions; pass e.g. torch.nn.CrossEntropyLoss().")
        if removed is None and added is None:
            raise InputError("removed and added are both None; pass the record in which the data sets differ.")
        self._model, self._optimizer, self._criterion, self._in_batch = model, optimizer, criterion, in_batch
        pairs = (("removed", removed, 1.0), ("added", added, -1.0))
        self._records = [(*_record(name, pair), sign) for name, pair, sign in pairs if pair is not None]
        self._rows: list[tuple[float, float, float]] = []
        self._before: Any = None

    def __enter__(self) -> OpacusTranscript:
        self._before = self._optimizer.step_hook
        self._optimizer.attach_step_hook(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._optimizer.attach_step_hook(self._before)

    @property
    def transcript(self) -> Transcript:
        """What was seen so far."""
        if not self._rows:
            raise InputError("no step was seen; train inside `with OpacusTranscript(…) as watch:`.")
        distances, projections, deviations = zip(*self._rows, strict=True)
        return Transcript(distances, projections, deviations)  # type: ignore[arg-type]

    def _look(self, optimizer: Any) -> None:
        """After clipping and noise, before the weights move: note ‖Δ‖, ⟨noise, Δ⟩ and σ."""
        if self._before is not None:
            self._before(optimizer)
        deviation = float(optimizer.noise_multiplier * optimizer.max_grad_norm)
        if self._in_batch is not None and not self._in_batch(len(self._rows)):
            self._rows.append((0.0, 0.0, deviation))
            return
        scale = 1.0
        if optimizer.loss_reduction == "mean":
            scale = float(optimizer.expected_batch_size * optimizer.accumulated_iterations)
        torch = torch_module()
        with torch.random.fork_rng(devices=[]):
            difference = self._difference(optimizer.params, float(optimizer.max_grad_norm))
        square = inner = 0.0
        for parameter, part in zip(optimizer.params, difference, strict=True):
            noise = parameter.grad.double() * scale - parameter.summed_grad.double().view_as(parameter)
            square += float(part.square().sum())
            inner += float((noise * part).sum())
        if not (square < float("inf") and abs(inner) < float("inf")):
            raise InputError(f"the gradients became infinite or NaN in step {len(self._rows)}, counted from 0.")
        self._rows.append((square**0.5, inner if square else 0.0, deviation))

    def _difference(self, parameters: list[Any], clip: float) -> list[Any]:
        """Δ: the signed clipped gradients of the differing records at the present weights."""
        torch = torch_module()
        total = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in parameters]
        self._model.disable_hooks()
        try:
            for x, y, sign in self._records:
                loss = self._criterion(self._model(x), y).sum()
                found = torch.autograd.grad(loss, parameters, materialize_grads=True)
                norm = float(sum(part.double().square().sum() for part in found)) ** 0.5
                factor = sign * min(1.0, clip / (norm + _TINY))
                for place, part in zip(total, found, strict=True):
                    place.add_(part.double(), alpha=factor)
        finally:
            self._model.enable_hooks()
        return total


def _clips_flat(optimizer: Any, kinds: Any) -> bool:
    """Whether this is Opacus's plain optimiser or one of the user's own made from it."""
    others = [kind for kind in vars(kinds).values() if isinstance(kind, type) and kind is not kinds.DPOptimizer]
    return isinstance(optimizer, kinds.DPOptimizer) and not isinstance(optimizer, tuple(others))


def _record(name: str, pair: Any) -> tuple[Any, Any]:
    """One record and its label as batches of one."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise InputError(f"{name} must be a pair (x, y) of one record, got {check.show(pair)}.")
    torch = torch_module()
    x, y = torch.as_tensor(pair[0]), torch.as_tensor(pair[1])
    if y.ndim:
        raise InputError(f"{name} must have one label, got one of shape {tuple(y.shape)}; pass (X[i], y[i]).")
    return x.unsqueeze(0), y.unsqueeze(0)
