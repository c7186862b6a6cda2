"""What audits of trainings have to show: scores by coin, intervals side by side, the points, a claim's wealth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dosimeter.audits.page import facts
from dosimeter.audits.page.charts import distributions
from dosimeter.audits.result import Audit
from dosimeter.estimate import Validity, percent
from dosimeter.report.canvas import Canvas, Rows
from dosimeter.report.draw import Drawing
from dosimeter.report.markup import bullets, paragraph, section, table
from dosimeter.report.shell import figure
from dosimeter.report.text import clean, epsilon, share, short, small
from dosimeter.report.theme import ACCENT, INK, MUTED, WARNING

Pictures = Mapping[str, Mapping[str, Drawing]]
PATH_POINTS = 400
MOST_POINTS = 100


# --- charts -----------------------------------------------------------------------------------------------


def scores(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """The scores with the point in and out, and the threshold that shadow models fixed."""
    spec = distributions(canvas, audit)
    found = audit.distributions or {}
    at = found.get("threshold")
    if spec is None or at is None or not found["edges"][0] <= at <= found["edges"][-1]:
        return spec
    canvas.rows["threshold"] = [{"x": float(at), "label": "threshold"}]
    place = {"field": "x", "type": "quantitative"}
    rule = {"mark": {"type": "rule", "color": INK, "strokeDash": [2, 2]}, "encoding": {"x": place}}
    text = {
        "mark": {"type": "text", "align": "left", "dx": 5, "color": INK},
        "encoding": {"x": place, "y": {"value": 8}, "text": {"field": "label", "type": "nominal"}},
    }
    spec["layer"] = [*spec["layer"], *({"data": {"name": "threshold"}, **mark} for mark in (rule, text))]
    return spec


def intervals(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """Every method's interval on one axis; bounds that hold for any training stand out."""
    alt = canvas.alt
    found = list(audit.details.get("intervals") or [])
    if len(found) < 2:
        return None
    ends = [facts.known(row[end]) for row in found for end in ("low", "high")]
    stated = facts.guarantee(audit)
    ends += [stated.epsilon] if stated is not None else []
    top = max([v for v in ends if math.isfinite(v)] + [0.1]) * 1.08
    kinds = ["holds for any training", "no confidence bound for any training"]
    rows: Rows = []
    for row in found:
        low, high = facts.known(row["low"]), facts.known(row["high"])
        proven = Validity(row["validity"]).is_bound
        span = f"ε ≥ {epsilon(low)}" if math.isinf(high) else f"ε from {epsilon(low)} to {epsilon(high)}"
        rows.append(
            {
                "row": clean(row["method"]),
                "low": min(low, top),
                "high": min(high, top),
                "kind": kinds[0] if proven else kinds[1],
                "text": f"{clean(row['method'])}: {span} ({clean(row['validity'])})",
            }
        )
    scale = alt.Scale(domain=[0, top], nice=False)
    x = alt.X("low:Q", scale=scale, title=f"ε at δ = {small(found[0]['delta'])}", axis=alt.Axis(tickCount=6, grid=True))
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelColor=INK, labelLimit=190))
    legend = alt.Legend(symbolType="square", columns=1 if canvas.phone else 2, symbolOpacity=1)
    color = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[ACCENT, MUTED]), legend=legend)
    base = canvas.chart(rows)
    layers = [
        base.mark_bar(height=7, opacity=0.7).encode(x=x, x2="high:Q", y=y, color=color),
        base.mark_tick(thickness=3, size=16).encode(x=x, y=y, color=color),
        canvas.hover(rows, x, y),
    ]
    if stated is not None and math.isfinite(stated.epsilon):
        limit = canvas.chart([{"low": stated.epsilon}])
        layers.insert(0, limit.mark_rule(color=INK, strokeDash=[9, 4]).encode(x=x))
    return canvas.finish(alt.layer(*layers), 24 * len(rows) + 4)


def wealth(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """ln of the wealth of the bets against the claim, run by run, and where it rejects."""
    found = audit.details.get("claim")
    if not found or not found["log_wealth"]:
        return None
    path = np.array(found["log_wealth"], float)
    runs = _thinned(path.size)
    rows: Rows = [
        {"x": int(r), "y": float(path[r - 1]), "text": f"Run {int(r)}: wealth {_wealth(float(path[r - 1]))}"}
        for r in runs.tolist()
    ]
    goal = float(found["needed_log_wealth"])
    return _path(canvas, rows, "challenge run", "ln of the wealth", [(goal, "the claim is rejected here")], left=True)


def guesses(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """The share of right guesses among the surest ones, and what the headline's ε allows."""
    found = audit.details.get("guesses")
    if not found:
        return None
    made, right = np.array(found["guesses"], float), np.array(found["correct"], float)
    rows: Rows = [
        {
            "x": int(r),
            "y": float(v / r),
            "text": f"{int(v)} of the {int(r)} surest guesses were right ({share(float(v / r))})",
        }
        for r, v in zip(made, right, strict=True)
    ]
    low = audit.headline.low
    lines = [(0.5, "guessing")]
    if 0 < low < math.inf:
        lines.append((1 / (1 + math.exp(-low)), f"most that a guarantee of ε = {epsilon(low)} allows on average"))
    return _path(canvas, rows, "guesses made, the surest first", "share of right guesses", lines, left=False)


def _path(
    canvas: Canvas, rows: Rows, across: str, up: str, lines: Sequence[tuple[float, str]], *, left: bool
) -> dict[str, Any]:
    """A curve with horizontal lines, named at the left or the right end."""
    alt = canvas.alt
    heights = [row["y"] for row in rows] + [level for level, _ in lines]
    gap = 0.06 * (max(heights) - min(heights)) or 0.1
    right = max(row["x"] for row in rows)
    x = alt.X("x:Q", title=across, scale=alt.Scale(domain=[0, right], nice=False), axis=alt.Axis(tickMinStep=1))
    span = [min(heights) - gap, max(heights) + 2 * gap]
    y = alt.Y("y:Q", title=up, scale=alt.Scale(domain=span, nice=False), axis=alt.Axis(tickCount=5, grid=True))
    marks = canvas.chart([{"y": level, "label": label, "x": 0 if left else right} for level, label in lines])
    side = {"align": "left", "dx": 6} if left else {"align": "right", "dx": -6}
    layers = [
        marks.mark_rule(color=WARNING, strokeDash=[5, 3]).encode(y=y),
        marks.mark_text(dy=-7, **side).encode(x=x, y=y, text="label:N"),
        canvas.chart(rows).mark_line(strokeWidth=1.8, color=ACCENT).encode(x=x, y=y),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 200 if canvas.phone else 260)


def _thinned(size: int) -> Any:
    """Run numbers from 1, all or evenly spaced."""
    return np.unique(np.linspace(1, size, min(size, PATH_POINTS)).round().astype(int))


def _wealth(log: float) -> str:
    return f"{math.exp(min(log, 700.0)):.3g}"


CHARTS: Mapping[str, Callable[[Canvas, Audit], dict[str, Any] | None]] = {
    "distributions": scores,
    "intervals": intervals,
    "wealth": wealth,
    "guesses": guesses,
}


# --- sections ---------------------------------------------------------------------------------------------


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """How the game was played; the claim; the guesses; the intervals side by side; the points."""
    return [
        played(audit),
        claimed(audit, pictures),
        guessed(audit, pictures),
        side_by_side(audit, pictures),
        challenged(audit),
    ]


def played(audit: Audit) -> str:
    """What was trained, what the coins decided, and what went wrong."""
    meta = audit.metadata
    tell = _one_run if meta.get("kind") == "one-run" else _game
    body = "".join(paragraph(text) for text in tell(meta))
    count, origin = meta.get("trainings") or {}, meta.get("provenance") or {}
    if count and origin:
        body += paragraph(
            f"Trainings: {origin['computed']} computed now, {origin['cached']} taken from the store, "
            f"{count['failed']} failed.",
            "note",
        )
    accuracy = [
        f"{what}: {_accuracy(found)}" for what, found in (meta.get("utility") or {}).items() if _accuracy(found)
    ]
    if accuracy:
        body += paragraph(f"Accuracy, mean over models. {'; '.join(accuracy)}.", "note")
    failed = list(meta.get("failed") or ())
    if failed:
        shown = [f"{f['stage']} {f['index']}, seed {f['seed']}: {short(f['reason'])}" for f in failed[:10]]
        more = [f"… and {len(failed) - 10} more"] if len(failed) > 10 else []
        body += f"<h3>Trainings that failed</h3>{bullets([*shown, *more], 'note')}"
    return section("game", "How the audit was run", body)


def _game(meta: Mapping[str, Any]) -> list[str]:
    points = len(meta.get("points") or ())
    which = "one point" if points == 1 else f"{points} points"
    made = f" They are crafted records ({short(meta['canaries'])})." if meta.get("canaries") else ""
    first = (
        f"{meta.get('shadows')} shadow models were trained on random halves of the data. They taught the attack "
        f"({short(meta.get('attack'))}), chose {which} and fixed a threshold.{made}"
    )
    if meta.get("game") == "crossed":
        rest = (
            f"Half of them did that; the other {meta.get('runs')} were then attacked. A fair coin had decided for each "
            "of these models and each point whether the point was in."
        )
    else:
        rest = (
            f"Then {meta.get('runs')} models were trained on all other records, and a fair coin decided in each for "
            "each point whether it was in. The runs differ in these coins and in their random numbers only."
        )
    return [first, rest]


def _one_run(meta: Mapping[str, Any]) -> list[str]:
    helped = (
        f" {meta['shadows']} reference models with coins of their own sharpened the scores."
        if meta.get("shadows")
        else ""
    )
    return [
        f"One model was trained. A fair coin decided for each of {meta.get('count')} canaries "
        f"({short(meta.get('canaries'))}) whether it was in; {meta.get('members')} were.{helped}",
        f"The coins were drawn before the training; the hash of the mask is {short(meta.get('mask_hash'))}.",
    ]


def _accuracy(found: Mapping[str, Any] | None) -> str:
    words = {"members": "of their members", "nonmembers": "of other records"}
    known = {} if not found else {words[k]: v for k, v in found.items() if v is not None}
    return ", ".join(f"{share(v)} {k}" for k, v in known.items())


def claimed(audit: Audit, pictures: Pictures) -> str:
    """The verdict on a claim and the path to it."""
    found = audit.details.get("claim")
    if not found:
        return ""
    what = f"ε = {epsilon(found['epsilon'])} at δ = {small(found['delta'])}"
    if found["rejected"]:
        lead = (
            f"The claim {what} was rejected after {found['rejected_at']} of at most {found['budget']} runs, and no "
            "further model was trained. Only statements that hold at any time are made here; bounds for a number of "
            "runs fixed in advance are left out."
        )
    else:
        lead = f"The claim {what} was not rejected in {found['budget']} runs. That does not prove it."
    caption = (
        "Somebody who bets against a true claim multiplies the stake "
        f"{_wealth(float(found['needed_log_wealth']))} times with a chance of at most "
        f"{share(1 - audit.headline.confidence)}, whenever they stop. The wealth ended at "
        f"{_wealth(float(found['log_wealth'][-1]))}."
    )
    body = paragraph(lead) + figure("wealth", "Wealth of the bets against the claim", caption, pictures)
    return section("claim", "The claim, tested run by run", body)


def guessed(audit: Audit, pictures: Pictures) -> str:
    """Right guesses of a one-run audit."""
    found = audit.details.get("guesses")
    if not found:
        return ""
    made, right = int(found["guesses"][-1]), int(found["correct"][-1])
    caption = (
        f"All {made} guesses, half “in” for the highest scores and half “out” for the lowest: {right} right "
        f"({share(right / made)}). A guarantee of ε limits the expected share of right guesses at every number of "
        "guesses."
    )
    return section("guesses", "How many guesses were right", figure("guesses", "Right guesses", caption, pictures))


def side_by_side(audit: Audit, pictures: Pictures) -> str:
    """All intervals on one axis, and the joint one against the exact one."""
    found = audit.details.get("intervals") or ()
    if len(found) < 2:
        return ""
    body = ""
    joint = audit.details.get("joint")
    if joint:
        if joint.get("narrower") is not None:
            body += paragraph(
                f"The interval of the joint posterior is {share(joint['narrower'])} narrower than Clopper–Pearson's "
                f"({joint['joint_width']:.3g} against {joint['exact_width']:.3g})."
                if joint["narrower"] > 0
                else "The interval of the joint posterior is not narrower than Clopper–Pearson's."
            )
        else:
            body += paragraph("Clopper–Pearson's interval has no upper end here, so the widths cannot be compared.")
        body += paragraph(f"The price: {clean(joint['caveat'])}.", "note")
    caption = (
        f"Each bar is one method at {percent(audit.headline.confidence)}; one that reaches the right edge has no upper "
        "end. Upper ends speak of this attack at its threshold, never of what a better one could show. "
        "Grey: no confidence bound for any training."
    )
    stated = facts.guarantee(audit)
    if stated is not None and math.isfinite(stated.epsilon):
        caption += f" Dashes: the guarantee, ε ≤ {epsilon(stated.epsilon)}."
    body += figure("intervals", "Intervals by method", caption, pictures, by="y")
    return section("intervals", "The methods side by side", body)


def challenged(audit: Audit) -> str:
    """The challenged points, and the candidates that came next."""
    points = audit.details.get("points") or ()
    if not points:
        return ""
    lines = [
        (
            p["record"],
            p["label"],
            "–" if p["weight"] is None else share(p["weight"]),
            f"{p['tp']} of {p['tp'] + p['fn']}",
            f"{p['fp']} of {p['fp'] + p['tn']}",
            "–" if p["advantage"] is None else f"{p['advantage']:.3g}",
            "–" if p["epsilon"] is None else epsilon(p["epsilon"]),
        )
        for p in points[:MOST_POINTS]
    ]
    more = f" (the first {MOST_POINTS} of {len(points)})" if len(points) > MOST_POINTS else ""
    body = paragraph(
        "Record numbers are rows of the data. The weight is how well the attack told shadow models with and without "
        "the record apart; the counts are from the game, at the threshold fixed before it; the bounds of all points "
        "hold at once. The list is sensitive: it names exposed records."
    )
    body += table(
        f"Challenged points{more}",
        ("record", "label", "weight", "found when in", "accused when out", "advantage", "ε at least"),
        lines,
        numeric=(0, 2, 3, 4, 5, 6),
    )
    others = [c for c in audit.details.get("candidates") or () if not c["chosen"]]
    if others:
        body += table(
            "The next candidates",
            ("record", "weight"),
            [(c["record"], share(c["weight"])) for c in others],
            numeric=(0, 1),
        )
    return section("points", "The challenged points", body)
