"""The page of a members-only audit: what was measured, how sure it is, and how strong the baseline is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from dosimeter.audits.members_only.measure import LEVEL
from dosimeter.audits.members_only.page_generator import generator_section
from dosimeter.audits.members_only.page_propensity import by_record, propensity_chart
from dosimeter.audits.members_only.page_thesis import difference_recall, every_recall, thesis_section
from dosimeter.audits.members_only.pair_classifier import FIRST_PART
from dosimeter.audits.members_only.result import BaselineStrength, MembersOnlyDetails, RecallCurve, ReferenceValues
from dosimeter.audits.page.facts import Step
from dosimeter.audits.result import Audit
from dosimeter.estimate import percent
from dosimeter.report.canvas import ACCENT, CATEGORIES, MUTED, NONMEMBERS, SHAPES, WARNING, Canvas, Rows, Spec
from dosimeter.report.markup import Pictures, bullets, epsilon, figure, paragraph, section, share, short, small, table

BASELINE = "best baseline"
MOST_LINES = 5


def _details(audit: Audit) -> MembersOnlyDetails:
    assert isinstance(audit.details, MembersOnlyDetails)
    return audit.details


def _curves(details: MembersOnlyDetails) -> list[tuple[str, RecallCurve]]:
    """Names and curves: the baseline's, then those of the first targets."""
    return [(BASELINE, details.baseline.curve), *((short(t.name), t.curve) for t in details.targets[:MOST_LINES])]


def _by_recall(
    canvas: Canvas,
    audit: Audit,
    column: Callable[[RecallCurve], tuple[float, ...]],
    title: str,
    show: Callable[[float], str],
    *,
    zero: bool,
) -> Spec:
    """A column of the curves against recall, the place of the largest bound marked on each line."""
    alt = canvas.alt
    names, rows, marks = [], [], []
    for name, curve in _curves(_details(audit)):
        names.append(name)
        points = sorted(zip(curve.recall, column(curve), curve.guesses, strict=True), key=lambda p: p[2])
        line: Rows = [
            {"x": x, "y": y, "what": name, "text": f"{name}: recall {share(x)}, {k} guesses: {title} {show(y)}"}
            for x, y, k in points
        ]
        rows += line
        mark = {"x": curve.recall[curve.best], "y": column(curve)[curve.best], "what": name}
        marks.append({**mark, "text": f"{name}: largest bound {epsilon(curve.bound[curve.best])}"})
    colors = [MUTED, *CATEGORIES][: len(names)]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[0, 1], nice=False),
        title="recall (members found)",
        axis=alt.Axis(format="~%", tickCount=5),
    )
    y = alt.Y("y:Q", title=title, scale=alt.Scale(zero=zero), axis=alt.Axis(tickCount=5))
    legend = alt.Legend(columns=1 if canvas.phone else min(4, len(names)))
    color = alt.Color("what:N", scale=alt.Scale(domain=names, range=colors), legend=legend)
    shape = alt.Shape("what:N", scale=alt.Scale(domain=names, range=list(SHAPES[: len(names)])), legend=legend)
    layers = [
        canvas.chart(rows).mark_line(strokeWidth=1.6).encode(x=x, y=y, color=color),
        canvas.chart(marks).mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y, color=color, shape=shape),
        canvas.hover(rows + marks, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 240 if canvas.phone else 300)


def precision_recall(canvas: Canvas, audit: Audit) -> Spec | None:
    """Precision of "member" guesses against recall, with and without the model."""
    return _by_recall(canvas, audit, lambda curve: curve.precision, "precision", share, zero=False)


def bound_recall(canvas: Canvas, audit: Audit) -> Spec | None:
    """The bound at each recall, for that recall alone."""
    return _by_recall(canvas, audit, lambda curve: curve.bound, "bound at this recall", epsilon, zero=True)


def reference_models(canvas: Canvas, audit: Audit) -> Spec | None:
    """AUC of the attack with each reference model and with each target, and the limit between."""
    alt = canvas.alt
    details = _details(audit)
    null, test = details.null, details.targets[0].verdict
    if null is None or test is None:
        return None
    rows: Rows = [
        {"row": "reference models", "at": auc, "kind": "never saw the members", "text": f"{short(name)}: AUC {auc:.4g}"}
        for name, auc in zip(null.names, null.auc, strict=True)
    ]
    for target in details.targets:
        kind, name = "stands out" if target.stands_out else "does not stand out", short(target.name)
        rows.append({"row": name, "at": target.auc, "kind": kind, "text": f"{name}: AUC {target.auc:.4g}, {kind}"})
    x = alt.X(
        "at:Q",
        scale=alt.Scale(zero=False),
        title="AUC of the attack" if canvas.phone else "AUC of the attack, members against generated records",
    )
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=170))
    domain = ["never saw the members", "does not stand out", "stands out"]
    legend = alt.Legend(columns=1 if canvas.phone else 3)
    color = alt.Color("kind:N", scale=alt.Scale(domain=domain, range=[MUTED, ACCENT, WARNING]), legend=legend)
    shape = alt.Shape(
        "kind:N", scale=alt.Scale(domain=domain, range=["circle", "square", "triangle-up"]), legend=legend
    )
    layers = [
        canvas.chart([{"at": test.auc_limit}]).mark_rule(color=MUTED, strokeDash=[4, 3]).encode(x=x),
        canvas.chart(rows).mark_point(filled=True, size=80, opacity=0.85).encode(x=x, y=y, color=color, shape=shape),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 30 * (1 + len(details.targets)) + 8)


def baseline_size(canvas: Canvas, audit: Audit) -> Spec | None:
    """c_lb against the number of records that the baseline was trained on."""
    alt = canvas.alt
    rows: Rows = [
        {
            "x": float(size.records),
            "y": size.c_lb,
            "text": f"trained on {size.records} records: c_lb {epsilon(size.c_lb)}, AUC {size.auc:.3g}",
        }
        for size in _details(audit).strength.size
    ]
    if len(rows) < 2:
        return None
    x = alt.X("x:Q", scale=alt.Scale(type="log", nice=False, padding=8), title="training records (logarithmic)",
              axis=alt.Axis(values=[r["x"] for r in rows], format="~s", grid=False))  # fmt: skip
    y = alt.Y("y:Q", title="c_lb", axis=alt.Axis(tickCount=4), scale=alt.Scale(zero=True))
    base = canvas.chart(rows)
    layers = [
        base.mark_line(color=NONMEMBERS, strokeWidth=1.6).encode(x=x, y=y),
        base.mark_point(color=NONMEMBERS, filled=True, size=70, opacity=1).encode(x=x, y=y),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 180 if canvas.phone else 220)


CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]] = {
    "precision-recall": precision_recall,
    "bound-recall": bound_recall,
    "reference-models": reference_models,
    "baseline-size": baseline_size,
    "propensities": propensity_chart,
    "difference-recall": difference_recall,
}


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """The measurement, its curves, the reference models, the baseline, and how the records were used."""
    details = _details(audit)
    return [
        thesis_section(details),
        _measured(details),
        by_record(details, pictures),
        _with_and_without(audit, details, pictures),
        _references(audit, details, pictures),
        _strength(details.strength, pictures),
        generator_section(details),
        _records(details),
    ]


def steps(audit: Audit) -> list[Step]:
    """What would turn the measurement into a bound, and what would make it surer."""
    details = _details(audit)
    found = []
    if details.real is None:
        found.append(
            Step(
                "Find real non-members",
                "Records of the same source that were not used, even a few hundred, make a bound out of the "
                "measurement.",
                "dosimeter.audit_members_only(…, nonmembers=(X, y))",
            )
        )
    found.append(
        Step(
            "Decide by coins next time",
            "Draw a fair coin for each record before the next training. Then the same attack proves a bound, without "
            "generated records.",
            "included = dosimeter.fair_coins(len(records))",
        )
    )
    if details.null is None:
        found.append(
            Step(
                "Compare with reference models",
                "Without them, what the model knows of the distribution counts as leakage.",
                "dosimeter.audit_members_only(…, references=8)",
            )
        )
    if details.strength.rising:
        found.append(
            Step(
                "Give the baseline more records",
                "It still gets better with more of them, so the measured difference is too large.",
            )
        )
    return found


def _measured(details: MembersOnlyDetails) -> str:
    lines = [
        (
            short(target.name),
            epsilon(target.epsilon),
            epsilon(target.epsilon_raw),
            epsilon(target.c_plus_epsilon_lb),
            epsilon(target.c_lb),
            f"{target.throws.low:.3g} to {target.throws.high:.3g}",
            "yes" if target.stands_out else "no",
        )
        for target in details.targets
    ]
    than = "with models that never saw these members" if details.null is not None else "the baseline, beyond chance"
    body = paragraph(
        "ε̃ is a measurement. It is the bound of the attack that sees the model, {c+ε}_lb, minus the bound of a "
        "baseline that does not, c_lb. It would be a lower bound on ε only if no baseline could do better. It is 0 "
        f"unless the attack stands out: it does better with the model than {than}."
    )
    body += table(
        "Measured for each model, all with one baseline and the same coins",
        ("model", "ε̃", "difference", "{c+ε}_lb", "c_lb", "range over draws of the coins", "stands out"),
        lines,
        numeric=(1, 2, 3, 4, 5),
        marked=[i for i, target in enumerate(details.targets) if target.epsilon > 0],
    )
    real = details.real
    if real is not None:
        body += paragraph(
            f"With real non-members ({real.pairs} pairs) there is no gap c. For the first model, guesses of members "
            f"alone prove ε ≥ {epsilon(real.epsilon)}; guesses of members and of non-members prove ε ≥ "
            f"{epsilon(real.one_run)}. These bounds hold if chance alone decided which records were members and "
            "which were not."
        )
    return section("measured", "What was measured", body)


def _with_and_without(audit: Audit, details: MembersOnlyDetails, pictures: Pictures) -> str:
    best = [f"{name} {epsilon(curve.bound[curve.best])}" for name, curve in _curves(details)]
    level = percent((1 + audit.headline.confidence) / 2)
    body = figure(
        "precision-recall",
        "Precision and recall",
        "Share of right guesses among the records guessed to be members, the surest first. Marks: where the bound of "
        "each line is largest.",
        pictures,
    )
    body += figure(
        "bound-recall",
        "Bound and recall",
        f"Each point holds with {level} confidence for its own recall alone, so the largest (marked) is not a bound: "
        f"{'; '.join(best)}.",
        pictures,
    )
    body += every_recall(details, pictures)
    return section("curves", "With and without the model", body)


def _references(audit: Audit, details: MembersOnlyDetails, pictures: Pictures) -> str:
    null, test = details.null, details.targets[0].verdict
    if null is None or test is None:
        body = paragraph(
            "There were no reference models, so what a model knows of the distribution counts as leakage here.", "note"
        )
        return section("references", "Compared with models that never saw the members", body)
    out = [short(target.name) for target in details.targets if target.stands_out]
    lead = (
        f"{len(null.auc)} reference models, trained on members outside the audit, took the target's place in the same "
        f"attack. {_gain(null)}A model that resembles them and leaks nothing passes their limit in about "
        f"{share(min(1 - audit.headline.confidence, LEVEL))} of audits. "
        + (f"Standing out: {', '.join(out)}." if out else "No model stands out.")
    )
    caption = (
        f"Circles: reference models, AUC {min(null.auc):.4g} to {max(null.auc):.4g}. Dashed: their limit, "
        f"{test.auc_limit:.4g}. A model may also stand out among the surest guesses alone (mean TPR at FPR up to "
        f"{share(FIRST_PART)}, limit {test.first_part_limit:.3g})."
    )
    body = paragraph(lead) + figure("reference-models", "Attack with each model", caption, pictures, by="y")
    return section("references", "Compared with models that never saw the members", body)


def _gain(null: ReferenceValues) -> str:
    """What the smaller reference models are for; nothing where there are none."""
    if not null.smaller_auc:
        return ""
    return (
        f"{len(null.smaller_auc)} more learnt from half as many records (AUC {min(null.smaller_auc):.4g} to "
        f"{max(null.smaller_auc):.4g}): what is gained from half to whole is continued up to the target's number of "
        "records, because a model that learnt from more knows the distribution better. "
    )


def _strength(strength: BaselineStrength, pictures: Pictures) -> str:
    body = paragraph(_trend(strength), "note" if strength.rising else "")
    caption = f"c_lb at {strength.guesses} guesses for baselines trained on some of the records."
    body += figure("baseline-size", "Baseline by training size", caption, pictures)
    body += table(
        "Strength of baselines that see less",
        ("baseline", "c_lb", "AUC"),
        [(f"trained on {b.records} records", epsilon(b.c_lb), f"{b.auc:.3g}") for b in strength.size]
        + [(b.helper, epsilon(b.c_lb), f"{b.auc:.3g}") for b in strength.helper],
        numeric=(1, 2),
    )
    return section("strength", "How strong the baseline is", body)


def _trend(strength: BaselineStrength) -> str:
    """What the line of the baseline does, and whether the baseline still gets better by more than chance."""
    line, chance = _line(strength), strength.rising_p_value
    if chance is None:
        return line + "There are too few records to tell whether more of them would make the baseline better."
    step = f"From half of the records to all of them (p = {small(chance)}) "
    if strength.rising:
        return line + step + "the baseline still gets better: c_lb is too low and ε̃ too high."
    return line + step + "no gain beyond chance was found."


def _line(strength: BaselineStrength) -> str:
    """Where the drawn line goes, in the digits that are printed; "" where none is drawn."""
    sizes = strength.size
    if len(sizes) < 2:
        return ""
    printed = [epsilon(size.c_lb) for size in sizes]
    if len(set(printed)) == 1:
        return f"Over all training sizes c_lb stays at {printed[0]}. "
    ends = f"from {printed[0]} ({sizes[0].records} records) to {printed[-1]} ({sizes[-1].records})"
    steps = [after.c_lb - before.c_lb for before, after in pairwise(sizes)]
    moves = "rises" if min(steps) >= 0 else "falls" if max(steps) <= 0 else "moves up and down,"
    return f"Over all training sizes c_lb {moves} {ends}. "


def _records(details: MembersOnlyDetails) -> str:
    counts = details.game
    lines = [
        f"{counts.members} members: {counts.generator_members} for the generator, {counts.train_members} to train "
        f"the classifiers, {counts.audit_pairs} to audit; no member serves for two of these."
        + (" A reference model is trained on members that it is not asked about." if details.null is not None else ""),
        f"Non-members from {short(counts.generator)}: {counts.sampled} generated, {counts.filtered} dropped by the "
        f"filter; {share(counts.copies_share)} were exact copies of members, and {counts.copies_left_out} copies were "
        "left out.",
        "The generated records of the helper, the classifiers and the audit are different ones. That the model was "
        "trained on the members is taken on trust: outputs alone cannot prove it.",
    ]
    return section("records", "How the audit was run", bullets(lines))
