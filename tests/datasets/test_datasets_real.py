"""The published data themselves, where DOSIMETER_DATA names a folder that has them."""

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from dataset_forms import idx, tgz, zipped

from dosimeter.datasets import half, load, split
from dosimeter.datasets.catalogue import CATALOGUE
from dosimeter.datasets.census import BANK, GERMAN

PLACES = [Path(os.environ["DOSIMETER_DATA"])] if os.environ.get("DOSIMETER_DATA") else []


def real(name):
    files = [form.files[0].name for form in CATALOGUE[name].forms if len(form.files) == 1 and not form.files[0].urls]
    for place in PLACES:
        if any((place / file).is_file() for file in files):
            return load(name, folder=place, download=False)
    pytest.skip(f"no {' or '.join(files)}; set DOSIMETER_DATA")


def table(dataset):
    """The rows of the raw columns."""
    return list(zip(*(values.tolist() for values in dataset.raw.values()), strict=True))


def whole_table(name):
    for place in PLACES:
        if (place / f"{name}.csv.gz").is_file():
            text = gzip.decompress((place / f"{name}.csv.gz").read_bytes()).decode()
            return [line.split(",") for line in text.splitlines()]
    pytest.skip(f"no {name}.csv.gz; set DOSIMETER_DATA")


def test_adult():
    """Kohavi's numbers: 30 162 and 15 060 complete rows, 24.78 % of them above 50K (adult.names)."""
    data = real("adult")
    assert data.X.shape == (45_222, 104) and data.task == "tabular"
    train = data.raw["split"] == "train"
    assert (train.sum(), (~train).sum()) == (30_162, 15_060)
    assert round(100 * data.y.mean(), 2) == 24.78
    assert data.y[train].sum() == 7_508 and data.y.sum() == 11_208
    assert data.X.min() == 0 and data.X.max() == 1
    categories = [i for i, name in enumerate(data.feature_names) if "=" in name]
    assert len(categories) == 98
    assert np.isin(data.X[:, categories], (0, 1)).all()
    assert (data.X[:, categories].sum(axis=1) == 8).all()
    assert (data.X[:, categories].sum(axis=0) > 0).all()
    numbers = [i for i in range(104) if i not in categories]
    assert (data.X[:, numbers].max(axis=0) == 1).all() and (data.X[:, numbers[1:]].min(axis=0) < 0.001).all()


def test_adult_with_its_incomplete_rows():
    """The rows of the published files, 32 561 and 16 281; an unknown value is a category."""
    data = real("adult_all")
    assert [int((data.raw["split"] == part).sum()) for part in ("train", "test")] == [32_561, 16_281]
    assert data.X.shape == (48_842, 108)
    unknown = [name for name in data.feature_names if name.endswith("=?")]
    incomplete = data.X[:, [data.feature_names.index(name) for name in unknown]].any(axis=1)
    assert (~incomplete).sum() == len(real("adult"))


def test_adult_as_uci_gives_it(tmp_path):
    """The two original files, rebuilt, have their published checksums, and load as the same records."""
    rows = whole_table("adult")[1:]
    parts = {part: [", ".join(row[:-1]) for row in rows if row[-1] == part] for part in ("train", "test")}
    (tmp_path / "adult.data").write_text("\n".join([*parts["train"], "", ""]))
    (tmp_path / "adult.test").write_text(
        "\n".join(["|1x3 Cross validator", *(f"{line}." for line in parts["test"]), "", ""])
    )
    assert load("adult", folder=tmp_path, download=False).fingerprint == real("adult").fingerprint


def test_german_credit(tmp_path):
    data = real("german_credit")
    assert data.X.shape == (1000, 61) and np.bincount(data.y).tolist() == [700, 300]
    assert data.class_names == ("good", "bad")
    assert (data.X.min(axis=0) == 0).all() and (data.X.max(axis=0) == 1).all()
    lines = [" ".join(row) for row in whole_table("german_credit")[1:]]
    (tmp_path / "german.data").write_text("\n".join(lines) + "\n")
    assert load("german_credit", folder=tmp_path, download=False).fingerprint == data.fingerprint
    assert list(data.raw) == [*GERMAN.columns, GERMAN.label]


def test_bank_marketing(tmp_path):
    data = real("bank_marketing")
    assert data.X.shape == (41_188, 62) and data.y.sum() == 4_640
    assert "duration" not in data.feature_names and "duration" in data.raw
    assert (data.X.min(axis=0) == 0).all() and (data.X.max(axis=0) == 1).all()
    rows = whole_table("bank_marketing")
    lines = "\n".join(";".join(f'"{cell}"' for cell in row) for row in rows)
    (tmp_path / "bank-additional.zip").write_bytes(zipped(**{"bank-additional/bank-additional-full.csv": lines}))
    assert load("bank_marketing", folder=tmp_path, download=False).fingerprint == data.fingerprint
    assert set(BANK.columns) < set(data.raw)


def test_credit_default():
    data = real("credit_default")
    assert data.X.shape == (30_000, 33) and data.y.sum() == 6_636
    assert "ID" not in data.feature_names
    assert data.X.min() == 0 and data.X.max() == 1
    limits = data.raw["LIMIT_BAL"].astype(float)
    np.testing.assert_allclose(data.X[:, data.feature_names.index("LIMIT_BAL")], (limits - 1e4) / 99e4, atol=1e-7)


def test_location30(tmp_path):
    data = real("location30")
    counts = np.bincount(data.y)
    assert data.X.shape == (5_010, 446) and (len(counts), counts.min(), counts.max()) == (30, 97, 308)
    assert set(np.unique(data.X)) == {0, 1} and round(float(data.X.mean()), 2) == 0.12
    rows = zip(data.y + 1, data.X.astype(int).tolist(), strict=True)
    lines = "".join(",".join(map(str, [label, *row])) + "\n" for label, row in rows)
    (tmp_path / "dataset_location.tgz").write_bytes(tgz(bangkok=lines.encode()))
    assert load("location30", folder=tmp_path, download=False).fingerprint == data.fingerprint


def as_idx(data, folder):
    images, train = np.round(data.X * 255).astype(np.uint8), data.raw["split"] == "train"
    folder.mkdir()
    for part, rows in (("train", train), ("t10k", ~train)):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(images[rows]))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(data.y[rows].astype(np.uint8)))


@pytest.mark.parametrize(
    ("name", "counts", "mean", "deviation"),
    [  # means and deviations as commonly used to normalise the training images
        ("mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], 0.1307, 0.3081),
        ("fashion_mnist", [6000] * 10, 0.2860, 0.3530),
    ],
)
def test_mnist(name, counts, mean, deviation):
    data = real(name)
    train = data.raw["split"] == "train"
    assert data.X.shape == (70_000, 28, 28) and data.X.dtype == np.float32 and data.task == "image"
    assert train[:60_000].all() and not train[60_000:].any()
    assert np.bincount(data.y[train]).tolist() == counts
    pixels = data.X[:60_000].astype(np.float64)
    assert (round(pixels.mean(), 4), round(pixels.std(), 4)) == (mean, deviation)
    assert data.X.min() == 0 and data.X.max() == 1


def test_mnist_from_its_original_files(tmp_path):
    data = real("mnist")
    as_idx(data, tmp_path / "mnist")
    known = "6bbc9ace898e44ae57da46a324031adb"  # md5 of train-images-idx3-ubyte, unpacked
    unpacked = gzip.decompress((tmp_path / "mnist" / "train-images-idx3-ubyte.gz").read_bytes())
    assert hashlib.md5(unpacked, usedforsecurity=False).hexdigest() == known
    again = load("mnist", folder=tmp_path, download=False, verify=False)
    assert again.fingerprint == data.fingerprint == CATALOGUE["mnist"].forms[1].fingerprint


def test_cifar10():
    data = real("cifar10")
    assert data.X.shape == (30_000, 32, 32, 3) and "cifar10_20k.npz" in data.source
    train = data.raw["split"] == "train"
    assert np.bincount(data.y[~train]).tolist() == [1000] * 10
    assert data.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert (data.X[0, 0, 0] * 255).tolist() == [59, 62, 63]
    assert (np.round(data.X[20_000, 0, 0] * 255)).tolist() == [158, 112, 49]
    means = data.X[:20_000].mean(axis=(0, 1, 2), dtype=np.float64)
    assert np.abs(means - [0.4914, 0.4822, 0.4465]).max() < 0.005


def test_sst2():
    data = real("sst2")
    counts = {part: np.bincount(data.y[data.raw["split"] == part]).tolist() for part in ("train", "dev", "test")}
    assert counts == {"train": [29_780, 37_569], "dev": [428, 444], "test": [912, 909]}
    assert data.X[0] == "hide new secretions from the parental units" and data.class_names[data.y[0]] == "negative"


def test_wikitext2(tmp_path):
    """With an end-of-line token for every line, blank or not, the published 2 088 628 training tokens."""
    data = real("wikitext2")
    assert data.y is None and data.task == "language" and len(data) == 29_119
    train = data.raw["split"] == "train"
    words = [word for line in data.X[train].tolist() for word in line.split()]
    assert len(words) + 36_718 == 2_088_628
    assert len({*words, "<eos>"}) == 33_278
    for place in PLACES:
        if (place / "wikitext2.npz").is_file():
            with np.load(place / "wikitext2.npz") as arrays:
                (tmp_path / "wikitext2").mkdir()
                for part in ("train", "valid", "test"):
                    (tmp_path / "wikitext2" / f"{part}.txt").write_bytes(arrays[part].tobytes())
            break
    assert load("wikitext2", folder=tmp_path, download=False).fingerprint == data.fingerprint


def test_halves_and_parts_of_adult():
    data = real("adult")
    (X, y), (other, labels) = half(data, seed=3)
    assert len(X) + len(other) == 45_222 and abs(len(X) - len(other)) < 5 * 45_222**0.5
    assert abs(y.mean() - labels.mean()) < 0.03
    first, second = split(data, sizes=(10_000, 5_000), seed=3)
    assert first.X.shape == (10_000, 104) and second.X.shape == (5_000, 104)
    assert len(set(table(first)) & set(table(second))) < 20  # only rows that the source repeats
