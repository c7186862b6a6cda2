"""Texts: a small causal transformer trained for few and for many epochs on beginnings of sentences of WikiText-2."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from dosimeter import audit_members_only
from dosimeter.datasets import load
from dosimeter.generators import NGram
from dosimeter.models import HuggingFace

from .summary import ordering

FEWEST, MOST = 8, 30  # words of a sentence
KEPT = 7  # its first words are a record: what n-grams write can be told from longer texts too easily
UNKNOWN, PADDING = 0, 1


class Words:
    """A tokenizer of whole words: the most frequent ones have numbers, all others share one."""

    pad_token_id = PADDING

    def __init__(self, texts: list[str], size: int) -> None:
        counts = Counter(word for text in texts for word in text.split())
        self.numbers = {word: at + 2 for at, (word, _) in enumerate(counts.most_common(size - 2))}
        self.size = size

    def __call__(
        self, texts: list[str], *, truncation: bool = False, max_length: int | None = None
    ) -> dict[str, list[list[int]]]:
        rows = [[UNKNOWN, *(self.numbers.get(word, UNKNOWN) for word in text.split())] for text in texts]
        return {"input_ids": [row[:max_length] if truncation else row for row in rows]}


def sentences(count: int, seed: int) -> list[str]:
    """Different beginnings of sentences of WikiText-2 in a random order."""
    found = {
        " ".join(sentence.split()[:KEPT])
        for text in load("wikitext2").X
        for sentence in re.split(r"(?<= [.!?]) ", str(text))
        if FEWEST <= len(sentence.split()) <= MOST and not sentence.lstrip().startswith("=")
    }
    every = sorted(found)
    chosen = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(every))[:count]
    return [every[at] for at in chosen]


def language_model(texts: list[str], words: Words, *, epochs: int, settings: Mapping[str, Any], seed: int) -> Any:
    """A causal transformer trained on these sentences from scratch."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    rows = words(texts)["input_ids"]
    width = max(map(len, rows))
    ids = torch.tensor([row + [PADDING] * (width - len(row)) for row in rows])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape = {"n_embd": settings["width"], "n_layer": settings["layers"], "n_head": 2}
        quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        tokens = {"vocab_size": words.size, "n_positions": MOST + 2, "pad_token_id": PADDING}
        model = GPT2LMHeadModel(GPT2Config(**shape, **quiet, **tokens, bos_token_id=UNKNOWN, eos_token_id=UNKNOWN))
        optimiser = torch.optim.AdamW(model.parameters(), lr=settings["learning_rate"], weight_decay=0.0)
        for _ in range(epochs):
            for batch in torch.randperm(len(ids)).split(settings["batch"]):
                given = ids[batch]
                logits = model(input_ids=given, attention_mask=(given != PADDING).long()).logits
                loss = torch.nn.functional.cross_entropy(
                    logits[:, :-1].flatten(0, 1), given[:, 1:].flatten(), ignore_index=PADDING
                )
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    return HuggingFace(model.eval(), words, max_length=MOST + 2)


def ordered(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """ε̃ of a language model after few and after many epochs; stand-ins are trained for the fewer epochs."""
    few, many = settings["epochs"]
    members = sentences(settings["members"], seed)
    words = Words(sentences(settings["members"], 1_000_000 + seed), settings["words"])

    def trained(texts: list[str], epochs: int, at: int) -> Any:
        return language_model(texts, words, epochs=epochs, settings=settings, seed=at)

    models = {str(epochs): trained(members, epochs, seed) for epochs in (many, few)}
    audit = audit_members_only(
        models,
        members,
        generator=NGram(order=2),
        reference=lambda texts, _, at: trained(texts, few, at),
        references=settings["references"],
        seed=seed,
    )
    return {**ordering(audit, seed), "copies_left_out": audit.details["game"]["copies_left_out"]}
