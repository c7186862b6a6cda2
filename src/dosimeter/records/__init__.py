"""Records and labels, read in one place: (X, y) in arrays, files and torch datasets; some of them; a fingerprint."""

from dosimeter.records.forms import (
    KINDS,
    Array,
    array,
    class_codes,
    class_numbers,
    count,
    fetched,
    fingerprint,
    joined,
    kind_of,
    labels,
    missing_values,
    numbers,
    take,
    targets,
)
from dosimeter.records.reader import dataset, file_labels, pair, parted, unmasked

__all__ = [
    "KINDS",
    "Array",
    "array",
    "class_codes",
    "class_numbers",
    "count",
    "dataset",
    "fetched",
    "file_labels",
    "fingerprint",
    "joined",
    "kind_of",
    "labels",
    "missing_values",
    "numbers",
    "pair",
    "parted",
    "take",
    "targets",
    "unmasked",
]
