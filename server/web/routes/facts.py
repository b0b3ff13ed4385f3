"""``GET …/facts``: the state of a pattern as JSON, with the epoch as its entity tag."""

from __future__ import annotations

from typing import Final

import orjson

from dataspace.kernel.actions import MORE
from dataspace.wire import packets as p
from dataspace.wire.features import SYSTEM
from index.patterns.patterns import capture_names
from index.values.values import Value
from server.sessions.state import DaemonState
from server.web.inner import EventBatch, InnerSession, Reading, inner_session
from server.web.routes.parameters import IDENTITY, PATTERN, SPACE, Asked, Parameter
from server.web.routes.streaming import Out, Part, Streaming, part_of, rows_json, time_json

AS_OF: Final = Parameter("as_of", "the epoch whose state is wanted, instead of the state now", kind="number")
IF_NONE_MATCH: Final = Parameter(
    "If-None-Match",
    "the entity tag of the state that is known: answered with 304 if it still is",
    place="header",
)
PARAMETERS: Final = (SPACE, PATTERN, AS_OF, IF_NONE_MATCH)


async def facts(daemon: DaemonState, asked: Asked) -> Streaming:
    """Returns what matches a pattern, as rows of captures."""
    caller, known = asked.caller, asked.values.get("If-None-Match", "")

    async def run(out: Out) -> None:
        async with inner_session(daemon, caller, asked.space) as session:
            if "as_of" not in asked.values and _is_among(_tag(session, asked.space), known):
                await _check_readable(session, asked)
                _unchanged(out, _tag(session, asked.space))
            else:
                await _state(session, asked, known, out)

    return Streaming(run)


def _spec(asked: Asked, **more: Value) -> dict[str, Value]:
    return {"space": asked.space, "pattern": asked.values["pattern"], "quiet": True, **more}


async def _check_readable(session: InnerSession, asked: Asked) -> None:
    """Raises ``Refused`` if the pattern may not be observed; computes no state."""
    await session.open(_spec(asked, snapshot=False)).next()


def _unchanged(out: Out, tag: str) -> None:
    out.whole({"etag": tag, "cache-control": "no-cache"}, status=304)


async def _state(session: InnerSession, asked: Asked, known: str, out: Out) -> None:
    at = asked.values.get("as_of")
    past: dict[str, Value] = {} if at is None else {"as_of": at, "upto": at}
    reading = session.open(_spec(asked, **past))
    parts = await _parts(reading)
    state = parts[0]
    tag = _tag(session, asked.space, state.number)
    if _is_among(tag, known):
        _unchanged(out, tag)
        return
    names = capture_names(asked.values["pattern"])
    head = {"space": asked.space, "epoch": state.number, "time": time_json(state.micros), "captures": names}
    headers = {"content-type": "application/json", "cache-control": "no-cache"}
    if tag:
        headers["etag"] = tag
    body = orjson.dumps(head)[:-1] + b',"rows":['
    if not state.flags & MORE:
        out.whole(headers, body + rows_json(names, state.added) + b"]}\n")
        return
    await out.start(headers)
    await _stream(reading, names, body, parts, out)


async def _stream(reading: Reading, names: tuple[str, ...], body: bytes, parts: list[Part], out: Out) -> None:
    """Writes a state that comes in several values."""
    between = b""
    while True:
        for part in parts:
            body += between + rows_json(names, part.added)
            between = b","
            if not part.flags & MORE:
                await out.write(body + b"]}\n")
                return
        await out.write(body)
        body = b""
        parts = await _parts(reading)


async def _parts(reading: Reading) -> list[Part]:
    """Returns the next parts of a state."""
    while True:
        packet = await reading.next()
        assert not isinstance(packet, p.Done)  # a state comes first
        if isinstance(packet, EventBatch):
            return [part_of(value) for value in packet.values]


def _tag(session: InnerSession, space: str, epoch: int | None = None) -> str:
    """Returns the entity tag of a state; empty for the space that has no log, and no epochs of its own."""
    if space == SYSTEM:
        return ""
    return f'"{session.epoch if epoch is None else epoch}-{session.identity[:IDENTITY]}"'


def _is_among(tag: str, known: str) -> bool:
    """True if an ``If-None-Match`` names this tag."""
    return bool(tag) and tag in [each.strip().removeprefix("W/") for each in known.split(",")]
