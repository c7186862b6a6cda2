"""Find a data set, or fetch it, check it, and hand it over encoded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dosimeter import _validate as check
from dosimeter._validate import InputError, show
from dosimeter.datasets import _fetch, bundled
from dosimeter.datasets.catalogue import CATALOGUE, CatalogueEntry, FileForm
from dosimeter.datasets.dataset import Dataset, Task
from dosimeter.datasets.tables import Contents
from dosimeter.records import fingerprint

VARIABLE = "DOSIMETER_DATA"


def names() -> tuple[str, ...]:
    """List the names that `load` knows; those that are always there come first.

    Returns:
        The names.

    >>> names()[:3]
    ('digits', 'breast_cancer', 'wine')
    """
    return (*bundled.NAMES, *CATALOGUE)


def load(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
    verify: bool = True,
) -> Dataset:
    """Load a data set by its name, encoded as in the papers.

    digits, breast_cancer and wine come with scikit-learn. The others are looked for in `folder`, in the folder that the
    environment variable DOSIMETER_DATA names, and in the cache (~/.cache/dosimeter, or under XDG_CACHE_HOME), and are
    then downloaded into the cache. Files may lie in the folder itself or in one inside it that is named after the set.

    cifar10 is whole from cifar-10-binary.tar.gz; cifar10_20k.npz has only 20 000 of the training images. Encodings: see
    `dosimeter.datasets.census` (tables), `bits` (Purchase-100: 600 bits, Texas-100: 6 169, which takes 1.7 GB,
    Location-30: 446), `images` and `text`.

    Args:
        name: One of `names()`.
        folder: Where to look first.
        download: Whether a missing set may be downloaded.
        verify: False takes files that are not the published ones, for instance a part of them: only their form is
            checked.

    Returns:
        The data set.

    Raises:
        InputError: If the name is unknown, or a file is missing or not the published one.

    >>> len(load("digits"))
    1797
    """
    check.choice("name", name, names())
    for option, value in (("download", download), ("verify", verify)):
        if not isinstance(value, bool):
            raise InputError(f"{option} must be True or False, got {show(value)}; pass one of these.")
    if name in bundled.NAMES:
        from sklearn import __version__ as version

        return _dataset(name, bundled.read(name), f"scikit-learn {version}", "tabular")
    entry = CATALOGUE[name]
    places = list(_places(folder))
    found = _find(name, entry, places)
    if found is None:
        found = _fetched(name, entry, places, download)
    form, paths = found
    if verify:
        for file, path in zip(form.files, paths, strict=True):
            _fetch.check_file(path, file.sha256)
    contents = form.read(paths)
    where = f"{paths[0]}, from {entry.origin}" + ("" if verify else ", not verified")
    dataset = _dataset(name, contents, where, entry.task)
    if verify:
        _verify(dataset, form, paths[0])
    return dataset


def cache_folder() -> Path:
    """Where downloads are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()) / "dosimeter"


def _dataset(name: str, contents: Contents, source: str, task: Task) -> Dataset:
    X, y, features, classes, raw = contents
    return Dataset(name, X, y, features, classes, source, fingerprint(X, y), task, raw)


def _places(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    named = (("folder", folder), (VARIABLE, os.environ.get(VARIABLE) or None))
    for what, value in named:
        if value is None:
            continue
        try:
            place = Path(value).expanduser()
        except TypeError:
            raise InputError(f"{what} must be the path of a folder, got {show(value)}; pass one.") from None
        if not place.is_dir():
            raise InputError(f"{what} is {place}, which is not a folder; name the folder with the data files.")
        yield place
    yield cache_folder()


def _find(name: str, entry: CatalogueEntry, places: Sequence[Path]) -> tuple[FileForm, list[Path]] | None:
    for place in places:
        for form in entry.forms:
            for folder in (place / name, place) if form.flat else (place / name,):
                paths = [folder / file.name for file in form.files]
                if all(path.is_file() for path in paths):
                    return form, paths
    return None


def _fetched(name: str, entry: CatalogueEntry, places: Sequence[Path], download: bool) -> tuple[FileForm, list[Path]]:
    reasons = []
    target = places[-1] / name
    for form in entry.forms if download else ():
        if not all(file.urls for file in form.files):
            continue
        paths = [target / file.name for file in form.files]
        try:
            for file, path in zip(form.files, paths, strict=True):
                if not path.is_file():
                    _fetch.download(file.urls, path, sha256=file.sha256, limit=file.limit)
            return form, paths
        except _fetch.UnreachableError as reason:
            reasons.append(str(reason))
    why = f"could not be downloaded ({'; '.join(reasons)})" if download else "may not be downloaded (download=False)"
    expected = " or ".join(" with ".join(file.name for file in form.files) for form in entry.forms)
    raise InputError(
        f"{name} is not in {', '.join(map(str, places))} and {why}; it comes from {entry.origin}: put {expected} into "
        f"a folder (in one inside it named {name}, if you like) and pass folder= or set {VARIABLE} to it."
    )


def _verify(dataset: Dataset, form: FileForm, path: Path) -> None:
    """Refuse data that are in the right form but not the right data."""
    remedy = "get the file again, or pass verify=False for a version of your own."
    if len(dataset) != form.records:
        raise InputError(f"{path} gives {len(dataset)} records and {dataset.name} has {form.records}; {remedy}")
    if form.fingerprint not in (None, dataset.fingerprint):
        raise InputError(
            f"{path} has the wrong checksum: its records have the fingerprint {dataset.fingerprint}, those of "
            f"{dataset.name} {form.fingerprint}; {remedy}"
        )
