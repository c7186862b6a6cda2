"""Texts from a small causal transformer in torch, trained from scratch on the members.

Positions enter through a linear penalty on distance (Press et al. 2022), so that texts may be longer than the windows
it was trained on. Texts are written in batches, each from the start or from a held-out prompt, by top-p sampling
(Holtzman et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray, show
from dosimeter.generators.classes import FittedClasses, fit_classes
from dosimeter.generators.lengths import matched
from dosimeter.generators.protocol import check_count, require_members, streams
from dosimeter.generators.words import END, RARE, START, Vocabulary, read_texts, vocabulary
from dosimeter.training.chain import torch_module

TOGETHER = 512  # texts that are written at once
WRITTEN = 4  # texts that are written for each one that is asked for, at most, to find those of the members' lengths


@dataclass(frozen=True)
class CausalTransformer:
    """Generate texts with a small transformer that is trained on the members; needs torch.

    Args:
        prompts: Held-out texts to begin with; the prompt is not in the generated text. None of them: texts begin at the
            start of a text.
        prompt_tokens: How many tokens of a prompt are used.
        top_p: Each token is drawn from the likeliest ones that have this share of the probability together.
        steps: Training steps.
        words: The size of the vocabulary. Rarer words are drawn by their own frequency.
        width: The size of the network's states; a multiple of `heads`.
        layers: How many blocks it has.
        heads: How many attention heads each block has.
        window: How many tokens it sees.
        batch: How many windows each training step has.
        learning_rate: The largest rate of its one-cycle schedule.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to, for each class where there are labels.

    >>> CausalTransformer(steps=200).fit(texts, seed=0).sample(10, seed=1)  # doctest: +SKIP
    """

    prompts: Sequence[str] = ()
    prompt_tokens: int = 8
    top_p: float = 0.95
    steps: int = 800
    words: int = 4000
    width: int = 128
    layers: int = 2
    heads: int = 4
    window: int = 64
    batch: int = 16
    learning_rate: float = 3e-3
    name: str = "causal transformer"
    minimum: int = 50

    def fit(self, members: Any, *, seed: int) -> FittedTransformer | FittedClasses:
        """Train from scratch on windows of the members, drawn at random.

        Args:
            members: Texts, or (texts, y); labels give each class a model of its own.
            seed: Decides every random choice.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few, or an argument is out of range.
        """
        records = require_members(members, kind="text", minimum=self.minimum, caller="the transformer")
        self._check()
        texts = read_texts(records)
        if records.y is not None:
            return fit_classes(self._trained, records, minimum=self.minimum, seed=seed)
        return self._trained(texts, seed)

    def _trained(self, texts: list[str], seed: int) -> FittedTransformer:
        torch = torch_module()
        known = vocabulary(texts, self.words)
        rows = known.encode(texts)
        stream = np.concatenate([part for row in rows for part in ([START], row, [END])]).astype(np.int64)
        lengths = np.array([row.size for row in rows])
        lengths = lengths[lengths <= np.quantile(lengths, 0.99)]
        prompts = [row[: self.prompt_tokens] for row in known.encode(check_prompts(self.prompts))]
        (rng,) = streams(seed, 1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(1 << 31)))
            network = _network(torch, known.size, self.width, self.layers, self.heads)
            _train(torch, network, stream, self, rng)
        return FittedTransformer(known, network, tuple(prompts), check_top_p(self.top_p), lengths, self.window)

    def _check(self) -> None:
        for name in ("prompt_tokens", "steps", "words", "width", "layers", "heads", "batch"):
            check.whole(name, getattr(self, name), 1, "pass a larger number")
        check.whole("window", self.window, 2, "pass e.g. 64")
        check.within("learning_rate", self.learning_rate, 0.0, 1.0, "pass e.g. 0.003", include="()")
        check_top_p(self.top_p)
        if self.width % self.heads:
            raise InputError(f"width must be a multiple of heads, got {self.width} and {self.heads}; change one.")


def check_top_p(value: Any) -> float:
    """The share of probability that top-p sampling keeps."""
    return check.within("top_p", value, 0.0, 1.0, "pass e.g. 0.95", include="(]")


def check_prompts(prompts: Sequence[str]) -> list[str]:
    """Prompts with a word each."""
    if isinstance(prompts, str) or any(not isinstance(p, str) or not p.strip() for p in prompts):
        raise InputError(f"prompts must be texts that are not empty, got {show(prompts)}; pass held-out texts.")
    return list(prompts)


@dataclass(frozen=True, eq=False)
class FittedTransformer:
    """The vocabulary, the network, the prompts as token numbers, and the lengths of all but the longest members."""

    vocabulary: Vocabulary
    network: Any
    prompts: tuple[IntArray, ...]
    top_p: float
    lengths: IntArray
    window: int

    def sample(self, count: int, *, seed: int) -> list[str]:
        """Sample `count` texts as long as the members; every prompt is used equally often."""
        size = check_count(count)
        pick, walk, rare, chosen = streams(seed, 4)
        starts = self.prompts or (np.empty(0, np.int64),)

        def written(number: int, least: IntArray | None) -> IntArray:
            prompts = [starts[k] for k in pick.permutation(np.arange(number) % len(starts))]
            least = np.ones(number, np.int64) if least is None else least
            parts = [slice(k, k + TOGETHER) for k in range(0, number, TOGETHER)]
            return np.concatenate([self._written(prompts[part], least[part], walk) for part in parts])

        return self.vocabulary.decode(matched(written, self.lengths, size, chosen, most=WRITTEN), rare)

    def _written(self, prompts: list[IntArray], least: IntArray, rng: np.random.Generator) -> IntArray:
        """Token numbers of a batch of texts, none of which ends before its least length.

        Shorter prompts are filled up in front, and the filling is not seen.
        """
        torch = torch_module()
        width = 1 + max(prompt.size for prompt in prompts)
        ids = np.full((len(prompts), width), START, np.int64)
        seen = np.zeros((len(prompts), width), bool)
        for row, prompt in enumerate(prompts):
            ids[row, width - prompt.size :] = prompt
            seen[row, width - prompt.size - 1 :] = True
        longest = int(self.lengths.max()) + 1  # one more: a text that has not ended is longer than any member
        made = np.full((len(prompts), longest), END, np.int64)
        live = np.arange(len(prompts))
        barred = [START] if self.vocabulary.rare else [START, RARE]
        with torch.no_grad():
            logits, memory = self.network(torch.from_numpy(ids), torch.from_numpy(seen), None)
            visible = torch.from_numpy(seen)
            for step in range(longest):
                scores = logits[:, -1].double().numpy()
                scores[:, barred] = -np.inf
                scores[step < least[live], END] = -np.inf
                new = nucleus(scores, self.top_p, rng)
                made[live, step] = new
                going = np.flatnonzero(new != END)
                if going.size == 0 or step == longest - 1:
                    break
                live, keep = live[going], torch.from_numpy(going)
                memory = [tuple(part[keep][:, :, -self.window :] for part in pair) for pair in memory]
                visible = torch.cat([visible[keep], torch.ones((going.size, 1), dtype=torch.bool)], 1)
                visible = visible[:, -(memory[0][0].shape[2] + 1) :]
                logits, memory = self.network(torch.from_numpy(new[going])[:, None], visible, memory)
        return made


def nucleus(logits: FloatArray, top_p: float, rng: np.random.Generator) -> IntArray:
    """A draw from the most likely tokens that have at least the share `top_p` together, for each row.

    A token is one of them when the more likely ones have less than that share. A draw from all tokens that falls among
    them has the right distribution already, so only the other rows are sorted and drawn again.
    """
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    drawn = _drawn(share, rng)
    enough = (top_p - 1e-12) * share.sum(axis=1)
    above = np.where(share > np.take_along_axis(share, drawn[:, None], axis=1), share, 0.0).sum(axis=1)
    again = np.flatnonzero(above >= enough)
    if again.size:
        ranked = -np.sort(-share[again], axis=1)
        last = np.argmax(np.cumsum(ranked, axis=1) >= enough[again, None], axis=1)
        least = np.take_along_axis(ranked, last[:, None], axis=1)
        drawn[again] = _drawn(np.where(share[again] >= least, share[again], 0.0), rng)
    return drawn


def _drawn(share: FloatArray, rng: np.random.Generator) -> IntArray:
    """A column for each row, drawn in proportion to the shares."""
    total = np.cumsum(share, axis=1)
    end = total[:, -1]
    target = np.minimum(rng.uniform(size=len(share)) * end, np.nextafter(end, 0.0))
    return (total <= target[:, None]).sum(axis=1).astype(np.int64)


def _network(torch: Any, size: int, width: int, layers: int, heads: int) -> Any:
    nn = torch.nn
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.triple, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any, bias: Any, past: Any) -> Any:
            count, length, _ = x.shape
            parts = self.triple(self.before(x)).view(count, length, 3, heads, width // heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            if past is not None:
                k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            heard = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            x = x + self.out(heard.transpose(1, 2).reshape(count, length, width))
            return x + self.wide(self.between(x)), (k, v)

    class TransformerNetwork(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(size, width)
            nn.init.normal_(self.table.weight, std=0.02)  # also the output layer: small, or a word predicts itself
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.last = nn.LayerNorm(width)

        def forward(self, ids: Any, visible: Any, memory: Any) -> Any:
            """Logits after each token, and the keys and values so far; `visible` is over the memory and the tokens."""
            length = ids.shape[1]
            whole = length if memory is None else length + memory[0][0].shape[2]
            query, key = torch.arange(whole - length, whole)[:, None], torch.arange(whole)
            bias = slopes[:, None, None] * (key - query)
            bias = bias.masked_fill(key > query, -torch.inf)[None]
            if visible is not None:
                # a filled place sees itself, or it would see nothing
                hidden = ~visible[:, None, None, :] & (key != query)
                bias = bias.expand(len(ids), -1, -1, -1).masked_fill(hidden, -torch.inf)
            x = self.table(ids)
            kept = []
            for place, block in enumerate(self.blocks):
                x, pair = block(x, bias, None if memory is None else memory[place])
                kept.append(pair)
            return self.last(x) @ self.table.weight.T, kept

    return TransformerNetwork()


def _train(torch: Any, network: Any, stream: IntArray, recipe: CausalTransformer, rng: np.random.Generator) -> None:
    """Windows of the stream of all texts; a window may run over the end of a text into the next one."""
    window = min(recipe.window, stream.size - 2)
    optimiser = torch.optim.AdamW(network.parameters(), recipe.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.learning_rate, total_steps=recipe.steps)
    for _ in range(recipe.steps):
        starts = rng.integers(0, stream.size - window, recipe.batch)
        ids = torch.from_numpy(stream[starts[:, None] + np.arange(window + 1)])
        logits, _ = network(ids[:, :-1], None, None)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
