"""The page of commands: what ``--help`` prints for each of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from unittest.mock import patch

from docs.reference.tables import table
from server.cli.parser import parser
from server.cli.table import ROWS

HEAD = """\
# Commands

What `--help` prints for each command. [SHELL](../guide/shell.md) shows them at work.
"""


def page() -> str:
    """Returns the page."""
    top = parser()
    with patch.dict(
        os.environ, {"COLUMNS": "100"}
    ):  # argparse lays its help out for a terminal of that width
        found = list(_all(top, "dataspace"))
        texts = [f"## {name}\n\n```text\n{each.format_help().rstrip()}\n```" for name, each in found]
    names = [(f"dataspace {row.name}", row.help) for row in ROWS if not row.verb]
    listed = table(("command", "it can"), [(f"[`{name}`](#{_anchor(name)})", help) for name, help in names])
    return "\n\n".join([HEAD + "\n" + listed, *texts]) + "\n"


def _all(made: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yields each command with its name, verbs of commands included."""
    yield name, made
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from _all(inner, f"{name} {word}")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")
