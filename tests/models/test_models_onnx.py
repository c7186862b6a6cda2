"""ONNX files: what they return, and what is not one."""

import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from dosimeter import InputError
from dosimeter.models import access

pytest.importorskip("onnxruntime", reason="ONNX files are read by onnxruntime")
onnx = pytest.importorskip("onnx", reason="the tests build ONNX files")
from onnx import TensorProto, helper  # noqa: E402

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def convert(model, X, path, **options):
    skl2onnx = pytest.importorskip("skl2onnx", reason="the tests convert scikit-learn models")
    graph = skl2onnx.to_onnx(model, X[:1].astype(np.float32), options=options or None)
    path.write_bytes(graph.SerializeToString())
    return path


def save(path, nodes, inputs, outputs, weights=()):
    def values(entries):
        return [helper.make_tensor_value_info(*entry) for entry in entries]

    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs), initializer=list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def linear(path, W, b, inputs=(("x", FLOAT, ["n", 4]),), softmax=False, out=FLOAT):
    weights = [
        helper.make_tensor("W", FLOAT, W.shape, W.astype(np.float32).ravel()),
        helper.make_tensor("b", FLOAT, b.shape, b.astype(np.float32)),
    ]
    nodes = [helper.make_node("Gemm", ["x", "W", "b"], ["z"])]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["z"], ["p"]))
    return save(path, nodes, inputs, [("p" if softmax else "z", out, [inputs[0][2][0], W.shape[1]])], weights)


@pytest.fixture
def iris():
    X, y = load_iris(return_X_y=True)
    return X, y, LogisticRegression(max_iter=1000).fit(X, y)


@pytest.mark.parametrize("options", [{}, {"zipmap": False}])
def test_skl2onnx_agrees(iris, tmp_path, options):
    X, y, model = iris
    path = convert(model, X, tmp_path / "m.onnx", **options)
    found, own = access(path).losses(X, y), access(model).losses(X, y)
    assert found.kind == "probabilities"
    assert found.values == pytest.approx(own.values, abs=1e-3)
    assert np.array_equal(found.correct, own.correct)
    assert np.array_equal(access(str(path), batch_size=13).losses(X, y).values, found.values)


def test_several_outputs(iris, tmp_path):
    X, _, model = iris
    with pytest.raises(InputError, match=r"returns output_label: .*i2: .*which holds the scores"):
        access(convert(model, X, tmp_path / "m.onnx", zipmap="columns"))  # one output for each class

    def two(path, *names):
        nodes = [helper.make_node(kind, ["x"], [name]) for kind, name in zip(("Neg", "Softmax"), names, strict=True)]
        return save(path, nodes, [("x", FLOAT, ["n", 4])], [(name, FLOAT, ["n", 4]) for name in names])

    rows = access(two(tmp_path / "a.onnx", "logits", "probabilities")).outputs(X)
    assert rows.values == pytest.approx(-X, abs=1e-6)
    assert "logits was read" in rows.warnings[0]
    assert access(two(tmp_path / "b.onnx", "other", "probabilities")).outputs(X).kind == "probabilities"
    with pytest.raises(InputError, match="which holds the scores"):
        access(two(tmp_path / "c.onnx", "this", "that"))


def test_binary_and_named_classes(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    names = np.array(["zeta", "alpha"])[y]
    model = LogisticRegression().fit(X, names)
    zipped = convert(model, X, tmp_path / "z.onnx")
    bare = convert(model, X, tmp_path / "b.onnx", zipmap=False)
    own = access(model).losses(X, names).values
    near = np.abs(own) < 8  # float32 probabilities
    for box in (access(zipped), access(bare, classes=["alpha", "zeta"])):
        found = box.losses(X, names)
        assert found.values[near] == pytest.approx(own[near], abs=1e-3)
    with pytest.raises(InputError, match=r"pass classes="):
        access(bare).losses(X, names)
    with pytest.raises(InputError, match=r"labels\[0\] is 0, which is not one of"):
        access(zipped).losses(X, y)
    with pytest.raises(InputError, match="classes must be those of"):
        access(zipped, classes=["a", "b"]).losses(X, names)


def test_columns_that_are_not_the_labels_are_refused(iris, tmp_path):
    X, y, _ = iris
    model = LogisticRegression(max_iter=1000).fit(X, y + 1)
    path = convert(model, X, tmp_path / "m.onnx", zipmap=False)
    with pytest.raises(InputError, match="pass classes="):
        access(path).losses(X, y)
    with pytest.raises(InputError, match="pass classes="):
        access(path, classes=[3, 2, 1]).losses(X, y + 1)
    right = access(path, classes=[1, 2, 3]).losses(X, y + 1)
    assert right.values == pytest.approx(access(model).losses(X, y + 1).values, abs=1e-3)


def test_saturated_zipmap_is_clipped_as_single_precision(tmp_path):
    X = np.array([[-200.0], [-1.0], [1.0], [200.0]])
    y = np.array([0, 0, 1, 1])
    path = convert(LogisticRegression().fit(X, y), X, tmp_path / "m.onnx")
    found = access(path).losses(X, y)
    assert found.clipped == 2
    assert found.values.min() == pytest.approx(np.log(np.finfo(np.float32).epsneg), abs=0.2)


def test_a_graph_of_logits_keeps_the_tail(tmp_path):
    rng = np.random.default_rng(2)
    W, b, X, y = rng.normal(size=(4, 3)) * 40, rng.normal(size=3), rng.normal(size=(50, 4)), np.arange(50) % 3
    found = access(linear(tmp_path / "m.onnx", W, b)).losses(X, y)
    own = access(lambda rows: rows @ W + b, outputs="logits").losses(X, y)
    assert found.kind == "logits"
    assert "taken for logits" in found.warnings[0]
    assert found.values == pytest.approx(own.values, abs=1e-3)
    assert np.abs(found.values).max() > 100
    soft = access(linear(tmp_path / "s.onnx", W, b, softmax=True)).losses(X, y)
    assert soft.kind == "probabilities"
    assert soft.clipped > 0


def test_a_fixed_batch_dimension(tmp_path):
    rng = np.random.default_rng(3)
    W, b, X, y = rng.normal(size=(4, 3)), rng.normal(size=3), rng.normal(size=(50, 4)), np.arange(50) % 3
    free = access(linear(tmp_path / "m.onnx", W, b)).losses(X, y)
    for fixed in (1, 8):
        path = linear(tmp_path / f"{fixed}.onnx", W, b, inputs=(("x", FLOAT, [fixed, 4]),))
        assert access(path).losses(X, y).values == pytest.approx(free.values, abs=1e-6)


def test_whole_number_inputs(tmp_path):
    path = save(
        tmp_path / "m.onnx",
        [helper.make_node("Cast", ["x"], ["z"], to=FLOAT)],
        [("x", INT, ["n", 2])],
        [("z", FLOAT, ["n", 2])],
    )
    assert access(path).losses([[5.0, -3.0]], [0]).values == pytest.approx([-8.0])
    with pytest.raises(InputError, match="not whole numbers"):
        access(path).losses([[5.5, -3.0]], [0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"a text file that somebody renamed\n" * 20, "is not an ONNX model"),
        (b"\x80\x04\x95pickle" * 30, "is not an ONNX model"),
        (b"\x00" * 1000, "is not an ONNX model"),
        (b"\x08\x08", "is not an ONNX model"),
    ],
)
def test_files_that_are_no_models(tmp_path, content, message):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        access(path)
    assert "\n" not in str(caught.value)


def test_truncated_missing_directory_and_huge(iris, tmp_path):
    X, _, model = iris
    path = convert(model, X, tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="is not an ONNX model"):
        access(path)
    with pytest.raises(InputError, match="does not exist"):
        access(tmp_path / "none.onnx")
    (tmp_path / "dir.onnx").mkdir()
    with pytest.raises(InputError, match="not a file"):
        access(tmp_path / "dir.onnx")
    with (tmp_path / "huge.onnx").open("wb") as file:
        file.truncate(10 * 2**30)  # a hole, no bytes on the disk
    with pytest.raises(InputError, match="below 2 GB"):
        access(tmp_path / "huge.onnx")


def test_unexpected_inputs_and_outputs(iris, tmp_path):
    X, y, model = iris
    path = convert(model, X, tmp_path / "m.onnx")
    with pytest.raises(
        InputError, match=r"expects X: tensor\(float\) of shape \['n', 4\], got records of shape \('n', 3\)"
    ):
        access(path).losses(X[:, :3], y)
    with pytest.raises(InputError, match="expects X"):
        access(path).losses(X[:, :, None], y)
    with pytest.raises(InputError, match="expects X"):
        access(path).losses(X.astype(str), y)
    with pytest.raises(InputError, match="too large"):
        access(path).losses(X * 1e300, y)
    two = save(
        tmp_path / "two.onnx",
        [helper.make_node("Add", ["age", "income"], ["z"])],
        [("age", FLOAT, ["n", 2]), ("income", FLOAT, ["n", 2])],
        [("z", FLOAT, ["n", 2])],
    )
    with pytest.raises(InputError, match=r"expects age: tensor\(float\).*income: tensor\(float\)"):
        access(two)
    labels_only = save(
        tmp_path / "labels.onnx",
        [helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0)],
        [("x", FLOAT, ["n", 2])],
        [("label", INT, ["n"])],
    )
    with pytest.raises(InputError, match="no scores"):
        access(labels_only)
    nan = save(
        tmp_path / "nan.onnx", [helper.make_node("Log", ["x"], ["z"])], [("x", FLOAT, ["n", 2])],
        [("z", FLOAT, ["n", 2])],
    )  # fmt: skip
    with pytest.raises(InputError, match="record 1 has an output that is NaN"):
        access(nan).losses([[1.0, 2.0], [-1.0, 2.0]], [0, 1])


def test_devices(iris, tmp_path):
    X, y, model = iris
    path = convert(model, X, tmp_path / "m.onnx")
    assert access(path, device="cpu").losses(X, y).values.size == 150
    with pytest.raises(InputError, match="device 'abacus' is not one of"):
        access(path, device="abacus")


def test_missing_extra_is_named(iris, tmp_path, monkeypatch):
    X, _, model = iris
    path = convert(model, X, tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"\.\[onnx\]"):
        access(path)


def test_hard_votes(iris, tmp_path):
    X, y, _ = iris
    model = KNeighborsClassifier(1).fit(X, y)
    found = access(convert(model, X, tmp_path / "k.onnx")).losses(X, y)
    assert found.clipped == 150
    assert found.correct.all()
