"""Attribution: the request that shows past changes with their owners, clients, principals and addresses.

Owners and clients are in the epochs; where the turns of a client come from is in entries beside them, one for
each connection that sends turns (``Origin``).  So the answer is read from the log alone, in a thread, and a
turn costs nothing for it.

Always: an asker sees only changes that it may observe, and who made them only if it may inspect; one answer
reads a bounded part of the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import trio

from dataspace.errors import Refused
from dataspace.kernel.epochs import Origin
from dataspace.wire.arguments import number
from index.patterns.events import Captures
from index.patterns.patterns import matcher
from index.values.values import Map, Value
from relay.log.reader import LogReader
from relay.log.segments import origin_of, table
from server.owners.bearers import parted
from server.owners.turn_numbers import ORIGIN_EPOCHS
from server.sessions.peer import Peer

MOST: Final = 10_000
"""Changes in one answer."""

SIZE: Final = 1 << 20
"""Bytes of the log with the changes of one answer, about."""

LOOKED_AT: Final = 16 << 20
"""Bytes of the log that one answer reads, about."""

KINDS: Final = ("+", "!", "-")

Matches = Callable[[Value], Captures | None]


async def _who(reader: Peer, arguments: Map) -> Value:
    """Returns changes in (after, upto] that match a pattern, each with who made it, and where to go on.

    O(16 MiB of the log), in a thread.
    """
    pattern, most = arguments.get("pattern"), number(arguments, "most", 1_000)
    if not 1 <= most <= MOST:
        raise Refused("bad-request", f"most must be a number from 1 to {MOST}, got {most}")
    home = reader.home
    reader.permit.check_inspect("who changed facts")
    reader.permit.check_observe(pattern)
    upto = min(number(arguments, "upto", home.commits.durable), home.commits.durable)
    after = max(number(arguments, "after", home.log.oldest - 1), 0)
    home.log.check_retained(after)
    page = Page(home.log, matcher(pattern), after, upto)
    async with reader.work():
        return await trio.to_thread.run_sync(page.read, most)


class Page:
    """The changes in (after, upto] of a log that match; once it is read, ``upto`` is up to where it was."""

    def __init__(self, log: LogReader, matches: Matches, after: int, upto: int) -> None:
        self._log = log
        self._matches = matches
        self._after = after
        self.upto = max(after, upto)
        self.changes: list[Value] = []
        self._origins: dict[str, Origin | None] = {}
        self._next: Origin | None = None
        """What the entry before said, if it said from where turns come."""
        self._of_request: Origin | None = None
        """Where the turn of a request came from, which has no client."""

    def read(self, most: int) -> Map:
        """Returns the answer: up to ``most`` changes, of whole epochs, at least one; blocks."""
        self._read(most)
        return Map({"changes": tuple(self.changes), "upto": self.upto})

    def _read(self, most: int) -> None:
        """Reads until ``most`` changes are found, or much of the log is read."""
        size = looked_at = 0
        at, end = self._after, self.upto
        for segment in self._log.segments(at, end):
            looked_at += len(segment.body)
            for entry in segment.every_entry():
                self._next, before = origin_of(entry), self._next
                if self._next is not None and self._next.client:
                    self._origins[self._next.client] = self._next
                self._of_request = before if before is not None and not before.client else None
                if entry[10] or not at < entry[0] <= end:
                    continue
                found = [self._described(entry, *each) for each in _changes(entry, self._matches)]
                if found and self.changes and len(self.changes) + len(found) > most:
                    self.upto = at
                    return
                self.changes += found
                at = entry[0]
                if found:
                    size += len(segment.body) // segment.entries
                if size >= SIZE or looked_at >= LOOKED_AT:
                    self.upto = at
                    return

    def _described(self, entry: Any, kind: int, owners: tuple[str, ...], captures: Captures) -> Value:
        epoch, time, client, sequence = entry[0], entry[1], entry[8], entry[9]
        origin = self._of_request if client is None else self._origin(client)
        return Map(
            {
                "epoch": epoch,
                "time": time,
                "change": KINDS[kind],
                "captures": captures,
                "owners": owners,
                "client": client or "",
                "sequence": sequence,
                "name": "" if origin is None else origin.name,
                "principal": parted(client or "")[1].split(" ")[0] if origin is None else origin.principal,
                "address": "" if origin is None else origin.address,
            }
        )

    def _origin(self, client: str) -> Origin | None:
        """Returns the origin of a client's turns; entries before the page are searched once."""
        if client not in self._origins:
            self._origins[client] = self._log.origin_before(client, self._after, ORIGIN_EPOCHS)
        return self._origins[client]


def _changes(entry: Any, matches: Matches) -> Iterator[tuple[int, tuple[str, ...], Captures]]:
    """Yields the kind, the owners and the captures of each change of an entry that matches.

    Of a removed fact the log has the handles alone: where several owners of an epoch ended claims, each owner
    may have been the last.
    """
    _, _, added, sent, removed, rows, plain, claims, _, _, _ = entry
    owners: dict[int, list[str]] = {}
    for owner, handles, positions, _ in claims:
        for at in range(len(handles)) if positions is None else positions:
            owners.setdefault(at, []).append(owner)
    ended = tuple([owner for owner, _, _, retracted in claims if retracted])
    for at, value in enumerate(table(rows, plain, added + sent + removed)):
        captures = matches(value)
        if captures is not None:
            kind = (at >= added) + (at >= added + sent)
            yield kind, ended if kind == 2 else tuple(owners.get(at, ())), captures


VERBS: Final[Mapping[str, Callable[[Peer, Map], Awaitable[Value]]]] = {"who": _who}
