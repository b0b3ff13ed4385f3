"""A client session: turns, streams and requests between a client and its daemon, over one connection after
another.

It holds what is under way, and passes each incoming packet to its receiver.  After a reconnect it restores
its state: facts of the session are asserted again, turns without an answer are sent again under their old
numbers (the daemon applies none twice), and streams resume where they were.  In another space, turns without
an answer fail with ``AnotherSpace``.

It is apart from the verbs of ``RemoteSpace`` because observations, publications and subscriptions need it,
without the verbs.

Always: turns take effect in the order in which they were submitted; everything that waits for an answer gets
an error once there will be no further connection.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

from dataspace.client.session.events import ConnectionChange, ConnectionEvent
from dataspace.client.session.identity import ClientIdentity, Hellos
from dataspace.client.session.in_flight import InFlight
from dataspace.client.session.leases import Lease
from dataspace.client.session.patience import AwayLimit
from dataspace.client.session.pending import Lasting, OutgoingOffer, PendingAbort, PendingRequest, Stream
from dataspace.client.session.turns import ClaimSet, Done, Others, Ticket
from dataspace.client.session.uplink import LASTING, Uplink
from dataspace.errors import (
    AnotherSpace,
    Broken,
    Closed,
    DataspaceError,
    ProtocolError,
    Refused,
    Unreachable,
    UsageError,
    refusal_of,
)
from dataspace.kernel.actions import Action
from dataspace.kernel.expectations import Expectation
from dataspace.loops.here import loop
from dataspace.transport.addresses import Address
from dataspace.transport.candidates import joined
from dataspace.transport.credentials import Credentials
from dataspace.transport.forks import call_in_children
from dataspace.transport.sockets import Link
from dataspace.wire import packets as p
from dataspace.wire.features import SYSTEM, Granted
from dataspace.wire.outgoing import TurnLimits
from dataspace.wire.traceparents import current_traceparent, no_traceparent
from dataspace.wire.verbs import repetition
from dataspace.wire.windows import ReceiveBudget
from index.values.values import Map, Value

AWAY_SECONDS: Final = 0.25
"""Seconds until a daemon that does not reach its store is asked again."""

REASON: Final = 4096
"""Characters sent of the reason of an abort."""

Expected: TypeAlias = tuple[Expectation, ...]

IN_FLIGHT: Final = 4096
"""Turns that may wait for their answer at once."""


class NotNamed(Broken):
    """A request about the daemon that the client has named has no answer from it: the client has gone to
    another one.  ``sent`` is True if the named daemon may have carried out the request."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent: Final = sent


class _DeniedHereError(Broken):
    """A daemon that only serves reads got a request, and sends its clients to another one: nothing has
    happened."""


def _ignored(_event: ConnectionEvent) -> None:
    """Ignores a connection event."""


def _nowhere(_task: Callable[[], Awaitable[None]]) -> None:
    raise Closed("there is no connection in which a task could run")


class ClientSession:
    """The requests, streams and turns under way between a client and its daemon."""

    def __init__(
        self,
        addresses: Sequence[Address],
        identity: ClientIdentity,
        credentials: Credentials,
        *,
        reconnect: bool,
        reassert: bool = True,
        wait: float = 0.0,
        timeout: float | None = None,
        on_connection: Callable[[ConnectionEvent], None] | None = None,
        dial: Callable[[Address, Credentials], Awaitable[Link]] | None = None,
        traces: bool = False,
    ) -> None:
        self._traceparent: Final = current_traceparent if traces else no_traceparent
        self.identity: Final = identity
        self.welcome: p.Welcome | None = None
        self.budget: Final = ReceiveBudget()
        self.on_connection: Callable[[ConnectionEvent], None] = on_connection or _ignored
        self.lasting: Final[set[Lasting]] = set()
        """Objects that are notified of a reconnect; each adds and removes itself."""
        self.uplink: Final = Uplink(
            addresses,
            self,
            credentials,
            reconnect=reconnect,
            wait=wait,
            shuffled=identity.reads,
            stays=identity.here,
            dial=dial,
        )
        self.patience: Final = AwayLimit(joined(addresses), timeout)
        self.forgotten = 0
        """How often the claims have ended and were not asserted again."""
        self.start_soon: Callable[[Callable[[], Awaitable[None]]], None] = _nowhere
        """Runs a task that raises nothing, until the connection ends; there is one inside ``connect``."""
        self._reassert: Final = reassert
        claims = ClaimSet(identity.owner if identity.lease else "")
        self.in_flight: Final = InFlight(identity.space, claims, self._write)
        self.lease: Final = self._lease() if identity.lease else None
        self._hellos: Final = Hellos(identity, credentials.token)
        self.hello: Final = self._hellos.next
        """Returns the first packet of a connection."""
        self.granted = Granted()
        self._returned: tuple[float, str] | None = None
        """When data last came from the daemon before the loss, and which space it was; None once that was
        reported."""
        self._welcomed_at = 0.0
        self._seen = self._abandoned = 0
        """The newest epoch seen on ended streams; turns that were not sent to another space since the last
        report."""
        self._dropped: list[int] = []
        self._next_stream = self._next_request = 1
        self._streams: dict[int, Stream] = {}
        self._requests: dict[int, PendingRequest] = {}
        self._offers: dict[int, OutgoingOffer] = {}
        self._has_room = loop().event()
        self._closed: DataspaceError | None = None
        call_in_children(self.forked)

    @property
    def is_open(self) -> bool:
        """True if there is a connection, or the client may reconnect."""
        return self._closed is None

    # -- turns ----------------------------------------------------------------------------------------

    async def submit(
        self,
        actions: tuple[Action, ...],
        expected: Expected = (),
        owner: str | None = None,
        others: Others = (),
        traceparent: str = "",
        deliveries: Done = (),
    ) -> Ticket:
        """Sends a turn without waiting for its answer; waits only while too many turns have no answer yet.

        It is of the session's owner, unless another one is named, whose claims are never asserted again.
        """
        while len(self.in_flight) >= IN_FLIGHT:
            self._check_open()
            self.uplink.flush()
            if self._has_room.is_set():  # several may wait for the same capacity
                self._has_room = loop().event()
            await self.patience.wait(self._has_room.wait)
        return self.submit_nowait(actions, expected, owner, others, traceparent, deliveries)

    def submit_nowait(
        self,
        actions: tuple[Action, ...],
        expected: Expected = (),
        owner: str | None = None,
        others: Others = (),
        traceparent: str = "",
        deliveries: Done = (),
    ) -> Ticket:
        """Sends a turn at once, or after the next reconnect; see ``submit`` for how many may wait.

        Raises ``Refused("limit")`` for a turn beyond the daemon's limits.
        """
        self._check_open()
        traceparent = traceparent or self._traceparent()
        whose = owner or self.identity.owner
        return self.in_flight.submit(whose, actions, expected, others, traceparent, deliveries)

    async def answer_to(self, ticket: Ticket) -> int:
        """Returns the epoch of a turn, as ``Ticket.wait`` does; raises ``Unreachable`` when the daemon has
        been away for too long."""
        try:
            return await self.patience.wait(ticket.wait)
        except Unreachable as away:
            if self.in_flight.withdraw(ticket):
                self._has_room.set()
                raise Unreachable(f"{away}: the turn was not sent, and will not be") from None
            raise Unreachable(f"{away}: the turn was sent before, so it may have taken effect") from None

    def cut(self, actions: Sequence[Action]) -> list[tuple[Action, ...]]:
        """Returns the actions in as many turns as the daemon needs to take them; see ``InFlight.cut``."""
        return self.in_flight.cut(self.identity.owner, actions)

    async def drain(self, timeout: float = 10.0) -> None:
        """Waits until every turn has its answer, or for so many seconds.

        Without a connection, turns that only end what ends with the session are not waited for.
        """
        with loop().move_on_after(timeout):
            for ticket in self.in_flight.tickets():
                with suppress(Unreachable):
                    await self.patience.wait(ticket.settled, 0.0 if ticket.parting else math.inf)

    # -- requests ---------------------------------------------------------------------------------------

    async def request(self, verb: str, arguments: Map) -> Value:
        """Sends one of the requests of WIRE.md and returns its answer; raises ``Refused`` where it is denied.

        If the connection is lost before the answer, a request that is safe to repeat is sent again
        (``wire/verbs.py``).  Any other one raises ``Broken``, which says that it may have taken effect.
        """
        began = loop().current_time()
        while True:
            try:
                return await self._ask_until_answered(verb, arguments, self._wait_up)
            except Refused as refusal:
                if refusal.code != p.STORE_AWAY or not repetition(verb, arguments).is_safe:
                    raise
                self.patience.check(began, refusal)
            await loop().sleep(AWAY_SECONDS)

    async def _ask_until_answered(
        self, verb: str, arguments: Map, wait_ready: Callable[[], Awaitable[None]]
    ) -> Value:
        """Sends a request once ``wait_ready`` has returned, and again after a lost connection."""
        rule, unclear_in = repetition(verb, arguments), ""
        while True:
            try:
                await wait_ready()
            except Unreachable as away:
                if unclear_in and rule.changes:
                    raise Unreachable(f"{away}: {verb} was sent, so it may have taken effect") from None
                raise
            welcome = self.welcome
            assert welcome is not None  # as there is a connection
            if unclear_in not in ("", welcome.space) and rule.changes:
                place = f"{welcome.space} now, and was {unclear_in}"
                raise AnotherSpace(f"{verb} was sent, and its answer lost: the space is {place}")
            question, number = PendingRequest(), self._take_number()
            self._requests[number] = question
            try:
                self.uplink.send(p.Request(number, verb, arguments))
                return await question.wait()
            except _DeniedHereError:
                pass  # it is asked again elsewhere
            except Broken as lost:
                if not self.is_open:
                    raise
                if not rule.is_safe:
                    raise Broken(f"{lost}: {verb} was sent, so it may have taken effect") from None
                unclear_in = welcome.space
            except Refused as refusal:
                if unclear_in and refusal.code in rule.happened:
                    return None
                raise
            finally:
                self._requests.pop(number, None)

    async def request_named(self, verb: str, arguments: Map) -> Value:
        """Sends a request about the one daemon that the client has named; raises as ``request``.

        Raises ``NotNamed`` where the connection is to another daemon, or was lost as the client went to one.
        """
        has_asked = False

        async def wait_named() -> None:
            nonlocal has_asked
            await self._wait_up()
            if not self.uplink.candidates.is_named:
                raise NotNamed(f"the connection is to {self.uplink.address.url}", sent=has_asked)
            has_asked = True

        return await self._ask_until_answered(verb, arguments, wait_named)

    def produce(self, producer: int, steps: tuple[Value, ...], question: PendingRequest) -> int:
        """Sends steps of a producer and returns their size in bytes; the answer settles ``question``."""
        self._check_open()
        if not self.uplink.up:
            raise Broken(f"the connection was lost, and with it producer {producer}")
        number = self._take_number()
        self._requests[number] = question
        return self.uplink.send(p.Produce(number, producer, steps), at_once=False)

    def ask(self, verb: str, arguments: Map, question: PendingRequest) -> None:
        """Sends one of the requests of WIRE.md without waiting; there must be a connection."""
        number = self._take_number()
        self.uplink.send(p.Request(number, verb, arguments))
        self._requests[number] = question

    # -- streams to the daemon ------------------------------------------------------------------------

    @asynccontextmanager
    async def offer(self, spec: dict[str, Value]) -> AsyncIterator[OutgoingOffer]:
        """Opens a stream of values to the daemon that takes them; a block that ends before the stream
        aborts it."""
        while True:
            await self._wait_up()
            number, self._next_stream = self._next_stream, self._next_stream + 1
            self.uplink.send(p.Offer(number, Map(spec)))
            offer = self._offers[number] = OutgoingOffer(
                number, lambda framed: self._write(framed, False), self.in_flight.limits
            )
            try:
                if await offer.is_wanted(_DeniedHereError):
                    yield offer
                    return
            finally:
                if self._offers.pop(number, None) is not None:
                    offer.abort()

    def _end_offers(self, error: DataspaceError) -> None:
        for offer in self._offers.values():
            offer.fail(error)
        self._offers.clear()

    async def _wait_up(self) -> None:
        self._check_open()
        while not self.uplink.up:  # it may be lost again before this task runs
            await self.patience.wait(self.uplink.wait_up)
            self._check_open()

    # -- streams from the daemon ----------------------------------------------------------------------

    def open_stream(
        self, observation: Stream, spec: Map, items: int, size: int, number: int | None = None
    ) -> int:
        """Opens a stream, at once or after the next reconnect, and returns its number, which an old stream
        keeps.

        Raises ``Refused("limit")``, with nothing opened, for values beyond what the daemon takes.
        """
        self._check_open()
        if number is None:
            number, self._next_stream = self._next_stream, self._next_stream + 1
        self.uplink.send(
            p.Open(number, Map({"space": self.identity.space, **dict(spec.pairs())}), items, size)
        )
        self._streams[number] = observation
        return number

    def send_on_stream(self, packet: p.Ask | p.Peek, *, at_once: bool = False) -> None:
        """Sends an ask or a peek: ``at_once``, or buffered with other packets until the next pause."""
        if packet.stream in self._streams:
            self.uplink.send(packet, at_once=at_once)

    def drop_stream(self, number: int, reason: str = "") -> None:
        """Ends a stream without waiting."""
        if self.take_stream(number) is not None:
            resumes = self.identity.grace > 0  # and so keeps the interest if the abort is lost
            if not self.uplink.up:
                self._dropped.append(number)
                return
            if resumes:
                self._streams[number] = PendingAbort(self._dropped)
            self.uplink.send(p.Abort(number, reason[:REASON], resumes), at_once=False)

    async def end_stream(self, number: int, reason: str = "") -> None:
        """Ends a stream and waits until the daemon has confirmed it, or the connection is lost."""
        if not self.uplink.up:
            self.drop_stream(number, reason)
        elif self.take_stream(number) is not None:
            ending = self._streams[number] = PendingAbort(self._dropped)
            self.uplink.send(p.Abort(number, reason[:REASON], True), at_once=False)
            await ending.wait()

    def open_anew(self, stream: Stream, *, resumed: bool, moved: bool) -> None:
        """Opens a stream under a new number, as after a reconnect; raises as ``open_stream``."""
        self._check_open()
        number, self._next_stream = self._next_stream, self._next_stream + 1
        stream.reopen(number, resumed=resumed, moved=moved)

    def has_stream(self, number: int, stream: Stream) -> bool:
        """True if the number stands for this stream."""
        return self._streams.get(number) is stream

    def take_stream(self, number: int) -> Stream | None:
        """Removes a stream and returns it, None if there is none; its epochs stay seen."""
        stream = self._streams.pop(number, None)
        if stream is not None:
            self._seen = max(self._seen, self._seen_on(stream))
        return stream

    # -- for the connection loop ------------------------------------------------------------------------

    def is_behind(self, welcome: p.Welcome) -> bool:
        """True if this client has seen a later epoch of the space than a daemon has."""
        before = self.welcome
        return before is not None and before.space == welcome.space and welcome.epoch < self.seen

    @property
    def seen(self) -> int:
        """The newest epoch that this client has seen: of its turns, and of its observations."""
        return max(self._seen, self.in_flight.newest, *map(self._seen_on, self._streams.values()))

    def _seen_on(self, stream: Stream) -> int:
        return 0 if self.identity.space == SYSTEM else stream.seen  # that space has epochs of its own

    def welcomed(self, welcome: p.Welcome) -> None:
        """Handles the welcome of a new connection: sends again what has no answer."""
        before, self.welcome = self.welcome, welcome
        self.patience.returned()
        self._welcomed_at = loop().current_time()
        self.in_flight.limits = TurnLimits.read(welcome.limits)
        self.granted = granted = Granted.read(welcome.features)
        self._hellos.answered(welcome.session, granted)
        moved = before is not None and before.space != welcome.space
        if before is not None and moved:
            self._abandon(before.space, welcome.space)
            self._seen = 0
        self._seen = max(self._seen, welcome.epoch)
        self.in_flight.hold(welcome.sequence)
        if before is None:
            self.on_connection(ConnectionEvent(ConnectionChange.CONNECTED, space=welcome.space))
        else:
            self._returned = self._returned or (self.uplink.good_until, before.space)
        if self.lease is not None:
            self.lease.ask()
            self._reopen(resumed=granted.resumed, moved=moved)
            return
        facts = self.release(fresh=not granted.resumed)
        self._reopen(resumed=granted.resumed, moved=moved)
        if before is not None:
            self._restored(fresh=not granted.resumed, facts=facts)

    def _lease(self) -> Lease:
        """Returns the lease that the session's turns wait for."""

        def lost() -> None:
            self.on_connection(ConnectionEvent(ConnectionChange.LEASE_ENDED))
            self.in_flight.hold()

        def granted(fresh: bool, again: bool) -> None:
            facts = self.release(fresh=fresh)
            if again:
                self._restored(fresh=fresh, facts=facts)

        who = self.identity
        return Lease(who.owner, who.lease, request=self.request, ask=self.ask, lost=lost, granted=granted)

    def _abandon(self, before: str, space: str) -> None:
        """Fails the turns without an answer, which were meant for another space."""
        place = f"the connection is to another space now, it is {space}, and was {before}"
        self._abandoned += self.in_flight.abandon(
            lambda turn: AnotherSpace(f"turn {turn.sequence} was lost before its answer: {place}")
        )
        self._has_room.set()

    def release(self, *, fresh: bool) -> int:
        """Sends what was held; where the claims have ended (``fresh``), they are asserted again before it,
        unless the client wants none of that.  Returns how many there were."""
        if fresh and not self._reassert:
            self.forgotten += 1
            self.in_flight.forget()
        return self.in_flight.release(restate=fresh and self._reassert)

    def _restored(self, *, fresh: bool, facts: int) -> None:
        """Notes that the client's claims hold again; ``fresh`` if they had ended and ``facts`` were asserted
        again."""
        assert self.welcome is not None  # without a welcome nothing could be asserted
        space = self.welcome.space
        since, before = self._returned or (0.0, space)
        turns, self._returned, self._abandoned = self._abandoned, None, 0
        if before != space:
            change = ConnectionChange.ANOTHER_SPACE
        else:
            change, before = ConnectionChange.ANEW if fresh else ConnectionChange.RESUMED, ""
        seconds = max(0.0, time.time() - since) if since else 0.0
        self.on_connection(
            ConnectionEvent(
                change, since=since, seconds=seconds, facts=facts, turns=turns, space=space, before=before
            )
        )

    def _reopen(self, *, resumed: bool, moved: bool) -> None:
        """Opens all streams again under their numbers, in ascending order as the protocol requires."""
        streams = sorted(self._streams.items())
        self._streams.clear()
        for number, observation in streams:
            if not isinstance(observation, PendingAbort):
                try:
                    observation.reopen(number, resumed=resumed, moved=moved)
                except (Refused, UsageError) as error:
                    # It was not opened before, or by a daemon that takes more.
                    observation.fail(error)
        for number in self._dropped if resumed else ():
            self.uplink.send(p.Abort(number, "", False), at_once=False)
        self._dropped.clear()
        for each in list(self.lasting):
            each.reconnected(moved=moved)

    def received(self, packet: p.Packet, size: int) -> None:
        """Passes on a packet, which came in a frame of ``size`` bytes."""
        match packet:
            case p.Values(stream, first, values, available):
                observation = self._streams.get(stream)
                if observation is not None:
                    observation.arrive(values, first, size, available)
            case p.Accepted(first, epochs):
                for at, epoch in enumerate(epochs, first):
                    self.in_flight.accept(at, epoch)
                self._has_room.set()
            case p.Refusal(sequence, code, text, found, url):
                refusal = refusal_of(code, text, found, url)
                if not self._leaves(refusal):  # else the turn is sent again, under its number
                    self._refused(sequence, refusal)
            case p.Available(stream, items):
                if (observation := self._streams.get(stream)) is not None:
                    observation.know(items)
            case p.Reached(epoch, streams):
                for stream in streams:
                    if (observation := self._streams.get(stream)) is not None:
                        observation.reach(epoch)
            case p.Peek(stream) | p.Ask(stream) | p.Done(stream) if stream in self._offers:
                self._offers[stream].receive(packet)
            case p.Error(stream, code, text, url) if stream in self._offers:
                refusal = Refused(code, text, url)
                failed = _DeniedHereError(str(refusal)) if self._leaves(refusal) else refusal
                self._offers.pop(stream).fail(failed)
            case p.Done(stream):
                if (observation := self.take_stream(stream)) is not None:
                    observation.finish()
            case p.Error(stream, code, text, url):
                observation = self._streams.get(stream)
                refusal = Refused(code, text, url)
                if observation is not None and (
                    isinstance(observation, PendingAbort) or not self._leaves(refusal)
                ):
                    self.take_stream(stream)  # else it is opened again
                    if code == p.STORE_AWAY and not isinstance(observation, PendingAbort):
                        self.start_soon(partial(open_again, self, observation))
                    else:
                        observation.fail(refusal)
            case p.Answer(number, value):
                self._requests.pop(number, PendingRequest()).answer(value)
            case p.Denied(number, code, text, found, url):
                refusal = refusal_of(code, text, found, url)
                asked = self._requests.pop(number, PendingRequest())
                asked.fail(_DeniedHereError(str(refusal)) if self._leaves(refusal) else refusal)
            case _:
                pass

    def _leaves(self, refusal: Refused) -> bool:
        """Returns whether the client goes to another daemon, because this one does not serve it."""
        return refusal.code in p.ELSEWHERE and self.uplink.leave(refusal)

    def _refused(self, sequence: int, refusal: Refused) -> None:
        owner = self.identity.owner
        if self.lease is not None and refusal.code == "no-lease" and self.in_flight.is_of(owner, sequence):
            self.in_flight.keep(sequence)
            self.lease.lose()
            return
        ticket = self.in_flight.refuse(sequence, refusal)
        self._has_room.set()
        if ticket is not None and ticket.restating:
            lost = len(ticket.actions)
            self.on_connection(ConnectionEvent(ConnectionChange.REFUSED, str(refusal), facts=lost))

    def lost(self, error: Broken, reason: str) -> None:
        """Notes the loss of the connection: turns and streams wait for the next one, requests fail."""
        kind = _DeniedHereError if self.uplink.is_elsewhere else Broken
        waiting = kind(f"{error}, before the answer")
        lasted = loop().current_time() - self._welcomed_at > LASTING
        self.patience.lost(served=lasted or not self.uplink.is_elsewhere)
        self.in_flight.lose(is_elsewhere=self.uplink.is_elsewhere or self.granted.follows)
        questions, self._requests = self._requests, {}
        for question in questions.values():
            question.fail(waiting)
        self._end_offers(waiting)
        for number, stream in self._streams.items():
            if isinstance(stream, PendingAbort):
                stream.lose(number)
        since = self.uplink.good_until
        self.on_connection(
            ConnectionEvent(ConnectionChange.LOST, reason, since=since, seconds=max(0.0, time.time() - since))
        )

    def ended(self, error: DataspaceError) -> None:
        """Fails everything that waits: there will be no further connection."""
        self._closed = error
        known = isinstance(error, ProtocolError)
        self.in_flight.fail(
            lambda turn: error if known else Closed(f"closed before turn {turn.sequence} was answered")
        )
        if self.lease is not None:
            self.lease.fail(error)
        for observation in list(self._streams.values()):
            observation.fail(error)
        for question in self._requests.values():
            question.fail(error)
        for each in list(self.lasting):
            each.fail(error)
        self._end_offers(error)
        self._has_room.set()
        if known and self.welcome is not None:
            self.on_connection(ConnectionEvent(ConnectionChange.ENDED, str(error)))

    def forked(self, reason: UsageError) -> None:
        """Refuses each use in a forked child, to whose parent the connection belongs."""
        self._closed = reason
        self.uplink.forked()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise type(self._closed)(*self._closed.args)

    def _write(self, framed: bytes, at_once: bool) -> None:
        if self.uplink.up:
            self.uplink.write(framed, at_once=at_once)

    def _take_number(self) -> int:
        number, self._next_request = self._next_request, self._next_request + 1
        return number


async def open_again(session: ClientSession, stream: Stream) -> None:
    """Opens a stream again that failed because the daemon does not reach its store (``store-away``).

    It goes on after the last epoch that came, as after a lost connection.
    """
    before = session.welcome
    await loop().sleep(AWAY_SECONDS)
    now = session.welcome
    moved = before is not None and now is not None and before.space != now.space
    try:
        session.open_anew(stream, resumed=now is before or session.granted.resumed, moved=moved)
    except DataspaceError as error:
        stream.fail(error)
