"""Staging: batches that writers have sent, but that are not published yet.

A bulk writer works in several processes that may each fail and be run again.  Their output is kept here under
keys of theirs, on disk, until it is published as one turn or discarded.  It has a table of its own, apart
from the log's: its bulk comes and goes and must not hold up a turn, and a log can be copied or verified
without it.

A staged batch belongs to its *stager*, a text with parts such as ``token:gateway/night``, and to each bearer
whose text is a beginning of it in whole parts; the empty text is everybody's beginning.  To others it is not
there: several may use the same key.

Always: a blob is on disk and survives a restart once ``stage`` has returned; bytes are bounded, keys
included, and a blob beyond the bound is refused whole; a batch that was not published in time is deleted; a
key with nothing staged is refused, never taken for an empty one; nothing comes in any more below a key that
was closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import trio
from sortedcontainers import SortedDict

from dataspace.errors import Refused
from relay.store.errors import LogFailed, closed_on_failure
from relay.store.ports import StagedTables

logger = logging.getLogger("dataspace")

LIMIT_BYTES: Final = 4 << 30
"""Bytes that may be staged at once."""

KEPT_SECONDS: Final = 86_400.0
"""How long something may stay staged before it is taken for forgotten."""

ROW_BYTES: Final = 64
"""What a part costs beside its key and its body, about."""

SAME_SECONDS: Final = 1.0
"""Parts of one key that come within this time are noted as one for their payer."""

CLOSED: Final = 4096
"""Closed keys that are remembered, in memory; of further ones the oldest are forgotten, and then expire."""

Key = tuple[str, ...]


class Payer(Protocol):
    """Whose bytes are staged; raises ``Refused`` for too many."""

    def reserve(self, what: str, count: int) -> None:
        """Counts so much more of something, or raises."""

    def release(self, what: str, count: int) -> None:
        """Counts so much less."""


@dataclass(slots=True, eq=False)
class Paid:
    """Bytes that one payer has staged under one key within ``SAME_SECONDS``."""

    payer: Payer
    bytes: int
    since: float


@dataclass(frozen=True, slots=True)
class StagingStatistics:
    """Counts of staged data: keys, parts under them, bytes, and their limit."""

    keys: int
    parts: int
    bytes: int
    limit: int


class Staging:
    """The staging area of one data directory.  Safe for tasks; each call is a thread's work."""

    def __init__(self, tables: StagedTables, *, limit: int = LIMIT_BYTES, kept: float = KEPT_SECONDS) -> None:
        """Drops what is older than ``kept`` seconds; else ``LogFailed``."""
        self._tables = tables
        self._limit = limit
        self._kept = kept
        self._bytes = 0
        self._gone: list[tuple[bytes, str]] = []
        self._paid: SortedDict[tuple[bytes, str], list[Paid]] = SortedDict()
        """Payers of the batches staged since the start; sorted, as a discard names beginnings of keys."""
        self._closed: OrderedDict[tuple[bytes, str], None] = OrderedDict()
        self._discarding = threading.Lock()
        self._writing = threading.Lock()
        with closed_on_failure(tables):
            self.purge(kept)

    def relimit(self, limit: int) -> None:
        """Changes the bytes that may be staged; staged batches stay."""
        self._limit = limit

    async def run(self) -> None:
        """Drops what has been staged for too long, until cancelled; looks some ten times in that time."""
        while True:
            await trio.sleep(self._kept / 10)
            try:
                await trio.to_thread.run_sync(self.purge, self._kept)
                self._give_back_old(time.time() - self._kept)
            except LogFailed as failure:  # what should have gone does no harm, but for its room
                logger.warning("%s; what was staged too long ago stays", failure)

    async def stage(self, key: Key, body: bytes, by: str = "", payer: Payer | None = None) -> None:
        """Keeps a blob under a key, after earlier blobs; it is on disk when this returns.

        Its bytes count for the ``payer``, if there is one, until they are dropped.
        Raises ``Refused("limit")`` beyond the limit of bytes, ``Refused("closed")`` below a key that was
        closed, ``LogFailed`` if the disk refuses.
        """
        if payer is None:
            await trio.to_thread.run_sync(self._stage, key, body, by)
            return
        at = _text(key), by
        size = len(at[0]) + len(body) + ROW_BYTES
        payer.reserve("staged_bytes", size)
        part = self._pay(at, payer, size)
        try:
            await trio.to_thread.run_sync(self._stage, key, body, by)
        except BaseException as error:
            if not isinstance(error, trio.Cancelled):  # then the thread was not begun, or goes on to its end
                self._take_back(at, part, size)
            raise

    async def staged(self, keys: Sequence[Key], by: str = "") -> list[bytes]:
        """Returns what is staged under these keys for ``by``, in their order and in the order of staging.

        Raises ``Refused("not-staged")`` for a key under which nothing is staged.
        """
        return await trio.to_thread.run_sync(self._staged, list(keys), by)

    async def discard(self, *prefixes: Key, close: Key | None = None, by: str = "") -> None:
        """Drops all batches of ``by`` under keys that begin with one of these; O(such keys).

        Under keys that begin like ``close`` it stages nothing any more: later blobs of its are refused.
        Where the disk has no space even for that, it is repeated before anything else is staged; until
        then only the next daemon finds it.
        """
        if close is not None:
            self._closed[_text(close), by] = None
            if len(self._closed) > CLOSED:
                self._closed.popitem(last=False)
        self._gone += [(_text(prefix), by) for prefix in prefixes]
        for begin in map(_text, prefixes):
            low, high = _below(begin)
            for at in [
                each for each in self._paid.irange((low, ""), (high, "")) if by in _beginnings(each[1])
            ]:
                _give_back(self._paid.pop(at))
        try:
            await trio.to_thread.run_sync(self._discard)
        except LogFailed as failure:
            logger.warning("%s; what was discarded still takes its room", failure)

    def _pay(self, at: tuple[bytes, str], payer: Payer, size: int) -> Paid:
        """Notes who has paid for a part; small parts that come one after the other are noted together."""
        parts: list[Paid] = self._paid.setdefault(at, [])
        now = time.time()
        if parts and parts[-1].payer is payer and now - parts[-1].since < SAME_SECONDS:
            parts[-1].bytes += size
        else:
            parts.append(Paid(payer, size, now))
        return parts[-1]

    def _take_back(self, at: tuple[bytes, str], part: Paid, size: int) -> None:
        """Notes that bytes of a part were not staged after all."""
        given = min(size, part.bytes)  # less if it was discarded meanwhile
        part.bytes -= given
        part.payer.release("staged_bytes", given)
        if self._paid.get(at) == [part] and not part.bytes:
            del self._paid[at]

    def _give_back_old(self, before: float) -> None:
        for at, parts in list(self._paid.items()):
            count = 0
            while count < len(parts) and parts[count].since < before:
                count += 1
            _give_back(parts[:count])
            del parts[:count]
            if not parts:
                del self._paid[at]

    def purge(self, kept: float) -> None:
        """Drops what was staged more than ``kept`` seconds ago; blocks."""
        with self._writing:
            self._bytes = _bytes(self._tables.purge(time.time() - kept))

    def statistics(self) -> StagingStatistics:
        """Counts, in O(parts)."""
        return StagingStatistics(*self._tables.counts(), self._bytes, self._limit)

    def close(self) -> None:
        """Closes the tables.  Staged batches stay on the disk, and count for no account."""
        for parts in self._paid.values():
            _give_back(parts)
        self._paid.clear()
        self._tables.close()

    def _stage(self, key: Key, body: bytes, by: str) -> None:
        at = _place(key, by)
        if self._gone:
            self._discard()
        with self._writing:
            if self._closed and self._is_closed(key, by):
                raise Refused(
                    "closed", f"{key} was published or discarded already, nothing more is staged under it"
                )
            size = self._bytes + len(at) + len(body) + ROW_BYTES
            if size > self._limit:
                raise Refused("limit", f"{size} bytes staged, the limit is limits.staged_bytes={self._limit}")
            self._tables.append(at, time.time(), body)
            self._bytes = size

    def _is_closed(self, key: Key, by: str) -> bool:
        texts = [_text(key[:end]) for end in range(1, len(key) + 1)]
        return any((text, each) in self._closed for text in texts for each in _beginnings(by))

    def _staged(self, keys: Sequence[Key], by: str) -> list[bytes]:
        bodies: list[bytes] = []
        for key in keys:
            rows = [
                body
                for at, body in self._tables.parts(_text(key), *_below(_text(key) + _STAGER))
                if _belongs(at, by) and not any(at.startswith(g) and _belongs(at, to) for g, to in self._gone)
            ]
            if not rows:
                raise Refused("not-staged", f"nothing is staged under {key}")
            bodies.extend(rows)
        return bodies

    def _discard(self) -> None:
        with self._discarding:
            going = list(self._gone)
            with self._writing:
                found = {at: None for begin, by in going for at in self._below(begin, by)}
                self._bytes -= _bytes(self._tables.delete(list(found)))
            del self._gone[: len(going)]

    def _below(self, begin: bytes, by: str) -> list[bytes]:
        return [at for at in self._tables.keys(*_below(begin)) if _belongs(at, by)]


def _bytes(parts: tuple[int, int]) -> int:
    """Returns the bytes that a number of parts counts for, with their bytes."""
    count, size = parts
    return count * ROW_BYTES + size


_STAGER: Final = b"\xff"
"""Between the text of a key and its stager; no text has such a byte."""


def _below(begin: bytes) -> tuple[bytes, bytes]:
    """Returns the bounds of all places that begin so, the second excluded."""
    return begin, begin + _STAGER + b"\xff"


def _place(key: Key, by: str) -> bytes:
    """Returns what is in the column of keys: the text of the key, and the stager unless that is empty."""
    return _text(key) + (_STAGER + by.encode() if by else b"")


def _give_back(parts: Iterable[Paid]) -> None:
    """Gives the bytes of parts back to their payers; a part that is still being staged has none then."""
    for part in parts:
        part.payer.release("staged_bytes", part.bytes)
        part.bytes = 0


def _belongs(at: bytes, by: str) -> bool:
    """True if the batch at a place belongs to ``by``.

    >>> place = _place(("k",), "token:a/b")
    >>> [_belongs(place, by) for by in ("", "token:a", "token:a/b", "token:a/b/c", "token:")]
    [True, True, True, False, False]
    """
    return by in _beginnings(at.partition(_STAGER)[2].decode())


def _beginnings(stager: str) -> list[str]:
    """Returns the stager and the bearers it was narrowed from, the widest first: they own its batches as
    well."""
    parts = stager.split("/") if stager else []
    return ["/".join(parts[:end]) for end in range(len(parts) + 1)]


def _text(key: Key) -> bytes:
    """Returns a key as bytes whose beginnings are the bytes of each shorter key that it begins with, and of
    no other.

    >>> _text(("a", "b")).startswith(_text(("a",))), _text(("ab",)).startswith(_text(("a",)))
    (True, False)
    """
    return b"".join([part.encode().replace(b"\0", b"\0\1") + b"\0\0" for part in key])
