"""Small files that claim to be large, endless models and other input that must be refused before it costs anything."""

import io
import json
import math
import os
import resource
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import dosimeter as dm
from dosimeter._validate import InputError
from dosimeter.columns import most_bytes, read_columns

MEGA = 1 << 20
GIGA = 1 << 30
SOURCE = Path(dm.__file__).parents[1]


def command(*arguments, limits=None, **variables):
    """Exit code, standard error, seconds and the peak of memory in MB of one command in a process of its own."""
    code = (
        "import sys, resource, pyarrow.parquet, pyarrow.csv\n"
        "from dosimeter.cli import main\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    main()\n"
        "finally:\n"
        "    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "    print(f'\\npeak {peak // 1024}', file=sys.stderr)\n"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(SOURCE)} | variables,
        preexec_fn=limits,
        check=False,
    )
    said, _, peak = done.stderr.rpartition("\npeak ")
    return done.returncode, said, time.monotonic() - started, int(peak)


def refused(*arguments, word="", within=200, **options):
    """One short line, exit code 2, and hardly any memory."""
    code, said, _, peak = command(*arguments, **options)
    assert code == 2, said
    assert said.startswith("error: "), said
    assert said.count("\n") <= 1
    assert len(said.strip()) <= 500
    assert word in said
    assert peak < within, f"{peak} MB were taken"


def packed(path, arrays):
    """An .npz of zeros, compressed, without the memory for them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, count in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(
                    member, {"descr": "<f8", "fortran_order": False, "shape": (count,)}
                )
                for _ in range(0, count * 8, MEGA):
                    member.write(bytes(MEGA))
    return path


def claiming(path, size):
    """A small .npz whose directory and headers claim arrays of `size` bytes."""
    packed(path, [("members", 1 << 17), ("nonmembers", 1 << 17)])
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02")
    while at >= 0:
        data[at + 24 : at + 28] = struct.pack("<I", size)
        at = data.find(b"PK\x01\x02", at + 4)
    path.write_bytes(data)
    return path


class TestZip:
    def test_a_bomb_is_refused_from_its_declared_sizes(self, tmp_path):
        path = packed(tmp_path / "bomb.npz", [("members", 12 * MEGA), ("nonmembers", 12 * MEGA)])
        assert path.stat().st_size < 2 * MEGA
        refused("audit", path, word="DOSIMETER_MAX_BYTES", within=60, DOSIMETER_MAX_BYTES=str(64 * MEGA))

    def test_the_default_stops_two_gigabytes(self, tmp_path):
        refused("audit", claiming(tmp_path / "bomb.npz", 0xF0000000), word="DOSIMETER_MAX_BYTES", within=60)

    def test_many_small_arrays_count_together(self, tmp_path, monkeypatch):
        np.savez_compressed(tmp_path / "a.npz", **{f"a{i}": np.zeros(1000) for i in range(20)})
        monkeypatch.setenv("DOSIMETER_MAX_BYTES", "100000")
        with pytest.raises(InputError, match=r"unpacks to 1[0-9]{5} bytes"):
            read_columns(tmp_path / "a.npz")
        monkeypatch.setenv("DOSIMETER_MAX_BYTES", "200000")
        assert len(read_columns(tmp_path / "a.npz")) == 20

    def test_a_shape_without_bytes(self, tmp_path):
        """Values of no size: the shape claims 10¹² of them."""
        content = io.BytesIO()
        np.lib.format.write_array_header_1_0(content, {"descr": "|V0", "fortran_order": False, "shape": (10**12,)})
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("members.npy", content.getvalue())
        with pytest.raises(InputError, match="claims"):
            read_columns(tmp_path / "a.npz")

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_two_forms_of_one_name(self, tmp_path):
        np.savez(tmp_path / "a.npz", members=np.zeros(3), nonmembers=np.ones(3))
        with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
            archive.writestr("members", archive.read("nonmembers.npy"))
        with pytest.raises(InputError, match=r"a\.npz: array members is there more than once"):
            read_columns(tmp_path / "a.npz")

    def test_small_numbers_count_as_what_they_become(self, tmp_path, monkeypatch):
        np.savez_compressed(
            tmp_path / "a.npz", members=np.zeros(10_000, np.int8), images=np.zeros((100, 300), np.uint8)
        )
        monkeypatch.setenv("DOSIMETER_MAX_BYTES", "79999")
        with pytest.raises(InputError, match=r"unpacks to 80000 bytes"):
            read_columns(tmp_path / "a.npz")
        monkeypatch.setenv("DOSIMETER_MAX_BYTES", "80000")
        assert read_columns(tmp_path / "a.npz")["members"].dtype == np.int8

    def test_an_array_that_is_there_twice(self, tmp_path):
        content = io.BytesIO()
        np.save(content, np.arange(3.0))
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            for name in ("members", "nonmembers", "members"):
                archive.writestr(f"{name}.npy", content.getvalue())
        with pytest.raises(InputError, match=r"a\.npz: array members is there more than once"):
            read_columns(tmp_path / "a.npz")

    @pytest.mark.parametrize(("count", "word"), [(300, "and 288 more"), (10_001, "10001 arrays")])
    def test_many_members_are_one_short_line(self, tmp_path, count, word):
        content = io.BytesIO()
        np.save(content, np.arange(3.0))
        path = tmp_path / "many.npz"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(count):
                archive.writestr(f"array{number}{'x' * 60}.npy", content.getvalue())
        with pytest.raises(InputError, match=word) as caught:
            dm.Scores.from_file(path)
        assert len(str(caught.value)) <= 500


class TestParquet:
    def test_a_bomb_is_refused_from_its_declared_rows(self, tmp_path):
        path = tmp_path / "bomb.parquet"
        table = pa.table({"score": np.zeros(MEGA), "member": np.zeros(MEGA, np.int8)})
        with parquet.ParquetWriter(path, table.schema) as writer:
            for _ in range(12):
                writer.write_table(table)
        assert path.stat().st_size < MEGA
        refused("audit", path, word="DOSIMETER_MAX_BYTES", within=60, DOSIMETER_MAX_BYTES=str(64 * MEGA))

    def test_one_long_text_in_every_row(self, tmp_path):
        path = tmp_path / "bomb.parquet"
        text = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), pa.array(["x" * MEGA]))
        parquet.write_table(pa.table({"score": np.zeros(100_000), "member": text}), path)
        assert path.stat().st_size < 2 * MEGA
        refused("audit", path, word="DOSIMETER_MAX_BYTES", within=100)

    def test_lists_and_records_are_not_read(self, tmp_path):
        table = {"score": [1.0, 2.0], "tags": [["a"], ["b", "c"]], "more": [{"a": 1}, {"a": 2}], "a.b": [3, 4]}
        parquet.write_table(pa.table(table), tmp_path / "a.parquet")
        assert list(read_columns(tmp_path / "a.parquet")) == ["score", "a.b"]

    def test_honest_tables_are_read_as_before(self, tmp_path):
        table = {
            "score": [1.5, 2.5, -1.0],
            "member": [True, False, True],
            "text": ["a", "ε", ""],
            "whole": np.array([1, 2, 3], np.int8),
        }
        parquet.write_table(pa.table(table), tmp_path / "a.parquet")
        found = read_columns(tmp_path / "a.parquet")
        assert list(found) == list(table)
        assert all(found[name].tolist() == list(table[name]) for name in table)
        assert found["text"].dtype == object


class TestCsv:
    def test_the_size_counts(self, tmp_path, monkeypatch):
        (tmp_path / "a.csv").write_text("score,member\n" + "1,0\n2,1\n" * 100)
        monkeypatch.setenv("DOSIMETER_MAX_BYTES", "500")
        with pytest.raises(InputError, match="DOSIMETER_MAX_BYTES"):
            read_columns(tmp_path / "a.csv")


class TestTheLimit:
    def test_default_variable_and_argument(self, monkeypatch):
        monkeypatch.delenv("DOSIMETER_MAX_BYTES", raising=False)
        assert most_bytes() == 2 * GIGA
        monkeypatch.setenv("DOSIMETER_MAX_BYTES", "8e9")
        assert most_bytes() == 8 * 10**9
        assert most_bytes(5) == 5

    @pytest.mark.parametrize("value", ["x", "-1", "0", "nan", "inf", "1e400", "0.5", "9" * 5000])
    def test_nonsense_is_refused(self, monkeypatch, value):
        monkeypatch.setenv("DOSIMETER_MAX_BYTES", value)
        with pytest.raises(InputError, match="DOSIMETER_MAX_BYTES must be"):
            most_bytes()


HOSTILE_JSON = {
    "NaN": '{"schema": 1, "estimates": [{"low": NaN}]}',
    "infinite": '{"schema": 1, "low": -Infinity}',
    "a number beyond floats": '{"schema": 1, "low": 1' + "0" * 400 + "}",
    "1e400": '{"schema": 1, "low": 1e400}',
    "digits without end": "9" * 100_000,
    "deep lists": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "twice": '{"schema": 1, "schema": 1}',
    "surrogate": '{"schema": "\\ud800"}',
    "long key": '{"' + "k" * 10**6 + '": 1, "schema": 2}',
    "a list": "[]",
    "a number": "1",
    "null": "null",
    "text in curve": '{"schema": 1, "curve": "x"}',
    "nothing": "",
    "zero bytes": "\0" * 100,
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
@pytest.mark.parametrize("reader", [["gate", "--max-epsilon", "1"], ["report"]], ids=lambda words: words[0])
def test_json_that_is_no_audit(tmp_path, monkeypatch, capsys, reader, name):
    from dosimeter import cli

    path = tmp_path / "audit.json"
    path.write_text(HOSTILE_JSON[name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dosimeter", reader[0], str(path), *reader[1:]])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert len(err.strip()) <= 500


def test_toml_that_is_nested_too_deeply(tmp_path):
    from dosimeter.pipelines import config

    path = tmp_path / "run.toml"
    path.write_text("a = " + "[" * 50_000)
    with pytest.raises(InputError, match="nested too deeply"):
        config.read(str(path))


class TestFileSizeLimit:
    """A quota on files: the message names the file that could not be written."""

    @pytest.fixture
    def audit(self, tmp_path):
        rng = np.random.default_rng(0)
        scores = dm.Scores.from_losses(rng.gamma(2, 5, 60), rng.gamma(3, 5, 60))
        from dosimeter.audits.scores import audit_scores

        path = tmp_path / "audit.json"
        path.write_text(audit_scores(scores, resamples=0).to_json())
        return path

    @pytest.mark.once
    @pytest.mark.parametrize(
        ("words", "name"),
        [
            (["report", "{audit}", "--html", "{out}/page.html"], "page.html"),
            (["gate", "{audit}", "--max-epsilon", "9", "--junit", "{out}/verdicts.xml"], "verdicts.xml"),
            (["report", "{audit}", "--png", "{out}/charts"], ".png"),
        ],
    )
    def test_the_file_is_named(self, tmp_path, audit, words, name):
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

        filled = [word.format(audit=audit, out=tmp_path) for word in words]
        code, said, _, _ = command(*filled, limits=small)
        assert code == 2, said
        assert name in said, said
        assert said.strip().count("\n") == 0


def test_lengths_are_looked_at_before_memory_is_taken():
    wide = np.broadcast_to(np.float32(1.0), (10**12,))
    for values in (wide, np.broadcast_to(True, (10**12,)), range(10**12), range(10**30)):
        started = time.monotonic()
        with pytest.raises(InputError, match="at most"):
            dm.Scores(values, [1.0])
        with pytest.raises(InputError, match="at most"):
            dm.OneRun(values, values)
        assert time.monotonic() - started < 1


class TestOnnx:
    onnx = pytest.importorskip("onnx", reason="the tests build ONNX files")
    runtime = pytest.importorskip("onnxruntime", reason="ONNX files are read by onnxruntime")

    def endless(self, path):
        """A loop whose condition is always true."""
        from onnx import TensorProto, helper

        kind = TensorProto.FLOAT
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["go"], ["goes"]),
                helper.make_node("Add", ["carried", "carried"], ["doubled"]),
                helper.make_node("Tanh", ["doubled"], ["next"]),
            ],
            "body",
            [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                helper.make_tensor_value_info("carried", kind, None),
            ],
            [
                helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
                helper.make_tensor_value_info("next", kind, None),
            ],
        )
        graph = helper.make_graph(
            [helper.make_node("Loop", ["", "yes", "x"], ["z"], body=body)],
            "g",
            [helper.make_tensor_value_info("x", kind, ["n", 2])],
            [helper.make_tensor_value_info("z", kind, ["n", 2])],
            initializer=[helper.make_tensor("yes", TensorProto.BOOL, [], [True])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())
        return path

    def test_an_endless_loop_ends(self, tmp_path, monkeypatch):
        from dosimeter.models import access

        monkeypatch.setenv("DOSIMETER_ONNX_SECONDS", "0.5")
        model = access(self.endless(tmp_path / "endless.onnx"))
        started = time.monotonic()
        with pytest.raises(InputError, match=r"endless\.onnx .* 0\.5 seconds .*DOSIMETER_ONNX_SECONDS"):
            model.losses(np.zeros((3, 2)), [0, 1, 0])
        assert time.monotonic() - started < 10

    def test_a_quick_model_is_not_disturbed(self, tmp_path, monkeypatch):
        from onnx import TensorProto, helper

        from dosimeter.models import access

        monkeypatch.setenv("DOSIMETER_ONNX_SECONDS", "0.5")
        graph = helper.make_graph(
            [helper.make_node("Neg", ["x"], ["z"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        rows = access(tmp_path / "m.onnx", batch_size=1).outputs(np.ones((5, 2)))
        time.sleep(0.6)
        assert rows.values.tolist() == [[-1.0, -1.0]] * 5

    @pytest.mark.parametrize("value", ["x", "0", "-1", "nan", "inf"])
    def test_a_time_limit_that_is_none(self, tmp_path, monkeypatch, value):
        from dosimeter.models import access

        monkeypatch.setenv("DOSIMETER_ONNX_SECONDS", value)
        with pytest.raises(InputError, match="DOSIMETER_ONNX_SECONDS must be"):
            access(self.endless(tmp_path / "endless.onnx"))

    @pytest.mark.parametrize("place", ["initializer", "constant", "subgraph", "sparse", "location only"])
    def test_weights_in_other_files_are_refused(self, tmp_path, place):
        from onnx import TensorProto, helper

        from dosimeter.models import access

        (tmp_path / "secret.bin").write_bytes(np.zeros(4, np.float32).tobytes())
        outside = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=[2, 2])
        outside.data_location = TensorProto.EXTERNAL
        if place != "location only":
            outside.external_data.add(key="location", value="secret.bin")
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])]
        outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2])]
        use = helper.make_node("MatMul", ["x", "W"], ["z"])
        constant = helper.make_node("Constant", [], ["W"], value=outside)
        graph = helper.make_graph([use], "g", inputs, outputs)
        if place in ("initializer", "location only"):
            graph.initializer.append(outside)
        elif place == "sparse":
            graph.sparse_initializer.add(values=outside, dims=[2, 2])
        elif place == "constant":
            graph = helper.make_graph([constant, use], "g", inputs, outputs)
        else:
            branch = helper.make_graph([constant, use], "branch", [], outputs)
            choice = helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=branch)
            yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
            graph = helper.make_graph([choice], "g", inputs, outputs, initializer=[yes])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(InputError, match=r"m\.onnx keeps weights in other files"):
            access(tmp_path / "m.onnx")


class TestAccountants:
    """Targets so loose or so strict that the search once hung or divided by zero."""

    @pytest.mark.parametrize(
        ("function", "target", "settings"),
        [
            (dm.noise_for_epsilon, 2**31, {"delta": 1e-5, "sample_rate": 0.05, "steps": 10}),
            (dm.noise_for_epsilon, 1e300, {"delta": 1e-5, "sample_rate": 0.05, "steps": 10}),
            (dm.noise_for_belief, 0.75, {"delta": 1e-5, "sample_rate": 1e-300, "steps": 5}),
            (dm.noise_for_belief, 0.75, {"delta": 1e-300, "sample_rate": 1e-300, "steps": 5}),
            (dm.noise_for_advantage, 0.1, {"sample_rate": 1e-300, "steps": 5}),
            (dm.noise_for_advantage, 1e-13, {"sample_rate": 1e-12, "steps": 5}),
            (dm.noise_for_tpr, 0.1, {"fpr": 0.01, "sample_rate": 1e-300, "steps": 5}),
            (dm.noise_for_epsilon, 1.0, {"delta": 1e-5, "sample_rate": 1e-300, "steps": 5, "method": "rdp"}),
            (
                dm.noise_for_epsilon,
                1.0,
                {"delta": 1e-5, "sample_rate": 1e-200, "steps": 5, "sampling": "without-replacement"},
            ),
        ],
    )
    def test_an_answer_or_a_sentence_in_seconds(self, function, target, settings):
        started = time.process_time()
        try:
            noise = function(target, **settings)
        except InputError as error:
            assert len(str(error)) <= 500
        else:
            assert math.isfinite(noise)
            assert noise > 0
        assert time.process_time() - started < 15


def test_line_separators_do_not_break_the_page():
    from dosimeter.report.markup import json_block

    block = json_block("chart-data", {"name": "a\u2028b\u2029c</script>"})
    assert not {"\u2028", "\u2029"} & set(block)
    text = block.partition(">")[2].rpartition("</script>")[0]
    assert json.loads(text) == {"name": "a\u2028b\u2029c</script>"}
