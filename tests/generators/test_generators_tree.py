"""The tree of columns: its tables, its weights, its shape, what it keeps, and what it refuses."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from dosimeter._validate import InputError
from dosimeter.generators import TreeModel, same_shape
from dosimeter.generators.table import mutual_information, pair_tables, read_table
from dosimeter.generators.tabular import bin_edges, marginal
from dosimeter.generators.tree import binned, cells_for, drawn, spanning_tree, tree_of

SAMPLE = 20_000


def rng_of(seed):
    return np.random.default_rng(seed)


def chain(count=4000, seed=0):
    """A chain a → b → c → d of words and numbers, with missing values that depend on c."""
    rng = rng_of(seed)
    a = rng.integers(0, 4, count)
    b = np.where(rng.uniform(size=count) < 0.8, (a * 3) % 4, rng.integers(0, 4, count))
    c = b + rng.normal(size=count)
    d = np.where(c > 1.5, np.nan, np.round(c * 10))
    return {"a": np.array(["p", "q", "r", "s"])[a], "b": b, "c": c, "d": d}


def codes_of(seed, count=400):
    rng = rng_of(seed)
    sizes = rng.integers(1, 6, 5)
    codes = np.column_stack([rng.integers(0, size, count) for size in sizes])
    codes[:, 1] = codes[:, 0] % sizes[1]
    return codes, sizes


@pytest.mark.parametrize("seed", range(3))
def test_pair_tables_are_the_counts_of_a_loop(seed, monkeypatch):
    codes, sizes = codes_of(seed)
    whole = pair_tables(codes, sizes)
    monkeypatch.setattr("dosimeter.generators.table.BLOCK", 100)
    parts = pair_tables(codes, sizes)
    assert np.array_equal(whole.counts, parts.counts)
    for a, b in product(range(5), repeat=2):
        route = np.zeros((sizes[a], sizes[b]))
        np.add.at(route, (codes[:, a], codes[:, b]), 1)
        assert np.array_equal(whole.of(a, b), route)


@pytest.mark.parametrize("seed", range(3))
def test_mutual_information_is_that_of_scikit_learn_less_its_bias(seed):
    codes, sizes = codes_of(seed)
    found = mutual_information(pair_tables(codes, sizes))
    for a, b in product(range(5), repeat=2):
        bias = (sizes[a] - 1) * (sizes[b] - 1) / (2 * len(codes))
        route = max(mutual_info_score(codes[:, a], codes[:, b]) - bias, 0.0)
        assert math.isclose(found[a, b], route, abs_tol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(0, 10**6))
def test_the_tree_has_the_largest_weight_of_all_trees(nodes, seed):
    half = rng_of(seed).uniform(size=(nodes, nodes))
    weights = half + half.T
    order, parent = spanning_tree(weights)
    assert sorted(order) == list(range(nodes)) and parent[order[0]] == -1
    place = {node: k for k, node in enumerate(order)}
    assert all(place[parent[node]] < place[node] for node in order[1:])
    found = sum(weights[node, parent[node]] for node in order[1:])
    best = 0.0
    for choice in product(range(nodes), repeat=nodes - 1):  # every tree, as the parents of nodes 1, 2, ...
        parents = (-1, *choice)
        if all(_reaches_root(parents, node) for node in range(1, nodes)):
            best = max(best, sum(weights[node, parents[node]] for node in range(1, nodes)))
    assert math.isclose(found, best, rel_tol=1e-12)


def _reaches_root(parents, node):
    for _ in parents:
        if node == 0:
            return True
        node = parents[node]
    return node == 0


def test_a_chain_is_found_and_its_tables_are_kept():
    table = chain()
    fitted = TreeModel().fit(table, seed=0)
    edges = {frozenset((int(n), int(fitted.parent[n]))) for n in fitted.order[1:]}
    assert edges == {frozenset(pair) for pair in ((0, 1), (1, 2), (2, 3))}
    made = fitted.sample(SAMPLE, seed=1)
    same_shape(table, made, count=SAMPLE)
    old, new = (
        np.array([[np.mean((part["a"] == w) & (part["b"] == k)) for k in range(4)] for w in "pqrs"])
        for part in (table, made)
    )
    assert (np.abs(old - new) <= 5 * np.sqrt(old * (1 - old) / SAMPLE) + 1e-9).all()
    gone = [np.mean(np.isnan(part["d"])) for part in (table, made)]
    assert abs(gone[0] - gone[1]) < 5 * math.sqrt(gone[0] / SAMPLE)
    above = [part["c"][np.isnan(part["d"])] for part in (table, made)]
    assert above[1].mean() > 1.5 and abs(above[0].mean() - above[1].mean()) < 0.15


def test_words_that_never_met_never_meet():
    rng = rng_of(1)
    a = rng.integers(0, 5, 600)
    table = {"a": a, "b": np.array(["x", "y", "z"])[a % 3]}
    made = TreeModel().fit(table, seed=0).sample(5000, seed=2)
    assert set(zip(made["a"], made["b"], strict=True)) <= set(zip(table["a"], table["b"], strict=True))


def test_one_hot_blocks_and_labels_are_kept():
    rng = rng_of(2)
    a, b = rng.integers(0, 3, 1000), rng.integers(0, 4, 1000)
    X = np.column_stack([np.eye(3)[a], np.eye(4)[b], rng.normal(size=1000) + a]).astype(np.float32)
    y = (a == 2).astype(np.int64)
    made, labels = TreeModel().fit((X, y), seed=0).sample(5000, seed=1)
    assert made.dtype == np.float32 and labels.dtype == y.dtype
    for block in (made[:, :3], made[:, 3:7]):
        assert np.isin(block, (0, 1)).all() and (block.sum(axis=1) == 1).all()
    assert np.array_equal(made[:, 2] == 1, labels == 1)
    assert np.abs(made[:, :7].mean(axis=0) - X[:, :7].mean(axis=0)).max() < 5 * 0.5 / math.sqrt(5000)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(2, 20))
def test_bins_cover_everything_and_frequent_values_are_alone(values, bins):
    part = marginal(np.array(values, float))
    edges = bin_edges(part, bins)
    assert edges[0] == 0 and edges[-1] == 1 and (np.diff(edges) > 0).all()
    assert np.isin(edges, part.edges).all()
    share = np.diff(part.edges)
    for k in np.flatnonzero(share >= 1 / bins):
        assert part.edges[k] in edges and part.edges[k + 1] in edges


def test_values_come_from_their_own_bin():
    column = read_table(np.column_stack([rng_of(3).normal(size=500), np.zeros(500)])).columns[0]
    cut = binned(column, 10)
    again = cut.values(cut.codes, rng_of(4))
    for code in range(cut.size):
        old, new = column.values[cut.codes == code], again[cut.codes == code]
        below = column.values[cut.codes < code].max(initial=-np.inf)
        above = column.values[cut.codes > code].min(initial=np.inf)
        assert old.size and below < new.min() and new.max() < above


def test_draws_follow_rows_whose_total_is_below_one():
    counts = np.array([[0.1, 0.1, 0.2], [0.0, 3.0, 1.0]])
    table = read_table(np.column_stack([np.arange(60) % 2, np.arange(60) % 3]), groups=())
    columns = tuple(binned(column, 4) for column in table.columns)
    order, parent = np.array([0, 1]), np.array([-1, 0])
    model = tree_of(table, columns, order, parent, lambda a, b: np.diag([2.0, 2.0]) if a == b else counts)
    found = drawn(model.cumulative[1], np.repeat([0, 1], 20_000), rng_of(5)).reshape(2, -1)
    shares = np.stack([np.bincount(row, minlength=3) / row.size for row in found])
    assert np.abs(shares - counts / counts.sum(axis=1, keepdims=True)).max() < 5 * 0.5 / math.sqrt(20_000)
    assert shares[1, 0] == 0


def test_the_seed_decides_and_one_column_is_enough():
    X = rng_of(6).normal(size=(100, 1))
    fitted = TreeModel().fit(X, seed=3)
    first = fitted.sample(50, seed=4)
    assert np.array_equal(first, TreeModel().fit(X, seed=9).sample(50, seed=4))
    assert not np.array_equal(first, fitted.sample(50, seed=5))
    assert first.shape == (50, 1) and X.min() <= first.min() and first.max() <= X.max()


def test_more_members_give_more_bins():
    assert [cells_for(n) for n in (10, 500, 10**9)] == [4, 10, 64]


@pytest.mark.parametrize(
    ("model", "members", "words"),
    [
        (TreeModel(), np.zeros((49, 2)), "at least 50 members, got 49"),
        (TreeModel(), ["text"] * 60, "needs tables"),
        (TreeModel(bins=1), np.zeros((60, 2)), "bins"),
        (TreeModel(bins="many"), np.zeros((60, 2)), "bins"),
        (TreeModel(), np.full((60, 2), np.inf), "infinite"),
        (TreeModel(categorical=["x"]), np.zeros((60, 2)), "not a column"),
    ],
)
def test_bad_input_is_refused(model, members, words):
    with pytest.raises(InputError, match=words):
        model.fit(members, seed=0)
