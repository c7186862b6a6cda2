"""Texts: a language model of a million weights, pre-trained on one half of WikiText-2 and fine-tuned on the members.

Target and generator start from the same base, as both start from GPT-2 in the thesis. The base learns from the first
half of the training text; members and real non-members come from the second half, so the base knows none of them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import audit_members_only
from dosimeter.datasets import load
from dosimeter.engine import Store
from dosimeter.generators import PretrainedText
from dosimeter.models import HuggingFace
from dosimeter.pipelines.language import FineTuning, byte_pairs, fine_tune, small_model, token_rows

from ..language_models.measure import pieces, progress
from .summary import Remembered, kept, quantiles

WORK = Path(__file__).resolve().parents[2] / ".reproduce" / "panoramia"
SEED = 2024
PROMPT = 8
SHAPE = ("vocabulary", "width", "layers", "heads", "tokens", "words", "pretrain_texts", "pretrain_steps", "batch")


@dataclass(frozen=True, eq=False)
class Base:
    """The pre-trained model, its tokenizer, passages that it knows, and those of the other half."""

    model: Any
    tokenizer: Any
    known: tuple[str, ...]
    passages: tuple[str, ...]
    tokens: int

    @property
    def weights(self) -> int:
        """How many weights the model has."""
        return sum(part.numel() for part in self.model.parameters())

    def wrapped(self, model: Any) -> HuggingFace:
        """A fine-tuned model as an audit takes it."""
        return HuggingFace(model, self.tokenizer, task="causal", padding="none", max_length=self.tokens)


@lru_cache(maxsize=2)
def halves() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines of both halves of the training text, without headings."""
    data = load("wikitext2", download=False)
    train = [str(text) for text, part in zip(data.X, data.raw["split"], strict=True) if part == "train"]
    train = [text for text in train if text.strip() and not text.lstrip().startswith("=")]
    return tuple(train[: len(train) // 2]), tuple(train[len(train) // 2 :])


def cut(tokenizer: Any, texts: Sequence[str], tokens: int) -> list[str]:
    """The first `tokens` tokens of each text, as text; texts that have fewer, also when read again, are left out."""
    rows = [row for row in token_rows(tokenizer, texts, tokens) if len(row) == tokens]
    found = [text.strip() for text in tokenizer.batch_decode(rows)]
    return [t for t, row in zip(found, token_rows(tokenizer, found, tokens + 1), strict=True) if len(row) == tokens]


def base(settings: Mapping[str, Any]) -> Base:
    """The base of these settings, trained once and kept in a file."""
    return _base(tuple(sorted((name, settings[name]) for name in SHAPE)))


@lru_cache(maxsize=2)
def _base(shape: tuple[tuple[str, Any], ...]) -> Base:
    from safetensors.torch import load_model, save_model

    s: dict[str, Any] = dict(shape)
    rng = np.random.default_rng(SEED)
    first, second = halves()
    known = pieces(list(first), s["words"], s["pretrain_texts"], rng)
    tokenizer = byte_pairs(known, s["vocabulary"])
    room = s["tokens"] + PROMPT + s["tokens"] // 8
    sizes = {"width": s["width"], "layers": s["layers"], "heads": s["heads"]}
    model = small_model(len(tokenizer), positions=room, seed=1, **sizes)
    path = WORK / f"base-{hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16]}.safetensors"
    if path.exists():
        load_model(model, str(path))
    else:
        how = FineTuning(s["pretrain_steps"], batch=s["batch"], rate=2e-3, seed=1)
        fine_tune(model, token_rows(tokenizer, known, s["tokens"]), how, after_step=progress(how.steps))
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        save_model(model, str(partial))
        partial.replace(path)
    passages = cut(tokenizer, sorted(pieces(list(second), s["words"], 10**9, rng)), s["tokens"])
    return Base(model.eval(), tokenizer, tuple(known), tuple(passages), s["tokens"])


def fine_tuned(
    start: Base, texts: Sequence[str], settings: Mapping[str, Any], *, epochs: Sequence[int], seed: int
) -> dict[int, HuggingFace]:
    """The base after each of these epochs over the texts."""
    rows, model, found = token_rows(start.tokenizer, list(texts), start.tokens), deepcopy(start.model), {}
    each = -(-len(rows) // settings["batch"])

    def look(step: int, trained: Any) -> None:
        if step % each == 0 and step // each in epochs:
            found[step // each] = start.wrapped(deepcopy(trained).eval())

    how = FineTuning(max(epochs) * each, batch=settings["batch"], rate=settings["learning_rate"], seed=seed)
    fine_tune(model, rows, how, after_step=look)
    return found


def audited(settings: Mapping[str, Any], seed: int, store: Store | None = None) -> dict[str, Any]:
    """Both protocols for the model after fewer and more epochs; reference models are fine-tuned in the same way."""
    start, size = base(settings), settings["members"]
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(start.passages))
    members, others = ([start.passages[at] for at in order[k * size : (k + 1) * size]] for k in range(2))
    sweep, middle = sorted(settings["epochs"]), settings["reference_epochs"]
    models = fine_tuned(start, members, settings, epochs=sweep, seed=seed)
    helpers: list[HuggingFace] = []

    def helper(texts: list[str], _: Any, at: int) -> HuggingFace:
        helpers.append(fine_tuned(start, texts, settings, epochs=[middle], seed=at % 2**31)[middle])
        return helpers[-1]

    generator = Remembered(
        PretrainedText(
            start.model,
            start.tokenizer,
            prompts=start.known[:500],
            prompt_tokens=PROMPT,
            top_p=settings["top_p"],
            most_tokens=start.tokens,
            least_tokens=start.tokens,
            epochs=settings["generator_epochs"],
            learning_rate=settings["generator_rate"],
            batch=settings["batch"],
            store=WORK / "generators",
            name="fine-tuned transformer",
        )
    )
    began = time.process_time()
    audit = audit_members_only(
        {f"{epochs} epochs": models[epochs] for epochs in reversed(sweep)},
        members,
        generator=generator,
        nonmembers=others,
        reference=lambda texts, _, at: fine_tuned(start, texts, settings, epochs=[middle], seed=at % 2**31)[middle],
        references=settings["references"],
        protocol="thesis",
        helper_train=helper,
        seed=seed,
    )
    taken = time.process_time() - began
    sides = {"members": members, "real non-members": others, "generated": generator.made}
    shown = {f"{epochs} epochs": models[epochs] for epochs in sweep} | {"helper": helpers[0]}
    losses = {
        model: {side: box.losses(texts[: settings["shown"]]).values for side, texts in sides.items()}
        for model, box in shown.items()
    }
    trained = {
        name: {"epochs": epochs, "dp": None, "train": float(told["members"].mean())}
        | {"test": float(told["real non-members"].mean())}
        for epochs, (name, told) in zip(sweep, losses.items(), strict=False)
    }
    return {
        **kept(audit, seed, trained, cpu_seconds=taken),
        "weights": start.weights,
        "losses": quantiles(losses),
    }
