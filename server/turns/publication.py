"""Publishing: many staged operations become one turn, once.

A bulk writer, such as a Spark sink, works in several processes that may each fail and be retried.  They
*stage* their operations under keys of their own; then one of them *publishes* the keys that count, as one
turn of a durable owner, numbered like any turn of a client, so that a retry changes nothing.

Always: nothing staged is seen before it is published; a publication is one epoch or has not happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Final, TypeVar, cast

import trio

from dataspace.codec import pack, unpack
from dataspace.errors import ProtocolError, Refused
from dataspace.faults import reach
from dataspace.kernel.changes import Origin
from dataspace.kernel.turns import keys_in_steps
from dataspace.steps import Steps, at_once
from dataspace.wire import packets as p
from dataspace.wire.arguments import key
from dataspace.wire.outgoing import FACT_DEPTH
from dataspace.wire.slices import unpacking
from dataspace.wire.verbs import VERBS as TABLE, Arguments
from dataspace.wire.windows import ReceiveBudget, ReceiveWindow
from index.values.values import Map, Value
from server.config.rights import OPEN, Permit
from server.features import Feature
from server.owners.accounts import Account
from server.owners.bearers import LEASE, TRUSTED, Bearer
from server.owners.turn_numbers import is_applied, refusal
from server.parts import Report
from server.sessions.feeding import Feeder
from server.sessions.peer import FeederKey, Peer
from server.spaces.space import HostedSpace
from server.spaces.turns.claim_index import Plan
from server.spaces.turns.packed import Operations, check, check_pair, read
from server.turns.conditions import Judgement, reading

SMALL_BYTES: Final = 32 << 10
"""Packed operations that are unpacked in one step, in some milliseconds."""

DEPTH: Final = FACT_DEPTH + 2
"""Levels of packed operations: two are around each fact, in each form, and it has no more than in a turn."""

CHECKED: Final = 32
"""Operations whose rights are checked in one step."""

AT_ONCE: Final = 4
"""Steps of a plan that are done without waiting for the lane, in a few milliseconds."""

ATTEMPTS: Final = 3
"""How often a plan is made in steps, before it is made at once."""

T = TypeVar("T")

UNBOUNDED: Final = 1 << 62
"""Elements of values that were checked before they were stored."""


async def stage(
    hosted: HostedSpace,
    at: tuple[str, ...],
    operations: tuple[Value, ...],
    bearer: Bearer = TRUSTED,
    account: Account | None = None,
) -> None:
    """Appends pairs of verb and value to those on disk under a key, if permitted."""
    for operation in operations:
        check_pair(operation)
    await _permitted(hosted, operations, bearer.principal, bearer.permit)
    await hosted.leading.staging.stage(at, pack(operations), bearer.holder, account)


async def stage_packed(
    hosted: HostedSpace,
    at: tuple[str, ...],
    body: bytes,
    bearer: Bearer = TRUSTED,
    account: Account | None = None,
) -> int:
    """Like ``stage`` for packed operations, kept as they came once checked; returns how many they are."""
    # the operations read are freed before waiting for the disk
    count = (await _checked(hosted, body, bearer.principal, bearer.permit))[1]
    await hosted.leading.staging.stage(at, body, bearer.holder, account)
    return count


async def prepare(hosted: HostedSpace, body: bytes, bearer: Bearer = TRUSTED) -> int:
    """Reads packed operations that are to be published soon, ahead of time; returns how many they are."""
    staged, count = await _checked(hosted, body, bearer.principal, bearer.permit)
    hosted.publishing.prepared.remember(body, read(staged))
    await trio.lowlevel.checkpoint()
    return count


async def _checked(hosted: HostedSpace, body: bytes, asker: Hashable, permit: Permit) -> tuple[Value, int]:
    """Returns the content of packed operations and their number, once checked and permitted."""
    staged = await _unpacked(hosted, body, asker, hosted.limits.frame_elements)
    count = check(staged)
    await _permitted(hosted, staged, asker, permit)
    return staged, count


async def _unpacked(hosted: HostedSpace, body: bytes, asker: Hashable, elements: int) -> Value:
    """Returns the content of packed operations; where they are many, they are unpacked in the lane."""
    if len(body) <= SMALL_BYTES:
        return unpack(body, elements=elements, depth=DEPTH)
    return await hosted.lane.work(asker).do(unpacking(body, elements=elements, depth=DEPTH))


async def _permitted(hosted: HostedSpace, staged: Value, asker: Hashable, permit: Permit) -> None:
    if not permit.open:
        await hosted.lane.work(asker).do(_checking(read(staged), permit))


def _checking(operations: Operations, permit: Permit) -> Generator[None, None, None]:
    """Checks operations in steps; raises ``Refused`` at the first that is not permitted."""
    for at, (verb, value) in enumerate(zip(*operations, strict=True)):
        permit.check_value(verb, value)
        if at % CHECKED == 0:
            yield


async def publish(
    hosted: HostedSpace,
    keys: Sequence[tuple[str, ...] | bytes],
    *,
    bearer: Bearer = TRUSTED,
    owner: str,
    client: str,
    sequence: int,
    replace: bool,
    by: Value = None,
    once: bool = False,
    expect: Sequence[Value] = (),
    exclusive: bool = False,
    discard: tuple[str, ...] | None = None,
    close: tuple[str, ...] | None = None,
    account: Account | None = None,
    origin: Origin | None = None,
    report: Callable[[], Report] = Report,
    planned: Callable[[Plan], object] = bool,
) -> int:
    """Commits what is staged under these keys as one turn; returns its epoch once that is on disk.

    ``client`` is the bearer's own, or one to which it has a right, or numbered within the owner (``Bearer``).
    Operations in any packed form may stand in place of a key: they were never staged.  All are checked by the
    rights of the ``bearer``, whichever client staged them.  An exclusive publisher has the owner until
    another one begins to publish (``Publishers``).  Expectations are judged in the epoch of the turn: if one
    does not hold, ``ExpectationFailed`` is raised, and the number may be used again.  Published batches are
    discarded then, or everything under ``discard``; ``discard`` and ``close`` have the meaning
    of ``Staging.discard``.  ``report`` returns the jobs of groups that are done with the turn, or raises
    ``DeliveryLost``, and nothing has happened.  ``planned`` gets the plan that was committed, if one was now.
    """
    name = bearer.owner(owner)
    identity = bearer.publisher(client, name, hosted.clients)
    planning = partial(hosted.publishing.claims.planning, name, replace=replace, by=by, once=once)
    reach("publish-before-commit")
    expected = await hosted.lane.work(bearer.principal).do(reading(expect, bearer.permit)) if expect else []
    with closing(Judgement(hosted, expected)) as judgement:
        judge = partial(_judge, hosted, judgement, bearer, account)
        if expected and await _published(hosted, identity, sequence) is None:
            await judge()  # what takes long, before other publications have to wait
        async with hosted.publishing.lock:
            epoch = await _published(hosted, identity, sequence)
            if epoch is None:
                known = hosted.clients.get(identity, account)
                if origin is not None:
                    known.comes_from(*origin[1:])
                if exclusive:
                    hosted.publishers.check(name, identity, began=known.sequence > 0)
                operations = await _staged(hosted, keys, bearer, account)
                while True:
                    if expected:
                        await judge()
                    if name.startswith(LEASE):
                        hosted.leases.grant(name, account)
                    plan = await _planned(hosted, name, partial(planning, operations), bearer.principal)
                    if judgement.decide():
                        break
                if name.startswith(LEASE):
                    hosted.leases.grant(name, account)  # again, as it may have ended meanwhile
                done = report()
                epoch = hosted.commit(
                    name,
                    plan.actions,
                    client=known,
                    sequence=sequence,
                    account=account,
                    publication=True,
                    notes=done.notes,
                ).number
                done.committed()
                planned(plan)
                if exclusive:
                    hosted.publishers.published(name, identity, epoch)
                hosted.flush()
                await _in_turn(hosted, bearer.principal, plan.settling())
    hosted.flush()
    await hosted.commits.wait_durable(epoch)
    reach("publish-after-commit")
    staged = [at for at in keys if not isinstance(at, bytes)]
    dropped = staged if discard is None else [discard]
    await hosted.leading.staging.discard(*dropped, close=close, by=bearer.holder)
    return epoch


async def _judge(hosted: HostedSpace, judgement: Judgement, bearer: Bearer, account: Account | None) -> None:
    """Prepares what is expected in the lane until it is decided; raises ``ExpectationFailed`` if it does not
    hold now."""
    grow = _nothing if account is None else account.grow
    while True:
        async with hosted.lane.work(bearer.principal) as work:
            await judgement.prepare_in_lane(work, bearer.principal, grow)
        if judgement.decide():
            return


def _nothing(_facts: int, _size: int) -> None:
    """Allows everything: the daemon itself files facts."""


async def _planned(
    hosted: HostedSpace, owner: str, planning: Callable[[], Steps[Plan | None]], asker: Hashable
) -> Plan:
    """Returns what operations do to the claims of an owner now; where they are many, in the lane.

    At once where another client changes these claims all the time.
    """
    for _ in range(ATTEMPTS):
        hosted.finish_ending(owner)
        plan = await _in_turn(hosted, asker, planning())
        if plan is not None:
            return plan
    hosted.finish_ending(owner)
    plan = at_once(planning())
    assert plan is not None  # nothing came between
    return plan


async def _in_turn(hosted: HostedSpace, asker: Hashable, steps: Generator[None, None, T]) -> T:
    """Does steps and returns their value: a few at once, as most are, and the others in the lane.

    Nothing happens between the last of them and the return.
    """
    for _ in range(AT_ONCE):
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
    return await hosted.lane.work(asker).do(steps)


async def _staged(
    hosted: HostedSpace, keys: Sequence[tuple[str, ...] | bytes], bearer: Bearer, account: Account | None
) -> Operations:
    """Returns all operations under these keys; raises ``Refused`` once they exceed the limit or the quota."""
    limit = hosted.space.limits.actions_per_publication
    quotas = None if account is None else account.quotas
    verbs: list[str] = []
    values: list[Value] = []
    for at in keys:
        for staged in await _read(hosted, at, bearer):
            if isinstance(staged, bytes):
                operations = read(await _unpacked(hosted, staged, bearer.principal, UNBOUNDED))
            else:
                operations = staged
            if not bearer.permit.open:  # who staged it, or had it prepared, may have other rights
                await hosted.lane.work(bearer.principal).do(_checking(operations, bearer.permit))
            await hosted.lane.work(bearer.principal).do(keys_in_steps(operations.values))
            verbs.extend(operations.verbs)
            values.extend(operations.values)
            if account is not None and quotas is not None and len(verbs) > quotas.actions_per_publication:
                raise quotas.refusal("actions_per_publication", len(verbs), account.name)
            if len(verbs) > limit:
                said = f"publication of {len(verbs)} actions or more"
                raise Refused("limit", f"{said}, the limit is limits.actions_per_publication={limit}")
    return Operations(verbs, values)


async def _read(
    hosted: HostedSpace, at: tuple[str, ...] | bytes, bearer: Bearer
) -> Iterable[Operations | bytes]:
    """Returns the operations under a key, packed and part by part, or those given in place of one."""
    if not isinstance(at, bytes):
        return await hosted.leading.staging.staged([at], bearer.holder)
    prepared = hosted.publishing.prepared.taken(at)
    if prepared is None:
        return [read((await _checked(hosted, at, bearer.principal, OPEN))[0])]
    return [prepared]


async def _published(hosted: HostedSpace, client: str, sequence: int) -> int | None:
    """Returns the epoch of a batch that was published before; None if it was not."""
    known = hosted.clients.get(client)
    if sequence > known.sequence:
        return None
    epoch = (await hosted.find_turns(known, [sequence])).get(sequence)
    if is_applied(epoch):
        return epoch
    raise refusal(sequence, epoch)


# -- Requests --------------------------------------------------------------------------------------


KEY: Final = key()
TOGETHER: Final = 64 << 10
"""Bytes of waiting values that are stored in one step, about."""


class InStream:
    """One offered stream: the credit, the values that came, and the values that are not handled yet."""

    __slots__ = ("arrived", "asked", "came", "came_size", "complete", "key", "number", "waiting", "window")

    def __init__(self, number: int, key: tuple[str, ...], window: ReceiveWindow) -> None:
        self.number = number
        self.key = key
        self.window = window
        self.asked = window.open()
        self.came = self.came_size = 0
        self.waiting: deque[tuple[tuple[Value, ...], int]] = deque()
        self.complete = False
        self.arrived = trio.Event()

    def arrive(self, values: tuple[Value, ...], first: int, size: int) -> None:
        """Queues the values of a frame; raises ``ProtocolError`` for one beyond the credit."""
        if first != self.came:
            raise ProtocolError(
                "unexpected", f"stream {self.number}: values from {first}, expected {self.came}"
            )
        items, limit = self.asked
        if self.came + len(values) > items or self.came_size >= limit:
            came = f"{self.came + len(values)} values of {self.came_size + size} bytes"
            raise ProtocolError("limit", f"stream {self.number}: {came}, asked for {items} of {limit}")
        self.came += len(values)
        self.came_size += size
        self.window.arrive(len(values), size)
        self.waiting.append((values, size))
        self.arrived.set()

    def finish(self) -> None:
        """Notes that the client has sent all values."""
        self.complete = True
        self.arrived.set()


class Offers(Feeder):
    """The streams that one connection offers.

    The same protocol as an observation with the roles exchanged: the client offers a stream, the daemon
    requests as much as it has capacity for, and the values come in order.  The kind of the stream decides
    their use; there is ``stage``, whose values are operations to be stored on disk under a key until they are
    published.

    Always: the credit of a connection is its budget, divided among its streams; a client that exceeds its
    credit has broken the protocol; ``Done`` means that all of it is on disk.
    """

    def __init__(self, peer: Peer) -> None:
        """At most ``limits.requests`` streams at a time, which share ``limits.offered_bytes``."""
        self._peer = peer
        self._most = peer.limits.requests
        self._streams: dict[int, InStream] = {}
        self._budget: Final = ReceiveBudget(peer.limits.offered_bytes)

    @property
    def is_busy(self) -> bool:
        """True while an offered stream is not at its end."""
        return bool(self._streams)

    async def hear(self, packet: p.Packet) -> None:
        """Takes what the client offers."""
        match packet:
            case p.Offer():
                self._begin(packet)
            case p.Values():
                self._arrive(packet)
            case p.Done(number):
                self._finish(number)
            case p.Error(number):
                self._drop(number)

    def _begin(self, offer: p.Offer) -> None:
        """Begins to pull a stream, or answers with an error."""
        try:
            self._peer.hosted.check_leads()
            stream = InStream(offer.stream, self._key(offer.spec), self._window())
        except Refused as refusal:
            self._peer.say(p.Error(offer.stream, refusal.code, refusal.text[:4000], refusal.url))
            return
        self._streams[offer.stream] = stream
        self._peer.say(p.Ask(offer.stream, *stream.asked))
        self._peer.start(self._pull, stream)

    def _arrive(self, packet: p.Values) -> None:
        """Queues values; discards values of a stream that has failed meanwhile."""
        stream = self._streams.get(packet.stream)
        if stream is not None:
            stream.arrive(packet.values, packet.first, self._peer.door.size)

    def _finish(self, number: int) -> None:
        """Notes that the client has sent all values of a stream."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.finish()

    def _drop(self, number: int) -> None:
        """Notes that the client has aborted a stream: handled values stay as they are."""
        if self._streams.pop(number, None) is not None:
            self._budget.leave()

    def _window(self) -> ReceiveWindow:
        if len(self._streams) >= self._most:
            raise Refused(
                "limit", f"{len(self._streams)} offered streams, the limit is limits.requests={self._most}"
            )
        self._budget.join()
        return ReceiveWindow(self._budget)

    def _key(self, spec: Map) -> tuple[str, ...]:
        if spec.get("kind") != "stage":
            raise Refused(
                "bad-request", f"no kind {spec.get('kind')!r:.60} of offered stream, there is 'stage'"
            )
        return cast("tuple[str, ...]", KEY.read("key", spec.get("key")))

    async def _pull(self, stream: InStream) -> None:
        """Handles values and grants credit for more."""
        try:
            while self._streams.get(stream.number) is stream:
                if stream.waiting:
                    await self._handle(stream)
                elif stream.complete:
                    self._peer.say(p.Done(stream.number))
                    self._drop(stream.number)
                else:
                    stream.arrived = trio.Event()
                    await stream.arrived.wait()
                self._peer.hosted.flush()
        except (Refused, ProtocolError) as refusal:
            self._drop(stream.number)
            self._peer.say(p.Error(stream.number, refusal.code, refusal.text[:4000], refusal.url))
            self._peer.hosted.flush()

    async def _handle(self, stream: InStream) -> None:
        values, size = stream.waiting.popleft()
        if stream.waiting:  # a client may send each value in a packet of its own
            some = [values]
            while stream.waiting and size < TOGETHER:
                more, length = stream.waiting.popleft()
                some.append(more)
                size += length
            values = tuple(chain.from_iterable(some))
        await stage(self._peer.hosted, stream.key, values, self._peer.bearer, self._peer.account)
        stream.window.consume(len(values), size)
        asked = stream.window.ask()
        if asked is not None:
            stream.asked = asked
            self._peer.say(p.Ask(stream.number, *asked))


async def _stage(peer: Peer, arguments: Arguments) -> Value:
    """Stores operations under a key until they are published or discarded."""
    at, rows, operations = arguments["key"], arguments["rows"], arguments["operations"]
    if rows is not None:
        return await stage_packed(peer.hosted, at, rows, peer.bearer, peer.account)
    TABLE["stage"].need(arguments, "operations")
    await stage(peer.hosted, at, operations, peer.bearer, peer.account)
    return len(operations)


async def _prepare(peer: Peer, arguments: Arguments) -> Value:
    """Reads operations ahead of their publication; may be left out."""
    return await prepare(peer.hosted, arguments["rows"], peer.bearer)


async def _discard(peer: Peer, arguments: Arguments) -> Value:
    """Deletes what is staged under keys with this beginning, and may close one for good."""
    await peer.hosted.leading.staging.discard(
        arguments["key"], close=arguments["close"], by=peer.bearer.holder
    )
    return None


async def _publish(peer: Peer, arguments: Arguments) -> Value:
    """Commits everything staged under some keys as one turn; returns its epoch once on disk.

    With ``once`` it returns also how many facts the owner claims since, and claims no more.
    """
    owner, client = arguments["owner"], arguments["client"]
    name = peer.bearer.owner(owner)  # before anything else: a sink asks so for its rights, without a number
    peer.bearer.publisher(client, name, peer.hosted.clients)
    TABLE["publish"].need(arguments, "sequence")
    plans: list[Plan] = []
    epoch = await publish(
        peer.hosted,
        arguments["keys"],
        bearer=peer.bearer,
        owner=owner,
        client=client,
        **{
            name: arguments[name]
            for name in ("sequence", "replace", "by", "once", "expect", "exclusive", "discard", "close")
        },
        account=peer.account,
        origin=peer.own.client.origin,
        report=partial(peer.hosted.reported, arguments["done"], peer.permit, peer.principal),
        planned=plans.append,
    )
    if not arguments["once"]:
        return epoch
    began, ended = (plans[0].began, plans[0].ended) if plans else (None, None)
    return Map({"epoch": epoch, "asserted": began, "retracted": ended})


VERBS: Final[Mapping[str, Callable[[Peer, Arguments], Awaitable[Value]]]] = {
    "stage": _stage,
    "prepare": _prepare,
    "discard": _discard,
    "publish": _publish,
}

OFFERS: Final = FeederKey(Offers)

FEATURE: Final = Feature(
    name="publication",
    verbs=lambda _: VERBS,
    packets=dict.fromkeys((p.Offer, p.Values, p.Done, p.Error), OFFERS),
)
