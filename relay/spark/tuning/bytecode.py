"""Bytecode: PySpark as Spark's Python processes import it, compiled once instead of at every start.

A pip installation has PySpark twice: as files, which Python compiles once, and as ``pyspark.zip``, which
Spark puts at the head of the path of all Python processes that it starts, and which holds sources alone.  So
each of them compiles some 200 modules before it says a word: 0.8 of its 1.4 s of CPU time.  Processes that
plan a stream and run ``foreachBatch`` are given ten seconds to answer, which no setting changes; on a busy
machine some do not (``Python worker failed to connect back``).

    python -m dataspace.spark bytecode

puts the compiled modules into the archives beside their sources, where Python looks for them first.  It is
apart from everything else because it changes an installation, which nothing else here does.

Always: the members of an archive keep their places, so that processes that have it open go on; an archive is
replaced whole or not at all; another Python takes the sources, as before.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode, PyCompileError, compile
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from dataspace.errors import UsageError


def archives() -> list[Path]:
    """The archives from which Spark's Python processes import, in this installation of PySpark."""
    found = find_spec("pyspark")
    if found is None or not isinstance(found.loader, SourceFileLoader):
        raise UsageError("no PySpark that was installed by pip: it is the extra `spark` of dataspace-server")
    from relay.spark.tuning.internals import is_known, written_for

    if not is_known():
        raise UsageError(f"PySpark is another than {written_for()}: its archives stay as they are")
    return sorted((Path(found.loader.path).parent / "python" / "lib").glob("*.zip"))


def add_bytecode(archive: Path) -> int:
    """Adds what an archive's sources compile to; how many there were without, and none the next time.

    ``UsageError`` for a file that may not be written, or is no archive.  Takes seconds: O(sources).
    """
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            scratch_copy = Path(scratch) / archive.name
            shutil.copy2(archive, scratch_copy)
            ZipFile(scratch_copy).close()  # "a" would begin a new one where there is none
            with ZipFile(scratch_copy, "a", ZIP_DEFLATED) as copy:
                count = sum(1 for _ in _added(copy, archive, Path(scratch)))
            if count:
                os.replace(scratch_copy, archive)
            return count
    except (OSError, BadZipFile) as error:
        raise UsageError(f"no bytecode for {archive}: {error}") from error


def _added(copy: ZipFile, archive: Path, scratch: Path) -> Iterator[str]:
    """Writes the compiled form of each source that has none into the copy; their names."""
    there = set(copy.namelist())
    source, compiled = scratch / "source.py", scratch / "compiled.pyc"
    for name in sorted(there):
        if name.endswith(".py") and f"{name}c" not in there and "/tests/" not in name:
            source.write_bytes(copy.read(name))
            try:
                compile(
                    str(source),
                    cfile=str(compiled),
                    dfile=f"{archive}/{name}",
                    doraise=True,
                    invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,  # both are replaced as one file
                )
            except PyCompileError:
                continue  # for another Python: an import raises its error
            copy.write(compiled, f"{name}c")
            yield name


def main() -> int:
    """Adds bytecode to all archives of this installation, and says how much."""
    try:
        for archive in archives():
            print(f"{archive}: {add_bytecode(archive)} modules compiled")
    except UsageError as error:
        print(f"dataspace: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
