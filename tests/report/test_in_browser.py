"""The page in headless Chromium: drawn, quiet, self-contained, and it answers the pointer and the keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import samples
from browser import CHROMIUM, Page, browser

from dosimeter.audits import page as audit_page
from dosimeter.audits.compare.page import compare_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

CHARTS = ["region", "roc", "distributions", "star", "subgroups"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, audit in (
        ("full", samples.full()),
        ("bare", samples.bare()),
        ("hostile", samples.hostile()),
        ("shifted", samples.shifted()),
    ):
        found[name] = audit_page.write_html(audit, folder / f"{name}.html")
    found["compared"] = folder / "compared.html"
    audits = [samples.bare(1.0), samples.full()]
    found["compared"].write_text(compare_page(audits, ["a", "b"], [0.9, 0.8]), encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.mark.parametrize("name", ["full", "bare", "hostile", "shifted", "compared"])
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_page_loads_quietly_and_fits(
    page: Page, files: dict[str, Path], name: str, width: int, dark: bool, tmp_path: Path
) -> None:
    page.problems.clear()
    page.requests.clear()
    page.view(width, dark=dark)
    start = time.monotonic()
    page.open(files[name])
    assert page.run("document.documentElement.dataset.ready") == "yes"
    assert time.monotonic() - start < 2
    assert page.problems == []
    assert page.requests == [files[name].resolve().as_uri()]
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.querySelectorAll('img, iframe, object').length") == 0
    which = "narrow" if width == 360 else "wide"
    drawn = page.run(
        f"[...document.querySelectorAll('.plot svg.{which}')]"
        ".map(s => s.getClientRects().length && s.querySelectorAll('path, line').length)"
    )
    assert drawn and all(count > 3 for count in drawn)
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


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


@pytest.mark.parametrize("width", [1280, 360])
def test_hover_shows_the_value_under_the_pointer(page: Page, files: dict[str, Path], width: int) -> None:
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


def test_hover_on_the_roc_curve_reads_the_curve(page: Page, files: dict[str, Path]) -> None:
    page.view(1280)
    page.open(files["full"])
    texts = []
    for across in np.linspace(0.2, 0.95, 6):
        page.mouse(*middle(page, "roc", float(across), 0.5))
        texts.append(page.run(TIP.format("roc")))
    assert len(set(texts)) == 6 and all("FPR" in text for text in texts)
    shown = [float(t.split("FPR ")[1].split("\u00a0")[0]) for t in texts]
    assert shown == sorted(shown)


def test_arrow_keys_walk_the_values(page: Page, files: dict[str, Path]) -> None:
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


def test_hostile_hover_text_is_text(page: Page, files: dict[str, Path]) -> None:
    page.view(1280)
    page.open(files["hostile"])
    shown = []
    for height in (0.15, 0.4, 0.6, 0.85):
        page.mouse(*middle(page, "subgroups", 0.5, height))
        shown.append(page.run(TIP.format("subgroups")))
        assert page.run("document.querySelectorAll('.tip *').length") == 0
    assert any(text and "<script>" in text for text in shown)


def test_dark_and_print_change_the_charts_too(page: Page, files: dict[str, Path], tmp_path: Path) -> None:
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


def test_text_has_enough_contrast(page: Page, files: dict[str, Path]) -> None:
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
