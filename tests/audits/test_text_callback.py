"""The callback inside `transformers.Trainer`: the rows that are fed, looks, killed and resumed runs."""

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dosimeter as dm
from dosimeter import InputError
from dosimeter.audits.verify import verify

torch = pytest.importorskip("torch", reason="language models need torch: dosimeter[torch]")
transformers = pytest.importorskip("transformers", reason="language models need transformers: dosimeter[text]")
pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")

from tiny_language import corpus, gpt2, tokenizer  # noqa: E402

HERE = Path(__file__).parent
AT = {"length": 8, "prefix": 4}


@pytest.fixture(scope="module")
def coder():
    return tokenizer()


@pytest.fixture(scope="module")
def sheet(coder):
    return dm.canary_sheet(60, like=corpus(80, seed=5), tokenizer=coder, seed=3, **AT)


def rows_of(coder, texts):
    return [{"input_ids": row, "attention_mask": [1] * len(row)} for row in coder(texts)["input_ids"]]


def trainer(folder, coder, sheet, rows, *callbacks, steps=4, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=16, learning_rate=5e-3, report_to=[],
        disable_tqdm=True, logging_strategy="no", use_cpu=True, lr_scheduler_type="constant",
        **{"save_strategy": "no"} | options,
    )  # fmt: skip
    return transformers.Trainer(
        gpt2(len(coder)), arguments, train_dataset=rows, processing_class=coder,
        data_collator=transformers.DataCollatorForLanguageModeling(coder, mlm=False), callbacks=list(callbacks),
    )  # fmt: skip


def test_a_run_is_audited_and_written(tmp_path, coder, sheet):
    watch = dm.DosimeterCallback(sheet, every=10, exposure=7)
    rows = rows_of(coder, sheet.training_texts(corpus(20)))
    trainer(tmp_path, coder, sheet, rows, watch, steps=40).train()
    audit = dm.Audit.from_json((tmp_path / "dosimeter" / "audit.json").read_text(encoding="utf-8"))
    assert audit == watch.audit and verify(audit).valid
    assert [look.step for look in audit.details.looks] == [10, 20, 30, 40]
    assert audit.metadata.step == 40
    assert audit.headline.low == audit.details.looks[-1].epsilon
    assert audit.headline.low > 0
    assert (tmp_path / "dosimeter" / "audit.html").exists()
    assert json.loads((tmp_path / "dosimeter" / "fixed.json").read_text())["sheet_hash"] == sheet.hash
    # exposure of the base model is measured before the first step
    assert 0.3 < audit.details.exposure.base.mean_inside < 2 < audit.details.exposure.target.mean_inside
    # the model at the start is the base: the same numbers as with the base model apart
    model = gpt2(len(coder))
    apart = dm.DosimeterCallback(sheet, base=model, exposure=0)
    trainer(tmp_path / "apart", coder, sheet, rows, apart, steps=10).train()
    assert apart.audit.curve.auc == audit.details.looks[0].auc


def test_the_check_draws_no_random_numbers_of_the_training(tmp_path, coder, sheet):
    rows = rows_of(coder, sheet.training_texts(corpus(20)))
    weights = []
    for callbacks in ((), (dm.DosimeterCallback(sheet, exposure=0),)):
        run = trainer(tmp_path / str(len(callbacks)), coder, sheet, rows, *callbacks)
        run.train()
        weights.append(torch.cat([p.detach().ravel() for p in run.model.parameters()]))
    assert torch.equal(*weights)


def masked(rows, coder):
    """The collator of prompt and completion that leaves the last tokens out of the loss."""

    def collate(batch):
        made = transformers.DataCollatorForLanguageModeling(coder, mlm=False)(batch)
        made["labels"][:, -3:] = -100
        return made

    return collate


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows, sheet, coder: rows[:-1], "stands in 0 rows .* instead of 1"),
        (lambda rows, sheet, coder: [*rows, rows[-1]], "stands in 2 rows .* instead of 1"),
        (
            lambda rows, sheet, coder: [*rows, *rows_of(coder, [next(c.text for c in sheet if not c.included)])],
            "is out by its coin, but stands in row",
        ),
        (lambda rows, sheet, coder: packed(rows), "shares its row with other text"),
        (lambda rows, sheet, coder: [{k: v[:-2] for k, v in row.items()} for row in rows], "is cut or changed"),
    ],
)
def test_rows_that_are_not_those_of_the_sheet_stop_the_training(tmp_path, coder, sheet, change, message):
    rows = change(rows_of(coder, sheet.training_texts(corpus(8))), sheet, coder)
    with pytest.raises(InputError, match=message):
        trainer(tmp_path, coder, sheet, rows, dm.DosimeterCallback(sheet)).train()


def packed(rows):
    """Two rows in one."""
    return [
        {key: [*a[key], *b[key]] for key in a} for a, b in zip(rows[::2], rows[1::2], strict=False)
    ]  # fmt: skip


def test_a_masked_secret_stops_the_training(tmp_path, coder, sheet):
    rows = rows_of(coder, sheet.training_texts())
    run = trainer(tmp_path, coder, sheet, rows, dm.DosimeterCallback(sheet))
    run.data_collator = masked(rows, coder)
    with pytest.raises(InputError, match="left out of the loss"):
        run.train()


def test_epochs_and_rows_without_length_are_refused(tmp_path, coder, sheet):
    rows = rows_of(coder, sheet.training_texts())
    with pytest.raises(InputError, match=r"counts epochs.*max_steps"):
        trainer(tmp_path, coder, sheet, rows, dm.DosimeterCallback(sheet), steps=-1, num_train_epochs=1).train()

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(rows)

    with pytest.raises(InputError, match="cannot be looked through"):
        trainer(tmp_path, coder, sheet, Stream(), dm.DosimeterCallback(sheet)).train()
    with pytest.raises(InputError, match="every"):
        dm.DosimeterCallback(sheet, every=0)
    with pytest.raises(InputError, match="compares with the base model"):
        dm.DosimeterCallback(sheet, score="informia")


def test_records_that_begin_alike_are_told_apart(tmp_path, coder):
    texts = [f"{text} {tail}" for text in corpus(40, length=8) for tail in ("one", "one two")]
    made = dm.canary_sheet(like=texts, kind="records", tokenizer=coder, seed=1)
    watch = dm.DosimeterCallback(made, exposure=0)
    trainer(tmp_path, coder, made, rows_of(coder, made.training_texts(texts)), watch).train()
    assert watch.audit.metadata.canaries == "records"


KILLED = """
import os, sys
sys.path.insert(0, {here!r})
import dosimeter as dm
from test_text_callback import resumable
from tiny_language import tokenizer


class Kill:
    def __getattr__(self, name):
        end = name == "on_step_end"
        return lambda args, state, control, **_: os._exit(9) if end and state.global_step == 7 else None


resumable({folder!r}, tokenizer(), dm.CanarySheet.load({sheet!r}), Kill()).train()
"""


def resumable(folder, coder, sheet, *callbacks):
    """A run of 10 steps that keeps its state after 4 and 8."""
    rows = rows_of(coder, sheet.training_texts(corpus(20)))
    watch = dm.DosimeterCallback(sheet, every=2, exposure=3)
    made = trainer(folder, coder, sheet, rows, watch, *callbacks, steps=10, save_strategy="steps", save_steps=4)
    made.watch = watch
    return made


def test_a_killed_and_resumed_run_keeps_the_sheet(tmp_path, coder, sheet):
    path = sheet.save(tmp_path / "sheet.jsonl")
    code = KILLED.format(here=str(HERE), sheet=str(path), folder=str(tmp_path / "a"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    assert not (tmp_path / "a" / "dosimeter" / "audit.json").exists()
    with pytest.raises(InputError, match="started with another sheet hash than it is resumed with"):
        resumable(tmp_path / "a", coder, sheet.again(5)).train(resume_from_checkpoint=True)
    resumed, whole = resumable(tmp_path / "a", coder, sheet), resumable(tmp_path / "b", coder, sheet)
    resumed.train(resume_from_checkpoint=True)
    whole.train()
    looks = [run.watch.audit.details.looks for run in (resumed, whole)]
    assert [look.step for look in looks[0]] == [2, 4, 6, 8, 10]
    assert looks[0] == looks[1]
    assert resumed.watch.audit.details.exposure == whole.watch.audit.details.exposure
    (tmp_path / "a" / "dosimeter" / "base.npz").unlink()
    with pytest.raises(InputError, match=r"base model's answers is gone; pass DosimeterCallback\(base="):
        resumable(tmp_path / "a", coder, sheet).train(resume_from_checkpoint=True)
    (tmp_path / "a" / "dosimeter" / "fixed.json").unlink()
    with pytest.raises(InputError, match="does not say which sheet it was started with"):
        resumable(tmp_path / "a", coder, sheet).train(resume_from_checkpoint=True)


def test_dp_sgd_inside_the_trainer(tmp_path, coder, sheet):
    """Opacus as the research notes have it: the engine's steps become the guarantee beside the bound."""
    opacus = pytest.importorskip("opacus")
    from tiny_language import llama

    torch.manual_seed(0)
    rows = rows_of(coder, sheet.training_texts(corpus(40)))
    collate = transformers.DataCollatorForLanguageModeling(coder, mlm=False)
    model = llama(len(coder)).train()
    engine = opacus.PrivacyEngine(accountant="rdp")
    private, optimizer, loader = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=1.0, max_grad_norm=1.0,
        data_loader=torch.utils.data.DataLoader(rows, batch_size=24, collate_fn=collate),
    )  # fmt: skip

    class Clear(transformers.TrainerCallback):
        def on_optimizer_step(self, args, state, control, optimizer=None, **_):
            optimizer.optimizer.zero_grad()

    class Private(transformers.Trainer):
        def get_train_dataloader(self):
            return loader

        def compute_loss(self, model, inputs, return_outputs=False, **_):
            labels, mask = inputs["labels"][:, 1:], inputs["labels"][:, 1:] != -100
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1]
            lost = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), labels.masked_fill(~mask, 0), reduction="none"
            )
            return ((lost * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, report_to=[], save_strategy="no", disable_tqdm=True, max_grad_norm=0,
        logging_strategy="no", use_cpu=True, remove_unused_columns=False,
    )  # fmt: skip
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    watch = dm.DosimeterCallback(sheet, mechanism=engine, exposure=0)
    Private(
        private, arguments, train_dataset=rows, processing_class=coder, optimizers=(optimizer, schedule),
        callbacks=[watch, Clear()],
    ).train()  # fmt: skip
    audit = watch.audit
    assert audit.metadata.mechanism.startswith("DpSgd(noise_multiplier=1.0") and "steps=4" in audit.metadata.mechanism
    assert audit.region is not None and audit.headline.low <= audit.region.upper.epsilon


def test_copies_are_counted(tmp_path, coder):
    made = dm.canary_sheet(40, like=corpus(60), tokenizer=coder, copies=2, seed=1, **AT)
    rows = rows_of(coder, made.training_texts())
    watch = dm.DosimeterCallback(made, exposure=0)
    trainer(tmp_path, coder, made, rows, watch).train()
    assert "2-record group" in watch.audit.headline.claim
    with pytest.raises(InputError, match=r"stands in 2 rows .* instead of 1"):
        trainer(tmp_path / "b", coder, made, rows, dm.DosimeterCallback(replace(made, copies=1))).train()


def test_other_events_pass_by(sheet):
    watch = dm.DosimeterCallback(sheet)
    assert watch.on_log(None, None, None) is None
    assert not hasattr(watch, "nothing")
    assert copy.copy(watch).sheet is sheet
    assert np.array_equal(watch.sheet.included, sheet.included)
