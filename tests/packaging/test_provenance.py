"""The provenance of a release names each of its files, the commit, and the locks that it was built with."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from tests.packaging.project import TOP


def test_it_is_a_statement_about_every_file(tmp_path: Path) -> None:
    for name in ("b.whl", "a.tar.gz"):
        (tmp_path / name).write_text(name)
    command = [sys.executable, str(TOP / ".ci" / "provenance.py"), str(tmp_path)]
    made = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert made["subject"] == [
        {"name": name, "digest": {"sha256": hashlib.sha256(name.encode()).hexdigest()}}
        for name in ("a.tar.gz", "b.whl")
    ]
    source, *locks = made["predicate"]["buildDefinition"]["resolvedDependencies"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=TOP, check=True, capture_output=True, text=True)
    assert source["digest"] == {"gitCommit": head.stdout.strip()}
    for each in locks:
        assert each["digest"] == {"sha256": hashlib.sha256((TOP / each["name"]).read_bytes()).hexdigest()}


def test_a_release_has_it_below_its_signed_checksums() -> None:
    script = (TOP / ".ci" / "release").read_text()
    made, summed, signed = (
        script.index(f"\n{each}")
        for each in ('"$python" .ci/prov', "(cd dist", 'if [ -n "${SIGN:-}" ]; then\n  ssh-keygen')
    )
    assert made < summed < signed
