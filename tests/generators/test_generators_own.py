"""A user's own generator: functions and files, their forms, and what is refused."""

import numpy as np
import pytest

from dosimeter._validate import InputError
from dosimeter.generators import GeneratedFile, Generator, OwnSampler
from dosimeter.records import take


def rng_of(seed):
    return np.random.default_rng(seed)


TABLE = rng_of(0).normal(size=(30, 3)).astype(np.float32)
LABELS = np.arange(30) % 2
MADE = rng_of(1).normal(size=(12, 3)).astype(np.float32)
NAMED = {"age": np.arange(30), "town": np.array(["a", "b", "c"] * 10)}
TEXTS = [f"text {k}" for k in range(30)]


def rows_of(array):
    return {tuple(row) for row in np.asarray(array).tolist()}


def test_both_are_generators():
    assert isinstance(OwnSampler(lambda n, s: TABLE[:n]), Generator)
    assert isinstance(GeneratedFile("x.npy"), Generator)


def test_a_function_gets_count_and_seed_and_what_is_too_much_is_dropped():
    asked = []

    def sample(count, seed):
        asked.append((count, seed))
        return rng_of(seed).normal(size=(count + 5, 3)), np.zeros(count + 5)

    fitted = OwnSampler(sample).fit((TABLE, LABELS), seed=0)
    X, y = fitted.sample(7, seed=4)
    assert asked == [(7, 4)] and X.shape == (7, 3) and y.shape == (7,)
    assert np.array_equal(X, rng_of(4).normal(size=(12, 3))[:7])


@pytest.mark.parametrize("members", [TABLE, NAMED, TEXTS, rng_of(2).uniform(size=(30, 4, 4))])
def test_records_of_any_kind_keep_their_form(members):
    fitted = OwnSampler(lambda n, s: take(members, np.arange(n))).fit(members, seed=0)
    made = fitted.sample(9, seed=0)
    assert type(made) is type(members)
    if isinstance(members, dict):
        assert list(made) == list(members) and all(len(column) == 9 for column in made.values())
    else:
        assert len(made) == 9


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (TABLE[:3], "gave 3 records and 5 are needed"),
        (TABLE[:, :2], "columns"),
        (np.full((5, 3), np.nan), "not a finite number in record 0"),
        ((TABLE[:5], LABELS[:5]), "no labels"),
        (TEXTS, "same kind"),
        (None, "shape"),
        (np.array([["a"] * 3] * 5), "generate numbers"),
        ((TABLE, LABELS, LABELS), "3 parts"),
    ],
)
def test_bad_answers_are_refused(answer, words):
    fitted = OwnSampler(lambda n, s: answer).fit(TABLE, seed=0)
    with pytest.raises(InputError, match=words):
        fitted.sample(5, seed=0)


def test_a_failing_function_and_no_function_are_named():
    with pytest.raises(InputError, match=r"failed when asked for 5 records \(ZeroDivisionError"):
        OwnSampler(lambda n, s: n / 0).fit(TABLE, seed=0).sample(5, seed=0)
    with pytest.raises(InputError, match="callable"):
        OwnSampler("ctgan").fit(TABLE, seed=0)


def write(path, columns):
    import pyarrow
    from pyarrow import csv, parquet

    table = pyarrow.table(columns)
    (csv.write_csv if path.suffix == ".csv" else parquet.write_table)(table, path)
    return path


def test_npy_and_npz(tmp_path):
    np.save(tmp_path / "g.npy", MADE)
    fitted = GeneratedFile(tmp_path / "g.npy").fit(TABLE, seed=0)
    made = fitted.sample(12, seed=1)
    assert rows_of(made) == rows_of(MADE) and made.dtype == np.float32
    assert np.array_equal(made, fitted.sample(12, seed=1)) and not np.array_equal(made, fitted.sample(12, seed=2))
    assert len(rows_of(fitted.sample(5, seed=3))) == 5
    np.savez(tmp_path / "g.npz", X=MADE, y=np.arange(12))
    X, y = GeneratedFile(str(tmp_path / "g.npz")).fit((TABLE, LABELS), seed=0).sample(12, seed=1)
    assert np.array_equal(X, MADE[y])
    assert GeneratedFile(tmp_path / "g.npz").fit(TABLE, seed=0).sample(4, seed=1).shape == (4, 3)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_tables_in_files(tmp_path, ending):
    path = write(tmp_path / f"g{ending}", {"town": ["a", "c"] * 6, "age": list(range(12)), "y": [1, 0] * 6})
    made, y = GeneratedFile(path).fit((NAMED, LABELS), seed=0).sample(12, seed=0)
    assert list(made) == ["age", "town"] and sorted(made["age"]) == list(range(12))
    assert np.array_equal(made["age"] % 2 == 0, y == 1) and np.array_equal(made["town"] == "a", y == 1)
    numbers = write(tmp_path / f"n{ending}", {"p": [1, 2], "q": [0.5, 1.5], "r": [3.0, 4.0], "out": [0, 1]})
    X, y = GeneratedFile(numbers, label="out").fit((TABLE, LABELS), seed=0).sample(2, seed=0)
    assert X.dtype == np.float32 and rows_of(X) == {(1.0, 0.5, 3.0), (2.0, 1.5, 4.0)}
    assert np.array_equal(y, X[:, 0] - 1)


def test_frames_and_arrow_tables(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path = write(tmp_path / "g.csv", {"town": ["a", "c"] * 6, "age": list(range(12))})
    made = GeneratedFile(path).fit(pyarrow.table(NAMED), seed=0).sample(6, seed=0)
    assert made.column_names == ["age", "town"] and made.num_rows == 6
    pandas = pytest.importorskip("pandas")
    made = GeneratedFile(path).fit(pandas.DataFrame(NAMED), seed=0).sample(6, seed=0)
    assert list(made.columns) == ["age", "town"] and list(made.index) == list(range(6))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_missing_values_are_kept_where_the_members_have_some(tmp_path, ending):
    ages, towns = [1.0, None, 3.0, 4.0], ["a", None, "", "c"]
    path = write(tmp_path / f"m{ending}", {"age": ages, "town": towns if ending == ".parquet" else ["a", "", "", "c"]})
    known = {"age": np.array([1.0, np.nan, 2.0]), "town": np.array(["a", None, "c"], object)}
    made = GeneratedFile(path).fit(known, seed=0).sample(4, seed=0)
    order = np.argsort(made["age"])  # NaN last
    assert made["age"][order].tolist()[:3] == [1.0, 3.0, 4.0] and np.isnan(made["age"][order[3]])
    assert made["town"][order].tolist() == ["a", "" if ending == ".parquet" else None, "c", None]
    numbers = write(tmp_path / f"n{ending}", {"p": [1.0, None], "q": [0.5, 1.5]})
    X = GeneratedFile(numbers).fit(np.array([[1.0, 2.0], [np.nan, 0.0]], np.float32), seed=0).sample(2, seed=0)
    assert X.dtype == np.float32 and np.isnan(X).sum() == 1 and np.isnan(X[X[:, 1] == 1.5, 0]).all()
    frame = pytest.importorskip("pandas").DataFrame(known)
    assert GeneratedFile(path).fit(frame, seed=0).sample(4, seed=0).isna().to_numpy().sum() >= 2
    cases = [
        (path, {**known, "age": np.ones(3)}, "age is not a finite number in record 1"),
        (path, {**known, "town": np.array(["a", "b", "c"])}, "column town is empty in record 1"),
        (numbers, np.ones((3, 2)), "not a finite number in record 1"),
        (numbers, np.ones((3, 2), int), "empty cell in record 1"),
    ]
    for file, members, words in cases:
        with pytest.raises(InputError, match=words):
            GeneratedFile(file).fit(members, seed=0)
    with pytest.raises(InputError, match="label of record 1 is empty"):
        GeneratedFile(numbers, label="p").fit(({"q": np.ones(2)}, np.ones(2)), seed=0)


def test_texts_in_files(tmp_path):
    lines = ["one text", "another\u2028text", "a third"]
    (tmp_path / "g.txt").write_text("\r\n".join(lines) + "\n\n", encoding="utf-8", newline="")
    np.save(tmp_path / "g.npy", np.array(lines))
    np.savez(tmp_path / "g.npz", X=np.array(lines), y=np.arange(3))
    write(tmp_path / "g.csv", {"text": lines, "label": [0, 1, 2]})
    for name in ("g.txt", "g.npy", "g.npz", "g.csv"):
        made = GeneratedFile(tmp_path / name).fit(TEXTS, seed=0).sample(3, seed=0)
        assert isinstance(made, list) and sorted(made) == sorted(lines), name
        labelled = GeneratedFile(tmp_path / name)
        if name in ("g.txt", "g.npy"):
            with pytest.raises(InputError, match="members has labels"):
                labelled.fit((TEXTS, LABELS), seed=0)
        else:
            made, y = labelled.fit((TEXTS, LABELS), seed=0).sample(3, seed=0)
            assert [lines[k] for k in y] == made


def test_images_in_files(tmp_path):
    images = rng_of(3).integers(0, 255, (10, 4, 4)).astype(np.uint8)
    np.savez(tmp_path / "g.npz", X=images, y=np.arange(10))
    X, y = GeneratedFile(tmp_path / "g.npz").fit((images, np.arange(10)), seed=0).sample(6, seed=0)
    assert np.array_equal(X, images[y])


def test_bad_files_are_refused(tmp_path):
    np.save(tmp_path / "g.npy", MADE)
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01")
    (tmp_path / "short.npy").write_bytes((tmp_path / "g.npy").read_bytes()[:-20])
    (tmp_path / "empty.txt").write_text(" \n\n")
    write(tmp_path / "words.csv", {"a": ["x"], "b": [1], "c": [2]})
    np.savez(tmp_path / "z.npz", Z=MADE)
    cases = [
        ("none.npy", TABLE, "does not exist"),
        ("objects.npy", TABLE, "cannot be read as .npy"),
        ("broken.npy", TABLE, "cannot be read as .npy"),
        ("short.npy", TABLE, "cannot be read as .npy"),
        ("g.npy", TABLE[:, :2], "columns"),
        ("g.npy", (TABLE, LABELS), "labels"),
        ("g.npy", TEXTS, "same kind"),
        ("empty.txt", TEXTS, "no line with a text"),
        ("none.txt", TEXTS, "does not exist"),
        ("words.csv", TABLE, "not numbers"),
        ("words.csv", (TABLE, LABELS), "one label column"),
        ("words.csv", TEXTS, "must hold text"),
        ("z.npz", TABLE, "must hold X or x"),
        ("g.pkl", TABLE, "ending"),
    ]
    for name, members, words in cases:
        with pytest.raises(InputError, match=words):
            GeneratedFile(tmp_path / name).fit(members, seed=0)
    with pytest.raises(InputError, match="12 generated records and 13 are needed"):
        GeneratedFile(tmp_path / "g.npy").fit(TABLE, seed=0).sample(13, seed=0)
