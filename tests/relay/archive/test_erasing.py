"""What is erased from an archive is in none of its objects, and all else is as it was, for every reader."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

from index.patterns.text import parse_pattern
from index.values.values import Record, Value, key, same
from relay.archive import writing
from relay.archive.archive import Archive
from relay.archive.columns import ERASED_VALUE, exact_changes
from relay.archive.erasure import erasing
from relay.archive.erasure.erasing import Erasable, erase, erase_all
from relay.archive.merging import Merger
from relay.archive.packing import segments_in
from relay.archive.reading import ReadArchive
from relay.archive.tables import DeltaTables
from relay.archive.verifying import verify_archive
from relay.log.replay import Replay, state_at
from tests.relay.archive.histories import LET_GO, ArchivedLog, Killed, striking
from tests.relay.archive.test_archive_columns import told
from tests.relay.archive.test_states import EPOCHS, check_states, copied, lived, merge_run

pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

PATTERNS = ("p(1, _)", "q(_, _)", "said($at)", "$any", "none(_)")


class Expected:
    """What holds and is written after an erasure, reckoned from the log's own epochs."""

    def __init__(self, kept: ArchivedLog, pattern: str, upto: int) -> None:
        matches = erasing._matching(parse_pattern(pattern))
        self._last: dict[object, int] = {}
        for epoch in kept.epochs[:upto]:
            self._last |= {key(each): epoch.number for each in epoch.removed if matches(each)}
        self._matches, self._upto = matches, upto
        self.changes: list[tuple[int, str, object]] = []
        for epoch in kept.epochs:
            for kind, values in (
                ("insert", epoch.added),
                ("message", epoch.messages),
                ("delete", epoch.removed),
            ):
                for each in values:
                    goes = self._goes(epoch.number, kind, each)
                    self.changes.append((epoch.number, kind, key(ERASED_VALUE if goes else each)))
        self.states: list[set[object]] = [set()]
        for epoch in kept.epochs:
            now = (self.states[-1] | {*map(key, epoch.added)}) - {*map(key, epoch.removed)}
            self.states.append(now)
        self.states = [
            {each for each in held if at >= self._last.get(each, 0)} for at, held in enumerate(self.states)
        ]

    def _goes(self, number: int, kind: str, value: Value) -> bool:
        return self._matches(value) and number <= (
            self._upto if kind == "message" else self._last.get(key(value), 0)
        )


def in_segments(archive: Archive) -> list[tuple[int, str, object]]:
    changes = told([*archive.segments(0, archive.upto)])
    return [(number, kind, key(value)) for number, _, _, kind, value in changes]


def values_anywhere(archive: Archive) -> set[object]:
    """Every value in an object of the store, named or not."""
    objects: Any = archive.objects
    found: set[object] = set()
    for name, (content, _) in objects.held.items():
        if name.endswith(".dsz"):
            found |= {
                key(v)
                for s in segments_in(content, name)
                for e in s.epochs()
                for v in [*e.added, *e.messages, *e.removed]
            }
        elif name.endswith(".parquet"):
            found |= {key(each[4]) for each in exact_changes(content)}
    return found


@pytest.mark.parametrize("merged", ["", "before", "after", "parts"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_past_of_a_pattern_is_gone_and_nothing_else(base: ArchivedLog, pattern: str, merged: str) -> None:
    for upto in (2, EPOCHS):
        archive = copied(base)
        if merged == "before":
            merge_run(archive, 0, EPOCHS)
        if merged == "parts":
            merge_run(archive, 2, 4, clusters={"p": [0]})
        held = base.epochs[upto - 1].time + 1
        done = erase(archive, parse_pattern(pattern), held, "me")
        expected = Expected(base, pattern, upto)
        if merged in ("after", "parts"):
            Merger(archive).merge_all(lambda _: None)
        assert in_segments(archive) == expected.changes
        gone = [each for each in expected.changes if each[2] == key(ERASED_VALUE)]
        assert done.rows == len(gone) and bool(done.rows) == (pattern != "none(_)")
        assert done.ranges == len([1 for each in archive.ranges() if each.erasures]) or merged in (
            "after",
            "parts",
        )
        assert archive.erased == (upto if gone else 0)
        check_states(base, archive, expected.states.__getitem__)
        assert verify_archive(archive, deep=True).damages == ()
        assert values_anywhere(archive) <= {value for _, _, value in expected.changes} | {key(ERASED_VALUE)}


PAIRS = [*permutations(("p(1, _)", "q(_, _)", "said($at)", "p(_, _)"), 2)]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_several_patterns_at_once_are_erased_as_each_alone(base: ArchivedLog, pair: tuple[str, str]) -> None:
    for uptos in product((2, EPOCHS), repeat=2):
        together, apart = copied(base), copied(base)
        wanted = [
            Erasable(parse_pattern(pattern), base.epochs[upto - 1].time + 1, who)
            for pattern, upto, who in zip(pair, uptos, ("one", "two"), strict=True)
        ]
        done = erase_all(together, wanted)
        for each in wanted:
            erase(apart, each.pattern, each.before, each.by)
        assert in_segments(together) == in_segments(apart)
        assert together.erased == apart.erased
        for each, found in zip(wanted, done, strict=True):
            alone = erase(copied(base), each.pattern, each.before, each.by)
            assert (found.upto, found.rows, found.holding) == (alone.upto, alone.rows, alone.holding)
        assert all(len(of.erasures) <= 1 for of in together.ranges()), "each range was written once"
        assert {each.by for of in together.ranges() for each in of.erasures} == {"one, two"}
        assert verify_archive(together, deep=True).damages == ()
        assert values_anywhere(together) <= {value for _, _, value in in_segments(together)}


def test_what_is_before_missing_epochs_is_erased_up_to_its_time(tmp_path: Path) -> None:
    kept = lived(tmp_path)
    try:
        kept.archive(2)
        kept.trim(retention=LET_GO)
        kept.turn([Record("q", 0, 0)])
        kept.archive()
        archive = kept.reader()
        [(_, lost)] = archive.manifest.missing
        assert archive.oldest == lost + 1
        held = [each for each in kept.epochs if not archive.manifest.missing[0][0] <= each.number <= lost]
        assert not erase(archive, parse_pattern("said($)"), held[0].time, "me").rows
        for at, epoch in enumerate(held[:-1]):
            erase(archive, parse_pattern("said($)"), epoch.time + 1, "me")
            gone = [number for number, _, value in in_segments(archive) if value == key(ERASED_VALUE)]
            assert {*gone} == {each.number for each in held[: at + 1] if each.messages}
        assert verify_archive(archive, deep=True).damages == ()
    finally:
        kept.close()


def test_what_is_erased_twice_and_merged_between_is_sound(base: ArchivedLog) -> None:
    archive = copied(base)
    erase(archive, parse_pattern("said(0)"), 10**9, "one")
    erase(archive, parse_pattern("q(_, _)"), 10**9, "one")
    merge_run(archive, 0, 3)
    merge_run(archive, 0, 2)
    assert verify_archive(archive, deep=True).damages == ()
    erase(archive, parse_pattern("p(1, _)"), 10**9, "two")
    merge_run(archive, 0, 2)
    assert verify_archive(archive, deep=True).damages == ()
    [whole] = archive.ranges()
    assert {each.by for each in whole.erasures} == {"one", "two"}
    assert sum([each.rows for each in whole.erasures]) == len(
        [1 for each in in_segments(archive) if each[2] == key(ERASED_VALUE)]
    )


def test_readers_of_the_log_get_what_the_archive_has(tmp_path: Path) -> None:
    kept = lived(tmp_path)
    try:
        kept.archive()
        patterns = [parse_pattern(each) for each in ("p(1, $n)", "$any", "q($, $)", "said($at)")]
        kept.log.archive = kept.reader()
        for pattern in patterns:
            for epoch in range(EPOCHS + 1):
                Replay(kept.log, pattern, epoch).leave()  # states are kept for later readers
        kept.turn([Record("p", 1, 99)])
        archive = kept.reader()
        erase(archive, parse_pattern("p(1, _)"), 10**9, "me")
        kept.archive()
        kept.log.archive = kept.reader()
        for trimmed in (False, True):
            if trimmed:
                kept.trim()
                assert kept.log.held_from > 1
                kept.log.archive = kept.reader()
            expected = Expected(kept, "p(1, _)", EPOCHS)
            for epoch in range(EPOCHS + 2):
                held = {key(each) for each in state_at(kept.log, epoch) if not same(each, ERASED_VALUE)}
                assert held == expected.states[epoch], epoch
                for pattern in patterns:
                    replay = Replay(kept.log, pattern, epoch)
                    rows = list(replay.epochs(kept.log.last))
                    assert sorted({row[0] for row in rows}) == [row[0] for row in rows]
    finally:
        kept.close()


def test_who_reads_meanwhile_goes_on(base: ArchivedLog) -> None:
    archive = copied(base)
    reading = Archive(archive.objects, archive.place)
    reading.refresh()
    segments = reading.segments(0, EPOCHS)
    found = [next(segments)]
    erase(archive, parse_pattern("q(_, _)"), 10**9, "me")
    found += segments
    assert [each.ordinal for each in found] == [*range(1, EPOCHS + 1)]


@pytest.mark.parametrize("point", ["archive-after-object", "erase-before-manifest", "erase-after-manifest"])
def test_a_kill_anywhere_is_mended_by_the_same_command(
    base: ArchivedLog, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = copied(base)
    patch = striking(monkeypatch)

    def strike(name: str) -> None:
        if name == point:
            raise Killed(point)

    patch(strike)
    with pytest.raises(Killed):
        erase(archive, parse_pattern("q(_, _)"), 10**9, "me")
    patch(lambda _: None)
    archive.refresh()
    assert verify_archive(archive, deep=True).damages == ()
    erase(archive, parse_pattern("q(_, _)"), 10**9, "me")
    assert in_segments(archive) == Expected(base, "q(_, _)", EPOCHS).changes
    assert verify_archive(archive, deep=True).damages == ()


def test_ranges_in_chapters_are_erased_as_well(
    base: ArchivedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CHAPTER", 2)
    kept = lived(tmp_path)
    try:
        kept.archive()
        archive = kept.reader()
        [chapter] = archive.manifest.chapters
        erase(archive, parse_pattern("q(_, _)"), 10**9, "me")
        assert archive.manifest.chapters[0].path != chapter.path
        assert in_segments(archive) == Expected(base, "q(_, _)", EPOCHS).changes
        assert verify_archive(archive, deep=True).damages == ()
        assert values_anywhere(archive) <= {each for _, _, each in in_segments(archive)}
    finally:
        kept.close()


def test_delta_tables_name_and_tell_nothing_erased(base: ArchivedLog) -> None:
    archive = copied(base)
    before = [table.rows for table in DeltaTables(archive).update()]
    objects: Any = archive.objects
    there = b"".join(content for name, (content, _) in objects.held.items() if "_delta_log" in name)
    erase(archive, parse_pattern("said($)"), 10**9, "me")
    objects.now += 1
    now = [table.rows for table in DeltaTables(archive).update()]
    assert sum(before) - sum(now) == EPOCHS and there
    log = b"".join(content for name, (content, _) in objects.held.items() if "_delta_log" in name)
    assert b"said" in there and b"said" not in log


def test_the_archive_of_a_compacted_log_is_known_after_an_erasure(tmp_path: Path) -> None:
    kept = lived(tmp_path)
    try:
        kept.archive()
        archive = kept.reader()
        erase(archive, parse_pattern("q(_, _)"), 10**9, "me")
        kept.compact()
        archiver = kept.archiver()
        for each in archive.ranges():
            assert each.erasures
            archiver._check_same(each)
        kept.turn([Record("q", 0, 0)])
        kept.archive()
        assert verify_archive(kept.reader(), deep=True).damages == ()
    finally:
        kept.close()


def test_replays_of_an_archive_forget_what_was_erased(base: ArchivedLog) -> None:
    archive = copied(base)
    log, pattern = ReadArchive(archive), parse_pattern("q($, $)")
    for epoch in range(EPOCHS + 1):
        Replay(log, pattern, epoch).leave()
    erase(archive, pattern, 10**9, "me")
    expected = Expected(base, "q(_, _)", EPOCHS)
    for epoch in range(EPOCHS + 1):
        for reader in (log, log.beginning_at(epoch)):
            replay = Replay(reader, pattern, epoch)
            held = {key(Record("q", *row)) for row in replay.bag()}
            labelled = {key(each) for each in state_at(base.log, epoch) if each.label == "q"}  # type: ignore[union-attr]  # records
            assert held == expected.states[epoch] & labelled
            assert sum([len(row[2]) for row in replay.epochs(EPOCHS)]) >= 0
