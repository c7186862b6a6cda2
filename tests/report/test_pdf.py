"""The page as a PDF: printed whole through Chromium, or one clear sentence."""

from __future__ import annotations

import re
import stat
import zlib
from pathlib import Path

import pytest
import samples
from browser import CHROMIUM
from typer.testing import CliRunner

from dosimeter._validate import InputError
from dosimeter.cli import app
from dosimeter.report import pdf


@pytest.mark.once
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_pdf_has_the_whole_page(tmp_path: Path) -> None:
    path = tmp_path / "audit.pdf"
    samples.full().to_pdf(path)
    content = path.read_bytes()
    assert content.startswith(b"%PDF") and content.rstrip().endswith(b"%%EOF")
    pages = len(re.findall(rb"/Type\s*/Page\b", content))
    assert 4 <= pages <= 40
    assert b"/StructTreeRoot" in content, "tagged, for screen readers"
    drawn = sum(len(zlib.decompress(stream)) for stream in streams(content))
    assert drawn > 50_000


def streams(content: bytes) -> list[bytes]:
    found = re.findall(rb"/FlateDecode[^>]*>>\s*stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL)
    return [stream for stream in found if stream[:1] == b"x"]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_command_prints_a_pdf(tmp_path: Path) -> None:
    source, path = tmp_path / "audit.json", tmp_path / "audit.pdf"
    source.write_text(samples.bare().to_json(), encoding="utf-8")
    ran = CliRunner().invoke(app, ["report", str(source), "--pdf", str(path)])
    assert ran.exit_code == 0, ran.output
    assert path.read_bytes().startswith(b"%PDF") and not (tmp_path / "audit.html").exists()


def test_without_chromium_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "NAMES", ("no-such-browser",))
    monkeypatch.setattr(pdf, "PLACES", ())
    monkeypatch.delenv(pdf.BROWSER, raising=False)
    with pytest.raises(InputError, match=r"none was found; install Chromium or Chrome, set DOSIMETER_CHROMIUM"):
        pdf.print_pdf("<p>a page</p>", tmp_path / "page.pdf")
    monkeypatch.setenv(pdf.BROWSER, str(tmp_path / "missing"))
    with pytest.raises(InputError, match="which is not a program"):
        pdf.find_chromium()


def test_a_browser_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "browser"
    broken.write_text("#!/bin/sh\necho 'no display' >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv(pdf.BROWSER, str(broken))
    with pytest.raises(InputError, match=r"did not print the page .*no display"):
        pdf.print_pdf("<p>a page</p>", tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()
    with pytest.raises(InputError, match="folder that exists"):
        pdf.print_pdf("<p>a page</p>", tmp_path / "no" / "page.pdf")
