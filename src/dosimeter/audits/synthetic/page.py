"""The page of a synthetic data set: what was published, copies, utility beside privacy, what regulators ask about."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.audits.synthetic.disclosure import INFERENCE, LINKABILITY, SINGLING_OUT, not_stated
from dosimeter.audits.synthetic.result import CopyCounts, Criterion, SyntheticDetails, SyntheticMetadata, UtilityReport
from dosimeter.audits.training.page import training_notes
from dosimeter.estimate import percent
from dosimeter.report.canvas import MEMBERS, NONMEMBERS, Canvas, Rows, Spec
from dosimeter.report.markup import (
    Pictures,
    bullets,
    epsilon,
    figure,
    paragraph,
    section,
    share,
    short,
    small,
    table,
    thousands,
    whose,
)

__all__ = ["CHARTS", "SUBJECT", "quieter", "sections", "steps"]

SUBJECT = "generator"

SHOWN = 20
INSIDE, OUTSIDE = "were in", "were not (control)"


def quieter(audit: Audit) -> facts.Step | None:
    """Offer a generator that gives little away."""
    stated = facts.shown(audit)[1] or facts.other_guarantee(audit)
    if stated is not None and stated.epsilon <= facts.TOLERABLE:
        return None
    now = "" if stated is None else f"The guarantee of now, ε ≤ {epsilon(stated.epsilon)}, allows more. "
    return facts.Step(
        "Use a generator with differential privacy",
        f"{now}One that measures noisy tables, such as MST or AIM, can guarantee ε ≤ {epsilon(facts.TOLERABLE)} for "
        f"adding or removing one record: but for δ, somebody who was 50 % sure that it was used becomes at most 75 % "
        "sure. Taking copies out of a release guarantees nothing.",
        "dosimeter.audit_synthetic(generate, data, mechanism=dosimeter.Guarantee(…))",
    )


def steps(audit: Audit) -> list[facts.Step]:
    """What would prove more: coins in place of a split, or more records."""
    _, meta = _parts(audit)
    if meta.game == "coins":
        more = facts.more_step(audit, "Audit more records", f"{facts.unit(audit)}s with a coin")
        return [] if more is None else [more]
    return [
        facts.Step(
            "Audit the generator, too",
            "Fitted to records that coins choose, it needs no random split, and reference releases teach the attack "
            "what to look for: generators that copy no row may show only then.",
            "dosimeter.audit_synthetic(generate, data)",
        )
    ]


def _parts(audit: Audit) -> tuple[SyntheticDetails, SyntheticMetadata]:
    assert isinstance(audit.details, SyntheticDetails) and isinstance(audit.metadata, SyntheticMetadata)
    return audit.details, audit.metadata


def _named(criterion: Criterion) -> str:
    return criterion.criterion if criterion.column is None else f"{criterion.criterion}: {short(criterion.column)}"


def disclosure(canvas: Canvas, audit: Audit) -> Spec | None:
    """Draw how often each attack succeeds on records that were in, and on the control."""
    alt = canvas.alt
    criteria = [(_named(c), c.found) for c in _parts(audit)[0].criteria]
    if not criteria:
        return None
    rows: Rows = []
    for name, one in criteria:
        for kind, hits, of in ((INSIDE, one.inside, one.inside_of), (OUTSIDE, one.outside, one.outside_of)):
            text = (
                f"{name}: {hits} of {of} records that {kind}"
                if name != SINGLING_OUT
                else f"{name}: {hits} of {of} queries"
            )
            rows.append({"row": name, "at": hits / of, "kind": kind, "text": f"{text} ({share(hits / of)})"})
    x = alt.X(
        "at:Q", scale=alt.Scale(domain=[0, 1], nice=False), title="success", axis=alt.Axis(format="~%", grid=True)
    )
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=190))
    legend = alt.Legend(columns=1 if canvas.phone else 2)
    scale = alt.Scale(domain=[INSIDE, OUTSIDE], range=[MEMBERS, NONMEMBERS])
    shapes = alt.Scale(domain=[INSIDE, OUTSIDE], range=["circle", "square"])
    layers = [
        canvas.chart(rows)
        .mark_point(filled=True, size=90, opacity=0.9)
        .encode(
            x=x, y=y, color=alt.Color("kind:N", scale=scale, legend=legend), shape=alt.Shape("kind:N", scale=shapes)
        ),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 34 * len(criteria) + 8)


CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]] = {"disclosure": disclosure}


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """How it was audited; copies; privacy and utility side by side; the criteria of regulators."""
    details, meta = _parts(audit)
    return [
        _how(audit, details, meta),
        _attacks(audit, details, meta),
        _copies(details.copies, facts.unit(audit)),
        _utility(audit, details),
        _criteria(audit, details, pictures),
    ]


def _how(audit: Audit, details: SyntheticDetails, meta: SyntheticMetadata) -> str:
    """What was fitted to what, how many rows were published, and what even a perfect attack would prove."""
    published = details.published
    body = ""
    if meta.game == "coins":
        helped = (
            f" {meta.references} reference releases, made from records with coins of their own, showed the attack "
            f"what to "
            "look for."
            if meta.references
            else ""
        )
        several = f" This was done {meta.runs} times, each with its own coins." if meta.runs and meta.runs > 1 else ""
        body += paragraph(
            f"A fair coin decided for each audited {facts.unit(audit)} whether the generator was fitted to it: "
            f"{meta.members} were in, {meta.nonmembers} were not.{several}{helped} The coins were drawn before; the "
            f"hash of "
            f"the mask is {short(meta.mask_hash)}."
        )
    else:
        body += paragraph(
            "The release existed before the audit. Members and held-out records are taken as a random split of one "
            "population, so the bound is for replacing one record. A generator that is fitted inside the audit, to "
            "records "
            "that coins choose, would need no such assumption, and could be attacked with reference releases."
        )
    if published is not None:
        source = "members" if facts.unit(audit) == "record" else "records of members"
        without = "had no coin" if meta.game == "coins" else "were not looked at"
        always = f", of which {thousands(published.always_in)} {without}" if published.always_in else ""
        body += paragraph(
            f"Published: {thousands(published.rows)} rows from {thousands(published.members)} {source}{always}, "
            f"{published.per_member:.3g} for each. The bound belongs to this number: more rows show more. A perfect "
            f"attack "
            f"on {thousands(published.audited)} {facts.unit(audit)}s would have proven about ε ≥ "
            f"{epsilon(published.perfect)}."
        )
    return section("release", "How the release was audited", body + training_notes(meta, ()))


def _attacks(audit: Audit, details: SyntheticDetails, meta: SyntheticMetadata) -> str:
    if len(details.attacks) < 2:
        return ""
    body = paragraph(
        "Closeness finds generators that copy or blend rows; cell counts find those that fit tables. The stack "
        "weighs all of "
        "them as it learned from the references, so that nothing was chosen on this release."
    )
    body += table(
        f"Each score on its own, proven {whose(details.attacks[0].neighbours, facts.unit(audit))} with "
        f"{percent(audit.headline.confidence)} confidence each: do not pick the largest",
        ("score", "ε at least", "AUC", "members found at 1 % false alarms"),
        [
            (
                f"{row.attack} (headline)" if row.headline else row.attack,
                epsilon(row.epsilon),
                f"{row.auc:.3g}",
                share(row.tpr_at_1_percent),
            )
            for row in details.attacks
        ],
        numeric=(1, 2, 3),
    )
    return section("attacks", "What each score shows", body)


def _copies(copies: CopyCounts | None, unit: str) -> str:
    """Records that stand in the release, beside those that stand there by chance."""
    if copies is None:
        return ""
    body = table(
        "Records with a copy among the published rows",
        ("", "exact copy", "near copy", "of"),
        [
            ("records that were in", copies.inside, copies.near_inside, copies.inside_of),
            ("records that were not (control)", copies.outside, copies.near_outside, copies.outside_of),
        ],
        numeric=(1, 2, 3),
    )
    told = "" if copies.p_value is None else f" Chance alone: p = {small(copies.p_value)}."
    body += paragraph(
        f"{thousands(copies.rows)} published rows equal a record that was in. Common rows come up by chance; what "
        f"counts is "
        f"how many more copies there are of records that were in.{told} Near: at most {copies.near_limit:.3g} apart, a "
        "hundredth of the usual distance between a record and the nearest other one."
    )
    if copies.pairs:
        pairs = ", ".join(f"{record} → {row}" for record, row in copies.pairs[:SHOWN])
        body += paragraph(f"Sensitive, since it names members: record → published row, the first: {pairs}.", "note")
    return section("copies", "Copies", body)


def _utility(audit: Audit, details: SyntheticDetails) -> str:
    utility = details.utility
    if utility is None or utility.shapes is None:
        return ""
    lines: list[tuple[str, str, str]] = [
        ("privacy loss proven", f"ε ≥ {epsilon(audit.headline.low)}", "lower is better; 0 is not proof of privacy"),
        ("column shapes", f"{utility.shapes:.3f}", "1 is the best: each column is distributed as among the members"),
    ]
    if utility.trends is not None:
        lines.append(("pairs of columns", f"{utility.trends:.3f}", "1 is the best"))
    if utility.trained is not None:
        one = utility.trained
        lines.append(
            (
                f"model of {short(one.target)}",
                f"{one.synthetic:.3f}",
                f"{one.measure} on {one.tested} real records that were never in; {one.real:.3f} if trained on the "
                f"members",
            )
        )
    body = table("Privacy and utility of the same release", ("", "value", "how to read it"), lines, numeric=(1,))
    body += _worst(utility)
    return section("utility", "Utility beside privacy", body)


def _worst(utility: UtilityReport) -> str:
    worst = [f"{short(name)} ({value:.2f})" for name, value in utility.worst if value < 1]
    return paragraph(f"Columns that differ most: {', '.join(worst)}.", "note") if worst else ""


_ASKS = {
    SINGLING_OUT: "Can a person be isolated in the data?",
    LINKABILITY: "Can records of one person be linked?",
    INFERENCE: "Can an attribute be deduced, beyond what the population tells?",
}


def _criteria(audit: Audit, details: SyntheticDetails, pictures: Pictures) -> str:
    """The three criteria of WP29 05/2014 and of the CNIL, each with what can be stated."""
    missing = not_stated(details.criteria)
    if not details.criteria:
        return section("criteria", "What regulators ask about", bullets(missing))
    body = paragraph(
        "Regulators (WP29 opinion 05/2014, CNIL) ask about three risks. For each an attack was tried on records that "
        "were in "
        "and, as a control, on records that were not. Success on the control is what the release tells of the "
        "population; "
        "only the difference is about the persons whose records were in."
    )
    sure = percent(audit.headline.confidence)
    body += figure(
        "disclosure", "Success of each attack", "Round: records that were in. Square: the control.", pictures, by="y"
    )
    body += table(
        "What can be stated for each criterion",
        (
            "criterion",
            "asks",
            "were in",
            "control",
            "difference",
            f"at least ({sure})",
            "p-value",
            "without the release",
        ),
        [
            (
                _named(one),
                _ASKS.get(one.criterion, ""),
                share(one.found.inside / one.found.inside_of),
                share(one.found.outside / one.found.outside_of),
                _points(one.found.difference),
                _points(one.found.difference_low),
                "–" if one.found.p_value is None else small(one.found.p_value),
                _without(one),
            )
            for one in details.criteria
        ],
        numeric=(2, 3, 4, 5, 6),
    )
    body += bullets([*(f"{_named(one)}: {short(one.attack)}." for one in details.criteria), *missing], "note")
    body += bullets(
        [
            "The lower limit of a difference takes records as drawn at random; that of singling out is about queries "
            "drawn at random, which have no exact p-value since they meet the same records. The headline assumes "
            "neither.",
            f"Beside them stands ε ≥ {epsilon(audit.headline.low)}: with {sure} confidence no smaller ε, from which "
            f"limits on "
            "all three would follow, describes this release.",
            "Not tried: an intruder with other data sets about the same persons, several releases of the same "
            "records, and "
            "attacks on the generator itself, if that is published too.",
            "No number here is a legal verdict, and a difference of 0 is not proof that there is none.",
        ]
    )
    return section("criteria", "What regulators ask about", body)


def _points(value: float) -> str:
    """A difference of shares, in points."""
    return f"{100 * value:+.1f} points"


def _without(one: Criterion) -> str:
    if one.majority is None:
        return "–"
    told = f"most frequent value {share(one.majority)}"
    return told if one.baseline is None else f"{told}; nearest real record that was never in {share(one.baseline)}"
