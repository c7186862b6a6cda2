"""One good call of every public function, and values that break calls."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np

import dosimeter as dm
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores

RNG = np.random.default_rng(0)
COINS = np.random.default_rng(1).random(60) < 0.5
SCORES = dm.Scores(RNG.normal(1, 1, 40), RNG.normal(0, 1, 30))
RUNS = dm.OneRun(RNG.normal(1.0 * COINS), COINS)
UNEQUAL = dm.PropensityRun(RNG.normal(2.0 * COINS - 1), COINS, np.where(COINS, 0.6, 0.45))
COUNTS = dm.Counts(tp=30, fn=10, fp=5, tn=25)
LOSSES = RNG.gamma(2, 5, 50), RNG.gamma(3, 5, 50)
LOWER = dm.clopper_pearson(COUNTS, delta=1e-5)
(UPPER,) = dm.account(noise_multiplier=1.0, delta=1e-5, methods=["gaussian"])


class Hostile:
    """An object that refuses to be looked at as a number."""

    def __float__(self):
        raise TypeError("no")

    def __repr__(self):
        return "a hostile\nobject"


class Mute:
    """An object that fails whatever it is asked."""

    def __repr__(self):
        raise RuntimeError("no")

    __len__ = __bool__ = __iter__ = __array__ = __float__ = __str__ = __repr__


def nested(depth):
    """A list in a list in a list."""
    value = []
    for _ in range(depth):
        value = [value]
    return value


HUGE = 10**12

JUNK = [
    *(Mute(), nested(10**5), {"a": nested(10**5)}, 10**5000, -(10**5000), "x" * 10**6, "a\u2028b", "\ud800", "\0"),
    *(range(HUGE), range(10**30), np.broadcast_to(0.5, (HUGE,)), np.broadcast_to(True, (HUGE,))),
    *(np.broadcast_to(np.float32(1), (HUGE, 3)), np.broadcast_to(0, (1, HUGE)), np.empty((HUGE, 0))),
    *(None, True, False, np.True_, "", "x", "nan", "0.5", b"", b"ab", ..., NotImplemented, int, len, Hostile()),
    *(math.nan, math.inf, -math.inf, -0.0, -1, -1.5, 0, 0.5, 1, 1.0, 1.5, 2, 5e-324, -1e-300, 1e-300, 1e300, 1.7e308),
    *(10**400, -(10**400), 2**63, 2**64, 1j, complex(math.nan, 0), Decimal("0.5"), Fraction(1, 3), Fraction(10**400)),
    *([], [[]], [[1.0], [1.0, 2.0]], [1.0, None], [1.0, "a"], [math.nan], [math.inf, -math.inf], [1.0], [0, 1], [0, 2]),
    *([1.7e308] * 2, [True, False], ["a", "b"], [b"a"], [1j], [10**400], [[0.0, 1.0]], [{}], [None], [Hostile()]),
    *((), (1,), (0.5, 0.5), (1, 2, 3), (-1, 5), ("a", "b"), (None, None), ([1.0], [2.0])),
    *(
        {},
        {"a": 1.0},
        set(),
        {1.0},
        frozenset(),
        range(0),
        range(3),
        iter([1.0, 2.0]),
        (x for x in [1.0]),
        bytearray(b"1"),
    ),
    *(np.array(0.5), np.array(3), np.array(math.nan), np.array("0.5"), np.array(None), np.array(True), np.array(1j)),
    *(np.array([]), np.zeros((2, 2)), np.zeros((0, 3)), np.zeros((1, 1, 1)), np.array([1.0, math.nan]), np.zeros(3)),
    *(np.array(["a", "b"]), np.array([b"a"]), np.array([None, 1.0]), np.array([1j, 2j]), np.array([Hostile()])),
    *(
        np.array(["2020-01-01"], "M8[D]"),
        np.array([1, 2], "m8[s]"),
        np.zeros(2, [("a", float)]),
        np.array([2**63], "u8"),
    ),
    *(np.ma.masked, np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0]), np.float16(0.5), np.int8(-1)),
    *(
        np.longdouble("1e4000"),
        np.full(3, np.longdouble("1e4000")),
        np.array([1.7e308, -1.7e308]),
        np.float32(math.nan),
    ),
    *(np.array([0, 1], bool), np.array([5e-324, 0.0]), np.ones(200), np.arange(5)),
    *(
        SCORES,
        RUNS,
        UNEQUAL,
        COUNTS,
        LOWER,
        UPPER,
        dm.Gaussian(1.0),
        dm.DpSgd(1.0, 1.0, 3),
        dm.InputError("x"),
        dm.Validity.CREDIBLE,
    ),
    *("split", "naive", "uniform", "ranked", "both", "lower", "mixed", "in", "betting", "f-dp", "steinke", "empirical"),
    *("poisson", "shuffled", "without-replacement", "replace", "add/remove", "zero-out", "pld", "rdp", "gaussian"),
]

FEATURES = np.random.default_rng(0).normal(size=(24, 3))
CLASSES = np.arange(24) % 2
AUDIT = audit_scores(dm.Scores.from_losses(LOSSES[0][:12], LOSSES[1][:12]), resamples=0)

STEPS = {"steps": 3, "sampling": "poisson", "neighbours": None}

# One good call each; a test replaces some of its arguments.
CALLS = {
    "Scores": (
        dm.Scores,
        {"members": [1.0, 2.0], "nonmembers": [0.0, 1.0], "from_loss": False, "independent": False}
        | {"groups": None, "aggregate": "mean"},
    ),
    "Scores.from_losses": (dm.Scores.from_losses, {"members": [1.0, 2.0], "nonmembers": [0.0, 1.0]}),
    "Scores.counts_at": (SCORES.counts_at, {"threshold": 0.5}),
    "Scores.split": (SCORES.split, {"seed": 0}),
    "Scores.from_file": (dm.Scores.from_file, {"path": "nothing.npz"}),
    "OneRun": (dm.OneRun, {"scores": [1.0, 2.0], "included": [0, 1], "mask_seed": None, "groups": None}),
    "OneRun.from_file": (dm.OneRun.from_file, {"path": "nothing.npz", "mask_seed": None}),
    "Counts": (dm.Counts, {"tp": 1, "fn": 2, "fp": 3, "tn": 4}),
    "fair_coins": (dm.fair_coins, {"records": 10, "seed": 0, "groups": None}),
    "fresh_seed": (dm.fresh_seed, {}),
    "RunOptions": (
        dm.RunOptions,
        {"engine": "local", "workers": 2, "memory": None, "timeout": None, "progress": False, "device": None},
    ),
    "Privacy": (dm.Privacy, {"noise_multiplier": 1.0, "clip": 1.0}),
    "Recipe": (dm.Recipe, {"epochs": 2, "batch_size": 8, "learning_rate": 0.1, "momentum": 0.0, "dp": None}),
    "fair_coins, persons": (dm.fair_coins, {"records": 2, "seed": 0, "groups": ["a", "b"]}),
    "Scores, persons": (
        lambda first, second: dm.Scores([1.0], [0.0], groups=(first, second)),
        {"first": ["a"], "second": ["b"]},
    ),
    "mask_hash": (dm.mask_hash, {"included": [0, 1]}),
    "lower_bound": (dm.lower_bound, {"evidence": SCORES, "delta": 1e-5, "confidence": 0.9, "neighbours": None}),
    "lower_bound, coins": (
        dm.lower_bound,
        {"evidence": RUNS, "delta": 1e-5, "confidence": 0.9, "neighbours": "add/remove"},
    ),
    "ranked": (dm.ranked, {"evidence": RUNS, "delta": 1e-5, "confidence": 0.9, "order": "in"}),
    **{
        function.__name__: (
            function,
            {"evidence": SCORES, "delta": 1e-5, "confidence": 0.9, "threshold": None, "fpr": None, "seed": 0}
            | ({} if function is dm.advantage else {"sides": "lower"}),
        )
        for function in (dm.clopper_pearson, dm.jeffreys, dm.bayesian, dm.gaussian, dm.advantage)
    },
    **{
        f"{function.__name__} of counts": (
            function,
            {"evidence": COUNTS, "delta": 1e-5, "confidence": 0.9}
            | ({} if function is dm.advantage else {"sides": "both"}),
        )
        for function in (dm.clopper_pearson, dm.jeffreys, dm.bayesian, dm.gaussian, dm.advantage)
    },
    "epsilon_star": (
        dm.epsilon_star,
        {
            "member_losses": LOSSES[0],
            "nonmember_losses": LOSSES[1],
            "delta": 1e-5,
            "form": "parametric",
            "confidence": 0.9,
            "resamples": 5,
            "seed": 0,
            "rates": (0.001, 0.999),
            "clipped": 0,
            "fewest": 10,
        },
    ),
    "epsilon_star, empirical": (
        dm.epsilon_star,
        {
            "member_losses": LOSSES[0],
            "nonmember_losses": LOSSES[1],
            "delta": None,
            "form": "empirical",
            "confidence": 0.9,
            "resamples": 5,
            "rates": (0.001, 0.999),
            "fewest": 10,
        },
    ),
    "epsilon_star_mechanism": (dm.epsilon_star_mechanism, {"models": [LOSSES], "delta": 1e-5, "fpr_grid": [0.1, 0.5]}),
    "goodness_of_fit": (
        dm.goodness_of_fit,
        {"losses": LOSSES[0], "components": [1, 2], "sample_sizes": [10], "seed": 0},
    ),
    "one_run": (
        dm.one_run,
        {
            "evidence": RUNS,
            "delta": 1e-5,
            "confidence": 0.9,
            "guesses": 20,
            "term": "smaller",
            "method": "binomial",
        },
    ),
    "one_run, betting": (
        dm.one_run,
        {"evidence": RUNS, "delta": 1e-5, "confidence": 0.9, "guesses": "ranked", "method": "betting"},
    ),
    "PropensityRun": (
        dm.PropensityRun,
        {
            "scores": [1.0, -2.0],
            "included": [1, 0],
            "propensities": [0.6, 0.5],
            "limits": None,
            "spent": 0.0,
            "slack": 0.0,
            "neighbours": "add/remove",
        },
    ),
    "PropensityRun.from_pairs": (
        dm.PropensityRun.from_pairs,
        {"scores": ([2.0, 0.1], [0.3, 0.2]), "log_odds": ([1.0, 0.0], [0.5, 0.4]), "spent": 0.005},
    ),
    "PropensityRun.ordered": (UNEQUAL.ordered, {"bins": 2, "spent": 0.005}),
    "propensity_bound": (dm.propensity_bound, {"evidence": UNEQUAL, "delta": 1e-5, "confidence": 0.9}),
    "panoramia": (
        dm.panoramia,
        {"baseline": RUNS, "attack": RUNS, "confidence": 0.9, "guesses": "ranked", "resamples": 5, "seed": 0},
    ),
    "claim": (
        dm.claim,
        {"evidence": RUNS, "epsilon": 1.0, "delta": 1e-5, "confidence": 0.9, "profile": None, "thresholds": None},
    ),
    "claim, one run": (
        dm.claim,
        {
            "evidence": RUNS,
            "mechanism": dm.DpSgd(1.0, 1.0, 2),
            "delta": 1e-5,
            "confidence": 0.9,
            "independent": False,
            "guesses": None,
        },
    ),
    "ClaimTest": (
        dm.ClaimTest,
        {"epsilon": 1.0, "delta": 1e-5, "confidence": 0.9, "profile": None, "thresholds": None},
    ),
    "ClaimTest.update": (lambda **k: dm.ClaimTest(epsilon=1, delta=0).update(**k), {"score": 1.0, "included": 1}),
    "ClaimTest.update_many": (
        lambda **k: dm.ClaimTest(epsilon=1, delta=0).update_many(**k),
        {"scores": [1.0, 2.0], "included": [1, 0]},
    ),
    "ClaimTest.from_dict": (dm.ClaimTest.from_dict, {"state": dm.ClaimTest(epsilon=1, delta=0).to_dict()}),
    "Gaussian": (dm.Gaussian, {"noise_multiplier": 1.0, "steps": 3, "neighbours": "add/remove"}),
    "DpSgd": (
        dm.DpSgd,
        {"noise_multiplier": 1.0, "sample_rate": 0.5, "steps": 3, "sampling": "poisson", "neighbours": None},
    ),
    "Composition": (dm.Composition, {"parts": (dm.Gaussian(1.0), dm.Gaussian(2.0))}),
    "PrivacyRegion": (dm.PrivacyRegion, {"lower": LOWER, "upper": UPPER}),
    "account": (
        dm.account,
        {
            "value": None,
            "delta": 1e-5,
            "noise_multiplier": 1.1,
            "sample_rate": 1.0,
            "steps": 3,
            "sampling": "poisson",
            "neighbours": None,
            "methods": ["rdp", "gaussian"],
        },
    ),
    "noise_for_epsilon": (
        dm.noise_for_epsilon,
        {"epsilon": 1.0, "delta": 1e-5, **STEPS, "sample_rate": 1.0, "method": "zcdp", "orders": None},
    ),
    "noise_for_belief": (
        dm.noise_for_belief,
        {"belief": 0.9, "delta": 1e-5, "prior": 0.5, **STEPS, "sample_rate": 0.5, "method": "rdp", "orders": [2, 8]},
    ),
    "noise_for_advantage": (dm.noise_for_advantage, {"advantage": 0.1, **STEPS}),
    "noise_for_tpr": (dm.noise_for_tpr, {"tpr": 0.1, "fpr": 0.01, **STEPS}),
    "Estimate.from_dict": (dm.Estimate.from_dict, {"values": LOWER.to_dict()}),
    "Guarantee.from_dict": (dm.Guarantee.from_dict, {"values": UPPER.to_dict()}),
    **{
        f"{kind.__name__}.from_dict, {key}": (
            lambda kind=kind, good=good, **changed: kind.from_dict(good | changed),
            {key: good[key]},
        )
        for kind, good in ((dm.Estimate, LOWER.to_dict()), (dm.Guarantee, UPPER.to_dict()))
        for key in sorted(good.keys() - {"claim"})
    },
    "audit_scores": (
        audit_scores,
        {
            "scores": dm.Scores.from_losses(LOSSES[0][:12], LOSSES[1][:12]),
            "delta": 1e-5,
            "confidence": 0.9,
            "threshold": None,
            "fpr": None,
            "resamples": 5,
            "seed": 0,
        },
    ),
    "Audit.from_json": (Audit.from_json, {"text": "{}"}),
    "audit_model": (
        dm.audit_model,
        {
            "model": lambda rows: np.column_stack([rows.sum(axis=1), np.ones(len(rows))]),
            "members": (FEATURES[:12], CLASSES[:12]),
            "nonmembers": (FEATURES[12:], CLASSES[12:]),
            "delta": 1e-5,
            "confidence": 0.9,
            "mechanism": None,
            "subgroups": None,
            "guard": False,
            "strict": False,
            "threshold": None,
            "fpr": None,
            "resamples": 0,
            "seed": 0,
            "metadata": None,
            "batch_size": None,
            "device": None,
        },
    ),
    "check_shift": (
        dm.check_shift,
        {"members": FEATURES[:12], "nonmembers": FEATURES[12:], "labels": None, "confidence": 0.9, "seed": 0}
        | {"kind": "auto", "max_records": 100, "permutations": 99},
    ),
    "compare": (dm.compare, {"audits": [AUDIT, AUDIT], "names": ["a", "b"], "utilities": [0.5, 0.6]}),
}
