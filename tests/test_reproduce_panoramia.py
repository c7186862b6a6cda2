"""The experiment on PANORAMIA: what is kept of an audit, what exhibits claim and cannot claim, a stopped run."""

import importlib
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from test_reproduce import reproduce

from dosimeter import InputError, OneRun, fair_coins, panoramia
from dosimeter.audits.members_only.measure import LEVEL, judge
from dosimeter.audits.members_only.pair_classifier import Pair
from dosimeter.engine import Store

RUN = reproduce.load("panoramia")
adult, generators, kept, stored, summary, tables = (
    importlib.import_module(f"experiments.panoramia.{name}")
    for name in ("adult", "generators", "kept", "stored", "summary", "tables")
)
EXHIBITS = {exhibit.part: exhibit for exhibit in reproduce.exhibits("panoramia")}


def curve(precision):
    return {
        "recall": [0.01, 0.1, 0.3, 0.6, 1.0],
        "precision": [precision, precision, precision - 0.1, 0.55, 0.5],
        "bound": [0.1, 0.6 * precision, 0.5, 0.1, 0.0],
        "guesses": [2, 20, 70, 150, 200],
        "best": 1,
    }


def target(name, epsilon, *, epochs=10, dp=None, c_lb=1.0, test=0.8):
    theirs = {"epsilon": epsilon, "c_eps_lb": c_lb + epsilon, "one_run": 2 * epsilon, "curve": curve(0.6 + epsilon / 4)}
    measured = {"epsilon": epsilon, "stands_out": epsilon > 0, "c_eps_lb": c_lb + epsilon, "auc": 0.6, "one_run": 1.0}
    shares = {"train": 0.9, "test": test, "real": 1.5 * epsilon, "real_one_run": epsilon}
    return {"name": name, "epochs": epochs, "dp": dp, **measured, **shares, "thesis": theirs}


def audit(epsilons=(0.1, 0.4), *, c_lb=1.0, dp=None, seed=0):
    """An audit of a few targets, each longer training worse on other records."""
    budgets = [None] * len(epsilons) if dp is None else dp
    targets = [
        target(f"{10 * k} epochs", value, epochs=10 * k, dp=budget, c_lb=c_lb, test=0.9 - 0.1 * k)
        for k, (value, budget) in enumerate(zip(epsilons, budgets, strict=True), 1)
    ]
    names = dict(zip(RUN.HELPERS.values(), (1.2, 1.1, 0.9), strict=True))
    strength = {"size": [{"records": r, "c_lb": c} for r, c in ((100, 0.2), (200, 0.3))], "helper": names}
    found = {"seed": seed, "members": 300, "generator": "MST", "c_lb": c_lb, "baseline_auc": 0.6, "auc_limit": 0.65}
    theirs = {"c_lb": c_lb, "curve": curve(0.6)}
    gaps = [np.linspace(0, 1, 41), np.linspace(0, 1, 41) + 1.0, np.linspace(0, 1, 41) + 2.0]
    losses = {
        f"{10 * k} epochs": dict(
            zip(
                ("members", "real non-members", "generated"),
                [g.tolist() for g in (gaps[0], k * gaps[1], k * gaps[2])],
                strict=True,
            )
        )
        for k in range(1, len(epsilons) + 1)
    }
    losses["helper"] = losses["10 epochs"]
    return {
        **found,
        "cpu_seconds": 2.0,
        "targets": targets,
        "thesis": theirs,
        "strength": {**strength, "rising": False},
        "losses": losses,
    }


SILENT_EPSILONS = {"cifar10": 3, "celeba": 2, "wikitext2": 3, "adult": 2}


@pytest.fixture
def runs(monkeypatch):
    """Exhibits computed from given audits: `runs(made)` takes a function of the number of targets."""
    rows = {}

    def of_kind(which, size, store=None, half=False):
        return (rows["half"],) if half else (rows[which],)

    def of_file(key, size):
        if key == "generator":
            return [rows[key]]
        return rows[key]

    monkeypatch.setattr(RUN, "audits", of_kind)
    monkeypatch.setattr(RUN.stored, "rows", of_file)
    monkeypatch.setattr(RUN.stored, "kept", lambda: rows["trials"])

    def of_seed(kind, settings, store):
        return iter(rows[kind])

    monkeypatch.setattr(RUN.kept, "rows", of_seed)

    def compute(sound):
        """All exhibits: of audits that find what is there, or of audits that always say 0."""
        scale = 1.0 if sound else 0.0
        for which, count in SILENT_EPSILONS.items():
            rows[which] = audit([scale * 0.2 * k for k in range(1, count + 1)], c_lb=scale)
            if not sound:
                rows[which]["thesis"]["curve"] = curve(0.5)
                for one in rows[which]["targets"]:
                    one["thesis"]["curve"] = curve(0.5)
                rows[which]["strength"] = {
                    "size": [{"records": r, "c_lb": 0.0} for r in (100, 200)],
                    "helper": dict.fromkeys(RUN.HELPERS.values(), 0.0),
                    "rising": False,
                }
        for one in rows["adult"]["targets"]:
            one["thesis"]["one_run"] /= 4  # on tables the thesis's attack beats a threshold on the loss
        rows["half"] = audit([scale * 0.3], c_lb=0.5 * scale)
        mapped = {"start": 0.3, "share": 0.5, "auc": 0.8, "nearest": 0.6, "nearest_real": 0.65}
        judged = {"judge_auc": 0.9, "nearest": 0.6 * scale, "nearest_real": 0.65, "decides": False, "maps": [mapped]}
        rows["generator"] = {"data": "cifar10", "side": 16, "steps": 9, **judged}
        tried = {"prediction": "image", "steps": 9, "map": "auto-encoder", "numbers": 48, "auc": 0.9}
        of = {"key": "trials", "data": "cifar10", "side": 16}
        rows["trials"] = [{**of, "tried": [{**tried, "nearest": 0.6, "nearest_real": 0.65}]}]
        rows["sizes"] = [audit([scale * 0.1, scale * 0.2, scale * 0.3])]
        for key, budgets in RUN.BUDGETS.items():
            values = [scale * max(0, b - 9) / 10 for b in budgets] + [scale * 3.0]
            rows[key] = [audit(values, dp=[*budgets, None])]
        rows["dp.same"] = [audit([scale * 0.2, scale * 0.5], dp=[e, e]) for e in (20, 15)]
        rows["silent"] = [{"epsilon": 0.0}] * 40
        rows["silent_text"] = [audit([0.0, 0.0])] * 20
        rows["controls"] = [audit([0.0] * 40)]
        rows["short_text"] = [audit([0.0, scale])]
        shown = {"tree": 0.6, "copula": 0.65, "MST, ε = 1": 0.9, "MST, ε = 10": 0.7}
        made = [{"name": n, "auc": a, "distance": 1.0, "copies": 0.0, "seconds": 1.0} for n, a in shown.items()]
        usual = {"name": "held-out records", "auc": None, "distance": 1.0, "copies": 0.0, "seconds": 0.0}
        rows["generators"] = [{"seed": 0, "rows": [usual, *made]}]
        return {part: reproduce.call(function, size="quick", store=None) for part, function in RUN.PARTS.items()}

    return compute


def test_exhibits_hold_for_audits_that_find_what_is_there(runs):
    for part, found in runs(sound=True).items():
        exhibit = EXHIBITS[part]
        assert set(found.numbers) == set(exhibit.asked("quick")), part
        for claim in exhibit.claims:
            assert "quick" not in claim.sizes or found.numbers[claim.name] == 1.0, claim.name
        assert set(found.tables) <= set(exhibit.tables) and set(found.figures) <= set(exhibit.figures), part
        for text in found.tables.values():
            assert len({line.count("|") for line in text.splitlines()}) == 1


def test_no_verdict_is_satisfied_by_an_audit_that_always_says_0(runs):
    """Where our numbers come from an audit, one that finds nothing contradicts at least one claim of the exhibit."""
    apart = {"fig84", "fig85", "generators", *(part for part in RUN.PARTS if part.startswith("tab61"))}  # no audit
    for part, found in runs(sound=False).items():
        claims = [claim.name for claim in EXHIBITS[part].claims if "quick" in claim.sizes]
        assert part in apart or not all(found.numbers[name] == 1.0 for name in claims), part


def test_every_table_and_figure_of_the_chapters_is_there_in_order():
    numbers = list(dict.fromkeys(e.number.split(",")[0].rstrip("ab") for e in reproduce.exhibits("panoramia")))
    wanted = (
        "Table 6.1|Figure 6.1|Table 7.1|Figure 7.1|Figure 8.1|Figure 8.2|Table 8.1|Figure 8.3|Figure 8.4|Figure 8.5|"
    )
    wanted += "Figure 8.6|Table 8.2|Table 8.3|Table 8.4|Silence|Generators of tables"
    assert numbers == wanted.split("|")


def test_rows_that_were_not_run_are_no_agreement(tmp_path, monkeypatch):
    file = tmp_path / "results.json"
    monkeypatch.setattr(stored, "FILE", file)
    with pytest.raises(Exception, match="not yet run at this size"):
        stored.rows("cifar10", "quick")
    file.write_text(json.dumps([{"key": "cifar10", "size": "quick", "seed": 1}, {"key": "sizes", "size": "full"}]))
    assert [row["seed"] for row in stored.rows("cifar10", "quick")] == [1]
    for key, size in (("cifar10", "full"), ("dp.resnet", "quick")):
        with pytest.raises(reproduce.book.NotRunError):
            stored.rows(key, size)
    known = {}
    reproduce.run("panoramia", "quick", None, known, tmp_path, "tab82")
    assert set(known["panoramia"]["rows"]) == set(EXHIBITS["tab82"].asked("quick"))
    assert {row["reason"] for row in known["panoramia"]["rows"].values()} == {"not yet run at this size"}
    assert reproduce.verdict(EXHIBITS["tab82"], known["panoramia"]) is None


# --- numbers that no run could contradict -----------------------------------------------------------------


def test_the_bound_of_90_right_guesses_of_100_is_the_closed_form():
    """The logit of the Beta quantile B(0.025; 90, 11)."""
    coins = fair_coins(1000, seed=1)
    scores = np.zeros(1000)
    scores[np.concatenate([np.flatnonzero(coins)[:90], np.flatnonzero(~coins)[:10]])] = 1.0
    found = panoramia(baseline=None, attack=OneRun(scores, coins), confidence=0.975, guesses=100).epsilon
    share = stats.beta.ppf(0.025, 90, 11)
    assert found == pytest.approx(math.log(share / (1 - share)), abs=1e-9)


def test_scores_whose_errors_are_those_of_the_model_are_silent():
    rng = np.random.default_rng(3)
    silent = 0
    for _ in range(100):
        content = rng.normal(np.repeat([0.6, 0.0], 400), 1.0)
        found = content + rng.normal(0.0, 0.4, (9, 800))
        found[0] += rng.normal(0.0, 0.4, 800)
        found[1:] += rng.normal(0.0, 0.4, 800)
        pairs = [Pair(row[:400], row[400:]) for row in found]
        silent += not judge(pairs[0], pairs[1:], level=LEVEL).stands_out
    assert silent >= 94


# --- what audits say together -----------------------------------------------------------------------------


def test_means_and_rises_over_seeds():
    rows = [audit((0.1, 0.4)), audit((0.5, 0.4))]
    assert summary.mean(rows, 0, "epsilon") == pytest.approx(0.3)
    assert summary.mean(rows, -1, "thesis", "epsilon") == pytest.approx(0.4)
    assert summary.rises(rows, "thesis", "epsilon") and not summary.rises(rows[1:], "thesis", "epsilon")
    assert summary.rises([audit((0.9, 0.1, 0.2), dp=[1, None, None])], "epsilon")  # those with DP do not count
    assert summary.at_recall(curve(0.8), 0.2) == pytest.approx(0.75)
    assert summary.right_guesses(curve(0.8)) == pytest.approx([1.6, 16, 49, 82.5, 100])


def test_the_judge_of_generators_sees_a_shift_and_copies():
    rng = np.random.default_rng(0)
    real, same, far = ((rng.normal(shift, 1, (600, 3)), rng.integers(0, 2, 600)) for shift in (0, 0, 2))
    assert abs(generators.judged(real, same, 0) - 0.5) < 0.07 and generators.judged(real, far, 0) > 0.95
    known = np.array([[0.2, 1, 0], [0.9, 0, 1]]), np.array([0, 1])
    asked = np.array([[0.2, 1, 0], [0.2, 0, 1]]), np.array([0, 0])
    assert generators.nearest(asked, known) == pytest.approx([0.0, 1.0])  # one word differs


@given(st.lists(st.floats(0, 5), min_size=1, max_size=6))
def test_a_span_holds_its_values(values):
    numbers = [float(n) for n in re.findall(r"\d+\.\d+", tables.span(values))]
    assert numbers[0] == pytest.approx(np.mean(values), abs=6e-4)
    ends = [float(f"{end:.3f}") for end in (min(values), max(values))]
    assert numbers[1:] == (ends if ends[0] < ends[1] else [])
    assert tables.span([None, *values]) == tables.span(values) and tables.span([None]) == "–"


def test_too_few_controls_are_not_run(runs, monkeypatch):
    runs(sound=True)
    for_all = RUN.stored.rows
    few = {"controls": [audit([0.0] * 39)]}
    monkeypatch.setattr(RUN.stored, "rows", lambda key, size: few.get(key) or for_all(key, size))
    with pytest.raises(reproduce.book.NotRunError, match="39 of 40 images"):
        RUN.silence("images", "quick")


def test_silence_has_an_interval():
    table = tables.of_silence({"networks": [0.0] * 37 + [0.25]})
    interval = stats.binomtest(37, 38).proportion_ci(0.95, "exact")
    assert f"97.4% ({interval.low:.1%} to {interval.high:.1%})" in table and "| 0.250 |" in table


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

    settings = {"epochs": [5, 100], "dp_batch": 1024, "dp_learning_rate": 0.005}
    recipe = adult.private_recipe(8000, epsilon, settings)
    assert 0.98 * epsilon < pld(recipe.mechanism(8000), delta=adult.DELTA).epsilon <= epsilon * (1 + 1e-6)
    assert recipe.epochs == 100 and recipe.sampling == "poisson"


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
    for name in ("adult", "language", "silent", "silent_text", "short_text", "generators"):
        for size in ("quick", "full"):
            assert {"members", "first_seed", "seeds"} <= set(RUN.CONFIG[name][size])
