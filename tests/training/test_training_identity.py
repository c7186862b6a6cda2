"""Two functions have one identity only if they are the same code on the same data."""

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from functools import partial

import numpy as np

from dosimeter.training.identity import identity

SCALE = np.arange(4.0)


def helper(x):
    return x + 1


def plain(indices, seed):
    return helper(SCALE[indices]) * seed


def closure(value):
    return lambda indices, seed: value


@dataclass
class Trainer:
    depth: int

    def __call__(self, indices, seed):
        return self.depth


def test_what_a_closure_holds_counts():
    for one, other in ((1, 2), (1, 1.0), ([1, 2], [2, 1]), (np.zeros(3), np.ones(3)), ({"a": 1}, {"a": 2})):
        assert identity(closure(one)) == identity(closure(one))
        assert identity(closure(one)) != identity(closure(other))
    assert identity(closure(helper)) != identity(closure(plain))


def test_partials_objects_and_methods():
    assert identity(partial(plain, seed=1)) != identity(partial(plain, seed=2))
    assert identity(Trainer(1)) == identity(Trainer(1)) != identity(Trainer(2))
    assert identity(Trainer(1).__call__) != identity(Trainer(2).__call__)


def test_globals_and_helpers_count(monkeypatch):
    before = identity(plain)
    monkeypatch.setitem(globals(), "SCALE", np.arange(4.0) + 1)
    changed = identity(plain)
    assert changed != before
    monkeypatch.setitem(globals(), "helper", lambda x: x + 2)
    assert identity(plain) not in (before, changed)


def test_functions_that_call_each_other_end():
    def odd(n):
        return even(n - 1)

    def even(n):
        return odd(n - 1)

    assert identity(odd) == identity(odd) != identity(even)


def test_the_same_in_another_process(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np
        from dosimeter.training.identity import identity
        DATA, NAMES = np.arange(5), {"b", "a", "c"}
        class Base:
            def fit(self): return 1 in {3, 4, "x"}
        def train(indices, seed): return Base().fit(), DATA[indices], NAMES
        print(identity(train))
        """)
    )
    found = {subprocess.check_output([sys.executable, str(script)], text=True) for _ in range(3)}
    assert len(found) == 1
