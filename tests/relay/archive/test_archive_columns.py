"""Columns have every change of their range, exactly, and are what Parquet's readers expect."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from dataspace.kernel.changes import Epoch
from index.values.values import Map, Record, Value, key
from relay.archive import columns as making
from relay.archive.columns import columns_of, exact_changes
from relay.log.segments import Segment, cut, encode
from tests.relay.archive.histories import ArchivedLog
from tests.strategies import values

parquet: Any = pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

Change = tuple[int, int, int, str, Value]


def segments_of(turns: Sequence[tuple[Sequence[Value], Sequence[Value], Sequence[Value]]]) -> list[Segment]:
    epochs = [Epoch(at, at * 7, *turn, (), None, 0) for at, turn in enumerate(turns, 1)]
    return list(cut(map(encode, epochs), 1, bytes(16)))


def told(segments: Sequence[Segment]) -> list[Change]:
    """The changes of some segments, from the log's own rows."""
    return [
        (number, time, at, kind, value)
        for segment in segments
        for number, time, added, sent, removed in segment.changes_after(0, segment.last)
        for at, (kind, value) in enumerate(
            [("insert", each) for each in added]
            + [("message", each) for each in sent]
            + [("delete", each) for each in removed]
        )
    ]


def exact(changes: Iterator[Change] | Sequence[Change]) -> list[object]:
    """Changes in the order of the log, with keys that tell 1 from True and 0.0 from -0.0."""
    ordered = sorted(changes, key=lambda each: (each[0], each[2]))
    return [(*each[:4], key(each[4])) for each in ordered]


def written(segments: Sequence[Segment], types: dict[str, str] | None = None) -> list[Change]:
    made, _ = columns_of(segments, types or {})
    return [change for each in made for change in exact_changes(each.content)]


ODD = [
    None,
    True,
    1,
    2**63,
    -(2**63),
    1.5,
    -0.0,
    0.0,
    math.nan,
    math.inf,
    "",
    b"\x00",
    (),
    Map({"a": 1}),
]
NAMES = st.sampled_from(["p", "P", "q", "", "..", "a/b", "x" * 129, "é"])
FIELDS = st.one_of(st.sampled_from(ODD), values, st.datetimes(timezones=st.just(UTC)))
RECORDS = st.builds(
    lambda label, some: Record(label, *some), st.one_of(NAMES, values), st.lists(FIELDS, max_size=3)
)
ROWS = st.lists(st.one_of(RECORDS, FIELDS), max_size=5)


@example([([], [], [Map([(True, None), (1, 5.486124068793689e303)])])], 0)  # 1 and True are two keys
@given(st.lists(st.tuples(ROWS, ROWS, ROWS), max_size=6), st.integers(0, 3))
def test_the_rows_are_the_changes_exactly(turns: list[Any], labels: int) -> None:
    segments = segments_of(turns)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(making, "MOST_LABELS", labels)
        assert exact(written(segments)) == exact(told(segments))


@pytest.mark.parametrize("settled", ["b", "i", "f", "s", "y", "t"])
def test_what_does_not_fit_a_settled_class_is_exact_as_well(settled: str) -> None:
    odd: list[Value] = [*ODD, datetime(2026, 1, 2, 3, 4, 5, 6, UTC), Record("r", 1)]
    segments = segments_of([([Record("p", each)], (), ()) for each in odd])
    assert exact(written(segments, {"p/1": settled})) == exact(told(segments))


def test_a_field_has_the_class_of_most_of_its_values() -> None:
    turns = [([Record("p", at, "a" if at % 4 else at, None, at / 2)], (), ()) for at in range(1, 20)]
    [made], types = columns_of(segments_of(turns), {})
    assert types == {"p/4": "issf"} and made.folder == "label=p/arity=4"
    table = parquet.read_table(io.BytesIO(made.content))
    assert [*table.schema.names] == [
        *("_epoch", "_epoch_timestamp", "_seq", "_change_type"),
        *("f0", "f1", "f1_other", "f2", "f3"),
    ]
    assert [str(each) for each in table.schema.types] == [
        *("int64", "timestamp[us, tz=UTC]", "int32", "string", "int64"),
        *("string", "binary", "string", "double"),
    ]
    assert table.column("f2").null_count == 19 and table.column("f1").null_count == 4


def test_labels_that_cannot_be_folders_are_among_the_rest() -> None:
    facts = [Record(label, 1) for label in ("", "x" * 129, "p", "P", 7, None)]
    made, _ = columns_of(segments_of([(facts, (), ())]), {})
    assert [(each.label, each.rows) for each in made] == [("P", 1), (None, 5)]
    later, _ = columns_of(segments_of([(facts, (), ())]), {"p/1": "i"})
    assert [(each.label, each.rows) for each in later] == [("p", 1), (None, 5)], "the first spelling stays"


def test_an_archive_has_columns_of_each_range(tmp_path: Path) -> None:
    kept = ArchivedLog(tmp_path)
    try:
        for _ in range(9):
            kept.write()
        kept.archive()
        archive = kept.reader()
        assert archive.manifest.types == {"flight/6": "sisssi"}
        found: list[Change] = []
        for each in archive.ranges():
            [file] = [file for file in each.files if file.form == "columns"]
            assert (file.label, file.arity) == ("flight", 6)
            found += exact_changes(kept.objects.get(archive.name(file.path)))
        assert exact(found) == exact(told([*archive.segments(0, archive.upto)]))
    finally:
        kept.close()
