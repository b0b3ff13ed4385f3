"""Requests about a space and its past: epochs on disk, positions of readers, a drawing of the index."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from dataspace.errors import Refused
from dataspace.kernel.drawings import alone, box_rows, draw_alone
from dataspace.kernel.interests import Interest
from dataspace.wire.arguments import number, text
from index.patterns.patterns import DISCARD
from index.values.values import Map, Value
from server.sessions.peer import Peer

MAX_WAIT: Final = 60_000
"""Milliseconds that a frontier request may wait."""

LOOKED_AT: Final = 128
"""Interests that are compared at once with the rights of an asker."""

ROWS: Final = "rows"
"""The form of a drawing for programs."""

MAX_DRAWN: Final = 1_000
"""Boxes that may hang from one in a drawing of the index, which has about so many in all."""


async def _sync(reader: Peer, _arguments: Map) -> Value:
    """Returns the newest epoch once everything that the connection sent before is on disk."""
    home = reader.home
    epoch = home.space.epoch
    if home.commits.full is not None and home.commits.durable < epoch:
        raise Refused("disk-full", f"what was sent waits for room on the disk: {home.commits.full}")
    await home.commits.wait_durable(epoch)
    return epoch


async def _index(reader: Peer, arguments: Map) -> Value:
    """Returns a drawing of the trie of the space, or of the part that may be observed."""
    await trio.lowlevel.checkpoint()
    home = reader.home
    home.check_space(text(arguments, "space", home.name))
    reader.permit.check_inspect("the index")
    most = number(arguments, "most", 20)
    if not 1 <= most <= MAX_DRAWN:
        raise Refused("bad-request", f"most must be a number from 1 to {MAX_DRAWN}, got {most}")
    form = text(arguments, "form", "text")
    value = (arguments["value"],) if "value" in arguments else ()
    if form != ROWS and value:
        raise Refused("bad-request", f"the way of a value is drawn with form = {ROWS!r}, got {form!r:.40}")
    if reader.permit.allows_observe(DISCARD):
        index = home.space.index
        return box_rows(index, value, most=most) if form == ROWS else index.draw(form, most=most)
    shown, withheld = await _visible(reader)
    if form != ROWS:
        return draw_alone(shown, withheld, form, most=most)
    return (*box_rows(alone(shown), value, most=most), Map({"withheld": withheld}))


async def _visible(reader: Peer) -> tuple[list[Interest], int]:
    """Returns the interests whose pattern the asker may observe itself, and how many others there are."""
    shown: list[Interest] = []
    interests = list(reader.home.space.interests)
    for at, interest in enumerate(interests, 1):
        if reader.permit.allows_observe(interest.pattern):
            shown.append(interest)
        if not at % LOOKED_AT:
            await trio.lowlevel.checkpoint()
    return shown, len(interests) - len(shown)


async def _frontier(reader: Peer, arguments: Map) -> Value:
    """Returns the highest epoch on disk; waits up to ``wait`` ms for one beyond ``after``.

    With ``at``, a time, also the newest epoch that was made then or before.
    """
    home = reader.home
    home.check_space(text(arguments, "space", home.name))
    after = number(arguments, "after", -1)
    wait = min(number(arguments, "wait", 0), MAX_WAIT) / 1000
    if home.commits.durable <= after and wait > 0:
        with trio.move_on_after(wait):
            await home.commits.wait_beyond(after)
    then: dict[str, Value] = {}
    if "at" in arguments:
        reader.permit.check_reads()
        async with reader.work():
            then["at"] = await trio.to_thread.run_sync(home.log.epoch_at, number(arguments, "at"))
    return Map(
        {
            **then,
            "epoch": home.commits.durable,
            "oldest": home.log.oldest,
            "space": home.identity,
            "gaps": home.log.gaps(max(after, 0)),
        }
    )


async def _within(reader: Peer, arguments: Map) -> Value:
    """Returns the last epoch of (after, upto] with at most ``changes`` changes on the way, or the first."""
    home = reader.home
    reader.permit.check_reads()
    upto = min(number(arguments, "upto"), home.commits.durable)
    asked = (number(arguments, "after"), upto, number(arguments, "changes"))
    async with reader.work():
        return await trio.to_thread.run_sync(home.log.within, *asked)


async def _acknowledge(reader: Peer, arguments: Map) -> Value:
    """Stores that a named reader has acknowledged all epochs up to one, or removes the reader."""
    home, name = reader.home, text(arguments, "reader")
    home.check_space(text(arguments, "space", home.name))
    reader.permit.check_reads()
    if not name:
        raise Refused("bad-request", "reader must not be empty")
    reader.permit.check_reader(name)
    if arguments.get("forget") is True:
        await trio.to_thread.run_sync(home.log.forget, name)
        if name in home.reader_accounts:
            home.reader_accounts.pop(name).give("readers")
        return Map({"epoch": 0, "oldest": home.log.oldest})
    epoch = max(number(arguments, "epoch"), 0)
    if epoch > home.commits.durable:
        raise Refused("epoch-ahead", f"epoch {epoch} is still to come, the newest is {home.commits.durable}")
    if home.log.readers.get(name) is None and name not in home.reader_accounts:
        reader.account.take("readers")
        home.reader_accounts[name] = reader.account
    try:
        await trio.to_thread.run_sync(home.log.acknowledge, name, epoch, time.time_ns() // 1000)
    finally:
        if home.log.readers.get(name) is None and name in home.reader_accounts:  # it was refused
            home.reader_accounts.pop(name).give("readers")
    known = home.log.readers.get(name)
    return Map({"epoch": known.epoch if known else 0, "oldest": home.log.oldest})


VERBS: Final[Mapping[str, Callable[[Peer, Map], Awaitable[Value]]]] = {
    "sync": _sync,
    "index": _index,
    "frontier": _frontier,
    "within": _within,
    "acknowledge": _acknowledge,
}
