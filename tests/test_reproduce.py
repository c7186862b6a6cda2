"""The experiments run in miniature and agree with what is expected; the script keeps what it should."""

import importlib
import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dosimeter import InputError
from dosimeter.engine import Store

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("reproduce", ROOT / "scripts" / "reproduce.py")
assert SPEC is not None and SPEC.loader is not None
reproduce = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reproduce)

HAS_TORCH = importlib.util.find_spec("torch") is not None


# --- the papers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", reproduce.papers())
def test_mini_agrees_and_has_tables_and_figures(name, tmp_path, monkeypatch):
    monkeypatch.delenv("DOSIMETER_DATA", raising=False)  # the miniature needs no data but those of scikit-learn
    kept = {}
    reproduce.run(name, "mini", Store(tmp_path / "store"), kept, tmp_path)
    found = kept[name]
    assert found["rows"]
    assert reproduce.report(name, found) == 0
    for own in (r for e in reproduce.exhibits(name) for r in e.rows if r.sizes == ("mini",)):
        assert not HAS_TORCH or own.holds(found["rows"][own.name]["value"]), own.label  # no verdict counts these
    for entry in found["rows"].values():
        assert "value" in entry or (not HAS_TORCH and "torch" in entry["reason"])
    if HAS_TORCH or name != "identifiability":  # whose tables are all made of trainings
        assert found["tables"]
    for entry in found["tables"].values():
        lines = entry["text"].split("\n\n")[0].splitlines()
        assert len(lines) > 2 and len({line.count("|") for line in lines}) == 1
    for file in found["figures"]:
        assert (tmp_path / name / file).read_text().startswith("<svg")
    if HAS_TORCH:
        assert found["figures"]


def test_every_target_has_its_own_intervals(tmp_path):
    """Four bars in the panel of each target, and not those of the others."""
    reproduce.load("bayesian")
    pictures = importlib.import_module("experiments.bayesian.pictures")

    methods = ("ours", *pictures.NAMES.values())
    spec = pictures.of_targets(
        {name: dict.fromkeys(methods, (low, low + 1)) for name, low in {"b": 0.5, "a": 1.5, "c": 2.5}.items()}
    )
    drawing = (tmp_path / importlib.import_module("experiments.shared").write_svg(tmp_path, "t.svg", spec)).read_text()
    assert sum(drawing.count(f'fill="{colour}"') for colour in pictures.CATEGORIES[:4]) == 12
    assert drawing.index(">b<") < drawing.index(">a<") < drawing.index(">c<")


def test_members_by_coins_are_balanced_beside_the_target():
    reproduce.load("private")
    trained = importlib.import_module("experiments.private.trained")
    coins = trained.memberships(500, 7, 3)
    assert coins.shape == (7, 500)
    assert (coins[1:].sum(axis=0) == 3).all()
    assert 200 < coins[0].sum() < 300


def test_a_bound_above_the_guarantee_is_a_contradiction():
    from dosimeter import OneRun, lower_bound
    from dosimeter.accounting import DpSgd, pld

    reproduce.load("private")
    trained = importlib.import_module("experiments.private.trained")
    coins = np.arange(400) % 2 == 0
    bound = lower_bound(OneRun(coins.astype(float), coins), delta=1e-5)
    tight, wide = (pld(DpSgd(z, sample_rate=0.02, steps=50), delta=1e-5) for z in (10.0, 0.2))
    assert [trained.Bounds({"losses": bound}, upper).contradictions for upper in (tight, wide)] == [1, 0]
    level = trained.Level(1.0, 5, 0.6, 0.5, 0.078, 0.1, 0.001)
    assert level.direct == pytest.approx(0.4446, abs=1e-4)
    assert level.from_rate == pytest.approx(0.02839, abs=1e-5)
    assert level.from_best == pytest.approx(-np.log(0.9), abs=2e-5)


def test_the_best_threshold_parts_no_ties():
    reproduce.load("private")
    trained = importlib.import_module("experiments.private.trained")
    inside = np.array([True, True, False, True, False, False])
    assert trained.best_advantage(np.array([3.0, 2.0, 2.0, 1.0, 0.0, 0.0]), inside) == pytest.approx(2 / 3)
    assert trained.best_advantage(np.ones(6), inside) == pytest.approx(0.0)
    assert trained.best_advantage(-inside.astype(float), inside) == 0.0


# --- exhibits ---------------------------------------------------------------------------------------------

book = reproduce.book
PAPER = """
[[exhibit]]
number = "Figure 4"
part = "fig4"
title = "a title"
shows = "What it shows."
run = "What we ran."
verdict = "agrees"
printed = [ { name = "a", label = "a number", value = 1.0, within = 0.1 } ]
claims = [ { name = "b", label = "a claim", sizes = ["quick", "full"] } ]
figures = ["f.svg"]
"""


@pytest.fixture
def exhibited(tmp_path, monkeypatch):
    """A made-up paper with exhibits; the function sets exhibits.toml and PARTS."""
    monkeypatch.setattr(reproduce, "EXPERIMENTS", tmp_path)
    for name in ("KEPT", "PAGE", "PICTURES", "STORE"):
        monkeypatch.setattr(reproduce, name, tmp_path / "out" / name.lower())
    (tmp_path / "out").mkdir()
    (tmp_path / "made_up").mkdir()
    (tmp_path / "made_up" / "run.py").touch()

    def make(text=PAPER, **parts):
        (tmp_path / "made_up" / "exhibits.toml").write_text(text)
        module = types.ModuleType("experiments.made_up")
        module.PARTS = parts
        monkeypatch.setitem(sys.modules, "experiments.made_up", module)
        return "made_up"

    return make


@pytest.mark.parametrize(
    ("stated", "ours", "verdict"),
    [
        ("agrees", {"a": 1.05, "b": 1}, "agrees"),
        ("agrees", {"a": 1.2, "b": 1}, "agrees in direction"),
        ("agrees", {"a": 1.05, "b": 0}, "differs"),
        ("agrees", {"a": 1.05}, None),
        ("agrees", {"a": float("nan"), "b": 0}, "differs"),
        ("stand-in", {"a": 9.0, "b": 1}, "stand-in"),
        ("stand-in", {"a": 1.0, "b": 0}, "differs"),
        ("not possible here", {}, "not possible here"),
        ("beyond the paper", {"a": 1.0, "b": 1}, "beyond the paper"),
        ("beyond the paper", {"a": 1.0, "b": 0}, "differs"),
        ("beyond the paper", {"a": 1.0}, None),
    ],
)
def test_the_verdict_follows_from_the_numbers(exhibited, stated, ours, verdict):
    why = "" if stated == "agrees" else '\nwhy = "a reason"'
    name = exhibited(PAPER.replace('verdict = "agrees"', f'verdict = "{stated}"{why}'))
    (exhibit,) = reproduce.exhibits(name)
    assert exhibit.verdict(ours) == (None if verdict is None else book.Verdict(verdict))


def test_what_no_paper_has_is_not_said_to_agree(exhibited):
    """A claim of ours has no counterpart in the column of the paper."""
    text = PAPER.replace('verdict = "agrees"', 'verdict = "beyond the paper"\nwhy = "a reason"')
    text = text.replace('printed = [ { name = "a", label = "a number", value = 1.0, within = 0.1 } ]\n', "")
    name = exhibited(text, fig4=lambda: book.Found({"b": 1.0}))
    assert reproduce.main(["--paper", name]) == 0
    page = reproduce.PAGE.read_text()
    assert "**Verdict: beyond the paper (a reason)**" in page and "| a claim | – | yes | holds | full |" in page
    name = exhibited(text, fig4=lambda: book.Found({"b": 0.0}))
    assert reproduce.main(["--paper", name]) == 1
    assert "| a claim | – | no | **does not hold** | full |" in reproduce.PAGE.read_text()
    name = exhibited(
        text.replace('"beyond the paper"', '"differs"\nbeyond = true'), fig4=lambda: book.Found({"b": 0.0})
    )
    assert reproduce.main(["--paper", name]) == 0
    page = reproduce.PAGE.read_text()
    assert "**Verdict: differs (a reason)**" in page and "| a claim | – | no | **does not hold** | full |" in page


def test_a_claim_may_fail_on_a_stand_in(exhibited):
    """It is still a stand-in: in the heading, and printed numbers are not judged."""
    text = PAPER.replace('verdict = "agrees"', 'verdict = "differs"\nstand_in = true\nwhy = "a reason"')
    name = exhibited(text, fig4=lambda: book.Found({"a": 9.0, "b": 0.0}))
    (exhibit,) = reproduce.exhibits(name)
    assert exhibit.verdict({"a": 9.0, "b": 1.0}) is book.Verdict.STAND_IN
    assert reproduce.main(["--paper", name]) == 0
    page = reproduce.PAGE.read_text()
    assert "### Figure 4: a title (stand-in)" in page and "**Verdict: differs (a reason)**" in page
    assert "| a number | 1 ± 0.1 | 9 |  | full |" in page and "| a claim | yes | no | **differs** | full |" in page


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('verdict = "agrees"', 'verdict = "fine"', "fine"),
        ('verdict = "agrees"', 'verdict = "differs"', "needs a reason"),
        ('run = "What we ran."', "", "setting"),
        ('sizes = ["quick", "full"]', 'sizes = ["huge"]', "sizes are"),
        ('name = "b"', 'name = "a"', "row a twice"),
        ('shows = "What it shows."', "", "shows"),
    ],
)
def test_bad_exhibits_are_refused(exhibited, old, new, told):
    with pytest.raises(SystemExit, match=told):
        reproduce.exhibits(exhibited(PAPER.replace(old, new)))


SPEC_OF_A_CHART = {"mark": "point", "data": {"values": [{"x": 1}]}, "encoding": {"x": {"field": "x"}}}


def test_a_part_alone_and_what_is_kept_of_it(exhibited, capsys):
    found = {"full": {"a": 1.0, "b": 1.0}, "mini": {"a": 1.05}}
    figure = {"f.svg": ("A caption.", SPEC_OF_A_CHART)}
    name = exhibited(fig4=lambda size: book.Found(found[size], figures=figure), fig5=None)
    assert reproduce.main(["--paper", name, "--only", "fig4"]) == 0
    assert "ok   made_up, Figure 4: agrees" in capsys.readouterr().out
    assert reproduce.main(["--paper", name, "--mini", "--only", "fig4"]) == 0
    text = reproduce.PAGE.read_text()
    assert "| made_up | 1 |" in text and "### Figure 4: a title" in text
    assert "| a number | 1 ± 0.1 | 1 | agrees | full |" in text and "| a claim | yes | yes | agrees | full |" in text
    assert "![Figure 4 of the paper, our run](img/reproductions/made_up/f.svg)" in text
    assert reproduce.main(["--paper", name, "--only", "fig6"]) == 1
    assert "no part 'fig6'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        reproduce.main(["--only", "fig4"])


def test_a_part_with_panels_runs_whole(exhibited):
    """ONLY=fig4 runs fig4-adult, and not fig40."""
    ran = []

    def part(name):
        return lambda: ran.append(name) or book.Found({name: 1.0})

    text = "".join(
        PAPER.replace('"Figure 4"', f'"{name}"').replace('"fig4"', f'"{name}"').split("printed")[0]
        + f'claims = [ {{ name = "{name}", label = "a claim" }} ]\n'
        for name in ("fig4-a", "fig4-b", "fig40")
    )
    name = exhibited(text, **{name: part(name) for name in ("fig4-a", "fig4-b", "fig40")})
    assert reproduce.main(["--paper", name, "--only", "fig4"]) == 0
    assert ran == ["fig4-a", "fig4-b"]


def test_a_run_that_comes_out_differently_fails(exhibited, capsys):
    name = exhibited(fig4=lambda: book.Found({"a": 1.0, "b": 0.0}))
    assert reproduce.main(["--paper", name]) == 1
    assert "OFF  made_up, Figure 4: differs" in capsys.readouterr().out
    assert "**Verdict: differs; expected was: agrees**" in reproduce.PAGE.read_text()


def test_parts_and_exhibits_must_agree(exhibited, capsys):
    name = exhibited(fig4=lambda: book.Found({"a": 1.0, "c": 0.0}))
    assert reproduce.main(["--paper", name]) == 1
    assert "disagree about b, c" in capsys.readouterr().err


def test_what_a_part_lacks_is_said(exhibited):
    def needs_data():
        raise InputError("adult is not in /somewhere; pass folder= or set DOSIMETER_DATA to it.")

    name = exhibited(fig4=needs_data)
    assert reproduce.main(["--paper", name]) == 0
    text = reproduce.PAGE.read_text()
    assert "adult was not found" in text and "**Verdict: not run yet**" in text


@pytest.mark.parametrize("name", reproduce.papers())
def test_exhibits_have_rows_that_can_fail(name):
    """An audit that always says 0 fails every paper that has trained models, and no row is a sentence alone."""
    shown = reproduce.exhibits(name)
    for exhibit in shown:
        if exhibit.stated is not book.Verdict.NOT_POSSIBLE:
            nothing = {row.name: 0.0 for row in exhibit.rows}
            assert exhibit.verdict(nothing) is not exhibit.stated or exhibit.stated is book.Verdict.DIFFERS


# --- the script -------------------------------------------------------------------------------------------


ENTRIES = st.dictionaries(
    st.sampled_from("abc"),
    st.one_of(
        st.builds(lambda s, v: {"size": s, "value": v}, st.sampled_from(reproduce.SIZES), st.integers(0, 9)),
        st.builds(lambda s: {"size": s, "reason": "no data"}, st.sampled_from(reproduce.SIZES)),
    ),
)


@given(ENTRIES, ENTRIES)
def test_nothing_gives_way_to_less(old, new):
    kept = reproduce.merged(old, new)
    assert set(kept) == set(old) | set(new)
    for name, entry in kept.items():
        sources = [e for e in (old.get(name), new.get(name)) if e is not None]
        assert entry in sources
        measured = [reproduce.SIZES.index(e["size"]) for e in sources if "value" in e]
        if measured:
            assert reproduce.SIZES.index(entry["size"]) == max(measured) and "value" in entry
    assert reproduce.merged(kept, {}) == kept


def test_a_table_keeps_its_texts():
    reproduce.load("private")
    shared = importlib.import_module("experiments.shared")
    assert shared.markdown(["ε*"], [["a|b"]]) == "| ε\\* |\n| --- |\n| a\\|b |"


def test_a_title_with_an_asterisk_is_escaped_once(exhibited, tmp_path):
    name = exhibited(fig4=lambda: book.Found({"a": 1.0, "b": 1.0}))
    (tmp_path / "made_up" / "README.md").write_text("# Epsilon\\*: a paper\n")
    assert reproduce.main(["--paper", name]) == 0
    text = reproduce.PAGE.read_text()
    assert "| Epsilon\\*: a paper | 1 |" in text and "## Epsilon\\*: a paper\n" in text


def test_other_errors_are_raised(exhibited, tmp_path):
    def broken():
        raise InputError("delta must be above 0")

    with pytest.raises(InputError, match="delta"):
        reproduce.run(exhibited(fig4=broken), "full", None, {}, tmp_path)


def test_a_run_without_an_extra_keeps_what_it_cannot_make(exhibited, tmp_path):
    def needs_torch():
        raise ImportError("needs torch")

    kept = {}
    name = exhibited(fig4=lambda: book.Found({"a": 1.0, "b": 1.0}, tables={"A": "| a |"}))
    reproduce.run(name, "full", None, kept, tmp_path)
    reproduce.run(exhibited(fig4=needs_torch), "full", None, kept, tmp_path)
    assert kept[name]["rows"]["b"] == {"value": 1.0, "size": "full"}
    assert kept[name]["tables"] == {"A": {"text": "| a |", "size": "full"}}


def test_a_smaller_run_keeps_the_larger_one(exhibited, tmp_path):
    found = {"full": {"a": 1.0, "b": 1.0}, "mini": {"a": 1.05}}
    name = exhibited(
        fig4=lambda size: book.Found(
            found[size], tables={"Table": f"| {size} |"}, figures={"f.svg": (size, SPEC_OF_A_CHART)}
        )
    )
    kept = {}
    assert not reproduce.finished(name, "mini", kept)
    reproduce.run(name, "mini", None, kept, tmp_path / "img")
    assert reproduce.finished(name, "mini", kept) and not reproduce.finished(name, "full", kept)
    reproduce.run(name, "full", None, kept, tmp_path / "img")
    reproduce.run(name, "mini", None, kept, tmp_path / "img")
    assert reproduce.finished(name, "full", kept)
    assert kept[name]["rows"]["a"] == {"value": 1.0, "size": "full"}
    assert kept[name]["tables"] == {"Table": {"text": "| full |", "size": "full"}}
    assert kept[name]["figures"] == {"f.svg": {"text": "full", "size": "full"}}


def test_the_command_keeps_the_numbers_and_resumes(exhibited, capsys):
    name = exhibited(fig4=lambda size: book.Found({"a": 1.0} if size == "mini" else {"a": 1.0, "b": 1.0}))
    assert reproduce.main(["--paper", name, "--quick"]) == 0
    exhibited(fig4=lambda: book.Found({"a": 2.0, "b": 0.0}))
    assert reproduce.main(["--mini", "--resume"]) == 0  # the rows of size quick are enough
    assert reproduce.main([]) == 1
    assert "OFF  made_up, Figure 4: differs" in capsys.readouterr().out
    assert (reproduce.STORE.parent / ".gitignore").read_text() == "*\n"
    assert json.loads(reproduce.KEPT.read_text())["made_up"]["rows"]["a"]["size"] == "full"
    reproduce.PAGE.unlink()
    assert reproduce.main(["--page"]) == 0 and reproduce.PAGE.exists()


def test_a_broken_paper_does_not_stop_the_others(exhibited, monkeypatch, capsys):
    exhibited(fig4=lambda: book.Found({"a": 1.0, "b": 1.0}))
    monkeypatch.setattr(reproduce, "papers", lambda: ["absent", "made_up"])
    assert reproduce.main([]) == 1
    printed = capsys.readouterr()
    assert "ok   made_up, Figure 4: agrees" in printed.out and "absent" in printed.err


def test_two_papers_side_by_side_keep_each_other(exhibited):
    def meanwhile():
        reproduce.KEPT.write_text(json.dumps({"other": {"rows": {}}}))
        return book.Found({"a": 1.0, "b": 1.0})

    assert reproduce.main(["--paper", exhibited(fig4=meanwhile)]) == 0
    assert set(json.loads(reproduce.KEPT.read_text())) == {"other", "made_up"}


def test_two_parts_of_a_paper_side_by_side_keep_each_other(exhibited):
    other = PAPER.replace("Figure 4", "Figure 5").replace("fig4", "fig5").replace('"a"', '"c"').replace('"b"', '"d"')

    def meanwhile():
        known = json.loads(reproduce.KEPT.read_text())
        known["made_up"]["rows"]["c"]["value"] = 1.09
        reproduce.KEPT.write_text(json.dumps(known))
        return book.Found({"a": 1.05, "b": 1.0})

    def first(name, other):
        return lambda: book.Found({name: 1.0, other: 1.0})

    text = PAPER + other.replace("f.svg", "g.svg")
    assert reproduce.main(["--paper", exhibited(text, fig4=first("a", "b"), fig5=first("c", "d"))]) == 0
    assert reproduce.main(["--paper", exhibited(text, fig4=meanwhile, fig5=first("c", "d")), "--only", "fig4"]) == 0
    rows = json.loads(reproduce.KEPT.read_text())["made_up"]["rows"]
    assert {name: row["value"] for name, row in rows.items()} == {"a": 1.05, "b": 1.0, "c": 1.09, "d": 1.0}


def test_stopped_by_hand(exhibited):
    def stop():
        raise KeyboardInterrupt

    exhibited(fig4=stop)
    assert reproduce.main([]) == 130
    assert not reproduce.PAGE.exists()
