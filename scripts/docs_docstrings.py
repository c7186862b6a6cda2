"""For the API reference: examples that start with >>> are code, not the quotations that Markdown takes them for."""

from __future__ import annotations

import re
from typing import Any

import griffe

PROMPT = re.compile(r"^\s*(>>>|\.\.\.)")
DIRECTIVE = re.compile(r"\s*# doctest:.*$")


def fenced(text: str) -> str:
    """The docstring with every example (its prompts and the output up to the next empty line) in a code fence."""
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        if not inside and PROMPT.match(line):
            inside = True
            lines.append("```pycon")
        elif inside and not line.strip():
            inside = False
            lines.append("```")
        lines.append(DIRECTIVE.sub("", line) if inside else line)
    return "\n".join([*lines, "```"] if inside else lines)


class Examples(griffe.Extension):
    """Runs `fenced` over every docstring that is read."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
