"""The publications and subscriptions of one connection.

Always: only the connection that joined as a producer can send as it; producers with more than a window of
unanswered bytes break the protocol, so what waits for a slow subscriber or the disk is bounded; a step of a
durable topic is answered when it is on disk; a producer that may not be away crashes with its connection.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from dataspace.codec import unpack
from dataspace.errors import Closed, ProtocolError, Refused, UsageError
from dataspace.topics import messages as forms
from dataspace.topics.messages import changes_of
from dataspace.topics.times import Order
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN
from dataspace.wire.verbs import Arguments
from index.values.values import Map, Record, Value
from relay.delivery.outbox import OutStream
from relay.store.errors import LogFailed
from relay.topics.feed import CatchUp, Feed, Teller
from relay.topics.topic import MAX_PARTITIONS
from server.lane import SLICE_SECONDS
from server.sessions.feeding import Feeder
from server.sessions.peer import FeederKey, Peer
from server.topics.catalogue import TopicEntry, Topics
from server.topics.catching import TopicStream
from server.topics.durable import MAX_AWAY
from server.topics.part import TOPICS

logger = logging.getLogger("dataspace")

if TYPE_CHECKING:
    from dataspace.topics.times import Change, Time
    from server.topics.durable import DurableTopics

MAX_NAME: Final = 256
"""Characters of the name of a topic, or of a producer."""

MAX_TIMES: Final = 1024
"""Times from which one subscription may begin."""

MAX_PRODUCERS: Final = 1024
"""Producers of one connection."""

WINDOW: Final = 1 << 20
"""Bytes that a producer may have unanswered, before its last packet."""

JUDGED: Final = 0.25
"""Seconds after which a publisher that waits looks whether a subscriber keeps it waiting in vain."""

SPARE: Final = 4096
"""Bytes of a frame that are not the items of a batch."""

OPTIONS: Final = frozenset(["kind", "space", "topic", "id", "partitions", "as_of", "policy"])


@dataclass(eq=False)
class Producer:
    """A producer of one connection: its topic, and its bytes without an answer."""

    entry: TopicEntry
    unanswered: int = 0
    refused: Refused | None = None
    """Why a step did not find room on the disk, after which none is carried out but a crash."""


def _is_crash(step: Value) -> bool:
    return isinstance(step, tuple) and step[:1] == (forms.CRASH,)


def stays(peer: Peer, refusal: Refused) -> Refused:
    """Returns a refusal about topics for a peer: a session about a space that is led apart does not move."""
    moves = peer.reads or peer.hosted.name == MAIN or not peer.shared.home.leads_each
    if moves or refusal.code not in p.FOLLOWING:
        return refusal
    return Refused(p.TOPICS_ELSEWHERE, f"topics are led with space {MAIN!r}: {refusal.text}", refusal.url)


class TopicConnection(Feeder):
    """The producers and subscriptions of one connection."""

    def __init__(self, peer: Peer, topics: Topics, durable: DurableTopics) -> None:
        self._peer = peer
        self._system = peer.shared.system
        self._largest = peer.limits.frame_bytes - SPARE
        """Bytes of a batch, which must fit into one frame."""
        self._topics = topics
        self._durable = durable
        self._producers: dict[int, Producer] = {}
        self._streams: dict[OutStream, TopicStream] = {}

    # -- producers ------------------------------------------------------------------------------------

    def join(self, name: str, arguments: Arguments) -> Value:
        """Makes this connection a producer of a topic, which is created if there is none of that name."""
        if self._peer.gone:  # by a goodbye in the same write: nobody would end the producer
            raise Refused("no-producer", "the connection has ended")
        if len(self._producers) >= MAX_PRODUCERS:
            excess = f"{len(self._producers)} producers of one connection, limit {MAX_PRODUCERS}"
            raise Refused("limit", f"{excess}: end some, or open another connection")
        if not name:
            raise Refused("bad-request", "a topic has a name")
        if len(name) > MAX_NAME:
            raise Refused("limit", f"a topic's name of {len(name)} characters, limit {MAX_NAME}")
        order = Order(arguments["dimensions"])
        partitions = arguments["partitions"]
        entry = self._found(name) or self._made(name, order, partitions, arguments)
        self._check_shape(entry, order, partitions, arguments)
        answer = self._come_back(entry, arguments)
        return answer if answer is not None else self._joined(entry, arguments)

    def _found(self, name: str) -> TopicEntry | None:
        try:
            return self._topics.find(name)
        except Refused:
            return None

    def _made(self, name: str, order: Order, partitions: int, arguments: Arguments) -> TopicEntry:
        retain, owner = arguments["retain"], self._peer.number
        if arguments["back"]:
            raise Refused("no-topic", f"no topic named {name!r} to come back to")
        if retain or arguments["durable"]:
            self._peer.bearer.permit.check_topic("retain", name)
        self._peer.account.check("topics")
        if not arguments["durable"]:
            self._peer.account.check("retained_bytes", retain)
            return self._topics.make(name, order, partitions, retain, owner)
        return self._durable.make(name, order, partitions, retain, arguments["age"], owner)

    def _check_shape(self, entry: TopicEntry, order: Order, partitions: int, arguments: Arguments) -> None:
        topic, there = entry.topic, len(entry.topic.partitions)
        if (topic.order, there) != (order, partitions):
            raise Refused(
                "topic-differs",
                f"{topic.name!r} has {there} partitions and {topic.order.dimensions} dimensions,"
                f" asked for were {partitions} and {order.dimensions}",
            )
        if arguments["durable"] and not entry.durable:
            raise Refused("topic-differs", f"{topic.name!r} is not durable")

    def _come_back(self, entry: TopicEntry, arguments: Arguments) -> Value:
        """Attaches a disconnected producer to this connection, if there is one of the given name."""
        name, back = self._name(arguments), arguments["back"]
        step_log = entry.step_log
        number = step_log.named(name)
        if number is not None:
            member = step_log.members[number]
            self._durable.attach(number, self.detach)
            self._producers[number] = Producer(entry)
            self._system.state([self._publication(number, entry)], [])
            return Map(
                {
                    "producer": number,
                    "id": entry.number,
                    "taken": member.steps,
                    "held": tuple(entry.topic.holds(number)),
                    "time": None,
                    "sent": tuple(member.sent.items()),
                }
            )
        if back and name in step_log.departed:
            return Map({"producer": None, "id": entry.number, "taken": step_log.departed[name], "held": ()})
        if back:
            raise Refused("no-producer", f"producer {name!r} has crashed: it was away for too long")
        return None

    def _joined(self, entry: TopicEntry, arguments: Arguments) -> Value:
        number, at = self._topics.number(), arguments["partition"]
        time = arguments["time"]
        entry.topic.check_join(at, time)
        if not entry.durable:
            start = entry.step_log.join(number, at, time)
        else:
            self._durable.check_room()
            name, away = self._name(arguments), arguments["away"]
            if away > MAX_AWAY:
                raise Refused("limit", f"away={away} milliseconds, limit {MAX_AWAY}")
            if away < 0 or (away and not name):
                raise Refused("bad-request", f"away must be from 0 to {MAX_AWAY} ms, and needs a name")
            if not self._topics.is_listed(entry):
                entry.topic.partition(at)
                if time is not None:
                    entry.topic.order.check(time)
                self._durable.begin(entry)
            start = entry.step_log.join(number, at, time, name=name, away=away)
            self._durable.attach(number, self.detach)
        if not self._topics.is_listed(entry):
            entry.account = self._peer.account
            self._topics.enlist(entry)
        self._producers[number] = Producer(entry)
        self._system.state([self._publication(number, entry)], [])
        held = tuple(entry.topic.holds(number))
        return Map(
            {"producer": number, "time": start, "id": entry.number, "taken": 0, "held": held, "sent": ()}
        )

    def _name(self, arguments: Arguments) -> str:
        """Returns the name under which a producer is kept: it belongs to the bearer that joins."""
        stated = arguments["name"]
        if len(stated) > MAX_NAME:
            raise Refused("limit", f"a producer's name of {len(stated)} characters, limit {MAX_NAME}")
        return self._peer.bearer.own(stated) if stated else ""

    def _publication(self, number: int, entry: TopicEntry) -> Record:
        at = entry.topic.partition_of(number)
        return Record("publication", entry.topic.name, at, number, self._peer.session_id)

    async def hear(self, packet: p.Packet) -> None:
        """Applies the steps of a producer, and answers; raises ``ProtocolError`` as ``_apply``."""
        assert isinstance(packet, p.Produce)  # as the feature says
        try:
            await self._apply(packet, self._peer.door.size)
        except Refused as refusal:
            self._peer.say(p.Denied(packet.number, refusal.code, refusal.text[:4000], url=refusal.url))
        except UsageError as error:
            self._peer.say(p.Denied(packet.number, "bad-request", str(error)[:4000]))

    async def _apply(self, packet: p.Produce, size: int) -> None:
        """Applies the steps of a producer in order, with pauses for others where that takes long; the answer
        comes when there is capacity for more.

        Raises ``ProtocolError`` for a producer that does not wait for answers.
        """
        producer = self._producer(packet.producer)
        if producer.unanswered > WINDOW:
            raise ProtocolError("overrun", f"{producer.unanswered} bytes unanswered, window {WINDOW}")
        entry = producer.entry
        try:
            await self._carry_out_all(packet, producer)
        finally:
            self._topics.retire(entry)
        if entry.durable:
            producer.unanswered += size
            self._durable.writer.when_durable(partial(self._on_disk, producer, packet.number, size))
        elif entry.full:
            producer.unanswered += size
            self._peer.start(self._answer_later, producer, packet.number, size)
        else:
            self._peer.say(p.Answer(packet.number, None))

    async def _carry_out_all(self, packet: p.Produce, producer: Producer) -> None:
        work, until = self._peer.work(), perf_counter() + SLICE_SECONDS
        try:
            for step in packet.steps:
                if perf_counter() > until:
                    self._peer.flush()
                    await work.pass_on()
                    until = perf_counter() + SLICE_SECONDS
                self._producer(packet.producer)  # what came before may have been its last step
                # What was sent behind a step that found no room would complete its epoch without it.
                if producer.refused is not None and not _is_crash(step):
                    raise producer.refused
                self._carry_out(packet.producer, producer, step)
        except Refused as refusal:
            if refusal.code == "disk-full":
                producer.refused = refusal
            raise
        finally:
            work.leave()

    def _producer(self, number: int) -> Producer:
        """Returns a producer; raises ``Refused`` if it has left, or was never this connection's."""
        producer = self._producers.get(number)
        if producer is None:
            raise Refused("no-producer", f"producer {number} is not one of this connection's")
        return producer

    def _on_disk(self, producer: Producer, number: int, size: int) -> None:
        """Answers a producer of a durable topic, whose steps are on disk."""
        if self._peer.gone:
            return
        if producer.entry.full:
            self._peer.start(self._answer_later, producer, number, size)
        else:
            producer.unanswered -= size
            self._peer.say(p.Answer(number, None))

    async def _answer_later(self, producer: Producer, number: int, size: int) -> None:
        while producer.entry.full:
            with trio.move_on_after(JUDGED):
                await producer.entry.has_room.wait()
            producer.entry.judge(trio.current_time())
        producer.unanswered -= size
        self._peer.say(p.Answer(number, None))
        self._peer.flush()

    def _carry_out(self, number: int, producer: Producer, step: Value) -> None:
        entry = producer.entry
        if not self._topics.is_listed(entry):
            if step == (forms.LEAVE,) and not entry.topic.holds(number):
                self._gone(number)  # it had released all that it held, and the topic ended with that
                return
            raise Refused("no-topic", f"topic {entry.topic.name!r} has ended")
        match step:
            case (forms.SEND, time, bytes(items)):
                self._check_batch(entry, items)
                entry.topic.check_room(number, time, ())  # type: ignore[arg-type]  # it checks it
                entry.step_log.send(number, time, items)  # type: ignore[arg-type]  # send checks it
            case (forms.FINISH, time, bytes(items), changes):
                self._check_batch(entry, items)
                changed = _changed(changes)
                entry.topic.check_room(number, time, changed)  # type: ignore[arg-type]  # as above
                entry.step_log.finish(number, time, items, changed)  # type: ignore[arg-type]  # as above
            case (forms.CHANGE, changes):
                changed = _changed(changes)
                entry.topic.check_room(number, None, changed)
                entry.step_log.progress(number, changed)
            case (forms.LEAVE,):
                self._gone(number)
                entry.step_log.leave(number)
            case (forms.CRASH, str(reason)):
                self._gone(number)
                entry.step_log.crash(number, reason[:4096])
            case _:
                raise Refused("bad-request", f"no step of a producer: {step!r:.80}")

    def _check_batch(self, entry: TopicEntry, items: bytes) -> None:
        if len(items) > self._largest:
            excess = f"a batch of {len(items)} bytes, limit {self._largest}: {SPARE} below limits.frame_bytes"
            raise Refused("limit", f"{excess}; send it in several")
        if entry.durable:
            self._durable.check_room()
        _check_items(items)
        self._topics.check_batch(entry, len(items))

    def _gone(self, number: int) -> None:
        self._system.state([], [self._publication(number, self._producers.pop(number).entry)])
        self._durable.gone(number)

    def detach(self, number: int) -> None:
        """Notes that another connection has this producer now, before the end of this one was detected."""
        self._system.state([], [self._publication(number, self._producers.pop(number).entry)])

    def end_topic(self, name: str) -> None:
        """Ends a topic: the session that made it may, or any if it is durable and has no publisher."""
        entry = self._topics.find(name)
        dormant = entry.durable and not entry.topic.producers
        if entry.owner != self._peer.number and not dormant:
            whose = self._peer.session_of(entry.owner)
            raise Refused("not-owner", f"topic {name!r} belongs to session {whose}")
        if entry.owner != self._peer.number:
            self._peer.bearer.permit.check_topic("end", name)
        self._topics.end(entry)
        self._durable.end(entry)

    # -- subscribers ----------------------------------------------------------------------------------

    def open(self, stream: OutStream, spec: Map) -> None:
        """Begins to feed a stream with the messages of a topic; ``Refused`` or ``UsageError``."""
        self._peer.permit.check_topic("subscribe", str(spec.get("topic")))
        try:
            self._open(stream, spec)
        except Refused as refusal:
            raise stays(self._peer, refusal) from None

    def _open(self, stream: OutStream, spec: Map) -> None:
        unknown = [str(name) for name in spec if name not in OPTIONS]
        if unknown:
            raise Refused("bad-request", f"no option {unknown[0]!r}, known are {', '.join(sorted(OPTIONS))}")
        name, policy = spec.get("topic"), spec.get("policy", "fail")
        if not isinstance(name, str) or policy not in ("fail", "wait"):
            raise Refused("bad-request", "a topic and a policy, 'fail' or 'wait', are needed")
        entry = self._topics.find(name)
        self._topics.check_same(entry, spec.get("id", entry.number))
        partitions = spec.get("partitions", tuple(range(len(entry.topic.partitions))))
        as_of = spec.get("as_of")
        if not isinstance(partitions, tuple) or not (as_of is None or isinstance(as_of, tuple)):
            raise Refused("bad-request", "partitions and as_of must be arrays")
        for what, most in (("partitions", MAX_PARTITIONS), ("as_of", MAX_TIMES)):
            given = spec.get(what)
            if isinstance(given, tuple) and len(given) > most:
                raise Refused("limit", f"{len(given)} elements of {what}, limit {most}")
        peer = self._peer
        gate = entry.step_log if entry.durable else None
        feed = Feed(lambda: peer.wake(stream), entry.make_room, wait=policy == "wait", gate=gate)
        stream.backlog = feed
        chosen: list[int] = list(dict.fromkeys(partitions))  # type: ignore[arg-type]  # checked by the topic
        times: tuple[Time, ...] | None = as_of  # type: ignore[assignment]  # as above
        self._follow(stream, entry, feed, chosen, times)

    def _follow(
        self,
        stream: OutStream,
        entry: TopicEntry,
        feed: Feed,
        chosen: list[int],
        as_of: tuple[Time, ...] | None,
    ) -> None:
        number, session = self._topics.number(), self._peer.session_id
        facts = [Record("subscription", entry.topic.name, each, number, session) for each in chosen]
        tell, over = Teller(feed), partial(self._over, stream)

        def reading(times: tuple[Time, ...] | None) -> CatchUp:
            return CatchUp(entry.step_log, number, chosen, times, tell, over)

        found = TopicStream(entry, number, facts, stream, feed, self._peer, self._durable, reading)
        self._streams[stream] = found
        try:
            if as_of is None:
                entry.topic.subscribe(number, chosen, tell, over)
            elif entry.durable:
                found.begin(as_of)
            else:
                catching = reading(as_of)
                catching.begin(entry.step_log.tail_begin())
                catching.finish()
        except (UsageError, Refused):
            del self._streams[stream]
            raise
        if stream in self._streams:
            entry.feeds[number], entry.fall_back[number] = feed, found.fall_back
            self._system.state(facts, [])
        self._peer.wake(stream)

    def _over(self, stream: OutStream) -> None:
        """Completes the stream of an ended topic, once all waiting messages are sent."""
        stream.complete = True
        feed = stream.backlog
        self.close(stream)
        self._peer.wake(stream)
        if isinstance(feed, Feed):
            self._durable.when_durable(feed.send_held)

    def close(self, stream: OutStream) -> None:
        """Stops feeding a stream, if it was fed from here."""
        found = self._streams.pop(stream, None)
        if found is not None:
            found.cancel()
            found.entry.topic.unsubscribe(found.number)
            found.entry.feeds.pop(found.number, None)
            found.entry.fall_back.pop(found.number, None)
            found.entry.make_room()
            self._system.state([], found.facts)

    def end(self, reason: str) -> None:
        """Handles the end of the connection: subscriptions end, producers are detached or crash; may be
        called again."""
        for number, producer in list(self._producers.items()):
            self._part(number, producer.entry, reason)
        for stream in list(self._streams):
            self.close(stream)

    def _part(self, number: int, entry: TopicEntry, reason: str) -> None:
        """Detaches a producer whose connection has ended, or has it crash; after a defect it has crashed, as
        else its topic would wait for it without end."""
        try:
            self._gone(number)
            if self._topics.is_listed(entry) and entry.durable:
                self._durable.detach(entry, number, reason)
            elif self._topics.is_listed(entry):
                entry.step_log.crash(number, reason)
                self._topics.retire(entry)
        except (LogFailed, Closed):
            pass  # the daemon is ending, and the next one marks it as crashed
        except Exception:  # a fence around one producer
            logger.exception("a producer of topic %s could not be detached: a defect", entry.topic.name)
            self._producers.pop(number, None)
            with suppress(Exception):  # of the same defect; the next start marks it as crashed
                self._durable.crash(entry, number, "a defect where its connection had ended")


def _connection(peer: Peer) -> TopicConnection:
    topics = peer.shared.parts[TOPICS]
    return TopicConnection(peer, topics.catalogue, topics.durable)


CONNECTION: Final = FeederKey(_connection, OPTIONS)


def _check_items(items: bytes) -> None:
    """Refuses what no subscriber could read: a producer must not break one."""
    try:
        value = unpack(items)
    except ProtocolError as error:
        code = "limit" if error.code == "limit" else "bad-request"
        raise Refused(code, f"items of a batch cannot be read: {error.text}") from None
    if value.__class__ is not tuple:
        raise Refused("bad-request", f"items of a batch must be an array, got {value!r:.60}")


def _changed(changes: Value) -> tuple[Change, ...]:
    """Returns the changes of capabilities in a step; refuses the step alone if they are malformed."""
    try:
        return changes_of(changes)
    except ProtocolError as error:
        raise Refused("bad-request", error.text) from None
