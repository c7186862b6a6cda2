"""The board: every audit of a folder read strictly, damaged files listed, nothing outside opened, filters that work."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import samples
from browser import CHROMIUM, Page, browser
from kinds import nothing
from test_page import Outline, words_of
from typer.testing import CliRunner

from dosimeter._validate import InputError
from dosimeter.audits.board import Board, board
from dosimeter.audits.board.read import Status
from dosimeter.audits.page.facts import Conclusion
from dosimeter.audits.scores import audit_scores
from dosimeter.cli import app
from dosimeter.evidence import Scores

FAULTS = (Path(__file__).parent / "layout.js").read_text(encoding="utf-8")


@cache
def _small() -> str:
    rng = np.random.default_rng(0)
    return audit_scores(Scores(rng.normal(1, 1, 60), rng.normal(0, 1, 60)), resamples=0).to_json()


def put(path: Path, text: str, **notes: Any) -> None:
    """A real audit with other metadata."""
    values = json.loads(text)
    values["metadata"]["name"] = notes.pop("name", None)
    values["metadata"]["notes"].update(notes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "audits"
    put(home / "a" / "1.json", samples.full().to_json(), name="first", model_version="1.0", created="2026-01-02")
    later = "2026-03-04T10:00:00+02:00"
    put(home / "a" / "2.json", nothing().to_json(), name="first", model_version="1.1", created=later)
    put(home / "shifted.json", samples.shifted().to_json(), name=samples.HOSTILE)
    put(home / "small.json", _small(), name="small")
    (home / "a" / "1.html").write_text("a page", encoding="utf-8")
    (home / "broken.json").write_text('{"schema": 2,', encoding="utf-8")
    (home / "twice.json").write_text('{"schema": 2, "schema": 2}', encoding="utf-8")
    (home / "other.json").write_text('{"name": "a package"}', encoding="utf-8")
    (home / "notes.txt").write_text("not an audit", encoding="utf-8")
    return home


def by_path(found: Board) -> dict[str, Any]:
    return {entry.path: entry for entry in found.entries}


@pytest.mark.once
def test_every_audit_is_read_and_damaged_files_are_listed(folder: Path) -> None:
    found = board(folder)
    assert [e.path for e in found.entries] == ["shifted.json", "a/1.json", "a/2.json", "small.json"]
    assert {file.path for file in found.damaged} == {"broken.json", "twice.json", "other.json"}
    first, second = (by_path(found)[f"a/{i}.json"] for i in (1, 2))
    head = samples.full().headline
    assert (first.model, first.version, first.dated) == ("first", "1.0", True)
    assert (first.proven, first.neighbours, first.delta) == (head.low, "replace", head.delta)
    assert first.guaranteed == samples.full().region.upper.epsilon and first.page == "a/1.html"
    assert first.when < second.when == datetime.datetime(2026, 3, 4, 8, tzinfo=datetime.UTC)
    assert (second.proven, second.guaranteed, second.page) == (0.0, None, None)
    assert not by_path(found)["small.json"].dated and by_path(found)["small.json"].version == "small"
    assert {e.status for e in found.entries} == {Status.NO_LIMIT}
    assert by_path(found)["shifted.json"].standing is Conclusion.FAILED


def test_the_status_is_that_of_a_gate(folder: Path) -> None:
    found = by_path(board(folder, max_epsilon=2))
    assert found["a/1.json"].status is Status.FAIL and "max-epsilon 2" in found["a/1.json"].reasons[0]
    assert found["a/2.json"].status is Status.PASS
    assert any("no shift" in reason for reason in found["shifted.json"].reasons)
    high = by_path(board(folder, max_epsilon=50))
    assert high["a/1.json"].status is high["a/2.json"].status is Status.UNDECIDED
    assert high["shifted.json"].status is Status.FAIL


def test_bounds_are_computed_again_only_if_asked_for(folder: Path) -> None:
    """A number that agrees with its own sentence but not with its evidence is found by --verify, as by the gate."""
    honest = json.loads(_small())
    low = honest["estimates"][0]["low"]
    forged = _small().replace(f"ε = {low:.4g}", "ε = 0.1").replace(f"ε ≤ {low:.4g}", "ε ≤ 0.1")
    values = json.loads(forged)
    values["estimates"][0].update(epsilon=0.1, low=0.1)
    for name in [p.name for p in folder.glob("*.json")]:
        (folder / name).unlink()
    (folder / "forged.json").write_text(json.dumps(values), encoding="utf-8")
    plain = board(folder, max_epsilon=2)
    assert not plain.verified and "forged.json" in {e.path for e in plain.entries} | {d.path for d in plain.damaged}
    checked = board(folder, max_epsilon=2, recompute=True)
    assert "forged.json" in {d.path for d in checked.damaged} and checked.verified
    assert "not computed again" in re.sub(r"\s+", " ", words_of(page_text(plain), "overview"))


def page_text(found: Board) -> str:
    return found.to_html().read_text(encoding="utf-8")


def test_nothing_outside_of_the_folder_is_opened_or_written(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    put(outside / "secret.json", _small(), name="secret")
    (folder / "link.json").symlink_to(outside / "secret.json")
    (folder / "linked").symlink_to(outside, target_is_directory=True)
    (folder / "small.html").symlink_to(outside / "secret.json")
    os.mkfifo(folder / "pipe.json")
    found = board(folder)
    assert "secret" not in {e.model for e in found.entries}
    reasons = {d.path: d.reason for d in found.damaged}
    assert "symbolic link" in reasons["link.json"] and "not a plain file" in reasons["pipe.json"]
    assert not any(path.startswith("linked") for path in reasons) and by_path(found)["small.json"].page is None
    (folder / "board.html").symlink_to(outside / "board.html")
    with pytest.raises(InputError, match="symbolic link"):
        found.to_html()
    assert not (outside / "board.html").exists()


def test_the_page_is_strict_and_names_are_text(folder: Path) -> None:
    put(folder / "javascript:alert(1).json", _small(), name="odd")
    page = page_text(board(folder, max_epsilon=2))
    outline = Outline(page.replace("<br>", ""))
    assert "<script>alert" not in page and samples.HOSTILE in outline.text()
    for tag, attrs in outline.elements:
        assert "style" not in attrs and not any(name.startswith("on") for name in attrs), tag
        if "href" in attrs:
            assert attrs["href"].startswith(("#", "./"))
    assert "./javascript%3Aalert%281%29.json" in page and "./a/1.html" in page
    assert "default-src 'none'" in page and "unsafe" not in page
    links = [attrs["href"] for attrs in outline.all("a") if attrs["href"].startswith("./")]
    from urllib.parse import unquote

    assert all((folder / unquote(link)).is_file() for link in links)


def test_bad_folders_and_limits_are_refused_first(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        board(tmp_path / "none")
    with pytest.raises(InputError, match="max_epsilon"):
        board(folder, max_epsilon=-1)
    with pytest.raises(InputError, match="require_neighbours"):
        board(folder, require_neighbours="all")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "No audit was read" in page_text(board(empty))


def test_the_command_writes_the_page(folder: Path) -> None:
    ran = CliRunner().invoke(app, ["board", str(folder), "--max-epsilon", "2"])
    assert ran.exit_code == 0 and "4 audits (" in ran.output and "3 files not read" in ran.output
    assert (folder / "board.html").is_file()
    helped = CliRunner().invoke(app, ["board", "--help"])
    assert "dosimeter board audits/ --max-epsilon 2" in helped.output


@pytest.mark.slow
def test_a_thousand_audits_take_seconds(tmp_path: Path) -> None:
    """Seconds of work, not of waiting: the machine that runs the tests may be busy."""
    texts = [samples.full().to_json(), samples.bare().to_json(), nothing().to_json(), _small()]
    for number in range(1000):
        day = datetime.date(2024, 1, 1) + datetime.timedelta(days=number)
        model = number % 25
        put(
            tmp_path / f"model-{model}" / f"{number}.json",
            texts[number % len(texts)],
            name=f"model {model}",
            model_version=f"1.{number // 25}",
            created=day.isoformat(),
        )
    start = time.process_time()
    found = board(tmp_path, max_epsilon=2)
    page = found.to_html()
    seconds = time.process_time() - start
    assert len(found.entries) == 1000 and not found.damaged
    assert len({e.model for e in found.entries}) == 25
    print(f"1000 audits: {seconds:.1f} s")
    assert seconds < 20, "10 s on a quiet machine; a busy one counts up to twice as many"
    assert page.stat().st_size < 3_000_000


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_board_in_a_browser(folder: Path, tmp_path: Path) -> None:
    path = board(folder, max_epsilon=2).to_html()
    with browser(tmp_path / "profile") as tab:
        for width, dark in ((1280, False), (390, True), (320, False)):
            tab.view(width, dark=dark)
            tab.open(path)
            assert tab.problems == [] and tab.run("document.documentElement.dataset.ready") == "yes"
            assert tab.run(FAULTS) == [], width
        assert shown(tab) == 4
        choose(tab, "model", "first")
        assert shown(tab) == 2 and tab.run("document.querySelectorAll('figure.timeline:not(.off)').length") == 1
        choose(tab, "gate", "fail")
        assert shown(tab) == 1 and tab.run("document.querySelectorAll('.timeline g:not(.off)').length") == 1
        choose(tab, "model", "")
        choose(tab, "gate", "")
        choose(tab, "text", "1.1")
        assert shown(tab) == 1
        assert "1 of 4 audits" in tab.run("document.querySelector('.filters [role=status]').textContent")
        assert [r for r in tab.requests if r.startswith("http")] == []


def shown(tab: Page) -> int:
    return tab.run("[...document.querySelectorAll('tr[data-i]')].filter(r => r.getClientRects().length).length")


def choose(tab: Page, name: str, value: str) -> None:
    tab.run(
        f"(() => {{ const f = document.querySelector('[data-filter={name}]'); f.value = {json.dumps(value)};"
        " f.dispatchEvent(new Event('input')); })()"
    )
