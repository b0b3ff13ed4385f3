"""Streaming: responses that are written bit by bit, and end when their client does.

Always: nothing more is made while the client does not read, since each write waits for it; an error before
the first byte is a problem with its status; what runs for a response ends with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import trio
from starlette.types import Receive, Scope, Send

from dataspace.errors import DataspaceError
from dataspace.kernel.actions import CONFLATED, MORE, SNAPSHOT
from dataspace.kernel.changes import time_of
from dataspace.transport.sockets import Link
from index.values.atoms import time_text
from index.values.jsons import EXACT, to_json
from index.values.values import Map, Value
from server.web.routes.problems import answer_of

SLICE_SECONDS: Final = 0.005
"""Seconds after which the making of a long text lets others have the thread."""


class Out:
    """What a response is written to."""

    def __init__(self, send: Send, link: Link | None = None) -> None:
        self.link: Final = link
        """The client's link, if that is known: ``chunk`` makes parts of the body for it, past ``write``."""
        self._send = send
        self._whole: tuple[Mapping[str, str], bytes, int] | None = None
        self.started = False
        """True once status and headers are on their way."""

    async def start(self, headers: Mapping[str, str], status: int = 200) -> None:
        """Sends the status and the headers."""
        self.started = True
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, data: bytes) -> None:
        """Sends a part of the body; waits while the client does not read."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def whole(self, headers: Mapping[str, str], body: bytes = b"", status: int = 200) -> None:
        """Notes a response that is known whole: it is sent by ``finish``."""
        sized = {} if status in (204, 304) else {"content-length": str(len(body))}
        self._whole = {**headers, **sized}, body, status

    async def finish(self) -> None:
        """Sends the end of the body, once all bytes taken for the response are given back."""
        headers, body, status = self._whole or ({}, b"", 200)
        if not self.started:
            await self.start(headers, status)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


class Paced:
    """Text that takes long to make, for a response: it is written bit by bit, and others run in between."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._made: list[bytes] = []
        self._until = perf_counter() + SLICE_SECONDS
        self._written = trio.current_time()

    def add(self, text: bytes) -> None:
        """Adds text, which ``flush`` writes at the latest."""
        self._made.append(text)

    async def pause(self) -> None:
        """Writes what there is and lets others run, if that is due."""
        if perf_counter() > self._until:
            await self.flush()
            await trio.lowlevel.checkpoint()
            self._until = perf_counter() + SLICE_SECONDS

    async def flush(self) -> None:
        """Writes what there is; waits while the client does not read."""
        if self._made:
            made, self._made = b"".join(self._made), []
            await self._out.write(made)
            self._written = trio.current_time()

    async def beat(self, seconds: float) -> None:
        """Writes a comment if nothing was written for so many seconds."""
        if trio.current_time() - self._written >= seconds:
            self.add(b": beat\n\n")
            await self.flush()


def chunk(data: bytes) -> bytes:
    """Returns a part of a body as it stands on the link of a client (RFC 9112, 7.1).

    >>> chunk(b"hi"), chunk(b"")
    (b'2\\r\\nhi\\r\\n', b'')
    """
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


Run: TypeAlias = Callable[[Out], Awaitable[None]]


class Streaming:
    """A response that ``run`` writes."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, receive, nursery.cancel_scope)
            out = Out(send, scope.get("state", {}).get("link"))
            try:
                await self._run(out)
                await out.finish()
            except DataspaceError as error:
                if not out.started:
                    await answer_of(error)(scope, receive, send)
                # else without its end the connection is cut: so the reader sees that it was not all
            except OSError:
                pass  # the client has gone, or does not read for too long
            nursery.cancel_scope.cancel()


async def _watch(receive: Receive, scope: trio.CancelScope) -> None:
    """Ends the response when its client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


# -- Rows ------------------------------------------------------------------------------------------
# The form of values is the documented one (TEXT.md); a row is an object with the names of the
# captures.
#
# Always: the parts of one epoch, written one after the other, are one JSON object without an empty
# line, and each part ends between two rows.


LISTS: Final = ("added", "messages", "removed")


class Part(NamedTuple):
    """A value of a stream, as WIRE.md has it: one epoch, or a part of one."""

    number: int
    micros: int
    flags: int
    added: Sequence[Sequence[Value]]
    messages: Sequence[Sequence[Value]]
    removed: Sequence[Sequence[Value]]
    first: int


def part_of(value: Any) -> Part:
    """Returns what a value of a stream is, which the daemon has written."""
    return Part(*value)


def value_json(value: Value) -> bytes:
    """Returns the JSON of a value."""
    return orjson.dumps(to_json(value))


def row_json(names: Sequence[str], row: Sequence[Value]) -> bytes:
    """Returns the JSON of a row of captures, by name.

    >>> row_json(("who", "1"), ("Alice", 5))
    b'{"who":"Alice","1":5}'
    """
    return orjson.dumps({name: _plain(value) for name, value in zip(names, row, strict=True)})


def _plain(value: Value) -> Any:
    """Does ``to_json``, without a call for what most captures are."""
    if value.__class__ is str or (value.__class__ is int and -EXACT <= value <= EXACT):
        return value
    return to_json(value)


def rows_json(names: Sequence[str], rows: Iterable[Sequence[Value]]) -> bytes:
    """Returns rows with commas between them."""
    return b",".join([row_json(names, row) for row in rows])


def time_json(micros: int) -> str | None:
    """Returns a time of the wire as text; None for the time of the state before the first epoch."""
    return time_text(time_of(micros)) if micros else None


def change_line(names: Sequence[str], change: Map) -> bytes:
    """Returns a change with who made it, as the request ``who`` returns it, as a line of JSON."""
    members: dict[str, Any] = {str(name): to_json(value) for name, value in change.pairs()}
    captures: Any = change["captures"]
    members["time"] = time_json(change["time"])  # type: ignore[arg-type]  # by WIRE.md
    members["captures"] = {name: to_json(value) for name, value in zip(names, captures, strict=True)}
    return orjson.dumps(members) + b"\n"


class EpochWriter:
    """Writes the values of a stream as JSON objects, one for each epoch, however many values it has."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._list: int | None = None
        self._is_fresh = True
        self.number = 0
        """The epoch of the newest part."""
        self.whole = True
        """True if that part was the last one of its epoch."""

    def part(self, part: Part) -> bytes:
        """Returns the JSON of a part, whose epoch may go on in the next one."""
        self.number = part.number
        pieces = [] if self._list is not None else [self._head(part)]
        for at, rows in enumerate((part.added, part.messages, part.removed)):
            if rows:
                pieces.append(self._advanced(at))
                pieces.append(b"" if self._is_fresh else b",")
                pieces.append(rows_json(self._names, rows))
                self._is_fresh = False
        self.whole = not part.flags & MORE
        if self.whole:
            pieces.append(self._advanced(len(LISTS) - 1) + b"]}")
            self._list = None
        return b"".join(pieces)

    def _head(self, part: Part) -> bytes:
        head: dict[str, object] = {"epoch": part.number, "time": time_json(part.micros)}
        if part.flags & SNAPSHOT:
            head["state"] = True
        if part.flags & CONFLATED:
            head["first"] = part.first
        self._list, self._is_fresh = 0, True
        return orjson.dumps(head)[:-1] + b',"added":['

    def _advanced(self, at: int) -> bytes:
        """Closes the lists before this one, and opens it."""
        assert self._list is not None  # within an epoch
        opened = [b'],"%s":[' % name.encode() for name in LISTS[self._list + 1 : at + 1]]
        if opened:
            self._list, self._is_fresh = at, True
        return b"".join(opened)
