"""Damaged, wrong and hostile files: one sentence that names the file, and nothing else."""

import gzip
import io
import pickle
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from dataset_forms import (
    FORMS,
    adult_csv,
    adult_uci,
    cifar_npz,
    cifar_tgz,
    csv_gz,
    german_csv,
    idx,
    location_npz,
    mnist_idx,
    mnist_npz,
    npz,
    purchase_npz,
    purchase_tgz,
    sst2_csv,
    texas_tgz,
    tgz,
    tgz_of,
    wikitext_npz,
    zipped,
)

from dosimeter import InputError
from dosimeter.datasets import _raw_files, load
from dosimeter.datasets.catalogue import CATALOGUE

pytestmark = pytest.mark.once  # the loaders read files with NumPy and PyArrow


def rng():
    return np.random.default_rng(0)


def refuse(made, folder, words, *, verify=False):
    made.write(folder, inside=True)
    with pytest.raises(InputError, match=words) as caught:
        load(made.name, folder=folder, download=False, verify=verify)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_cut_short_or_empty(form, tmp_path):
    made = form(rng())
    name, data = next(iter(made.files.items()))
    for cut in (0.0, 0.3, 0.9):
        made.files[name] = data[: int(cut * len(data))]
        if name.endswith((".txt", ".data")) and cut > 0:  # plain text may end anywhere: its checksum tells
            message = refuse(made, tmp_path, "checksum|records|record", verify=True)
        else:
            message = refuse(made, tmp_path, ".")
        assert name in message or len(made.files) > 1


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_one_flipped_byte(form, tmp_path, monkeypatch):
    """Anywhere in any file: refused with the file's name, or the records are the same (a time stamp, say)."""
    made = form(rng())
    good = load(made.name, folder=made.write(tmp_path, inside=True), verify=False)
    entry = CATALOGUE[made.name]
    forms = tuple(
        replace(
            form,
            records=len(good),
            fingerprint=good.fingerprint,
            files=tuple(replace(file, sha256=None) for file in form.files),
        )
        for form in entry.forms
    )
    monkeypatch.setitem(CATALOGUE, made.name, replace(entry, forms=forms))
    refused = 0
    for name, data in made.files.items():
        path = tmp_path / made.name / name
        for at in np.linspace(0, len(data) - 1, 40 if len(data) < 50_000 else 12).astype(int):
            broken = bytearray(data)
            broken[at] ^= 1 << int(at % 7)
            path.write_bytes(broken)
            try:
                found = load(made.name, folder=tmp_path, download=False)
                assert found.fingerprint == good.fingerprint
            except InputError as error:
                refused += 1
                assert str(tmp_path / made.name) in str(error)
        path.write_bytes(data)
    assert refused > 5


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_another_file_under_the_name(form, tmp_path):
    rubbish = [
        b"\0" * 1000,
        b"<html>not found</html>",
        pickle.dumps(np.zeros(3)),
        zipped(a="b"),
        tgz(a=b"b"),
        npz(a=[1]),
    ]
    rubbish += [gzip.compress(b"a,b\n1,2\n"), gzip.compress(b"\xff\xfe"), gzip.compress(b"")]
    made = form(rng())
    if "train.txt" in made.files:
        rubbish = [gzip.compress(b"\xff\xfe"), b""]  # any text is a text; its checksum is known
    for data in rubbish:
        made.files = dict.fromkeys(made.files, data)
        message = refuse(made, tmp_path, ".")
        assert any(str(tmp_path / made.name / name) in message for name in made.files)


def test_right_form_wrong_data(tmp_path):
    """A file in the right form with other records, as many as there should be, is told by its fingerprint."""
    x = np.zeros((5010, 446), np.uint8)
    made = location_npz(rng())
    made.files["location30.npz"] = npz(x=x, y=np.arange(5010, dtype=np.uint8) % 30)
    message = refuse(made, tmp_path, "wrong checksum: its records have the fingerprint", verify=True)
    assert "location30.npz" in message and "verify=False" in message


def test_wrong_number_of_records(tmp_path):
    message = refuse(purchase_npz(rng()), tmp_path, "gives 12 records and purchase100 has 197324", verify=True)
    assert "purchase100.npz" in message


def test_objects_are_never_unpickled(tmp_path):
    stream = io.BytesIO()
    np.savez(stream, x=np.array([{"a": 1}], dtype=object), y=np.zeros(1))
    made = location_npz(rng())
    made.files["location30.npz"] = stream.getvalue()
    refuse(made, tmp_path, "Python objects")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((4, 600)), "z": np.zeros(4)}, "must hold the arrays x and y; it holds 'x, z'"),
        ({"x": np.zeros((4, 599)), "y": np.zeros(4)}, r"shape \(4, 599\)"),
        ({"x": np.zeros((0, 600)), "y": np.zeros(0)}, r"shape \(0, 600\)"),
        ({"x": np.full((4, 600), 2), "y": np.zeros(4)}, "record 0 of x is not all 0 and 1"),
        ({"x": np.full((4, 600), np.nan), "y": np.zeros(4)}, "not all 0 and 1"),
        ({"x": np.zeros((4, 600)), "y": np.zeros(3)}, r"y has shape \(3,\)"),
        ({"x": np.zeros((4, 600)), "y": np.full(4, 101)}, "class 101"),
        ({"x": np.zeros((4, 600)), "y": np.full(4, -1)}, "record 0 has the class 0, not one from 1"),
        ({"x": np.zeros((4, 600)), "y": np.full(4, 0.5)}, "whole numbers"),
        ({"x": np.zeros((4, 600)), "y": np.full(4, np.inf)}, "whole numbers"),
        ({"x": np.zeros((4, 600)), "y": np.zeros((4, 100))}, "not one-hot"),
        ({"x": np.zeros((4, 600)), "y": np.array(["a"] * 4)}, "y has shape"),
    ],
)
def test_wrong_bits(arrays, words, tmp_path):
    made = purchase_npz(rng())
    made.files["purchase100.npz"] = npz(**arrays)
    refuse(made, tmp_path, words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1," + ",".join("0" * 599), "record 12 of dataset_purchase is not a class and 600 bits"),
        ("1," + ",".join("0" * 599 + "2"), "record 12 is not a row"),
        ("101," + ",".join("0" * 600), "record 12 has the class 101"),
        ("x," + ",".join("0" * 600), "'x' is not the number of a class"),
        (",".join("0" * 600), "record 12 of dataset_purchase is not a class and 600 bits"),
        ("1;" + ",".join("0" * 600), "record 12 is not a row|not the number"),
    ],
)
def test_wrong_lines_of_bits(line, words, tmp_path):
    made = purchase_tgz(rng())
    with tarfile.open(fileobj=io.BytesIO(made.files["dataset_purchase.tgz"])) as archive:
        lines = archive.extractfile("dataset_purchase").read()
    made.files["dataset_purchase.tgz"] = tgz(dataset_purchase=lines + line.encode() + b"\n")
    refuse(made, tmp_path, words)


def test_too_many_bits(tmp_path, monkeypatch):
    from dosimeter.datasets import bits

    monkeypatch.setattr(bits, "_MOST", 12 * 600 - 1)
    refuse(purchase_tgz(rng()), tmp_path, "dataset_purchase has more than 7199 bits")


def test_more_labels_than_records(tmp_path):
    made = texas_tgz(rng())
    features = (",".join("0" * 6169) + "\n").encode()
    made.files["dataset_texas.tgz"] = tgz(texas__100__feats=features, texas__100__labels=b"1\n2\n")
    refuse(made, tmp_path, "1 records and 2 classes")
    made.files["dataset_texas.tgz"] = tgz(texas__100__feats=b"1," + features, texas__100__labels=b"1\n")
    refuse(made, tmp_path, "record 0 of texas/100/feats is not 6169 bits")


def replaced(made, old, new):
    (name,) = made.files
    made.files[name] = gzip.compress(gzip.decompress(made.files[name]).replace(old, new, 1))
    return made


def test_wrong_cells(tmp_path):
    rows = gzip.decompress(german_csv(rng()).files["german_credit.csv.gz"]).split(b"\n")
    cells = rows[3].split(b",")
    for place, value, words in (
        (0, b"A99", "record 2, column status is 'A99', none of its 4 known values"),
        (1, b"900", "record 2, column duration is '900', not a number from 4 to 72"),
        (1, b"nan", "record 2, column duration is 'nan', not a number"),
        (1, b"long", "record 2, column duration is 'long', not a number"),
        (20, b"3", "record 2, column credit_risk is '3'"),
    ):
        other = [*cells[:place], value, *cells[place + 1 :]]
        made = german_csv(rng())
        made.files["german_credit.csv.gz"] = gzip.compress(b"\n".join([*rows[:3], b",".join(other), *rows[4:]]))
        refuse(made, tmp_path, words)
    made.files["german_credit.csv.gz"] = gzip.compress(b"\n".join([*rows[:3], b"A11,6", *rows[4:]]))
    refuse(made, tmp_path, "record 2 has 2 columns and not 21")
    refuse(
        replaced(german_csv(rng()), b"status,", b"state,"), tmp_path, "has no column status; it has 'state, duration"
    )
    made.files["german_credit.csv.gz"] = gzip.compress(rows[0] + b"\n")
    refuse(made, tmp_path, "has no record")


def test_numbers_of_records_count_the_incomplete_ones(tmp_path):
    made = adult_csv(rng())
    rows = gzip.decompress(made.files["adult.csv.gz"]).decode().split("\n")
    cells = rows[1 + 7].split(",")
    cells[0] = "200"
    made.files["adult.csv.gz"] = csv_gz([*(row.split(",") for row in rows[1:8]), cells], rows[0].split(","))
    refuse(made, tmp_path, "record 7, column age is '200'")
    only = [["?" if i == 1 else cell for i, cell in enumerate(rows[1].split(","))]]
    made.files["adult.csv.gz"] = csv_gz(only, rows[0].split(","))
    refuse(made, tmp_path, "no complete row")


def test_a_bad_row_of_adult_test_is_named(tmp_path):
    made = adult_uci(rng())
    made.files["adult.test"] += b"1, 2\n"
    assert "adult.test" in refuse(made, tmp_path, "has 2 columns and not 15")


def test_wrong_images(tmp_path):
    for change, words in (
        ({"x_train": np.zeros((7, 28, 27), np.uint8)}, r"shape \(7, 28, 27\)"),
        ({"x_train": np.zeros((7, 28, 28), np.float32)}, "type float32"),
        ({"y_test": np.zeros(4, np.uint8)}, r"labels of shape \(4,\)"),
        ({"y_test": np.full(5, 10, np.uint8)}, "class 10"),
    ):
        made = mnist_npz(rng())
        with np.load(io.BytesIO(made.files["mnist.npz"])) as arrays:
            made.files["mnist.npz"] = npz(**{**arrays, **change})
        refuse(made, tmp_path, words)
    made.files["mnist.npz"] = npz(x_train=np.zeros(3))
    refuse(made, tmp_path, "no array y_train")
    made = cifar_npz(rng())
    made.files["cifar10_20k.npz"] = npz(
        **{f"{k}_{p}": np.zeros(2, np.uint8) for k in ("y",) for p in ("train", "test")},
        **{f"x_{p}_delta": np.zeros((2, 32, 32, 3), np.uint8) for p in ("train", "test")},
    )
    refuse(made, tmp_path, r"shape \(2, 32, 32, 3\)")


def test_wrong_idx(tmp_path):
    made = mnist_idx(rng())
    good = made.files["train-images-idx3-ubyte.gz"]
    raw = gzip.decompress(good)
    for data in (raw[:-1], raw + b"\0", b"\0\0\x0d\x03" + raw[4:], raw[:6], raw[:3] + b"\xff" + raw[4:]):
        made.files["train-images-idx3-ubyte.gz"] = gzip.compress(data)
        refuse(made, tmp_path, r"train-images-idx3-ubyte\.gz is not an idx file")
    made.files["train-images-idx3-ubyte.gz"] = idx(np.zeros((2**16, 0), np.uint8))
    refuse(made, tmp_path, "shape")


def test_wrong_batches(tmp_path):
    made = cifar_tgz(rng())
    with tarfile.open(fileobj=io.BytesIO(made.files["cifar-10-binary.tar.gz"])) as archive:
        members = [(member.name, archive.extractfile(member).read()) for member in archive]
    made.files["cifar-10-binary.tar.gz"] = tgz_of([(name, data[:-1]) for name, data in members])
    refuse(made, tmp_path, "not a multiple of 3073")
    made.files["cifar-10-binary.tar.gz"] = tgz_of(members[:-1])
    refuse(made, tmp_path, r"has no member cifar-10-batches-bin/data_batch_5\.bin")
    renamed = [(f"../{name}", data) for name, data in members]
    made.files["cifar-10-binary.tar.gz"] = tgz_of(renamed)
    refuse(made, tmp_path, "has no member")


def test_wrong_texts(tmp_path):
    made = sst2_csv(rng())
    for old, new, words in (
        (b"split,", b"part,", "no column split"),
        (b"train,0", b"train,2", "label '2', not 0 or 1"),
        (b'"na"', b'""', "has no sentence"),
    ):
        refuse(replaced(sst2_csv(np.random.default_rng(3)), old, new), tmp_path, words)
    made.files["sst2.csv.gz"] = gzip.compress(b"split,label,sentence\ntrain,1,\xff\n")
    refuse(made, tmp_path, "not UTF-8")
    wiki = wikitext_npz(None)
    wiki.files["wikitext2.npz"] = npz(train=np.zeros(3, np.int64), valid=np.zeros(1), test=np.zeros(1))
    refuse(wiki, tmp_path, "train is not a row of bytes")
    blank = np.frombuffer(b" \n", np.uint8)
    wiki.files["wikitext2.npz"] = npz(train=blank, valid=blank, test=blank)
    refuse(wiki, tmp_path, "has no text")


def test_nothing_is_written_outside(tmp_path):
    """Archives are read, never unpacked: links, devices and paths that climb are nothing to them."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo("dataset_purchase")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        info = tarfile.TarInfo("../../escaped")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"bad"))
    made = purchase_tgz(rng())
    made.files["dataset_purchase.tgz"] = stream.getvalue()
    inner = tmp_path / "a" / "b"
    refuse(made, inner, "has no member dataset_purchase")
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["dataset_purchase.tgz"]


def test_bombs(tmp_path, monkeypatch):
    zeros = b"0" * 1_000_000
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(zeros))
    with pytest.raises(InputError, match=r"x\.gz unpacks to more than the 1000 bytes"):
        _raw_files.plain(path, 1000)
    path = tmp_path / "x.zip"
    path.write_bytes(zipped(a=zeros))
    with pytest.raises(InputError, match="more than the 1000 bytes"):
        _raw_files.zip_member(path, ["a"], 1000)
    with pytest.raises(InputError, match="no member b"):
        _raw_files.zip_member(path, ["b"], 1000)
    with pytest.raises(InputError, match="unpacks to 1000000 bytes, more than"):
        _raw_files.arrays(path, 1000)
    path = tmp_path / "x.tgz"
    path.write_bytes(tgz(a=zeros, b=b"1"))
    with (
        pytest.raises(InputError, match="more than the 1000 bytes"),
        _raw_files.tar_members(path, ["b"], 1000) as members,
    ):
        list(members)
    monkeypatch.setattr(_raw_files, "_MOST_MEMBERS", 3)
    path.write_bytes(tgz_of([(str(i), b"") for i in range(5)]))
    with pytest.raises(InputError, match="unpacks to more"), _raw_files.tar_members(path, ["4"], 1000) as members:
        list(members)


def test_an_encrypted_archive(tmp_path):
    data = bytearray(zipped(a="b"))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"x\.zip is damaged"):
        _raw_files.zip_member(path, ["a"], 1000)


def test_too_many_rows_of_parquet(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": range(11)}), path)
    assert _raw_files.parquet(path, ["a"], 11) == {"a": list(range(11))}
    with pytest.raises(InputError, match="has 11 rows"):
        _raw_files.parquet(path, ["a"], 10)
    with pytest.raises(InputError, match="no column b"):
        _raw_files.parquet(path, ["b"], 10)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    made = german_csv(rng())

    def no(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(gzip, "open", no)
    refuse(made, tmp_path, r"german_credit\.csv\.gz may not be read")


def test_a_zip_in_a_zip_that_is_none(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.zip", b"no archive")
    with pytest.raises(InputError, match=r"x\.zip is damaged"):
        _raw_files.zip_member(path, ["inner.zip", "a"], 1000)
