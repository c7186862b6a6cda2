"""Scores of texts: one pass of both models against bare forward passes, and against the loops that people write.

    python bench/language.py                 # 10 000 texts of 64 tokens; --texts 1000 for less

All loops take one text after another and give Min-K%++ and the difference to a reference model.

- *scripts*: as in the two scripts of Min-K%++'s authors (zjysteven/mink-plus-plus, run.py and run_ref.py): a pass of
  the target for Min-K%++, and passes of target and reference for the difference. Their pass for lower case is left out.
- *mimir*: as in iamgroot42/mimir: one pass of each model with labels, token probabilities read one by one.
- *frugal*: the least that a loop can do, one pass of each model and no more arithmetic than the two scores need.

Ours computes more: all that nine scores need, ranks and divergences too. On one thread of a processor the products of
the models bound what batches can save. CPU time. The texts are taken in blocks, each measured in turn by all, so that
other load on the machine meets all alike; the median over the blocks. The loops run on every tenth text (`--part`),
which changes nothing for them. A run of 2000 texts or more writes bench/language.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dosimeter.attacks import min_k_plus_plus, reference_ratio
from dosimeter.models import HuggingFace
from dosimeter.models.token_pass import token_passes
from dosimeter.pipelines.language import small_model

HERE = Path(__file__).resolve().parent
LENGTH, VOCABULARY, WIDTH, LAYERS, HEADS = 64, 4096, 192, 6, 6
FULL = 10_000
BATCH = 512 // LENGTH  # texts; what the library takes on a processor
MOST_OVER_BARE, LEAST_UNDER_LOOP = 1.2, 2.0
Found = list[tuple[float, float]]


def models() -> tuple[Any, Any]:
    """Two models of the same size."""
    made = [
        small_model(VOCABULARY, positions=LENGTH, width=WIDTH, layers=LAYERS, heads=HEADS, seed=seed).eval()
        for seed in (0, 1)
    ]
    return made[0], made[1]


def texts(count: int) -> list[Any]:
    """Token rows of 64 tokens."""
    rng = np.random.default_rng(0)
    return list(rng.integers(2, VOCABULARY, (count, LENGTH)))


def ours(target: Any, base: Any, rows: list[Any]) -> Found:
    """Everything that every score needs, of all tokens; and the two scores."""
    spans = np.array([(1, row.size) for row in rows])
    found = token_passes(HuggingFace(target, task="causal", padding="none"), rows, spans, base=base)
    assert found.base is not None
    difference = reference_ratio(found.target.log_probability, found.base.log_probability)
    scores = min_k_plus_plus(found.target.log_probability, found.target.mean, found.target.deviation)
    return list(zip(difference.tolist(), scores.tolist(), strict=True))


def bare(target: Any, base: Any, rows: list[Any]) -> None:
    """The forward passes alone, in batches of the same size; nothing is kept of the logits."""
    with torch.inference_mode():
        for start in range(0, len(rows), BATCH):
            ids = torch.from_numpy(np.stack(rows[start : start + BATCH]))
            mask = torch.ones_like(ids)
            for model in (target, base):
                _ = model(input_ids=ids, attention_mask=mask).logits


def lowest_fifth(own: Any, mean: Any, spread: Any) -> float:
    """Min-K%++ of one text."""
    scores = np.sort(((own - mean) / spread).numpy())
    return float(scores[: max(1, int(0.2 * scores.size))].mean())


def moments(logits: Any) -> tuple[Any, Any, Any]:
    """Log-probabilities, and their mean and deviation, as both repositories compute them."""
    logs, probabilities = torch.log_softmax(logits, dim=-1), torch.softmax(logits, dim=-1)
    mean = (probabilities * logs).sum(-1)
    return logs, mean, ((probabilities * logs.square()).sum(-1) - mean.square()).sqrt()


@torch.no_grad()
def scripts(target: Any, base: Any, rows: list[Any]) -> Found:
    """Two scripts: the difference of losses in one, Min-K%++ in the other."""
    batches = [torch.from_numpy(row)[None] for row in rows]
    losses = [[-model(ids, labels=ids).loss.item() for model in (target, base)] for ids in batches]
    found = []
    for ids in batches:
        _, logits = target(ids, labels=ids)[:2]
        logs, mean, spread = moments(logits[0, :-1])
        found.append(lowest_fifth(logs.gather(1, ids[0, 1:, None])[:, 0], mean, spread))
    return [(one - other, score) for (one, other), score in zip(losses, found, strict=True)]


@torch.no_grad()
def mimir(target: Any, base: Any, rows: list[Any]) -> Found:
    """One pass of each model; the probability of each token is read by itself."""

    def probabilities(model: Any, ids: Any) -> tuple[Any, Any, list[float]]:
        logits = model(ids, labels=ids).logits[..., :-1, :].contiguous()
        logs = torch.log_softmax(logits, dim=-1)
        own = [logs[0, at, token].item() for at, token in enumerate(ids[0, 1:]) if token != -100]
        return logits[0], logs[0], own

    found = []
    for row in rows:
        ids = torch.from_numpy(row)[None]
        logits, logs, own = probabilities(target, ids)
        _, _, theirs = probabilities(base, ids)
        probs = torch.softmax(logits, dim=-1)
        mean = (probs * logs).sum(-1)
        spread = ((probs * logs.square()).sum(-1) - mean.square()).sqrt()
        found.append((float(np.mean(own) - np.mean(theirs)), lowest_fifth(torch.tensor(own), mean, spread)))
    return found


@torch.no_grad()
def frugal(target: Any, base: Any, rows: list[Any]) -> Found:
    """One pass of each model, and nothing that the two scores do not need."""
    found = []
    for row in rows:
        ids = torch.from_numpy(row)[None]
        token = ids[0, 1:, None]
        logs, mean, spread = moments(target(ids).logits[0, :-1])
        other = base(ids).logits[0, :-1]
        own, theirs = logs.gather(1, token)[:, 0], other.gather(1, token)[:, 0] - other.logsumexp(-1)
        found.append(((own.mean() - theirs.mean()).item(), lowest_fifth(own, mean, spread)))
    return found


LOOPS: tuple[Callable[[Any, Any, list[Any]], Found], ...] = (scripts, mimir, frugal)


def seconds(work: Any, *arguments: Any) -> float:
    """CPU time of one call."""
    start = time.process_time()
    work(*arguments)
    return time.process_time() - start


def main() -> int:
    """Measure, print, and write a full run down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=FULL)
    parser.add_argument("--block", type=int, default=250, help="texts that are measured in turn")
    parser.add_argument("--part", type=int, default=10, help="the loops run on every so manieth text")
    options = parser.parse_args()
    torch.set_num_threads(1)
    target, base = models()
    rows = texts(options.texts)
    expected = np.array(ours(target, base, rows[:10]))
    for work in LOOPS:
        assert np.allclose(work(target, base, rows[:10]), expected, atol=2e-3), f"{work.__name__} disagrees"
    bare(target, base, rows[:64])
    over: list[float] = []
    under: dict[str, list[float]] = {work.__name__: [] for work in LOOPS}
    for start in range(0, len(rows), options.block):
        block = rows[start : start + options.block]
        some = block[:: options.part]
        each = seconds(ours, target, base, block) / len(block)
        over.append(each / (seconds(bare, target, base, block) / len(block)))
        for work in LOOPS:
            under[work.__name__].append(seconds(work, target, base, some) / len(some) / each)
        said = ", ".join(f"{name} {found[-1]:.2f}" for name, found in under.items())
        print(f"{start}: {1e3 * each:.2f} ms a text, {over[-1]:.3f} × bare; {said}", file=sys.stderr, flush=True)
    middle = {name: statistics.median(found) for name, found in under.items()}
    result = {
        "texts": options.texts,
        "tokens": LENGTH,
        "parameters": sum(p.numel() for p in target.parameters()),
        "vocabulary": VOCABULARY,
        "scoring over bare passes": statistics.median(over),
        "loops over scoring": middle,
        "met": statistics.median(over) <= MOST_OVER_BARE
        and min(middle["scripts"], middle["mimir"]) >= LEAST_UNDER_LOOP,
        "blocks": {"bare": over, **under},
    }
    print(json.dumps(result, indent=1))
    if options.texts >= 2000:
        (HERE / "language.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
