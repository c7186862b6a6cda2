"""Laws that every estimator keeps. A public estimator that is not registered here fails a test."""

import inspect
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter.estimate import Estimate, Validity
from dosimeter.estimators.ranked import ORDERS
from dosimeter.estimators.with_assumptions import bayesian

pytestmark = pytest.mark.slow

CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
DELTAS = (0.0, 1e-12, 1e-6, 1e-4, 0.01, 0.1, 0.4)


@dataclass(frozen=True)
class Entry:
    """An estimator as `call(evidence, at, **options)`; `at` is a threshold that was fixed in advance."""

    name: str
    kind: str  # the evidence: "scores" (one model), "tries" (independent), "runs" (OneRun) or "losses" (of one model)
    call: Callable[..., Estimate]
    ranks_only: bool = True  # an increasing transform of the scores changes nothing
    any_order: bool = True  # the order of the records changes nothing
    falls_with_delta: bool = True
    falls_with_confidence: bool = True
    tie_free: bool = False  # ties are broken at random by position
    posterior: bool = False  # a posterior quantile: above 0 without any leak
    zero_delta: bool = True
    separable: bool = True  # has something to say about a perfect attack
    draws: bool = True  # takes a seed
    passes_on: bool = True  # the adapter here hands the evidence over as it is
    takes: tuple[str, ...] = ("delta", "confidence")


def rates(function, name, *, band=True, **flags):
    """An estimator of rates under each threshold rule."""
    # the pilot's choice moves, and the data decide the halves
    moves = {"falls_with_delta": False, "falls_with_confidence": False, "ranks_only": False}
    rules: dict[str, tuple[Callable[[float], dict[str, Any]], dict[str, Any]]] = {
        "split": (lambda at: {"threshold": "split"}, moves),
        "naive": (lambda at: {"threshold": "naive"}, {}),
        "fixed": (lambda at: {"threshold": at}, {}),
        "fpr": (lambda at: {"fpr": 0.1}, {}),
    }
    if band:
        rules["uniform"] = (lambda at: {"threshold": "uniform"}, {})
    rules["default"] = (lambda at: {}, {} if band else moves)
    return {
        f"{name}, {rule}": Entry(
            name, "tries", lambda e, at, _o=options, **k: function(e, **_o(at), **k), **(flags | changes)
        )
        for rule, (options, changes) in rules.items()
    }


def _with_chances(run):
    """Coins as labels with chances of one half, the scores around their median."""
    return dm.PropensityRun(run.scores - np.median(run.scores), run.included, np.full(run.total, 0.5))


REGISTRY: dict[str, Entry] = {
    **{
        f"lower_bound, {kind}": Entry(
            "lower_bound",
            kind,
            lambda e, at, **k: dm.lower_bound(e, **_without_seed(k)),
            falls_with_delta=False,  # what is revealed and tested depends on what can be expected
            falls_with_confidence=False,
            draws=False,
        )
        for kind in ("scores", "tries", "runs")
    },
    "lower_bound, add/remove": Entry(
        "lower_bound",
        "scores",
        lambda e, at, **k: dm.lower_bound(e, neighbours="add/remove", **_without_seed(k)),
        falls_with_delta=False,
        falls_with_confidence=False,
        draws=False,
    ),
    **{
        f"ranked, {order}": Entry(
            # a larger δ may move the allowance by one guess and free level for the rest
            "ranked",
            "runs",
            lambda e, at, _o=order, **k: dm.ranked(e, order=_o, **_without_seed(k)),
            falls_with_delta=False,
            draws=False,
        )
        for order in ORDERS
    },
    **rates(dm.clopper_pearson, "clopper_pearson"),
    **rates(dm.jeffreys, "jeffreys", band=False),
    **rates(bayesian, "bayesian", band=False, posterior=True),
    **rates(dm.gaussian, "gaussian", zero_delta=False),
    **rates(dm.advantage, "advantage"),
    "one_run, learned": Entry(
        "one_run",
        "runs",
        lambda e, at, **k: dm.one_run(e, **_without_seed(k)),
        falls_with_delta=False,
        falls_with_confidence=False,
        draws=False,
    ),
    "one_run, ranked": Entry(
        "one_run",
        "runs",
        lambda e, at, **k: dm.one_run(e, guesses="ranked", **_without_seed(k)),
        falls_with_delta=False,
        draws=False,
    ),
    **{
        f"one_run, {guesses}, {term}": Entry(
            "one_run",
            "runs",
            lambda e, at, _g=guesses, _t=term, **k: dm.one_run(e, guesses=_few(_g, e), term=_t, **_without_seed(k)),
            draws=False,
            passes_on=False,
        )
        for guesses in (40, (20, 0), (0, 20), (20, 20))
        for term in ("smaller", "steinke", "coupling")
    },
    "one_run, betting": Entry(
        "one_run",
        "runs",
        lambda e, at, **k: dm.one_run(e, method="betting", **_without_seed(k)),
        draws=False,
        falls_with_delta=False,
    ),
    "one_run, f-dp": Entry(
        "one_run",
        "runs",
        lambda e, at, **k: dm.one_run(e, method="f-dp", guesses=_few(40, e), **_without_seed(k)),
        draws=False,
        passes_on=False,
        zero_delta=False,
    ),
    "panoramia, real non-members": Entry(
        "panoramia", "runs", lambda e, at, **k: dm.panoramia(baseline=None, attack=e, **k), takes=("confidence",)
    ),
    "panoramia, fixed": Entry(
        "panoramia",
        "runs",
        lambda e, at, **k: dm.panoramia(baseline=None, attack=e, guesses=_few(40, e), **k),
        tie_free=True,
        passes_on=False,
        takes=("confidence",),
    ),
    "panoramia": Entry(
        "panoramia",
        "runs",
        lambda e, at, **k: dm.panoramia(baseline=_blind(e), attack=e, resamples=20, **k),
        any_order=False,  # the baseline is drawn by position
        passes_on=False,
        falls_with_confidence=False,  # a difference of two bounds
        takes=("confidence",),
    ),
    "propensity_bound": Entry(
        "propensity_bound",
        "runs",
        lambda e, at, **k: dm.propensity_bound(_with_chances(e), **_without_seed(k)),
        passes_on=False,
        ranks_only=False,  # the sizes of scores around 0 are the confidence
        falls_with_delta=False,  # the allowance is a whole number of guesses
        draws=False,
    ),
    "claim": Entry(
        "claim",
        "runs",
        lambda e, at, **k: dm.claim(e, epsilon=0.5, **({"delta": 0.0} | _without_seed(k))),
        ranks_only=False,  # its events are interpolated quantiles
        any_order=False,  # the earliest run comes first
        falls_with_delta=False,  # looked at at the marked runs only
    ),
    "epsilon_star, parametric": Entry(
        "epsilon_star",
        "losses",
        lambda e, at, **k: dm.epsilon_star(-e.members, -e.nonmembers, resamples=20, fewest=2, **k),
        ranks_only=False,
        any_order=False,  # sums are rounded in another order
        passes_on=False,
        zero_delta=False,
    ),
    "epsilon_star, empirical": Entry(
        "epsilon_star",
        "losses",
        lambda e, at, **k: dm.epsilon_star(-e.members, -e.nonmembers, form="empirical", resamples=20, fewest=2, **k),
        falls_with_delta=False,  # its interval is reflected about the value
        separable=False,  # no threshold is left inside its limits
        passes_on=False,
    ),
    "epsilon_star_mechanism": Entry(
        "epsilon_star_mechanism",
        "losses",
        lambda e, at, **k: dm.epsilon_star_mechanism(
            [(-e.members, -e.nonmembers)], **({"delta": 0.0} | _only_delta(k))
        ),
        passes_on=False,
        takes=("delta",),
    ),
}


def _few(guesses, evidence):
    """The same guesses about fewer records, where there are fewer."""
    if isinstance(guesses, tuple):
        return guesses if sum(guesses) <= evidence.total else (1, 0)
    return min(guesses, evidence.total)


def _blind(evidence):
    return dm.OneRun(np.random.default_rng(0).normal(size=evidence.total), evidence.included)


def _without_seed(options):
    return {k: v for k, v in options.items() if k != "seed"}


def _only_delta(options):
    return {k: v for k, v in options.items() if k == "delta"}


def options_of(entry, **options):
    """Options that the estimator takes; a δ above 0 where it must be."""
    if not entry.zero_delta and "delta" in entry.takes:
        options = {"delta": 1e-5} | {k: v for k, v in options.items() if (k, v) != ("delta", 0.0)}
    return {k: v for k, v in options.items() if k in (*entry.takes, "seed")}


def build(entry, members, nonmembers, shuffle=0):
    """The evidence an entry takes, from two samples."""
    if entry.kind != "runs":
        return dm.Scores(members, nonmembers, independent=entry.kind == "tries")
    scores = np.concatenate([members, nonmembers])
    included = np.arange(scores.size) < len(members)
    order = np.random.default_rng(shuffle).permutation(scores.size)
    return dm.OneRun(scores[order], included[order])


def sample(entry, seed=0, members=70, nonmembers=61, shift=60.0):
    """Whole-numbered scores, with ties unless the entry breaks them by position."""
    rng = np.random.default_rng([9, seed])
    values = np.round(rng.normal(size=members + nonmembers) * 80)
    values[:members] += shift
    if entry.tie_free:
        values = values + np.linspace(0, 0.5, values.size)[rng.permutation(values.size)]
    return values[:members], values[members:]


def numbers(estimate):
    return estimate.epsilon, estimate.low, estimate.high, estimate.counts, estimate.validity


every = pytest.mark.parametrize("entry", REGISTRY.values(), ids=REGISTRY)


def those(*flags, takes=()):
    """The estimators that are all of `flags` ("-flag": are not) and take all of `takes`."""
    chosen = {
        name: entry
        for name, entry in REGISTRY.items()
        if all(getattr(entry, flag.lstrip("-")) != flag.startswith("-") for flag in flags)
        and set(takes) <= set(entry.takes)
    }
    return pytest.mark.parametrize("entry", chosen.values(), ids=chosen)


def test_every_public_estimator_is_registered():
    public = {
        name
        for name in dm.__all__
        if inspect.isfunction(getattr(dm, name))
        and "Estimate" in str(inspect.signature(getattr(dm, name)).return_annotation)
    }
    assert public <= {entry.name for entry in REGISTRY.values()}
    assert {"lower_bound", "ranked", "bayesian", "one_run"} <= {entry.name for entry in REGISTRY.values()}


@those("-posterior")  # a posterior quantile is above 0 whatever the data
def test_constant_scores_show_nothing(entry):
    for value in (0.0, -3.5, 1e300):
        evidence = build(entry, np.full(70, value), np.full(61, value))
        estimate = entry.call(evidence, value, **options_of(entry))
        assert estimate.low == 0 if estimate.validity.is_bound else estimate.low < 1e-12


@every
class TestEstimate:
    @pytest.mark.parametrize("shift", [0.0, 60.0, 400.0])
    def test_is_a_number_with_a_claim(self, entry, shift):
        estimate = entry.call(build(entry, *sample(entry, shift=shift)), 30.0, **options_of(entry))
        assert math.isfinite(estimate.low)
        assert 0 <= estimate.low <= estimate.high
        assert estimate.low <= estimate.epsilon <= estimate.high
        assert isinstance(estimate.validity, Validity)
        assert estimate.claim.endswith(".")
        assert estimate.claim[0].isupper()
        assert "nan" not in estimate.claim.lower()
        assert str(estimate) == estimate.claim
        assert estimate.method

    def test_json_there_and_back(self, entry):
        estimate = entry.call(build(entry, *sample(entry)), 30.0, **options_of(entry, delta=1e-3))
        text = json.dumps(estimate.to_dict(), allow_nan=False)
        again = Estimate.from_dict(json.loads(text))
        assert again.to_dict() == estimate.to_dict()
        assert numbers(again) == numbers(estimate)

    def test_the_same_seed_the_same_number(self, entry):
        evidence = build(entry, *sample(entry))
        options = options_of(entry, seed=5)
        assert entry.call(evidence, 30.0, **options).to_dict() == entry.call(evidence, 30.0, **options).to_dict()

    def test_says_what_it_was_asked_for(self, entry):
        options = options_of(entry, delta=1e-3, confidence=0.9)
        estimate = entry.call(build(entry, *sample(entry)), 30.0, **options)
        for name, value in options.items():
            assert getattr(estimate, name) == value

    def test_one_record_of_each_kind(self, entry):
        for members, nonmembers in (([1.0], [0.0]), ([0.0], [1.0]), ([0.0], [0.0])):
            try:
                estimate = entry.call(build(entry, members, nonmembers), 0.5, **options_of(entry))
            except dm.InputError as error:
                assert "2" in str(error) or "3" in str(error)  # it says how many it needs
                continue
            if estimate.validity.is_bound:
                assert estimate.low == 0

    def test_a_perfect_attack_shows_something_but_no_more_than_can_be(self, entry):
        shown = []
        for n in (100, 1000):
            evidence = build(entry, np.arange(n) + 2.0 * n, np.arange(n) * 1.0)
            estimate = entry.call(evidence, 1.5 * n, **options_of(entry))
            shown.append(estimate.low if estimate.validity is not Validity.MEASUREMENT else estimate.epsilon)
            largest = estimate.details.get("largest_provable")
            if largest is not None:
                assert estimate.low <= largest * (1 + 1e-12)
            if estimate.validity.is_bound:
                assert estimate.low < math.log(2 * n) * (2 if estimate.neighbours == "replace" else 1)
        if entry.separable:
            assert min(shown) > 0


@those("ranks_only")
class TestRanksOnly:
    @pytest.mark.parametrize(
        "transform", [lambda x: x**3, lambda x: 1024 * x - 7, np.arctan], ids=["cube", "line", "arctan"]
    )
    def test_an_increasing_transform_changes_nothing(self, entry, transform):
        members, nonmembers = sample(entry)
        if transform is np.arctan:  # exact for ranks that stay apart
            members, nonmembers = members / 100, nonmembers / 100
        at = 0.3 if transform is np.arctan else 30.0
        before = entry.call(build(entry, members, nonmembers), at, **options_of(entry))
        after = entry.call(
            build(entry, transform(members), transform(nonmembers)), float(transform(at)), **options_of(entry)
        )
        assert numbers(after) == numbers(before)

    @settings(max_examples=15, deadline=None)
    @given(
        st.lists(st.integers(-20, 20), min_size=4, max_size=40, unique=True),
        st.lists(st.integers(1, 10**6), min_size=41, max_size=41, unique=True),
        st.data(),
    )
    def test_any_increasing_map_of_whole_numbers(self, entry, values, images, data):
        cut = data.draw(st.integers(2, len(values) - 2))
        table = dict(zip(range(-20, 21), sorted(images), strict=True))
        first = np.array(values, float)
        second = np.array([table[v] for v in values], float)
        options = options_of(entry, delta=1e-3)
        before = entry.call(build(entry, first[:cut], first[cut:]), 0.0, **options)
        after = entry.call(build(entry, second[:cut], second[cut:]), float(table[0]), **options)
        assert numbers(after) == numbers(before)


@those("any_order")
def test_the_order_of_the_records_changes_nothing(entry):
    members, nonmembers = sample(entry)
    rng = np.random.default_rng(1)
    first = entry.call(build(entry, members, nonmembers), 30.0, **options_of(entry, delta=1e-3))
    second = entry.call(
        build(entry, rng.permutation(members), rng.permutation(nonmembers), shuffle=7),
        30.0,
        **options_of(entry, delta=1e-3),
    )
    assert numbers(first) == numbers(second)


@those("falls_with_confidence")
@pytest.mark.parametrize("seed", range(3))
def test_more_confidence_never_a_larger_bound(entry, seed):
    evidence = build(entry, *sample(entry, seed, shift=100.0))
    lows = [entry.call(evidence, 30.0, **options_of(entry, confidence=c)).low for c in CONFIDENCES]
    assert "confidence" not in entry.takes or lows[0] > 0
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(lows)), lows


@those("falls_with_delta", takes=["delta"])
@pytest.mark.parametrize("seed", range(3))
def test_a_larger_delta_never_a_larger_bound(entry, seed):
    evidence = build(entry, *sample(entry, seed, shift=100.0))
    deltas = DELTAS if entry.zero_delta else DELTAS[1:]
    lows = [entry.call(evidence, 30.0, **options_of(entry, delta=d)).low for d in deltas]
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(lows)), lows


@those("-posterior", takes=["delta"])
def test_a_large_delta_pays_for_everything(entry):
    evidence = build(entry, *sample(entry, shift=20.0))
    estimate = entry.call(evidence, 30.0, **options_of(entry, delta=0.999))
    assert estimate.low == 0


BAD = {"delta": [-0.1, 1.0, math.nan, "1e-5"], "confidence": [0.0, 1.0, 95, None]}


@pytest.mark.parametrize(
    ("entry", "bad"),
    [
        pytest.param(entry, {name: value}, id=f"{key}-{name}-{value}")
        for key, entry in REGISTRY.items()
        for name, values in BAD.items()
        for value in values
        if name in entry.takes
    ],
)
def test_refuses_alike(entry, bad):
    (name,) = bad
    evidence = build(entry, *sample(entry))
    with pytest.raises(dm.InputError, match=rf"^{name} must be"):
        entry.call(evidence, 30.0, **(options_of(entry) | bad))


@those("passes_on")
@pytest.mark.parametrize("evidence", [None, [1, 2, 3], np.zeros(3), "scores", 3.0], ids=lambda e: type(e).__name__)
def test_refuses_other_evidence(entry, evidence):
    with pytest.raises(dm.InputError, match=r"must be"):
        entry.call(evidence, 30.0, **options_of(entry))
