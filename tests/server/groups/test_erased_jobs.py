"""A job that is erased from an archive is in no note of its group there, nor in a dead letter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.steps import at_once
from dataspace.wire.consuming import ConsumeOptions
from index.patterns.patterns import matcher
from index.patterns.text import parse_pattern
from index.values.values import Record
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.archiver import Archiver, archive_all
from relay.archive.columns import ERASED_VALUE
from relay.archive.erasure.erasing import erase
from relay.archive.packing import segments_in
from relay.archive.verifying import verify_archive
from relay.groups.state import GroupStates, Item
from relay.log.notes import Note
from relay.log.reader import LogReader
from relay.objects.opening import open_objects
from server.groups.space.dead import bury, retrying
from server.groups.space.definitions import joined
from server.groups.space.reading import read_behind
from tests.server.groups.spaces import BareSpace
from tests.server.groups.test_keeping import Worker, send, wait_live

pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

PATTERN = parse_pattern("job($id)")
LATE = 10**15
SECRET = b"the secret"


async def lived(folder: Path) -> None:
    """Writes a log with six jobs of one group.

    Two held when the group began, and one of the two is gone.  Of the messages, one was dead and is tried
    again, one was a dead letter, one still is, and one is undone.
    """
    bare = BareSpace(folder)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        for number, name in enumerate(("the secret held", "stays")):
            bare.commit("boss", [(ASSERT, number + 1, Record("job", name))])
        group = await joined(bare.groups, ConsumeOptions("w", PATTERN, begin="held"))
        bare.commit("boss", [(RETRACT, 1)])
        for name in ("the secret again", "the secret dead", "kept dead", "the secret open"):
            bare.commit("boss", [(SEND, Record("job", name))])
        await bare.commits.wait_durable(bare.space.epoch)
        nursery.start_soon(read_behind, bare.groups)
        await wait_live(group)
        for item in [each for each in group.state.undone.values() if each.is_message][:3]:
            assert bury(bare, group, item, f"{item.value!r} failed")
        assert at_once(retrying(bare.groups, group, matcher(Record("job", "the secret again")))) == 1
        bare.commit("group:w", [(RETRACT, _letter(bare, "the secret dead"))])
        await send(bare, 1, 1)
        nursery.cancel_scope.cancel()
    bare.own_log.close()


def _letter(bare: BareSpace, name: str) -> int:
    letters = bare.space.claims("group:w").items()
    return next(
        handle
        for handle, fact in letters
        if isinstance(fact, Record) and fact.label == "dead" and fact.fields[3] == Record("job", name)
    )


@pytest.fixture
async def archive(tmp_path: Path) -> Archive:
    await lived(tmp_path / "data")
    objects = open_objects(tmp_path / "archive")
    log = LogReader.open(tmp_path / "data")
    archiver = Archiver(log, objects, "main")
    archiver.begin()
    assert archive_all(archiver, lambda _: None) == 1
    found = Archive(objects, ArchivePlace("main", log.identity))
    found.refresh()
    log.close()
    return found


def bodies(archive: Archive) -> Iterator[bytes]:
    """The bytes of all segments in a store, whether they are named or not."""
    folder = f"{archive.place.folder}/segments"
    for name in archive.objects.listed(folder):
        yield from [each.body for each in segments_in(archive.objects.get(f"{folder}/{name}"), name)]


def undone(archive: Archive) -> list[Item]:
    """The undone items, as notes alone say."""
    groups = GroupStates()
    for segment in archive.segments(0, archive.upto):
        for each in segment.items():
            if isinstance(each, Note):
                groups.apply(each.kind, each.fields)
    return [*groups["w"].undone.values()]


async def test_no_note_and_no_dead_letter_has_an_erased_job(archive: Archive) -> None:
    before = undone(archive)
    assert sum(body.count(SECRET) for body in bodies(archive)) > 6
    assert [each.value for each in before] == [
        Record("job", name) for name in ("the secret held", "stays", "the secret again")
    ]
    done = erase(archive, PATTERN, LATE, "me")
    assert not any(SECRET in body for body in bodies(archive))
    assert not any(
        SECRET in archive.content(file) for _, file in archive.files() if file.path.endswith(".parquet")
    )
    assert verify_archive(archive, deep=True).damages == ()
    assert done.holding == 2, "the job that holds, and a dead letter"
    assert any(b"kept dead" in body for body in bodies(archive))
    after = undone(archive)
    assert [each.value for each in after] == [ERASED_VALUE, Record("job", "stays"), ERASED_VALUE]
    assert [(each.at, each.time, each.kind) for each in after] == [
        (each.at, each.time, each.kind) for each in before
    ]
    assert not erase(archive, PATTERN, LATE, "me").rows


@pytest.mark.parametrize("is_erased", [False, True])
async def test_a_group_passes_over_an_erased_job_that_it_reads(
    archive: Archive, tmp_path: Path, is_erased: bool
) -> None:
    if is_erased:
        erase(archive, PATTERN, LATE, "me")
    bare = BareSpace(tmp_path / "data")
    bare.own_log.archive = archive
    worker = Worker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        nursery.start_soon(read_behind, bare.groups)
        group = bare.groups.by_name["w"]
        await wait_live(group)
        bare.groups.join(group, worker, "session", ())
        bare.groups.deliver()
        nursery.cancel_scope.cancel()
    from_notes = [Record("job", "stays"), Record("job", "the secret again")]
    from_log = [] if is_erased else [Record("job", "the secret open"), Record("job", 1)]
    assert [each.item.value for each in worker.got] == from_notes + from_log
    bare.own_log.close()
