"""Two functions have one identity only if they are the same code on the same data."""

import argparse
import builtins
import collections
import decimal
import enum
import functools
import io
import logging
import os
import pathlib
import random
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import weakref
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.training.identity import ambient, identity

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


class Plain:
    rate = 1

    def __init__(self, value):
        self.value = value

    def method(self):
        return self.value


class Slotted:
    __slots__ = ("__hidden", "value")

    def __init__(self, value):
        self.value = self.__hidden = value


class Forgetful(Plain):
    def __getstate__(self):
        return {}


class Stubborn(Plain):
    def __reduce_ex__(self, protocol):
        raise TypeError("no pickles")


class Bag(list):
    pass


class Odd(dict):
    pass


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Locked:
    def __init__(self, value):
        self.value, self.lock, self.log = value, threading.Lock(), logging.getLogger("x")


@dataclass(slots=True)
class Slim:
    value: int
    more: list = field(default_factory=list)


Point = collections.namedtuple("Point", "x y")


def with_attributes(value):
    def inner(indices, seed):
        return inner.epochs

    inner.epochs = value
    return inner


def wrapped(value):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*given):
            return value, function(*given)

        return wrapper

    return decorate(plain)


def in_a_cycle(value):
    one, other = Plain(value), Plain(None)
    one.other, other.other = other, one
    return other


def cached(value):
    @functools.cache
    def inner(indices, seed):
        return value

    return inner


def linked(value, length=5000):
    for _ in range(length):
        value = [value]
    return value


def class_with(value):
    return type("Made", (Plain,), {"rate": value})


def keyword(value):
    def inner(indices, seed, *, epochs=value):
        return epochs

    return inner


def default(value):
    def inner(indices, seed, epochs=[value]):  # noqa: B006
        return epochs

    return inner


def generator(value):
    return np.random.default_rng(value)


HOLDERS = {
    "namespace": lambda v: argparse.Namespace(epochs=v),
    "simple namespace": lambda v: types.SimpleNamespace(epochs=v),
    "object": Plain,
    "slots": Slotted,
    "a state that hides": Forgetful,
    "no pickles": Stubborn,
    "list subclass": lambda v: Bag([v]),
    "dict subclass": lambda v: Odd(v=v),
    "attribute of a list": lambda v: vars(b := Bag()).update(v=v) or b,
    "default dict": lambda v: collections.defaultdict(list, v=v),
    "deque": lambda v: collections.deque([v]),
    "counter": lambda v: collections.Counter({"a": v}),
    "named tuple": lambda v: Point(0, v),
    "lock and logger": Locked,
    "slim data class": Slim,
    "enum": Colour,
    "cycle": in_a_cycle,
    "deep": linked,
    "bound method": lambda v: Plain(v).method,
    "bound built-in": lambda v: [v].append,
    "generator": generator,
    "bound generator": lambda v: generator(v).normal,
    "python's generator": random.Random,
    "path": lambda v: pathlib.Path(str(v)),
    "decimal": decimal.Decimal,
    "pattern": lambda v: re.compile(str(v)),
    "range": range,
    "slice": slice,
    "bytearray": lambda v: bytearray([v]),
    "set": lambda v: {v, "a"},
    "set of objects": lambda v: {(Colour.RED, v), (Colour.BLUE, "a")},
    "keys": lambda v: {v: 0}.keys(),
    "proxy": lambda v: types.MappingProxyType({"v": v}),
    "weak": lambda v: weakref.ref(plain_of(v)),
    "partial": lambda v: partial(plain, seed=v),
    "partial of partial": lambda v: partial(partial(plain, v), 1),
    "lru cache": cached,
    "decorated": wrapped,
    "function attribute": with_attributes,
    "class": class_with,
    "keyword default": keyword,
    "mutable default": default,
    "lambda in a dict": lambda v: {"f": (lambda: v)},
    "nested closure": lambda v: lambda: lambda: v,
    "static method": lambda v: type("S", (), {"f": staticmethod(lambda: v)}),
    "property": lambda v: type("S", (), {"f": property(lambda self: v)}),
    "metaclass": lambda v: type("M", (type,), {"v": v})("S", (), {}),
    "float32": np.float32,
    "array of objects": lambda v: np.array([Plain(v), None]),
    "transposed": lambda v: np.array([[v, 3], [4, 5]]).T,
    "masked": lambda v: np.ma.array([v, 2], mask=[False, True]),
    "structured": lambda v: np.array([(v, 2.0)], dtype=[("a", int), ("b", float)]),
}


@functools.cache
def plain_of(value):
    return Plain(value)


@pytest.mark.parametrize("name", HOLDERS)
def test_objects_count_by_their_state(name):
    make = HOLDERS[name]
    assert identity(closure(make(1))) == identity(closure(make(1)))
    assert identity(closure(make(1))) != identity(closure(make(2)))


def test_changes_in_place_count():
    holder = {"list": [1], "set": {1}, "object": Plain(1), "class": class_with(1), "array": np.zeros(3)}
    function = closure(holder)
    found = [identity(function)]
    for change in (
        lambda: holder["list"].append(2),
        lambda: holder["set"].add(2),
        lambda: setattr(holder["object"], "value", 2),
        lambda: setattr(holder["object"], "another", 2),
        lambda: setattr(holder["class"], "rate", 2),
        lambda: setattr(holder["class"], "method", lambda self: 0),
        lambda: holder["array"].__setitem__(0, 1.0),
        lambda: setattr(Plain, "rate", 3),
    ):
        change()
        found.append(identity(function))
    Plain.rate = 1
    assert len(set(found)) == len(found)


def test_torch_tensors_and_modules_count_by_their_bytes():
    torch = pytest.importorskip("torch")

    def net(seed):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())

    for make in (
        net,
        lambda v: torch.nn.Dropout(v / 10),
        lambda v: torch.tensor([1.0, v]),
        lambda v: torch.tensor([1.0, v], dtype=torch.bfloat16),
        lambda v: torch.tensor([v]).to_sparse(),
        lambda v: torch.optim.SGD(net(0).parameters(), lr=float(v)),
        lambda v: torch.Generator().manual_seed(v),
        lambda v: torch.utils.data.DataLoader([1, 2], batch_size=v),
        lambda v: [torch.float32, torch.float64][v - 1],
    ):
        assert identity(closure(make(1))) == identity(closure(make(1)))
        assert identity(closure(make(1))) != identity(closure(make(2)))
    model = net(0)
    before = identity(closure(model))
    with torch.no_grad():
        model[0].bias[1] += 1
    assert identity(closure(model)) != before
    assert ambient() == {}
    torch.set_default_dtype(torch.float64)
    assert ambient() == {"dtype": "torch.float64"}
    torch.set_default_dtype(torch.float32)


def test_pandas_and_scikit_learn():
    pandas = pytest.importorskip("pandas")
    from sklearn.tree import DecisionTreeClassifier

    for make in (
        lambda v: pandas.DataFrame({"a": [v, 2], "b": ["x", "y"]}),
        lambda v: DecisionTreeClassifier(max_depth=v),
        lambda v: DecisionTreeClassifier().fit([[0], [v], [9]], [0, 0, 1]),
    ):
        assert identity(closure(make(1))) == identity(closure(make(1)))
        assert identity(closure(make(1))) != identity(closure(make(4)))


OPAQUE = {
    "file": lambda: io.BytesIO(b"x"),
    "socket": socket.socket,
    "database": lambda: sqlite3.connect(":memory:"),
    "generator": lambda: (n for n in range(3)),
    "hidden function": lambda: np.frompyfunc(lambda a: a, 1, 1),
    "thread": lambda: types.SimpleNamespace(local=threading.local()),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_cannot_be_hashed_is_named(name):
    held = OPAQUE[name]()
    with pytest.raises(InputError, match=r"cannot know .* again: .*<lambda> → value.* is a .*pass key="):
        identity(closure(Plain({"deep": held})))
    assert identity(closure(held), key="mine").text == "key mine"
    assert identity(closure(held), strict=False) != identity(closure(1), strict=False)
    if hasattr(held, "close"):
        held.close()


@pytest.mark.parametrize("key", ["", "  ", 3, b"x"])
def test_a_bad_key(key):
    with pytest.raises(InputError, match="key must be a text or None"):
        identity(plain, key=key)


def test_built_ins_and_library_classes_that_were_replaced(monkeypatch):
    from sklearn.tree import DecisionTreeClassifier

    def train(indices, seed):
        return DecisionTreeClassifier(), divmod(3, 2), argparse.ONE_OR_MORE

    before = identity(train)
    assert before.replaced == ()
    with monkeypatch.context() as patch:
        patch.setattr(DecisionTreeClassifier, "fit", lambda self, x, y: self)
        assert identity(train) != before
        assert identity(train).replaced == ("DecisionTreeClassifier.fit",)
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "divmod", lambda a, b: a)
        assert identity(train) != before
    with monkeypatch.context() as patch:
        patch.setattr(argparse, "ONE_OR_MORE", "*")
        assert identity(train) != before
    assert identity(train) == before


def test_generators_that_every_task_seeds_do_not_count():
    def train(indices, seed):
        return np.random.permutation, random.random(), random.shuffle, np.random.shuffle

    before = identity(train)
    np.random.standard_normal(3), random.random()  # noqa: NPY002
    assert identity(train) == before


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A package of the user's: `deep.config` is read by `deep.helper`."""
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "config.py").write_text("EPOCHS = 1\nclass Model:\n    width = 3\n")
    (folder / "helper.py").write_text(
        "from . import config\nCONN = open(__file__)\ndef epochs(): return config.EPOCHS\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    if (helper := sys.modules.get("deep.helper")) is not None:
        helper.CONN.close()
    for name in [name for name in sys.modules if name.partition(".")[0] == "deep"]:
        del sys.modules[name]


def through_import(indices, seed):
    from deep.config import EPOCHS

    return EPOCHS


def through_local_alias(indices, seed):
    import deep.config as c

    return c.Model.width + c.EPOCHS


def through_text(indices, seed):
    import importlib

    return importlib.import_module("deep.config").EPOCHS


def through_helper(indices, seed):
    from deep import helper

    return helper.epochs()


def through_loaded_modules(indices, seed):
    return getattr(sys.modules["deep.config"], "EPOCHS")  # noqa: B009


@pytest.mark.parametrize(
    "function", [through_import, through_local_alias, through_text, through_helper, through_loaded_modules]
)
def test_modules_of_the_user_count_by_their_values(modules, function):
    import deep.config

    before = identity(function)
    assert identity(function) == before
    assert "deep.config" in before.modules
    deep.config.EPOCHS = 2
    changed = identity(function)
    assert changed != before
    deep.config.EPOCHS = 1
    assert identity(function) == before


def test_a_module_is_refused_only_for_what_is_used_of_it(modules):
    from deep import helper

    def uses(indices, seed):
        return helper.CONN.read()

    def handed_on(indices, seed):
        return vars(helper)

    with pytest.raises(InputError, match=r"helper.CONN is a _io.TextIOWrapper"):
        identity(uses)
    identity(handed_on)


def test_globals_by_text(monkeypatch):
    def train(indices, seed):
        return globals()["SCALE"]

    before = identity(train)
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert identity(train) != before


ENVIRONMENT = {
    "item": lambda: os.environ["DOSE_EPOCHS"],
    "getenv": lambda: os.getenv("DOSE_EPOCHS", "3"),
    "prefix": lambda name="x": os.environ[f"DOSE_{name}"],
    "constant elsewhere": lambda name=("DOSE_EPOCHS",): os.environ.get(name[0]),
    "any case": lambda name="dose_epochs": os.environ.get(name.upper()),
}


@pytest.mark.parametrize("way", ENVIRONMENT)
def test_environment_variables_that_are_named_count(monkeypatch, way):
    function = ENVIRONMENT[way]
    monkeypatch.delenv("DOSE_EPOCHS", raising=False)
    found = [identity(function)]
    monkeypatch.setenv("ANOTHER", "1")
    assert identity(function) == found[0]
    for value in ("1", "2"):
        monkeypatch.setenv("DOSE_EPOCHS", value)
        found.append(identity(function))
    assert len(set(found)) == 3


SCRIPT = """
import argparse, numpy as np, sys
from dosimeter.training.identity import identity
DATA, NAMES = np.arange(5), {"b", "a", "c", ("d", 1), frozenset({"e", "f"})}
KINDS = {int, str, np.float64}
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=0)
ARGS = parser.parse_args() if USE else None
class Base:
    tags = {"x", "y"}
    def fit(self): return 1 in {3, 4, "x"}
def train(indices, seed): return Base().fit(), DATA[indices], NAMES, KINDS, ARGS, object()
print(identity(train).text)
"""


def run(tmp_path, *arguments, use=True):
    (tmp_path / "mine.py").write_text(SCRIPT.replace("USE", str(use)))
    return subprocess.check_output([sys.executable, str(tmp_path / "mine.py"), *arguments], text=True)


def test_the_same_in_another_process(tmp_path):
    assert len({run(tmp_path) for _ in range(3)}) == 1


def test_the_command_line_of_a_script_counts(tmp_path):
    found = [run(tmp_path, "--epochs", n, use=use) for n in ("0", "50") for use in (True, False)]
    assert len(set(found)) == 4
