"""A space somewhere else, with the verbs that an actor has.

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
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Literal, Protocol

import trio

from dataspace.addresses import Address
from dataspace.client.endings import Ending
from dataspace.client.epochs import View
from dataspace.client.in_flight import InFlight
from dataspace.client.observations import Observation
from dataspace.client.offers import Offer
from dataspace.client.portions import TurnLimits
from dataspace.client.publications import Joining, Publication, publishing
from dataspace.client.questions import Question
from dataspace.client.subscriptions import Subscription
from dataspace.client.topic_epochs import Completed
from dataspace.client.turns import Claim, Claims, Draft, Handles, Ticket
from dataspace.client.uplink import Uplink
from dataspace.credentials import Credentials
from dataspace.errors import Broken, Closed, DataspaceError, ProtocolError, Refused, UsageError
from dataspace.topics.times import Time
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN, SYSTEM, Granted, Wanted
from dataspace.wire.windows import Budget
from index.patterns import Pattern
from index.text import parse_pattern
from index.values import Map, Value, freeze

"""The space in which a daemon says what there is: it can be observed from any other."""

REASON: Final = 4096
"""Characters of the reason of an abort that are sent."""

IN_FLIGHT: Final = 4096
"""Turns that may wait for their answer at once."""


class Stream(Protocol):
    """Who takes what comes over a stream: an observation, or a subscription to a topic."""

    def arrive(self, values: tuple[Value, ...], first: int, size: int, available: int) -> None:
        """A frame of values has come, whose first has this number; so many more are ready.

        It cost ``size`` bytes of credit.
        """

    def know(self, total: int) -> None:
        """So many values, since the stream was opened, have come or are ready."""

    def finish(self) -> None:
        """This was all."""

    def fail(self, error: DataspaceError) -> None:
        """The stream has failed, or the space was closed."""

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """There is a new connection."""


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
        lease: float,
        reconnect: bool,
        credentials: Credentials,
    ) -> None:
        self.name = name
        self.client = client
        self.owner = owner
        self.space = space
        self.welcome: p.Welcome | None = None
        self._token = credentials.token
        self._heartbeat = heartbeat
        self._grace = grace
        self._ticket: tuple[int, bytes] | None = None
        self._dropped: list[int] = []
        self.budget: Final = Budget()
        self.on_connection: Callable[[str], None] = lambda _what: None
        self._lease = lease
        self._lease_question = 0
        self._leased = Question()
        # A durable owner may have claims from other runs: a random beginning keeps clear of their handles.
        self._handles = Handles(random.getrandbits(60) if owner and not lease else 1)
        self._next_stream = 1
        self._next_request = 1
        self._streams: dict[int, Stream] = {}
        self._requests: dict[int, Question] = {}
        self._offers: dict[int, Offer] = {}
        self.publications: set[Publication] = set()
        """Those that outlive a connection; they add and remove themselves."""
        self._room = trio.Event()
        self._closed: DataspaceError | None = None
        self._uplink = Uplink(address, self, credentials, reconnect=reconnect)
        claims = Claims(owner if lease else "")
        self._in_flight = InFlight(space, claims, self._write)

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
        while len(self._in_flight) >= IN_FLIGHT:
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
        return self._in_flight.submit(self.owner, actions)

    def observe(
        self,
        pattern: Pattern | str,
        *,
        snapshot: bool = True,
        after: int | None = None,
        upto: int | None = None,
        quiet: bool = False,
        durable: bool = False,
        policy: str = "conflate",
        window: int | None = None,
        as_of: int | None = None,
        net: bool = False,
        progress: bool = False,
    ) -> Observation:
        """The changes of a pattern, given as text or as a pattern.

        First the state (``snapshot=False``: only what happens from now on), then every change.  With
        ``after`` it begins with what followed that epoch, from the log, with ``as_of`` with the state at that
        epoch; ``upto`` ends it after an epoch.  ``net``, with ``after``, tells what has happened until now as
        its net difference.  ``progress`` has ``epochs()`` give some without rows, too, whose ``progress`` is
        true, a few times a second as long as epochs are made: all up to their ``number`` have been told.
        ``quiet`` asserts no interest; ``durable`` shows an epoch only when it is on disk.

        ``policy`` says what becomes of changes that are not read in time: ``conflate`` (the net difference is
        kept), ``wait`` (the log keeps them), ``fail`` (the observation ends) or ``drop`` (the oldest go, and
        a mark says how many).  ``window`` fixes how many epochs are asked for ahead; with 0 nothing is on its
        way that nobody waits for (a round trip for each read), and the rest waits at the daemon.  Without,
        that follows from how fast they are read, and from the memory that this connection's observations
        share.
        """
        form = parse_pattern(pattern) if isinstance(pattern, str) else pattern
        view = View(form, snapshot, after, upto, quiet, durable, policy, as_of, net, progress)
        return Observation(self, view, window)

    def publish(
        self,
        topic: str,
        *,
        partition: int = 0,
        partitions: int = 1,
        dimensions: int = 0,
        time: Time | None = None,
        retain: int = 0,
        durable: bool = False,
        age: float | None = None,
        name: str = "",
        away: float = 0.0,
    ) -> AbstractAsyncContextManager[Publication]:
        """Publishes to a partition of a topic for as long as the block runs; the first makes the topic.

        Times are integers, or tuples of ``dimensions`` of them.  It begins at ``time``, or where the
        partition stands.  ``retain`` is how many bytes of batches the daemon keeps for later subscribers.
        A block that ends with an error leaves its open times *crashed*, one that ends well completes them.

        A ``durable`` topic is kept on the daemon's disk (64 MiB unless ``retain`` says otherwise, and for no
        longer than ``age`` seconds if that is given), stays when nobody publishes to it, and tells an item
        only when it is on disk.  A publication to it may be ``away`` for so many seconds: it outlives the
        connection, and the daemon, and says again what was not answered.  Another process takes it up, with
        what it held, by giving the same ``name``.
        Raises ``Refused("topic-differs")`` for another shape, ``Refused("bad-request")`` for a time that
        is over.
        """
        if (name or away) and not durable:
            raise UsageError("only a publication to a durable topic has a name and may be away")
        known = name or (uuid.uuid4().hex if away else "")
        shape = (partition, partitions, dimensions, time, retain, durable, age)
        return publishing(self, Joining(topic, *shape, known, away))

    def subscribe(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        atomic: bool = True,
        as_of: list[Time] | Time | None = None,
        up_to: Time | None = None,
        slow: Literal["fail", "wait"] = "fail",
        timeout: float = 0.0,
    ) -> Subscription:
        """The epochs of a topic, each whole: those of which nothing was sent before we came.

        ``as_of`` begins with what is retained at or after a time (a list: at or after one of several),
        ``up_to`` ends before a time.  ``atomic=False`` lets the rest of epochs that had begun through.
        With ``slow="wait"`` publishers wait while this subscriber has more than 16 MiB to take; else it fails
        with ``Refused("slow-subscriber")``.  ``timeout`` is how many seconds to wait for the topic to appear,
        after which ``Refused("no-topic")`` is raised.
        """
        return Subscription(
            self,
            topic,
            partitions=partitions,
            atomic=atomic,
            as_of=as_of,
            up_to=up_to,
            slow=slow,
            timeout=timeout,
        )

    def completed(self, topic: str, *, after: int | None = None, upto: int | None = None) -> Completed:
        """The epochs that a durable topic has completed, by their numbers (after, upto]; then it ends.

        From the oldest that is retained to the newest there is, unless told.  A number stands for the same
        time and items each time.  Raises ``Refused``: ``no-topic``, ``not-durable``, ``epoch-gone``,
        ``epoch-ahead``.
        """
        return Completed(self, topic, after, upto)

    async def end_topic(self, topic: str) -> None:
        """Ends a topic that this session made, or a durable one that nobody publishes to.

        All that publish and subscribe to it are told; what was kept of it goes.
        """
        await self.request("end-topic", Map({"topic": topic}))

    async def matches(self, pattern: Pattern | str) -> list[tuple[Value, ...]]:
        """What matches a pattern now, once, as rows of captures."""
        observation = self.observe(pattern, quiet=True, window=1)
        try:
            state = await observation.next_epoch()
            return state.added if state is not None else []
        finally:
            observation.close()

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
        await self._wait_up()
        question = Question()
        number = self._take_number()
        self._requests[number] = question
        try:
            self._uplink.send(p.Request(number, verb, arguments))
            return await question.wait()
        finally:
            self._requests.pop(number, None)

    def produce(self, producer: int, steps: tuple[Value, ...], question: Question) -> int:
        """Sends steps of a producer, of which the answer settles a question; how many bytes they are."""
        self._check_open()
        if not self._uplink.up:
            raise Broken(f"the connection of producer {producer} was lost, and it with it")
        number = self._take_number()
        self._requests[number] = question
        return self._uplink.send(p.Produce(number, producer, steps), at_once=False)

    def ask(self, verb: str, arguments: Map, question: Question) -> None:
        """Asks one of the requests of WIRE.md without waiting; there must be a connection."""
        number = self._take_number()
        self._requests[number] = question
        self._uplink.send(p.Request(number, verb, arguments))

    async def stage(self, key: Sequence[str], operations: Iterable[tuple[str, object]]) -> int:
        """Keeps operations on the daemon's disk under a key, sent as it asks for them; how many there were.

        Each is ``("assert" | "retract" | "send", value)``; the request ``publish`` makes one turn of them.
        Raises ``Broken`` if the connection is lost: what is under the key then is not known, discard it.
        """
        offer = await self._offer({"kind": "stage", "key": tuple(key)})
        try:
            for verb, value in operations:
                await offer.send((verb, freeze(value)))
            return await offer.finish()
        finally:
            if self._offers.pop(offer.number, None) is not None:
                offer.give_up()

    async def _offer(self, spec: dict[str, Value]) -> Offer:
        await self._wait_up()
        number, self._next_stream = self._next_stream, self._next_stream + 1
        offer = self._offers[number] = Offer(number, lambda framed: self._write(framed, False))
        self._uplink.send(p.Offer(number, Map(spec)))
        return offer

    def _end_offers(self, error: DataspaceError) -> None:
        for offer in self._offers.values():
            offer.fail(error)
        self._offers.clear()

    async def _wait_up(self) -> None:
        self._check_open()
        while not self._uplink.up:  # it may be lost again before this task runs
            await self._uplink.wait_up()
            self._check_open()

    async def drain(self, timeout: float = 10.0) -> None:
        """Waits until every turn has its answer, or for so many seconds."""
        with trio.move_on_after(timeout):
            for ticket in self._in_flight.tickets():
                await ticket.settled()

    @property
    def sequence(self) -> int:
        """The number of the newest turn of this client: at first, of the last one that the daemon knows."""
        return self._in_flight.sequence

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
        return len(self._in_flight)

    # -- for observations -----------------------------------------------------------------------------

    def open_stream(
        self, observation: Stream, spec: Map, items: int, size: int, number: int | None = None
    ) -> int:
        """Opens a stream, at once or when the connection is back; its number, which an old one keeps."""
        self._check_open()
        if number is None:
            number, self._next_stream = self._next_stream, self._next_stream + 1
        self._streams[number] = observation
        self._uplink.send(p.Open(number, Map({"space": self.space, **dict(spec.pairs())}), items, size))
        return number

    def say_on_stream(self, packet: p.Ask | p.Peek) -> None:
        """Sends an ask, or a peek."""
        if packet.stream in self._streams:
            self._uplink.send(packet, at_once=False)

    def drop_stream(self, number: int, reason: str = "") -> None:
        """Ends a stream without waiting."""
        if self._streams.pop(number, None) is not None:
            if self._uplink.up:
                self._uplink.send(p.Abort(number, reason[:REASON], False), at_once=False)
            else:
                self._dropped.append(number)

    async def end_stream(self, number: int, reason: str = "") -> None:
        """Ends a stream and waits until the daemon has confirmed it, or the connection is lost."""
        if not self._uplink.up:
            self.drop_stream(number, reason)
        elif self._streams.pop(number, None) is not None:
            ending = self._streams[number] = Ending(self._dropped)
            self._uplink.send(p.Abort(number, reason[:REASON], True), at_once=False)
            await ending.wait()

    # -- for the uplink -------------------------------------------------------------------------------

    def hello(self) -> p.Hello:
        """What the client introduces itself with; the secret of its session, if it has one."""
        home = MAIN if self.space == SYSTEM else self.space
        wanted = Wanted(self._heartbeat, self._grace, self._ticket, home, self._token)
        return p.Hello(p.VERSION, self.client, self.name, wanted.packed())

    def welcomed(self, welcome: p.Welcome) -> None:
        """A connection is there: what was said before is said again."""
        before, self.welcome = self.welcome, welcome
        self._in_flight.limits = TurnLimits.told(welcome.limits)
        granted = Granted.read(welcome.features)
        self._ticket = (welcome.session, granted.secret) if granted.secret else None
        self._in_flight.hold(welcome.sequence)
        if self._lease:
            self._ask_for_lease()
        else:
            self._in_flight.release(restate=not granted.resumed)
        self._reopen(resumed=granted.resumed, moved=before is not None and before.space != welcome.space)

    def _reopen(self, *, resumed: bool, moved: bool) -> None:
        """Opens all streams again under their numbers, in ascending order as the protocol wants it."""
        streams = sorted(self._streams.items())
        self._streams.clear()
        for number, observation in streams:
            if not isinstance(observation, Ending):
                observation.reopen(number, resumed=resumed, moved=moved)
        for number in self._dropped if resumed else ():
            self._uplink.send(p.Abort(number, "", False), at_once=False)
        self._dropped.clear()
        for publication in list(self.publications):
            publication.reconnected()

    def heard(self, packet: p.Packet, size: int) -> None:
        """A packet has come, in a frame of ``size`` bytes."""
        match packet:
            case p.Values(stream, first, values, available):
                observation = self._streams.get(stream)
                if observation is not None:
                    observation.arrive(values, first, size, available)
            case p.Accepted(first, epochs):
                for at, epoch in enumerate(epochs, first):
                    self._in_flight.accept(at, epoch)
                self._room.set()
            case p.Refusal(sequence, code, text):
                self._refused(sequence, Refused(code, text))
            case p.Available(stream, items):
                observation = self._streams.get(stream)
                if observation is not None:
                    observation.know(items)
            case p.Peek(stream, items) if stream in self._offers:
                self._offers[stream].peek(items)
            case p.Ask(stream, items, size) if stream in self._offers:
                self._offers[stream].ask(items, size)
            case p.Done(stream) if stream in self._offers:
                self._offers.pop(stream).done()
            case p.Error(stream, code, text) if stream in self._offers:
                self._offers.pop(stream).fail(Refused(code, text))
            case p.Done(stream):
                observation = self._streams.pop(stream, None)
                if observation is not None:
                    observation.finish()
            case p.Error(stream, code, text):
                observation = self._streams.pop(stream, None)
                if observation is not None:
                    observation.fail(Refused(code, text))
            case p.Answer(number, value) if number == self._lease_question:
                self._granted(value)
            case p.Denied(number, code, text) if number == self._lease_question:
                self._leased.fail(Refused(code, text))
            case p.Answer(number, value):
                self._requests.pop(number, Question()).answer(value)
            case p.Denied(number, code, text):
                self._requests.pop(number, Question()).fail(Refused(code, text))
            case _:
                pass

    def _refused(self, sequence: int, refusal: Refused) -> None:
        if self._lease and refusal.code == "no-lease":
            self._in_flight.keep(sequence)
            self._lose_lease()
            return
        ticket = self._in_flight.refuse(sequence, refusal)
        self._room.set()
        if ticket is not None and ticket.restating:
            self.on_connection(f"not the same: {len(ticket.actions)} facts are gone, {refusal}")

    def lost(self, reason: Broken) -> None:
        """The connection is gone: everything waits for the next one, but questions fail."""
        waiting = Broken(f"{reason}, before the answer")
        questions, self._requests = self._requests, {}
        for question in questions.values():
            question.fail(waiting)
        self._end_offers(waiting)
        for number, stream in self._streams.items():
            if isinstance(stream, Ending):
                stream.lose(number)

    def ended(self, error: DataspaceError) -> None:
        """There will be no connection any more: whoever waits for something is told."""
        self._closed = error
        known = isinstance(error, ProtocolError)
        self._in_flight.fail(
            lambda turn: error if known else Closed(f"closed before turn {turn.sequence} was answered")
        )
        self._leased.fail(error)
        for observation in list(self._streams.values()):
            observation.fail(error)
        for question in self._requests.values():
            question.fail(error)
        for publication in list(self.publications):
            publication.fail(error)
        self._end_offers(error)
        self._room.set()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise type(self._closed)(*self._closed.args)

    def _write(self, framed: bytes, at_once: bool) -> None:
        if self._uplink.up:
            self._uplink.write(framed, at_once=at_once)

    # -- the lease ------------------------------------------------------------------------------------

    async def wait_leased(self) -> None:
        """Returns when the lease is granted for the first time; raises ``Refused`` if it is not."""
        if self._lease:
            await self._leased.wait()

    async def keep_leased(self) -> None:
        """Renews the lease in good time, until cancelled; asserts everything anew if it was too late."""
        while self._lease:
            await trio.sleep(self._lease / 3)
            try:
                await self.request("renew", Map({"owner": self.owner}))
            except Refused:
                self._lose_lease()
            except Broken:
                pass  # it is asked for again when the connection is back

    def end_lease(self) -> None:
        """Gives the lease up, and with it its facts."""
        if self._lease:
            self._uplink.send(p.Request(self._take_number(), "release", Map({"owner": self.owner})))

    def _lose_lease(self) -> None:
        """The lease has ended before its renewal came: nothing is said in its name until there is another."""
        if not self._lease_question:
            self.on_connection("too late for its lease")
            self._in_flight.hold()
            self._ask_for_lease()

    def _ask_for_lease(self) -> None:
        self._lease_question = self._take_number()
        self._uplink.send(p.Request(self._lease_question, "lease", Map({"owner": self.owner})))

    def _granted(self, told: Value) -> None:
        assert isinstance(told, Map)  # by WIRE.md
        self._lease_question = 0
        self._leased.answer(None)
        self._in_flight.release(restate=told["fresh"] is True)

    def _take_number(self) -> int:
        number, self._next_request = self._next_request, self._next_request + 1
        return number
