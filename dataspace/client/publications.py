"""Publishing to topics over a connection.

A ``Publication`` is one producer in one partition: it holds capabilities, sends items at times at or after
them, and advances.

Always: items keep their order; a publication whose block ends with an error, or whose connection is lost, has
crashed, and subscribers are notified; a publication whose block ends without an error has completed its
times.  A publication that may be *away* outlives its connection, and the daemon: unanswered steps are sent
again, and count once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dataspace.client.session.pending import Lasting, PendingRequest
from dataspace.codec import MAX_ELEMENTS, may_exceed, pack, scan
from dataspace.errors import AnotherSpace, Broken, DataspaceError, ProtocolError, Refused, UsageError
from dataspace.loops.blocks import block
from dataspace.loops.here import loop
from dataspace.topics import messages as forms
from dataspace.topics.times import Order, Time, less_equal
from index.values.freezing import freeze
from index.values.values import Map, Value

if TYPE_CHECKING:
    from dataspace.client.session.session import ClientSession
    from dataspace.client.topics import TopicSessions

WINDOW: Final = 256 << 10
"""Bytes that a publication sends before it waits for answers."""

NUMBERS: Final = 32
"""Bytes that a frame with one step has around it at most, or that its numbers can grow by when it is sent
again."""

SPARE: Final = 4096
"""Bytes of a frame that are not the items of a batch."""

BUNDLE: Final = 16
"""Steps between two checkpoints: as with streams, an exception to trio's rule that each call has one."""


@dataclass(frozen=True, slots=True)
class Joining:
    """The request of a producer to join; ``away`` and ``age`` are in seconds."""

    topic: str
    partition: int = 0
    partitions: int = 1
    dimensions: int = 0
    time: Time | None = None
    retain: int = 0
    durable: bool = False
    age: float | None = None
    name: str = ""
    away: float = 0.0

    def form(self, *, back: bool) -> Map:
        """Returns the arguments of the request; with ``back`` the producer must exist already."""
        asked: dict[str, Value] = {
            "topic": self.topic,
            "partition": self.partition,
            "partitions": self.partitions,
            "dimensions": self.dimensions,
            "retain": self.retain,
        }
        if self.durable:
            asked |= {"durable": True, "name": self.name, "away": round(self.away * 1000), "back": back}
            asked |= {} if self.age is None else {"age": float(self.age)}
        if self.time is not None:
            asked["time"] = self.time
        return Map(asked)


class SentStep(PendingRequest):
    """A step that was sent and has no answer yet."""

    __slots__ = ("_publication", "size", "step")

    def __init__(self, publication: Publication, step: Value) -> None:
        super().__init__()
        self._publication = publication
        self.step = step
        self.size = 0
        """Bytes of its frame at most, however often it is sent: its part of the daemon's window."""

    def fail(self, error: DataspaceError) -> None:
        """Handles a refusal or the loss of the connection; a publication that may be away sends the step
        again."""
        if not isinstance(error, Broken):
            super().fail(error)
            self._publication._refused(error)  # two classes, one machine
        elif not self._publication.may_be_away:
            super().fail(error)

    def abandon(self, error: DataspaceError) -> None:
        """Fails: there will be no further connection."""
        super().fail(error)


class Return(PendingRequest):
    """The request by which a publication resumes on a new connection."""

    __slots__ = ("_publication",)

    def __init__(self, publication: Publication) -> None:
        super().__init__()
        self._publication = publication

    def answer(self, value: Value) -> None:
        """Notes that the publication has resumed."""
        assert isinstance(value, Map)  # by WIRE.md
        self._publication.returned(value)

    def fail(self, error: DataspaceError) -> None:
        """Handles a refusal after too long an absence; if the connection was lost again, another request
        follows."""
        if not isinstance(error, Broken):
            self._publication.fail(error)


class Capability:
    """The right to send at ``time`` and later; while it is held, those times are not complete for any
    subscriber."""

    __slots__ = ("_publication", "time")

    def __init__(self, publication: Publication, time: Time | None) -> None:
        self._publication = publication
        self.time = time

    async def downgrade(self, time: Time) -> None:
        """Gives up what lies before a later time."""
        await (
            self._publication._wait_room()
        )  # two classes, one machine; nothing has happened if it is cancelled
        if self.time is None or not less_equal(self.time, time):
            raise UsageError(f"a capability for {self.time} cannot be downgraded to {time}")
        before, self.time = self.time, time
        if before != time:
            await self._publication._change([(before, -1), (time, +1)])

    async def release(self) -> None:
        """Gives it up; nothing happens if it was released."""
        await self._publication._wait_room()  # as above
        before, self.time = self.time, None
        if before is not None:
            await self._publication._change([(before, -1)])


class Publication(Lasting):
    """One producer in one partition of a topic; made by ``RemoteSpace.publish``.

    It begins with one capability, at ``time``, which ``advance`` downgrades; ``hold`` makes more.  A call
    returns when the step is on its way, and waits only while too much is unanswered.
    """

    def __init__(self, session: ClientSession, asked: Joining) -> None:
        self.topic = asked.topic
        self.partition = asked.partition
        self.order = Order(asked.dimensions)
        self.capabilities: list[Capability] = []
        """Further capabilities of a publication that was taken up by its name, beside the first."""
        self.sent: Mapping[Time, int] = {}
        """Batches of each open epoch that were sent under this name before it was taken up."""
        self._session = session
        self._asked = asked
        self._producer = 0
        self._main: Capability
        self._held: Counter[Time] = Counter()
        self._unanswered: deque[SentStep] = deque()
        self._size = 0
        self._steps = 0
        self._taken = 0
        self._there = True
        self._left = False
        self._error: DataspaceError | None = None

    @property
    def time(self) -> Time | None:
        """The time of the first capability; None once it is released."""
        return self._main.time

    @property
    def name(self) -> str:
        """The name by which another connection, or another process, can resume the publication while it is
        away."""
        return self._asked.name

    @property
    def may_be_away(self) -> bool:
        """True if it outlives its connection."""
        return self._asked.away > 0

    async def send(self, *items: object, at: Time | None = None) -> None:
        """Sends items at a time, by default the time of the first capability.

        ``UsageError`` without a capability at or before it; ``Refused("limit")`` for more than fits into one
        frame (``limits.frame_bytes`` of the daemon).  Items of one call stay together and in order.
        """
        packed = self._packed(items)
        await self._wait_room()
        time = self.time if at is None else self.order.check(at)
        if time is None or not any(less_equal(each, time) for each in self._held):
            raise UsageError(f"no capability for time {time}, held are {sorted(self._held)}")
        await self._step((forms.SEND, time, packed))

    async def finish(self, *items: object, then: Time) -> None:
        """Sends items at the time of the first capability and downgrades that to ``then``, as one step.

        Whatever becomes of this process, all of it has happened or nothing.  So a process that takes the
        publication up by its ``name`` goes on at its ``time``, and neither repeats nor misses an epoch.
        """
        packed = self._packed(items)
        await self._wait_room()
        time, after = self.time, self.order.check(then)
        if time is None or time == after or not less_equal(time, after):
            raise UsageError(f"an epoch at {time} cannot be finished by going on at {after}")
        self._main.time = after
        self._hold([(time, -1), (after, +1)])
        await self._step((forms.FINISH, time, packed, ((time, -1), (after, +1))))

    def _packed(self, items: tuple[object, ...]) -> bytes:
        """Returns the items as they travel; ``Refused("limit")``, with nothing done, beyond a frame."""
        packed = pack(tuple(map(freeze, items)))
        limits = self._session.in_flight.limits
        most = limits.frame_bytes - SPARE
        if len(packed) > most:
            excess = f"items of {len(packed)} bytes, limit {most}: {SPARE} below limits.frame_bytes"
            raise Refused("limit", f"{excess}; send them in several calls")
        if may_exceed(packed, MAX_ELEMENTS):
            try:
                scan(packed, MAX_ELEMENTS)
            except ProtocolError as error:
                raise Refused(error.code, f"items: {error.text}") from None
        return packed

    async def advance(self, time: Time) -> None:
        """Moves the first capability to this time: nothing earlier is sent from it any more."""
        await self._main.downgrade(self.order.check(time))

    async def hold(self, time: Time) -> Capability:
        """Returns one more capability, at or after a held one."""
        await self._wait_room()
        if not any(less_equal(each, time) for each in self._held):
            raise UsageError(f"no capability for time {time}, held are {sorted(self._held)}")
        await self._change([(self.order.check(time), +1)])
        return Capability(self, time)

    async def release(self) -> None:
        """Releases the first capability."""
        await self._main.release()

    async def flush(self) -> None:
        """Waits until the daemon has taken all sent items; raises its refusals."""
        while self._unanswered:
            await self._answered()

    async def _change(self, changes: list[tuple[Time, int]]) -> None:
        self._hold(changes)
        await self._step((forms.CHANGE, tuple(changes)))

    def _hold(self, changes: list[tuple[Time, int]]) -> None:
        for time, by in changes:
            self._held[time] += by
        self._held += Counter()  # without those that have come to nothing

    async def _wait_room(self) -> None:
        """Waits until a step may be said; comes before anything is changed for it."""
        self._check()
        while self._unanswered and self._size > WINDOW:
            await self._answered()
        self._check()

    async def _step(self, step: Value) -> None:
        """Says a step at once, after ``_wait_room``."""
        self._say(step)
        self._steps += 1
        if self._steps % BUNDLE == 0:  # steps sent before the next checkpoint leave in one write
            await loop().checkpoint()

    def _check(self) -> None:
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        if self._left:
            raise UsageError(f"this publication to {self.topic!r} has ended")

    def _say(self, step: Value) -> None:
        sent = SentStep(self, step)
        if self._there:
            sent.size = self._produce(sent) + NUMBERS
        else:
            sent.size = len(pack(step)) + NUMBERS  # it is sent after the reconnect
        self._unanswered.append(sent)
        self._size += sent.size

    def _produce(self, sent: SentStep) -> int:
        """Returns the bytes that left, or would have."""
        try:
            return self._session.produce(self._producer, (sent.step,), sent)
        except Broken:
            if not self.may_be_away:
                raise
            self._there = False
            return len(pack(sent.step))

    async def _answered(self) -> None:
        sent = self._unanswered[0]
        try:
            await sent.wait()
        except DataspaceError:
            self._left = True
            raise
        if self._unanswered and self._unanswered[0] is sent:  # several tasks may wait
            self._settle()

    def _settle(self) -> None:
        """Removes the oldest step, which was answered."""
        sent = self._unanswered.popleft()
        self._size -= sent.size
        self._taken += 1

    async def join(self) -> None:
        """Joins the topic, which is created if there is none; or resumes the producer of this name."""
        answer = await self._session.request("join", self._asked.form(back=False))
        assert isinstance(answer, Map)  # by WIRE.md
        self._producer = answer["producer"]  # type: ignore[assignment]  # a number, by WIRE.md
        held = forms.changes_of(answer["held"])
        self._held = Counter(dict(held))
        self._taken = answer["taken"]  # type: ignore[assignment]  # as above
        self.sent = dict(forms.changes_of(answer.get("sent", ())))
        capabilities = [Capability(self, time) for time, count in held for _ in range(count)]
        self._main = capabilities[0] if capabilities else Capability(self, None)
        self.capabilities = capabilities[1:]
        self._session.lasting.add(self)

    # -- resuming -------------------------------------------------------------------------------------

    def reconnected(self, *, moved: bool) -> None:
        """Requests, on a new connection, the state of the producer; until the answer nothing is sent.

        It fails if it may not be away, as then it has crashed with the old connection; and in another space,
        where a topic of the same name is another one.
        """
        lost = f"the publication to {self.topic!r} was lost with its connection"
        if moved:
            self.fail(AnotherSpace(f"{lost}: the connection is to another space now"))
            return
        if not self.may_be_away:
            self.fail(Broken(lost))
            return
        if self._error is not None:  # steps behind the refused one would be sent as if that had been taken
            self.fail(self._error)
            return
        self._there = False
        while self._unanswered and self._unanswered[0].is_settled:
            self._settle()
        self._session.ask("join", self._asked.form(back=True), Return(self))

    def returned(self, answer: Map) -> None:
        """Sends again what the daemon has not taken, after the publication has resumed."""
        taken, producer = answer["taken"], answer["producer"]
        assert isinstance(taken, int)  # by WIRE.md
        ended = producer is None
        # a step that ends it is not counted, but if it has ended, that step was taken as well
        for sent in list(self._unanswered)[: taken - self._taken + ended]:
            sent.answer(None)
        self._there = True
        if not ended:
            self._producer = producer  # type: ignore[assignment]  # a number, by WIRE.md
            for sent in self._unanswered:
                if not sent.is_settled:
                    self._produce(sent)

    def _refused(self, error: DataspaceError) -> None:
        """Notes that a step was refused: the next call raises that, and nothing is sent any more.

        A publication with a name can be resumed under it, from where the daemon has it.
        """
        self._error = self._error or error
        self._left = self._left or self.may_be_away

    def fail(self, error: DataspaceError) -> None:
        """Marks it as crashed, or as without any further connection."""
        self._error = error
        self._left = True
        self._session.lasting.discard(self)
        for sent in self._unanswered:
            if not sent.is_settled:
                sent.abandon(error)

    async def leave(self) -> None:
        """Releases everything and leaves, once the daemon has taken all sent items."""
        try:
            if not self._left:
                self._say((forms.LEAVE,))
                self._left = True
            await self.flush()
        finally:
            self._session.lasting.discard(self)

    def crash(self, reason: str) -> None:
        """Leaves with times open: subscribers are notified that these may be incomplete."""
        if not self._left:
            self._left = True
            self._session.lasting.discard(self)
            with suppress(DataspaceError):  # it has ended with its connection
                self._session.produce(self._producer, ((forms.CRASH, reason[:1000]),), PendingRequest())


@block("async with space.publish(…) as publication")
async def publishing(topics: TopicSessions, asked: Joining) -> AsyncIterator[Publication]:
    """See ``RemoteSpace.publish``."""
    publication = Publication(await topics.session(), asked)
    await publication.join()
    try:
        yield publication
    except BaseException as error:
        publication.crash(f"{type(error).__name__}: {error}")
        raise
    await publication.leave()
