"""Audit a fine-tuned language model by its canary sheet: score the secrets, guess the coins, bound ε.

The coins were drawn before the training, and the score is fixed before they are looked at: a function of the model, its
base and the canary alone. So the one-run theorem holds for the bound. Exposure and extraction are measured facts beside
it, for canaries that are in, for those that are out, and for the base model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import dosimeter
from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.audits.assemble import both_sides, guarantees, written
from dosimeter.audits.one_run.run import path_of_guesses
from dosimeter.audits.result import Audit, RecordRisk
from dosimeter.audits.text import memorised
from dosimeter.audits.text.choosing import choose_score
from dosimeter.audits.text.dp import read_mechanism
from dosimeter.audits.text.result import AtRisk, Exposure, Look, ScoreRow, Sides, TextDetails, TextMetadata
from dosimeter.audits.text.scores import DEFAULT, SCORES, available, read_score, score_of
from dosimeter.audits.text.sheet import CanarySheet
from dosimeter.audits.text.subject import Asked
from dosimeter.audits.training import intervals
from dosimeter.audits.training.intervals import check_budget
from dosimeter.audits.training.result import CoinSeeds
from dosimeter.estimate import Estimate, Level
from dosimeter.estimators.headline import rank_bins
from dosimeter.estimators.limits import threshold_at_fpr
from dosimeter.estimators.lower_bound import bound_of_bins, lower_bound
from dosimeter.evidence import OneRun
from dosimeter.models.token_pass import Passes, is_adapted

__all__ = [
    "Settings",
    "audit_canaries",
    "evidence_of",
    "exposure_of",
    "headline",
    "look_at",
    "of_passes",
    "read_sheet",
]

MOST_AT_RISK = 10
CHOSEN_BEFORE = "fixed beforehand"


@dataclass(frozen=True)
class Settings:
    """What is fixed before the coins are looked at."""

    score: str = DEFAULT
    delta: float = 1e-5
    confidence: float = 0.95
    exposure: int = 63
    exposure_canaries: int = 100
    show_records: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        check.delta(self.delta)
        check.confidence(self.confidence)
        check.whole("exposure", self.exposure, 0, "pass how many other secrets to compare with, 0 for none", 10**6)
        check.whole("exposure_canaries", self.exposure_canaries, 2, "pass for how many canaries, e.g. 100")
        check.flag("show_records", self.show_records)


def audit_canaries(
    model: Any,
    tokenizer: Any,
    sheet: CanarySheet | str | os.PathLike[str],
    *,
    base: Any = None,
    score: str = DEFAULT,
    references: Sequence[tuple[Any, CanarySheet]] = (),
    mechanism: Any = None,
    expected_hash: str | None = None,
    exposure: int = 63,
    exposure_canaries: int = 100,
    show_records: bool = False,
    delta: float = 1e-5,
    confidence: float = 0.95,
    name: str | None = None,
    batch_size: int | None = None,
    device: Any = None,
) -> Audit:
    """Audit a language model that was fine-tuned on `sheet.training_texts(…)`.

    Args:
        model: The fine-tuned causal model of Hugging Face, also with peft's adapters or inside Opacus's wrapper.
        tokenizer: Its tokenizer.
        sheet: The canaries and their coins, or the file that they are kept in.
        base: The model that the training started from. Adapters need none: they are switched off instead.
        score: The score of the headline: "ratio" (to the base model), "loss", "zlib", "min-k", "min-k++",
            "min-k++ calibrated", "wbc", "ez-mia" or "informia". Decide before you see a result. "auto" decides on
            `references`.
        references: Pairs (model, sheet) of other fine-tunes with coins of their own (`sheet.again()`), on which "auto"
            chooses the score.
        mechanism: What the training guarantees: the `PrivacyEngine` of Opacus, or a `DpSgd`.
        expected_hash: The sheet's hash, or that of its coins, as it was written down before training.
        exposure: How many other secrets a secret is compared with; 0 leaves exposure out.
        exposure_canaries: For how many canaries exposure is measured, half of them in.
        show_records: Whether the page and the file may show texts of your own records; secrets of canaries are shown.
        delta: The δ of the guarantees that are tested.
        confidence: The confidence of the bound.
        name: What to call the training.
        batch_size: How many texts go through the model at once; None fits it to memory.
        device: Where to run the models; None leaves them where they are.

    Returns:
        The audit: a bound for adding or removing one record, person, or group of copies; then what was memorised.

    Raises:
        InputError: If the models, the tokenizer and the sheet do not belong together, before anything is scored.

    >>> audit_canaries(model, tokenizer, "sheet.jsonl", base=base).to_html("audit.html")  # doctest: +SKIP
    """
    sheet = read_sheet(sheet, expected_hash)
    asked = Asked.read(model, tokenizer, base, batch_size=batch_size, device=device)
    auto = isinstance(score, str) and score == "auto"
    wanted = score if auto else read_score(score, base=asked.compared)
    settings = Settings(wanted, delta, confidence, exposure, exposure_canaries, show_records, name)
    check_size(sheet, settings)
    guarantee = read_mechanism(mechanism)
    texts = asked.encode(sheet)
    chosen = CHOSEN_BEFORE
    if auto:
        wanted, chosen = choose_score(asked, sheet, references)
        settings = replace(settings, score=wanted)
    elif references:
        raise InputError(f"references serve score='auto', but score={score!r} is fixed; leave one of them out.")
    passes = asked.passes(texts)
    return of_passes(asked, sheet, passes, settings, mechanism=guarantee, chosen=chosen)


def read_sheet(sheet: Any, expected: str | None = None) -> CanarySheet:
    """A sheet, or the file that holds one, with the hash that was written down."""
    if isinstance(sheet, (str, os.PathLike)):
        sheet = CanarySheet.load(sheet)
    if not isinstance(sheet, CanarySheet):
        raise InputError(
            f"sheet must be a CanarySheet or its file, got {check.show(sheet)}; make it with canary_sheet."
        )
    if expected is not None and expected not in (sheet.hash, sheet.mask_hash):
        raise InputError(
            f"expected_hash is {check.show(expected)}, but the sheet has {sheet.hash[:16]}… and its coins "
            f"{sheet.mask_hash[:16]}…: it is another sheet; pass that of the training."
        )
    return sheet


def check_size(sheet: CanarySheet, settings: Settings) -> None:
    """Refuse a sheet with which even a perfect attack could show nothing."""
    units = len(sheet) if sheet.groups is None else len(set(sheet.groups))
    what, remedy = "canaries" if sheet.groups is None else "persons", "make a sheet with more"
    check_budget(units, delta=settings.delta, confidence=settings.confidence, what=what, remedy=remedy)


def evidence_of(sheet: CanarySheet, scores: FloatArray) -> OneRun:
    """Scores with their coins: one for each record or person."""
    groups = None if sheet.groups is None else np.array(sheet.groups)
    return OneRun(scores, sheet.included, sheet.coin_seed, groups)


def headline(evidence: OneRun, sheet: CanarySheet, settings: Settings) -> Estimate:
    """The bound to report; with k copies it says that it is about groups of k records."""
    at: Level = {"delta": settings.delta, "confidence": settings.confidence}
    bound = lower_bound(evidence, **at)
    if sheet.unit == bound.details["unit"]:
        return bound
    bins = rank_bins(evidence.scores, evidence.included)
    again = bound_of_bins(bins, "coins", "add/remove", unit=sheet.unit, **at)
    note = (
        f"each canary was trained on {sheet.copies} times, so the bound is about {sheet.copies} records together: a "
        f"guarantee for one record allows {sheet.copies} times its ε for them, at a larger δ"
    )
    return replace(again, warnings=(*bound.warnings, note))


def look_at(step: int, sheet: CanarySheet, scores: FloatArray, settings: Settings) -> Look:
    """What these scores say, as a point of the curve over training."""
    evidence = evidence_of(sheet, scores)
    sides = evidence.as_scores()
    return Look(
        step=step,
        epsilon=headline(evidence, sheet, settings).low,
        auc=sides.auc,
        mean_inside=float(sides.members.mean()),
        mean_outside=float(sides.nonmembers.mean()),
    )


def of_passes(
    asked: Asked,
    sheet: CanarySheet,
    passes: Passes,
    settings: Settings,
    *,
    mechanism: Any = None,
    chosen: str = CHOSEN_BEFORE,
    looks: Sequence[Look] = (),
    step: int | None = None,
    notes: Sequence[str] = (),
    base_exposure: Sides | None = None,
) -> Audit:
    """The audit of scored canaries; `base_exposure` was measured before training, where the base is gone since."""
    secrets = [canary.secret for canary in sheet.canaries]
    own = score_of(settings.score, passes, secrets)
    evidence = evidence_of(sheet, own)
    bound = headline(evidence, sheet, settings)
    upper, missing = guarantees(mechanism, settings.delta, ["add/remove"], sheet.unit)
    region, risk = both_sides([bound], upper, sheet.unit)
    exposed = exposure_of(asked, sheet, passes, settings)
    if exposed is not None and exposed.base is None:
        exposed = replace(exposed, base=base_exposure)
    whole = intervals.Evidence(evidence.scores[None], evidence.included[None], 0.0)
    extracted = memorised.extraction(sheet, passes) if sheet.words else None
    return Audit(
        estimates=(bound,),
        guard=intervals.BY_COINS,
        risk=risk,
        curve=intervals.curve(whole, settings.confidence),
        upper=upper,
        region=region,
        distributions=intervals.score_densities(evidence),
        details=TextDetails(
            scores=_score_rows(sheet, passes, settings, secrets),
            guesses=path_of_guesses(evidence.scores, evidence.included),
            exposure=exposed,
            extraction=extracted,
            looks=tuple(looks),
            at_risk=_at_risk(sheet, passes, own, settings),
        ),
        record_risk=_record_risk(evidence),
        metadata=TextMetadata(
            kind="text",
            name=settings.name,
            model=_named(asked.box.model),
            base="the model with its adapters off" if asked.adapter else _named(asked.base),
            score=settings.score,
            chosen=chosen,
            canaries=sheet.kind,
            count=len(sheet),
            copies=sheet.copies,
            tokens=sum(row.size for row in passes.target.log_probability),
            members=int(evidence.included.sum()),
            nonmembers=int((~evidence.included).sum()),
            records=len(sheet) if sheet.groups is None else None,
            unit=sheet.unit,
            step=step,
            seed=sheet.seed,
            seeds=CoinSeeds(None, sheet.coin_seed),
            sheet_hash=sheet.hash,
            mask_hash=sheet.mask_hash,
            mechanism=None if mechanism is None else written(mechanism),
            delta=settings.delta,
            confidence=settings.confidence,
            warnings=(*notes, *missing, *_unchanged(passes), *_known(exposed, sheet, passes)),
            version=dosimeter.__version__,
        ),
    )


def exposure_of(asked: Asked, sheet: CanarySheet, passes: Passes, settings: Settings) -> Exposure | None:
    """Exposure of some canaries under the model and, if it can be asked, its base."""
    if not settings.exposure or not sheet.words:
        return None
    return memorised.exposure(
        sheet, passes, asked.ask(), references=settings.exposure, canaries=settings.exposure_canaries
    )


def _score_rows(sheet: CanarySheet, passes: Passes, settings: Settings, secrets: Sequence[str]) -> tuple[ScoreRow, ...]:
    """AUC and TPR of every score, the headline's first; they are measurements, nothing may be chosen by them."""
    names = sorted(available(passes), key=lambda name: name != settings.score)
    rows = []
    for name in names:
        sides = evidence_of(sheet, score_of(name, passes, secrets)).as_scores()
        tpr = sides.counts_at(threshold_at_fpr(sides, 0.01)).tpr
        rows.append(ScoreRow(name, SCORES[name].sentence, sides.auc, tpr, name == settings.score))
    return tuple(rows)


def _at_risk(sheet: CanarySheet, passes: Passes, scores: FloatArray, settings: Settings) -> tuple[AtRisk, ...]:
    """The members with the highest scores; a record of the user's is shown only if the caller wants that."""
    rows = np.flatnonzero(sheet.included)
    order = rows[np.argsort(-scores[rows], kind="stable")][:MOST_AT_RISK]
    needed, first = memorised.tries_needed(passes.target.total()), memorised.greedy(passes.target)
    shown = bool(sheet.words) or settings.show_records
    return tuple(
        AtRisk(
            int(row),
            sheet.canaries[row].secret.strip()[:200] if shown else "",
            float(scores[row]),
            float(np.exp(needed[row])) if needed[row] < 700 else None,
            bool(first[row]),
        )
        for row in order
    )


def _unchanged(passes: Passes) -> list[str]:
    """Warn where the model says what its base says: then no score can tell who was in."""
    if passes.base is None:
        return []
    pairs = zip(passes.target.log_probability, passes.base.log_probability, strict=True)
    if not all(np.array_equal(own, other) for own, other in pairs):
        return []
    return [
        "the model answers exactly as its base on every canary, so nothing could be found: pass as base the model from "
        "before the training, and as model the trained one"
    ]


def _known(exposed: Exposure | None, sheet: CanarySheet, passes: Passes) -> list[str]:
    """Warn where the base model already knows canaries."""
    notes = []
    if exposed is not None and memorised.known_to_base(exposed):
        notes.append(
            "the base model already knows these canaries: their exposure under it is above that of secrets it never "
            "saw; they may stand in its training data, so make a new sheet"
        )
    if sheet.words and passes.base is not None and (count := int(memorised.greedy(passes.base).sum())):
        notes.append(f"greedy decoding of the base model already writes {count} of the secrets; make a new sheet")
    return notes


def _record_risk(evidence: OneRun) -> RecordRisk | None:
    if evidence.unit != "record":
        return None
    rows = np.flatnonzero(evidence.included), np.flatnonzero(~evidence.included)
    return RecordRisk.of(evidence.as_scores(), rows)


def _named(model: Any) -> str | None:
    """What to call a model: its class, and the folder that it was loaded from."""
    if model is None:
        return None
    inner = model.get_base_model() if is_adapted(model) else model
    folder = Path(str(getattr(inner.config, "_name_or_path", "") or "")).name
    adapted = " with adapters" if is_adapted(model) else ""
    return f"{type(inner).__name__}{adapted}" + (f" ({folder})" if folder else "")
