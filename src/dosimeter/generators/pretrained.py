"""Texts from a given Hugging Face causal model: fine-tuned on the members if asked for, then prompted."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, IntArray, show
from dosimeter.generators.classes import FittedClasses, fit_classes
from dosimeter.generators.protocol import check_count, require_members, streams
from dosimeter.generators.transformer import check_prompts, check_top_p
from dosimeter.generators.words import read_texts
from dosimeter.training.chain import torch_module

ATTEMPTS = 5  # at a text that came out empty


@dataclass(frozen=True)
class PretrainedText:
    """Generate texts with a given Hugging Face causal model, fine-tuned on the members if asked for.

    The given model stays as it is: fine-tuning is done on a copy.

    Args:
        model: A causal language model.
        tokenizer: Its tokenizer.
        prompts: Held-out texts to begin with; without them texts begin at the model's start token.
        prompt_tokens: How many tokens of a prompt are used.
        top_p: Each token is drawn from the likeliest ones that have this share of the probability together.
        most_tokens: The longest text.
        epochs: Passes of fine-tuning over the members; 0 for none.
        learning_rate: The rate of fine-tuning.
        batch: How many texts are trained on or written at once.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to, for each class where there are labels.

    >>> PretrainedText(model, tokenizer, epochs=1).fit(texts, seed=0).sample(10, seed=1)  # doctest: +SKIP
    """

    model: Any
    tokenizer: Any
    prompts: Sequence[str] = ()
    prompt_tokens: int = 8
    top_p: float = 0.95
    most_tokens: int = 64
    epochs: int = 0
    learning_rate: float = 5e-5
    batch: int = 16
    name: str = "Hugging Face model"
    minimum: int = 1

    def fit(self, members: Any, *, seed: int) -> FittedPretrained | FittedClasses:
        """Fine-tune a copy of the model on the members, or keep the model if `epochs` is 0.

        Args:
            members: Texts, or (texts, y); labels give each class a copy of its own and need `epochs`.
            seed: Decides every random choice.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few, or an argument is out of range.
        """
        records = require_members(members, kind="text", minimum=self.minimum, caller="the model")
        texts = read_texts(records)
        if records.y is None:
            return self._tuned(texts, seed)
        if not self.epochs:
            raise InputError("members has labels, and a model that is not fine-tuned knows no classes; pass epochs.")
        return fit_classes(self._tuned, records, minimum=self.minimum, seed=seed)

    def _tuned(self, texts: list[str], seed: int) -> FittedPretrained:
        torch = torch_module()
        for name, low in (("prompt_tokens", 1), ("most_tokens", 1), ("epochs", 0), ("batch", 1)):
            check.whole(name, getattr(self, name), low, "pass a larger number")
        check.within("learning_rate", self.learning_rate, 0.0, 1.0, "pass e.g. 5e-5", include="()")
        if not hasattr(self.model, "generate") or not callable(self.tokenizer):
            raise InputError(f"model must be a causal model with its tokenizer, got {show(type(self.model).__name__)}.")
        prompts = [self._ids(text)[: self.prompt_tokens] for text in check_prompts(self.prompts)]
        if not prompts:
            start = _token(self.model, self.tokenizer, "bos_token_id")
            if start is None:
                raise InputError("the model has no start token; pass prompts, some held-out texts.")
            prompts = [np.array([start], np.int64)]
        room = getattr(self.model.config, "max_position_embeddings", None)
        needed = max(prompt.size for prompt in prompts) + self.most_tokens
        if isinstance(room, int) and needed > room:
            raise InputError(
                f"a prompt and most_tokens need {needed} places and the model has {room}; lower most_tokens."
            )
        model = self.model
        if self.epochs:
            model = copy.deepcopy(model)
            (rng,) = streams(seed, 1)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(rng.integers(1 << 31)))
                _tune(torch, model, [self._ids(text) for text in texts], self, rng)
        else:
            check.seed(seed)
        top_p = check_top_p(self.top_p)
        return FittedPretrained(model, self.tokenizer, tuple(prompts), top_p, self.most_tokens, self.batch)

    def _ids(self, text: str) -> IntArray:
        return np.asarray(self.tokenizer(text, truncation=True, max_length=self.most_tokens)["input_ids"], np.int64)


@dataclass(frozen=True, eq=False)
class FittedPretrained:
    """The model, its tokenizer and the prompts as token numbers."""

    model: Any
    tokenizer: Any
    prompts: tuple[IntArray, ...]
    top_p: float
    most_tokens: int
    batch: int

    def sample(self, count: int, *, seed: int) -> list[str]:
        """Sample `count` texts without their prompts; a text that came out empty is written again."""
        size = check_count(count)
        torch = torch_module()
        (rng,) = streams(seed, 1)
        texts = [""] * size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(1 << 31)))
            for _ in range(ATTEMPTS):
                empty = [row for row, text in enumerate(texts) if not text]
                for start in range(0, len(empty), self.batch):
                    rows = empty[start : start + self.batch]
                    chosen = [self.prompts[k] for k in rng.integers(0, len(self.prompts), len(rows))]
                    for row, text in zip(rows, self._written(torch, chosen), strict=True):
                        texts[row] = text
        if not all(texts):
            raise InputError(f"the model wrote {texts.count('')} empty texts of {size}; pass other prompts.")
        return texts

    def _written(self, torch: Any, prompts: list[IntArray]) -> list[str]:
        width = max(prompt.size for prompt in prompts)
        filling = _filling(self.model, self.tokenizer)
        ids, mask = np.full((len(prompts), width), filling, np.int64), np.zeros((len(prompts), width), np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, width - prompt.size :], mask[row, width - prompt.size :] = prompt, 1
        training = self.model.training
        self.model.eval()
        with torch.no_grad():
            made = self.model.generate(
                input_ids=torch.from_numpy(ids).to(self.model.device),
                attention_mask=torch.from_numpy(mask).to(self.model.device),
                do_sample=True,
                top_p=self.top_p,
                top_k=0,
                max_new_tokens=self.most_tokens,
                pad_token_id=filling,
            )
        self.model.train(training)
        return [text.strip() for text in self.tokenizer.batch_decode(made[:, width:], skip_special_tokens=True)]


def _token(model: Any, tokenizer: Any, name: str) -> int | None:
    """A special token by its name, as the tokenizer or else the model states it."""
    stated = (getattr(tokenizer, name, None), getattr(model.config, name, None))
    return next((value for value in stated if isinstance(value, int)), None)


def _filling(model: Any, tokenizer: Any) -> int:
    stated = (_token(model, tokenizer, name) for name in ("pad_token_id", "eos_token_id"))
    return next((value for value in stated if value is not None), 0)


def _framed(row: IntArray, start: int | None, end: int | None) -> IntArray:
    """A text between the start and the end token, as far as the model has them and the tokenizer left them out."""
    before = [start] if start is not None and row[:1].tolist() != [start] else []
    after = [end] if end is not None and row[-1:].tolist() != [end] else []
    return np.array([*before, *row.tolist(), *after], np.int64)


def _tune(torch: Any, model: Any, rows: list[IntArray], recipe: PretrainedText, rng: np.random.Generator) -> None:
    filling = _filling(model, recipe.tokenizer)
    start, end = (_token(model, recipe.tokenizer, name) for name in ("bos_token_id", "eos_token_id"))
    rows = [framed for row in rows if (framed := _framed(row, start, end)[: recipe.most_tokens + 1]).size > 1]
    if not rows:
        raise InputError("members has no text of two tokens; pass longer texts or epochs=0.")
    optimiser = torch.optim.AdamW(model.parameters(), recipe.learning_rate)
    training = model.training
    model.train()
    for _ in range(recipe.epochs):
        for part in np.array_split(rng.permutation(len(rows)), -(-len(rows) // recipe.batch)):
            width = max(rows[k].size for k in part)
            ids, mask = np.full((part.size, width), filling, np.int64), np.zeros((part.size, width), np.int64)
            for place, k in enumerate(part):
                ids[place, : rows[k].size], mask[place, : rows[k].size] = rows[k], 1
            inputs, seen = (torch.from_numpy(a).to(model.device) for a in (ids, mask))
            loss = model(input_ids=inputs, attention_mask=seen, labels=inputs.masked_fill(seen == 0, -100)).loss
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
    model.train(training)
