"""Whatever happens to a log and its archiver, both together have every epoch once, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.errors import Refused
from relay.archive import archiver as archiving
from relay.archive.archive import Archive, ArchivePlace, archives_in, only_archive
from relay.archive.archiver import RangeSizes
from relay.archive.verifying import verify_archive
from relay.archive.writing import NotThisArchive
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.replay import Replay
from relay.log.segments import Segment
from relay.objects.opening import open_objects
from tests.relay.archive.histories import LATE, LET_GO, ArchivedLog, striking
from tests.relay.log.histories import plain

pytest.importorskip("zstandard", reason="the extra `archive` is not installed")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ArchivedLog]:
    made = ArchivedLog(tmp_path)
    yield made
    made.close()


def check(kept: ArchivedLog) -> None:
    """Everything that was written can be read, from any epoch to any other, and is what was written."""
    archive = kept.reader()
    kept.log.archive = archive
    held = [each for each in kept.epochs if each.number > kept.missing_upto]
    log = kept.log
    if held and archive.upto:
        assert log.oldest == kept.missing_upto + 1
        numbers = [each.number for each in held]
        assert plain(each for each in log.read(log.oldest - 1) if not each.silent) == plain(held)
        places = sorted({log.oldest - 1, log.held_from - 1, archive.upto, *numbers[::3], numbers[-1]})
        for after, upto in product(places, places):
            if log.oldest - 1 <= after < upto:
                found = [each.number for each in log.read(after, upto) if not each.silent]
                assert found == [each for each in numbers if after < each <= upto], (after, upto)
        for each in held:
            assert log.time_of(each.number) == each.time
            for time in (each.time, each.time + 1):
                at = log.epoch_at(time)
                assert at >= each.number and not [x for x in numbers if each.number < x <= at]
    check_manifests(kept)


def check_manifests(kept: ArchivedLog) -> None:
    """Versions follow each other, each range goes on where the one before ended, and each object is there."""
    found = kept.manifests()
    assert [each.version for each in found] == [*range(1, len(found) + 1)]
    for one, other in pairwise(found):
        assert other.previous == one.digest
        assert other.ranges[:-1] == one.ranges
    archive = kept.reader()
    for before, after in pairwise(archive.ranges()):
        assert before.last <= after.first
    lost = [number for number in range(1, archive.upto + 1) if number not in {e.number for e in kept.epochs}]
    for number in lost:
        if archive.oldest <= number:
            assert kept.log.lost(number) or any(first == number + 1 for first, _ in kept.log._starts_after(0))


def test_an_archive_has_what_the_log_has(kept: ArchivedLog) -> None:
    kept.write(10)
    made = kept.archive()
    assert [(each.first, each.last, each.changes) for each in made] == [(1, 10, 30)]
    kept.write(1)
    kept.write(1)
    kept.write(1)
    kept.write_silent()
    made = kept.archive()
    assert [(each.first, each.last) for each in made] == [(11, 13)]
    assert kept.archive() == []
    check(kept)
    kept.trim()
    assert kept.log.held_from > 1
    check(kept)
    kept.write(1)
    kept.archive()
    both = [*kept.reader().segments(0, kept.log.last)]
    assert [each.ordinal for each in both] == [*range(1, kept.log.last_segment + 1)]


def test_what_is_not_archived_stays(kept: ArchivedLog) -> None:
    for _ in range(6):
        kept.write()
    kept.trim()
    assert kept.log.held_from == 1, "there is no archive yet"
    kept.archive(1)
    upto = kept.reader().upto
    assert upto == 3
    kept.trim()
    assert kept.log.held_from == upto + 1
    check(kept)


def test_an_operator_may_bound_what_waits_for_the_archive(kept: ArchivedLog) -> None:
    for _ in range(6):
        kept.write()
    kept.archive(1)
    for _ in range(6):
        kept.write()
    kept.trim(retention=LET_GO)
    kept.missing_upto = kept.log.held_from - 1
    assert kept.missing_upto > kept.reader().upto
    for _ in range(6):
        kept.write()
    kept.stop()
    kept.archive()
    archive = kept.reader()
    assert archive.manifest.missing == ((4, kept.missing_upto),)
    assert archive.oldest == kept.missing_upto + 1
    check(kept)


def test_a_gap_that_the_archiver_meets_is_noted(kept: ArchivedLog) -> None:
    for _ in range(6):
        kept.write()
    kept.archive(1)
    for _ in range(6):
        kept.write()
    kept.archiver()  # which has begun, and finds the next segment gone
    kept.trim(retention=LET_GO)
    kept.missing_upto = kept.log.held_from - 1
    kept.write(2)
    kept.archive()
    assert kept.reader().manifest.missing == ((4, kept.missing_upto),)
    check(kept)


@pytest.mark.parametrize("columns", [True, False])
def test_what_goes_while_the_next_range_is_begun_does_no_harm(
    kept: ArchivedLog, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.write(2)
    kept.archive()
    archiver, source = kept.archiver(), kept.archiver().log
    archiver._makes_columns = archiver._makes_columns and columns
    kept.write(2)
    tail = source.tail

    def trimmed_after(ordinal: int, size: int = 1 << 20) -> list[Segment]:
        found = tail(ordinal, size)
        kept.trim()
        return found

    monkeypatch.setattr(source, "tail", trimmed_after)
    assert archiver.read() and kept.log.held_from > 1
    assert archiver.close()
    kept.note()
    assert verify_archive(kept.reader(), deep=True).damages == ()
    check(kept)


POINTS = ("archive-after-object", "archive-before-manifest", "archive-after-manifest")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("then", ["nothing", "restart", "compact", "write", "trim"])
def test_a_kill_anywhere_leaves_each_epoch_once(
    kept: ArchivedLog, point: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = striking(monkeypatch)
    for _ in range(4):
        kept.write(2)
        kept.write_silent()
    kept.archive(1)
    kept.fail(point, patch)
    if then != "nothing":
        getattr(kept, then)()
    kept.archive()
    check(kept)
    kept.trim()
    check(kept)
    orphans = len(kept.objects.listed(kept.reader().name("segments"))) - len([*kept.reader().ranges()])
    assert orphans == (point != "archive-after-manifest")


EVENTS = st.one_of(
    st.tuples(st.sampled_from(["write", "lose", "archive"]), st.integers(1, 4)),
    st.tuples(st.sampled_from(["write_silent", "restart", "compact", "trim", "archive"]), st.just(1)),
    st.tuples(st.sampled_from(["write"]), st.integers(1, 9)),
    st.tuples(st.sampled_from(POINTS), st.just(1)),
)


@settings(max_examples=25)
@given(st.lists(EVENTS, max_size=14), st.integers(1, 20), st.booleans())
def test_log_and_archive_have_each_epoch_once(
    events: list[tuple[str, int]], changes: int, small_groups: bool
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        if small_groups:
            monkeypatch.setattr("relay.archive.packing.GROUP_BYTES", 300)
            monkeypatch.setattr("relay.archive.archive.INDEX_BYTES", 64)
            monkeypatch.setattr("relay.archive.writing.CHAPTER", 2)
        kept = ArchivedLog(Path(folder), RangeSizes(changes=changes))
        patch = striking(monkeypatch)
        try:
            for name, count in events:
                if name in POINTS:
                    kept.fail(name, patch)
                else:
                    getattr(kept, name)(count)
            kept.archive()
            if not small_groups:
                check(kept)
            kept.trim()
            kept.log.archive = kept.reader()
            held = [each.number for each in kept.epochs]
            assert [each.number for each in kept.log.read(0) if not each.silent] == held
        finally:
            kept.close()


def test_every_replay_goes_across_the_border(kept: ArchivedLog) -> None:
    for _ in range(9):
        kept.write(2)
    kept.archive(3)
    kept.trim()
    assert 1 < kept.log.held_from < kept.log.last
    kept.log.archive = kept.reader()
    from index.patterns.text import parse_pattern

    pattern = parse_pattern("flight(_, $number, _, _, _, _)")
    for after in range(kept.log.last + 1):
        replay = Replay(kept.log, pattern, after)
        assert len(replay.bag()) == 3 * after
        rows = [(number, *map(len, counts)) for number, _, *counts in replay.epochs(kept.log.last)]
        assert rows == [(number, 3, 0, 0) for number in range(after + 1, kept.log.last + 1)]


# -- whose archive it is --------------------------------------------------------------------------


def copied(kept: ArchivedLog, folder: Path) -> Log:
    """A copy of the directory, opened as a daemon does."""
    import shutil

    kept.log.close()
    shutil.copytree(kept.data, folder)
    kept._open()
    return Log.open(folder)


def test_a_copied_directory_does_not_write_the_archive_of_the_original(
    kept: ArchivedLog, tmp_path: Path
) -> None:
    kept.write(4)
    kept.archive()
    other = copied(kept, tmp_path / "copy")
    try:
        kept.write(4)
        kept.archive()
        begun = archiving.Archiver(LogReader.open(tmp_path / "copy"), kept.objects, "main")
        with pytest.raises(NotThisArchive, match="which are not those of the log: another daemon writes"):
            begun.begin()
        assert other.last < kept.log.last
    finally:
        other.close()
    check(kept)


def test_a_lower_term_does_not_follow_a_higher(kept: ArchivedLog) -> None:
    kept.write(4)
    later = archiving.Archiver(LogReader.open(kept.data), kept.objects, "main", term=3, sizes=kept.sizes)
    earlier = archiving.Archiver(LogReader.open(kept.data), kept.objects, "main", term=2, sizes=kept.sizes)
    later.begin(), earlier.begin()
    assert earlier.read() and later.read() and later.close()
    with pytest.raises(NotThisArchive, match="written by a later leader, of term 3; this is 2"):
        earlier.close()
    with pytest.raises(NotThisArchive, match="written by a later leader"):
        earlier.begin()
    check(kept)


def test_of_two_archivers_one_writes_a_version(kept: ArchivedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.write(4)
    one = archiving.Archiver(LogReader.open(kept.data), kept.objects, "main")
    other = archiving.Archiver(LogReader.open(kept.data), kept.objects, "main")
    one.begin(), other.begin()
    assert one.read() and other.read()

    def between(name: str) -> None:
        if name == "archive-before-manifest":
            monkeypatch.setattr(archiving, "reach", lambda _: None)
            assert one.close()

    monkeypatch.setattr(archiving, "reach", between)
    with pytest.raises(NotThisArchive, match="got version 1 from another writer"):
        other.close()
    check(kept)


def test_what_another_archiver_wrote_meanwhile_is_not_written_again(kept: ArchivedLog) -> None:
    kept.write(4)
    one = archiving.Archiver(LogReader.open(kept.data), kept.objects, "main")
    other = archiving.Archiver(LogReader.open(kept.data), kept.objects, "main")
    one.begin(), other.begin()
    assert one.read()
    kept.write(4)
    while other.read():
        pass
    assert one.close()
    with pytest.raises(NotThisArchive, match="got version 1 from another writer"):
        other.close()
    other.begin()
    while other.read():
        pass
    assert other.close()
    numbers = [e.number for s in kept.reader().segments(0, 8) for e in s.epochs() if not e.silent]
    assert numbers == [*range(1, 9)]
    check(kept)


def test_archives_are_found_by_the_name_of_their_space(kept: ArchivedLog, tmp_path: Path) -> None:
    objects = open_objects(tmp_path / "archive")
    kept.write(4)
    kept.archive()
    identity = kept.log.identity
    assert archives_in(objects) == [ArchivePlace("main", identity)]
    assert only_archive(objects, "main").upto == 4
    from dataspace.errors import UsageError

    with pytest.raises(UsageError, match="has no archive of the space plant/1; there are main"):
        only_archive(objects, "plant/1")
    log = LogReader.open(kept.data)
    log.identity = "f" * 32
    begun = archiving.Archiver(log, objects, "main")
    begun.begin()
    assert begun.read() and begun.close()
    with pytest.raises(UsageError, match=r"has archives of 2 logs of the space main: .* up to epoch 4"):
        only_archive(objects, "main")
    assert only_archive(objects, "main", identity).place.identity == identity


def test_an_altered_object_is_damage(kept: ArchivedLog, tmp_path: Path) -> None:
    from relay.store.errors import LogDamaged

    kept.write(40)
    kept.archive()
    (path,) = (tmp_path / "archive").rglob("*.dsz")
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        archive = Archive(kept.objects, kept.reader().place)
        archive.refresh()
        if at >= 4:  # the first four are not read
            with pytest.raises(LogDamaged, match=r"was altered|is no object of segments"):
                list(archive.segments(0, 40))


def test_an_old_epoch_is_refused_without_the_archive(kept: ArchivedLog) -> None:
    kept.write(4)
    kept.archive()
    kept.write(2)
    kept.trim()
    with pytest.raises(Refused, match="the oldest held is 5"):
        list(kept.log.read(0))
    assert LATE
