"""Texts: small causal transformers trained for few and for many epochs on short passages of WikiText-2."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from dosimeter import audit_members_only
from dosimeter.datasets import load
from dosimeter.engine import Store
from dosimeter.generators import NGram
from dosimeter.models import HuggingFace

from .summary import kept

START, UNKNOWN = 0, "<unk>"
HEADS = 4


class Words:
    """A tokenizer of whole words: each has a number, and every text begins with the same one."""

    pad_token_id = START

    def __init__(self, words: tuple[str, ...]) -> None:
        self.numbers = {word: at + 1 for at, word in enumerate(words)}
        self.size = len(words) + 1

    def __call__(
        self, texts: list[str], *, truncation: bool = False, max_length: int | None = None
    ) -> dict[str, list[list[int]]]:
        other = self.numbers[UNKNOWN]
        rows = [[START, *(self.numbers.get(word, other) for word in text.split())] for text in texts]
        return {"input_ids": [row[:max_length] if truncation else row for row in rows]}


@cache
def corpus(words: int, length: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The most frequent words, and all different passages of so many words; other words are written as <unk>."""
    texts = [str(text).split() for text in load("wikitext2").X]
    texts = [text for text in texts if text and text[0] != "="]
    counts = Counter(chain.from_iterable(texts))
    ranked = sorted((word for word in counts if word != UNKNOWN), key=lambda word: (-counts[word], word))
    frequent = (UNKNOWN, *ranked[: words - 1])
    known = set(frequent)
    found = {
        " ".join(word if word in known else UNKNOWN for word in text[at : at + length])
        for text in texts
        for at in range(0, len(text) - length + 1, length)
    }
    return frequent, tuple(sorted(found))


def language_models(
    texts: list[str], words: Words, *, epochs: Sequence[int], settings: Mapping[str, Any], seed: int
) -> dict[int, Any]:
    """One training of a causal transformer from scratch, and the model as it is after each of these epochs."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    ids = torch.tensor(words(texts)["input_ids"])
    found = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape = {"n_embd": settings["width"], "n_layer": settings["layers"], "n_head": HEADS}
        quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        tokens = {"vocab_size": words.size, "n_positions": ids.shape[1], "bos_token_id": START, "eos_token_id": START}
        model = GPT2LMHeadModel(GPT2Config(**shape, **quiet, **tokens))
        optimiser = torch.optim.AdamW(model.parameters(), lr=settings["learning_rate"], weight_decay=0.0)
        for epoch in range(1, max(epochs) + 1):
            for batch in torch.randperm(len(ids)).split(settings["batch"]):
                logits = model(input_ids=ids[batch][:, :-1]).logits
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[batch][:, 1:].flatten())
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            if epoch in epochs:
                found[epoch] = HuggingFace(deepcopy(model).eval(), words, max_length=ids.shape[1])
    return found


def entropy(texts: Sequence[str]) -> float:
    """Of the words one by one, in nats: the loss of a model that knows their frequencies and nothing else."""
    counts = np.array(list(Counter(chain.from_iterable(text.split() for text in texts)).values()))
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def audited(settings: Mapping[str, Any], seed: int, store: Store | None = None) -> dict[str, Any]:
    """ε̃ of a language model along its training; reference models are trained in the same way for
    `reference_epochs`, on members that the generator did not learn from: `splits` has a fourth share.

    With `control` it learns from other passages than the members, so that ε̃ has to be 0. `store` is not used: the
    trainings take seconds.
    """
    vocabulary, passages = corpus(settings["words"], settings["length"])
    words, size = Words(vocabulary), settings["members"]
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(passages))
    members, others, apart = ([passages[at] for at in order[k * size : (k + 1) * size]] for k in range(3))
    learnt = apart if settings.get("control") else members
    sweep = sorted(settings["epochs"])
    stand_in = settings["reference_epochs"]
    models = language_models(learnt, words, epochs=sweep, settings=settings, seed=seed)
    began = time.process_time()
    audit = audit_members_only(
        {_name(epochs): models[epochs] for epochs in reversed(sweep)},
        members,
        generator=NGram(order=settings["order"]),
        filter=lambda texts, _: np.array([_whole(text, words, settings["length"]) for text in texts]),
        nonmembers=None if settings.get("control") else others,
        reference=lambda texts, _, at: language_models(texts, words, epochs=[stand_in], settings=settings, seed=at)[
            stand_in
        ],
        references=settings["references"],
        splits=tuple(settings["splits"]),
        seed=seed,
    )
    taken = time.process_time() - began
    trained = {
        _name(epochs): {
            "epochs": epochs,
            "dp": None,
            "train": float(model.losses(members).values.mean()),
            "test": float(model.losses(others).values.mean()),
        }
        for epochs, model in models.items()
    }
    game = audit.details["game"]
    return {
        **kept(audit, seed, trained, cpu_seconds=taken),
        "entropy": entropy(members),
        "unknown": float(np.mean([word == UNKNOWN for text in members for word in text.split()])),
        "filtered": game["filtered"] / game["sampled"],
    }


def _name(epochs: int) -> str:
    return f"{epochs} epochs"


def _whole(text: str, words: Words, length: int) -> bool:
    """Whether a generated passage has as many words as the real ones, all of them known."""
    found = text.split()
    return len(found) == length and all(word in words.numbers for word in found)
