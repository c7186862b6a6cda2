"""What is tested: estimators and audits, called as users call them."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import BoolArray, FloatArray
from dosimeter.accounting import Gaussian
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.gradients.transcripts import audit_transcripts
from dosimeter.audits.model import audit_model
from dosimeter.audits.one_run import audit_one_run
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.training import audit_training
from dosimeter.engine import RunOptions
from dosimeter.estimate import Estimate, Validity
from dosimeter.estimators.claim import claim
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.one_run import one_run
from dosimeter.estimators.ranked import ranked
from dosimeter.estimators.rates import advantage, clopper_pearson, jeffreys
from dosimeter.estimators.with_assumptions import bayesian, gaussian
from dosimeter.evidence import OneRun, Scores
from dosimeter.geometry import epsilon_from_mu
from dosimeter.selftest.mechanisms import (
    CLASSES,
    COINS,
    DELTA,
    LAPLACE,
    NORMAL,
    ONE_MODEL,
    ONE_RUN,
    PEOPLE,
    PUBLISHED,
    RUNS,
    SILENT,
    TRAININGS,
    TWO_SAMPLES,
    Mechanism,
    People,
    Training,
)

Estimator = Callable[[Any, float], Estimate]


class Said(NamedTuple):
    """One lower bound that a call stated, and the truth about it."""

    bound: float
    truth: float
    delta: float
    confidence: float
    validity: str

    @property
    def is_bound(self) -> bool:
        return Validity(self.validity).is_bound


class Call(NamedTuple):
    """A call that states one bound or several; `names` has a name for each."""

    names: tuple[str, ...]
    run: Callable[[Any, Mechanism], tuple[Said, ...]]


class Group(NamedTuple):
    """Calls with the mechanisms that fit them; costly ones have fewer trials, one in `every`."""

    title: str
    calls: tuple[Call, ...]
    mechanisms: tuple[Mechanism, ...]
    every: int = 1
    most: int | None = None

    def trials(self, wanted: int) -> int:
        found = math.ceil(wanted / self.every)
        return found if self.most is None else min(found, self.most)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for call in self.calls for name in call.names)


def _said(estimate: Estimate, mechanism: Mechanism) -> Said:
    assert estimate.delta >= mechanism.delta  # a larger δ can only lower the true ε
    truth = mechanism.epsilon(estimate.neighbours)
    return Said(estimate.low, truth, estimate.delta, estimate.confidence, str(estimate.validity))


def _each(estimators: Mapping[str, Estimator]) -> tuple[Call, ...]:
    """A call for each estimator of evidence at a δ."""

    def call(name: str, estimator: Estimator) -> Call:
        return Call((name,), lambda evidence, m: (_said(estimator(evidence, m.delta), m),))

    return tuple(call(name, estimator) for name, estimator in estimators.items())


def _headlines(name: str, audit: Callable[[Any, float], Audit], relations: tuple[str, ...]) -> Call:
    """The headlines of an audit, one for each relation of neighbours."""

    def run(evidence: Any, mechanism: Mechanism) -> tuple[Said, ...]:
        found = audit(evidence, mechanism.delta).estimates[: len(relations)]
        assert tuple(estimate.neighbours for estimate in found) == relations
        return tuple(_said(estimate, mechanism) for estimate in found)

    names = tuple(f"{name}: {relation}" for relation in relations) if len(relations) > 1 else (name,)
    return Call(names, run)


BOTH, COIN = ("replace", "add/remove"), ("add/remove",)


def _positive(delta: float) -> float:
    return delta if delta > 0 else DELTA


# --- estimators -------------------------------------------------------------------------------------------

SCORE_ESTIMATORS: dict[str, Estimator] = {
    "lower_bound": lambda e, d: lower_bound(e, delta=d),
    "clopper-pearson, uniform": lambda e, d: clopper_pearson(e, delta=d),
    "clopper-pearson, split": lambda e, d: clopper_pearson(e, delta=d, threshold="split"),
    "clopper-pearson, fixed": lambda e, d: clopper_pearson(e, delta=d, threshold=0.5),
    "clopper-pearson, fpr=0.1": lambda e, d: clopper_pearson(e, delta=d, fpr=0.1),
    "advantage, uniform": lambda e, d: advantage(e, delta=d),
    "jeffreys, split": lambda e, d: jeffreys(e, delta=d),
    "bayesian, split": lambda e, d: bayesian(e, delta=d),
    "gaussian, uniform": lambda e, d: gaussian(e, delta=_positive(d)),
    "clopper-pearson, naive": lambda e, d: clopper_pearson(e, delta=d, threshold="naive"),
    "bayesian, naive": lambda e, d: bayesian(e, delta=d, threshold="naive"),
}
MODEL_ESTIMATORS: dict[str, Estimator] = {
    "lower_bound: replace": lambda e, d: lower_bound(e, delta=d),
    "lower_bound: add/remove": lambda e, d: lower_bound(e, delta=d, neighbours="add/remove"),
    "clopper-pearson as if independent": lambda e, d: clopper_pearson(e, delta=d),
}
ONE_RUN_ESTIMATORS: dict[str, Estimator] = {
    "lower_bound": lambda e, d: lower_bound(e, delta=d),
    "ranked": lambda e, d: ranked(e, delta=d),
    "ranked, two-sided": lambda e, d: ranked(e, delta=d, order="two-sided"),
    "ranked, in": lambda e, d: ranked(e, delta=d, order="in"),
    "ranked, out": lambda e, d: ranked(e, delta=d, order="out"),
    "one_run, 100 guesses": lambda e, d: one_run(e, delta=d, guesses=100),
    "one_run, 50 in, steinke": lambda e, d: one_run(e, delta=d, guesses=(50, 0), term="steinke"),
    "one_run, betting": lambda e, d: one_run(e, delta=d, method="betting"),
    "one_run, f-dp": lambda e, d: one_run(e, delta=_positive(d), guesses=100, method="f-dp"),
}
RUN_ESTIMATORS: dict[str, Estimator] = {
    "claim": lambda e, d: claim(e, epsilon=1.0, delta=d),
}


# --- audits -----------------------------------------------------------------------------------------------


class _Model:
    """A model whose loss on a record falls as the record's score rises; a record is a number of its own.

    The numbers are shuffled: members come first, and in a random split what a record holds does not tell its side.
    """

    def __init__(self, scores: FloatArray, labels: Any = None) -> None:
        order = np.random.default_rng(scores.size).permutation(scores.size)
        self.x = order.astype(float)[:, None]
        self.y = np.zeros(scores.size, int) if labels is None else np.asarray(labels)
        right = special.expit(scores / 4)
        classes = max(2, int(self.y.max()) + 1)
        self._outputs = np.repeat(((1 - right) / (classes - 1))[:, None], classes, axis=1)
        self._outputs[np.arange(scores.size), self.y] = right
        self._outputs = self._outputs[np.argsort(order)]

    def __call__(self, x: Any) -> FloatArray:
        return self._outputs[np.asarray(x)[:, 0].astype(int)]

    def part(self, rows: BoolArray) -> tuple[Any, Any]:
        return self.x[rows], self.y[rows]


# The guard and the bootstrap have no part in a headline; without them an audit takes milliseconds.
_FAST: dict[str, Any] = {"guard": False, "resamples": 0}


def _by_split(model: _Model, member: BoolArray, delta: float, ids: Any = None) -> Audit:
    groups = None if ids is None else (ids[member], ids[~member])
    return audit_model(
        model, members=model.part(member), nonmembers=model.part(~member), groups=groups, delta=delta, **_FAST
    )


def _audit_split(scores: Scores, delta: float) -> Audit:
    pooled = np.concatenate([scores.members, scores.nonmembers])
    return _by_split(_Model(pooled), np.arange(pooled.size) < scores.members.size, delta)


def _audit_coins(run: OneRun, delta: float) -> Audit:
    model = _Model(run.scores)
    return audit_model(model, data=(model.x, model.y), included=run.included, delta=delta, **_FAST)


def _people_split(people: People, delta: float) -> Audit:
    return _by_split(_Model(people.scores), people.split, delta, people.ids)


def _people_coins(people: People, delta: float) -> Audit:
    model = _Model(people.scores)
    return audit_model(model, data=(model.x, model.y), included=people.coins, groups=people.ids, delta=delta, **_FAST)


def _person_scores(people: People) -> Scores:
    inside = people.split
    groups = people.ids[inside], people.ids[~inside]
    return Scores(people.scores[inside], people.scores[~inside], groups=groups)


PEOPLE_ESTIMATORS: dict[str, Estimator] = {
    "lower_bound, persons: replace": lambda e, d: lower_bound(_person_scores(e), delta=d),
    "lower_bound, persons: add/remove": lambda e, d: lower_bound(_person_scores(e), delta=d, neighbours="add/remove"),
    "lower_bound, persons with coins": lambda e, d: lower_bound(OneRun(e.scores, e.coins, groups=e.ids), delta=d),
}


def _largest_of_classes(people: People, mechanism: Mechanism) -> tuple[Said, ...]:
    """The largest bound of the classes, by a split and by coins; all of them hold at once."""
    model = _Model(people.scores, people.ids)
    audits = (
        _by_split(model, people.split, mechanism.delta),
        audit_model(model, data=(model.x, model.y), included=people.coins, delta=mechanism.delta, **_FAST),
    )
    found = []
    for audit in audits:
        row, headline = audit.subgroups[0], audit.headline
        truth = mechanism.epsilon(row.neighbours)
        assert row.epsilon is not None and row.joint_confidence is not None
        said = Said(row.epsilon, truth, headline.delta, row.joint_confidence, str(headline.validity))
        found.append(said)
    return tuple(found)


def _tpr_limits(scores: Scores, mechanism: Mechanism) -> tuple[Said, ...]:
    """The limit of the TPR at each low FPR; the records are independent draws, which is what it asks for."""
    assert mechanism.roc is not None
    audit = audit_scores(scores, delta=mechanism.delta)
    assert audit.curve is not None
    validity = str(Validity.FINITE_SAMPLE)
    return tuple(
        Said(p.tpr_low, mechanism.roc(p.fpr), mechanism.delta, audit.headline.confidence, validity)
        for p in audit.curve.tpr_at_fpr
    )


def _as_they_are(outputs: FloatArray, labels: Any) -> FloatArray:
    return outputs


_HERE: dict[str, Any] = {"signal": _as_they_are, "run": RunOptions(engine="inline", progress=False)}


def _data(training: Training) -> tuple[FloatArray, FloatArray]:
    return np.zeros((training.records, 1)), np.zeros(training.records)


def _audit_one_run(training: Training, delta: float) -> Audit:
    return audit_one_run(training.train, _data(training), delta=delta, **_HERE)


def _audit_training(training: Training, delta: float) -> Audit:
    few: dict[str, Any] = {"shadows": 32, "runs": 48, "attack": "loss", "points": [0, 1]}
    return audit_training(training.train, _data(training), delta=delta, **few, **_HERE)


_NOISE, _STEPS, _RUNS = 2.0, 3, 24


def _opacus(_: Any, mechanism: Mechanism) -> tuple[Said, ...]:
    """Correct DP-SGD runs of Opacus on full batches, watched by the hook, against the accountants' guarantee."""
    import opacus
    import torch

    from dosimeter.audits.gradients.opacus_hook import OpacusTranscript

    x, y = torch.randn(12, 4), torch.arange(12) % 2
    runs, worlds = [], np.arange(_RUNS) % 2 == 0
    for on_d in worlds:
        module = opacus.GradSampleModule(torch.nn.Linear(4, 2))
        optimizer = opacus.optimizers.DPOptimizer(
            torch.optim.SGD(module.parameters(), lr=0.1),
            noise_multiplier=_NOISE,
            max_grad_norm=1.0,
            expected_batch_size=12,
        )
        criterion, rows = torch.nn.CrossEntropyLoss(), slice(0 if on_d else 1, 12)
        with OpacusTranscript(module, optimizer, criterion, removed=(x[0], y[0])) as watch:
            for _step in range(_STEPS):
                optimizer.zero_grad()
                criterion(module(x[rows]), y[rows]).backward()
                optimizer.step()
        runs.append(watch.transcript)
    seen = Transcripts.from_runs(runs, worlds, sensitivity=1.0)
    audit = audit_transcripts(seen, delta=mechanism.delta, mechanism=Gaussian(_NOISE, steps=_STEPS))
    return (_said(audit.headline, mechanism),)


def _opacus_groups() -> tuple[Group, ...]:
    if not all(importlib.util.find_spec(name) for name in ("torch", "opacus")):
        return ()
    delta = 1e-3
    truth = float(epsilon_from_mu(_STEPS**0.5 / _NOISE, delta))
    mechanism = Mechanism(f"DP-SGD, ε ≤ {truth:.3g}", delta, truth, lambda rng, n: None)
    return (Group("A correct Opacus run", (Call(("OpacusTranscript",), _opacus),), (mechanism,), every=10, most=30),)


# --- all of it --------------------------------------------------------------------------------------------

GROUPS = (
    Group("Independent runs", _each(SCORE_ESTIMATORS), TWO_SAMPLES),
    Group("One model, a random split", _each(MODEL_ESTIMATORS), ONE_MODEL),
    Group("One run with coin-flipped records", _each(ONE_RUN_ESTIMATORS), ONE_RUN),
    Group("Independent runs, tested while they come in", _each(RUN_ESTIMATORS), RUNS),
    Group(
        "Audits of one model, end to end",
        (
            _headlines("audit_scores", lambda e, d: audit_scores(e, delta=d), BOTH),
            _headlines("audit_model", _audit_split, BOTH),
        ),
        (SILENT, PUBLISHED, LAPLACE),
        every=3,
    ),
    Group(
        "Audits with coins, end to end",
        (
            _headlines("audit_scores, coins", lambda e, d: audit_scores(e, delta=d), COIN),
            _headlines("audit_model, coins", _audit_coins, COIN),
        ),
        COINS,
        every=3,
    ),
    Group(
        "Persons",
        (
            *_each(PEOPLE_ESTIMATORS),
            _headlines("audit_model, persons", _people_split, BOTH),
            _headlines("audit_model, persons with coins", _people_coins, COIN),
        ),
        PEOPLE,
        every=3,
    ),
    Group(
        "Subgroups: the largest of several bounds",
        (Call(("audit_model, split", "audit_model, coins"), _largest_of_classes),),
        CLASSES,
        every=3,
    ),
    Group(
        "Trainings",
        (_headlines("audit_one_run", _audit_one_run, COIN), _headlines("audit_training", _audit_training, COIN)),
        TRAININGS,
        every=3,
    ),
    Group(
        "TPR at an FPR (the truth is a TPR, not an ε)",
        (Call(("limit at FPR 0.1 %", "limit at FPR 1 %", "limit at FPR 10 %"), _tpr_limits),),
        (SILENT, NORMAL),
        every=3,
    ),
)
LONG = _opacus_groups()  # seconds for each audit
