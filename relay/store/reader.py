"""Store reader: opens a SQLite file and the acknowledged mark beside it, changing nothing.

The log of a space and the journal of topics have different tables, but are opened, checked for their format
and closed in the same way, beside a daemon that writes them, from a copy, or from a read-only disk.

Always: the mark is read before the file, which is never behind it; a file of another format is refused.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from relay.store.acknowledged import AcknowledgedFile, AcknowledgedMark
from relay.store.errors import LogDamaged
from relay.store.storage import Storage, closed_on_failure

logger = logging.getLogger("dataspace")


class StoreReader(ABC):
    """One file to read from.  Any number of threads may; all calls block."""

    FILE: ClassVar[str]
    """Name of the file in the data directory."""

    MARK: ClassVar[str]
    """Name of the file of its acknowledged mark."""

    _accept_damage = False
    _faced = False
    """True once a damage was accepted."""

    def __init__(self, storage: Storage, mark: AcknowledgedMark) -> None:
        self._storage = storage
        self._acknowledged = mark

    def _face(self, damage: str) -> None:
        """Raises ``LogDamaged``, unless the operator has accepted the damage."""
        if not self._accept_damage:
            raise LogDamaged(f"{damage}; accept the damage to continue without what is missing")
        logger.warning("%s; continuing without it, since the damage is accepted", damage)
        self._faced = True

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Opens the file in a directory to read it, changing nothing; ``LogFailed`` if there is none."""
        mark = AcknowledgedFile.read(directory / cls.MARK)  # before the file, which is ahead of it
        storage = Storage(directory / cls.FILE)
        with closed_on_failure(storage):
            return cls(storage, mark)

    @abstractmethod
    def shortfall(self) -> str:
        """Returns what was acknowledged and is missing, in words; empty if nothing is."""

    def size(self) -> int:
        """Returns the bytes on disk, the write-ahead log included."""
        return self._storage.size()

    def used(self) -> int:
        """Returns the bytes of the file that are in use; O(1)."""
        return self._storage.used()

    def close(self) -> None:
        """Closes the file."""
        self._storage.close()
