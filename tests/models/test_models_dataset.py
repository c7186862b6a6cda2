"""Records and labels from arrays and files."""

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.models import dataset
from dosimeter.records import joined, missing_values

X = np.random.default_rng(4).normal(size=(6, 3))
Y = np.array([0, 1, 2, 0, 1, 2])


def test_pairs():
    a, b = dataset((X, Y))
    assert np.array_equal(a, X)
    assert np.array_equal(b, Y)
    assert b.dtype == np.int64
    assert dataset([X.tolist(), Y.tolist()])[0].shape == (6, 3)
    assert dataset((X, Y.astype(float)))[1].dtype == np.int64
    assert dataset((X, Y[:, None]))[1].shape == (6,)
    assert dataset((X, list("abcabc")))[1].tolist() == list("abcabc")
    assert dataset((X, Y > 0))[1].tolist() == [0, 1, 1, 0, 1, 1]
    assert dataset((X.reshape(6, 3, 1).astype(np.uint8), Y))[0].dtype == np.uint8


def test_texts_and_tokens():
    assert dataset((["one", "two"], [0, 1]))[0] == ["one", "two"]
    assert dataset(["one", "two", "three"]) == (["one", "two", "three"], None)
    assert dataset((np.array(["one", "two"]), None)) == (["one", "two"], None)
    rows, y = dataset(([[1, 2, 3], [4]], [0, 1]))
    assert [row.tolist() for row in rows] == [[1, 2, 3], [4]]
    assert y.tolist() == [0, 1]


@pytest.mark.parametrize("names", [("X", "y"), ("x", "y"), ("features", "labels")])
def test_npz(tmp_path, names):
    path = tmp_path / "d.npz"
    np.savez(path, **dict(zip(names, (X, Y), strict=True)))
    a, b = dataset(path)
    assert np.array_equal(a, X)
    assert np.array_equal(b, Y)
    assert np.array_equal(dataset(str(path))[0], X)


def test_npz_of_objects_is_not_unpickled(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(path, X=np.array([{"a": 1}], dtype=object), y=Y[:1])
    with pytest.raises(InputError, match="Python objects"):
        dataset(path)


@pytest.mark.parametrize("name", ["label", "y", "target", "class"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables(tmp_path, name, ending):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    table = pyarrow.table({"a": X[:, 0], "flag": Y == 0, name: Y, "b": Y * 2})
    path = tmp_path / f"d.{ending}"
    (csv.write_csv if ending == "csv" else parquet.write_table)(table, path)
    a, b = dataset(path)
    assert a.dtype == np.float64
    assert a == pytest.approx(np.stack([X[:, 0], Y == 0, Y * 2], axis=1))
    assert np.array_equal(b, Y)


def test_table_with_named_label_and_words(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("age,city,<script>,sick\n30,Ulm,3,yes\n41,Bonn,4,no\n")
    with pytest.raises(InputError, match="must have one label column"):
        dataset(path)
    with pytest.raises(InputError, match=r"not numbers: \['city'\]"):
        dataset(path, label="sick")
    path.write_text("age,<script>,sick\n30,3,yes\n41,4,no\n")
    a, b = dataset(path, label="sick")
    assert a.tolist() == [[30, 3], [41, 4]]
    assert b.tolist() == ["yes", "no"]
    path.write_text("age,label,class\n30,3,1\n")
    with pytest.raises(InputError, match="several of them"):
        dataset(path)
    path.write_text("label\n3\n")
    with pytest.raises(InputError, match="no other"):
        dataset(path)
    path.write_text("a,label\n")
    with pytest.raises(InputError, match="a header and no record"):
        dataset(path)


def test_sparse_and_frames():
    sparse = pytest.importorskip("scipy.sparse")
    a, _ = dataset((sparse.coo_matrix(X), Y))
    assert np.array_equal(a[2:4].toarray(), X[2:4])
    bad = X.copy()
    bad[3, 1] = np.inf
    with pytest.raises(InputError, match="not finite"):
        dataset((sparse.csr_matrix(bad), Y))


def test_frames():
    pandas = pytest.importorskip("pandas", reason="data frames are checked when pandas is there")
    frame = pandas.DataFrame(X.copy(), columns=list("abc"))  # pandas 2 would write into X
    assert dataset((frame, pandas.Series(Y)))[0] is frame
    frame.loc[1, "a"] = np.nan
    assert missing_values(dataset((frame, Y))[0]) == 1  # a model may take it
    frame.loc[2, "b"] = np.inf
    with pytest.raises(InputError, match=r"X\[2\] has a value that is not finite"):
        dataset((frame, Y))


def test_frames_are_joined_with_the_categories_of_both():
    pandas = pytest.importorskip("pandas", reason="data frames are checked when pandas is there")
    first = pandas.DataFrame({"a": pandas.Categorical(["x", "y"])})
    second = pandas.DataFrame({"a": pandas.Categorical(["z"])})
    both = joined(first, second)
    assert both["a"].tolist() == ["x", "y", "z"] and list(both["a"].cat.categories) == ["x", "y", "z"]
    with pytest.raises(InputError, match="different columns"):
        joined(first, second.rename(columns={"a": "b"}))


def test_missing_values_of_a_table_are_read():
    rows = X.astype(float)
    rows[4, 0] = np.nan
    assert missing_values(dataset((rows, Y))[0]) == 1
    images = np.zeros((6, 2, 2))
    images[1, 0, 0] = np.nan
    with pytest.raises(InputError, match=r"X\[1\] has a value that is not finite"):
        dataset((images, Y))


def test_targets_of_other_kinds_are_read_where_they_are_asked_for():
    assert dataset((X, Y + 0.5), any_target=True)[1].dtype == np.float64
    assert dataset((X, Y), any_target=True)[1].dtype == np.int64
    several = np.array([[1, 1], [0, 0], [1, 0], [0, 1], [1, 1], [0, 0]])
    assert np.array_equal(dataset((X, several), any_target=True)[1], several)
    for bad, message in ((several + 1, "0 and 1 for each of several"), (several[:4], "4 rows of labels but 6")):
        with pytest.raises(InputError, match=message):
            dataset((X, bad), any_target=True)


class Pairs:
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def test_indexed_pairs():
    a, b = dataset(Pairs(list(zip(X, Y, strict=True))))
    assert np.array_equal(a, X)
    assert np.array_equal(b, Y)
    with pytest.raises(InputError, match="item 1 is not a pair"):
        dataset(Pairs([(X[0], 1), X[0]]))
    with pytest.raises(InputError, match="item 1 has shape"):
        dataset(Pairs([(X[0], 1), (X[0, :2], 1)]))
    with pytest.raises(InputError, match="no record"):
        dataset(Pairs([]))


INFINITE = X.copy()
INFINITE[4, 0] = np.inf


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:3]), "3 labels but 6 records"),
        ((INFINITE, Y), r"X\[4\] has a value that is not finite \(1 of 6"),
        ((X, [0, 1, 2, 0.5, 1, 2]), r"labels\[3\] is 0.5"),
        ((X, np.eye(6)[:, :2]), "one label for each record"),
        ((np.empty((0, 3)), np.empty(0)), "one row for each record, at least one"),
        ((X[:, 0], Y), "one row for each record"),
        ((X.astype(str), Y), "must hold numbers"),
        (([[1.5], [2.5, 3.5]], [0, 1]), "neither a row of numbers nor of tokens"),
        ((X, Y, Y), "must be a pair"),
        (7, "must be a pair"),
        (None, "must be a pair"),
        (X, "must be a pair"),
        ({"X": X, "y": Y}, "must be a pair"),
        ("data.txt", "ending"),
        ("data.npz", "does not exist"),
    ],
)
def test_refusals(data, message):
    with pytest.raises(InputError, match=message):
        dataset(data)


def test_label_without_a_table(tmp_path):
    with pytest.raises(InputError, match="label names a column"):
        dataset((X, Y), label="a")
    np.savez(tmp_path / "d.npz", X=X, y=Y)
    with pytest.raises(InputError, match="label names a column"):
        dataset(tmp_path / "d.npz", label="a")
    np.savez(tmp_path / "e.npz", data=X)
    with pytest.raises(InputError, match="it holds data"):
        dataset(tmp_path / "e.npz")
    (tmp_path / "zero.csv").write_bytes(b"")
    with pytest.raises(InputError, match="0 bytes"):
        dataset(tmp_path / "zero.csv")
