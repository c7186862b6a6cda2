"""From whatever a person calls their model to a BlackBox."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dosimeter._validate import InputError, show
from dosimeter.models.black_box import Batched, BlackBox
from dosimeter.models.estimator import Estimator
from dosimeter.models.function import Function
from dosimeter.models.onnx_file import OnnxFile
from dosimeter.models.outputs import Kind
from dosimeter.models.torch_module import TorchModule


def access(
    model: Any,
    *,
    batch_size: int | None = None,
    device: Any = None,
    outputs: Kind | None = None,
    classes: Sequence[Any] | None = None,
) -> BlackBox:
    """Get black-box access to a model.

    Args:
        model: A fitted scikit-learn classifier, a torch module, the path of an .onnx file, a
            `HuggingFace(model, tokenizer)`, a function from X to outputs, or a BlackBox, which is returned as it is.
        batch_size: Records in a batch; by default what fits memory.
        device: Where a module or file runs.
        outputs: What a function, module or file returns: "logits", "log-probabilities" or "probabilities". Without it
            the first batch decides, and a warning states the decision.
        classes: The label of each column; without it labels are column numbers.

    Returns:
        The black box, which gives outputs and losses.

    Raises:
        InputError: If the model is of no known kind.

    >>> import numpy as np
    >>> box = access(lambda X: np.tile([0.25, 0.75], (len(X), 1)), outputs="probabilities")
    >>> box.losses(np.zeros((2, 3)), [1, 0]).values.round(2).tolist()
    [-1.1, 1.1]
    """
    stated = {"outputs": outputs, "classes": classes}
    if isinstance(model, BlackBox):
        _refuse_options("a BlackBox that is already built", {"batch_size": batch_size, "device": device, **stated})
        return model
    if isinstance(model, type):
        raise InputError(f"model is the class {model.__name__}; pass a fitted object of it.")
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix.lower() != ".onnx":
            raise InputError(
                f"model is the file {path}, and only .onnx files are read, since loading others may run code; export "
                "the model to ONNX, or load it yourself and pass the object."
            )
        return OnnxFile(path, batch_size=batch_size, device=device, **stated)
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        transformers: Any = sys.modules.get("transformers")
        if transformers is not None and isinstance(model, transformers.PreTrainedModel):
            raise InputError(
                f"{type(model).__name__} is a Hugging Face model; pass dosimeter.models.HuggingFace(model, tokenizer)."
            )
        return TorchModule(model, batch_size=batch_size, device=device, **stated)
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        _refuse_options("a scikit-learn classifier", {"device": device, **stated})
        return Estimator(model, batch_size=batch_size)
    if callable(model):
        _refuse_options("a function", {"device": device})
        return Function(model, batch_size=batch_size, **stated)
    if hasattr(model, "predict"):
        raise InputError(
            f"{type(model).__name__} has neither predict_proba nor decision_function; pass a classifier, or a function "
            "that returns probabilities or logits; audit_model takes labels alone with outputs='labels'."
        )
    raise InputError(
        f"model must be a classifier, a torch module, a path to an .onnx file, a HuggingFace(model, tokenizer) or a "
        f"function, got {show(model)}; pass one of these."
    )


def asked_by(model: Any, method: str | None = None, *, batch_size: int | None = None, device: Any = None) -> Batched:
    """A model as a function of batches, whatever its answers mean.

    Of an estimator in the manner of scikit-learn `method` is asked; modules, files and functions have one answer.
    """
    if isinstance(model, Batched):
        return model
    if method is not None and hasattr(model, method) and not isinstance(model, BlackBox):
        _refuse_options("a scikit-learn estimator", {"device": device})
        return Function(getattr(model, method), batch_size=batch_size)
    if hasattr(model, "predict") and not callable(model):
        raise InputError(f"{type(model).__name__} has no {method or 'output of several labels'}; pass a function.")
    box = access(model, batch_size=batch_size, device=device)
    if not isinstance(box, Batched):
        raise InputError(f"{type(model).__name__} gives neither numbers nor labels; pass another kind of model.")
    return box


def _refuse_options(what: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} has no meaning for {what}, got {show(value)}; leave it out.")
