"""Audit a model when only members are known: PANORAMIA (Kazmi 2024, Alg. 1), with a null that keeps it honest.

Generated records take the place of non-members. A classifier that sees the records alone tells real from generated to
some degree, and a model that has learnt the distribution, though not these records, helps it further. So the attack
that sees the target is compared with the same attack that sees a stand-in, a model trained on members outside the
audit. Only where the target stands out from all stand-ins is a difference reported; it is a measurement, no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import dosimeter
from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.audits.assemble import risk_of
from dosimeter.audits.members_only.contest import (
    ANCHORS,
    Answers,
    Contest,
    Trainer,
    anchor_and_pools,
    contest,
    stand_in,
)
from dosimeter.audits.members_only.game import Game, deal, shown
from dosimeter.audits.members_only.null_band import FEWEST, LEVEL, Pair, Verdict, judge
from dosimeter.audits.members_only.real_nonmembers import RealGame, audit_real, cut_nonmembers
from dosimeter.audits.members_only.strength import baseline_strength
from dosimeter.audits.result import Audit
from dosimeter.audits.shift.guard import Guard
from dosimeter.audits.training.shadows import counted
from dosimeter.estimate import Estimate, Validity, number, percent, plain
from dosimeter.estimators.one_run import one_run
from dosimeter.estimators.panoramia import bound_curve, panoramia
from dosimeter.estimators.ranked import logit_bound

HELPERS = ("generated", "none", "real")
SHARES = (0.2, 0.3, 0.5)  # of the pairs: numbers of guesses to choose from; fewer make a bound of chance
CURVE_POINTS = 160


@dataclass(frozen=True, eq=False)
class Baseline:
    """What every target is compared with: the stand-ins' scores, and the strongest of them."""

    names: tuple[str, ...]
    pairs: tuple[Pair, ...]
    answers: tuple[tuple[Answers, ...], ...]
    best: int
    has_null: bool


def audit_members_only(
    model: Any,
    members: Any,
    *,
    generator: Any = "auto",
    generated: Any = None,
    nonmembers: Any = None,
    helper: str = "generated",
    reference: Trainer | str = "auto",
    references: int = 8,
    splits: tuple[float, float, float] = (0.4, 0.3, 0.3),
    audit_size: int | None = None,
    filter: Callable[..., Any] | None = None,  # noqa: A002  (the word of the paper)
    guesses: str | int = "auto",
    confidence: float = 0.95,
    repeats: int = 20,
    batch_size: int | None = None,
    device: str | None = None,
    seed: int = 0,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Audit:
    """Measure what a model gives away about records that it was trained on, without any non-member.

    `model` is whatever `audit_model` takes, or a mapping of names to models that share one baseline. `members` are
    (X, y), or texts, all of them in the training set. `generator` is "auto", an object with `fit` or `sample`, or a
    function (count, seed) -> records; `generated` are records instead. `filter` (X, y) -> mask drops bad ones.
    `reference` (X, y, seed) -> model trains a stand-in like the target; the default suits the kind of data only. It is
    called twice for each of the `references`, which is 0 or at least 3, and twice for what baseline and attack share.
    `nonmembers` are real ones, if there are some: they give a true lower bound beside the measurement.
    `repeats` throws of the coins are made, and medians over them reported.
    `guesses` is "auto" (a number chosen on the classifiers' training records), a number, "ranked" (the best of all
    numbers, corrected for) or "naive" (the thesis: the best of all, not corrected for).

    >>> audit_members_only(model, (X, y)).to_html("audit.html")  # doctest: +SKIP
    """
    confidence, seed = check.confidence(confidence), check.seed(seed)
    targets = _targets(model)
    check.choice("helper", helper, HELPERS)
    if helper == "real" and nonmembers is None:
        raise InputError(
            "helper is 'real', but there are no nonmembers to train it on; pass nonmembers or 'generated'."
        )
    if not (callable(reference) or reference == "auto"):
        raise InputError(f"reference must be 'auto' or a function (X, y, seed) -> model, got {check.show(reference)}.")
    trainer = reference if callable(reference) else None
    count = check.whole("references", references, 0, f"pass at least {FEWEST}, or 0 for no null band", 1000)
    if 0 < count < FEWEST:
        raise InputError(f"references must be 0 or at least {FEWEST}, got {count}; a null band needs a few models.")
    repeats = check.whole("repeats", repeats, 1, "pass how often the coins are thrown again, e.g. 20", 10_000)
    if isinstance(guesses, str):
        check.choice("guesses", guesses, ("auto", "ranked", "naive"))
    notes = plain(check.mapping("metadata", metadata, "pass e.g. {'unit_of_privacy': 'one person'}"))
    seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(6)]
    game = deal(
        members,
        generator=generator,
        generated=generated,
        splits=splits,
        audit_size=audit_size,
        keep=filter,
        seed=seeds[0],
    )
    if isinstance(guesses, int) or not isinstance(guesses, str):
        guesses = check.whole("guesses", guesses, 1, f"pass at most the {game.pairs} pairs of the audit", game.pairs)
    real = None if nonmembers is None else cut_nonmembers(nonmembers, game, seed=seeds[1])
    field = contest(game, seed=seeds[2])
    helpers = _helpers(field, helper, real, seeds[3])
    common, baseline = _baseline(field, helpers.get(helper), count, trainer, seeds[4])
    level, coins = 1.0 - confidence, seeds[5]
    own = {label: field.ask(target, batch_size=batch_size, device=device) for label, target in targets.items()}
    if guesses == "auto":
        guesses = _chosen(field, [(*common, a) for a in own.values()], baseline.answers[baseline.best], level)
    throws = [coins + k for k in range(repeats)]
    without = throws_of(baseline.pairs[baseline.best], guesses, level / 2, throws)
    found: list[Estimate] = []
    rows: list[dict[str, Any]] = []
    attacks: list[Pair] = []
    for label, seen in own.items():
        pair = field.score(*common, seen)
        _refuse_constant(pair, label)
        verdict = judge(pair, baseline.pairs, level=min(level, LEVEL)) if baseline.has_null else None
        bounds = without, throws_of(pair, guesses, level / 2, throws)
        estimate = _measured(
            pair, baseline, verdict, bounds, guesses, confidence, coins, label if len(targets) > 1 else ""
        )
        found.append(estimate)
        attacks.append(pair)
        rows.append(_row(label, pair, estimate, verdict, bounds[1].bounds - bounds[0].bounds, confidence, coins))
    first = next(iter(targets))
    found.append(_one_run(shown(*attacks[0], seed=coins), confidence, coins))
    guard, curve, real_details = _unchecked(), {}, None
    if real is not None:
        beyond = audit_real(
            targets,
            game,
            real,
            trainer=trainer,
            confidence=confidence,
            seed=coins,
            batch_size=batch_size,
            device=device,
        )
        found += beyond.estimates
        guard, curve, real_details = beyond.guard, beyond.curve, beyond.details
    best = baseline.pairs[baseline.best]
    strength = baseline_strength(
        field, helpers, common, guesses=_number(found[0], game), confidence=confidence, seed=coins
    )
    warnings = [*game.warnings, *strength["warnings"]]
    if game.kind == "text" and game.held.y is None and trainer is None and count:
        warnings.append(
            "the stand-ins are n-gram models: a language model that never saw the members may stand out from them too; "
            "pass reference=, a function that trains one like the target"
        )
    if game.kind == "text" and count:
        warnings.append(
            "stand-ins learn from a third of the members; language models that learnt from as many other texts as "
            "there are members reached ε̃ = 0.5: read a value of that size as no evidence"
        )
    if game.kind == "image" and count:
        warnings.append(
            "stand-ins learn from a third of the members; 12 models in our controls that never saw the members were "
            "all reported with 0, which leaves room for one in four: read a small value as weak evidence"
        )
    if not count:
        warnings.append("there are no stand-ins, so what a model knows of the distribution counts as leakage")
    found[0] = replace(found[0], warnings=(*found[0].warnings, *warnings))
    return Audit(
        estimates=tuple(found),
        guard=guard,
        risk=risk_of(found),
        curve=curve,
        details={
            "targets": rows,
            "baseline": {
                "name": baseline.names[baseline.best],
                "auc": best.auc,
                "c_lb": found[0].details["c_lb"],
                "curve": _curve(best, level / 2, coins),
            },
            "null": _null(baseline),
            "strength": strength,
            "game": dict(game.facts),
            "real": real_details,
        },
        metadata={
            "kind": "members-only",
            "name": name,
            "model": ", ".join(targets) if len(targets) > 1 else type(targets[first]).__name__,
            "data_kind": game.kind,
            "members": game.facts["members"],
            "confidence": confidence,
            "seed": seed,
            "coins_seed": coins,
            "helper": helper,
            "references": count,
            "trainings": counted(2 * count + ANCHORS if count else 0),
            "reference": "given" if trainer is not None else "default",
            "splits": list(splits),
            "generator": game.facts["generator"],
            "warnings": [],
            "version": dosimeter.__version__,
            **notes,
        },
    )


def _targets(model: Any) -> dict[str, Any]:
    if not isinstance(model, Mapping):
        return {"model": model}
    if not model or not all(isinstance(key, str) for key in model):
        raise InputError(f"model as a mapping must be {{name: model}}, got {check.show(model)}; pass at least one.")
    return dict(model)


def _helpers(field: Contest, helper: str, real: RealGame | None, seed: int) -> dict[str, Answers | None]:
    """The helper's answers by its kind: every kind that can be had, for the comparison of baselines."""
    found: dict[str, Answers | None] = {"none": None, "generated": field.helped(field.game.helper, seed=seed)}
    if real is not None:
        found["real"] = field.helped(real.helper, seed=seed)
    return found


def _baseline(
    field: Contest, helper: Answers | None, count: int, trainer: Trainer | None, seed: int
) -> tuple[tuple[Answers, ...], Baseline]:
    """What baseline and attack both see, and the baselines: one for each stand-in, or the helper's alone."""
    common: tuple[Answers, ...] = () if helper is None else (helper,)
    if not count:
        name = "the records alone" if helper is None else "the records and a helper"
        return common, Baseline((name,), (field.score(*common),), (common,), 0, has_null=False)
    anchor, pools = anchor_and_pools(field.game, seed=seed)
    seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(count + ANCHORS)]
    anchors = (field.helped(anchor, seed=seeds[k], variant=k, trainer=trainer) for k in range(ANCHORS))
    common = (*common, *anchors)
    seen = tuple(
        (*common, stand_in(field, pools, seed=s, variant=k, trainer=trainer)) for k, s in enumerate(seeds[ANCHORS:])
    )
    pairs = tuple(field.score(*a) for a in seen)
    best = int(np.argmax([pair.auc for pair in pairs]))
    names = tuple(f"stand-in {k + 1}" for k in range(count))
    return common, Baseline(names, pairs, seen, best, has_null=True)


def _refuse_constant(pair: Pair, label: str) -> None:
    both = np.concatenate(pair)
    if (both == both[0]).all():
        raise InputError(
            f"all {both.size} guesses about {label} are identical: neither the records nor the answers tell anything "
            "apart; pass a model with outputs that vary and more members."
        )


def _chosen(field: Contest, attacks: Sequence[Sequence[Answers]], baseline: Sequence[Answers], level: float) -> int:
    """The number of guesses at which the attacks lead most on the training records, out of fold: one for all."""
    numbers = np.array([max(1, round(share * field.member.size)) for share in SHARES])

    def bounds(seen: Sequence[Answers]) -> FloatArray:
        return np.maximum(0.0, logit_bound(numbers, _right(field.rehearse(*seen), numbers), level / 2))

    lead = np.mean([bounds(seen) for seen in attacks], axis=0) - bounds(baseline)
    return max(1, round(SHARES[int(np.argmax(lead))] * field.game.pairs))


def _right(pair: Pair, numbers: Any) -> Any:
    """How many of the highest scores are real ones."""
    order = np.argsort(-np.concatenate(pair), kind="stable")
    return np.cumsum(order < pair.real.size)[numbers - 1]


@dataclass(frozen=True, eq=False)
class Throws:
    """The bound for each throw of the coins, and the guesses and right guesses behind it."""

    bounds: FloatArray
    counts: list[tuple[int, int]]


def throws_of(pair: Pair, guesses: str | int, level: float, throws: Sequence[int]) -> Throws:
    """The bound at one level for each throw of the coins; the same seed throws the same coins for every attack."""
    found = [
        panoramia(baseline=None, attack=shown(*pair, seed=seed), confidence=1.0 - level, guesses=guesses)
        for seed in throws
    ]
    counts = [(int(e.details["attack"]["guesses"]), int(e.details["attack"]["correct"])) for e in found]
    return Throws(np.array([e.epsilon for e in found]), counts)


def _measured(
    pair: Pair,
    baseline: Baseline,
    verdict: Verdict | None,
    bounds: tuple[Throws, Throws],
    guesses: str | int,
    confidence: float,
    coins: int,
    label: str,
) -> Estimate:
    """ε̃ where the target stands out from the stand-ins, else 0; the difference itself is kept in the details.

    c_lb and {c+ε}_lb are medians over the throws of the coins: which record of a pair is shown is chance alone.
    """
    best = baseline.pairs[baseline.best]
    once = panoramia(
        baseline=shown(*best, seed=coins), attack=shown(*pair, seed=coins), confidence=confidence, guesses=guesses
    )
    c, both = (float(np.median(part.bounds)) for part in bounds)
    raw = max(0.0, both - c)
    passed = verdict.stands_out if verdict is not None else once.details["null_p_value"] <= 1.0 - confidence
    reported = raw if passed else 0.0
    subject = f"{label}: " if label else ""
    against = f"{len(baseline.pairs)} models that never saw these members" if verdict is not None else "the baseline"
    values = f"{number(both)} with the model, {number(c)} without it, {percent(confidence)} confidence"
    if reported > 0:
        sentence = (
            f"{subject}PANORAMIA measures ε̃ = {number(reported)} ({values}; the attack stands out from {against}): a "
            "measurement, a lower bound on ε only if the baseline is as good as any can be."
        )
    else:
        reason = "leads by no more than its error" if passed else f"does not stand out from {against}"
        sentence = (
            f"{subject}PANORAMIA measures ε̃ = 0: the attack {reason} ({values}): "
            "a measurement, not evidence of privacy."
        )
    return replace(
        once,
        epsilon=reported,
        claim=sentence,
        details={
            **once.details,
            "c_lb": c,
            "c_plus_epsilon_lb": both,
            "epsilon_raw": raw,
            "epsilon_of_first_throw": once.epsilon,
            "throws": bounds[0].bounds.size,
            "throw_counts": {"baseline": bounds[0].counts, "attack": bounds[1].counts},
            "stands_out": passed,
            "verdict": None if verdict is None else verdict.to_dict(),
            "target": label or "model",
        },
    )


def _row(
    label: str,
    pair: Pair,
    estimate: Estimate,
    verdict: Verdict | None,
    differences: FloatArray,
    confidence: float,
    coins: int,
) -> dict[str, Any]:
    level = (1.0 - confidence) / 2
    run = one_run(shown(*pair, seed=coins), delta=0.0, confidence=confidence)
    low, middle, high = np.quantile(differences, [level, 0.5, 1.0 - level])
    return {
        "name": label,
        "epsilon": estimate.epsilon,
        "epsilon_raw": estimate.details["epsilon_raw"],
        "c_lb": estimate.details["c_lb"],
        "c_plus_epsilon_lb": estimate.details["c_plus_epsilon_lb"],
        "guesses": estimate.details["attack"]["guesses"],
        "recall": estimate.details["attack"]["recall"],
        "stands_out": estimate.details["stands_out"],
        "auc": pair.auc,
        "first_part": pair.first_part,
        "verdict": None if verdict is None else verdict.to_dict(),
        "one_run": run.epsilon,
        "throws": {
            "low": float(low),
            "median": float(middle),
            "high": float(high),
            "number": differences.size,
        },
        "curve": _curve(pair, level, coins),
    }


def _curve(pair: Pair, level: float, coins: int) -> dict[str, Any]:
    """Precision and bound by recall, thinned for a screen, and where the bound is largest."""
    found = bound_curve(shown(*pair, seed=coins), level)
    best = int(np.argmax(found.bound))
    steps = np.unique(np.append(np.geomspace(1, found.guesses.size, CURVE_POINTS).astype(np.int64) - 1, best))
    precision: FloatArray = found.correct / found.guesses
    return {
        "recall": found.recall[steps],
        "precision": precision[steps],
        "bound": found.bound[steps],
        "guesses": found.guesses[steps],
        "best": int(np.searchsorted(steps, best)),
    }


def _null(baseline: Baseline) -> dict[str, Any] | None:
    if not baseline.has_null:
        return None
    return {
        "names": list(baseline.names),
        "auc": [pair.auc for pair in baseline.pairs],
        "first_part": [pair.first_part for pair in baseline.pairs],
    }


def _number(estimate: Estimate, game: Game) -> int:
    """The number of guesses at which baselines are compared with each other."""
    return int(max(1, min(estimate.details["attack"]["guesses"], game.pairs)))


def _one_run(evidence: Any, confidence: float, seed: int) -> Estimate:
    """The one-run bound on the same audit records, with abstention: it bounds c + ε, not ε."""
    found = one_run(evidence, delta=0.0, confidence=confidence)
    return replace(
        found,
        low=0.0,
        validity=Validity.MEASUREMENT,
        neighbours=None,
        method="one-run on generated non-members",
        claim=f"The one-run guesses, 'in' and 'out' with abstention between, show c + ε ≥ {number(found.epsilon)} "
        f"({percent(confidence)} confidence): the gap c between real and generated records is in it, so it is no bound "
        "on ε.",
    )


def _unchecked() -> Guard:
    reason = (
        "the non-members are generated and differ from the members by construction; c_lb says by how much, and the "
        "stand-ins what a model gains from that difference without a leak."
    )
    return Guard(shift=False, checked=False, evidence={"reasons": [reason]})
