"""Several audits side by side: what privacy each strategy costs, and what it buys."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dosimeter import _validate as check
from dosimeter._files import write_text
from dosimeter._validate import InputError
from dosimeter.audits.result import Audit


@dataclass(frozen=True)
class Comparison:
    """Audits with their names and, if known, their utilities (higher is better)."""

    audits: tuple[Audit, ...]
    names: tuple[str, ...]
    utilities: tuple[float, ...] | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One row an audit: the numbers that are compared."""
        found = []
        for index, (audit, name) in enumerate(zip(self.audits, self.names, strict=True)):
            stars = [e for e in audit.estimates if e.method == "epsilon-star-parametric"]
            bounds = [g.epsilon for g in audit.upper if g.is_bound]
            found.append(
                {
                    "name": name,
                    "utility": None if self.utilities is None else self.utilities[index],
                    "epsilon_low": audit.headline.low,
                    "epsilon_star": stars[0].epsilon if stars else None,
                    "epsilon_high": min(bounds) if bounds else None,
                    "auc": None if audit.curve is None else audit.curve.auc,
                    "tpr_at_fpr": {} if audit.curve is None else {str(p.fpr): p.tpr for p in audit.curve.tpr_at_fpr},
                    "shift": audit.guard.shift,
                    "delta": audit.headline.delta,
                    "confidence": audit.headline.confidence,
                }
            )
        return found

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """One self-contained page with all audits side by side."""
        from dosimeter.audits.compare.page import compare_page

        write_text(path, compare_page(self.audits, self.names, self.utilities))


def compare(
    audits: Sequence[Audit], *, names: Sequence[str] | None = None, utilities: Sequence[float] | None = None
) -> Comparison:
    """Set audits side by side; with utilities the privacy–utility landscape can be drawn."""
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
