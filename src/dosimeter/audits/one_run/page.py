"""What the page of a one-run audit shows: how it was run, the right guesses, intervals side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from dosimeter.audits.one_run.result import RECORDS_KNOWN, GuessPath, OneRunDetails, OneRunMetadata
from dosimeter.audits.page import facts
from dosimeter.audits.page.facts import Step
from dosimeter.audits.result import Audit
from dosimeter.audits.training.page import interval_chart, path_chart, side_by_side, training_notes
from dosimeter.report.canvas import Canvas, Rows, Spec
from dosimeter.report.markup import Pictures, epsilon, figure, paragraph, section, share, short

__all__ = ["CHARTS", "guesses_chart", "sections", "steps"]


def _parts(audit: Audit) -> tuple[OneRunDetails, OneRunMetadata]:
    assert isinstance(audit.details, OneRunDetails) and isinstance(audit.metadata, OneRunMetadata)
    return audit.details, audit.metadata


def _intervals(canvas: Canvas, audit: Audit) -> Spec | None:
    return interval_chart(canvas, audit, _parts(audit)[0].intervals)


def _guesses(canvas: Canvas, audit: Audit) -> Spec | None:
    return guesses_chart(canvas, audit, _parts(audit)[0].guesses)


def guesses_chart(canvas: Canvas, audit: Audit, path: GuessPath | None) -> Spec | None:
    """Draw the share of right guesses among the surest ones, and what the headline's ε allows."""
    if path is None or not path.guesses:
        return None
    rows: Rows = [
        {
            "x": made,
            "y": right / made,
            "text": f"{right} of the {made} surest guesses were right ({share(right / made)})",
        }
        for made, right in zip(path.guesses, path.correct, strict=True)
    ]
    low = audit.headline.low
    lines = [(0.5, "guessing")]
    if 0 < low < math.inf:
        lines.append((1 / (1 + math.exp(-low)), f"most that a guarantee of ε = {epsilon(low)} allows on average"))
    return path_chart(canvas, rows, "guesses made, the surest first", "share of right guesses", lines, left=False)


CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]] = {"intervals": _intervals, "guesses": _guesses}


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """Tell how the audit was run; the guesses; the intervals side by side."""
    details, meta = _parts(audit)
    return [_how(meta), _guessed(details, pictures), side_by_side(audit, details.intervals, None, pictures)]


def steps(audit: Audit) -> list[Step]:
    """What would make this audit stronger: more canaries, crafted ones, reference models."""
    meta = _parts(audit)[1]
    advice = []
    if meta.count and (more := facts.more_step(audit, "Put in more canaries", "canaries")) is not None:
        advice.append(Step(more.title, more.text, f"dosimeter.audit_one_run(…, count={4 * meta.count})"))
    if meta.recipe is not None and meta.canaries in REAL_RECORDS:
        advice.append(_CRAFTED)
    if meta.attack != RECORDS_KNOWN and not meta.shadows:
        advice.append(
            Step(
                "Compare with reference models",
                "Models with coins of their own sharpen the scores, and the comparison does not weaken the bound.",
                "dosimeter.audit_one_run(…, shadows=16)",
            )
        )
    return advice


REAL_RECORDS = ("random rows", "random persons")  # what is challenged where no canary was crafted
_CRAFTED = Step(
    "Craft the canaries",
    "Records that no other record resembles are remembered best, so they show the most of what a training may leak.",
    'dosimeter.audit_one_run(…, canaries="mislabelled")',
)


def _how(meta: OneRunMetadata) -> str:
    """What was trained, what the coins decided, and what went wrong."""
    helped = f" {meta.shadows} reference models with their own coins sharpened the scores." if meta.shadows else ""
    body = paragraph(
        f"One model was trained. A fair coin decided for each of {meta.count} canaries ({short(meta.canaries)}) "
        f"whether it was in; {meta.members} were.{helped}"
    )
    if meta.attack == RECORDS_KNOWN:
        body += paragraph(
            "Each canary is a gradient of the clipping norm at one coordinate. The adversary sees the noisy gradients, "
            "knows all records, and subtracts their clipped gradients: the noise and the canary are left."
        )
    body += paragraph(f"The coins were drawn before the training. The hash of the mask is {short(meta.mask_hash)}.")
    accuracies = [] if meta.utility is None else [("runs", meta.utility.runs)]
    return section("game", "How the audit was run", body + training_notes(meta, accuracies))


def _guessed(details: OneRunDetails, pictures: Pictures) -> str:
    """How many guesses were right."""
    path = details.guesses
    if path is None or not path.guesses:
        return ""
    made, right = path.guesses[-1], path.correct[-1]
    caption = (
        f"All {made} guesses, half “in” for the highest scores and half “out” for the lowest: {right} right "
        f"({share(right / made)}). A guarantee of ε limits the expected share of right guesses at every number of "
        "guesses."
    )
    return section("guesses", "How many guesses were right", figure("guesses", "Right guesses", caption, pictures))
