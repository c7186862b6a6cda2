"""Named networks train by the engine, with DP-SGD too, as the plain loop does; texts become ids."""

import hashlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.training.tokens import hashed_words

VOCABULARY, LENGTH = 40, 6


def problem(name, count=24, seed=0):
    """Records that suit a network, labels, and the options to build it with."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    if name in ("bag-of-embeddings", "transformer"):
        x = rng.integers(1, VOCABULARY, (count, LENGTH))
        x[rng.random(x.shape) < 0.3] = 0
        return x, y, {"vocabulary": VOCABULARY}
    if name in ("cnn", "cnn-tanh-4"):
        return rng.normal(size=(count, 1, 12, 12)).astype(np.float32), y, {}
    return rng.normal(size=(count, 5)).astype(np.float32), y, {}


class TestTokens:
    def test_ids_by_hand(self):
        words = ["it", "'", "s", "good", "!"]
        ids = [1 + int.from_bytes(hashlib.blake2b(w.encode(), digest_size=8).digest(), "little") % 999 for w in words]
        assert hashed_words(["It's GOOD!"], vocabulary=1000, length=7).tolist() == [[*ids, 0, 0]]

    @given(st.lists(st.text(max_size=40), max_size=8), st.integers(2, 50), st.integers(1, 9))
    @settings(max_examples=60, deadline=None)
    def test_shape_range_and_padding(self, texts, vocabulary, length):
        found = hashed_words(texts, vocabulary=vocabulary, length=length)
        assert found.shape == (len(texts), length)
        for row, text in zip(found, texts, strict=True):
            words = min(length, len(re.findall(r"\w+|[^\w\s]", text.lower())))
            assert ((row > 0) == (np.arange(length) < words)).all()
            assert row.max(initial=0) < vocabulary

    def test_arrays_of_strings_and_of_texts(self):
        texts = ["one two", "three"]
        expected = hashed_words(texts)
        for kind in (np.dtypes.StringDType(), "U20", object):
            assert (hashed_words(np.array(texts, dtype=kind)) == expected).all()

    def test_the_same_in_another_process(self):
        code = "from dosimeter.training.tokens import hashed_words; print(hashed_words(['a b c']).sum())"
        found = [
            subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "PYTHONHASHSEED": str(seed)},
            ).stdout
            for seed in (1, 2)
        ]
        assert found[0] == found[1] == f"{hashed_words(['a b c']).sum()}\n"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("one text", {}), "texts must be a list"),
            ((["a", 3], {}), r"texts\[1\] is 3"),
            ((["a"], {"vocabulary": 1}), "vocabulary must be"),
            ((["a"], {"length": 0}), "length must be"),
        ],
    )
    def test_refusals(self, arguments, words):
        with pytest.raises(InputError, match=words):
            hashed_words(arguments[0], **arguments[1])


NAMES = ("mlp", "logistic", "cnn", "cnn-tanh-4", "bag-of-embeddings", "transformer")


class TestNetworks:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def test_all_names_are_tried_here(self):
        from dosimeter.training.networks import NETWORKS

        assert tuple(NETWORKS) == NAMES

    @pytest.mark.parametrize("private", [False, True])
    @pytest.mark.parametrize("name", NAMES)
    def test_the_engine_trains_it_as_the_plain_loop_does(self, name, private):
        from dosimeter.training import Privacy, Recipe, train_many
        from dosimeter.training.networks import network

        x, y, options = problem(name)
        model = network(name, x, 3, **options)
        dp = Privacy(0.5, clip=0.7) if private else None
        recipe = Recipe(learning_rate=0.2, steps=4, batch_size=8, sampling="poisson", dp=dp)
        members = np.random.default_rng(1).random((2, len(x))) < 0.7
        found = {
            strategy: list(
                train_many(model, recipe, (x, y), members, [3, 4], evaluate_on="data", strategy=strategy, workers=1)
            )
            for strategy in ("auto", "sequential")
        }
        picked = {"mlp": "dense", "logistic": "dense", "cnn": "convolutional", "cnn-tanh-4": "convolutional"}
        for fast, plain in zip(*found.values(), strict=True):
            assert fast.failed is None and plain.failed is None
            assert fast.plan.strategy == picked.get(name, "functional")
            assert fast.outputs.shape == (len(x), 3)
            assert np.allclose(fast.outputs, plain.outputs, atol=2e-4)
        assert not np.allclose(found["auto"][0].outputs, found["auto"][1].outputs, atol=1e-3)

    @pytest.mark.parametrize("name", NAMES)
    def test_it_learns(self, name, torch):
        from dosimeter.training import Recipe, train_many
        from dosimeter.training.networks import network

        x, y, options = problem(name)
        recipe = Recipe(optimiser="adam", learning_rate=0.02, epochs=80, batch_size=12)
        everyone = np.ones((1, len(x)), bool)
        one = next(train_many(network(name, x, 3, **options), recipe, (x, y), everyone, [0], evaluate_on="data"))
        assert one.accuracy > (0.6 if name == "logistic" else 0.95)

    @pytest.mark.parametrize("name", ["bag-of-embeddings", "transformer"])
    def test_padding_and_the_place_of_a_text_in_its_batch_do_not_count(self, name, torch):
        from dosimeter.training.networks import network

        x, _, options = problem(name)
        x[0] = 0
        torch.manual_seed(0)
        module = network(name, x, 3, **options)().eval()
        with torch.no_grad():
            together = module(torch.from_numpy(x))
            alone = torch.cat([module(torch.from_numpy(row[None])) for row in x])
            module.embedding.weight[0] += 100.0  # what stands where no word does must have no say
            shifted = module(torch.from_numpy(x))
        assert torch.isfinite(together).all()
        assert torch.allclose(together, alone, atol=1e-5)
        assert torch.allclose(together, shifted, atol=1e-5)

    @pytest.mark.parametrize(("name", "ordered"), [("bag-of-embeddings", False), ("transformer", True)])
    def test_whether_the_order_of_words_counts(self, name, ordered, torch):
        from dosimeter.training.networks import network

        x, _, options = problem(name)
        x[x == 0] = 1
        torch.manual_seed(0)
        module = network(name, x, 3, **options)().eval()
        with torch.no_grad():
            same = torch.allclose(module(torch.from_numpy(x)), module(torch.from_numpy(x[:, ::-1].copy())), atol=1e-5)
        assert same is not ordered

    @pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 9, 15)])
    @pytest.mark.parametrize("name", ["cnn", "cnn-tanh-4"])
    def test_sizes_of_images(self, name, shape, torch):
        from dosimeter.training.networks import network

        x = np.zeros((2, *shape), np.float32)
        assert network(name, x, 10)()(torch.from_numpy(x)).shape == (2, 10)

    def test_four_convolutions_with_tanh(self, torch):
        from dosimeter.training.networks import cnn_tanh_4

        kinds = [type(part).__name__ for part in cnn_tanh_4((3, 32, 32), 10)]
        assert kinds.count("Conv2d") == kinds.count("Tanh") == 4

    def test_the_name_tells_what_it_is(self):
        from dosimeter.training.networks import network

        x = np.zeros((2, 5), np.float32)
        assert network("mlp", x, 3, hidden=[7]).name == "mlp(classes=3, hidden=[7], inputs=5)"
        assert network("mlp", x, 3, hidden=[7]).name != network("mlp", x, 3, hidden=[8]).name

    @pytest.mark.parametrize(
        ("name", "shape", "options", "words"),
        [
            ("cnn", (4, 64), {}, "shape must be"),
            ("cnn", (4, 1, 6, 6), {}, "at least 8 by 8"),
            ("mpl", (4, 5), {}, "network must be one of"),
            ("mlp", (4,), {}, "records must have at least two axes"),
            ("mlp", (4, 5), {"hidden": [0]}, "hidden"),
            ("mlp", (4, 5), {"hidden": 3}, "hidden must be the widths"),
            ("mlp", (4, 5), {"activation": "gelu"}, "activation must be one of"),
            ("mlp", (4, 5), {"vocabulary": 9}, "is not for texts"),
            ("mlp", (4, 5), {"heads": 9}, "does not know one of the options heads"),
            ("transformer", (4, 5), {}, "is for texts"),
            ("cnn-tanh-4", (4, 1, 8, 8), {"channels": [3, 3]}, "channels must be four widths"),
        ],
    )
    def test_refusals(self, name, shape, options, words):
        from dosimeter.training.networks import network

        with pytest.raises(InputError, match=re.escape(words)):
            network(name, np.zeros(shape, np.float32), 3, **options)

    def test_heads_share_the_dimension(self):
        from dosimeter.training.networks import transformer

        with pytest.raises(InputError, match="multiple of heads"):
            transformer(40, 6, 3, dimension=7, heads=2)
