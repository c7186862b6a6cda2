"""The page in headless Chromium: drawn, quiet, self-contained, and it answers the pointer and the keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import kinds
import numpy as np
import pytest
from browser import CHROMIUM, Page, browser

from dosimeter.report.glossary import TERMS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]

FAULTS = (Path(__file__).parent / "layout.js").read_text(encoding="utf-8")
UNFOLD = "document.querySelectorAll('details').forEach(part => { part.open = true; })"
CHARTS = ["region", "roc", "distributions", "star", "subgroups"]


class Files:
    """Pages as files, each made when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Path:
        path = self.folder / f"{name}.html"
        if not path.exists():
            path.write_text(kinds.page_of(name), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.mark.parametrize("name", kinds.NAMES)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_page_loads_quietly_and_fits(
    page: Page, files: Files, name: str, width: int, dark: bool, tmp_path: Path
) -> None:
    page.problems.clear()
    page.requests.clear()
    page.view(width, dark=dark)
    start = time.monotonic()
    page.open(files[name])
    assert page.run("document.documentElement.dataset.ready") == "yes"
    assert time.monotonic() - start < 60  # on a quiet machine it is a fraction of a second
    assert page.problems == []
    assert page.requests == [files[name].resolve().as_uri()]
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.querySelectorAll('img, iframe, object').length") == 0
    which = "narrow" if width == 390 else "wide"
    drawn = page.run(
        f"[...document.querySelectorAll('.plot svg.{which}')].filter(s => !s.closest('details'))"
        ".map(s => s.getClientRects().length && s.querySelectorAll('path, line').length)"
    )
    assert drawn and all(count > 3 for count in drawn)
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


@pytest.mark.parametrize("name", kinds.NAMES)
def test_no_text_overlaps_and_nothing_is_wider_than_the_screen(page: Page, files: Files, name: str) -> None:
    """On a desk, on a tablet, on a phone and on paper, with everything unfolded."""
    for width, media in ((1280, ""), (760, ""), (600, ""), (390, ""), (320, ""), (680, "print")):
        page.view(width, media=media)
        page.open(files[name])
        page.run(UNFOLD)
        assert page.run(FAULTS) == [], (width, media)


def test_the_layout_test_finds_faults(page: Page, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!DOCTYPE html><main><p>one</p><p style='margin-top:-1.2em'>two</p><table><caption>c</caption><tr><td>"
        "<div style='width:900px'>wide</div></td></tr></table>"
        "<svg width=200 height=40><text x=0 y=20>first</text><text x=9 y=22>second</text></svg></main>",
        encoding="utf-8",
    )
    page.view(390)
    page.open(bad)
    found = " ".join(page.run(FAULTS))
    assert "the page is" in found and "“one” and “two” overlap" in found and "“first” and “second” overlap" in found


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_the_first_screen_says_the_verdict(page: Page, files: Files, width: int, height: int) -> None:
    page.view(width, height)
    page.open(files["full"])
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    assert page.run(bottom.format(".verdict")) < height and page.run(bottom.format(".guard")) < height
    if width == 1280:
        for part in (".cards", "[data-chart=region]", ".steps"):
            assert page.run(bottom.format(part)) <= height, part


def test_a_word_is_explained_on_hover_on_tap_and_by_key(page: Page, files: Files) -> None:
    page.view(390, 844)
    page.open(files["full"])
    tip = "(() => { const t = document.getElementById('term-tip'); return t.hidden ? null : t.textContent; })()"
    link = "document.querySelector('.cards a.term[href=\"#term-delta\"]')"
    middle = "b => [b.left + b.width / 2, b.top + b.height / 2]"
    place = f"{link}.scrollIntoView({{block: 'center'}}), ({middle})({link}.getBoundingClientRect())"
    assert page.run(tip) is None
    x, y = page.run(place)
    page.mouse(x, y)
    assert page.run(tip) == TERMS["δ"].meaning
    box = page.run(
        "(() => { const b = document.getElementById('term-tip').getBoundingClientRect(); return [b.left, b.right]; })()"
    )
    assert box[0] >= 0 and box[1] <= 390
    page.mouse(1, 1)
    assert page.run(tip) is None
    page.send("Emulation.setTouchEmulationEnabled", enabled=True)
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        page.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    deadline = time.monotonic() + 10
    while page.run(tip) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert page.run(tip) == TERMS["δ"].meaning
    page.send("Emulation.setTouchEmulationEnabled", enabled=False)
    page.key("Escape")
    assert page.run(tip) is None
    page.run("document.querySelector('.cards a.term').focus({focusVisible: true})")
    assert page.run(tip)
    assert page.run("document.activeElement.getAttribute('aria-describedby').startsWith('term-')")
    assert page.run("location.hash") == ""


def middle(page: Page, chart: str, across: float, down: float) -> tuple[float, float]:
    box = page.run(
        f"(() => {{ const r = document.querySelector('[data-chart={chart}] .reader');"
        " r.scrollIntoView({block: 'center'}); const b = r.getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )
    return box[0] + across * box[2], box[1] + down * box[3]


TIP = (
    "(() => {{ const t = document.querySelector('[data-chart={0}] .tip'); return t.hidden ? null : t.textContent; }})()"
)


@pytest.mark.parametrize("width", [1280, 390])
def test_hover_shows_the_value_under_the_pointer(page: Page, files: Files, width: int) -> None:
    page.view(width)
    page.open(files["full"])
    for chart in CHARTS:
        assert page.run(TIP.format(chart)) is None
        page.mouse(*middle(page, chart, 0.6, 0.6))
        text = page.run(TIP.format(chart))
        assert text, chart
        edges = page.run(
            f"(() => {{ const b = document.querySelector('[data-chart={chart}] .tip').getBoundingClientRect();"
            " return [b.left, b.right]; })()"
        )
        assert edges[0] >= 0 and edges[1] <= width
        page.mouse(1, 1)
        assert page.run(TIP.format(chart)) is None


def test_hover_on_the_roc_curve_reads_the_curve(page: Page, files: Files) -> None:
    page.view(1280)
    page.open(files["full"])
    texts = []
    for across in np.linspace(0.2, 0.95, 6):
        page.mouse(*middle(page, "roc", float(across), 0.5))
        texts.append(page.run(TIP.format("roc")))
    assert len(set(texts)) == 6 and all("FPR" in text for text in texts)
    shown = [float(t.split("FPR ")[1].split("\u00a0")[0]) for t in texts]
    assert shown == sorted(shown)


def test_arrow_keys_walk_the_values(page: Page, files: Files) -> None:
    page.view(1280)
    page.open(files["full"])
    page.run("document.querySelector('[data-chart=subgroups] .reader').focus({focusVisible: true})")
    page.key("Home")
    first = page.run(TIP.format("subgroups"))
    page.key("ArrowRight")
    second = page.run(TIP.format("subgroups"))
    assert "under 25" in first and "class = 0" in second
    assert page.run("document.activeElement.getAttribute('aria-valuetext')") == second
    page.key("End")
    page.key("ArrowRight")
    assert "over 40" in page.run(TIP.format("subgroups"))
    page.key("Escape")
    assert page.run(TIP.format("subgroups")) is None


def test_hostile_hover_text_is_text(page: Page, files: Files) -> None:
    page.view(1280)
    page.open(files["hostile"])
    shown = []
    for height in (0.15, 0.4, 0.6, 0.85):
        page.mouse(*middle(page, "subgroups", 0.5, height))
        shown.append(page.run(TIP.format("subgroups")))
        assert page.run("document.querySelectorAll('.tip *').length") == 0
    assert any(text and "<script>" in text for text in shown)


def test_dark_and_print_change_the_charts_too(page: Page, files: Files, tmp_path: Path) -> None:
    page.view(1280)
    page.open(files["full"])
    ink = "getComputedStyle(document.querySelector('[data-chart=roc] svg.wide text')).fill"
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.run(ink), page.run(paper)
    page.view(1280, dark=True)
    assert page.run(ink) != light[0] and page.run(paper) != light[1]
    page.view(1280, dark=True, media="print")
    assert (page.run(ink), page.run(paper)) == light
    assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    page.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
    page.view(1280)


def test_text_has_enough_contrast(page: Page, files: Files) -> None:
    """WCAG 2.1 contrast of every text colour against the paper: 4.5 in light and in dark."""
    script = """(() => { const s = getComputedStyle(document.documentElement);
        return ['--paper', '--ink', '--muted', '--accent', '--warning', '--tint', '--warning-tint']
            .map(n => s.getPropertyValue(n).trim()); })()"""

    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for dark in (False, True):
        page.view(1280, dark=dark)
        page.open(files["full"])
        paper, ink, muted, accent, warning, tint, warning_tint = page.run(script)
        for text, ground in (
            (ink, paper),
            (muted, paper),
            (accent, paper),
            (muted, tint),
            (warning, warning_tint),
            (muted, warning_tint),
        ):
            a, b = sorted((luminance(text), luminance(ground)))
            assert (b + 0.05) / (a + 0.05) >= 4.5, (text, ground)
