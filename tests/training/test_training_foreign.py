"""Trainings of other libraries and of scripts."""

import sys

import numpy as np
import pytest
import sample_models
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from dosimeter import InputError
from dosimeter.training import train_command, train_foreign

X, Y = sample_models.images(60)
FLAT = X.reshape(60, -1)
MEMBERS = sample_models.halves(4, 60)
SEEDS = [3, 4, 5, 6]

SCRIPT = """
import argparse
import numpy as np
parser = argparse.ArgumentParser()
for name in ("indices", "seed", "out", "mode"):
    parser.add_argument("--" + name)
given = parser.parse_args()
rows = np.load(given.indices)
if given.mode == "fail" and given.seed == "4":
    raise SystemExit("no luck today")
if given.mode == "hang":
    import time
    time.sleep(60)
if given.mode == "nan":
    np.savez(given.out, outputs=np.full(3, np.nan))
elif given.mode == "other":
    np.savez(given.out, results=rows)
elif given.mode == "array":
    with open(given.out, "wb") as file:
        np.save(file, rows)
elif given.mode == "text":
    open(given.out, "w").write("0.5,0.5")
elif given.mode == "words":
    np.savez(given.out, outputs=np.array(["yes", "no"]))
elif given.mode == "objects":
    np.savez(given.out, outputs=np.array([{}, None]))
elif given.mode != "silent":
    np.savez(given.out, outputs=np.append(rows, int(given.seed)).astype(float))
"""


def forest(indices, seed):
    return RandomForestClassifier(n_estimators=5, random_state=seed).fit(FLAT[indices], Y[indices])


def stubborn(indices, seed):
    if seed == 4:
        raise ValueError("no luck today")
    if seed == 5:
        return lambda records: np.full(len(records), np.nan)
    if seed == 6:
        return lambda records: np.zeros(3)
    return LogisticRegression().fit(FLAT[indices], Y[indices])


@pytest.mark.once
@pytest.mark.parametrize("processes", [1, 2])
def test_scikit_learn(processes):
    for one in train_foreign(forest, MEMBERS, SEEDS, FLAT, workers=processes):
        expected = forest(np.flatnonzero(MEMBERS[one.index]), SEEDS[one.index]).predict_proba(FLAT)
        assert one.failed is None and one.seed == SEEDS[one.index]
        assert (one.outputs == expected).all()


def test_methods_of_predictors():
    def fit(indices, seed):
        return LogisticRegression().fit(FLAT[indices], Y[indices])

    one = next(train_foreign(fit, MEMBERS, SEEDS, FLAT, outputs="decision_function"))
    assert (one.outputs == fit(np.flatnonzero(MEMBERS[0]), 3).decision_function(FLAT)).all()
    mean = next(train_foreign(lambda indices, seed: lambda x: x.mean(1) + len(indices), MEMBERS, SEEDS, FLAT))
    assert mean.outputs == pytest.approx(FLAT.mean(1) + 30)


def test_a_failure_is_told_and_the_others_go_on():
    first, second, third, fourth = train_foreign(stubborn, MEMBERS, SEEDS, FLAT)
    assert first.failed is None and first.outputs.shape == (60, 3)
    assert "seed 4" in second.failed and "no luck today" in second.failed and second.outputs is None
    assert "seed 5" in third.failed and "NaN" in third.failed
    assert "seed 6" in fourth.failed and "shape (3,)" in fourth.failed


@pytest.fixture
def command(tmp_path):
    script = tmp_path / "a script.py"
    script.write_text(SCRIPT)
    start = [sys.executable, str(script), "--indices={indices}", "--seed", "{seed}", "--out", "{out}", "--mode"]
    return lambda mode: [*start, mode]


def test_scripts(command):
    for one in train_command(command("fine"), MEMBERS, SEEDS):
        assert one.outputs.tolist() == [*np.flatnonzero(MEMBERS[one.index]), SEEDS[one.index]]
    found = list(train_command(command("fail"), MEMBERS[:2], SEEDS[:2]))
    assert found[0].failed is None
    assert "seed 4" in found[1].failed and "code 1" in found[1].failed and "no luck today" in found[1].failed


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("nan", "NaN"),
        ("other", "no array 'outputs' to {outputs}: it holds 'results'"),
        ("silent", "wrote no file to {outputs}"),
        ("array", "not an .npz file"),
        ("text", "not an .npz file"),
        ("words", "outputs of type <U3"),
        ("objects", "not an .npz file of numbers"),
    ],
)
def test_scripts_that_write_something_else(command, mode, said):
    one = next(train_command(command(mode), MEMBERS, SEEDS))
    assert said in one.failed and "seed 3" in one.failed and one.outputs is None


@pytest.mark.parametrize("place", ["{outputs}", "{out}"])
def test_a_script_that_needs_no_seed(tmp_path, place):
    (tmp_path / "train.py").write_text(
        "import sys\nimport numpy as np\nnp.savez(sys.argv[2], outputs=np.load(sys.argv[1]) / 2)\n"
    )
    one = next(train_command([sys.executable, str(tmp_path / "train.py"), "{indices}", place], MEMBERS, SEEDS))
    assert one.outputs.tolist() == (np.flatnonzero(MEMBERS[0]) / 2).tolist()


def test_scripts_that_hang_or_are_not_there(command):
    assert "more than 1 seconds" in next(train_command(command("hang"), MEMBERS, SEEDS, timeout=1)).failed
    nowhere = ["no-such-program", "{indices}", "{seed}", "{out}"]
    assert "could not be started" in next(train_command(nowhere, MEMBERS, SEEDS)).failed


def test_refusals(command):
    with pytest.raises(InputError, match="callable"):
        train_foreign(3, MEMBERS, SEEDS, FLAT)
    with pytest.raises(InputError, match="memberships"):
        train_foreign(forest, MEMBERS[0], SEEDS, FLAT)
    with pytest.raises(InputError, match="seeds"):
        train_foreign(forest, MEMBERS, SEEDS[:2], FLAT)
    with pytest.raises(InputError, match=r"lacks \{outputs\}"):
        train_command(["train", "{indices}", "{seed}"], MEMBERS, SEEDS)
    with pytest.raises(InputError, match=r"lacks \{indices\}"):
        train_command(["train", "--to={out}", "{seed}"], MEMBERS, SEEDS)
    with pytest.raises(InputError, match="list of texts"):
        train_command("train {indices} {seed} {out}", MEMBERS, SEEDS)
