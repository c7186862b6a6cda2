"""The experiments run, and agree with what is expected of them."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "reproduce.py"))


@pytest.mark.parametrize("paper", SCRIPT["papers"]())
def test_paper(paper: str) -> None:
    rows = SCRIPT["run"](paper)
    assert rows
    assert [row[0] for row in rows if not row[3]] == []
