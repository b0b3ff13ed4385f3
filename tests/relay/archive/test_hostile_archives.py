"""Any value is archived at any place of the layout: names of folders, columns, statistics, commits of tables.

One world has hostile labels, values, times and numbers of fields.  It is archived in a directory, merged,
kept as Delta tables, erased in part, and read back by the product and by the other readers.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from dataspace.codec import unpack_own
from dataspace.kernel.changes import Epoch
from index.patterns.text import parse_pattern
from index.values.values import Record, Value, key
from relay.archive import columns as making
from relay.archive.archive import Archive
from relay.archive.archiver import RangeSizes
from relay.archive.columns import MOST_ARITY, MOST_FIELDS, columns_of, label_folder
from relay.archive.erasure.erasing import erase
from relay.archive.manifest import COLUMNS
from relay.archive.merging import Merger
from relay.archive.tables import DeltaTables
from relay.archive.verifying import verify_archive
from relay.log.segments import cut, encode
from relay.objects.opening import open_objects
from tests.generated.limits import ATOMS as VALUES, FIRST, LABELS, LAST
from tests.relay.archive.histories import ArchivedLog
from tests.relay.archive.test_archive_columns import exact, told, written
from tests.relay.archive.test_states import merge_run

pa: Any = pytest.importorskip("pyarrow", reason="the extra `archive` is not installed")

WIDTHS: Final = (
    0,
    1,
    MOST_FIELDS - 1,
    MOST_FIELDS,
    MOST_FIELDS + 1,
    1_000,
    MOST_ARITY,
    MOST_ARITY + 1,
    33_000,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchivedLog]:
    """Three epochs, a range each, in a directory: what comes, is sent, and goes."""
    kept = ArchivedLog(tmp_path_factory.mktemp("hostile"), RangeSizes(changes=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "MOST_LABELS", 1_000)
        facts: list[Value] = [Record(label, at) for at, label in enumerate(LABELS)]
        facts += [Record("v", at, value) for at, value in enumerate(VALUES)]
        facts += [Record(f"v{at}", value) for at, value in enumerate(VALUES)]
        facts += [Record("wide", *range(width)) for width in WIDTHS]
        kept.turn(facts, [Record("p", "person"), Record("wide", 1, 2)])
        kept.turn([], facts[::2])
        kept.turn([Record("p", 2)], [], facts[::3])
        kept.archive()
    yield kept
    kept.close()


def test_every_range_is_archived_and_verifies(world: ArchivedLog) -> None:
    archive = world.reader()
    assert archive.upto == 3
    verdict = verify_archive(archive, deep=True)
    assert (verdict.damages, verdict.waiting) == ((), "")
    names = [each.name for each in (world.data.parent / "archive").rglob("*")]
    assert max(len(each.encode()) for each in names) <= 255


def test_no_two_labels_have_one_folder() -> None:
    labels = [
        *LABELS,
        *[label_folder(each, 1).removeprefix("label=").removesuffix("/arity=1") for each in LABELS],
    ]
    assert len({label_folder(each, 1) for each in labels}) == len({*labels})


def test_tables_have_every_row_whatever_is_asked_of_them(world: ArchivedLog) -> None:
    deltalake: Any = pytest.importorskip("deltalake", reason="not installed: make .venv/readers")
    duckdb: Any = pytest.importorskip("duckdb", reason="not installed: make .venv/readers")
    polars: Any = pytest.importorskip("polars", reason="not installed: make .venv/readers")
    made = {(each.label, each.arity): each for each in DeltaTables(world.reader()).update()}
    assert {label for label, _ in made} >= {"p", "v", "wide", "x" * 128}
    for each in made.values():
        assert deltalake.DeltaTable(each.address).to_pyarrow_table().num_rows == each.rows > 0, each.label
    for at, value in enumerate(VALUES):
        table = deltalake.DeltaTable(made[f"v{at}", 1].address)
        table.get_add_actions(flatten=True)
        whole = table.to_pyarrow_table()
        there = [
            row["f0"] if row.get("f0_other") is None else unpack_own(row["f0_other"])
            for row in whole.to_pylist()
        ]
        changes = [
            each for each in range(3) if each == 0 or (len(LABELS) + len(VALUES) + at) % (each + 1) == 0
        ]
        assert [key(_utc(each)) for each in there] == [key(value)] * len(changes)
        if isinstance(value, datetime):
            for bound in (FIRST, datetime(1000, 1, 1, tzinfo=UTC), value, LAST):
                for sign in ("<", "<=", "=", ">=", ">"):
                    count = _count(
                        polars.scan_delta(made[f"v{at}", 1].address), polars.col("f0"), sign, bound
                    )
                    assert count == len(changes) * _holds(value, sign, bound), (value, sign, bound)
        files = [file.path for _, file in world.reader().files(parse_pattern(f"v{at}(_)")) if file.label]
        paths = [world.objects.address(world.reader().name(each)) for each in files]
        rows = duckdb.sql(f"select count(*) from read_parquet({paths!r}, union_by_name = true)").fetchall()
        assert rows == [(len(changes),)]


def _utc(value: Value) -> Value:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _holds(value: Any, sign: str, bound: Any) -> bool:
    held = {"<": value < bound, "<=": value <= bound, "=": value == bound, ">=": value >= bound}
    return bool(held.get(sign, value > bound))


def _count(frame: Any, column: Any, sign: str, bound: Any) -> int:
    kept = {"<": column < bound, "<=": column <= bound, "=": column == bound, ">=": column >= bound}
    return int(frame.filter(kept.get(sign, column > bound)).collect().height)


def test_merged_ranges_and_erased_ones_have_the_same(world: ArchivedLog, tmp_path: Path) -> None:
    shutil.copytree(world.data.parent / "archive", tmp_path / "archive")
    archive = Archive(open_objects(tmp_path / "archive"), world.reader().place)
    archive.refresh()
    merge_run(archive, 1, 3)
    [state] = archive.states()
    assert state.rows > len(LABELS) and verify_archive(archive, deep=True).damages == ()
    Merger(archive).merge_all(lambda _: None)
    assert len([*archive.ranges()]) == 1
    assert verify_archive(archive, deep=True).damages == ()
    for label in ("wide", "日" * 42, "p"):
        done = erase(archive, Record(label, parse_pattern("_")), 10**9, "me")
        assert done.rows and done.tables_error == ""
    verdict = verify_archive(archive, deep=True)
    assert (verdict.damages, verdict.waiting) == ((), "")


def test_a_record_of_many_fields_costs_its_own_size() -> None:
    def cost(width: int) -> float:
        epoch = Epoch(1, 7, [Record("wide", *range(width))], (), (), (), None, 0)
        segments = list(cut([encode(epoch)], 1, bytes(16)))
        assert exact(written(segments)) == exact(told(segments))
        begun = time.thread_time()
        columns_of(segments, {})
        return time.thread_time() - begun

    cost(10)
    assert cost(64_000) < 40 * max(cost(8_000), 0.001)  # a square would be 64 times as much, and far above


def test_the_objects_of_a_range_are_bounded_whatever_the_numbers_of_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(making, "MOST_FIELDS", 16)
    monkeypatch.setattr(making, "MOST_KINDS", 20)
    facts = [Record(f"l{at % 12}", *range(at % 41)) for at in range(12 * 41)]
    segments = list(cut([encode(Epoch(1, 7, facts, (), (), (), None, 0))], 1, bytes(16)))
    made, types = columns_of(segments, {})
    assert len(made) == 20 + 1 and len(types) == len(made) - 1
    assert max(each.arity for each in made) <= 16
    assert exact([change for each in made for change in making.exact_changes(each.content)]) == exact(
        told(segments)
    )


def test_an_archive_with_an_object_of_a_wide_record_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions gave such a record columns of its own."""
    kept = ArchivedLog(tmp_path, RangeSizes(changes=1))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(making, "MOST_FIELDS", 10_000)
            kept.turn([Record("wide", *range(400)), Record("q", 1)])
            kept.archive()
        kept.turn([Record("q", 2)], [], [Record("wide", *range(400))])
        kept.archive()
        archive = kept.reader()
        arities = [{file.arity for file in each.files if file.form == COLUMNS} for each in archive.ranges()]
        assert arities == [{1, 400}, {1, -1}]
        Merger(archive).merge_all(lambda _: None)
        assert verify_archive(archive, deep=True).damages == ()
        erase(archive, parse_pattern("wide(_)"), 10**9, "me")
        assert verify_archive(archive, deep=True).damages == ()
    finally:
        kept.close()
