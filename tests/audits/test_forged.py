"""A hostile auditor: files made from an audit with a true ε above 5, changed so as to pass a limit of 1.

Each forgery keeps as much of the file consistent as somebody with this package at hand could: numbers are computed
again, claims rewritten, other parts adapted. What no gate can find is a file whose whole evidence was invented; see
`dosimeter.audits.sign`.
"""

import copy
import json

import numpy as np
import pytest
from members_games import draw, memoriser, sampler
from training_games import HERE, as_they_are, laplace, simulated

from dosimeter import InputError, Scores
from dosimeter.audits.gate import Outcome, gate, passed
from dosimeter.audits.members_only import audit_members_only
from dosimeter.audits.model import audit_model
from dosimeter.audits.one_run import audit_one_run
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.shift.guard import Guard
from dosimeter.estimators.headline import Bins
from dosimeter.estimators.lower_bound import bound_of_bins

pytestmark = pytest.mark.once  # numbers from a file; other tests verify audits in every environment

RNG = np.random.default_rng(0)
SIZE = 100


@pytest.fixture(scope="module")
def leaky() -> dict:
    audit = audit_scores(Scores(RNG.normal(4, 1, SIZE), RNG.normal(0, 1, SIZE)), resamples=0)
    assert audit.headline.low > 5
    return json.loads(audit.to_json())


@pytest.fixture(scope="module")
def weak() -> dict:
    """An audit of as many records that found nothing."""
    audit = audit_scores(Scores(RNG.normal(0, 1, SIZE), RNG.normal(0, 1, SIZE)), resamples=0)
    assert audit.headline.low < 1
    return json.loads(audit.to_json())


def passes(values: dict | str, **options) -> bool:
    """Whether the gate lets a file through; a refusal must be one sentence."""
    text = values if isinstance(values, str) else json.dumps(values, ensure_ascii=False)
    try:
        return passed(gate(Audit.from_json(text), **{"max_epsilon": 1, **options}))
    except InputError as error:
        assert 0 < len(str(error)) <= 600 and "\n" not in str(error)
        return False


def again(estimate: dict, **changes) -> dict:
    """A lower bound computed again from its bins under other terms, with all that it says of itself."""
    details = estimate["details"]
    terms = {
        "game": details["game"],
        "neighbours": estimate["neighbours"],
        "delta": estimate["delta"],
        "confidence": estimate["confidence"],
        **changes,
    }
    bins = changes.pop("bins", None) or details["bins"]
    terms.pop("bins", None)
    counts = Bins(*(np.array(bins[name], np.int64) for name in ("records", "members")))
    game, neighbours = terms.pop("game"), terms.pop("neighbours")
    return json.loads(json.dumps(bound_of_bins(counts, game, neighbours, **terms).to_dict()))


def restated(values: dict, **changes) -> dict:
    """Every lower bound of a file under other terms, and the metadata with them."""
    for index, estimate in enumerate(values["estimates"]):
        if estimate["method"] == "lower-bound":
            values["estimates"][index] = again(estimate, **changes)
        elif {"delta", "confidence"} & set(changes):
            estimate["confidence"] = 0.0  # "it has no confidence level": nothing to recompute
    values["metadata"].update({k: v for k, v in changes.items() if k in ("delta", "confidence", "game")})
    return values


def head(values: dict) -> dict:
    return values["estimates"][0]


def said(estimate: dict, epsilon: float) -> None:
    """Another number, in the fields and in the sentence."""
    old = f"{estimate['low']:.4g}"
    estimate.update(epsilon=epsilon, low=epsilon, claim=estimate["claim"].replace(old, f"{epsilon:.4g}"))


# --- the numbers ------------------------------------------------------------------------------------------


def number(values, weak):
    said(head(values), 0.5)


def number_of_every_bound(values, weak):
    for estimate in values["estimates"]:
        if estimate["low"]:
            said(estimate, 0.5)


def number_and_summary(values, weak):
    said(head(values), 0.5)
    head(values)["details"].update(tested=head(weak)["details"]["tested"], learned=head(weak)["details"]["learned"])


def without_a_sentence(values, weak):
    head(values).update(epsilon=0.5, low=0.5, claim="All is well.")


def nearly_no_claim(values, weak):
    head(values).update(epsilon=0.5, low=0.5, claim="With 95 % confidence ε ≥ 0.5 at δ = 1e-05; ε = 5 is not shown.")


def no_confidence(values, weak):
    head(values).update(confidence=0.0, epsilon=0.5, low=0.5)


def much_confidence(values, weak):
    restated(values, confidence=1 - 1e-12)


def enough_confidence(values, weak):
    """The confidence at which the bound just falls below the limit."""
    low, high = 0.95, 1 - 1e-15
    for _ in range(60):
        middle = 1 - np.sqrt((1 - low) * (1 - high))
        low, high = (low, middle) if again(head(values), confidence=middle)["low"] < 1 else (middle, high)
    restated(values, confidence=float(high))


def large_delta(values, weak):
    restated(values, delta=0.9)


def larger_delta_in_the_headline(values, weak):
    values["estimates"][0] = again(head(values), delta=0.97)


def coins(values, weak):
    restated(values, game="coins", neighbours="add/remove")


def runs(values, weak):
    restated(values, game="runs", neighbours="add/remove")


def measurement(values, weak):
    head(values).update(validity="measurement", epsilon=0.0, low=0.0)


def infinite(values, weak):
    head(values).update(epsilon=0.0, low=None)


def high_below_low(values, weak):
    head(values).update(high=0.5)


# --- the evidence -----------------------------------------------------------------------------------------


def one_bin(values, weak):
    total = {"records": [2 * SIZE], "members": [SIZE]}
    for index, estimate in enumerate(values["estimates"]):
        if estimate["method"] == "lower-bound":
            values["estimates"][index] = again(estimate, bins=total)


def one_bin_and_curve(values, weak):
    one_bin(values, weak)
    values["curve"].update(auc=0.5, threshold=[0.0], fpr=[1.0], tpr=[1.0], fpr_high=[1.0], tpr_low=[0.0])
    for point in values["curve"]["tpr_at_fpr"]:
        point.update(tpr=0.0, tpr_low=0.0, threshold=None, limit_threshold=None)


def one_bin_alone(values, weak):
    """Nothing is left that contradicts it: all scores are equal, and that is undecided."""
    one_bin_and_curve(values, weak)
    values["estimates"] = values["estimates"][:2]


def one_bin_no_curve(values, weak):
    one_bin(values, weak)
    values.update(curve=None, estimates=values["estimates"][:2])


def no_curve(values, weak):
    values["estimates"][:2] = weak["estimates"][:2]
    values["curve"] = None


def reversed_bins(values, weak):
    for index, estimate in enumerate(values["estimates"][:2]):
        bins = {name: column[::-1] for name, column in estimate["details"]["bins"].items()}
        values["estimates"][index] = again(estimate, bins=bins)


def shuffled_bins(values, weak):
    members = head(values)["details"]["bins"]["members"]
    mixed = np.random.default_rng(1).permutation(members).tolist()
    bins = {"records": head(values)["details"]["bins"]["records"], "members": mixed}
    for index, estimate in enumerate(values["estimates"][:2]):
        values["estimates"][index] = again(estimate, bins=bins)


def huge_bins(values, weak):
    said(head(values), 0.5)
    head(values)["details"].update(bins={"records": [10**9] * 2, "members": [10**8] * 2})


def no_bins(values, weak):
    said(head(values), 0.5)
    del head(values)["details"]["bins"]


def paths_for_bins(values, weak):
    """Another kind of evidence than the method's."""
    said(head(values), 0.0)
    del head(values)["details"]["bins"]
    head(values)["details"].update(paths={"in": [0]}, records=2 * SIZE)
    head(values).update(validity="finite-sample", neighbours="add/remove")


def headline_of_another_audit(values, weak):
    values["estimates"][0] = head(weak)


def bounds_of_another_audit(values, weak):
    values["estimates"][:2] = weak["estimates"][:2]


def bounds_and_curve_of_another_audit(values, weak):
    values["estimates"][:2] = weak["estimates"][:2]
    values["curve"] = weak["curve"]


def all_but_one_of_another_audit(values, weak):
    kept = next(e for e in values["estimates"] if e["method"] == "advantage")
    values["estimates"] = [e if e["method"] != "advantage" else kept for e in weak["estimates"]]
    values["curve"] = weak["curve"]


def smaller_audit(values, weak):
    """The bound of twelve records, which could not have shown more."""
    few = audit_scores(Scores(RNG.normal(0, 1, 6), RNG.normal(0, 1, 6)), resamples=0)
    values["estimates"][:2] = json.loads(few.to_json())["estimates"][:2]


def counts_of_the_metadata(values, weak):
    values["metadata"].update(members=5, nonmembers=5)
    said(head(values), 0.5)


# --- the order, the names, the kind -----------------------------------------------------------------------


def turned_order(values, weak):
    values["estimates"].reverse()


def other_neighbours_first(values, weak):
    values["estimates"][:2] = values["estimates"][1::-1]


def no_headline(values, weak):
    del values["estimates"][:2]


def weak_headline_before(values, weak):
    values["estimates"].insert(0, head(weak))


def weak_headline_of_other_neighbours_before(values, weak):
    values["estimates"].insert(0, again(head(weak), neighbours="add/remove"))


def renamed(name):
    def rename(values, weak):
        said(head(values), 0.5)
        head(values)["method"] = name

    rename.__name__ = f"method {name!r}"
    return rename


def of_kind(kind, first=None):
    def change(values, weak):
        values["metadata"]["kind"] = kind
        for name in ("game", "from_loss", "mask_hash", "outputs", "clipped", "accuracy", "fingerprint"):
            values["metadata"].pop(name, None)
        values["metadata"].pop("goodness_of_fit", None)
        if first is not None:
            values["estimates"][:2] = values["estimates"][1::-1]
            said(head(values), 0.5)
            head(values)["method"] = first
        else:
            values["estimates"][:2] = values["estimates"][1::-1]

    change.__name__ = f"kind {kind!r}, {first}"
    return change


def version_1(*, first=None, low=0.5):
    def downgrade(values, weak):
        values["schema"] = 1
        for estimate in values["estimates"]:
            del estimate["neighbours"]
        head(values)["details"] = {}
        if first is None:
            head(values).update(low=low, epsilon=low)
        else:
            values["estimates"] = [e for e in values["estimates"] if e["method"] == first]

    downgrade.__name__ = f"schema 1, {first}, {low}"
    return downgrade


def version_1_counts_of_another_audit(values, weak):
    values["schema"] = 1
    values["estimates"] = [e for e in weak["estimates"] if e["counts"]]
    for estimate in values["estimates"]:
        del estimate["neighbours"]


def relabelled(validity):
    def relabel(values, weak):
        said(head(values), 0.5)
        head(values)["validity"] = validity

    relabel.__name__ = f"validity {validity!r}"
    return relabel


# --- types and text ---------------------------------------------------------------------------------------


def of_version(version, low):
    """A number that another version of the headline is said to have given."""

    def change(values, weak):
        for estimate in values["estimates"]:
            if estimate["method"] == "lower-bound":
                estimate["details"]["version"] = version
                if version is None:
                    del estimate["details"]["version"]
                said(estimate, low)

    change.__name__ = f"version {version!r}, {low}"
    return change


def typed(field, value):
    def change(values, weak):
        head(values)[field] = value

    change.__name__ = f"{field} = {str(value)[:20]!r}"
    return change


def deep(values, weak):
    nested: dict = {}
    for _ in range(900):
        nested = {"a": nested}
    values["metadata"]["notes"] = nested
    said(head(values), 0.5)


def look_alike_keys(values, weak):
    head(values).update({"lоw": 0.0, "еpsilon": 0.0})


def look_alike_kind(values, weak):
    values["metadata"]["kind"] = "trаining"


def notes_named_like_fields(values, weak):
    values["metadata"]["notes"] = {"kind": "members-only", "confidence": 0.1, "trainings": None}
    said(head(values), 0.5)


FORGERIES = [
    number,
    number_of_every_bound,
    number_and_summary,
    without_a_sentence,
    nearly_no_claim,
    no_confidence,
    much_confidence,
    enough_confidence,
    large_delta,
    larger_delta_in_the_headline,
    coins,
    runs,
    measurement,
    infinite,
    high_below_low,
    one_bin,
    one_bin_and_curve,
    one_bin_alone,
    one_bin_no_curve,
    no_curve,
    reversed_bins,
    shuffled_bins,
    huge_bins,
    no_bins,
    paths_for_bins,
    headline_of_another_audit,
    bounds_of_another_audit,
    bounds_and_curve_of_another_audit,
    all_but_one_of_another_audit,
    smaller_audit,
    counts_of_the_metadata,
    turned_order,
    other_neighbours_first,
    no_headline,
    weak_headline_before,
    weak_headline_of_other_neighbours_before,
    *(
        renamed(name)
        for name in ("lower‑bound", "LOWER-BOUND", "lower-bound ", "ranked", "one-run", "claim", "beliefs", "panoramia")
    ),
    *(
        of_kind(kind, first)
        for kind, first in (
            ("training", None),
            ("training", "claim"),
            ("one-run", None),
            ("one-run", "one-run"),
            ("members-only", None),
            ("members-only", "panoramia"),
            ("gradients", None),
            ("gradients", "advantage, trajectory"),
        )
    ),
    version_1(),
    version_1(low=0.0),
    *(version_1(first=name) for name in ("advantage", "clopper-pearson", "bayesian", "gaussian")),
    version_1_counts_of_another_audit,
    *(of_version(version, 0.5) for version in (None, 1, 3, 10**5, -1, 0, "1", 1.5)),
    of_version(None, 0.0),
    *(relabelled(v) for v in ("measurement", "exploratory", "credible", "asymptotic", "instance metric")),
    *(typed("low", value) for value in ("0", True, -1, None, [], {}, 1e-300, "٠")),
    *(typed("delta", value) for value in (1.0, -1e-5, "1e-5", None, True)),
    *(typed("confidence", value) for value in (1.0, -0.1, "0.95", None, 1)),
    *(typed("neighbours", value) for value in ("all", "", None, "Replace", "zero-out")),
    deep,
    look_alike_keys,
    look_alike_kind,
    notes_named_like_fields,
]


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda f: f.__name__)
@pytest.mark.slow
def test_no_forgery_passes(leaky, weak, forge):
    values = copy.deepcopy(leaky)
    forge(values, copy.deepcopy(weak))
    for quiet in (False, True):
        if quiet:  # what follows from the bounds is left out, so that it contradicts nothing
            values.update(region=None, risk={"words": []})
        assert not passes(values)
        for neighbours in ("add/remove", "replace"):
            assert not passes(values, require_neighbours=neighbours)


TEXTS = {
    "NaN": ('"low": ', '"low": NaN, "x": '),
    "infinite": ('"epsilon": ', '"epsilon": -Infinity, "x": '),
    "too large": ('"epsilon": ', '"epsilon": 1e400, "x": '),
    "repeated": ('"low": ', '"low": 0, "low": '),
    "repeated by escape": ('"low": ', '"l\\u006fw": 0, "low": '),
    "repeated at the top": ('"estimates": [', '"estimates": [], "estimates": ['),
    "repeated at the end": ('"metadata": {', '"estimates": [], "metadata": {'),
    "two documents": ('{"schema"', '{"schema": 1} {"schema"'),
    "a comment": ('"low": ', '/* "low": 0, */ "low": '),
    "nested": ('"warnings": []', '"warnings": ' + "[" * 50_000 + "]" * 50_000),
    "a byte order mark": ('{"schema"', '\ufeff\ufeff{"schema"'),
    "digits of another script": ('"low": ', '"low": ٠, "x": '),
    "many digits": ('"low": ', '"low": ' + "0." + "0" * 5000 + '1, "x": '),
    "lone surrogate": ('"method": "lower-bound"', '"method": "lower-bound\\ud800"'),
}


@pytest.mark.parametrize("change", TEXTS.values(), ids=TEXTS)
def test_no_forged_text_passes(leaky, change):
    text = json.dumps(leaky, ensure_ascii=False)
    assert change[0] in text
    assert not passes(text.replace(*change, 1))


def test_the_bound_for_the_neighbours_asked_for_is_verified_too(leaky, weak):
    """A second bound that cannot be recomputed, or that is of another ranking, is no way around the first."""
    values = copy.deepcopy(leaky)
    second = again(values["estimates"][0], neighbours="add/remove")
    said(second, 0.25)
    second["details"]["bins"] = {"records": [10**9] * 2, "members": [10**8] * 2}
    values["estimates"].insert(1, second)
    assert not passes(values, require_neighbours="add/remove")
    values["estimates"][1] = again(weak["estimates"][0], neighbours="add/remove")
    assert not passes(values, require_neighbours="add/remove")
    audit = Audit.from_json(json.dumps(leaky))
    assert gate(audit, max_epsilon=1, require_neighbours="add/remove")[0].outcome is Outcome.FAIL


# --- a shift ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shifted() -> dict:
    X = RNG.normal(size=(160, 3))
    X[80:] += 1.0
    y = (X[:, 1] > 0.5).astype(int)

    def model(rows):
        return np.stack([rows[:, 1] - 0.5, np.zeros(len(rows))], axis=1)

    audit = audit_model(model, members=(X[:80], y[:80]), nonmembers=(X[80:], y[80:]), resamples=0)
    assert audit.guard.shift and audit.guard.evidence.p_value < audit.guard.evidence.level
    return json.loads(audit.to_json())


SHIFT = {
    "shift": {},
    "and a p-value": {"p_value": 1.0},
    "and both p-values": {"p_value": 1.0, "class_balance_p": 1.0},
    "and the level": {"level": 1e-300},
    "and the confidence": {"confidence": 0.999999999, "level": 5e-10},
    "no p-value": {"p_value": None, "class_balance_p": None},
    "no numbers": {"p_value": None, "class_balance_p": None, "auc": None, "candidates": None, "level": None},
    "text": {"p_value": "1"},
    "another key": {"p-value": 1.0},
}


@pytest.mark.parametrize("changes", SHIFT.values(), ids=SHIFT)
def test_no_forged_guard_passes(shifted, changes):
    """A shift that was found cannot be called none; only a check that never was leaves no trace, and that is said."""
    options = {"max_epsilon": 50, "allow_undecided": True}
    assert not passes(shifted, **options) and passes(shifted, **options, allow_shift=True)
    values = copy.deepcopy(shifted)
    guard = values["guard"]
    guard["evidence"].update(changes, reasons=[])
    guard.update(shift=False, checked=True)
    for verdict in ("No shift was found.", shifted["guard"]["verdict"], "Not checked: nobody looked."):
        guard["verdict"] = verdict
        assert not passes(values, **options)
    try:  # the sentence that belongs to the forged evidence
        guard["verdict"] = str(Guard(False, True, guard["evidence"]))
    except (TypeError, ValueError):
        return
    assert not passes(values, **options)


# --- the other kinds --------------------------------------------------------------------------------------


def test_forged_trainings(weak):
    audit = simulated(6.0, 1, shadows=16, runs=120)
    assert audit.headline.low > 2
    honest = json.loads(audit.to_json())
    assert not passes(honest, max_delta=1)

    def scores_kind(values):
        values["metadata"] = weak["metadata"]
        values["details"] = {}

    def weak_bins(values):
        game, neighbours = values["estimates"][0]["details"]["game"], values["estimates"][0]["neighbours"]
        values["estimates"][0] = again(head(weak), game=game, neighbours=neighbours)

    def other_seed(values):
        weak_bins(values)
        values["metadata"]["seeds"]["coins"] += 1

    def no_seed(values):
        weak_bins(values)
        values["metadata"]["seeds"] = None

    def other_game(values):
        weak_bins(values)
        values["metadata"]["game"] = "crossed"

    def failed(values):
        values["metadata"]["trainings"].update(done=0, failed=values["metadata"]["trainings"]["asked"])

    for forge in (scores_kind, weak_bins, other_seed, no_seed, other_game, failed, lambda v: said(head(v), 0.5)):
        values = copy.deepcopy(honest)
        forge(values)
        assert not passes(values, max_delta=1), forge


def test_forged_claims():
    audit = simulated(4.0, 1, shadows=16, runs=300, claim=(1.5, 0.0))
    assert audit.headline.low > 1 and audit.headline.details["rejected"]
    honest = json.loads(audit.to_json())
    assert not passes(honest)
    edits = {
        "kept": lambda d: d.update(rejected=False),
        "another claim": lambda d: d.update(claimed_epsilon=0.5),
        "another claim and pair": lambda d: d.update(claimed_epsilon=0.5, pairs=[[0.5, 0.0]]),
        "fewer runs": lambda d: d.update(runs=1),
        "no marks": lambda d: d.update(marks={"runs": [1], "counts": [[[[0], [0]], [[0], [0]]]]}),
        "ragged marks": lambda d: d["marks"]["counts"][0][0].pop(),
        "negative": lambda d: d["marks"]["counts"][0][0][0].__setitem__(0, -1),
    }
    for name, edit in edits.items():
        values = copy.deepcopy(honest)
        edit(head(values)["details"])
        assert not passes(values), name
        said(head(values), 0.5)
        assert not passes(values), name


def test_forged_one_runs(weak):
    data = np.zeros((300, 1)), np.zeros(300)
    audit = audit_one_run(laplace(8.0, 300), data, signal=as_they_are, **HERE)
    assert audit.headline.low > 1
    honest = json.loads(audit.to_json())
    assert not passes(honest)
    fixed = next(i for i, e in enumerate(honest["estimates"]) if e["details"].get("selection") == "fixed")

    def first(values):
        values["estimates"].insert(0, values["estimates"].pop(fixed))

    def few_guesses(values):
        first(values)
        head(values)["details"].update(k_in=1, k_out=0, correct=0)
        said(head(values), 0.0)

    def called_learned(values):
        few_guesses(values)
        head(values)["details"]["selection"] = "learned"

    def weak_bins(values):
        values["estimates"][0] = again(head(weak), game="coins", neighbours="add/remove")
        head(values)["method"] = "one-run"
        head(values)["details"]["selection"] = "learned"

    def weak_and_no_seed(values):
        weak_bins(values)
        values["metadata"]["seeds"] = None

    def no_such_seed(values):
        weak_bins(values)
        values["metadata"]["seeds"]["coins"] = -1

    def seed_of_none(values):
        weak_bins(values)
        values["metadata"]["seeds"]["coins"] = None

    for forge in (first, few_guesses, called_learned, weak_bins, weak_and_no_seed, no_such_seed, seed_of_none):
        values = copy.deepcopy(honest)
        forge(values)
        assert not passes(values), forge


@pytest.mark.once
def test_forged_members_only():
    X, y = draw(360, 1)
    options = {"generator": sampler, "references": 3, "repeats": 3, "confidence": 0.9}
    audit = audit_members_only(memoriser(X, y, 6.0), (X, y), nonmembers=draw(180, 2), **options)
    honest = json.loads(audit.to_json())
    assert not passes(honest)

    def does_not_stand_out(values):
        head(values)["details"]["stands_out"] = False
        head(values).update(epsilon=0.0)

    def no_verdict(values):
        does_not_stand_out(values)
        head(values)["details"].update(verdict=None, null_p_value=1.0)

    def weaker_attack(values):
        counts = head(values)["details"]["throw_counts"]
        counts["attack"] = counts["baseline"]
        head(values).update(epsilon=0.0)

    def other_target(values):
        head(values)["details"]["target"] = "nobody"
        head(values).update(epsilon=0.0)

    for forge in (does_not_stand_out, no_verdict, weaker_attack, other_target):
        values = copy.deepcopy(honest)
        forge(values)
        assert not passes(values), forge


def test_a_bound_beside_a_measurement_counts():
    """ε̃ is not a bound; one that stands beside it and proves more than the limit fails the gate."""
    X, y = draw(360, 1)
    options = {"generator": sampler, "references": 0, "repeats": 3, "confidence": 0.9}
    audit = audit_members_only(memoriser(X, y, 6.0), (X, y), nonmembers=draw(180, 2), **options)
    proven = max(e.low for e in audit.estimates if e.validity.is_bound)
    head = audit.headline
    assert not head.validity.is_bound and proven > 0
    verdict = gate(audit, max_epsilon=max(proven, head.epsilon) - 1e-3)[0]
    assert verdict.outcome is Outcome.FAIL
    assert ("proves" if proven > head.epsilon else "measures") in verdict.reason
