"""Restoring: a data directory from a backup, as it was at the backup or at an earlier epoch.

A restored space is another space, although it has the facts of the first.  The daemon went on after that
epoch, and clients have seen what it did: turns that were accepted, epochs under numbers.  So the restored log
has an identity of its own, by which clients and Spark notice; and it begins with a number beyond every number
that may have been given out, so that no number means two things.

The state after an epoch is a snapshot that is not later, or the emptiness before epoch 1, and the epochs
since.  A claim that has ended cannot be put back without the epoch that made it, so nothing is computed
backwards.  A restored space has no sessions: a note ends all of the original.

Always: the backup is not changed; the cut is between two epochs, also where that is within a segment; the
directory appears under its name when it is whole and verified.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from shutil import rmtree
from typing import Final

from dataspace.codec import pack
from dataspace.errors import UsageError
from dataspace.faults import reach
from relay.backup.backup import MAIN, SPACES, beside, copy_staged, copy_topics, damages, spaces_of
from relay.backup.copies import CopyPace, FileMoment, LogSource, LogTarget, SourceSnapshot, put_mark, settle
from relay.backup.logs import parts
from relay.backup.manifest import Manifest
from relay.journal.reader import JournalReader
from relay.journal.rows import SCHEMA as TOPICS_SCHEMA, renumbered
from relay.log.log import BLOCK
from relay.log.segments import FORMAT, Segment, cut, encode_note
from relay.space_registers import SESSION, ended
from relay.store.errors import LogDamaged
from relay.store.ports import AcknowledgedMark
from relay.store.private import DIRECTORY_MODE, FILE_MODE
from relay.store.sqlite.failures import translated
from relay.store.sqlite.storage import Storage
from relay.store.sqlite.topics import SqliteTopics, put_topics

FASTEST: Final = 100_000
"""Epochs that no daemon makes in a second: one takes more than 10 µs of its only thread."""

MARK: Final = "restoring"
"""The file in a directory that is being restored; what an interrupted restore left is deleted by the next."""

LOCK: Final = "lock"
"""The file by which a directory is locked."""


@dataclass(frozen=True, slots=True)
class Restored:
    """One restored space: where it ends, newest epoch of the backup, new identity, first new number."""

    epoch: int
    time: int
    newest: int
    identity: str
    next_epoch: int


@dataclass(frozen=True, slots=True)
class RestoreWanted:
    """The moment to restore: an epoch of ``main``, or a time in microseconds; neither for all there is."""

    epoch: int | None = None
    time: int | None = None


def working_directory(target: Path) -> Path:
    """Returns the directory in which a restored one is made, which an interrupted restore may have left.

    Raises ``UsageError`` if the target is not empty, or if that directory has something else in it.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not empty; give a new directory, or an empty one")
    path = beside(target)
    if path.exists() and not (path / MARK).exists() and {each.name for each in path.iterdir()} - {LOCK}:
        raise UsageError(
            f"{path} is not from a restore but perhaps from an interrupted backup; "
            f"complete that, or delete it: rm -r {quote(str(path))}"
        )
    return path


def begin(path: Path) -> None:
    """Marks a working directory, which must be locked, and deletes what an interrupted restore left in it."""
    with translated("write", path):
        (path / MARK).touch(FILE_MODE)
        for entry in path.iterdir():
            if entry.is_dir():
                rmtree(entry)
            elif entry.name not in (MARK, LOCK):
                entry.unlink()


def restore(backup: Path, target: Path, wanted: RestoreWanted, pace: CopyPace) -> dict[str, Restored]:
    """Restores all spaces of a backup into a new directory; returns what was restored, by space.  O(backup).

    An epoch is one of ``main``; the other spaces are restored to the time of it.  Raises ``UsageError`` for
    what the backup does not reach, ``LogDamaged`` if it is not whole.
    """
    read = {each.space: each.read for each in Manifest.read(backup).spaces}
    found = spaces_of(backup)
    if MAIN not in found:
        raise UsageError(f"there is no log in {backup}")
    restored: dict[str, Restored] = {}
    for name, directory in found.items():
        place = target if name == MAIN else target / SPACES / name
        with translated("write", place):
            place.mkdir(DIRECTORY_MODE, parents=True, exist_ok=name == MAIN)
        with closing(LogSource(directory)) as source, source.moment() as log:
            where = _where(log, wanted, name)
            passed = max(0, time.time_ns() // 1000 - read.get(name, log.end.time))
            restored[name] = done = _restore_log(log, where, place, passed, pace, f"space {name}")
        if wanted.epoch is not None and name == MAIN:
            wanted = RestoreWanted(time=done.time)
        copy_staged(directory, place, pace, f"staged {name}")
    if copy_topics(backup, target, pace, "topics"):
        _renumber_topics(target)
    reach("restore-before-verify")
    for damage in damages(target):
        raise LogDamaged(f"what was restored is not whole, and is not to be used: {damage}")
    (target / MARK).unlink(missing_ok=True)
    return restored


def _where(log: FileMoment, wanted: RestoreWanted, space: str) -> Cut:
    try:
        if wanted.epoch is not None:
            return at_epoch(log, wanted.epoch)
        return at_end(log) if wanted.time is None else at_time(log, wanted.time)
    except UsageError as error:
        raise UsageError(f"space {space}: {error}") from None


def _restore_log(
    log: FileMoment, where: Cut, directory: Path, passed: int, pace: CopyPace, what: str
) -> Restored:
    identity = uuid.uuid4().hex
    issued = max(log.reserved, log.end.epoch) + BLOCK + passed * FASTEST // 1_000_000
    target = LogTarget(directory / "log.sqlite")
    try:
        has_sessions = False
        for portion in parts(kept(log, where), lambda segment: len(segment.body)):
            target.extend(portion, (), format=FORMAT, identity=identity)
            has_sessions = has_sessions or any(_SESSION in each.body for each in portion)
            pace.spent(what, sum([len(each.body) for each in portion]))
        if where.snapshot is not None:
            target.begin_snapshot(where.snapshot)
            for rows in parts(log.chunks(where.snapshot), lambda row: len(row[3])):
                target.add_chunks(rows)
                has_sessions = has_sessions or any(_SESSION in row[3] for row in rows)
                pace.spent(what, sum([len(row[3]) for row in rows]))
        if has_sessions:
            note = encode_note(where.epoch, where.time, ended())
            target.extend(list(cut([note], target.segment + 1, target.checksum)), ())
        header: dict[str, object] = {
            name: log.meta[name] for name in ("oldest", "before", "term") if name in log.meta
        }
        header |= {"anchor": log.anchor_of(log.first), "format": FORMAT, "identity": identity}
        target.complete(
            where.snapshot,
            first=0,
            kept=1,
            starts=log.rows("SELECT first, before FROM starts WHERE first <= ?", where.epoch),
            readers=log.rows("SELECT name, min(epoch, ?), seen FROM readers", where.epoch),
            meta=header | {"reserved": issued, "clean": 0},
        )
    except BaseException:
        target.abandon()
        raise
    target.close()
    put_mark(directory, AcknowledgedMark(target.epoch, target.segment, issued, target.checksum or bytes(16)))
    return Restored(where.epoch, where.time, log.end.epoch, identity, issued + 1)


_SESSION: Final = pack(SESSION)


def _renumber_topics(directory: Path) -> None:
    """Gives the durable topics new identities."""
    storage = Storage(directory / JournalReader.FILE, TOPICS_SCHEMA)
    try:
        topics = renumbered(SqliteTopics(storage).topics())
        with storage.transaction() as connection:
            put_topics(connection, topics)
    finally:
        storage.close()
    settle(directory / JournalReader.FILE)


# -- cutting ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """The last epoch that stays, its time, the segment it is in (0 for none), and the snapshot to begin
    with.
    """

    epoch: int
    time: int
    segment: int
    snapshot: SourceSnapshot | None


def at_end(log: FileMoment) -> Cut:
    """Returns the cut at the end of the log."""
    snapshots = log.snapshots()
    return Cut(log.end.epoch, log.end.time, log.end.segment, snapshots[-1] if snapshots else None)


def at_epoch(log: FileMoment, epoch: int) -> Cut:
    """Returns the cut after an epoch.  Raises ``UsageError`` if that cannot be restored."""
    if epoch > log.end.epoch:
        raise UsageError(f"epoch {epoch} is wanted, the backup ends with epoch {log.end.epoch}")
    if epoch < log.oldest:
        raise UsageError(f"epoch {epoch} is wanted, the oldest in the backup is {log.oldest}")
    return _cut(log, epoch)


def at_time(log: FileMoment, time: int) -> Cut:
    """Returns the cut after the last epoch that is not later than a time in microseconds."""
    rows = log.rows("SELECT segment FROM segments WHERE since <= ? ORDER BY segment DESC LIMIT 1", time)
    if not rows:
        return _before_all(log, time)
    segment = _segment(log, rows[0][0])
    return _cut(log, max(each.number for each in segment.epochs() if each.time <= time))


def _before_all(log: FileMoment, time: int) -> Cut:
    rows = log.rows("SELECT since FROM segments ORDER BY segment LIMIT 1")
    if log.oldest > 1:
        raise UsageError(
            f"the state at {text_of(time)} is wanted, the oldest epoch is of {text_of(rows[0][0])}"
        )
    return Cut(0, 0, 0, None)


def _cut(log: FileMoment, epoch: int) -> Cut:
    rows = log.rows("SELECT segment FROM segments WHERE first <= ? ORDER BY segment DESC LIMIT 1", epoch)
    if not rows or rows[0][0] < log.first:
        return Cut(log.end.epoch, log.end.time, log.end.segment, _base(log, epoch, log.end.segment))
    ordinal = rows[0][0]
    segment = _segment(log, ordinal)
    time = max(each.time for each in segment.epochs() if each.number <= epoch)
    whole = segment.last <= epoch
    reached = min(epoch, segment.last)
    return Cut(reached, time, ordinal, _base(log, reached, ordinal if whole else ordinal - 1))


def _base(log: FileMoment, epoch: int, last: int) -> SourceSnapshot | None:
    """Returns the newest snapshot after a segment that is not later than the last whole one."""
    for snapshot in reversed(log.snapshots()):
        if snapshot.segment <= last:
            return snapshot
    if log.oldest == 1:
        return None
    least = min([each.epoch for each in log.snapshots()], default=log.end.epoch)
    raise UsageError(
        f"epoch {epoch} cannot be restored: what was before epoch {log.oldest} is past retention, and the "
        f"oldest state in the backup is of epoch {least}; give that epoch or a later one"
    )


def _segment(log: FileMoment, ordinal: int) -> Segment:
    return next(log.segments(ordinal, log.anchor_of(ordinal)))


def kept(log: FileMoment, where: Cut) -> Iterator[Segment]:
    """Yields the segments up to a cut, the last of them made anew where the cut is within it."""
    if where.segment == 0:
        return
    previous = log.anchor_of(log.first)
    for segment in log.segments(log.first, previous):
        if segment.last > where.epoch:
            yield from cut(segment.encoded_until(where.epoch), segment.ordinal, previous)
            return
        yield segment
        if segment.ordinal >= where.segment:
            return
        previous = segment.checksum


def text_of(time: int) -> str:
    """Returns a time in microseconds since 1970 as text.

    >>> text_of(1_357_034_400_000_000)
    '2013-01-01T10:00:00+00:00'
    """
    return datetime.fromtimestamp(time / 1e6, UTC).isoformat()
