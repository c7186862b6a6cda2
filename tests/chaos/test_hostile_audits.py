"""Hostile audit files: a true ε of 5 must never pass a limit of 1, and nothing but a sentence may come out.

Each file is the JSON of one real audit with something changed: values, types, keys, order, text. The long form,
DOSIMETER_CHAOS=long, tries 10 000 files.
"""

import copy
import json
import os
import random
import re

import numpy as np
import pytest

from dosimeter import InputError, Scores
from dosimeter.audits.gate import gate, passed
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.verify import verify

LONG = os.environ.get("DOSIMETER_CHAOS") == "long"
FILES = 10_000 if LONG else 300
VALUES = [
    0,
    0.0,
    0.5,
    1,
    -1,
    -5,
    -0.0,
    1e-300,
    1e308,
    10**18,
    True,
    False,
    None,
    "0",
    " 0 ",
    "٠",
    "1_0e-5",
    "no",
    "false",
    "",
    "ε ≥ 0",
    "\u2028",
    "a" * 5000,
    [],
    [0],
    [[]],
    {},
    {"low": 0},
    [0, 0, 0],
    "lower-bound",
    "measurement",
    "exploratory",
    "finite-sample",
    "add/remove",
    "replace",
    "coins",
    "split",
    "runs",
    "members-only",
    "gradients",
    "one-run",
    "claim",
]
TEXTS = [
    "",
    "{",
    "null",
    "[]",
    "[" * 100_000,
    '{"a":' * 100_000,
    "NaN",
    "{}",
    '{"schema": 99}',
    '{"schema": true}',
    "0" * 400,
    '{"schema": 2, "schema": 2}',
    "\ufeff{}",
    '"\\ud800"',
]


@pytest.fixture(scope="module")
def honest() -> dict:
    rng = np.random.default_rng(5)
    audit = audit_scores(Scores(rng.normal(9, 1, 45), rng.normal(0, 1, 45)))
    assert audit.headline.low > 5 and verify(audit).valid
    return json.loads(audit.to_json())


def places(value, path=()):
    """Every place of a JSON value, as a path of keys and indices; long lists only at their ends."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*path, key))
    if isinstance(value, list):
        for index in sorted({*range(min(3, len(value))), len(value) - 1} & set(range(len(value)))):
            yield from places(value[index], (*path, index))


def holder(values, path):
    for key in path[:-1]:
        values = values[key]
    return values


def changed(honest: dict, rng: random.Random) -> str:
    """One hostile file."""
    values = copy.deepcopy(honest)
    every = list(places(values))
    near = [p for p in every if p[:2] == ("estimates", 0) or p[0] in ("guard", "schema", "metadata", "curve")]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(near if rng.random() < 0.7 else every)
        try:
            where = holder(values, path)
            old = where[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
        if not isinstance(where, dict | list):
            continue
        act = rng.randrange(7)
        if act == 0:
            del where[path[-1]]
        elif act == 1 and isinstance(old, int | float):
            where[path[-1]] = old * rng.choice([0, -1, 0.1, 0.5, 10, 1e6])
        elif act == 2 and isinstance(old, list) and old:
            rng.shuffle(old)
        elif act == 3 and isinstance(where, dict):
            where[rng.choice(["extra", "low", "epsilon", "estimates"])] = rng.choice(VALUES)
        elif act == 4 and isinstance(old, list) and old:
            where[path[-1]] = old[: len(old) // 2]
        else:
            where[path[-1]] = rng.choice(VALUES)
    text = json.dumps(values, ensure_ascii=False)
    return spoiled(text, rng) if rng.random() < 0.15 else text


def spoiled(text: str, rng: random.Random) -> str:
    """The same file with its text changed: repeated keys, numbers that JSON does not have, pieces missing."""
    act = rng.randrange(5)
    if act == 0:
        return text[: rng.randrange(len(text))]
    if act == 1:
        word = rng.choice(["NaN", "Infinity", "-Infinity", "1e400", "9" * 400, "0x0", "+0", "00"])
        return re.sub(r'"low": [^,]+', f'"low": {word}', text, count=1)
    if act == 2:
        key = rng.choice(['"low": 0', '"epsilon": 0', '"estimates": []', '"validity": "measurement"'])
        return text.replace('"confidence"', f'{key}, "confidence"', 1)
    if act == 3:
        return text[:-1] + ', "estimates": ' + json.dumps([]) + "}"
    return text.replace('"details"', '"\\u0064etails"', 1).replace("0", "٠", 1)


def passes(text: str, **options) -> bool:
    """What the command answers: refused with a sentence, or the verdict. Anything else ends the test."""
    try:
        return passed(gate(Audit.from_json(text), max_epsilon=1, **options))
    except InputError as error:
        assert 0 < len(str(error)) <= 500
        return False


@pytest.mark.once
def test_no_changed_file_passes(honest, record_property):
    rng = random.Random(17)
    for _ in range(FILES):
        text = changed(honest, rng)
        assert not passes(text), text[:2000]
    record_property("chaos: hostile audit files", FILES)


@pytest.mark.parametrize("text", TEXTS)
def test_no_strange_text_passes(text):
    assert not passes(text)


def test_every_single_value_of_the_headline(honest):
    """Each field of the headline and of the guard, by each hostile value."""
    rng = random.Random(3)
    paths = [p for p in places(honest) if (p[:2] == ("estimates", 0) and len(p) <= 4) or p[0] in ("guard", "schema")]
    for path in paths:
        for value in rng.sample(VALUES, len(VALUES) if LONG else 4):
            values = copy.deepcopy(honest)
            holder(values, path)[path[-1]] = value
            assert not passes(json.dumps(values)), (path, value)


def test_the_honest_file_is_read(honest):
    audit = Audit.from_json(json.dumps(honest))
    assert not passed(gate(audit, max_epsilon=1))
    assert passed(gate(audit, max_epsilon=6, allow_undecided=True))
