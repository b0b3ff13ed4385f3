"""Publishing: many staged operations become one turn, once.

A bulk writer, such as a Spark sink, works in several processes that may each fail and be retried.  They
*stage* their operations under keys of their own; then one of them *publishes* the keys that count, as one
turn of a durable owner, numbered like any turn of a client, so that a retry changes nothing.

Always: nothing staged is seen before it is published; a publication is one epoch or has not happened.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Final, TypeVar, cast

import trio

from dataspace.codec import MAX_DEPTH, pack, unpack
from dataspace.errors import Refused
from dataspace.faults import reach
from dataspace.kernel.epochs import Origin
from dataspace.kernel.turns import keys_in_steps
from dataspace.wire.slices import unpacking
from index.values.values import Value
from server.conditions.judging import Judgement, reading
from server.config.rights import OPEN, Permit
from server.owners.accounts import Account
from server.owners.bearers import LEASE, TRUSTED, Bearer
from server.owners.turn_numbers import refusal
from server.spaces.ledger import Plan
from server.spaces.packed import Operations, check, check_pair, read
from server.spaces.space import HostedSpace

SMALL_BYTES: Final = 32 << 10
"""Packed operations that are unpacked in one step, in some milliseconds."""

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
    await hosted.staging.stage(at, pack(operations), bearer.holder, account)


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
    await hosted.staging.stage(at, body, bearer.holder, account)
    return count


async def prepare(hosted: HostedSpace, body: bytes, bearer: Bearer = TRUSTED) -> int:
    """Reads packed operations that are to be published soon, ahead of time; returns how many they are."""
    staged, count = await _checked(hosted, body, bearer.principal, bearer.permit)
    hosted.prepared.keep(body, read(staged))
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
        return unpack(body, elements=elements)
    return await hosted.lane.work(asker).do(unpacking(body, elements=elements, depth=MAX_DEPTH))


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
    expect: Sequence[Value] = (),
    exclusive: bool = False,
    discard: tuple[str, ...] | None = None,
    close: tuple[str, ...] | None = None,
    account: Account | None = None,
    origin: Origin | None = None,
) -> int:
    """Commits what is staged under these keys as one turn; returns its epoch once that is on disk.

    ``client`` is the bearer's own, or one to which it has a right, or numbered within the owner (``Bearer``).
    Operations in any packed form may stand in place of a key: they were never staged.  All are checked by the
    rights of the ``bearer``, whichever client staged them.  An exclusive publisher has the owner until
    another one begins to publish (``Publishers``).  Expectations are judged in the epoch of the turn: if one
    does not hold, ``ExpectationFailed`` is raised, and the number may be used again.  Published batches are
    discarded then, or everything under ``discard``; ``discard`` and ``close`` have the meaning
    of ``Staging.discard``.
    """
    name = bearer.owner(owner)
    identity = bearer.publisher(client, name, hosted.clients)
    reach("publish-before-commit")
    expected = await hosted.lane.work(bearer.principal).do(reading(expect, bearer.permit)) if expect else []
    with closing(Judgement(hosted, expected)) as judgement:
        judge = partial(_judge, hosted, judgement, bearer, account)
        if expected and await _published(hosted, identity, sequence) is None:
            await judge()  # what takes long, before other publications have to wait
        async with hosted.publishing:
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
                    plan = await _planned(hosted, name, operations, bearer.principal, replace=replace, by=by)
                    if judgement.decide():
                        break
                if name.startswith(LEASE):
                    hosted.leases.grant(name, account)  # again, as it may have ended meanwhile
                epoch = hosted.commit(
                    name, plan.actions, client=known, sequence=sequence, account=account, publication=True
                ).number
                if exclusive:
                    hosted.publishers.published(name, identity, epoch)
                hosted.flush()
                await _in_turn(hosted, bearer.principal, plan.settling())
    hosted.flush()
    await hosted.commits.wait_durable(epoch)
    reach("publish-after-commit")
    staged = [at for at in keys if not isinstance(at, bytes)]
    dropped = staged if discard is None else [discard]
    await hosted.staging.discard(*dropped, close=close, by=bearer.holder)
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
    """Has no bound: the daemon itself files facts."""


async def _planned(
    hosted: HostedSpace, owner: str, operations: Operations, asker: Hashable, *, replace: bool, by: Value
) -> Plan:
    """Returns what operations do to the claims of an owner now; where they are many, in the lane.

    At once where another client changes these claims all the time.
    """
    for _ in range(ATTEMPTS):
        hosted.finish_ending(owner)
        steps = hosted.ledgers.planning(owner, operations, replace=replace, by=by)
        plan = await _in_turn(hosted, asker, steps)
        if plan is not None:
            return plan
    hosted.finish_ending(owner)
    return hosted.ledgers.plan(owner, operations, replace=replace, by=by)


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
        return await hosted.staging.staged([at], bearer.holder)
    prepared = hosted.prepared.taken(at)
    if prepared is None:
        return [read((await _checked(hosted, at, bearer.principal, OPEN))[0])]
    return [prepared]


async def _published(hosted: HostedSpace, client: str, sequence: int) -> int | None:
    """Returns the epoch of a batch that was published before; None if it was not."""
    known = hosted.clients.get(client)
    if sequence > known.sequence:
        return None
    epoch = (await hosted.find_turns(known, [sequence])).get(sequence)
    if not epoch:
        raise refusal(sequence, epoch)
    return epoch
