"""Ranges that were merged have every epoch once, byte by byte, and columns that say what the segments say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import log2
from pathlib import Path
from random import Random
from typing import Any

import pytest

from index.values.values import Record
from relay.archive import columns as making, intervals, merging, orphans
from relay.archive.archive import Archive
from relay.archive.archiver import Archiver, RangeSizes
from relay.archive.columns import exact_changes, exact_intervals
from relay.archive.figures import figures_of
from relay.archive.manifest import Range
from relay.archive.merging import Merger, MergeRules, ranges_due
from relay.archive.orphans import collect
from relay.archive.verifying import verify_archive
from relay.archive.writing import NotThisArchive
from relay.log.reader import LogReader
from tests.relay.archive.histories import LET_GO, ArchivedLog, Killed, striking
from tests.relay.archive.memory import ObjectsInMemory
from tests.relay.archive.test_archive_columns import segments_of
from tests.relay.archive.test_states import copied

parquet: Any = pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

SMALL = MergeRules(changes=64)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ArchivedLog]:
    made = ArchivedLog(tmp_path, RangeSizes(changes=3), ObjectsInMemory())
    yield made
    made.close()


def bodies(archive: Archive) -> list[tuple[int, bytes, bytes]]:
    """Every segment, as its ordinal, seal and bytes."""
    return [(each.ordinal, each.checksum, each.body) for each in archive.segments(0, archive.upto)]


def merger(archive: Archive, rules: MergeRules = SMALL, term: int | None = None) -> Merger:
    return Merger(archive, rules=rules, term=term)


def check(kept: ArchivedLog, archive: Archive, written: Sequence[tuple[int, bytes, bytes]]) -> None:
    assert bodies(archive) == written
    assert verify_archive(archive, deep=True).damages == ()
    numbers = [each.number for segment in archive.segments(0, archive.upto) for each in segment.epochs()]
    held = [each.number for each in kept.epochs if kept.missing_upto < each.number <= archive.upto]
    assert sorted({*numbers}) == held


def test_ranges_are_merged_by_tiers_and_each_change_a_few_times(kept: ArchivedLog) -> None:
    rewritten: dict[int, int] = {}
    for number in range(1, 97):
        kept.write()
        kept.archive()
        archive = kept.reader()
        while made := merger(archive).merge_due():
            for epoch in range(made.first, made.last + 1):
                rewritten[epoch] = rewritten.get(epoch, 0) + 1
        tiers = [each.changes for each in archive.ranges()]
        assert len([each for each in tiers if each < 64]) <= 3 * 3, (number, tiers)
    assert max(rewritten.values()) <= log2(64 / 3) / 2 + 1
    assert [each.changes for each in archive.ranges()] == [66, 66, 66, 66, 18, 6]
    assert [each.merged for each in archive.ranges()] == [22, 22, 22, 22, 6, 2]
    check(kept, archive, [(each.ordinal, each.checksum, each.body) for each in kept.log.segments(0, 96)])


def test_what_waits_to_be_merged_is_counted_and_so_is_what_an_archive_has(kept: ArchivedLog) -> None:
    for _ in range(9):
        kept.write()
        kept.archive()
    archive = kept.reader()
    assert ranges_due(archive.manifest, SMALL) == 8, "runs of equal ranges, and one that waits for others"
    while due := ranges_due(archive.manifest, SMALL):
        before = len([*archive.ranges()])
        assert merger(archive).merge_due() is not None
        assert 1 <= before - len([*archive.ranges()]) < due
    assert merger(archive).merge_due() is None
    found = figures_of(archive)
    assert (found.version, found.ranges, found.erased_at) == (12, 3, 0)
    assert found.due == ranges_due(archive.manifest)
    folder = archive.place.folder
    retired = {archive.name(each.path) for each in archive.manifest.retired}
    objects: Any = kept.objects
    kept_now = {name: len(content) for name, (content, _) in objects.held.items() if name not in retired}
    assert found.bytes == sum([size for name, size in kept_now.items() if f"{folder}/manifest" not in name])


def test_all_that_can_be_is_merged_where_asked_for(kept: ArchivedLog) -> None:
    for _ in range(30):
        kept.write()
        kept.write_silent()
    kept.archive()
    archive = kept.reader()
    written, made = bodies(archive), list[Range]()
    assert merger(archive).merge_all(made.append) == len(made) == 2
    assert [each.changes for each in archive.ranges()] == [66, 24]
    assert merger(archive).merge_all(made.append) == 0
    check(kept, archive, written)
    kept.trim()
    kept.log.archive = archive
    assert [each.number for each in kept.log.read(0) if not each.silent] == [*range(1, 31)]


def test_what_does_not_follow_in_the_chain_is_not_merged(kept: ArchivedLog) -> None:
    for _ in range(6):
        kept.write(2)
    kept.archive(4)
    kept.compact()
    kept.archive()
    archive = kept.reader()
    breaks = len([1 for one, other in pairwise(archive.ranges()) if one.checksum != other.anchor])
    assert breaks
    written = bodies(archive)
    merger(archive).merge_all(lambda _: None)
    assert len([*archive.ranges()]) == breaks + 1
    check(kept, archive, written)


def test_nothing_is_merged_across_missing_epochs(kept: ArchivedLog) -> None:
    for _ in range(6):
        kept.write()
    kept.archive(2)
    for _ in range(6):
        kept.write()
    kept.trim(retention=LET_GO)
    kept.missing_upto = kept.log.held_from - 1
    for _ in range(4):
        kept.write()
    kept.stop()
    kept.archive()
    archive = kept.reader()
    assert archive.manifest.missing == ((3, kept.missing_upto),)
    merger(archive).merge_all(lambda _: None)
    assert [(each.first, each.last) for each in archive.ranges()] == [(1, 2), (kept.missing_upto + 1, 16)]
    assert verify_archive(archive, deep=True).damages == ()


# -- other writers, and kills ---------------------------------------------------------------------


def test_what_is_archived_during_a_merge_stays(kept: ArchivedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(8):
        kept.write()
    kept.archive()
    kept.write()
    patch = striking(monkeypatch)

    def between(name: str) -> None:
        if name == "merge-before-manifest":
            patch(lambda _: None)
            assert len(kept.archive()) == 1

    patch(between)
    archive = kept.reader()
    assert merger(archive).merge_due()
    assert archive.upto == 9 and len([*archive.ranges()]) == 8
    kept.write()
    assert len(kept.archive()) == 1, "the archiver goes on after what was merged"
    check(
        kept, kept.reader(), [(each.ordinal, each.checksum, each.body) for each in kept.log.segments(0, 10)]
    )


def test_of_two_mergers_one_begins_again(kept: ArchivedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(16):
        kept.write()
    kept.archive()
    one, other = kept.reader(), kept.reader()
    written = bodies(one)
    patch = striking(monkeypatch)

    def between(name: str) -> None:
        if name == "merge-before-manifest":
            patch(lambda _: None)
            assert merger(other).merge_due()

    patch(between)
    with pytest.raises(NotThisArchive, match="got version 17 from another writer"):
        merger(one).merge_due()
    patch(between)
    assert merger(one).merge_all(lambda _: None) == 1
    check(kept, one, written)


def test_an_archiver_goes_on_with_its_range_beside_a_merger(kept: ArchivedLog) -> None:
    for _ in range(8):
        kept.write()
    kept.archive()
    kept.write()
    begun = kept.archiver()
    assert begun.read()
    merger(kept.reader()).merge_all(lambda _: None)
    assert begun.close()
    assert [each.changes for each in kept.reader().ranges()] == [24, 3]


def test_a_merger_of_an_earlier_term_is_refused(kept: ArchivedLog) -> None:
    for _ in range(4):
        kept.write()
    later = Archiver(LogReader.open(kept.data), kept.objects, "main", term=3, sizes=kept.sizes)
    later.begin()
    while later.read():
        while later.close():
            later.read()
    with pytest.raises(NotThisArchive, match="written by a later leader, of term 3; this is 2"):
        merger(kept.reader(), term=2).merge_due()
    archive = kept.reader()
    assert merger(archive).merge_due() and archive.manifest.term == 3


POINTS = ("archive-after-object", "merge-before-manifest", "merge-after-manifest")


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_anywhere_leaves_each_epoch_once(
    kept: ArchivedLog, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(16):
        kept.write(1)
        kept.write_silent()
    kept.archive()
    archive = kept.reader()
    written, patch = bodies(archive), striking(monkeypatch)
    for count in range(1, 6):
        left = count

        def strike(name: str) -> None:
            nonlocal left
            left -= name == point
            if not left:
                raise Killed(point)

        patch(strike)
        try:
            while merger(kept.reader()).merge_due():
                pass
        except Killed:
            pass
        patch(lambda _: None)
        check(kept, kept.reader(), written)
    archive = kept.reader()
    merger(archive).merge_all(lambda _: None)
    check(kept, archive, written)
    objects = kept.objects
    assert isinstance(objects, ObjectsInMemory)
    objects.now += orphans.GRACE + 1
    collect(archive)
    check(kept, archive, written)
    named = {archive.name(file.path) for each in archive.ranges() for file in each.files}
    named |= {archive.name(file.path) for each in archive.states() for file in each.files}
    assert {name for name in objects.held if "/manifest/" not in name} == named


def test_replaced_objects_stay_for_a_day(kept: ArchivedLog) -> None:
    for _ in range(16):
        kept.write()
    kept.archive()
    early = kept.reader()
    written = bodies(early)
    objects = kept.objects
    assert isinstance(objects, ObjectsInMemory)
    objects.now += 3 * orphans.GRACE
    merger(kept.reader()).merge_all(lambda _: None)
    objects.now += orphans.GRACE - 10
    assert collect(kept.reader()).objects == 0
    early._indexes._known.clear()
    assert bodies(early) == written and len(early.versions()) == 17
    for _ in range(16):
        kept.write()
    kept.archive()
    merger(kept.reader()).merge_all(lambda _: None)
    objects.now += 20
    done = collect(kept.reader())
    assert done.objects == 32 and done.manifests == 16
    assert kept.reader().versions()[0] == 17, "a manifest that is there has all its objects"
    assert collect(kept.reader()).objects == 0
    objects.now += orphans.GRACE
    collect(kept.reader())
    kept.write()
    kept.archive()
    merger(kept.reader(), MergeRules(changes=200)).merge_all(lambda _: None)
    assert {each.version for each in kept.reader().manifest.retired} == {kept.reader().manifest.version}
    assert verify_archive(kept.reader(), deep=True).damages == ()


# -- columns --------------------------------------------------------------------------------------


def rows_of(archive: Archive, of: Range) -> list[Any]:
    contents = [archive.content(file) for file in of.files if file.form == "columns"]
    return [
        (*change, *interval)
        for content in contents
        for change, interval in zip(exact_changes(content), exact_intervals(content), strict=True)
    ]


def test_merged_columns_say_when_facts_began_and_ended(kept: ArchivedLog) -> None:
    one, other = Record("p", 1), Record("p", 2)
    kept.turn([one, other])
    kept.turn([], [one], [other])
    kept.turn([other], [], [one])
    kept.turn([one])
    kept.archive()
    archive = kept.reader()
    merger(archive).merge_all(lambda _: None)
    [made] = archive.ranges()
    assert [(each[0], each[3], each[4].fields[0], *each[5:]) for each in rows_of(archive, made)] == [
        (1, "insert", 1, None, 3),
        (1, "insert", 2, None, 2),
        (2, "message", 1, None, None),
        (2, "delete", 2, 1, None),
        (3, "insert", 2, None, None),
        (3, "delete", 1, 1, None),
        (4, "insert", 1, None, None),
    ]


def test_labels_that_were_rare_in_one_range_only_are_in_one_place(
    kept: ArchivedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "MOST_LABELS", 1)
    monkeypatch.setattr(intervals, "MANY_ROWS", 6)
    for at in range(6):
        often, rare = ("p", "q") if at % 2 else ("q", "p")
        kept.turn(
            [Record(often, at, each) for each in range(3)] + [Record(rare, "x", -0.0), Record("few", at)]
        )
        kept.turn([Record("grown", at)], removed=[Record(rare, "x", -0.0), Record(often, at, 0)])
    kept.archive()
    archive = kept.reader()
    assert any(file.label is None for each in archive.ranges() for file in each.files)
    merger(archive).merge_all(lambda _: None)
    [made] = archive.ranges()
    assert [(file.label, file.arity, file.rows) for file in made.files[1:]] == [
        ("few", 1, 6),
        ("grown", 1, 6),
        ("p", 2, 18),
        ("q", 2, 18),
    ]
    assert archive.manifest.types == {"few/1": "i", "grown/1": "i", "p/2": "ii", "q/2": "ii"}
    assert verify_archive(archive, deep=True).damages == ()


def test_rows_are_ordered_by_fields_where_asked_for(kept: ArchivedLog) -> None:
    random = Random(7)
    for at in range(12):
        origin = random.choice(["ATL", "EWR", "SFO"])
        kept.turn([Record("flight", at, origin), Record("gate", at, origin)])
    kept.archive()
    archive = kept.reader()
    merger(archive, MergeRules(64, clusters={"flight": [1]})).merge_all(lambda _: None)
    [made] = archive.ranges()
    flights = next(file for file in made.files if file.label == "flight")
    assert flights.order == (1,)
    content = archive.content(flights)
    rows = [(each[4].fields[1], each[0]) for each in exact_changes(content)]  # type: ignore[union-attr]
    assert rows == sorted(rows) and rows != sorted(rows, key=lambda each: each[1])
    assert b'"order": [1]' in parquet.read_schema(__import__("io").BytesIO(content)).metadata[b"dataspace"]
    assert verify_archive(archive, deep=True).damages == ()


def test_no_merge_takes_more_memory_than_its_rules_allow(kept: ArchivedLog) -> None:
    """By the rows of one label at a time, and the bytes that its rows have in the log."""
    for at in range(40):
        kept.turn([Record("narrow", at, each) for each in range(4)], [Record("wide", at, "x" * 5_000)])
        kept.archive()
    few, many = copied(kept), copied(kept)
    for archive, memory in ((few, 100_000), (many, 1 << 30)):
        rules = MergeRules(changes=10_000, memory=memory)
        merger(archive, rules).merge_all(lambda _: None)
        for each in archive.ranges():
            assert each.merged == 1 or merging._cost([each]).memory() <= memory
        assert verify_archive(archive, deep=True).damages == ()
        assert merger(archive, rules).merge_due() is None
    assert len([*many.ranges()]) == 1
    assert 9 <= len([*few.ranges()]) <= 14, "a few of them, as 20 000 bytes each would take"


@pytest.mark.parametrize("width", [10, 400])
def test_what_a_merge_takes_is_what_was_reckoned(width: int) -> None:
    """In the memory of Arrow, which has the rows; within a factor of two."""
    import pyarrow

    turns = [[Record("r", at, each, "x" * width) for each in range(100)] for at in range(100)]
    segments = segments_of([(turn, (), turns[at - 1] if at else ()) for at, turn in enumerate(turns)])
    made, types = making.columns_of(segments, {})
    parts = [[intervals.ColumnPart(each.label, each.arity, partial(_content, each)) for each in made]]
    rows, bodies = sum([each.rows for each in made]), sum([len(each.body) for each in segments])
    default = pyarrow.default_memory_pool()
    pool = pyarrow.proxy_memory_pool(default)
    pyarrow.set_memory_pool(pool)
    try:
        assert [*intervals.merged(intervals.GatheredRows(parts, types), {}, 0)]
    finally:
        pyarrow.set_memory_pool(default)
    assert pool.max_memory() <= merging.ROW_MEMORY * rows + merging.BODY_MEMORY * bodies


def _content(of: making.ColumnObject) -> bytes:
    return of.content
