"""The least noise for what people tolerate: a belief, an advantage, a TPR at an FPR; for an ε see `accountants`."""

from __future__ import annotations

import math
from typing import Any

from scipy import special

from dosimeter import _validate as check
from dosimeter.accounting.accountants import (
    COARSER,
    closed_form,
    first_noise,
    full_batch,
    maker,
    mu_of,
    noise_for_epsilon,
    refuse_what_needs_no_noise,
    two_grids,
)
from dosimeter.accounting.mechanism import Mechanism, PhaseKind
from dosimeter.accounting.pld import grid_for
from dosimeter.accounting.profile import (
    REFERENCE_DELTA,
    Profile,
    advantage_from_profile,
    privacy_profile,
    tpr_from_profile,
)


def noise_for_belief(
    belief: float,
    *,
    delta: float,
    prior: float = 0.5,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
    method: str | None = None,
    orders: Any = None,
) -> float:
    """Find the smallest noise multiplier under which no adversary's belief in a person's presence exceeds `belief`.

    The adversary starts at `prior` and knows everything else: ε = logit(belief) − logit(prior). The guarantee, and with
    it the limit on the belief, may fail with probability δ.

    Args:
        belief: The largest belief that is tolerable.
        delta: The δ of the guarantee.
        prior: What the adversary believes beforehand.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Whose ε; by default what the sampling can be bounded for.
        method: The accountant: by default "pld", or "rdp" for sampling without replacement.
        orders: Rényi orders, for "rdp" and "rdp-classic".

    Returns:
        The noise multiplier.

    Raises:
        InputError: If an argument is out of range, or the belief is not above the prior.

    >>> round(noise_for_belief(0.9, delta=1e-5, sample_rate=0.02, steps=5000), 3)
    2.707
    """
    prior = check.within("prior", prior, 0.0, 1.0, "pass the belief before the model was seen, e.g. 0.5", include="()")
    remedy = f"pass a belief above the prior {prior:g}, which even infinite noise leaves, and below 1"
    belief = check.within("belief", belief, prior, 1.0, remedy, include="()")
    epsilon = math.log(belief / (1 - belief)) - math.log(prior / (1 - prior))
    return noise_for_epsilon(
        epsilon,
        delta=delta,
        sample_rate=sample_rate,
        steps=steps,
        sampling=sampling,
        neighbours=neighbours,
        method=method,
        orders=orders,
    )


def noise_for_advantage(
    advantage: float,
    *,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
) -> float:
    """Find the smallest noise multiplier under which no membership test has TPR − FPR above `advantage`.

    No δ is involved: the advantage is δ(0) of the whole privacy curve.

    Args:
        advantage: The largest advantage that is tolerable.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Between which data sets; by default what the sampling can be bounded for.

    Returns:
        The noise multiplier.

    Raises:
        InputError: If an argument is out of range.

    >>> round(noise_for_advantage(0.1, sample_rate=0.02, steps=5000), 3)
    5.669
    """
    remedy = "pass the tolerable TPR − FPR, e.g. 0.1; 0 needs infinite noise and 1 needs none"
    advantage = check.within("advantage", advantage, 0.0, 1.0, remedy, include="()")
    make = maker(sample_rate, steps, sampling, neighbours)
    mu = 2 * float(special.ndtri((1 + advantage) / 2))

    def value(noise: float) -> float:
        return advantage_from_profile(privacy_profile(make(noise)))

    def coarse(noise: float) -> float:
        return advantage_from_profile(_coarse_profile(make(noise)))

    if full_batch(make):
        return closed_form(make, mu, value, advantage)
    refuse_what_needs_no_noise(make, "advantage", advantage, "the advantage", 0.0)
    return two_grids(coarse, value, advantage, first_noise(make, mu), "advantage")


def noise_for_tpr(
    tpr: float,
    *,
    fpr: float,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
) -> float:
    """Find the smallest noise multiplier under which no membership test has a TPR above `tpr` at the FPR `fpr`.

    Args:
        tpr: The largest true positive rate that is tolerable.
        fpr: The false positive rate that it is read at.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Between which data sets; by default what the sampling can be bounded for.

    Returns:
        The noise multiplier.

    Raises:
        InputError: If an argument is out of range, or `tpr` is not above `fpr`.

    >>> round(noise_for_tpr(0.05, fpr=0.01, sample_rate=0.02, steps=5000), 3)
    2.195
    """
    fpr = check.within("fpr", fpr, 0.0, 1.0, "pass the false-positive rate, e.g. 0.01", include="()")
    remedy = f"pass a TPR above the FPR {fpr:g}, which even infinite noise leaves, and below 1"
    tpr = check.within("tpr", tpr, fpr, 1.0, remedy, include="()")
    make = maker(sample_rate, steps, sampling, neighbours)
    mu = float(special.ndtri(tpr) - special.ndtri(fpr))

    def value(noise: float) -> float:
        return tpr_from_profile(privacy_profile(make(noise)), fpr)

    def coarse(noise: float) -> float:
        return tpr_from_profile(_coarse_profile(make(noise)), fpr)

    if full_batch(make):
        return closed_form(make, mu, lambda noise: float(special.ndtr(special.ndtri(fpr) + mu_of(make, noise))), tpr)
    refuse_what_needs_no_noise(make, "tpr", tpr, "the TPR", fpr)
    return two_grids(coarse, value, tpr, first_noise(make, mu), "tpr", floor=fpr)


def _coarse_profile(value: Mechanism) -> Profile:
    if any(phase.kind is PhaseKind.WITHOUT_REPLACEMENT for phase in value.phases):
        return privacy_profile(value)
    return privacy_profile(value, grid=COARSER * grid_for(value, REFERENCE_DELTA))
