"""The members-only audit: an honest null, Algorithm 1's parts, several targets, and what it refuses."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter import Audit, InputError, OneRun, Validity, audit_members_only, fair_coins
from dosimeter.attacks.references import reference
from dosimeter.attacks.stacked import Content, class_columns, content_scores, joined, token_columns
from dosimeter.audits.contest import ANCHORS, anchor_and_pools, contest, stand_in
from dosimeter.audits.game import FEWEST, deal, shown
from dosimeter.audits.members_only import bounds_of_throws
from dosimeter.audits.null_band import FIRST_PART, LEVEL, Pair, judge, prediction_limit
from dosimeter.models import Outputs

COLUMNS = 4
WORDS = ["red", "green", "blue", "stone", "river", "cloud", "winter", "summer", "bread", "salt", "iron", "moss"]


def draw(count, seed, *, real=True):
    """A table whose generated twin differs a little: the label depends on another column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, COLUMNS))
    X[:, 3] = X[:, 0] * (0.5 if real else 0.3) + X[:, 3]
    y = (X[:, 0] + X[:, 1] + rng.normal(size=count) > 0).astype(np.int64)
    return X, y


def sampler(count, seed):
    return draw(count, seed, real=False)


def memoriser(X, y, strength):
    """A model that is sure of the labels of the records it was given, and a plain rule for all others."""
    known = {row.tobytes(): label for row, label in zip(X, y, strict=True)}

    def logits(rows):
        plain = 1.5 * (rows[:, 0] + rows[:, 1])
        sign = np.array([2.0 * known[r.tobytes()] - 1.0 if r.tobytes() in known else 0.0 for r in rows])
        return np.stack([np.zeros(len(rows)), plain + strength * sign], axis=1)

    return logits


@cache
def audited():
    """One audit of three targets: a strong leak, a weaker one, and none."""
    X, y = draw(1500, 1)
    other = draw(1500, 2)
    models = {"strong": memoriser(X, y, 4.0), "weak": memoriser(X, y, 1.0), "none": memoriser(*other, 4.0)}
    return audit_members_only(models, (X, y), generator=sampler, nonmembers=draw(900, 3), references=4, seed=4)


# --- the decision ------------------------------------------------------------------------------------------


def test_no_leak_is_reported_as_none_in_95_percent_of_200_audits():
    rng = np.random.default_rng(5)
    passed = 0
    for _ in range(200):
        content = rng.normal(np.repeat([0.6, 0.0], 400), 1.0)
        # Target and stand-ins: the same content, errors of their own, and those of the pool they learnt from.
        found = content + rng.normal(0, 0.4, (9, 800)) + rng.normal(0, 0.05, (9, 1)) * np.repeat([1.0, 0.0], 400)
        found[0] += rng.normal(0, 0.4, 800)
        found[1:] += rng.normal(0, 0.4, 800)
        pairs = [Pair(row[:400], row[400:]) for row in found]
        passed += judge(pairs[0], pairs[1:], level=LEVEL).stands_out
    assert passed <= 10


def test_a_leak_is_seen():
    rng = np.random.default_rng(6)
    content = rng.normal(np.repeat([0.6, 0.0], 1000), 1.0)
    stand_ins = [Pair(row[:1000], row[1000:]) for row in content + rng.normal(0, 0.4, (6, 2000))]
    leaking = content + rng.normal(0, 0.4, 2000) + np.repeat([0.4, 0.0], 1000)
    assert judge(Pair(leaking[:1000], leaking[1000:]), stand_ins, level=0.05).stands_out


def test_a_leak_of_few_records_is_seen_in_the_first_part():
    rng = np.random.default_rng(7)
    content = rng.normal(0.0, 1.0, 4000)
    stand_ins = [Pair(row[:2000], row[2000:]) for row in content + rng.normal(0, 0.2, (8, 4000))]
    leaking = content + rng.normal(0, 0.2, 4000)
    leaking[:60] += 8.0
    found = judge(Pair(leaking[:2000], leaking[2000:]), stand_ins, level=0.05)
    assert found.stands_out and found.first_part > found.first_part_limit


@pytest.mark.parametrize(("count", "level"), [(3, 0.05), (6, 0.025), (12, 0.1)])
def test_prediction_limit_is_passed_as_often_as_it_says(count, level):
    rng = np.random.default_rng(8)
    draws = rng.normal(3.0, 2.0, (40_000, count + 1))
    draws[:, 1:] += rng.normal(0.0, 2.0, (40_000, 1))  # the pool of the stand-ins
    mean, deviation = draws[:, 1:].mean(axis=1), draws[:, 1:].std(axis=1, ddof=1)
    reach = stats.t.ppf(1 - level, count - 1) * math.sqrt(2 + 1 / count)
    limits = np.array([prediction_limit(row, level) for row in draws[:200, 1:]])
    np.testing.assert_allclose(limits, (mean + reach * deviation)[:200], rtol=1e-10)
    passed = int((draws[:, 0] > mean + reach * deviation).sum())
    assert stats.binomtest(passed, 40_000, level).pvalue > 1e-3


def test_equal_stand_ins_leave_room_for_chance_in_the_first_part():
    rng = np.random.default_rng(22)
    base = Pair(rng.normal(0.3, 1, 200), rng.normal(0, 1, 200))
    found = judge(base, [base] * 8, level=0.02)
    assert found.auc_limit == pytest.approx(base.auc)
    rate = base.first_part
    reach = stats.t.ppf(0.99, 7) * math.sqrt(2 + 1 / 8) * math.sqrt(rate * (1 - rate) / 200)
    assert found.first_part_limit == pytest.approx(rate + reach)
    assert not found.stands_out


@given(st.lists(st.floats(0, 1), min_size=3, max_size=9), st.floats(-2, 2), st.floats(0.1, 3))
def test_prediction_limit_moves_with_its_values(values, shift, scale):
    base = prediction_limit(values, 0.05)
    assert base >= np.mean(values) - 1e-12
    assert prediction_limit([scale * v + shift for v in values], 0.05) == pytest.approx(scale * base + shift, abs=1e-9)


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_first_part_by_a_second_route(seed):
    rng = np.random.default_rng(seed)
    pair = Pair(rng.normal(0.5, 1, 60).round(1), rng.normal(0, 1, 80).round(1))
    edges = sorted(set(pair.made) | set(pair.real), reverse=True)
    points = [(0.0, 0.0)] + [((pair.made >= e).mean(), (pair.real >= e).mean()) for e in edges]
    total = 0.0
    for f in np.linspace(0.0, FIRST_PART, 201):
        # On a vertical step the value at its upper end counts.
        below = [p for p in points if p[0] <= f + 1e-12]
        low = below[-1]
        high = next((p for p in points if p[0] > f + 1e-12), low)
        total += low[1] if high[0] == low[0] else low[1] + (high[1] - low[1]) * (f - low[0]) / (high[0] - low[0])
    assert pair.first_part == pytest.approx(total / 201, abs=0.02)


# --- the whole audit ---------------------------------------------------------------------------------------


def test_leaks_are_ordered_and_no_leak_is_zero():
    strong, weak, none = audited().details["targets"]
    assert strong["epsilon"] > weak["epsilon_raw"] and strong["stands_out"]
    assert none["epsilon"] == 0.0 and not none["stands_out"]
    assert strong["auc"] > weak["auc"] > none["auc"]


def test_the_headline_is_a_measurement_and_says_so():
    audit = audited()
    assert audit.headline.validity == Validity.MEASUREMENT
    assert audit.headline.low == 0.0
    assert "measurement" in audit.headline.claim and "lower bound on ε only if" in audit.headline.claim
    methods = [e.method for e in audit.estimates]
    assert methods.count("panoramia") == 3
    run = audit.estimates[methods.index("one-run on generated non-members")]
    assert run.validity == Validity.MEASUREMENT and "no bound" in run.claim


def test_targets_share_baseline_and_coins():
    rows = audited().details["targets"]
    assert len({(r["c_lb"], r["guesses"]) for r in rows}) == 1
    assert len({r["verdict"]["auc_limit"] for r in rows}) == 1


def test_real_nonmembers_give_a_bound_after_the_shift_check():
    audit = audited()
    found = {e.method: e for e in audit.estimates}
    assert audit.guard.checked and not audit.guard.shift
    assert found["panoramia, real non-members"].validity == Validity.FINITE_SAMPLE
    assert found["panoramia, real non-members"].low > 0.5
    # A larger attack cannot measure more than the best bound with real non-members, but for the error of both.
    assert audit.headline.epsilon <= found["one-run, real non-members"].low + 1.0


def test_every_target_has_its_own_bounds():
    audit = audited()
    strong, weak, none = audit.details["targets"]
    assert strong["one_run"] > max(weak["one_run"], none["one_run"])
    run = next(e for e in audit.estimates if e.method == "one-run on generated non-members")
    assert strong["one_run"] == run.epsilon
    real = audit.details["real"]
    assert [row["name"] for row in real["targets"]] == ["strong", "weak", "none"]
    first, second, last = real["targets"]
    assert {key: first[key] for key in ("epsilon", "one_run", "auc")} == {
        k: real[k] for k in ("epsilon", "one_run", "auc")
    }
    assert first["auc"] > second["auc"] > last["auc"] and last["epsilon"] == 0.0
    assert first["epsilon"] == next(e for e in audit.estimates if e.method == "panoramia, real non-members").epsilon


def test_bounds_of_throws_by_hand():
    rng = np.random.default_rng(21)
    pair = Pair(rng.normal(1, 1, 300), rng.normal(0, 1, 300))
    found = bounds_of_throws(pair, 60, 0.025, [5, 6, 7])
    for seed, bound in zip((5, 6, 7), found, strict=True):
        coins = fair_coins(300, seed)
        right = int(coins[np.argsort(-np.where(coins, *pair))[:60]].sum())
        p = stats.beta.ppf(0.025, right, 60 - right + 1)
        assert bound == pytest.approx(max(0.0, math.log(p / (1 - p))), rel=1e-9)


def test_the_measurement_is_a_difference_of_medians():
    for row in audited().details["targets"]:
        assert row["epsilon_raw"] == pytest.approx(max(0.0, row["c_plus_epsilon_lb"] - row["c_lb"]))
        assert row["epsilon"] in (0.0, row["epsilon_raw"])
        assert row["throws"]["low"] <= row["throws"]["median"] <= row["throws"]["high"]


def test_same_seed_same_numbers_and_back_from_json():
    X, y = draw(300, 9)
    arguments = {"generator": sampler, "references": 3, "repeats": 3}
    one, two = (audit_members_only(memoriser(X, y, 3.0), (X, y), seed=1, **arguments) for _ in range(2))
    assert one.to_dict() == two.to_dict()
    other = audit_members_only(memoriser(X, y, 3.0), (X, y), seed=2, **arguments)
    assert other.to_dict() != one.to_dict()
    assert Audit.from_json(one.to_json()).to_dict() == one.to_dict()


def test_strength_of_the_baseline():
    strength = audited().details["strength"]
    assert [r["share"] for r in strength["size"]] == [1 / 8, 1 / 4, 1 / 2, 1.0]
    assert len({r["helper"] for r in strength["helper"]}) == 4
    assert strength["rising"] == (strength["rising_p_value"] <= 0.05)


def test_naive_and_ranked_and_without_stand_ins():
    X, y = draw(300, 10)
    model = memoriser(X, y, 3.0)
    common = {"generator": sampler, "repeats": 2}
    naive = audit_members_only(model, (X, y), guesses="naive", references=3, **common)
    assert naive.headline.validity == Validity.EXPLORATORY
    ranked = audit_members_only(model, (X, y), guesses="ranked", references=0, **common)
    assert ranked.details["null"] is None
    assert any("no stand-ins" in w for w in ranked.headline.warnings)
    fixed = audit_members_only(model, (X, y), guesses=20, references=0, helper="none", **common)
    assert fixed.details["targets"][0]["guesses"] == 20


def test_a_trainer_of_the_caller_makes_the_stand_ins():
    seen = []

    def train(X, y, seed):
        seen.append((len(X), seed))
        return lambda rows: np.stack([np.zeros(len(rows)), rows[:, 0] + rows[:, 1]], axis=1)

    X, y = draw(300, 11)
    audit_members_only(memoriser(X, y, 3.0), (X, y), generator=sampler, reference=train, references=3, repeats=1)
    assert len(seen) == ANCHORS + 2 * 3 and len({s for _, s in seen}) == len(seen)
    assert sorted(size for size, _ in seen) == [60] * ANCHORS + [100] * 6


def test_a_stand_in_never_saw_what_it_is_asked_about():
    X, y = draw(300, 23)
    game = deal((X, y), generator=sampler, splits=(0.4, 0.3, 0.3), audit_size=None, seed=1)
    field = contest(game, seed=0)
    anchor, pools = anchor_and_pools(game, seed=2)
    met = []

    def train(X, y, seed):
        known = {row.tobytes() for row in X}
        assert not known & {row.tobytes() for row in anchor.X}

        def logits(rows):
            met.append(sum(row.tobytes() in known for row in rows))
            return np.stack([np.zeros(len(rows)), rows[:, 0]], axis=1)

        return logits

    found = stand_in(field, pools, seed=3, variant=0, trainer=train)
    assert met and not any(met)
    assert len(found.train) == 180 and len(found.audit) == 180


def test_tables_of_the_caller_go_to_the_stand_ins():
    pd = pytest.importorskip("pandas")
    X, y = draw(240, 24)

    def train(X, y, seed):
        assert list(X.columns) == ["a", "b", "c", "d"] and len(X) == len(y)
        return lambda rows: np.stack([np.zeros(len(rows)), np.asarray(rows)[:, 0]], axis=1)

    def made(count, seed):
        X, y = sampler(count, seed)
        return pd.DataFrame(X, columns=list("abcd")), y

    members = pd.DataFrame(X, columns=list("abcd")), y
    model = train(*members, 0)
    audit = audit_members_only(model, members, generator=made, reference=train, references=3, repeats=1)
    assert audit.metadata["data_kind"] == "tabular"


def test_images_without_torch(monkeypatch):
    monkeypatch.setattr("dosimeter.attacks.stacked.has_torch", lambda: False)
    monkeypatch.setattr("dosimeter.attacks.references.has_torch", lambda: False)
    rng = np.random.default_rng(12)
    images, labels = rng.random((240, 6, 6)), rng.integers(0, 2, 240)

    def blurred(count, seed):
        r = np.random.default_rng(seed)
        return 0.9 * r.random((count, 6, 6)), r.integers(0, 2, count)

    def brightness(rows):
        return np.stack([np.zeros(len(rows)), 9.0 * rows.mean(axis=(1, 2)) - 3.0], axis=1)

    audit = audit_members_only(brightness, (images, labels), generator=blurred, references=3, repeats=1)
    assert audit.metadata["data_kind"] == "image"


def test_a_game_is_cut_without_overlap():
    X, y = draw(400, 13)
    game = deal((X, y), generator=sampler, splits=(0.4, 0.3, 0.3), audit_size=None, seed=1)
    parts = [game.held, game.real["train"], game.real["audit"]]
    assert [len(p) for p in parts] == [160, 120, 120]
    rows = [{r.tobytes() for r in p.X} for p in parts]
    made = [{r.tobytes() for r in p.X} for p in (game.helper, game.made["train"], game.made["audit"])]
    assert all(not a & b for group in (rows, made) for a, b in combinations(group, 2))
    assert set.union(*rows) <= {r.tobytes() for r in X}
    smaller = deal((X, y), generator=sampler, splits=(0.4, 0.3, 0.3), audit_size=60, seed=1)
    assert smaller.pairs == 60 and len(smaller.real["train"]) == 180


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_coins_show_one_of_each_pair(seed):
    real, made = np.arange(40.0), -np.arange(1.0, 41.0)
    evidence = shown(real, made, seed=seed)
    assert isinstance(evidence, OneRun) and evidence.mask_seed == seed
    np.testing.assert_array_equal(evidence.scores >= 0, evidence.included)
    np.testing.assert_array_equal(np.where(evidence.included, real, made), evidence.scores)


def test_filter_is_used_and_reported():
    X, y = draw(300, 14)
    game = deal(
        (X, y), generator=sampler, splits=(0.4, 0.3, 0.3), audit_size=None, keep=lambda X, y: X[:, 0] > -1, seed=0
    )
    assert all((p.X[:, 0] > -1).all() for p in (game.helper, *game.made.values()))
    assert game.facts["filtered"] > 0 and any("filter dropped" in w for w in game.warnings)


# --- classifiers and stand-ins -----------------------------------------------------------------------------


def test_content_scores_of_training_records_are_out_of_fold():
    rng = np.random.default_rng(15)
    noise = Content("tabular", rng.normal(size=(400, 3)), None)
    member = np.arange(400) < 200
    found = content_scores(noise, member, noise, seed=0)
    assert abs(Pair(found.train[member], found.train[~member]).auc - 0.5) < 0.1
    assert Pair(found.audit[member], found.audit[~member]).auc > 0.7  # the same records, seen by two of three folds


def test_class_columns_by_hand():
    logits = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]])
    y = np.array([2, 1])
    found = class_columns(Outputs(logits, "logits"), y)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    own = p[[0, 1], y]
    np.testing.assert_allclose(found[:, 0], -(np.log(own) - np.log1p(-own)), rtol=1e-9)
    np.testing.assert_allclose(found[:, 1], stats.entropy(p, axis=1), rtol=1e-9)
    np.testing.assert_allclose(found[:, 2], [2.0, 2.0], rtol=1e-9)
    same = class_columns(Outputs(p, "probabilities"), y)
    np.testing.assert_allclose(same, found, atol=1e-6)


def test_token_columns_by_hand():
    found = token_columns([np.log([0.5, 0.25, 0.125, 0.5, 0.5])])
    assert found[0, 0] == pytest.approx(-np.log([0.5, 0.25, 0.125, 0.5, 0.5]).mean())
    assert found[0, 1] == pytest.approx(-math.log(0.125))
    assert found[0, 5] == pytest.approx(math.log(5))


def test_stand_ins_of_a_table_are_trained_shorter_and_longer():
    X, y = draw(1600, 26)
    inside, outside = Content("tabular", X[:800], y[:800]), Content("tabular", X[800:], y[800:])
    gap = []
    for variant in range(4):
        ask = reference(inside, seed=1, variant=variant)
        gap.append(float(np.median(ask(outside)[:, 0]) - np.median(ask(inside)[:, 0])))
    assert gap[2] > gap[0] > max(gap[1], gap[3])


def test_n_gram_stand_in_counts_words():
    texts = ["a b c", "a b d", "a b c"]
    ask = reference(Content("text", texts, None), seed=0)
    found = ask(Content("text", ["a b c", "zz yy"], None))
    size = 5
    uniform = 0.05 / size
    expected = [
        uniform + 0.2 * 3 / 9,
        uniform + 0.2 * 3 / 9 + 0.35 * 3 / 3,
        uniform + 0.2 * 2 / 9 + 0.35 * 2 / 3 + 0.4 * 2 / 3,
    ]
    assert found[0, 0] == pytest.approx(-np.log(expected).mean())
    assert found[1, 0] == pytest.approx(-math.log(uniform))


def test_text_stand_in_prefers_its_own_language():
    rng = np.random.default_rng(16)
    ordered = [" ".join(WORDS[(s + k) % 12] for k in range(8)) for s in rng.integers(0, 12, 300)]
    mixed = [" ".join(rng.choice(WORDS, 8)) for _ in range(300)]
    ask = reference(Content("text", ordered[:200], None), seed=0)
    losses = ask(joined([Content("text", ordered[200:], None), Content("text", mixed, None)]))[:, 0]
    assert losses[:100].max() < losses[100:].min()


# --- bad input ---------------------------------------------------------------------------------------------

GOOD = draw(300, 17)
MODEL = memoriser(*GOOD, 2.0)


def refuse(match, *, model=MODEL, members=GOOD, **arguments):
    with pytest.raises(InputError, match=match):
        audit_members_only(model, members, **{"generator": sampler, "references": 3, "repeats": 1, **arguments})


def test_too_few_members_say_how_many():
    X, y = draw(100, 18)
    refuse(f"need {math.ceil(FEWEST / 0.3)}", members=(X, y))


def test_copies_are_refused_with_their_share():
    X, y = GOOD
    refuse("100 % of the generated", generator=lambda count, seed: (np.resize(X, (count, 4)), np.resize(y, count)))


def with_copies(X, y, share):
    """A sampler of which so many records are members."""

    def sample(count, seed):
        made, labels = sampler(count, seed)
        copies = round(share * count)
        made[:copies], labels[:copies] = X[:copies], y[:copies]
        return made, labels

    return sample


def test_a_few_copies_are_left_out_and_reported():
    X, y = GOOD
    arguments = {"splits": (0.4, 0.3, 0.3), "audit_size": None, "seed": 0}
    game = deal((X, y), generator=with_copies(X, y, 0.04), **arguments)
    known = {row.tobytes() for row in X}
    assert not any(row.tobytes() in known for p in (game.helper, *game.made.values()) for row in p.X)
    assert game.facts["copies_left_out"] == game.facts["copies_of_members"] > 0
    assert any("left out" in w for w in game.warnings)
    refuse("exact copies", generator=with_copies(X, y, 0.08))
    made, labels = with_copies(X, y, 0.03)(300, 1)
    refuse("no copies of members", generated=(made, labels))


def test_copies_are_kept_where_members_repeat_each_other():
    rng = np.random.default_rng(25)
    X, y = rng.integers(0, 5, (300, 4)).astype(float), rng.integers(0, 2, 300)

    def alike(count, seed):
        r = np.random.default_rng(seed)
        made = r.integers(0, 5, (count, 4)) + np.where(r.random((count, 1)) < 0.9, 0.01 * r.random((count, 1)), 0.0)
        return made, r.integers(0, 2, count)

    game = deal((X, y), generator=alike, splits=(0.4, 0.3, 0.3), audit_size=None, seed=0)
    assert game.facts["copies_of_members"] > 0 and game.facts["copies_left_out"] == 0
    assert any("were kept" in w for w in game.warnings)


def test_a_generator_that_repeats_itself_is_refused():
    X, y = draw(50, 19, real=False)
    refuse("repeat another one", generator=lambda count, seed: (np.resize(X, (count, 4)), np.resize(y, count)))


def test_other_shapes_missing_labels_and_nan_are_refused():
    refuse("shape", generator=lambda count, seed: (np.ones((count, 3)), np.zeros(count, int)))
    refuse("must return", generator=lambda count, seed: np.ones((count, 4)))
    refuse("no labels", members=(GOOD[0], None))
    bad = GOOD[0].copy()
    bad[3, 1] = np.nan
    refuse("not finite", members=(bad, GOOD[1]))
    refuse("not finite", generator=lambda count, seed: (np.full((count, 4), np.nan), np.zeros(count, int)))
    refuse("gave 10", generator=lambda count, seed: sampler(10, seed))
    refuse("generated holds 20", generated=sampler(20, 0))


def test_identical_guesses_are_refused(monkeypatch):
    monkeypatch.setattr(
        "dosimeter.audits.contest.stacked_scores", lambda train, member, audit, *, seed: np.ones(len(audit))
    )
    refuse("guesses about model are identical", references=0)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"helper": "real"}, "no nonmembers"),
        ({"helper": "x"}, "helper must be one of"),
        ({"references": 2}, "0 or at least 3"),
        ({"reference": 3}, "reference must be"),
        ({"splits": (0.5, 0.6, 0.2)}, "add up"),
        ({"splits": (0.5, 0.5)}, "three shares"),
        ({"guesses": "all"}, "guesses must be one of"),
        ({"guesses": 10_000}, "guesses must be between"),
        ({"audit_size": 10}, "audit_size must be between"),
        ({"generator": 5}, "generator must be"),
        ({"filter": 5}, "filter must be a function"),
        ({"filter": lambda X, y: np.zeros(len(X), bool)}, "filter kept 0"),
        ({"model": {}}, "mapping"),
        ({"nonmembers": draw(100, 1)}, "nonmembers holds 100"),
        ({"nonmembers": (np.ones((300, 3)), np.zeros(300, int))}, "shape"),
        ({"confidence": 1.5}, "confidence"),
    ],
)
def test_bad_arguments(arguments, match):
    refuse(match, **arguments)
