"""The port of an archive, as a log reads it: the epochs that it does not hold any more.

An archive (``relay/archive``) goes on where the log ends: what a manifest names may be deleted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from relay.log.segments import Segment
from relay.store.ports import Start


class ArchivedEpochs(Protocol):
    """The archived epochs of one log.  Any number of threads may read; calls block, properties do not.

    Raises ``Refused("archive-away")`` if the archive cannot be reached, ``LogDamaged`` if it was altered.
    """

    @property
    def oldest(self) -> int:
        """Returns the oldest epoch from which on all are there."""

    @property
    def upto(self) -> int:
        """Returns the newest archived epoch that is known here, 0 if there is none."""

    @property
    def erased(self) -> int:
        """Returns the newest epoch that an erasure reached, or 0: up to it only the archive is read."""

    def erased_at(self, after: int = 0, upto: int | None = None) -> int:
        """Returns when rows near epochs in (after, upto] were erased last, in microseconds since 1970."""

    def renew(self) -> None:
        """Finds out what is archived now."""

    def starts(self) -> list[Start]:
        """Returns the starts of the log within the archive, by ``first``."""

    def segments(self, after: int, upto: int) -> Iterator[Segment]:
        """Yields the segments with epochs in (after, upto], in order, checked."""

    def segments_after(self, epoch: int) -> int:
        """Returns about how many segments have later epochs."""

    def time_of(self, epoch: int) -> int:
        """Returns the time of an epoch, or of the newest before it; 0 before all."""

    def epoch_at(self, time: int) -> int:
        """Returns the newest epoch that was made at a time or before it, one less than the oldest if none."""
