"""Exporting: the changes of a pattern as a file that other programs read.

JSON lines as ``dataspace log read --json`` prints them, msgpack, or Parquet where pyarrow is installed.  The
changes come from a replay, so an observer of the pattern received the same ones.

Always: the changes are in the order of the log; memory is bounded however long the file is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, Final, NamedTuple

from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.steps import batched
from index.errors import UsageError
from index.patterns.patterns import capture_names
from index.patterns.skeletons import CheckKind, skeleton
from index.values.jsons import captures_json, to_json
from index.values.values import Value
from relay.log.cursors import Captures
from relay.log.reader import LogReader
from relay.log.replay import Replay

ROWS: Final = 65_536
"""Rows of one group in a Parquet file."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ExportedChange(NamedTuple):
    """One change: its epoch, the time of that in microseconds, its place in it, the kind, the captures."""

    epoch: int
    time: int
    sequence: int
    kind: str
    captures: Captures


def changes(
    log: LogReader, pattern: Value, after: int, upto: int, *, state: bool = False
) -> Iterator[ExportedChange]:
    """Yields the changes of (after, upto], and first, with ``state``, what held at ``after`` as additions.

    Raises as ``Replay``.
    """
    replay = Replay(log, pattern, after)
    if state:
        time = log.time_of(after)
        for at, row in enumerate(replay.bag()):
            yield ExportedChange(after, time, at, "+", row)
    for number, time, added, messages, removed in replay.epochs(upto):
        exported = (
            [("+", row) for row in added] + [("!", row) for row in messages] + [("-", row) for row in removed]
        )
        for at, (kind, row) in enumerate(exported):
            yield ExportedChange(number, time, at, kind, row)


def write_jsonl(exported: Iterator[ExportedChange], pattern: Value, file: BinaryIO) -> int:
    """Writes a JSON object and a line's end for each change; how many there were."""
    names, count = capture_names(pattern), 0
    for change in exported:
        line = {
            "epoch": change.epoch,
            "time": _time(change.time).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "change": change.kind,
            "captures": captures_json(names, change.captures),
        }
        file.write(json.dumps(line).encode() + b"\n")
        count += 1
    return count


def write_msgpack(exported: Iterator[ExportedChange], _pattern: Value, file: BinaryIO) -> int:
    """Writes ``[epoch, time, sequence, kind, [captures]]`` for each change, values as on the wire."""
    count = 0
    for each in exported:
        file.write(pack(tuple(each)))
        count += 1
    return count


def write_parquet(exported: Iterator[ExportedChange], pattern: Value, file: BinaryIO) -> int:
    """Writes the columns that Spark would see: the captures, then ``_change_type`` and so on.

    A capture of a class has the type of that, any other is text in JSON.  ``UsageError`` without pyarrow.
    """
    try:
        import pyarrow as arrow  # optional: needed for exports to Parquet only
        from pyarrow import parquet
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install pyarrow") from None
    types = {
        "bool": arrow.bool_(),
        "int": arrow.int64(),
        "float": arrow.float64(),
        "str": arrow.string(),
        "bytes": arrow.binary(),
        "time": arrow.timestamp("us", tz="UTC"),
    }
    names, classes = capture_names(pattern), _classes(pattern)
    columns = [(name, types.get(of, arrow.string())) for name, of in zip(names, classes, strict=True)]
    extra = [
        ("_change_type", arrow.string()),
        ("_epoch", arrow.int64()),
        ("_epoch_timestamp", arrow.timestamp("us", tz="UTC")),
        ("_seq", arrow.int32()),
    ]
    schema = arrow.schema([*columns, *extra])
    forms = [_plain if of in types else _text for of in classes]
    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        for rows in batched(exported, ROWS):
            count += len(rows)
            arrays: list[list[object]] = [
                [form(row.captures[at]) for row in rows] for at, form in enumerate(forms)
            ]
            arrays.append([_KINDS[row.kind] for row in rows])
            arrays.append([row.epoch for row in rows])
            arrays.append([_time(row.time) for row in rows])
            arrays.append([row.sequence for row in rows])
            try:
                writer.write_table(arrow.table(arrays, schema=schema))
            except (arrow.ArrowInvalid, OverflowError) as error:
                raise UsageError(f"epochs {rows[0].epoch} to {rows[-1].epoch} do not fit: {error}") from error
    return count


WRITERS: Final[dict[str, Callable[[Iterator[ExportedChange], Value, BinaryIO], int]]] = {
    "jsonl": write_jsonl,
    "msgpack": write_msgpack,
    "parquet": write_parquet,
}

_KINDS: Final = {"+": "insert", "!": "message", "-": "delete"}


def export(
    log: LogReader,
    pattern: Value,
    file: BinaryIO,
    form: str,
    *,
    since: int | None = None,
    until: int | None = None,
    state: bool = False,
) -> int:
    """Writes the changes of the epochs ``since`` to ``until``, or of all retained epochs; returns their
    number.

    A daemon may be writing the log meanwhile.  Raises ``Refused("epoch-gone")`` for epochs that are not
    retained, and ``UsageError`` for a range that ends before it begins.
    """
    if since is not None and until is not None and until < since:
        raise UsageError(f"the epochs {since} to {until} are none: the last is before the first")
    if until is not None and 0 < until < log.oldest:
        raise Refused("epoch-gone", f"the epochs up to {until} are gone, the oldest held is {log.oldest}")
    after = (log.oldest if since is None else max(1, since)) - 1
    upto = log.last if until is None else min(until, log.last)
    return WRITERS[form](changes(log, pattern, after, max(after, upto), state=state), pattern, file)


def _classes(pattern: Value) -> list[str]:
    """Returns the class that each capture is checked for, or nothing."""
    form = skeleton(pattern)
    checked = {check.path: str(check.argument) for check in form.checks if check.kind is CheckKind.CLASS}
    return [checked.get(path, "") for path in form.captures]


def _plain(value: Value) -> object:
    return value


def _text(value: Value) -> object:
    return json.dumps(to_json(value))


def _time(time: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time)
