"""Hugging Face models: sequences scored by a causal model, or classified."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._progress import Progress
from dosimeter._validate import FloatArray, InputError, IntArray, require, show
from dosimeter.models import black_box
from dosimeter.models._padding import Padding, token_numbers
from dosimeter.models.black_box import BlackBox, checked_batch_size
from dosimeter.models.outputs import Array, Losses, Outputs, array_of, shaped
from dosimeter.models.torch_module import asking, checked_device, out_of_memory
from dosimeter.records import count, fetched, labels, unmasked

TASKS = ("causal", "classification")
_COPIES = 3  # logits, the logarithm of their sums, and what the model keeps
_HIDDEN = 4096  # numbers that an encoder keeps for each token
_CPU_TOKENS = 512  # of a batch on a processor: more make no product faster, and their logits leave its cache


@dataclass(frozen=True)
class Sequences:
    """What a causal model gives to each sequence; the first token, which nothing predicts, has no probability."""

    loss: FloatArray  # mean of −log p over the tokens
    perplexity: FloatArray
    tokens: IntArray  # how many were scored
    log_probabilities: tuple[FloatArray, ...] = field(repr=False)
    warnings: tuple[str, ...] = ()


class HuggingFace(BlackBox):
    """A PreTrainedModel with its tokenizer: "causal" (sequences and their losses) or "classification" (logits).

    Records are strings; or token numbers, for which no tokenizer is needed: a list of rows of any lengths, an array
    (n, length), or a tokenizer's own output, whose attention mask is heeded. Batches hold sequences of like length, and
    scores are those of each sequence alone. The loss of a sequence under a causal model is the mean of −log p over its
    tokens.

    Padding in token rows is not scored, on either side: the padding token of the tokenizer, else of the model's
    configuration; a warning says how many rows had it. Rows that look padded with another token are refused. `padding`
    states the token instead, or "none" if all tokens are text.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        task: str | None = None,
        max_length: int | None = None,
        batch_size: int | None = None,
        device: Any = None,
        padding: int | str | None = None,
    ) -> None:
        if not hasattr(model, "config") or not hasattr(model, "modules"):
            raise InputError(f"model must be a Hugging Face model, got {show(model)}; load it with from_pretrained.")
        self.model, self.tokenizer, self.device = model, tokenizer, checked_device(device)
        self.batch_size = checked_batch_size(batch_size)
        self.task = _task(model) if task is None else check.choice("task", task, TASKS)
        if max_length is not None:
            max_length = check.whole("max_length", max_length, 2, "pass the longest sequence in tokens")
        self.max_length = _limit(model.config, tokenizer) if max_length is None else max_length
        self.padding = _padding(padding, model.config, tokenizer)
        purpose = getattr(model.config, "problem_type", None)
        if self.task == "classification" and purpose in ("regression", "multi_label_classification"):
            raise InputError(f"the model does {purpose}; pass one that gives each text a single class.")

    def outputs(self, X: Any) -> Outputs:
        """The logits of a classification model."""
        if self.task == "causal":
            raise InputError("a causal model has no outputs of classes; use losses(X) or sequences(X).")
        tokens, warnings = self._tokens(X, least=1)
        answers = self.forward(tokens, _HIDDEN)
        array = np.empty((len(tokens), *answers[0][1].shape[1:]), dtype=answers[0][1].dtype)
        for rows, values in answers:
            array[rows] = values
        array = shaped(array, len(tokens), 0)
        if array.ndim == 1:
            return Outputs(
                array, "logits", None, (*warnings, "the model's one output was read as the logit of class 1")
            )
        names = getattr(self.model.config, "id2label", None) or {}
        known = all(column in names for column in range(array.shape[1]))
        classes = tuple(names[column] for column in range(array.shape[1])) if known else None
        return Outputs(array, "logits", classes, warnings)

    def losses(self, X: Any, y: Any = None) -> Losses:
        """Mean loss of each sequence (causal; no labels), or minus the log-odds of the class (classification).

        Labels are column numbers, or the names in the model's id2label.
        """
        if self.task == "causal":
            found = self.sequences(X)
            return Losses(found.loss, 0, "log-probabilities", found.warnings)
        X = _rows(X)
        truth = labels(y, count(X))
        outputs = self.outputs(X)
        return (outputs if truth.dtype.kind == "U" else replace(outputs, classes=None)).losses(truth)

    def sequences(self, X: Any) -> Sequences:
        """Mean loss, perplexity and log-probability of each token, for each sequence."""
        if self.task != "causal":
            raise InputError("a classification model gives no probabilities of tokens; use outputs(X) or losses(X, y).")
        tokens, warnings = self._tokens(X, least=2)
        vocabulary = int(getattr(self.model.config, "vocab_size", None) or 50_000)
        scored: list[Any] = [None] * len(tokens)
        for rows, answer in self.forward(tokens, vocabulary):
            for row, values in zip(rows, answer, strict=True):
                scored[row] = values[: tokens[row].size - 1]
        loss = np.array([-values.mean() for values in scored])
        if not np.isfinite(loss).all():
            row = int(np.argmin(np.isfinite(loss)))
            raise InputError(
                f"the model's answer for record {row} is NaN or infinite; repair the model or these records."
            )
        with np.errstate(over="ignore"):
            perplexity = np.exp(loss)
        sizes = np.array([values.size for values in scored], dtype=np.int64)
        return Sequences(loss, perplexity, sizes, tuple(scored), warnings)

    def _tokens(self, X: Any, *, least: int) -> tuple[list[IntArray], tuple[str, ...]]:
        """Token numbers of every record, cut to what the model can take."""
        if isinstance(X, str):
            raise InputError("X is one string; pass a list of strings, one for each record.")
        X = _rows(X)
        count(X)
        rows = list(X)
        texts = [isinstance(row, str) for row in rows]
        if any(texts) and not all(texts):
            raise InputError(f"X[{texts.index(not texts[0])}] is not like X[0]; pass strings, or token arrays, alone.")
        if texts[0] and self.tokenizer is None:
            raise InputError("X holds strings but there is no tokenizer; pass HuggingFace(model, tokenizer).")
        found = self.tokenizer([str(row) for row in rows])["input_ids"] if texts[0] else rows
        tokens, notes = [_token_row(row, index) for index, row in enumerate(found)], tuple[str, ...]()
        if self.padding is not None and not texts[0]:
            tokens, notes = self.padding.removed(tokens)
        self._check(tokens, least)
        limit = self.max_length
        long = [index for index, row in enumerate(tokens) if limit is not None and row.size > limit]
        if not long:
            return tokens, notes
        if texts[0]:
            cut = self.tokenizer([str(rows[i]) for i in long], truncation=True, max_length=limit)["input_ids"]
        else:
            cut = [tokens[index][:limit] for index in long]
        for index, row in zip(long, cut, strict=True):
            tokens[index] = _token_row(row, index)
        self._check(tokens, least)
        return tokens, (*notes, f"{len(long)} of {len(tokens)} sequences were cut to their first {limit} tokens")

    def _check(self, tokens: list[IntArray], least: int) -> None:
        for index, row in enumerate(tokens):
            if row.size < least:
                raise InputError(f"X[{index}] has {row.size} token(s) and needs at least {least}; remove this record.")
        size = getattr(self.model.config, "vocab_size", None)
        bad = [i for i, row in enumerate(tokens) if row.min() < 0 or (isinstance(size, int) and row.max() >= size)]
        if bad:
            raise InputError(
                f"X[{bad[0]}] has a token outside the model's vocabulary of {size}; use the model's own tokenizer."
            )

    def forward(
        self,
        tokens: list[IntArray],
        width: int,
        call: Callable[[IntArray, IntArray, Any, IntArray], Array] | None = None,
    ) -> list[tuple[IntArray, Array]]:
        """Rows and answers of each batch, the longest sequences first so that memory runs out at once or never.

        `call` takes token numbers, mask, device and rows of a batch; None asks the model for what the task needs.
        `width` is how many numbers a token takes on the way.
        """
        call = call or self._call
        sizes = np.array([row.size for row in tokens], dtype=np.int64)
        order = np.argsort(-sizes, kind="stable")
        most, filler, start = max(1, black_box.BUDGET // (4 * width * _COPIES)), self._filler(), 0
        answers: list[tuple[IntArray, Array]] = []
        with (
            asking(self.model, self.device) as device,
            Progress(len(tokens), f"Asking the model about {len(tokens)} sequences") as progress,
        ):
            budget = min(most, _CPU_TOKENS) if device.type == "cpu" else most
            while start < order.size:
                longest = int(sizes[order[start]])
                size = 1 if filler is None else self.batch_size or max(1, budget // longest)
                rows = order[start : start + size]
                ids = np.full((rows.size, longest), filler or 0, dtype=np.int64)
                mask = np.zeros_like(ids)
                for place, row in enumerate(rows):
                    ids[place, : sizes[row]], mask[place, : sizes[row]] = tokens[row], 1
                began = time.monotonic()
                answers.append((rows, call(ids, mask, device, rows)))
                if start:
                    progress.look(rows.size, time.monotonic() - began, size)
                start += rows.size
                progress.advance(start)
        return answers

    def _call(self, ids: IntArray, mask: IntArray, device: Any, rows: IntArray) -> Array:
        """Logits (classification), or the log-probability of each token after the first (causal)."""
        torch: Any = require("torch", extra="torch", caller="dosimeter.models.HuggingFace")
        inputs = torch.from_numpy(ids).to(device)
        with explained(ids, rows):
            logits = self.model(input_ids=inputs, attention_mask=torch.from_numpy(mask).to(device)).logits
            if self.task == "classification":
                return array_of(logits)
            logits = logits[:, :-1].float()
            own = logits.gather(2, inputs[:, 1:, None])[..., 0]
            return array_of((own - logits.logsumexp(dim=2)).double())

    def _filler(self) -> int | None:
        """The token that fills up short sequences; None when a classifier could take it for text."""
        configured = getattr(self.model.config, "pad_token_id", None)
        if isinstance(configured, int) and configured >= 0:
            return configured
        return 0 if self.task == "causal" else None


@contextmanager
def explained(ids: IntArray, rows: IntArray) -> Iterator[None]:
    """Turn what a model raises on a batch into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and out_of_memory(error):
            raise InputError(
                f"memory is short for {rows.size} sequence(s) of {ids.shape[1]} tokens; pass a smaller batch_size "
                "or max_length."
            ) from None
        raise InputError(
            f"the model failed on record {rows[0]} ({type(error).__name__}: {show(str(error), 160)}); check that "
            "the model and the tokenizer belong together."
        ) from error


def _task(model: Any) -> str:
    name = type(model).__name__
    if "SequenceClassification" in name:
        return "classification"
    if "CausalLM" in name or name.endswith("LMHeadModel"):
        return "causal"
    raise InputError(f'the task of {name} is not known; pass task="causal" or task="classification".')


def _limit(config: Any, tokenizer: Any) -> int | None:
    """The longest sequence that the model and its tokenizer state."""
    stated = [getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None)]
    known = [value for value in stated if isinstance(value, int) and 0 < value < 10**9]
    return min(known, default=None)


def _padding(stated: Any, config: Any, tokenizer: Any) -> Padding | None:
    """What is known of padding; None if every token is text."""
    if isinstance(stated, str) and stated == "none":
        return None
    if stated is not None:
        stated = check.whole("padding", stated, -(2**31), 'pass the number of the padding token, or "none"')
    sources = (tokenizer, config)
    frame = token_numbers(getattr(one, f"{name}_token_id", None) for one in sources for name in ("bos", "eos"))
    known = [token for one in sources for token in token_numbers([getattr(one, "pad_token_id", None)])]
    return Padding(stated, known[0] if known else None, frame)


def _rows(X: Any) -> Any:
    """A tokenizer's output as rows of tokens; anything else as it is."""
    return unmasked(X) if isinstance(X, Mapping) else X


def _token_row(row: Any, index: int) -> IntArray:
    array: Array = np.asarray(fetched(row))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"X[{index}] is neither a string nor a flat array of token numbers, got {show(row)}; pass one of these."
        )
    return array.astype(np.int64)
