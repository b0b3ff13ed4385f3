"""Publishing: many staged operations become one turn, once.

A bulk writer, such as a Spark sink, works in several processes that may each fail and be tried again.
They *stage* what they have under keys of their own; then one of them *publishes* the keys that count, as
one turn of a durable owner, numbered like any turn of a client so that doing it again changes nothing.

Always: nothing staged is seen before it is published; a publication is one epoch or has not happened.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import trio

from dataspace.assertions import Assertions
from dataspace.errors import Refused
from dataspace.space import Space
from dataspace.wire.codec import pack, unpack, unpack_own
from dataspace.wire.packets import ASSERT, RETRACT, SEND, Action
from index.patterns import matcher
from index.values import Value, key, keys, same
from relay.faults import reach
from server.leases import PREFIX as LEASE
from server.rights import OPEN, Permit
from server.staged import Operations, check, check_pair, read

if TYPE_CHECKING:
    from server.logged import LoggedSpace

Operation: TypeAlias = tuple[str, Value]


async def stage(
    home: LoggedSpace, at: tuple[str, ...], operations: tuple[Value, ...], permit: Permit = OPEN
) -> None:
    """Keeps pairs of verb and value on disk under a key, after what is there already, if permitted."""
    for operation in operations:
        check_pair(operation)
    _permitted(operations, permit)
    await home.staging.stage(at, pack(operations))


async def stage_packed(home: LoggedSpace, at: tuple[str, ...], body: bytes, permit: Permit = OPEN) -> int:
    """The same for operations in any form, kept as they came once they are known to mean something."""
    staged = unpack(body, elements=home.config.limits.frame_elements)
    count = check(staged)
    _permitted(staged, permit)
    await home.staging.stage(at, body)
    return count


def _permitted(staged: Value, permit: Permit) -> None:
    if not permit.open:
        for verb, value in zip(*read(staged), strict=True):
            permit.check_value(verb, value)


async def publish(
    home: LoggedSpace,
    keys: Sequence[tuple[str, ...]],
    *,
    owner: str,
    client: str,
    sequence: int,
    replace: bool,
    by: Value = None,
    exclusive: bool = False,
    discard: tuple[str, ...] | None = None,
    close: tuple[str, ...] | None = None,
) -> int:
    """Commits what is staged under these keys as one turn; its epoch, once that is on disk.

    Who publishes exclusively has the owner until somebody else begins to (``Writers``).  What was published
    is discarded then, or all that is under ``discard``; that and ``close`` are those of ``Staging.discard``.
    """
    if not owner:
        raise Refused("bad-request", "owner must name a durable owner")
    reach("publish-before-commit")
    async with home.publishing:
        epoch = await _published(home, client, sequence)
        if epoch is None:
            known = home.clients.get(client)
            if exclusive:
                home.writers.check(owner, client, began=known.sequence > 0)
            operations = await _staged(home, keys)
            name = _granted(home, owner)
            actions = _actions(home, name, operations, replace=replace, by=by)
            epoch = home.commit(name, actions, known, sequence, None, publication=True).number
            if exclusive:
                home.writers.published(owner, client, epoch)
    home.flush()
    await home.commits.wait_durable(epoch)
    reach("publish-after-commit")
    await home.staging.discard(*(keys if discard is None else [discard]), close=close)
    return epoch


async def _staged(home: LoggedSpace, keys: Sequence[tuple[str, ...]]) -> Operations:
    """All operations under these keys; refused as soon as they are more than a publication may have."""
    limit = home.space.limits.actions_per_publication
    verbs: list[str] = []
    values: list[Value] = []
    for at in keys:
        for blob in await home.staging.staged([at]):
            operations = read(unpack_own(blob))
            verbs.extend(operations.verbs)
            values.extend(operations.values)
            if len(verbs) > limit:
                said = f"publication of {len(verbs)} actions or more"
                raise Refused("limit", f"{said}, limit actions_per_publication={limit}")
            await trio.lowlevel.checkpoint()  # a million rows must not stop everybody for this as well
    return Operations(verbs, values)


async def _published(home: LoggedSpace, client: str, sequence: int) -> int | None:
    """The epoch of a batch that was published before."""
    known = home.clients.get(client)
    if sequence > known.sequence:
        return None
    epoch = known.epoch_of(sequence) or await home.find_turn(client, sequence)
    if epoch is None:
        raise Refused("old-sequence", f"batch {sequence} of {client} is not known any more")
    return epoch


def _actions(
    home: LoggedSpace, owner: str, operations: Operations, *, replace: bool, by: Value
) -> Sequence[Action]:
    """What some operations mean for what an owner claims now."""
    verbs, values = operations
    if by is None and not replace and verbs.count("assert") == len(verbs):
        return Assertions(home.space.fresh_handle(owner), values)  # as mostly: no look at what it claims
    pairs = list(zip(verbs, values, strict=True))
    if by is None or replace:
        return actions_for(home.space, owner, pairs, replace=replace)
    return keyed_actions(home.space, owner, pairs, by)


def actions_for(
    space: Space, owner: str, operations: Sequence[Operation], *, replace: bool = False
) -> tuple[Action, ...]:
    """The actions that operations by value mean for what an owner claims now.

    Retracting by value ends one claim on that fact, an earlier one of the owner's or one of this batch;
    retracting what the owner does not claim changes nothing.  With ``replace``, what is asserted becomes the
    owner's whole set: facts that stay are not touched.  O(operations) where all of them assert or send and
    nothing is replaced, else O(claims of the owner + operations).
    """
    claims = space.claims(owner)
    fresh = space.fresh_handle(owner)
    if replace:
        asserted = [value for verb, value in operations if verb == "assert"]
        sent = [(SEND, value) for verb, value in operations if verb == "send"]
        return (*space.replace_all(owner, asserted, fresh), *sent)
    going = {key(value) for verb, value in operations if verb == "retract"}
    handles: dict[object, list[int]] = {at: [] for at in going}
    for handle, value in claims.items() if going else ():
        at = key(value)
        if at in going:
            handles[at].append(handle)
    actions: list[Action] = []
    for verb, value in operations:
        if verb == "assert":
            if (at := key(value)) in going:
                handles[at].append(fresh)
            actions.append((ASSERT, fresh, value))
            fresh += 1
        elif verb == "retract":
            held = handles.get(key(value))
            if held:
                actions.append((RETRACT, held.pop(0)))
        else:
            actions.append((SEND, value))
    return tuple(actions)


def keyed_actions(space: Space, owner: str, operations: Sequence[Operation], by: Value) -> tuple[Action, ...]:
    """The same where a fact takes the place of those of the owner that have the same key.

    The captures of the pattern ``by`` are the key.  A fact that is there already stays; retracting ends
    exactly that fact.  Raises ``Refused`` for a fact that has no key.  O(claims of the owner + operations).
    """
    match = matcher(by)
    held: dict[Hashable, dict[int, Value]] = {}
    for handle, value in space.claims(owner).items():
        row = match(value)
        if row is not None:
            held.setdefault(keys(row), {})[handle] = value
    fresh = space.fresh_handle(owner)
    actions: list[Action] = []
    for verb, value in operations:
        if verb == "send":
            actions.append((SEND, value))
            continue
        row = match(value)
        if row is None:
            raise Refused("bad-request", f"{value!r:.80} does not match {by!r:.80}, which gives the key")
        same_key = held.setdefault(keys(row), {})
        same_fact = next((handle for handle, old in same_key.items() if same(old, value)), None)
        going = [handle for handle in same_key if (handle == same_fact) == (verb == "retract")]
        if verb == "assert" and same_fact is None:
            actions.append((ASSERT, fresh, value))
            same_key[fresh] = value
            fresh += 1
        for handle in going:
            actions.append((RETRACT, handle))
            del same_key[handle]
    return tuple(actions)


def _granted(home: LoggedSpace, owner: str) -> str:
    """The owner in whose name to publish: a lease, which begins or is renewed by it, or a durable one."""
    if owner.startswith(LEASE):
        home.leases.grant(owner)
        return owner
    return f"durable:{owner}"
