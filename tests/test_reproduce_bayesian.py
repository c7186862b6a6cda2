"""Table 2 of the Bayesian paper: models add up over interrupted runs, and the file keeps them as they are."""

import importlib
import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

SPEC = importlib.util.spec_from_file_location("reproduce", Path(__file__).parent.parent / "scripts" / "reproduce.py")
assert SPEC is not None and SPEC.loader is not None
reproduce = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reproduce)
reproduce.load("bayesian")
measure = importlib.import_module("experiments.bayesian.measure")


@pytest.fixture
def small(monkeypatch):
    recipe = {"optimiser": "adam", "learning_rate": 1e-2, "epochs": 2, "batch_size": 50}
    own = {**measure.CONFIG["digits"], "records": 100, "test": 50, "shadows": 8, "runs": 6, "recipe": recipe}
    monkeypatch.setattr(measure, "CONFIG", {"digits": own})
    return own


def test_an_interrupted_run_resumes(small, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    measure.complete("digits", None, folder=whole)
    measure.complete("digits", None, folder=parts, until=0.0)  # stops after its first model
    assert measure.read(parts)["digits"].runs == 1
    measure.complete("digits", None, folder=parts)
    first, again = measure.read(whole)["digits"], measure.read(parts)["digits"]
    assert first.runs == again.runs == 6
    assert (first.points, first.coins, first.shadow_in) == (again.points, again.coins, again.shadow_in)
    np.testing.assert_allclose(first.signals, again.signals, atol=1e-3)  # groups of models differ in the last bits
    before = (parts / "digits.json").read_text()
    measure.complete("digits", None, folder=parts)
    assert (parts / "digits.json").read_text() == before


def test_two_commands_at_once_do_not_disturb_each_other(tmp_path):
    kept = measure.Kept([3], [[1]] * 64, [[0.5]] * 64, [0.5] * 64)
    together = threading.Barrier(2)

    def written(name):
        together.wait()
        for _ in range(100):
            measure.write(name, kept, tmp_path / "results")

    with ThreadPoolExecutor(2) as both:
        list(both.map(written, ("cifar10", "sst2")))
    assert measure.read(tmp_path / "results") == {"cifar10": kept, "sst2": kept}


def test_the_kept_results_are_those_of_the_coins_and_hold_the_page():
    for name, kept in measure.read().items():
        assert kept.runs == len(kept.signals) == len(kept.accuracy)
        assert len(kept.shadow_in) == len(kept.shadow_signals) == measure.CONFIG[name]["shadows"]
        assert kept.proven().low >= 0  # refuses coins that the seed does not draw
        assert name in measure.CONFIG
