"""The facts after any epoch follow from the objects that an archive names for it, however it was merged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dataspace.errors import UsageError
from index.patterns.text import parse_pattern
from index.values.values import Map, Record, Value, key, same
from relay.archive.archive import Archive
from relay.archive.archiver import RangeSizes
from relay.archive.columns import ERASED_VALUE, exact_changes, exact_intervals
from relay.archive.erasure.erasing import erase
from relay.archive.manifest import ArchivedFile
from relay.archive.merging import Merger, MergeRules
from relay.archive.states import StateFiles, state_files
from relay.archive.verifying import verify_archive
from relay.log.replay import state_at
from tests.relay.archive.histories import LET_GO, ArchivedLog
from tests.relay.archive.memory import ObjectsInMemory

parquet: Any = pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

EPOCHS = 5

ODD: Sequence[Value] = [1, "1", None, (), 1.0, True, -0.0, 0.0, math.nan, Map({"a": 1, "b": math.nan}), 2**63]


def facts() -> list[Record]:
    """A fact for each way to come and go in five epochs, of classes that are easily taken for others."""
    return [
        Record("p", ODD[each % len(ODD)], each) if each % 3 else Record("q", each, ODD[each % len(ODD)])
        for each in range(1 << EPOCHS)
    ]


def lived(folder: Path, begin: int = 0) -> ArchivedLog:
    """A log in which the bits of a fact's number say in which epochs it comes or goes."""
    kept = ArchivedLog(folder, RangeSizes(changes=1), ObjectsInMemory())
    held: set[int] = set()
    for at in range(EPOCHS):
        changed = {each for each in range(1 << EPOCHS) if each >> at & 1}
        every = facts()
        kept.turn(
            [every[each] for each in sorted(changed - held)],
            [Record("p", 1, at), Record("said", at)],
            [every[each] for each in sorted(changed & held)],
        )
        held ^= changed
    return kept


def told(archive: Archive, files: Sequence[ArchivedFile]) -> list[Any]:
    return [change for each in files for change in exact_changes(archive.content(each))]


def by_sums(archive: Archive, found: StateFiles, epoch: int) -> set[object]:
    """The facts by counting insertions and deletions."""
    counts: dict[object, int] = {}
    for number, _, _, kind, value in told(archive, [*found.facts, *[file for _, file in found.changes]]):
        if number <= epoch and kind != "message" and not same(value, ERASED_VALUE):
            counts[key(value)] = counts.get(key(value), 0) + (1 if kind == "insert" else -1)
    assert {*counts.values()} <= {0, 1}
    return {each for each, count in counts.items() if count}


def by_intervals(archive: Archive, found: StateFiles, epoch: int) -> set[object]:
    """The facts by the insertions that were not ended yet."""
    held: set[object] = set()
    for file in [*found.facts, *[file for _, file in found.changes]]:
        content = archive.content(file)
        untils = [until for _, until in exact_intervals(content)]
        for (number, _, _, kind, value), until in zip(exact_changes(content), untils, strict=True):
            is_there = kind == "insert" and number <= epoch and (until is None or until > epoch)
            if is_there and not same(value, ERASED_VALUE):
                assert key(value) not in held
                held.add(key(value))
    return held


def check_states(kept: ArchivedLog, archive: Archive, wanted: Callable[[int], set[object]]) -> int:
    """Checks the facts after each epoch; returns of how many epochs intervals had them."""
    count = 0
    for epoch in range(archive.oldest - 1, archive.upto + 1):
        found = state_files(archive, epoch)
        assert by_sums(archive, found, epoch) == wanted(epoch), epoch
        if found.intervals:
            count += 1
            assert by_intervals(archive, found, epoch) == wanted(epoch), epoch
    return count


def compositions(count: int) -> Iterator[list[tuple[int, int]]]:
    """Yields each way to cut so many ranges into runs, as places."""
    for cuts in range(1 << (count - 1)):
        ends = [0, *[at for at in range(1, count) if cuts >> (at - 1) & 1], count]
        yield list(pairwise(ends))


def merge_run(archive: Archive, first: int, beyond: int, **rules: Any) -> None:
    """Merges ranges at these places."""
    if beyond - first > 1:
        assert Merger(archive, rules=MergeRules(**rules))._merge(archive.refresh(), (first, beyond))


def copied(kept: ArchivedLog) -> Archive:
    objects = kept.objects
    assert isinstance(objects, ObjectsInMemory)
    archive = Archive(objects.copy(), kept.reader().place)
    archive.refresh()
    return archive


@pytest.mark.parametrize("runs", [*compositions(EPOCHS)], ids=str)
def test_every_fact_of_every_epoch_is_found_however_ranges_were_merged(
    base: ArchivedLog, runs: list[tuple[int, int]]
) -> None:
    oracle = [{key(each) for each in state_at(base.log, epoch)} for epoch in range(EPOCHS + 1)]
    archive = copied(base)
    clusters = {"p": [0], "q": [1, 0, 7]} if len(runs) % 2 else {}
    for first, beyond in reversed(runs):
        merge_run(archive, first, beyond, clusters=clusters)
    assert len([*archive.ranges()]) == len(runs)
    check_states(base, archive, oracle.__getitem__)
    assert verify_archive(archive, deep=True).damages == ()
    Merger(archive).merge_all(lambda _: None)
    assert len([*archive.ranges()]) == 1 and not [*archive.states()]
    assert check_states(base, archive, oracle.__getitem__) == EPOCHS + 1


@pytest.mark.parametrize("runs", [*compositions(EPOCHS)][1::3], ids=str)
def test_a_state_that_is_too_large_to_merge_stays_and_every_fact_is_found(
    base: ArchivedLog, runs: list[tuple[int, int]]
) -> None:
    oracle = [{key(each) for each in state_at(base.log, epoch)} for epoch in range(EPOCHS + 1)]
    archive = copied(base)
    for first, beyond in reversed(runs):
        merge_run(archive, first, beyond)
    before = {each.epoch: each for each in archive.states()}
    for first in range(len(runs) - 2, -1, -2):
        merge_run(archive, first, first + 2, memory=1)
        begin = [*archive.ranges()][first].first - 1
        assert [each for each in archive.states() if each.epoch == begin] == [
            each for epoch, each in before.items() if epoch == begin
        ], "as it was, and none is new"
        check_states(base, archive, oracle.__getitem__)
        assert verify_archive(archive, deep=True).damages == ()
    erase(archive, parse_pattern("q(_, _)"), 10**9, "me")
    assert verify_archive(archive, deep=True).damages == ()


def test_states_have_no_more_rows_than_there_were_changes(base: ArchivedLog) -> None:
    archive = copied(base)
    merge_run(archive, 3, 5)
    [state] = archive.states()
    assert (state.epoch, state.upto, state.rows) == (3, 5, 16)
    merge_run(archive, 0, 3)
    assert [*archive.states()] == [state], "before the first epoch nothing held"
    assert verify_archive(archive, deep=True).damages == ()


def test_a_state_is_not_written_while_less_has_changed_than_it_has_facts(tmp_path: Path) -> None:
    kept = ArchivedLog(tmp_path, RangeSizes(changes=1), ObjectsInMemory())
    try:
        kept.turn([Record("p", 0, at) for at in range(20)])
        for at in range(1, 25):
            kept.turn([Record("p", at, 0)], removed=[Record("p", at - 1, 0)])
        kept.archive()
        archive = kept.reader()
        for first in range(1, 13):
            merge_run(archive, first, first + 2)
        assert [(each.epoch, each.rows) for each in archive.states()] == [(1, 20), (11, 20), (21, 20)]
        oracle = [{key(each) for each in state_at(kept.log, epoch)} for epoch in range(26)]
        check_states(kept, archive, oracle.__getitem__)
        assert verify_archive(archive, deep=True).damages == ()
    finally:
        kept.close()


def test_a_pattern_has_the_files_of_its_label(base: ArchivedLog) -> None:
    archive = copied(base)
    merge_run(archive, 2, 5)
    found = state_files(archive, 4, parse_pattern("p($, $)"))
    assert {file.label for file in found.facts} == {"p"} == {file.label for _, file in found.changes}
    wanted = {key(each) for each in state_at(base.log, 4) if isinstance(each, Record) and each.label == "p"}
    assert by_sums(archive, found, 4) == by_intervals(archive, found, 4) == wanted


def test_an_epoch_that_the_archive_does_not_have_is_refused(base: ArchivedLog) -> None:
    archive = copied(base)
    for epoch in (-1, EPOCHS + 1):
        with pytest.raises(UsageError, match=f"has epochs 1 to {EPOCHS}, not the state after {epoch}"):
            state_files(archive, epoch)
    with pytest.raises(UsageError, match="files are listed by label"):
        state_files(archive, 1, parse_pattern("$x"))


def test_an_archive_that_begins_late_has_the_state_before_it(tmp_path: Path) -> None:
    kept = ArchivedLog(tmp_path, RangeSizes(changes=1), ObjectsInMemory())
    oracle: dict[int, set[object]] = {}

    def look() -> None:
        for at in range(kept.log.held_from - 1, kept.log.last + 1):
            oracle[at] = {key(each) for each in state_at(kept.log, at)}

    try:
        every = [*facts(), Record("r", 1)]
        for at in range(0, len(every), 8):
            kept.turn(every[at : at + 8], (), every[at - 8 : at - 4] if at else ())
        kept.trim(retention=LET_GO)
        begin = kept.log.held_from - 1
        kept.turn(every[:2], (), every[-1:])
        kept.turn([], (), every[4:6])
        look()
        kept.archive(2)
        kept.turn(every[2:4])
        kept.turn(every[4:5])
        kept.trim(retention=LET_GO)
        kept.turn([], (), every[4:5])
        kept.turn(every[4:6])
        look()
        kept.stop()
        kept.archive()
        archive = kept.reader()
        assert archive.manifest.missing and archive.oldest > begin + 1 > 1
        assert [each.epoch for each in archive.states()] == [begin, archive.oldest - 1]
        for _ in range(2):
            assert check_states(kept, archive, oracle.__getitem__) >= 1
            assert verify_archive(archive, deep=True).damages == ()
            Merger(archive).merge_all(lambda _: None)
        assert len([*archive.ranges()]) == 2
    finally:
        kept.close()
