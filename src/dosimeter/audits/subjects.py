"""From a configuration to what is audited: the records, and a training of them."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError, IntArray
from dosimeter.accounting import DpSgd, noise_for_epsilon
from dosimeter.audits import config as settings
from dosimeter.datasets import Dataset, load, names, split
from dosimeter.datasets.dataset import fingerprint
from dosimeter.engine import Task
from dosimeter.models import dataset as read_records
from dosimeter.training import Model, Privacy, Recipe
from dosimeter.training.foreign import PLACES, command_task, named_files
from dosimeter.training.groups import packed
from dosimeter.training.networks import NETWORKS, network
from dosimeter.training.tokens import hashed_words

HELD_OUT = {"model": 0.5, "gradients": 0.5}


@dataclass(frozen=True, eq=False)
class Subject:
    """What is audited: records to train on, records that no training sees, the training, and its recipe.

    `train` is a factory of torch modules when there is a recipe, else a function (indices, seed) -> model.
    """

    name: str
    data: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] = field(repr=False)
    held_out: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None = field(repr=False)
    train: Callable[..., Any] = field(repr=False)
    recipe: Recipe | None
    source: str

    @property
    def records(self) -> int:
        return len(self.data[0])

    def mechanism(self, members: int) -> DpSgd | None:
        """The guarantee of a training on this many members, if it has one."""
        if self.recipe is None or self.recipe.dp is None or self.recipe.dp.noise_multiplier == 0:
            return None
        return self.recipe.mechanism(members)


def subject(config: settings.Config, *, base: Path) -> Subject:
    """Load the records and make ready what trains on them; files are looked for from the folder `base`."""
    share = HELD_OUT.get(config.audit, 0.0) if config.data.test_share is None else config.data.test_share
    if config.audit in HELD_OUT and share == 0:
        raise InputError(
            f"data.test_share is 0, but audit = {config.audit!r} needs records that no model saw; pass 0.5."
        )
    parts = _parts(config.data, share, base)
    classes = len(parts[0].class_names)
    encoded = [_encoded(part, config) for part in parts]
    held = encoded[1] if len(encoded) > 1 else None
    source = config.model.source
    recipe = None
    if source in ("network", "factory"):
        train: Callable[..., Any] = _factory(config, encoded[0][0], classes, parts[0].task, base)
        recipe = _recipe(config, len(encoded[0][0]))
    elif source == "sklearn":
        train = SklearnTraining(_estimator_class(config.model), dict(config.model.options), *encoded[0])
        train.blank(0)
    else:
        assert config.model.command is not None
        with _named("model."):
            missing = [place for place in PLACES if not any(place in part for part in config.model.command)]
            if missing:
                raise InputError(f"command must use {', '.join(PLACES)}, and lacks {', '.join(missing)}.")
        x, y = (np.concatenate([part[at] for part in encoded]) for at in (0, 1))
        command = tuple(config.model.command)
        train = CommandTraining(command, str(base), x, y, len(encoded[0][0]), named_files(command, base))
    return Subject(
        config.name or f"{config.data.name or config.data.file}, {_described(config.model)}",
        encoded[0],
        held,
        train,
        recipe,
        parts[0].source,
    )


def _parts(data: settings.Data, share: float, base: Path) -> tuple[Dataset, ...]:
    if data.file is not None:
        whole = _from_file(base / data.file, data.label)
    else:
        assert data.name is not None
        check.choice("data.name", data.name, names())
        with _named("data.name: "):
            whole = load(data.name, folder=None if data.folder is None else base / data.folder)
    if whole.y is None:
        raise InputError(f"data.name is {data.name}, which has no labels to train for; choose another.")
    count = len(whole) if data.records is None else data.records
    if count > len(whole):
        raise InputError(f"data.records is {count}, but {whole.name} has {len(whole)}; pass at most that.")
    held = round(share * count)
    if share and (held == 0 or held == count):
        raise InputError(f"data.test_share {share:g} of {count} records leaves one side empty; take more records.")
    return split(whole, sizes=(count - held, held) if held else (count,), seed=data.seed)


def _from_file(path: Path, label: str | None) -> Dataset:
    x, y = read_records(path, label=label)
    if not isinstance(x, np.ndarray) or y is None:
        raise InputError(f"data.file {path} must hold numbers and labels; pass .npz with X and y, .csv or .parquet.")
    classes, codes = np.unique(y, return_inverse=True)
    records, labels = np.ascontiguousarray(x, np.float32), codes.astype(np.int64)
    columns = tuple(f"column {at}" for at in range(records.shape[1])) if records.ndim == 2 else ()
    kind: Literal["image", "tabular"] = "image" if records.ndim in (3, 4) else "tabular"
    known_by = fingerprint(records, labels)
    return Dataset(path.name, records, labels, columns, tuple(map(str, classes)), str(path), known_by, kind)


def _encoded(part: Dataset, config: settings.Config) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Records as the training takes them: ids for texts, channels first for images, flat rows for scikit-learn."""
    assert part.y is not None
    x: npt.NDArray[Any] = part.X
    if part.task == "text":
        if config.model.source == "sklearn":
            raise InputError(f"model.sklearn cannot take the texts of {part.name}; use network or factory.")
        x = hashed_words(x, vocabulary=config.data.vocabulary, length=config.data.length)
    elif part.task == "image" and x.ndim == 3:
        x = x[:, None]
    elif part.task == "image" and x.shape[-1] in (1, 3):
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    if config.model.source == "sklearn":
        x = x.reshape(len(x), -1)
    return x, part.y


def _factory(config: settings.Config, x: npt.NDArray[Any], classes: int, task: str, base: Path) -> Callable[..., Any]:
    model = config.model
    if model.factory is not None:
        return Model(imported("model.factory", model.factory, base), model.factory)
    assert model.network is not None
    check.choice("model.network", model.network, tuple(NETWORKS))
    known = inspect.signature(NETWORKS[model.network]).parameters
    for name in model.network_options:
        if name not in known:
            raise InputError(f"model.{name} has no meaning for network = {model.network!r}; leave it out.")
    vocabulary = {"vocabulary": config.data.vocabulary} if task == "text" else {}
    with _named("model."):
        return network(model.network, x, classes, **vocabulary, **model.network_options)


def imported(field: str, path: str, base: Path) -> Callable[..., Any]:
    """The function "package.module:function", looked for in the folder of the configuration and the working one too."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise InputError(f"{field} must be 'package.module:function', got {check.show(path)}.")
    for folder in (str(base.resolve()), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{field} {path} cannot be imported: {error}.") from None
    if not callable(found):
        raise InputError(f"{field} {path} is {check.show(found)}, not a function.")
    return found


def _recipe(config: settings.Config, records: int) -> Recipe:
    given = config.recipe.model_dump(exclude_unset=True)
    dp = given.pop("dp", None)
    if given.get("batch_size") == "all":
        given["batch_size"] = None
    if not {"epochs", "steps"} & given.keys():
        raise InputError("recipe.epochs is missing; say how long to train, by epochs or steps.")
    with _named("recipe."):
        recipe = Recipe(**given)
    if dp is None:
        return recipe
    with _named("recipe.dp."):
        if dp.get("epsilon") is not None and config.audit == "gradients":  # which chooses its noise by itself
            dp = {**dp, "noise_multiplier": 0.0, "epsilon": None}
        elif dp.get("epsilon") is not None:
            runs = [replace(recipe, dp=Privacy(1.0)).mechanism(n) for n in training_sizes(config, records)]
            noise = noise_for_epsilon(
                dp["epsilon"],
                delta=config.estimate.delta,
                sample_rate=max(run.sample_rate for run in runs),
                steps=max(run.steps for run in runs),
                sampling=str(runs[0].sampling),
                neighbours=str(runs[0].neighbours),
            )
            dp = {**dp, "noise_multiplier": noise, "epsilon": None}
        return replace(recipe, dp=Privacy(**{name: value for name, value in dp.items() if value is not None}))


def training_sizes(config: settings.Config, records: int) -> tuple[int, int]:
    """The fewest and the most records that a model whose guarantee counts is trained on."""
    if config.audit == "one-run":  # as many canaries as the audit takes by itself, in by coins
        count = config.budget.canaries or min(1000, records // 2)
        return max(1, records - (0 if config.attack.canaries else count)), records + count
    if config.audit != "training":
        return records, records
    if config.attack.game == "crossed":  # halves by coins: six standard deviations around the mean
        reach = math.ceil(3 * math.sqrt(records))
        return max(1, records // 2 - reach), min(records, records // 2 + reach)
    points = config.attack.points
    count = 0 if config.attack.canaries else len(points) if points else config.attack.challenges or 1
    return max(1, records - count), records


def _estimator_class(model: settings.Model) -> type:
    path = str(model.sklearn)
    module, dot, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name) if dot else None
    except (ImportError, AttributeError) as error:
        raise InputError(f"model.sklearn {path} cannot be imported: {error}.") from None
    asked = ("fit", "get_params")
    if not isinstance(found, type) or not all(callable(getattr(found, one, None)) for one in asked):
        raise InputError(
            f"model.sklearn must be the path of a scikit-learn class, got {path}; pass e.g. "
            "sklearn.ensemble.RandomForestClassifier."
        )
    return found


@dataclass(frozen=True, eq=False)
class SklearnTraining:
    """Fits a new estimator to the rows it is given; its randomness comes from the seed."""

    kind: type
    options: dict[str, Any]
    x: npt.NDArray[Any] = field(repr=False)
    y: npt.NDArray[np.int64] = field(repr=False)

    def blank(self, seed: int) -> Any:
        """An estimator that is not fitted yet."""
        try:
            made: Any = self.kind(**self.options)
            if "random_state" in made.get_params() and "random_state" not in self.options:
                made.set_params(random_state=int(np.random.SeedSequence(seed).generate_state(1)[0]))
        except TypeError as error:
            raise InputError(f"model.options do not suit {self.kind.__name__}: {error}.") from None
        return made

    def __call__(self, indices: IntArray, seed: int) -> Any:
        """The fitted estimator."""
        return self.blank(seed).fit(self.x[indices], self.y[indices])


@dataclass(frozen=True, eq=False)
class CommandTraining:
    """Starts a command for each training; its outputs are the model.

    `{data}` in the command becomes the path of an .npz file with all records X and labels y; the other places are
    those of `dosimeter.training.train_command`. The outputs must have a row for each of these records. `files` are
    hashes of the files that the command names: keys of a store hold them.
    """

    command: tuple[str, ...]
    folder: str
    x: npt.NDArray[Any] = field(repr=False)
    y: npt.NDArray[np.int64] = field(repr=False)
    trained: int
    files: dict[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, indices: IntArray, seed: int) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
        """A model that answers for all records at once, as the command did."""
        chosen = np.zeros(self.trained, bool)
        chosen[indices] = True
        with tempfile.TemporaryDirectory(prefix="dosimeter-") as folder:
            file = Path(folder) / "data.npz"
            if any("{data}" in part for part in self.command):
                np.savez(file, X=self.x, y=self.y)
            arguments = {
                "command": [self._found(part.replace("{data}", str(file))) for part in self.command],
                "members": packed(chosen),
                "records": self.trained,
                "output": "outputs",
                "timeout": None,
            }
            outputs = command_task(Task("train", arguments, seed), {})[0]["outputs"]
        if len(outputs) != len(self.x):
            raise InputError(f"the command gave outputs for {len(outputs)} records, not for all {len(self.x)}.")
        return lambda records: outputs

    def _found(self, part: str) -> str:
        """A file beside the configuration by its full path, so that it is found from any folder."""
        file = Path(self.folder).absolute() / part
        return str(file) if file.is_file() else part


def _described(model: settings.Model) -> str:
    return str(model.network or model.factory or model.sklearn or " ".join(model.command or ()))


@contextmanager
def _named(prefix: str) -> Iterator[None]:
    """Errors that begin with the name of an argument then begin with the field of the configuration."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{prefix}{error}") from None
