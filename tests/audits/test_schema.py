"""Strict reading: files that were crafted to pass, honest ones that come back, and the published schema."""

import json
from pathlib import Path

import numpy as np
import pytest

from dosimeter import InputError, Scores
from dosimeter.audits import schema
from dosimeter.audits.gate import gate, passed
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores

FILE = Path(__file__).parents[2] / "docs" / "audit.schema.json"


@pytest.fixture(scope="module")
def honest() -> str:
    rng = np.random.default_rng(0)
    audit = audit_scores(Scores(rng.normal(4, 1, 100), rng.normal(0, 1, 100)), resamples=0)
    assert audit.headline.low > 5
    return audit.to_json()


def crafted(text: str, edit) -> str:
    values = json.loads(text)
    edit(values)
    return json.dumps(values)


def of_head(**changes):
    return lambda v: v["estimates"][0].update(changes)


def point(v, index, **changes):
    v["curve"]["tpr_at_fpr"][index].update(changes)


LOW = [0, 0.0, "0", " 0 ", "٠", "1_0e-5", True, False, -5, -0.5, None, [0], {}, 1e-300]
CRAFTED = {
    **{f"low = {low!r}": of_head(low=low) for low in LOW},
    **{f"low = epsilon = {low!r}": of_head(low=low, epsilon=low) for low in LOW if low is not None},
    "a measurement of 0": of_head(validity="measurement", epsilon=0),
    "a measurement of 0, low 0": of_head(validity="measurement", epsilon=0, low=0),
    "an unknown validity": of_head(validity="certain"),
    "another claim": of_head(claim="With 95 % confidence the privacy loss is at least ε = 0.1 at δ = 1e-05."),
    "a claim without a number": of_head(claim="All is well."),
    "another method": of_head(method="advantage"),
    "δ of text": of_head(delta="1e-5"),
    "confidence 2": of_head(confidence=2),
    "the headline last": lambda v: v["estimates"].reverse(),
    "no headline": lambda v: v["estimates"].pop(0),
    "no estimates": lambda v: v.update(estimates=[]),
    "guard checked as text": lambda v: v["guard"].update(checked="no"),
    "guard checked as 'false'": lambda v: v["guard"].update(checked="false"),
    "guard shift null": lambda v: v["guard"].update(shift=None),
    "guard checked without evidence": lambda v: v["guard"].update(checked=True),
    "guard of other words": lambda v: v["guard"].update(verdict="No shift was found."),
    "schema true": lambda v: v.update(schema=True),
    "schema 2.0": lambda v: v.update(schema=2.0),
    "schema 3": lambda v: v.update(schema=3),
    "an unknown key": lambda v: v.update(approved=True),
    "tpr -1": lambda v: point(v, 0, tpr=-1),
    "tpr null": lambda v: point(v, 0, tpr=None),
    "tpr 0": lambda v: point(v, 1, tpr=0, tpr_low=0),
    "tpr above 1": lambda v: point(v, 0, tpr=1.5),
    "a point that hides another": lambda v: v["curve"]["tpr_at_fpr"].insert(
        0, {**v["curve"]["tpr_at_fpr"][1], "tpr": 0.0}
    ),
    "points in another order": lambda v: v["curve"]["tpr_at_fpr"].reverse(),
    "text in the curve": lambda v: v["curve"].update(fpr="flat"),
    "a falling curve": lambda v: v["curve"]["fpr"].reverse(),
    "another AUC": lambda v: v["curve"].update(auc=0.5),
    "columns of other lengths": lambda v: v["curve"]["tpr"].pop(),
}


@pytest.mark.parametrize("edit", CRAFTED.values(), ids=CRAFTED)
def test_no_crafted_file_passes(honest, edit):
    text = crafted(honest, edit)
    try:
        verdicts = gate(Audit.from_json(text), max_epsilon=1, max_tpr_at_fpr={0.01: 0.5})
    except InputError as error:
        assert "\n" not in str(error)
        return
    assert not passed(verdicts)


@pytest.mark.parametrize(
    "change",
    [
        ('"low": ', '"low": NaN, "x": '),
        ('"low": ', '"low": -Infinity, "x": '),
        ('"low": ', '"low": 0, "low": '),
        ('"estimates": [', '"estimates": [], "estimates": ['),
        ('"epsilon": ', '"epsilon": 1e400, "x": '),
        ('"guard": {', '"guard": {"checked": true, '),
    ],
)
def test_no_crafted_text_passes(honest, change):
    with pytest.raises(InputError):
        Audit.from_json(honest.replace(*change, 1))


def test_the_first_fault_is_named(honest):
    with pytest.raises(InputError, match=r"estimates\.0\.low.*got '0'"):
        Audit.from_json(crafted(honest, of_head(low="0")))
    with pytest.raises(InputError, match="a lower bound is its low end"):
        Audit.from_json(crafted(honest, of_head(low=0)))
    with pytest.raises(InputError, match="schema 3, this version reads 1 and 2"):
        Audit.from_json(crafted(honest, lambda v: v.update(schema=3)))


def test_the_published_schema_is_the_one_that_is_used(honest):
    assert FILE.read_text(encoding="utf-8") == schema.json_schema(), "write it again: see CONTRIBUTING.md"
    jsonschema = pytest.importorskip("jsonschema")
    published = json.loads(FILE.read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(honest), published)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(crafted(honest, of_head(low="0"))), published)
