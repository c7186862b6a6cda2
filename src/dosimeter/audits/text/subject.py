"""The models under audit: what can be asked of them, checked before anything is scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dosimeter._validate import InputError, show
from dosimeter.audits.text.encoding import EncodedSheet, TokenLimits, encode, encoded
from dosimeter.audits.text.sheet import CanarySheet
from dosimeter.models.hugging_face import HuggingFace
from dosimeter.models.token_pass import Passes, is_adapted, token_passes, unwrapped

__all__ = ["Asked", "read_model"]


@dataclass(frozen=True)
class Asked:
    """A causal model with its tokenizer and its base: another model, or the same with its adapters off."""

    box: HuggingFace
    tokenizer: Any
    base: Any = None
    adapter: bool = False

    @classmethod
    def read(cls, model: Any, tokenizer: Any, base: Any, *, batch_size: int | None = None, device: Any = None) -> Asked:
        """Check what is given."""
        target = read_model("model", model)
        other = None if base is None else read_model("base", base)
        box = HuggingFace(target, tokenizer, task="causal", batch_size=batch_size, device=device, padding="none")
        subject = cls(box, tokenizer, other, other is None and is_adapted(target))
        if other is not None:
            if other is target:
                raise InputError(
                    "base is the model itself, which the training changed; pass the model from before the training, "
                    "e.g. loaded again from its folder."
                )
            sizes = [getattr(one.config, "vocab_size", None) for one in (target, other)]
            if all(isinstance(size, int) for size in sizes) and sizes[0] != sizes[1]:
                raise InputError(
                    f"model has a vocabulary of {sizes[0]} tokens and base one of {sizes[1]}; pass the model that the "
                    "training started from, with the same tokens added."
                )
        return subject

    @property
    def compared(self) -> bool:
        """Whether there is a base to compare with."""
        return self.base is not None or self.adapter

    @property
    def limits(self) -> TokenLimits:
        """The longest text and the vocabulary of the model."""
        size = getattr(self.box.model.config, "vocab_size", None)
        return TokenLimits(self.box.max_length, size if isinstance(size, int) else None)

    def encode(self, sheet: CanarySheet) -> EncodedSheet:
        """The texts of a sheet as the model sees them."""
        return encode(self.tokenizer, sheet, self.limits)

    def passes(self, texts: EncodedSheet) -> Passes:
        """What the models say of the scored tokens."""
        return token_passes(self.box, texts.rows, texts.spans, base=self.base, adapter=self.adapter)

    def ask(self) -> Callable[[list[str], list[str]], Passes]:
        """A function of whole texts and their prefixes."""
        return lambda texts, leads: self.passes(encoded(self.tokenizer, texts, leads, limits=self.limits))


def read_model(name: str, model: Any) -> Any:
    """A causal language model, out of its wrappers; anything else is refused."""
    inner = unwrapped(model)
    if not hasattr(inner, "config") or not hasattr(inner, "forward") or not hasattr(inner, "modules"):
        raise InputError(
            f"{name} must be a causal language model of Hugging Face, got {show(model)}; load it with "
            "AutoModelForCausalLM.from_pretrained."
        )
    kind = type(inner.get_base_model() if is_adapted(inner) else inner).__name__
    if getattr(inner.config, "is_encoder_decoder", False):
        raise InputError(
            f"{name} is a {kind}, which turns one sequence into another; canaries are for causal language models. "
            "Audit it with audit_scores on losses of its pairs."
        )
    if "Classification" in kind:
        raise InputError(f"{name} is a {kind}, a classifier; audit it with audit_model(data=…, included=…).")
    if "MaskedLM" in kind or not (hasattr(inner, "get_output_embeddings") and _has_head(inner)):
        raise InputError(
            f"{name} is a {kind}, which gives no logits of next tokens; pass a causal language model, e.g. from "
            "AutoModelForCausalLM."
        )
    return inner


def _has_head(model: Any) -> bool:
    """Whether the model has an output layer; a bare stack of blocks has none."""
    try:
        return model.get_output_embeddings() is not None
    except (AttributeError, NotImplementedError):
        return False
