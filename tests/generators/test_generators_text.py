"""Texts: tokens and back, vocabularies, the n-gram model against counts by hand, repeatability, bad input."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.generators import NGram, same_shape
from dosimeter.generators.lengths import matched
from dosimeter.generators.words import END, RARE, START, text_of, tokens, vocabulary


def rng_of(seed):
    return np.random.default_rng(seed)


def sentences(count=300, seed=0):
    """Texts of a small grammar: a determiner, sometimes an adjective, a noun, a verb, a mark."""
    rng = rng_of(seed)
    made = []
    for _ in range(count):
        middle = [rng.choice(["small", "old"])] if rng.uniform() < 0.4 else []
        words = [rng.choice(["The", "A"]), *middle, rng.choice(["dog", "cat", "bird"]), rng.choice(["sleeps", "runs"])]
        made.append(" ".join(words) + str(rng.choice([".", "!"])))
    return made


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_tokens_give_the_text_again(text):
    kept = text_of(tokens(text))
    assert "".join(kept.split()) == "".join(text.split())
    assert text_of(tokens(kept)) == kept


def test_words_marks_and_white_space():
    assert tokens(" It's <unk>, no\n10th.  ") == [" It's", " <unk>", ",", " no", "\n10th", "."]
    assert tokens('It \'s "so" U.S.') == [" It", " 's", ' "', "so", '"', " U", ".", "S", "."]
    assert text_of(["the", "cat", ",", " dog"]) == "the cat, dog"


def test_a_vocabulary_keeps_the_frequent_words_and_draws_the_rare_ones_by_frequency():
    known = vocabulary(["a a a b b c c c c d"], 2)
    assert known.words == (" c", " a") and known.size == 5
    (row,) = known.encode(["a c d"])
    assert row.tolist() == [4, 3, RARE]  # a word at the start of a text is the same token as elsewhere
    texts = known.decode([[START, *row, END, row[0]]] * 4000, rng_of(0))
    last = Counter(text.split()[-1] for text in texts)
    share = dict(zip((w.strip() for w in known.rare), known.rare_shares, strict=True))
    for word, part in share.items():
        assert abs(last[word] / 4000 - part) < 5 * math.sqrt(part * (1 - part) / 4000) + 1e-9
    assert all(len(text.split()) == 3 for text in texts)


def test_encoding_and_decoding_are_inverse_without_rare_words():
    texts = sentences(50)
    known = vocabulary(texts)
    assert known.decode(known.encode(texts), rng_of(0)) == texts


def kneser_ney(texts, order):
    """Interpolated Kneser-Ney probabilities from dictionaries, as a second route."""
    known = vocabulary(texts)
    grams = Counter()
    for row in known.encode(texts):
        padded = [START] * (order - 1) + row.tolist() + [END]
        grams.update(tuple(padded[k : k + order]) for k in range(len(padded) - order + 1))
    levels = [grams]
    for _ in range(order - 1):
        levels.append(Counter(gram[1:] for gram in levels[-1]))

    def probability(context, word, level=0):
        counts = levels[level]
        once, twice = (sum(c == k for c in counts.values()) for k in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.5
        mine = {gram[-1]: c for gram, c in counts.items() if gram[:-1] == context}
        if level == order - 1:
            kept = {w: c - discount for w, c in mine.items()}
            return kept.get(word, 0.0) / sum(kept.values())
        lower = probability(context[1:], word, level + 1)
        if not mine:
            return lower
        total = sum(mine.values())
        return max(mine.get(word, 0) - discount, 0) / total + discount * len(mine) / total * lower

    return known, probability


def test_the_next_token_has_the_kneser_ney_distribution():
    texts = sentences(60)
    fitted = NGram(order=3).fit(texts, seed=0)
    known, probability = kneser_ney(texts, 3)
    assert known.words == fitted.vocabulary.words
    size, draws = known.size, 20_000
    the, dog = (known.encode([word])[0][0] for word in ("The", "A dog"))
    seen = known.encode(["The dog"])[0].tolist()
    for context in ([START, START], [START, int(the)], seen, [seen[1], seen[1]], [int(dog), END]):
        new = fitted._next(np.tile(np.array(context), (draws, 1)), rng_of(1))
        shares = np.bincount(new, minlength=size) / draws
        route = np.array([probability(tuple(context), word) for word in range(size)])
        assert math.isclose(route.sum(), 1.0, rel_tol=1e-9)
        assert (np.abs(shares - route) <= 5 * np.sqrt(route * (1 - route) / draws) + 1e-9).all()


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_texts_have_only_known_tokens_and_the_members_form(order):
    texts = sentences()
    made = NGram(order=order).fit(texts, seed=0).sample(400, seed=1)
    known = set(re.findall(r"\w+", " ".join(texts)))
    assert set(re.findall(r"\w+", " ".join(made))) <= known
    assert all(made) and max(len(tokens(t)) for t in made) <= max(len(tokens(t)) for t in texts)
    same_shape(texts, made, count=400)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_texts_are_as_long_as_the_members(order):
    texts = [" ".join(rng_of(k).choice(list("abcdefgh"), 4 + 3 * (k % 3))) for k in range(300)]
    made = NGram(order=order).fit(texts, seed=0).sample(3000, seed=1)
    shares = np.bincount([len(text.split()) for text in made], minlength=12) / 3000
    assert (np.abs(shares[[4, 7, 10]] - 1 / 3) < 5 * math.sqrt(2 / 9 / 3000)).all() and shares[[4, 7, 10]].sum() == 1


def test_texts_of_one_length_keep_it():
    texts = [text for text in sentences(900) if len(tokens(text)) == 4]
    made = NGram().fit(texts, seed=0).sample(500, seed=1)
    assert {len(tokens(text)) for text in made} == {4}
    assert np.mean([text[-1] in ".!" for text in made]) > 0.95


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(1, 60), st.integers(1, 30), st.integers(0, 2**31)
)
def test_matched_rows_have_the_lengths_and_are_written_ones_as_far_as_possible(lengths, count, most, seed):
    rng, written = rng_of(seed), []

    def write(number, least):
        sizes = rng.integers(1 if least is None else least, 7, number)
        rows = np.where(np.arange(6) < sizes[:, None], len(written) + 5, END)
        written.append(rows)
        return rows

    found = matched(write, np.array(lengths), count, rng_of(seed), most=most)
    wanted = np.sort(rng_of(seed).choice(np.array(lengths), count))
    assert np.array_equal(np.sort((found != END).sum(axis=1)), wanted)
    assert sum(map(len, written)) <= (most + 1) * count
    every = Counter(map(tuple, np.concatenate(written).tolist()))
    cut = Counter(map(tuple, found.tolist())) - every
    assert sum(cut.values()) <= len(written[-1])


def test_long_texts_are_as_long_as_the_members_up_to_a_few_per_cent():
    def write(number, least):
        assert least is None  # enough come up
        return np.where(np.arange(201) < rng_of(number).integers(1, 202, number)[:, None], 7, END)

    lengths = np.arange(12, 181)
    found = np.sort((matched(write, lengths, 500, rng_of(0), most=40) != END).sum(axis=1))
    wanted = np.sort(rng_of(0).choice(lengths, 500))
    assert (np.abs(found - wanted) <= np.where(wanted <= 16, 0, wanted / 16 + 1)).all()


def test_lengths_that_do_not_come_up_are_cut():
    def write(number, least):
        assert least is None or least.tolist() == [1] * number
        return np.tile([7, 7, END], (number, 1))

    found = matched(write, np.array([1, 2]), 400, rng_of(0), most=3).tolist()
    assert found.count([7, 7, END]) + found.count([7, END, END]) == 400 and 120 < found.count([7, END, END]) < 280


def test_longer_contexts_give_better_grammar():
    texts = sentences(2000)
    good = set(texts)
    shares = [np.mean([t in good for t in NGram(order=k).fit(texts, seed=0).sample(500, seed=1)]) for k in (1, 3)]
    assert shares[0] < 0.2 and shares[1] > 0.95


def test_rare_words_are_written_too():
    texts = sentences(400)
    made = NGram(words=5).fit(texts, seed=0).sample(1000, seed=1)
    words = {word.strip(" .!") for text in made for word in text.split()}
    assert {"sleeps", "runs", "dog", "cat", "bird", "small", "old"} <= words


def test_the_seed_decides():
    texts = sentences()
    fitted = NGram().fit(texts, seed=0)
    first = fitted.sample(50, seed=3)
    assert first == NGram().fit(texts, seed=8).sample(50, seed=3)
    assert first != fitted.sample(50, seed=4)


def test_a_large_vocabulary_shortens_the_context():
    texts = [f"w{k} v{k} u{k}" for k in range(12_000)]
    fitted = NGram(order=4).fit(texts, seed=0)
    assert len(fitted.levels) == 4 and float(fitted.vocabulary.size) ** 4 < 2.0**62
    texts += [f"x{k} y{k}" for k in range(12_000)]
    assert len(NGram(order=4, words=10**6).fit(texts, seed=0).levels) == 3


def test_texts_may_be_arrays_of_strings():
    made = NGram().fit(np.array(sentences(60)), seed=0).sample(5, seed=0)
    assert isinstance(made, list) and all(isinstance(text, str) for text in made)


def test_labelled_texts_are_of_their_class_and_classes_have_their_shares():
    texts = [f"{'x' if k % 4 else 'u'} {'yz'[k % 2]} {'pqr'[k % 3]}" for k in range(240)]
    labels = np.array(["few" if k % 4 == 0 else "many" for k in range(240)])
    fitted = NGram().fit((texts, labels), seed=0)
    made, y = fitted.sample(2000, seed=1)
    same_shape((texts, labels), (made, y), count=2000)
    assert [text[0] for text in made] == ["u" if label == "few" else "x" for label in y]
    assert abs(np.mean(y == "few") - 0.25) < 5 * math.sqrt(3 / 16 / 2000)
    again, same = fitted.sample(2000, seed=1)
    assert again == made and np.array_equal(same, y) and fitted.sample(2000, seed=2)[0] != made


@pytest.mark.parametrize(
    ("model", "members", "words"),
    [
        (NGram(), ["a b"] * 19, "at least 20 members, got 19"),
        (NGram(), ["a b"] * 30 + [" "], r"members\[30\] is ' ', which has no word"),
        (NGram(), ["a b"] * 30 + [5], r"members\[30\] is 5"),
        (NGram(), np.zeros((30, 2)), "needs texts, got tables"),
        (NGram(), (["a b"] * 30, [0] * 25 + [1] * 5), "class 1 has 5 members, and the generator needs at least 20"),
        (NGram(), (["a b"] * 30, [0.0] * 29 + [np.nan]), r"label of members\[29\] is missing"),
        (NGram(), (["a b"] * 29 + [""], [0] * 30), r"members\[29\] is ''"),
        (NGram(order=0), ["a b"] * 30, "order"),
        (NGram(order=5), ["a b"] * 30, "order"),
        (NGram(words=0), ["a b"] * 30, "words"),
    ],
)
def test_bad_input_is_refused(model, members, words):
    with pytest.raises(InputError, match=words):
        model.fit(members, seed=0)
