"""Records as a training takes them: numbers for texts, channels first for images, flat rows for scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError
from dosimeter.datasets import Dataset
from dosimeter.engine import Store
from dosimeter.pipelines import config as settings
from dosimeter.training.tokens import hashed_words

__all__ = ["encoded"]


def encoded(
    part: Dataset, config: settings.Config, base: Path, store: Store | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Encode a part of a data set; the store keeps features of texts."""
    assert part.y is not None
    x: npt.NDArray[Any] = part.X
    if config.data.encoder is not None:
        from dosimeter.pipelines.pretrained import text_features

        if part.task != "text":
            raise InputError(f"data.encoder is for texts, and {part.name} has none; leave it out.")
        texts = [str(text) for text in x]
        return text_features(config.data.encoder, texts, length=config.data.length, base=base, store=store), part.y
    if part.task == "text":
        if config.model.source == "sklearn":
            raise InputError(f"model.sklearn cannot take the texts of {part.name}; add data.encoder, or use network.")
        x = hashed_words(x, vocabulary=config.data.vocabulary, length=config.data.length)
    elif part.task == "image" and x.ndim == 3:
        x = x[:, None]
    elif part.task == "image" and x.shape[-1] in (1, 3):
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    if config.model.source == "sklearn":
        x = x.reshape(len(x), -1)
    return x, part.y
