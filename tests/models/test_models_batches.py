"""Batches fit memory, change nothing, and long work says so."""

import io
import subprocess
import sys

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.models import access, black_box, dataset

X = np.random.default_rng(1).normal(size=(5000, 3))
Y = np.arange(5000) % 3


@pytest.mark.parametrize("size", [1, 7, 4999, 5000, 10_000])
def test_batched_equals_unbatched(size):
    records = 200 if size == 1 else 5000
    whole = access(lambda rows: rows, outputs="logits", batch_size=records).losses(X[:records], Y[:records])
    parts = access(lambda rows: rows, outputs="logits", batch_size=size).losses(X[:records], Y[:records])
    chosen = access(lambda rows: rows, outputs="logits").losses(X[:records], Y[:records])
    assert np.array_equal(parts.values, whole.values)
    assert np.array_equal(chosen.values, whole.values)
    assert np.array_equal(parts.correct, whole.correct)


def sizes_of(records, width, columns, **options):
    seen = []

    def model(rows):
        seen.append(len(rows))
        return np.tile(np.arange(columns, dtype=np.float64), (len(rows), 1))

    access(model, outputs="logits", **options).losses(np.zeros((records, width)), np.zeros(records, dtype=int))
    return seen


def test_sizes_follow_the_bytes():
    assert sizes_of(1000, 2, 3, batch_size=300) == [300, 300, 300, 100]
    assert sizes_of(100_000, 2, 3) == [256, 99_744]
    wide = sizes_of(2000, 2, 20_000)  # 160 kB a row of outputs: the probe sees it
    assert wide[0] == 256
    assert max(wide[1:]) * 160_016 * 8 <= black_box.BUDGET
    tall = sizes_of(300, 400_000, 2)  # 3.2 MB a row of inputs: known before the probe
    assert max(tall) * 3_200_000 * 8 <= black_box.BUDGET


def test_a_batch_that_does_not_fit_is_halved():
    seen = []

    def model(rows):
        if len(rows) > 1000:
            raise MemoryError
        seen.append(len(rows))
        return rows

    found = access(model, outputs="logits").losses(X, Y)
    assert np.array_equal(found.values, access(lambda rows: rows, outputs="logits").losses(X, Y).values)
    assert 500 < max(seen) <= 1000
    with pytest.raises(InputError, match="memory is short for a batch of 2000"):
        access(model, outputs="logits", batch_size=2000).losses(X, Y)

    def never(rows):
        raise MemoryError

    with pytest.raises(InputError, match="memory is short for a batch of 1 "):
        access(never, outputs="logits").losses(X, Y)


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_only_when_there_is_much_to_do(monkeypatch, terminal):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    access(lambda rows: rows, outputs="logits").losses(X, Y)
    access(lambda rows: rows, outputs="logits", batch_size=500).losses(X, Y)
    assert screen.getvalue() == ""
    access(lambda rows: rows, outputs="logits", batch_size=20).losses(X, Y)
    text = screen.getvalue()
    assert "Asking the model" in text
    if not terminal:
        assert text == "Asking the model about 5000 records.\n"


def test_reading_a_large_dataset_says_so(monkeypatch):
    class Pairs:
        def __len__(self):
            return 60_000

        def __getitem__(self, index):
            return X[index % 5000], index % 3

    screen = Screen(False)
    monkeypatch.setattr(sys, "stderr", screen)
    rows, labels = dataset(Pairs())
    assert rows.shape == (60_000, 3)
    assert labels.tolist()[:4] == [0, 1, 2, 0]
    assert screen.getvalue() == "Reading 60000 records.\n"


def test_tables_and_lists_are_sliced_by_row():
    sparse = pytest.importorskip("scipy.sparse")
    kept = access(lambda rows: rows.toarray(), outputs="logits", batch_size=999).losses(sparse.csr_matrix(X), Y)
    whole = access(lambda rows: rows, outputs="logits").losses(X, Y)
    listed = access(lambda rows: np.array(rows), outputs="logits", batch_size=999).losses(X.tolist(), Y)

    class Table:
        """The two things that a data frame has and an array has not."""

        shape = X.shape

        def __len__(self):
            return len(X)

        @property
        def iloc(self):
            return X

        def __getitem__(self, key):
            raise KeyError(key)

    framed = access(lambda rows: rows, outputs="logits").losses(Table(), Y)
    for found in (kept, listed, framed):
        assert np.array_equal(found.values, whole.values)


def test_importing_models_is_cheap():
    code = (
        "import sys, dosimeter.models\n"
        "heavy = {'torch', 'sklearn', 'onnxruntime', 'transformers', 'pandas', 'rich', 'pyarrow', 'onnx'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
