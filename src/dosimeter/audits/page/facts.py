"""What the page says, as values: drawn from an audit once, used by charts, captions and tables alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Protocol, cast

from dosimeter.accounting import Guarantee, PrivacyRegion
from dosimeter.accounting.accountants import noise_for_epsilon
from dosimeter.accounting.region import comparable
from dosimeter.audits.assemble import family
from dosimeter.audits.result import KINDS, Audit, TprAtFpr
from dosimeter.estimate import Estimate, Validity, number, odds_of, percent
from dosimeter.estimators.lower_bound import largest_provable
from dosimeter.report.markup import epsilon, share, short, small, whose

if TYPE_CHECKING:
    from dosimeter.report.canvas import Canvas, Spec
    from dosimeter.report.markup import Pictures

SHOWN_FPR = 0.01
MOST_STEPS = 3
TOLERABLE = math.log(3)  # somebody who was 50 % sure becomes at most 75 % sure
MOST_UNITS = 40_000  # beyond it the ceiling takes long to compute, and to take more units is not useful advice

CONDITIONS = {
    Validity.RANDOM_SPLIT: (
        ", if the split was random",
        "This holds if chance alone decided which {unit}s were members.",
    ),
    Validity.INDEPENDENT_RUNS: (
        ", if the runs were independent",
        "This holds if every score comes from a training run of its own.",
    ),
}


def ordered(upper: Iterable[Guarantee]) -> list[Guarantee]:
    """Guarantees for reading: proven ones first, the tightest first."""
    return sorted(upper, key=lambda g: (not g.is_bound, g.epsilon))


def bounds(audit: Audit) -> list[Estimate]:
    """The proven lower bounds of the headline, each for neighbours of its own; none where it is not a bound."""
    return family(audit.estimates) if audit.headline.validity.is_bound else []


def symbol(estimate: Estimate) -> str:
    """How a number that is not a bound is written: ε̃ measured with a baseline, ε′ estimated."""
    return "ε̃" if estimate.validity == Validity.MEASUREMENT else "ε′"


def unit(audit: Audit) -> str:
    """What the bound counts: a record or a person."""
    return str(audit.headline.details.get("unit") or "record")


def guarantee(audit: Audit, lower: Estimate | None = None) -> Guarantee | None:
    """The tightest proven upper bound for the same neighbours as this lower bound, by default the headline."""
    bound = audit.headline if lower is None else lower
    if audit.region is not None:
        stated = audit.region.upper
        if stated.is_bound and comparable(bound, stated):
            return stated
    proven = [g for g in ordered(audit.upper) if g.is_bound and comparable(bound, g)]
    return proven[0] if proven else None


def other_guarantee(audit: Audit) -> Guarantee | None:
    """The tightest proven upper bound where none is for the neighbours of a lower bound: it stands beside none."""
    if any(guarantee(audit, lower) for lower in (bounds(audit) or audit.estimates[:1])):
        return None
    proven = [g for g in ordered(audit.upper) if g.is_bound]
    return proven[0] if proven else None


def drawn(audit: Audit) -> tuple[Estimate, Guarantee | None]:
    """The lower bound that stands in the picture of the region, with its guarantee: the first that has one."""
    pairs = [(lower, guarantee(audit, lower)) for lower in (bounds(audit) or audit.estimates[:1])]
    return next((pair for pair in pairs if pair[1] is not None), pairs[0])


def contradiction(lower: Estimate, stated: Guarantee | None) -> bool:
    """Whether the attack proves more than the guarantee allows."""
    return stated is not None and PrivacyRegion(lower, stated).contradiction


def tpr_points(audit: Audit) -> tuple[TprAtFpr, ...]:
    """TPR at the low FPRs of the curve."""
    return () if audit.curve is None else audit.curve.tpr_at_fpr


def tpr_at(audit: Audit, fpr: float) -> TprAtFpr | None:
    """The measured TPR at one of the curve's FPRs."""
    return next((p for p in tpr_points(audit) if math.isclose(p.fpr, fpr, rel_tol=1e-9)), None)


def measurable(estimate: Estimate) -> bool:
    """Whether an estimate has a value at all; Epsilon* has none where the losses cannot tell."""
    return bool(estimate.details.get("measurable", True))


# --- where an audit stands --------------------------------------------------------------------------------
class Conclusion(StrEnum):
    """What an audit comes to; the values are the names that the style sheet colours."""

    FAILED = "failed"  # members and non-members differ without the model
    BROKEN = "broken"  # more is proven than the guarantee allows
    LEAK = "leak"
    NONE = "none"
    MEASURED = "measured"  # the headline is not a bound


@dataclass(frozen=True)
class Step:
    """Something to do next: a few words, a sentence that says why, and what to type."""

    title: str
    text: str
    code: str = ""


def conclusion(audit: Audit) -> Conclusion:
    """What the audit comes to."""
    proven = bounds(audit)
    if audit.guard.shift:
        return Conclusion.FAILED
    if not proven:
        return Conclusion.MEASURED
    if any(contradiction(lower, guarantee(audit, lower)) for lower in proven):
        return Conclusion.BROKEN
    return Conclusion.LEAK if any(lower.low > 0 for lower in proven) else Conclusion.NONE


def shown(audit: Audit) -> tuple[Estimate, Guarantee | None]:
    """The one pair that the first screen speaks of, in its sentence, its cards and its picture alike.

    It is the bound with a guarantee beside it, unless only another bound proves anything, or breaks its guarantee.
    """
    lower, stated = drawn(audit)
    pairs = [(bound, guarantee(audit, bound)) for bound in bounds(audit)]
    broken = next((pair for pair in pairs if contradiction(*pair)), None)
    if broken is not None:
        return broken
    if lower.low == 0:
        return next((pair for pair in pairs if pair[0].low > 0), (lower, stated))
    return lower, stated


def ceiling(estimate: Estimate) -> float | None:
    """About what a perfect attack on as many units would have proven; None where that is not known."""
    most = estimate.details.get("largest_provable")
    return float(most) if isinstance(most, (int, float)) and math.isfinite(most) else None


def more_units(audit: Audit, times: int = 4) -> tuple[int, int, float] | None:
    """How many units were audited, how many `times` as many are, and about what a perfect attack on those proves."""
    head = audit.headline
    game, bins = head.details.get("game"), head.details.get("bins")
    if not isinstance(game, str) or not isinstance(bins, Mapping) or head.neighbours is None:
        return None
    total, inside = sum(bins["records"]), sum(bins["members"])
    if not 0 < inside < total or total * times > MOST_UNITS:
        return None
    most = largest_provable(inside * times, total * times, game, head.neighbours, head.delta, 1 - head.confidence)
    return total, total * times, most


def more_step(audit: Audit, title: str, names: str, code: str = "") -> Step | None:
    """A step towards more units: what a perfect attack could prove on these, and on four times as many."""
    larger, now = more_units(audit), ceiling(audit.headline)
    if larger is None or now is None or not larger[2] > now:
        return None
    few, many, most = larger
    return Step(
        title,
        f"On {few} {names} even a perfect attack proves only about ε ≥ {number(now)}; on {many} it could prove about "
        f"ε ≥ {number(most)}.",
        code,
    )


@dataclass(frozen=True)
class PageVerdict:
    """What the first screen speaks of, in its sentence, its cards and its picture alike.

    Attributes:
        conclusion: What the audit comes to.
        lower: The lower bound, or the number that is not a bound.
        stated: The proven upper bound for the same neighbours.
        other: The proven upper bound for other neighbours, where none stands beside a lower bound.
        clash: Whether the lower bound is above the upper one.
        most: About what a perfect attack on as many units would have proven.
        point: The TPR that was measured at the FPR of the third card.
        unit: What the bound counts: a record or a person.
        subject: What is audited, in one word.
    """

    conclusion: Conclusion
    lower: Estimate
    stated: Guarantee | None
    other: Guarantee | None
    clash: bool
    most: float | None
    point: TprAtFpr | None
    unit: str
    subject: str


def verdict(audit: Audit) -> PageVerdict:
    """Gather what the first screen speaks of."""
    lower, stated = shown(audit)
    return PageVerdict(
        conclusion=conclusion(audit),
        lower=lower,
        stated=stated,
        other=other_guarantee(audit),
        clash=contradiction(lower, stated),
        most=ceiling(lower),
        point=tpr_at(audit, SHOWN_FPR),
        unit=unit(audit),
        # A training, unless the kind of the audit says otherwise.
        subject=str(getattr(page_of(audit.metadata.kind), "SUBJECT", "training")),
    )


def verdict_words(audit: Audit, verdict: PageVerdict) -> tuple[str, str]:
    """The verdict as a heading and a sentence, exactly as strong as what was proven and without any ε."""
    head, reached = verdict.lower, verdict.conclusion
    unit, sure, subject = verdict.unit, percent(head.confidence), verdict.subject
    short_condition, condition = CONDITIONS.get(head.validity, ("", ""))
    condition = condition.format(unit=unit)
    if reached is Conclusion.FAILED:
        return (
            "Check failed: nothing can be concluded",
            "Members and non-members differ even without the model. The numbers below may measure that difference and "
            "not what the model has learnt. Do not quote them.",
        )
    if reached is Conclusion.BROKEN:
        return (
            f"Leak proven, above the guarantee{short_condition}",
            f"With {sure} confidence, one {unit} changes what this {subject} gives out more than its guarantee allows: "
            f"the {subject} does not keep its guarantee, or this is one of the at most {odds_of(head.confidence)} that "
            f"err. {condition}",
        )
    if reached is Conclusion.LEAK:
        return (
            f"Leak proven{short_condition}",
            f"With {sure} confidence, what this {subject} gives out depends on single {unit}s: an attack tells better "
            f"than by guessing which {unit}s were used. {condition}",
        )
    if reached is Conclusion.NONE:
        most, could = verdict.most, ""
        if most is not None and most <= 0:
            could = f" No attack on so few {unit}s could have proven one."
        elif most is not None:
            could = f" A perfect attack on as many {unit}s would have proven one: how large, the third card says."
        return "No leak proven", f"That is not proof of privacy. What this attack found may be chance.{could}"
    return _measured_words(audit)


def _measured_words(audit: Audit) -> tuple[str, str]:
    """The verdict where the headline is not a bound."""
    head = audit.headline
    beside = [e for e in audit.estimates if e.validity.is_bound and e.low > 0]
    ending = "" if beside else ", nothing proven"
    if head.validity == Validity.MEASUREMENT:
        what = "Difference measured" if head.epsilon > 0 else "No difference measured"
        said = "The attack was compared with one that does not see the model. The difference is a measurement"
    else:
        what, said = "Leak estimated" if head.epsilon > 0 else "No leak estimated", "The result is an estimate"
    proven = " A second number, which is a bound, proves a leak: see the evidence." if beside else ""
    return f"{what}{ending}", f"{said}, which bounds nothing, neither from below nor from above.{proven}"


# --- what to do next --------------------------------------------------------------------------------------
def steps(audit: Audit) -> list[Step]:
    """Three things to do that follow from the result, the most urgent first."""
    return list(islice((step for step in _offers(audit) if step is not None), MOST_STEPS))


def _offers(audit: Audit) -> Iterator[Step | None]:
    """All steps that follow, in order; a step that is not shown is not computed."""
    verdict, kind = conclusion(audit), page_of(audit.metadata.kind)
    stronger: Callable[[Audit], list[Step]] = getattr(kind, "steps", lambda _: [])
    quieter: Callable[[Audit], Step | None] = getattr(kind, "quieter", noise_step)
    if verdict is Conclusion.FAILED:
        yield from _after_shift(audit)
    elif verdict is Conclusion.BROKEN:
        yield from _after_broken(audit)
    elif verdict is Conclusion.LEAK:
        yield quieter(audit)
        yield _exposed_step(audit)
        yield from stronger(audit)
        yield _gate_step(audit)
    else:
        yield from stronger(audit)
        yield _exposed_step(audit)
        yield quieter(audit)
        yield _gate_step(audit)


def _after_shift(audit: Audit) -> list[Step | None]:
    copies = audit.guard.evidence.duplicates
    return [
        Step(
            "Draw the members by fair coins",
            "Decide by a coin for each record, before the training, whether it is used. Then members and non-members "
            "cannot differ without the model.",
            "included = dosimeter.fair_coins(len(records))",
        ),
        Step(
            "Or take held-out records of the same source",
            "Same time, same place, same selection as the members"
            + (f", and without the {copies} copies of members that were found." if copies else "."),
        ),
        Step(
            "Audit again before you quote a number",
            "A gate fails this audit until the check passes, whatever its numbers are.",
            "dosimeter gate audit.json --max-epsilon 2",
        ),
    ]


def _after_broken(audit: Audit) -> list[Step | None]:
    lower = shown(audit)[0]
    return [
        Step(
            "Do not release the model under this guarantee",
            "The attack proves more than the guarantee allows, so the guarantee may not be stated.",
        ),
        Step(
            "Look for the fault in the training",
            "Usual ones: gradients that are not clipped for each record, noise that is scaled to the wrong number, "
            "batches that are drawn in another way than stated, records that are there twice.",
            "dosimeter.audit_gradients(…)",
        ),
        Step(
            "Audit once more with new coins",
            f"An audit like this errs in at most {odds_of(lower.confidence)}; a second one that agrees leaves hardly "
            "any doubt.",
        ),
    ]


def noise_step(audit: Audit) -> Step | None:
    """Offer the noise with which a training on this many records gives little away."""
    stated = shown(audit)[1] or other_guarantee(audit)
    plan = _plan(audit)
    if plan is None or (stated is not None and stated.epsilon <= TOLERABLE):
        return None
    records, batch, epochs = plan
    delta = audit.headline.delta or 1e-5
    rate, count = min(batch / records, 1.0), max(round(epochs * records / batch), 1)
    noise = noise_for_epsilon(TOLERABLE, delta=delta, sample_rate=rate, steps=count, method="rdp")
    noise = math.ceil(noise * 1000) / 1000
    more = "" if unit(audit) == "record" else f" A {unit(audit)} with several records needs more noise."
    now = "" if stated is None else f"The guarantee of now, ε ≤ {epsilon(stated.epsilon)}, allows more. "
    return Step(
        "Train with more noise" if stated is not None else "Train with differential privacy",
        f"{now}For {records} records in Poisson batches of {batch} over {epochs:g} epochs, DP-SGD with a noise "
        f"multiplier of {noise:g} guarantees ε ≤ {epsilon(TOLERABLE)} for adding or removing one record at δ = "
        f"{small(delta)}: but for δ, somebody who was 50 % sure that it was used becomes at most 75 % sure.{more}",
        f"dosimeter choose --belief 0.75 --records {records} --batch-size {batch} --epochs {epochs:g} "
        f"--delta {delta:g}",
    )


def _plan(audit: Audit) -> tuple[int, int, float] | None:
    """Records, batch size and epochs of the training: those of the recipe where there is one, else a usual choice."""
    meta = audit.metadata
    records = meta.members if meta.kind in (None, "members-only") else meta.records
    if not records or records < 2:
        return None
    recipe = meta.get("recipe")
    if not isinstance(recipe, Mapping):
        return records, min(256, max(records // 10, 1)), 30.0
    batch, epochs, count = recipe.get("batch_size"), recipe.get("epochs"), recipe.get("steps")
    size = min(int(batch), records) if isinstance(batch, (int, float)) and batch >= 1 else records
    if isinstance(epochs, (int, float)) and epochs > 0:
        return records, size, float(epochs)
    if isinstance(count, (int, float)) and count > 0:
        return records, size, float(count) * size / records
    return None


def _exposed_step(audit: Audit) -> Step | None:
    flagged = [g for g in audit.subgroups if g.flagged]
    if flagged:
        first = max(flagged, key=lambda g: math.inf if g.epsilon is None else g.epsilon)
        return Step(
            f"Look at {short(first.group)} = {short(first.value)} first",
            f"Of {len(audit.subgroups)} groups, {len(flagged)} {'is' if len(flagged) == 1 else 'are'} more exposed "
            f"than the rest; for this one alone ε ≥ {epsilon(first.epsilon)} {whose(first.neighbours, unit(audit))} "
            f"is proven.",
        )
    if audit.exposed and conclusion(audit) is Conclusion.LEAK:
        first_record = audit.exposed[0]
        return Step(
            "Look at the most exposed records",
            f"The attack is surest of {unit(audit)} {short(first_record.record)}: "
            f"{share(first_record.threshold_fpr)} of the non-members look as much like a member. Are they rare, "
            "repeated or wrong?",
        )
    return None


def _gate_step(audit: Audit) -> Step:
    stated = shown(audit)[1]
    limit = 2.0 if stated is None or math.isinf(stated.epsilon) else math.ceil(10 * stated.epsilon) / 10
    return Step(
        "Hold every release to a limit",
        "A gate recomputes the numbers of an audit and fails one that proves more than you allow.",
        f"dosimeter gate audit.json --max-epsilon {limit:g}",
    )


class KindPage(Protocol):
    """What the page module of a kind holds: makers of charts by name, and the sections that show them.

    It may also hold `steps(audit)`: what would make such an audit stronger, as a list of `page.facts.Step`;
    `quieter(audit)`: the step that leaks less, where that is not noise in a training; and `SUBJECT`, what is audited
    where that is not a training.
    """

    CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]]

    def sections(self, audit: Audit, pictures: Pictures) -> list[str]:
        """Sections that stand after the evidence, in order."""


def page_of(kind: str | None) -> KindPage | None:
    """The module that draws what only this kind has; None for a kind that is not known."""
    return cast(KindPage, import_module(f"dosimeter.audits.{KINDS[kind][1]}.page")) if kind in KINDS else None
