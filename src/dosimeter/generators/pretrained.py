"""Texts from a Hugging Face causal model, given or loaded: fine-tuned on the members if asked for, then prompted."""

from __future__ import annotations

import copy
import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._progress import Progress
from dosimeter._validate import InputError, IntArray, require, show
from dosimeter.engine import Store
from dosimeter.generators.classes import FittedClasses, fit_classes
from dosimeter.generators.protocol import check_count, require_members, streams
from dosimeter.generators.transformer import check_prompts, check_top_p
from dosimeter.generators.words import read_texts
from dosimeter.training.chain import torch_module

ATTEMPTS = 5  # at a text that came out empty or too short
SPARE = 1 / 8  # of the tokens: letters in a row may be fewer tokens once they are read again
VERSION = "1"  # of the fine-tuning: raise it when stored weights are no longer what it would give


@dataclass(frozen=True)
class PretrainedText:
    """Generate texts with a given Hugging Face causal model, fine-tuned on the members if asked for.

    The given model stays as it is: fine-tuning is done on a copy.

    Args:
        model: A causal language model, or its name or folder: transformers loads it, a folder without the network.
        tokenizer: Its tokenizer; None takes the one that is stored with a named model.
        prompts: Held-out texts to begin with; without them texts begin at the model's start token.
        prompt_tokens: How many tokens of a prompt are used.
        top_p: Each token is drawn from the likeliest ones that have this share of the probability together.
        most_tokens: The longest text.
        least_tokens: The shortest text.
        epochs: Passes of fine-tuning over the members; 0 for none.
        learning_rate: The rate of fine-tuning.
        batch: How many texts are trained on or written at once.
        store: A folder that keeps the fine-tuned weights. The same fine-tuning is then read instead of repeated, and
            an interrupted one resumes after its last complete epoch.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to, for each class where there are labels.

    >>> PretrainedText(model, tokenizer, epochs=1).fit(texts, seed=0).sample(10, seed=1)  # doctest: +SKIP
    """

    model: Any
    tokenizer: Any = None
    prompts: Sequence[str] = ()
    prompt_tokens: int = 8
    top_p: float = 0.95
    most_tokens: int = 64
    least_tokens: int = 1
    epochs: int = 0
    learning_rate: float = 5e-5
    batch: int = 16
    store: str | os.PathLike[str] | None = None
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
        check.whole("least_tokens", self.least_tokens, 1, "pass at most most_tokens", self.most_tokens)
        check.within("learning_rate", self.learning_rate, 0.0, 1.0, "pass e.g. 5e-5", include="()")
        top_p, prompts = check_top_p(self.top_p), check_prompts(self.prompts)
        model, tokenizer = _loaded(self.model, self.tokenizer)
        starts = [_ids(tokenizer, text, self.prompt_tokens) for text in prompts] or [_start(model, tokenizer)]
        room = getattr(model.config, "max_position_embeddings", None)
        needed = max(prompt.size for prompt in starts) + self.most_tokens
        if isinstance(room, int) and needed > room:
            raise InputError(
                f"a prompt and most_tokens need {needed} places and the model has {room}; lower most_tokens."
            )
        if self.epochs:
            model = copy.deepcopy(model)
            (rng,) = streams(seed, 1)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(rng.integers(1 << 31)))
                rows = [_ids(tokenizer, text, self.most_tokens) for text in texts]
                _tune(torch, model, tokenizer, rows, self, rng)
        else:
            check.seed(seed)
        written = self.most_tokens
        if self.least_tokens > 1:
            written += int(SPARE * self.most_tokens)
            written = min(written, room - needed + self.most_tokens) if isinstance(room, int) else written
        return FittedPretrained(
            model, tokenizer, tuple(starts), top_p, self.most_tokens, self.least_tokens, written, self.batch
        )


def _loaded(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    """The model and its tokenizer, loaded where a name or a folder was given."""
    if isinstance(model, (str, os.PathLike)):
        transformers: Any = require("transformers", extra="text", caller="dosimeter.generators.PretrainedText")
        place, here = os.fspath(model), Path(model).is_dir()
        try:
            found = transformers.AutoModelForCausalLM.from_pretrained(place, local_files_only=here)
            if tokenizer is None:
                tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=here)
        except (OSError, ValueError, KeyError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"the model {show(place)} could not be loaded ({reason}); pass the folder of a causal model, or a name "
                "that transformers finds."
            ) from error
        model = found.eval()
    if not hasattr(model, "generate") or not callable(tokenizer):
        raise InputError(f"model must be a causal model with its tokenizer, got {show(type(model).__name__)}.")
    return model, tokenizer


def _ids(tokenizer: Any, text: str, most: int) -> IntArray:
    return np.asarray(tokenizer(text, truncation=True, max_length=most)["input_ids"], np.int64)


def _start(model: Any, tokenizer: Any) -> IntArray:
    start = _token(model, tokenizer, "bos_token_id")
    if start is None:
        raise InputError("the model has no start token; pass prompts, some held-out texts.")
    return np.array([start], np.int64)


@dataclass(frozen=True, eq=False)
class FittedPretrained:
    """The model, its tokenizer and the prompts as token numbers."""

    model: Any
    tokenizer: Any
    prompts: tuple[IntArray, ...]
    top_p: float
    most_tokens: int
    least_tokens: int
    written: int
    batch: int

    def sample(self, count: int, *, seed: int) -> list[str]:
        """Sample `count` texts without their prompts; a text that came out empty or too short is written again."""
        size = check_count(count)
        torch = torch_module()
        (rng,) = streams(seed, 1)
        texts = [""] * size
        with torch.random.fork_rng(devices=[]), Progress(size, f"The model writes {size} texts") as progress:
            torch.manual_seed(int(rng.integers(1 << 31)))
            for _ in range(ATTEMPTS):
                empty = [row for row, text in enumerate(texts) if not text]
                for start in range(0, len(empty), self.batch):
                    rows = empty[start : start + self.batch]
                    chosen = [self.prompts[k] for k in rng.integers(0, len(self.prompts), len(rows))]
                    began = time.monotonic()
                    for row, text in zip(rows, self._written(torch, chosen), strict=True):
                        texts[row] = self._fitting(text)
                    progress.advance(size - len(empty) + start + len(rows))
                    progress.look(len(rows), time.monotonic() - began, self.batch)
        if not all(texts):
            short = f"texts of fewer than {self.least_tokens} tokens" if self.least_tokens > 1 else "empty texts"
            raise InputError(f"the model wrote {texts.count('')} {short} of {size}; pass other prompts.")
        return texts

    def _barred(self) -> list[int] | None:
        """Tokens that are no text, and would leave one too short; the end may come where lengths differ."""
        if self.least_tokens == 1:
            return None
        end = None if self.least_tokens == self.most_tokens else _token(self.model, self.tokenizer, "eos_token_id")
        return [k for k in getattr(self.tokenizer, "all_special_ids", []) if k != end] or None

    def _fitting(self, text: str) -> str:
        """A text cut to the longest one, read as a member would be; empty if it is too short."""
        if self.least_tokens == 1:
            return text
        row = _ids(self.tokenizer, text, self.most_tokens)
        return self.tokenizer.decode(row, skip_special_tokens=True).strip() if row.size >= self.least_tokens else ""

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
                max_new_tokens=self.written,
                min_new_tokens=min(self.written, self.least_tokens + int(SPARE * self.least_tokens)),
                suppress_tokens=self._barred(),
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


def _tune(
    torch: Any, model: Any, tokenizer: Any, rows: list[IntArray], recipe: PretrainedText, rng: np.random.Generator
) -> None:
    """Fine-tune for the epochs of the recipe, each kept in the store if there is one."""
    filling = _filling(model, tokenizer)
    start, end = (_token(model, tokenizer, name) for name in ("bos_token_id", "eos_token_id"))
    rows = [framed for row in rows if (framed := _framed(row, start, end)[: recipe.most_tokens + 1]).size > 1]
    if not rows:
        raise InputError("members has no text of two tokens; pass longer texts or epochs=0.")
    optimiser = torch.optim.AdamW(model.parameters(), recipe.learning_rate)
    training = model.training
    model.train()
    kept = None if recipe.store is None else KeptEpochs(Store(recipe.store), _key(model, rows, recipe, rng))
    begun = 0 if kept is None else kept.restore(torch, model, optimiser, recipe.epochs)
    orders = [rng.permutation(len(rows)) for _ in range(recipe.epochs)]
    with Progress(recipe.epochs, f"Fine-tuning on {len(rows)} texts, {recipe.epochs} epochs") as progress:
        for epoch in range(begun, recipe.epochs):
            began = time.monotonic()
            for part in np.array_split(orders[epoch], -(-len(rows) // recipe.batch)):
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
            if kept is not None:
                kept.put(torch, model, optimiser, epoch + 1)
            progress.advance(epoch + 1)
            progress.look(1, time.monotonic() - began, 1)
    model.train(training)


@dataclass(frozen=True)
class KeptEpochs:
    """The last whole epoch of a fine-tuning in a store: weights, the optimiser's state and that of torch's coins."""

    store: Store
    key: str

    def put(self, torch: Any, model: Any, optimiser: Any, epoch: int) -> None:
        arrays = {f"w.{name}": value.detach().cpu().numpy() for name, value in model.state_dict().items()}
        for place, state in optimiser.state_dict()["state"].items():
            arrays |= {f"o.{place}.{name}": np.asarray(value.cpu()) for name, value in state.items()}
        arrays["coins"] = torch.random.get_rng_state().numpy()
        if self.key in self.store:
            self.store.discard(self.key)
        self.store.put(self.key, arrays, {"epochs": epoch})

    def restore(self, torch: Any, model: Any, optimiser: Any, epochs: int) -> int:
        """Put back what is there; how many epochs that were."""
        found = self.store.get(self.key)
        if found is None or found[1]["epochs"] > epochs:
            return 0
        arrays = found[0]
        model.load_state_dict({n[2:]: torch.from_numpy(np.array(v)) for n, v in arrays.items() if n[:2] == "w."})
        state: dict[int, dict[str, Any]] = {}
        for name, value in arrays.items():
            if name.startswith("o."):
                _, place, what = name.split(".", 2)
                state.setdefault(int(place), {})[what] = torch.from_numpy(np.array(value))
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
        torch.random.set_rng_state(torch.from_numpy(np.array(arrays["coins"])))
        return int(found[1]["epochs"])


def _key(model: Any, rows: list[IntArray], recipe: PretrainedText, rng: np.random.Generator) -> str:
    """What the weights depend on: those of the given model, the tokens, the seed and how it is trained."""
    told = hashlib.sha256(
        repr((VERSION, recipe.learning_rate, recipe.batch, recipe.epochs, rng.bit_generator.state)).encode()
    )
    for name, value in model.state_dict().items():
        told.update(name.encode() + np.ascontiguousarray(value.detach().cpu().numpy()).tobytes())
    for row in rows:
        told.update(row.tobytes() + b"|")
    return told.hexdigest()
