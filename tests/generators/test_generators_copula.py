"""The Gaussian copula: marginals, dependence, one-hot blocks, missing values, types, repeatability, bad input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import spearmanr

from dosimeter._validate import InputError
from dosimeter.generators import GaussianCopula, check_copies, same_shape
from dosimeter.generators.table import determined, pair_tables
from dosimeter.generators.tabular import latent_correlation, marginal, shrunk

SAMPLE = 20_000
ALMOST_NEVER = 1e-6  # the chance that a correct generator fails one of the frequency tests


def rng_of(seed):
    return np.random.default_rng(seed)


def sampling_error(share, count):
    return 5.0 * math.sqrt(share * (1 - share) / count) + 1e-9


def mixed(count=3000, seed=0):
    """Columns that depend on each other: continuous, with an atom at 0, whole numbers, words, missing values."""
    rng = rng_of(seed)
    z = rng.multivariate_normal(np.zeros(5), 0.5 * np.eye(5) + 0.5, count)
    income = np.where(z[:, 1] < 0.4, 0.0, np.exp(z[:, 1]))
    score = z[:, 2] ** 3
    score[z[:, 0] > 0.8] = np.nan
    return {
        "height": z[:, 0] * 7 + 170,
        "income": income,
        "children": np.floor(np.exp(z[:, 3] / 2)).astype(np.int64),
        "score": score,
        "town": np.array(["a", "b", "c", "d"])[np.searchsorted([-1, 0, 1], z[:, 4])],
    }


@pytest.fixture(scope="module")
def fitted():
    table = mixed()
    return table, GaussianCopula().fit(table, seed=0).sample(SAMPLE, seed=1)


def ks_distance(members, sample):
    grid = np.sort(np.concatenate([members, sample]))
    left = np.searchsorted(np.sort(members), grid, side="right") / members.size
    return np.abs(left - np.searchsorted(np.sort(sample), grid, side="right") / sample.size).max()


def test_every_numeric_marginal_is_the_members_own(fitted):
    table, sample = fitted
    band = math.sqrt(math.log(2 / ALMOST_NEVER) / (2 * SAMPLE))  # Dvoretzky-Kiefer-Wolfowitz
    for name in ("height", "income", "children", "score"):
        old, new = (part[name][~np.isnan(part[name].astype(float))] for part in (table, sample))
        assert ks_distance(old, new) <= band * math.sqrt(SAMPLE / new.size) + 1 / old.size, name


def test_atoms_words_and_missing_values_keep_their_share(fitted):
    table, sample = fitted
    pairs = [(np.mean(table["income"] == 0), np.mean(sample["income"] == 0))]
    pairs += [(np.mean(table["town"] == t), np.mean(sample["town"] == t)) for t in "abcd"]
    pairs += [(np.mean(np.isnan(table["score"])), np.mean(np.isnan(sample["score"])))]
    for old, new in pairs:
        assert abs(old - new) <= sampling_error(old, SAMPLE)


def test_rank_correlations_are_kept(fitted):
    table, sample = fitted
    coded = [
        np.column_stack(
            [part["height"], part["income"], part["children"], np.unique(part["town"], return_inverse=True)[1]]
        )
        for part in (table, sample)
    ]
    assert np.abs(spearmanr(coded[0]).statistic - spearmanr(coded[1]).statistic).max() < 0.05
    present = [~np.isnan(part["score"]) for part in (table, sample)]
    within = [
        spearmanr(c[p, 0], part["score"][p]).statistic
        for c, p, part in zip(coded, present, (table, sample), strict=True)
    ]
    assert abs(within[0] - within[1]) < 0.08


def test_missing_values_depend_on_the_other_columns_as_before(fitted):
    table, sample = fitted
    gap = [
        p["height"][np.isnan(p["score"])].mean() - p["height"][~np.isnan(p["score"])].mean() for p in (table, sample)
    ]
    assert gap[0] > 5
    assert abs(gap[0] - gap[1]) < 0.25 * gap[0]


def test_types_names_and_order_stay(fitted):
    table, sample = fitted
    assert list(sample) == list(table)
    assert {n: c.dtype for n, c in sample.items()} == {n: c.dtype for n, c in table.items()}
    same_shape(table, sample, count=SAMPLE)


def test_continuous_values_are_new_and_no_record_is_a_copy(fitted):
    table, sample = fitted
    assert not np.isin(sample["height"], table["height"]).any()
    assert check_copies(table, sample) == 0


def test_the_seed_decides():
    table = mixed(300)
    model = GaussianCopula().fit(table, seed=0)
    again = GaussianCopula().fit(table, seed=9)
    first, second, other = model.sample(50, seed=4), again.sample(50, seed=4), model.sample(50, seed=5)
    assert all(np.array_equal(first[n], second[n], equal_nan=n in ("score",)) for n in table)
    assert not np.array_equal(first["height"], other["height"])


def test_one_hot_blocks_stay_one_hot_beside_each_other_and_with_labels():
    rng = rng_of(2)
    a, b = rng.integers(0, 3, 1000), rng.integers(0, 4, 1000)
    b[a == 0] = 2
    number = rng.normal(size=1000) + a
    X = np.column_stack([np.eye(3)[a], np.eye(4)[b], number]).astype(np.float32)
    y = (a + (rng.uniform(size=1000) < 0.1)) % 3
    made, labels = GaussianCopula().fit((X, y), seed=0).sample(5000, seed=1)
    assert made.dtype == np.float32 and labels.dtype == y.dtype
    for block in (made[:, :3], made[:, 3:7]):
        assert np.isin(block, (0, 1)).all() and (block.sum(axis=1) == 1).all()
    assert np.abs(made[:, :7].mean(axis=0) - X[:, :7].mean(axis=0)).max() < 5 * 0.5 / math.sqrt(5000)
    assert spearmanr(made[:, :3].argmax(1), labels).statistic > 0.5


def test_groups_may_be_named_and_are_checked():
    rng = rng_of(3)
    X = np.column_stack([np.eye(3)[rng.integers(0, 3, 100)][:, [0, 1]], rng.normal(size=100)])
    X = np.column_stack([X, 1 - X[:, 0] - X[:, 1]])
    made = GaussianCopula(groups=[[0, 1, 3]]).fit(X, seed=0).sample(500, seed=0)
    assert (made[:, [0, 1, 3]].sum(axis=1) == 1).all()
    with pytest.raises(InputError, match="exactly one 1"):
        GaussianCopula(groups=[[0, 1]]).fit(X, seed=0)
    with pytest.raises(InputError, match="not a column"):
        GaussianCopula(groups=[[0, 17]]).fit(X, seed=0)
    with pytest.raises(InputError, match="twice"):
        GaussianCopula(groups=[[0, 1, 3], [0]]).fit(X, seed=0)


def test_a_column_that_another_determines_is_derived():
    rng = rng_of(4)
    level = rng.integers(0, 8, 2000)
    image = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    table = {"level": level, "image": image[level], "other": rng.normal(size=2000) + level}
    made = GaussianCopula().fit(table, seed=0).sample(4000, seed=0)
    assert np.array_equal(made["image"], image[made["level"]])


def test_determined_agrees_with_a_search_through_all_pairs():
    rng = rng_of(5)
    a = rng.integers(0, 6, 500)
    codes = np.column_stack([a % 2, a, a // 2, rng.integers(0, 3, 500), (a + 1) % 6])
    sizes = codes.max(axis=0) + 1
    found = determined(pair_tables(codes, sizes), repeats=10)
    function = lambda s, t: len({(x, y) for x, y in zip(codes[:, s], codes[:, t], strict=True)}) == sizes[s]  # noqa: E731
    assert found == {0: 1, 2: 1, 4: 1}
    assert all(function(source, target) for target, source in found.items())


def test_scores_are_conditional_means_and_coefficients_their_expansion():
    values = np.repeat([0.0, 1.0, 4.0], [30, 50, 20])
    part = marginal(values)
    z = ndtri((np.arange(200_000) + 0.5) / 200_000)
    step = part.quantile(ndtr(z))
    route = [z[step == v].mean() for v in part.values]
    assert np.allclose(part.scores(), route, atol=1e-4)
    scored = part.scores()[np.searchsorted(part.values, step)]
    hermite = [z, (z**2 - 1) / math.sqrt(2), (z**3 - 3 * z) / math.sqrt(6)]
    assert np.allclose(part.coefficients()[:3], [(scored * h).mean() for h in hermite], atol=1e-3)


@pytest.mark.parametrize("rho", [-0.9, -0.4, 0.0, 0.3, 0.8])
def test_two_halves_have_the_covariance_of_the_arcsine_law(rho):
    part = marginal(np.repeat([0.0, 1.0], 50))
    powers = rho ** np.arange(1, 41)
    assert math.isclose((part.coefficients() ** 2 * powers).sum(), (2 / math.pi) ** 2 * math.asin(rho), abs_tol=1e-3)


@pytest.mark.parametrize("rho", [-0.7, 0.2, 0.85])
def test_the_latent_correlation_of_coarse_columns_is_found(rho):
    z = rng_of(6).multivariate_normal([0, 0], [[1, rho], [rho, 1]], 100_000)
    columns = [(z[:, 0] > 0.8).astype(float), np.floor(z[:, 1])]
    parts = [marginal(c) for c in columns]
    scores = np.column_stack([p.scores()[np.searchsorted(p.values, c)] for p, c in zip(parts, columns, strict=True)])
    found = latent_correlation(scores, np.stack([p.coefficients() for p in parts]))[0, 1]
    assert abs(found - rho) < 0.02
    assert abs(np.corrcoef(scores.T)[0, 1]) < abs(rho) - 0.02  # what would be taken without the correction


def test_an_indefinite_matrix_becomes_a_correlation_matrix():
    bad = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    good = shrunk(bad, 1000)
    assert np.linalg.eigvalsh(good).min() > 0
    assert np.allclose(np.diag(good), 1) and np.allclose(good, good.T)


def test_single_values_on_a_grid_stay_on_it():
    rng = rng_of(7)
    cents = np.round(rng.uniform(0, 1000, 400), 2)
    even = 2.0 * rng.choice(100_000, 400, replace=False)
    steps = (rng.choice(4000, 400, replace=False) / 4000).astype(np.float32).astype(float)
    level = rng.uniform(size=2000)
    new = marginal(cents).quantile(level)
    assert np.array_equal(new, np.round(new, 2)) and not np.isin(new, cents).all()
    assert (marginal(even).quantile(level) % 2 == 0).all()
    place = (marginal(steps).quantile(level)) * 4000
    assert np.abs(place - np.rint(place)).max() < 0.05 or marginal(steps).step == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_a_quantile_function_rises_and_stays_in_range(values, levels):
    part = marginal(np.array(values, float))
    made = part.quantile(np.sort(np.array(levels)))
    assert (np.diff(made) >= 0).all()
    assert min(values) <= made.min() and made.max() <= max(values)
    assert (made == np.rint(made)).all()


@st.composite
def tables(draw):
    count = draw(st.integers(20, 60))
    columns = {}
    for place in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["float", "int", "word", "bool", "gaps", "maybe"]))
        rng = rng_of(draw(st.integers(0, 10**6)))
        columns[f"{kind}{place}"] = {
            "float": lambda r: r.normal(size=count) * 10.0 ** r.integers(-5, 6),
            "int": lambda r: r.integers(-3, 1 + r.integers(0, 9), count),
            "word": lambda r: r.choice(["x", "yy", "zzz"], count),
            "bool": lambda r: r.uniform(size=count) < 0.3,
            "gaps": lambda r: np.where(
                np.arange(count) == 0, 1.0, np.where(r.uniform(size=count) < 0.4, np.nan, r.normal(size=count))
            ),
            "maybe": lambda r: ["w", *[None if r.uniform() < 0.5 else "w" for _ in range(count - 2)], "v"],
        }[kind](rng)
    return columns


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(1, 40), st.integers(0, 10**6))
def test_any_mixed_table_gives_one_of_its_own_form(table, count, seed):
    model = GaussianCopula().fit(table, seed=0)
    made, again = model.sample(count, seed=seed), model.sample(count, seed=seed)
    assert list(made) == list(table)
    for name, old in table.items():
        new = made[name]
        assert type(new) is type(old) and len(new) == count
        assert all(a == b or a != a for a, b in zip(new, again[name], strict=True))
        if isinstance(old, list) or old.dtype.kind in "Ub":
            assert set(new) <= set(old)
            continue
        assert new.dtype == old.dtype
        present = new[~np.isnan(new.astype(float))]
        assert np.isnan(old.astype(float)).any() or present.size == count
        if present.size:
            assert np.nanmin(old) <= present.min() and present.max() <= np.nanmax(old)


def test_pandas_and_pyarrow_tables_come_back_as_such():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(
        {
            "a": pyarrow.array([1, 2, None, 4] * 20, pyarrow.int32()),
            "b": pyarrow.array(["x", None, "y", "y"] * 20),
            "c": pyarrow.array(np.linspace(0, 1, 80), pyarrow.float32()),
            "d": pyarrow.array([True, False, True, True] * 20),
        }
    )
    made = GaussianCopula().fit(table, seed=0).sample(200, seed=0)
    assert made.schema.types == table.schema.types and made.column_names == table.column_names
    assert 0 < made.column("a").null_count < 200 and 0 < made.column("b").null_count < 200
    assert set(made.column("a").to_pylist()) <= {1, 2, 3, 4, None}
    same_shape(table, made)
    pandas = pytest.importorskip("pandas")
    frame = table.to_pandas(types_mapper={pyarrow.int32(): pandas.Int32Dtype()}.get)
    frame["e"] = pandas.Categorical(["u", "v"] * 40)
    made = GaussianCopula().fit(frame, seed=0).sample(200, seed=0)
    assert list(made.dtypes) == list(frame.dtypes) and list(made.columns) == list(frame.columns)
    assert 0 < made["a"].isna().sum() < 200
    same_shape(frame, made)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (np.zeros((5, 2)), "at least 20 members, got 5"),
        (np.zeros((30, 4, 4)), "needs tables"),
        (["text"] * 30, "needs tables"),
        (np.full((30, 2), np.nan), "no value at all"),
        (np.full((30, 2), np.inf), "infinite in row 0"),
        ({"a": [1] * 30, "b": [1] * 29}, "different lengths"),
        ({"a": [1, "x"] * 15}, "all numbers or all texts"),
        ({"a": np.array(["2020-01-01"] * 30, "M8[D]")}, "convert it to numbers"),
        ({"a": [10**17 + 1, 1] * 15}, "beyond 2"),
        ((np.zeros((30, 2)), np.zeros(29)), "one label for each"),
        ((np.zeros((30, 2)), np.full(30, np.nan)), "no value at all"),
        ("table", "one string"),
        (np.zeros(30), "shape"),
    ],
)
def test_bad_members_are_refused(members, words):
    with pytest.raises(InputError, match=words):
        GaussianCopula().fit(members, seed=0)


def test_bad_counts_and_seeds_are_refused():
    model = GaussianCopula().fit(mixed(50), seed=0)
    for count, seed, words in ((0, 0, "count"), (2.5, 0, "whole"), (3, -1, "seed")):
        with pytest.raises(InputError, match=words):
            model.sample(count, seed=seed)
    with pytest.raises(InputError, match="seed"):
        GaussianCopula().fit(mixed(50), seed=-1)
    with pytest.raises(InputError, match="groups"):
        GaussianCopula(groups="all").fit(mixed(50), seed=0)
