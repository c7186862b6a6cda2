"""For `mkdocs`: the benchmark page shows every table that the benchmarks have written, so none can be forgotten."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PLACE = "<!-- tables of bench/ -->"


def tables() -> str:
    """The result files of bench/ one after another, their headings one level lower."""
    pages = [page for page in sorted((ROOT / "bench").glob("*.md")) if page.name != "README.md"]
    texts = [page.read_text(encoding="utf-8") for page in sorted(pages, key=lambda page: page.name != "results.md")]
    return "\n\n".join(re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE) for text in texts)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the tables where the page asks for them."""
    return markdown.replace(PLACE, tables())
