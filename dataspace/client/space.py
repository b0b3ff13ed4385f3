"""A remote space: the verbs of a dataspace, over a connection to a daemon.

``connect`` gives a ``RemoteSpace`` inside ``async with``.  What depends on the connection, and is restored
after a reconnect, is in the ``ClientSession`` below.

Always: turns of one space take effect in the order in which they were submitted; a turn whose ``wait``
returned is on the daemon's disk.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from dataspace.client.completed import CompletedEpochs
from dataspace.client.holds import Hold
from dataspace.client.locks import TTL, Held
from dataspace.client.observations import Observation, Observing, first, react_until
from dataspace.client.publications import Joining, Publication, publishing
from dataspace.client.puts import Puts, withdraw
from dataspace.client.session.events import ConnectionEvent
from dataspace.client.session.named import NamedDaemon
from dataspace.client.session.session import ClientSession
from dataspace.client.session.turns import Claim, Done, Draft, HandleNumbers, Others, Ticket
from dataspace.client.subscriptions import OPEN_BYTES, Subscription
from dataspace.client.topics import TopicSessions
from dataspace.errors import Refused, Unreachable, UsageError
from dataspace.facts import put_fact
from dataspace.kernel.actions import Action
from dataspace.kernel.changes import micros_of
from dataspace.kernel.expectations import Expectation
from dataspace.loops.blocks import AsyncBlock, block
from dataspace.loops.here import loop
from dataspace.topics.times import Time
from dataspace.wire import packets as p
from dataspace.wire.consuming import ConsumeOptions, Start
from dataspace.wire.observing import ObserveOptions
from dataspace.wire.traceparents import check_traceparent
from dataspace.wire.verbs import is_of_daemon
from index.patterns.patterns import Pattern, capture_names
from index.patterns.text import parse_pattern
from index.values.freezing import freeze
from index.values.values import Map, Value

if TYPE_CHECKING:
    from dataspace.client.jobs import AnyJob, Jobs
    from dataspace.client.live import LiveMap, Living
    from dataspace.client.query.rows import Row, Rows
    from dataspace.client.typed import RowType, TypedObservation

R = TypeVar("R")


class RemoteSpace:
    """A space in a daemon, with the verbs that an actor has; made by ``connect``."""

    def __init__(
        self,
        session: ClientSession,
        reads: ClientSession | None = None,
        topics: TopicSessions | None = None,
        daemon: NamedDaemon | None = None,
    ) -> None:
        """``reads`` serves quiet observations, ``topics`` has the sessions for topics, ``daemon`` answers
        what is about the daemon."""
        who = session.identity
        self.name = who.name
        self.client = who.client
        self.owner = who.owner
        self.space = who.space
        self._session = session
        self._reads = reads or session
        self._topics = topics or TopicSessions(session, reads)
        self._daemon = daemon or NamedDaemon(session)
        self._puts = Puts(session, who.owner, self.draft, self.commit)
        self._durable = HandleNumbers.durable()
        self._handles = self._durable if who.owner and not who.lease else HandleNumbers(1)

    # -- verbs ----------------------------------------------------------------------------------------

    async def assert_(self, value: object, *, owner: str = "") -> Claim:
        """Asserts a fact and waits until that is on disk; the fact lasts as long as its owner asserts it.

        It is the client's own, or with ``owner`` of that durable owner: then it stays until it is retracted,
        and is never asserted again by itself.  That needs the right ``durable``.
        """
        draft = self.draft()
        claim = draft.assert_(value, owner=owner)
        await self.commit(draft)
        return claim

    async def retract(self, claim: Claim | int) -> int:
        """Ends a claim and returns the epoch in which it ended."""
        draft = self.draft()
        draft.retract(claim)
        return await self.commit(draft)

    async def replace(self, claim: Claim | int, value: object) -> Claim:
        """Asserts a fact and ends a claim in one turn, so that no observer sees a moment without either."""
        draft = self.draft()
        after = draft.replace(claim, value)
        await self.commit(draft)
        return after

    async def send(self, value: object) -> int:
        """Sends a message and returns its epoch."""
        draft = self.draft()
        draft.send(value)
        return await self.commit(draft)

    @block("async with space.asserting(…) as claim")
    async def asserting(self, value: object, *, owner: str = "") -> AsyncIterator[Claim]:
        """Asserts a fact for as long as the block runs; its end does not wait for a daemon that is away.

        A fact of a durable ``owner`` stays if the connection is lost at the end of the block.
        """
        draft = self.draft()
        claim = draft.assert_(value, owner=owner)
        ticket = await self.submit(draft)
        try:
            draft.accepted(await self._session.answer_to(ticket))
            yield claim
        finally:
            if self._session.is_open and not ticket.refused:
                await self._part(claim)

    async def _part(self, claim: Claim) -> None:
        """Ends a claim; waits for at most a second, and only while there is a connection."""
        draft = self.draft()
        draft.retract(claim)
        ending = self.submit_nowait(draft)
        ending.parting = True
        with loop().move_on_after(1.0, shield=True), suppress(Unreachable):
            await self._session.patience.wait(ending.wait, 0.0)

    @block("async with space.turn(…) as turn")
    async def turn(
        self,
        *,
        expect: Iterable[Expectation] = (),
        done: Iterable[AnyJob] = (),
        traceparent: str = "",
    ) -> AsyncIterator[Draft]:
        """Collects actions and commits them as one turn at the end of the block, or none on an error.

        ``draft.epoch`` is its epoch afterwards.  Jobs in ``done`` are done with the turn: both happen, or
        neither does, and the end of the block raises ``DeliveryLost`` where another member has one of them.
        If an expectation in ``expect`` (``absent``, ``exactly``,
        ``unchanged``) does not hold in the state before the turn, nothing happens, and the end of the block
        raises ``ExpectationFailed`` with the facts that were found.  A daemon that makes spans adds the spans
        of the turn to the trace that the ``traceparent`` of W3C Trace Context names (SERVE.md).
        """
        draft = self.draft(expect=expect)
        draft.traceparent = check_traceparent(traceparent)
        jobs = [each.itself for each in done]
        try:
            yield draft
        finally:
            draft.end()
        if not jobs:
            await self.commit(draft)
            return
        from dataspace.client.reports import check_owned, reported

        async def commit(deliveries: Done) -> int:
            draft.deliveries = deliveries
            return await self.commit(draft)

        await check_owned(self._session, jobs)
        await reported(jobs, commit)

    def consume(
        self,
        pattern: Pattern | str | None = None,
        *,
        group: str,
        start: Start = "now",
        in_flight: int = 1,
        key: str | None = None,
        ack_within: float | None = None,
        attempts: int | None = None,
        quiet: bool = False,
        topic: str | None = None,
        most_out: int | None = None,
        backoff: float | Sequence[float] | None = None,
        rate: float | None = None,
        exclusive: bool | None = None,
        kinds: str | None = None,
        priority: str | None = None,
    ) -> Jobs:
        """Becomes a member of a group, which divides the facts and messages that match among its members, or
        the items of a durable ``topic``.

        Of a topic the group divides all items, each as the capture ``item``, or with a pattern the items that
        match.
        ``async with space.consume(…) as jobs: async for job in jobs: …``.  The first member makes the group:
        with ``start`` it begins ``"now"``, with the facts that hold (``"held"``), at an epoch or at a time
        (of a topic with the epochs that are completed from now on, at the number of a completed epoch, or
        with those completed since a time);
        with ``key``, the name of a capture, jobs of one key are done in order; a job that is not settled
        ``ack_within`` (30) seconds after the program took it goes to another member, and after ``attempts``
        (5, 0 for no limit) failed ones becomes the fact ``dead(GROUP, EPOCH, POSITION, ITEM, REASON,
        ATTEMPTS, TIME, KIND)``.  At most ``most_out`` jobs are out to all members together, and ``rate`` a
        second are handed out; with ``exclusive`` one member gets jobs, and the next takes over.  After a
        failed attempt a job waits ``backoff`` seconds (0.1), which double up to 30; or, of a list, so many
        after each, the last for all further ones.  ``kinds="+-!"`` divides facts that go as well, and needs a
        key.  With ``priority``, the name of a capture, jobs of a higher level, 0 to 15, come first among
        those that the group has read.  Later members may leave all of that out.  At most ``in_flight`` jobs
        are out to this member.  ``quiet`` announces no interest.

        Raises ``Refused("group-differs")``, at the beginning of the block, where the group has another
        pattern or other options.
        """
        from dataspace.client.jobs import Jobs

        form = parse_pattern(pattern) if isinstance(pattern, str) else pattern
        options = ConsumeOptions(
            group,
            form,
            in_flight=in_flight,
            key=key,
            ack_within=ack_within,
            attempts=attempts,
            begin=start,
            quiet=quiet,
            topic=topic,
            most_out=most_out,
            backoff=tuple(backoff) if isinstance(backoff, Sequence) else backoff,
            rate=rate,
            exclusive=exclusive,
            kinds=kinds,
            priority=priority,
        )
        return Jobs(self._session, options)

    async def peek(self, group: str, *, most: int = 100) -> Map:
        """Returns the status of a group, and as ``jobs`` up to ``most`` (10 000) of those that it has,
        without taking any: what is out and to whom, what waits, what is postponed until when.

        They are jobs that the group has read; ``behind`` counts the epochs that it has not.
        """
        answer = await self.request("peek", Map({"group": group, "most": most}))
        assert isinstance(answer, Map)  # by WIRE.md
        return answer

    async def put(self, *fact: object, by: Pattern | str | None = None, owner: str = "") -> int:
        """Asserts a fact in place of this owner's fact with the same key; returns the epoch.

        ``put("config", "billing", "rate", 7)`` asserts ``config("billing", "rate", 7)``, whose key is all
        but the last field; ``put(record, by=pattern)`` takes what the pattern matches for the key.  It is one
        turn, so no observer sees both facts, or none.  Each owner has one fact for each key: for one of all
        clients, they must use the same durable ``owner``, here or in ``connect``.
        """
        return await self._puts.put(put_fact(fact), by, owner)

    async def withdraw(self, pattern: Pattern | str, *, owner: str = "") -> int:
        """Retracts all matching facts of a durable owner, whichever client asserted them; returns the number
        of their claims.

        For facts of earlier runs, whose claims this client does not have.  The owner is the one given to
        ``connect`` unless it is named.  More than 4 096 are retracted in several turns.
        """
        return await withdraw(self._session, pattern, owner or self.owner)

    async def hold(self, fact: object, *, ttl: float, name: str = "", renew: bool = False) -> Hold:
        """Asserts a fact under a lease of its own: for ``ttl`` seconds, with or without a connection.

        ``hold.renew()`` lets the fact stay for another ``ttl`` seconds, ``hold.put(fact)`` states another
        fact in its place, ``hold.release()`` retracts it.  With ``renew`` this client renews the hold for as
        long as the connection is open.  A client of the same principal that holds a fact by the same
        ``name``, and with the same ``ttl``, takes the hold over.
        """
        held = Hold(self._session, ttl, name)
        await held.put(fact)
        if renew:
            held.keep()
        return held

    async def first(self, pattern: Pattern | str, *, timeout: float | None = None) -> tuple[Value, ...]:
        """Returns the captures of a fact that matches, or of the first fact or message that comes.

        Raises ``TimeoutError`` after so many seconds.
        """
        return await first(self.watch(pattern), timeout)

    async def react_until(
        self, pattern: Pattern | str, work: Callable[..., Awaitable[object]], *args: object
    ) -> tuple[Value, ...]:
        """Runs ``work(*args)`` until something matches, once, and returns the captures of that.

        If a fact matches already the work is not begun.  Else it is cancelled by the first fact or message
        that comes, and has ended when this returns; if it ends sooner, its error is raised, or the match is
        waited for.  Later facts and messages are not looked at.
        """
        return await react_until(self.watch(pattern), work, *args)

    def lock(
        self, name: object, me: object = None, *, ttl: float = TTL, timeout: float | None = None
    ) -> Held:
        """Holds a lock for as long as the block runs; clients that wait for it take turns in order.

        ``lock.token`` is its fencing token, ``lock.valid`` is true while it is surely held, and
        ``lock.held`` is what a turn expects that must happen under this lock only (COORDINATION.md).  A
        client that cannot renew the lock for ``ttl`` seconds loses it: before another one can hold it,
        ``lock.lost`` is set, the block is cancelled, and its end raises ``LockLost``.  ``me`` is how others
        see the holder, the name of this client unless given.  Raises ``TimeoutError`` after ``timeout``
        seconds.  A block of the blocking client is not cancelled: call ``lock.check()`` before each step.
        """
        who = me if me is not None else self.name
        return Held(self._session, name, who, ttl=ttl, timeout=timeout)

    def elect(self, name: object, me: object, *, ttl: float = TTL, timeout: float | None = None) -> Held:
        """Leads for as long as the block runs, once no other client does: a ``lock`` of this name, whose
        holder is announced as the fact ``leader(NAME, ME)`` in the same turn."""
        return Held(self._session, name, me, ttl=ttl, timeout=timeout, announce=True)

    def watch(self, pattern: Pattern | str) -> Observation:
        """Observes a pattern quietly; see ``observe``."""
        return self.observe(pattern, quiet=True)

    @property
    def session(self) -> ClientSession:
        """The requests, streams and turns under way between this client and its daemon; for the other rooms
        of the client."""
        return self._session

    def draft(self, *, expect: Iterable[Expectation] = ()) -> Draft:
        """Returns an empty turn to fill by hand; ``submit`` or ``commit`` takes it."""
        return Draft(self._handles, expect, durable=self._durable, own=self.owner)

    def cut(self, draft: Draft) -> list[Draft]:
        """Returns the draft if the daemon takes it as one turn, else several drafts that it takes one by one;
        a draft with expectations, or of several owners, is not cut.

        Raises ``Refused("limit")`` if one action is too much for any turn.
        """
        if draft.expected or draft.others or draft.deliveries:
            return [draft]
        parts = self._session.cut(draft.actions)
        return [draft] if len(parts) == 1 else [self._filled(part) for part in parts]

    def _filled(self, actions: Sequence[Action]) -> Draft:
        draft = self.draft()
        draft.actions.extend(actions)
        return draft

    async def commit(self, draft: Draft) -> int:
        """Submits a turn and returns its epoch; raises ``Refused`` if nothing has happened."""
        epoch = await self._session.answer_to(await self.submit(draft))
        draft.accepted(epoch)
        return epoch

    async def submit(self, draft: Draft | Sequence[Action]) -> Ticket:
        """Sends a turn without waiting for its answer; waits only while too many turns have no answer yet."""
        return await self._session.submit(*_parts(draft))

    def submit_nowait(self, draft: Draft | Sequence[Action]) -> Ticket:
        """Sends a turn at once, or after the next reconnect; see ``submit`` for how many may wait.

        Raises ``Refused("limit")`` for a turn beyond the daemon's limits.
        """
        return self._session.submit_nowait(*_parts(draft))

    @overload
    def observe(
        self, pattern: Pattern | str, *, row: None = None, **options: Unpack[Observing]
    ) -> Observation: ...

    @overload
    def observe(
        self, pattern: Pattern | str, *, row: type[R], **options: Unpack[Observing]
    ) -> TypedObservation[R]: ...

    def observe(
        self, pattern: Pattern | str, *, row: type[R] | None = None, **options: Unpack[Observing]
    ) -> Observation | TypedObservation[R]:
        """Observes the changes of a pattern, given as text or as a pattern.

        With ``row``, a dataclass or a ``NamedTuple`` whose fields have the names and types of the captures,
        it gives instances of that class (``TypedObservation``).  With ``by``, the name of one capture or of
        several, a fact that comes knows the one with the same key that goes in the same epoch,
        ``change.replaces``, and that one ``change.replaced_by``; else they are None.

        First comes the state (``snapshot=False``: only what happens from now on), then every change, as soon
        as it is made and before it is on disk.  With
        ``after`` it begins with what followed that epoch, from the log, with ``as_of`` with the state at that
        epoch; ``upto`` ends it after an epoch.  A program that keeps an epoch to go on from keeps
        ``welcome.space`` with it, and states it as ``identity``: in a space that was made anew, which counts
        from 0 again, it is refused with ``epoch-lost``.  ``net``, with ``after``, replaces the past by its
        net difference.  With ``progress``, ``epochs()`` also yields some without rows, whose ``progress`` is
        true, a few times a second as long as epochs are made: all changes up to their ``number`` have come.
        ``quiet`` asserts no interest; ``durable`` shows an epoch only when it is on disk.  With ``pace``
        changes come at most once in so many seconds (the net difference, with all messages).

        ``policy`` decides about changes that are not read in time: ``conflate`` (the net difference is kept,
        the default), ``wait`` (the log keeps them), ``fail`` (the observation ends) or ``drop`` (the oldest
        are dropped, and a mark counts them).  If the connection was lost for so long that the log no longer
        holds what followed, an observation that began with the state resumes with the net difference of the
        facts under ``conflate`` and ``drop`` (its ``first`` is below its ``number``, and messages of those
        epochs are lost); every other ends with ``Refused("epoch-gone")``.

        ``window`` fixes how many epochs are requested ahead; with 0 each read requests one, and the rest
        waits at the daemon.  By default it depends on how fast they are read, and on their shared memory.
        """
        if unknown := options.keys() - Observing.__optional_keys__:  # the record has more, for columns
            raise TypeError(f"RemoteSpace.observe() got an unexpected keyword argument {min(unknown)!r}")
        window, by = options.pop("window", None), options.pop("by", None)
        asked = ObserveOptions.of(pattern, **options)
        observation = Observation(self._reads if asked.quiet else self._session, asked, window, by)
        if row is None:
            return observation
        from dataspace.client.typed import TypedObservation

        return TypedObservation(observation, row)

    @overload
    def live(
        self,
        pattern: Pattern | str,
        *,
        by: str | Sequence[str],
        row: None = None,
        many: bool = False,
        **options: Unpack[Living],
    ) -> AsyncBlock[LiveMap[Any]]: ...

    @overload
    def live(
        self,
        pattern: Pattern | str,
        *,
        by: str | Sequence[str],
        row: Callable[..., R],
        many: Literal[False] = False,
        **options: Unpack[Living],
    ) -> AsyncBlock[LiveMap[R]]: ...

    @overload
    def live(
        self,
        pattern: Pattern | str,
        *,
        by: str | Sequence[str],
        row: Callable[..., R],
        many: Literal[True],
        **options: Unpack[Living],
    ) -> AsyncBlock[LiveMap[list[R]]]: ...

    def live(
        self,
        pattern: Pattern | str,
        *,
        by: str | Sequence[str],
        row: Callable[..., Any] | None = None,
        many: bool = False,
        **options: Unpack[Living],
    ) -> AsyncBlock[LiveMap[Any]]:
        """Keeps what matches a pattern as a mapping, for as long as the block runs.

        ``async with space.live("temp($device, $celsius)", by="device") as temps: temps["d1"].celsius``.
        Its keys are the values of the capture ``by``, or tuples of those of several, compared as values; they
        are in the order in which they appeared, or sorted by ``sort`` of their rows.  A row has its captures
        as attributes, or is an instance of ``row``, a dataclass or a ``NamedTuple``, or what the function
        ``row`` makes of the captures in order.  A row that does not fit ends the map.  A key with several
        rows raises ``SeveralRows`` where it is read, unless ``many`` gives the list of all, oldest first.

        The map is always the state at a whole epoch, ``temps.epoch``, and moves while the program waits for
        anything.  ``await temps.changed()`` and ``async for change in temps`` give what has changed, as
        ``key, old, new``; a slow program gets the net difference, so there is no ``policy``.  Messages are no
        rows.  After a lost connection the map goes on exactly; where the log is gone, by the difference.

        With ``as_of`` it is the state at that epoch, and with ``follow`` goes on from there; ``quiet``,
        ``durable``, ``pace`` and ``identity`` are those of ``observe``.
        """
        from dataspace.client.live import checked, form_of, living

        asked, sort = checked(pattern, options)
        form = form_of(capture_names(asked.pattern), by, row, many=many, sort=sort)
        return living(self._reads if asked.quiet else self._session, asked, form)

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
    ) -> AsyncBlock[Publication]:
        """Publishes to a partition of a topic for as long as the block runs; the first publication creates
        the topic.

        Times are integers, or tuples of ``dimensions`` of them.  It begins at ``time``, or where the
        partition stands.  ``retain`` is how many bytes of batches the daemon keeps for later subscribers.  A
        block that ends with an error leaves its open times *crashed*; a block that ends without an error
        completes them.

        A ``durable`` topic is kept on the daemon's disk (64 MiB unless ``retain`` sets another size, and for
        no longer than ``age`` seconds if that is given), stays when it has no publisher, and delivers an item
        only when it is on disk.  A publication to it may be ``away`` for so many seconds: it outlives the
        connection, and the daemon, and sends again what was not answered.  Another process resumes it, with
        its open times, by the same ``name``.

        Raises ``Refused("topic-differs")`` for another shape, ``Refused("bad-request")`` for a time that is
        over.
        """
        if (name or away) and not durable:
            raise UsageError("only a publication to a durable topic has a name and may be away")
        known = name or (uuid.uuid4().hex if away else "")
        shape = (partition, partitions, dimensions, time, retain, durable, age)
        return publishing(self._topics, Joining(topic, *shape, known, away))

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
        open_bytes: int = OPEN_BYTES,
    ) -> Subscription:
        """Subscribes to the epochs of a topic, each whole; an epoch with items sent before the subscription
        is left out.

        ``as_of`` begins with the retained items at or after a time (a list: at or after one of several),
        ``up_to`` ends before a time.  ``atomic=False`` lets the rest of epochs that had begun through.
        Publishers wait while this subscriber has more than 16 MiB to take.  If it takes less than 1 MiB/s
        meanwhile it fails with ``Refused("slow-subscriber")``, unless ``slow`` is "wait".  At a daemon that
        follows, none waits: a slow subscriber reads the disk, and fails with ``Refused("epoch-gone")`` if
        that is deleted first.  ``timeout`` is how
        many seconds to wait for the topic to appear, after which ``Refused("no-topic")`` is raised.  When
        epochs that a producer holds open have more than ``open_bytes``, it ends with ``Refused("limit")``.
        """
        return Subscription(
            self._topics,
            topic,
            partitions=partitions,
            atomic=atomic,
            as_of=as_of,
            up_to=up_to,
            slow=slow,
            timeout=timeout,
            open_bytes=open_bytes,
        )

    def completed(
        self, topic: str, *, after: int | None = None, upto: int | None = None, id: int | None = None
    ) -> CompletedEpochs:
        """Returns the epochs that a durable topic has completed, by their numbers (after, upto].

        By default from the oldest retained to the newest completed.  A number stands for the same time and
        items each time, as long as the topic has the same identity: keep the ``id`` of the iterator with a
        number to go on from.  A topic that was made anew is refused with ``no-topic`` for the earlier ``id``.
        Raises
        ``Refused``: ``no-topic``, ``not-durable``, ``epoch-gone``, ``epoch-ahead``.
        """
        return CompletedEpochs(self._topics, topic, after, upto, id)

    async def end_topic(self, topic: str) -> None:
        """Ends a topic that this session made, or a durable one without publishers.

        All its publishers and subscribers are notified; its retained items are deleted.
        """
        await (await self._topics.session()).request("end-topic", Map({"topic": topic}))

    async def matches(self, pattern: Pattern | str, *, row: type[Row] | None = None) -> list[Row]:
        """Returns what matches a pattern now, as rows of captures: tuples, or with ``row`` instances of that
        dataclass or ``NamedTuple``."""
        observation = self.observe(pattern, quiet=True, window=1)
        try:
            make = None if row is None else _row_type(row, observation.names)
            state = await self._reads.patience.wait(observation.next_epoch)
            found: list[Any] = [*state.added] if state is not None else []
            return found if make is None else [make(each) for each in found]
        finally:
            observation.close()

    async def query(
        self,
        text: str,
        /,
        *,
        as_of: int | datetime | None = None,
        row: type[Row] | None = None,
        **parameters: object,
    ) -> Rows[Row]:
        """Returns the rows of the body of a rule, evaluated once over the facts of one epoch.

        ``text`` is such as ``"task($id, $who), not done($id), $id > 3"``: a row for each distinct solution,
        with a column for each variable in the order of the text.  A head, as in ``"load($who, count($id)) <-
        task($id, $who)"``, names the columns, and may have aggregates.  ``parameters`` are values for
        variables, which get no columns.

        ``as_of`` is an epoch or a time in the past that is retained; without it, now.  With ``row`` the rows
        are instances of that dataclass or ``NamedTuple``.  The facts that the
        atoms match are fetched, at most a million, and joined here, so a query needs the rights to observe
        them.  Raises ``UsageError`` for a text that is no body, or needs too much work; ``Refused`` for facts
        that may not be observed or are too many.
        """
        from dataspace.client.query.questions import answered, looking, question

        asked = question(text, {name: freeze(value) for name, value in parameters.items()})
        steps = looking(asked, await self.epoch_at(as_of) if isinstance(as_of, datetime) else as_of)
        look = next(steps)
        while True:
            state = await self._state(look.pattern, look.as_of)
            try:
                look = steps.send(state)
            except StopIteration as end:
                rows: Rows[Any] = await loop().run_in_thread(answered, asked, *end.value)
                break
        return rows if row is None else rows.made_by(_row_type(row, rows.names))

    async def epoch_at(self, time: datetime) -> int:
        """Returns the newest epoch that was made at a time or before it; a time without a zone is UTC.

        Raises ``Refused("epoch-gone")`` if the newest epoch of that time is not retained.
        """
        answer = await self._reads.request("frontier", Map({"at": micros_of(time)}))
        if not isinstance(answer, Map) or not isinstance(answer.get("at"), int):
            raise Refused("unknown-verb", "this daemon finds no epochs by time: name an epoch")
        return answer["at"]  # type: ignore[return-value]  # as just checked

    async def _state(self, pattern: Value, as_of: int | None) -> tuple[int, list[tuple[Value, ...]]]:
        """Returns the matches now, or as of an epoch, and the number of that epoch."""
        window = 1 if as_of is None else None
        observation = self.observe(pattern, quiet=True, as_of=as_of, upto=as_of, window=window)
        try:
            state = await self._reads.patience.wait(observation.next_epoch)
            return (as_of or 0, []) if state is None else (state.number, [*state.added])
        finally:
            observation.close()

    async def sync(self) -> int:
        """Waits until everything sent before has been handled and is on disk; returns the newest epoch, which
        of a follower is the newest that it has."""
        epoch = await self.request("sync", Map())
        assert isinstance(epoch, int)  # by WIRE.md
        return epoch

    async def status(self) -> Map:
        """Returns the status of the daemon that serves this connection, and of the space there."""
        answer = await self.request("status", Map())
        assert isinstance(answer, Map)  # by WIRE.md
        return answer

    async def request(self, verb: str, arguments: Map) -> Value:
        """Sends one of the requests of WIRE.md and returns its answer; raises ``Refused`` where it is
        denied.

        A request about the daemon itself is answered by the daemon that ``connect`` has named.
        """
        asked = self._daemon if is_of_daemon(verb) else self._session
        return await asked.request(verb, arguments)

    @property
    def named(self) -> NamedDaemon:
        """What answers about the daemon that ``connect`` has named, wherever the connection is."""
        return self._daemon

    async def stage(self, key: Sequence[str], operations: Iterable[tuple[str, object]]) -> int:
        """Stores operations on the daemon's disk under a key, sent as it requests them; returns how many
        there were.

        Each is ``("assert" | "retract" | "send", value)``; the request ``publish`` makes one turn of them.
        Raises ``Broken`` if the connection is lost: discard the key then, since its content is not known.
        """
        async with self._session.offer({"kind": "stage", "key": tuple(key)}) as offer:
            for verb, value in operations:
                await offer.send((verb, freeze(value)))
            return await offer.finish()

    async def drain(self, timeout: float = 10.0) -> None:
        """Waits until every turn has its answer, or for so many seconds."""
        await self._session.drain(timeout)

    @property
    def welcome(self) -> p.Welcome | None:
        """The daemon's welcome on the newest connection; None before the first."""
        return self._session.welcome

    @property
    def on_connection(self) -> Callable[[ConnectionEvent], None]:
        """The function called with each event of the connection; it must not wait, and an error in it ends
        the client."""
        return self._session.on_connection

    @on_connection.setter
    def on_connection(self, call: Callable[[ConnectionEvent], None]) -> None:
        self._session.on_connection = call

    @property
    def sequence(self) -> int:
        """The number of the newest turn of this client: at first, of the last turn that the daemon has
        applied."""
        return self._session.in_flight.sequence

    @property
    def reconnects(self) -> int:
        """How often a lost connection was made again."""
        return self._session.uplink.reconnects

    @property
    def in_flight(self) -> int:
        """Number of turns that have no answer yet."""
        return len(self._session.in_flight)


def _parts(
    draft: Draft | Sequence[Action],
) -> tuple[tuple[Action, ...], tuple[Expectation, ...], str | None, Others, str, Done]:
    """Returns a turn as the session takes it."""
    if not isinstance(draft, Draft):
        return tuple(draft), (), None, (), "", ()
    owner, actions, others = draft.parts()
    return actions, tuple(draft.expected), owner, others, draft.traceparent, draft.deliveries


def _row_type(row: type[R], names: Sequence[str]) -> RowType[R]:
    from dataspace.client.typed import RowType  # few programs have rows of a class

    return RowType(row, names)
