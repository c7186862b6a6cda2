"""A pre-trained transformer for the texts of a TOML file: its frozen features as records, or fine-tuned itself."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError, IntArray, require, show
from dosimeter.engine import Store
from dosimeter.models import HuggingFace
from dosimeter.pipelines import config as settings

__all__ = ["FineTunedTexts", "fine_tuning", "fine_tuning_of", "text_features"]

RATE, BATCH = 1e-4, 16
TAKEN = ("learning_rate", "epochs", "steps", "batch_size")
_NEAR = 50  # batches whose texts are sorted by their length together
_WIDTH = 4096  # numbers that a token takes on the way through a small encoder


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A pre-trained model with its tokenizer; `digest` is the SHA-256 of its weights."""

    model: Any
    tokenizer: Any
    digest: str


def _load(setting: str, name: str, base: Path, classes: int | None) -> _Loaded:
    """Load a folder beside the configuration, else a name on the hub; with a new head for so many classes."""
    transformers: Any = require("transformers", extra="text", caller=setting)
    require("torch", extra="torch", caller=setting)
    folder = base / name
    place, local = (str(folder), True) if folder.is_dir() else (name, False)
    head = {} if classes is None else {"num_labels": classes}
    kind = transformers.AutoModel if classes is None else transformers.AutoModelForSequenceClassification
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=local)
        with _from_seed(0), _without_report(transformers):  # the head is drawn anew for each training
            model = kind.from_pretrained(place, local_files_only=local, use_safetensors=True, **head)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{setting} {name} cannot be loaded ({type(error).__name__}: {show(str(error), 120)}); pass a folder with "
            "config.json, the tokenizer and model.safetensors, or a name on the Hugging Face hub."
        ) from None
    if tokenizer.pad_token_id is None:
        raise InputError(f"{setting} {name} has no padding token; choose an encoder such as all-MiniLM-L6-v2.")
    digest = hashlib.sha256(str(model.config).encode())
    for key, part in model.base_model.state_dict().items():
        digest.update(key.encode() + part.contiguous().numpy().tobytes())
    return _Loaded(model.eval(), tokenizer, digest.hexdigest())


@lru_cache(maxsize=1)  # a data set is encoded in parts
def _encoder(name: str, base: Path) -> _Loaded:
    return _load("data.encoder", name, base, None)


def text_features(
    name: str, texts: Sequence[str], *, length: int, base: Path = Path(), store: Store | None = None
) -> npt.NDArray[np.float32]:
    """Compute the frozen features of texts: the mean over the tokens of the encoder's last layer.

    Args:
        name: A folder, looked for in `base`, or a name on the hub.
        texts: The texts.
        length: How many tokens of each are read.
        base: Where the folder is looked for.
        store: Keeps the features; they are computed once for the same texts and weights.

    Returns:
        One row for each text.

    Raises:
        InputError: If the encoder cannot be loaded.
    """
    loaded = _encoder(name, base)
    rows = _token_rows(loaded.tokenizer, texts, length)
    said = hashlib.sha256(f"text features, {loaded.digest}".encode())
    for row in rows:
        said.update(str(row).encode())
    key = said.hexdigest()
    known = None if store is None else store.get(key)
    if known is not None:
        return known[0]["features"]
    found = _mean_of_tokens(loaded, rows)
    if store is not None:
        store.put(key, {"features": found})
    return found


def _mean_of_tokens(loaded: _Loaded, rows: list[list[int]]) -> npt.NDArray[np.float32]:
    torch: Any = require("torch", extra="torch", caller="data.encoder")

    def call(ids: IntArray, mask: IntArray, device: Any, _: IntArray) -> npt.NDArray[np.float32]:
        given = torch.from_numpy(mask).to(device)
        answer = loaded.model(input_ids=torch.from_numpy(ids).to(device), attention_mask=given).last_hidden_state
        mean = (answer * given[..., None]).sum(dim=1) / given.sum(dim=1, keepdim=True)
        return np.asarray(mean.float().cpu().numpy(), np.float32)

    box = HuggingFace(loaded.model, loaded.tokenizer, task="classification")
    answers = box.forward([np.array(row) for row in rows], _WIDTH, call)
    found = np.empty((len(rows), answers[0][1].shape[1]), np.float32)
    for places, values in answers:
        found[places] = values
    return found


def _token_rows(tokenizer: Any, texts: Sequence[str], length: int) -> list[list[int]]:
    found: list[list[int]] = tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    return found


def token_table(tokenizer: Any, texts: Sequence[str], length: int) -> npt.NDArray[np.int64]:
    """Token numbers of each text in a row of `length`, filled up with the padding token."""
    table = np.full((len(texts), length), tokenizer.pad_token_id, np.int64)
    for place, row in enumerate(_token_rows(tokenizer, texts, length)):
        table[place, : len(row)] = row
    return table


# --- fine-tuning ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FineTunedTexts:
    """Fine-tunes a pre-trained classifier on rows of tokens; the rate falls to 0 along a straight line.

    Records are tables of `token_table`. `weights` is the digest of what every training starts from: with it, keys of a
    store know the weights without holding them.
    """

    name: str
    folder: str
    classes: int
    padding: int
    weights: str
    x: npt.NDArray[np.int64] = field(repr=False)
    y: npt.NDArray[np.int64] = field(repr=False)
    rate: float = RATE
    epochs: int | None = None
    steps: int | None = None
    batch: int = BATCH
    loop: int = 2  # stands in the keys of a store: raise it when the training gives other numbers

    def length(self, records: int) -> int:
        """How many steps a training on so many records takes."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return self.epochs * -(-records // self.batch)

    def __call__(self, indices: IntArray, seed: int) -> Any:
        """A function of token rows that gives logits."""
        torch: Any = require("torch", extra="torch", caller="model.pretrained")
        rng, steps = np.random.default_rng(seed), self.length(len(indices))
        with _from_seed(seed % 2**31):
            model = _fresh(_classifier(self.name, self.folder, self.classes).model)
            optimizer = torch.optim.AdamW(model.parameters(), lr=self.rate, weight_decay=0.0, fused=True)
            schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
            model.train()
            for chosen in islice(self.batches(indices, rng), steps):
                loss = self._loss(torch, model, chosen)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        box = HuggingFace(model.eval(), task="classification", padding=self.padding)
        return lambda records: box.outputs([row[row != self.padding] for row in records]).values

    def batches(self, indices: IntArray, rng: np.random.Generator) -> Iterator[IntArray]:
        """Batches without an end, in random order; texts of about one length meet, so that little is filled up.

        Records are shuffled, those of 50 batches sorted by their length, and these batches shuffled.
        """
        lengths, size = (self.x != self.padding).sum(axis=1), min(self.batch, len(indices))
        left = np.empty(0, np.int64)
        while True:
            left = np.concatenate([left, rng.permutation(indices)])
            whole, left = np.split(left, [left.size // size * size])
            for piece in np.split(whole, range(_NEAR * size, whole.size, _NEAR * size)):
                near = piece[np.argsort(lengths[piece], kind="stable")]
                yield from rng.permutation(near.reshape(-1, size))

    def _loss(self, torch: Any, model: Any, chosen: IntArray) -> Any:
        ids = self.x[chosen]
        mask = ids != self.padding
        ids, mask = ids[:, : mask.sum(axis=1).max()], mask[:, : mask.sum(axis=1).max()]
        given = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask.astype(np.int64))}
        return torch.nn.functional.cross_entropy(model(**given).logits, torch.from_numpy(self.y[chosen]))


@lru_cache(maxsize=1)  # each process loads the weights once
def _classifier(name: str, folder: str, classes: int) -> _Loaded:
    return _load("model.pretrained", name, Path(folder), classes)


def _fresh(model: Any) -> Any:
    """A copy with a head of new random weights, drawn as the model's own configuration says."""
    found = copy.deepcopy(model)
    base = found.base_model_prefix
    for name, part in found.named_children():
        if name != base:
            for module in part.modules():
                for weight in module.parameters(recurse=False):
                    if weight.ndim > 1:
                        weight.data.normal_(0.0, float(getattr(found.config, "initializer_range", 0.02)))
                    else:
                        weight.data.zero_()
    return found


@contextmanager
def _without_report(transformers: Any) -> Iterator[None]:
    """The head is new, which transformers would warn of for as many lines as it has weights."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)


@contextmanager
def _from_seed(seed: int) -> Iterator[None]:
    torch: Any = require("torch", extra="torch", caller="model.pretrained")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


Part = tuple[Sequence[str], npt.NDArray[np.int64]]
Table = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


def fine_tuning(
    name: str,
    parts: Sequence[Part],
    classes: int,
    *,
    length: int,
    base: Path = Path(),
    learning_rate: float = RATE,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = BATCH,
) -> tuple[FineTunedTexts, list[Table]]:
    """Make ready the fine-tuning of a pre-trained transformer.

    Args:
        name: A folder, looked for in `base`, or a name on the hub.
        parts: Texts and labels: those to train on first, then those held out, if any.
        classes: The number of classes.
        length: How many tokens of each text are read.
        base: Where the folder is looked for.
        learning_rate: The rate at the beginning.
        epochs: How long to train; or say `steps`.
        steps: How many steps to train.
        batch_size: Texts in a batch.

    Returns:
        The training, and the parts as tables of tokens.

    Raises:
        InputError: If the model cannot be loaded.
    """
    loaded = _classifier(name, str(base), classes)
    tables = [(token_table(loaded.tokenizer, texts, length), y) for texts, y in parts]
    how: dict[str, Any] = {"rate": learning_rate, "epochs": epochs, "steps": steps, "batch": batch_size}
    padding = int(loaded.tokenizer.pad_token_id)
    return FineTunedTexts(name, str(base), classes, padding, loaded.digest, *tables[0], **how), tables


def fine_tuning_of(
    config: settings.Config, parts: Sequence[Part], classes: int, base: Path
) -> tuple[FineTunedTexts, list[Table]]:
    """Read the fine-tuning that a configuration describes; refuses what [recipe] says beyond it."""
    given = {name: value for name, value in config.recipe.model_dump(exclude_unset=True).items() if value is not None}
    other = [name for name in given if name not in TAKEN]
    if other:
        raise InputError(
            f"recipe.{other[0]} has no meaning for model.pretrained, which takes {', '.join(TAKEN)}; leave it out, or "
            "train a network on data.encoder."
        )
    if ("epochs" in given) == ("steps" in given):
        raise InputError("recipe.epochs or recipe.steps must say how long to fine-tune; give one of them.")
    if not all(isinstance(value, (int, float)) and value > 0 for value in given.values()):
        raise InputError(f"recipe must hold positive numbers for model.pretrained, got {show(given)}; correct it.")
    assert config.model.pretrained is not None
    return fine_tuning(config.model.pretrained, parts, classes, length=config.data.length, base=base, **given)
