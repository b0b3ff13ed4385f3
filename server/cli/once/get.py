"""The command get: what matches a pattern, once."""

from __future__ import annotations

import argparse

from index.patterns.patterns import capture_names
from index.values.values import Record, Value
from server.cli.connecting import connect_short
from server.cli.once.rows import FACT, print_rows
from server.cli.output import counted, say
from server.cli.values import parsed


def get(args: argparse.Namespace) -> int:
    """Prints what matches now; the number of rows and the epoch to standard error."""
    pattern = parsed(args.pattern)
    names = capture_names(pattern)
    with connect_short(args) as space:
        state = space.state(pattern if names else _whole(pattern))
    print_rows(names or (FACT,), state.added, args.form, state.number)
    say(f"{counted(len(state.added), 'row' if names else 'fact')} at epoch {state.number}")
    return 0


def _whole(pattern: Value) -> Value:
    """Returns the pattern that captures all of what this one matches."""
    return Record("$", None, None, pattern)
