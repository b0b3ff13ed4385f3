"""``GET …/observe``: the changes of a pattern as server-sent events.

The id of an event is its epoch with the identity of the space, and an epoch is one event however large it
is, so that a browser that comes back with ``Last-Event-ID`` goes on after its last whole event, and begins
anew in a space that was made anew.

Always: no epoch is left out or told twice; while nothing happens, something is written every ``BEAT``
seconds; a client that does not read costs no more than the policy of the stream allows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import orjson
import trio

from dataspace.errors import Broken, DataspaceError, ProtocolError, Refused
from dataspace.wire import packets as p
from dataspace.wire.features import SYSTEM
from dataspace.wire.observing import MOST_PACE
from index.patterns.patterns import capture_names
from index.values.values import Record, Value
from relay.delivery.outbox import values_size
from server.sessions.state import DaemonState
from server.web.inner import EventBatch, InnerSession, Reading, decoded, inner_session
from server.web.routes.parameters import IDENTITY, PATTERN, POLICY, SPACE, Asked, Parameter, Position
from server.web.routes.problems import Problem, problem_of
from server.web.routes.streaming import EpochWriter, Out, Streaming, chunk, part_of

BEAT: Final = 15.0
"""Seconds after which a comment is written where nothing else was, for proxies that close what is silent."""

PATIENCE: Final = 0.5
"""Seconds that the status waits for the first value or error of a stream."""

MOST_AHEAD: Final = 4096

SHARED: Final = 64
SHARED_BYTES: Final = 40 << 10
"""Batches whose text is kept for the other streams of a pattern, and the bytes of one as it was packed:
a full frame has a little more than 32 KiB."""

RESTARTS: Final = frozenset(["epoch-gone", "epoch-lost", "epoch-ahead"])
"""Codes which say that a stream cannot go on after an epoch, though there is a state."""

HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}

OPTIONS: Final = (
    Parameter("snapshot", "false leaves out the state at the beginning", kind="flag"),
    Parameter("after", "begin with what follows this epoch, or event, from the log", kind="position"),
    Parameter("as_of", "begin with the state at this epoch, from the log", kind="number"),
    Parameter("upto", "end after this epoch", kind="number"),
    Parameter("durable", "true shows an epoch only when it is on disk", kind="flag"),
    Parameter("net", "true, with after: the past comes as its net difference", kind="flag"),
    Parameter("quiet", "true asserts no interest", kind="flag"),
    POLICY,
    Parameter(
        "pace",
        f"milliseconds between two events at least, up to {MOST_PACE}: changes come as their net difference",
        kind="number",
    ),
)
WINDOW: Final = Parameter(
    "window", f"epochs that are taken ahead of the reader, 1 to {MOST_AHEAD} (default 1024)", kind="number"
)
LAST: Final = Parameter(
    "Last-Event-ID", "the id of the last event that came: goes on after it", kind="position", place="header"
)
PARAMETERS: Final = (SPACE, PATTERN, *OPTIONS, WINDOW, LAST)


async def observe(daemon: DaemonState, asked: Asked) -> Streaming:
    """Returns the changes of a pattern as events."""
    caller, last, window = asked.caller, asked.values.get("Last-Event-ID"), asked.values.get("window")
    if window is not None and not 1 <= window <= MOST_AHEAD:
        raise Problem("bad-request", f"window must be a number from 1 to {MOST_AHEAD}, got {window}")
    spec = {each.name: asked.values[each.name] for each in OPTIONS if each.name in asked.values}
    spec |= {"space": asked.space, "pattern": asked.values["pattern"]}
    if "after" in spec:
        spec |= _beginning(spec["after"])

    async def run(out: Out) -> None:
        async with inner_session(daemon, caller, asked.space, heartbeat=BEAT) as session:
            is_here = last is not None and session.identity.startswith(last.identity)
            if last is not None and is_here and spec.get("upto", last.number + 1) <= last.number:
                out.whole({"cache-control": "no-store"}, status=204)  # an EventSource comes back no more
                return
            stalled = daemon.limits.stalled_seconds
            await EventStream(session, out, spec, last, window, stalled).run()

    return Streaming(run)


def _beginning(at: Position) -> dict[str, Value]:
    """Returns the options of a stream that goes on after an event."""
    return {"after": at.number, **({"identity": at.identity} if at.identity else {})}


class EventStream:
    """One stream of events."""

    def __init__(
        self,
        session: InnerSession,
        out: Out,
        spec: dict[str, Value],
        last: Position | None,
        window: int | None,
        stalled: float,
    ) -> None:
        self._session = session
        self._out = out
        self._stalled = stalled
        self._spec = spec
        self._last = last
        self._may_pour = window is None and out.link is not None
        self._window = 1 if self._may_pour else window
        self._is_over = False
        """True once the last event was written past the route."""
        self._told = -1 if last is None else last.number
        own = spec["space"] == SYSTEM  # whose epochs are times, and are not counted anew
        self._of = b"" if own else b"-" + session.identity[:IDENTITY].encode()
        """The end of an id: which space its epoch is of."""
        self._events = EventTexts(capture_names(spec["pattern"]), self._of)
        self._reading = self._open()
        self._has_begun = False
        upto = spec.get("upto")
        self._upto = upto if isinstance(upto, int) else 0

    async def run(self) -> None:
        """Writes the events until the stream or its client ends."""
        try:
            packet = None
            while not isinstance(packet, p.Done):
                packet = await self._next()
                await self._tell(packet)
                if self._out.link is not None and self._may_pour and isinstance(packet, EventBatch):
                    await self._session.pour(
                        self._out.link,
                        self._control,
                        self._framed,
                        is_over=lambda: self._is_over,
                        stalled=self._stalled,
                    )
                    return
        except DataspaceError as error:
            if not self._out.started:
                raise
            await self._write(self._problem(problem_of(error)))

    def _framed(self, stream: int, first: int, count: int, body: bytes, left: int) -> tuple[bytes, int]:
        """Returns the chunk of a frame of values, and what the frame costs in credit."""
        events = self._events
        known = (
            _shared_chunk(events.names, self._of, count, body)
            if events.whole and len(body) <= SHARED_BYTES
            else None
        )
        if known is None:
            http_chunk = chunk(b"".join(map(events.text, decoded(count, body))))
            self._told = max(self._told, events.told)
        else:
            http_chunk, self._told = known
        return http_chunk, values_size(stream, first, count, body, left)

    def _control(self, packet: p.Packet) -> bytes:
        """Returns the chunk that stands for a packet which is no value; none after the end."""
        if self._is_over:
            return b""
        lines = b""
        match packet:
            case p.Reached(epoch, _):
                lines = self._reached(epoch)
            case p.Ping():
                lines = b": beat\n\n" if self._events.whole else b""
            case p.Done():
                lines, self._is_over = self._end(), True
            case p.Error(_, code, text, url):
                lines, self._is_over = self._problem(problem_of(Refused(code, text, url))), True
            case p.Bye(code):
                error = ProtocolError(*packet) if code else Broken("the daemon ended the session")
                lines, self._is_over = self._problem(problem_of(error)), True
        if self._is_over:
            self._session.poured()
        return chunk(lines)

    def _end(self) -> bytes:
        return b"id: %d%b\nevent: end\ndata: {}\n\n" % (max(self._told, self._upto), self._of)

    def _problem(self, problem: Problem) -> bytes:
        """Returns the last event; in the midst of an epoch a comment, since readers keep nothing of that
        epoch then."""
        if self._events.whole:
            return b"event: problem\ndata: " + problem.body() + b"\n\n"
        return b": problem " + problem.body() + b"\n"

    def _open(self) -> Reading:
        last = self._last
        if last is None:
            return self._session.open(self._spec, self._window)
        past = {name: value for name, value in self._spec.items() if name not in ("as_of", "identity")}
        return self._session.open({**past, **_beginning(last)}, self._window)

    async def _next(self) -> EventBatch | p.Packet | None:
        """Returns what comes next; None if nothing has come when the status must be sent.

        A stream that cannot go on after the last event begins anew with the state, if it may.
        """
        if self._has_begun:
            return await self._reading.next()
        packet = None
        try:
            with trio.move_on_after(math.inf if self._out.started else PATIENCE):
                packet = await self._reading.next()
        except Refused as refusal:
            if refusal.code not in RESTARTS or not self._may_restate():
                raise
            self._reading, self._told = self._session.open(self._spec, self._window), -1
            self._has_begun = True
        self._has_begun = self._has_begun or isinstance(packet, EventBatch)
        return packet

    def _may_restate(self) -> bool:
        """True if the state may stand for epochs that the log has no longer, as for clients over TCP."""
        spec, policy = self._spec, self._spec.get("policy", "conflate")
        past = any(name in spec for name in ("after", "as_of", "upto")) or spec.get("durable") is True
        follows = spec.get("snapshot", True) is True and not past
        return self._last is not None and follows and policy in ("conflate", "drop")

    async def _tell(self, packet: EventBatch | p.Packet | None) -> None:
        match packet:
            case EventBatch():
                await self._write(self._told_of(packet))
            case p.Reached(epoch, _):
                await self._write(self._reached(epoch))
            case p.Done():
                await self._write(self._end())
            case _:
                await self._write(b": beat\n\n" if self._events.whole else b"")

    def _told_of(self, batch: EventBatch) -> bytes:
        """Returns the text of some values: the text that another stream has written, if these are whole."""
        events = self._events
        if events.whole and len(batch.body) <= SHARED_BYTES:
            known = _shared(events.names, self._of, batch.count, batch.body)
            if known is not None:
                text, self._told = known
                return text
        text = b"".join(map(events.text, batch.values))
        if events.told > self._told:
            self._told = events.told
        return text

    def _reached(self, epoch: int) -> bytes:
        """Moves the id forward without an event: a client that comes back begins there."""
        if epoch <= self._told or not self._events.whole:
            return b": beat\n\n" if self._events.whole else b""
        self._told = epoch
        return b"id: %d%b\n\n" % (epoch, self._of)

    async def _write(self, data: bytes) -> None:
        if not self._out.started:
            await self._out.start(HEADERS)
            data = b"retry: 1000\n" + data
        if data:
            await self._out.write(data)


class EventTexts:
    """The values of a stream as events, one for each epoch, however many values it has."""

    def __init__(self, names: tuple[str, ...], of: bytes) -> None:
        self.names = names
        self._of = of
        self._writer = EpochWriter(names)
        self.told = -1
        """The newest epoch that was written whole; -1 before the first."""

    @property
    def whole(self) -> bool:
        """True between two events."""
        return self._writer.whole

    def text(self, value: Value) -> bytes:
        """Returns the lines of a value."""
        if isinstance(value, Record):
            count, first, last = value.fields
            assert isinstance(last, int)  # by WIRE.md
            self.told = last
            loss = orjson.dumps({"lost": count, "first": first, "last": last})
            return b"id: %d%b\nevent: lost\ndata: %s\n\n" % (last, self._of, loss)
        data = b"data: " + self._writer.part(part_of(value)) + b"\n"
        if not self.whole:
            return data
        self.told = self._writer.number
        return data + b"id: %d%b\n\n" % (self.told, self._of)


@lru_cache(maxsize=SHARED)
def _shared(names: tuple[str, ...], of: bytes, count: int, body: bytes) -> tuple[bytes, int] | None:
    """Returns the text of so many packed values, and the newest epoch in it; None if that is not whole."""
    events = EventTexts(names, of)
    text = b"".join(map(events.text, decoded(count, body)))
    return (text, events.told) if events.whole else None


@lru_cache(maxsize=SHARED)
def _shared_chunk(names: tuple[str, ...], of: bytes, count: int, body: bytes) -> tuple[bytes, int] | None:
    """Returns the chunk for so many packed values, and the newest epoch in it; None if that is not whole.

    Streams at the same position are given the same ``body``, whose hash is computed once.
    """
    known = _shared(names, of, count, body)
    return None if known is None else (chunk(known[0]), known[1])
