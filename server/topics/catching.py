"""Subscribers of durable topics that read the disk, until they are up to date.

At a daemon that follows, publishers do not wait for a slow subscriber: the subscriber reads the disk again,
at its own pace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from dataspace.errors import Refused
from index.values.values import Record
from relay.delivery.outbox import OutStream
from relay.store.errors import LogDamaged, LogFailed
from relay.topics.feed import CatchUp, Feed
from server.sessions.peer import Peer
from server.topics.catalogue import TopicEntry

if TYPE_CHECKING:
    from dataspace.topics.times import Time
    from server.topics.durable import DurableTopics


@dataclass(eq=False)
class TopicStream:
    """A stream of a subscription, with the topic's entry in the catalogue.

    ``reading`` returns what tells the past since some times, or since the present without times.
    """

    entry: TopicEntry
    number: int
    facts: list[Record]
    stream: OutStream
    feed: Feed
    peer: Peer
    durable: DurableTopics
    reading: Callable[[tuple[Time, ...] | None], CatchUp]
    _catching: trio.CancelScope | None = None

    def begin(self, as_of: tuple[Time, ...] | None) -> None:
        """Brings a subscriber of a durable topic up to date while it reads.

        Raises ``Refused`` as ``CatchUp`` does.
        """
        reading = partial(self.reading, as_of)
        try:
            catching: CatchUp | None = reading()
        except Refused as refusal:
            elsewhere = refusal.code == "epoch-ahead" and self.durable.following is not None
            archived = refusal.code == "epoch-gone" and self.durable.may_cover(self.entry.step_log)
            if not elsewhere and not archived:
                raise
            catching = None
        self._catching = scope = trio.CancelScope()
        self.peer.start(self._catch_up, catching, reading, scope)

    def fall_back(self) -> None:
        """Moves a subscriber that was up to date back to the disk."""
        if self._catching is None:
            self.entry.topic.unsubscribe(self.number)
            self.begin(None)

    def cancel(self) -> None:
        """Ends the reading, if there is some."""
        if self._catching is not None:
            self._catching.cancel()

    async def _catch_up(
        self, catching: CatchUp | None, reading: Callable[[], CatchUp], scope: trio.CancelScope
    ) -> None:
        """Feeds a stream from the disk, as fast as it is read, until it is up to date."""
        peer, stream, entry = self.peer, self.stream, self.entry
        with scope:
            try:
                catching = catching or await self.durable.reach(entry, reading)
                await self.durable.read_past(entry, self.feed, catching, stream.wait_taken)
                self._catching = None
            except Refused as refusal:
                peer.fail(stream, refusal.code, refusal.text, refusal.url)
            except (LogFailed, LogDamaged) as failure:
                peer.fail(stream, failure.code, str(failure))
        peer.flush()
