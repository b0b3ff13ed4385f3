"""``dataspace log PATTERN --who``: past changes, each with its owners and where its turn came from."""

from __future__ import annotations

import argparse

from dataspace.client.space import RemoteSpace
from dataspace.kernel.epoch_changes import time_of
from index.patterns.patterns import capture_names
from index.patterns.text import unparse
from index.values.jsons import captures_json
from index.values.values import Map, Value
from server.cli.output import json_line, tame, time_text


async def print_attributed(
    space: RemoteSpace, pattern: Value, after: int, upto: int, args: argparse.Namespace
) -> None:
    """Prints the changes in (after, upto], a page at a time, ``--count`` at most."""
    names, left = capture_names(pattern), args.count
    while after < upto and left != 0:
        most = 1_000 if left is None else min(left, 1_000)
        asked = {"pattern": pattern, "after": after, "upto": upto, "most": most}
        page = await space.request("who", Map(asked))
        assert isinstance(page, Map) and isinstance(page["changes"], tuple)  # by WIRE.md
        for change in page["changes"][:left]:
            assert isinstance(change, Map)  # as above
            print(_json(names, change) if args.json else _line(names, change))
        left = None if left is None else max(0, left - len(page["changes"]))
        assert isinstance(page["upto"], int) and page["upto"] > after  # as above
        after = page["upto"]


def _json(names: tuple[str, ...], change: Map) -> str:
    captures, epoch_time = change["captures"], change["time"]
    assert isinstance(captures, tuple) and isinstance(epoch_time, int)  # by WIRE.md
    told: dict[str, object] = {str(name): value for name, value in change.pairs()}
    return json_line(
        told | {"time": time_text(time_of(epoch_time)), "captures": captures_json(names, captures)}
    )


def _line(names: tuple[str, ...], change: Map) -> str:
    captures, owners = change["captures"], change["owners"]
    assert isinstance(captures, tuple) and isinstance(owners, tuple)  # by WIRE.md
    shown = [
        unparse(value) if name.isdigit() else f"{name}={unparse(value)}"
        for name, value in zip(names, captures, strict=True)
    ]
    about = [f"owner={', '.join(map(str, owners))}"] if owners else []
    about += [
        f"{name}={change[name]!s}" for name in ("client", "name", "principal", "address") if change[name]
    ]
    what = f"{change['epoch']!r} {change['change']!s} {' '.join(shown)}".rstrip()
    return tame("  ".join([what, *about]))
