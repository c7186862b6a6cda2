"""ONNX files through onnxruntime: a graph of known operators, no code of the file's own."""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter._validate import InputError, require, show
from dosimeter.models.black_box import Batched
from dosimeter.models.outputs import Array

_LARGEST = 2**31  # a protocol buffer cannot be larger
_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
_ENOUGH = 10
_SECONDS = "DOSIMETER_ONNX_SECONDS"
_DEFAULT_SECONDS = 600.0
_REAL = ("tensor(float)", "tensor(double)", "tensor(float16)")


class OnnxFile(Batched):
    """A classifier in an .onnx file, with one input and an output of scores for each class.

    A batch that takes longer than DOSIMETER_ONNX_SECONDS (600) is stopped: a graph may hold a loop that never ends.
    """

    expansion = 64

    def __init__(self, path: str | os.PathLike[str], *, device: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.path = Path(path)
        self.seconds = _seconds()
        self.session = _session(self.path, device)
        self.input = self._one_input()
        self.output, self.label = self._score_output()
        first = self.input.shape[0] if self.input.shape else None
        self.fixed = first if isinstance(first, int) and first > 0 else None
        if self.fixed is not None:
            self.batch_size = self.fixed

    def _one_input(self) -> Any:
        inputs = self.session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _TYPES:
            raise InputError(
                f"{self.path} expects {_signature(inputs)}; export the model with a single input of numbers."
            )
        return inputs[0]

    def _score_output(self) -> tuple[Any, str | None]:
        """The output with a score for each class, and the output with the label, if there is one."""
        outputs = self.session.get_outputs()
        label = next((o.name for o in outputs if o.type in ("tensor(int64)", "tensor(string)")), None)
        maps = [o for o in outputs if o.type.startswith("seq(map(")]
        real = [o for o in outputs if o.type in _REAL]
        if not maps and not real:
            raise InputError(
                f"{self.path} returns {_signature(outputs)} and no scores; export a classifier that returns logits or "
                "probabilities."
            )
        if len(maps) == 1 or (not maps and len(real) == 1):
            return (maps or real)[0], label
        tables = [o for o in real if len(o.shape) == 2 and o.shape[1] != 1]
        named = [o for word in ("logit", "prob") for o in tables if word in o.name.lower()]
        if maps or not tables or (len(tables) > 1 and not named):
            raise InputError(
                f"{self.path} returns {_signature(outputs)}, and which holds the scores of the classes is not clear; "
                "export one output of shape (n, classes)."
            )
        chosen = (named or tables)[0]
        self.warnings = (f"of the file's outputs, {chosen.name} was read",)
        return chosen, label

    def _predict(self, rows: Any) -> Any:
        array = self._fit(rows)
        given = array.shape[0]
        if self.fixed is not None and given < self.fixed:
            array = np.concatenate([array, np.repeat(array[-1:], self.fixed - given, axis=0)])
        wanted = [self.output.name] + ([self.label] if self.label else [])
        scores, *named = self._run(wanted, {self.input.name: array})
        if isinstance(scores, list):
            scores = self._from_maps(scores)
        elif named:
            self._match(np.asarray(scores)[:given], np.asarray(named[0])[:given])
        return np.asarray(scores)[:given]

    def _run(self, wanted: list[str], inputs: dict[str, Array]) -> Any:
        """The session's answer, stopped between two operators when the time is up."""
        runtime: Any = require("onnxruntime", extra="onnx", caller="dosimeter.models.access")
        options, late = runtime.RunOptions(), threading.Event()

        def stop() -> None:
            late.set()
            options.terminate = True

        watch = threading.Timer(self.seconds, stop)
        watch.daemon = True
        watch.start()
        try:
            return self.session.run(wanted, inputs, options)
        except Exception:
            if late.is_set():
                raise InputError(
                    f"{self.path} was stopped after {self.seconds:g} seconds for one batch of "
                    f"{len(next(iter(inputs.values())))} records; pass a smaller batch_size, or set {_SECONDS} to more."
                ) from None
            raise
        finally:
            watch.cancel()

    def _fit(self, rows: Any) -> Array:
        """The records in the type and shape that the graph expects."""
        array, wanted = np.asarray(rows), np.dtype(_TYPES[self.input.type])
        shape = self.input.shape
        fits = len(shape) in (0, array.ndim) and all(
            not isinstance(size, int) or size <= 0 or size == given
            for size, given in zip(shape[1:], array.shape[1:], strict=False)
        )
        if not fits or array.dtype.kind not in "biuf":
            raise InputError(
                f"{self.path} expects {_signature([self.input])}, got records of shape {('n', *array.shape[1:])} and "
                f"type {array.dtype}; pass data like that which the model was trained on."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(wanted)
        same = np.isfinite(cast) | np.isnan(array) if wanted.kind == "f" else cast == array
        if not same.all():
            what = "are too large for" if wanted.kind == "f" else "are not whole numbers of"
            raise InputError(f"{self.path} expects {_signature([self.input])}, but some values of X {what} this type.")
        return cast

    def _from_maps(self, maps: list[dict[Any, float]]) -> Array:
        """Scores from the list of dictionaries that skl2onnx writes: the keys are the classes."""
        names = tuple(maps[0])
        if self.classes is None:
            self.classes = names
        elif set(self.classes) != set(names):
            raise InputError(f"classes must be those of {self.path}, {show(list(names))}; leave classes out.")
        kind = np.float64 if "tensor(double)" in self.output.type else np.float32
        return np.array([[row[name] for name in self.classes] for row in maps], dtype=kind)

    def _match(self, scores: Array, named: Array) -> None:
        """Refuse a file whose own labels are not the columns' names.

        Some classifiers name, now and then, another class than the most probable one, so a majority decides.
        """
        if scores.ndim != 2 or scores.shape[1] < 2 or named.shape != (scores.shape[0],):
            return
        columns = np.asarray(range(scores.shape[1]) if self.classes is None else self.classes).astype(str)
        given, best = named.astype(str), columns[scores.argmax(axis=1)]
        other = given != best
        if not np.isin(given, columns).all() or (given.size >= _ENOUGH and other.mean() > 0.5):
            raise InputError(
                f"{self.path} calls a record {show(str(given[np.argmax(other)]))} where column "
                f"{show(str(best[np.argmax(other)]))} is highest; pass classes=, the label of each column, or convert "
                "with zipmap on."
            )


def _session(path: Path, device: Any) -> Any:
    if not path.is_file():
        raise InputError(f"{path} does not exist or is not a file; check the path.")
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path} is empty (0 bytes); export the model again.")
    if size >= _LARGEST:
        raise InputError(
            f"{path} has {size} bytes, and an ONNX file is below 2 GB; pass a function that runs the model."
        )
    if _keeps_weights_elsewhere(path):
        raise InputError(
            f"{path} keeps weights in other files, which could be any file of this machine; save the model with all "
            "weights inside."
        )
    runtime: Any = require("onnxruntime", extra="onnx", caller="dosimeter.models.access")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(str(path), sess_options=options, providers=_providers(runtime, device))
    except InputError:
        raise
    except Exception as error:
        reason = str(error).rpartition("failed:")[2]
        raise InputError(f"{path} is not an ONNX model ({show(reason, 120)}); export the model again.") from None
    return session


def _seconds() -> float:
    text = os.environ.get(_SECONDS, "").strip() or str(_DEFAULT_SECONDS)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= threading.TIMEOUT_MAX:
        raise InputError(f"{_SECONDS} must be a positive number of seconds, got {show(text)}; set e.g. {_SECONDS}=60.")
    return value


# Which fields of an ONNX message hold further messages, by their numbers in onnx.proto.
_PARTS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_EXTERNAL_DATA, _DATA_LOCATION, _EXTERNAL = 13, 14, 1


def _keeps_weights_elsewhere(path: Path) -> bool:
    """Whether any tensor of the file names data outside it; a damaged file is left to onnxruntime."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        waiting = [("model", 0, len(data))]
        try:
            while waiting:
                kind, start, stop = waiting.pop()
                for number, value, end in _fields(data, start, stop):
                    if kind == "tensor":
                        if number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value == _EXTERNAL):
                            return True
                    elif number in _PARTS[kind] and end is not None:
                        waiting.append((_PARTS[kind][number], value, end))
        except IndexError:  # it ends in the middle of a field
            return False
    return False


def _fields(data: Any, start: int, stop: int) -> Iterator[tuple[int, int, int | None]]:
    """Number, and value or start and end, of each field of a protocol buffer's message."""
    while start < stop:
        tag, start = _varint(data, start)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, start = _varint(data, start)
            yield number, value, None
        elif wire == 2:
            length, start = _varint(data, start)
            if start + length > stop:
                raise IndexError
            yield number, start, start + length
            start += length
        elif wire in (1, 5):
            start += 8 if wire == 1 else 4
        else:  # groups are not part of ONNX
            raise IndexError


def _varint(data: Any, start: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[start]
        value |= (byte & 0x7F) << shift
        start += 1
        if byte < 0x80:
            return value, start
        shift += 7
        if shift > 63:
            raise IndexError


def _providers(runtime: Any, device: Any) -> list[str]:
    name = "cpu" if device is None else str(device).partition(":")[0].lower()
    available = {p.removesuffix("ExecutionProvider").lower(): p for p in runtime.get_available_providers()}
    if name not in available:
        raise InputError(f"device {show(device)} is not one of this onnxruntime ({', '.join(available)}); pass 'cpu'.")
    return list(dict.fromkeys([available[name], "CPUExecutionProvider"]))


def _signature(values: Any) -> str:
    return ", ".join(f"{v.name}: {v.type} of shape {[d if d else 'n' for d in v.shape]}" for v in values) or "nothing"
