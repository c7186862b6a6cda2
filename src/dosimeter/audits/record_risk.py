"""The risk of every record, held beside an audit and never written into its JSON: it names members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._files import naming
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.evidence import Scores

__all__ = ["HARDLY_ANY", "RecordRisk", "write_risk"]

HARDLY_ANY = 0.05  # non-members that score as high, where an attack agrees that a record is exposed


@dataclass(frozen=True, eq=False)
class RecordRisk:
    """One row for each record or person, members first.

    `share` is the share of non-members with a score at least as high, the record itself among them if it is one.
    `agreement` is the share of all attacks made under which that share is at most 5 %; None where there was one.
    """

    index: npt.NDArray[Any]
    member: BoolArray
    label: tuple[str, ...] | None
    score: FloatArray
    share: FloatArray
    agreement: FloatArray | None

    @classmethod
    def of(
        cls,
        scores: Scores,
        names: tuple[Any, Any],
        labels: tuple[str, ...] | None = None,
        others: Sequence[Scores] = (),
    ) -> RecordRisk:
        """Rank all records by the attack of the headline, and count how many of the `others` agree."""
        share = _share(scores)
        agreement = None
        if others:
            agreement = np.mean([_share(one) <= HARDLY_ANY for one in (scores, *others)], axis=0)
        return cls(
            np.concatenate([np.asarray(side) for side in names]),
            np.arange(share.size) < scores.members.size,
            labels,
            np.concatenate([scores.members, scores.nonmembers]),
            share,
            agreement,
        )

    def table(self) -> Any:
        """The rows as a pyarrow table, the most exposed first."""
        import pyarrow

        order = np.lexsort((np.arange(self.score.size), -self.score))
        columns = {"index": self.index[order], "member": self.member[order]}
        if self.label is not None:
            columns["label"] = np.array(self.label)[order]
        columns |= {"score": self.score[order], "share_of_nonmembers": self.share[order]}
        if self.agreement is not None:
            columns["agreement"] = self.agreement[order]
        return pyarrow.table({name: pyarrow.array(values.tolist()) for name, values in columns.items()})


def _share(scores: Scores) -> FloatArray:
    both = np.concatenate([scores.members, scores.nonmembers])
    below = np.searchsorted(scores.sorted_nonmembers, both, "left")
    share: FloatArray = 1 - below / scores.nonmembers.size
    return share


def write_risk(table: Any, path: str | Path) -> Path:
    """Write a risk table to a .parquet or .csv file that only its owner may read."""
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in (".parquet", ".csv"):
        raise InputError(f"{file} is neither a .parquet nor a .csv file; name it e.g. risk.parquet.")
    with naming(file):
        file.touch(mode=0o600)
        if kind == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, file)
        else:
            from pyarrow import csv

            csv.write_csv(table, file)
    return file
