"""Compacting: the file of durable topics without the holes that trimming and ended topics have left.

SQLite writes the file anew, in one transaction, so a crash leaves the old one or the new one.  It needs the
journal for itself, and room for the retained steps.

Always: the new file answers every question as the old one did; a file that is not whole is left unchanged.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from relay.journal.reader import JournalReader
from relay.journal.rows import SCHEMA
from relay.journal.verification import verify_topics
from relay.store.errors import LogDamaged
from relay.store.storage import Storage


def compact_topics(directory: Path) -> tuple[int, int] | None:
    """Rewrites the journal in a directory, if there is one: bytes before and after; O(journal).

    Raises ``LogDamaged`` if it is not whole, ``LogFailed`` if the disk refuses; then nothing has changed.
    """
    found = verify_topics(directory)
    if found is None:
        return None
    for damage in found.damages:
        raise LogDamaged(damage)
    path = directory / JournalReader.FILE
    with closing(Storage(path, SCHEMA)) as storage:
        before = storage.size()
        storage.vacuum()
    return before, path.stat().st_size
