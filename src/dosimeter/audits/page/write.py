"""One audit as one self-contained page, as a PDF, or as pictures: the first screen, and the other parts after it.

The first screen is for a reader who does not know ε: the verdict, the guard, three cards, one picture, what to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dosimeter import _validate as check
from dosimeter._validate import InputError, require
from dosimeter.audits.page import appendix, evidence, facts, people
from dosimeter.audits.page.facts import Conclusion, PageVerdict, page_of
from dosimeter.audits.result import Audit
from dosimeter.estimate import Validity, percent
from dosimeter.report.canvas import ACCENT, INK, MUTED, NARROW, OPEN, WARNING, WIDE, Canvas, Rows, Spec, write_pictures
from dosimeter.report.markup import (
    NOT_STATED,
    Pictures,
    Section,
    assemble,
    bullets,
    clean,
    drawings,
    epsilon,
    esc,
    explained,
    figure,
    joined,
    paragraph,
    section,
    share,
    short,
    small,
    thousands,
    value,
    whose,
    write_page,
)
from dosimeter.report.pdf import print_pdf

TICKS = (0, 0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
BESIDE = 520  # the width of the picture, which stands beside the steps
NEAREST = 0.11  # the least distance of two ticks, as a share of the axis


def first_screen(audit: Audit, pictures: Pictures) -> Section:
    """Verdict, guard, cards, picture and steps; every ε stands below the guard."""
    verdict = facts.verdict(audit)
    heading, lead = facts.verdict_words(audit, verdict)
    doubt = " shifted" if verdict.conclusion is Conclusion.FAILED else ""
    warnings = bullets(audit.headline.warnings, "note") if audit.headline.warnings else ""
    body = (
        f'<div class="verdict {verdict.conclusion}">{paragraph(lead)}</div>\n{_guard(audit)}'
        f'<div class="first{doubt}">{_cards(verdict, audit.headline.confidence)}{warnings}'
        f'<div class="beside">{_picture(verdict, pictures)}{_next(audit)}</div></div>\n'
    )
    return section("verdict", heading, body)


def _guard(audit: Audit) -> str:
    """The verdict of the shift check, which stands above every ε."""
    guard = audit.guard
    notes = [*guard.evidence.reasons, *guard.evidence.warnings]
    if guard.shift:
        kind, what = "shift", "⚠ Warning: members and non-members differ even without the model."
        says = f"{guard} Come back when members and non-members come from one distribution."
    elif guard.checked:
        kind, what = "passed", "✓ Checked first: members and non-members look alike without the model."
        says = str(guard)
    else:
        kind, what = "", "Not checked: whether members and non-members differ."
        says = str(guard).removeprefix("Not checked: ")
        says = says[:1].upper() + says[1:]
    notes = [note for note in notes if note.lower() not in says.lower()]
    role = ' role="alert"' if guard.shift else ""
    return (
        f'<div class="guard {kind}"{role}>{paragraph(what, "what")}{paragraph(says)}'
        f"{''.join(paragraph(note, 'note') for note in notes)}</div>\n"
    )


# --- three cards ------------------------------------------------------------------------------------------
def _cards(verdict: PageVerdict, confidence: float) -> str:
    cells = ""
    for name, big, how in (_lower_card(verdict), _upper_card(verdict), _third_card(verdict, confidence)):
        how = how.replace(" %", "\u00a0%").replace("δ = ", "δ\u00a0=\u00a0")  # a narrow card keeps these together
        cells += (
            f'<div><dt>{explained(name)}</dt><dd class="big">{esc(big)}</dd><dd class="how">{explained(how)}</dd></div>'
        )
    return f'<dl class="cards">{cells}</dl>\n'


def _lower_card(verdict: PageVerdict) -> tuple[str, str, str]:
    """What the attack proves; a number that is not a bound is not called one."""
    lower = verdict.lower
    if lower.validity.is_bound:
        how = joined(
            whose(lower.neighbours, verdict.unit),
            f"δ = {small(lower.delta)}, {percent(lower.confidence)} confidence",
            str(lower.validity),
        )
        return "Proven by the attack", f"ε ≥ {epsilon(lower.low)}", how
    kind = "Measured" if lower.validity == Validity.MEASUREMENT else "Estimated"
    how = joined(f"at δ = {small(lower.delta)}", f"{lower.validity}, not a bound on ε")
    return kind, f"{facts.symbol(lower)} = {epsilon(lower.epsilon)}", how


def _upper_card(verdict: PageVerdict) -> tuple[str, str, str]:
    beside, title = verdict.stated or verdict.other, f"Guaranteed by the {verdict.subject}"
    if beside is None:
        return title, NOT_STATED, "no proven upper bound was given, so it may be anything"
    apart = "" if verdict.stated is not None else "another ε than the attack's"
    how = joined(whose(beside.neighbours), f"δ = {small(beside.delta)}", f"proven by {clean(beside.method)}", apart)
    return title, f"ε ≤ {epsilon(beside.epsilon)}", how


def _third_card(verdict: PageVerdict, confidence: float) -> tuple[str, str, str]:
    """What was measured on people: members found at few false alarms; else how far the audit could have gone."""
    point, most, unit = verdict.point, verdict.most, verdict.unit
    if point is not None and not (verdict.conclusion is Conclusion.NONE and most is not None):
        limit = point.limit
        sure = (
            "too few, or too dependent, for a limit"
            if limit is None
            else f"truly at least {share(limit)} with {percent(confidence)} confidence"
        )
        name = f"Measured: members found at {share(point.fpr)} false alarms"
        return name, share(point.tpr), f"guessing finds {share(point.fpr)}; {sure}"
    if most is not None:
        act = whose(verdict.lower.neighbours, unit)
        how = joined(act, f"about what a perfect attack on as many {unit}s would have proven")
        return "Could have been proven", f"ε ≥ {epsilon(most)}", how
    return "Could have been proven", "unknown", "the headline is not a bound, so no size limits it"


# --- one picture ------------------------------------------------------------------------------------------
def region_chart(canvas: Canvas, audit: Audit) -> Spec | None:
    """What was proven, what is guaranteed, and what is in between, on one line.

    Below each ε stands how sure somebody who was 50 % sure may become under a guarantee of that size.
    """
    alt = canvas.alt
    canvas.width = min(canvas.width, BESIDE)
    verdict = facts.verdict(audit)
    lower, stated, clash, bound = verdict.lower, verdict.stated, verdict.clash, verdict.lower.validity.is_bound
    low = lower.low if bound else 0.0
    high = math.inf if stated is None else stated.epsilon
    reach = verdict.most if bound else None
    ends = [v for v in (low, high, reach, 0 if bound else lower.epsilon) if v is not None and math.isfinite(v)]
    top = 1.5 * max(3.0, *ends)
    right = min(high, top)
    proven, free = "excluded by the attack", "not known" if right < top else "not known, nothing limits it"
    both, above = "both claim this: a contradiction", "excluded by the guarantee"
    middle = both if clash else free
    cuts = [(0.0, min(low, right), proven), (min(low, right), max(low, right), middle), (max(low, right), top, above)]
    bars: Rows = [{"from": a, "to": min(b, top), "kind": kind} for a, b, kind in cuts if a < min(b, top)]
    names = [row["kind"] for row in bars]
    colors = {proven: ACCENT, middle: WARNING if clash else OPEN, above: INK}
    scale = alt.Scale(type="symlog", constant=1, domain=[0, top], nice=False)
    x = alt.X("from:Q", scale=scale, title=_axis_title(canvas, verdict), axis=_axis(canvas, top))
    color = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=names, range=[colors[name] for name in names]),
        legend=alt.Legend(symbolType="square", columns=1 if canvas.phone else 2 if clash else 3, symbolOpacity=1),
    )
    marks = _marks(verdict, reach, canvas.phone)
    drawn = canvas.chart(bars).mark_bar(height=22, opacity=0.85)
    layers = [
        drawn.encode(x=x, x2=alt.X2("to:Q"), y=alt.YValue(37), color=color),
        *(_mark(canvas, scale, mark, top) for mark in marks),
        *(_mark_text(canvas, scale, mark, top) for mark in marks),
        canvas.hover(
            [{"from": min(m.at, top), "at_y": 37, "text": m.text} for m in marks],
            alt.X("from:Q", scale=scale),
            alt.Y("at_y:Q", scale=alt.Scale(domain=[0, 74], range=[0, 74]), axis=None),
        ),
    ]
    return canvas.finish(alt.layer(*layers), 92 if reach is not None else 74)


def _axis_title(canvas: Canvas, verdict: PageVerdict) -> list[str]:
    act = whose(verdict.lower.neighbours, verdict.unit)
    if canvas.phone:
        return [f"ε {act}".strip(), "below it: how sure somebody may", "become who was 50 % sure"]
    return [f"ε {act}".strip(), "below it: how sure somebody who was 50 % sure may become"]


def _place(value: float, top: float) -> float:
    """Where a value stands on the axis, from 0 to 1."""
    return math.log1p(min(value, top)) / math.log1p(top)


def _axis(canvas: Canvas, top: float) -> Any:
    """Ticks that do not touch; each is named by its ε and by the belief that it allows."""
    least, ticks = NEAREST * (1.9 if canvas.phone else 1.0), [0.0]
    for tick in TICKS[1:]:
        if tick <= top and _place(tick, top) - _place(ticks[-1], top) >= least:
            ticks.append(float(tick))
    belief = "datum.value > 6.9 ? '> 99.9 %' : format(100 / (1 + exp(-datum.value)), '.3~r') + ' %'"
    label = f"[format(datum.value, '~r'), {belief}]"
    return canvas.alt.Axis(values=ticks, labelExpr=label, grid=False, labelLineHeight=15, labelOverlap=False)


@dataclass(frozen=True)
class _Mark:
    """Something that is marked on the line of ε: where, how, and what is written beside it and said on hover."""

    at: float
    label: str
    y: int
    kind: Literal["end", "point", "reach"]
    text: str


def _marks(verdict: PageVerdict, reach: float | None, phone: bool) -> list[_Mark]:
    """What is written at the line: the proven end above it, the guaranteed end and the ceiling below."""
    lower, stated = verdict.lower, verdict.stated
    if lower.validity.is_bound:
        name = f"proven: ε ≥ {epsilon(lower.low)}"
        marks = [_Mark(lower.low, name, 14, "end", f"The attack: {name[8:]}")]
    else:
        name = f"{facts.symbol(lower)} = {epsilon(lower.epsilon)}, not a bound"
        marks = [_Mark(lower.epsilon, name, 14, "point", name)]
    if stated is not None and math.isfinite(stated.epsilon):
        name = f"guaranteed: ε ≤ {epsilon(stated.epsilon)}"
        marks.append(_Mark(stated.epsilon, name, 61, "end", f"The training: {name[12:]}"))
    if reach is not None:
        name = (
            f"could have been proven: {epsilon(reach)}" if phone else f"a perfect attack could prove {epsilon(reach)}"
        )
        text = f"A perfect attack on as many would have proven about ε ≥ {epsilon(reach)}"
        marks.append(_Mark(reach, name, 82, "reach", text))
    return marks


def _mark(canvas: Canvas, scale: Any, mark: _Mark, top: float) -> Any:
    """A stroke through the line at an end, a diamond on it for a measured value, a short one for the ceiling."""
    alt = canvas.alt
    base = canvas.chart([{"from": min(mark.at, top)}])
    x = alt.X("from:Q", scale=scale)
    if mark.kind == "point":
        point = base.mark_point(shape="diamond", filled=True, size=150, color=WARNING, opacity=1)
        return point.encode(x=x, y=alt.YValue(37))
    (up, down), faint = {14: (20, 48), 61: (26, 54), 82: (26, 75)}[mark.y], mark.kind == "reach"
    rule = base.mark_rule(
        color=MUTED if faint else INK, strokeWidth=1 if faint else 2, strokeDash=[2, 2] if faint else [1, 0]
    )
    return rule.encode(x=x, y=alt.YValue(up), y2=alt.Y2Value(down))


def _mark_text(canvas: Canvas, scale: Any, mark: _Mark, top: float) -> Any:
    alt = canvas.alt
    strong, place = mark.kind != "reach", _place(mark.at, top)
    text = canvas.chart([{"from": min(mark.at, top), "label": mark.label}]).mark_text(
        align="left" if place < 0.35 else "right" if place > 0.65 else "center",
        fontWeight="bold" if strong else "normal",
        color=INK if strong else MUTED,
        fontSize=13,
    )
    return text.encode(x=alt.X("from:Q", scale=scale), y=alt.YValue(mark.y), text=alt.Text("label:N"))


def _picture(verdict: PageVerdict, pictures: Pictures) -> str:
    """The picture with its text alternative."""
    lower, stated, unit = verdict.lower, verdict.stated, verdict.unit
    act = whose(lower.neighbours, unit) or "of this training"
    parts = [f"The values that ε {act} may have, at δ = {small(lower.delta)}."]
    if lower.validity.is_bound:
        sure = percent(lower.confidence)
        parts.append(
            f"Below {epsilon(lower.low)}: excluded by the attack, with {sure} confidence."
            if lower.low > 0
            else "The attack excludes none."
        )
    else:
        parts.append(f"The diamond, {epsilon(lower.epsilon)}, is not a bound and excludes none.")
    if stated is None or math.isinf(stated.epsilon):
        parts.append("No guarantee limits it from above.")
    else:
        parts.append(f"Above {epsilon(stated.epsilon)}: excluded by the guarantee.")
        parts.append("Both cannot hold." if verdict.clash else "In between: not known.")
    if lower.validity.is_bound and verdict.most is not None:
        parts.append(f"A perfect attack on as many {unit}s would have proven about ε ≥ {epsilon(verdict.most)}.")
    parts.append(f"Under each ε: how sure somebody may become, but for δ, who was 50 % sure that a {unit} was used.")
    return figure("region", "Proven, guaranteed, and in between", " ".join(parts), pictures)


# --- what to do next --------------------------------------------------------------------------------------
def _next(audit: Audit) -> str:
    items = "".join(
        f"<li><strong>{esc(step.title)}.</strong> {explained(step.text)}"
        f"{f' <code>{esc(step.code)}</code>' if step.code else ''}</li>"
        for step in facts.steps(audit)
    )
    return f'<div><h3 id="next">What to do next</h3><ol class="steps" aria-labelledby="next">{items}</ol></div>\n'


CHARTS: dict[str, Callable[[Canvas, Audit], Spec | None]] = {
    "region": region_chart,
    "accountants": evidence.accountants_chart,
    "roc": evidence.roc_chart,
    "distributions": appendix.distributions_chart,
    "star": appendix.star_chart,
    "subgroups": people.subgroups_chart,
}


def charts(audit: Audit, *, width: int = WIDE, only: str | None = None) -> dict[str, Spec]:
    """Draw the charts of an audit: those of every kind, and those that its own kind adds.

    Every chart has a layer named "hover": invisible points with a text that Vega and the page show as a tooltip.

    Args:
        audit: What an audit function returned.
        width: The full width in pixels; up to 420 the charts are laid out for a phone.
        only: The name of the one chart to draw; None for all.

    Returns:
        Vega-Lite specifications by name, e.g. "roc"; a chart that this audit has nothing for is left out.

    >>> from dosimeter import Scores, audit_scores
    >>> list(charts(audit_scores(Scores([2.0, 3.0], [0.0, 1.0]))))
    ['region', 'roc']
    """
    kind = page_of(audit.metadata.kind)
    makers = CHARTS | dict(kind.CHARTS if kind is not None else {})
    drawn = {name: make(Canvas(width), audit) for name, make in makers.items() if only in (None, name)}
    return {name: chart for name, chart in drawn.items() if chart is not None}


def to_html(audit: Audit, *, title: str | None = None) -> str:
    """Make one HTML page of an audit, which loads nothing from anywhere.

    Args:
        audit: What an audit function returned.
        title: The heading; None for the name of the audit or of its model.

    Returns:
        The text of the file.

    Raises:
        InputError: If `audit` is something else.
        ImportError: If the extra report is not installed.

    >>> from dosimeter import Scores, audit_scores
    >>> to_html(audit_scores(Scores([2.0, 3.0], [0.0, 1.0])))[:15]
    '<!DOCTYPE html>'
    """
    audit = _checked(audit, "report.to_html")
    pictures = drawings({"wide": charts(audit, width=WIDE), "narrow": charts(audit, width=NARROW)})
    name = audit.metadata.name or audit.metadata.model
    heading = title or (f"Privacy audit: {short(name)}" if name else "Privacy audit")
    kind = page_of(audit.metadata.kind)
    parts = [
        first_screen(audit, pictures),
        evidence.evidence(audit, pictures),
        evidence.roc(audit, pictures),
        *(kind.sections(audit, pictures) if kind is not None else ()),
        people.person(audit),
        people.subgroups(audit, pictures),
        people.exposed(audit),
        people.limits(audit),
        appendix.distributions(audit, pictures),
        appendix.star(audit, pictures),
        appendix.numbers(audit),
        appendix.method(audit),
        appendix.nist(audit),
        appendix.data(audit),
    ]
    return assemble(heading, _subtitle(audit), parts, pictures)


def _subtitle(audit: Audit) -> str:
    meta, said = audit.metadata, []
    by_coins = meta.kind in ("training", "one-run", "gradients", "text") or getattr(meta, "game", None) == "coins"
    if meta.members is not None and meta.nonmembers is not None and by_coins:
        said = [f"{thousands(meta.members)} coins said in", f"{thousands(meta.nonmembers)} out"]
    elif meta.members is not None:
        said = [f"{thousands(meta.members)} members"]
        said += [] if meta.nonmembers is None else [f"{thousands(meta.nonmembers)} non-members"]
    said += [value(meta.notes[key]) for key in ("created", "date") if meta.notes.get(key)]
    return " · ".join([*said, f"dosimeter {short(meta.version)}"] if meta.version else said)


def _checked(audit: Any, caller: str) -> Audit:
    if not isinstance(audit, Audit):
        raise InputError(f"audit must be an Audit, got {check.show(audit)}; pass what an audit function returned.")
    require("altair", extra="report", caller=caller)
    require("vl_convert", extra="report", caller=caller)
    return audit


def write_html(audit: Audit, path: str | Path, *, title: str | None = None) -> Path:
    """Write the page to a file, as `Audit.to_html` does.

    Args:
        audit: What an audit function returned.
        path: The file.
        title: As in `to_html`.

    Returns:
        The path of the file.

    >>> write_html(audit, "audit.html")  # doctest: +SKIP
    """
    return write_page(to_html(audit, title=title), path)


def write_pdf(audit: Audit, path: str | Path, *, title: str | None = None) -> Path:
    """Print the page to a PDF, with everything unfolded, as `Audit.to_pdf` does.

    Args:
        audit: What an audit function returned.
        path: The file.
        title: As in `to_html`.

    Returns:
        The path of the file.

    Raises:
        InputError: If there is no Chromium to print it.

    >>> write_pdf(audit, "audit.pdf")  # doctest: +SKIP
    """
    return print_pdf(to_html(audit, title=title), path)


def write_png(audit: Audit, folder: str | Path, *, scale: float = 2.0, formats: Iterable[str] = ("png",)) -> list[Path]:
    """Write every chart to a folder, without a browser.

    Args:
        audit: What an audit function returned.
        folder: Where the files go; it is made if it does not exist.
        scale: Pixels of a PNG for each pixel of the chart.
        formats: "png", "svg", or both.

    Returns:
        The files.

    Raises:
        InputError: If a format is unknown or `folder` is a file.

    >>> write_png(audit, "charts")  # doctest: +SKIP
    """
    return write_pictures(charts(_checked(audit, "report.write_png")), folder, scale=scale, formats=formats)
