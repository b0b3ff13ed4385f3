"""The definitions of groups: how a group is made, moved to another place of the log, and deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

import trio

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.wire.consuming import ConsumeOptions, Start
from index.patterns.patterns import capture_names, matcher
from index.patterns.text import parse_pattern, unparse_pattern
from index.values.values import Record, Value, key as key_of, same
from relay.groups.members import GroupOptions
from relay.groups.state import END, GROUP, GROUP_ENDED, GroupState, Item
from relay.log.notes import of_group
from relay.topics.steps import StepLog
from server.owners.accounts import Account
from server.spaces.groups.group import OWNER, GroupSpace, WorkGroup, group_of, redefine, stated
from server.spaces.groups.groups import SpaceGroups

AT_ONCE: Final = 4_096
"""Claims that one turn retracts where a group is deleted."""


ITEM: Final = parse_pattern("$item")
"""What a group of a topic divides without a pattern: all items, each with itself as its capture."""


async def joined(groups: SpaceGroups, options: ConsumeOptions, account: Account | None = None) -> WorkGroup:
    """Returns the group that a member joins, which is made if there is none; on disk when it returns.

    Raises ``Refused`` for another definition, or where there is none and nothing to make it of.  A new group
    counts for the account until it is deleted, or the daemon ends.
    """
    async with groups.making:
        group = groups.by_name.get(options.group)
        if group is None:
            group = await _make(groups, options, account)
        else:
            _check_same(groups, group, options)
    return group


async def _make(groups: SpaceGroups, options: ConsumeOptions, account: Account | None) -> WorkGroup:
    pattern = options.pattern if options.topic is None or options.pattern is not None else ITEM
    if pattern is None:
        raise Refused("no-group", f"there is no group {options.group!r}, and no pattern to make it with")
    limit = groups.hosted.limits.groups
    if len(groups.by_name) >= limit:
        raise Refused("limit", f"{len(groups.by_name)} groups, the limit is limits.groups={limit}")
    if account is not None:
        account.check("groups")
    chosen = GroupOptions(key=options.key, topic=options.topic or "")
    if options.ack_within is not None:
        chosen = replace(chosen, ack_within=float(options.ack_within))
    if options.attempts is not None:
        chosen = replace(chosen, attempts=options.attempts)
    names = capture_names(pattern)
    if options.key is not None and options.key not in names:
        raise Refused("bad-request", f"key={options.key!r} is no capture of the pattern, which has {names}")
    hosted = groups.hosted
    topic = groups.topics.find(chosen.topic) if chosen.topic else None
    state = GroupState(options.group, topic=topic.number if topic is not None else 0)
    if topic is not None:
        begin: int | None = await _begin_in(groups, topic, options.begin)
    else:
        begin = await _begin_at(hosted, options.begin)
    held = [] if options.begin != "held" else _held(hosted, pattern, chosen.window)
    fact = Record("group", options.group, pattern, stated(chosen))
    epoch = hosted.space.epoch + 1
    state.read = (epoch, END) if begin is None else (begin, END)
    for position, value in enumerate(held):
        state.undone[epoch, position] = Item((epoch, position), hosted.clock(), value, is_message=False)
    owner = OWNER + options.group
    note = of_group(GROUP, state.checkpoint(0))
    made = hosted.commit(owner, [(ASSERT, hosted.space.fresh_handle(owner), fact)], notes=[note])
    assert made.number == epoch  # as a new fact makes an epoch
    if account is not None:
        account.take("groups")
        groups.accounts[options.group] = account
    await hosted.commits.wait_durable(made.number)
    group = group_of(groups.states[options.group], fact, hosted)
    groups.add(group)
    return group


def _held(hosted: GroupSpace, pattern: Value, most: int) -> list[Value]:
    match = matcher(pattern)
    claims = hosted.space.all_claims().values()
    facts = {key_of(value): value for held in claims for value in held.values()}
    found = [value for value in facts.values() if match(value) is not None]
    if len(found) > most:
        raise Refused("limit", f"{len(found)} facts hold, a group can begin with {most} at most")
    return found


async def _begin_at(hosted: GroupSpace, begin: Start) -> int | None:
    """Returns the epoch after which a group begins; None for the present."""
    log = hosted.own_log
    if isinstance(begin, str):
        return None
    newest = hosted.space.epoch
    if isinstance(begin, int):
        after = max(0, begin - 1)
        if after > newest:
            raise Refused("epoch-ahead", f"epoch {begin} is still to come, the newest is {newest}")
    else:
        micros = int(begin.timestamp() * 1_000_000) - 1
        after = await trio.to_thread.run_sync(log.epoch_at, micros)
    log.check_retained(after)
    return after


async def _begin_in(groups: SpaceGroups, topic: StepLog, begin: Start) -> int:
    """Returns the number of the completed epoch of a topic after which a group begins."""
    if isinstance(begin, datetime):
        return await groups.topics.number_at(topic, int(begin.timestamp() * 1_000_000))
    if not isinstance(begin, int):
        return topic.completed_durable
    after, newest = max(0, begin - 1), topic.completed_durable
    if after > newest:
        said = f"epoch {begin} of topic {topic.topic.name!r} is still to come, the newest is {newest}"
        raise Refused("epoch-ahead", said)
    if after < (oldest := await groups.topics.oldest(topic)) - 1:
        said = f"epoch {after + 1} of topic {topic.topic.name!r} is not retained, the oldest is {oldest}"
        raise Refused("epoch-gone", said)
    return after


async def delete(groups: SpaceGroups, group: WorkGroup) -> None:
    """Ends a group, with its dead letters; its members get an error."""
    hosted, owner = groups.hosted, OWNER + group.name
    async with groups.making:
        groups.drop(group)
        note = of_group(GROUP_ENDED, (group.name,))
        actions = [(RETRACT, handle) for handle in hosted.space.claims(owner)]
        for start in range(0, len(actions), AT_ONCE):
            hosted.commit(owner, actions[start : start + AT_ONCE], notes=[note])
        await hosted.commits.wait_durable(hosted.space.epoch)


async def seek(groups: SpaceGroups, group: WorkGroup, to: Value) -> int:
    """Has a group begin anew: behind an epoch, at a time, or now (None); returns that epoch.

    Deliveries from before cannot be done any more; items after that epoch come again, done or not.
    """
    hosted, to = groups.hosted, to if isinstance(to, int | datetime) else "now"
    if group.options.topic:
        after = await _begin_in(groups, _divided(groups, group), to)
    else:
        begin = await _begin_at(hosted, to)
        after = hosted.space.epoch if begin is None else begin
    async with groups.making:
        if groups.by_name.get(group.name) is not group:
            raise Refused("no-group", f"group {group.name!r} was deleted meanwhile")
        groups.revoke(list(group.core.out.values()))
        groups.rest(group)
        least = group.core.next_token
        state = GroupState(group.name, (after, END), least, group.state.topic)
        groups.note(of_group(GROUP, state.checkpoint(0)))
        group.begin_anew(least)
        (groups.topics_moved if group.options.topic else groups.behind).set()
        await hosted.commits.wait_durable(hosted.space.epoch)
    return after


def _divided(groups: SpaceGroups, group: WorkGroup) -> StepLog:
    """Returns the topic that a group divides; raises ``Refused`` if that has ended."""
    topic = groups.topics.standing(group.options.topic, group.state.topic)
    if topic is None:
        raise Refused("no-topic", _ended(group))
    return topic


def _ended(group: WorkGroup) -> str:
    return (
        f"topic {group.options.topic!r} of group {group.name!r} has ended; to divide a later topic of that "
        "name, delete the group and make it again"
    )


def _check_not_another(groups: SpaceGroups, group: WorkGroup) -> None:
    """Raises ``Refused`` if the topic of a group has ended, and there is a later one of that name.

    Without a later topic members still get the items that were read.
    """
    try:
        later = groups.topics.find(group.options.topic)
    except Refused:
        return
    if later.number != group.state.topic:
        raise Refused("group-differs", _ended(group))


async def alter(groups: SpaceGroups, group: WorkGroup, options: GroupOptions) -> None:
    """Changes the options of a group, but for its key; on disk when it returns.

    A shorter ``ack_within`` also bounds the deadlines of jobs that are out.
    """
    hosted = groups.hosted
    async with groups.making:
        if groups.by_name.get(group.name) is not group:
            raise Refused("no-group", f"group {group.name!r} was deleted meanwhile")
        if options != group.options:
            redefine(hosted, group, options)
            groups.shorten(group)
            groups.touched(group)
            groups.deliver()
            await hosted.commits.wait_durable(hosted.space.epoch)


def _check_same(groups: SpaceGroups, group: WorkGroup, options: ConsumeOptions) -> None:
    topic = group.options.topic
    if options.topic is not None and options.topic != topic:
        has = f"topic {topic!r}" if topic else "facts and messages of the space"
        said = f"group {group.name!r} divides {has}, not topic {options.topic!r:.300}"
        raise Refused("group-differs", said)
    if options.topic is not None and not options.holding:
        _check_not_another(groups, group)
    elif options.pattern is not None and topic:
        said = f"group {group.name!r} divides topic {topic!r}; state topic={topic!r} beside the pattern"
        raise Refused("group-differs", said)
    if options.pattern is not None and not same(options.pattern, group.pattern):
        raise Refused(
            "group-differs",
            f"group {group.name!r} divides {unparse_pattern(group.pattern):.200}, not "
            f"{unparse_pattern(options.pattern):.200}",
        )
    for name in ("key", "ack_within", "attempts"):
        wanted, has = getattr(options, name), getattr(group.options, name)
        if wanted is not None and wanted != has:
            more = "" if name == "key" else "; `dataspace groups alter` changes it, without it a member joins"
            raise Refused("group-differs", f"group {group.name!r} has {name}={has!r}, not {wanted!r}{more}")
