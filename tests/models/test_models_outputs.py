"""Outputs of a plain function: kinds, losses, labels, refusals."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dosimeter import InputError
from dosimeter.models import BlackBox, Losses, Outputs, access


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def exact(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """−(ln p_y − ln(1 − p_y)) with 600 digits, from the softmax itself."""
    out = []
    with mpmath.workdps(600):
        for row, label in zip(z.tolist(), y.tolist(), strict=True):
            e = [mpmath.exp(v) for v in row]
            p = e[label] / mpmath.fsum(e)
            out.append(float(-(mpmath.log(p) - mpmath.log(1 - p))))
    return np.array(out)


Z = np.array([[2.0, -1.0, 0.5], [-3.0, 4.0, 1.0], [0.1, 0.2, 0.3], [90.0, -90.0, 0.0], [-300.0, 0.0, 300.0]])
Y = np.array([0, 2, 1, 0, 0])


def same(X):
    return X


def test_logits_keep_the_tail_that_probabilities_lose():
    kept = access(same, outputs="logits").losses(Z, Y)
    assert kept.values == pytest.approx(exact(Z, Y), rel=1e-12)
    assert kept.clipped == 0
    assert kept.kind == "logits"
    assert kept.warnings == ()
    lost = access(softmax, outputs="probabilities").losses(Z, Y)
    assert lost.values[:3] == pytest.approx(kept.values[:3], rel=1e-9)
    assert lost.clipped == 2
    assert abs(lost.values[4]) < 40 < abs(kept.values[4])
    assert "2 of 5 records" in lost.warnings[-1]


def test_log_probabilities_keep_the_tail():
    with mpmath.workdps(60):
        logs = np.array([[float(v - mpmath.log(mpmath.fsum(map(mpmath.exp, r)))) for v in r] for r in Z.tolist()])
    found = access(same, outputs="log-probabilities").losses(logs, Y)
    assert found.values == pytest.approx(exact(Z, Y), rel=1e-12)
    assert (found.kind, found.clipped) == ("log-probabilities", 0)


@settings(max_examples=25, deadline=None)
@given(hnp.arrays(np.float64, (4, 3), elements=st.floats(-500, 500)), st.floats(-50, 50))
def test_a_shift_of_logits_and_the_order_of_records_change_nothing(z, shift):
    y = np.array([0, 1, 2, 1])
    box = access(same, outputs="logits")
    base = box.losses(z, y).values
    assert base == pytest.approx(exact(z, y), rel=1e-9, abs=1e-9)
    assert box.losses(z + shift, y).values == pytest.approx(base, abs=1e-9)
    order = np.array([2, 0, 3, 1])
    assert box.losses(z[order], y[order]).values == pytest.approx(base[order], abs=0)


def test_binary_forms_agree():
    z = np.array([-4.0, 0.3, 2.5, 1.0])
    y = np.array([1, 0, 1, 0])
    one = access(lambda X: X[:, 0], outputs="logits").losses(z[:, None], y)
    column = access(same, outputs="logits").losses(z[:, None], y)
    two = access(lambda X: np.hstack([0 * X, X]), outputs="logits").losses(z[:, None], y)
    chance = access(lambda X: 1 / (1 + np.exp(-X)), outputs="probabilities").losses(z[:, None], y)
    for found in (column, two, chance):
        assert found.values == pytest.approx(one.values, abs=1e-12)
        assert np.array_equal(found.correct, one.correct)
    assert one.values == pytest.approx([4.0, 0.3, -2.5, 1.0])
    assert one.correct.tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("function", "kind", "word"),
    [
        (same, "logits", "taken for logits"),
        (softmax, "probabilities", "taken for probabilities"),
        (lambda X: softmax(X).astype(np.float32), "probabilities", "taken for probabilities"),
        (lambda X: softmax(X).astype(np.float16), "probabilities", "taken for probabilities"),
        (lambda X: X[:, 0], "logits", "logits of class 1"),
        (lambda X: softmax(X)[:, 0], "probabilities", "probabilities of class 1"),
    ],
)
def test_kind_is_inferred_stated_and_kept(function, kind, word):
    box = access(function)
    y = np.array([0, 1, 1, 0, 0])
    found = box.losses(Z, y)
    assert found.kind == kind
    assert word in found.warnings[0]
    again = box.losses(Z[:1], y[:1])  # a second set may look different; the kind stays
    assert again.kind == kind
    assert again.warnings[0] == found.warnings[0]


def test_outputs_carry_the_same_losses():
    box = access(same)
    out = box.outputs(Z)
    assert isinstance(out, Outputs)
    assert np.array_equal(out.values, Z)
    a, b = out.losses(Y), box.losses(Z, Y)
    assert isinstance(a, Losses)
    assert np.array_equal(a.values, b.values)
    assert a.warnings == b.warnings
    assert access(box) is box


def test_a_box_of_ones_own():
    class Own(BlackBox):
        def outputs(self, X):
            return Outputs(np.asarray(X), "logits")

    box = Own()
    assert access(box) is box
    assert np.array_equal(box.losses(Z, Y).values, access(same, outputs="logits").losses(Z, Y).values)


def test_rounding_just_beyond_one_is_no_error():
    p = np.array([[1.0000001, 0.0], [0.5, 0.5]], dtype=np.float32)
    found = access(lambda X: p).losses(np.zeros((2, 1)), [0, 1])
    assert found.clipped == 1
    assert np.isfinite(found.values).all()


def test_named_classes():
    box = access(same, outputs="logits", classes=["cat", "dog", "eel"])
    assert np.array_equal(
        box.losses(Z, ["cat", "eel", "dog", "cat", "cat"]).values, access(same, outputs="logits").losses(Z, Y).values
    )
    moved = access(same, outputs="logits", classes=[5, 3, -1])
    assert np.array_equal(moved.losses(Z, [5, -1, 3, 5, 5]).values, access(same, outputs="logits").losses(Z, Y).values)


def broken(index, value):
    def function(X):
        out = X.copy()
        hit = X[:, 3] == index
        out[hit, 1] = value
        return out[:, :3]

    return function


ROWS = np.hstack([np.random.default_rng(0).normal(size=(1000, 3)), np.arange(1000.0)[:, None]])
LABELS = np.arange(1000) % 3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("batch", [None, 7])
def test_nan_names_the_record(value, batch):
    with pytest.raises(InputError, match=r"record 777 .* NaN or infinite"):
        access(broken(777, value), outputs="logits", batch_size=batch).losses(ROWS, LABELS)


@pytest.mark.parametrize("batch", [None, 7])
def test_probabilities_are_checked_in_every_batch(batch):
    def bad_sum(X):
        p = softmax(X[:, :3])
        p[X[:, 3] == 600] *= 0.9
        return p

    def outside(X):
        p = softmax(X[:, :3])
        p[X[:, 3] == 600] = [1.2, -0.1, -0.1]
        return p

    with pytest.raises(InputError, match=r"record 600 .*do not sum to 1"):
        access(bad_sum, batch_size=batch).losses(ROWS, LABELS)
    with pytest.raises(InputError, match=r"record 600 .*outside \[0, 1\].*logits"):
        access(outside, batch_size=batch).losses(ROWS, LABELS)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X: np.zeros((3, 2)), r"shape \(3, 2\) for 5 record"),
        (lambda X: np.zeros((5, 2, 2)), r"shape \(5, 2, 2\)"),
        (lambda X: np.zeros((5, 0)), r"shape \(5, 0\)"),
        (lambda X: 0.5, r"shape \(\)"),
        (lambda X: [[1, 2], [3]], "mixed lengths"),
        (lambda X: (X, X), "returns a tuple"),
        (lambda X: ["a"] * 5, "must be numbers"),
        (lambda X: X[:, :3] * 0 + 0.2, r"do not sum to 1 \(record 0: 0.6\)"),
        (lambda X: 1 / 0, "failed on records 0 to 4 .*ZeroDivisionError"),
    ],
)
def test_wrong_outputs_are_one_sentence(function, message):
    with pytest.raises(InputError, match=message):
        access(function).outputs(Z)


def test_log_probabilities_are_checked():
    with pytest.raises(InputError, match=r"record 0 .*do not sum to 1"):
        access(same, outputs="log-probabilities").outputs(Z)
    with pytest.raises(InputError, match="both classes"):
        access(lambda X: X[:, 0], outputs="log-probabilities").outputs(Z)


def test_outputs_too_far_apart():
    z = np.array([[0.0, 1.0], [1.7e308, -1.7e308]])
    with pytest.raises(InputError, match=r"record 1 .*largest float"):
        access(same, outputs="logits", batch_size=1).losses(z, [0, 1])


def test_a_shape_that_changes():
    def function(X):
        return X[:, :2] if X[0, 3] < 500 else X[:, 0]

    with pytest.raises(InputError, match="change their shape"):
        access(function, outputs="logits", batch_size=500).outputs(ROWS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2, 3, 0], r"labels\[3\] is 3, outside the model's classes 0 to 2"),
        ([0, -1, 2, 1, 0], r"labels\[1\] is -1"),
        ([0, 0.5, 2, 1, 0], r"labels\[1\] is 0.5"),
        ([0, np.nan, 2, 1, 0], "not finite"),
        ([0, 1], "2 labels but 5 records"),
        (["a"] * 5, "pass classes="),
        ([[0, 1]] * 5, "one label for each record"),
        ([[0], [0, 1], [1], [1], [2]], "mixed lengths"),
        ([None, 1, 2, 1, 0], r"not\s+finite|mix types|empty"),
        (["a", 1, 2, 1, 0], "pass classes=|mix types"),
        (None, "labels are missing"),
    ],
)
def test_wrong_labels(labels, message):
    with pytest.raises(InputError, match=message):
        access(same, outputs="logits").losses(Z, labels)


def test_unseen_named_label():
    with pytest.raises(InputError, match=r"labels\[2\] is 'fox', which is not one of .*cat"):
        access(same, outputs="logits", classes=["cat", "dog", "eel"]).losses(Z, ["cat", "dog", "fox", "cat", "fox"])
    with pytest.raises(InputError, match="3 columns of outputs but has 2 classes"):
        access(same, outputs="logits", classes=["cat", "dog"]).losses(Z, ["cat"] * 5)
    with pytest.raises(InputError, match="two different labels"):
        access(same, classes=["cat", "cat"])


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (3, {}, "model must be"),
        (dict, {}, "is the class dict"),
        ("model.pkl", {}, r"only \.onnx files"),
        (same, {"outputs": "odds"}, "outputs must be one of"),
        (same, {"batch_size": 0}, "batch_size"),
        (same, {"device": "cpu"}, "device has no meaning for a function"),
    ],
)
def test_wrong_models(model, options, message):
    with pytest.raises(InputError, match=message):
        access(model, **options)


def test_no_records():
    with pytest.raises(InputError, match="no record"):
        access(same).outputs(np.empty((0, 3)))
    with pytest.raises(InputError, match="must be an array or a list"):
        access(same).outputs(4)
    for wrong in ({"a": [1]}, "text", None, np.float64(3), {1, 2}):
        with pytest.raises(InputError, match="must be an array or a list"):
            access(same).outputs(wrong)
