"""What a model memorised, as measured facts: exposure among secrets that could have been, and extraction.

Exposure (Carlini et al. 2019), by sampling: the rank of a canary's secret among n others behind the same prefix;
log₂(n + 1) − log₂ rank. A secret that was never seen has a uniform rank, so its mean exposure is not 0: 1.38 bits for
n = 63, and 1/ln 2 = 1.44 bits for many.

Extraction (Hayes et al. 2025): with p_z the probability that the model, given the prefix, writes the secret, n tries
find it with a probability of at least p if 1 − (1 − p_z)ⁿ ≥ p. Greedy decoding writes it if every token is the first
choice. All of it is computed from teacher-forced passes, in logarithms; nothing is generated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.audits.assemble import numbers
from dosimeter.audits.text.result import Exposure, Extraction, ExtractionRow, Sides
from dosimeter.audits.text.sheet import CanarySheet
from dosimeter.models.token_pass import Passes, TokenPass

__all__ = ["exposure", "exposures", "extraction", "greedy", "how_tried", "known_to_base", "null_bits", "tries_needed"]

TRIES = (1, 100, 10_000, 1_000_000)
CHANCE = 0.5
BINS = 24
KNOWN = 4.0  # standard errors, each at most 1/ln 2 by √n, above the null from which on the base knows the canaries

Ask = Callable[[list[str], list[str]], Passes]


def exposures(own: FloatArray, others: FloatArray) -> FloatArray:
    """The exposure of each canary in bits, from its log-probability and those of n others (canaries, n); ties lower it.

    >>> exposures(np.array([-1.0]), np.array([[-2.0, -3.0, -4.0]])).tolist()
    [2.0]
    """
    rank = 1 + (others >= own[:, None]).sum(axis=1)
    return np.log2(others.shape[1] + 1) - np.log2(rank)


def null_bits(references: int) -> float:
    """The mean exposure of a secret that was never seen, whose rank among n + 1 is uniform.

    >>> round(null_bits(1), 2), round(null_bits(63), 2)
    (0.5, 1.38)
    """
    ranks = references + 1
    return math.log2(ranks) - math.lgamma(ranks + 1) / (ranks * math.log(2))


def exposure(sheet: CanarySheet, passes: Passes, ask: Ask, *, references: int, canaries: int) -> Exposure:
    """Measure the exposure of some canaries that are in and some that are out, under the model and its base.

    Args:
        sheet: The canaries.
        passes: What the models say of their secrets.
        ask: Gives the passes of texts, from whole texts and their prefixes.
        references: How many other secrets each of them is compared with.
        canaries: How many canaries at most, half of them in.

    Returns:
        Means with their counts, and the exposures themselves.
    """
    chosen = _chosen(sheet.included, canaries)
    rng = np.random.default_rng(np.random.SeedSequence([sheet.seed, 1]))
    leads = [sheet.canaries[row].prefix for row in chosen for _ in range(references)]
    others = sheet.other_secrets(len(leads), rng)
    if sheet.kind == "random":
        others = [secret.lstrip() for secret in others]
    asked = ask([lead + secret for lead, secret in zip(leads, others, strict=True)], leads)
    member = sheet.included[chosen]

    def bits(own: TokenPass, other: TokenPass) -> FloatArray:
        return exposures(own.total()[chosen], other.total().reshape(chosen.size, references))

    target = bits(passes.target, asked.target)
    base = None if passes.base is None or asked.base is None else bits(passes.base, asked.base)
    return Exposure(
        references=references,
        cap=math.log2(references + 1),
        target=_sides(target, member),
        base=None if base is None else _sides(base, member),
        canaries=tuple(int(row) for row in chosen),
        bits=numbers(target),
    )


def known_to_base(exposure: Exposure) -> bool:
    """Whether the base model's exposures are higher than those of secrets that it never saw."""
    if exposure.base is None:
        return False
    count = exposure.base.inside + exposure.base.outside
    parts = ((exposure.base.inside, exposure.base.mean_inside), (exposure.base.outside, exposure.base.mean_outside))
    mean = sum(size * value for size, value in parts if value is not None) / count
    return mean > null_bits(exposure.references) + KNOWN / (math.log(2) * math.sqrt(count))


def _chosen(included: BoolArray, most: int) -> IntArray:
    """The first canaries of either side; their order is random."""
    half = max(1, most // 2)
    rows = np.concatenate([np.flatnonzero(included)[:half], np.flatnonzero(~included)[:half]])
    return np.sort(rows)


def _sides(bits: FloatArray, member: BoolArray) -> Sides:
    return Sides(
        inside=int(member.sum()),
        outside=int((~member).sum()),
        mean_inside=float(bits[member].mean()) if member.any() else None,
        mean_outside=float(bits[~member].mean()) if (~member).any() else None,
    )


def how_tried(row: ExtractionRow) -> str:
    """How the secrets of a row were extracted, in words."""
    if row.tries == "greedy":
        return "greedy decoding"
    number = int(row.tries)
    return f"{number:,} {'try' if number == 1 else 'tries'}".replace(",", " ")


def greedy(tokens: TokenPass) -> BoolArray:
    """Whether greedy decoding after the prefix writes the secret: every token is the first choice."""
    return np.array([bool((row == 0).all()) for row in tokens.rank])


def tries_needed(log_probability: FloatArray, chance: float = CHANCE) -> FloatArray:
    """The least n with 1 − (1 − p_z)ⁿ ≥ chance, in natural logarithms of n; in logarithms, for p_z may be e^−200.

    >>> round(float(np.exp(tries_needed(np.array([math.log(0.5)]), 0.5)[0])), 6)
    1.0
    """
    rate = np.minimum(log_probability, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # ln(−ln(1 − p_z)); for a small p_z that is ln p_z itself
        exact = np.log(-np.log1p(-np.exp(rate)))
    return math.log(-math.log1p(-chance)) - np.where(rate < -30.0, rate, exact)


def extraction(sheet: CanarySheet, passes: Passes) -> Extraction:
    """Count the secrets that can be extracted, of canaries that are in and out, from the model and its base."""
    inside = sheet.included

    def row(name: str, hits: BoolArray, base: BoolArray | None) -> ExtractionRow:
        return ExtractionRow(
            name,
            int((hits & inside).sum()),
            int((hits & ~inside).sum()),
            None if base is None else int((base & inside).sum()),
            None if base is None else int((base & ~inside).sum()),
        )

    base = passes.base
    rows = [row("greedy", greedy(passes.target), None if base is None else greedy(base))]
    needed = tries_needed(passes.target.total())
    base_needed = None if base is None else tries_needed(base.total())
    for tries in TRIES:
        limit = math.log(tries) + 1e-12
        rows.append(row(str(tries), needed <= limit, None if base_needed is None else base_needed <= limit))
    return Extraction(int(inside.sum()), int((~inside).sum()), CHANCE, tuple(rows))
