"""Requests about a space and its past: epochs on disk, positions of readers, authors of changes,
and a drawing of the index.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import trio

from dataspace.errors import Refused
from dataspace.kernel.changes import Origin
from dataspace.kernel.drawings import alone, box_rows, draw_alone
from dataspace.kernel.interests import Interest
from dataspace.wire.arguments import Absent
from dataspace.wire.observing import NUMBERS
from dataspace.wire.verbs import VERBS as TABLE, Arguments
from index.patterns.events import Captures
from index.patterns.patterns import DISCARD, matcher
from index.values.values import Map, Value
from relay.log.notes import origin_of
from relay.log.reader import LogReader
from relay.log.segments import claimed, table
from server.features import Feature
from server.owners.bearers import parted
from server.owners.turn_numbers import ORIGIN_EPOCHS
from server.sessions.peer import Peer
from server.streams.observations import OBSERVATIONS
from server.streams.replay import column_replay, from_log, read_request

LOOKED_AT: Final = 128
"""Interests that are compared at once with the rights of an asker."""

ROWS: Final = "rows"
"""The form of a drawing for programs."""

SIZE: Final = 1 << 20
"""Bytes of the log with the changes of one answer, about."""

READ_BYTES: Final = 16 << 20
"""Bytes of the log that one answer reads, about."""

KINDS: Final = ("+", "!", "-")
Matches = Callable[[Value], Captures | None]


async def _sync(reader: Peer, arguments: Arguments) -> Value:
    """Returns the newest epoch once everything that the connection sent before is on disk.

    With ``reached``, how far idle streams are comes before the answer; O(streams of the connection).
    """
    hosted = reader.hosted
    epoch = hosted.space.epoch
    if hosted.commits.full is not None and hosted.commits.durable < epoch:
        raise Refused("disk-full", f"what was sent waits for room on the disk: {hosted.commits.full}")
    await hosted.commits.wait_durable(epoch)
    if arguments["reached"]:
        for packet in reader.reached():
            reader.say(packet)
    return epoch


async def _index(reader: Peer, arguments: Arguments) -> Value:
    """Returns a drawing of the trie of the space, or of the part that may be observed."""
    await trio.lowlevel.checkpoint()
    hosted = reader.hosted
    reader.permit.check_inspect("the index")
    form, most = arguments["form"], arguments["most"]
    value = () if arguments["value"] is Absent.LEFT_OUT else (arguments["value"],)
    if form != ROWS and value:
        raise Refused("bad-request", f"the way of a value is drawn with form = {ROWS!r}, got {form!r:.40}")
    if reader.permit.allows_observe(DISCARD):
        index = hosted.space.index
        return box_rows(index, value, most=most) if form == ROWS else index.draw(form, most=most)
    shown, withheld = await _visible(reader)
    if form != ROWS:
        return draw_alone(shown, withheld, form, most=most)
    return (*box_rows(alone(shown), value, most=most), Map({"withheld": withheld}))


async def _visible(reader: Peer) -> tuple[list[Interest], int]:
    """Returns the interests whose pattern the asker may observe itself, and how many others there are."""
    shown: list[Interest] = []
    interests = list(reader.hosted.space.interests)
    for at, interest in enumerate(interests, 1):
        if reader.permit.allows_observe(interest.pattern):
            shown.append(interest)
        if not at % LOOKED_AT:
            await trio.lowlevel.checkpoint()
    return shown, len(interests) - len(shown)


async def _frontier(reader: Peer, arguments: Arguments) -> Value:
    """Returns the highest epoch on disk; waits up to ``wait`` ms for one beyond ``after``.

    With ``at``, a time, also the newest epoch that was made then or before.  ``erased`` are two epochs: then
    the time of the newest erasure among those between.
    """
    hosted = reader.hosted
    after, wait, at, between = (
        arguments["after"],
        arguments["wait"] / 1000,
        arguments["at"],
        arguments["erased"],
    )
    if hosted.commits.durable <= after and wait > 0:
        with trio.move_on_after(wait):
            await hosted.commits.wait_beyond(after)
    then: dict[str, Value] = {}
    if at is not None:
        reader.permit.check_reads()
        asked = partial(hosted.log.epoch_at, at)
        async with reader.work() as work:
            then["at"] = await work.read(asked, far=hosted.log.may_wait)
    if between:
        reader.permit.check_reads()
    archive = hosted.log.archive
    if archive is not None and archive.erased:
        async with reader.work() as work:
            then["erased"] = await work.read(partial(archive.erased_at, *between), far=True)
    log, since = hosted.log, max(after, 0)
    gaps = await log.asked(partial(log.gaps, since))
    return Map(
        {
            **then,
            "epoch": hosted.commits.durable,
            "oldest": hosted.log.oldest,
            "space": hosted.identity,
            "gaps": gaps,
        }
    )


async def _within(reader: Peer, arguments: Arguments) -> Value:
    """Returns the last epoch of (after, upto] with at most ``changes`` changes on the way, or the first.

    And at most ``bytes`` of the log; with ``counted``, how many changes there are as well.  With ``as_of``,
    the number below which a share of the state has as many rows.
    """
    if arguments["as_of"] is not None:
        return await _within_state(reader, arguments)
    hosted = reader.hosted
    reader.permit.check_reads()
    TABLE["within"].need(arguments, "after", "upto")
    upto = min(arguments["upto"], hosted.commits.durable)
    asked = partial(hosted.log.within, arguments["after"], upto, arguments["changes"], arguments["bytes"])
    async with reader.work() as work:
        extent: tuple[int, int] = await work.read(asked, far=hosted.log.may_wait)
    return extent if arguments["counted"] else extent[0]


async def _within_state(reader: Peer, arguments: Arguments) -> Value:
    """Returns the number below which the rows of a state, from ``low`` on, are at most ``changes``."""
    TABLE["within"].need(arguments, "low")
    low, most, size = arguments["low"], max(1, arguments["changes"]), arguments["bytes"]
    request = read_request(
        Map(
            {
                **{name: arguments[name] for name in ("pattern", "as_of", "asserted", "owners")},
                "kind": "columns",
                "upto": arguments["as_of"],
                "durable": True,
                "share": (low, NUMBERS),
            }
        )
    )
    reader.permit.check_observe(request.pattern)
    hosted = reader.hosted
    replay = await from_log(hosted, request, column_replay(request))
    async with reader.work() as work:
        return await work.read(
            lambda: replay.shares().upto(low, most, size), far=True, sorts=not replay.at_hand()
        )


async def _acknowledge(reader: Peer, arguments: Arguments) -> Value:
    """Stores that a named reader has acknowledged all epochs up to one, or removes the reader."""
    hosted, name = reader.hosted, arguments["reader"]
    log = hosted.leading.log
    reader.permit.check_reads()
    reader.permit.check_reader(name)
    if arguments["forget"]:
        await trio.to_thread.run_sync(log.forget, name)
        if name in hosted.reader_accounts:
            hosted.reader_accounts.pop(name).release("readers")
        return Map({"epoch": 0, "oldest": log.oldest})
    TABLE["acknowledge"].need(arguments, "epoch")
    epoch = max(arguments["epoch"], 0)
    if epoch > hosted.commits.durable:
        raise Refused(
            "epoch-ahead", f"epoch {epoch} is still to come, the newest is {hosted.commits.durable}"
        )
    if log.readers.get(name) is None and name not in hosted.reader_accounts:
        reader.account.reserve("readers")
        hosted.reader_accounts[name] = reader.account
    try:
        await trio.to_thread.run_sync(log.acknowledge, name, epoch, time.time_ns() // 1000)
    finally:
        if log.readers.get(name) is None and name in hosted.reader_accounts:  # it was refused
            hosted.reader_accounts.pop(name).release("readers")
    known = log.readers.get(name)
    return Map({"epoch": known.epoch if known else 0, "oldest": log.oldest})


async def _who(reader: Peer, arguments: Arguments) -> Value:
    """Returns changes in (after, upto] that match a pattern, each with who made it, and where to go on.

    O(16 MiB of the log), in a thread.
    """
    hosted, pattern, after, upto = reader.hosted, *[arguments[name] for name in ("pattern", "after", "upto")]
    reader.permit.check_inspect("who changed facts")
    reader.permit.check_observe(pattern)
    upto = hosted.commits.durable if upto is None else min(upto, hosted.commits.durable)
    after = max(hosted.log.oldest - 1 if after is None else after, 0)
    hosted.log.check_retained(after)
    page = Page(hosted.log, matcher(pattern), after, upto)
    async with reader.work() as work:
        return await work.read(partial(page.read, arguments["most"]), far=hosted.log.may_wait)


class Page:
    """The changes in (after, upto] of a log that match; once it is read, ``upto`` is up to where it was.

    Owners and clients are in the epochs; where the turns of a client come from is in entries beside them, one
    for each connection that sends turns (``Origin``).  So the answer is read from the log alone, in a thread,
    and a turn costs nothing for it.

    Always: an asker sees only changes that it may observe, and who made them only if it may inspect; one
    answer reads a bounded part of the log.
    """

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
                found = [self._described(entry, *each) for each in changes_of(entry, self._matches)]
                if found and self.changes and len(self.changes) + len(found) > most:
                    self.upto = at
                    return
                self.changes += found
                at = entry[0]
                if found:
                    size += len(segment.body) // segment.entries
                if size >= SIZE or looked_at >= READ_BYTES:
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


def changes_of(entry: Any, matches: Matches) -> Iterator[tuple[int, tuple[str, ...], Captures]]:
    """Yields the kind, the owners and the captures of each change of an entry that matches.

    Of an added fact these are the owners that claimed it in that epoch. Of a removed fact the log has the
    handles alone: where several owners of an epoch ended claims, each owner may have been the last.
    """
    _, _, added, sent, removed, rows, plain, claims, _, _, _ = entry
    owners: dict[int, dict[str, None]] = {}
    for owner, places in claimed(entry):
        for at in places:
            owners.setdefault(at, {})[owner] = None
    ended = tuple([owner for owner, _, _, retracted in claims if retracted])
    for at, value in enumerate(table(rows, plain, added + sent + removed)):
        captures = matches(value)
        if captures is not None:
            kind = (at >= added) + (at >= added + sent)
            yield kind, ended if kind == 2 else tuple(owners.get(at, ())), captures


VERBS: Final[Mapping[str, Callable[[Peer, Arguments], Awaitable[Value]]]] = {
    "sync": _sync,
    "index": _index,
    "frontier": _frontier,
    "within": _within,
    "acknowledge": _acknowledge,
    "who": _who,
}

FEATURE: Final = Feature(
    name="streams",
    verbs=lambda _: VERBS,
    streams={"observe": OBSERVATIONS, "columns": OBSERVATIONS},
)
