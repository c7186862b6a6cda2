"""Records and labels, read in one place: (X, y) in arrays, files and torch datasets; some of them; a fingerprint."""

from dosimeter.records.forms import KINDS, Array, count, fetched, fingerprint, kind_of, take
from dosimeter.records.pairs import array, class_numbers, labels, numbers, pair, parted
from dosimeter.records.reader import dataset, file_labels, unmasked

__all__ = [
    "KINDS",
    "Array",
    "array",
    "class_numbers",
    "count",
    "dataset",
    "fetched",
    "file_labels",
    "fingerprint",
    "kind_of",
    "labels",
    "numbers",
    "pair",
    "parted",
    "take",
    "unmasked",
]
