"""Run the notebooks of docs/notebooks and keep what they print: `python scripts/notebooks.py [NAME …]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a fresh run in an empty folder; the first error ends it."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata = nbformat.NotebookNode()  # when each cell ran
    notebook.metadata.pop("language_info", None)
    return notebook


if __name__ == "__main__":
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        path = FOLDER / f"{name}.ipynb"
        nbformat.write(executed(path), path)
        print(f"written: {path}", file=sys.stderr)
