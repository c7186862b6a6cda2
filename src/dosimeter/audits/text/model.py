"""A causal model whose losses are minus a score of texts: what `audit_model` takes for members and non-members."""

from __future__ import annotations

from typing import Any

from dosimeter._validate import InputError, show
from dosimeter.audits.text.encoding import encoded
from dosimeter.audits.text.scores import DEFAULT, read_score, score_of
from dosimeter.audits.text.subject import Asked
from dosimeter.models import HuggingFace, Losses

__all__ = ["TextModel"]


class TextModel(HuggingFace):
    """Give `audit_model` the scores of texts instead of their losses, from one pass of model and base.

    Args:
        model: The causal model of Hugging Face.
        tokenizer: Its tokenizer.
        base: The model that its training started from; adapters of peft are switched off instead.
        score: The score, as in `audit_canaries`, fixed before any result is seen.
        batch_size: How many texts go through the model at once; None fits it to memory.
        device: Where to run the models; None leaves them where they are.

    Raises:
        InputError: If model, tokenizer and base do not belong together, or the score needs a base.

    >>> audit_model(TextModel(model, tokenizer, base=base), members=a, nonmembers=b)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        base: Any = None,
        score: str = DEFAULT,
        batch_size: int | None = None,
        device: Any = None,
    ) -> None:
        self._asked = Asked.read(model, tokenizer, base, batch_size=batch_size, device=device)
        self.score = read_score(score, base=self._asked.compared)
        inner = self._asked.box.model
        super().__init__(inner, tokenizer, task="causal", batch_size=batch_size, device=device, padding="none")

    def losses(self, X: Any, y: Any = None) -> Losses:
        """Minus the score of each text."""
        texts = list(X)
        if isinstance(X, str) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"X must be a list of texts, got {show(X)}; pass one string for each record.")
        texts = [str(text) for text in texts]
        rows = encoded(self.tokenizer, texts, [""] * len(texts), limits=self._asked.limits)
        return Losses(-score_of(self.score, self._asked.passes(rows), texts), 0, "log-probabilities", ())
