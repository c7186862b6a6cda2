"""The words that pages explain are those of the glossary, with the same definitions."""

from __future__ import annotations

import re
from pathlib import Path

from dosimeter.audits.page.appendix import FIELDS
from dosimeter.report.glossary import TERMS
from dosimeter.report.markup import explained

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"


def plain(cell: str) -> str:
    """A cell of the table without its markup."""
    cell = cell.replace(r"$e^{\varepsilon}$", "e^ε")
    cell = re.sub(r" ?\(?\[[^\]]*\]\([^)]*\)\)?", "", cell)
    return re.sub(r"(?<!\\)\*|`", "", cell).replace("\\*", "*").strip()


def test_the_page_and_the_glossary_agree() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    written = {plain(word): plain(meaning) for word, meaning in rows}
    assert len(written) == len(rows) > len(TERMS) > 25
    for word, term in TERMS.items():
        assert written[word] == term.meaning, word


def test_no_form_belongs_to_two_words() -> None:
    forms = [form for term in TERMS.values() for form in term.forms]
    assert len(forms) == len(set(forms))


def test_a_text_explains_each_word_once_and_stays_escaped() -> None:
    text = explained("The bound <b>: a bound on ε of non-members & members, with ε.")
    assert "&lt;b&gt;" in text and "&amp;" in text
    assert text.count('href="#term-bound"') == 1 and text.count('href="#term-privacy-loss"') == 1
    assert text.count('href="#term-non-member"') == 1 and text.count('href="#term-member"') == 1
    assert ">non-members</a>" in text and "bounded" not in text


def test_the_documented_keys_are_those_of_the_page() -> None:
    text = (GLOSSARY.parent / "page.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (.+?) \| (`.+`) \|$", text[text.index("<!-- nist -->") : text.index("<!-- /nist -->")], re.MULTILINE
    )
    assert [(field, tuple(re.findall(r"`(\w+)`", keys))) for field, keys in rows] == list(FIELDS)
