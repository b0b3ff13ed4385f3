"""Delta tables have the rows of one version of their archive, each once, as delta-rs reads them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dataspace.codec import unpack_own
from dataspace.kernel.changes import Claims, Epoch
from index.patterns.text import parse_pattern
from index.values.values import Map, Record, Value, key
from relay.archive import columns as making
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.archiver import Archiver, RangeSizes
from relay.archive.erasure.erasing import erase
from relay.archive.manifest import Range
from relay.archive.merging import Merger, MergeRules
from relay.archive.tables import DeltaTables, TableBroken
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.objects.directory import DirectoryObjects
from relay.objects.objects import StoreFailed
from relay.objects.opening import open_objects
from tests.relay.log.histories import append

pytest.importorskip("pyarrow", reason="the extra `archive` is not installed")
deltalake: Any = pytest.importorskip("deltalake", reason="not installed: make .venv/readers")

ODD: list[Value] = [None, 1, 2**70, -0.0, math.nan, 2.5, "x", b"\x00", True, (1, "a"), Map({"k": 1})]
SHORT = [("erase", "keep", "merge"), ("merge", "keep", "erase"), ("merge", "erase", "write")]
LONG = [
    pytest.param(each, marks=pytest.mark.torture(long=True))
    for each in product(("erase", "merge", "write", "keep"), repeat=3)
    if each not in SHORT
]
WHEN = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)

Row = tuple[int, int, str, object]


class World:
    """A log with its archive, and the changes of all epochs."""

    def __init__(self, folder: Path) -> None:
        self.objects = open_objects(folder / "archive")
        (folder / "data").mkdir()
        self.log = Log.open(folder / "data")
        self.archiver = Archiver(
            LogReader.open(folder / "data"), self.objects, "main", sizes=RangeSizes(changes=10**9)
        )
        self.archiver.begin()
        self.changes: list[tuple[int, int, str, Record]] = []
        self._number = 0

    @property
    def archive(self) -> Archive:
        return self.archiver.archive

    def write(self, *added: Record, sent: tuple[Record, ...] = (), gone: tuple[Record, ...] = ()) -> None:
        """Appends an epoch."""
        self._number += 1
        claims = (Claims("durable:a", [(self._number * 1000 + at, each) for at, each in enumerate(added)]),)
        append(self.log, Epoch(self._number, self._number * 10, added, sent, gone, claims, None, 0, False))
        self.log.issue(self._number)
        kinds = ["insert"] * len(added) + ["message"] * len(sent) + ["delete"] * len(gone)
        for at, (kind, value) in enumerate(zip(kinds, [*added, *sent, *gone], strict=True)):
            self.changes.append((self._number, at, kind, value))

    def close_range(self) -> Range:
        """Archives what is not archived yet, as one range."""
        while self.archiver.read():
            pass
        made = self.archiver.close()
        assert made is not None
        return made

    def told(self, label: str, arity: int, upto: int | None = None) -> list[Row]:
        """The archived changes of a label."""
        return [
            (number, at, kind, key(value))
            for number, at, kind, value in self.changes
            if value.label == label and len(value.fields) == arity
            if number <= (self.archive.upto if upto is None else upto)
        ]


def read(address: str, label: str, arity: int, version: int | None = None) -> list[Row]:
    """The rows of a table, with exact values, in order."""
    table = deltalake.DeltaTable(address, version=version).to_pyarrow_table()
    rows = sorted(table.to_pylist(), key=lambda row: (row["_epoch"], row["_seq"]))
    return [
        (
            row["_epoch"],
            row["_seq"],
            row["_change_type"],
            key(Record(label, *[exact(row, at) for at in range(arity)])),
        )
        for row in rows
    ]


def exact(row: Mapping[str, Any], at: int) -> Value:
    other = row.get(f"f{at}_other")
    value = row[f"f{at}"] if other is None else unpack_own(other)
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.archiver.log.close()
    made.log.close()


def test_every_version_has_the_rows_of_its_archive(world: World) -> None:
    tables = DeltaTables(world.archive)
    uptos: list[int] = []
    for at in range(0, len(ODD), 2):
        for value in ODD[at : at + 2]:
            world.write(Record("p", at, value, WHEN), Record("p", at), sent=(Record("q", value),))
        world.write(gone=(Record("p", at),))
        world.close_range()
        made = {(each.label, each.arity): each for each in tables.update()}
        uptos.append(world.archive.upto)
        assert [*made] == [("p", 1), ("p", 3), ("q", 1)]
        for (label, arity), table in made.items():
            rows = read(table.address, label, arity)
            assert rows == world.told(label, arity)
            assert (table.rows, table.version, table.changed) == (len(rows), len(uptos) - 1, True)
            assert table.archive_version == world.archive.manifest.version
    for version, upto in enumerate(uptos):  # time travel
        assert read(made["p", 3].address, "p", 3, version) == world.told("p", 3, upto)


def test_what_is_kept_is_not_written_again_whoever_asks(world: World) -> None:
    world.write(Record("p", 1))
    world.close_range()
    assert [each.changed for each in DeltaTables(world.archive).update()] == [True]
    assert [each.changed for each in DeltaTables(world.archive).update()] == [False]
    one, other = DeltaTables(world.archive), DeltaTables(world.archive)
    assert [each.changed for each in [*one.update(), *other.update()]] == [False, False]
    world.write(Record("p", 2))
    world.close_range()
    assert [each.changed for each in [*one.update(), *other.update()]] == [True, False]
    (table,) = one.update()
    assert table.version == 1
    assert read(table.address, "p", 1) == world.told("p", 1)
    assert deltalake.DeltaTable(table.address).transaction_version(world.archive.place.identity) == 2


def test_rows_of_rare_labels_are_in_the_table(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "MOST_LABELS", 1)
    monkeypatch.setattr(making, "MANY_ROWS", 3)
    often = [Record("often", at) for at in range(5)]
    world.write(*often, Record("p", 1, "a"), Record("P", 1), Record("p", 1))
    rare = world.close_range()
    world.write(*[Record("p", at, None if at == 2 else 2.5 * at) for at in range(4)])
    world.close_range()
    world.write(Record("p", 7, WHEN), *often)
    world.close_range()
    tables = DeltaTables(world.archive)
    made = {(each.label, each.arity): each for each in tables.update()}
    assert {*made} == {("often", 1), ("p", 2)}  # p/1 has no object of its own
    assert read(made["p", 2].address, "p", 2) == world.told("p", 2)
    assert made["p", 2].files == 3
    copied = Path(made["p", 2].address, "_rows")
    assert len([*copied.iterdir()]) == 2
    # Once the object that rows were copied from is deleted, so are the copies.
    (rest,) = [each for each in rare.files if each.label is None and each.form == "columns"]
    world.objects.delete([world.archive.name(rest.path)])
    assert [each.changed for each in tables.update()] == [False, False]
    assert len([*copied.iterdir()]) == 1


def test_ranges_that_are_merged_are_replaced_in_one_commit(world: World) -> None:
    for at, value in enumerate(ODD):
        world.write(Record("p", at, value), gone=(Record("p", at - 1, ODD[at - 1]),) if at else ())
        world.close_range()
    tables = DeltaTables(world.archive)
    (before,) = tables.update()
    assert before.files == len(ODD)
    assert Merger(world.archive).merge_all(lambda _: None)
    (after,) = tables.update()
    assert (after.files, after.version) == (1, 1)
    expected = world.told("p", 2)
    assert read(after.address, "p", 2) == expected == read(after.address, "p", 2, 0)
    commit = Path(after.address, "_delta_log", f"{1:020}.json").read_text()
    actions = [json.loads(line) for line in commit.splitlines()]
    flags = [
        (kind, each[kind]["dataChange"]) for each in actions for kind in each if kind in ("add", "remove")
    ]
    assert sorted(flags) == [("add", False)] + [("remove", False)] * len(ODD)
    until = deltalake.DeltaTable(after.address).to_pyarrow_table().column("_until").to_pylist()
    assert len([each for each in until if each is not None]) == len(ODD) - 1


def test_a_class_that_a_merge_settles_anew_is_a_commit_of_all_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of rows that were copied from all other rows; no file of before is in it, nor a row twice."""
    monkeypatch.setattr(making, "MOST_LABELS", 1)
    monkeypatch.setattr(making, "MANY_ROWS", 100)
    often = [Record("often", at) for at in range(30)]
    world.write(*[Record("p", at, None) for at in range(30)])
    world.close_range()
    world.write(*often, Record("p", 30, None), Record("p", 31, "a"))
    world.close_range()
    tables = DeltaTables(world.archive)
    (before,) = [each for each in tables.update() if each.label == "p"]
    assert Path(before.address, "_rows").is_dir()
    for at in range(40, 48):
        world.write(Record("p", at, at))
        world.close_range()
    expected = world.told("p", 2)
    assert Merger(world.archive, rules=MergeRules(changes=20)).merge_all(lambda _: None)
    assert world.archive.manifest.types["p/2"] == "ii"
    for each in (tables, DeltaTables(world.archive)):  # what knows the table, and what reads it
        (after,) = [found for found in each.update() if found.label == "p"]
        assert (after.files, after.version) == (3, 1)
    table = deltalake.DeltaTable(after.address).to_pyarrow_table()
    assert str(table.schema.field("f1").type) == "int64"
    assert read(after.address, "p", 2) == expected
    assert read(after.address, "p", 2, 0) == [row for row in expected if row[0] <= 2], "time travel"
    world.write(Record("p", 99, 99))
    world.close_range()
    [*tables.update()]
    assert read(after.address, "p", 2) == world.told("p", 2)


@pytest.mark.parametrize("rare", [False, True], ids=["", "rare"])
@pytest.mark.parametrize("steps", [*SHORT, *LONG], ids="-".join)
def test_no_erased_row_is_left_and_no_other_is_lost_or_twice(
    world: World, steps: tuple[str, ...], rare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens between and after erasures and merges, also where rows were copied into a table."""
    if rare:
        monkeypatch.setattr(making, "MOST_LABELS", 1)
        monkeypatch.setattr(making, "MANY_ROWS", 5)
    erased: set[object] = set()

    def write(at: int) -> None:
        said = (Record("q", at),) * 3
        world.write(*[Record("p", at, each) for each in range(5 if at == 0 else 2)], sent=said)
        world.write(gone=(Record("p", at, 0), Record("p", at, 1)))
        world.close_range()

    def check() -> None:
        world.archive.refresh()
        found = [each for each in DeltaTables(world.archive).update() if (each.label, each.arity) == ("p", 2)]
        (table,) = found
        left = [each for each in world.told("p", 2) if each[3] not in erased]
        assert read(table.address, "p", 2) == left and table.rows == len(left)

    for at in range(3):
        write(at)
    for at, step in enumerate(steps):
        match step:
            case "write":
                write(3 + at)
            case "merge":
                Merger(world.archive).merge_all(lambda _: None)
            case "erase":
                erase(world.archive, parse_pattern("p(_, 1)"), 10**9, "me")
                erased |= {key(Record("p", each, 1)) for each in range(3 + at)}
            case "keep":
                check()
    check()


class LosingAnswers(DirectoryObjects):
    """A store whose answers to ``create`` are lost."""

    lose = False

    def create(self, name: str, content: bytes) -> bool:
        made = super().create(name, content)
        if self.lose:
            raise StoreFailed("no answer")
        return made


def test_a_commit_whose_answer_was_lost_is_not_written_twice(world: World, tmp_path: Path) -> None:
    world.write(Record("p", 1))
    world.close_range()
    objects = LosingAnswers(tmp_path / "archive")
    tables = DeltaTables(Archive(objects, ArchivePlace("main", world.archive.place.identity)))
    objects.lose = True
    with pytest.raises(StoreFailed):
        [*tables.update()]
    objects.lose = False
    (table,) = tables.update()
    assert (table.version, table.files) == (0, 1)
    assert read(table.address, "p", 1) == world.told("p", 1)


def test_statistics_prune_files_by_epoch_text_and_time(world: World) -> None:
    for at, name in enumerate(("a", "m", "z")):
        world.write(Record("p", name, WHEN.replace(year=2020 + at), at * 1.5))
        world.close_range()
    (table,) = DeltaTables(world.archive).update()
    adds = deltalake.DeltaTable(table.address).get_add_actions(flatten=True)
    found = {name: adds.column(name).to_pylist() for name in adds.schema.names}
    assert sorted(found["max._epoch"]) == [1, 2, 3]
    assert sorted(zip(found["min.f0"], found["max.f2"], strict=True)) == [("a", 0.0), ("m", 1.5), ("z", 3.0)]
    assert {each.microsecond for each in found["max.f1"]} == {679_000}  # rounded outwards
    assert {each.microsecond for each in found["min.f1"]} == {678_000}
    from pyarrow.compute import field

    dataset = deltalake.DeltaTable(table.address).to_pyarrow_dataset()
    assert dataset.filter(field("f0") == "m").to_table().num_rows == 1


def test_a_label_that_no_reader_can_open_is_left_out(world: World) -> None:
    world.write(Record("p", 1), Record("a/b", 1))
    world.close_range()
    tables = DeltaTables(world.archive)
    assert [each.label for each in tables.update()] == ["p"]
    assert tables.left_out() == ["a/b"]
    assert tables.left_out(parse_pattern("p($x)")) == []


def test_a_table_that_lacks_a_commit_is_not_continued(world: World) -> None:
    for at in range(2):
        world.write(Record("p", at))
        world.close_range()
        (table,) = DeltaTables(world.archive).update()
    log = Path(table.address, "_delta_log")
    (log / f"{0:020}.json").unlink()
    with pytest.raises(TableBroken, match="is made anew"):
        [*DeltaTables(world.archive).update()]
    for each in log.iterdir():
        each.unlink()
    (again,) = DeltaTables(world.archive).update()
    assert (again.version, read(again.address, "p", 1)) == (0, world.told("p", 1))


def test_other_programs_do_not_write_to_it(world: World) -> None:
    world.write(Record("p", 1))
    world.close_range()
    (table,) = DeltaTables(world.archive).update()
    with pytest.raises(Exception, match="dataspaceArchive"):
        deltalake.DeltaTable(table.address).delete()
    assert deltalake.DeltaTable(table.address).vacuum() == []
