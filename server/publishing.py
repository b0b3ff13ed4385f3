"""Publishing: many staged operations become one turn, once.

A bulk writer, such as a Spark sink, works in several processes that may each fail and be tried again.
They *stage* what they have under keys of their own; then one of them *publishes* the keys that count, as
one turn of a durable owner, numbered like any turn of a client so that doing it again changes nothing.

Always: nothing staged is seen before it is published; a publication is one epoch or has not happened.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from dataspace.errors import Refused
from dataspace.space import Space
from dataspace.wire.codec import pack, unpack, unpack_own
from dataspace.wire.packets import ASSERT, RETRACT, SEND, Action
from index.patterns import matcher
from index.values import Value, key, keys, same
from relay.faults import reach
from relay.log.segments import table
from server.leases import PREFIX as LEASE
from server.rights import OPEN, Permit

if TYPE_CHECKING:
    from server.logged import LoggedSpace

VERBS: Final = ("assert", "retract", "send")
Operation: TypeAlias = tuple[str, Value]


async def stage(
    home: LoggedSpace, at: tuple[str, ...], operations: tuple[Value, ...], permit: Permit = OPEN
) -> None:
    """Keeps operations on disk under a key, after what is there already, if they are permitted."""
    for operation in operations:
        verb, value = _check(operation)
        if not permit.open:
            permit.check_value(verb, value)
    await home.staging.stage(at, pack(operations))


async def stage_rows(home: LoggedSpace, at: tuple[str, ...], body: bytes, permit: Permit = OPEN) -> int:
    """The same for operations in the plain form, kept as they came once they are known to mean something."""
    operations = _operations(unpack(body, elements=home.config.limits.frame_elements))
    if not permit.open:
        for verb, value in operations:
            permit.check_value(verb, value)
    await home.staging.stage(at, body)
    return len(operations)


def _operations(staged: Value) -> list[Operation]:
    """The operations that are staged, in either form: pairs, or verbs, rows and which are no records."""
    match staged:
        # three pairs look alike, but for the verb that each begins with
        case (str() | tuple() as verbs, tuple() as rows, tuple() as plain) if _all_integers(plain):
            bare = set(plain)
            arrays = all(row.__class__ is tuple and row for at, row in enumerate(rows) if at not in bare)
            each = [verbs] * len(rows) if isinstance(verbs, str) else verbs
            if arrays and len(each) == len(rows) and set(each) <= set(VERBS):
                return list(zip(each, table(rows, plain, len(rows)), strict=True))
        case tuple():
            return [_check(operation) for operation in staged]
    raise Refused("bad-request", f"no operations: {staged!r:.80}, verbs are {', '.join(VERBS)}")


def _all_integers(values: tuple[Value, ...]) -> bool:
    return all(each.__class__ is int for each in values)


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
) -> int:
    """Commits what is staged under these keys as one turn; its epoch, once that is on disk.

    Who publishes exclusively has the owner until somebody else begins to; see ``Writers``.
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
            if by is None or replace:
                actions = actions_for(home.space, name, operations, replace=replace)
            else:
                actions = keyed_actions(home.space, name, operations, by)
            epoch = home.commit(name, actions, known, sequence, None, publication=True).number
            if exclusive:
                home.writers.published(owner, client, epoch)
    home.flush()
    await home.commits.wait_durable(epoch)
    reach("publish-after-commit")
    await home.staging.discard(*keys)
    return epoch


async def _staged(home: LoggedSpace, keys: Sequence[tuple[str, ...]]) -> list[Operation]:
    """All operations under these keys; refused as soon as they are more than a publication may have."""
    limit = home.space.limits.actions_per_publication
    operations: list[Operation] = []
    for at in keys:
        for blob in await home.staging.staged([at]):
            operations.extend(_operations(unpack_own(blob)))
            if len(operations) > limit:
                said = f"publication of {len(operations)} actions or more"
                raise Refused("limit", f"{said}, limit actions_per_publication={limit}")
            await trio.lowlevel.checkpoint()  # a million rows must not stop everybody for this as well
    return operations


async def _published(home: LoggedSpace, client: str, sequence: int) -> int | None:
    """The epoch of a batch that was published before."""
    known = home.clients.get(client)
    if sequence > known.sequence:
        return None
    epoch = known.epoch_of(sequence) or await home.find_turn(client, sequence)
    if epoch is None:
        raise Refused("old-sequence", f"batch {sequence} of {client} is not known any more")
    return epoch


def actions_for(
    space: Space, owner: str, operations: Sequence[Operation], *, replace: bool = False
) -> tuple[Action, ...]:
    """The actions that operations by value mean for what an owner claims now.

    Retracting by value ends one claim on that fact, an earlier one of the owner's or one of this batch;
    retracting what the owner does not claim changes nothing.  With ``replace``, what is asserted becomes the
    owner's whole set: facts that stay are not touched.  O(claims of the owner + operations).
    """
    claims = space.claims(owner)
    fresh = max(claims, default=0) + 1
    if replace:
        asserted = [value for verb, value in operations if verb == "assert"]
        sent = [(SEND, value) for verb, value in operations if verb == "send"]
        return (*space.replace_all(owner, asserted, fresh), *sent)
    if not any(verb == "retract" for verb, _ in operations):  # then nobody has to know who claims what
        return tuple(
            [
                (ASSERT, handle, value) if verb == "assert" else (SEND, value)
                for handle, (verb, value) in enumerate(operations, fresh)
            ]
        )
    handles: dict[object, list[int]] = {}
    for handle, value in claims.items():
        handles.setdefault(key(value), []).append(handle)
    actions: list[Action] = []
    for verb, value in operations:
        if verb == "assert":
            handles.setdefault(key(value), []).append(fresh)
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
    fresh = max(space.claims(owner), default=0) + 1
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


def _check(operation: Value) -> Operation:
    if operation.__class__ is tuple and len(operation) == 2 and operation[0] in VERBS:
        return operation  # type: ignore[return-value]  # a verb and a value, as just checked
    raise Refused("bad-request", f"no operation: {operation!r:.80}, known are {', '.join(VERBS)}")
