"""For `mkdocs`: the benchmark page shows every table of the benchmarks, and formulas between dollars are typeset.

Formulas become MathML when the site is built: browsers show it without a script, so nothing is fetched from a network.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

ROOT = Path(__file__).parent.parent
PLACE = "<!-- tables of bench/ -->"
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\w\\$])\$(?=\S)([^$\n]+?)(?<=\S)\$(?![\w$])", re.DOTALL)


def tables() -> str:
    """The result files of bench/ one after another, their headings one level lower."""
    pages = [page for page in sorted((ROOT / "bench").glob("*.md")) if page.name != "README.md"]
    texts = [page.read_text(encoding="utf-8") for page in sorted(pages, key=lambda page: page.name != "results.md")]
    return "\n\n".join(re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE) for text in texts)


def typeset(markdown: str) -> str:
    """Formulas between one or two dollars as MathML; code stays as it is."""
    parts = CODE.split(markdown)
    return "".join(part if CODE.fullmatch(part) else FORMULA.sub(_mathml, part) for part in parts)


def _mathml(found: re.Match[str]) -> str:
    block = found[1] is not None
    return convert((found[1] or found[2]).strip(), display="block" if block else "inline").replace("\n", "")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the tables where the page asks for them, and typeset its formulas."""
    return typeset(markdown.replace(PLACE, tables()))
