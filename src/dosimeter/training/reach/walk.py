"""The walk itself: what is written, what waits, and what was seen."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import types
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dosimeter.training.reach.sources import file_hash, foreign_parts, installed, source_of, stamp

PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)})
COMMAND_LINE = frozenset(
    {
        *("argv", "orig_argv", "parse_args", "parse_known_args", "parse_intermixed_args", "docopt"),
        *("parse_known_intermixed_args", "parse_args_into_dataclasses"),
    }
)
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "expandvars"})
_ALL_VARIABLES = frozenset({"items", "keys", "values", "copy", "dict", "list", "sorted"})  # read more than one by name
_ANNOTATIONS = frozenset({"__annotations__", "get_type_hints", "get_annotations", "signature"})
DOTTED = re.compile(r"[^\W\d]\w*([.:][^\W\d]\w*)+")
_MOST_TEXTS = 100_000
_MOST_OBJECTS = 3_000_000


class UnreachableStateError(Exception):
    """Something that can be reached has no state that could be hashed; the text says where and what it is."""


class Place(NamedTuple):
    """Where a value was met, for messages: how it is reached from the place before."""

    before: Place | None
    step: str

    def __truediv__(self, step: str) -> Place:
        return Place(self, step)

    def __str__(self) -> str:
        steps, place = [], self
        while place is not None:
            steps.append(place.step)
            place = place.before  # type: ignore[assignment]
        return "".join(reversed(steps if len(steps) <= 12 else [*steps[:8], " → …", *steps[-2:]]))


@dataclass(frozen=True)
class Reached:
    """What a walk found: the hash, the caller's modules, the versions it stands on, and installed things replaced."""

    digest: str
    modules: tuple[str, ...]
    versions: tuple[str, ...]
    replaced: tuple[str, ...]


def reach(value: Any, name: str, *, strict: bool = True) -> Reached:
    """Walk everything that `value` can reach.

    Raises:
        UnreachableStateError: If something that is reached has no state to hash and `strict` is set.
    """
    walk = StateWalk(strict=strict)
    walk.feed(value, Place(None, name))
    walk.finish()
    return Reached(
        walk.digest.hexdigest(), tuple(sorted(walk.modules)), tuple(sorted(walk.versions)), tuple(sorted(walk.replaced))
    )


class _Item(NamedTuple):
    value: Any
    place: Place
    maybe: str | None  # reached only if code takes this attribute from a module; None: reached for certain


@dataclass
class StateWalk:
    """The state of a walk; see the head of this file."""

    strict: bool = True
    digest: Any = field(default_factory=hashlib.sha256)
    numbers: dict[int, int] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)  # what has a number stays alive, so that no other takes its address
    certain: deque[_Item] = field(default_factory=deque)
    possible: dict[int, _Item] = field(default_factory=dict)
    maybe: str | None = None
    settled: bool = True  # nothing certain was met since what is possible was looked through
    submodules: dict[str, tuple[types.ModuleType, Place]] = field(default_factory=dict)  # read only if named
    modules: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    packages: set[str] = field(default_factory=set)  # installed ones that are reached
    libraries: dict[str, Place] = field(default_factory=dict)  # installed modules that are held
    described: list[tuple[Any, Place]] = field(default_factory=list)  # classes and functions of the caller

    def write(self, kind: str, content: str | bytes = b"") -> None:
        """One piece of the text, with its length, so that no two texts run together alike."""
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self.digest.update(f"{kind} {len(data)}:".encode() + data)

    def feed(self, value: Any, place: Place, *, maybe: str | None = None) -> None:
        """Write a value, or its number, and leave what it holds to the queue."""
        if type(value) in PLAIN:
            self.write(type(value).__name__, value if type(value) is bytes else _spelled(value))
            if type(value) is str and len(value) <= 100 and len(self.texts) < _MOST_TEXTS:
                self.texts.add(value)
            return
        if type(value) is tuple:
            self.write("tuple", str(len(value)))
            for index, part in enumerate(value):
                self.feed(part, place / f"[{index}]", maybe=maybe)
            return
        known, name = id(value) in self.numbers, maybe if self.maybe is None else self.maybe
        if not known:
            self.numbers[id(value)] = len(self.numbers)
            self.kept.append(value)
            if len(self.kept) > _MOST_OBJECTS:
                raise UnreachableStateError(f"{place} leads to more than {_MOST_OBJECTS} objects")
        if name is None and (not known or self.possible.pop(id(value), None) is not None):
            self.certain.append(_Item(value, place, None))
        elif not known:
            self.possible[id(value)] = _Item(value, place, name)
        self.write("object", str(self.numbers[id(value)]))

    def finish(self) -> None:
        """Write what waits, then what the process gives, where code reads it: the command line, the environment.

        A command line that code turned into values, e.g. by argparse, is among the values that are reached; as a whole
        it would also tell apart runs that differ in the engine or the name of a report.
        """
        self._drain()
        if self.strict:  # which modules are loaded differs between processes, so this is not compared among them
            self._named_by_texts()
            self._taken_from_libraries()
            self._replaced_inside()
        self._descriptions()
        if not self.mentioned.isdisjoint(COMMAND_LINE):
            self.write("command line", repr(sys.argv[1:]))
        if not self.mentioned.isdisjoint(ENVIRONMENT):
            several = not self.mentioned.isdisjoint(_ALL_VARIABLES)
            self.write("environment", repr(_variables(self.texts | self.mentioned, several=several)))

    def _named_by_texts(self) -> None:
        """Modules of the caller that texts name, e.g. "package.models.Net": libraries import what such texts say."""
        seen: set[str] = set()
        while new := sorted(text for text in self.texts - seen if DOTTED.fullmatch(text)):
            seen |= self.texts
            for text in new:
                for name, file in source_of(text.replace(":", ".")):
                    self.write("named by a text", f"{name} {file_hash(file)}")
                    if (module := sys.modules.get(name)) is not None:
                        self.feed(module, Place(None, name), maybe="")
            self._drain()

    def _taken_from_libraries(self) -> None:
        """What code may take from installed modules that it holds, e.g. in a closure: whatever it mentions."""
        seen: set[tuple[str, str]] = set()
        while new := sorted({(name, one) for name in self.libraries for one in self._mentioned_in(name)} - seen):
            seen.update(new)
            for name, one in new:
                held, place = vars(sys.modules[name])[one], self.libraries[name] / f".{one}"
                self.write("taken", f"{name}.{one}")
                if type(held) is types.ModuleType and installed(held):
                    self.libraries.setdefault(held.__name__, place)
                else:
                    self.feed(held, place, maybe="")
            self._drain()

    def _mentioned_in(self, library: str) -> set[str]:
        if library.partition(".")[0] in sys.stdlib_module_names or library not in sys.modules:
            return set()
        return self.mentioned & vars(sys.modules[library]).keys()

    def _replaced_inside(self) -> None:
        """Functions of the caller that stand in the installed packages that are reached, whoever calls them there."""
        for name, held in foreign_parts(frozenset(self.packages)):
            self.replaced.add(name)
            self.write("replaced", name)
            self.feed(held, Place(None, name), maybe="")
        self._drain()

    def _descriptions(self) -> None:
        """Annotations and the texts of classes, where code reads such things."""
        for held, place in self.described:
            if not self.mentioned.isdisjoint(_ANNOTATIONS):
                self.feed(getattr(held, "__annotations__", None), place / ".__annotations__", maybe="")
            if isinstance(held, type) and not self.mentioned.isdisjoint(("__doc__", "getdoc")):
                self.feed(vars(held).get("__doc__"), place / ".__doc__", maybe="")
        self._drain()

    def _drain(self) -> None:
        while self.certain or self._promoted() or self.possible:
            item = self.certain.popleft() if self.certain else self.possible.pop(next(iter(self.possible)))
            self.maybe, self.settled = item.maybe, self.settled and item.maybe is not None
            self.write("is", str(self.numbers[id(item.value)]))
            try:
                content.dispatch(type(item.value))(item.value, self, item.place)
            except UnreachableStateError:
                raise
            except Exception:  # objects of all kinds answer here, and some answer by raising
                self.refuse(item.value, item.place)
        self.maybe = None

    def _promoted(self) -> bool:
        """Whether something that was only possible is certain, now that all code that surely runs is known."""
        if self.settled:
            return False
        self.maybe, self.settled = None, True
        for name in sorted(self.submodules.keys() & self.mentioned):
            self.feed(*self.submodules.pop(name))
        for number, item in [pair for pair in self.possible.items() if pair[1].maybe in self.mentioned]:
            del self.possible[number]
            self.certain.append(item._replace(maybe=None))
        return bool(self.certain)

    def apart(self, value: Any, place: Place) -> bytes:
        """The hash of a value by itself, for the members of sets, which have no order."""
        alone = StateWalk(self.strict, numbers=dict(self.numbers), maybe=self.maybe, kept=self.kept)
        alone.modules, alone.versions, alone.replaced = self.modules, self.versions, self.replaced
        alone.texts, alone.mentioned, alone.submodules = self.texts, self.mentioned, self.submodules
        alone.packages, alone.described, alone.libraries = self.packages, self.described, self.libraries
        alone.feed(value, place)
        alone._drain()
        return bytes(alone.digest.digest())

    def refuse(self, value: Any, place: Place) -> None:
        """Something without a state that could be hashed."""
        kind = type(value)
        name = kind.__qualname__ if home_of(kind) == "builtins" else f"{home_of(kind)}.{kind.__qualname__}"
        self.write("opaque", name)
        if self.maybe is None and self.strict:
            raise UnreachableStateError(f"{place} is a {name}")

    def version_of(self, module: str | None) -> None:
        """Write what stands for a module that is not read."""
        found = stamp(module or "builtins")
        self.packages.add((module or "builtins").partition(".")[0])
        self.versions.add(found)
        self.write("version", found)

    def plain(self, kind: str, value: Any, parts: Iterable[Any]) -> None:
        """Write a container of plain values at once."""
        self.write(f"{kind} of plain", repr(value))
        if len(value) <= 1000:
            self.texts.update(part for part in parts if type(part) is str)

    def all_of(self, values: Iterable[Any], place: Place) -> None:
        for index, value in enumerate(values):
            self.feed(value, place / f"[{index}]")

    def attributes(self, values: dict[str, Any], place: Place) -> None:
        """Attributes by name; their order counts, as code may go through all of them."""
        self.write("attributes", repr([str(name) for name in values]))
        for name in sorted(values, key=str):
            self.write("attribute", str(name))
            self.feed(values[name], place / f".{name}")


def _spelled(value: Any) -> str:
    """A plain value; Python does not spell very long numbers out."""
    return hex(value) if type(value) is int else repr(value)


def _variables(texts: set[str], *, several: bool) -> list[tuple[str, str]]:
    """Environment variables that these texts name: whole, word by word, or (with an underscore at the seam) by an end.

    Where code looks at `several`, any text of three letters within a name counts.
    """
    whole = {text.lower() for text in texts}
    ends = [text for text in whole if len(text) > 2 and (text[0] == "_" or text[-1] == "_")]
    inside = [text for text in whole if len(text) > 2] if several else []
    found = []
    for name, value in sorted(os.environ.items()):
        low = name.lower()
        words = low.split("_")
        if (
            low in whole
            or (len(words) > 1 and whole.issuperset(words))
            or any(low.startswith(end) or low.endswith(end) for end in ends)
            or any(text in low for text in inside)
        ):
            found.append((name, value))
    return found


def home_of(kind: type) -> str:
    """The module of a class; some of those in C have none."""
    return kind.__module__ if isinstance(kind.__module__, str) else "builtins"


@functools.singledispatch
def content(value: Any, walk: StateWalk, place: Place) -> None:
    """Write what a value holds; the modules of this folder register how, by its type."""
    raise NotImplementedError
