"""The page of a members-only audit: what was measured, how sure it is, and how strong the baseline is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dosimeter.audits.members_only.null_band import LEVEL
from dosimeter.audits.result import Audit
from dosimeter.estimate import percent
from dosimeter.report.canvas import Canvas, Rows
from dosimeter.report.draw import Drawing
from dosimeter.report.markup import bullets, paragraph, section, table
from dosimeter.report.shell import figure
from dosimeter.report.text import epsilon, share, short, small
from dosimeter.report.theme import ACCENT, CATEGORIES, MUTED, NONMEMBERS, SHAPES, WARNING

BASELINE = "best baseline"
MOST_LINES = 5


def _targets(audit: Audit) -> list[Mapping[str, Any]]:
    return list(audit.details["targets"])


def _lines(audit: Audit) -> list[tuple[str, Mapping[str, Any]]]:
    """Names and curves: the baseline's, then those of the first targets."""
    found = [(BASELINE, audit.details["baseline"]["curve"])]
    return found + [(short(t["name"]), t["curve"]) for t in _targets(audit)[:MOST_LINES]]


def _by_recall(canvas: Canvas, audit: Audit, column: str, title: str, show: Callable[[float], str]) -> dict[str, Any]:
    """A column of the curves against recall, the place of the largest bound marked on each line."""
    alt = canvas.alt
    names, rows, marks = [], [], []
    for name, curve in _lines(audit):
        names.append(name)
        points = sorted(zip(curve["recall"], curve[column], curve["guesses"], strict=True), key=lambda p: p[2])
        line: Rows = [
            {
                "x": float(x),
                "y": float(y),
                "what": name,
                "text": f"{name}: recall {share(float(x))}, {int(k)} guesses: {title} {show(float(y))}",
            }
            for x, y, k in points
        ]
        rows += line
        best = int(curve["best"])
        mark = {"x": float(curve["recall"][best]), "y": float(curve[column][best]), "what": name}
        marks.append({**mark, "text": f"{name}: largest bound {epsilon(float(curve['bound'][best]))}"})
    colors = [MUTED, *CATEGORIES][: len(names)]
    x = alt.X(
        "x:Q", scale=alt.Scale(domain=[0, 1], nice=False), title="recall (members found)", axis=alt.Axis(format="~%")
    )
    y = alt.Y("y:Q", title=title, scale=alt.Scale(zero=column == "bound"), axis=alt.Axis(tickCount=5))
    legend = alt.Legend(columns=1 if canvas.phone else min(4, len(names)))
    color = alt.Color("what:N", scale=alt.Scale(domain=names, range=colors), legend=legend)
    shape = alt.Shape("what:N", scale=alt.Scale(domain=names, range=list(SHAPES[: len(names)])), legend=legend)
    layers = [
        canvas.chart(rows).mark_line(strokeWidth=1.6).encode(x=x, y=y, color=color),
        canvas.chart(marks).mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y, color=color, shape=shape),
        canvas.hover(rows + marks, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 240 if canvas.phone else 300)


def precision_recall(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """Precision of "member" guesses against recall, with and without the model."""
    return _by_recall(canvas, audit, "precision", "precision", share)


def bound_recall(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """The bound at each recall, for that recall alone."""
    return _by_recall(canvas, audit, "bound", "bound at this recall", epsilon)


def stand_ins(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """AUC of the attack with each stand-in and with each target, and the limit between."""
    alt = canvas.alt
    null = audit.details.get("null")
    if not null:
        return None
    limit = float(_targets(audit)[0]["verdict"]["auc_limit"])
    rows: Rows = [
        {"row": "stand-ins", "at": float(v), "kind": "never saw the members", "text": f"{short(n)}: AUC {v:.4g}"}
        for n, v in zip(null["names"], null["auc"], strict=True)
    ]
    for target in _targets(audit):
        kind = "stands out" if target["stands_out"] else "does not stand out"
        rows.append(
            {
                "row": short(target["name"]),
                "at": float(target["auc"]),
                "kind": kind,
                "text": f"{short(target['name'])}: AUC {target['auc']:.4g}, {kind}",
            }
        )
    x = alt.X("at:Q", scale=alt.Scale(zero=False), title="AUC of the attack, real against generated records")
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=170))
    domain = ["never saw the members", "does not stand out", "stands out"]
    legend = alt.Legend(columns=1 if canvas.phone else 3)
    color = alt.Color("kind:N", scale=alt.Scale(domain=domain, range=[MUTED, ACCENT, WARNING]), legend=legend)
    shape = alt.Shape(
        "kind:N", scale=alt.Scale(domain=domain, range=["circle", "square", "triangle-up"]), legend=legend
    )
    layers = [
        canvas.chart([{"at": limit}]).mark_rule(color=MUTED, strokeDash=[4, 3]).encode(x=x),
        canvas.chart(rows).mark_point(filled=True, size=80, opacity=0.85).encode(x=x, y=y, color=color, shape=shape),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 30 * (1 + len(_targets(audit))) + 8)


def baseline_size(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """c_lb against the number of records that the baseline was trained on."""
    alt = canvas.alt
    rows: Rows = [
        {
            "x": float(r["records"]),
            "y": float(r["c_lb"]),
            "text": f"trained on {r['records']} records: c_lb {epsilon(r['c_lb'])}, AUC {r['auc']:.3g}",
        }
        for r in audit.details["strength"]["size"]
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


CHARTS: Mapping[str, Callable[[Canvas, Audit], dict[str, Any] | None]] = {
    "precision-recall": precision_recall,
    "bound-recall": bound_recall,
    "stand-ins": stand_ins,
    "baseline-size": baseline_size,
}


def sections(audit: Audit, pictures: Mapping[str, Mapping[str, Drawing]]) -> list[str]:
    """The measurement, its curves, its null, the baseline, and the game."""
    return [
        _measured(audit),
        _curves(audit, pictures),
        _null(audit, pictures),
        _strength(audit, pictures),
        _game(audit),
    ]


def _measured(audit: Audit) -> str:
    lines = []
    for t in _targets(audit):
        coins = t["throws"]
        lines.append(
            (
                short(t["name"]),
                epsilon(t["epsilon"]),
                epsilon(t["epsilon_raw"]),
                epsilon(t["c_plus_epsilon_lb"]),
                epsilon(t["c_lb"]),
                f"{coins['low']:.3g} to {coins['high']:.3g}",
                "yes" if t["stands_out"] else "no",
            )
        )
    body = paragraph(
        "ε̃ is a measurement: the bound of the attack that sees the model, {c+ε}_lb, less that of a baseline that does "
        "not, c_lb. It would be a lower bound on ε only if no baseline could do better. It is 0 unless the attack "
        "does better than with models that never saw these members."
    )
    body += table(
        "Measured for each model, all with one baseline and the same coins",
        ("model", "ε̃", "before the check", "{c+ε}_lb", "c_lb", "difference over throws of the coins", "stands out"),
        lines,
        numeric=(1, 2, 3, 4, 5),
        marked=[i for i, t in enumerate(_targets(audit)) if t["epsilon"] > 0],
    )
    real = audit.details.get("real")
    if real:
        body += paragraph(
            f"With real non-members (RM;RN, {real['pairs']} pairs) there is no gap c: the first model's attack bounds "
            f"ε ≥ {epsilon(real['epsilon'])}; guesses of both kinds, with abstention between, ε ≥ "
            f"{epsilon(real['one_run'])}. These hold if chance alone decided which records were members and "
            "which were not."
        )
    return section("measured", "What was measured", body)


def _curves(audit: Audit, pictures: Mapping[str, Mapping[str, Drawing]]) -> str:
    best = [f"{name} {epsilon(float(c['bound'][int(c['best'])]))}" for name, c in _lines(audit)]
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
        f"Each point holds at {level} for its own recall alone, so a maximum (mark) is not a bound: {'; '.join(best)}.",
        pictures,
    )
    return section("curves", "With and without the model", body)


def _null(audit: Audit, pictures: Mapping[str, Mapping[str, Drawing]]) -> str:
    null = audit.details.get("null")
    if not null:
        body = paragraph(
            "There were no stand-ins: what a model knows of the distribution counts as leakage here.", "note"
        )
        return section("null", "Compared with models that never saw the members", body)
    out = [short(t["name"]) for t in _targets(audit) if t["stands_out"]]
    verdict = _targets(audit)[0]["verdict"]
    lead = (
        f"{len(null['auc'])} models trained on members outside the audit took the target's place in the same attack. "
        f"The limit is set so that a model without a leak that resembles them passes it in about "
        f"{share(min(1 - audit.headline.confidence, LEVEL))} of audits. "
        + (f"Standing out: {', '.join(out)}." if out else "No model stands out.")
    )
    caption = (
        f"Circles: stand-ins, AUC {min(null['auc']):.4g} to {max(null['auc']):.4g}. Dashed: their limit "
        f"{verdict['auc_limit']:.4g}. A model may also stand out among the surest guesses alone (mean TPR at FPR up to "
        f"5 %, limit {verdict['first_part_limit']:.3g})."
    )
    body = paragraph(lead) + figure("stand-ins", "Attack with each model", caption, pictures, by="y")
    return section("null", "Compared with models that never saw the members", body)


def _strength(audit: Audit, pictures: Mapping[str, Mapping[str, Drawing]]) -> str:
    found = audit.details["strength"]
    sizes, variants = found["size"], found["helper"]
    body = paragraph(_rising(found), "note" if found["rising"] else "")
    caption = f"c_lb at {found['guesses']} guesses for baselines trained on parts of the records."
    body += figure("baseline-size", "Baseline by training size", caption, pictures)
    body += table(
        "Strength of baselines that see less",
        ("baseline", "c_lb", "AUC"),
        [(f"trained on {r['records']} records", epsilon(r["c_lb"]), f"{r['auc']:.3g}") for r in sizes]
        + [(r["helper"], epsilon(r["c_lb"]), f"{r['auc']:.3g}") for r in variants],
        numeric=(1, 2),
    )
    return section("strength", "How strong the baseline is", body)


def _rising(found: Mapping[str, Any]) -> str:
    """What the line of the baseline does, and whether that is more than chance."""
    sizes, chance = found["size"], found["rising_p_value"]
    line = ""
    if len(sizes) >= 2:
        first, last = (float(sizes[k]["c_lb"]) for k in (0, -1))
        moves = "rises" if last > first else "falls" if last < first else "stays"
        ends = (
            f"at {epsilon(last)}"
            if last == first
            else f"from {epsilon(first)} ({sizes[0]['records']} records) to {epsilon(last)} ({sizes[-1]['records']})"
        )
        line = f"Over all training sizes c_lb {moves} {ends}. "
    if chance is None:
        return line + "There are too few records to tell whether more of them would make the baseline better."
    step = f"From half of the records to all of them (p = {small(chance)}) "
    if found["rising"]:
        return line + step + "the baseline still gets better: c_lb is too low and ε̃ too high."
    return line + step + "no gain beyond chance was found."


def _game(audit: Audit) -> str:
    game = audit.details["game"]
    lines = [
        f"{game['members']} members: {game['generator_members']} for the generator, {game['train_members']} to train "
        f"the classifiers, {game['audit_pairs']} to audit; no member is in two parts. A stand-in, a model that takes "
        "the target's place, is trained on members that it is not asked about.",
        f"Non-members from {short(game['generator'])}; {game['sampled']} generated, {game['filtered']} dropped by the "
        f"filter, {share(float(game['copies_share']))} exact copies of members, "
        f"{game['copies_left_out']} of them left out.",
        "Generated records of the helper, the classifiers and the audit are disjoint. That the model was trained on "
        "the members is taken on trust: outputs alone cannot prove it.",
    ]
    return section("game", "How the audit was run", bullets(lines))
