"""``POST /v1/topics/{topic}`` and ``GET /v1/topics/{topic}/events``: topics over HTTP.

A request publishes items at one time and is done with it.  Completed epochs of a durable topic have numbers,
and are the same each time they are read; so these are the ids of the events, with the identity of the topic,
since a topic that is made again counts from 1 again.  Epochs of a topic in memory have none, and are gone
once they were sent.

Always: a reader of a durable topic gets every completed epoch after the named one, whole, once and in order;
no more than one answer of the daemon is held for it.  Open epochs of a topic in memory are bounded, and stay
bytes, since values of one byte each take thirty times as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response

from dataspace.codec import pack, unpack
from dataspace.errors import DataspaceError, Refused
from dataspace.topics import messages as forms
from dataspace.topics.epochs import Gathered, Gathering
from dataspace.topics.subscriber import Subscriber
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN
from index.values.jsons import to_json
from index.values.values import Map, Value
from server.sessions.state import DaemonState
from server.web.inner import EventBatch, InnerSession, inner_session
from server.web.routes.events import BEAT, HEADERS
from server.web.routes.parameters import (
    Asked,
    Parameter,
    Position,
    in_steps,
    read_each,
    read_list,
    read_number,
    read_object,
    read_value,
)
from server.web.routes.problems import problem_of
from server.web.routes.route import Row
from server.web.routes.streaming import Out, Paced, Streaming, value_json

MOST_ITEMS: Final = 65_536

OPEN_BYTES: Final = 8 << 20
"""Bytes that the epochs which are open may have; more is refused with ``limit``."""

SHAPE: Final = ("partitions", "dimensions", "durable", "retain")

TOPIC: Final = Parameter("topic", "the name of a topic", place="path", needed=True)
AFTER: Final = Parameter(
    "after",
    "begin after the epoch of this number, or event, 0 for the first (default: with what completes from now"
    " on); of a durable topic",
    "position",
)
LAST: Final = Parameter(
    "Last-Event-ID", "the id of the last event that came: goes on after it", kind="position", place="header"
)
PUBLISH: Final = (TOPIC,)
UPTO: Final = Parameter("upto", "end after the epoch of this number", "number")
SUBSCRIBE: Final = (TOPIC, AFTER, UPTO, LAST)

_NUMBER: Final = {"type": "integer", "minimum": 0}
ITEMS: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["items"],
    "properties": {
        "items": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Value"}},
        "time": {
            "description": "their time, which must not be over (default: where the partition is)",
            "oneOf": [_NUMBER, {"type": "array", "items": _NUMBER}],
        },
        "partition": {**_NUMBER, "description": "default 0"},
    },
}


async def publish(daemon: DaemonState, asked: Asked) -> Response:
    """Sends items to a topic at one time, which is over for this publisher then; makes a durable one if there
    is none."""
    topic = asked.values["topic"]
    async with inner_session(daemon, asked.caller) as session:
        body = await read_object(daemon, asked, ("items", "time", "partition"))
        listed = read_list(body, "items", MOST_ITEMS)
        items = await in_steps(daemon, asked, read_each(listed, "items", read_value))
        joining = await _shape(session, topic)
        joining["partition"] = read_number(body, "partition") if "partition" in body else 0
        if "time" in body:
            joining["time"] = await in_steps(daemon, asked, read_value(body["time"], "time"))
        joined = await _map(session, "join", joining)
        producer, time = joined["producer"], joined["time"]
        assert isinstance(producer, int)  # by WIRE.md, for one that does not come back
        packed = pack(tuple(items))
        await session.produce(producer, ((0, time, packed), (2,)), len(packed))
    answer = {"topic": topic, "time": to_json(time)}
    return Response(orjson.dumps(answer) + b"\n", media_type="application/json")


async def _shape(session: InnerSession, topic: str) -> dict[str, Value]:
    """Returns the arguments with which to join a topic that is there, or to make it."""
    try:
        known = await _map(session, "lookup", {"topic": topic})
    except Refused as refusal:
        if refusal.code != "no-topic":
            raise
        known = Map()
    shape = {name: known[name] for name in SHAPE if name in known}
    return {"topic": topic, "durable": True, **shape}


async def subscribe(daemon: DaemonState, asked: Asked) -> Streaming:
    """Returns the completed epochs of a topic as events."""
    caller, topic = asked.caller, asked.values["topic"]
    after = asked.values.get("Last-Event-ID", asked.values.get("after"))
    upto = asked.values.get("upto")

    async def run(out: Out) -> None:
        async with inner_session(daemon, caller, MAIN, heartbeat=BEAT) as session:
            known = await _map(session, "lookup", {"topic": topic})
            if not known["durable"]:
                if after is not None or upto is not None:
                    raise Refused("not-durable", f"topic {topic!r} is in memory: its past has no numbers")
                await _tell_live(LiveTopic(session, topic, known), out)
                return
            known = await _map(session, "topic-frontier", {"topic": topic})
            if after is not None:
                _check_same(topic, known, after)
                if upto is not None and upto <= after.number:
                    out.whole({"cache-control": "no-store"}, status=204)  # an EventSource comes back no more
                    return
            reading = _Reading(session, topic, known, after and after.number, upto)
            pieces = await reading.next()  # an epoch that is not retained is an error with its status
            await out.start(HEADERS)
            await out.write(b"retry: 1000\n\n")
            try:
                text = Paced(out)
                await reading.tell(pieces, text)
                while not reading.is_done:
                    pieces = await reading.next(wait=BEAT)
                    await reading.tell(pieces, text)
                    if not pieces:
                        await text.beat(0)
                await out.write(b"event: end\ndata: {}\n\n")
            except DataspaceError as error:
                await out.write(reading.problem(error))

    return Streaming(run)


def _check_same(topic: str, known: Map, after: Position) -> None:
    """Raises ``Refused`` for the id of an event of another topic that had this name before."""
    identity = _identity(known)
    if not identity.startswith(after.identity):
        text = (
            f"the event is of a topic {topic!r} with the identity {after.identity}, this one has {identity}"
        )
        raise Refused("epoch-lost", f"{text}: it was made anew, so begin with after=0")


def _identity(known: Map) -> str:
    """Returns the identity of a topic as it stands in the ids of events."""
    number = known["id"]
    assert isinstance(number, int)  # by WIRE.md
    return f"{number:08x}"


class LiveTopic:
    """A subscription to a topic, from now on; ``known`` is what the request ``lookup`` answered."""

    def __init__(self, session: InnerSession, topic: str, known: Map) -> None:
        count = known["partitions"]
        assert isinstance(count, int)  # by WIRE.md
        partitions = tuple(range(count))
        self._subscriber = Subscriber(partitions, atomic=True, up_to=None)
        self._gathering = Gathering(OPEN_BYTES)
        spec = {"kind": "topic", "topic": topic, "id": known["id"], "partitions": partitions}
        self._reading = session.open(spec)
        self.is_over = False
        """True once nothing more can come."""

    async def next(self) -> list[Gathered] | None:
        """Returns the epochs that the next packet completes, or None after a while without one.

        Raises ``Refused`` for an error of the stream, or where too much is open.
        """
        match await self._reading.next():
            case EventBatch() as batch:
                return [epoch for value in batch.values for epoch in self._take(value)]
            case p.Done():
                self.is_over = True
                return self._gathering.rest()
            case p.Ping():
                return None
        return []

    def _take(self, value: Value) -> list[Gathered]:
        events = self._subscriber.events_of(forms.message_of(value))
        return [epoch for event in events for epoch in self._gathering.collect(event)]


async def _tell_live(topic: LiveTopic, out: Out) -> None:
    """Writes the epochs of a topic in memory as they complete."""
    epochs = await topic.next()  # where it begins, or why it may not be read
    await out.start(HEADERS)
    await out.write(b"retry: 1000\n\n")
    text = Paced(out)
    try:
        while True:
            for each in epochs or ():
                await tell_live(each, text)
            await text.flush()
            await text.beat(BEAT if epochs is not None else 0)  # progress alone is nothing to write
            if topic.is_over:
                break
            epochs = await topic.next()
        await out.write(b"event: end\ndata: {}\n\n")
    except DataspaceError as error:
        await out.write(b"event: problem\ndata: " + problem_of(error).body() + b"\n\n")


async def tell_live(epoch: Gathered, text: Paced) -> None:
    """Adds the event of an epoch to a text."""
    head = orjson.dumps({"time": to_json(epoch.time)})
    text.add(b"data: " + head[:-1] + b',"items":[')
    await _add_items((batch.items for batch in epoch.batches), text, 0)  # type: ignore[misc]  # bytes, as they came
    text.add(b"]" + _crash(epoch.crashed) + b"}\n\n")


def _crash(reason: str) -> bytes:
    return b',"crashed":' + orjson.dumps(reason) if reason else b""


async def _add_items(batches: Iterable[bytes], text: Paced, written: int) -> int:
    """Adds the items of batches after so many of the same epoch; returns how many that makes."""
    for item in _items(batches):
        text.add(b"," + item if written else item)
        written += 1
        await text.pause()
    return written


class _Reading:
    """How far the epochs of a topic were read."""

    def __init__(
        self, session: InnerSession, topic: str, known: Map, after: int | None, upto: int | None
    ) -> None:
        self._session = session
        self._topic = topic
        self._id = known["id"]
        self._of = _identity(known).encode()
        self._completed: Any = known["completed"]
        self._after: Any = self._completed if after is None else after
        self._upto = upto
        self._at: Value = None
        self._written: int | None = None
        """Items that were written of an epoch that goes on; None between two epochs."""

    @property
    def is_done(self) -> bool:
        """True once the last epoch that was wanted has been written."""
        return self._upto is not None and self._after >= self._upto

    async def next(self, *, wait: float = 0.0) -> tuple[Any, ...]:
        """Returns some pieces of epochs, none if nothing completes in so many seconds."""
        if wait and self._after == self._completed:
            await self._wait(wait)
        if self._after == self._completed:
            return ()
        upto = max(self._after, self._completed if self._upto is None else min(self._upto, self._completed))
        asked = {"id": self._id, "after": self._after, "upto": upto, "at": self._at}
        answer = await self._session.request("topic-epochs", {"topic": self._topic, **asked})
        assert isinstance(answer, tuple)  # by WIRE.md
        return answer

    async def _wait(self, seconds: float) -> None:
        asked: dict[str, Value] = {"topic": self._topic, "after": self._after, "wait": round(seconds * 1000)}
        known = await _map(self._session, "topic-frontier", asked)
        if known["id"] != self._id:
            raise Refused("no-topic", f"topic {self._topic!r} was ended, and another one has its name")
        self._completed = known["completed"]

    async def tell(self, pieces: tuple[Any, ...], text: Paced) -> None:
        """Writes pieces; an epoch is one event, however many it has."""
        for piece in pieces:
            await self._tell(piece, text)
        await text.flush()

    async def _tell(self, piece: Any, text: Paced) -> None:
        number, time, crashed, batches, self._at = piece
        text.add(b"data: ")
        if self._written is None:
            head = orjson.dumps({"number": number, "time": to_json(time)})
            text.add(head[:-1] + b',"items":[')
            self._written = 0
        self._written = await _add_items(batches, text, self._written)
        if self._at is None:
            text.add(b"]" + _crash(crashed) + b"}\nid: %d-%b\n" % (number, self._of))
            self._after, self._written = number, None
        text.add(b"\n")

    def problem(self, error: DataspaceError) -> bytes:
        """Returns the last event, a comment in the midst of an epoch."""
        body = problem_of(error).body()
        if self._written is None:
            return b"event: problem\ndata: " + body + b"\n\n"
        return b": problem " + body + b"\n"


def _items(batches: Iterable[bytes]) -> Iterator[bytes]:
    for batch in batches:
        items = unpack(batch)
        assert isinstance(items, tuple)  # as the daemon has checked
        yield from map(value_json, items)


async def _map(session: InnerSession, verb: str, arguments: Mapping[str, Value]) -> Map:
    answer = await session.request(verb, dict(arguments))
    assert isinstance(answer, Map)  # by WIRE.md
    return answer


ROUTES: Final = (
    Row("POST", "/v1/topics/{topic}", "items to a durable topic", publish, PUBLISH, ITEMS),
    Row(
        "GET",
        "/v1/topics/{topic}/events",
        "the completed epochs of a durable topic as server-sent events",
        subscribe,
        SUBSCRIBE,
        returns={200: "text/event-stream"},
    ),
)
