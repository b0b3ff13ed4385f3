"""Provenance of a release, as SLSA states it: of which commit and with which tools its files were built.

    python .ci/provenance.py dist > provenance.json

writes an in-toto statement about every file in the folder. It goes into the folder before its checksums are
made, so that the signature of the checksums covers it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BUILD_TYPE = "urn:dataspace:make-release:1"


def digest(path: Path) -> dict[str, str]:
    """Returns the checksum of a file as in-toto writes it."""
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def git(*words: str) -> str:
    """Returns what a command of Git prints about the checkout."""
    return subprocess.run(["git", *words], cwd=TOP, check=True, capture_output=True, text=True).stdout.strip()


def statement(folder: Path) -> dict[str, object]:
    """Returns the statement about the files of a folder; ``changed`` is true for an uncommitted tree."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": digest(path)} for path in sorted(folder.iterdir())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"command": "make release"},
                "internalParameters": {"changed": bool(git("status", "--porcelain"))},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": git("rev-parse", "HEAD")}},
                    *[
                        {"name": name, "digest": digest(TOP / name)}
                        for name in ("requirements.lock", ".ci/release.txt")
                    ],
                ],
            },
            "runDetails": {
                "builder": {
                    "id": f"{BUILD_TYPE}:{platform.system().lower()}-{platform.machine()}",
                    "version": {
                        "python": platform.python_version(),
                        **{name: version(name) for name in ("setuptools", "wheel")},
                    },
                },
            },
        },
    }


if __name__ == "__main__":
    print(json.dumps(statement(Path(sys.argv[1])), indent=1))
