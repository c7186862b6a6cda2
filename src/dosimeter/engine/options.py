"""Where and how an audit runs its work, as one value."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.engine.store import Store

__all__ = ["RunKeywords", "RunOptions", "own_keywords"]


@dataclass(frozen=True)
class RunOptions:
    """Say where trainings and model calls run, and what is kept of them.

    Every audit takes it as `run=`. Nothing in it changes a number but `device`: the same audit gives the same bits on
    one worker or many, with a store or without. A GPU rounds otherwise and draws other noise, so trainings on one have
    their own keys in a store.

    Args:
        engine: "local" (processes on this machine), "inline" (in this process) or "ray" (a cluster).
        workers: How many processes; None for one for each core.
        store: Where finished trainings are kept, so that a second run trains nothing again; None keeps nothing.
        memory: Bytes that all workers may use together; None for what the machine has.
        timeout: Seconds that one training may take; None for no limit.
        progress: Whether a bar on standard error shows the stage and the time left.
        device: Where torch models train and are asked, e.g. "cpu", "cuda" or "cuda:1"; None leaves them where they
            are, and trains those of a recipe on the CPU. On a Ray cluster each task then takes a GPU.
        batch_size: How many records a trained model is asked at once; None for what fits memory.

    Raises:
        InputError: If an argument is out of range or of another type.

    >>> RunOptions(workers=2).workers
    2
    """

    engine: str = "local"
    workers: int | None = None
    store: Store | None = None
    memory: int | None = None
    timeout: float | None = None
    progress: bool = True
    device: str | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check.engine(self.engine)
        check.flag("progress", self.progress)
        if self.workers is not None:
            remedy = "pass the number of processes, or None for one for each core"
            object.__setattr__(self, "workers", check.whole("workers", self.workers, 1, remedy))
        if self.batch_size is not None:
            remedy = "pass the number of records to ask a model at once, or None"
            object.__setattr__(self, "batch_size", check.whole("batch_size", self.batch_size, 1, remedy))
        if self.store is not None and not isinstance(self.store, Store):
            raise InputError(f"store must be a Store, got {check.show(self.store)}; pass Store('folder').")
        if self.device is not None and not isinstance(self.device, str):
            raise InputError(f"device must be a name, got {check.show(self.device)}; pass e.g. 'cpu' or None.")

    @classmethod
    def read(cls, run: RunOptions | None, keywords: Mapping[str, Any], *, caller: str, depth: int = 3) -> RunOptions:
        """Take `run=`, or the single keywords that audits took before it.

        Args:
            run: The value that was passed, or None.
            keywords: What else was passed to the audit: the former keywords, e.g. {"workers": 2}.
            caller: The audit, for messages.
            depth: How many calls up the audit was called, for the place that a warning names.

        Returns:
            The options; the default ones where nothing was passed.

        Raises:
            InputError: If a keyword is unknown or contradicts `run`.
        """
        if run is not None and not isinstance(run, RunOptions):
            raise InputError(f"run must be RunOptions, got {check.show(run)}; pass e.g. RunOptions(workers=2).")
        if not keywords:
            return cls() if run is None else run
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(keywords) - known)
        if unknown:
            raise InputError(f"{caller} takes no argument {unknown[0]!r}; see help({caller}).")
        if run is not None:
            name = min(keywords)
            raise InputError(f"{name} was passed beside run; pass run=RunOptions({name}=…) alone.")
        said = ", ".join(f"{name}=…" for name in keywords)
        warnings.warn(
            f"{caller}({said}) is deprecated and will be removed in the next version; pass run=RunOptions({said}).",
            DeprecationWarning,
            stacklevel=depth,
        )
        return replace(cls(), **keywords)


class RunKeywords(TypedDict, total=False):
    """The single keywords that `run=` has replaced; they work for one more version."""

    engine: str
    workers: int | None
    store: Store | None
    memory: int | None
    timeout: float | None
    progress: bool
    device: str | None
    batch_size: int | None


def own_keywords(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the options of an audit into its own, with their defaults, and those that say where it runs."""
    own = {name: options.get(name, default) for name, default in defaults.items()}
    return own, {name: value for name, value in options.items() if name not in defaults}
