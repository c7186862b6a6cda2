"""All accountants at once: the same run, many ε."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.accounting.composition import advanced, by_epochs, naive
from dosimeter.accounting.gdp import gdp_clt
from dosimeter.accounting.mechanism import DpSgd, Guarantee, Mechanism, PhaseKind, Sampling, dp_sgd, mechanism
from dosimeter.accounting.pld import exact, pld
from dosimeter.accounting.rdp import rdp
from dosimeter.accounting.zcdp import zcdp

Accountant = Callable[[Mechanism, float], Guarantee]

ACCOUNTANTS: dict[str, Accountant] = {
    "naive": lambda m, d: naive(m, delta=d),
    "naive-exact": lambda m, d: naive(m, delta=d, gaussian="exact"),
    "advanced": lambda m, d: advanced(m, delta=d),
    "advanced-exact": lambda m, d: advanced(m, delta=d, gaussian="exact"),
    "zcdp-classic": lambda m, d: zcdp(m, delta=d, conversion="classic"),
    "zcdp": lambda m, d: zcdp(m, delta=d),
    "rdp-classic": lambda m, d: rdp(m, delta=d, conversion="classic"),
    "rdp": lambda m, d: rdp(m, delta=d),
    "pld": lambda m, d: pld(m, delta=d),
    "gaussian": lambda m, d: exact(m, delta=d),
}
"""Accountants whose value is a proven bound, save where the classic Gaussian step fails, which they flag."""


def _epochs(accountant: Callable[..., Guarantee], method: str, **options: Any) -> Accountant:
    def account_by_epochs(value: Mechanism, delta: float) -> Guarantee:
        assert isinstance(value, DpSgd)
        shuffled, warnings = by_epochs(value)
        result = accountant(shuffled, delta=delta, method=method, **options)
        return Guarantee(
            result.epsilon,
            delta,
            method,
            str(value.neighbours),
            str(value.sampling),
            result.is_bound and not warnings,
            {**result.details, "visits": shuffled.visits},
            (*warnings, *result.warnings),
        )

    return account_by_epochs


def _as_if_poisson(value: Mechanism, delta: float) -> Guarantee:
    assert isinstance(value, DpSgd)
    result = pld(DpSgd(value.noise_multiplier, value.sample_rate, value.steps), delta=delta)
    warning = "accounts as if the batches were Poisson samples; for shuffled batches nobody has proven this value"
    return Guarantee(
        result.epsilon,
        delta,
        "pld-as-if-poisson",
        str(value.neighbours),
        str(value.sampling),
        False,
        result.details,
        (warning,),
    )


FORMULAS: dict[str, Accountant] = {
    "naive-epochs": _epochs(naive, "naive-epochs"),
    "advanced-epochs": _epochs(advanced, "advanced-epochs", mean="square", split=0.5),
    "zcdp-epochs": _epochs(zcdp, "zcdp-epochs", conversion="classic"),
    "gdp-clt": lambda m, d: gdp_clt(m, delta=d),
    "pld-as-if-poisson": _as_if_poisson,
}
"""Values that other tools and papers print for such runs; not bounds for the sampling they are printed for."""


def applicable(value: Mechanism) -> list[str]:
    """The names of the accountants and formulas that say something about a mechanism."""
    kinds = {phase.kind for phase in value.phases}
    names = list(ACCOUNTANTS)
    if PhaseKind.POISSON_REPLACE in kinds:
        names = ["zcdp-classic", "zcdp", "pld"]
    if PhaseKind.WITHOUT_REPLACEMENT in kinds:
        names.remove("pld")
    if kinds != {PhaseKind.GAUSSIAN} and "gaussian" in names:
        names.remove("gaussian")
    if isinstance(value, DpSgd) and value.sample_rate < 1:
        if value.sampling is Sampling.SHUFFLED:
            names.append("pld-as-if-poisson")
        elif PhaseKind.POISSON in kinds:
            names += ["naive-epochs", "advanced-epochs", "zcdp-epochs"]
    if PhaseKind.POISSON in kinds:
        names.append("gdp-clt")
    return names


def account(
    value: Mechanism | Sequence[Mechanism] | None = None,
    *,
    delta: float,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
    methods: Sequence[str] | None = None,
) -> list[Guarantee]:
    """Ask every accountant about one run.

    Give a mechanism, a list of mechanisms that are composed, or the numbers of DP-SGD.

    Args:
        value: The mechanism, or a list of them.
        delta: The δ of the guarantees.
        noise_multiplier: Instead of a mechanism: the noise of DP-SGD over its clipping norm.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Whose ε; by default what the sampling can be bounded for.
        methods: The accountants to ask; by default all that can say something.

    Returns:
        One guarantee for each accountant. Formulas that are printed elsewhere but are not bounds have `is_bound` False.

    Raises:
        InputError: If both or neither of a mechanism and its numbers are given, or an argument is out of range.

    >>> found = account(noise_multiplier=1.1, sample_rate=0.02, steps=5000, delta=1e-5, methods=["rdp", "pld"])
    >>> for guarantee in found:
    ...     print(guarantee.method, round(guarantee.epsilon, 2))
    rdp 8.51
    pld 7.86
    """
    if value is None:
        if noise_multiplier is None:
            raise InputError("noise_multiplier is missing; pass it, or a mechanism such as DpSgd(1.1, 0.02, 5000).")
        value = dp_sgd(noise_multiplier, sample_rate, steps, sampling, neighbours)
    elif noise_multiplier is not None:
        raise InputError("noise_multiplier and a mechanism were both given; pass one of them.")
    run = mechanism(value)
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    possible = applicable(run)
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, (list, tuple, type(None))):
        raise InputError(f"methods must be a list of names, got {check.show(methods)}; pass e.g. ['pld'].")
    wanted = possible if methods is None else [check.choice("methods", name, possible) for name in methods]
    everything = {**ACCOUNTANTS, **FORMULAS}
    return [everything[name](run, delta) for name in wanted]
