"""Requests about topics: join and end one, look one up, read completed epochs of a durable one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from dataspace.errors import Refused
from dataspace.wire.arguments import number, text
from index.values.values import Map, Value
from server.owners.bearers import Bearer
from server.topics.catalogue import Topics
from server.topics.catch_up import topic_acknowledge, topic_epochs, topic_frontier, topic_number
from server.topics.durable import DurableTopics
from server.topics.following import TopicConnection
from server.topics.surveys import survey


class TopicAsker(Protocol):
    """The connection whose requests are about topics."""

    @property
    def following(self) -> TopicConnection:
        """What it publishes and subscribes."""

    @property
    def bearer(self) -> Bearer:
        """Who the client is, and what it may do."""


class TopicVerbs:
    """The requests that the topics of one daemon answer."""

    def __init__(self, topics: Topics, durable_topics: DurableTopics) -> None:
        self._topics = topics
        self._durable = durable_topics
        self._journal = durable_topics.writer.journal

    def table(self) -> Mapping[str, Callable[[TopicAsker, Map], Awaitable[Value]]]:
        """Returns them by the names that they have on the wire."""
        return {
            "join": self.join,
            "lookup": self.lookup,
            "end-topic": self.end_topic,
            "topic-frontier": self.frontier,
            "topic-epochs": self.epochs,
            "topic-number": self.number_at,
            "topic-acknowledge": self.acknowledge,
        }

    async def join(self, peer: TopicAsker, arguments: Map) -> Value:
        """Makes the connection a producer of a partition of a topic."""
        answer = peer.following.join(_name(peer, arguments, "publish"), arguments)
        await self._durable.writer.wait_durable()
        return answer

    async def lookup(self, peer: TopicAsker, arguments: Map) -> Value:
        """Returns the shape of a topic; waits up to ``wait`` ms until there is one of that name."""
        name, wait = text(arguments, "topic"), max(0, number(arguments, "wait", 0))
        peer.bearer.permit.check_topic_known(name)
        entry = await self._topics.wait_for(name, wait)
        topic = entry.topic
        shape: dict[str, Value] = {
            "id": entry.number,
            "partitions": len(topic.partitions),
            "dimensions": topic.order.dimensions,
            "retain": topic.history.budget if entry.ledger is None else entry.ledger.retain,
            "durable": entry.ledger is not None,
        }
        if arguments.get("detail") is not True:
            return Map(shape)
        peer.bearer.permit.check_inspect("the detail of a topic")
        return Map(shape | survey(entry))

    async def frontier(self, peer: TopicAsker, arguments: Map) -> Value:
        """Returns what is completed of a durable topic; waits up to ``wait`` ms for more than ``after``."""
        after, wait = number(arguments, "after", -1), max(0, number(arguments, "wait", 0))
        return await topic_frontier(self._topics, _name(peer, arguments, "subscribe"), after, wait)

    async def epochs(self, peer: TopicAsker, arguments: Map) -> Value:
        """Returns some of the completed epochs of a range of numbers, the same each time."""
        name, identity = _name(peer, arguments, "subscribe"), number(arguments, "id")
        return await topic_epochs(self._topics, self._journal, name, identity, arguments)

    async def number_at(self, peer: TopicAsker, arguments: Map) -> Value:
        """Returns the number after which the completed epochs at or after a time begin."""
        name, identity = _name(peer, arguments, "subscribe"), number(arguments, "id")
        return await topic_number(self._topics, self._journal, name, identity, arguments.get("time"))

    async def acknowledge(self, peer: TopicAsker, arguments: Map) -> Value:
        """Stores that a named reader has acknowledged the completed epochs up to a number."""
        reader, epoch = text(arguments, "reader"), max(0, number(arguments, "number"))
        if not reader:
            raise Refused("bad-request", "reader must not be empty")
        place = (_name(peer, arguments, "subscribe"), number(arguments, "id"))
        peer.bearer.permit.check_reader(reader)
        return await topic_acknowledge(
            self._topics, self._journal, *place, reader, epoch, time.time_ns() // 1000
        )

    async def end_topic(self, peer: TopicAsker, arguments: Map) -> Value:
        """Ends a topic that this session made, or a durable one without a publisher."""
        name = text(arguments, "topic")
        peer.bearer.permit.check_topic_known(name)
        peer.following.end_topic(name)
        await self._durable.writer.wait_durable()
        return None


def _name(peer: TopicAsker, arguments: Map, doing: str) -> str:
    """Returns the name of a topic; raises ``Refused`` if the client has no right to do this with it."""
    name = text(arguments, "topic")
    peer.bearer.permit.check_topic(doing, name)
    return name
