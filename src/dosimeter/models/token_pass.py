"""One forward pass of a causal model, and of the base model beside it: what every score of a text needs.

Of each scored token the pass keeps the log-probability, the mean and deviation of the log-probability over the
vocabulary, and the rank; with a base model also KL(base ‖ model). Logits are reduced batch by batch, so memory does not
grow with the number of texts.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, InputError, IntArray, require
from dosimeter.models.hugging_face import HuggingFace, explained
from dosimeter.models.torch_module import asking

__all__ = ["Passes", "TokenPass", "adapter_off", "is_adapted", "token_passes", "unwrapped"]

CHUNK = 2**18  # logits that are reduced at once: what fits a processor's cache
DENSE = 0.75  # share of the positions that are scored from which on all are reduced
LOWEST = -1e18  # in place of a logit of −∞, which would make 0 · ∞; its square is finite too


@dataclass(frozen=True)
class TokenPass:
    """What a model says of the scored tokens, one array for each text."""

    log_probability: tuple[FloatArray, ...]
    mean: tuple[FloatArray, ...]
    deviation: tuple[FloatArray, ...]
    rank: tuple[FloatArray, ...]

    def total(self) -> FloatArray:
        """The log-probability of all scored tokens of each text together."""
        return np.array([row.sum() for row in self.log_probability])


@dataclass(frozen=True)
class Passes:
    """The pass of the model, that of the base model, and KL(base ‖ model) at each scored token."""

    target: TokenPass
    base: TokenPass | None = None
    divergence: tuple[FloatArray, ...] | None = None


def unwrapped(model: Any) -> Any:
    """The model inside a wrapper of Opacus or of a distributed training, which hides its configuration."""
    for name in ("_module", "module"):
        inner = getattr(model, name, None)
        if not hasattr(model, "config") and hasattr(inner, "config"):
            return inner
    return model


def is_adapted(model: Any) -> bool:
    """Whether adapters (LoRA through peft) stand on top of frozen base weights."""
    return hasattr(model, "disable_adapter") and hasattr(model, "peft_config")


def adapter_off(model: Any) -> Any:
    """The block in which an adapted model answers as its base.

    Raises:
        InputError: If the adapter also changed weights of the base, which switching it off does not restore.
    """
    for name, config in model.peft_config.items():
        for field, fine in (("bias", (None, "none")), ("modules_to_save", (None, [], ()))):
            found = getattr(config, field, None)
            if found not in fine:
                raise InputError(
                    f"the adapter {name!r} was trained with {field}={found!r}, so switching it off does not give the "
                    "base model back; pass base=, the model that the training started from."
                )
    return model.disable_adapter()


def token_passes(
    box: HuggingFace, tokens: list[IntArray], spans: IntArray, *, base: Any = None, adapter: bool = False
) -> Passes:
    """Ask a causal model, and its base, about the tokens of each text that are to be scored.

    Args:
        box: The model.
        tokens: The token numbers of each text.
        spans: First scored token and the one after the last, for each text; the first is at least 1, since nothing
            predicts token 0.
        base: The base model, for the same token numbers.
        adapter: Whether the base is the model itself with its adapters off.

    Returns:
        What is kept of each scored token.

    Raises:
        InputError: If a model fails, or an answer is not finite.
    """
    torch: Any = require("torch", extra="torch", caller="dosimeter.models")
    width = int(getattr(box.model.config, "vocab_size", None) or 50_000)
    both = adapter or base is not None

    def call(ids: IntArray, mask: IntArray, device: Any, rows: IntArray) -> FloatArray:
        inputs, attention = torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
        place = _Places.of(torch, spans[rows], inputs)
        with explained(ids, rows):
            logits = _logits(box.model, inputs, attention, place.kept)
            others = None
            if both:
                with adapter_off(box.model) if adapter else nullcontext():
                    others = _logits(box.model if adapter else base, inputs, attention, place.kept)
            return _reduced(torch, logits, others, place)

    with ExitStack() as stack:
        if base is not None:
            stack.enter_context(asking(base, box.device))
        answers = box.forward(tokens, 2 * width if both else width, call)
    return _sorted(answers, spans, both=both)


@dataclass(frozen=True)
class _Places:
    """Where the scored tokens of a batch stand: the flat places of the logits that predict them, and the tokens."""

    flat: Any
    tokens: Any
    kept: int
    total: int

    @classmethod
    def of(cls, torch: Any, spans: IntArray, inputs: Any) -> _Places:
        longest = inputs.shape[1]
        kept = int(longest - spans[:, 0].min() + 1)
        rows = np.repeat(np.arange(len(spans)), spans[:, 1] - spans[:, 0])
        at = np.concatenate([np.arange(first, last) for first, last in spans])
        flat = rows * kept + at - 1 - (longest - kept)
        where = torch.from_numpy(rows).to(inputs.device), torch.from_numpy(at).to(inputs.device)
        return cls(torch.from_numpy(flat).to(inputs.device), inputs[where], kept, len(spans) * kept)


def _logits(model: Any, inputs: Any, attention: Any, kept: int) -> Any:
    """The logits of the last positions; models that can are spared the product with the vocabulary elsewhere."""
    inner = model.get_base_model() if is_adapted(model) else model
    spared = "logits_to_keep" in inspect.signature(inner.forward).parameters
    options = {"logits_to_keep": kept} if spared else {}
    found = getattr(model(input_ids=inputs, attention_mask=attention, **options), "logits", None)
    if found is None or found.ndim != 3:
        raise InputError(
            f"{type(inner).__name__} gives no logits of tokens; pass a causal language model, e.g. from "
            "AutoModelForCausalLM."
        )
    return found[:, -kept:].contiguous()


def _reduced(torch: Any, logits: Any, others: Any, place: _Places) -> FloatArray:
    """Rows of numbers, one column for each scored token: 4 of the model; 4 of the base and the divergence.

    Where most positions are scored, all of them are reduced as they lie in memory; else the scored ones are copied out.
    """
    width = logits.shape[2]
    sides = [side.reshape(-1, width) for side in (logits, others) if side is not None]
    dense = place.flat.shape[0] >= DENSE * place.total
    tokens = place.tokens
    if dense:
        tokens = torch.zeros(place.total, dtype=tokens.dtype, device=tokens.device).index_copy_(0, place.flat, tokens)
    found = torch.empty((4 if others is None else 9, tokens.shape[0]), dtype=torch.float32, device=logits.device)
    step = max(1, CHUNK // width)
    for start in range(0, tokens.shape[0], step):
        part = slice(start, start + step)
        at = part if dense else place.flat[part]
        log_p, p = _log_softmax(sides[0][at].float())
        found[:4, part] = _statistics(torch, log_p, p, tokens[part, None])
        if others is not None:
            log_q, q = _log_softmax(sides[1][at].float())
            # Σ q ln q is the mean of the base; Σ q ln p needs both models' logits.
            crossed = (q * log_p).sum(dim=1)
            found[4:8, part] = _statistics(torch, log_q, q, tokens[part, None])
            found[8, part] = found[5, part] - crossed
    answer: FloatArray = (found[:, place.flat] if dense else found).double().cpu().numpy()
    return answer


def _log_softmax(z: Any) -> tuple[Any, Any]:
    """Logarithms and probabilities; ln Σ exp from the largest probability, which is never too small for it."""
    p = z.softmax(dim=1)
    log_p = z - (z.amax(dim=1) - p.amax(dim=1).log())[:, None]
    return log_p, p


def _statistics(torch: Any, log_p: Any, p: Any, token: Any) -> Any:
    """Log-probability, mean, deviation and rank; `p` is used up."""
    own = log_p.gather(1, token)
    rank = (log_p - own).gt_(0).sum(dim=1)
    first = p.mul_(log_p).sum(dim=1)
    if not bool(torch.isfinite(first).all()):  # a logit of −∞, whose 0 · ∞ counts nothing
        log_p.clamp_(min=LOWEST)
        p.nan_to_num_(nan=0.0)
        first = p.sum(dim=1)
    second = p.mul_(log_p).sum(dim=1)
    spread = (second - first * first).clamp_(min=0.0).sqrt_()
    return torch.stack([own[:, 0], first, spread, rank])


def _sorted(answers: list[tuple[IntArray, Any]], spans: IntArray, *, both: bool) -> Passes:
    """The answers of batches as arrays of each text, in the order of the texts."""
    sizes = spans[:, 1] - spans[:, 0]
    found: list[Any] = [None] * len(spans)
    for rows, values in answers:
        for row, part in zip(rows, np.split(values, np.cumsum(sizes[rows])[:-1], axis=1), strict=True):
            found[row] = part
            if not np.isfinite(part).all() or part[0].min() <= LOWEST:
                raise InputError(f"the model's answer for text {row} is NaN or infinite; repair the model.")
    columns = [tuple(part[index] for part in found) for index in range(9 if both else 4)]
    if not both:
        return Passes(TokenPass(*columns))
    return Passes(TokenPass(*columns[:4]), TokenPass(*columns[4:8]), tuple(np.maximum(row, 0.0) for row in columns[8]))
