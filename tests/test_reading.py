import gzip
import io
import json
import struct
import warnings
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dosimeter import reading
from dosimeter._validate import InputError
from dosimeter.columns import pick, read_columns
from dosimeter.evidence import OneRun, Scores
from dosimeter.reading import strict_json

MEMBERS, NONMEMBERS = np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0])


def refused(path, *words, read=read_columns):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError) as caught:
            read(path)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


class TestGoodFiles:
    @pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
    def test_npz(self, tmp_path, write):
        write(tmp_path / "scores.npz", members=MEMBERS, nonmembers=NONMEMBERS, extra=np.arange(6).reshape(2, 3))
        scores = Scores.from_file(tmp_path / "scores.npz")
        assert scores.members.tolist() == MEMBERS.tolist()
        assert scores.nonmembers.tolist() == NONMEMBERS.tolist()
        assert not scores.from_loss

    def test_npz_of_losses(self, tmp_path):
        np.savez(tmp_path / "losses.npz", member_losses=NONMEMBERS, nonmember_losses=MEMBERS)
        scores = Scores.from_file(str(tmp_path / "losses.npz"))
        assert scores.members.tolist() == [0.0, -1.0]
        assert scores.nonmembers.tolist() == [-1.0, -2.0, -3.0]
        assert scores.from_loss

    @pytest.mark.parametrize("column", ["score", "loss"])
    @pytest.mark.parametrize("ending", ["csv", "CSV", "parquet"])
    def test_tables(self, tmp_path, column, ending):
        path = tmp_path / f"table.{ending}"
        values, member = [0.5, -1.0, 2.0, 1e-3], [1, 0, 1, 0]
        if ending == "parquet":
            parquet.write_table(pa.table({column: values, "member": member, "name": list("abcd")}), path)
        else:
            rows = "".join(f"{v},{m},x\n" for v, m in zip(values, member, strict=True))
            path.write_text(f"{column},member,name\n{rows}")
        scores = Scores.from_file(path)
        sign = -1 if column == "loss" else 1
        assert scores.members.tolist() == [sign * 0.5, sign * 2.0]
        assert scores.nonmembers.tolist() == [sign * -1.0, sign * 1e-3]
        assert scores.from_loss == (column == "loss")

    def test_a_table_with_true_and_false(self, tmp_path):
        (tmp_path / "a.csv").write_text("score,member\n1,true\n2,false\n3,true\n")
        assert Scores.from_file(tmp_path / "a.csv").members.tolist() == [1.0, 3.0]

    @pytest.mark.parametrize("name", ["scores", "score"])
    def test_one_run(self, tmp_path, name):
        np.savez(tmp_path / "canaries.npz", **{name: [0.1, 0.2], "included": [0, 1]})
        run = OneRun.from_file(tmp_path / "canaries.npz")
        assert run.scores.tolist() == [0.1, 0.2]
        assert run.included.tolist() == [False, True]

    def test_scores_are_preferred_to_losses(self, tmp_path):
        np.savez(tmp_path / "a.npz", members=[1.0], nonmembers=[2.0], member_losses=[3.0], nonmember_losses=[4.0])
        assert not Scores.from_file(tmp_path / "a.npz").from_loss

    @pytest.mark.parametrize(
        "text",
        [
            "score,member\n1,yes\n2,no\n3,yes\n",
            "Score,Member\n1,YES\n2,No\n3,Yes\n",
            "SCORE,is_train\n1,True\n2,False\n3,True\n",
            "score, Is_Train\n1,TRUE\n2,FALSE\n3,TRUE\n",
            "score,split\n1,train\n2,test\n3,train\n",
            "score,member\n1,t\n2,F\n3,T\n",
            "score;member\n1;1\n2;0\n3;1\n",
            "score\tmember\r\n1\t1\r\n2\t0\r\n3\t1\r\n",
            "score;member\n1,0;1\n2,0;0\n3,0;1\n",
            "\ufeffscore,member\n1,1\n2,0\n3,1\n",
            "loss,is_member\n-1,1\n-2,0\n-3,1\n",
            "Train_Loss,member,score\n5,1,1\n6,0,2\n7,1,3\n",
        ],
    )
    @pytest.mark.parametrize("packed", [False, True])
    def test_tables_as_people_have_them(self, tmp_path, text, packed):
        path = tmp_path / ("a.csv.gz" if packed else "a.csv")
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        scores = Scores.from_file(path)
        assert (scores.members.tolist(), scores.nonmembers.tolist()) == ([1.0, 3.0], [2.0])

    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            ({"score": "confidence", "member": "seen"}, [1.0, 3.0]),
            ({"score": "CONFIDENCE", "member": "Seen"}, [1.0, 3.0]),
            ({"score": "my loss", "member": "seen"}, [-4.0, -6.0]),
            ({"score": "minus loss", "member": "seen"}, [7.0, 9.0]),
            ({"loss": "confidence", "member": "seen"}, [-1.0, -3.0]),
            ({"score": "confidence", "member": "seen", "group": "patient"}, [2.0]),
        ],
    )
    def test_named_columns(self, tmp_path, names, expected):
        rows = ["a,1,4,7,yes", "b,2,5,8,no", "a,3,6,9,yes"]
        (tmp_path / "a.csv").write_text("\n".join(["patient,confidence,my loss,minus loss,seen", *rows]))
        assert Scores.from_file(tmp_path / "a.csv", **names).members.tolist() == expected

    def test_coins_as_words(self, tmp_path):
        (tmp_path / "a.csv").write_text("Scores,Included\n1,yes\n2,No\n3,yes\n")
        assert OneRun.from_file(tmp_path / "a.csv").included.tolist() == [True, False, True]

    def test_every_digit_of_a_csv_is_kept(self, tmp_path):
        values = np.random.default_rng(0).normal(size=200)
        rows = "".join(f"{v!r},{i % 2}\n" for i, v in enumerate(values.tolist()))
        (tmp_path / "a.csv").write_text("score,member\n" + rows)
        assert Scores.from_file(tmp_path / "a.csv").members.tolist() == values[1::2].tolist()


class TestPaths:
    @pytest.mark.parametrize("path", [None, 3, 1.5, b"a.npz", ["a.npz"], object()])
    def test_not_a_path(self, path):
        refused(path, "path must be a file name")

    @pytest.mark.parametrize("name", ["a.npy", "a.pkl", "a.txt", "a", "npz", ".npz.gz", ""])
    def test_ending(self, tmp_path, name):
        refused(tmp_path / name, "ending", ".npz, .csv or .parquet")

    def test_there_is_no_such_file(self, tmp_path):
        refused(tmp_path / "none.npz", "none.npz", "does not exist")

    def test_a_directory(self, tmp_path):
        (tmp_path / "folder.npz").mkdir()
        refused(tmp_path / "folder.npz", "is not a file")

    def test_a_name_that_no_file_can_have(self):
        refused("x" * 5000 + ".npz", "cannot be read")
        refused("a\0b.npz")

    @pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
    def test_no_bytes(self, tmp_path, ending):
        path = tmp_path / f"empty.{ending}"
        path.touch()
        refused(path, "is empty (0 bytes)")


def npy(shape, *, descr="<f8", payload=b"", version=(1, 0)):
    """The bytes of a .npy entry whose header claims whatever it is told to."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}}}"
    head = text.ljust(117).encode() + b"\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", len(head))
    return b"\x93NUMPY" + bytes(version) + size + head + payload


def archive(path, **entries):
    with zipfile.ZipFile(path, "w") as target:
        for name, content in entries.items():
            target.writestr(f"{name}.npy", content)
    return path


class TestBrokenNpz:
    def test_cut_short_at_every_length(self, tmp_path):
        buffer = io.BytesIO()
        np.savez(buffer, members=MEMBERS, nonmembers=NONMEMBERS)
        whole = buffer.getvalue()
        path = tmp_path / "cut.npz"
        for length in range(1, len(whole), 7):
            path.write_bytes(whole[:length])
            refused(path, "cut.npz", "write it again")

    def test_bytes_changed_one_at_a_time(self, tmp_path):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, members=MEMBERS, nonmembers=NONMEMBERS)
        whole = buffer.getvalue()
        path = tmp_path / "bent.npz"
        for place in range(0, len(whole), 3):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xA5]) + whole[place + 1 :])
            try:
                scores = Scores.from_file(path)
            except InputError:
                continue
            assert np.isfinite(scores.members).all()

    def test_no_zip_at_all(self, tmp_path):
        path = tmp_path / "a.npz"
        np.save(tmp_path / "a.npy", MEMBERS)
        path.write_bytes((tmp_path / "a.npy").read_bytes())
        refused(path, "cannot be read as .npz")

    def test_objects_are_never_unpickled(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return (pytest.fail, ("unpickled",))

        np.savez(tmp_path / "a.npz", members=np.array([Bomb()], object), nonmembers=NONMEMBERS)
        refused(tmp_path / "a.npz", "members", "Python objects")

    def test_a_header_that_claims_ten_gigabytes(self, tmp_path):
        size = 10 * 2**30 // 8
        path = archive(tmp_path / "a.npz", members=npy((size,), payload=b"\0" * 80), nonmembers=npy((0,)))
        refused(path, "members", "claims")

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\x93NUMPY",
            b"not numpy at all",
            npy((-3,)),
            npy((2**70,)),
            npy("x"),
            npy((3,), payload=b"\0" * 5),
            npy((1,), descr="O"),
            npy((1,), descr="|V0"),
            npy((1,), descr="__import__('os')"),
            npy((1,), version=(9, 9)),
            npy((1,), version=(2, 0)),
        ],
        ids=range(12),
    )
    def test_broken_entries(self, tmp_path, content):
        refused(
            archive(tmp_path / "a.npz", members=content, nonmembers=npy((1,), payload=bytes(8))), read=Scores.from_file
        )

    def test_an_archive_without_arrays(self, tmp_path):
        refused(archive(tmp_path / "a.npz"), "it holds nothing", read=Scores.from_file)


class TestBrokenTables:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("score,member\n1,1\n,0\n3,1\n", ("score", "1 empty cell(s)", "row 1")),
            ("score,member\n1,1\nNaN,0\n", ("score", "empty cell")),
            ("score,member\nhigh,1\nlow,0\n", ("score", "numbers")),
            ("score,member\n1,yes\n2,perhaps\n", ("member is 'perhaps' in row 1", "--member-column")),
            ("score,member\n1,2\n2,0\n", ("member[0] is 2",)),
            ("score,member\n1,1\n2,1\n", ("member is 1 in every row",)),
            ("score,member\n1,0\n", ("member is 0 in every row",)),
            ("score,member\n", ("score",)),
            ("score,member\n1,1,1\n2,0\n", ("cannot be read as .csv",)),
            ("score,score,member\n1,2,1\n2,3,0\n", ("score", "more than once")),
            ("score|member\n1|1\n2|0\n", ("it holds score|member", "--score-column")),
            ("a,b\n1,2\n", ("members and nonmembers", "score or ", "it holds a, b", "--score-column")),
            ("score,b\n1,2\n", ("is_train", "it holds b, score", "--member-column")),
            ("score,member\ninf,1\n2,0\n", ("score[0] is inf",)),
        ],
    )
    def test_csv(self, tmp_path, text, words):
        (tmp_path / "a.csv").write_text(text)
        refused(tmp_path / "a.csv", *words, read=Scores.from_file)

    @pytest.mark.parametrize(
        ("names", "words"),
        [
            ({"score": "nothing"}, ("'nothing'", "--score-column", "it holds member, score")),
            ({"loss": "nothing"}, ("'nothing'", "--loss-column")),
            ({"member": "nothing"}, ("'nothing'", "--member-column")),
            ({"group": "nothing"}, ("'nothing'", "--group-column")),
            ({"score": "score", "loss": "score"}, ("--score-column and --loss-column",)),
        ],
    )
    def test_named_columns(self, tmp_path, names, words):
        (tmp_path / "a.csv").write_text("score,member\n1,1\n2,0\n")
        refused(tmp_path / "a.csv", *words, read=lambda path: Scores.from_file(path, **names))

    def test_gzip(self, tmp_path, monkeypatch):
        (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"score,member\n1,1\n2,0\n")[:-9])
        refused(tmp_path / "a.csv.gz", "cannot be read as .csv", read=Scores.from_file)
        (tmp_path / "a.csv.gz").write_bytes(b"score,member\n1,1\n2,0\n")
        refused(tmp_path / "a.csv.gz", "cannot be read as .csv", read=Scores.from_file)
        (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"score,member\n" + b"1,1\n" * 100_000))
        monkeypatch.setenv("DOSIMETER_MAX_BYTES", "10000")
        refused(tmp_path / "a.csv.gz", "DOSIMETER_MAX_BYTES", read=Scores.from_file)

    def test_csv_of_random_bytes(self, tmp_path):
        rng = np.random.default_rng(0)
        for size in (1, 10, 100, 1000):
            (tmp_path / "a.csv").write_bytes(rng.bytes(size))
            refused(tmp_path / "a.csv", "a.csv", read=Scores.from_file)

    def test_parquet_cut_short(self, tmp_path):
        path = tmp_path / "a.parquet"
        parquet.write_table(pa.table({"score": MEMBERS, "member": [1, 0, 1]}), path)
        whole = path.read_bytes()
        for length in range(1, len(whole), 31):
            path.write_bytes(whole[:length])
            refused(path, "cannot be read as .parquet")

    @pytest.mark.parametrize(
        ("column", "words"),
        [
            (pa.array([1.0, None, 2.0]), ("empty cell", "row 1")),
            (pa.array(["a", "b", "c"]), ("numbers",)),
            (pa.array([[1.0], [2.0], [3.0]]), ("score",)),
            (pa.array([1.0, float("nan"), 2.0]), ("score[1] is nan",)),
        ],
    )
    def test_parquet_columns(self, tmp_path, column, words):
        parquet.write_table(pa.table({"score": column, "member": [1, 0, 1]}), tmp_path / "a.parquet")
        refused(tmp_path / "a.parquet", *words, read=Scores.from_file)

    def test_one_run_lists_what_is_there(self, tmp_path):
        np.savez(tmp_path / "a.npz", scores=[1.0], mask=[1])
        refused(tmp_path / "a.npz", "scores and included", "it holds mask, scores", read=OneRun.from_file)

    def test_mixed_lengths(self, tmp_path):
        np.savez(tmp_path / "a.npz", score=[1.0, 2.0, 3.0], member=[1, 0])
        refused(tmp_path / "a.npz", "score has 3 rows but member has 2", read=Scores.from_file)
        np.savez(tmp_path / "b.npz", scores=[1.0, 2.0, 3.0], included=[1, 0])
        refused(tmp_path / "b.npz", "scores has 3 records but included has 2", read=OneRun.from_file)

    def test_arrays_that_are_not_flat_numbers(self, tmp_path):
        for bad in (np.zeros((2, 2)), np.array(["a"]), np.array([1j]), np.array(3.0), np.array([])):
            np.savez(tmp_path / "a.npz", members=bad, nonmembers=NONMEMBERS)
            refused(tmp_path / "a.npz", "members", read=Scores.from_file)


def test_pick_takes_the_first_choice_that_is_there():
    columns = {"a": MEMBERS, "b": MEMBERS, "c": MEMBERS}
    assert pick(columns, "f", ("a", "x"), ("b", "c"), ("a",)) == ("b", "c")


class TestStrictJson:
    def test_reads_what_json_dumps_wrote(self):
        values = {"a": [1, -2.5e-300, None, True, "ε\u2028", {}], "seed": 2**128, "": {"b": []}}
        assert strict_json(json.dumps(values)) == values
        assert strict_json(json.dumps(values, ensure_ascii=False).encode()) == values

    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ("", "empty"),
            (" \n", "empty"),
            (b"", "empty"),
            (b"\xff\xfe", "UTF-8"),
            (None, "text"),
            (12, "text"),
            ("{", "line 1"),
            ('{"a": 1} x', "line 1"),
            ('{"a": NaN}', "NaN"),
            ("[Infinity]", "Infinity"),
            ("[-Infinity]", "-Infinity"),
            ("[1e400]", "1e400"),
            ("[" + "1" + "0" * 400 + "]", "1000"),
            ("[-" + "9" * 100_000 + "]", "-999"),
            ("[" + "9" * 100_000 + ".5]", "999"),
            ('{"low": 3, "low": 0}', "'low'"),
            ('[{"a": {"b": 1, "b": 1}}]', "'b'"),
            ('{"low": 3, "\\u006cow": 0}', "'low'"),
            ('"\\ud800"', "surrogate"),
            ('{"\\udfff": 1}', "surrogate"),
            ("[" * 65 + "]" * 65, "64"),
            ('{"a":' * 65 + "1" + "}" * 65, "64"),
            ("[" * 100_000, "64"),
            ("[" * 100_000 + "]" * 100_000, "64"),
            ('{"a":' * 100_000, "64"),
            ('{"a\nb": 1}', "line 1"),
        ],
    )
    def test_anything_else_is_one_short_sentence(self, text, word):
        with pytest.raises(InputError) as caught:
            strict_json(text, what="audit.json")
        message = str(caught.value)
        assert message.startswith("audit.json")
        assert word in message
        assert "\n" not in message
        assert len(message) <= 200

    def test_64_levels_are_read(self):
        assert strict_json("[" * 64 + "]" * 64)

    @pytest.mark.parametrize("text", [" " * 1001 + "[", b"[" * 1001])
    def test_a_large_text_is_not_parsed(self, monkeypatch, text):
        monkeypatch.setattr(reading, "JSON_BYTES", 1000)
        with pytest.raises(InputError, match="up to 1000"):
            strict_json(text)

    def test_a_key_of_any_length_is_shown_shortened(self):
        key = "k" * 10_000
        with pytest.raises(InputError) as caught:
            strict_json(f'{{"{key}": 1, "{key}": 2}}')
        assert len(str(caught.value)) <= 200
