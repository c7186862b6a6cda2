"""What the page of a language model's audit shows: how it was run, the curve over training, what was memorised."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from dosimeter.audits.one_run.page import guesses_chart
from dosimeter.audits.parts import known
from dosimeter.audits.result import Audit
from dosimeter.audits.text.memorised import how_tried, null_bits
from dosimeter.audits.text.result import Exposure, Extraction, TextDetails, TextMetadata
from dosimeter.audits.training.page import path_chart
from dosimeter.report.canvas import MEMBERS, NONMEMBERS, WARNING, Canvas, Rows, Spec
from dosimeter.report.markup import Pictures, epsilon, figure, paragraph, section, share, short, table, thousands

__all__ = ["CHARTS", "sections"]

_KINDS = {
    "suffix": "a prefix like the training texts, then words at random",
    "random": "words at random",
    "names": "a prefix like the training texts, then invented names",
    "records": "records of the training data themselves",
}


def _parts(audit: Audit) -> tuple[TextDetails, TextMetadata]:
    assert isinstance(audit.details, TextDetails) and isinstance(audit.metadata, TextMetadata)
    return audit.details, audit.metadata


def _guesses(canvas: Canvas, audit: Audit) -> Spec | None:
    return guesses_chart(canvas, audit, _parts(audit)[0].guesses)


def _looks(canvas: Canvas, audit: Audit) -> Spec | None:
    """Draw the bound that each look alone would give, over the steps of the training."""
    looks = _parts(audit)[0].looks
    if len(looks) < 2:
        return None
    rows: Rows = [
        {
            "x": look.step,
            "y": look.epsilon,
            "text": f"step {look.step}: ε ≥ {epsilon(look.epsilon)}, AUC {look.auc:.3f}",
        }
        for look in looks
    ]
    return path_chart(canvas, rows, "steps of training", "ε proven by this look alone", [], left=True)


def _exposures(canvas: Canvas, audit: Audit) -> Spec | None:
    """Draw the exposures of canaries that are in and out, each as a point."""
    exposure, alt = _parts(audit)[0].exposure, canvas.alt
    if exposure is None or exposure.target.mean_inside is None or exposure.target.mean_outside is None:
        return None
    kinds = ["in", "out", "in, base model", "out, base model"]
    means = [exposure.target.mean_inside, exposure.target.mean_outside]
    if exposure.base is not None:
        means += [known(exposure.base.mean_inside), known(exposure.base.mean_outside)]
    rows: Rows = [
        {"row": kind, "x": mean, "text": f"canaries that are {kind}: mean exposure {mean:.2f} bits"}
        for kind, mean in zip(kinds, means, strict=False)
    ]
    never_seen = null_bits(exposure.references)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, exposure.cap], nice=False), title="mean exposure, bits")
    y = alt.Y("row:N", sort=None, title=None)
    color = alt.Color("row:N", scale=alt.Scale(domain=kinds, range=[MEMBERS, NONMEMBERS] * 2), legend=None)
    limit = canvas.chart([{"x": never_seen}])
    base = canvas.chart(rows)
    layers = [
        base.mark_bar(height=12, opacity=0.75).encode(x=x, y=y, color=color),
        limit.mark_rule(color=WARNING, strokeDash=[5, 3]).encode(x=x),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 28 * len(rows) + 4)


CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]] = {
    "looks": _looks,
    "guesses": _guesses,
    "exposures": _exposures,
}


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """Tell how the audit was run; the curve over training; what was memorised; the texts most at risk."""
    details, meta = _parts(audit)
    return [
        _how(meta),
        _over_training(details, pictures),
        _guessed(details, pictures),
        _memorised(details, pictures),
        _scores(details),
        _at_risk(details, meta),
    ]


def _how(meta: TextMetadata) -> str:
    what = _KINDS.get(str(meta.canaries), short(meta.canaries))
    whose = "each person" if meta.unit == "person" else "each of them"
    body = paragraph(
        f"{thousands(meta.count or 0)} texts ({what}) were made before the training. A fair coin decided for {whose} "
        f"whether it was in; {thousands(meta.members or 0)} coins said in."
    )
    if meta.copies and meta.copies > 1:
        whole = "a person with all copies" if meta.unit == "person" else f"{meta.copies} records together"
        body += paragraph(
            f"Each text that was in was trained on {meta.copies} times. The bound is about {whole}, not about one "
            "record."
        )
    body += paragraph(
        f"The score is “{short(meta.score)}”, {short(meta.chosen)}. Base model: {short(meta.base or 'none')}. The hash "
        f"of the sheet is {short(meta.sheet_hash)}, that of its coins {short(meta.mask_hash)}."
    )
    return section("game", "How the audit was run", body)


def _over_training(details: TextDetails, pictures: Pictures) -> str:
    if len(details.looks) < 2:
        return ""
    caption = (
        "The bound that one look after so many steps would prove. The last one is the headline, which was decided "
        "before the training. The largest of several looks is not a bound."
    )
    return section("looks", "Over the training", figure("looks", "Looks during training", caption, pictures))


def _guessed(details: TextDetails, pictures: Pictures) -> str:
    path = details.guesses
    if path is None or not path.guesses:
        return ""
    made, right = path.guesses[-1], path.correct[-1]
    caption = (
        f"All {made} guesses, half “in” for the highest scores and half “out” for the lowest: {right} right "
        f"({share(right / made)}). A guarantee of ε limits the expected share of right guesses."
    )
    return section("guesses", "How many guesses were right", figure("guesses", "Right guesses", caption, pictures))


def _memorised(details: TextDetails, pictures: Pictures) -> str:
    if details.exposure is None and details.extraction is None:
        return ""
    body = paragraph("These are measured facts about this model, not bounds on ε. They often disagree with membership.")
    if details.exposure is not None:
        body += figure("exposures", "Exposure of the secrets", _exposure_caption(details.exposure), pictures)
    if details.extraction is not None:
        body += _extraction(details.extraction)
    return section("memorised", "What was memorised", body)


def _exposure_caption(exposure: Exposure) -> str:
    sizes = f"{exposure.target.inside} canaries that are in and {exposure.target.outside} that are out"
    return (
        f"Mean over {sizes}, each ranked among {exposure.references} other secrets behind the same prefix, so at most "
        f"{exposure.cap:.3g} bits. Dashes: {null_bits(exposure.references):.2f} bits, the mean of secrets that were "
        "never seen."
    )


def _extraction(extraction: Extraction) -> str:
    def counted(hits: int | None, most: int) -> str:
        return "–" if hits is None else f"{hits} of {most}"

    rows = [
        (
            how_tried(row),
            counted(row.inside, extraction.inside),
            counted(row.outside, extraction.outside),
            counted(row.base_inside, extraction.inside),
            counted(row.base_outside, extraction.outside),
        )
        for row in extraction.rows
    ]
    return table(
        "Secrets that the model writes after their prefix (in this number of tries, with a probability of "
        f"{share(extraction.chance)})",
        ("how", "canaries in", "canaries out", "base model: in", "base model: out"),
        rows,
        numeric=(1, 2, 3, 4),
    )


def _scores(details: TextDetails) -> str:
    if not details.scores:
        return ""
    rows = [
        (
            row.name + (" (headline)" if row.headline else ""),
            row.sentence,
            f"{row.auc:.3f}",
            share(row.tpr_at_1_percent),
        )
        for row in details.scores
    ]
    body = paragraph(
        "Only the headline's score was decided on beforehand. The others are measured for comparison: do not report "
        "one because it came out larger."
    )
    body += table(
        "Scores from the same pass", ("score", "what it is", "AUC", "TPR at 1 % FPR"), rows, numeric=(2, 3),
        marked=[index for index, row in enumerate(details.scores) if row.headline],
    )  # fmt: skip
    return section("scores", "The scores side by side", body)


def _at_risk(details: TextDetails, meta: TextMetadata) -> str:
    if not details.at_risk:
        return ""
    rows = [
        (
            row.canary,
            short(row.text) or "not shown (show_records=True shows it)",
            f"{row.score:.4g}",
            "yes" if row.greedy else "no",
            _tries(row.tries),
        )
        for row in details.at_risk
    ]
    own = meta.canaries == "records"
    body = paragraph(
        "Sensitive: this table names records that were trained on." if own else
        "Canaries that are in, the highest scores first; the secrets were made for this audit."
    )  # fmt: skip
    body += table(
        "The texts most at risk",
        ("row", "text", "score", "greedy", "tries for an even chance"),
        rows,
        numeric=(0, 2, 4),
    )
    return section("at-risk", "The texts most at risk", body)


def _tries(value: float | None) -> str:
    if value is None:
        return "out of reach"
    return (
        "1"
        if value <= 1
        else f"{math.ceil(value):,}".replace(",", " ")
        if value < 1e6
        else f"{np.format_float_scientific(value, 1)}"
    )
