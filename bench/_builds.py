"""The compiled build, made for a measurement and put into a folder of its own.

    python -m bench._builds FOLDER

leaves it there, for ``make demo COMPILED=1``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parents[1]


def install_compiled(site: Path) -> None:
    """Builds and installs the compiled package into a folder; needs a C compiler, and takes minutes."""
    with tempfile.TemporaryDirectory(prefix="dataspace-compiled-") as place:
        source = Path(place)
        for name in ("index", "dataspace", "relay", "server"):
            shutil.copytree(TOP / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "setup.py", "relocate.py", "README.md", "LICENSE"):
            shutil.copy(TOP / name, source)
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-index", "--no-deps"]
        subprocess.run(
            [*pip, "--no-build-isolation", "--upgrade", "--target", str(site), str(source)],
            check=True,
            env={**os.environ, "DATASPACE_COMPILE": "1"},
        )


def environment(site: Path) -> dict[str, str]:
    """Returns the variables with which any Python finds that package, wherever it is started."""
    return {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}


if __name__ == "__main__":
    install_compiled(Path(sys.argv[1]).resolve())
