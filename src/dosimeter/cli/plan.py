"""`dosimeter plan`: before training, what an audit of a given size could show."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dosimeter.cli._shared import Confidence, Delta, JsonFlag, Seed, out, print_json, table

MOST_SIMULATED = 2_000_000  # records in one simulated audit


def plan(
    members: Annotated[int, typer.Option("--members", help="Members whose scores will be had.")] = 1000,
    nonmembers: Annotated[
        int | None,
        typer.Option("--nonmembers", help="Non-members; as many as members if not given.", show_default=False),
    ] = None,
    canaries: Annotated[
        int | None,
        typer.Option(
            "--canaries", help="Records of a one-run audit; members + non-members if not given.", show_default=False
        ),
    ] = None,
    guesses: Annotated[
        int | None,
        typer.Option(
            "--guesses", help="Guesses of the one-run audit, fixed in advance; all if not given.", show_default=False
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="The true ε, at δ, of a Gaussian mechanism to simulate.", show_default=False),
    ] = None,
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    repeats: Annotated[int, typer.Option("--repeats", help="Simulated audits.")] = 20,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Say what an audit can prove before it is run: the most for its size, and what to expect at a true ε.

    Example: can 1000 members and 1000 non-members show an ε of 4?

        dosimeter plan --members 1000 --epsilon 4

    A perfect attack could prove ε ≥ 5.9 for adding or removing one record, but the best attack on Gaussian noise with
    ε = 4 proves about 1.7 on average; for replacing one record these are 11.7 and 3.3.
    """
    answer = what_can_be_shown(
        members=members,
        nonmembers=nonmembers,
        canaries=canaries,
        guesses=guesses,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        repeats=repeats,
        seed=seed,
    )
    if json:
        print_json(answer)
        return
    _show(answer)


def what_can_be_shown(
    *,
    members: int,
    nonmembers: int | None = None,
    canaries: int | None = None,
    guesses: int | None = None,
    epsilon: float | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    repeats: int = 20,
    seed: int = 0,
) -> dict[str, Any]:
    """The largest provable ε by estimator, and for a true ε the records needed and the bounds to expect."""
    from dosimeter import _validate as check

    members = check.whole("members", members, 1, "pass the number of members", 10**9)
    nonmembers = members if nonmembers is None else check.whole("nonmembers", nonmembers, 1, "pass their number", 10**9)
    if canaries is None:
        canaries = min(members + nonmembers, 10**9)
    canaries = check.whole("canaries", canaries, 1, "pass the records of the one-run audit", 10**9)
    guesses = canaries if guesses is None else guesses
    guesses = check.whole("guesses", guesses, 1, "pass at most the number of canaries", canaries)
    delta, confidence, seed = check.delta(delta), check.confidence(confidence), check.seed(seed)
    repeats = check.whole("repeats", repeats, 1, "pass the number of simulated audits", 10_000)
    answer: dict[str, Any] = {
        "budget": {"members": members, "nonmembers": nonmembers, "canaries": canaries, "guesses": guesses},
        "delta": delta,
        "confidence": confidence,
        "largest_provable": _largest(members, nonmembers, canaries, guesses, delta, confidence, seed),
        "true_epsilon": None,
        "needed": None,
        "expected": None,
    }
    if epsilon is not None:
        epsilon = check.within("epsilon", epsilon, 0.0, math.inf, "pass the ε to be shown, e.g. 4", include="()")
        answer["true_epsilon"] = epsilon
        answer["needed"] = _needed(epsilon, delta, confidence)
        size = max(members + nonmembers, canaries)
        check.whole("members", size, 1, "simulate a smaller audit, or leave --epsilon out", MOST_SIMULATED)
        if delta == 0:
            check.delta(delta, zero=False, why_not_zero="the simulated mechanism is Gaussian and has no ε at δ = 0")
        answer["expected"] = _expected(answer["budget"], epsilon, delta, confidence, repeats, seed)
    return answer


def _largest(
    members: int, nonmembers: int, canaries: int, guesses: int, delta: float, confidence: float, seed: int
) -> list[dict[str, Any]]:
    """What a perfect attack, right about every record, would prove."""
    import numpy as np

    from dosimeter.estimators.bayesian import bayesian
    from dosimeter.estimators.lower_bound import lower_bound
    from dosimeter.estimators.one_run import one_run_bound
    from dosimeter.estimators.rates import clopper_pearson
    from dosimeter.evidence import Counts, Scores

    perfect = Counts(tp=members, fn=0, fp=0, tn=nonmembers)
    rows = []
    if members + nonmembers <= MOST_SIMULATED:
        every = np.arange(float(members + nonmembers))
        scores = Scores(every[nonmembers:], every[:nonmembers])
        for neighbours in ("replace", "add/remove"):
            bound = lower_bound(scores, delta=delta, confidence=confidence, neighbours=neighbours)
            rows.append(_row(f"lower_bound, {neighbours}", bound.low, str(bound.validity), "one model, random split"))
    exact = clopper_pearson(perfect, delta=delta, confidence=confidence)
    rows.append(_row("clopper_pearson", exact.low, str(exact.validity), "one threshold fixed in advance"))
    posterior = bayesian(perfect, delta=delta, confidence=confidence)
    rows.append(_row("bayesian", posterior.low, str(posterior.validity), "one threshold fixed in advance"))
    single = one_run_bound(records=canaries, guesses=guesses, correct=guesses, delta=delta, confidence=confidence)
    rows.append(_row("one_run", single, "finite-sample", f"one run, {guesses} guesses fixed in advance"))
    return rows


def _row(method: str, epsilon: float, validity: str, setting: str) -> dict[str, Any]:
    return {"method": method, "epsilon": float(epsilon), "validity": validity, "setting": setting}


def _needed(epsilon: float, delta: float, confidence: float) -> dict[str, int | None]:
    """The fewest records with which a perfect attack could show ε; None where δ forbids it.

    Clopper–Pearson: each rate's upper limit is 1 − (α/2)^{1/n} and must be (1−δ)/(1+e^ε). One run, at δ = 0: a^{1/r}
    must be e^ε/(1+e^ε), that is ε = −ln(a^{−1/r} − 1).
    """
    level = 1 - confidence
    limit = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    right = -math.log1p(math.exp(-epsilon))
    return {
        "clopper_pearson_each": math.ceil(math.log(level / 2) / math.log1p(-limit)) if limit < 1 else None,
        "one_run_guesses_at_delta_0": math.ceil(math.log(level) / right) if right < 0 else None,
    }


def _expected(
    budget: dict[str, int], epsilon: float, delta: float, confidence: float, repeats: int, seed: int
) -> list[dict[str, Any]]:
    """Bounds from simulated audits of the Gaussian mechanism that has exactly this (ε, δ), by its best attack."""
    import numpy as np

    from dosimeter.estimators.bayesian import bayesian
    from dosimeter.estimators.gaussian import gaussian
    from dosimeter.estimators.lower_bound import lower_bound
    from dosimeter.estimators.one_run import one_run
    from dosimeter.estimators.rates import clopper_pearson
    from dosimeter.evidence import OneRun, Scores, fair_coins
    from dosimeter.geometry import mu_from_epsilon

    mu = float(mu_from_epsilon(epsilon, delta))
    common: dict[str, Any] = {"delta": delta, "confidence": confidence}
    rate: dict[str, Callable[[Scores], Any]] = {
        "lower_bound, replace": lambda s: lower_bound(s, **common),
        "lower_bound, add/remove": lambda s: lower_bound(s, neighbours="add/remove", **common),
        "clopper_pearson, split": lambda s: clopper_pearson(s, threshold="split", **common),
        "bayesian, split": lambda s: bayesian(s, threshold="split", **common),
        "gaussian": lambda s: gaussian(s, **common),
    }
    single: dict[str, Callable[[OneRun], Any]] = {
        "one_run": lambda s: one_run(s, **common),
        f"one_run, {budget['guesses']} guesses": lambda s: one_run(s, guesses=budget["guesses"], **common),
    }
    found: dict[str, list[float]] = {name: [] for name in (*rate, *single)}
    validity: dict[str, str] = {}
    for child in np.random.SeedSequence(seed).spawn(repeats):
        rng = np.random.default_rng(child)
        scores = Scores(rng.normal(mu, 1, budget["members"]), rng.normal(0, 1, budget["nonmembers"]))
        mask_seed = int(rng.integers(2**31))
        included = fair_coins(budget["canaries"], mask_seed)
        trial = OneRun(rng.normal(0, 1, budget["canaries"]) + mu * included, included, mask_seed)
        results = {name: method(scores) for name, method in rate.items()}
        results |= {name: method(trial) for name, method in single.items()}
        for name, estimate in results.items():
            found[name].append(estimate.low)
            validity[name] = str(estimate.validity)
    return [
        {
            "method": name,
            "mean": float(np.mean(values)),
            "lowest": float(np.min(values)),
            "highest": float(np.max(values)),
            "validity": validity[name],
        }
        for name, values in found.items()
    ]


def _show(answer: dict[str, Any]) -> None:
    from dosimeter.estimate import number, percent

    budget = answer["budget"]
    sizes = ", ".join(f"{value} {name}" for name, value in budget.items())
    table(
        f"The most a perfect attack could prove ({sizes}, δ = {answer['delta']:g}, {percent(answer['confidence'])})",
        ["estimator", "ε ≥", "validity", "setting"],
        [(r["method"], number(r["epsilon"]), r["validity"], r["setting"]) for r in answer["largest_provable"]],
    )
    if answer["expected"] is None:
        return
    true = number(answer["true_epsilon"])
    table(
        f"What to expect if the mechanism is Gaussian with ε = {true}",
        ["estimator", "mean", "lowest", "highest", "validity"],
        [
            (r["method"], number(r["mean"]), number(r["lowest"]), number(r["highest"]), r["validity"])
            for r in answer["expected"]
        ],
    )
    needed = answer["needed"]
    each, single = needed["clopper_pearson_each"], needed["one_run_guesses_at_delta_0"]
    out.print(
        f"To prove ε ≥ {true} at all, even a perfect attack needs {each} members and as many non-members "
        f"(Clopper–Pearson), or {single} right guesses in one run (at δ = 0).",
        markup=False,
        soft_wrap=True,
    )
