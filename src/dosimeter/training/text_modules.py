"""Modules that classify rows of word ids, 0 being padding. This file needs torch; `networks` imports it when asked."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dosimeter.training.tokens import PADDING


def _mean_of_words(vectors: Any, words: Any) -> Any:
    """The mean over the places that hold a word, and 0 where a text has none."""
    count = words.sum(1, keepdim=True).clamp(min=1).to(vectors.dtype)
    return (vectors * words.unsqueeze(-1)).sum(1) / count


class BagOfEmbeddings(nn.Module):  # type: ignore[misc]
    """The mean of the words' embeddings and a linear layer."""

    def __init__(self, vocabulary: int, classes: int, dimension: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dimension)
        self.classify = nn.Linear(dimension, classes)

    def forward(self, ids: Any) -> Any:
        """Logits (texts, classes) of ids (texts, length)."""
        return self.classify(_mean_of_words(self.embedding(ids), ids != PADDING))


class _Block(nn.Module):  # type: ignore[misc]
    """Attention and a dense part, each normalised first and added to its input."""

    def __init__(self, dimension: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_dense = nn.LayerNorm(dimension), nn.LayerNorm(dimension)
        self.attend, self.join = nn.Linear(dimension, 3 * dimension), nn.Linear(dimension, dimension)
        self.widen, self.narrow = nn.Linear(dimension, 2 * dimension), nn.Linear(2 * dimension, dimension)

    def forward(self, vectors: Any, words: Any) -> Any:
        texts, length, dimension = vectors.shape
        parts = self.attend(self.before_attention(vectors)).reshape(texts, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        closeness = query @ key.transpose(-1, -2) * (dimension // self.heads) ** -0.5
        # A large negative number and not −∞: a text without any word must give finite logits.
        weights = closeness.masked_fill(~words[:, None, None, :], -1e9).softmax(-1)
        seen = (weights @ value).transpose(1, 2).reshape(texts, length, dimension)
        vectors = vectors + self.join(seen)
        return vectors + self.narrow(torch.relu(self.widen(self.before_dense(vectors))))


class Transformer(nn.Module):  # type: ignore[misc]
    """An encoder with learned places; the mean over the words is normalised and classified."""

    def __init__(self, vocabulary: int, length: int, classes: int, dimension: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dimension)
        self.places = nn.Parameter(0.02 * torch.randn(length, dimension))
        self.blocks = nn.ModuleList(_Block(dimension, heads) for _ in range(layers))
        self.last = nn.LayerNorm(dimension)
        self.classify = nn.Linear(dimension, classes)

    def forward(self, ids: Any) -> Any:
        """Logits (texts, classes) of ids (texts, length)."""
        words = ids != PADDING
        vectors = self.embedding(ids) + self.places
        for block in self.blocks:
            vectors = block(vectors, words)
        return self.classify(_mean_of_words(self.last(vectors), words))
