"""Scores of texts: one pass of both models against bare forward passes, and against the loops that people write.

    python bench/language.py                                  # every row
    python bench/language.py --only "64 tokens, vocabulary 4096, CPU" --texts 10000

Texts: 64 tokens each; SST-2 sentences and WikiText-2 paragraphs of the lengths that they have, in the order of the file
(both from DOSIMETER_DATA; at most 512 tokens). Vocabularies: 4096, and GPT-2's 50 257. CPU time of one thread, or time
by the clock of two threads.

All loops give Min-K%++ and the difference to a reference model. One text after another:

- *scripts*: as in the two scripts of Min-K%++'s authors (zjysteven/mink-plus-plus, run.py and run_ref.py): a pass of
  the target for Min-K%++, and passes of target and reference for the difference. Their pass for lower case is left out.
- *mimir*: as in iamgroot42/mimir: one pass of each model with labels, token probabilities read one by one.
- *frugal*: the least that a loop can do, one pass of each model and no more arithmetic than the two scores need.

In batches:

- *padded 8, 16, 32*: so many texts in the order of the file, padded to the longest, with a mask; as batches of a
  tokenizer with padding=True are made. No more arithmetic than the two scores need.

Ours computes more: all that nine scores need, ranks and divergences too. *bare* are the forward passes alone, of texts
sorted by length. The texts are taken in blocks, each measured in turn by all, so that other load on the machine meets
all alike; ratios are medians over the blocks. Texts are sorted within a block only. The loops run on some blocks,
which changes nothing for them. Finished rows of full size are written to bench/language.json and, as a table, .md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dosimeter.attacks import min_k_plus_plus, reference_ratio
from dosimeter.models import HuggingFace
from dosimeter.models.token_pass import token_passes
from dosimeter.pipelines.language import byte_pairs, small_model, token_rows

HERE = Path(__file__).resolve().parent
SMALL, GPT2 = 4096, 50_257
LONGEST = 512
TOGETHER = 512  # tokens of a batch; what the library takes on a processor
MOST_OVER_BARE, LEAST_UNDER_LOOP = 1.2, 2.0
Found = list[tuple[float, float]]


@dataclass(frozen=True)
class Row:
    """What is measured: texts, models, threads, texts of a block, and on every which block the loops run."""

    texts: str
    count: int
    vocabulary: int = SMALL
    width: int = 192
    layers: int = 6
    threads: int = 1
    block: int = 128
    part: int = 1

    @property
    def name(self) -> str:
        clock = "CPU time of 1 thread" if self.threads == 1 else f"time by the clock, {self.threads} threads"
        size = "" if self.width == 192 else f" of {self.layers} layers of {self.width}"
        return f"{self.texts}, vocabulary {self.vocabulary}{size}, {clock}"


ROWS = (
    Row("64 tokens", 1_024, part=2),
    Row("SST-2", 2_048, part=4),
    Row("WikiText-2", 128, block=32),
    Row("64 tokens", 64, GPT2, block=16),
    Row("SST-2", 256, GPT2, block=64),
    Row("64 tokens", 16, GPT2, width=768, layers=12, block=8, part=2),
    Row("64 tokens", 1_024, threads=2, part=4),
    Row("SST-2", 512, threads=2),
    Row("WikiText-2", 64, threads=2, block=32),
)


def models(row: Row) -> tuple[Any, Any]:
    """Two models of the same size; 12 heads at GPT-2's width, else 6."""
    sizes = {"positions": LONGEST, "width": row.width, "layers": row.layers, "heads": 12 if row.width == 768 else 6}
    made = [small_model(row.vocabulary, **sizes, seed=seed).eval() for seed in (0, 1)]
    return made[0], made[1]


def texts(name: str, count: int) -> list[Any]:
    """Token rows; those of real texts are of a vocabulary of 4096, which models of a larger one know too."""
    if name == "64 tokens":
        return list(np.random.default_rng(0).integers(2, SMALL, (count, 64)))
    folder = Path(os.environ.get("DOSIMETER_DATA", ""))
    if name == "SST-2":
        with gzip.open(folder / "sst2.csv.gz", "rt", encoding="utf-8") as file:
            lines = [line.split(",", 2)[2].strip().strip('"') for line in file if line.startswith("train,")]
    else:
        with np.load(folder / "wikitext2.npz", allow_pickle=False) as file:
            whole = file["train"].tobytes().decode("utf-8").split("\n")
        lines = [line for line in whole if line.strip() and not line.startswith(" =")]
    rows = token_rows(byte_pairs(lines[:20_000], SMALL), lines[: 2 * count], LONGEST)
    return [np.array(row) for row in rows if len(row) >= 2][:count]


def ours(target: Any, base: Any, rows: list[Any]) -> Found:
    """Everything that every score needs, of all tokens; and the two scores."""
    spans = np.array([(1, row.size) for row in rows])
    found = token_passes(HuggingFace(target, task="causal", padding="none"), rows, spans, base=base)
    assert found.base is not None
    difference = reference_ratio(found.target.log_probability, found.base.log_probability)
    scores = min_k_plus_plus(found.target.log_probability, found.target.mean, found.target.deviation)
    return list(zip(difference.tolist(), scores.tolist(), strict=True))


def padded_batch(rows: list[Any]) -> tuple[Any, Any]:
    """Token numbers and mask of some texts, filled up to the longest."""
    longest = max(row.size for row in rows)
    ids, mask = (
        torch.zeros((len(rows), longest), dtype=torch.int64),
        torch.zeros((len(rows), longest), dtype=torch.int64),
    )
    for place, row in enumerate(rows):
        ids[place, : row.size], mask[place, : row.size] = torch.from_numpy(row), 1
    return ids, mask


def bare(target: Any, base: Any, rows: list[Any]) -> None:
    """The forward passes alone, of sorted texts, in batches of the library's size; nothing is kept of the logits."""
    rest = sorted(rows, key=len, reverse=True)
    with torch.inference_mode():
        while rest:
            size = max(1, TOGETHER // len(rest[0]))
            ids, mask = padded_batch(rest[:size])
            for model in (target, base):
                _ = model(input_ids=ids, attention_mask=mask).logits
            rest = rest[size:]


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


@torch.no_grad()
def padded(target: Any, base: Any, rows: list[Any], *, size: int) -> Found:
    """Batches in the order of the file, padded to the longest text."""
    found = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        ids, mask = padded_batch(part)
        token = ids[:, 1:, None]
        logs, mean, spread = moments(target(input_ids=ids, attention_mask=mask).logits[:, :-1])
        other = base(input_ids=ids, attention_mask=mask).logits[:, :-1]
        own, theirs = logs.gather(2, token)[..., 0], other.gather(2, token)[..., 0] - other.logsumexp(-1)
        for place, row in enumerate(part):
            kept = slice(0, row.size - 1)
            difference = (own[place, kept].mean() - theirs[place, kept].mean()).item()
            found.append((difference, lowest_fifth(own[place, kept], mean[place, kept], spread[place, kept])))
    return found


LOOPS: dict[str, Callable[[Any, Any, list[Any]], Found]] = {
    "scripts": scripts,
    "mimir": mimir,
    "frugal": frugal,
    **{f"padded {size}": partial(padded, size=size) for size in (8, 16, 32)},
}


def measured(row: Row) -> dict[str, Any]:
    """Ratios of one row, over blocks of texts."""
    torch.set_num_threads(row.threads)
    clock = time.process_time if row.threads == 1 else time.perf_counter

    def seconds(work: Any, part: list[Any]) -> float:
        start = clock()
        work(target, base, part)
        return clock() - start

    (target, base), rows = models(row), texts(row.texts, row.count)
    expected = np.array(ours(target, base, rows[:8]))
    for name, work in LOOPS.items():
        assert np.allclose(work(target, base, rows[:8]), expected, atol=2e-3), f"{name} disagrees"
    bare(target, base, rows[:8])
    each: list[float] = []
    over: list[float] = []
    under: dict[str, list[float]] = {name: [] for name in LOOPS}
    for number, start in enumerate(range(0, len(rows), row.block)):
        part = rows[start : start + row.block]
        each.append(seconds(ours, part))
        over.append(each[-1] / seconds(bare, part))
        if number % row.part == 0:
            for name, work in LOOPS.items():
                under[name].append(seconds(work, part) / each[-1])
        said = ", ".join(f"{name} {found[-1]:.2f}" for name, found in under.items())
        print(f"{start}: {1e3 * each[-1] / len(part):.2f} ms a text, {over[-1]:.3f} × bare; {said}", file=sys.stderr)
    lengths = [len(one) for one in rows]
    return {
        "texts": len(rows),
        "tokens": {"mean": statistics.mean(lengths), "median": statistics.median(lengths), "most": max(lengths)},
        "parameters": sum(p.numel() for p in target.parameters()),
        "milliseconds a text": 1e3 * sum(each) / len(rows),
        "scoring over bare passes": statistics.median(over),
        "loops over scoring": {name: statistics.median(found) for name, found in under.items()},
        "blocks": {"bare": over, **under},
    }


def targets(rows: dict[str, Any]) -> dict[str, bool]:
    """Which targets are met: bare passes on texts of 64 tokens; public loops on each kind of texts."""
    found = {}
    for name, row in rows.items():
        found[f"at most {MOST_OVER_BARE} × bare passes: {name}"] = row["scoring over bare passes"] <= MOST_OVER_BARE
        for loop in ("mimir", "padded 16"):
            met = row["loops over scoring"][loop] >= LEAST_UNDER_LOOP
            found[f"{loop} takes at least {LEAST_UNDER_LOOP:g} × as long: {name}"] = met
    return found


def table(rows: dict[str, Any]) -> str:
    """The rows as a table in Markdown."""
    head = ["measured", "texts", "tokens, mean", "scoring / bare", *(f"{name} / scoring" for name in LOOPS)]
    lines = [head, ["---"] * len(head)]
    for name, row in rows.items():
        ratios = (row["scoring over bare passes"], *row["loops over scoring"].values())
        lines.append([name, str(row["texts"]), f"{row['tokens']['mean']:.0f}", *(f"{ratio:.2f}" for ratio in ratios)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> int:
    """Measure, print, and write rows of full size down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--texts", type=int, help="so many texts; a row with fewer than usual is not written")
    options = parser.parse_args()
    path = HERE / "language.json"
    for row in ROWS:
        if options.only not in row.name:
            continue
        count = options.texts or row.count
        chosen = replace(row, count=count, part=max(1, row.part * count // row.count))
        print(row.name, file=sys.stderr)
        found = measured(chosen)
        print(json.dumps({row.name: found | {"blocks": None}}, indent=1), flush=True)
        if count >= row.count:
            kept = json.loads(path.read_text(encoding="utf-8")).get("rows", {}) if path.exists() else {}
            kept[row.name] = found
            kept = {one.name: kept[one.name] for one in ROWS if one.name in kept}
            path.write_text(json.dumps({"rows": kept, "met": targets(kept)}, indent=1) + "\n", encoding="utf-8")
            (HERE / "language.md").write_text(table(kept), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
