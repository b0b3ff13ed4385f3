"""Dead letters: items that have failed for good, as facts of their group, and how they are tried again.

A dead letter is ``dead(GROUP, EPOCH, POSITION, ITEM, REASON, ATTEMPTS, TIME, KIND)`` of the owner
``group:NAME``: with the time of the item's epoch, and ``fact``, ``message`` or, of a topic, ``["item", time,
crashed]``.

Always: an item becomes a dead letter in one epoch with the note that it is done, and comes back in one epoch
with the note that it is undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from dataspace.errors import Closed, Refused
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.kernel.changes import micros_of, time_of
from dataspace.steps import Steps
from index.patterns.events import Captures
from index.values.values import Record, Value
from relay.groups.state import DEAD, DONE, UNDONE, At, Item, done_fields, is_dead, of_group
from relay.store.errors import LogFailed
from server.groups.space.failures import FencedGroups, guarded, report_pause
from server.groups.space.group import OWNER, WorkGroup, redefine
from server.spaces.space import HostedSpace

logger = logging.getLogger("dataspace")

REASON: Final = 500
"""Characters of the reason of a dead letter."""

WARNED: Final = 80
"""Percent of the limit of dead letters at which the log warns."""

MENDING: Final = "`dataspace groups retry NAME PATTERN` tries some again, `resume` goes on"

AT_ONCE: Final = 256
"""Dead letters that one turn makes undone again, in some 5 ms."""


def bury(hosted: HostedSpace, group: WorkGroup, item: Item, reason: str) -> bool:
    """Makes an item a dead letter; returns False if it cannot be one now.

    A group with ``limits.group_dead`` of them is paused, which the audit log says, and ``system``; the log
    warns of it before.
    """
    owner, most = OWNER + group.name, hosted.limits.group_dead
    try:
        if group.dead >= most:
            if not group.options.paused:
                why = f"{group.dead} dead letters, the limit is limits.group_dead={most}; {MENDING}"
                report_pause(hosted.name, group.name, why)
                redefine(hosted, group, replace(group.options, paused=why))
            return False
        details = (reason[:REASON], item.attempts, time_of(item.time), item.kind)
        fact = Record(DEAD, group.name, *item.at, item.value, *details)
        note = of_group(DONE, done_fields(group.name, [item.at]))
        hosted.commit(owner, [(ASSERT, hosted.space.fresh_handle(owner), fact)], notes=[note])
    except (Refused, LogFailed, Closed) as error:
        logger.warning("group %r: no dead letter for item %r: %s", group.name, item.at, error)
        return False
    group.dead += 1
    if group.dead == max(1, most * WARNED // 100) < most:
        logger.warning(
            "group %r of space %s has %d dead letters, and is paused at limits.group_dead=%d; %s",
            *(group.name, hosted.name, group.dead, most, MENDING),
        )
    group.core.counts.dead += 1
    group.core.finished(item)
    return True


def retrying(groups: FencedGroups, group: WorkGroup, match: Callable[[Value], Captures | None]) -> Steps[int]:
    """Makes dead letters undone again whose items match, with all their attempts; returns how many.

    It does so in steps, each with an epoch of its own, between which the group goes on.

    Letters of items that the group has still to read, after a ``seek``, go without a further item.
    """
    hosted, owner, count = groups.hosted, OWNER + group.name, 0
    letters: list[tuple[int, Record]] = []
    for at, (handle, fact) in enumerate(list(hosted.space.claims(owner).items())):
        if is_dead(fact) and match(fact.fields[3]) is not None:
            letters.append((handle, fact))
        if at % AT_ONCE == 0:
            yield
    most = max(1, min(AT_ONCE, hosted.space.limits.actions_per_turn))
    for start in range(0, len(letters), most):
        yield
        held = hosted.space.claims(owner)
        some = [each for each in letters[start : start + most] if each[0] in held]
        items = [_item_of(fact) for _, fact in some]
        again = [each for each in items if each.at <= group.state.read and each.at not in group.state.undone]
        note = of_group(UNDONE, (group.name, *[each.packed() for each in again]))
        with guarded(groups, group, "retry"):
            hosted.commit(owner, [(RETRACT, handle) for handle, _ in some], notes=[note])
            count += len(some)
            group.dead -= len(some)
            group.enter_again([each.at for each in again])
    return count


def _item_of(fact: Record) -> Item:
    fields: Any = fact.fields  # as ``bury`` has written them
    _, epoch, position, value, _, _, time, kind = fields
    at: At = (epoch, position)
    return Item.of_kind(at, micros_of(time), value, kind)
