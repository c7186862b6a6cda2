"""The members-only audit: the steps of Algorithm 1, and several targets."""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from members_games import WORDS, draw, memoriser, sampler
from scipy import stats

from dosimeter import Audit, InputError, OneRun, Validity, audit_members_only, fair_coins
from dosimeter.attacks.labeler import label
from dosimeter.attacks.stacked import Content, class_columns, content_scores, joined, token_columns
from dosimeter.audits.members_only.measure import bounds_of_draws
from dosimeter.audits.members_only.pair_classifier import (
    SHARED_REFERENCES,
    Pair,
    ask_reference,
    pair_classifier,
    propensity_bounds,
    reference,
    reference_pools,
)
from dosimeter.audits.members_only.records import coin_evidence, split_records
from dosimeter.audits.members_only.result import MembersOnlyDetails, MembersOnlyMetadata
from dosimeter.engine import RunOptions
from dosimeter.models import Outputs


@cache
def audited():
    """One audit of three targets: a strong leak, a weaker one, and none."""
    X, y = draw(1500, 1)
    other = draw(1500, 2)
    models = {"strong": memoriser(X, y, 4.0), "weak": memoriser(X, y, 1.0), "none": memoriser(*other, 4.0)}
    return audit_members_only(models, (X, y), generator=sampler, nonmembers=draw(900, 3), references=4, seed=4)


# --- the whole audit ---------------------------------------------------------------------------------------


@pytest.mark.slow
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
    assert run.validity == Validity.MEASUREMENT and "not a bound on ε" in run.claim


def test_targets_share_baseline_and_coins():
    rows = audited().details["targets"]
    assert len({(r["c_lb"], r["guesses"]) for r in rows}) == 1
    assert len({r["verdict"]["auc_limit"] for r in rows}) == 1


def test_real_nonmembers_give_a_bound_after_the_shift_check():
    audit = audited()
    found = {e.method: e for e in audit.estimates}
    assert audit.guard.checked and not audit.guard.shift
    for name in ("panoramia, real non-members", "one-run, real non-members"):
        assert found[name].validity == Validity.RANDOM_SPLIT and found[name].validity.is_bound
    for name in ("panoramia, real non-members", "one-run, real non-members"):
        assert found[name].neighbours == "replace" and "for replacing one record" in found[name].claim
    assert found["panoramia, real non-members"].low > 0.5
    # A larger attack cannot measure more than the best bound with real non-members, but for the error of both.
    assert audit.headline.epsilon <= found["one-run, real non-members"].low + 1.0


def test_a_baseline_for_each_record_bounds_the_leak_and_nothing_else():
    audit = audited()
    strong, _, none = audit.details["targets"]
    assert strong["by_record"] >= strong["by_order"] > 0 and strong["by_record"] > strong["epsilon"]
    assert none["by_record"] == none["by_order"] == 0.0
    bounds = [e for e in audit.estimates if e.method == "propensity"]
    assert [e.epsilon for e in bounds] == [t["by_record"] for t in audit.details["targets"]]
    assert all(e.validity is Validity.CONDITIONAL and e.neighbours == "replace" for e in bounds)
    check = audit.details["propensities"]
    assert check["calibrated"] and len(check["controls"]) == 4
    assert sum(row["pairs"] for row in check["bins"]) == audit.details["game"]["audit_pairs"]


def test_what_is_proven_of_a_control_is_subtracted():
    """Baselines that miss what every model knows: the references' own bounds are the error of the log-odds."""
    rng = np.random.default_rng(0)
    known = rng.normal(1.5, 1, 400), rng.normal(0, 1, 400)

    def pair(weight, noise):
        return Pair(*(weight * side + noise * rng.normal(size=400) for side in known))

    blind = [pair(0.0, 1.0) for _ in range(3)]
    seeing = pair(1.5, 0.1)
    alone = propensity_bounds({"a": seeing}, blind, 0.95)
    assert alone.check.controls == (0.0, 0.0, 0.0) and alone.estimates[0].epsilon > 1
    mixed = propensity_bounds({"a": seeing}, [*blind, pair(1.5, 0.1)], 0.95)
    assert max(mixed.check.controls) > 1 and mixed.estimates[0].epsilon < alone.estimates[0].epsilon - 0.5
    assert any("this was subtracted" in warning for warning in mixed.estimates[0].warnings)


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


def test_bounds_of_draws_by_hand():
    rng = np.random.default_rng(21)
    pair = Pair(rng.normal(1, 1, 300), rng.normal(0, 1, 300))
    found = bounds_of_draws(pair, 60, 0.025, [5, 6, 7]).bounds
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


@pytest.mark.once
def test_same_seed_same_numbers_and_back_from_json():
    X, y = draw(300, 9)
    arguments = {"generator": sampler, "references": 3, "repeats": 3}
    one, two = (audit_members_only(memoriser(X, y, 3.0), (X, y), seed=1, **arguments) for _ in range(2))
    assert one.to_dict() == two.to_dict()
    other = audit_members_only(memoriser(X, y, 3.0), (X, y), seed=2, **arguments)
    assert other.to_dict() != one.to_dict()
    assert Audit.from_json(one.to_json()).to_dict() == one.to_dict()


def test_files_of_version_1_are_read_with_their_notes():
    """Version 1 had the caller's notes among the metadata, an empty object for no curve, and no neighbours."""
    X, y = draw(300, 9)
    common = {"generator": sampler, "references": 0, "repeats": 2, "metadata": {"unit_of_privacy": "one person"}}
    audit = audit_members_only(memoriser(X, y, 3.0), (X, y), **common)
    values = {**audit.to_dict(), "schema": 1, "curve": {}}
    values["metadata"] = {**values["metadata"], **values["metadata"].pop("notes")}
    values["estimates"] = [{k: v for k, v in e.items() if k != "neighbours"} for e in values["estimates"]]
    again = Audit.from_dict(values)
    assert isinstance(again.details, MembersOnlyDetails) and again.details == audit.details
    assert isinstance(again.metadata, MembersOnlyMetadata)
    assert again.metadata["unit_of_privacy"] == audit.metadata.notes["unit_of_privacy"] == "one person"


@pytest.mark.once
def test_where_it_runs_is_one_value_and_the_old_keywords_work():
    X, y = draw(300, 9)
    model, sizes = memoriser(X, y, 3.0), []

    def batched(rows):
        sizes.append(len(rows))
        return model(rows)

    common = {"generator": sampler, "references": 0, "repeats": 1}
    new = audit_members_only(batched, (X, y), run=RunOptions(batch_size=40), **common)
    with pytest.warns(DeprecationWarning, match=r"pass run=RunOptions\(batch_size=…\)"):
        old = audit_members_only(batched, (X, y), batch_size=40, **common)
    assert new.to_dict() == old.to_dict() and max(sizes) == 40
    with pytest.raises(InputError, match="batch_size was passed beside run"):
        audit_members_only(batched, (X, y), run=RunOptions(), batch_size=40, **common)
    with pytest.raises(InputError, match="takes no argument 'batchsize'"):
        audit_members_only(batched, (X, y), batchsize=40, **common)


def test_strength_of_the_baseline():
    strength = audited().details["strength"]
    assert [r["share"] for r in strength["size"]] == [1 / 8, 1 / 4, 1 / 2, 1.0]
    assert len({r["helper"] for r in strength["helper"]}) == 4
    assert strength["rising"] == (strength["rising_p_value"] <= 0.05)


@pytest.mark.once
def test_naive_and_ranked_and_without_references():
    X, y = draw(300, 10)
    model = memoriser(X, y, 3.0)
    common = {"generator": sampler, "repeats": 2}
    naive = audit_members_only(model, (X, y), guesses="naive", references=3, **common)
    assert naive.headline.validity == Validity.EXPLORATORY
    assert not any("third of the members" in w for w in naive.headline.warnings)  # tables are silent without a leak
    ranked = audit_members_only(model, (X, y), guesses="ranked", references=0, **common)
    assert ranked.details["null"] is None
    assert any("no reference models" in w for w in ranked.headline.warnings)
    fixed = audit_members_only(model, (X, y), guesses=20, references=0, helper="none", **common)
    assert fixed.details["targets"][0]["guesses"] == 20


def test_a_trainer_of_the_caller_makes_the_references():
    seen = []

    def train(X, y, seed):
        seen.append((len(X), seed))
        return lambda rows: np.stack([np.zeros(len(rows)), rows[:, 0] + rows[:, 1]], axis=1)

    X, y = draw(300, 11)
    audit_members_only(memoriser(X, y, 3.0), (X, y), generator=sampler, reference=train, references=3, repeats=1)
    assert len(seen) == SHARED_REFERENCES + 2 * 3 + 2 * 3 and len({s for _, s in seen}) == len(seen)
    assert sorted(size for size, _ in seen) == [60] * SHARED_REFERENCES + [90] * 6 + [180] * 6


@pytest.mark.once
def test_references_that_no_attack_could_pass_are_warned_of(monkeypatch):
    X, y = draw(300, 11)
    given = {"generator": sampler, "references": 3, "repeats": 1}
    audits = [audit_members_only(memoriser(X, y, 3.0), (X, y), **given)]
    monkeypatch.setattr("dosimeter.audits.members_only.measure.prediction_limit", lambda *_, **__: 9.0)
    audits.append(audit_members_only(memoriser(X, y, 3.0), (X, y), **given))
    warned = [any("no AUC passes their limit" in w for w in audit.headline.warnings) for audit in audits]
    assert warned == [False, True] and audits[1].headline.epsilon == 0.0


def test_a_reference_never_saw_what_it_is_asked_about():
    X, y = draw(300, 23)
    records = split_records((X, y), generator=sampler, splits=(0.4, 0.3, 0.3), audit_size=None, seed=1)
    classifier = pair_classifier(records, seed=0)
    _, pools = reference_pools(records, seed=2)
    met = []

    def train(X, y, seed):
        known = {row.tobytes() for row in X}
        assert len(known) == 180

        def logits(rows):
            met.append(sum(row.tobytes() in known for row in rows))
            return np.stack([np.zeros(len(rows)), rows[:, 0]], axis=1)

        return logits

    answers = ask_reference(classifier, pools, pools.size, seed=3, variant=0, trainer=train)
    assert met and not any(met)
    assert len(answers.train) == 180 and len(answers.audit) == 180


def test_tables_of_the_caller_go_to_the_references():
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
    monkeypatch.setattr("dosimeter.audits.members_only.pair_classifier.has_torch", lambda: False)
    rng = np.random.default_rng(12)
    images, labels = rng.random((240, 6, 6)), rng.integers(0, 2, 240)

    def blurred(count, seed):
        r = np.random.default_rng(seed)
        return 0.9 * r.random((count, 6, 6)), r.integers(0, 2, count)

    def brightness(rows):
        return np.stack([np.zeros(len(rows)), 9.0 * rows.mean(axis=(1, 2)) - 3.0], axis=1)

    audit = audit_members_only(brightness, (images, labels), generator=blurred, references=3, repeats=1)
    assert audit.metadata["data_kind"] == "image"
    assert any("weak evidence" in w for w in audit.headline.warnings)


def test_records_are_divided_without_overlap():
    X, y = draw(400, 13)
    records = split_records((X, y), generator=sampler, splits=(0.4, 0.3, 0.3), audit_size=None, seed=1)
    sets = [records.for_generator, records.train.members, records.audit.members]
    assert [len(s) for s in sets] == [160, 120, 120]
    rows = [{r.tobytes() for r in s.X} for s in sets]
    generated = (records.for_helper, records.train.nonmembers, records.audit.nonmembers)
    made = [{r.tobytes() for r in s.X} for s in generated]
    assert all(not a & b for group in (rows, made) for a, b in combinations(group, 2))
    assert set.union(*rows) <= {r.tobytes() for r in X}
    smaller = split_records((X, y), generator=sampler, splits=(0.4, 0.3, 0.3), audit_size=60, seed=1)
    assert smaller.pairs == 60 and len(smaller.train.members) == 180


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_coins_show_one_of_each_pair(seed):
    real, made = np.arange(40.0), -np.arange(1.0, 41.0)
    evidence = coin_evidence(real, made, seed=seed)
    assert isinstance(evidence, OneRun) and evidence.mask_seed == seed
    np.testing.assert_array_equal(evidence.scores >= 0, evidence.included)
    np.testing.assert_array_equal(np.where(evidence.included, real, made), evidence.scores)


@pytest.mark.parametrize("given", [False, True])
def test_generated_records_without_labels_are_labelled(given):
    """The label depends on two columns; the labeler learns that from the generator's members alone."""
    X, y = draw(600, 1)
    names = np.array(["no", "yes"])[y]
    records = {"generated": draw(900, 9)[0]} if given else {"generator": lambda count, seed: draw(count, seed)[0]}
    found = split_records((X, names), splits=(0.4, 0.3, 0.3), audit_size=None, seed=2, **records)
    made = found.for_helper
    assert set(made.y) == {"no", "yes"}
    agree = np.mean((made.X[:, 0] + made.X[:, 1] > 0) == (made.y == "yes"))
    assert agree > 0.7  # that of the members is 0.78
    assert any("came without labels" in warning for warning in found.warnings)


def test_texts_and_images_are_labelled_too():
    texts = [f"{WORDS[i % 6]} {WORDS[i % 5]} {'good' if i % 2 else 'bad'}" for i in range(200)]
    found = label(Content("text", texts, np.arange(200) % 2), Content("text", ["so good", "so bad"] * 20, None), seed=0)
    assert found.accuracy > 0.9 and np.mean(found.codes == np.arange(1, 41) % 2) > 0.8
    dark = np.random.default_rng(0).random((200, 4, 4, 1)) * 0.2
    dark[::2] += 0.8
    shown = Content("image", dark[:50], None)
    for torch in (find_spec("torch") is not None, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dosimeter.attacks.labeler.has_torch", lambda torch=torch: torch)
            codes = label(Content("image", dark, np.arange(200) % 2), shown, seed=0).codes
        assert np.mean(codes == np.arange(50) % 2) > 0.9
    with pytest.raises(InputError, match="too many to train a labeler"):
        label(Content("image", dark, np.arange(200)), shown, seed=0)
    assert label(Content("image", dark, np.full(200, 3)), shown, seed=0).codes.tolist() == [3] * 50


def test_filter_is_used_and_reported():
    X, y = draw(300, 14)
    records = split_records(
        (X, y), generator=sampler, splits=(0.4, 0.3, 0.3), audit_size=None, keep=lambda X, y: X[:, 0] > -1, seed=0
    )
    generated = (records.for_helper, records.train.nonmembers, records.audit.nonmembers)
    assert all((s.X[:, 0] > -1).all() for s in generated)
    assert records.counts.filtered > 0 and any("filter dropped" in w for w in records.warnings)


# --- classifiers and references ----------------------------------------------------------------------------


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


def test_references_of_a_table_are_trained_shorter_and_longer():
    X, y = draw(1600, 26)
    inside, outside = Content("tabular", X[:800], y[:800]), Content("tabular", X[800:], y[800:])
    gap = []
    for variant in range(4):
        ask = reference(inside, seed=1, variant=variant)
        gap.append(float(np.median(ask(outside)[:, 0]) - np.median(ask(inside)[:, 0])))
    assert gap[2] > gap[0] > max(gap[1], gap[3])


def test_n_gram_reference_counts_words():
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


def test_text_reference_prefers_its_own_language():
    rng = np.random.default_rng(16)
    ordered = [" ".join(WORDS[(s + k) % 12] for k in range(8)) for s in rng.integers(0, 12, 300)]
    mixed = [" ".join(rng.choice(WORDS, 8)) for _ in range(300)]
    ask = reference(Content("text", ordered[:200], None), seed=0)
    losses = ask(joined([Content("text", ordered[200:], None), Content("text", mixed, None)]))[:, 0]
    assert losses[:100].max() < losses[100:].min()
