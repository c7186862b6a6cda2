"""The experiment on PANORAMIA: what is kept of an audit, what audits say together, tables, figures, a stopped run."""

import copy
import importlib
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from test_reproduce import reproduce

from dosimeter import InputError
from dosimeter.engine import Store

RUN = reproduce.load("panoramia")
adult, kept, summary, tables = (
    importlib.import_module(f"experiments.panoramia.{name}") for name in ("adult", "kept", "summary", "tables")
)


def target(name, epsilon, *, epochs=10, dp=None, real=0.5, auc=0.6):
    curve = {"recall": [0.1, 0.5, 1.0], "precision": [0.9, 0.7, 0.5], "bound": [0.4, 0.6, 0.0], "best": 1}
    bounds = {"real": real, "real_one_run": None if real is None else 2 * real}
    shares = {"train": 0.9, "test": 0.8, "c_eps_lb": 1 + epsilon, "auc": auc, "one_run": 1.0}
    return {"name": name, "epochs": epochs, "dp": dp, "epsilon": epsilon, "curve": curve, **shares, **bounds}


def audit(seed=0, few=0.1, many=0.4, private=0.0):
    targets = [
        target("DP, ε = 1", private, epochs=100, dp=1),
        target("5 epochs", 0.0, epochs=5),
        target("10 epochs", few),
        target("100 epochs", many, epochs=100, auc=0.7),
    ]
    curve = copy.deepcopy(targets[0]["curve"])
    strength = {
        "size": [{"records": 100, "c_lb": 0.2}, {"records": 200, "c_lb": 0.3}],
        "helper": [{"helper": "no helper", "c_lb": 0.1}],
        "rising": True,
    }
    found = {"seed": seed, "members": 300, "c_lb": 1.0, "baseline_auc": 0.6, "auc_limit": 0.65, "cpu_seconds": 2.0}
    return {**found, "targets": targets, "baseline_curve": curve, "strength": strength, "real": 0.5}


def bare(seed=0):
    """A row with what every kind of data has, and nothing more."""
    row = audit(seed)
    for name in ("baseline_curve", "strength"):
        del row[name]
    row["targets"] = [
        {k: v for k, v in t.items() if k not in ("curve", "real", "real_one_run")} for t in row["targets"][1:]
    ]
    return row


# --- what audits say together -----------------------------------------------------------------------------


def test_shares_of_seeds():
    rows = [audit(0, few=0.1, many=0.4), audit(1, few=0.5, many=0.4), audit(2, few=0.4, many=0.4)]
    assert summary.rises(rows, 10) == pytest.approx(1 / 3)
    assert summary.rises(rows) == 1.0  # against the shortest
    assert summary.rises(rows, 10, "auc") == 1.0
    assert [t["name"] for t in summary.compared(rows[0], 10)] == ["10 epochs", "100 epochs"]
    assert list(summary.by_target(rows)) == ["DP, ε = 1", "5 epochs", "10 epochs", "100 epochs"]


def test_limits_of_a_measurement():
    assert summary.below_real([audit(many=1.0)]) == 1.0  # 1.0 is the one-run bound
    assert summary.below_real([audit(many=1.01)]) == 0.75
    assert summary.below_guarantee([audit(private=1.0), audit(private=1.1)]) == 0.5
    assert summary.private_below([audit(private=0.4), audit(private=0.5)]) == 0.5


@given(st.lists(st.floats(0, 5), min_size=1, max_size=6))
def test_a_span_holds_its_values(values):
    numbers = [float(n) for n in re.findall(r"\d+\.\d+", tables.span(values))]
    assert numbers[0] == pytest.approx(np.mean(values), abs=6e-4)
    ends = [float(f"{end:.3f}") for end in (min(values), max(values))]
    assert numbers[1:] == (ends if ends[0] < ends[1] else [])
    assert tables.span([None, *values]) == tables.span(values) and tables.span([None]) == "–"


def test_silence_has_an_interval():
    rows = [{"epsilon": 0.0, "cpu_seconds": 1.0}] * 37 + [{"epsilon": 0.25, "cpu_seconds": 3.0}]
    (table,) = tables.of_silence({300: rows}).values()
    interval = stats.binomtest(37, 38).proportion_ci(0.95, "exact")
    assert f"97.4% ({interval.low:.1%} to {interval.high:.1%})" in table and "| 0.250 |" in table


# --- tables and figures -----------------------------------------------------------------------------------


def test_tables_of_rows_with_and_without_real_nonmembers():
    found = {"adult": [audit(0), audit(1, many=0.6)], "text": [bare()]}
    made = tables.of_targets(found) | tables.of_audits(found) | tables.of_private(found) | tables.of_cost(found)
    assert len(made) == 4
    for text in made.values():
        assert len({line.count("|") for line in text.splitlines()}) == 1
    measured = next(text for title, text in made.items() if title.startswith("Table 8.1"))
    assert "| Adult | 100 epochs | 1.000 | 1.500 (1.400 to 1.600) | 0.500 (0.400 to 0.600) | 2 of 2 |" in measured
    assert "| WikiText-2 | 5 epochs | 1.000 | 1.000 | 0.000 | 0 of 1 | – | – | 1.000 |" in measured
    assert "loss per token" in next(text for title, text in made.items() if title.startswith("Table 7.1"))
    private = next(text for title, text in made.items() if title.startswith("DP-SGD"))
    assert private.count("\n") == 3 and "WikiText" not in private
    assert tables.of_private({"text": [bare()]}) == {} and tables.of_silence({}) == {}


def test_figures_of_rows_with_and_without_curves(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    pictures = importlib.import_module("experiments.panoramia.pictures")
    found = {"adult": [audit(0), audit(1, many=0.6)], "text": [bare()]}
    drawings = (
        pictures.of_strength,
        pictures.of_curves,
        pictures.of_real,
        pictures.of_sweep,
        pictures.of_private,
    )
    drawn = {name: text for draw in drawings for name, text in draw(tmp_path, found).items()}
    assert len(drawn) == 6 and all((tmp_path / name).read_text().startswith("<svg") for name in drawn)
    assert "Adult seed 0" in drawn["bound_recall.svg"] and "WikiText" not in drawn["bound_recall.svg"]
    assert "WikiText" in (tmp_path / "sweep.svg").read_text()
    assert [len(draw(tmp_path, {"text": [bare()]})) for draw in drawings] == [0, 0, 0, 1, 0]


# --- the audits -------------------------------------------------------------------------------------------


def test_the_sweep_is_one_training():
    inside, outside = adult.parts("wine", [80, 60], 3)
    assert not {row.tobytes() for row in inside[0]} & {row.tobytes() for row in outside[0]}
    how = {"hidden": [8], "batch": 16}
    both = adult.networks(*inside, epochs=[2, 5], seed=1, **how)
    alone = adult.networks(*inside, epochs=[5], seed=1, **how)
    np.testing.assert_array_equal(both[5].coefs_[0], alone[5].coefs_[0])
    assert not np.array_equal(both[2].coefs_[0], both[5].coefs_[0])
    other = adult.networks(*inside, epochs=[5], seed=2, **how)
    assert not np.array_equal(other[5].coefs_[0], alone[5].coefs_[0])


@pytest.mark.parametrize("epsilon", [1, 3, 10])
def test_private_networks_spend_their_epsilon(epsilon):
    from dosimeter.accounting import pld

    settings = RUN.CONFIG["adult"]["full"]
    recipe = adult.private_recipe(8000, epsilon, settings)
    assert 0.98 * epsilon < pld(recipe.mechanism(8000), delta=adult.DELTA).epsilon <= epsilon * (1 + 1e-6)
    assert recipe.epochs == max(settings["epochs"]) and recipe.sampling == "poisson"


def test_private_networks_answer():
    pytest.importorskip("torch")
    (inside,) = adult.parts("wine", [120], 0)
    settings = {"epochs": [1, 3], "dp_batch": 30, "dp_learning_rate": 0.01, "hidden": [4]}
    logits = adult.private_network(*inside, 3.0, settings, 5)
    assert logits(inside[0]).shape == (120, 3) and np.isfinite(logits(inside[0])).all()
    again = adult.private_network(*inside, 3.0, settings, 5)
    np.testing.assert_array_equal(logits(inside[0]), again(inside[0]))


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    asked = []

    def audited(settings, seed):
        asked.append(seed)
        if seed == 12 and len(asked) < 4:
            raise ValueError("the power went off")
        return {"seed": seed, "found": settings["members"] + seed}

    monkeypatch.setattr(adult, "audited", audited)
    store = Store(tmp_path)
    settings = {"members": 100, "first_seed": 10, "seeds": 4}
    found = kept.rows("table", settings, store, engine="inline")
    assert [next(found)["found"] for _ in range(2)] == [110, 111]
    with pytest.raises(RuntimeError, match="table, seed 12: ValueError: the power went off"):
        next(found)
    assert [row["found"] for row in kept.rows("table", settings, store, engine="inline")] == [110, 111, 112, 113]
    assert asked == [10, 11, 12, 12, 13]
    other = {**settings, "members": 5}  # not the same audits
    assert next(kept.rows("table", other, store, engine="inline"))["found"] == 15


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (InputError("adult is not here; set DOSIMETER_DATA"), InputError),
        (ImportError("install dosimeter[torch]"), ImportError),
        (ModuleNotFoundError("No module named 'torch'"), ImportError),
    ],
)
def test_what_is_missing_elsewhere_is_said_here(monkeypatch, error, raised):
    def audited(settings, seed):
        raise error

    monkeypatch.setattr(adult, "audited", audited)
    with pytest.raises(raised, match=re.escape(str(error))):
        list(kept.rows("table", {"first_seed": 0, "seeds": 1}, None, engine="inline"))


def test_all_sections_of_a_size_have_settings():
    for size, kinds in RUN.KINDS.items():
        for name in (*kinds, *(RUN.SILENT.values() if size != "mini" else ())):
            assert {"members", "epochs", "first_seed", "seeds"} <= set(RUN.CONFIG[name][size])
