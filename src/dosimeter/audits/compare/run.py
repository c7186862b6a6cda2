"""Several audits side by side: what privacy each strategy costs, and what it buys."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from dosimeter import _validate as check
from dosimeter._files import write_text
from dosimeter._validate import InputError
from dosimeter.audits.parts import Part
from dosimeter.audits.result import Audit


@dataclass(frozen=True)
class ComparedAudit(Part):
    """The numbers of one audit that are compared; it also reads as a mapping, for a data frame."""

    name: str
    utility: float | None
    epsilon_low: float
    epsilon_star: float | None
    epsilon_high: float | None
    auc: float | None
    tpr_at_fpr: dict[str, float]
    shift: bool
    delta: float
    confidence: float


@dataclass(frozen=True)
class Comparison:
    """Hold audits with their names and, if known, their utilities (higher is better)."""

    audits: tuple[Audit, ...]
    names: tuple[str, ...]
    utilities: tuple[float, ...] | None = None

    def rows(self) -> list[ComparedAudit]:
        """Give the numbers that are compared, one row per audit."""
        useful = self.utilities or (None,) * len(self.audits)
        return [_row(*given) for given in zip(self.audits, self.names, useful, strict=True)]

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page with all audits side by side."""
        from dosimeter.audits.compare.page import compare_page

        write_text(path, compare_page(self.audits, self.names, self.utilities))


def _row(audit: Audit, name: str, utility: float | None) -> ComparedAudit:
    curve = audit.curve
    return ComparedAudit(
        name=name,
        utility=utility,
        epsilon_low=audit.headline.low,
        epsilon_star=next((e.epsilon for e in audit.estimates if e.method == "epsilon-star-parametric"), None),
        epsilon_high=min((g.epsilon for g in audit.upper if g.is_bound), default=None),
        auc=None if curve is None else curve.auc,
        tpr_at_fpr={} if curve is None else {str(p.fpr): p.tpr for p in curve.tpr_at_fpr},
        shift=audit.guard.shift,
        delta=audit.headline.delta,
        confidence=audit.headline.confidence,
    )


def compare(
    audits: Sequence[Audit], *, names: Sequence[str] | None = None, utilities: Sequence[float] | None = None
) -> Comparison:
    """Set audits side by side.

    Args:
        audits: What audit functions returned.
        names: A name for each; "audit 1" and so on where left out.
        utilities: How useful each model is, e.g. its accuracy; with them the privacy–utility landscape is drawn.

    Returns:
        The comparison: its `rows`, and its `to_html` for people.

    Raises:
        InputError: If there is no audit, or names or utilities do not pair up with them.

    >>> compare([first, second], names=["plain", "DP"], utilities=[0.91, 0.88]).to_html("both.html")  # doctest: +SKIP
    """
    chosen = tuple(audits) if isinstance(audits, (list, tuple)) else ()
    if not chosen or not all(isinstance(a, Audit) for a in chosen):
        raise InputError(
            "audits must be a list of at least one Audit; pass the results of audit_model or audit_scores."
        )
    if names is not None and not isinstance(names, (list, tuple)):
        raise InputError(f"names must be a list of names, got {check.show(names)}; pass one name for each audit.")
    labels = tuple(names) if names is not None else tuple(f"audit {i + 1}" for i in range(len(chosen)))
    if len(labels) != len(chosen):
        raise InputError(f"names has {len(labels)} entries for {len(chosen)} audits; pass one name for each.")
    values = None
    if utilities is not None:
        values = tuple(check.finite_array("utilities", utilities).tolist())
        if len(values) != len(chosen):
            raise InputError(f"utilities has {len(values)} entries for {len(chosen)} audits; pass one for each.")
    return Comparison(chosen, tuple(str(label) for label in labels), values)
