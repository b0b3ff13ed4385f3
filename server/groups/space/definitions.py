"""The definitions of groups: how a group is made, moved to another place of the log, and deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Any, Final

import trio

from dataspace.errors import Refused
from dataspace.kernel.actions import RETRACT
from dataspace.kernel.changes import REMOVED, Epoch
from dataspace.wire.consuming import ConsumeOptions, Start
from index.patterns.patterns import capture_names, matcher
from index.patterns.text import parse_pattern, unparse_pattern
from index.values.values import Record, Value, key as key_of, same
from relay.groups.members import GroupOptions
from relay.groups.state import END, GROUP, GROUP_ENDED, GroupState, Item, is_dead, of_group
from relay.log.notes import Note
from relay.topics.steps import StepLog
from server.config.rights import Permit
from server.groups.space.group import OWNER, WorkGroup, check_disk, check_options, defining, stated
from server.groups.space.groups import SpaceGroups
from server.groups.space.settling import check_source
from server.owners.accounts import Account
from server.spaces.space import HostedSpace

AT_ONCE: Final = 1_024
"""Claims that one turn retracts where a group is deleted, in some 5 to 10 ms."""

HELD: Final = 1 << 40
"""The first position of the facts that held when a group was made, where its epoch has other rows: no epoch
has so many."""


OF_A_GROUP: Final = (
    *("key", "ack_within", "attempts", "most_out", "backoff", "rate", "exclusive", "kinds", "priority"),
)
"""What a member may state about its group; all but ``FIXED`` can be changed."""

FIXED: Final = frozenset(("key", "kinds", "priority"))

ITEM: Final = parse_pattern("$item")
"""What a group of a topic divides without a pattern: all items, each with itself as its capture."""


async def joined(
    groups: SpaceGroups, options: ConsumeOptions, account: Account | None = None, permit: Permit | None = None
) -> WorkGroup:
    """Returns the group that a member joins, which is made if there is none; on disk when it returns.

    Raises ``Refused`` for another definition, or where there is none and nothing to make it of; and, before
    it says anything of a group, for a bearer that may not have its items.  A new group counts for the account
    until it is deleted, or the daemon ends.
    """
    async with groups.changing():
        group = groups.by_name.get(options.group)
        if group is None:
            group = await _make(groups, options, account)
        else:
            if permit is not None:
                check_source(permit, group.options.topic, group.pattern)
            _check_same(groups, group, options)
    await groups.hosted.commits.wait_durable(group.defined)  # its maker may be gone before that
    return group


def chosen_by(options: ConsumeOptions) -> GroupOptions:
    """Returns the options of a group that a member makes with these."""
    stated = {name: value for name in OF_A_GROUP if (value := getattr(options, name)) is not None}
    stated |= {name: float(stated[name]) for name in ("ack_within", "rate") if name in stated}
    return GroupOptions(**stated | backoff_of(stated.pop("backoff", None)), topic=options.topic or "")


def backoff_of(wanted: Any) -> dict[str, Any]:
    """Returns the options that a wanted backoff is: a number that doubles, or a list of waits."""
    if wanted is None:
        return {}
    waits = tuple(map(float, wanted)) if isinstance(wanted, tuple) else ()
    return {"backoff": waits[0] if waits else float(wanted), "backoffs": waits}


async def _make(groups: SpaceGroups, options: ConsumeOptions, account: Account | None) -> WorkGroup:
    """Makes a group, whose definition may still be on its way to the disk.

    Nothing is awaited between the commit and the group in memory: the asking session may end meanwhile.
    """
    pattern = options.pattern if options.topic is None or options.pattern is not None else ITEM
    if pattern is None:
        raise Refused("no-group", f"there is no group {options.group!r}, and no pattern to make it with")
    groups.check_served(options.group)
    check_disk(groups.hosted)
    limit = groups.hosted.limits.groups
    if len(groups.by_name) >= limit:
        raise Refused("limit", f"{len(groups.by_name)} groups, the limit is limits.groups={limit}")
    if account is not None:
        account.check("groups")
    chosen = chosen_by(options)
    check_options(groups.hosted, chosen)
    names = capture_names(pattern)
    for option, name in (("key", chosen.key), ("priority", chosen.priority)):
        if name is not None and name not in names:
            said = f"{option}={name!r:.60} is no capture of the pattern, which has {names!r:.300}"
            raise Refused("bad-request", said)
    if REMOVED in chosen.kinds and chosen.key is None:
        said = "endings need a key, else an ending and what comes after it may be with two members at once"
        raise Refused("bad-request", f"kinds={chosen.kinds!r}: {said}")
    hosted = groups.hosted
    topic = groups.topics.find(chosen.topic) if chosen.topic else None
    if topic is not None:
        begin: int | None = await _begin_in(groups, topic, options.begin)
    else:
        begin = await _begin_at(hosted, options.begin)
    fact = Record("group", options.group, pattern, stated(chosen))

    def noted(epoch: Epoch) -> list[Note]:
        """Returns the beginning of the group, which is behind its own epoch.

        That is known here alone: owners that have ended and rules of time may make epochs before it, and it
        is the epoch before where another owner has asserted the same fact.
        """
        state = GroupState(options.group, (epoch.number if begin is None else begin, END))
        state.topic = topic.number if topic is not None else 0
        if options.begin == "held":
            first = len(epoch.added) + len(epoch.messages) if not epoch.silent else HELD
            values = [each for each in _held(hosted, pattern, chosen.window) if not same(each, fact)]
            for position, value in enumerate(values, first):
                at = (epoch.number, position)
                state.undone[at] = Item(at, epoch.time, value, is_message=False)
        return [of_group(GROUP, state.checkpoint(0))]

    definition = hosted.commit(OWNER + options.group, defining(hosted, options.group, fact), notes=noted)
    if account is not None:
        account.reserve("groups")
        groups.accounts[options.group] = account
    group = groups.begin(options.group)
    if group is None:  # a defect, which is in the log of the daemon
        groups.check_served(options.group)
        raise Refused("group-failed", f"group {options.group!r} was made and has no definition")
    group.defined = definition.number
    return group


def _held(hosted: HostedSpace, pattern: Value, most: int) -> list[Value]:
    match = matcher(pattern)
    claims = hosted.space.all_claims().values()
    facts = {key_of(value): value for held in claims for value in held.values()}
    found = [value for value in facts.values() if match(value) is not None]
    if len(found) > most:
        raise Refused("limit", f"{len(found)} facts hold, a group can begin with {most} at most")
    return found


async def _begin_at(hosted: HostedSpace, begin: Start) -> int | None:
    """Returns the epoch after which a group begins; None for the present."""
    log = hosted.leading.log
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
        reason = f"epoch {begin} of topic {topic.topic.name!r} is still to come, the newest is {newest}"
        raise Refused("epoch-ahead", reason)
    if after < (oldest := await groups.topics.oldest(topic)) - 1:
        reason = f"epoch {after + 1} of topic {topic.topic.name!r} is not retained, the oldest is {oldest}"
        raise Refused("epoch-gone", reason)
    return after


async def delete(groups: SpaceGroups, name: str) -> None:
    """Ends a group, with its dead letters; its members get an error.

    Many dead letters go before the group, in turns of their own: if the asker is gone meanwhile, or the
    daemon ends, the group is there with the other dead letters.
    """
    hosted, owner = groups.hosted, OWNER + name
    check_disk(hosted)
    async with groups.changing():
        if name not in groups.failed:
            groups.find(name)  # else it was deleted meanwhile
        while len(hosted.space.claims(owner)) > (most := at_once(hosted)):
            letters = ((handle, fact) for handle, fact in hosted.space.claims(owner).items() if is_dead(fact))
            some = [(RETRACT, handle) for handle, _ in islice(letters, most)]
            if not some:
                break
            hosted.commit(owner, some)
            if (group := groups.by_name.get(name)) is not None:
                group.dead -= len(some)
            await hosted.commits.wait_durable(hosted.space.epoch)
        actions = [(RETRACT, handle) for handle in hosted.space.claims(owner)]
        hosted.commit(owner, actions, notes=[of_group(GROUP_ENDED, (name,))])
        groups.drop(name)
        epoch = hosted.space.epoch
    await hosted.commits.wait_durable(epoch)


def at_once(hosted: HostedSpace) -> int:
    """Returns how many claims of a group one turn retracts at most."""
    return max(1, min(AT_ONCE, hosted.space.limits.actions_per_turn))


async def seek(groups: SpaceGroups, group: WorkGroup, to: Value) -> int:
    """Moves a group behind an epoch, to a time, or to now (None); returns that epoch.

    Deliveries from before cannot be done any more; items after that epoch come again, done or not.
    """
    hosted, to = groups.hosted, to if isinstance(to, int | datetime) else "now"
    check_disk(hosted)
    if group.options.topic:
        after = await _begin_in(groups, _divided(groups, group), to)
    else:
        begin = await _begin_at(hosted, to)
        after = hosted.space.epoch if begin is None else begin
    async with groups.changing():
        if groups.by_name.get(group.name) is not group:
            raise Refused("no-group", f"group {group.name!r} was deleted meanwhile")
        least = group.core.next_token
        state = GroupState(group.name, (after, END), least, group.state.topic)
        out = list(group.core.out.values())
        hosted.queue_note(of_group(GROUP, state.checkpoint(0)))
        groups.moved_to(group, least)
        groups.revoke(out)
        epoch = hosted.space.epoch
    await hosted.commits.wait_durable(epoch)
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


async def alter(
    groups: SpaceGroups, group: WorkGroup, change: Callable[[GroupOptions], GroupOptions]
) -> None:
    """Changes the options of a group, but for its key; on disk when it returns.

    ``change`` gets the options of the moment: another request may change them while this one waits.

    A shorter ``ack_within`` also bounds the deadlines of jobs that are out.
    """
    hosted = groups.hosted
    check_disk(hosted)
    async with groups.changing():
        if groups.by_name.get(group.name) is not group:
            raise Refused("no-group", f"group {group.name!r} was deleted meanwhile")
        if (options := change(group.options)) != group.options:
            check_options(hosted, options, group.options)
            groups.redefine(group, options)
            groups.deliver()
        epoch = hosted.space.epoch
    await hosted.commits.wait_durable(epoch)


def _check_same(groups: SpaceGroups, group: WorkGroup, options: ConsumeOptions) -> None:
    topic = group.options.topic
    if options.topic is not None and options.topic != topic:
        has = f"topic {topic!r}" if topic else "facts and messages of the space"
        reason = f"group {group.name!r} divides {has}, not topic {options.topic!r:.300}"
        raise Refused("group-differs", reason)
    if options.topic is not None and not options.holding:
        _check_not_another(groups, group)
    elif options.pattern is not None and topic:
        reason = f"group {group.name!r} divides topic {topic!r}; state topic={topic!r} beside the pattern"
        raise Refused("group-differs", reason)
    if options.pattern is not None and not same(options.pattern, group.pattern):
        raise Refused(
            "group-differs",
            f"group {group.name!r} divides {unparse_pattern(group.pattern):.200}, not "
            f"{unparse_pattern(options.pattern):.200}",
        )
    for name in OF_A_GROUP:
        wanted, stands = getattr(options, name), getattr(group.options, name)
        if name == "backoff":
            stands = group.options.backoffs or stands
        if wanted is not None and wanted != stands:
            more = (
                "" if name in FIXED else "; leave it out to join, or change it with `dataspace groups alter`"
            )
            said = f"group {group.name!r} has {name}={stands!r}, not {wanted!r:.300}{more}"
            raise Refused("group-differs", said)
