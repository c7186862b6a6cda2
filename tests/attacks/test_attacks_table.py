"""The table of attacks: every function of the package is in it, and what it says is true."""

import inspect
from pathlib import Path

import numpy as np
import pytest

import dosimeter as dm
from dosimeter import attacks
from dosimeter._validate import InputError
from dosimeter.attacks import ATTACKS, MINIMUM, SHADOW_ATTACKS, leave_one_out, select_worst

PAGE = Path(__file__).parents[2] / "docs" / "api" / "attacks.md"
HELPERS = {"best_attack", "clip_bkd", "leave_one_out", "mislabelled", "out_of_distribution", "select_worst"}
RNG = np.random.default_rng(3)
SIGNALS = RNG.normal(size=(24, 12))
INCLUDED = RNG.random((24, 12)) < 0.5


def test_every_exported_attack_has_a_row():
    functions = {getattr(attacks, name) for name in attacks.__all__ if inspect.isfunction(getattr(attacks, name))}
    known = {row.function for row in ATTACKS.values()}
    assert {f.__name__ for f in functions - known} == HELPERS


@pytest.mark.parametrize("row", ATTACKS.values(), ids=lambda row: row.name)
def test_options_are_arguments_of_the_function(row):
    parameters = inspect.signature(row.function).parameters
    assert set(row.options) | set(row.preset) <= set(parameters)
    assert not set(row.options) & set(row.preset)
    assert row.sentence.endswith(".")


@pytest.mark.parametrize("row", ATTACKS.values(), ids=lambda row: row.name)
def test_the_page_shows_the_row(row):
    options = ", ".join(f"`{name}`" for name in row.options)
    line = f"| `{row.name}` | {row.sentence} | {', '.join(row.needs)} | {options} |"
    assert line in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", SHADOW_ATTACKS)
def test_rotation_is_one_call_for_each_model(name):
    row = SHADOW_ATTACKS[name]
    fast = leave_one_out(name, SIGNALS, INCLUDED)
    slow = leave_one_out(row.scores, SIGNALS, INCLUDED)
    np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-9)
    assert select_worst(SIGNALS, INCLUDED, 2, attack=name).records.size == 2


def test_a_preset_is_not_an_option():
    for name, base, mode in (("lira-offline", "lira", "offline"), ("rmia-online", "rmia", "online")):
        np.testing.assert_array_equal(
            leave_one_out(name, SIGNALS, INCLUDED), leave_one_out(base, SIGNALS, INCLUDED, mode=mode)
        )
        with pytest.raises(InputError, match=f"mode is not an option of {name}"):
            leave_one_out(name, SIGNALS, INCLUDED, mode=mode)


def test_minimum_names_every_form_once():
    assert len(MINIMUM) == 10
    assert {form.split()[0] for form in MINIMUM} == {"loss", "watson", "lira", "rmia"}


def test_pairs_that_share_out_the_records_leave_together():
    """With signals that say nothing, no attack may tell a model's records by how many others have them."""
    rng = np.random.default_rng(8)
    masks = np.repeat(rng.random((8, 600)) < 0.5, 2, axis=0)
    masks[1::2] = ~masks[1::2]
    noise = rng.normal(size=masks.shape)
    for name in SHADOW_ATTACKS:
        scores = leave_one_out(name, noise, masks)
        auc = np.mean([dm.Scores(row[own], row[~own]).auc for row, own in zip(scores, masks, strict=True)])
        assert abs(auc - 0.5) < 0.03, name
