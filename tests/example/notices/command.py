"""``dataspace notice TEXT``: puts up a notice."""

from __future__ import annotations

import argparse

from server.cli.connecting import connect_short


def notice(args: argparse.Namespace) -> int:
    """Puts it up at the daemon that the command names."""
    with connect_short(args, here=True) as space:
        space.request("notice", {"text": args.text})
    return 0
