"""The streams of one connection, and what feeds each: a space or its log.

A live observation is one observer of the space: the state first, then every epoch.  An
observation that begins or ends at an epoch, or is to show only epochs on disk, is a *replay*: a task reads
the log as fast as the stream takes it, and, if the stream is to go on, hands over to the live feed at an
epoch where both agree.

Always: a stream sees each epoch once and in order, whether it comes from the log or live; a replay holds
no more than a few hundred epochs in memory; an interest that is not quiet is a fact of its session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.kernel.actions import SNAPSHOT
from dataspace.kernel.changes import Changes
from dataspace.kernel.limits import size_of_pattern
from dataspace.kernel.space import Space
from dataspace.wire import packets as p
from dataspace.wire.features import SYSTEM
from dataspace.wire.observing import OPTIONS, ObserveOptions, Policy, of_another_space
from index.patterns.patterns import skeleton
from index.patterns.text import unparse_pattern
from index.values.values import Map, Value, key
from relay.delivery.blocks import Blocks
from relay.delivery.outbox import OutStream, one_of
from relay.delivery.paced import PacedMember
from relay.delivery.queue_members import Delivery, QueueMember
from relay.store.errors import LogDamaged, LogFailed
from server.lane import Work
from server.owners.shapes import ObservedShape
from server.sessions.feeding import Feeder
from server.sessions.peer import FeederKey, Peer
from server.streams.replay import (
    ReadCounts,
    ReplaySlots,
    StreamReplay,
    begins_now,
    progress_mark,
    read_request,
    replay_columns,
)
from server.system import SystemSpace

PATTERNS: Final = "patterns_bytes"
"""What the patterns of open streams count as."""

LARGE: Final = 4_096
"""Facts from which on the index is prepared in steps for the first observer of a pattern."""

FEW: Final = 128
"""Streams that are closed in one step, in about a millisecond."""

PROGRESS_SECONDS: Final = 0.1
"""Seconds between two progress marks of one stream."""


def _unnoticed(_what: str, _seconds: float) -> None:
    """Notes nothing."""


class Observations(Feeder):
    """The streams of one connection and what feeds each."""

    def __init__(
        self,
        peer: Peer,
        *,
        system: SystemSpace,
        slots: ReplaySlots,
        delivery: Delivery,
        took: Callable[[str, float], None] = _unnoticed,
    ) -> None:
        """``took`` is called with what a replay was about, and its seconds, when it ends or goes live."""
        self._peer = peer
        self._took = took
        self._system = system
        self._slots = slots
        self._delivery = delivery
        self._replays: dict[OutStream, trio.CancelScope] = {}
        self._marks: dict[OutStream, trio.CancelScope] = {}
        self._shapes: dict[OutStream, ObservedShape] = {}
        self._prepared: list[Value] = []
        """Patterns for which the index was prepared, until a stream is closed."""
        self._reads: ReadCounts | None = None
        """The counts of its reads by the column, once there is one."""

    def open(self, stream: OutStream, spec: Map) -> None:
        """Begins to feed a stream; raises ``Refused`` or ``UsageError`` for a spec that cannot be served."""
        peer, hosted = self._peer, self._peer.hosted
        name = spec.get("space", hosted.name)
        if name == SYSTEM:
            peer.permit.check_inspect(f"space {SYSTEM!r}")
        else:
            if not peer.permit.open:
                peer.permit.check_observe(spec.get("pattern"))
            hosted.check_space(name if isinstance(name, str) else repr(name))
            if not hosted.leads:
                hosted.leader.check_lag(hosted.commits.durable)
        request = read_request(spec)
        if name != SYSTEM and not hosted.identity.startswith(request.identity):
            raise Refused("epoch-lost", of_another_space(request.identity, hosted.identity))
        if not request.quiet and (peer.own.follows or not hosted.leads):
            raise hosted.leader.refusal()  # an interest is a fact
        self._take_pattern(stream, str(name), request.pattern)
        if name == SYSTEM:
            self._open_system(stream, request)
            return
        if begins_now(hosted, request):
            self._open_live(stream, request, hosted.space)
        else:  # however late the task begins
            self._start(self._replays, self._replay, stream, request.at(hosted.commits.durable))
        if request.progress and request.upto is None and not request.durable:
            self._start(self._marks, self._send_progress, stream)
        if not request.snapshot and request.after is None is request.as_of:
            # the start of the stream is stated nowhere else
            peer.say(p.Reached(hosted.commits.durable, (stream.number,)))
        if not request.quiet:
            peer.own.announce(stream.number, request.pattern)

    async def prepare_open(self, spec: Map, work: Work) -> None:
        """Does in the lane what the opening of a live stream needs that would take long in one step.

        The opening must follow at once; its errors are found there.
        """
        peer, hosted = self._peer, self._peer.hosted
        if len(hosted.space.index) < LARGE or spec.get("space", hosted.name) != hosted.name:
            return
        try:
            request = read_request(spec)
        except (Refused, UsageError):
            return
        if begins_now(hosted, request) and (peer.permit.open or peer.permit.allows_observe(request.pattern)):
            await self.prepare(request.pattern, work)

    async def prepare(self, pattern: Value, work: Work) -> None:
        """Prepares the index for the first observer of a pattern, in a turn of the lane that goes on."""
        interests = self._peer.hosted.space.interests
        if len(self._peer.hosted.space.index) < LARGE:
            return
        self._prepared.append(pattern)
        try:
            for _ in interests.preparing(pattern):
                if work.is_over:
                    await work.pass_on()
        except (Refused, UsageError):  # to observe it will say so
            self._drop_prepared()

    def _drop_prepared(self) -> None:
        """Drops what was prepared and is not observed."""
        for pattern in self._prepared:
            with suppress(UsageError):
                self._peer.hosted.space.interests.drop_idle(pattern)
        self._prepared.clear()

    def _take_pattern(self, stream: OutStream, space: str, pattern: Value) -> None:
        """Counts the pattern of a stream, and its shape, until the stream is closed; raises ``Refused``
        beyond a quota.

        A pattern of several streams counts once for each: each takes memory, and counting so is simple.
        """
        size = size_of_pattern(key(pattern))
        self._peer.account.reserve(PATTERNS, size)
        stream.pattern_bytes = one_of(size)
        self._shapes[stream] = self._peer.account.take_shape(space, skeleton(pattern))

    def _give_patterns(self, streams: Iterable[OutStream]) -> None:
        account = self._peer.account
        for stream in streams:
            account.release(PATTERNS, stream.pattern_bytes)
            stream.pattern_bytes = 0
            if (shape := self._shapes.pop(stream, None)) is not None:
                account.give_shape(shape)

    def close(self, stream: OutStream) -> None:
        """Stops feeding a stream."""
        self._give_patterns([stream])
        if self._prepared:
            self._drop_prepared()
        for scope in (self._replays.get(stream), self._marks.pop(stream, None)):
            if scope is not None:
                scope.cancel()
        if isinstance(stream.backlog, QueueMember | Blocks):
            stream.backlog.close()

    async def close_feeds(self) -> None:
        """Closes what feeds the streams of a connection that has ended, in the lane where they are many:
        others may end in the same moment.  ``end`` follows."""
        if len(self._peer.streams) > FEW:
            await self._peer.work().do(self._closing())

    def _closing(self) -> Generator[None, None, None]:
        for stream in list(self._peer.streams.values()):
            if isinstance(stream.backlog, QueueMember | Blocks):
                stream.backlog.close()
            yield

    def end(self, _reason: str) -> None:
        """Stops feeding all streams, since the connection has ended; the session retracts the interests."""
        if self._reads is not None:
            self._reads.end()
        self._give_patterns(self._peer.streams.values())
        self._drop_prepared()
        for stream in self._peer.streams.values():
            if isinstance(stream.backlog, QueueMember | Blocks):
                stream.backlog.close()

    def reached(self) -> list[p.Reached]:
        """Returns how far each idle stream is, in as few packets as possible; O(streams).

        A client that saw no change for long would otherwise resume, after a lost connection, from the last
        one: everything since would be read for nothing, or refused where retention has deleted it.
        """
        hosted, reached = self._peer.hosted, dict[int, list[int]]()
        for stream in self._peer.streams.values():
            waiting = stream.backlog
            if not isinstance(waiting, QueueMember):
                continue
            if stream in self._replays:
                self._reach(stream, waiting, stream.replayed, reached)
            elif waiting.queue is not None and waiting.queue.space is hosted.space:
                self._reach(stream, waiting, hosted.commits.durable, reached)
        return [p.Reached(at, tuple(numbers)) for at, numbers in reached.items()]

    @staticmethod
    def _reach(stream: OutStream, observation: QueueMember, at: int, reached: dict[int, list[int]]) -> None:
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

    def _open_system(self, stream: OutStream, request: ObserveOptions) -> None:
        """Opens a stream of the space ``system``, which has no log and no interests."""
        if not request.live or request.policy is Policy.WAIT or request.progress:
            raise Refused("epoch-gone", f"space {SYSTEM!r} keeps no log, there is only its state")
        self._open_live(stream, request, self._system.space)

    def _open_live(self, stream: OutStream, request: ObserveOptions, space: Space) -> None:
        observation = self.backlog(stream, request)
        gate = self._peer.hosted.gate if space is self._peer.hosted.space else None
        observation.follow(space, request.pattern, gate)
        if request.snapshot and request.after is None:
            rows = space.matches(request.pattern)
            observation.extend(Changes(space.epoch, space.time, rows, flags=SNAPSHOT))
        self._peer.wake(stream)

    def backlog(self, stream: OutStream, request: ObserveOptions) -> QueueMember:
        """Returns what waits behind a stream; made when it is first asked for."""
        known = stream.backlog
        if isinstance(known, QueueMember):
            return known
        behind = partial(self._fall_behind, stream, request) if request.policy is Policy.WAIT else None
        member = stream.backlog = (
            PacedMember(self._delivery, self._peer.wake, stream, pace=request.pace / 1000)
            if request.pace
            else QueueMember(self._delivery, self._peer.wake, stream, policy=request.policy, behind=behind)
        )
        return member

    def _fall_behind(self, stream: OutStream, request: ObserveOptions) -> None:
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

    async def _resume_from_log(self, stream: OutStream, request: ObserveOptions) -> None:
        observation = self.backlog(stream, request)
        observation.unfollow()
        after = observation.newest
        await self._replay(stream, replace(request, after=after, as_of=None, snapshot=False, net=False))

    async def _send_progress(self, stream: OutStream) -> None:
        """Sends progress marks while nothing else waits in a stream, until the disk has failed."""
        hosted, marked = self._peer.hosted, -1
        while True:
            try:
                await hosted.commits.wait_beyond(marked)
            except LogFailed:
                return  # the daemon ends, and the client comes back to the next one
            live = stream.backlog
            if isinstance(live, QueueMember) and live.queue is not None and not len(live):
                marked = hosted.visibility.newest
                live.extend(progress_mark(marked))
                self._peer.wake(stream)
                hosted.flush()
            await trio.sleep(PROGRESS_SECONDS)

    # -- from the log ---------------------------------------------------------------------------------

    async def _replay(self, stream: OutStream, request: ObserveOptions) -> None:
        peer, began = self._peer, trio.current_time()
        try:
            if request.columns:
                self._reads = ReadCounts(peer, self._system) if self._reads is None else self._reads
                await replay_columns(
                    peer, stream, request, slots=self._slots, reads=self._reads, memory=self._delivery.budget
                )
            else:
                self.backlog(stream, request)
                await StreamReplay(
                    peer, self.prepare, self._slots, stream, request, memory=self._delivery.budget
                ).run()
        except (Refused, ProtocolError) as refusal:
            peer.fail(stream, refusal.code, refusal.text, refusal.url)
        except (LogFailed, LogDamaged) as failure:
            peer.hosted.check_not_of_log(failure)
            peer.fail(stream, failure.code, str(failure))
        except UsageError as error:
            peer.fail(stream, "bad-request", str(error))
        finally:
            said = f"a replay of {unparse_pattern(request.pattern):.200} after epoch {request.after}"
            self._took(said, trio.current_time() - began)
        peer.hosted.flush()


def _observations(peer: Peer) -> Observations:
    shared = peer.shared
    return Observations(
        peer,
        system=shared.system,
        slots=ReplaySlots(peer.limits.replays, shared.replays),
        delivery=shared.delivery,
        took=lambda what, seconds: shared.watch.took(peer.who, "replay", what, seconds),
    )


OBSERVATIONS: Final = FeederKey(_observations, OPTIONS)
