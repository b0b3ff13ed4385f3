"""A space somewhere else: the client's connection, kept up for as long as it is wanted.

``connect`` gives a ``RemoteSpace`` inside ``async with``.  An uplink keeps the connection up; when it was
lost and is there again, everything is as it was: what the session asserted is asserted again, turns without
an answer are sent again under their old numbers (the daemon applies none twice), and observations go on from
where they were.

Always: turns of one space take effect in the order in which they were submitted; a turn whose ``wait``
returned is on the daemon's disk.
"""

from __future__ import annotations

import random
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from dataspace.addresses import Address, default_url, parse_url
from dataspace.client.observations import Observation
from dataspace.client.portions import TurnLimits
from dataspace.client.questions import Question
from dataspace.client.resuming import restated, unanswered
from dataspace.client.turns import Claim, Claims, Draft, Handles, Ticket
from dataspace.client.uplink import Uplink
from dataspace.errors import Broken, Closed, DataspaceError, ProtocolError, Refused
from dataspace.groups import alone
from dataspace.wire import packets as p
from dataspace.wire.features import Granted, Wanted
from dataspace.wire.session import encode
from index.patterns import Pattern
from index.text import parse_pattern
from index.values import Map, Value, freeze

IN_FLIGHT: Final = 4096
"""Turns that may wait for their answer at once."""


HEARTBEAT: Final = 15.0
"""Seconds within which each side of a connection says something, unless the daemon wants it sooner."""


class RemoteSpace:
    """The same verbs that an actor has, over a connection; made by ``connect``."""

    def __init__(
        self,
        address: Address,
        *,
        name: str,
        client: str,
        owner: str,
        space: str,
        heartbeat: float,
        grace: float,
    ) -> None:
        self.name = name
        self.client = client
        self.owner = owner
        self.space = space
        self.welcome: p.Welcome | None = None
        self._heartbeat = heartbeat
        self._grace = grace
        self._ticket: tuple[int, bytes] | None = None
        self._dropped: list[int] = []
        self.on_connection: Callable[[str], None] = lambda _what: None
        self._tickets: OrderedDict[int, Ticket] = OrderedDict()
        self._claims = Claims()
        self._limits = TurnLimits()
        self._sequence = 0
        # A durable owner may have claims from other runs: a random beginning keeps clear of their handles.
        self._handles = Handles(random.getrandbits(60) if owner else 1)
        self._next_stream = 1
        self._next_request = 1
        self._streams: dict[int, Observation] = {}
        self._requests: dict[int, Question] = {}
        self._room = trio.Event()
        self._closed: DataspaceError | None = None
        self._uplink = Uplink(address, self)

    # -- verbs ----------------------------------------------------------------------------------------

    async def assert_(self, value: object) -> Claim:
        """Asserts a fact and waits until that is on disk; the fact lasts as long as its owner keeps it up."""
        draft = self.draft()
        claim = draft.assert_(freeze(value))
        await self.commit(draft)
        return claim

    async def retract(self, claim: Claim | int) -> int:
        """Ends a claim; the epoch in which it ended."""
        draft = self.draft()
        draft.retract(claim)
        return await self.commit(draft)

    async def replace(self, claim: Claim | int, value: object) -> Claim:
        """Asserts a fact and ends a claim in one turn, so that nobody sees a moment without either."""
        draft = self.draft()
        after = draft.replace(claim, freeze(value))
        await self.commit(draft)
        return after

    async def send(self, value: object) -> int:
        """Sends a message; its epoch."""
        draft = self.draft()
        draft.send(freeze(value))
        return await self.commit(draft)

    @asynccontextmanager
    async def asserting(self, value: object) -> AsyncIterator[Claim]:
        """Asserts a fact for as long as the block runs."""
        claim = await self.assert_(value)
        try:
            yield claim
        finally:
            with trio.move_on_after(1.0) as patience:
                patience.shield = True
                if self._closed is None:
                    await self.retract(claim)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Draft]:
        """Collects actions and commits them as one turn at the end of the block, or none on an error.

        ``draft.epoch`` is its epoch afterwards.
        """
        draft = self.draft()
        yield draft
        draft.epoch = await self.commit(draft)

    def draft(self) -> Draft:
        """An empty turn to fill by hand; ``submit`` or ``commit`` takes it."""
        return Draft(self._handles)

    async def commit(self, draft: Draft) -> int:
        """Submits a turn and waits for its epoch; raises ``Refused`` and nothing has happened."""
        return await (await self.submit(draft)).wait()

    async def submit(self, draft: Draft | Sequence[p.Action]) -> Ticket:
        """Sends a turn without waiting for its answer; waits only while too many are on their way."""
        while len(self._tickets) >= IN_FLIGHT:
            self._check_open()
            self._uplink.flush()
            if self._room.is_set():  # several may wait for the same room
                self._room = trio.Event()
            await self._room.wait()
        return self.submit_nowait(draft)

    def submit_nowait(self, draft: Draft | Sequence[p.Action]) -> Ticket:
        """Sends a turn at once, or as soon as there is a connection again; see ``submit`` for its bound.

        Raises ``Refused("limit")`` for one that is larger than what the daemon takes.
        """
        self._check_open()
        actions = tuple(draft.actions if isinstance(draft, Draft) else draft)
        ticket = Ticket(self._sequence + 1, self.owner, actions)
        data = encode(self._turn_of(ticket))
        self._limits.check(data)
        self._sequence += 1
        alone = not self._tickets
        self._tickets[ticket.sequence] = ticket
        if self._uplink.up:
            self._uplink.write(data, at_once=alone)
        return ticket

    def observe(
        self,
        pattern: Pattern | str,
        *,
        snapshot: bool = True,
        after: int | None = None,
        upto: int | None = None,
        quiet: bool = False,
        durable: bool = False,
    ) -> Observation:
        """The changes of a pattern, given as text or as a pattern.

        First the state (``snapshot=False``: only what happens from now on), then every change.  With
        ``after`` it begins with what followed that epoch, from the log; ``upto`` ends it after an epoch.
        ``quiet`` asserts no interest; ``durable`` shows an epoch only when it is on disk.
        """
        form = parse_pattern(pattern) if isinstance(pattern, str) else pattern
        return Observation(
            self, form, snapshot=snapshot, after=after, upto=upto, quiet=quiet, durable=durable
        )

    async def matches(self, pattern: Pattern | str) -> list[tuple[Value, ...]]:
        """What matches a pattern now, once, as rows of captures."""
        async with self.observe(pattern, quiet=True) as observation:
            state = await observation.next_epoch()
            return state.added if state is not None else []

    async def sync(self) -> int:
        """Waits until everything that was sent before has been handled and is on disk; the newest epoch."""
        epoch = await self.request("sync", Map())
        assert isinstance(epoch, int)  # by WIRE.md
        return epoch

    async def status(self) -> Map:
        """What the daemon says of itself."""
        answer = await self.request("status", Map())
        assert isinstance(answer, Map)  # by WIRE.md
        return answer

    async def request(self, verb: str, arguments: Map) -> Value:
        """Asks one of the requests of WIRE.md; raises ``Refused`` where it is denied."""
        self._check_open()
        while not self._uplink.up:  # it may be lost again before this task runs
            await self._uplink.wait_up()
            self._check_open()
        question = Question()
        number, self._next_request = self._next_request, self._next_request + 1
        self._requests[number] = question
        try:
            self._uplink.send(p.Request(number, verb, arguments))
            return await question.wait()
        finally:
            self._requests.pop(number, None)

    async def drain(self, timeout: float = 10.0) -> None:
        """Waits until every turn has its answer, or for so many seconds."""
        with trio.move_on_after(timeout):
            for ticket in list(self._tickets.values()):
                await ticket.settled()

    @property
    def sequence(self) -> int:
        """The number of the newest turn of this client: at first, of the last one that the daemon knows."""
        return self._sequence

    @property
    def reconnects(self) -> int:
        """How often a lost connection was made again."""
        return self._uplink.reconnects

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps the connection up until cancelled; the first one must succeed."""
        await self._uplink.run(task_status=task_status)

    @property
    def in_flight(self) -> int:
        """Turns that have no answer yet."""
        return len(self._tickets)

    # -- for observations -----------------------------------------------------------------------------

    def open_stream(
        self, observation: Observation, spec: Map, items: int, size: int, number: int | None = None
    ) -> int:
        """Opens a stream, at once or when the connection is back; its number, which an old one keeps."""
        self._check_open()
        if number is None:
            number, self._next_stream = self._next_stream, self._next_stream + 1
        self._streams[number] = observation
        self._uplink.send(p.Open(number, Map({"space": self.space, **dict(spec.pairs())}), items, size))
        return number

    def say_on_stream(self, packet: p.Ask) -> None:
        """Sends an ask."""
        if packet.stream in self._streams:
            self._uplink.send(packet, at_once=False)

    def drop_stream(self, number: int) -> None:
        """Ends a stream without waiting."""
        if self._streams.pop(number, None) is not None:
            if self._uplink.up:
                self._uplink.send(p.Abort(number, "", False), at_once=False)
            else:
                self._dropped.append(number)

    # -- for the uplink -------------------------------------------------------------------------------

    def hello(self) -> p.Hello:
        """What the client introduces itself with; the secret of its session, if it has one."""
        wanted = Wanted(self._heartbeat, self._grace, self._ticket)
        return p.Hello(p.VERSION, self.client, self.name, wanted.packed())

    def welcomed(self, welcome: p.Welcome) -> None:
        """A connection is there: what was said before is said again."""
        before, self.welcome = self.welcome, welcome
        self._limits = TurnLimits.told(welcome.limits)
        granted = Granted.read(welcome.features)
        self._ticket = (welcome.session, granted.secret) if granted.secret else None
        if before is None:
            self._sequence = welcome.sequence
        self._send_again(welcome.sequence, resumed=granted.resumed)
        self._reopen(resumed=granted.resumed, moved=before is not None and before.space != welcome.space)

    def _reopen(self, *, resumed: bool, moved: bool) -> None:
        """Opens all streams again under their numbers, in ascending order as the protocol wants it."""
        streams = sorted(self._streams.items())
        self._streams.clear()
        for number, observation in streams:
            observation.reopen(number, resumed=resumed, moved=moved)
        for number in self._dropped if resumed else ():
            self._uplink.send(p.Abort(number, "", False), at_once=False)
        self._dropped.clear()

    def _send_again(self, applied: int, *, resumed: bool) -> None:
        """Says again what has to be; ``applied`` is the last turn that the daemon knows."""
        waiting = self._tickets.values()
        if resumed:
            again = unanswered(waiting, self._claims, applied)
        else:
            again = restated(waiting, self._claims, applied, self._limits)
        self._tickets = OrderedDict((ticket.sequence, ticket) for ticket in again)
        self._sequence = max(self._sequence, applied, *self._tickets)
        for ticket in again:
            self._uplink.write(encode(self._turn_of(ticket)), at_once=False)

    def heard(self, packet: p.Packet, size: int) -> None:
        """A packet has come, in a frame of ``size`` bytes."""
        match packet:
            case p.Values(stream, _first, values, _available):
                observation = self._streams.get(stream)
                if observation is not None:
                    observation.arrive(values, size)
            case p.Accepted(first, epochs):
                for at, epoch in enumerate(epochs, first):
                    self._settle(at, epoch)
            case p.Refusal(sequence, code, text):
                self._refused(sequence, Refused(code, text))
            case p.Done(stream):
                observation = self._streams.pop(stream, None)
                if observation is not None:
                    observation.finish()
            case p.Error(stream, code, text):
                observation = self._streams.pop(stream, None)
                if observation is not None:
                    observation.fail(Refused(code, text))
            case p.Answer(number, value):
                self._requests.pop(number, Question()).answer(value)
            case p.Denied(number, code, text):
                self._requests.pop(number, Question()).fail(Refused(code, text))
            case _:
                pass

    def _settle(self, sequence: int, epoch: int) -> None:
        ticket = self._tickets.pop(sequence, None)
        if ticket is not None:
            self._claims.apply(ticket)
            ticket.accept(epoch)
            self._room.set()

    def _refused(self, sequence: int, refusal: Refused) -> None:
        ticket = self._tickets.pop(sequence, None)
        if ticket is not None:
            if ticket.restating:
                self.on_connection(f"not the same: {len(ticket.actions)} facts are gone, {refusal}")
            ticket.fail(refusal)
            self._room.set()

    def lost(self, reason: Broken) -> None:
        """The connection is gone: everything waits for the next one, but questions fail."""
        for question in self._requests.values():
            question.fail(Broken(f"{reason}, before the answer"))

    def ended(self, error: DataspaceError) -> None:
        """There will be no connection any more: whoever waits for something is told."""
        self._closed = error
        for ticket in self._tickets.values():
            said = f"closed before turn {ticket.sequence} was answered"
            ticket.fail(error if isinstance(error, ProtocolError) else Closed(said))
        for observation in list(self._streams.values()):
            observation.fail(error)
        for question in self._requests.values():
            question.fail(error)
        self._room.set()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise type(self._closed)(*self._closed.args)

    def _turn_of(self, ticket: Ticket) -> p.Turn:
        return p.Turn(ticket.sequence, self.space, ticket.owner, ticket.actions)


@asynccontextmanager
async def connect(
    url: str | None = None,
    *,
    name: str = "",
    owner: str = "",
    client: str = "",
    space: str = "main",
    heartbeat: float = HEARTBEAT,
    grace: float = 0.0,
) -> AsyncIterator[RemoteSpace]:
    """A connection to a daemon, for as long as the block runs.

    ``url`` is ``tcp://HOST:PORT`` (default: ``$DATASPACE_URL``, else the local default).  Facts belong to
    the session and go with it; with ``owner`` they belong to that durable name and stay until retracted.
    ``client`` is the identity that turns are numbered by: the owner's name if there is one, else random.
    ``heartbeat`` is in seconds: a daemon that is silent for two of them is given up, and tried again.
    With ``grace`` the session outlives a lost connection for so many seconds: who comes back within them has
    all that it asserted still there, and nobody has seen it go.  Without, facts go with the connection.
    Raises ``Unreachable`` if nobody answers, ``ProtocolError`` if the daemon will not talk.
    """
    identity = client or (f"owner:{owner}" if owner else f"~{uuid.uuid4().hex}")
    remote = RemoteSpace(
        parse_url(url or default_url()),
        name=name,
        client=identity,
        owner=owner,
        space=space,
        heartbeat=heartbeat,
        grace=grace,
    )
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(remote.run)
            try:
                yield remote
                await remote.drain()
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise alone(_without_echoes(group)) from None


def _without_echoes(group: BaseExceptionGroup[BaseException]) -> BaseExceptionGroup[BaseException]:
    """The group with its first error alone, if all are the same: an end of the connection is told to
    everybody who waits for an answer, and should be raised once."""
    said: set[object] = set()
    kept = group.subgroup(lambda error: not isinstance(error, BaseExceptionGroup) and _new(said, error))
    return group if kept is None else kept


def _new(said: set[object], error: BaseException) -> bool:
    what = (type(error), str(error))
    new = what not in said
    said.add(what)
    return new


__all__ = ["RemoteSpace", "connect"]
