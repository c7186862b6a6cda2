"""A page as a PDF, printed by the Chromium that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from dosimeter import _files
from dosimeter import _validate as check
from dosimeter._validate import InputError

BROWSER = "DOSIMETER_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge", "msedge")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
SECONDS = 120
QUIET = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--disable-extensions",
    "--disable-sync",
    "--disable-component-update",
    "--disable-background-networking",
    "--no-first-run",
    "--no-pdf-header-footer",
)


def find_chromium() -> str:
    """The browser that prints: DOSIMETER_CHROMIUM, or the first that is installed.

    Raises:
        InputError: If there is none.
    """
    named = os.environ.get(BROWSER)
    if named:
        program = shutil.which(named)
        if program is None:
            raise InputError(f"{BROWSER} names {check.show(named)}, which is not a program; set it to a Chromium.")
        return program
    for name in (*NAMES, *PLACES):
        if (program := shutil.which(name)) is not None:
            return program
    raise InputError(
        f"a PDF is printed by Chromium, and none was found; install Chromium or Chrome, set {BROWSER} to its path, or "
        "write the page with to_html and print it from any browser."
    )


def print_pdf(page: str, path: str | os.PathLike[str]) -> Path:
    """Print a page to a file.

    Raises:
        InputError: If there is no Chromium, it fails, or the folder of the file does not exist.
    """
    target = Path(path)
    if not target.parent.is_dir() or target.is_dir():
        raise InputError(f"path {check.show(str(path))} cannot be written: give a file name in a folder that exists.")
    browser = find_chromium()
    with tempfile.TemporaryDirectory(prefix="dosimeter-pdf-", ignore_cleanup_errors=True) as scratch:
        source, made = Path(scratch, "page.html"), Path(scratch, "page.pdf")
        source.write_text(page, encoding="utf-8")
        root = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()  # Chromium refuses root
        options = (*QUIET, *root, f"--user-data-dir={scratch}/profile", f"--print-to-pdf={made}")
        try:
            run = subprocess.run(
                [browser, *options, source.as_uri()], capture_output=True, timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{browser} did not print the page ({type(error).__name__}); print it by hand.") from None
        if run.returncode != 0 or not made.is_file() or not made.read_bytes().startswith(b"%PDF"):
            last = run.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise InputError(f"{browser} did not print the page ({check.show(' '.join(last))}); print it by hand.")
        with _files.naming(target):
            shutil.copyfile(made, target)
    return target
