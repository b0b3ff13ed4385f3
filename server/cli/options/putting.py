"""The options of the command put.

Always: loading this costs no more than argparse.
"""

from __future__ import annotations

import argparse

PUT = """\
examples:
  dataspace put 'config("billing", "rate", 7)' --durable operations
  dataspace put 'place("v1", 3, 4)' --key 'place("v1", _, _)' --durable map

FACT takes the place of what NAME asserts with the same key, in one epoch: no observer sees both, or none.
The key is all fields but the last, or what PATTERN matches. Each owner has one fact for each key.
"""


def add_put(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """Adds the command."""
    put = commands.add_parser(
        "put",
        parents=[client],
        help="assert a fact in place of the one with the same key",
        epilog=PUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    put.add_argument("fact", metavar="FACT", help='a record, such as \'config("billing", "rate", 7)\'')
    put.add_argument("--key", metavar="PATTERN", help="which facts it replaces; else all fields but the last")
    put.add_argument("--durable", "--owner", metavar="NAME", required=True, help="owner of the fact")
