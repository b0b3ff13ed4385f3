"""Bytecode goes into an archive beside its sources: it is what Python takes, and nothing else has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from dataspace.errors import UsageError
from relay.spark.tuning.bytecode import add_bytecode, archives

SOURCES = {
    "kit/__init__.py": "from kit.deep.part import FOUND\n",
    "kit/deep/__init__.py": "",
    "kit/deep/part.py": "FOUND = __spec__.origin\n",
    "kit/new.py": "match = ]\n",
    "kit/tests/test_kit.py": "",
    "notes.txt": "no source\n",
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "kit.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as made:
        for name, text in SOURCES.items():
            made.writestr(name, text)
    return path


def imported(archive: Path, module: str) -> str:
    """From which file Python imports a module, with an archive on its path."""
    asked = f"import {module}; print({module}.__file__)"
    run = subprocess.run([sys.executable, "-c", asked], env={"PYTHONPATH": str(archive)}, capture_output=True)
    return run.stdout.decode().strip() or run.stderr.decode().strip().splitlines()[-1]


def test_python_imports_what_was_compiled(archive: Path) -> None:
    before = imported(archive, "kit.deep.part")
    assert add_bytecode(archive) == 3, "what does not compile is left as it is"
    assert (before, imported(archive, "kit.deep.part")) == (
        f"{archive}/kit/deep/part.py",
        f"{archive}/kit/deep/part.pyc",
    )
    assert imported(archive, "kit.new").startswith("SyntaxError")


def test_what_was_there_stays_where_it_was(archive: Path) -> None:
    """A process that has read the archive's directory finds everything in its place."""
    with ZipFile(archive) as before:
        places = {each.filename: (each.header_offset, each.CRC) for each in before.infolist()}
    add_bytecode(archive)
    with ZipFile(archive) as after:
        now = {each.filename: (each.header_offset, each.CRC) for each in after.infolist()}
        assert after.testzip() is None
    assert places.items() <= now.items()
    assert sorted(now.keys() - places.keys()) == [
        "kit/__init__.pyc",
        "kit/deep/__init__.pyc",
        "kit/deep/part.pyc",
    ]


def test_a_second_time_changes_nothing(archive: Path) -> None:
    add_bytecode(archive)
    file = archive.stat()
    assert add_bytecode(archive) == 0
    assert (archive.stat().st_ino, archive.stat().st_size) == (file.st_ino, file.st_size)
    assert list(archive.parent.iterdir()) == [archive]


def test_what_is_no_archive_is_named_and_left_alone(tmp_path: Path) -> None:
    archive = tmp_path / "kit.zip"
    archive.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(UsageError, match=r"no bytecode for .*kit\.zip"):
        add_bytecode(archive)
    assert archive.read_bytes() == b"PK\x03\x04 and then nothing"


def test_the_archives_are_those_from_which_sparks_processes_import() -> None:
    pyspark = pytest.importorskip("pyspark")
    folder = Path(pyspark.__file__).parent / "python" / "lib"
    assert folder / "pyspark.zip" in archives()
    assert all(each.parent == folder for each in archives())
