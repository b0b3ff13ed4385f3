"""Topics: what publishers and subscribers of a durable topic do in a life.

A *publisher* sends epochs in one of two partitions: it may be away for a while, may go on under the name that
it had, and ends in order, with an error, or from one moment to the next.  A *subscriber* reads from the first
epoch on or from now on, and now and then asks anew for what follows the last epoch that it took.

Always: what is noted as taken is what the daemon has said to be on its disk.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Final

import trio

import dataspace
from dataspace.errors import Broken, Closed, Refused
from tests.model.topics import Seen, Sent
from tests.simulation.actors import OF_THE_DISK, Actor
from tests.simulation.plan import TOPIC

PARTITIONS: Final = 2
AWAY: Final = 3.0
END: Final = 1_000_000
"""A time after all that publishers send."""

_MAY_BE: Final = (*OF_THE_DISK, "no-producer", "closing", "topics-elsewhere")
"""Refusals that end a publication and say nothing against the daemon."""


class _Fault(Exception):
    """Ends a publication in the midst of an epoch."""


async def publish(actor: Actor) -> None:
    """Some epochs, over as many publications as it takes."""
    random = actor.random
    left = random.randint(2, 12)
    named = random.random() < 0.5
    async with actor.connected() as space:
        while left > 0:
            writing = _Publishing(actor, left)
            try:
                await writing.run(space, named=named)
            except (Broken, Closed, _Fault):
                pass
            except Refused as refusal:
                if refusal.code not in _MAY_BE:
                    raise
                if refusal.code == "no-producer":
                    writing.check_away()
            left = writing.left
            await trio.sleep(random.choice((0.05, 0.3)))


class _Publishing:
    """One publication; what it sent is noted."""

    def __init__(self, actor: Actor, left: int) -> None:
        self.left = left
        self._actor = actor
        self._random = actor.random
        self._pending: list[Sent] = []
        self._partition = actor.part.rank % PARTITIONS
        self._steps = self._steps_before = 0
        """How many the daemon has taken of the producer, and of former publications under its name."""
        self._sent_at = self._heard_at = 0.0
        """When something was sent last, and when something was that is on disk."""

    def check_away(self) -> None:
        """Accuses a daemon that does not know a producer any more which was not away for long."""
        away, world = trio.current_time() - self._heard_at, self._actor.world
        if self._heard_at and away < AWAY and not world.plan.store:  # else what was on disk may be gone
            world.accuse(f"{self._actor.host.name} is not known after {away:g} s")

    async def run(self, space: dataspace.RemoteSpace, *, named: bool) -> None:
        """Publishes until nothing is left, or it ends otherwise."""
        away = AWAY if named else 0.0
        name = self._actor.host.name if named else ""
        publishing = space.publish(
            TOPIC, partition=self._partition, partitions=PARTITIONS, durable=True, name=name, away=away
        )
        async with publishing as topic:
            self._steps_before = await self._steps_known(space) if named else 0
            while self.left:
                self.left -= 1
                await self._epoch(topic)
                if self._random.random() < 0.5:
                    await self._flush(topic)
                    if named and not self._actor.world.plan.store:  # else what was on disk may be gone
                        await self._compare(space)
                if self._random.random() < 0.05:
                    raise _Fault
                if named and self._random.random() < 0.1:
                    break  # and goes on as a producer that has left, and joins again
                await trio.sleep(self._random.choice((0.0, 0.1, 0.5)))
            if not self.left and self._random.random() < (0.3 if named else 0.6):
                await self._vanish(topic, named=named)
            if named and self._random.random() < 0.9:
                await self._leave(topic)
        self._taken()

    async def _epoch(self, topic: dataspace.Publication) -> None:
        time = topic.time
        assert isinstance(time, int)  # it has one dimension, and releases nothing before its end
        after = time + self._random.randint(1, 2)
        if self._random.random() < 0.5:
            items = self._note(time)
            await topic.finish(*items, then=after)
        else:
            for _ in range(self._random.randint(0, 3)):
                items = self._note(time)
                await topic.send(*items)
            self._steps += 1
            await topic.advance(after)

    async def _compare(self, space: dataspace.RemoteSpace) -> None:
        """Accuses a daemon that does not know the steps that it has taken."""
        asked = trio.current_time()
        known = await self._steps_known(space)
        if trio.current_time() - asked >= AWAY:  # it may have crashed before the daemon was there to answer
            return
        if known != self._steps_before + self._steps:
            said = f"{self._steps_before} + {self._steps} steps of {self._actor.host.name}, and knows {known}"
            self._actor.world.accuse(f"a daemon took {said}")

    async def _steps_known(self, space: dataspace.RemoteSpace) -> int:
        """Returns how many steps of this producer its daemon knows."""
        detail: Any = await space.request("lookup", dataspace.Map({"topic": TOPIC, "detail": True}))
        known = {str(each["name"]): each["steps"] for each in detail["producing"]}
        return int(known.get(self._actor.host.name, 0))

    async def _leave(self, topic: dataspace.Publication) -> None:
        """Leaves, while the line is cut: the daemon has heard of that, or will when it has come back."""
        await self._flush(topic)
        failed: dataspace.DataspaceError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut)
            try:
                await topic.leave()
            except dataspace.DataspaceError as error:
                failed = error
        if failed is not None:
            raise failed

    async def _cut(self) -> None:
        world = self._actor.world
        delay = world.plan.weather.delay
        await trio.sleep(self._random.uniform(0.8 * delay, 2.5 * delay + 0.02))
        for line in world.network.of(self._actor.host.name):
            line.reset("cut at a leave")

    async def _flush(self, topic: dataspace.Publication) -> None:
        await topic.flush()
        self._heard_at = self._sent_at
        self._taken()

    async def _vanish(self, topic: dataspace.Publication, *, named: bool) -> None:
        """Ends in the midst of an epoch, of which a part is taken."""
        time = topic.time
        assert isinstance(time, int)  # as above
        await topic.send(*self._note(time))
        await self._flush(topic)
        if not named:  # else another one may finish it
            self._actor.world.topic.left_open.append((self._actor.host.name, time))
        await self._actor.vanish()

    def _note(self, time: int) -> tuple[tuple[str, int], ...]:
        me, sent = self._actor.host.name, self._actor.world.topic.sent
        items = tuple([(me, len(sent) * 8 + each) for each in range(self._random.randint(1, 3))])
        self._sent_at = trio.current_time()
        self._steps += 1
        sent.append(Sent(me, self._partition, time, items))
        self._pending.append(sent[-1])
        self._actor.world.trace("sent", me, self._partition, time, len(items))
        return items

    def _taken(self) -> None:
        for each in self._pending:
            each.is_taken = True
        self._pending.clear()


async def subscribe(actor: Actor) -> None:
    """The epochs of the topic, until the end."""
    random, world, me = actor.random, actor.world, actor.host.name
    seen = world.topic.seen[me] = Seen(is_all=random.random() < 0.5)
    async with actor.reading() as space:
        while True:
            as_of = _next(seen)
            try:
                async with space.subscribe(TOPIC, as_of=as_of, timeout=60) as epochs:
                    for _ in range(random.choice((2, 8, 1_000))):
                        epoch = await anext(epochs)
                        world.trace("epoch", me, epoch.time, len(epoch.items), epoch.crashed)
                        seen.epochs.append(epoch)
                        world.note()
            except (Broken, Closed):
                await trio.sleep(0.1)
            except Refused as refusal:
                if refusal.code not in (*_MAY_BE, "no-topic"):  # a topic that was never on disk
                    raise
                await trio.sleep(0.1)


def _next(seen: Seen) -> int | None:
    if seen.epochs:
        last = seen.epochs[-1].time
        assert isinstance(last, int)  # it has one dimension
        return last + 1
    return 0 if seen.is_all else None


async def end(actor: Actor) -> None:
    """One more epoch, after which all that was sent is complete: on all partitions, or while one has none."""
    async with actor.connected() as space:
        for time in itertools.count(END, 2):
            try:
                await _finish(actor, space, time)
            except (Broken, Closed):  # a daemon that dies at a write does so late, perhaps
                await trio.sleep(0.1)
            else:
                await _wait_complete(space, time)
                actor.world.topic_end = time
                return


async def _wait_complete(space: dataspace.RemoteSpace, time: int) -> None:
    """Returns once an epoch is complete: producers that have vanished may be away for a while before."""
    while True:
        try:
            async with space.subscribe(TOPIC, as_of=time, timeout=60) as epochs:
                await anext(epochs)
                return
        except (Broken, Closed):
            await trio.sleep(0.1)
        except Refused as refusal:
            if refusal.code not in (*_MAY_BE, "epoch-ahead"):
                raise
            await trio.sleep(0.1)


async def _finish(actor: Actor, space: dataspace.RemoteSpace, time: int) -> None:
    history, me = actor.world.topic, actor.host.name
    async with contextlib.AsyncExitStack() as held:
        topics = [
            await held.enter_async_context(
                space.publish(TOPIC, partition=each, partitions=PARTITIONS, durable=True, time=time)
            )
            for each in range(PARTITIONS)  # all before any, since a partition without a producer is over
        ]
        if actor.world.plan.seed % 2:  # a partition without a producer holds back no other one
            await topics.pop().leave()
        for partition, topic in enumerate(topics):
            items = ((me, partition, time),)
            history.sent.append(sent := Sent(me, partition, time, items))
            await topic.finish(*items, then=time + 1)
            await topic.flush()
            sent.is_taken = True


def is_over(seen: Seen, end: int) -> bool:
    """True once a subscriber was shown the last epoch, unless it may have come after that one."""
    if not seen.epochs:
        return not seen.is_all
    return seen.epochs[-1].time == end
