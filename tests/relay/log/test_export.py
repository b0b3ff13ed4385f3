"""What is exported is what an observer was told, in every format, and its values can be read back."""

from __future__ import annotations

import io
import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from dataspace.codec import unpack
from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.kernel.changes import Epoch
from index.errors import UsageError
from index.patterns.text import parse_pattern
from index.values.jsons import from_json
from index.values.values import Map, Record, Value
from relay.export import export
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.retention import Retention
from relay.log.segments import encode
from tests.relay.log.histories import lived

pytestmark = pytest.mark.usefixtures("home")

TIME = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
ROWS: list[tuple[Value, ...]] = [
    (1, 2.5, "é", b"\0", TIME, True, Map({"k": (1, None)})),
    (-(2**63), float("inf"), "", b"", TIME, False, Record("r", 2**70)),
]
PATTERN = "row($i:int, $f:float, $s:str, $b:bytes, $t:time, $o:bool, $v)"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log in which two rows came, a third was said, and the first went."""
    first, second = (Record("row", *row) for row in ROWS)
    log = Log.open(tmp_path)
    turns: list[tuple[str, list[tuple[Value, ...]]]] = [
        ("durable:a", [(ASSERT, 1, first)]),
        ("durable:a", [(ASSERT, 2, second), (ASSERT, 3, "other"), (SEND, first), (RETRACT, 1)]),
    ]
    log.append([encode(each) for each in lived(turns, [])[1]])
    log.close()
    return tmp_path


EXPECTED = [(1, 0, "+", ROWS[0]), (2, 0, "+", ROWS[1]), (2, 1, "!", ROWS[0]), (2, 2, "-", ROWS[0])]


def exported(directory: Path, form: str, pattern: str = PATTERN, **more: int | bool) -> bytes:
    file = io.BytesIO()
    with closing(LogReader.open(directory)) as log:
        export(log, parse_pattern(pattern), file, form, **more)  # type: ignore[arg-type]  # as named there
    return file.getvalue()


def test_json_lines(directory: Path) -> None:
    lines = [json.loads(line) for line in exported(directory, "jsonl").splitlines()]
    assert lines[0]["captures"]["s"] == "é"
    assert lines[0]["time"] == "1970-01-01T00:00:00.000100Z"
    told = [
        (line["epoch"], line["change"], tuple(map(from_json, line["captures"].values()))) for line in lines
    ]
    assert told == [(epoch, kind, row) for epoch, _, kind, row in EXPECTED]


def test_msgpack(directory: Path) -> None:
    whole, told = exported(directory, "msgpack"), []
    import msgpack  # only to cut the stream, as anybody would

    cutter = msgpack.Unpacker(io.BytesIO(whole), strict_map_key=False)
    start = 0
    while start < len(whole):
        cutter.skip()
        value = unpack(whole[start : cutter.tell()])
        start = cutter.tell()
        assert isinstance(value, tuple)
        told.append((value[0], value[2], value[3], value[4]))
    assert told == EXPECTED


def test_parquet(directory: Path) -> None:
    table = parquet.read_table(io.BytesIO(exported(directory, "parquet")))
    types = {name: str(kind) for name, kind in zip(table.schema.names, table.schema.types, strict=True)}
    assert types == {
        "i": "int64",
        "f": "double",
        "s": "string",
        "b": "binary",
        "t": "timestamp[us, tz=UTC]",
        "o": "bool",
        "v": "string",
        "_change_type": "string",
        "_epoch": "int64",
        "_epoch_timestamp": "timestamp[us, tz=UTC]",
        "_seq": "int32",
    }
    rows = table.to_pylist()
    kinds = {"insert": "+", "message": "!", "delete": "-"}
    told = [
        (
            row["_epoch"],
            row["_seq"],
            kinds[row["_change_type"]],
            (*(row[name] for name in "ifsbto"), from_json(json.loads(row["v"]))),
        )
        for row in rows
    ]
    assert told == EXPECTED


def test_what_does_not_fit_a_column_is_said(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([encode(each) for each in lived([("durable:a", [(ASSERT, 1, Record("big", 2**64))])], [])[1]])
    log.close()
    with pytest.raises(UsageError, match="epochs 1 to 1 do not fit"):
        exported(tmp_path, "parquet", "big($n:int)")


def test_a_part_and_the_state_before_it(directory: Path) -> None:
    whole = exported(directory, "jsonl", "row($i, _, _, _, _, _, _)", since=2, until=2, state=True)
    lines = whole.splitlines()
    told = [(json.loads(line)["epoch"], json.loads(line)["change"]) for line in lines]
    assert told == [(1, "+"), (2, "+"), (2, "!"), (2, "-")]
    assert exported(directory, "jsonl", since=3) == b""


def test_a_range_of_epochs_in_which_nothing_can_be_is_refused(directory: Path) -> None:
    with pytest.raises(UsageError, match="the epochs 5 to 2 are none"):
        exported(directory, "jsonl", since=5, until=2)
    assert exported(directory, "jsonl", since=2, until=2)


def test_epochs_that_are_all_gone_are_refused(directory: Path) -> None:
    log = Log.open(directory)
    log.recover(snapshot=True)
    log.append([encode(Epoch(3, 30, added=["more"]))])
    while log.trim(Retention(age=0.0), 1 << 60).more:
        pass
    oldest = log.oldest
    log.close()
    assert oldest > 1
    with pytest.raises(Refused, match="the epochs up to 1 are gone, the oldest held is"):
        exported(directory, "jsonl", until=1)
