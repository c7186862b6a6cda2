"""An audit of a language model from a TOML file: pre-train on one half of the texts, fine-tune on the other, audit."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.audits.assemble import audit_seed
from dosimeter.audits.result import Audit
from dosimeter.audits.text.files import read_jsonl
from dosimeter.audits.text.run import audit_canaries
from dosimeter.audits.text.sheet import DEFAULT_COUNT, canary_sheet
from dosimeter.datasets import load, names
from dosimeter.engine import RunOptions, Store
from dosimeter.pipelines import config as settings
from dosimeter.pipelines.language import FineTuning, byte_pairs, fine_tune, small_model, token_rows
from dosimeter.pipelines.subjects import Places, Subject

__all__ = ["LanguageTraining", "language_audit", "text_subject"]

NETWORK = "gpt2"
STEPS = 200
SECRET, PREFIX = 10, 10
FEWEST_TEXTS = 40


@dataclass(frozen=True)
class LanguageTraining:
    """A small GPT-2 and how it is trained: on one half of the texts as a base, then on the other half.

    Called with rows and a seed it trains both, as a probe of the time that it takes.
    """

    texts: tuple[str, ...]
    vocabulary: int
    words: int
    width: int
    layers: int
    heads: int
    how: FineTuning

    @property
    def positions(self) -> int:
        """The longest text in tokens: rare words take several."""
        return 4 * max(self.words, PREFIX + SECRET)

    def halves(self) -> tuple[list[str], list[str]]:
        """The texts that the base model learns from, and those that it is fine-tuned on."""
        half = len(self.texts) // 2
        return list(self.texts[:half]), list(self.texts[half:])

    def tokenizer(self) -> Any:
        """The byte-pair vocabulary of the first half."""
        return byte_pairs(self.halves()[0], self.vocabulary)

    def model(self, tokenizer: Any, seed: int) -> Any:
        """The model before any training."""
        return small_model(
            len(tokenizer), positions=self.positions, width=self.width, layers=self.layers, heads=self.heads, seed=seed
        )

    def base(self, tokenizer: Any, seed: int) -> Any:
        """The model trained on the first half, without DP: the base model is public."""
        model = self.model(tokenizer, seed)
        how = replace(self.how, epsilon=None, seed=seed)
        fine_tune(model, token_rows(tokenizer, self.halves()[0], self.positions), how)
        return model

    def tuned(self, model: Any, tokenizer: Any, texts: list[str], records: int, seed: int) -> Any:
        """Train the base further, in place."""
        fine_tune(model, token_rows(tokenizer, texts, self.positions), replace(self.how, seed=seed), records=records)
        return model

    def __call__(self, indices: Any, seed: int) -> Any:
        tokenizer = self.tokenizer()
        second = self.halves()[1]
        self.tuned(self.base(tokenizer, seed), tokenizer, second, len(second), seed)
        return lambda texts: np.zeros(len(texts))

    def key(self, *more: Any) -> str:
        """What a kept model depends on."""
        parts = {**asdict(self), "texts": hashlib.sha256("\n".join(self.texts).encode()).hexdigest()}
        said = json.dumps([parts, *more], sort_keys=True)
        return hashlib.sha256(f"language model: {said}".encode()).hexdigest()


def language_audit(
    train: LanguageTraining,
    *,
    score: str = "ratio",
    kind: str = "suffix",
    count: int | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    name: str | None = None,
    seed: int | None = None,
    run: RunOptions | None = None,
) -> Audit:
    """Make a sheet, train the base and the fine-tuned model, and audit it; a store keeps both models and the seed."""
    store = None if run is None else run.store
    seed = audit_seed(seed, store, "text", train.key(), kind, count)
    tokenizer = train.tokenizer()
    first, second = train.halves()
    wanted = DEFAULT_COUNT if count is None else count
    sheet = canary_sheet(
        wanted, like=first, tokenizer=tokenizer, kind=kind, length=SECRET, prefix=min(PREFIX, train.words), seed=seed
    )
    base = _kept(store, train.key("base", seed), train.model(tokenizer, seed), lambda: train.base(tokenizer, seed))
    records = len(second) + wanted // 2  # not a function of the coins
    mechanism = replace(train.how, delta=delta).mechanism(records)

    def tuned() -> Any:
        started = train.model(tokenizer, seed)
        started.load_state_dict(base.state_dict())
        return train.tuned(started, tokenizer, sheet.training_texts(second), records, seed + 1)

    model = _kept(store, train.key("tuned", seed, sheet.hash), train.model(tokenizer, seed), tuned)
    return audit_canaries(
        model,
        tokenizer,
        sheet,
        base=base,
        score=score,
        mechanism=mechanism,
        delta=delta,
        confidence=confidence,
        name=name,
    )


def _kept(store: Store | None, key: str, blank: Any, make: Any) -> Any:
    """A model from the store, or a new one that is put there."""
    import torch

    found = None if store is None else store.get(key)
    if found is None:
        model = make()
        if store is not None:
            arrays = {name: value.numpy() for name, value in model.state_dict().items()}
            store.put(key, arrays, {"what": "a language model"})
        return model
    blank.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in found[0].items()})
    return blank.eval()


def text_subject(config: settings.Config, base: Path) -> Subject:
    """The texts of a configuration, and the training of a small language model on them."""
    data, model, recipe = config.data, config.model, config.recipe
    if model.network != NETWORK:
        raise InputError(
            f"audit = 'text' trains network = {NETWORK!r}, got {check.show(model.network)}; set model.network."
        )
    if data.file is not None:
        whole = read_jsonl(base / data.file, data.label or "text").texts
    else:
        check.choice("data.name", data.name, names())
        loaded = load(str(data.name), folder=None if data.folder is None else base / data.folder)
        split = None if loaded.raw is None else loaded.raw.get("split")
        whole = [str(text) for row, text in enumerate(loaded.X) if split is None or split[row] == "train"]
    pattern = re.compile(rf"(?:\S+\s+){{{data.length - 1}}}\S+")
    pieces = list(dict.fromkeys(match[0] for text in whole for match in pattern.finditer(text)))
    if data.records is not None:
        pieces = pieces[: 2 * (data.records // 2)]
    if len(pieces) < FEWEST_TEXTS:
        raise InputError(
            f"data has {len(pieces)} different texts of {data.length} words, at least {FEWEST_TEXTS} are needed; pass "
            "more texts, or a smaller data.length."
        )
    order = np.random.default_rng(data.seed).permutation(len(pieces))
    texts = tuple(pieces[i] for i in order)
    how = FineTuning(
        recipe.steps or STEPS,
        batch=recipe.batch_size if isinstance(recipe.batch_size, int) else 16,
        rate=recipe.learning_rate or 1e-3,
        epsilon=None if recipe.dp is None else _epsilon(recipe.dp),
        delta=config.estimate.delta,
        clip=1.0 if recipe.dp is None else recipe.dp.clip,
    )
    sizes = (model.dimension or 128, model.layers or 4, model.heads or 4)
    train = LanguageTraining(texts, data.vocabulary, data.length, *sizes, how)
    rows = np.arange(len(texts))
    return Subject(
        config.name or f"{data.name or data.file}, {NETWORK}",
        (np.array(texts), np.zeros(len(texts), np.int64)),
        None,
        train,
        None,
        str(data.name or data.file),
        Places(rows, rows[:0], len(texts)),
        None,
        base,
    )


def _epsilon(dp: settings.DpSection) -> float:
    if dp.epsilon is None:
        raise InputError("recipe.dp of a language model needs epsilon, not noise_multiplier; set recipe.dp.epsilon.")
    return dp.epsilon
