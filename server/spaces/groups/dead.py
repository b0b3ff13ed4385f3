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
from index.patterns.events import Captures
from index.values.values import Record, Value
from relay.groups.state import DEAD, DONE, UNDONE, At, Item, done_fields, is_dead
from relay.log.notes import of_group
from relay.store.errors import LogFailed
from server.spaces.groups.group import OWNER, GroupSpace, WorkGroup, redefine

logger = logging.getLogger("dataspace")

REASON: Final = 500
"""Characters of the reason of a dead letter."""

AT_ONCE: Final = 4_096
"""Dead letters that one turn makes undone again."""


def bury(hosted: GroupSpace, group: WorkGroup, item: Item, reason: str) -> bool:
    """Makes an item a dead letter; returns False if it cannot be one now.

    A group with ``limits.group_dead`` of them is paused.
    """
    owner, most = OWNER + group.name, hosted.limits.group_dead
    try:
        if group.dead >= most:
            if not group.options.paused:
                why = f"{group.dead} dead letters, the limit is limits.group_dead={most}"
                logger.error("group %r of space %s is paused: %s", group.name, hosted.name, why)
                redefine(hosted, group, replace(group.options, paused=why))
            return False
        said = (reason[:REASON], item.attempts, time_of(item.time), item.kind)
        fact = Record(DEAD, group.name, *item.at, item.value, *said)
        note = of_group(DONE, done_fields(group.name, [item.at]))
        hosted.commit(owner, [(ASSERT, hosted.space.fresh_handle(owner), fact)], notes=[note])
    except (Refused, LogFailed, Closed) as error:
        logger.warning("group %r: no dead letter for item %r: %s", group.name, item.at, error)
        return False
    group.dead += 1
    group.core.counts.dead += 1
    group.core.finished(item)
    return True


def retry(hosted: GroupSpace, group: WorkGroup, match: Callable[[Value], Captures | None]) -> int:
    """Makes dead letters undone again whose items match, with all their attempts; returns how many.

    Letters of items that the group has still to read, after a ``seek``, go without a further item.
    """
    owner, count = OWNER + group.name, 0
    claims = hosted.space.claims(owner).items()
    letters = [
        (handle, fact) for handle, fact in claims if is_dead(fact) and match(fact.fields[3]) is not None
    ]
    for start in range(0, len(letters), AT_ONCE):
        some = letters[start : start + AT_ONCE]
        items = [_item_of(fact) for _, fact in some]
        again = [each for each in items if each.at <= group.state.read and each.at not in group.state.undone]
        note = of_group(UNDONE, (group.name, *[each.packed() for each in again]))
        hosted.commit(owner, [(RETRACT, handle) for handle, _ in some], notes=[note])
        group.dead -= len(some)
        group.enter_again([each.at for each in again])
        count += len(some)
    return count


def _item_of(fact: Record) -> Item:
    fields: Any = fact.fields  # as ``bury`` has written them
    _, epoch, position, value, _, _, time, kind = fields
    at: At = (epoch, position)
    return Item.of_kind(at, micros_of(time), value, kind)
