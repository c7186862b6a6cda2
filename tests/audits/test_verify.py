"""Every kind of audit carries the evidence of its bounds: verified as written, refused where a number was changed."""

import json
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from members_games import draw, memoriser, sampler
from sklearn.linear_model import LogisticRegression
from training_games import HERE, as_they_are, laplace, simulated

from dosimeter import InputError, OneRun, Scores, Validity, fair_coins
from dosimeter.audits.gate import Outcome, gate, passed
from dosimeter.audits.members_only import audit_members_only
from dosimeter.audits.model import audit_model
from dosimeter.audits.one_run import audit_one_run
from dosimeter.audits.result import Audit, FailedTraining
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.verify import Standing, verify
from dosimeter.estimators.claim import claim
from dosimeter.estimators.headline import VERSION
from dosimeter.estimators.one_run import one_run
from dosimeter.estimators.panoramia import panoramia
from dosimeter.estimators.ranked import ranked

RNG = np.random.default_rng(1)
LEAKY = Scores(RNG.normal(2, 1, 80), RNG.normal(0, 1, 70))
NOT_RECOMPUTED = {"epsilon-star-parametric", "epsilon-star-empirical", "beliefs"}  # no bounds


def read_back(audit: Audit) -> Audit:
    again = Audit.from_json(audit.to_json())
    assert again.to_dict() == audit.to_dict()
    return again


def assert_verified(audit: Audit, *, but: set[str] = frozenset()) -> None:
    """Every number but those that are no bounds follows."""
    found = verify(read_back(audit))
    assert found.valid, [str(f) for f in found.contradictions]
    unknown = {f.subject for f in found.findings if f.standing is Standing.UNKNOWN}
    assert unknown <= NOT_RECOMPUTED | but, unknown
    assert found.headline.standing is Standing.FOLLOWS


SCORES = {
    "uniform": {},
    "fpr": {"fpr": 0.1},
    "split": {"threshold": "split"},
    "naive": {"threshold": "naive"},
    "number": {"threshold": 1.0},
    "no delta": {"delta": 0.0},
    "99 %": {"confidence": 0.99},
}


@pytest.mark.parametrize("options", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize(
    "scores",
    [LEAKY, replace(LEAKY, independent=True), Scores(LEAKY.members.round(), LEAKY.nonmembers.round())],
    ids=["one model", "runs", "tied"],
)
def test_scores(scores, options):
    assert_verified(audit_scores(scores, **options))


@pytest.mark.parametrize("sizes", [(1, 1), (3, 3), (5, 60)])
def test_few_and_equal_scores(sizes):
    m, n = sizes
    assert_verified(audit_scores(Scores(RNG.normal(1, 1, m), RNG.normal(0, 1, n))))
    assert_verified(audit_scores(Scores(np.zeros(m), np.zeros(n))))


def test_losses_and_persons():
    members, nonmembers = RNG.exponential(0.2, 60), RNG.exponential(1, 60)
    assert_verified(audit_scores(Scores.from_losses(members, nonmembers), resamples=20))
    persons = np.repeat(np.arange(20), 3), np.repeat(np.arange(20, 40), 3)
    assert_verified(audit_scores(Scores(members, nonmembers, groups=persons)))


def test_a_model():
    X = RNG.normal(size=(120, 3))
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression().fit(X[:60], y[:60])
    assert_verified(audit_model(model, members=(X[:60], y[:60]), nonmembers=(X[60:], y[60:]), resamples=10))


TRAININGS = {
    "challenge": {"shadows": 16, "runs": 40},
    "several points": {"shadows": 16, "runs": 20, "challenges": 3},
    "crossed": {"shadows": 32, "game": "crossed", "challenges": 4},
    "claim kept": {"shadows": 16, "runs": 120, "claim": (2.5, 0.0)},
}


@pytest.mark.parametrize("options", TRAININGS.values(), ids=TRAININGS)
def test_a_training(options):
    assert_verified(simulated(2.0, 1, **options))


def test_a_rejected_claim():
    audit = simulated(4.0, 1, shadows=16, runs=300, claim=(1.0, 0.0))
    assert audit.headline.details["rejected"]
    assert_verified(audit, but={"curve", "coins"})  # the game was stopped: the test's own statements alone are made


def test_one_run():
    data = np.zeros((160, 1)), np.zeros(160)
    assert_verified(audit_one_run(laplace(3.0, 160), data, signal=as_they_are, **HERE))


@pytest.mark.once
def test_members_only():
    X, y = draw(360, 1)
    options = {"generator": sampler, "references": 3, "repeats": 3, "confidence": 0.9}
    leak = audit_members_only(memoriser(X, y, 6.0), (X, y), nonmembers=draw(180, 2), **options)
    assert_verified(leak, but={"curve"})
    assert_verified(audit_members_only(memoriser(X, y, 0.0), (X, y), **{**options, "references": 0}))


@pytest.mark.parametrize("both", [True, False], ids=["both worlds", "one world"])
def test_gradients(both):
    torch = pytest.importorskip("torch", reason="trainings need torch: dosimeter[torch]")
    from dosimeter.audits.gradients import audit_gradients
    from dosimeter.training import Privacy, Recipe

    def net():
        return torch.nn.Linear(4, 2)

    x = RNG.normal(size=(40, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    recipe = Recipe(steps=4, batch_size=None, learning_rate=0.2, dp=Privacy(0.0, clip=0.7))
    audit = audit_gradients(
        net,
        (x[:20], y[:20]),
        recipe=recipe,
        universe=(x[20:], y[20:]),
        distance="euclidean",
        repetitions=24,
        belief=0.9,
        both_worlds=both,
        engine="inline",
        progress=False,
    )
    assert_verified(audit)


# --- estimates on their own -------------------------------------------------------------------------------


COINS = fair_coins(200, seed=4)
RUN = OneRun(np.random.default_rng(2).normal(2.0 * COINS, 1), COINS)
SINGLE = {
    "walk": lambda: ranked(RUN, delta=1e-4),
    "walk, out": lambda: ranked(RUN, order="out"),
    "one-run, walk": lambda: one_run(RUN, guesses="ranked"),
    "one-run, in alone": lambda: one_run(RUN, delta=1e-3, guesses=(40, 0)),
    "betting": lambda: one_run(RUN, delta=1e-3, method="betting"),
    "claim": lambda: claim(RUN, epsilon=0.5, delta=1e-3, profile=[(1.0, 1e-4)]),
    "panoramia, walk": lambda: panoramia(baseline=None, attack=RUN),
    "panoramia, naive": lambda: panoramia(baseline=None, attack=RUN, guesses="naive"),
    "panoramia, fixed": lambda: panoramia(baseline=RUN, attack=RUN, guesses=50),
}


@pytest.mark.parametrize("make", SINGLE.values(), ids=SINGLE)
def test_an_estimate_alone(make):
    audit = audit_scores(LEAKY)
    extended = replace(audit, estimates=(audit.headline, make()))
    assert verify(read_back(extended)).findings[1].standing is Standing.FOLLOWS
    low = extended.estimates[1]
    moved = replace(low, epsilon=low.epsilon + 0.1, low=low.low + 0.1 * (low.low == low.epsilon), claim="ε ≥ 0.05")
    with pytest.raises(InputError):  # its own sentence contradicts it
        read_back(replace(audit, estimates=(audit.headline, moved)))


# --- what was changed -------------------------------------------------------------------------------------


def edited(audit: Audit, edit) -> str:
    values = json.loads(audit.to_json())
    edit(values)
    return json.dumps(values)


def lowered(values):
    """Every place of the headline that says its number, changed together."""
    head = values["estimates"][0]
    text = f"{head['low']:.4g}"
    head.update(low=0.5, epsilon=0.5, claim=head["claim"].replace(f"= {text}", "= 0.5").replace(f"≤ {text}", "≤ 0.5"))


FORGED = {
    "the number": lowered,
    "the δ": lambda v: v["estimates"][0].update(
        delta=0.01, claim=v["estimates"][0]["claim"].replace("δ = 1e-05", "δ = 0.01")
    ),
    "the confidence": lambda v: v["estimates"][0].update(
        confidence=0.999, claim=v["estimates"][0]["claim"].replace("95 %", "99.9 %")
    ),
    "the game": lambda v: v["estimates"][0]["details"].update(game="runs"),
    "the neighbours": lambda v: v["estimates"][0].update(neighbours="add/remove"),
    "the validity": lambda v: v["estimates"][0].update(validity=str(Validity.EXPLORATORY)),
    "the ceiling": lambda v: v["estimates"][0]["details"].update(largest_provable=99.0),
    "the bins": lambda v: v["estimates"][0]["details"]["bins"]["members"].reverse(),
    "fewer bins": lambda v: v["estimates"][0]["details"].update(bins={"records": [60, 90], "members": [10, 70]}),
    "no bins": lambda v: v["estimates"][0]["details"].pop("bins"),
    "text for bins": lambda v: v["estimates"][0]["details"].update(bins="none"),
    "counts of another estimate": lambda v: next(e for e in v["estimates"] if e["counts"])["counts"].update(fp=60),
    "the band of the curve": lambda v: v["curve"].update(tpr_low=[1.0] * len(v["curve"]["tpr_low"])),
}


@pytest.mark.parametrize("edit", FORGED.values(), ids=FORGED)
def test_a_changed_file_is_not_valid(edit):
    text = edited(audit_scores(LEAKY), edit)
    try:
        found = verify(Audit.from_json(text))
    except InputError:
        return
    assert found.headline.standing is not Standing.FOLLOWS or not found.valid


def test_one_bin_is_no_hiding_place():
    """All scores in one bin prove nothing, but then the curve must not have thresholds inside it."""
    text = edited(
        audit_scores(LEAKY), lambda v: v["estimates"][0]["details"].update(bins={"records": [150], "members": [80]})
    )
    assert "not divided" in next(f for f in verify(Audit.from_json(text)).findings if f.subject == "curve").reason


def test_many_records_are_refused_before_they_take_time():
    huge = {"records": [5 * 10**8] * 2, "members": [10**8, 4 * 10**8]}
    text = edited(audit_scores(LEAKY), lambda v: v["estimates"][0]["details"].update(bins=huge))
    start = time.perf_counter()
    assert verify(Audit.from_json(text)).headline.standing is not Standing.FOLLOWS
    assert time.perf_counter() - start < 5


# --- the data ---------------------------------------------------------------------------------------------


def test_the_data_give_the_evidence_again():
    losses = Scores.from_losses(RNG.exponential(0.3, 90), RNG.exponential(1, 90))
    for scores in (LEAKY, losses):
        audit = read_back(audit_scores(scores, resamples=10))
        found = verify(audit, data=scores)
        assert found.valid and sum(f.subject.startswith("data: ") for f in found.findings) >= 6
        other = Scores(scores.members + 1.0 * (np.arange(scores.members.size) == 0) * 9, scores.nonmembers)
        assert not verify(audit, data=other).valid
    with pytest.raises(InputError, match="data must be Scores or OneRun"):
        verify(audit, data=[1, 2])
    with pytest.raises(InputError, match="audit must be an Audit"):
        verify(audit.to_dict())


def test_coins_and_scores_of_one_run():
    data = np.zeros((200, 1)), np.zeros(200)
    audit = read_back(audit_one_run(laplace(3.0, 200), data, signal=as_they_are, seed=5, **HERE))
    assert verify(audit).of("coins").standing is Standing.FOLLOWS
    coins = fair_coins(audit.metadata["count"], audit.metadata["seeds"]["coins"])
    wrong = verify(audit, data=OneRun(np.arange(coins.size, dtype=float), coins))
    assert wrong.of("data: coins").standing is Standing.FOLLOWS and not wrong.valid
    with pytest.raises(InputError, match="failed trainings"):
        read_back(replace(audit, metadata=replace(audit.metadata, failed=(FailedTraining("run", 0, 1, "no luck"),))))


def test_files_of_schema_1_are_read_and_not_verified():
    def older(values):
        values["schema"] = 1
        for estimate in values["estimates"]:
            del estimate["neighbours"]
        del values["estimates"][0]["details"]["bins"]

    audit = Audit.from_json(edited(audit_scores(LEAKY), older))
    assert audit.headline.neighbours is None and audit.schema == 1
    found = verify(audit)
    assert found.headline.standing is Standing.UNKNOWN and found.valid and found.most is None


def test_the_ceiling_is_recomputed():
    perfect = Scores(np.arange(100.0, 120), np.arange(20.0))
    audit = audit_scores(perfect)
    found = verify(audit)
    assert found.most == audit.headline.details["largest_provable"] == pytest.approx(3.85, abs=0.2) and found.auc == 1.0
    assert 0.95 * found.most <= audit.headline.low <= found.most
    assert "close to the most that an audit of so many records can prove" in audit.headline.claim
    assert math.isfinite(found.most)


def of_version_1(low: float | None = None, **details: object) -> Audit:
    """An audit as an earlier version of the headline wrote it: without its version."""
    values = json.loads(audit_scores(LEAKY, resamples=0).to_json())
    for estimate in values["estimates"][: 1 if low is None else None]:
        if estimate["method"] == "lower-bound":
            del estimate["details"]["version"]
            estimate["details"].update(details)
            if low is not None:
                old = f"{estimate['low']:.4g}"
                estimate.update(epsilon=low, low=low, claim=estimate["claim"].replace(old, f"{low:.4g}"))
    if low is not None:
        values.update(region=None, risk={"words": []})
    return Audit.from_json(json.dumps(values))


@pytest.mark.parametrize("low", [0.25, 9.0])
def test_another_number_of_an_earlier_version_is_neither_wrong_nor_let_through(low):
    audit = of_version_1(low)
    found = verify(audit)
    assert found.valid, [str(f) for f in found.contradictions]
    assert found.headline.standing is Standing.UNKNOWN
    reason = f"version 1 of the headline, which is not recomputable here; version {VERSION} gives"
    assert reason in found.headline.reason
    verdicts = gate(audit, max_epsilon=20)
    assert [v.rule for v in verdicts if v.outcome is Outcome.FAIL] == ["verified"]
    assert not passed(verdicts)


def test_the_same_number_of_an_earlier_version_follows_whatever_its_test_was():
    found = verify(of_version_1(learned=3, largest_provable=7.5)).headline
    assert found.standing is Standing.FOLLOWS
    assert found.most is not None and abs(found.most - 7.5) > 0.1


def test_an_earlier_version_excuses_no_other_validity_or_neighbours():
    values = json.loads(of_version_1(0.25).to_json())
    values["estimates"][0]["validity"] = "finite-sample"
    assert "validity" in verify(Audit.from_json(json.dumps(values))).headline.reason
    assert not verify(Audit.from_json(json.dumps(values))).valid
