"""Every estimator on mechanisms whose ε is known: how often does its bound exceed the truth?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray
from dosimeter.estimate import Estimate, Validity
from dosimeter.estimators.advantage import advantage
from dosimeter.estimators.bayesian import bayesian
from dosimeter.estimators.claim import claim
from dosimeter.estimators.gaussian import gaussian
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.one_run import one_run
from dosimeter.estimators.ranked import ranked
from dosimeter.estimators.rates import clopper_pearson, jeffreys
from dosimeter.evidence import OneRun, Scores
from dosimeter.region import epsilon_from_mu

Draw = Callable[[np.random.Generator, int], Any]
Estimator = Callable[[Any, float, int], Estimate]
FALSE_ALARM = 1e-3  # chance that a correct set of estimators is reported as broken, over the whole table


@dataclass(frozen=True)
class Mechanism:
    """A way to draw evidence whose true ε at δ is known."""

    name: str
    delta: float
    truth: float
    draw: Draw


def _flipped(rng: np.random.Generator, bits: Any, epsilon: float) -> Any:
    """Randomised response: each bit as it is with probability e^ε/(1+e^ε)."""
    return np.where(rng.random(bits.shape) < special.expit(epsilon), bits, ~bits)


def _leaky(rng: np.random.Generator, n: int, member: bool) -> Any:
    """Randomised response of ε = 1 that, with probability 0.01, tells the truth plainly: exactly (1, 0.01)-DP."""
    sign = 1.0 if member else -1.0
    answer = np.where(_flipped(rng, np.full(n, member), 1.0), 1.0, -1.0)
    return np.where(rng.random(n) < 0.01, 3 * sign, answer)


def _public_coin(rng: np.random.Generator, m: int) -> OneRun:
    """With probability δ one public coin reveals every record at once, else nothing: exactly (0, δ)-DP."""
    bits = _coins(rng, m)
    scores = rng.normal(size=m)
    return OneRun(np.where(bits, 10.0, -10.0) + scores if rng.random() < 0.03 else scores, bits)


def _coins(rng: np.random.Generator, m: int) -> Any:
    while True:
        bits = rng.random(m) < 0.5
        if 0 < bits.sum() < m:
            return bits


def _response(rng: np.random.Generator, m: int) -> OneRun:
    bits = _coins(rng, m)
    return OneRun(np.where(_flipped(rng, bits, 1.0), 1.0, -1.0) + 0.1 * rng.random(m), bits)


def _unrelated(rng: np.random.Generator, m: int) -> OneRun:
    return OneRun(rng.normal(size=m), _coins(rng, m))


def _noisy(rng: np.random.Generator, m: int) -> OneRun:
    bits = _coins(rng, m)
    return OneRun(rng.normal(bits, 1.0), bits)


def _few(rng: np.random.Generator, n: int) -> FloatArray:
    """Scores of four values only, so nearly all of them are tied."""
    return rng.integers(0, 4, n).astype(np.float64)


GAUSSIAN_TRUTH = float(epsilon_from_mu(1.0, 1e-5))

TWO_SAMPLES = (
    Mechanism("no leak", 0.0, 0.0, lambda r, n: Scores(r.normal(size=n), r.normal(size=n))),
    Mechanism("no leak, ties", 0.0, 0.0, lambda r, n: Scores(_few(r, n), _few(r, n))),
    Mechanism("no leak, unequal pools", 0.0, 0.0, lambda r, n: Scores(r.normal(size=n // 4), r.normal(size=2 * n))),
    Mechanism("Laplace ε=1", 0.0, 1.0, lambda r, n: Scores(r.laplace(1, 1, n), r.laplace(0, 1, n))),
    Mechanism("leaky response (1, 0.01)", 0.01, 1.0, lambda r, n: Scores(_leaky(r, n, True), _leaky(r, n, False))),
    Mechanism("Gaussian μ=1", 1e-5, GAUSSIAN_TRUTH, lambda r, n: Scores(r.normal(1, 1, n), r.normal(0, 1, n))),
)
ONE_RUN = (
    Mechanism("no leak", 0.0, 0.0, _unrelated),
    Mechanism("randomised response ε=1", 0.0, 1.0, _response),
    Mechanism("public coin (0, 0.03)", 0.03, 0.0, _public_coin),
    Mechanism("Gaussian μ=1", 1e-5, GAUSSIAN_TRUTH, _noisy),
)
RUNS = (ONE_RUN[0], ONE_RUN[1], ONE_RUN[3])  # independent runs: a public coin across them is another game


def _positive(delta: float) -> float:
    return delta if delta > 0 else 1e-5


SCORE_ESTIMATORS: dict[str, Estimator] = {
    "lower_bound": lambda e, d, s: lower_bound(e, delta=d),
    "clopper-pearson, uniform": lambda e, d, s: clopper_pearson(e, delta=d),
    "clopper-pearson, split": lambda e, d, s: clopper_pearson(e, delta=d, threshold="split", seed=s),
    "clopper-pearson, fixed": lambda e, d, s: clopper_pearson(e, delta=d, threshold=0.5),
    "clopper-pearson, fpr=0.1": lambda e, d, s: clopper_pearson(e, delta=d, fpr=0.1),
    "advantage, uniform": lambda e, d, s: advantage(e, delta=d),
    "jeffreys, split": lambda e, d, s: jeffreys(e, delta=d, seed=s),
    "bayesian, split": lambda e, d, s: bayesian(e, delta=d, seed=s),
    "gaussian, uniform": lambda e, d, s: gaussian(e, delta=_positive(d)),
    "clopper-pearson, naive": lambda e, d, s: clopper_pearson(e, delta=d, threshold="naive"),
    "bayesian, naive": lambda e, d, s: bayesian(e, delta=d, threshold="naive"),
}
ONE_RUN_ESTIMATORS: dict[str, Estimator] = {
    "lower_bound": lambda e, d, s: lower_bound(e, delta=d),
    "ranked": lambda e, d, s: ranked(e, delta=d),
    "ranked, two-sided": lambda e, d, s: ranked(e, delta=d, order="two-sided"),
    "ranked, in": lambda e, d, s: ranked(e, delta=d, order="in"),
    "ranked, out": lambda e, d, s: ranked(e, delta=d, order="out"),
    "one_run, 100 guesses": lambda e, d, s: one_run(e, delta=d, guesses=100),
    "one_run, 50 in, steinke": lambda e, d, s: one_run(e, delta=d, guesses=(50, 0), term="steinke"),
    "one_run, betting": lambda e, d, s: one_run(e, delta=d, method="betting"),
    "one_run, f-dp": lambda e, d, s: one_run(e, delta=_positive(d), guesses=100, method="f-dp"),
}
RUN_ESTIMATORS: dict[str, Estimator] = {
    "claim": lambda e, d, s: claim(e, epsilon=1.0, delta=d),
}
GROUPS = ((SCORE_ESTIMATORS, TWO_SAMPLES), (ONE_RUN_ESTIMATORS, ONE_RUN), (RUN_ESTIMATORS, RUNS))


@dataclass(frozen=True)
class Row:
    """One estimator on one mechanism."""

    estimator: str
    mechanism: str
    truth: float
    delta: float
    validity: str
    is_bound: bool
    trials: int
    violations: int
    nominal: float
    mean: float

    @property
    def rate(self) -> float:
        return self.violations / self.trials

    @property
    def error(self) -> float:
        """Binomial standard error of the rate, at the nominal rate where none was seen."""
        p = min(max(self.rate, self.nominal), 0.5) if self.violations == 0 else self.rate
        return math.sqrt(p * (1 - p) / self.trials)

    @property
    def p_value(self) -> float:
        """P[at least this many violations] at the nominal rate."""
        return 1.0 if self.violations == 0 else float(special.bdtrc(self.violations - 1, self.trials, self.nominal))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rate": self.rate, "error": self.error, "p_value": self.p_value}


def rows(trials: int, records: int, seed: int = 0) -> Iterator[Row]:
    """Rerun every estimator; a row is given as soon as it is done."""
    check.whole("trials", trials, 1, "pass e.g. 500")
    check.whole("records", records, 100, "pass e.g. 1000")
    return _rows(trials, records, check.seed(seed))


def _rows(trials: int, records: int, seed: int) -> Iterator[Row]:
    for group, (estimators, mechanisms) in enumerate(GROUPS):
        for number, mechanism in enumerate(mechanisms):
            children = np.random.SeedSequence([seed, group, number]).spawn(trials)
            evidence = [mechanism.draw(np.random.default_rng(child), records) for child in children]
            for name, estimator in estimators.items():
                yield _row(name, estimator, mechanism, evidence)


def _row(name: str, estimator: Estimator, mechanism: Mechanism, evidence: list[Any]) -> Row:
    found = [estimator(one, mechanism.delta, trial) for trial, one in enumerate(evidence)]
    truth = _truth_at(mechanism, found[0].delta)
    low = np.array([estimate.low for estimate in found])
    return Row(
        estimator=name,
        mechanism=mechanism.name,
        truth=truth,
        delta=found[0].delta,
        validity=str(found[0].validity),
        is_bound=Validity(found[0].validity).is_bound,
        trials=len(found),
        violations=int(np.sum(low > truth + 1e-9)),
        nominal=1 - found[0].confidence,
        mean=float(low.mean()),
    )


def _truth_at(mechanism: Mechanism, delta: float) -> float:
    """A larger δ than the mechanism's can only lower its ε, so the stated truth stays an upper limit."""
    assert delta >= mechanism.delta
    return mechanism.truth


def broken(table: list[Row]) -> list[Row]:
    """Rows labelled as valid bounds whose level is broken beyond chance, over the table as a whole."""
    bounds = [row for row in table if row.is_bound]
    return [row for row in bounds if row.p_value < FALSE_ALARM / len(bounds)]
