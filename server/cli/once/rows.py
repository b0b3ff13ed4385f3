"""Rows of values for a shell: as text, as JSON lines, as a table, as comma-separated values.

Always: all that is printed comes from one epoch; what facts hold cannot control a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from index.patterns.text import unparse
from index.values.jsons import captures_json
from index.values.values import Value
from server.cli.output import json_line, tame

FACT: Final = "fact"
"""The column of a pattern that captures nothing."""

WIDEST: Final = 60
"""Characters of a cell in a table on a terminal."""


def print_rows(names: Sequence[str], rows: Sequence[Sequence[Value]], form: str, epoch: int) -> None:
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
    return " ".join(
        unparse(value) if name.isdigit() or name == FACT else f"{name}={unparse(value)}"
        for name, value in zip(names, row, strict=True)
    )


def _print_csv(names: Sequence[str], rows: Iterable[Sequence[Value]]) -> None:
    import csv

    plain = (lambda text: text) if not sys.stdout.isatty() else tame
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(plain, names))
    writer.writerows([plain(_cell(value)) for value in row] for row in rows)


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
