"""The chain: segments, each sealed to the one before.

The chain finds segments by epoch, returns them in order, and checks the seal of each on the way, so that no
reader gets what was altered.  The tables of a store may have several chains, each under a key: the log of a
space is the chain under 0, a durable topic the chain under its slot.  The log decides what an epoch number is
worth and what to do about damage.

Always: segments are handed out as they were written, each after its predecessor; memory is bounded by the
bytes that a reader fetches at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Protocol

from dataspace.errors import Refused
from relay.log.segments import CHECKSUM_BYTES, Segment
from relay.store.header import refuse
from relay.store.ports import KEY_BITS, ChainEnds, ChainHead, ChainTables, Row, Start

READ_BYTES: Final = 256 << 10
READ_SEGMENTS: Final = 256
"""What a reader fetches at once: segments up to so many, and up to about so many bytes."""


class ArchivedEpochs(Protocol):
    """What a log asks of its archive (``relay/archive``): the epochs before its chain, and the erased ones.

    Any number of threads may read; calls block, properties do not.  Raises ``Refused("archive-away")`` if the
    archive cannot be reached, ``LogDamaged`` if it was altered.
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


class Chain:
    """The segments under one key.

    ``first`` and ``last`` are the ordinals of the oldest and the newest segment (``last`` is one less than
    ``first`` if there is none), ``epoch`` is the newest epoch, ``checksum`` seals the newest segment.
    ``anchor`` is the checksum of the segment before the oldest, ``end`` an ordinal beyond all of this key.
    """

    def __init__(self, tables: ChainTables, anchor: bytes = bytes(CHECKSUM_BYTES), key: int = 0) -> None:
        self._tables = tables
        self._before, self.end = key << KEY_BITS, (key + 1) << KEY_BITS
        self._of, self._unit = (f" of slot {key}", "step") if key else ("", "epoch")
        self._key = key
        self.read: tuple[int, bytes] = (0, b"")
        """The newest segment that ``tail`` or a state was read up to, and its checksum."""
        self.trimmed_elsewhere: Callable[[], bool] = _never
        """Called before damage is reported: True if another process has deleted segments, and ``renew`` has
        noted that."""
        self.renew(tables.ends(key), anchor)

    def renew(self, ends: ChainEnds | None, anchor: bytes) -> None:
        """Takes over where the chain begins and ends; another process may write it."""
        found = ends or ChainEnds(self._before + 1, self._before, 0, anchor)
        self.anchor = anchor
        self.first: int = found.oldest
        self.last: int = found.newest
        self.epoch: int = found.last
        self.checksum: bytes = found.checksum

    # -- writing --------------------------------------------------------------------------------------

    def extended(self, newest: Segment) -> None:
        """Notes that the transaction is on disk."""
        self.last, self.epoch, self.checksum = newest.ordinal, newest.last, newest.checksum

    @contextmanager
    def dropping(self, ordinal: int) -> Iterator[None]:
        """Hides segments before this ordinal from readers until they are deleted, or the block raises."""
        before = self.first, self.anchor
        self.first, self.anchor = ordinal, self.checksum_of(ordinal - 1)
        try:
            yield
        except BaseException:
            self.first, self.anchor = before
            raise

    # -- reading --------------------------------------------------------------------------------------

    def walk(
        self,
        ordinal: int,
        upto: int | None = None,
        *,
        found: Callable[[str], None] = refuse,
        limit: int = READ_SEGMENTS,
        seal: bytes | None = None,
    ) -> Iterator[Segment]:
        """Yields the segments from an ordinal on that begin no later than epoch ``upto``.

        Damage goes to ``found`` as text; if that returns, the segment is passed over.  At most ``limit``
        are fetched at once.  The one beyond the end is read, too, lest its number be altered.  ``seal`` is
        the checksum that the segment before had when the caller read it.
        """
        place, anchor = self._tables.place, self.anchor
        previous = self.checksum_of(ordinal - 1)
        if seal is not None and previous != seal and self.trimmed_elsewhere():
            anchor = self.anchor
            self._check_held(ordinal)
            previous = self.checksum_of(ordinal - 1)
        if seal is not None and previous != seal:
            found(f"{place}: {self._named(ordinal - 1)}, which was read before, is gone or another one")
        while fetched := self._tables.fetch(ordinal, upto, limit, READ_BYTES):
            for row in fetched:
                segment = Segment(*map(_of_kind, _KINDS, row))
                self._check_held(ordinal)
                as_it_should = segment.ordinal == ordinal and segment.sealed_by(previous)
                if not as_it_should and (self.trimmed_elsewhere() or self.anchor != anchor):
                    # by now, or since this began, as another thread may have noted
                    anchor = self.anchor
                    self._check_held(ordinal)
                    previous = self.checksum_of(ordinal - 1)
                if segment.ordinal != ordinal:
                    found(f"{place}: {self._named(ordinal)}, before {self._unit} {segment.first}, is gone")
                elif as_it_should or segment.sealed_by(previous):
                    if upto is not None and segment.first > upto:
                        return
                    yield segment
                else:
                    numbers = f"{self._unit}s {segment.first} to {segment.last}"
                    found(f"{place}: {self._named(ordinal)} with {numbers} was altered")
                ordinal, previous = segment.ordinal + 1, segment.checksum

        self._check_held(ordinal)  # that there is nothing may be because it went

    def tail(self, ordinal: int, size: int) -> list[Segment]:
        """Returns the segments after an ordinal, in order and checked; none if there are none yet.

        It reads what another process has appended since: up to about ``size`` bytes, one segment at least.
        The chain extends to the newest of them.  Raises ``Refused("epoch-gone")`` if the next one was
        deleted, and ``LogDamaged`` if the one before it is not what was read before.
        """
        found: list[Segment] = []
        seal = self.read[1] if ordinal and ordinal == self.read[0] else None
        for segment in self.walk(ordinal + 1, seal=seal):
            found.append(segment)
            size -= len(segment.body)
            if size <= 0:
                break
        if found:
            self.read = found[-1].ordinal, found[-1].checksum
            if found[-1].ordinal > self.last:
                self.extended(found[-1])
        return found

    def after(self, epoch: int, upto: int) -> Iterator[Segment]:
        """Returns the segments that hold the epochs in (epoch, upto], and more at both ends.

        Their beginning is looked up at once: a segment that is deleted later is missed, and refused, when it
        is read.
        """
        return self._from(self.beyond(epoch), epoch, upto)

    def _from(self, ordinal: int, epoch: int, upto: int) -> Iterator[Segment]:
        at = epoch
        for segment in self.walk(ordinal, upto):
            if at == epoch and segment.first > epoch + 1:
                self.check_found(ordinal, attrgetter("last"), epoch + 1)
            at = segment.last
            yield segment
        if at == epoch:
            self.check_found(ordinal, attrgetter("last"), epoch + 1)

    def check_found(self, ordinal: int, number: Callable[[Segment], int], least: int) -> None:
        """Raises ``LogDamaged`` if an earlier segment has a number of at least so much.

        Then an altered segment has misled the search that found the ordinal.
        """
        try:
            for segment in islice(self.walk(ordinal - 1, limit=1), 1 if ordinal > self.first else 0):
                if number(segment) >= least:
                    refuse(f"{self._tables.place}: {self._named(ordinal - 1)}, or one after it, was altered")
        except Refused:
            pass  # it has just been deleted, so no reader needs it

    def _named(self, ordinal: int) -> str:
        return f"segment {ordinal - self._before}{self._of}"

    def _check_held(self, ordinal: int) -> None:
        if ordinal < self.first:
            raise Refused(
                "epoch-gone", f"{self._named(ordinal)} was deleted while it was read: it is past retention"
            )

    def backwards(self, upto: int | None = None) -> Iterator[Segment]:
        """Yields all segments, the newest first, beginning at the segment that ends epoch ``upto`` if that is
        given."""
        last = self.last if upto is None else min(self.last, self.beyond(upto))
        for ordinal in range(last, self.first - 1, -1):
            yield from islice(self.walk(ordinal, limit=1), 1)

    def beyond(self, epoch: int) -> int:
        """Returns the ordinal of the first segment with an epoch later than this; O(log segments)."""
        return self._found(self._tables.first_by_last, epoch + 1)

    def first_needed(self, oldest: int, snapshot: int) -> int:
        """Returns the ordinal of the first segment that is still needed; O(log segments).

        They are needed for the epochs from ``oldest`` on, and for a start, which goes on after the segment of
        the snapshot (0 without a snapshot): a silent entry has the number of the epoch before it, so a silent
        entry written after the snapshot may belong to a deleted epoch.
        """
        return max(self.first, min(self.beyond(oldest - 1), snapshot + 1))

    def checksum_of(self, ordinal: int) -> bytes:
        """Returns the checksum of a segment; the anchor for a segment that is not there."""
        found = self._tables.checksum_of(ordinal)
        return self.anchor if found is None else found

    def head_of(self, ordinal: int) -> ChainHead:
        """Returns the newest epoch of a segment, its time, and the checksum."""
        return self._tables.head_of(ordinal)

    def since(self, time: int) -> int:
        """Returns the ordinal of the first segment with an epoch as late as this; O(log segments)."""
        return self._found(self._tables.first_by_until, time)

    def _found(self, search: Callable[[int, int, int], int], number: int) -> int:
        """Returns what a search among all segments finds; a segment that is deleted meanwhile misleads it."""
        while True:
            first = self.first
            found = search(first, self.last + 1, number)
            if self.first == first:
                return found

    def used(self) -> int:
        """Returns the bytes of the store that are in use, snapshots included; O(1)."""
        return self._tables.used()

    def behind(self, epoch: int) -> tuple[int, int]:
        """Returns how many changes there are after an epoch, and the time of the first epoch after it.

        0 and 0 if there is none.  O(segments), and reads one of them.
        """
        ordinal, changes, time = self.beyond(epoch), 0, 0
        for segment in islice(self.walk(ordinal, limit=1), 1):
            for _, at, counts, _, _ in segment.rows_after(epoch, segment.last):
                changes, time = changes + sum(counts), time or at
            changes += self._tables.changes_between(ordinal + 1, self.last + 1)
        return changes, time

    def bytes_between(self, first: int, beyond: int) -> int:
        """Returns the bytes of the segments from one ordinal up to before another; O(those)."""
        return self._tables.bytes_between(first, beyond)

    def portion(self, beyond: int, limit: int) -> tuple[int, int]:
        """Returns where the oldest segments of about ``limit`` bytes end, before an ordinal, and their bytes.

        O(those).
        """
        return self._tables.portion(self.first, beyond, limit)

    def counts(self) -> tuple[int, int]:
        """Returns how many segments and changes there are; O(segments)."""
        return self._tables.counts(self._key)


def rows_of_segments(segments: Iterable[Segment]) -> list[Row]:
    """Returns segments as the rows that tables of a store write."""
    return list(map(_COLUMNS, segments))


_COLUMNS: Final = attrgetter(*[each.name for each in fields(Segment)])
_KINDS: Final = (int, int, int, int, int, int, int, bytes, bytes)


def _of_kind(kind: type, value: Any) -> Any:
    """Returns a column as it was written.

    An altered one of another type becomes the empty value of its type, so that the seal does not fit.
    """
    return value if value.__class__ is kind else kind()


def _never() -> bool:
    return False
