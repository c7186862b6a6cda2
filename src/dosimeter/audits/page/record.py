"""The parts of the page that say how it was found: validity, method, limits, and the fields of NIST SP 800-226."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.estimate import Estimate, Validity, percent
from dosimeter.report.markup import bullets, paragraph, section, table
from dosimeter.report.text import NOT_STATED, epsilon, rows, small, value, whose

MEANING = {
    Validity.FINITE_SAMPLE: "a confidence bound for any mechanism, at this sample size",
    Validity.RANDOM_SPLIT: "a confidence bound for any mechanism if chance alone decided which records were members",
    Validity.INDEPENDENT_RUNS: "a confidence bound for any mechanism if every score comes from a run of its own",
    Validity.CREDIBLE: "a posterior probability under a stated prior, not a confidence",
    Validity.ASSUMES_GAUSSIAN: "holds only if the mechanism is Gaussian",
    Validity.ASSUMES_FAMILY: "holds only if the training is the stated mechanism, with some amount of noise",
    Validity.ASYMPTOTIC: "holds for large samples, approximately",
    Validity.INSTANCE_METRIC: "describes this one trained model, not the method that trained it",
    Validity.MEASUREMENT: "a measured difference, not a bound",
    Validity.EXPLORATORY: (
        "not to be claimed: the largest of several values, or computed as if dependent scores were independent"
    ),
}

# Field of NIST SP 800-226, keys of the metadata that fill it, and what it asks.
FIELDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Unit of privacy", ("unit_of_privacy",)),
    ("Neighbouring relation", ("neighbours", "neighbouring_relation")),
    ("Privacy parameters ε and δ", ("guarantee",)),
    ("Trust model", ("trust_model",)),
    ("Mechanism and noise", ("mechanism", "noise_multiplier")),
    ("Clipping and sensitivity", ("clipping", "clip_norm", "max_grad_norm", "sensitivity")),
    ("Sampling of batches", ("sampling", "sample_rate")),
    ("Composition over steps", ("steps", "epochs")),
    ("Composition of releases", ("composition", "releases")),
    ("Choices made on the private data (tuning)", ("tuning", "hyperparameters")),
    ("Floating point and random numbers", ("floating_point", "random_numbers")),
    ("Side channels", ("side_channels", "timing")),
    ("Data collection and access", ("data_collection", "data_source")),
)


def _interval(e: Estimate) -> str:
    if e.validity == Validity.MEASUREMENT or not facts.measurable(e):
        return "–"
    return f"{epsilon(e.low)} to {epsilon(e.high)}" if math.isfinite(e.high) else f"{epsilon(e.low)} or more"


def numbers(audit: Audit) -> str:
    """Every number with its validity and claim."""
    lines = [
        (
            e.method,
            epsilon(e.epsilon) if facts.measurable(e) else "cannot tell",
            _interval(e),
            whose(e.neighbours, facts.unit(audit)) or "–",
            e.validity,
            " ".join([e.claim, *(f"Note: {w}." for w in (w.rstrip(".") for w in e.warnings))]),
        )
        for e in audit.estimates
    ]
    used = dict.fromkeys(e.validity for e in audit.estimates)
    levels = sorted({(e.delta, e.confidence) for e in audit.estimates})
    at = " and ".join(f"δ = {small(d)} and {percent(c)}" for d, c in levels)
    body = paragraph(
        f"The first row is the headline; all are at {at}. An ε for replacing one record and an ε for adding or "
        "removing one are different numbers. "
        "Do not pick the largest: each number has its own meaning and its own chance of error."
    )
    body += table(
        "Every number, what stands behind it, and the sentence that may be quoted",
        ("method", "ε", "interval", "whose ε", "validity", "claim"),
        lines,
        numeric=(1,),
        css_class="claims",
    )
    body += table(
        "What the validity labels mean", ("label", "meaning"), [(v, MEANING[v]) for v in used], css_class="keys"
    )
    return section("numbers", "Every number and what it may claim", body)


def method(audit: Audit) -> str:
    """Method, data fingerprint, seeds and versions, as the audit recorded them."""
    meta = audit.metadata
    fields = {name: item for name, item in meta.items() if name not in ("warnings", "notes") and item is not None}
    body = table(
        "What was run, on what, with which seed and version",
        ("item", "value"),
        rows({**fields, **meta.notes}),
        css_class="keys",
    )
    evidence = {name: item for name, item in audit.guard.evidence.items() if item is not None and item != ()}
    if evidence:
        body += table("Evidence of the shift check", ("item", "value"), rows(evidence), css_class="keys")
    if meta.warnings:
        body += f"<h3>Left out</h3>{bullets(meta.warnings)}"
    return section("method", "Method, data, seeds and versions", body)


def limits(audit: Audit) -> str:
    """What this audit cannot show."""
    head = audit.headline
    lines = [
        "That the model is private. A lower bound says what this attack has proven; "
        "a better attack, or more records, may prove more.",
        "What stronger attackers can do: those who see gradients, train models of their own, or plant records.",
        "The risk of each single person. The bound speaks of the records that were tried; "
        "one unusual record may be more exposed than all of them.",
        "Anything about people who resemble the members but were not in the data: "
        "what a model has learnt about a whole population is not measured here.",
        "The loss from other releases made from the same data. Losses add up over models, versions and statistics.",
    ]
    if not audit.guard.checked:
        lines.insert(
            0,
            "Whether members and non-members come from one distribution: it was not checked, "
            "and if they do not, no number here is about privacy.",
        )
    if head.validity.is_bound and head.low == 0:
        lines.insert(0, "Anything above chance: the bound is 0, which is not evidence of privacy.")
    if head.validity == Validity.RANDOM_SPLIT:
        lines.append(
            "Whether members and non-members are a random split of one population: the headline rests on it. A mask of "
            "fair coins, drawn before the training, would make it certain."
        )
    if head.validity == Validity.INDEPENDENT_RUNS:
        lines.append("Whether every score comes from a run of its own: the headline rests on it.")
    if any(e.validity == Validity.INSTANCE_METRIC for e in audit.estimates):
        lines.append("The DP ε of the training method from Epsilon*: that number is about this one model.")
    if audit.upper:
        lines.append(
            "Whether the training code does what its parameters say: "
            "the accountants were given the parameters, not the code."
        )
    else:
        lines.append("An upper limit: no guarantee was given, so the true loss may be anything above the bound.")
    return section("limits", "What this audit cannot show", bullets(lines))


def nist(audit: Audit) -> str:
    """The fields that an evaluation after NIST SP 800-226 asks for, filled or marked as not stated."""
    known: dict[str, object] = {}
    stated = facts.drawn(audit)[1] or facts.other_guarantee(audit)
    if stated is not None:
        known = {
            "neighbours": stated.neighbours,
            "sampling": stated.sampling,
            "guarantee": f"ε ≤ {epsilon(stated.epsilon)} at δ = {small(stated.delta)}, by {stated.method}",
        }
    meta = audit.metadata
    known |= {name: item for name, item in {**meta, **meta.notes}.items() if item is not None}
    for source in (meta.notes[name] for name in ("dp", "statement") if name in meta.notes):
        known |= source if isinstance(source, Mapping) else {}
    known.setdefault("unit_of_privacy", f"one {meta.unit}")
    lines = []
    for field, keys in FIELDS:
        found = [(k, known[k]) for k in keys if k in known]
        text = (
            value(found[0][1]) if len(found) == 1 else "; ".join(f"{k.replace('_', ' ')} {value(v)}" for k, v in found)
        )
        lines.append((field, text or NOT_STATED))
    missing = [i for i, line in enumerate(lines) if line[1] == NOT_STATED]
    body = paragraph(
        "NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees) asks for the following. "
        f"Stated to the audit: {len(lines) - len(missing)} of {len(lines)}."
    )
    body += table(
        "Fields of an evaluation of a differential privacy guarantee", ("field", "stated"), lines, css_class="keys"
    )
    return section("nist", "Fields of NIST SP 800-226", body)
