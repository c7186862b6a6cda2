"""The theorems behind the headline, checked by linear programs over every law or mechanism that they allow."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, sparse, special, stats

from dosimeter.estimators.headline import Bins, coins_bound
from dosimeter.estimators.headline.ladder import LIMITS, Rungs, crossing, rungs
from dosimeter.estimators.headline.ranks import binomial, noncentral, upper_tail
from dosimeter.estimators.headline.tables import DeltaCost, RankTable, Tables, stein_factors, threshold


def members_in(group: tuple[int, ...], arrangement: frozenset[int]) -> int:
    return len(arrangement & set(group))


def swaps(arrangement: frozenset[int], records: int) -> list[frozenset[int]]:
    return [arrangement - {i} | {j} for i in arrangement for j in range(records) if j not in arrangement]


# --- Theorem 5: tables are jointly below independent noncentral laws ----------------------------------------


@pytest.mark.parametrize(
    ("groups", "margins", "weights"),
    [
        ([((0, 1, 2), (3, 4, 5))], (3,), (1,)),
        ([((0, 1), (2, 3, 4))], (2,), (1,)),
        ([((0, 1), (4, 5)), ((2,), (3,))], (2, 1), (2, 1)),
        ([((0, 1), (6, 7)), ((2, 3), (4, 5))], (2, 2), (3, 1)),
    ],
)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_tables_are_dominated_and_the_limit_is_attained(
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]],
    margins: tuple[int, ...],
    weights: tuple[int, ...],
    epsilon: float,
) -> None:
    records, theta = max(max(upper + lower) for upper, lower in groups) + 1, math.exp(epsilon)
    choices = [itertools.combinations(upper + lower, c) for (upper, lower), c in zip(groups, margins, strict=True)]
    arrangements = [frozenset(itertools.chain(*parts)) for parts in itertools.product(*choices)]
    place = {s: k for k, s in enumerate(arrangements)}
    rows = []
    for s in arrangements:
        for other in swaps(s, records):
            if other in place:
                row = np.zeros(len(arrangements))
                row[place[s]], row[place[other]] = 1, -theta
                rows.append(row)
    counts = np.array(
        [sum(w * members_in(u, s) for w, (u, _) in zip(weights, groups, strict=True)) for s in arrangements]
    )
    laws = [(w, noncentral(len(u), len(o), c, theta)) for w, (u, o), c in zip(weights, groups, margins, strict=True)]
    for least in np.unique(counts)[1:]:
        found = optimize.linprog(
            -(counts >= least).astype(float),
            A_ub=np.array(rows),
            b_ub=np.zeros(len(rows)),
            A_eq=np.ones((1, len(arrangements))),
            b_eq=[1.0],
        )
        assert found.success
        assert -found.fun == pytest.approx(upper_tail(laws, int(least)), abs=1e-7)


def test_a_revealed_record_is_a_member_with_bounded_probability() -> None:
    """Lemma 4, the limit of one guess: a·θ/(a·θ + b) with a members and b non-members hidden."""
    records, inside, theta = 6, 2, math.exp(1.0)
    arrangements = [frozenset(s) for s in itertools.combinations(range(records), inside)]
    place = {s: k for k, s in enumerate(arrangements)}
    rows = []
    for s in arrangements:
        for other in swaps(s, records):
            row = np.zeros(len(arrangements))
            row[place[s]], row[place[other]] = 1, -theta
            rows.append(row)
    found = optimize.linprog(
        [-float(0 in s) for s in arrangements],
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=np.ones((1, len(arrangements))),
        b_eq=[1.0],
    )
    assert -found.fun == pytest.approx(inside * theta / (inside * theta + records - inside), abs=1e-8)


# --- Theorem 6 and Corollary 7: what δ can add --------------------------------------------------------------


class Mechanisms:
    """All mechanisms on subsets of a few records whose output names the table; variables M(y|s) and excesses."""

    def __init__(self, records: int, upper: int, lower: int, sizes: tuple[int, ...]) -> None:
        self.sets = [frozenset(s) for k in sizes for s in itertools.combinations(range(records), k)]
        self.outputs = [
            (u, o)
            for u in itertools.combinations(range(records), upper)
            for o in itertools.combinations([r for r in range(records) if r not in u], lower)
        ]
        self.place = {s: k for k, s in enumerate(self.sets)}
        self.width = len(self.outputs)

    def largest(
        self, pairs: list[tuple[frozenset[int], frozenset[int]]], theta: float, delta: float, reject: np.ndarray
    ) -> float:
        """The largest chance of a rejection under (ln θ, δ) for these pairs; `reject` weights M(y|s)."""
        basic, width = len(self.sets) * self.width, self.width
        extra = len(pairs) * width
        rows, columns, values, limits = [], [], [], []
        line = 0
        for p, (s, other) in enumerate(pairs):
            for y in range(width):  # M(y|s) − θ M(y|s') − z ≤ 0
                rows += [line] * 3
                columns += [self.place[s] * width + y, self.place[other] * width + y, basic + p * width + y]
                values += [1.0, -theta, -1.0]
                limits.append(0.0)
                line += 1
            rows += [line] * width
            columns += [basic + p * width + y for y in range(width)]
            values += [1.0] * width
            limits.append(delta)
            line += 1
        above = sparse.csr_matrix((values, (rows, columns)), (line, basic + extra))
        total = sparse.csr_matrix(
            (np.ones(basic), (np.repeat(np.arange(len(self.sets)), width), np.arange(basic))),
            (len(self.sets), basic + extra),
        )
        found = optimize.linprog(
            -np.concatenate([reject.ravel(), np.zeros(extra)]),
            A_ub=above,
            b_ub=limits,
            A_eq=total,
            b_eq=np.ones(len(self.sets)),
            method="highs",
        )
        assert found.success
        return float(-found.fun)


@pytest.mark.parametrize(
    ("records", "inside", "side", "epsilon", "delta", "excess"),
    [
        (4, 2, 2, 1.0, 0.01, 0.00616),
        (4, 2, 2, 0.3, 0.02, 0.01557),
        (4, 2, 1, 1.0, 0.02, None),
        (5, 2, 2, 1.0, 0.01, None),
    ],
)
def test_delta_adds_no_more_than_its_stein_factor(
    records: int, inside: int, side: int, epsilon: float, delta: float, excess: float | None
) -> None:
    """Replace-one: for every margin the rejection of a table has at most its level plus n₁n₀·δ·Γ."""
    theta = math.exp(epsilon)
    space = Mechanisms(records, side, side, (inside,))
    pairs = [(s, other) for s in space.sets for other in swaps(s, records)]
    cost = inside * (records - inside) * delta
    for allowance in (0, 1):
        reject = np.zeros((len(space.sets), space.width))
        gamma = level = 0.0
        for members in range(1, 2 * side):
            table = RankTable(side, side, members, 0, 1)
            if not table.is_free:
                continue
            law = table.law(theta)
            least = law.first + law.mass.size - 1  # reject at the largest count, or an allowance above the one below it
            level = max(level, float(law.mass[-1 - allowance :].sum()))
            gamma = max(gamma, Tables((table,), allowance).gamma(epsilon, DeltaCost(1.0, "replace")))
            for s in space.sets:
                for y, (u, o) in enumerate(space.outputs):
                    if members_in(u + o, s) == members and members_in(u, s) >= least:
                        reject[space.place[s], y] = 1 / len(space.sets)
        without = space.largest(pairs, theta, 0.0, reject)
        found = space.largest(pairs, theta, delta, reject)
        assert without <= level + 1e-7
        assert found <= level + gamma * cost + 1e-7
        if excess is not None and allowance == 0:
            assert found - without == pytest.approx(excess, abs=2e-5)  # the cost is used up: it cannot be improved


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.01), (1.0, 0.02)])
def test_delta_of_adding_and_removing_costs_as_stated(epsilon: float, delta: float, flipped: bool) -> None:
    """Corollary 7: odds ratio e^{2ε}, cost n₁δ·Γ·(K' + e^ε K), or n₀δ·Γ·(K + e^ε K') when records are added first."""
    records, inside, side = 4, 2, 2
    space = Mechanisms(records, side, side, (inside - 1, inside, inside + 1))
    pairs = []
    for s in space.sets:
        for other in space.sets:
            if len(s ^ other) == 1:
                pairs.append((s, other))
    table = RankTable(side, side, inside, 0, 1)
    law = table.law(math.exp(2 * epsilon))
    least = law.first + law.mass.size - 1
    reject = np.zeros((len(space.sets), space.width))
    audited = [s for s in space.sets if len(s) == inside]
    for s in audited:
        for y, (u, _) in enumerate(space.outputs):
            reject[space.place[s], y] = (members_in(u, s) >= least) / len(audited)
    count = inside if not flipped else records - inside
    gamma = Tables((table,)).gamma(2 * epsilon, DeltaCost(1.0, "add/remove", flipped))
    assert space.largest(pairs, math.exp(epsilon), 0.0, reject) <= law.mass[-1] + 1e-7
    assert space.largest(pairs, math.exp(epsilon), delta, reject) <= law.mass[-1] + gamma * count * delta + 1e-7


def exact_factors(table: RankTable, theta: float) -> tuple[float, float]:
    """Both Stein factors over the whole support, from the two recursions that lose no digits."""
    least, most = max(0, table.members - table.lower), min(table.upper, table.members)
    r = np.arange(least, most + 1, dtype=float)
    up = theta * (table.upper - r) * (table.members - r)
    down = r * (table.lower - table.members + r)
    log_mass = np.concatenate([[0.0], np.cumsum(np.log(up[:-1]) - np.log(down[1:]))])
    mass = np.exp(log_mass - log_mass.max())
    mass /= mass.sum()
    mean = float(r @ mass)
    slope = np.zeros(r.size - 1)
    value = 0.0
    for k in range(r.size - 1):  # upwards to the mean
        value = (down[k] * value + (mean - r[k])) / up[k]
        slope[k] = value
        if r[k] >= mean:
            break
    value = 0.0
    for k in range(r.size - 1, 0, -1):  # downwards to the mean
        value = (up[k] * value + (r[k] - mean)) / down[k]
        slope[k - 1] = value
        if r[k - 1] < mean:
            break
    below, above = np.cumsum(mass)[:-1], np.cumsum(mass[::-1])[::-1][1:]
    seen = mass[:-1] > 1e-200
    step = (below * above)[seen] / (mass[:-1] * up[:-1])[seen]
    return float(step.max()), float(slope.max())


@pytest.mark.parametrize("log_theta", [0.01, 1.0, 4.0, 9.0])
@pytest.mark.parametrize(
    ("upper", "lower", "members"),
    [(1, 1, 1), (3, 3, 3), (12, 40, 9), (100, 100, 100), (400, 500, 450), (2000, 2000, 2000)],
)
def test_stein_factors_are_never_below_the_exact_ones(upper: int, lower: int, members: int, log_theta: float) -> None:
    table = RankTable(upper, lower, members, 0, 1)
    step, slope = stein_factors(table, math.exp(log_theta))
    exact_step, exact_slope = exact_factors(table, math.exp(log_theta))
    assert step == pytest.approx(exact_step, rel=1e-6)
    assert slope >= exact_slope * (1 - 1e-9)
    assert slope <= 3 * exact_slope  # the bound at the ends is not idle


@pytest.mark.parametrize("seed", range(8))
def test_tables_replaced_before_smooth_the_next(seed: int) -> None:
    """Theorem 6a: for any law P of a table, P(h) − F(h) is at most its factor times the excess D over swaps."""
    rng = np.random.default_rng(seed)
    theta = math.exp(rng.uniform(0.1, 3))
    rows = [
        RankTable(upper, lower, int(rng.integers(1, upper + lower)), 0, int(rng.integers(1, 6)))
        for upper, lower in rng.integers(4, 40, (3, 2)).tolist()
    ]
    tables = Tables.of(rows, allowance=seed % 2 * int(rng.integers(1, 30)))
    cost = DeltaCost(1.0, "replace")
    factors = tables._factors(math.log(theta), cost)
    order = sorted(tables.rows, key=lambda row: (*stein_factors(row, theta), row.weight))
    before = np.ones(1)  # the law of the sum of the tables replaced so far, from its least value on
    for row, factor in zip(order, factors, strict=True):
        law = row.law(theta)
        r, weight = np.arange(law.mass.size), row.weight
        up = theta * (row.upper - law.values) * (row.members - law.values)
        down = law.values * (row.lower - row.members + law.values)
        for _ in range(40):
            tilted = law.mass * np.exp(np.cumsum(rng.normal(0.1, rng.uniform(0.02, 1), r.size)))
            other = tilted / tilted.sum()
            excess = np.maximum(down[1:] * other[1:] - up[:-1] * other[:-1], 0).sum()
            least = int(rng.integers(1, weight * r.size + before.size))
            reached = weight * r[:, None] + np.arange(before.size)
            if tables.allowance:
                h = np.clip((reached - least) / tables.allowance, 0, 1) @ before
            else:
                h = (reached >= least) @ before
            assert (other - law.mass) @ h <= factor.least(tables.allowance) * excess + 1e-9
        spread = np.zeros(weight * (law.mass.size - 1) + 1)
        spread[::weight] = law.mass
        before = np.convolve(before, spread)


@pytest.mark.parametrize("seed", range(8))
def test_the_factor_of_a_known_threshold(seed: int) -> None:
    """Theorem 6b: the largest difference of the Stein equation for 1{r ≥ t} is at r = t − 1, and no law exceeds it."""
    rng = np.random.default_rng(seed)
    theta, level = math.exp(rng.uniform(0, 3)), float(rng.uniform(0.001, 0.1))
    upper, lower = rng.integers(3, 60, 2).tolist()
    table = RankTable(upper, lower, int(rng.integers(2, upper + lower - 1)), 0, 1)
    law, (t, factor) = table.law(theta), threshold(table, theta, level)
    r, mass = law.values, law.mass
    exact = stats.nchypergeom_fisher(upper + lower, table.members, upper, theta)
    assert exact.sf(t - 1) <= level and (t == r[0] or exact.sf(t - 2) > level - 1e-9)
    up, down = theta * (upper - r) * (table.members - r), r * (lower - table.members + r)
    above, below = mass[r >= t].sum(), mass[r < t].sum()
    after, upto = np.cumsum(mass[::-1])[::-1][1:], np.cumsum(mass)[:-1]
    each = np.minimum(after, above) * np.minimum(upto, below) / (mass * up)[:-1]
    assert factor == pytest.approx(each[mass[:-1] > 1e-200].max() if t <= r[-1] else 0, rel=1e-6)
    assert factor <= stein_factors(table, theta)[0] * (1 + 1e-6)
    for _ in range(40):
        tilted = mass * np.exp(np.cumsum(rng.normal(0.1, rng.uniform(0.02, 1), r.size)))
        other = tilted / tilted.sum()
        excess = np.maximum(down[1:] * other[1:] - up[:-1] * other[:-1], 0).sum()
        assert other[r >= t].sum() - above <= factor * excess + 1e-9


# --- Theorem 9 and Lemma 10: coins ---------------------------------------------------------------------------


@pytest.mark.parametrize(("records", "alpha"), [(6, 0.45), (7, 0.3), (8, 0.2)])
def test_all_labels_that_randomised_response_can_give_keep_the_level(records: int, alpha: float) -> None:
    """Independent guesses, each right with probability q, are the worst that ε allows: all 2^m of them, weighed."""
    edges = np.arange(records)
    bounds, right = [], []
    for labels in itertools.product((0, 1), repeat=records):
        member = np.array(labels)
        bins = Bins(np.ones(records, int), member)
        middle = int(np.argmin(np.abs(bins.edges[1:-1] - records / 2))) + 1
        bounds.append(coins_bound(bins, 0.0, alpha).epsilon)
        right.append(int((member == (edges >= middle)).sum()))
    reported, rights = np.array(bounds), np.array(right)
    assert reported.max() > 0
    for epsilon in np.unique(np.concatenate([[0.0, 0.3, 1.0], reported])).tolist():
        q = float(special.expit(epsilon))
        chance = q**rights * (1 - q) ** (records - rights)
        assert chance[reported > epsilon].sum() <= alpha + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_delta_is_paid_once_for_weighted_counts_and_prefixes(seed: int) -> None:
    """All (ε, δ)-DP mechanisms whose output names the guesses: one allowance covers every statistic together."""
    rng = np.random.default_rng(seed)
    records, allowance = 3 + seed % 2, seed % 3
    theta, delta = math.exp(rng.uniform(0.2, 2)), float(rng.uniform(0.01, 0.05))
    vectors = list(itertools.product((0, 1), repeat=records))
    statistics = [rng.integers(0, 6, records), np.arange(records) < 2, np.ones(records, int)]
    least = [int(rng.integers(1, weights.sum() + 1)) for weights in statistics]

    def rejected(right: np.ndarray, given_away: int) -> bool:
        return any(
            int(weights @ right) - int(np.sort(weights)[::-1][:given_away].sum()) >= limit
            for weights, limit in zip(statistics, least, strict=True)
        )

    width, size = len(vectors), len(vectors)
    place = {s: k for k, s in enumerate(vectors)}
    pairs = [(s, (*s[:i], 1 - s[i], *s[i + 1 :])) for s in vectors for i in range(records)]
    basic, extra = size * width, len(pairs) * width
    above, limits = np.zeros((len(pairs) * (width + 1), basic + extra)), []
    for p, (s, other) in enumerate(pairs):
        for y in range(width):
            row = above[p * (width + 1) + y]
            row[place[s] * width + y], row[place[other] * width + y], row[basic + p * width + y] = 1, -theta, -1
        above[p * (width + 1) + width, basic + p * width : basic + (p + 1) * width] = 1
        limits += [0.0] * width + [delta]
    total = np.zeros((size, basic + extra))
    gain = np.zeros(basic + extra)
    for s in vectors:
        total[place[s], place[s] * width : (place[s] + 1) * width] = 1
        for y, guess in enumerate(vectors):
            right = (np.array(guess) == np.array(s)).astype(int)
            gain[place[s] * width + y] = -rejected(right, allowance) / size
    found = optimize.linprog(gain, A_ub=above, b_ub=limits, A_eq=total, b_eq=np.ones(size), method="highs")
    assert found.success
    q = theta / (1 + theta)
    level = sum(
        q ** sum(right) * (1 - q) ** (records - sum(right)) for right in vectors if rejected(np.array(right), 0)
    )
    assert -found.fun <= level + records * delta / ((1 + theta) * (allowance + 1)) + 1e-7


# --- Theorem 9b: ladders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_chance_that_a_rung_rejects_is_that_of_all_label_vectors(seed: int) -> None:
    """The chances of all 2^12 vectors of right and wrong guesses, those that some rung rejects for summed up."""
    rng = np.random.default_rng(seed)
    miss, allowance = float(rng.uniform(0.05, 0.5)), seed % 3
    wrong = np.array(list(itertools.product((0, 1), repeat=12)))
    chance = miss ** wrong.sum(1) * (1 - miss) ** (12 - wrong.sum(1))
    found = Rungs(np.sort(rng.integers(1, 13, 3)), np.array([0, 1, 2])[rng.permutation(3)])
    upto = np.cumsum(wrong, 1)[:, found.records - 1]
    rejected = (upto <= found.limits + allowance).any(1)
    assert crossing(found, miss, allowance) == pytest.approx(chance[rejected].sum(), abs=1e-12)


@pytest.mark.parametrize("allowance", [0, 2])
@pytest.mark.parametrize("lengths", [np.arange(1, 200), np.array([3, 40, 41, 90, 400]), np.array([2])])
def test_ladders_keep_their_level_and_what_rejects_more_rejects_less(lengths: np.ndarray, allowance: int) -> None:
    rng = np.random.default_rng(lengths.size)
    for top in (0.05, 0.6, 1.5, 3.0):
        longest, rejections = None, []
        guesses = rng.random((300, int(lengths[-1]))) < rng.uniform(0, 0.4, (300, 1))
        for epsilon in (top, top - 0.02, top - 0.04):
            miss = float(special.expit(-epsilon))
            longest = rungs(lengths, miss, 0.03, allowance, longest)
            if longest is not None:
                assert crossing(longest, miss, allowance) <= 0.03
                assert set(longest.limits.tolist()) <= set(LIMITS.tolist())
                rejections.append((np.cumsum(guesses, 1)[:, longest.records - 1] <= longest.limits).any(1))
        for higher, lower in itertools.pairwise(rejections):
            assert not (higher & ~lower).any()


# --- exact laws ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_weighted_sums_against_direct_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, total = rng.uniform(0.5, 0.95), np.ones(1)
    parts = []
    for _ in range(rng.integers(1, 5)):
        weight, trials = int(rng.integers(1, 17)), int(rng.integers(1, 60))
        parts.append((weight, binomial(trials, q)))
        spread = np.zeros(weight * trials + 1)
        spread[::weight] = stats.binom.pmf(np.arange(trials + 1), trials, q)
        total = np.convolve(total, spread)
    for _ in range(rng.integers(1, 4)):
        weight, upper, lower = int(rng.integers(1, 9)), int(rng.integers(1, 40)), int(rng.integers(1, 40))
        members, theta = int(rng.integers(1, upper + lower)), float(np.exp(rng.uniform(0, 4)))
        parts.append((weight, noncentral(upper, lower, members, theta)))
        spread = np.zeros(weight * upper + 1)
        spread[::weight] = stats.nchypergeom_fisher.pmf(np.arange(upper + 1), upper + lower, upper, members, theta)
        total = np.convolve(total, spread)
    tails = np.cumsum(total[::-1])[::-1]
    for observed in rng.integers(0, total.size, 8):
        found = upper_tail(parts, int(observed))
        assert tails[observed] <= found + 1e-12 and found <= tails[observed] + 1e-10


@pytest.mark.parametrize("trials", [10**4, 10**6])
def test_large_binomials(trials: int) -> None:
    law, q = binomial(trials, 0.7), 0.7
    at = int(trials * q + 3 * math.sqrt(trials * q * (1 - q)))
    assert upper_tail([(1, law)], at) == pytest.approx(stats.binom.sf(at - 1, trials, q), abs=1e-10)
