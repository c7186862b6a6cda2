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

CHUNK = 2**17  # logits that are reduced at once: what fits a processor's cache
DEVICE_CHUNK = 2**24  # the same on another device, where every call costs time
DENSE = 0.75  # share of the positions that are scored from which on all are reduced
CAUSAL = 0.01  # of the deviation of logits: what rounding may change where a later token is another
PROBE = 16  # tokens of a text that tell whether a model is causal
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
                    "base model back; pass base= (--base), the model that the training started from."
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
        InputError: If a model fails, sees the tokens that it should predict, or an answer is not finite.
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
        device = stack.enter_context(asking(box.model, box.device))
        if base is not None:
            stack.enter_context(asking(base, box.device))
        with explained(tokens[0][None], np.zeros(1, np.int64)):
            _check_causal(torch, box.model, torch.from_numpy(tokens[0][:PROBE]).to(device))
        answers = box.forward(tokens, 2 * width if both else width, call)
    return _sorted(answers, spans, both=both)


def _check_causal(torch: Any, model: Any, row: Any) -> None:
    """Refuse a model whose answer to a token changes with a later one, as that of an encoder does."""
    ids = torch.stack([row, row])
    ids[1, -1] = torch.where(row[-1] > 0, row[-1] - 1, row[-1] + 1)
    before = _logits(model, ids, torch.ones_like(ids), row.shape[0])[:, :-1].float()
    if bool((before[0] - before[1]).abs().max() > CAUSAL * before.std()):
        raise InputError(
            f"{type(model).__name__} sees the tokens that it should predict: its answers change with later tokens; "
            "pass a causal language model, e.g. a decoder."
        )


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
    """The logits of the last positions; models that can are spared the product with the vocabulary elsewhere.

    Nothing is generated, so keys and values are not kept either.
    """
    inner = model.get_base_model() if is_adapted(model) else model
    known = inspect.signature(inner.forward).parameters
    options = {name: value for name, value in (("logits_to_keep", kept), ("use_cache", False)) if name in known}
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
    sums = _summed(torch, sides, tokens, place.flat, dense=dense)
    if not bool(torch.isfinite(sums).all()):  # a logit of −∞, whose 0 · ∞ counts nothing
        sums = _summed(torch, sides, tokens, place.flat, dense=dense, lowest=LOWEST)
    sums = (sums[:, place.flat] if dense else sums).double()
    found = [_statistics(torch, sums[:5])]
    if others is not None:
        base = _statistics(torch, sums[5:10])
        # Σ q ln q is the mean of the base; Σ q ln p needs both models' logits.
        crossed = sums[10] / sums[6] - sums[1].log()
        found += [base, (base[1] - crossed)[None]]
    answer: FloatArray = torch.cat(found).cpu().numpy()
    return answer


def _summed(torch: Any, sides: list[Any], tokens: Any, flat: Any, *, dense: bool, lowest: float | None = None) -> Any:
    """Sums over the vocabulary, part by part: 5 rows for each side, and what the two have in common."""
    first = sides[0]
    found = torch.empty((5 if len(sides) == 1 else 11, tokens.shape[0]), dtype=torch.float32, device=first.device)
    step = max(1, (CHUNK if first.device.type == "cpu" else DEVICE_CHUNK) // first.shape[1])
    for start in range(0, tokens.shape[0], step):
        part = slice(start, start + step)
        at = part if dense else flat[part]
        pairs = [
            _side(torch, side[at].float(), tokens[part, None], found[5 * index : 5 * index + 5, part], lowest)
            for index, side in enumerate(sides)
        ]
        if len(sides) == 2:
            (shifted, _), (_, weights) = pairs
            torch.sum(weights.mul_(shifted), dim=1, out=found[10, part])
    return found


def _side(torch: Any, z: Any, token: Any, found: Any, lowest: float | None) -> tuple[Any, Any]:
    """With s = z − max z: s of the text's token, Σ eˢ, Σ eˢ s, Σ eˢ s² and the rank; gives s and eˢ.

    These few passes over the logits are all that scores need; a log-softmax and its mean would take twice as many.
    """
    top = z.amax(dim=1, keepdim=True)
    own = z.gather(1, token)
    torch.sub(own[:, 0], top[:, 0], out=found[0])
    shifted = z - top
    if lowest is not None:
        shifted.clamp_(min=lowest)
    weights = shifted.exp()
    torch.sum(weights, dim=1, out=found[1])
    scratch = weights * shifted
    torch.sum(scratch, dim=1, out=found[2])
    torch.sum(scratch.mul_(shifted), dim=1, out=found[3])
    # Numbers in place of truth values, whose sum is slow.
    torch.sum(torch.gt(z, own, out=scratch), dim=1, out=found[4])
    return shifted, weights


def _statistics(torch: Any, sums: Any) -> Any:
    """Log-probability, mean, deviation and rank."""
    own, total, first, second, rank = sums
    mean = first / total
    spread = (second / total - mean * mean).clamp_(min=0.0).sqrt_()
    return torch.stack([own - total.log(), mean - total.log(), spread, rank])


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
