"""Where a training computes and in which precision: checked before any work, and the same for every loop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.engine.work import seed_torch
from dosimeter.training.chain import torch_module

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


def parameter_type(precision: str | None) -> Any:
    """The type that parameters are cast to, or None where they keep their own."""
    torch = torch_module()
    return {"float32": torch.float32, "float64": torch.float64, "bf16": torch.float32}.get(precision or "")


def forward(module: Callable[..., Any], precision: str | None, device: Any) -> Callable[..., Any]:
    """Call a module in the precision of a recipe.

    With "bf16" the products are computed in bfloat16 (torch's autocast). Parameters and their gradients stay in single
    precision, and so do the losses, since what is logits here leaves as single precision.
    """
    if precision != "bf16":
        return module
    torch = torch_module()

    def mixed(*inputs: Any) -> Any:
        # Without the cache: a cast weight that is kept from one transform of torch.func is wrong in the next.
        with torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False):
            logits = module(*inputs)
        return logits.float()

    return mixed


@contextmanager
def seeded(seed: int, device: Any = None) -> Iterator[None]:
    """Torch draws from this seed in the block, on the CPU and on a GPU, and afterwards as before."""
    torch = torch_module()
    kind = "cpu" if device is None else device.type
    cards = [] if kind == "cpu" else [device]
    with torch.random.fork_rng(devices=cards, device_type="cuda" if kind == "cpu" else kind):
        seed_torch(torch, seed)
        yield


def generator(device: Any, seed: int) -> Any:
    """A generator of random numbers where they are needed."""
    return torch_module().Generator(device).manual_seed(seed)
