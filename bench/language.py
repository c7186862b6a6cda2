"""Scores of texts: one pass of both models against bare forward passes, and against the loop that people write.

    python bench/language.py                 # 10 000 texts of 64 tokens; --texts 1000 for less

The loop is Min-K%++ and the reference score for one text after another, as public code has it: two forward passes, a
log-softmax, gathers. CPU time of one thread, in turns; the median of the rounds. A full run writes bench/language.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dosimeter.attacks import min_k_plus_plus, reference_ratio
from dosimeter.models import HuggingFace
from dosimeter.models.token_pass import Passes, token_passes
from dosimeter.pipelines.language import small_model

HERE = Path(__file__).resolve().parent
LENGTH, VOCABULARY, WIDTH, LAYERS, HEADS = 64, 4096, 192, 6, 6
FULL = 10_000
TARGETS = {"bare": 1.2, "loop": 2.0}


def models() -> tuple[Any, Any]:
    """Two models of the same size."""
    made = [
        small_model(VOCABULARY, positions=LENGTH, width=WIDTH, layers=LAYERS, heads=HEADS, seed=seed).eval()
        for seed in (0, 1)
    ]
    return made[0], made[1]


def texts(count: int, *, mixed: bool) -> list[Any]:
    """Token rows of 64 tokens, or of 16 to 64."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(16, LENGTH + 1, count) if mixed else np.full(count, LENGTH)
    return [rng.integers(2, VOCABULARY, size) for size in sizes]


def ours(target: Any, base: Any, rows: list[Any]) -> Passes:
    """Everything that every score needs, of all tokens."""
    spans = np.array([(1, row.size) for row in rows])
    box = HuggingFace(target, task="causal", padding="none")
    found = token_passes(box, rows, spans, base=base)
    reference_ratio(found.target.log_probability, found.base.log_probability if found.base else ())
    min_k_plus_plus(found.target.log_probability, found.target.mean, found.target.deviation)
    return found


def bare(target: Any, base: Any, rows: list[Any]) -> None:
    """The forward passes alone, in batches of the same size; nothing is kept of the logits."""
    size = max(1, 256 * 2**20 // (4 * 2 * VOCABULARY * 3) // LENGTH)
    with torch.no_grad():
        for start in range(0, len(rows), size):
            ids = torch.from_numpy(np.stack(rows[start : start + size]))
            mask = torch.ones_like(ids)
            for model in (target, base):
                _ = model(input_ids=ids, attention_mask=mask).logits


def loop(target: Any, base: Any, rows: list[Any]) -> list[tuple[float, float]]:
    """One text after another: the reference score and Min-K%++."""
    found = []
    with torch.no_grad():
        for row in rows:
            ids = torch.from_numpy(row)[None]
            losses = [-model(input_ids=ids, labels=ids).loss.item() for model in (target, base)]
            logits = target(input_ids=ids).logits[0, :-1]
            logs, probabilities = torch.log_softmax(logits, dim=-1), torch.softmax(logits, dim=-1)
            own = logs.gather(1, ids[0, 1:, None])[:, 0]
            mean = (probabilities * logs).sum(-1)
            spread = ((probabilities * logs.square()).sum(-1) - mean.square()).sqrt()
            scores = np.sort(((own - mean) / spread).numpy())
            found.append((losses[0] - losses[1], float(scores[: max(1, int(0.2 * scores.size))].mean())))
    return found


def seconds(work: Any, *arguments: Any) -> float:
    """CPU time of one call."""
    start = time.process_time()
    work(*arguments)
    return time.process_time() - start


def main() -> int:
    """Measure, print, and write a full run down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=FULL)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    target, base = models()
    same, mixed = texts(options.texts, mixed=False), texts(max(1, options.texts // 10), mixed=True)
    for work in (ours, bare):
        work(target, base, same[:64])
    check = ours(target, base, mixed[:5])
    for row, (ratio, score) in enumerate(loop(target, base, mixed[:5])):
        found = check.target.log_probability[row].mean() - check.base.log_probability[row].mean()  # type: ignore[union-attr]
        again = min_k_plus_plus(check.target.log_probability, check.target.mean, check.target.deviation)[row]
        assert abs(found - ratio) < 1e-3 and abs(again - score) < 1e-2, "the two ways disagree"
    ratios: dict[str, list[float]] = {"bare": [], "loop": []}
    for number in range(options.rounds):
        times = seconds(ours, target, base, same), seconds(bare, target, base, same)
        ratios["bare"].append(times[0] / times[1])
        pair = seconds(ours, target, base, mixed), seconds(loop, target, base, mixed)
        ratios["loop"].append(pair[1] / pair[0])
        print(
            f"round {number}: {times[0]:.2f} s against {times[1]:.2f} s bare; "
            f"loop {pair[1]:.2f} s against {pair[0]:.2f} s",
            file=sys.stderr,
        )
    parameters = sum(p.numel() for p in target.parameters())
    result = {
        "texts": options.texts,
        "parameters": parameters,
        "vocabulary": VOCABULARY,
        "scoring over bare passes": statistics.median(ratios["bare"]),
        "loop over scoring": statistics.median(ratios["loop"]),
        "met": statistics.median(ratios["bare"]) <= TARGETS["bare"]
        and statistics.median(ratios["loop"]) >= TARGETS["loop"],
        "rounds": ratios,
    }
    print(json.dumps(result, indent=1))
    if options.texts >= 2000:
        (HERE / "language.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
