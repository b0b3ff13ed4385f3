"""Store reader: tables to read from, and the acknowledged mark that they must not fall short of.

The log of a space and the journal of topics have different tables, but damage is accepted, and the tables are
measured and closed, in the same way.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeVar

import trio

from relay.store.errors import LogDamaged
from relay.store.ports import AcknowledgedMark, ChainTables

logger = logging.getLogger("dataspace")


T = TypeVar("T")
Tables = TypeVar("Tables", bound=ChainTables)


class StoreReader(ABC, Generic[Tables]):
    """Tables to read from.  Any number of threads may; all calls but ``asked`` block."""

    FILE: ClassVar[str]
    """Name of the file in a data directory."""

    MARK: ClassVar[str]
    """Name of the file of its acknowledged mark."""

    _accept_damage = False
    _faced = False
    """True once a damage was accepted."""

    def __init__(self, tables: Tables) -> None:
        self._tables: Final = tables
        self.may_wait: Final = tables.may_wait
        """True if an answer may take long, so that the loop's own thread asks and writes nothing."""
        self._acknowledged: AcknowledgedMark = tables.mark

    async def asked(self, question: Callable[[], T]) -> T:
        """Returns the answer to a question about the tables, from a thread where that may take long."""
        return await trio.to_thread.run_sync(question) if self.may_wait else question()

    def _face(self, damage: str) -> None:
        """Raises ``LogDamaged``, unless the operator has accepted the damage."""
        if not self._accept_damage:
            raise LogDamaged(f"{damage}; accept the damage to continue without what is missing")
        logger.warning("%s; continuing without it, since the damage is accepted", damage)
        self._faced = True

    def check(self, *, accept_damage: bool) -> None:
        """Raises ``LogDamaged`` if less is there than was acknowledged, unless that is accepted."""
        self._accept_damage = accept_damage
        if shortfall := self.shortfall():
            self._face(f"{self._tables.place}: {shortfall}")

    @abstractmethod
    def shortfall(self) -> str:
        """Returns what was acknowledged and is missing, in words; empty if nothing is."""

    def size(self) -> int:
        """Returns the bytes on disk, those included that are not in their place yet."""
        return self._tables.size()

    def used(self) -> int:
        """Returns the bytes that are in use; O(1)."""
        return self._tables.used()

    def close(self) -> None:
        """Closes the tables."""
        self._tables.close()
