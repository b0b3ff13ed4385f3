"""An erasure that stops half-way leaves nothing erased: whoever writes the archive next finishes it.

A kill or an error comes at each request to the store and at lines of the product; then the same command, a
merge, or the archiving process goes on.  Nothing erased may be left in any object, named or not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from dataspace.errors import DataspaceError
from index.patterns.text import parse_pattern
from index.values.values import Record, key
from relay.archive import columns, footers, merging, orphans, tables
from relay.archive.archive import Archive
from relay.archive.archiver import RangeSizes
from relay.archive.erasure import erasing
from relay.archive.erasure.erasing import Erased, erase
from relay.archive.manifest import Retired
from relay.archive.merging import Merger, MergeRules
from relay.archive.orphans import finish, leftovers
from relay.archive.tables import DeltaTable, DeltaTables
from relay.archive.verifying import verify_archive
from relay.objects.objects import StoreFailed
from tests.relay.archive.histories import ArchivedLog, Killed
from tests.relay.archive.memory import ObjectsInMemory
from tests.relay.archive.test_erasing import values_anywhere
from tests.striking import strike

pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

SECRET: Final = "p17-secret"
ERASED: Final = {key(Record("person", SECRET, at)) for at in range(3)} | {key(Record("rare", SECRET))}
PATTERN: Final = parse_pattern(f'person("{SECRET}", _)')
RARE: Final = parse_pattern(f'rare("{SECRET}")')


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchivedLog]:
    """Ranges of which two are merged, with a person in columns, a rare label, and Delta tables of all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MOST_LABELS", 1)
        kept = ArchivedLog(tmp_path_factory.mktemp("base"), RangeSizes(changes=4), ObjectsInMemory())
        for at in range(3):
            rare = Record("rare", SECRET if at else "other")
            kept.turn([Record("person", SECRET, at), Record("person", "p18", at)], [rare])
            kept.turn([], [Record("person", "p18", 100 + at)], [Record("person", SECRET, at)])
        kept.archive()
        Merger(kept.reader(), rules=MergeRules(changes=13)).merge_due()
        patch.setattr(columns, "MOST_LABELS", 2)
        kept.turn([], [Record("rare", SECRET), Record("rare", "other"), Record("person", SECRET, 0)])
        kept.archive()
    assert {each.label for each in DeltaTables(kept.reader()).update()} == {"person", "rare"}
    yield kept
    kept.close()


class Interrupted(ObjectsInMemory):
    """A store at whose so-manieth request the process is killed, or an error comes, before it or after."""

    def __init__(self, held: dict[str, tuple[bytes, float]]) -> None:
        super().__init__(held)
        self.error: type[BaseException] = Killed
        self.left = 0
        self.after = False

    def _request(self, doing: Callable[[], Any]) -> Any:
        self.left -= 1
        if not self.left and not self.after:
            raise self.error("before")
        done = doing()
        if not self.left and self.after:
            raise self.error("after")
        return done

    def listed(self, folder: str = "") -> Any:
        return self._request(lambda: ObjectsInMemory.listed(self, folder))

    def get(self, name: str) -> Any:
        return self._request(lambda: ObjectsInMemory.get(self, name))

    def put(self, name: str, content: bytes) -> None:
        self._request(lambda: ObjectsInMemory.put(self, name, content))

    def create(self, name: str, content: bytes) -> Any:
        return self._request(lambda: ObjectsInMemory.create(self, name, content))

    def delete(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._request(partial(ObjectsInMemory.delete, self, [name]))


def interrupted(base: ArchivedLog) -> tuple[Archive, Interrupted]:
    assert isinstance(base.objects, ObjectsInMemory)
    objects = Interrupted(base.objects.held)
    archive = Archive(objects, base.reader().place)
    archive.refresh()
    return archive, objects


def erase_both(archive: Archive) -> list[Erased]:
    return erasing.erase_all(archive, [erasing.Erasable(pattern, 10**9, "me") for pattern in (PATTERN, RARE)])


def again(archive: Archive) -> None:
    erase_both(archive)


def by_a_merge(archive: Archive) -> None:
    if not archive.refresh().erased:
        erase_both(archive)  # it was interrupted before it was recorded, so only the command can go on
        return
    if Merger(archive, rules=MergeRules(changes=40)).merge_all(lambda _: None) == 0:
        finish(archive)


def by_the_keeper(archive: Archive) -> None:
    if not archive.refresh().erased:
        erase_both(archive)
        return
    finish(archive)


RESUMERS: Final = (again, by_a_merge, by_the_keeper)


def check_nothing_left(archive: Archive) -> None:
    """Nothing erased is in any object, statistics and names of Delta tables included."""
    archive.refresh()
    assert not values_anywhere(archive) & ERASED
    objects: Any = archive.objects
    told = {name: content for name, (content, _) in objects.held.items() if name.endswith(".json")}
    assert not [name for name, content in told.items() if SECRET.encode() in content]
    named = {file.path for _, file in archive.files()}
    for name, content in told.items():
        assert "_delta_log" not in name or not {
            each.path
            for each in archive.manifest.retired
            if each.path not in named and each.path in str(content)
        }
    verdict = verify_archive(archive, deep=True)
    assert (verdict.damages, verdict.waiting) == ((), "")


def requests_of(base: ArchivedLog) -> int:
    archive, objects = interrupted(base)
    erase_both(archive)
    check_nothing_left(archive)
    return -objects.left


def cases(base: ArchivedLog, step: int) -> Iterator[tuple[int, bool, type[BaseException], Any]]:
    every = [
        (at, after, error, resume)
        for at in range(1, requests_of(base) + 1)
        for after in (False, True)
        for error in (Killed, StoreFailed)
        for resume in RESUMERS
    ]
    yield from every[::step]


def check_resumed(base: ArchivedLog, step: int) -> None:
    waited = 0
    for at, after, error, resume in cases(base, step):
        archive, objects = interrupted(base)
        objects.left, objects.after, objects.error = at, after, error
        try:
            erase_both(archive)
        except (Killed, DataspaceError):
            pass
        objects.left = 0
        there = Archive(objects, archive.place)
        is_recorded = bool(there.refresh().erased)
        left = values_anywhere(there) & ERASED
        if is_recorded and left:
            assert verify_archive(there).waiting, "what waits is told"
            waited += 1
        resume(there)
        check_nothing_left(there)
        if resume is again:
            assert all(each.rows == 0 for each in erase_both(there))
    assert waited


def test_an_erasure_that_is_stopped_at_a_request_is_finished(base: ArchivedLog) -> None:
    check_resumed(base, 53)


@pytest.mark.torture(long=True)
def test_an_erasure_that_is_stopped_at_any_request_is_finished(base: ArchivedLog) -> None:
    check_resumed(base, 1)


def files_of(*modules: Any) -> tuple[str, ...]:
    return tuple([str(each.__file__) for each in modules])


FENCE: Final = ("DeltaTables.__init__", "error_of_tables")
"""Where errors of tables stop, and what is called before."""

ALL: Final = files_of(erasing, tables, footers, orphans, columns)


def check_struck(base: ArchivedLog, sources: tuple[str, ...], step: int, *, fails: bool) -> None:
    """Raises at every so-manieth line; then the same command again."""
    at = 1
    while True:
        archive, _ = interrupted(base)
        done: list[Erased] = []
        with strike(at, OverflowError, sources, FENCE) as left:
            try:
                done = erase_both(archive)
            except OverflowError:
                assert fails, f"an error at line {at} of tables ends an erasure"
            if left() > 0:
                break
        if not fails:
            check_nothing_left(archive)
            assert sum([each.rows for each in done]) > 0
        erase_both(archive)
        check_nothing_left(archive)
        at += step
    assert at > 1


def test_no_error_in_making_tables_stops_an_erasure(base: ArchivedLog) -> None:
    check_struck(base, files_of(tables, footers), 61, fails=False)


def test_an_erasure_with_an_error_at_a_line_is_finished(base: ArchivedLog) -> None:
    check_struck(base, ALL, 401, fails=True)


@pytest.mark.torture(long=True)
def test_an_erasure_with_an_error_at_any_line_is_finished(base: ArchivedLog) -> None:
    check_struck(base, files_of(tables, footers), 1, fails=False)
    check_struck(base, ALL, 3, fails=True)


def test_a_time_at_the_end_of_the_calendar_stops_neither_tables_nor_an_erasure(tmp_path: Path) -> None:
    kept = ArchivedLog(tmp_path, RangeSizes(changes=100))
    try:
        last = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
        kept.turn([Record("valid", 1, last)], [Record("person", SECRET, last), Record("other", 1)])
        kept.archive()
        archive = kept.reader()
        assert [each.rows for each in DeltaTables(archive).update()] == [1, 1, 1]
        done = erase(archive, PATTERN, 10**9, "me")
        assert (done.rows, done.tables_error) == (1, "")
        assert [each.label for each in DeltaTables(archive).update()] == ["other", "valid"]
        assert verify_archive(archive, deep=True).waiting == ""
    finally:
        kept.close()


def test_a_table_that_cannot_be_made_stops_no_other_table(base: ArchivedLog) -> None:
    archive, _ = interrupted(base)
    objects: Any = archive.objects
    for name in [each for each in objects.held if "_delta_log" in each]:
        objects.held.pop(name)
    [damaged] = [each for each in objects.held if "label=rare/arity=1" in each and "_rows" not in each]
    objects.held[damaged] = b"no Parquet", 0.0
    made: list[DeltaTable] = []
    with pytest.raises(DataspaceError, match="rare/1"):
        made.extend(DeltaTables(archive).update())
    assert [each.label for each in made] == ["person"]


def test_what_a_merge_lists_no_more_is_deleted_before(base: ArchivedLog) -> None:
    archive, objects = interrupted(base)
    objects.left, objects.error = 10**9, Killed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(erasing, "finish", lambda _: orphans.Leftovers())
        erase_both(archive)
    assert leftovers(archive).objects
    newer = merging.retired_after(archive.manifest, [], objects.now, archive.manifest.version - 1)
    assert {each for each in newer if not each.time} == {
        each for each in archive.manifest.retired if not each.time
    }
    assert merging.retired_after(archive.manifest, [], objects.now, archive.manifest.version) == ()
    assert all(isinstance(each, Retired) for each in newer)
    finish(archive)
    check_nothing_left(archive)


def test_files_that_a_killed_process_began_go_within_a_day(tmp_path: Path) -> None:
    """They may have values that are erased later, and no listing showed them."""
    kept = ArchivedLog(tmp_path)
    try:
        kept.turn([Record("person", SECRET, 1)])
        kept.archive()
        assert [*DeltaTables(kept.reader()).update()]
        begun = [each.parent / ".part-1" for each in (tmp_path / "archive").rglob("*") if each.is_file()]
        fresh = [each.with_name(".part-2") for each in begun]
        for each in (*begun, *fresh):
            each.write_bytes(SECRET.encode())
        for each in begun:
            os.utime(each, (1.0, 1.0))
        orphans.collect(kept.reader())
        left = {each.parent.name for each in begun if each.exists()}
        assert left <= {"manifest"} and all(each.exists() for each in fresh)
        assert verify_archive(kept.reader(), deep=True).damages == ()
    finally:
        kept.close()
