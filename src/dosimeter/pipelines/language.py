"""A small language model to audit: a byte-pair vocabulary, a transformer from a configuration, and its fine-tuning.

The loss is averaged within a row first and then over rows: a mean over the tokens of a batch would let the length of
one row change the gradient of another, which breaks the sensitivity of DP-SGD. The number of steps is fixed, so that it
tells nothing about the number of canaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, IntArray, require
from dosimeter.accounting import DpSgd, noise_for_epsilon

__all__ = ["FineTuning", "byte_pairs", "fine_tune", "small_model", "token_rows", "with_adapters"]

PAD, END = 0, 1
ADAPTED = ("c_attn", "c_proj", "c_fc")


def byte_pairs(texts: Sequence[str], size: int) -> Any:
    """Learn a byte-level byte-pair vocabulary from texts; as a tokenizer of transformers."""
    transformers: Any = require("transformers", extra="text", caller="a language pipeline")
    tokenizers: Any = require("tokenizers", extra="text", caller="a language pipeline")
    levels = tokenizers.pre_tokenizers.ByteLevel
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = levels(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<pad>", "<end>"],
        initial_alphabet=levels.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<end>")


def small_model(vocabulary: int, *, positions: int, width: int, layers: int, heads: int, seed: int) -> Any:
    """Make a GPT-2 of this size with random weights; no dropout."""
    transformers: Any = require("transformers", extra="text", caller="a language pipeline")
    torch: Any = require("torch", extra="torch", caller="a language pipeline")
    if width % heads:
        raise InputError(f"dimension must be a multiple of heads, got {width} and {heads}; change one.")
    config = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_positions=positions,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=END,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    config.loss_type = "ForCausalLM"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.GPT2LMHeadModel(config)


def with_adapters(model: Any, *, rank: int, seed: int) -> Any:
    """Put LoRA adapters on the model; the base weights stay as they are."""
    peft: Any = require("peft", extra="text", caller="adapters")
    torch: Any = require("torch", extra="torch", caller="a language pipeline")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        options = {"r": rank, "lora_alpha": 2 * rank, "fan_in_fan_out": True, "target_modules": list(ADAPTED)}
        return peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))


def token_rows(tokenizer: Any, texts: Sequence[str], length: int) -> list[list[int]]:
    """Token numbers of each text; one that is longer than `length` is cut."""
    return [list(row[:length]) for row in tokenizer(list(texts))["input_ids"]]


@dataclass(frozen=True)
class FineTuning:
    """How a model is trained: a fixed number of steps with Adam, plain or with DP-SGD's clipping and noise."""

    steps: int
    batch: int = 32
    rate: float = 1e-3
    epsilon: float | None = None
    delta: float = 1e-5
    clip: float = 1.0
    seed: int = 0

    def mechanism(self, records: int) -> DpSgd | None:
        """The mechanism of a training on so many records; the noise is the least one for the ε."""
        if self.epsilon is None:
            return None
        rate = min(1.0, self.batch / records)
        noise = noise_for_epsilon(self.epsilon, delta=self.delta, sample_rate=rate, steps=self.steps)
        return DpSgd(noise, sample_rate=rate, steps=self.steps)


def fine_tune(
    model: Any,
    rows: Sequence[Sequence[int]],
    how: FineTuning,
    *,
    records: int | None = None,
    after_step: Callable[[int, Any], None] | None = None,
) -> Any:
    """Train a model on rows of tokens.

    Args:
        model: A causal model.
        rows: Token numbers of each record.
        how: Steps, batches and, for DP-SGD, the ε.
        records: The number of records that noise and sampling are computed for; those of `rows` if None. A number that
            does not depend on the coins keeps the mechanism the same for both neighbours.
        after_step: Called with the number of steps done and the model.

    Returns:
        The Opacus engine of a training with DP-SGD, else None.
    """
    torch: Any = require("torch", extra="torch", caller="a language pipeline")
    check.whole("steps", how.steps, 1, "pass the number of steps")
    mechanism = how.mechanism(records or len(rows))
    trained = [part for part in model.parameters() if part.requires_grad]
    optimizer: Any = torch.optim.AdamW(trained, lr=how.rate, weight_decay=0.0)
    rng = np.random.default_rng(how.seed)
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(how.seed)
        if mechanism is None:
            engine, taught = None, model
            batches = _shuffled(rng, len(rows), how.batch, how.steps)
        else:
            engine, taught, optimizer = _private(model, optimizer, mechanism, how, records or len(rows))
            batches = _poisson(rng, len(rows), mechanism.sample_rate, how.steps)
        for step, chosen in enumerate(batches, start=1):
            # An empty Poisson batch is a step of noise alone: a record whose loss counts nothing keeps the hooks going.
            loss = _loss(torch, taught, [rows[i] for i in chosen] or [rows[0]]) * float(len(chosen) > 0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if after_step is not None:
                after_step(step, model)
                model.train()
    if engine is not None:
        taught.remove_hooks()
    model.eval()
    return engine


def _shuffled(rng: np.random.Generator, count: int, size: int, steps: int) -> Iterator[IntArray]:
    """Batches of shuffled records, again and again."""
    left = np.empty(0, np.int64)
    for _ in range(steps):
        if left.size < min(size, count):
            left = np.concatenate([left, rng.permutation(count)])
        yield left[:size]
        left = left[size:]


def _poisson(rng: np.random.Generator, count: int, rate: float, steps: int) -> Iterator[IntArray]:
    """Every record is in each batch with the same probability; a batch may be empty."""
    for _ in range(steps):
        yield np.flatnonzero(rng.random(count) < rate)


def _private(model: Any, optimizer: Any, mechanism: DpSgd, how: FineTuning, records: int) -> tuple[Any, Any, Any]:
    opacus: Any = require("opacus", extra="torch", caller="DP-SGD")
    engine = opacus.PrivacyEngine(accountant="rdp")
    taught = opacus.GradSampleModule(model)
    private = opacus.optimizers.DPOptimizer(
        optimizer,
        noise_multiplier=mechanism.noise_multiplier,
        max_grad_norm=how.clip,
        expected_batch_size=max(1, round(mechanism.sample_rate * records)),
    )
    private.attach_step_hook(engine.accountant.get_optimizer_hook_fn(sample_rate=mechanism.sample_rate))
    return engine, taught, private


def _loss(torch: Any, model: Any, chosen: Sequence[Sequence[int]]) -> Any:
    """The mean over rows of the mean loss within each row."""
    longest = max(map(len, chosen))
    ids = torch.full((len(chosen), longest), PAD)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(chosen):
        ids[place, : len(row)], mask[place, : len(row)] = torch.tensor(row), 1
    # Positions of shape (batch, length): with one row for all, per-sample gradients of position weights are wrong.
    positions = torch.arange(longest).expand(len(chosen), longest)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits[:, :-1]
    # Flat rows of logits: with the vocabulary in the middle, the softmax strides through memory.
    flat = logits.reshape(-1, logits.shape[2])
    lost = torch.nn.functional.cross_entropy(flat, ids[:, 1:].reshape(-1), reduction="none").view(len(chosen), -1)
    counted = mask[:, 1:]
    return ((lost * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)).mean()
