"""Ask a trained model: a method, a function, or a torch module, which is left as it was found; and on which device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError, show
from dosimeter.training.chain import torch_module

AT_ONCE = 1024  # records that a module is asked about, where nobody says


@dataclass(frozen=True, eq=False)
class Observed:
    """Ask each trained model through a function that is given the model itself.

    Args:
        function: A function (model, X, y) that gives one finite number for each record. It is called where the model
            was trained, and what it reaches is part of the keys of a store.
        records: The records and labels (X, y) that it is called with, or "data" for those of the training.

    >>> Observed(lambda model, X, y: X[:, 0]).records
    'data'
    """

    function: Callable[[Any, Any, Any], Any]
    records: Any = "data"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"function must be a function (model, X, y), got {show(self.function)}; pass one.")


def observed(
    function: Callable[[Any, Any, Any], Any], model: Any, X: npt.NDArray[Any], y: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """What a function sees of a model, if it is one finite number for each record."""
    found = np.asarray(function(model, X, y), np.float64)
    if found.shape != (len(X),) or not np.isfinite(found).all():
        raise InputError(
            f"the white-box function gave shape {found.shape} for {len(X)} records, or numbers that are not finite; "
            "return one finite number for each record."
        )
    return found


def is_module(model: Any) -> bool:
    """Whether a model is a module of torch, which need not be installed."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def module_answers(module: Any, device: Any = None, batch_size: int | None = None) -> Callable[[Any], npt.NDArray[Any]]:
    """A function of records that gives a module's outputs as an array."""

    def answer(records: Any) -> npt.NDArray[Any]:
        size, found = batch_size or AT_ONCE, []
        with asking(module, device) as place:
            for at in range(0, len(records), size):
                outputs = module(to_tensor(records[at : at + size], module, place))
                found.append(getattr(outputs, "logits", outputs).float().cpu().numpy())
        return np.concatenate(found)

    return answer


def predictor_of(
    predictor: Any, name: str | None = None, device: str | None = None, batch_size: int | None = None
) -> Callable[[Any], Any]:
    """The method of a trained model that answers for records, or the model itself where it is a function."""
    if name is not None:
        return getattr(predictor, name)
    module = is_module(predictor)
    for method in (
        ("predict_proba", "decision_function") if module else ("predict_proba", "decision_function", "predict")
    ):
        if callable(getattr(predictor, method, None)):
            return getattr(predictor, method)
    if module:
        return module_answers(predictor, device, batch_size)
    if not callable(predictor):
        raise TypeError(f"the function returned {show(predictor)}, which cannot be asked")
    return predictor


@contextmanager
def asking(module: Any, device: Any = None) -> Iterator[Any]:
    """Eval mode, no gradients and the device, for as long as the module is asked; yields the device."""
    torch = torch_module()
    modes = [(part, part.training) for part in module.modules()]
    tensors = [*module.parameters(), *module.buffers()]
    home = tensors[0].device if tensors else torch.device("cpu")
    place = home if device is None else torch.device(device)
    moved = bool(tensors) and place != home
    if place.type == "cpu" and any(one.dtype == torch.bfloat16 for one in tensors):
        check_bfloat16("the model computes in bfloat16", "pass model.float()")
    try:
        module.eval()
        if moved:
            module.to(device)
        with torch.no_grad():  # not inference_mode: what a module caches now must serve training later
            yield place
    except RuntimeError as error:
        if out_of_memory(error):
            raise MemoryError from None
        raise
    finally:
        if moved:
            module.to(home)
        for part, training in modes:
            part.training = training


def out_of_memory(error: RuntimeError) -> bool:
    """Whether torch failed for want of memory, on whatever device."""
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text


def checked_device(device: Any) -> Any:
    """A device that torch knows and this machine has, or None."""
    if device is None:
        return None
    torch = torch_module()
    try:
        return torch.empty(0, device=device).device
    except Exception as error:
        raise InputError(
            f"device {show(device)} cannot be used here ({show(str(error), 80)}); pass e.g. 'cpu'."
        ) from None


def to_tensor(rows: Any, module: Any, device: Any) -> Any:
    """Records as a tensor; real numbers and bytes take the type of the parameters, int32 and int64 stay."""
    torch = torch_module()
    if not isinstance(rows, torch.Tensor):
        array = np.asarray(rows)
        if array.dtype.kind not in "biuf":
            raise InputError(
                f"X has type {array.dtype}, which a torch module cannot take; pass numbers, or wrap text models in "
                "HuggingFace(model, tokenizer)."
            )
        rows = torch.from_numpy(np.array(array, order="C"))
    kept = rows.dtype in (torch.int32, torch.int64)
    wanted = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    return rows.to(device=device, dtype=rows.dtype if kept else wanted)


KINDS = ("cpu", "cuda", "mps", "xpu")


def device_kind(name: str | None) -> str:
    """The kind of a device, e.g. "cuda" of "cuda:1"; None is the CPU."""
    return "cpu" if name is None else name.partition(":")[0]


def check_device_name(value: Any) -> str | None:
    """A name that torch gives to a device, or None; whether there is one here is another question."""
    if value is None:
        return None
    kind, _, number = value.partition(":") if isinstance(value, str) else ("", "", "")
    if kind not in KINDS or (":" in value and not number.isdecimal()):
        raise InputError(f"device must be one of {', '.join(KINDS)}, e.g. 'cuda:1', got {check.show(value)}; pass one.")
    return str(value)


def require_device(name: str | None, precision: str | None = None) -> None:
    """Refuse a device that this machine does not have, and a precision that would stop the program on it."""
    kind = device_kind(check_device_name(name))
    if kind == "cpu":
        if precision == "bf16":
            check_bfloat16("precision='bf16'", "pass precision='float32'")
        return
    torch = torch_module()
    found = getattr(torch, kind)
    count = int(found.device_count()) if found.is_available() else 0
    assert name is not None
    if count == 0:
        raise InputError(
            f"device={name!r} asks for a GPU, and torch {torch.__version__} finds none of that kind on this machine; "
            "pass device='cpu', or install the driver and a torch that is built for it."
        )
    number = int(name.partition(":")[2] or 0)
    if number >= count:
        raise InputError(f"device={name!r}, but this machine has {count} of that kind, counted from 0; pass another.")


def check_bfloat16(what: str, remedy: str) -> None:
    """Refuse products in bfloat16 on a processor that would stop the program at the first one."""
    if not _has_bfloat16():
        raise InputError(
            f"{what}, but a product in bfloat16 stops a program on this processor (some virtual machines announce AMX "
            f"and forbid it); {remedy}, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts."
        )


_TRIAL = """
import torch
layer = torch.nn.Linear(64, 64)
with torch.autocast("cpu", dtype=torch.bfloat16):
    found = layer(torch.ones(16, 64))
found.float().sum().backward()
"""


@cache
def _has_bfloat16() -> bool:
    """Whether a process of its own survives a product in bfloat16: an illegal instruction cannot be caught."""
    done = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False)
    return done.returncode >= 0


def gpus_of(name: str | None) -> int:
    """How many GPUs a task on this device takes."""
    return 0 if device_kind(name) == "cpu" else 1
