"""SST-2 (sentences with a sentiment) and WikiText-2 (lines of articles), as arrays of strings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dosimeter._validate import InputError, show
from dosimeter.datasets import _raw_files
from dosimeter.datasets._raw_files import MEGA
from dosimeter.datasets.tables import Array, Contents, columns_of, read_csv

SENTIMENTS = ("negative", "positive")
_LIMIT = 64 * MEGA
_ARRAYS = 8 * 16 * MEGA  # a row of bytes counts as the float64 that a row of scores would become
_PARTS = ("train", "valid", "test")


def sst2_csv(paths: Sequence[Path]) -> Contents:
    """sst2.csv.gz: columns split, label and sentence."""
    table = read_csv(paths[0])
    absent = [name for name in ("split", "label", "sentence") if name not in table]
    if absent:
        raise InputError(f"{paths[0]} has no column {absent[0]}; it has {show(', '.join(table), 90)}.")
    return _sentences(table["sentence"], table["label"], table["split"], paths[0])


def sst2_glue(paths: Sequence[Path]) -> Contents:
    """SST-2.zip of GLUE: train and dev; its test sentences have no labels and are left out."""
    path = paths[0]
    sentences: list[str] = []
    labels: list[str] = []
    splits: list[str] = []
    for part in ("train", "dev"):
        content = _raw_files.text(_raw_files.zip_member(path, [f"SST-2/{part}.tsv"], _LIMIT), path)
        rows = [line.split("\t") for line in content.split("\n") if line.strip()]
        table = columns_of(rows[1:], ("sentence", "label"), path)
        sentences += table["sentence"]
        labels += table["label"]
        splits += [part] * len(table["label"])
    return _sentences(sentences, labels, splits, path)


def sst2_hub(paths: Sequence[Path]) -> Contents:
    """The .parquet files of stanfordnlp/sst2 on the Hugging Face hub: train, then validation, here called dev."""
    sentences: list[str] = []
    labels: list[str] = []
    splits: list[str] = []
    for path, part in zip(paths, ("train", "dev"), strict=True):
        found = _raw_files.parquet(path, ("sentence", "label"), 10**6)
        sentences += map(str, found["sentence"])
        labels += map(str, found["label"])
        splits += [part] * len(found["label"])
    return _sentences(sentences, labels, splits, paths[0])


def _sentences(sentences: Sequence[str], labels: Sequence[str], splits: Sequence[str], path: Path) -> Contents:
    texts = [sentence.strip() for sentence in sentences]
    for number, (sentence, label) in enumerate(zip(texts, labels, strict=True)):
        if not sentence or label not in ("0", "1"):
            wrong = "no sentence" if not sentence else f"the label {show(label)}, not 0 or 1"
            raise InputError(f"{path}: record {number} has {wrong}; get the file again.")
    y = np.array([int(label) for label in labels], dtype=np.int64)
    return Contents(_strings(texts), y, (), SENTIMENTS, {"split": np.array(splits)})


def wikitext_arrays(paths: Sequence[Path]) -> Contents:
    """wikitext2.npz: the UTF-8 bytes of the three token files."""
    columns = _raw_files.arrays(paths[0], _ARRAYS)
    absent = [name for name in _PARTS if name not in columns]
    if absent:
        raise InputError(f"{paths[0]} has no array {absent[0]}; it has {show(', '.join(columns), 90)}.")
    for name in _PARTS:
        if columns[name].dtype != np.uint8 or columns[name].ndim != 1:
            raise InputError(f"{paths[0]}: array {name} is not a row of bytes; get the file again.")
    return _articles([_raw_files.text(columns[name].tobytes(), paths[0]) for name in _PARTS], [paths[0]] * 3)


def wikitext_files(paths: Sequence[Path]) -> Contents:
    """The three token files themselves."""
    return _articles([_raw_files.text(_raw_files.plain(path, _LIMIT), path) for path in paths], paths)


def _articles(texts: Sequence[str], paths: Sequence[Path]) -> Contents:
    """A record is a line that is not blank; `line` is its place in its file, so that neighbours can be found."""
    lines: list[str] = []
    splits: list[str] = []
    places: list[int] = []
    for part, content, path in zip(_PARTS, texts, paths, strict=True):
        found = [(place, line.strip()) for place, line in enumerate(content.split("\n")) if line.strip()]
        if not found:
            raise InputError(f"{path} has no text for {part}; get it again.")
        lines += [line for _, line in found]
        places += [place for place, _ in found]
        splits += [part] * len(found)
    return Contents(_strings(lines), None, (), (), {"split": np.array(splits), "line": np.array(places, np.int64)})


def _strings(texts: Sequence[str]) -> Array:
    return np.array(texts, dtype=np.dtypes.StringDType())
