"""The streams of one connection, and what feeds each: a space or its log.

A live observation is one observer of the space: the state first, then every epoch.  One that begins or
ends at an epoch, or wants only what is on disk, is a *replay*: a task reads the log as fast as the stream
takes it, and, if the stream is to go on, hands over to the live feed at an epoch where both agree.

Always: a stream sees each epoch once and in order, whether it comes from the log or live; a replay holds
no more than a few hundred epochs in memory; an interest that is not quiet is a fact of its session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.kernel.actions import SNAPSHOT
from dataspace.kernel.changes import Changes
from dataspace.kernel.interests import Interest
from dataspace.kernel.space import Space
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN, SYSTEM
from dataspace.wire.observing import Policy
from index.values.values import Map, Value
from relay.delivery.backlog import DeliveryQueue
from relay.delivery.memory import MemoryBudget
from relay.delivery.outbox import OutStream
from relay.delivery.policies import SlowCounts
from relay.log.columns import Blocks
from relay.store.errors import LogDamaged, LogFailed
from server.streams.columns import replay_columns
from server.streams.ports import StreamPeer
from server.streams.read_counts import ReadCounts
from server.streams.replay import StreamReplay
from server.streams.request import StreamRequest, read_request
from server.streams.slots import ReplaySlots
from server.streams.start import begins_now, progress_mark
from server.system import SystemSpace

PROGRESS_SECONDS: Final = 0.1
"""Seconds between two progress marks of one stream."""


class Observations:
    """The streams of one connection and what feeds each."""

    def __init__(
        self,
        peer: StreamPeer,
        *,
        system: SystemSpace,
        slots: ReplaySlots,
        slow: SlowCounts,
        memory: MemoryBudget,
    ) -> None:
        self._peer = peer
        self._system = system
        self._slots = slots
        self._slow = slow
        self._memory = memory
        self._live: dict[OutStream, tuple[Space, Interest, DeliveryQueue]] = {}
        self._replays: dict[OutStream, trio.CancelScope] = {}
        self._marks: dict[OutStream, trio.CancelScope] = {}
        self._reads: Final = ReadCounts(peer, system)

    def open(self, stream: OutStream, spec: Map) -> None:
        """Begins to feed a stream; raises ``Refused`` or ``UsageError`` for a spec that cannot be served."""
        peer, home = self._peer, self._peer.home
        name = spec.get("space", MAIN)
        if name == SYSTEM:
            self._open_system(stream, read_request(spec))
            return
        home.check_space(name if isinstance(name, str) else repr(name))
        request = read_request(spec)
        if begins_now(home, request):
            self._open_live(stream, request, home.space)
        else:
            self._start(self._replays, self._replay, stream, request)
        if request.progress and request.upto is None and not request.durable:
            self._start(self._marks, self._send_progress, stream)
        if not request.snapshot and request.after is None is request.as_of:
            # the start of the stream is stated nowhere else
            peer.say(p.Reached(home.commits.durable, (stream.number,)))
        if not request.quiet:
            peer.own.announce(stream.number, request.pattern)

    def close(self, stream: OutStream) -> None:
        """Stops feeding a stream; its interest goes with it."""
        live = self._live.pop(stream, None)
        if live is not None:
            space, interest, observation = live
            space.ignore(interest, observation)
        for scope in (self._replays.get(stream), self._marks.pop(stream, None)):
            if scope is not None:
                scope.cancel()
        if isinstance(stream.backlog, DeliveryQueue | Blocks):
            stream.backlog.close()
        self.forget(stream.number)

    def forget(self, number: int) -> None:
        """Retracts the interest of a stream, which an earlier connection of the session may have asserted."""
        if not self._peer.gone:
            self._peer.own.withdraw(number)

    def end(self) -> None:
        """Stops feeding all streams, since the connection has ended; the session retracts the interests."""
        self._reads.end()
        for space, interest, observation in self._live.values():
            space.ignore(interest, observation)
        self._live.clear()
        for stream in self._peer.streams.values():
            if isinstance(stream.backlog, DeliveryQueue | Blocks):
                stream.backlog.close()

    def reached(self) -> list[p.Reached]:
        """Returns how far each idle stream is, in as few packets as possible; O(streams).

        A client that saw no change for long would otherwise resume, after a lost connection, from the last
        one: everything since would be read for nothing, or refused where retention has deleted it.
        """
        durable, reached = self._peer.home.commits.durable, dict[int, list[int]]()
        for stream, (space, _, observation) in self._live.items():
            if stream not in self._replays and space is self._peer.home.space:
                self._reach(stream, observation, durable, reached)
        for stream in self._replays:
            if isinstance(stream.backlog, DeliveryQueue):
                self._reach(stream, stream.backlog, stream.replayed, reached)
        return [p.Reached(at, tuple(numbers)) for at, numbers in reached.items()]

    @staticmethod
    def _reach(stream: OutStream, observation: DeliveryQueue, at: int, reached: dict[int, list[int]]) -> None:
        """Adds a stream that is as far as ``at``, if nothing waits in it and the client has not been
        notified."""
        if (
            not len(observation)
            and observation.failure is None
            and at > max(stream.reached, observation.newest)
        ):
            stream.reached = at
            reached.setdefault(at, []).append(stream.number)

    # -- live -----------------------------------------------------------------------------------------

    def _open_system(self, stream: OutStream, request: StreamRequest) -> None:
        """Opens a stream of the space ``system``, which has no log and no interests."""
        if not request.live or request.policy is Policy.WAIT or request.progress:
            raise Refused("epoch-gone", f"space {SYSTEM!r} keeps no log, there is only its state")
        self._open_live(stream, request, self._system.space)

    def _open_live(self, stream: OutStream, request: StreamRequest, space: Space) -> None:
        observation = self.backlog(stream, request)
        self.attach(stream, request.pattern, observation, space)
        if request.snapshot and request.after is None:
            rows = space.matches(request.pattern)
            observation.extend(Changes(space.epoch, space.time, rows, flags=SNAPSHOT))
        self._peer.wake(stream)

    def backlog(self, stream: OutStream, request: StreamRequest) -> DeliveryQueue:
        """Returns the queue of a stream; made when it is first asked for."""
        known = stream.backlog
        if isinstance(known, DeliveryQueue):
            return known
        made = stream.backlog = DeliveryQueue(
            partial(self._peer.wake, stream),
            policy=request.policy,
            counts=self._slow,
            behind=lambda: self._fall_behind(stream, request),
            room=self._memory,
        )
        return made

    def _fall_behind(self, stream: OutStream, request: StreamRequest) -> None:
        """Continues a full stream from the log, by a task that reads as fast as the stream is read."""
        if stream not in self._replays:
            self._start(self._replays, self._resume_from_log, stream, request)

    def _start(
        self,
        scopes: dict[OutStream, trio.CancelScope],
        function: Callable[..., Awaitable[None]],
        stream: OutStream,
        *args: object,
    ) -> None:
        """Runs a task for a stream until ``close`` cancels it, which may be before it has begun."""
        scope = scopes[stream] = trio.CancelScope()

        async def run() -> None:
            try:
                with scope:
                    await trio.lowlevel.checkpoint_if_cancelled()
                    await function(stream, *args)
            finally:
                if scopes.get(stream) is scope:
                    del scopes[stream]

        self._peer.start(run)

    async def _resume_from_log(self, stream: OutStream, request: StreamRequest) -> None:
        live = self._live.pop(stream, None)
        if live is not None:
            space, interest, observation = live
            space.ignore(interest, observation)
        after = self.backlog(stream, request).newest
        await self._replay(stream, replace(request, after=after, as_of=None, snapshot=False, net=False))

    async def _send_progress(self, stream: OutStream) -> None:
        """Sends progress marks while nothing else waits in a stream."""
        home, marked = self._peer.home, -1
        while True:
            await home.commits.wait_beyond(marked)
            live = self._live.get(stream)
            if live is not None and stream not in self._replays and not len(live[2]):
                marked = home.space.epoch
                live[2].extend(progress_mark(marked))
                self._peer.wake(stream)
                home.flush()
            await trio.sleep(PROGRESS_SECONDS)

    def attach(self, stream: OutStream, pattern: Value, observation: DeliveryQueue, space: Space) -> None:
        """Feeds a stream with what changes in a space from the next epoch on."""
        interest = space.observe(pattern, observation)
        self._live[stream] = (space, interest, observation)

    # -- from the log ---------------------------------------------------------------------------------

    async def _replay(self, stream: OutStream, request: StreamRequest) -> None:
        peer = self._peer
        try:
            if request.columns:
                await replay_columns(
                    peer, stream, request, slots=self._slots, reads=self._reads, memory=self._memory
                )
            else:
                await StreamReplay(peer, self, self._slots, stream, request, memory=self._memory).run()
        except (Refused, ProtocolError) as refusal:
            peer.fail(stream, refusal.code, refusal.text)
        except (LogFailed, LogDamaged) as failure:
            peer.fail(stream, failure.code, str(failure))
        except UsageError as error:
            peer.fail(stream, "bad-request", str(error))
        peer.home.flush()
