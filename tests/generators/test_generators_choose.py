"""The choice of a generator, the reading of members, the checks of generated records, and lazy names."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter import generators
from dosimeter._validate import InputError
from dosimeter.engine import Store
from dosimeter.generators import (
    Fitted,
    GaussianCopula,
    Generator,
    NGram,
    SmoothedBootstrap,
    TreeModel,
    check_copies,
    choose,
    copied,
    read_members,
    same_shape,
)

RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=(80, 4))
WORDS = {name: RNG.choice(["u", "v", "w"], 80) for name in "abc"} | {"d": NUMBERS[:, 0]}
TEXTS = [f"word{k % 7} and word{k % 5}" for k in range(80)]


@pytest.mark.parametrize(
    ("members", "kind", "expected"),
    [
        (NUMBERS, "tabular", GaussianCopula),
        ((NUMBERS, np.arange(80) % 3), "tabular", GaussianCopula),  # one unordered column of five
        ((NUMBERS > 0).astype(float), "tabular", GaussianCopula),  # two values have an order
        (WORDS, "tabular", TreeModel),
        ({name: column[:40] for name, column in WORDS.items()}, "tabular", GaussianCopula),  # too few for a tree
        (np.eye(4)[RNG.integers(0, 4, 80)], "tabular", TreeModel),
        (RNG.uniform(size=(60, 5, 5)), "image", SmoothedBootstrap),
        (RNG.uniform(size=(60, 5, 5, 3)), "image", SmoothedBootstrap),
        (TEXTS, "text", NGram),
        (np.array(TEXTS), "text", NGram),
    ],
)
def test_the_form_of_the_members_decides(members, kind, expected):
    found = choose(members)
    assert found.kind == kind and isinstance(found.generator, expected) and found.reason.startswith("members is")
    assert isinstance(found.generator, Generator)
    fitted = found.generator.fit(members, seed=0)
    assert isinstance(fitted, Fitted)
    same_shape(members, fitted.sample(10, seed=0), count=10)


def test_the_reason_says_what_was_seen():
    assert "3 of its 4 variables" in choose(WORDS).reason


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ("a text", "one string"),
        ([], "shape"),
        (np.empty((0, 3)), "no record"),
        ({}, "no record"),
        ({"a": 5}, "column 'a' of members is 5"),
        ({"a": [1, 2], "b": [1]}, "different lengths"),
        ([[1, 2], [3]], "mixed lengths"),
        (np.zeros(5), "shape"),
        (np.zeros((2, 2, 2, 2, 2)), "shape"),
        (None, "shape"),
        ((NUMBERS, np.arange(80), 3), "3 parts"),
        ((NUMBERS, np.arange(79)), "one label for each"),
        ((NUMBERS, np.zeros((80, 1))), "one label for each"),
    ],
)
def test_members_of_no_form_are_refused(members, words):
    for read in (read_members, choose):
        with pytest.raises(InputError, match=words):
            read(members)


def test_sparse_members_are_refused():
    from scipy.sparse import csr_array

    with pytest.raises(InputError, match=r"pass members\.toarray"):
        read_members(csr_array(np.eye(3)))


def test_members_are_read_with_their_labels():
    found = read_members((NUMBERS, list(range(80))))
    assert (found.size, found.kind) == (80, "tabular") and np.array_equal(found.y, np.arange(80))
    assert read_members(TEXTS).y is None


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 10**6))
def test_copies_are_those_of_a_search_through_all_pairs(old, new, seed):
    rng = np.random.default_rng(seed)
    members, made = rng.integers(0, 2, (old, 3)).astype(float), rng.integers(0, 2, (new, 3)).astype(float)
    members[rng.uniform(size=members.shape) < 0.1] = np.nan
    made[rng.uniform(size=made.shape) < 0.1] = np.nan
    route = [any(np.array_equal(a, b, equal_nan=True) for b in members) for a in made]
    assert copied(members, made).tolist() == route
    assert check_copies(members, made) == np.mean(route)
    names = "pqr"
    as_named = [{n: part[:, j] for j, n in enumerate(names)} for part in (members, made)]
    assert copied(*as_named).tolist() == route


def test_copies_of_words_texts_and_images():
    towns = {"a": ["x", "y", None], "b": [1, 2, 3]}
    assert copied(towns, {"a": ["x", "y", None, "x"], "b": [1, 3, 3, 2]}).tolist() == [True, False, True, False]
    assert copied(["a  b", "c"], [" a b ", "a", "c"]).tolist() == [True, False, True]
    images = np.arange(32.0).reshape(2, 4, 4) - 0.0
    assert copied(images, np.stack([images[1], images[0] + 1])).tolist() == [True, False]
    assert copied(np.zeros((1, 2, 2)), -np.zeros((1, 2, 2))).tolist() == [True]
    assert check_copies((NUMBERS, np.zeros(80)), (NUMBERS, np.ones(80))) == 1.0  # labels do not count


GAPS = np.where(np.arange(8).reshape(4, 2) == 3, np.nan, 1.0)


@pytest.mark.parametrize(
    ("members", "made", "words"),
    [
        (NUMBERS, NUMBERS[:, :3], "columns"),
        (WORDS, {k: WORDS[k] for k in "abc"}, "columns"),
        (WORDS, {k: WORDS[k] for k in "bacd"}, "columns"),
        (NUMBERS, TEXTS, "same kind"),
        (np.zeros((5, 4, 4)), np.zeros((5, 4, 5)), "shape"),
        (NUMBERS, (NUMBERS, np.zeros(80)), "no labels"),
        ((NUMBERS, np.zeros(80)), NUMBERS, "has labels"),
        (NUMBERS, np.where(NUMBERS > 2, np.inf, NUMBERS), "not a finite number"),
        (NUMBERS, np.full((3, 4), np.nan), "record 0"),
        (GAPS, np.full((3, 2), np.nan), "generated 0 is not a finite number"),  # only column 1 may be missing
        (NUMBERS, np.full((3, 4), "a"), "generate numbers"),
        (WORDS, WORDS | {"a": np.arange(80)}, "generate texts"),
        (TEXTS, ["fine", 5], r"generated\[1\] is 5"),
        (NUMBERS, NUMBERS[:0], "generated holds no record"),
    ],
)
def test_records_of_another_form_are_refused(members, made, words):
    with pytest.raises(InputError, match=words):
        same_shape(members, made)


def test_missing_values_are_allowed_where_the_members_have_them():
    made = np.array([[1.0, np.nan]])
    same_shape(GAPS, made)
    with pytest.raises(InputError, match="not a finite number"):
        same_shape(GAPS, made, missing=False)
    with pytest.raises(InputError, match="gave 1 records and 2 are needed"):
        same_shape(GAPS, made, count=2)


def test_a_generator_by_name(tmp_path):
    images, store = RNG.uniform(size=(60, 5, 5)), Store(tmp_path / "store")
    found = choose(images, "flow", store=store)
    assert found.generator.name == "flow matching" and found.generator.store is store and found.kind == "image"
    with pytest.raises(InputError, match="generator must be one of auto, flow"):
        choose(images, "gan")


def test_heavy_packages_are_imported_only_when_asked_for():
    code = (
        "import sys, dosimeter.generators as g\n"
        "assert {'Mst', 'ConvolutionalVae', 'FlowMatching', 'CausalTransformer', 'PretrainedText'} <= set(dir(g))\n"
        "g.Mst(), g.ConvolutionalVae(), g.FlowMatching(), g.CausalTransformer(), g.PretrainedText(None, None)\n"
        "heavy = {'torch', 'mbi', 'jax', 'transformers', 'pandas', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(generators.__all__) <= set(dir(generators))
    with pytest.raises(AttributeError, match="no attribute 'Gan'"):
        _ = generators.Gan
