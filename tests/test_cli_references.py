"""`dosimeter audit` with reference models in files: what it proves, what it would take, and what is refused."""

import json
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import dosimeter as dm
from dosimeter import cli
from dosimeter.cli._references import read_references

pytest.importorskip("onnxruntime", reason="ONNX files are read by onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx", reason="the tests convert scikit-learn models")

X, Y = load_digits(return_X_y=True)
X, Y = (X[:600] / 16).astype(np.float32), Y[:600]
COINS = dm.fair_coins(600, 3)
ORDER = np.argsort(~COINS, kind="stable")  # members, then non-members
MODELS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A forest, its records, four references and their masks, all in files."""
    path = tmp_path_factory.mktemp("audit")
    (path / "refs").mkdir()
    masks = np.array([dm.fair_coins(600, seed) for seed in (20, 21)])
    masks = np.concatenate([masks, ~masks])
    for name, mask, seed in [("model", COINS, 0), *((f"refs/r{8 + i}", m, 1 + i) for i, m in enumerate(masks))]:
        model = RandomForestClassifier(10, min_samples_leaf=3, random_state=seed).fit(X[mask], Y[mask])
        graph = skl2onnx.to_onnx(model, X[:1], options={"zipmap": False})
        (path / f"{name}.onnx").write_bytes(graph.SerializeToString())
    np.savez(path / "in.npz", X=X[COINS], y=Y[COINS])
    np.savez(path / "out.npz", X=X[~COINS], y=Y[~COINS])
    np.savez(path / "masks.npz", masks=masks[:, ORDER])
    np.savez(path / "wide.npz", masks=masks[:, :-1])
    np.savez(path / "three.npz", masks=masks[:3])
    np.savez(path / "two.npz", a=masks, b=masks)
    np.savez(path / "full.npz", masks=np.ones((MODELS, 600), bool))
    np.savez(path / "scores.npz", members=[1.0, 2.0], nonmembers=[0.0, 1.0])
    return path


@pytest.fixture
def run(capsys, monkeypatch, folder):
    def call(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setattr(sys, "argv", ["dosimeter", "audit", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        streams = capsys.readouterr()
        return stopped.value.code, streams.out, streams.err

    return call


MODEL = ("model.onnx", "--members", "in.npz", "--nonmembers", "out.npz")
REFERENCES = (*MODEL, "--references", "refs/*.onnx", "--reference-masks", "masks.npz")


@pytest.mark.once
def test_the_audit_is_that_of_the_library(run, folder, monkeypatch):
    code, out, err = run(*REFERENCES, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    files = [str(folder / "refs" / f"r{i}.onnx") for i in (8, 9, 10, 11)]
    with np.load(folder / "masks.npz") as arrays:
        masks = arrays["masks"]
    own = dm.audit_model(
        str(folder / "model.onnx"),
        members=(X[COINS], Y[COINS]),
        nonmembers=(X[~COINS], Y[~COINS]),
        references=files,
        reference_masks=masks,
    )
    assert found["metadata"]["references"] == MODELS
    assert found["estimates"][0]["low"] == own.headline.low > 0
    assert found["details"]["attacks"][0]["attack"] == own.metadata.attack != "loss"


def test_an_attack_by_name_and_references_without_masks(run):
    code, out, _ = run(*REFERENCES[:-2], "--attack", "rmia", "--json")
    assert code == 0 and json.loads(out)["metadata"]["attack"] == "rmia"


@pytest.mark.parametrize("attack", ["loss", "calibrated-class"])
def test_an_attack_that_needs_no_references(run, attack):
    code, out, _ = run(*MODEL, "--attack", attack, "--json")
    found = json.loads(out)
    assert code == 0 and found["metadata"]["attack"] == (None if attack == "loss" else attack)


def test_a_dry_run_asks_little_and_says_what_would_be_asked(run):
    code, out, err = run(*REFERENCES, "--dry-run")
    assert (code, err) == (0, "")
    assert "4 (their records are in the masks)" in out and "3000 of 5 models" in out and "expected time" in out
    assert out.index("r8.onnx: trained on") < out.index("r10.onnx: trained on")
    code, out, _ = run(*REFERENCES, "--dry-run", "--json")
    plan = json.loads(out)
    assert (plan["references"], plan["records"], plan["outputs"], plan["masks"]) == (4, 600, 3000, True)
    assert plan["seconds"] > 0
    assert "none" in run(*MODEL, "--dry-run")[1]


def test_files_stand_in_the_order_of_their_numbers(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert [file.stem for file in read_references(["refs/*.onnx"], None, None).files] == ["r8", "r9", "r10", "r11"]


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry-run"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*MODEL, "--references", "none/*.onnx"), "none/*.onnx names no file"),
        ((*MODEL, "--references", "in.npz"), "takes .onnx files, got in.npz"),
        ((*MODEL, "--references", "refs/r8.onnx", "--references", "refs/*.onnx"), "r8.onnx more than once"),
        ((*MODEL, "--reference-masks", "masks.npz"), "--reference-masks is for reference models"),
        ((*MODEL, "--attack", "rmia"), "--attack rmia is for reference models"),
        ((*REFERENCES[:-1], "gone.npz"), "gone.npz does not exist"),
        ((*REFERENCES[:-1], "masks.csv"), "must be an .npz file"),
        ((*REFERENCES[:-1], "two.npz"), "it holds a, b"),
        ((*REFERENCES[:-1], "three.npz"), "for 4 references"),
        ((*REFERENCES[:-1], "wide.npz"), "in shape (4, 600)"),
        ((*REFERENCES[:-1], "full.npz"), "is in all 4 references"),
        ((*REFERENCES, "--attack", "psychic"), "attack must be one of"),
        (("scores.npz", "--references", "refs/*.onnx"), "--references needs a model"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(run, arguments, words, dry):
    code, out, err = run(*arguments, *dry)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1 and words in err
