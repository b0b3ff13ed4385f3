"""Requests about topics: join and end one, look one up, read completed epochs of a durable one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

import trio

from dataspace.errors import Refused
from dataspace.topics.times import Antichain, Time
from dataspace.wire.verbs import Arguments
from index.values.values import Map, Value
from relay.journal import history
from relay.journal.past import PART_BYTES, Piece
from relay.store.errors import LogDamaged
from relay.topics.steps import LAST, StepLog
from relay.topics.topic import MAX_PARTITIONS
from server.sessions.peer import Peer
from server.sessions.requests import Unwritten, Verb
from server.topics.catalogue import TopicEntry
from server.topics.following import CONNECTION, stays
from server.topics.part import DaemonTopics

MOST: Final = 64
"""Partitions, producers and subscribers that are listed."""

TIMES: Final = 16
"""Times of one frontier, or of one producer, that are listed."""


class TopicVerbs:
    """The requests that the topics of one daemon answer."""

    def __init__(self, topics: DaemonTopics) -> None:
        self._topics = topics.catalogue
        self._durable = topics.durable

    def table(self) -> Mapping[str, Verb]:
        """Returns them by the names that they have on the wire."""
        anywhere = {
            "lookup": self.lookup,
            "topic-frontier": self.frontier,
            "topic-epochs": self.epochs,
            "topic-number": self.number_at,
        }
        led = {"join": self.join, "end-topic": self.end_topic, "topic-acknowledge": self.acknowledge}
        return {name: self._of_topics(verb, leads=name in led) for name, verb in (anywhere | led).items()}

    def _of_topics(self, verb: Verb, *, leads: bool) -> Verb:
        """Returns a verb that is refused as the session of its peer needs it, where it is refused."""

        async def asked(peer: Peer, arguments: Arguments) -> Value | Unwritten:
            try:
                if leads:
                    self._topics.check_led()
                return await verb(peer, arguments)
            except Refused as refusal:
                raise stays(peer, refusal) from None

        return asked

    async def join(self, peer: Peer, arguments: Arguments) -> Value:
        """Makes the connection a producer of a partition of a topic."""
        answer = peer.feeder(CONNECTION).join(_name(peer, arguments, "publish"), arguments)
        await self._durable.writer.wait_durable()
        return answer

    async def lookup(self, peer: Peer, arguments: Arguments) -> Value:
        """Returns the shape of a topic; waits up to ``wait`` ms until there is one of that name."""
        name = arguments["topic"]
        peer.bearer.permit.check_topic_known(name)
        entry = await self._topics.wait_for(name, arguments["wait"])
        topic = entry.topic
        shape: dict[str, Value] = {
            "id": entry.number,
            "partitions": len(topic.partitions),
            "dimensions": topic.order.dimensions,
            "retain": entry.step_log.retain,
            "durable": entry.durable,
        }
        if not arguments["detail"]:
            return Map(shape)
        peer.bearer.permit.check_inspect("the detail of a topic")
        return Map(shape | _survey(entry))

    async def frontier(self, peer: Peer, arguments: Arguments) -> Value:
        """Returns what is completed of a durable topic; waits up to ``wait`` ms for more than ``after``."""
        after = arguments["after"]
        entry = self._topics.find(_name(peer, arguments, "subscribe"))
        self._checked(entry, entry.number)
        with trio.move_on_after(arguments["wait"] / 1000):
            while entry.step_log.completed_durable <= after and self._topics.is_listed(entry):
                await entry.completed.wait()
        step_log = entry.step_log
        with suppress(Refused):  # while the archive is away, the oldest on disk is the oldest
            await self._durable.cover(step_log)
        return Map(
            {
                "id": entry.number,
                "completed": step_log.completed_durable,
                "oldest": step_log.oldest_read,
                "partitions": len(entry.topic.partitions),
                "dimensions": entry.topic.order.dimensions,
            }
        )

    async def epochs(self, peer: Peer, arguments: Arguments) -> Value:
        """Returns some completed epochs of a range of numbers, the same each time, and where to continue."""
        entry = self._asked(peer, arguments)
        after, upto, place = arguments["after"], arguments["upto"], _place(arguments["at"])
        await self._durable.complete(entry, upto)
        step_log, asked = entry.step_log, (after, upto, place, PART_BYTES)
        if after < step_log.oldest - 1:
            await self._durable.cover(step_log)
        _check_range(step_log, after, upto)
        try:
            pieces: list[Piece] = await self._durable.read_from(
                step_log, after + 1, lambda journal: history.pieces(journal, step_log, *asked)
            )
        except LogDamaged:
            _check_range(step_log, after, upto)
            raise
        return tuple((each.number, each.time, each.crashed, each.items, each.next) for each in pieces)

    async def number_at(self, peer: Peer, arguments: Arguments) -> Value:
        """Returns the number after which the completed epochs at or after a time begin."""
        entry = self._asked(peer, arguments)
        since = Antichain([entry.topic.order.check(arguments["time"])])
        return await self._durable.read_since(entry.step_log, since, history.number_at)

    async def acknowledge(self, peer: Peer, arguments: Arguments) -> Value:
        """Stores that a named reader has acknowledged the completed epochs up to a number."""
        reader, epoch = arguments["reader"], max(0, arguments["number"])
        name = _name(peer, arguments, "subscribe")
        peer.bearer.permit.check_reader(reader)
        step_log = self._checked(self._topics.find(name), arguments["id"]).step_log
        if epoch > step_log.completed_durable:
            raise _ahead(epoch, step_log)
        now = time.time_ns() // 1000
        await trio.to_thread.run_sync(
            self._durable.writer.journal.acknowledge, step_log.slot, reader, epoch, now
        )
        return None

    def _asked(self, peer: Peer, arguments: Arguments) -> TopicEntry:
        name = _name(peer, arguments, "subscribe")
        return self._checked(self._topics.find(name), arguments["id"])

    def _checked(self, entry: TopicEntry, number: int) -> TopicEntry:
        """Returns a durable topic; raises ``Refused`` for any other, or if it is not that number."""
        if not entry.durable:
            raise Refused(
                "not-durable", f"topic {entry.topic.name!r} is not durable: its past has no numbers"
            )
        self._topics.check_same(entry, number)
        return entry

    async def end_topic(self, peer: Peer, arguments: Arguments) -> Value:
        """Ends a topic that this session made, or a durable one without a publisher."""
        name = arguments["topic"]
        peer.bearer.permit.check_topic_known(name)
        peer.feeder(CONNECTION).end_topic(name)
        await self._durable.writer.wait_durable()
        return None


def _name(peer: Peer, arguments: Arguments, doing: str) -> str:
    """Returns the name of a topic; raises ``Refused`` if the client has no right to do this with it."""
    name: str = arguments["topic"]
    peer.bearer.permit.check_topic(doing, name)
    return name


def _check_range(step_log: StepLog, after: int, upto: int) -> None:
    if after < step_log.oldest_read - 1:
        raise Refused(
            "epoch-gone", f"epoch {after + 1} is not retained, the oldest is {step_log.oldest_read}"
        )
    if upto > step_log.completed_durable:
        raise _ahead(upto, step_log)
    if after > upto:
        raise Refused("bad-request", f"after {after} must not be beyond upto {upto}")


def _ahead(epoch: int, step_log: StepLog) -> Refused:
    newest = step_log.completed_durable
    return Refused("epoch-ahead", f"epoch {epoch} is still to come, the newest is {newest}")


def _place(stated: tuple[int, int] | None) -> tuple[int, int] | None:
    if stated is not None and not (0 <= stated[0] < MAX_PARTITIONS and 0 < stated[1] < LAST):
        raise Refused("bad-request", f"no place in an epoch: {stated!r:.60}")
    return stated


def _survey(entry: TopicEntry) -> dict[str, Value]:
    """Returns frontiers, producers and subscribers of a topic; O(partitions).

    Always: an answer has a limited number of partitions, producers and subscribers, of each the first; the
    counts are of all.
    """
    topic, step_log = entry.topic, entry.step_log
    statistics = topic.statistics()
    known: dict[str, Value] = {
        "batches": sum([each.batches for each in statistics]),
        "crashes": sum([each.crashes for each in statistics]),
        "producers": len(topic.producers),
        "subscriptions": len(entry.feeds),
        "retained_bytes": step_log.size,
        "full": entry.full,
        "frontiers": tuple([_partition(entry, at) for at in range(min(MOST, len(topic.partitions)))]),
        "producing": tuple([_producer(entry, each) for each in topic.producers[:MOST]]),
        "subscribing": tuple([_subscriber(entry, each) for each in islice(entry.feeds, MOST)]),
    }
    if entry.durable:
        known |= {"completed": step_log.completed, "oldest": step_log.oldest_read}
    return known


def _partition(entry: TopicEntry, at: int) -> Map:
    """Returns the frontiers of a partition: times that may still come, and the last that were sent."""
    publisher = entry.topic.partitions[at]
    counts = publisher.statistics()
    return Map(
        {
            "partition": at,
            "lower": _times(publisher.lower),
            "upper": _times(publisher.upper),
            "producers": counts.producers,
            "subscribers": counts.subscribers,
            "open_epochs": counts.active,
            "batches": counts.batches,
            "crashes": counts.crashes,
        }
    )


def _producer(entry: TopicEntry, number: int) -> Map:
    topic = entry.topic
    held = _times(time for time, _ in topic.holds(number))
    member = entry.step_log.members[number]
    kept: dict[str, Value] = {"name": member.name, "steps": member.steps} if entry.durable else {}
    return Map({"producer": number, "partition": topic.partition_of(number), "holds": held} | kept)


def _subscriber(entry: TopicEntry, number: int) -> Map:
    feed = entry.feeds[number].statistics()
    return Map(
        {
            "subscription": number,
            "waiting": feed.waiting,
            "waiting_bytes": feed.bytes,
            "taken": feed.taken,
        }
    )


def _times(times: Iterable[Time]) -> tuple[Value, ...]:
    return tuple(islice(times, TIMES))
