"""``GET …/log``: the changes of a pattern in a range of epochs, as JSON lines from the log."""

from __future__ import annotations

from typing import Final

from dataspace.errors import DataspaceError
from dataspace.steps import batched
from dataspace.wire import packets as p
from dataspace.wire.observing import of_another_space
from index.patterns.patterns import capture_names
from index.values.values import Map, Value
from server.sessions.state import DaemonState
from server.web.inner import EventBatch, InnerSession, inner_session
from server.web.routes.parameters import PATTERN, SPACE, Asked, Parameter, Position
from server.web.routes.problems import Problem, problem_of
from server.web.routes.streaming import EpochWriter, Out, Streaming, change_line, part_of

PARAMETERS: Final = (
    SPACE,
    PATTERN,
    Parameter("from", "the first epoch (default: the oldest that the log has)", kind="position"),
    Parameter("until", "the last epoch, at most the newest on disk (default: that)", kind="number"),
    Parameter("who", "true: a line for each change, with its owners, client and token", kind="flag"),
)
PAGE: Final = 250
"""Changes that are asked for at once with who made them, and so read in one step."""

TOGETHER: Final = 100
"""Lines that are written in one step."""

HEADERS: Final = {"content-type": "application/x-ndjson", "cache-control": "no-store"}


async def log(daemon: DaemonState, asked: Asked) -> Streaming:
    """Returns the epochs of a range in which something matched, one in each line."""
    caller = asked.caller
    first, last = asked.values.get("from"), asked.values.get("until")
    if first is not None and last is not None and last < first.number:
        raise Problem("bad-request", f"until={last} is before from={first.number}")

    async def run(out: Out) -> None:
        async with inner_session(daemon, caller, asked.space) as session:
            await _lines(session, asked, out)

    return Streaming(run)


async def _lines(session: InnerSession, asked: Asked, out: Out) -> None:
    pattern: Value = asked.values["pattern"]
    frontier = await session.request("frontier", {})
    assert isinstance(frontier, Map)  # by WIRE.md
    newest, oldest = frontier["epoch"], frontier["oldest"]
    assert isinstance(newest, int) and isinstance(oldest, int)  # as well
    first = asked.values.get("from", Position(oldest))
    if not session.identity.startswith(first.identity):
        raise Problem("epoch-lost", of_another_space(first.identity, session.identity))
    after = max(0, first.number - 1)
    upto = min(asked.values.get("until", newest), newest)
    if asked.values.get("who"):
        await _lines_with_who(session, pattern, after, upto, out)
        return
    spec: dict[str, Value] = {"space": asked.space, "pattern": pattern, "quiet": True, "durable": True}
    reading = session.open({**spec, "after": after, "upto": upto})
    writer = EpochWriter(capture_names(pattern))
    try:
        while not isinstance(packet := await reading.next(), p.Done):
            if isinstance(packet, EventBatch):
                pieces = [
                    writer.part(part_of(value)) + (b"\n" if writer.whole else b"") for value in packet.values
                ]
                await _write(out, b"".join(pieces))
    except DataspaceError as error:
        if not out.started:
            raise
        end = b"\n" if not writer.whole else b""
        await out.write(end + b'{"problem":' + problem_of(error).body() + b"}\n")
    await _write(out, b"")


async def _lines_with_who(session: InnerSession, pattern: Value, after: int, upto: int, out: Out) -> None:
    names = capture_names(pattern)
    while after < upto:
        page = await session.request("who", {"pattern": pattern, "after": after, "upto": upto, "most": PAGE})
        assert isinstance(page, Map) and isinstance(page["changes"], tuple)  # by WIRE.md
        for some in batched(page["changes"], TOGETHER):
            await _write(out, b"".join([change_line(names, each) for each in some if isinstance(each, Map)]))
        assert isinstance(page["upto"], int) and page["upto"] > after  # as above
        after = page["upto"]
    await _write(out, b"")


async def _write(out: Out, data: bytes) -> None:
    if not out.started:
        await out.start(HEADERS)
    if data:
        await out.write(data)
