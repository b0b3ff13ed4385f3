"""A log that is written, archived, trimmed, compacted and opened again, beside a list of all its epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pytest import MonkeyPatch

from dataspace.errors import Refused
from dataspace.kernel.changes import Claims, Epoch
from index.values.values import Value, key
from relay.archive import archiver as archiving, merging, orphans, writing
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.archiver import Archiver, RangeSizes, archived_segment
from relay.archive.erasure import erasing
from relay.archive.manifest import ArchiveManifest, Range
from relay.log.compaction import compact
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.retention import Retention
from relay.objects.objects import Objects
from relay.objects.opening import open_objects
from tests.relay.log.histories import append, epoch, flight

KEPT: Final = Retention(age=0.0, archived=True)
"""Nothing is kept longer than it must be."""

LET_GO: Final = Retention(age=0.0)
"""The same, whether it is archived or not."""

LATE: Final = 10**15


class ArchivedLog:
    """A log under ``folder/data`` with an archive under ``folder/archive``, and what happened to them."""

    def __init__(self, folder: Path, sizes: RangeSizes | None = None, objects: Objects | None = None) -> None:
        self.data: Final = folder / "data"
        self.data.mkdir()
        self.objects: Objects = objects or open_objects(folder / "archive")
        self.sizes = sizes or RangeSizes(changes=7)
        self.epochs: list[Epoch] = []
        self._handles: dict[object, int] = {}
        self.missing_upto = 0
        self.log = Log.open(self.data)
        self._number = self.log.next_epoch - 1
        self._time = 1000
        self._archiver: Archiver | None = None
        self.starts = 1

    # -- what happens ---------------------------------------------------------------------------------

    def write(self, count: int = 1) -> None:
        """Appends epochs of three facts each in one transaction, and a silent entry after every third."""
        entries: list[Epoch] = []
        for _ in range(count):
            self._number += 1
            self._time += 5
            made = epoch(self._number, *[flight(self._number * 10 + at) for at in range(3)])
            made = Epoch(self._number, self._time, made.added, (), (), made.claims, None, 0, False)
            self.epochs.append(made)
            entries.append(made)
            if self._number % 3 == 0:
                entries.append(self._silent())
        append(self.log, *entries)
        self.log.issue(self._number)

    def turn(
        self, added: Sequence[Value] = (), sent: Sequence[Value] = (), removed: Sequence[Value] = ()
    ) -> None:
        """Appends an epoch with these changes."""
        self._number += 1
        self._time += 5
        claimed = [(self._number * 1000 + at, value) for at, value in enumerate(added)]
        retracted = [self._handles.pop(key(each)) for each in removed]
        self._handles.update({key(value): handle for handle, value in claimed})
        claims = (Claims("durable:EWR", claimed, retracted),)
        made = Epoch(self._number, self._time, added, sent, removed, claims, None, 0, False)
        self.epochs.append(made)
        append(self.log, made)
        self.log.issue(self._number)

    def write_silent(self, _: int = 1) -> None:
        """Appends an entry that has no epoch of its own, as a segment."""
        if self._number and self.log.last:
            append(self.log, self._silent())

    def _silent(self) -> Epoch:
        claims = (Claims("durable:EWR", [(10**9 + self._number, "unseen")]),)
        return Epoch(self._number, self._time, (), (), (), claims, None, 0, True)

    def lose(self, count: int = 1) -> None:
        """Ends the process as a crash does, after some epochs that were given out and not written."""
        self._number += count
        self.log.issue(self._number)
        self.log._tables.close()
        self._open()

    def restart(self, _: int = 1) -> None:
        """Closes the log and opens it again."""
        self.log.close()
        self._open()

    def compact(self, _: int = 1) -> None:
        """Closes the log, joins its segments, and opens it again."""
        self.log.close()
        self.stop()
        compact(self.data)
        self._open()

    def _open(self) -> None:
        self.log = Log.open(self.data)
        self._number = self.log.next_epoch - 1
        self.stop()
        self.starts += 1

    def trim(self, _: int = 1, retention: Retention = KEPT) -> None:
        """Deletes what may go, after a snapshot."""
        state = self.log.recover(snapshot=True)
        assert state is not None
        while self.log.trim(retention, LATE).more:
            pass

    def archive(self, most: int = 100) -> list[Range]:
        """Archives up to so many ranges that are full, and what is left if there are fewer, and notes it."""
        made: list[Range] = []
        while len(made) < most:
            try:
                added = self._step()
            except Refused:
                self.stop()
                continue
            if added is None:
                break
            made.append(added)
        self.note()
        return made

    def _step(self) -> Range | None:
        archiver = self.archiver()
        while archiver.read():
            pass
        return archiver.close()

    def archiver(self) -> Archiver:
        """The archiver, which has begun; a new one after a start or a failure."""
        if self._archiver is None:
            self._source = LogReader.open(self.data)
            self._archiver = made = Archiver(self._source, self.objects, "main", sizes=self.sizes)
            made.begin()
        return self._archiver

    def stop(self) -> None:
        """Ends the archiver; another one will begin."""
        if self._archiver is not None:
            self._source.close()
        self._archiver = None

    def fail(self, point: str, patch: Callable[[Callable[[str], None]], None]) -> None:
        """Has the archiver end at a point, as a kill there would end it."""

        def strike(name: str) -> None:
            if name == point:
                raise Killed(point)

        patch(strike)
        try:
            self._step()
        except Killed:
            self.stop()
        finally:
            patch(lambda _: None)

    def note(self) -> None:
        """Notes in the log what is archived, as the daemon does."""
        archive = self.reader()
        own = archive.manifest.archive
        self.log.note_archived(archive.upto, archived_segment(self.log, archive), own, self.objects.shown)

    # -- what there is --------------------------------------------------------------------------------

    def reader(self) -> Archive:
        """The archive, read anew."""
        archive = Archive(self.objects, ArchivePlace("main", self.log.identity))
        archive.refresh()
        return archive

    def manifests(self) -> list[ArchiveManifest]:
        """All versions, in order."""
        archive = self.reader()
        return [archive.version(each) for each in archive.versions()]

    def close(self) -> None:
        self.stop()
        self.log.close()


class Killed(BaseException):
    """The process has ended here, so no handler of errors has run."""


def striking(monkeypatch: MonkeyPatch) -> Callable[[Callable[[str], None]], None]:
    """What has all that writes an archive call a function at its points."""

    def patch(strike: Callable[[str], None]) -> None:
        for each in (archiving, writing, merging, erasing, orphans):
            monkeypatch.setattr(each, "reach", strike)

    return patch
