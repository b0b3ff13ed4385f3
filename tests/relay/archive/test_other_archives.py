"""What a log notes of one archive never counts for another, and an archive that begins late says so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dataspace.errors import Refused
from relay.archive.archive import Archive
from relay.archive.archiver import Archiver, archive_all, archived_segment
from relay.archive.reading import ReadArchive
from relay.archive.verifying import verify_archive
from relay.archive.writing import NotThisArchive
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.objects.objects import StoreFailed
from relay.objects.opening import open_objects
from server.archiving.child import check_not_emptied
from tests.relay.archive.histories import ArchivedLog
from tests.relay.log.histories import append, epoch, flight

pytest.importorskip("zstandard", reason="the extra `archive` is not installed")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ArchivedLog]:
    """A log of nine epochs of which an archive has all."""
    made = ArchivedLog(tmp_path)
    for _ in range(3):
        made.write(3)
        made.archive()
    assert made.reader().upto == 9
    yield made
    made.close()


def other(kept: ArchivedLog, place: Path) -> None:
    """Points a log to another archive, as a start with another setting does."""
    kept.objects = open_objects(place)
    kept.restart()


def numbers(kept: ArchivedLog, after: int) -> list[int]:
    kept.log.archive = kept.reader()
    return [each.number for each in kept.log.read(after) if not each.silent]


def test_nothing_goes_before_the_archive_was_seen(kept: ArchivedLog) -> None:
    kept.restart()
    assert kept.log.archived == 9, "it is noted"
    kept.trim()
    assert kept.log.held_from == 1
    kept.note()
    kept.trim()
    assert kept.log.held_from > 1


def test_what_another_archive_lacks_stays(kept: ArchivedLog, tmp_path: Path) -> None:
    other(kept, tmp_path / "new")
    kept.note()
    assert (kept.log.archived, kept.log.archived_in) == (0, "")
    kept.trim()
    assert kept.log.held_from == 1
    kept.archive(1)
    assert kept.reader().upto == kept.log.archived == 3
    kept.write()
    kept.trim()
    assert kept.log.held_from == 4
    kept.archive()
    assert kept.reader().manifest.missing == () and numbers(kept, 0) == [*range(1, 11)]


def test_two_archives_of_one_log_have_identities_of_their_own(kept: ArchivedLog, tmp_path: Path) -> None:
    first = {each.archive for each in kept.manifests()}
    other(kept, tmp_path / "new")
    kept.archive()
    assert len(first) == 1 and len({each.archive for each in kept.manifests()} | first) == 2
    assert archived_segment(kept.log, kept.reader()) == kept.log.archived_segment


def test_a_new_archive_says_what_it_lacks(kept: ArchivedLog, tmp_path: Path) -> None:
    kept.write()
    kept.trim()
    assert kept.log.held_from == 10
    other(kept, tmp_path / "new")
    kept.archive()
    archive = kept.reader()
    assert (archive.oldest, archive.manifest.missing) == (10, ((1, 9),))
    assert [each.epoch for each in archive.states()] == [9], "what held before it is known"
    found = verify_archive(archive, deep=True)
    assert (found.damages, found.first, found.missing) == ((), 10, ((1, 9),))
    kept.write(2)
    kept.archive()
    kept.trim()
    assert numbers(kept, 9) == [*range(10, 13)]
    for after in (0, 8):
        with pytest.raises(Refused, match="the oldest held is 10"):
            numbers(kept, after)
        with pytest.raises(Refused, match="the oldest archived is 10"):
            list(ReadArchive(archive).segments(after, 12))


def test_an_archive_that_was_copied_goes_on(kept: ArchivedLog, tmp_path: Path) -> None:
    kept.write()
    kept.trim()
    shutil.copytree(tmp_path / "archive", tmp_path / "new")
    other(kept, tmp_path / "new")
    kept.archive()
    assert kept.reader().manifest.missing == () and numbers(kept, 0) == [*range(1, 11)]


def test_the_archive_of_a_copied_directory_is_refused_from_its_beginning(
    kept: ArchivedLog, tmp_path: Path
) -> None:
    kept.log.close()
    shutil.copytree(kept.data, tmp_path / "copy")
    kept._open()
    kept.write(3)
    kept.archive()
    with closing(Log.open(tmp_path / "copy")) as copy:
        first = copy.next_epoch
        append(copy, *[epoch(number, flight(number)) for number in range(first, first + 2)])
    new = open_objects(tmp_path / "new")
    with closing(LogReader.open(tmp_path / "copy")) as source:
        begun = Archiver(source, new, "main")
        begun.begin()
        archive_all(begun, lambda _: None)
    assert begun.archive.upto < kept.log.archived, "the note alone would pass it over"
    with closing(LogReader.open(kept.data)) as log:
        with pytest.raises(NotThisArchive, match="not those of the log"):
            Archiver(log, new, "main").begin()


def test_an_archive_that_was_emptied_is_not_begun_again(kept: ArchivedLog, tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    kept.log.note_archived(9, kept.log.archived_segment, kept.log.archived_in, place)
    archive = kept.reader()
    check_not_emptied(kept.log, archive, place)
    shutil.rmtree(tmp_path / "archive")
    with pytest.raises(StoreFailed, match="has no manifest any more, the newest had the number 3"):
        archive.refresh()
    empty = Archive(kept.objects, archive.place)
    empty.refresh()
    check_not_emptied(kept.log, empty, str(tmp_path / "new"))
    with pytest.raises(NotThisArchive, match="is empty, and had epochs up to 9"):
        check_not_emptied(kept.log, empty, place)
