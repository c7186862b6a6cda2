"""Build wheel and sdist into dist/, install the wheel in a clean environment, and run the demo and a self-test there.

Nothing of the checkout is on the path of that environment, so a file that the wheel lacks is noticed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def run(*command: str | Path, folder: Path) -> None:
    """Run a command outside of the checkout; stop if it fails."""
    print("$", " ".join(Path(part).name if isinstance(part, Path) else part for part in command), flush=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([str(part) for part in command], cwd=folder, env=clean, check=True)


def main() -> None:
    """Build, install, try."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="dosimeter-dist-") as name:
        folder = Path(name)
        tools, clean = folder / "tools", folder / "clean"
        for place in (tools, clean):
            venv.create(place, with_pip=True)
        run(tools / "bin" / "python", "-m", "pip", "install", "--quiet", "build", folder=folder)
        run(tools / "bin" / "python", "-m", "build", "--outdir", str(DIST), str(ROOT), folder=folder)
        (wheel,) = DIST.glob("*.whl")
        run(clean / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[report]", folder=folder)
        command = clean / "bin" / "dosimeter"
        run(command, "--version", folder=folder)
        run(command, "run", "--list", folder=folder)
        run(command, "demo", "--folder", ".", folder=folder)
        run(command, "selftest", "--quick", folder=folder)
        for page in ("audit.html", "compare.html"):
            assert (folder / page).stat().st_size > 10_000, f"the demo wrote no {page}"
    for file in sorted(DIST.iterdir()):
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    sys.exit(main())
