"""Relimiting: limits, quotas and retention that a reload changes are taken by what holds them.

Always: existing state stays, even if it is beyond a new limit: it only cannot grow; open connections keep the
limits of one connection that they began with; a limit that cannot be taken keeps its old value and is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from server.sessions.memory import memory_limit, waiting_limit

if TYPE_CHECKING:
    from dataspace.kernel.limits import SpaceLimits
    from server.config.model import Config, Limits
    from server.daemon.daemon import Daemon

LATER: Final = frozenset(["identities", "name_bytes", "all_replays", "staged_seconds"])
"""Limits of the daemon that are a part of how something is kept."""

LATER_OF_SPACE: Final = frozenset(
    [
        "rules",
        "derived_per_turn",
        "derived_bytes_per_turn",
        "derived_bytes",
        "derive_work",
        "derive_work_per_action",
        "rule_reads",
    ]
)
"""Limits of a space that its rules are compiled and run with."""

Kind = TypeVar("Kind", "Limits", "SpaceLimits")


def take_limits(daemon: Daemon, config: Config) -> tuple[Config, list[str]]:
    """Takes the limits, quotas and retention of a configuration; O(spaces + principals).

    Returns the configuration that holds now, in these, and the names of limits that need a restart.
    """
    before = daemon.config
    limits, later = _taken(before.limits, config.limits, LATER, "limits")
    daemon.limits = limits
    daemon.memory.limit = memory_limit(limits.memory)
    daemon.delivery.room.limit = waiting_limit(limits.waiting_bytes, daemon.memory.limit)
    daemon.topics.relimit(retained=limits.retained_bytes)
    daemon.accounts.give_quotas(config.quotas_of_tokens(), config.quotas)
    main, more = _taken(before.space_limits, config.space_limits, LATER_OF_SPACE, "limits")
    later += more
    wanted = {each.name: each for each in config.all_spaces()}
    spaces = []
    for each in before.spaces:
        if (now := wanted.get(each.name)) is None:
            spaces.append(each)
            continue
        its, more = _taken(each.limits, now.limits, LATER_OF_SPACE, f"spaces.{each.name}.limits")
        later += [name for name in more if f"limits.{name.rpartition('.')[2]}" not in later]
        spaces.append(replace(each, limits=its, retention=now.retention))
    taken = replace(
        before,
        limits=limits,
        space_limits=main,
        quotas=config.quotas,
        retention=config.retention,
        spaces=tuple(spaces),
    )
    for each in taken.all_spaces():
        daemon.spaces[each.name].relimit(limits, each.limits, each.retention)
    return taken, later


def _taken(before: Kind, wanted: Kind, later: frozenset[str], group: str) -> tuple[Kind, list[str]]:
    """Returns limits with what of the wanted ones can be taken, and the names of the others that differ."""
    kept: dict[str, Any] = {name: getattr(before, name) for name in later}
    return replace(wanted, **kept), [
        f"{group}.{name}" for name in _different(before, wanted) if name in later
    ]


def _different(one: Kind, other: Kind) -> Iterator[str]:
    for each in fields(one):
        if getattr(one, each.name) != getattr(other, each.name):
            yield each.name
