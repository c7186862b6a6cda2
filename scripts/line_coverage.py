"""Write the coverage that `make coverage` has measured into CONTRIBUTING.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = re.compile(r"(<!-- coverage -->).*?(<!-- /coverage -->)", re.DOTALL)


def main() -> None:
    """Read the total from .coverage and put it between the two marks."""
    command = [sys.executable, "-m", "coverage", "report", "--format=total", "--precision=1"]
    total = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    page = ROOT / "CONTRIBUTING.md"
    text, places = PLACE.subn(rf"\g<1>{total} %\g<2>", page.read_text(encoding="utf-8"))
    if places != 1:
        raise SystemExit("CONTRIBUTING.md must have one place <!-- coverage -->…<!-- /coverage -->")
    page.write_text(text, encoding="utf-8")
    print(f"the suite, without what is marked slow, runs {total} % of the lines and branches of dosimeter")


if __name__ == "__main__":
    main()
