"""Copies everything that one home holds into another one, by the operations that all homes have.

A home is a data directory or a store in PostgreSQL.  Segments are copied as they are, so the copy has the
identity, the numbers and the seals of its original; the newest snapshot is written anew.  Each log in the
target has a header of no format until its copy is whole, so no daemon opens it before.

Always: a copy that was interrupted is continued by the next one; a target with anything else in it is refused
and left alone; a segment is copied only if it is sealed to the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final, TypeVar

from dataspace.errors import UsageError
from dataspace.faults import reach
from relay.backup.backup import MAIN
from relay.backup.copies import CopyPace, put_mark, replace, settle
from relay.backup.logs import parts
from relay.journal.reader import JournalReader, topics_verdict
from relay.journal.rows import FORMAT as TOPICS_FORMAT, SCHEMA as TOPICS_SCHEMA, topic_of
from relay.log.chain import Chain, rows_of_segments
from relay.log.reader import LogReader, LogStatistics, Verdict, verdict
from relay.log.segments import CHECKSUM_BYTES, EARLIER, FORMAT, Segment
from relay.log.snapshots import SnapshotWriter, newest
from relay.space_registers import space_registers
from relay.store.errors import Closes, LogDamaged
from relay.store.header import UNFINISHED, Header, check_format, unsealed
from relay.store.ports import (
    AcknowledgedMark,
    ChainTables,
    LogTables,
    Names,
    StagedTables,
    Start,
    TopicTables,
)
from relay.store.private import make_anew
from relay.store.sqlite.failures import translated
from relay.store.sqlite.staged import SCHEMA as STAGED_SCHEMA, STAGED, SqliteStaged
from relay.store.sqlite.storage import Schema, Storage
from relay.store.sqlite.tables import LOG_TABLES
from relay.store.sqlite.topics import SqliteTopics

LOG_SCHEMA: Final = Schema(LOG_TABLES, FORMAT, (*EARLIER, UNFINISHED))
"""The tables of a log in SQLite that is being copied."""

T = TypeVar("T", bound=Closes | None)


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """A home at one end of a copy; its tables are opened anew by each call."""

    place: str
    spaces: Sequence[str]
    """The spaces that have a log there."""
    log: Callable[[str], LogTables]
    topics: Callable[[], TopicTables | None]
    """None if the source has none, as with staged batches."""
    staged: Callable[[str], StagedTables | None]


def copy_home(
    source: CopyEnd, target: CopyEnd, spaces: Sequence[str], pace: CopyPace
) -> dict[str, LogStatistics]:
    """Copies the logs of some spaces, their staged batches, and with ``main`` the durable topics.

    Returns the counts of each log.  Raises ``UsageError`` for a target that is not empty, ``LogDamaged`` for
    a source that is not what was written, and ``LogFailed``; then the same call continues.
    """
    ordered = sorted(spaces, key=MAIN.__eq__)  # a copy has ended with its last log, which is that of main
    _begin(source, target, ordered)
    for space in ordered:
        with _opened(source.staged(space)) as old, _opened(target.staged(space)) as new:
            if old is not None and new is not None:
                _copy_staged(old, new, pace, f"staged {space}")
    if MAIN in spaces:
        with _opened(source.topics()) as held, _opened(target.topics()) as made:
            if held is not None and made is not None:
                _copy_topics(held, made, pace)
    for space in ordered:
        with closing(source.log(space)) as log, closing(target.log(space)) as copy:
            _copy_log(log, copy, pace, f"space {space}")
    return {space: _checked(source, target, space) for space in spaces}


@contextmanager
def _opened(tables: T) -> Iterator[T]:
    """Closes tables at the end of the block, if there are any."""
    try:
        yield tables
    finally:
        if tables is not None:
            tables.close()


def _begin(source: CopyEnd, target: CopyEnd, spaces: Sequence[str]) -> None:
    """Declares logs unfinished, the last one first; ``UsageError`` if there are others in the target."""
    goes_on = False
    for space in reversed(spaces):
        with closing(source.log(space)) as original, closing(target.log(space)) as copy:
            names, _, ends = copy.moment()
            if names.get("format") == UNFINISHED:
                goes_on = True
                continue
            is_part = goes_on and names.get("identity") == original.moment().names.get("identity")
            if (names or ends is not None) and not is_part:
                raise UsageError(f"{copy.place} is not empty: it has a log of space {space!r}")
            copy.put_header({"format": UNFINISHED})


# -- one log ------------------------------------------------------------------------------------------


class _WholeHeader(Header):
    """A header that is written with its first change, all of it."""

    def __init__(self, names: Names, starts: Sequence[Start]) -> None:
        super().__init__({}, starts)
        self._whole: Final = names

    @contextmanager
    def changing(self, named: Names, *, start: Start | None = None, oldest_start: int = 0) -> Iterator[Names]:
        whole = {**self._whole, **named}
        with super().changing(whole, start=start, oldest_start=oldest_start) as written:
            yield written


def _copy_log(source: LogTables, target: LogTables, pace: CopyPace, what: str) -> None:
    names, starts, _ = source.moment()
    check_format(source.place, names, FORMAT, EARLIER)
    meta = unsealed(names, starts, source.place)
    chain = Chain(source, meta.get("anchor", bytes(CHECKSUM_BYTES)))
    first = _continued(chain, source, target)
    for part in _portions(chain.walk(first), pace, what):
        target.append(rows_of_segments(part), {})
        reach("copy-portion")
    held = target.ends(0)
    if held is not None and held.oldest < chain.first:  # retention went on since the last attempt
        target.drop_before(chain.first, meta.get("oldest", 1), {})
    for start in starts:
        target.begin_start(*start, {})
    _copy_readers(source, target)
    target.drop_incomplete_snapshots()
    meta.pop("snapshot", None)
    header = _WholeHeader({**meta, "format": FORMAT, "anchor": chain.anchor}, starts)
    state = newest(source, space_registers)
    reach("copy-before-header")
    if state is None:
        with header.changing({}) as written:
            target.put_header(written)
    else:
        writer = SnapshotWriter(target, header, state)
        while writer.step():
            pass
    mark = AcknowledgedMark(chain.epoch, chain.last, meta.get("reserved", 0), chain.checksum)
    target.write_mark(mark, sync=True)


def _continued(chain: Chain, source: ChainTables, target: ChainTables) -> int:
    """Returns the ordinal of the first segment that the target lacks; ``UsageError`` if it has others."""
    held = target.ends(0)
    if held is None:
        return chain.first
    if source.checksum_of(held.newest) != held.checksum:
        raise UsageError(
            f"{target.place} has part of another log, up to epoch {held.last}, of a copy that has not ended;"
            " delete it, or give another target"
        )
    return held.newest + 1


def _copy_readers(source: LogTables, target: LogTables) -> None:
    readers = source.readers()
    for name, _, _ in target.readers():
        if name not in [each[0] for each in readers]:
            target.delete_reader(name)
    for reader in readers:
        target.put_reader(*reader)


def _portions(segments: Iterator[Segment], pace: CopyPace, what: str) -> Iterator[list[Segment]]:
    """Yields segments in portions, and counts each portion once it was taken."""
    for part in parts(segments, lambda segment: len(segment.body)):
        yield part
        pace.spent(what, sum([len(each.body) for each in part]))


# -- topics and staged batches ------------------------------------------------------------------------


def _copy_topics(source: TopicTables, target: TopicTables, pace: CopyPace) -> None:
    """Copies the durable topics; an earlier attempt's are deleted before."""
    names = source.moment().names
    target.write([], [], [], [row[0] for row in target.topics()], {})
    target.write_topics([], {})
    if not names:
        return
    check_format(source.place, names, TOPICS_FORMAT)
    unsealed(names, (), source.place)
    rows = source.topics()
    for row in rows:
        kept = topic_of(*row)
        chain = Chain(source, kept.anchor, kept.slot)
        for part in _portions(chain.walk(chain.first), pace, f"topic {kept.name}"):
            target.write(rows_of_segments(part), [], [], [], {})
    target.write([], [], rows, [], names)
    for slot, _, _ in rows:
        for reader in source.readers(slot):
            target.put_reader(slot, *reader)
    target.write_mark(AcknowledgedMark(names.get("steps", 0)), sync=True)


def _copy_staged(source: StagedTables, target: StagedTables, pace: CopyPace, what: str) -> None:
    target.purge(inf)
    for key, since, body in source.rows():
        target.append(key, since, body)
        pace.spent(what, len(body))


def topics_file(source: TopicTables, target: Path, pace: CopyPace) -> int:
    """Copies durable topics, as of one moment, into a directory; returns the bytes of the file."""
    name, mark = JournalReader.FILE, JournalReader.MARK
    with _made_anew(target / name) as new:
        beside = target / f"{mark}.new"  # the mark itself is never ahead of its file
        with translated("write", beside):
            make_anew(beside)
        with closing(SqliteTopics.open(new, beside, TOPICS_SCHEMA)) as tables:
            _copy_topics(source, tables, pace)
            steps = tables.mark
        beside.unlink()
    put_mark(target, steps, mark)
    return (target / name).stat().st_size


def staged_file(source: StagedTables, target: Path, pace: CopyPace, what: str) -> int:
    """Copies staged batches into a directory; returns the bytes of the file."""
    with _made_anew(target / STAGED) as new, closing(SqliteStaged(Storage(new, STAGED_SCHEMA))) as tables:
        _copy_staged(source, tables, pace, what)
    return (target / STAGED).stat().st_size


@contextmanager
def _made_anew(path: Path) -> Iterator[Path]:
    """Lends a file for the block to make, and puts it in the place of another one, if there is one."""
    new = path.with_name(f"{path.name}.new")
    with translated("write", new):
        make_anew(new)
    yield new
    settle(new)
    replace(new, path)


# -- checking -----------------------------------------------------------------------------------------


def _checked(source: CopyEnd, target: CopyEnd, space: str) -> LogStatistics:
    """Reads a copied log, with ``main`` also the topics; ``LogDamaged`` if it is not what the source is."""
    found, original = _verdict(target, space), _counts(source, space)
    damages = list(found.damages)
    counts = (found.statistics.last, found.statistics.segments, found.statistics.changes)
    if counts != original:
        damages.append(f"it has {counts} as newest epoch, segments and changes, and the source {original}")
    if space == MAIN:
        damages += _topics_damages(target)
    for damage in damages:
        raise LogDamaged(f"the copy of space {space} is not whole, and is not to be used: {damage}")
    return found.statistics


def _topics_damages(target: CopyEnd) -> tuple[str, ...]:
    def opened() -> JournalReader:
        tables = target.topics()
        assert tables is not None  # as the end of a target
        return JournalReader(tables)

    return topics_verdict(opened).damages


def _verdict(end: CopyEnd, space: str) -> Verdict:
    with closing(LogReader(end.log(space), registers=space_registers)) as reader:
        return verdict(reader)


def _counts(end: CopyEnd, space: str) -> tuple[int, int, int]:
    with closing(LogReader(end.log(space))) as reader:
        held = reader.statistics()
        return held.last, held.segments, held.changes
