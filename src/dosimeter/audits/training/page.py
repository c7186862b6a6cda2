"""What the page of a training audit shows: scores by coin, intervals side by side, the points, a claim's wealth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from dosimeter._validate import IntArray
from dosimeter.audits.page import facts
from dosimeter.audits.page.appendix import distributions_chart
from dosimeter.audits.page.facts import Step
from dosimeter.audits.parts import known
from dosimeter.audits.result import Audit
from dosimeter.audits.training.page_parts import interval_chart, path_chart, side_by_side, training_notes
from dosimeter.audits.training.result import PointRow, TrainingDetails, TrainingMetadata
from dosimeter.report.canvas import INK, Canvas, Rows, Spec
from dosimeter.report.markup import Pictures, epsilon, figure, paragraph, section, share, short, small, table

__all__ = ["CHARTS", "sections", "steps"]

PATH_POINTS = 400
MOST_POINTS = 100


def _parts(audit: Audit) -> tuple[TrainingDetails, TrainingMetadata]:
    assert isinstance(audit.details, TrainingDetails) and isinstance(audit.metadata, TrainingMetadata)
    return audit.details, audit.metadata


# --- charts -----------------------------------------------------------------------------------------------


def _scores(canvas: Canvas, audit: Audit) -> Spec | None:
    """Draw the scores with the point in and out, and the threshold that shadow models fixed."""
    spec, bins = distributions_chart(canvas, audit), audit.distributions
    if spec is None or bins is None or bins.threshold is None:
        return spec
    if not known(bins.edges[0]) <= bins.threshold <= known(bins.edges[-1]):
        return spec
    canvas.rows["threshold"] = [{"x": bins.threshold, "label": "threshold"}]
    place = {"field": "x", "type": "quantitative"}
    rule = {"mark": {"type": "rule", "color": INK, "strokeDash": [2, 2]}, "encoding": {"x": place}}
    text = {
        "mark": {"type": "text", "align": "left", "dx": 5, "color": INK},
        "encoding": {"x": place, "y": {"value": 8}, "text": {"field": "label", "type": "nominal"}},
    }
    spec["layer"] = [*spec["layer"], *({"data": {"name": "threshold"}, **mark} for mark in (rule, text))]
    return spec


def _intervals(canvas: Canvas, audit: Audit) -> Spec | None:
    return interval_chart(canvas, audit, _parts(audit)[0].intervals)


def _wealth(canvas: Canvas, audit: Audit) -> Spec | None:
    """Draw ln of the wealth of the bets against the claim, run by run, and where it rejects."""
    claim = _parts(audit)[0].claim
    if claim is None or not claim.log_wealth:
        return None
    path = [known(value) for value in claim.log_wealth]
    rows: Rows = [
        {"x": run, "y": path[run - 1], "text": f"Run {run}: wealth {_stake(path[run - 1])}"}
        for run in _thinned(len(path)).tolist()
    ]
    lines = [(claim.needed_log_wealth, "the claim is rejected here")]
    return path_chart(canvas, rows, "challenge run", "ln of the wealth", lines, left=True)


def _thinned(size: int) -> IntArray:
    """Run numbers from 1, all or evenly spaced."""
    return np.unique(np.linspace(1, size, min(size, PATH_POINTS)).round().astype(int))


def _stake(log: float) -> str:
    return f"{math.exp(min(log, 700.0)):.3g}"


CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]] = {
    "distributions": _scores,
    "intervals": _intervals,
    "wealth": _wealth,
}


# --- sections ---------------------------------------------------------------------------------------------


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """Tell how the audit was run; the claim; the intervals side by side; the points."""
    details, meta = _parts(audit)
    return [
        _how(meta),
        _claimed(audit, details, pictures),
        side_by_side(audit, details.intervals, details.joint, pictures),
        _challenged(details),
    ]


def steps(audit: Audit) -> list[Step]:
    """What would make this audit stronger: more runs, crafted points, more shadow models."""
    meta = _parts(audit)[1]
    found = []
    if meta.runs and (more := facts.more_step(audit, "Make more runs", "coins")) is not None:
        found.append(Step(more.title, more.text, f"dosimeter.audit_training(…, runs={4 * meta.runs})"))
    if meta.recipe is not None and not meta.canaries:
        found.append(
            Step(
                "Challenge crafted records",
                "Records that no other record resembles are remembered best, so they show the most of what a training "
                "may leak.",
                'dosimeter.audit_training(…, canaries="mislabelled")',
            )
        )
    if meta.shadows:
        found.append(
            Step(
                "Train more shadow models",
                f"{meta.shadows} of them calibrated the attack; more choose better points and a better threshold.",
                f"dosimeter.audit_training(…, shadows={4 * meta.shadows})",
            )
        )
    return found


def _how(meta: TrainingMetadata) -> str:
    """What was trained, what the coins decided, and what went wrong."""
    points = len(meta.points)
    which = "one point" if points == 1 else f"{points} points"
    chose = f" on {which} that the caller named" if meta.select == "given" else f", chose {which}"
    made = f" Challenged points are crafted records ({short(meta.canaries)})." if meta.canaries else ""
    body = paragraph(
        f"{meta.shadows} shadow models were trained on random halves of the data. They calibrated the attack "
        f"({short(meta.attack)}){chose} and fixed a threshold.{made}"
    )
    if meta.game == "crossed":
        body += paragraph(
            f"Half of them did that; the other {meta.runs} were then attacked. A fair coin had decided for each of "
            "these models and each point whether the point was in."
        )
    elif meta.game == "replace":
        body += paragraph(
            f"Then {meta.runs} models were trained on all other records. In each of them a fair coin decided for each "
            "point whether it was in, or another record in its place. The runs differ only in these coins and in their "
            "random numbers."
        )
    else:
        body += paragraph(
            f"Then {meta.runs} models were trained on all other records. In each of them a fair coin decided for each "
            "point whether it was in. The runs differ only in these coins and in their random numbers."
        )
    used = meta.utility
    accuracies = [] if used is None else [("shadows", used.shadows), ("runs", used.runs)]
    return section("game", "How the audit was run", body + training_notes(meta, accuracies))


def _claimed(audit: Audit, details: TrainingDetails, pictures: Pictures) -> str:
    """The verdict on a claim and the path to it."""
    claim = details.claim
    if claim is None:
        return ""
    what = f"ε = {epsilon(claim.epsilon)} at δ = {small(claim.delta)}"
    if claim.rejected:
        lead = (
            f"The claim {what} was rejected after {claim.rejected_at} of at most {claim.budget} runs, and no further "
            "model was trained. This page makes only statements that hold at any time. It leaves out bounds that need "
            "a number of runs fixed in advance."
        )
    else:
        lead = f"The claim {what} was not rejected in {claim.budget} runs. That does not prove it."
    caption = (
        "Somebody who bets against a true claim multiplies their stake "
        f"{_stake(claim.needed_log_wealth)} times with a probability of at most "
        f"{share(1 - audit.headline.confidence)}, whenever they stop."
    )
    if claim.log_wealth:
        caption += f" The wealth ended at {_stake(known(claim.log_wealth[-1]))}."
    body = paragraph(lead) + figure("wealth", "Wealth of the bets against the claim", caption, pictures)
    return section("claim", "The claim, tested run by run", body)


def _challenged(details: TrainingDetails) -> str:
    """The challenged points, and the candidates that came next."""
    points = details.points
    if not points:
        return ""
    more = f" (the first {MOST_POINTS} of {len(points)})" if len(points) > MOST_POINTS else ""
    body = paragraph(
        "Record numbers are rows of the data. The weight says how well the attack could tell shadow models with the "
        "record from those without it. The counts are those of the attacked models, at the threshold that was fixed "
        "before. The bounds of all points hold at once. The list is sensitive: it names exposed records."
    )
    body += table(
        f"Challenged points{more}",
        ("record", "label", "weight", "found when in", "accused when out", "advantage", "ε at least"),
        [_point(point) for point in points[:MOST_POINTS]],
        numeric=(0, 2, 3, 4, 5, 6),
    )
    others = [candidate for candidate in details.candidates if not candidate.chosen]
    if others:
        body += table(
            "The next candidates",
            ("record", "weight"),
            [(candidate.record, share(candidate.weight)) for candidate in others],
            numeric=(0, 1),
        )
    return section("points", "The challenged points", body)


def _point(point: PointRow) -> tuple[object, ...]:
    return (
        point.record,
        point.label,
        "–" if point.weight is None else share(point.weight),
        f"{point.tp} of {point.tp + point.fn}",
        f"{point.fp} of {point.fp + point.tn}",
        "–" if point.advantage is None else f"{point.advantage:.3g}",
        "–" if point.epsilon is None else epsilon(point.epsilon),
    )
