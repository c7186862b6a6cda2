"""The result of an audit, as one value."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dosimeter._validate import InputError, show
from dosimeter.accounting import Guarantee
from dosimeter.audits.shift.guard import Guard
from dosimeter.estimate import Estimate, plain
from dosimeter.reading import strict_json

__all__ = ["SCHEMA", "Audit", "Guard"]

SCHEMA = 2  # the version of the files that are written


@dataclass(frozen=True)
class Audit:
    """Bounds (the headline first), what was checked, what it means for a person, and what the charts need.

    `distributions`: {"edges", "members", "nonmembers"}: densities of the losses (or scores) in bins.
    `star`: {"fpr", "fnr", "epsilon", "best"}: ε forced along the thresholds and the index of the supremum.
    `subgroups`: {"group", "value", "members", "nonmembers", "epsilon", "auc", "p_value", "flagged"} each, whose bounds
    all hold at once with `joint_confidence`.
    `exposed`: {"record", "score", "threshold_fpr", "label"} each, the most exposed members first.
    `details`: what only the kind of audit that `metadata["kind"]` names has to show.
    `schema`: the version of the file that it was read from; 1 has no evidence to verify.
    """

    estimates: tuple[Estimate, ...]
    guard: Guard
    risk: Mapping[str, Any]
    curve: Mapping[str, Any]
    upper: tuple[Guarantee, ...] = ()
    region: Mapping[str, Any] | None = None
    distributions: Mapping[str, Any] | None = None
    star: Mapping[str, Any] | None = None
    subgroups: tuple[Mapping[str, Any], ...] = ()
    exposed: tuple[Mapping[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if not self.estimates:
            raise InputError("estimates is empty; an audit needs at least its headline.")
        for name in ("risk", "curve", "details", "metadata"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def headline(self) -> Estimate:
        return self.estimates[0]

    def __str__(self) -> str:
        lines = [self.headline.claim, str(self.guard)]
        lines += [f"{e.method} ({e.validity}): {e.claim}" for e in self.estimates[1:]]
        return "\n".join(lines + list(self.risk["words"]))

    def to_dict(self) -> dict[str, Any]:
        """Everything as strict JSON values."""
        return {
            "schema": self.schema,
            "estimates": [e.to_dict() for e in self.estimates],
            "guard": self.guard.to_dict(),
            "risk": plain(self.risk),
            "curve": plain(self.curve),
            "upper": [g.to_dict() for g in self.upper],
            "region": plain(self.region),
            "distributions": plain(self.distributions),
            "star": plain(self.star),
            "subgroups": plain(self.subgroups),
            "exposed": plain(self.exposed),
            "details": plain(self.details),
            "metadata": plain(self.metadata),
        }

    def to_json(self) -> str:
        """Strict JSON that `from_json` reads back."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """One self-contained page for people."""
        from dosimeter.audits.page import write_html

        write_html(self, Path(path))

    @classmethod
    def from_json(cls, text: str | bytes) -> Audit:
        """Read back what `to_json` wrote, strictly: types, ranges, and numbers that agree with each other.

        Whether the bounds follow from their evidence is for `dosimeter.audits.verify.verify`.

        Args:
            text: The JSON of an audit, of this version's schema or of an earlier one.

        Returns:
            The audit. One of schema 1 does not say whose ε its bounds are: their `neighbours` are None.

        Raises:
            InputError: If the text is not JSON, not an audit, or contradicts itself.
        """
        return cls.from_dict(strict_json(text, what="the audit"))

    @classmethod
    def from_dict(cls, values: Any) -> Audit:
        """Read back what `to_dict` wrote, as strictly as `from_json`."""
        from dosimeter.audits import schema  # pydantic is needed to read a file only

        version = schema.read(values).schema_
        guard = values["guard"]
        try:
            audit = cls(
                estimates=tuple(Estimate.from_dict(e) for e in values["estimates"]),
                guard=Guard(guard["shift"], guard["checked"], guard["evidence"]),
                risk=values["risk"],
                curve=values["curve"],
                upper=tuple(Guarantee.from_dict(g) for g in values["upper"]),
                region=values["region"],
                distributions=values["distributions"],
                star=values["star"],
                subgroups=tuple(values["subgroups"]),
                exposed=tuple(values["exposed"]),
                details=values.get("details", {}),
                metadata=values["metadata"],
                schema=version,
            )
            said = str(audit.guard)
        except InputError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise InputError(
                f"this is not the JSON of an audit ({show(str(error))}); write it with Audit.to_json."
            ) from None
        if version == SCHEMA and said != guard["verdict"]:
            raise InputError(
                f"the audit contradicts itself: guard.verdict is {show(guard['verdict'])}, its evidence says "
                f"{show(said)}; write it with Audit.to_json."
            )
        return audit
