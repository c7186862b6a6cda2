"""Records in every form: some of them, how many, and one fingerprint that tells data sets apart."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse

from dosimeter._validate import InputError
from dosimeter.datasets import load
from dosimeter.records import class_numbers, count, fingerprint, pair, parted, take

ROWS = np.array([2, 0])
ARRAY = np.arange(6.0).reshape(3, 2)
FORMS = {
    "array": (ARRAY, lambda x: x.tolist()),
    "list": ([[0, 1], [2, 3], [4, 5]], lambda x: x),
    "texts": (["a", "b", "c"], lambda x: x),
    "table": (pa.table({"a": [0, 2, 4]}), lambda x: x.column("a").to_pylist()),
    "columns": ({"a": [0, 2, 4], "b": np.arange(3)}, lambda x: [x["a"], x["b"].tolist()]),
    "sparse": (scipy.sparse.csr_matrix(ARRAY), lambda x: x.toarray().tolist()),
}
TAKEN = {
    "array": [[4, 5], [0, 1]],
    "list": [[4, 5], [0, 1]],
    "texts": ["c", "a"],
    "table": [4, 0],
    "columns": [[4, 0], [2, 0]],
    "sparse": [[4, 5], [0, 1]],
}


@pytest.mark.parametrize("form", FORMS)
def test_take_keeps_the_form_and_the_order(form):
    records, plain = FORMS[form]
    assert plain(take(records, ROWS)) == TAKEN[form]
    mask = np.array([True, False, True])
    assert plain(take(records, mask)) == plain(take(records, np.flatnonzero(mask)))


def test_take_of_a_frame_is_by_place():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ARRAY, index=[7, 8, 9])
    assert take(frame, ROWS).to_numpy().tolist() == TAKEN["array"]


def test_take_of_nothing_is_nothing():
    assert take(None, ROWS) is None


def test_a_slice_is_a_view():
    assert np.shares_memory(take(ARRAY, slice(1, 3)), ARRAY)


def test_the_fingerprint_of_a_data_set_is_that_of_its_records():
    wine = load("wine")
    assert fingerprint(*wine.pair) == wine.fingerprint
    assert fingerprint(*wine.take([3, 1]).pair) == wine.take([3, 1]).fingerprint


def test_fingerprints_tell_records_apart():
    y = np.arange(3)
    many = [
        *((ARRAY, y), (ARRAY, None), (ARRAY[::-1], y), (ARRAY.astype(np.float32), y), (ARRAY.reshape(2, 3), y)),
        *((["a", "bc"], None), (["ab", "c"], None), (np.array(["ab", "c"]), None), ([[1], [2, 3]], None)),
        *(([[1, 2], [3]], None), (scipy.sparse.csr_matrix(ARRAY), y), (np.array([["a", None]], object), None)),
    ]
    assert len({fingerprint(*data) for data in many}) == len(many)
    assert fingerprint(np.asfortranarray(ARRAY), y) == fingerprint(ARRAY, y)
    assert fingerprint(ARRAY.astype(">f8"), y) == fingerprint(ARRAY, y)


def test_pairs():
    assert parted("X", ARRAY)[1] is None
    assert parted("X", (ARRAY, 1))[1] == 1
    assert pair("data", load("wine"), "pass one")[0].shape == (178, 13)
    with pytest.raises(InputError, match="X as a tuple must be"):
        parted("X", (1, 2, 3))
    with pytest.raises(InputError, match="data must be a pair"):
        pair("data", ARRAY, "pass one")


def test_counts_and_classes():
    assert count(ARRAY) == 3
    assert class_numbers("y", [0.0, 2.0], 2).tolist() == [0, 2]
    for bad in ([0, -1], [0.5, 1], ["a", "b"], [0]):
        with pytest.raises(InputError, match="y must hold"):
            class_numbers("y", bad, 2)
    for bad in ("text", {}, 3, np.float64(3)):
        with pytest.raises(InputError, match="X must be"):
            count(bad)
