"""The commands get and query: what matches a pattern, and what solves the body of a rule, in one epoch."""

from __future__ import annotations

import argparse
import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

from dataspace.kernel.epoch_changes import micros_of
from index.patterns.patterns import capture_names
from index.values.values import Record, Value
from server.cli.connecting import connect_short
from server.cli.once.rows import FACT, print_rows
from server.cli.output import counted, say
from server.cli.values import parsed

if TYPE_CHECKING:
    from dataspace.client.bulk.short import ShortClient

_AGGREGATE: Final = re.compile(r"\b(?:count|sum|avg|min|max|collect|top)\(")


def get(args: argparse.Namespace) -> int:
    """Prints what matches; the number of rows and the epoch to standard error."""
    pattern = parsed(args.pattern)
    names = capture_names(pattern)
    with connect_short(args) as space:
        state = space.state(pattern if names else _whole(pattern), _epoch(space, args))
    print_rows(names or (FACT,), state.added, args.form, state.number)
    say(f"{counted(len(state.added), 'row' if names else 'fact')} at epoch {state.number}")
    return 0


def query(args: argparse.Namespace) -> int:
    """Prints the rows of a query; their number and the epoch to standard error."""
    import logging

    logging.getLogger("dataspace").addHandler(logging.NullHandler())  # what is wrong is raised as well
    if "<-" not in args.body and (found := _AGGREGATE.search(args.body)):
        say(
            f"dataspace: {found[0]}…) is read as a fact here; an aggregate stands in a head, as in "
            "'n(count($x)) <- a($x)'"
        )
    with connect_short(args) as space:
        rows = space.query(args.body, {}, as_of=_epoch(space, args))
    print_rows(rows.names, rows, args.form, rows.epoch)
    say(f"{counted(len(rows), 'row')} at epoch {rows.epoch}")
    return 0


def _epoch(space: ShortClient, args: argparse.Namespace) -> int | None:
    """Returns the epoch of ``--as-of``, which may be a time; None for now."""
    moment: int | datetime | None = args.as_of
    return space.epoch_at(micros_of(moment)) if isinstance(moment, datetime) else moment


def _whole(pattern: Value) -> Value:
    """Returns the pattern that captures all of what this one matches."""
    return Record("$", None, None, pattern)
