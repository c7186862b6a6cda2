"""A hook that watches your own Opacus run, changes nothing in it, and leaves its transcript."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError, require
from dosimeter.accounting import Neighbours
from dosimeter.audits.gradients._opacus_batches import WatchedBatches
from dosimeter.training import Transcript
from dosimeter.training.chain import torch_module

_SAY_WHICH = "pass data_loader=… and, in a run on the data set with the record, index=… (its row), or in_batch=…"


class OpacusTranscript:
    """Watch the steps of an Opacus training as an adversary would who knows D, D' and every batch.

    D' is D without the record `removed` and with the record `added`. Use it as a context manager around your own
    training loop; `transcript` then holds what the adversary saw. Watch several runs, each with a seed of its own, some
    on D and some on D'. `Transcripts.from_runs(runs, trained_on_d)` puts them together, and `audit_transcripts` audits
    them.

    The adversary knows which batches hold the differing record, so the hook must know it too. With `data_loader` it
    finds out by itself, for Poisson, shuffled and full batches, for accumulated batches and for a
    `BatchMemoryManager`. In a run on the data set without the record, the hook draws the record's place in the batches
    as the loader would have drawn it. A training on mini-batches needs `data_loader` or `in_batch`, one on full batches
    neither.

    The run keeps its random numbers and its result. It costs one more forward and backward pass, of one or two records,
    in each step that holds the record. The optimiser itself clips the record's gradient, so an optimiser that clips too
    little is caught.

    Args:
        model: The `GradSampleModule` that `PrivacyEngine.make_private` returned.
        optimizer: The `DPOptimizer` that it returned, with flat clipping.
        criterion: The loss of the training, `criterion(outputs, labels)`.
        removed: The record (x, y) that only D has, as the model takes it; None if D' only adds one.
        added: The record (x, y) that only D' has; None if D' only lacks one.
        data_loader: The loader that `make_private` returned. The training must loop over it inside the block.
        index: The row of the differing record in the data set of this run; None if this data set lacks it.
        in_batch: Instead of a loader, `in_batch(step)` says whether the batch of a step, counted from 0, holds the
            record. In a run on the data set without the record, it says whether the batch holds the record's place.

    Raises:
        InputError: If the objects do not belong to one such training, if nothing tells which mini-batches hold the
            record, or if a step is on other records than the loader gave.

    Examples:
        >>> with OpacusTranscript(
        ...     model, optimizer, criterion, removed=(X[3], y[3]), data_loader=loader, index=3 if on_d else None
        ... ) as watch:  # doctest: +SKIP
        ...     train(model, optimizer, loader)
        >>> runs.append(watch.transcript)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        criterion: Callable[[Any, Any], Any],
        *,
        removed: tuple[Any, Any] | None = None,
        added: tuple[Any, Any] | None = None,
        data_loader: Any = None,
        index: int | None = None,
        in_batch: Callable[[int], bool] | None = None,
    ) -> None:
        opacus = require("opacus", extra="torch", caller="OpacusTranscript")
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
        ours = {id(parameter) for parameter in model.parameters()}
        if not optimizer.params or any(id(parameter) not in ours for parameter in optimizer.params):
            raise InputError("optimizer does not train the parameters of model; pass the two of one training.")
        self._model, self._optimizer, self._criterion, self._in_batch = model, optimizer, criterion, in_batch
        device = optimizer.params[0].device
        pairs = (("removed", removed, 1.0), ("added", added, -1.0))
        self._records = [(*_record(name, pair, device), sign) for name, pair, sign in pairs if pair is not None]
        self._batches = self._watched(data_loader, index)
        self._rows: list[tuple[float, float, float]] = []
        self._full: tuple[int, bool] | None = None  # of every batch: its records, and whether the record is among them
        self._inside, self._met = 0, False  # records of the step so far, and whether the record was among them
        self._before: Any = None
        self._on = False

    def __enter__(self) -> OpacusTranscript:
        if self._on:
            raise InputError(
                "this OpacusTranscript is already watching; leave its with block before you enter the next one."
            )
        self._on = True
        self._before, self._clip = self._optimizer.step_hook, self._optimizer.clip_and_accumulate
        self._inside, self._met = 0, False
        unknown = self._batches is None and self._in_batch is None
        self._notice = self._model.register_forward_pre_hook(self._forward) if unknown else None
        self._optimizer.attach_step_hook(self._look)
        self._optimizer.clip_and_accumulate = self._count
        if self._batches is not None:
            self._batches.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._on = False
        if self._notice is not None:
            self._notice.remove()
        self._optimizer.attach_step_hook(self._before)
        if getattr(self._clip, "__func__", None) is type(self._optimizer).clip_and_accumulate:
            del self._optimizer.clip_and_accumulate
        else:
            self._optimizer.clip_and_accumulate = self._clip
        if self._batches is not None:
            self._batches.stop()

    @property
    def transcript(self) -> Transcript:
        """What the adversary saw so far: one entry for each step."""
        if not self._rows:
            raise InputError("no step was seen; train inside `with OpacusTranscript(…) as watch:`.")
        distances, projections, deviations = zip(*self._rows, strict=True)
        relation = Neighbours.REPLACE if len(self._records) == 2 else Neighbours.ADD_REMOVE
        return Transcript(distances, projections, deviations, neighbours=str(relation))  # type: ignore[arg-type]

    # --- which batches hold the record ------------------------------------------------------------------------

    def _watched(self, loader: Any, index: int | None) -> WatchedBatches | None:
        """The watch on the loader, or None where none is needed; what leaves the batches unknown is refused."""
        if loader is not None and self._in_batch is not None:
            raise InputError("data_loader and in_batch are both given; pass one.")
        if loader is None:
            if index is not None:
                raise InputError(f"index={check.show(index)} is a row of data_loader, which is missing; pass it too.")
            if self._in_batch is None and _mini_batches(self._model, self._optimizer):
                raise InputError(
                    f"the training uses mini-batches, and nothing says which of them hold the record; {_SAY_WHICH}."
                )
            return None
        if index is None and len(self._records) == 2:
            raise InputError(
                "index is None, but a record is replaced, so each data set has one of the two; pass its row."
            )
        watched = WatchedBatches(loader, index)
        if index is not None:
            self._compare(loader.dataset, index)
        return watched

    def _compare(self, dataset: Any, index: int) -> None:
        """Refuse a row that holds neither record, where the two can be compared."""
        torch = torch_module()
        with torch.random.fork_rng(devices=[]):
            row = dataset[index]
        if not isinstance(row, (tuple, list)) or len(row) != 2:
            return
        try:
            x, y = torch.as_tensor(row[0]), torch.as_tensor(row[1])
        except (TypeError, ValueError, RuntimeError):  # an image or a text that a collate function will read
            return
        if any(x.shape != record.shape[1:] or y.ndim for record, _, _ in self._records):
            return
        for record, label, _ in self._records:
            pairs = ((x, record[0]), (y, label[0]))
            if all(torch.allclose(ours.double(), theirs.cpu().double()) for ours, theirs in pairs):
                return
        raise InputError(
            f"index={index} is not the row of the record that was given: the data set has another one there; pass "
            "(X[i], y[i]) and index=i of one data set, or, where records change at random, in_batch=… instead."
        )

    def _forward(self, module: Any, arguments: tuple[Any, ...]) -> None:
        """Note whether the record is among the inputs of a training pass."""
        torch = torch_module()
        x = arguments[0] if arguments else None
        if not torch.is_grad_enabled() or not module.hooks_enabled or not isinstance(x, torch.Tensor):
            return
        for record, _, _ in self._records:
            if x.shape[1:] == record.shape[1:] and x.device == record.device:
                self._met |= bool((x == record).flatten(1).all(dim=1).any())

    def _count(self) -> None:
        """Count the records of each call, and clip them as before; a step may take several calls."""
        first = self._optimizer.params[0].grad_sample
        self._inside += sum(len(part) for part in (first if isinstance(first, list) else [first]))
        self._clip()

    def _holds(self) -> int:
        """How often the batches of this step hold the record or its place."""
        records, met, step = self._inside, self._met, len(self._rows)
        self._inside, self._met = 0, False
        if self._batches is not None:
            return self._batches.take(records, step)
        if self._in_batch is not None:
            return int(bool(self._in_batch(step)))
        if self._full not in (None, (records, met)):
            raise InputError(
                f"step {step}, counted from 0, is not on the records of the step before, so they are mini-batches, and "
                f"nothing says which of them hold the record; {_SAY_WHICH}."
            )
        self._full = records, met
        return 1

    # --- what a step shows ------------------------------------------------------------------------------------

    def _look(self, optimizer: Any) -> None:
        """After clipping and noise, before the weights move: note ‖Δ‖, ⟨noise, Δ⟩ and σ."""
        if self._before is not None:
            self._before(optimizer)
        deviation = float(optimizer.noise_multiplier * optimizer.max_grad_norm)
        count = self._holds()
        if not count:
            self._rows.append((0.0, 0.0, deviation))
            return
        scale = 1.0
        if optimizer.loss_reduction == "mean":
            scale = float(optimizer.expected_batch_size * optimizer.accumulated_iterations)
        square = inner = 0.0
        for parameter, part in zip(optimizer.params, self._difference(optimizer.params), strict=True):
            noise = parameter.grad.double() * scale - parameter.summed_grad.double().view_as(parameter)
            square += float(part.square().sum()) * count**2
            inner += float((noise * part).sum()) * count
        if not (square < float("inf") and abs(inner) < float("inf")):
            raise InputError(f"the gradients became infinite or NaN in step {len(self._rows)}, counted from 0.")
        self._rows.append((square**0.5, inner if square else 0.0, deviation))

    def _difference(self, parameters: list[Any]) -> list[Any]:
        """Δ: the signed clipped gradients of the differing records at the present weights."""
        torch = torch_module()
        total = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in parameters]
        cards = {parameter.device for parameter in parameters if parameter.is_cuda}
        enabled, self._model.hooks_enabled = self._model.hooks_enabled, False
        try:
            with torch.random.fork_rng(devices=list(cards)), torch.enable_grad():
                for x, y, sign in self._records:
                    loss = self._criterion(self._model(x), y).sum()
                    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
                    for place, part in zip(total, self._clipped(parameters, gradients), strict=True):
                        place.add_(part.double().view_as(place), alpha=sign)
        finally:
            self._model.hooks_enabled = enabled
        return total

    def _clipped(self, parameters: list[Any], gradients: Any) -> list[Any]:
        """The gradient of one record as the optimiser clips it."""
        kept = [(parameter.grad_sample, parameter.summed_grad) for parameter in parameters]
        try:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad_sample, parameter.summed_grad = gradient.unsqueeze(0), None
            _unwatched(self._clip)()
            return [parameter.summed_grad for parameter in parameters]
        finally:
            for parameter, (samples, summed) in zip(parameters, kept, strict=True):
                parameter.grad_sample, parameter.summed_grad = samples, summed


def _clips_flat(optimizer: Any, kinds: Any) -> bool:
    """Whether this is Opacus's plain optimiser, or a subclass of it that the user wrote."""
    others = [kind for kind in vars(kinds).values() if isinstance(kind, type) and kind is not kinds.DPOptimizer]
    return isinstance(optimizer, kinds.DPOptimizer) and not isinstance(optimizer, tuple(others))


def _unwatched(clip: Any) -> Any:
    """The optimiser's own clipping, without any hook around it."""
    while isinstance(getattr(clip, "__self__", None), OpacusTranscript):
        clip = clip.__self__._clip
    return clip


def _mini_batches(model: Any, optimizer: Any) -> bool:
    """Whether `make_private` prepared batches that do not hold every record.

    The accountant's hook knows the sampling rate; where there is none, Poisson sampling has forbidden accumulation.
    """
    hook = optimizer.step_hook
    names = getattr(getattr(hook, "__code__", None), "co_freevars", ())
    cells = [cell.cell_contents for cell in getattr(hook, "__closure__", None) or ()]
    rate = dict(zip(names, cells, strict=False)).get("sample_rate")
    return bool(rate < 1) if isinstance(rate, (int, float)) else not getattr(model, "grad_accumulation_allowed", True)


def _record(name: str, pair: Any, device: Any) -> tuple[Any, Any]:
    """One record and its label as batches of one."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise InputError(f"{name} must be a pair (x, y) of one record, got {check.show(pair)}.")
    torch = torch_module()
    x, y = torch.as_tensor(pair[0], device=device), torch.as_tensor(pair[1], device=device)
    if y.ndim:
        raise InputError(f"{name} must have one label, got one of shape {tuple(y.shape)}; pass (X[i], y[i]).")
    return x.unsqueeze(0), y.unsqueeze(0)
