"""`dosimeter canaries` and `dosimeter audit-text`: files, folders, exit codes, one line for bad input."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import dosimeter as dm
from dosimeter import cli

sys.path.insert(0, str(Path(__file__).parent / "audits"))


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dosimeter", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        streams = capsys.readouterr()
        return stopped.value.code, streams.out, streams.err

    return run


def letters(count=80):
    syllables = ["ba", "co", "di", "fu", "ga", "lo", "mi"]
    words = [a + b + c for a in syllables for b in syllables[:3] for c in syllables[:2]]
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(words, 13)) for _ in range(count)]


@pytest.fixture
def texts(tmp_path):
    lines = [json.dumps({"text": text, "who": f"p{n // 2}"}) for n, text in enumerate(letters())]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lines


def test_a_sheet_is_made_and_its_training_texts(call, texts, tmp_path):
    made = ("canaries", "--count", 40, "--like", "train.jsonl", "--length", 8, "--prefix", 3, "--out", "sheet.jsonl")
    code, out, err = call(*made, "--seed", 1, "--training", "in.jsonl")
    assert code == 0, err
    sheet = dm.CanarySheet.load(tmp_path / "sheet.jsonl")
    assert sheet.hash in out and sheet.mask_hash in out and "could prove ε ≥" in out
    trained = [json.loads(line)["text"] for line in (tmp_path / "in.jsonl").read_text().splitlines()]
    assert trained == sheet.training_texts([json.loads(line)["text"] for line in texts])
    assert (tmp_path / "in.jsonl").stat().st_mode & 0o077 == 0, "it says who is in, as the sheet does"
    code, out, _ = call(*made, "--seed", 1, "--json")
    assert code == 0 and json.loads(out)["hash"] == sheet.hash
    code, _, err = call(*made)
    assert code == 2 and "sheet.jsonl holds another sheet" in err
    assert dm.CanarySheet.load(tmp_path / "sheet.jsonl") == sheet


def test_records_by_person(call, texts, tmp_path):
    code, out, err = call(
        "canaries", "--kind", "records", "--like", "train.jsonl", "--group-field", "who", "--out", "sheet.jsonl"
    )
    assert code == 0, err
    assert "one person" in out and len(dm.CanarySheet.load(tmp_path / "sheet.jsonl")) == 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--like", "none.jsonl"), "does not exist"),
        (("--like", "train.jsonl", "--field", "body"), "has no text in the field"),
        (("--like", "train.jsonl", "--kind", "records", "--group-field", "email"), "has no field 'email'"),
        (("--like", "train.jsonl", "--count", "4000", "--prefix", "3"), "canaries need as many"),
        (("--like", "train.jsonl", "--group-field", "who"), "pass --kind records"),
        (("--count", "10"), "words of letters"),
        (("--like", "train.jsonl", "--tokenizer", "nowhere"), "not a folder with a tokenizer"),
    ],
)
def test_bad_sheets_are_one_line(call, texts, arguments, message):
    if "--tokenizer" in arguments:
        pytest.importorskip("transformers")
    code, _, err = call("canaries", "--out", "sheet.jsonl", "--length", 8, *arguments)
    assert code == 2 and message in " ".join(err.split()) and "Traceback" not in err


def test_lines_of_a_text_file(call, tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(letters()), encoding="utf-8")
    code, _, err = call(
        "canaries", "--count", 20, "--like", "train.txt", "--length", 8, "--prefix", 3, "--out", "sheet.jsonl"
    )
    assert code == 0, err
    code, _, err = call(
        "canaries", "--kind", "records", "--like", "train.txt", "--group-field", "who", "--out", "sheet.jsonl"
    )
    assert code == 2 and "no field 'who'" in err


def test_a_model_in_a_folder_is_audited(call, tmp_path):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tiny_language import corpus, gpt2, tokenizer, train

    coder = tokenizer()
    coder.save_pretrained(tmp_path / "base")
    base = gpt2(len(coder))
    base.save_pretrained(tmp_path / "base")
    (tmp_path / "like.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in corpus(90)), encoding="utf-8")
    code, _, err = call(
        "canaries", "--count", 80, "--like", "like.jsonl", "--tokenizer", "base", "--length", 8, "--prefix", 4,
        "--seed", 3, "--out", "sheet.jsonl",
    )  # fmt: skip
    assert code == 0, err
    sheet = dm.CanarySheet.load(tmp_path / "sheet.jsonl")
    assert sheet.canaries[0].ids
    train(base, coder, sheet.training_texts(), steps=60, rate=5e-3).save_pretrained(tmp_path / "tuned")
    coder.save_pretrained(tmp_path / "tuned")
    made = ("audit-text", "tuned", "--sheet", "sheet.jsonl", "--base", "base", "--exposure", 7)
    code, out, err = call(*made, "--html", "page.html", "--expected-hash", sheet.mask_hash)
    assert code == 0, err
    assert "the privacy loss for adding or removing one record is at least" in " ".join(out.split())
    assert "mean exposure" in out and "greedy" in out
    assert (tmp_path / "page.html").exists()
    code, out, _ = call(*made, "--json", "--noise-multiplier", 2, "--sample-rate", 0.1, "--steps", 10)
    (tmp_path / "audit.json").write_text(out, encoding="utf-8")
    assert json.loads(out)["metadata"]["mechanism"].startswith("DpSgd")
    assert call("verify", "audit.json")[0] == 0
    assert call("gate", "audit.json", "--max-epsilon", "0.01")[0] == 1
    assert call("report", "audit.json", "--html", "again.html")[0] == 0

    def refused(message, *arguments):
        code, _, err = call(*arguments)
        assert code == 2 and message in " ".join(err.split()), err
        assert "Traceback" not in err

    refused("is not a folder", "audit-text", "nowhere", "--sheet", "sheet.jsonl", "--tokenizer", "base")
    refused("it is another sheet", *made, "--expected-hash", "0" * 64)
    refused("base model, which is missing", "audit-text", "tuned", "--sheet", "sheet.jsonl")
    config = transformers.T5Config(vocab_size=len(coder), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    refused("turns one sequence into another", "audit-text", "t5", "--sheet", "sheet.jsonl", "--tokenizer", "base")
    pytest.importorskip("peft")
    import peft

    adapted = peft.get_peft_model(
        gpt2(len(coder)), peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    )
    adapted.save_pretrained(tmp_path / "adapter")
    refused("holds an adapter alone", "audit-text", "adapter", "--sheet", "sheet.jsonl", "--tokenizer", "base")
    code, out, err = call(
        "audit-text", "adapter", "--sheet", "sheet.jsonl", "--base", "base", "--exposure", 0, "--json"
    )
    assert code == 0, err
