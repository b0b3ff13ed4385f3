"""The commands ``dataspace cluster``: the daemons of a store, which lead its spaces, and its durability."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dataspace.errors import UsageError
from relay.store.address import StoreAddress
from server.cli.output import json_line, time_text, write
from server.config.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from server.cluster.database.cluster_state import MemberSeen, SpaceSeen


def cluster_status(args: argparse.Namespace) -> int:
    """Prints the daemons of a store, its spaces and its durability; returns 1 if a space has no leader.

    A daemon that was killed is shown as gone until it is back, for a day.
    """
    from server.cluster.database.cluster_state import latest_of
    from server.cluster.database.reading import seen  # psycopg is loaded where it is used

    members, spaces, durability = seen(_address(args))
    living = [each for each in latest_of(members) if each.left > 0]
    gone = [each for each in latest_of(members) if each.left <= 0]
    commands = [each for each in members if each.left > 0 and not each.url]
    if args.json:
        write(
            json_line(
                {
                    "members": [each._asdict() for each in living],
                    "gone": [each._asdict() for each in gone],
                    "commands": [each._asdict() for each in commands],
                    "spaces": [each._asdict() for each in spaces],
                    "durability": durability.words,
                }
            )
        )
    else:
        for line in _daemons(living):
            write(line)
        for each in gone:
            write(f"daemon {each.name}  {each.url}  version {each.version}, gone since {_time(each.until)}")
        for each in commands:
            write(f"{each.name}  without an address for clients, lease {each.left:.1f} s")
        for space in spaces:
            write(_leader(space))
        write(f"durability: {durability.words}")
    return 0 if all(each.left > 0 for each in spaces) else 1


def _daemons(living: Sequence[MemberSeen]) -> Iterator[str]:
    """Yields a line for each daemon whose lease lasts; with its settings if daemons of one version differ."""
    versions = {each.version for each in living}
    differ = len({(each.version, each.settings) for each in living}) > len(versions)
    for each in living:
        settings = f", settings {each.settings[:8]} differ" if differ else ""
        yield f"daemon {each.name}  {each.url}  version {each.version}, lease {each.left:.1f} s{settings}"


def _leader(space: SpaceSeen) -> str:
    """Returns the line for a space."""
    if space.left <= 0:
        return f"space {space.space}  no leader since term {space.term}"
    since = _time(space.since)
    return f"space {space.space}  led by {space.leader} since {since}, term {space.term}{_after(space)}"


def _time(seconds: float) -> str:
    return time_text(datetime.fromtimestamp(seconds, UTC))


def _after(space: SpaceSeen) -> str:
    """Returns after which leader a daemon leads a space, and why; nothing of the first one."""
    return f", after {space.before} ({space.why})" if space.before and space.why else ""


def cluster_move(args: argparse.Namespace) -> int:
    """Moves a space to another daemon; returns 0 once that leads it."""
    from server.cluster.database.reading import move  # as above

    found = move(_address(args), args.space, args.daemon, patience=duration(args.within))
    write(f"space {found.space}  led by {found.leader} at {found.url}, term {found.term}")
    return 0


def _address(args: argparse.Namespace) -> StoreAddress:
    if not isinstance(args.data, str):
        raise UsageError("the address of a store is needed: --data postgresql://HOST/DB?schema=NAME")
    return StoreAddress.parse(args.data)
