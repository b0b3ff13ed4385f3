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
    from server.cluster.overview import SpaceSeen


def cluster_status(args: argparse.Namespace) -> int:
    """Prints the daemons of a store, its spaces and its durability; returns 1 if a space has no leader."""
    from server.cluster.reading import seen  # psycopg is loaded where it is used

    members, spaces, durability = seen(_address(args))
    if args.json:
        write(
            json_line(
                {
                    "members": [each._asdict() for each in members if each.left > 0],
                    "spaces": [each._asdict() for each in spaces],
                    "durability": durability.words,
                }
            )
        )
    else:
        living = [each for each in members if each.left > 0]
        versions = {each.version for each in living}
        differ = len({(each.version, each.settings) for each in living}) > len(versions)
        for member in living:
            settings = f", settings {member.settings[:8]} differ" if differ else ""
            left = f"{member.left:.1f} s{settings}"
            write(f"daemon {member.name}  {member.url}  version {member.version}, lease {left}")
        for each in spaces:
            if each.left > 0:
                since = time_text(datetime.fromtimestamp(each.since, UTC))
                write(
                    f"space {each.space}  led by {each.leader} since {since}, term {each.term}{_after(each)}"
                )
            else:
                write(f"space {each.space}  no leader since term {each.term}")
        write(f"durability: {durability.words}")
    return 0 if all(each.left > 0 for each in spaces) else 1


def _after(space: SpaceSeen) -> str:
    """Returns after which leader a daemon leads a space, and why; nothing of the first one."""
    return f", after {space.before} ({space.why})" if space.before and space.why else ""


def cluster_move(args: argparse.Namespace) -> int:
    """Has a daemon lead a space in place of its leader; returns 0 once it does."""
    from server.cluster.reading import move  # as above

    found = move(_address(args), args.space, args.daemon, patience=duration(args.within))
    write(f"space {found.space}  led by {found.leader} at {found.url}, term {found.term}")
    return 0


def _address(args: argparse.Namespace) -> StoreAddress:
    if not isinstance(args.data, str):
        raise UsageError("the address of a store is needed: --data postgresql://HOST/DB?schema=NAME")
    return StoreAddress.parse(args.data)
