"""The commands get and query: what matches a pattern, and what solves the body of a rule, in one epoch.

Rows are printed as text, as JSON lines, as a table or as comma-separated values.

Always: all printed rows come from one epoch; values of facts cannot control a terminal.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from dataspace.errors import Refused
from dataspace.foreign import tame
from dataspace.kernel.changes import micros_of
from index.patterns.patterns import capture_names
from index.patterns.text import unparse
from index.values.jsons import captures_json
from index.values.values import Map, Record, Value
from server.cli.connecting import CommandSpace, connect_short
from server.cli.output import captures_text, counted, json_line, say
from server.cli.values import parsed

if TYPE_CHECKING:
    from dataspace.client.query.rows import Rows

_AGGREGATE: Final = re.compile(r"\b(?:count|sum|avg|stddev|min|max|percentile|first|last|collect|top)\(")


FACT: Final = "fact"
"""The column of a pattern that captures nothing."""

WIDEST: Final = 60
"""Characters of a cell in a table on a terminal."""


def get(args: argparse.Namespace) -> int:
    """Prints what matches; the number of rows and the epoch to standard error."""
    pattern = parsed(args.pattern)
    names = capture_names(pattern)
    with connect_short(args, reads=True) as space:
        state = space.state(pattern if names else _whole(pattern), _epoch(space, args))
    _print_rows(names or (FACT,), state.added, args.form, state.number)
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
    with connect_short(args, reads=True) as space:
        rows = answer(space, args.body, _epoch(space, args))
    _print_rows(rows.names, rows, args.form, rows.epoch)
    say(f"{counted(len(rows), 'row')} at epoch {rows.epoch}")
    return 0


def answer(space: CommandSpace, body: str, as_of: int | None) -> Rows:
    """Returns the rows of a query, as ``RemoteSpace.query`` does."""
    from dataspace.client.query.questions import answered, looking, question  # they load the rules

    asked = question(body, {})
    steps = looking(asked, as_of)
    look = next(steps)
    try:
        while True:
            state = space.state(look.pattern, look.as_of)
            look = steps.send((state.number, state.added))
    except StopIteration as end:
        return answered(asked, *end.value)


def _epoch(space: CommandSpace, args: argparse.Namespace) -> int | None:
    """Returns the epoch of ``--as-of``, which may be a time; None for now."""
    moment: int | datetime | None = args.as_of
    if not isinstance(moment, datetime):
        return moment
    answer = space.request("frontier", {"at": micros_of(moment)})
    if not isinstance(answer, Map) or not isinstance(at := answer.get("at"), int):
        raise Refused("unknown-verb", "this daemon finds no epochs by time: name an epoch")
    return at


def _whole(pattern: Value) -> Value:
    """Returns the pattern that captures all of what this one matches."""
    return Record("$", None, None, pattern)


# -- rows ----------------------------------------------------------------------------------------------


def _print_rows(names: Sequence[str], rows: Sequence[Sequence[Value]], form: str, epoch: int) -> None:
    """Prints rows, whose columns have these names, in one of the four forms."""
    write = sys.stdout.write
    if form == "json":
        for row in rows:
            write(json_line({"epoch": epoch, "captures": captures_json(tuple(names), tuple(row))}) + "\n")
    elif form == "csv":
        _print_csv(names, rows)
    elif form == "table":
        for line in _table(names, rows):
            write(line + "\n")
    else:
        for row in rows:
            write(_text(names, row) + "\n")
    sys.stdout.flush()


def _text(names: Sequence[str], row: Sequence[Value]) -> str:
    """Returns a row as ``observe`` has it; a row without columns says that there is one."""
    if not names:
        return "true"
    places = ["0" if name == FACT else name for name in names]  # a whole fact stands without a name
    return captures_text(zip(places, row, strict=True))


def _print_csv(names: Sequence[str], rows: Iterable[Sequence[Value]]) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(tame, names))
    writer.writerows([tame(_cell(value)) for value in row] for row in rows)


def _table(names: Sequence[str], rows: Sequence[Sequence[Value]]) -> Iterable[str]:
    """Yields the lines of a table: numbers to the right, all else to the left."""
    most = WIDEST if sys.stdout.isatty() else sys.maxsize
    cells = [[_cut(tame(_cell(value)), most) for value in row] for row in rows]
    widths = [max([len(name), *[len(row[at]) for row in cells]]) for at, name in enumerate(names)]
    right = [bool(rows) and all(type(row[at]) in (int, float) for row in rows) for at, _ in enumerate(names)]
    for line in (list(names), ["-" * width for width in widths], *cells):
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        yield "  ".join(padded).rstrip()


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cell(value: Value) -> str:
    """Returns a value for a column: text as it is, all else as in patterns."""
    return value if isinstance(value, str) else unparse(value)
