"""Spaces that are read as one: which there are, and how a checkpoint names them.

A space may be given by a pattern, such as ``plant-*``.  It is compared with the names that a daemon of each
store knows, once, when the query begins; a space that comes later is read from the next start of the query
on.

Always: a query reads each space once, and at least one.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

from dataspace.errors import UsageError
from dataspace.wire.features import MAIN
from index.values.values import Map
from relay.spark.common.connections import DaemonPeer, asked
from relay.spark.common.options import ReadOptions, StreamOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataspace.client.bulk.client import BulkClient

Options = TypeVar("Options", StreamOptions, ReadOptions)

WILD = "*?["
"""Characters that make a pattern of a name."""


def names_of(options: StreamOptions) -> list[str]:
    """Returns the names of the spaces in a checkpoint; no names without the option ``spaces``."""
    if not options.spaces:
        return []
    stores = {each.url for each in options.peers}
    return [each.space if len(stores) == 1 else f"{each.url} {each.space}" for each in options.peers]


def resolved(options: Options) -> Options:
    """Returns the options with the spaces that there are in place of patterns.

    Asks a daemon of each store, or its archive, where there is a pattern.  Raises ``UsageError`` where it
    finds nothing, and for epochs that are given by name.
    """
    if not any(char in name for name in options.spaces for char in WILD):
        return options
    found: list[DaemonPeer] = []
    for store in {each.url: each for each in options.peers}.values():
        if store.url:
            here = asked(replace(store, space=MAIN), options.connect_timeout, _spaces)
        else:
            from relay.spark.cold.archives import archived_spaces  # loaded where there is an archive

            here = archived_spaces(store)
        found += [replace(store, space=name) for name in _matching(options.spaces, here, store.shown)]
    if isinstance(options, StreamOptions):
        return replace(options, peers=tuple(found), starts=_for_all(options.starts, found))
    as_of = None if options.as_of is None else _for_all(options.as_of, found)
    return replace(
        options,
        peers=tuple(found),
        firsts=_for_all(options.firsts, found),
        lasts=_for_all(options.lasts, found),
        as_of=as_of,
    )


def _spaces(link: BulkClient) -> list[str]:
    """Returns the names of the spaces of a daemon."""
    status = link.request("status", {})
    spaces = status.get("spaces") if isinstance(status, Map) else None
    if not isinstance(spaces, Map):
        raise UsageError(
            "option spaces has a pattern, and the token may not inspect the daemon to find what it means: "
            "name the spaces"
        )
    return sorted([str(name) for name, _ in spaces.pairs()])


def _matching(patterns: Sequence[str], names: Sequence[str], url: str) -> list[str]:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(f"option spaces: no space {pattern!r} at {url}, there is {', '.join(names)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


T = TypeVar("T")


def _for_all(given: Sequence[T], peers: Sequence[DaemonPeer]) -> tuple[T, ...]:
    if any(each != given[0] for each in given):
        raise UsageError("option spaces has a pattern: give one epoch for all of its spaces")
    return (given[0],) * len(peers)


def source_name(options: StreamOptions) -> str:
    """Returns what a stream reads, for people: ``present($who) of main at tcp://127.0.0.1:7377``."""
    spaces = dict.fromkeys([peer.space for peer in options.peers])
    places = dict.fromkeys([peer.url or peer.archive for peer in options.peers])
    topic = f"topic {options.topic}, " if options.topic is not None else ""
    return f"{topic}{options.pattern} of {', '.join(spaces)} at {', '.join(places)}"
