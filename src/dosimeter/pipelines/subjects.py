"""From a configuration to what is audited: the records, and a training of them."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError, IntArray
from dosimeter.accounting import DpSgd, noise_for_epsilon
from dosimeter.datasets import Dataset, load, names
from dosimeter.datasets.dataset import split_rows
from dosimeter.engine import Store, Task
from dosimeter.models import dataset as read_records
from dosimeter.pipelines import config as settings
from dosimeter.pipelines.encoding import encoded
from dosimeter.records import file_labels, fingerprint, numeric_table
from dosimeter.training import Model, Privacy, Recipe
from dosimeter.training.cargo import packed
from dosimeter.training.foreign import UnusableError, check_places, command_task, named_files
from dosimeter.training.networks import NETWORKS, network
from dosimeter.training.reach.sources import file_hash

HELD_OUT = {"model": 0.5, "gradients": 0.5}


@dataclass(frozen=True, eq=False)
class Places:
    """Where the records of an audit stand in their data set of `total` rows: those trained on, and those held out.

    Both ascend, so that a whole data set keeps its own order.
    """

    rows: IntArray = field(repr=False)
    held_out: IntArray = field(repr=False)
    total: int

    def positions(self, name: str, rows: list[int]) -> list[int]:
        """Rows of the data set as positions among the records that are trained on."""
        found = {row: position for position, row in enumerate(self.rows.tolist())}
        for row in rows:
            if not 0 <= row < self.total:
                raise InputError(f"{name} holds {row}, but the rows of the data are 0 to {self.total - 1}; correct it.")
            if row not in found:
                why = "is held out" if row in self.held_out else "is not among the records drawn (data.records)"
                raise InputError(f"{name} holds row {row}, which {why}; choose e.g. row {self.rows[0]}.")
        return [found[row] for row in rows]


@dataclass(frozen=True, eq=False)
class Subject:
    """What is audited: records to train on, records that no training sees, the training, and its recipe.

    `train` is a factory of torch modules when there is a recipe, else a function (indices, seed) -> model. Where the
    records are only row numbers, as for a command, `fingerprint` is that of the data set.
    """

    name: str
    data: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] = field(repr=False)
    held_out: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None = field(repr=False)
    train: Callable[..., Any] = field(repr=False)
    recipe: Recipe | None
    source: str
    places: Places
    fingerprint: str | None = None
    folder: Path = Path()

    @property
    def records(self) -> int:
        """How many records there are to train on."""
        return len(self.data[0])

    def importable(self) -> AbstractContextManager[None]:
        """Find modules of the user beside the configuration, for as long as trainings run."""
        return import_path(self.folder)

    def mechanism(self, members: int) -> DpSgd | None:
        """The guarantee of a training on this many members, if it has one."""
        if self.recipe is None or self.recipe.dp is None or self.recipe.dp.noise_multiplier == 0:
            return None
        return self.recipe.mechanism(members)


def subject(config: settings.Config, *, base: Path, store: Store | None = None) -> Subject:
    """Load the records and make ready what trains on them.

    Args:
        config: The audit.
        base: The folder of its file: paths in it start there, and modules beside it can be imported.
        store: Keeps features of texts, so that they are computed once.

    Returns:
        What is audited.

    Raises:
        InputError: If the data cannot be read, or a setting does not fit them.
    """
    if config.audit == "text":
        from dosimeter.pipelines.language_audit import text_subject

        return text_subject(config, base)
    with import_path(base):
        return _subject(config, base, store)


def _subject(config: settings.Config, base: Path, store: Store | None) -> Subject:
    share = HELD_OUT.get(config.audit, 0.0) if config.data.test_share is None else config.data.test_share
    if config.audit in HELD_OUT and share == 0:
        raise InputError(
            f"data.test_share is 0, but audit = {config.audit!r} needs records that no model saw; pass 0.5."
        )
    if config.model.command is not None:
        with _named("model."):
            check_places(config.model.command)
    whole = _whole(config, base)
    assert whole.y is not None
    places = _places(config.data, share, whole)
    recipe, known_by = None, None
    if config.model.source == "command":
        train: Callable[..., Any] = _command(config, whole, places, base)
        parts = [(rows[:, None], whole.y[rows]) for rows in (places.rows, places.held_out)]
        known_by = whole.fingerprint
    elif config.model.source == "pretrained":
        train, parts = _fine_tuned(config, whole, places, base)
    else:
        taken = [whole.take(rows) for rows in (places.rows, places.held_out) if rows.size]
        parts = [encoded(part, config, base, store) for part in taken]
        train = _trainer(config, whole, parts[0])
        if config.model.source in ("network", "factory"):
            recipe = _recipe(config, len(parts[0][0]))
    return Subject(
        config.name or f"{config.data.name or config.data.file}, {_described(config.model)}",
        parts[0],
        parts[1] if places.held_out.size else None,
        train,
        recipe,
        whole.source,
        places,
        known_by,
        base,
    )


def _trainer(
    config: settings.Config, whole: Dataset, data: tuple[npt.NDArray[Any], npt.NDArray[np.int64]]
) -> Callable[..., Any]:
    """A factory of torch modules, or a training of a scikit-learn class."""
    if config.model.source != "sklearn":
        return _factory(config, data[0], len(whole.class_names), whole.task)
    train = SklearnTraining(_estimator_class(config.model), dict(config.model.options), *data)
    train.blank(0)
    return train


def _whole(config: settings.Config, base: Path) -> Dataset:
    """The data set, in its own order."""
    data = config.data
    if data.file is not None:
        return _from_file(base / data.file, data.label, labels_alone=config.model.source == "command")
    assert data.name is not None
    check.choice("data.name", data.name, names())
    with _named("data.name: "):
        whole = load(data.name, folder=None if data.folder is None else base / data.folder)
    if whole.y is None:
        raise InputError(f"data.name is {data.name}, which has no labels to train for; choose another.")
    return whole


def _places(data: settings.DataSection, share: float, whole: Dataset) -> Places:
    """Which rows are trained on and which are held out: drawn by data.seed, each part in the order of the data set."""
    count = len(whole) if data.records is None else data.records
    if count > len(whole):
        raise InputError(f"data.records is {count}, but {whole.name} has {len(whole)}; pass at most that.")
    held = round(share * count)
    if share and (held == 0 or held == count):
        raise InputError(f"data.test_share {share:g} of {count} records leaves one side empty; take more records.")
    rows, held_out = split_rows(len(whole), (count - held, held), data.seed)
    return Places(np.sort(rows), np.sort(held_out), len(whole))


def _from_file(path: Path, label: str | None, *, labels_alone: bool) -> Dataset:
    """A file as a data set; a command reads the records by itself, so that they are only numbered for it."""
    columns: tuple[str, ...] = ()
    note = ""
    if labels_alone:
        y = file_labels(path, label=label)
        records: npt.NDArray[Any] = np.arange(len(y))[:, None]
    else:
        if path.name.lower().endswith(".npz"):
            x, y = read_records(path, label=label)
        else:
            table = numeric_table(path, label)
            (x, y), columns, note = read_records((table.X, table.y)), table.columns, table.note
        if not isinstance(x, np.ndarray) or y is None:
            raise InputError(
                f"data.file {path} must hold numbers and labels; pass .npz with X and y, .csv or .parquet."
            )
        records = np.ascontiguousarray(x, np.float32)
    classes, codes = np.unique(y, return_inverse=True)
    labels = codes.astype(np.int64)
    if records.ndim == 2 and not columns:
        columns = tuple(f"column {at}" for at in range(records.shape[1]))
    kind: Literal["image", "tabular"] = "image" if records.ndim in (3, 4) else "tabular"
    known_by = hashlib.sha256(path.read_bytes()).hexdigest() if labels_alone else fingerprint(records, labels)
    source = f"{path} ({note})" if note else str(path)
    return Dataset(path.name, records, labels, columns, tuple(map(str, classes)), source, known_by, kind)


def _command(config: settings.Config, whole: Dataset, places: Places, base: Path) -> CommandTraining:
    assert config.model.command is not None and whole.y is not None
    own = None if config.data.file is None else str((base / config.data.file).absolute())
    return CommandTraining(
        tuple(config.model.command),
        str(base),
        own,
        None if own is not None else (encoded(whole, config, base)[0], whole.y),
        places.rows,
        places.total,
        whole.class_names if config.attack.signal is None else None,
        named_files(config.model.command, base) | ({} if own is None else {"{data}": file_hash(own)}),
    )


def _fine_tuned(config: settings.Config, whole: Dataset, places: Places, base: Path) -> tuple[Any, Any]:
    """A pre-trained transformer that is fine-tuned, and the texts as token rows."""
    from dosimeter.pipelines.pretrained import fine_tuning_of

    if whole.task != "text" or whole.y is None:
        raise InputError(f"model.pretrained is for texts, and {whole.name} has none; choose network or sklearn.")
    taken = [rows for rows in (places.rows, places.held_out) if rows.size]
    texts = [([str(text) for text in whole.X[rows]], whole.y[rows]) for rows in taken]
    return fine_tuning_of(config, texts, len(whole.class_names), base)


def _factory(config: settings.Config, x: npt.NDArray[Any], classes: int, task: str) -> Callable[..., Any]:
    model = config.model
    if model.factory is not None:
        return Model(imported("model.factory", model.factory), model.factory)
    assert model.network is not None
    check.choice("model.network", model.network, tuple(NETWORKS))
    known = inspect.signature(NETWORKS[model.network]).parameters
    for name in model.network_options:
        if name not in known:
            raise InputError(f"model.{name} has no meaning for network = {model.network!r}; leave it out.")
    hashed = task == "text" and config.data.encoder is None
    vocabulary = {"vocabulary": config.data.vocabulary} if hashed else {}
    with _named("model."):
        return network(model.network, x, classes, **vocabulary, **model.network_options)


@contextmanager
def import_path(base: Path) -> Iterator[None]:
    """Let modules in the folder of the configuration and in the working folder be imported; take it back after."""
    added = [folder for folder in (str(base.resolve()), str(Path.cwd())) if folder not in sys.path]
    sys.path.extend(added)
    try:
        yield
    finally:
        for folder in added:
            if folder in sys.path:
                sys.path.remove(folder)


def imported(field: str, path: str) -> Callable[..., Any]:
    """The function "package.module:function"; see `import_path` for where it is looked for."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise InputError(f"{field} must be 'package.module:function', got {check.show(path)}.")
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
            noise *= Privacy(1.0, microbatches=dp.get("microbatches")).reach
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


def _estimator_class(model: settings.ModelSection) -> type:
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
                made.set_params(random_state=seed % 2**32)
        except TypeError as error:
            raise InputError(f"model.options do not fit {self.kind.__name__}: {error}.") from None
        return made

    def __call__(self, indices: IntArray, seed: int) -> Any:
        """The fitted estimator."""
        return self.blank(seed).fit(self.x[indices], self.y[indices])


@dataclass(frozen=True, eq=False)
class CommandTraining:
    """Starts a command for each training; its outputs are the model, and records are row numbers of the data set.

    `{data}` becomes the path of the data set: the user's own file, or an .npz file of X and y for a named one.
    `{indices}` are rows of it. `{outputs}` must hold a row for each row of it, in the same order, with a column for
    each of the `labels` in their sorted order; any columns if `labels` is None: a signal of the user's reads them.
    `files` are hashes of the files that the command reads or names: keys of a store hold them.
    """

    command: tuple[str, ...]
    folder: str
    file: str | None
    data: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None = field(repr=False)
    rows: IntArray = field(repr=False)
    total: int
    labels: tuple[str, ...] | None
    files: dict[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, indices: IntArray, seed: int) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
        """A model that answers for row numbers, as the command did."""
        chosen = np.zeros(self.total, bool)
        chosen[self.rows[indices]] = True
        with tempfile.TemporaryDirectory(prefix="dosimeter-") as folder:
            file = self.file
            if file is None:
                file = str(Path(folder) / "data.npz")
                if self.data is not None and any("{data}" in part for part in self.command):
                    np.savez(file, X=self.data[0], y=self.data[1])
            arguments = {
                "command": [self._found(part) for part in self.command],
                "members": packed(chosen),
                "records": self.total,
                "output": "outputs",
                "timeout": None,
                "places": {"{data}": file},
            }
            outputs = command_task(Task("train", arguments, seed), {})[0]["outputs"]
        self._check(outputs, int(chosen.sum()))
        return lambda records: outputs[records[:, 0]]

    def _check(self, outputs: npt.NDArray[Any], trained: int) -> None:
        """Refuse outputs that cannot be the answers for the rows of the data set."""
        if len(outputs) != self.total:
            told = " (as many as there are {indices}: it must answer for all)" if len(outputs) == trained else ""
            raise UnusableError(
                f"the command wrote outputs for {len(outputs)} records{told}, but the data have {self.total}: row i of "
                "{outputs} must answer for row i of {data}"
            )
        if self.labels is None or outputs.ndim == 1:
            return
        single = outputs.ndim == 2 and outputs.shape[1] == 1 and not (outputs == 1).all()  # all 1: a label is missing
        if single or (outputs.ndim == 2 and outputs.shape[1] == len(self.labels)):
            return
        raise UnusableError(
            f"the command wrote outputs of shape {outputs.shape} for {len(self.labels)} labels "
            f"({check.show(', '.join(self.labels))}): {{outputs}} needs a column for each, in this order, also for a "
            "label that none of {indices} has"
        )

    def _found(self, part: str) -> str:
        """A file beside the configuration by its full path, so that it is found from any folder."""
        file = Path(self.folder).absolute() / part
        return str(file) if file.is_file() else part


def _described(model: settings.ModelSection) -> str:
    return str(model.network or model.factory or model.sklearn or model.pretrained or " ".join(model.command or ()))


@contextmanager
def _named(prefix: str) -> Iterator[None]:
    """Errors that begin with the name of an argument then begin with the field of the configuration."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{prefix}{error}") from None
