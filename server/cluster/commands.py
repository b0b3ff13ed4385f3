"""The commands ``dataspace cluster``: the daemons of a store, which lead its spaces, and its durability."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from math import inf
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from dataspace.errors import Broken, Refused, Unreachable, UsageError
from index.values.values import Map
from relay.store.address import StoreAddress
from relay.store.errors import LogAway
from server.cli.connecting import connect_short
from server.cli.output import json_line, time_text, write
from server.config.units import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from server.cluster.database.cluster_state import MemberSeen, SpaceSeen


LOOK, DRAIN, RESUME = "look", "drain", "resume"
"""What is asked about a daemon (``cluster`` in WIRE.md)."""

PAUSE_SECONDS: Final = 2.0
"""Seconds for which it waits for the pause of a space, which a leader of an earlier version does not say."""

LOOK_SECONDS: Final = 0.1
"""Seconds between two questions how far a daemon has handed over."""


def cluster_status(args: argparse.Namespace) -> int:
    """Prints the daemons of a store, its spaces and its durability; returns 1 if a space has no leader.

    A daemon that has left or was killed is shown until it is back, for a day.
    """
    from server.cluster.database.reading import seen  # psycopg is loaded where it is used

    members, daemons, spaces, level, durability, connections, allowed = seen(_address(args))
    living = [each for each in daemons if each.left > 0]
    gone = [each for each in daemons if each.left <= 0]
    commands = [each for each in members if each.left > 0 and not each.url]
    if args.json:
        write(
            json_line(
                {
                    "members": [each._asdict() for each in living],
                    "gone": [each._asdict() for each in gone],
                    "commands": [each._asdict() for each in commands],
                    "spaces": [each._asdict() for each in spaces],
                    "level": level,
                    "durability": durability.words,
                    "connections": connections,
                    "connections_allowed": allowed,
                }
            )
        )
    else:
        for line in _daemons(living):
            write(line)
        for each in gone:
            ended = "left" if each.is_left else "gone since" if each.until else "gone"
            at = f" {_time(each.until)}" if each.until else ""
            write(f"daemon {each.name}  {each.url}  version {each.version}, {ended}{at}{_drained(each)}")
        for each in commands:
            write(f"{each.name}  without an address for clients, lease {each.left:.1f} s")
        for space in spaces:
            write(_leader(space))
        known = min([each.level for each in living], default=level)
        more = f", all daemons know level {known}: dataspace cluster upgrade" if known > level else ""
        write(f"features: level {level}{more}")
        held = ", ".join([f"{name} {number}" for name, number in connections.items()])
        write(f"connections: {held or 'none seen'}; the database allows {allowed} in all")
        write(f"durability: {durability.words}")
    return 0 if all(each.left > 0 for each in spaces) else 1


def _daemons(living: Sequence[MemberSeen]) -> Iterator[str]:
    """Yields a line for each daemon whose lease lasts; with its settings if daemons of one version differ."""
    versions = {each.version for each in living}
    differ = len({(each.version, each.settings) for each in living}) > len(versions)
    for each in living:
        said = [f"version {each.version}", f"lease {each.left:.1f} s"]
        if differ:
            said.append(f"settings {each.settings[:8]} differ")
        if each.clients is not None:
            said.append(f"{each.clients} clients")
        yield f"daemon {each.name}  {each.url}  {', '.join([*said, *_lags(each)])}{_drained(each)}"


def _lags(member: MemberSeen) -> Iterator[str]:
    """Yields how far a daemon is behind, for each space where it is, and one word where it is nowhere."""
    if member.lag is None:
        yield "lag not known"
        return
    behind = {space: lag for space, lag in member.lag.items() if any(lag)}
    for space, (epochs, milliseconds) in behind.items():
        yield f"{epochs} epochs and {milliseconds} ms behind in {space}"
    if member.lag and not behind:
        yield "not behind"


def _drained(member: MemberSeen) -> str:
    return "" if member.drained is None else f", drained since {_time(member.drained)}"


def _leader(space: SpaceSeen) -> str:
    """Returns the line for a space."""
    if space.left <= 0:
        return f"space {space.space}  no leader since term {space.term}"
    since = _time(space.since)
    return (
        f"space {space.space}  led by {space.leader} since {since}, term {space.term}"
        f"{_after(space)}{_pause(space.pause)}"
    )


def _time(seconds: float) -> str:
    return time_text(datetime.fromtimestamp(seconds, UTC))


def _after(space: SpaceSeen) -> str:
    """Returns after which leader a daemon leads a space, and why; nothing of the first one."""
    return f", after {space.before} ({space.why})" if space.before and space.why else ""


def _pause(seconds: float | None) -> str:
    """Returns for how long no turn was possible before a term, where that is known."""
    return "" if seconds is None else f", {seconds:.3f} s without turns"


def cluster_move(args: argparse.Namespace) -> int:
    """Moves a space to another daemon; returns 0 once that leads it."""
    from server.cluster.database.reading import move  # as above

    found = move(_address(args), args.space, args.daemon, patience=duration(args.within))
    write(
        f"space {found.space}  led by {found.leader} at {found.url}, term {found.term}{_pause(found.pause)}"
    )
    return 0


def cluster_drain(args: argparse.Namespace) -> int:
    """Drains a daemon, and prints each space once another one leads it; returns 0 once it leads none."""
    with _asking(args) as ask:
        role = ask(DRAIN)
        assert role is not None  # else it was raised why not
        write(f"{args.daemon} is drained" + ("" if role["changed"] else " already"))
        moving, until = dict.fromkeys(_names(role), inf), monotonic() + duration(args.within)
        while True:
            for space in [each for each in moving if each in _led(role)]:
                leader, term, pause = _led(role)[space]
                moving[space] = min(moving[space], monotonic() + PAUSE_SECONDS)
                if pause is not None or monotonic() > moving[space]:
                    write(f"space {space}  led by {leader}, term {term}{_pause(pause)}")
                    del moving[space]
            moving |= dict.fromkeys(_names(role), inf)
            if not moving:
                return 0
            if monotonic() > until:
                raise Unreachable(
                    f"{args.daemon} stays drained, but within {args.within} no other daemon leads"
                    f" {', '.join(moving)}: look at `cluster status`, or `cluster resume {args.daemon}`"
                )
            sleep(LOOK_SECONDS)
            role = ask(LOOK, patient=True) or role


def cluster_resume(args: argparse.Namespace) -> int:
    """Has a drained daemon lead again."""
    with _asking(args) as ask:
        role = ask(RESUME)
        assert role is not None  # as above
        write(f"{args.daemon} may lead" + ("" if role["changed"] else ", and was not drained"))
    return 0


def _names(role: Map) -> tuple[str, ...]:
    """Returns the spaces that a daemon leads."""
    names: Any = role["leads"]
    return tuple(names)


def _led(role: Map) -> dict[str, Any]:
    """Returns leader, term and pause of each space that another daemon leads."""
    leaders: Any = role["leaders"]
    return dict(leaders.pairs())


@contextmanager
def _asking(args: argparse.Namespace) -> Iterator[Callable[..., Map | None]]:
    """Lends what asks a store, or else any daemon of it, about a daemon.

    A ``patient`` question returns None where no daemon answers it just now: the one that is asked may be the
    one that hands over.
    """
    if args.data is not None:
        from server.cluster.database.drained import asking  # psycopg is loaded where it is used

        with asking(_address(args), args.daemon) as ask:
            yield lambda do, patient=False: _patiently(partial(ask, do), patient)
        return

    def asked(do: str) -> Map:
        with connect_short(args, here=True) as space:
            answer = space.request("cluster", {"name": args.daemon, "do": do})
        assert isinstance(answer, Map)  # by WIRE.md
        return answer

    yield lambda do, patient=False: _patiently(partial(asked, do), patient)


def _patiently(ask: Callable[[], Map], patient: bool) -> Map | None:
    try:
        return ask()
    except (Unreachable, Broken, LogAway, Refused) as failure:
        if not patient or (isinstance(failure, Refused) and failure.code != "store-away"):
            raise
    return None


def cluster_upgrade(args: argparse.Namespace) -> int:
    """Raises the level of features of a store, once all of its daemons know the latest."""
    from server.cluster.database.reading import upgrade  # as above

    write(f"features: level {upgrade(_address(args))}")
    return 0


def _address(args: argparse.Namespace) -> StoreAddress:
    if not isinstance(args.data, str):
        raise UsageError("the address of a store is needed: --data postgresql://HOST/DB?schema=NAME")
    return StoreAddress.parse(args.data)
