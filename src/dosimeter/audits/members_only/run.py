"""Audit a model when only members are known: PANORAMIA (Kazmi 2024, Alg. 1), compared with reference models.

Generated records take the place of non-members. A classifier that sees the records alone tells members from generated
records to some degree, and a model that has learnt the distribution, though not these records, helps it further. So the
attack that sees the target is compared with the same attack that sees a reference model, trained on members outside the
audit. A difference is reported only where the target stands out from all reference models. It is a measurement, not a
bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

import dosimeter
from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.audits.assemble import risk_of
from dosimeter.audits.members_only.measure import (
    FEWEST_REFERENCES,
    Baseline,
    Measurement,
    baseline_strength,
    bounds_of_draws,
    choose_guesses,
    smaller_references,
    train_baselines,
)
from dosimeter.audits.members_only.pair_classifier import (
    FAMILIAR,
    SHARED_REFERENCES,
    Answers,
    Pair,
    PairClassifier,
    PropensityBounds,
    Trainer,
    check_generator,
    generator_warnings,
    pair_classifier,
    propensity_bounds,
)
from dosimeter.audits.members_only.real_nonmembers import RealAudit, audit_real, with_real_nonmembers
from dosimeter.audits.members_only.records import AuditRecords, coin_evidence, split_records
from dosimeter.audits.members_only.result import (
    BaselineStrength,
    GeneratorCheck,
    MembersOnlyDetails,
    MembersOnlyMetadata,
    TargetResult,
)
from dosimeter.audits.members_only.thesis import PROTOCOLS, ThesisAudit, thesis_audit
from dosimeter.audits.parts import ShiftEvidence
from dosimeter.audits.result import Audit, Guard, TrainingCounts
from dosimeter.engine import RunOptions
from dosimeter.engine.options import RunKeywords
from dosimeter.estimate import Estimate, Validity, number, percent, plain
from dosimeter.estimators.one_run import one_run

HELPERS = ("generated", "none", "real")
SPLITS = (0.4, 0.3, 0.3)


class SplitKeywords(TypedDict, total=False):
    """How the records of a members-only audit are divided and filtered."""

    splits: tuple[float, ...]
    audit_size: int | None
    filter: Callable[..., Any] | None


class ProtocolKeywords(TypedDict, total=False):
    """Whose protocol is followed, and how its helper is trained."""

    protocol: str
    helper_train: Trainer | None


class MembersOnlyKeywords(SplitKeywords, ProtocolKeywords, RunKeywords, total=False):
    """What else `audit_members_only` takes."""


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
    guesses: str | int = "auto",
    confidence: float = 0.95,
    repeats: int = 20,
    seed: int = 0,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    run: RunOptions | None = None,
    **options: Unpack[MembersOnlyKeywords],
) -> Audit:
    """Measure what a model gives away about its training records, without any non-member.

    The headline, ε̃, is a measurement and not a bound. Real `nonmembers`, if there are some, give a true lower bound
    beside it.

    Args:
        model: Whatever `audit_model` takes, or a mapping of names to models that share one baseline.
        members: (X, y), or texts. The model was trained on all of them.
        generator: "auto", "flow" (flow matching, for images; kept in the store of `run`), an object with `fit` or
            `sample`, or a function (count, seed) -> records. Records without classes get some from a classifier that
            is trained on the generator's members.
        generated: Generated records, instead of a generator.
        nonmembers: Real non-members of the same kind.
        helper: What the helper model, which baseline and attack both see, is trained on: "generated" records, "real"
            non-members, or "none" for no helper.
        reference: A function (X, y, seed) -> model that trains a reference model like the target, for as many epochs;
            "auto" takes a small model for the kind of data. It is called twice for each of the `references`, twice for
            each of half as many (at least 3) that learn from fewer records, and for two that both sides see.
        references: How many reference models take the target's place: at least 3, or 0 for none.
        guesses: How many records are guessed to be members: "auto" (chosen on the classifiers' training records), a
            number, "ranked" (the best number, corrected for the choice) or "naive" (the best, not corrected).
        confidence: The confidence of the two bounds together whose difference is ε̃.
        repeats: How often the coins are drawn; medians over the draws are reported.
        seed: Decides how the records are divided, what is generated, every training and the coins.
        name: A name for the page.
        metadata: Notes for the page, e.g. {"unit_of_privacy": "one person"}.
        run: Where the model runs, and how many records it is asked at once.
        **options: `splits` (shares of the members for generator, classifiers and audit, by default 0.4, 0.3 and 0.3; a
            fourth is for reference models, which then see none of the generator's), `audit_size` (fewer members to
            audit), `filter` (a function (X, y) -> mask of generated records to keep), `protocol` ("honest", the
            default, or "thesis": the best of all thresholds, too, uncorrected, whatever the reference models say) and
            `helper_train` (as `reference`, for the thesis's helper; a scikit-learn target is cloned).

    Returns:
        The audit, ε̃ of the first model first.

    Raises:
        InputError: If an argument cannot be used, or the generator hands back its members.

    >>> audit_members_only(model, (X, y)).to_html("audit.html")  # doctest: +SKIP
    """
    rest: dict[str, Any] = dict(options)
    division = {key: rest.pop(key) for key in SplitKeywords.__annotations__ if key in rest}
    protocol = {key: rest.pop(key) for key in ProtocolKeywords.__annotations__ if key in rest}
    where = RunOptions.read(run, rest, caller="audit_members_only")
    read_protocol(protocol.get("protocol", PROTOCOLS[0]), protocol.get("helper_train"))
    setup = _setup(model, helper, nonmembers, reference, references, repeats, guesses, confidence, seed)
    setup = replace(setup, **protocol)
    notes = plain(check.mapping("metadata", metadata, "pass e.g. {'unit_of_privacy': 'one person'}"))
    seeds = StageSeeds.of(setup.seed)
    records = split_records(
        members,
        generator=generator,
        generated=generated,
        splits=division.get("splits", SPLITS),
        audit_size=division.get("audit_size"),
        keep=division.get("filter"),
        store=where.store,
        seed=seeds.split,
    )
    setup = setup.with_guesses_up_to(records.pairs)
    real = None if nonmembers is None else with_real_nonmembers(nonmembers, records, seed=seeds.nonmembers)
    measured = _measured(setup, records, real, seeds, where)
    beyond = None
    if real is not None:
        beyond = audit_real(
            setup.targets, real, trainer=setup.trainer, confidence=setup.confidence, seed=seeds.coins, run=where
        )
    told = _metadata(setup, records, seeds, division.get("splits", SPLITS))
    return _assembled(setup, records, measured, beyond, replace(told, name=name, notes=notes))


def read_protocol(protocol: Any, helper_train: Any) -> None:
    """Refuse an unknown protocol, and a helper that could not be trained."""
    if not isinstance(protocol, str) or protocol not in PROTOCOLS:
        raise InputError(f"protocol must be 'honest' or 'thesis', got {protocol!r}; pass one of these.")
    if helper_train is None:
        return
    if not callable(helper_train):
        raise InputError(f"helper_train must be a function (X, y, seed) -> model, got {helper_train!r}; pass one.")
    if protocol != "thesis":
        raise InputError("helper_train trains the helper of protocol='thesis'; pass that too, or leave it out.")


@dataclass(frozen=True, eq=False)
class MembersOnlySetup:
    """The arguments of an audit that say what is measured, checked."""

    targets: Mapping[str, Any]
    helper: str
    trainer: Trainer | None
    references: int
    repeats: int
    guesses: str | int
    confidence: float
    seed: int
    protocol: str = PROTOCOLS[0]
    helper_train: Trainer | None = None

    def with_guesses_up_to(self, pairs: int) -> MembersOnlySetup:
        """The same, with a number of guesses that was checked against the number of pairs."""
        if isinstance(self.guesses, str):
            return self
        remedy = f"pass at most the {pairs} pairs of the audit"
        return replace(self, guesses=check.whole("guesses", self.guesses, 1, remedy, pairs))


class StageSeeds(NamedTuple):
    """One seed for each stage of the audit."""

    split: int
    nonmembers: int
    classifier: int
    helper: int
    references: int
    coins: int

    @classmethod
    def of(cls, seed: int) -> StageSeeds:
        """Independent seeds from the audit's one."""
        return cls(*(int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(6)))


@dataclass(frozen=True, eq=False)
class _MeasuredTargets:
    """What was measured for all targets, with the strength of the baseline."""

    estimates: tuple[Estimate, ...]
    targets: tuple[TargetResult, ...]
    baseline: Baseline
    strength: BaselineStrength
    by_record: PropensityBounds
    thesis: ThesisAudit | None
    coins: int
    generator: GeneratorCheck


def _setup(
    model: Any,
    helper: str,
    nonmembers: Any,
    reference: Trainer | str,
    references: int,
    repeats: int,
    guesses: str | int,
    confidence: float,
    seed: int,
) -> MembersOnlySetup:
    confidence, seed = check.confidence(confidence), check.seed(seed)
    targets = _targets(model)
    check.choice("helper", helper, HELPERS)
    if helper == "real" and nonmembers is None:
        raise InputError(
            "helper is 'real', but there are no nonmembers to train it on; pass nonmembers or 'generated'."
        )
    if not (callable(reference) or reference == "auto"):
        raise InputError(f"reference must be 'auto' or a function (X, y, seed) -> model, got {check.show(reference)}.")
    count = check.whole("references", references, 0, f"pass at least {FEWEST_REFERENCES}, or 0 for none", 1000)
    if 0 < count < FEWEST_REFERENCES:
        raise InputError(
            f"references must be 0 or at least {FEWEST_REFERENCES}, got {count}; a limit needs a few models."
        )
    repeats = check.whole("repeats", repeats, 1, "pass how often the coins are drawn, e.g. 20", 10_000)
    if isinstance(guesses, str):
        check.choice("guesses", guesses, ("auto", "ranked", "naive"))
    trainer = reference if callable(reference) else None
    return MembersOnlySetup(targets, helper, trainer, count, repeats, guesses, confidence, seed)


def _targets(model: Any) -> dict[str, Any]:
    if not isinstance(model, Mapping):
        return {"model": model}
    if not model or not all(isinstance(key, str) for key in model):
        raise InputError(f"model as a mapping must be {{name: model}}, got {check.show(model)}; pass at least one.")
    return dict(model)


def _measured(
    setup: MembersOnlySetup, records: AuditRecords, real: AuditRecords | None, seeds: StageSeeds, run: RunOptions
) -> _MeasuredTargets:
    """Train baseline and attack, and measure every target with the same coins."""
    classifier = pair_classifier(records, seed=seeds.classifier)
    asked = {label: classifier.ask(target, run) for label, target in setup.targets.items()}
    thesis = None
    if setup.protocol == "thesis":
        thesis = thesis_audit(
            setup.targets,
            asked,
            classifier,
            real,
            helper_train=setup.helper_train,
            confidence=setup.confidence,
            seed=seeds.helper,
            coins=seeds.coins,
            run=run,
        )
    helpers = _helpers(classifier, real, seeds.helper)
    baseline = train_baselines(classifier, helpers[setup.helper], setup.references, setup.trainer, seeds.references)
    level, guesses = 1.0 - setup.confidence, setup.guesses
    if guesses == "auto":
        guesses = choose_guesses(classifier, [(*baseline.shared, own) for own in asked.values()], baseline, level)
    draws = tuple(seeds.coins + k for k in range(setup.repeats))
    without = bounds_of_draws(baseline.strongest, guesses, level / 2, draws)
    judged = check_generator(classifier.content, records.pairs, records.kind, records.nearest)
    judge = judged.auc if judged.decides else None
    measurement = Measurement(baseline, without, guesses, setup.confidence, seeds.coins, draws, judge)
    attacks = {label: classifier.score(*baseline.shared, own) for label, own in asked.items()}
    results = [measurement.of(label, pair, alone=len(attacks) == 1) for label, pair in attacks.items()]
    first = next(iter(attacks.values()))
    by_record = propensity_bounds(attacks, baseline.pairs, setup.confidence)
    measured = tuple(estimate for estimate, _ in results)
    estimates = (*measured, *by_record.estimates, _one_run(first, setup.confidence, seeds.coins))
    rows = tuple(
        replace(row, by_record=bound.epsilon, by_order=ordered)
        for (_, row), bound, ordered in zip(results, by_record.estimates, by_record.ordered, strict=True)
    )
    used = int(estimates[0].details["attack"]["guesses"])
    strength = baseline_strength(
        classifier,
        helpers if thesis is None else thesis.helpers,
        baseline.shared,
        guesses=max(1, min(used, records.pairs)),
        confidence=setup.confidence,
        seed=seeds.coins,
    )
    return _MeasuredTargets(estimates, rows, baseline, strength, by_record, thesis, seeds.coins, judged)


def _helpers(classifier: PairClassifier, real: AuditRecords | None, seed: int) -> dict[str, Answers | None]:
    """The helper's answers by what it was trained on: every kind that there are records for, to compare baselines."""
    helpers: dict[str, Answers | None] = {
        "none": None,
        "generated": classifier.ask_trained(classifier.records.for_helper, seed=seed),
    }
    if real is not None:
        helpers["real"] = classifier.ask_trained(real.for_helper, seed=seed)
    return helpers


def _one_run(attack: Pair, confidence: float, coins: int) -> Estimate:
    """The one-run bound on the same audit records, with abstention: it bounds c + ε, not ε."""
    bound = one_run(coin_evidence(*attack, seed=coins), delta=0.0, confidence=confidence)
    return replace(
        bound,
        low=0.0,
        validity=Validity.MEASUREMENT,
        neighbours=None,
        method="one-run on generated non-members",
        claim=f"The one-run guesses, 'in' and 'out' with abstention between, show c + ε ≥ {number(bound.epsilon)} "
        f"({percent(confidence)} confidence): this includes the gap c between members and generated records, so it is "
        "not a bound on ε.",
    )


def _assembled(
    setup: MembersOnlySetup,
    records: AuditRecords,
    measured: _MeasuredTargets,
    beyond: RealAudit | None,
    metadata: MembersOnlyMetadata,
) -> Audit:
    """Put everything into one audit, the warnings at its headline."""
    head = measured.estimates[0]
    thesis = () if measured.thesis is None else measured.thesis.warnings
    head = replace(head, warnings=(*head.warnings, *_warnings(setup, records, measured), *thesis))
    estimates = (head, *measured.estimates[1:], *(() if beyond is None else beyond.estimates))
    if measured.thesis is not None:
        estimates = (*estimates, *measured.thesis.estimates)
    c_lb = measured.targets[0].c_lb
    return Audit(
        estimates=estimates,
        guard=_unchecked(setup.references) if beyond is None else beyond.guard,
        risk=risk_of(estimates),
        curve=None if beyond is None else beyond.curve,
        details=MembersOnlyDetails(
            targets=measured.targets,
            baseline=measured.baseline.result(c_lb, 1.0 - setup.confidence, measured.coins),
            null=measured.baseline.values(),
            strength=measured.strength,
            game=records.counts,
            real=None if beyond is None else beyond.result,
            propensities=measured.by_record.check,
            thesis=None if measured.thesis is None else measured.thesis.result,
            generator=measured.generator,
        ),
        metadata=metadata,
    )


def _warnings(setup: MembersOnlySetup, records: AuditRecords, measured: _MeasuredTargets) -> list[str]:
    warnings = [*generator_warnings(measured.generator), *records.warnings, *measured.strength.warnings]
    test = measured.targets[0].verdict
    if test is None:
        return [*warnings, "there are no reference models, so what a model knows of the distribution counts as leakage"]
    learn = "reference models learn from fewer records than the model"
    if test.auc_limit >= 1.0:
        warnings.append(
            "the reference models differ so much, or do so well, that no AUC passes their limit: only the surest "
            "guesses could stand out; pass more references or more members"
        )
    if records.kind == "text" and records.for_generator.y is None and setup.trainer is None:
        warnings.append(
            "the reference models are n-gram models: a language model that never saw the members may stand out from "
            "them too; pass reference=, a function that trains one like the target"
        )
    if records.kind == "text":
        warnings.append(
            f"{learn}, and what they gain from more is continued in a straight line: a language model that learns "
            "little from few texts and much from many may stand out without a leak"
        )
        warnings += [FAMILIAR] if records.for_references is None else []
    if records.kind == "image":
        warnings.append(
            f"{learn}; how often an image model that never saw the members is reported with more than 0 has not been "
            "counted with these judges: a small value is weak evidence"
        )
    return warnings


def _metadata(
    setup: MembersOnlySetup, records: AuditRecords, seeds: StageSeeds, splits: tuple[float, ...]
) -> MembersOnlyMetadata:
    names, count = list(setup.targets), setup.references
    trained = 2 * (count + smaller_references(count)) + SHARED_REFERENCES if count else 0
    return MembersOnlyMetadata(
        model=", ".join(names) if len(names) > 1 else type(setup.targets[names[0]]).__name__,
        members=records.counts.members,
        confidence=setup.confidence,
        seed=setup.seed,
        version=dosimeter.__version__,
        trainings=TrainingCounts(asked=trained, done=trained),
        data_kind=records.kind,
        coins_seed=seeds.coins,
        helper=setup.helper,
        references=setup.references,
        reference="given" if setup.trainer is not None else "default",
        splits=tuple(splits),
        generator=records.counts.generator,
        protocol=setup.protocol,
    )


def _unchecked(references: int) -> Guard:
    reason = "the non-members are generated and differ from the members by construction; c_lb says by how much"
    if references:
        reason += ", and the reference models show what a model gains from that difference without a leak"
    return Guard(shift=False, checked=False, evidence=ShiftEvidence(reasons=(f"{reason}.",)))
