"""The noise of DP-SGD for a risk that is tolerable, and what that noise means."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dosimeter import _validate as check
from dosimeter import accounting, identifiability
from dosimeter._validate import InputError
from dosimeter.accounting import Guarantee

__all__ = ["LargestTpr", "NoiseChoice", "choose_noise"]

LOW_FPRS = (0.001, 0.01, 0.1)


@dataclass(frozen=True)
class LargestTpr:
    """The largest share of members that any test can find at one FPR."""

    fpr: float
    tpr: float


@dataclass(frozen=True)
class NoiseChoice:
    """A noise multiplier for one stated tolerance, and everything that it implies.

    `target` is the tolerance, e.g. {"belief": 0.75}; `epsilon` the tightest proven ε and `method` its accountant.
    """

    target: dict[str, float]
    noise_multiplier: float
    epsilon: float
    delta: float
    method: str
    belief: float
    advantage: float
    tpr: tuple[LargestTpr, ...]
    records: int
    batch_size: int
    epochs: float
    sample_rate: float
    steps: int
    sampling: str
    neighbours: str
    guarantees: tuple[Guarantee, ...]

    @property
    def opacus(self) -> str:
        """The call of Opacus that trains with this noise."""
        return (
            "PrivacyEngine(accountant='prv').make_private(module=model, optimizer=optimizer, data_loader=loader, "
            f"noise_multiplier={self.noise_multiplier:g}, max_grad_norm=1.0, "
            f"poisson_sampling={self.sampling == 'poisson'})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values only."""
        plain = {name: value for name, value in vars(self).items() if name not in ("tpr", "guarantees")}
        tpr = [asdict(item) for item in self.tpr]
        return {**plain, "tpr": tpr, "guarantees": [g.to_dict() for g in self.guarantees], "opacus": self.opacus}


def choose_noise(
    *,
    records: int,
    batch_size: int,
    epochs: float,
    belief: float | None = None,
    advantage: float | None = None,
    tpr: float | None = None,
    fpr: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    sampling: str = "poisson",
    neighbours: str | None = None,
) -> NoiseChoice:
    """Find the least noise that keeps one stated risk, rounded up to four digits.

    Args:
        records: Training records.
        batch_size: (Expected) records in a batch.
        epochs: Passes over the data.
        belief: The largest tolerable belief that a person is in the data, for somebody who started at 50 %.
        advantage: The largest TPR − FPR that is tolerable.
        tpr: The largest TPR that is tolerable, at the rate `fpr`.
        fpr: The FPR that `tpr` is for.
        epsilon: The largest ε that is tolerable.
        delta: The δ of the guarantee; 1/(n ln n) if None.
        sampling: How batches are drawn.
        neighbours: Whose ε; by default the neighbours that the sampling can be bounded for.

    Returns:
        The noise, and what every accountant says about it.

    Raises:
        InputError: If not exactly one tolerance is given, or no noise keeps it.

    >>> choice = choose_noise(records=10_000, batch_size=100, epochs=1, belief=0.75, delta=1e-5)
    >>> choice.noise_multiplier, round(choice.epsilon, 2), choice.method
    (0.8774, 1.1, 'pld')
    """
    records = check.whole("records", records, 3, "pass the number of training records", 10**12)
    batch_size = check.whole("batch_size", batch_size, 1, "pass at most the number of records", records)
    epochs = check.within("epochs", epochs, 0.0, 1e9, "pass the passes over the data, e.g. 100", include="(]")
    if delta is None:
        delta = 1 / (records * math.log(records))
    delta = check.delta(delta, zero=False, why_not_zero="no amount of Gaussian noise gives a finite ε at δ = 0")
    run: dict[str, Any] = {
        "sample_rate": batch_size / records,
        "steps": max(1, math.ceil(epochs * records / batch_size - 1e-9)),
        "sampling": sampling,
        "neighbours": neighbours,
    }
    target = _target(belief, advantage, tpr, fpr, epsilon)
    noise = round_up(_least(target, delta, run))
    mechanism = accounting.DpSgd(noise, **run)
    guarantees = accounting.account(mechanism, delta=delta)
    best = min((item for item in guarantees if item.is_bound), key=lambda item: item.epsilon)
    profile = accounting.privacy_profile(mechanism)
    rates = sorted({*LOW_FPRS} | ({fpr} if fpr is not None else set()))
    return NoiseChoice(
        target=target,
        noise_multiplier=noise,
        epsilon=best.epsilon,
        delta=delta,
        method=best.method,
        belief=float(identifiability.belief_from_epsilon(best.epsilon)),
        advantage=identifiability.advantage(profile=profile),
        tpr=tuple(LargestTpr(rate, float(identifiability.tpr_at_fpr(rate, profile=profile))) for rate in rates),
        records=records,
        batch_size=batch_size,
        epochs=epochs,
        sample_rate=run["sample_rate"],
        steps=run["steps"],
        sampling=str(mechanism.sampling),
        neighbours=str(mechanism.neighbours),
        guarantees=tuple(guarantees),
    )


def _target(
    belief: float | None, advantage: float | None, tpr: float | None, fpr: float | None, epsilon: float | None
) -> dict[str, float]:
    given = {
        name: value
        for name, value in (("belief", belief), ("advantage", advantage), ("tpr", tpr), ("epsilon", epsilon))
        if value is not None
    }
    if len(given) != 1:
        what = "none" if not given else " and ".join(given)
        raise InputError(f"give exactly one of belief, advantage, tpr (with fpr) and epsilon, got {what}.")
    if (tpr is None) != (fpr is None):
        raise InputError("tpr and fpr go together: the share of members found at a false-positive rate.")
    return given if fpr is None else {**given, "fpr": fpr}


def _least(target: dict[str, float], delta: float, run: dict[str, Any]) -> float:
    """The least noise multiplier that keeps the target."""
    if "belief" in target:
        return accounting.noise_for_belief(target["belief"], delta=delta, **run)
    if "advantage" in target:
        return accounting.noise_for_advantage(target["advantage"], **run)
    if "tpr" in target:
        return accounting.noise_for_tpr(target["tpr"], fpr=target["fpr"], **run)
    return accounting.noise_for_epsilon(target["epsilon"], delta=delta, **run)


def round_up(noise: float) -> float:
    """Round to four digits, never to less noise."""
    scale = 10.0 ** (3 - math.floor(math.log10(noise)))
    units = math.floor(noise * scale)
    while float(f"{units / scale:.6g}") < noise:
        units += 1
    return float(f"{units / scale:.6g}")
