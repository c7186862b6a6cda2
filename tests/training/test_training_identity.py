"""Two functions have one identity only if they are the same code on the same data."""

import argparse
import array
import builtins
import collections
import contextvars
import decimal
import enum
import functools
import io
import logging
import os
import pathlib
import pkgutil
import random
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import weakref
from dataclasses import dataclass, field, make_dataclass
from functools import partial

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.training.foreign import named_files
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


def generic(value):
    function = functools.singledispatch(lambda given: 0)
    function.register(int, lambda given: value)
    return function


def liar(kind):
    """A subclass whose pickles hold nothing."""
    return type("Liar", (kind,), {"__reduce_ex__": lambda self, protocol: (list, ())})


class Sentinel(Plain):
    def __reduce__(self):
        return "SENTINEL"


class Watch(logging.Logger):
    pass


def given(thing, value):
    thing.epochs = value
    return thing


def model_of(value):
    pydantic = pytest.importorskip("pydantic")
    return pydantic.create_model("Made", epochs=(int, value))


def module_with(value):
    return type("Lazy", (types.ModuleType,), {"EPOCHS": property(lambda self: value)})("lazy")


def module_that_answers(value):
    module = types.ModuleType("answers")

    def find(name):
        if name == "EPOCHS":
            return value
        raise AttributeError(name)

    module.__getattr__ = find
    return module


HOLDERS = {
    "list that lies": lambda v: liar(list)([v]),
    "dict that lies": lambda v: liar(dict)(v=v),
    "tuple that lies": lambda v: liar(tuple)([v]),
    "int that lies": lambda v: liar(int)(v),
    "float that lies": lambda v: liar(float)(v),
    "text that lies": lambda v: liar(str)(v),
    "bytes that lie": lambda v: liar(bytes)(v),
    "array that lies": lambda v: np.array([v]).view(liar(np.ndarray)),
    "sentinel": Sentinel,
    "logger of one's own": lambda v: given(Watch("x"), v),
    "attribute of a logger": lambda v: given(logging.Logger("x"), v),
    "partial as a method": lambda v: type("C", (), {"__call__": functools.partialmethod(print, v)}),
    "metadata of a field": lambda v: make_dataclass("C", [("a", int, field(default=0, metadata={"v": v}))]),
    "factory of a field": lambda v: make_dataclass("C", [("a", int, field(default_factory=lambda: v))]),
    "fields of pydantic": model_of,
    "property of a module": module_with,
    "module that answers": module_that_answers,
    "order of attributes": lambda v: types.SimpleNamespace(**dict([("a", 1), ("b", 2)][:: 3 - 2 * v])),
    "view of a dict": lambda v: {1: 0}.keys() if v == 1 else {0: 1}.values(),
    "kind of bytes": lambda v: bytearray(b"x") if v == 1 else memoryview(b"x"),
    "format of bytes": lambda v: memoryview(array.array("if"[v - 1], [0])),
    "attribute of a property": lambda v: type("C", (), {"p": given(type("P", (property,), {})(len), v)}),
    "attribute of a static method": lambda v: type("C", (), {"p": given(staticmethod(len), v)}),
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
    "long number": lambda v: 10**6000 + v,
    "generic function": generic,
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


def shared_memory():
    from multiprocessing.shared_memory import SharedMemory

    memory = SharedMemory(create=True, size=8)
    weakref.finalize(memory, memory.unlink)
    return memory


OPAQUE = {
    "context": lambda: contextvars.ContextVar("x"),
    "shared memory": shared_memory,
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


def test_replaced_where_a_function_imports_it(monkeypatch):
    def train(indices, seed):
        import numpy
        from sklearn.tree import DecisionTreeClassifier

        return DecisionTreeClassifier().fit, numpy.mean

    from sklearn.tree import DecisionTreeClassifier

    before = identity(train)
    with monkeypatch.context() as patch:
        patch.setattr(DecisionTreeClassifier, "fit", lambda self, x, y: self)
        assert identity(train).replaced == ("DecisionTreeClassifier.fit",)
        assert identity(train) != before
    with monkeypatch.context() as patch:
        patch.setattr(np, "mean", lambda x: 0)
        assert identity(train).replaced == ("numpy.mean",)
    assert identity(train) == before


def test_objects_that_answer_by_raising():
    class Hostile:
        def __getattribute__(self, name):
            raise RuntimeError(name)

    with pytest.raises(InputError, match=r"value is a .*Hostile.*pass key="):
        identity(closure(Hostile()))
    deep = ()
    for _ in range(100_000):
        deep = (deep,)
    with pytest.raises(InputError, match="pass key="):
        identity(closure([deep]))


def test_replaced_where_a_library_calls_it(monkeypatch):
    from sklearn.linear_model import LogisticRegression, _logistic

    def train(indices, seed):
        return LogisticRegression().fit

    before = identity(train)
    assert before.replaced == ()
    with monkeypatch.context() as patch:
        patch.setattr(_logistic, "_logistic_regression_path", lambda *given, **more: 0)
        assert identity(train) != before
        assert identity(train).replaced == ("sklearn.linear_model._logistic._logistic_regression_path",)
    with monkeypatch.context() as patch:  # by an object
        patch.setattr(_logistic, "_logistic_regression_path", Trainer(1))
        one = identity(train)
        patch.setattr(_logistic, "_logistic_regression_path", Trainer(2))
        assert len({before, one, identity(train)}) == 3
        assert one.replaced == ("sklearn.linear_model._logistic._logistic_regression_path",)
    with monkeypatch.context() as patch:  # by another method of the library
        patch.setattr(LogisticRegression, "predict", LogisticRegression.decision_function)
        assert identity(train) != before
    with monkeypatch.context() as patch:  # in what the library stands on
        patch.setattr(np.linalg, "norm", lambda *given, **more: 0)
        assert identity(train).replaced == ("numpy.linalg.norm",)
    assert identity(train) == before


def test_what_code_takes_from_a_library_in_a_closure(monkeypatch):
    def made(library):
        return lambda indices, seed: library.tree.DecisionTreeClassifier

    import sklearn.tree

    train = made(sklearn)
    before = identity(train)
    with monkeypatch.context() as patch:
        patch.setattr(sklearn.tree, "DecisionTreeClassifier", sklearn.tree.DecisionTreeRegressor)
        assert identity(train) != before
    assert identity(train) == before

    plain_function = identity(closure(sklearn.tree.export_text))
    with monkeypatch.context() as patch:
        patch.setattr(sklearn.tree.export_text, "__kwdefaults__", {"max_depth": 3})
        assert identity(closure(sklearn.tree.export_text)) != plain_function


def test_frames_of_callers_are_refused():
    def train(indices, seed):
        return sys._getframe(1).f_locals["epochs"]

    with pytest.raises(InputError, match=r"train reads the frames of its callers.*pass key="):
        identity(train)


def test_annotations_and_descriptions_count_where_they_are_read():
    class Config:
        """One."""

        epochs: int = 1

    def train(indices, seed):
        return Config.__annotations__, Config.__doc__

    before = identity(train)
    Config.__annotations__["epochs"] = float
    changed = identity(train)
    Config.__doc__ = "Two."
    assert len({before, changed, identity(train)}) == 3


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


def through_a_resolver(indices, seed):
    return pkgutil.resolve_name("deep.config:EPOCHS")


def through_a_text_for_others(indices, seed, config={"_target_": "deep.config.EPOCHS"}):  # noqa: B006
    return pkgutil.resolve_name(config["_target_"])


THROUGH = [
    *(through_import, through_local_alias, through_text, through_helper, through_loaded_modules),
    *(through_a_resolver, through_a_text_for_others),
]


@pytest.mark.parametrize("function", THROUGH)
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


ARGS = argparse.Namespace(epochs=1, report="a.html", model=types.SimpleNamespace(width=3, name="x"))


def test_of_a_namespace_only_what_is_taken_counts(monkeypatch):
    def takes(indices, seed):
        return ARGS.epochs + ARGS.model.width

    def hands_on(indices, seed):
        return vars(ARGS)

    before = identity(takes), identity(hands_on)
    monkeypatch.setattr(ARGS, "report", "b.html")
    assert identity(takes) == before[0]
    assert identity(hands_on) != before[1]
    monkeypatch.setattr(ARGS.model, "name", "y")
    assert identity(takes) == before[0]
    monkeypatch.setattr(ARGS.model, "width", 4)
    assert identity(takes) != before[0]


def by_globals(indices, seed):
    return globals()["SCALE"]


def by_itself(indices, seed):
    return by_itself.__globals__["SCALE"]


def by_frame(indices, seed):
    return sys._getframe().f_globals["SCALE"]


@pytest.mark.parametrize("train", [by_globals, by_itself, by_frame])
def test_globals_by_text(monkeypatch, train):
    before = identity(train)
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert identity(train) != before


alias = os.getenv

ENVIRONMENT = {
    "alias": lambda: alias("DOSE_EPOCHS"),
    "words": lambda: os.environ["_".join(["DOSE", "EPOCHS"])],
    "format": lambda name="x": os.environ["DOSE_%s" % name],  # noqa: UP031
    "in a name": lambda: [value for name, value in os.environ.items() if "EPOCH" in name],
    "begins": lambda: {name: value for name, value in os.environ.items() if name.startswith("DOSE")},
    "in a text": lambda: os.path.expandvars("a/${DOSE_EPOCHS}"),
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
import argparse, dataclasses, logging, numpy as np, sys
from dosimeter.training.identity import identity
DATA, NAMES = np.arange(5), {"b", "a", "c", ("d", 1), frozenset({"e", "f"})}
KINDS = {int, str, np.float64}
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=0)
parser.add_argument("--report")
ARGS = parser.parse_args().epochs if USE == "global" else None
class Base:
    tags = {"x", "y"}
    def fit(self): return 1 in {3, 4, "x"}
def helper(): return sys.argv[2]
LOG = logging.getLogger("mine")
@dataclasses.dataclass
class Fields:
    some: list = dataclasses.field(default_factory=lambda: [1], metadata={"a": len})
def train(indices, seed): return Base().fit(), DATA[indices], NAMES, KINDS, ARGS, object(), LOG, Fields()
def reads(indices, seed): return helper()
def parses(indices, seed): return parser.parse_args()
parse = parser.parse_args
def aliased(indices, seed): return parse()
print(identity({"reads": reads, "parses": parses, "aliased": aliased}.get(USE, train)).text)
"""


def run(tmp_path, *arguments, use="global"):
    (tmp_path / "mine.py").write_text(SCRIPT.replace("USE", repr(use)))
    return subprocess.check_output([sys.executable, str(tmp_path / "mine.py"), *arguments], text=True)


@pytest.mark.once
def test_the_same_in_another_process(tmp_path):
    assert len({run(tmp_path) for _ in range(3)}) == 1


@pytest.mark.slow
def test_the_command_line_of_a_script_counts(tmp_path):
    for use in ("global", "reads", "parses", "aliased"):
        assert run(tmp_path, "--epochs", "0", use=use) != run(tmp_path, "--epochs", "50", use=use)
    assert run(tmp_path, "--report", "a") == run(tmp_path, "--report", "b"), "what changes no value changes no key"


@pytest.mark.once
def test_a_module_that_is_imported_later_changes_no_key(tmp_path):
    """What is loaded when an audit begins depends on what ran before it in the process."""
    (tmp_path / "mine.py").write_text(
        "import sys\nfrom dosimeter.training.identity import identity\n"
        "def train(indices, seed):\n    from sklearn.tree import DecisionTreeClassifier\n    import sklearn\n"
        "    return sklearn.tree.DecisionTreeClassifier().fit([[0], [1]], [0, 1])\n"
        "assert 'sklearn' not in sys.modules\n"
        "before = identity(train)\ntrain(0, 0)\nassert identity(train) == before\n"
    )
    subprocess.run([sys.executable, str(tmp_path / "mine.py")], check=True)


def test_settings_of_libraries_in_this_process(monkeypatch):
    import sklearn

    assert ambient() == {}
    with sklearn.config_context(assume_finite=True):
        assert "assume_finite" in ambient()["sklearn"]
    with decimal.localcontext() as context:
        context.prec = 5
        assert ambient()["decimal"].startswith("(5,")
    torch = pytest.importorskip("torch")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ambient() == {"autocast": "torch.bfloat16"}
    with torch.no_grad():
        assert ambient() == {"gradients": "False"}
    assert ambient() == {}


def test_files_and_variables_that_a_command_names(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "train.py").write_text("import os\nprint(os.environ['DOSE_EPOCHS'])")
    (tmp_path / "run.sh").write_text("train --epochs ${DOSE_EPOCHS:-3} $PWD")
    (tmp_path / "conf.yaml").write_text("epochs: 3")
    for command in (["python", "-m", "deep.train"], ["sh", "run.sh"], ["train", "--config=conf.yaml"]):
        found = [named_files(command, tmp_path)]
        if "conf" not in command[-1]:
            for value in ("1", "2"):
                monkeypatch.setenv("DOSE_EPOCHS", value)
                found.append(named_files(command, tmp_path))
            monkeypatch.delenv("DOSE_EPOCHS")
        for file in ("deep/train.py", "run.sh", "conf.yaml"):
            with (tmp_path / file).open("a") as stream:
                stream.write("\n")
        found.append(named_files(command, tmp_path))
        assert len({str(one) for one in found}) == len(found) > 1, command
