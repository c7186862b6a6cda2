"""The causal transformer: top-p draws, memory against a full pass, filled prompts, what it learns, bad input."""

import math
import re

import numpy as np
import pytest

from dosimeter._validate import InputError
from dosimeter.generators import CausalTransformer, same_shape
from dosimeter.generators.transformer import _network, nucleus
from dosimeter.generators.words import START

torch = pytest.importorskip("torch")

SMALL = CausalTransformer(steps=150, width=32, layers=1, heads=2, window=16, batch=8, learning_rate=1e-2)


def letters(count=200, seed=0):
    """Texts that run through the alphabet from a random letter: each word decides the next one."""
    starts = np.random.default_rng(seed).integers(0, 16, count)
    return [" ".join("abcdefghijklmnopqrstuvwxyz"[s : s + 8]) + " ." for s in starts]


@pytest.fixture(scope="module")
def fitted():
    return SMALL.fit(letters(), seed=0)


def test_it_learns_what_follows_what(fitted):
    made = fitted.sample(200, seed=1)
    same_shape(letters(), made, count=200)
    pairs = [(a, b) for text in made for a, b in zip(text.split(), text.split()[1:], strict=False) if b != "."]
    assert len(pairs) > 800
    assert np.mean([ord(b) - ord(a) == 1 for a, b in pairs]) > 0.8
    assert np.mean([text.endswith(".") for text in made]) > 0.5
    assert set(re.findall(r"\w+", " ".join(made))) <= set(re.findall(r"\w+", " ".join(letters())))


def test_texts_are_as_long_as_the_members():
    texts = [text.rsplit(" ", 1 + 3 * (k % 2))[0] for k, text in enumerate(letters())]
    made = SMALL.fit(texts, seed=0).sample(400, seed=1)
    sizes = np.array([len(text.split()) for text in made])
    assert set(sizes) == {5, 8} and abs(np.mean(sizes == 5) - 0.5) < 5 * math.sqrt(0.25 / 400)


def test_the_seeds_decide(fitted):
    first = fitted.sample(20, seed=2)
    assert first == fitted.sample(20, seed=2) and first != fitted.sample(20, seed=3)
    quick = CausalTransformer(steps=3, width=8, layers=1, heads=2, window=8, batch=2)
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    made = [quick.fit(letters(60), seed=s).sample(5, seed=0) for s in (0, 0, 1)]
    assert made[0] == made[1] and made[0] != made[2]
    assert torch.equal(before, torch.random.get_rng_state())


def test_texts_go_on_from_their_prompts_without_them():
    prompts = ["c d", "c d e f g h"]
    model = CausalTransformer(
        prompts=prompts, steps=150, width=32, layers=1, heads=2, window=16, batch=8, learning_rate=1e-2
    )
    made = model.fit(letters(), seed=0).sample(100, seed=1)
    first = [text.split()[0] for text in made]
    assert np.mean([word in ("e", "i") for word in first]) > 0.8
    assert 20 < first.count("e") < 80


def test_nucleus_has_the_truncated_distribution():
    share = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    draws = 40_000
    for top_p, kept in ((0.3, 1), (0.4, 1), (0.5, 2), (0.8, 3), (1.0, 5)):
        found = nucleus(np.tile(np.log(share[[2, 0, 4, 1, 3]]), (draws, 1)), top_p, np.random.default_rng(0))
        counted = np.bincount(found, minlength=5)[[1, 3, 0, 4, 2]] / draws
        route = np.where(np.arange(5) < kept, share, 0) / share[:kept].sum()
        assert (np.abs(counted - route) <= 5 * np.sqrt(route * (1 - route) / draws) + 1e-9).all(), top_p


def test_nucleus_never_draws_what_is_impossible_and_rows_are_their_own():
    logits = np.array([[-np.inf, 0.0, -np.inf], [5.0, -np.inf, 5.0], [-700.0, -750.0, -np.inf]])
    found = np.stack([nucleus(logits, 0.999, np.random.default_rng(k)) for k in range(200)])
    assert set(found[:, 0]) == {1} and set(found[:, 1]) == {0, 2} and set(found[:, 2]) == {0}


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return _network(torch, 20, 16, 2, 4)


def test_writing_with_a_memory_gives_the_logits_of_a_full_pass(network):
    ids = torch.randint(3, 20, (3, 9))
    with torch.no_grad():
        whole, _ = network(ids, None, None)
        _, memory = network(ids[:, :5], None, None)
        for place in range(5, 9):
            visible = torch.ones((3, place + 1), dtype=torch.bool)
            step, memory = network(ids[:, place : place + 1], visible, memory)
            assert torch.allclose(step[:, 0], whole[:, place], atol=1e-5)


def test_later_tokens_and_filling_are_not_seen(network):
    ids = torch.randint(3, 20, (1, 6))
    other = ids.clone()
    other[0, 4] = (other[0, 4] - 2) % 17 + 3
    filled = torch.cat([torch.full((1, 3), START), ids], 1)
    seen = torch.arange(9)[None] >= 3
    with torch.no_grad():
        first, changed = (network(part, None, None)[0] for part in (ids, other))
        behind, _ = network(filled, seen, None)
    assert torch.equal(first[:, :4], changed[:, :4]) and not torch.allclose(first[:, 4], changed[:, 4])
    assert torch.allclose(first, behind[:, 3:], atol=1e-5)


def test_an_untrained_network_is_near_the_uniform_distribution(network):
    with torch.no_grad():
        logits, _ = network(torch.randint(3, 20, (8, 12)), None, None)
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
    assert float(entropy) > 0.95 * math.log(20)


@pytest.mark.parametrize(
    ("model", "members", "words"),
    [
        (SMALL, ["a b"] * 20, "at least 50 members"),
        (SMALL, np.zeros((60, 2)), "needs texts"),
        (CausalTransformer(prompts="a b"), letters(60), "prompts"),
        (CausalTransformer(prompts=["a", " "]), letters(60), "prompts"),
        (CausalTransformer(top_p=0), letters(60), "top_p"),
        (CausalTransformer(width=10, heads=4), letters(60), "multiple of heads"),
        (CausalTransformer(steps=0), letters(60), "steps"),
        (CausalTransformer(learning_rate=2), letters(60), "learning_rate"),
    ],
)
def test_bad_input_is_refused(model, members, words):
    with pytest.raises(InputError, match=words):
        model.fit(members, seed=0)
