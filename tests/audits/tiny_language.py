"""A tiny language: sentences of made-up words, a byte-pair vocabulary, models from configurations."""

import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers

ONSETS, VOWELS, ENDS = "bcdfglmnprstvz", "aeiou", "nlrstk"


def words(count=300, seed=0):
    rng = np.random.default_rng(seed)
    found = set()
    while len(found) < count:
        found.add("".join(str(rng.choice(list(part))) for part in (ONSETS, VOWELS, ONSETS, VOWELS, ENDS)))
    return sorted(found)


def corpus(count, seed=0, length=24):
    """Sentences: every word has five likely followers, so that a model has something to learn."""
    known = words()
    follow = np.random.default_rng(7).integers(0, len(known), (len(known), 5))
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        at, made = int(rng.integers(len(known))), []
        for _ in range(length):
            made.append(known[at])
            at = int(follow[at, rng.integers(5)])
        texts.append(" ".join(made))
    return texts


def tokenizer(texts=None, size=900):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<pad>", "<eos>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(texts or corpus(400), trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")


def gpt2(vocabulary, seed=0, width=32, positions=64):
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=positions, n_embd=width, n_layer=2, n_head=2, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama(vocabulary, seed=0):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def train(model, coder, texts, steps=60, rate=3e-3, batch=32, seed=0):
    """A plain loop: the mean over texts of their mean loss."""
    rng = np.random.default_rng(seed)
    rows = coder(texts)["input_ids"]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    model.train()
    for _ in range(steps):
        chosen = [rows[i] for i in rng.choice(len(rows), min(batch, len(rows)), replace=False)]
        longest = max(map(len, chosen))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in chosen])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in chosen])
        loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    return model
