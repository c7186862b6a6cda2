"""Records and labels, read in one place: (X, y) in arrays, files and torch datasets; some of them; a fingerprint."""

from dosimeter.records.forms import Array, count, fetched, fingerprint, take
from dosimeter.records.pairs import array, class_numbers, labels, numbers, pair, parted
from dosimeter.records.reader import dataset, file_labels, unmasked

__all__ = [
    "Array",
    "array",
    "class_numbers",
    "count",
    "dataset",
    "fetched",
    "file_labels",
    "fingerprint",
    "labels",
    "numbers",
    "pair",
    "parted",
    "take",
    "unmasked",
]
