"""Erasing: the facts and messages of a pattern go from an archive, and their places stay.

Messages of the past are erased, and facts with each of their changes up to the last removal; a fact that
still holds stays.  In segments and columns the value of each such change becomes ``erased()``, so numbers,
order and counts of all others are as before.  Segments are sealed anew, and their range keeps the log's seal.
Copies that groups made go as well: dead letters, which are facts, and items in notes.

Always: after a commit no object that the archive names has an erased value; replaced objects, and the
manifests that name them, are deleted at once, or by whatever writes the archive next (``orphans``).  Delta
tables are made anew after all is deleted, so their errors stop no deletion.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from dataspace.codec import pack
from dataspace.faults import reach
from index.patterns.readers import match_reader
from index.patterns.skeletons import skeleton
from index.values.values import Value, key, same
from relay.archive.archive import Archive, may_have
from relay.archive.columns import ERASED, ERASED_VALUE, arrow_module, exact_changes, written
from relay.archive.manifest import (
    COLUMNS,
    SEGMENTS,
    STATES,
    ArchivedFile,
    ArchivedState,
    ArchiveManifest,
    ChapterBody,
    Erasure,
    Range,
    Retired,
)
from relay.archive.orphans import Leftovers, finish
from relay.archive.packing import SegmentPacker
from relay.archive.tables import DeltaTables, error_of_tables
from relay.archive.writing import ArchiveWriter, NotThisArchive, random_name
from relay.groups.state import DEAD, END, WITH_ITEMS, Item, is_dead, items_of, without_items
from relay.log.notes import Note
from relay.log.segments import Place
from relay.log.selections import flat_selection
from relay.store.errors import LogDamaged

ATTEMPTS: Final = 10
"""How often an erasure begins again because other writers were first."""


@dataclass(frozen=True, slots=True)
class Erasable:
    """An order to erase matches of a pattern from before a time, in microseconds since 1970.

    ``by`` says who wants that, for the record in the archive.
    """

    pattern: Value
    before: int
    by: str


@dataclass(slots=True)
class Erased:
    """What an erasure did: the newest epoch that it reached, erased rows and items in notes of groups, and
    facts that stay because they hold; and, together with the erasures beside it, ranges and states that were
    written anew, and deleted objects and manifests, also objects that an interrupted erasure had left.

    ``tables_error`` says why Delta tables were not made anew, if so; nothing erased is left in them."""

    upto: int = 0
    rows: int = 0
    ranges: int = 0
    states: int = 0
    holding: int = 0
    objects: int = 0
    manifests: int = 0
    tables_error: str = ""


def erase(archive: Archive, pattern: Value, before: int, by: str) -> Erased:
    """Erases what matches a pattern and was made before a time, as ``erase_all``, and returns counts."""
    return erase_all(archive, [Erasable(pattern, before, by)])[0]


def erase_all(archive: Archive, wanted: Sequence[Erasable]) -> list[Erased]:
    """Erases several patterns at once, so that each range is written anew once; returns counts for each.

    First deletes what an interrupted erasure has left.  Reads each range with such labels twice, some 1 µs a
    change; writes such ranges anew, with one range at a time in memory.  Raises ``NotThisArchive`` if other
    writers were first again and again.
    """
    archive.refresh()
    deleted = [finish(archive)]
    for attempt in range(ATTEMPTS):
        work = _Erasing(archive, [_Subject(each) for each in wanted])
        try:
            work.erase()
        except NotThisArchive:
            if attempt + 1 == ATTEMPTS:
                raise
            continue
        break
    deleted.append(finish(archive))
    common = {
        "ranges": work.done.ranges,
        "states": work.done.states,
        "objects": sum([len(each.objects) for each in deleted]),
        "manifests": sum([len(each.manifests) for each in deleted]),
    }
    error = _tables_anew(archive, deleted)
    return [
        Erased(each.upto, each.rows, holding=each.holding, tables_error=error, **common)
        for each in work.subjects
    ]


def _tables_anew(archive: Archive, deleted: Sequence[Leftovers]) -> str:
    """Makes Delta tables again whose logs were deleted; returns why that failed, if it did."""
    return error_of_tables(DeltaTables(archive)) if any(each.table_files for each in deleted) else ""


class _Subject:
    """One order in the course of an attempt: its last epoch, its counts, and the facts that go."""

    def __init__(self, wanted: Erasable) -> None:
        self.wanted: Final = wanted
        form = skeleton(wanted.pattern)
        self.matches: Final = _matching(wanted.pattern)
        self.flat: Final = flat_selection(form)
        self.upto = self.rows = self.holding = 0
        self.ends: Final = dict[Hashable, int]()
        """The epoch of the last removal of each fact that goes."""
        self.since: Final = dict[Hashable, int]()
        """The epoch since which each fact holds that holds after the last epoch."""

    def goes(self, number: int, kind: str, value: Value) -> bool:
        """True if a change goes."""
        if not self.matches(value):
            return False
        return number <= (self.upto if kind == "message" else self.ends.get(key(value), -1))

    def item_goes(self, number: int, item: Item, oldest: int) -> bool:
        """True if an item goes from a note behind an epoch: a fact if its row goes, or is gone already.

        ``oldest`` is the epoch from which on all rows are known.  A later item goes unless a
        row says that the fact holds, even if the fact holds since before ``oldest``.
        """
        if number > self.upto or not self.matches(item.value):
            return False
        if item.kind != "fact":
            return True
        name, epoch = key(item.value), item.at[0]
        return epoch <= self.ends.get(name, -1) or oldest <= epoch < self.since.get(name, END)

    def may_be_in(self, of: Range) -> bool:
        """True if a range may have changes of the pattern."""
        columns = [file for file in of.files if file.form == COLUMNS]
        return not columns or any(map(self.may_have, columns))

    def may_have(self, file: ArchivedFile) -> bool:
        """True if an object in columns may have facts of the pattern, or dead letters."""
        flat = self.flat
        return flat is None or may_have(file, flat) or file.label == DEAD


@dataclass(slots=True)
class _Erasing:
    """One attempt."""

    archive: Archive
    subjects: Sequence[_Subject]
    done: Erased = field(default_factory=Erased)
    _replaced: list[ArchivedFile] = field(default_factory=list)
    _noted: set[int] = field(default_factory=set)
    """The first epochs of ranges whose notes may have items that go."""

    def erase(self) -> None:
        """Finds the rows that go, writes their objects anew, and lists the old objects as erased."""
        manifest = self.archive.refresh()
        for each in self.subjects:
            newest = self.archive.epoch_at(each.wanted.before - 1)
            each.upto = 0 if newest < self.archive.oldest <= newest + 1 else newest  # none was made by then
        self._find(max([each.upto for each in self.subjects], default=0))
        upto = max([each.upto for each in self.subjects if each.rows], default=0)
        if not upto:
            return
        writer = ArchiveWriter(self.archive, None)
        with writer.attempt():
            following = self._following(writer, manifest, upto)
            reach("erase-before-manifest")
            writer.commit(following)
        reach("erase-after-manifest")
        self.archive.refresh()

    # -- what goes ------------------------------------------------------------------------------------

    def _find(self, upto: int) -> None:
        """Notes the last removals of facts, and how many changes go."""
        finding = [(each, _Found(each)) for each in self.subjects]
        for of in self.archive.ranges(0, upto):
            reading = [found for each, found in finding if of.first <= each.upto and each.may_be_in(of)]
            for segment in self.archive.segments_of(of):
                for number, _, added, sent, removed in segment.changes_after(0, upto) if reading else ():
                    for found in reading:
                        found.add_epoch(number, added, sent, removed)
                for number, note in segment.notes(WITH_ITEMS, upto):
                    for item in items_of(note.kind, note.fields):
                        for each, found in finding:
                            if each.matches(item.value):
                                found.items.append((number, item))
                                self._noted.add(of.first)
        for _, found in finding:
            found.close(self.archive.oldest)

    def _goes(self, number: int, kind: str, value: Value) -> bool:
        return any(each.goes(number, kind, value) for each in self.subjects)

    def _note_left(self, number: int, note: Note) -> Note:
        def goes(item: Item) -> bool:
            return any(each.item_goes(number, item, self.archive.oldest) for each in self.subjects)

        return without_items(note, goes, ERASED_VALUE)

    def _may_go_from(self, of: Range) -> bool:
        return of.first in self._noted or any(each.may_be_in(of) for each in self.subjects)

    def _who(self) -> str:
        """Returns who erases, each once."""
        return ", ".join(dict.fromkeys([each.wanted.by for each in self.subjects if each.rows]))

    # -- writing anew ---------------------------------------------------------------------------------

    def _following(self, writer: ArchiveWriter, manifest: ArchiveManifest, upto: int) -> ArchiveManifest:
        """Writes what has erased values anew, and returns the next version."""
        chapters, gone = [], list[str]()
        for chapter in manifest.chapters:
            body = self.archive.body(chapter)
            anew = ChapterBody(
                tuple([self._without(writer, each, upto) for each in body.ranges]),
                body.starts,
                tuple([self._state_without(writer, each) for each in body.states]),
            )
            if anew != body:
                gone.append(chapter.path)
                chapter = writer.put_chapter(anew)
            chapters.append(chapter)
        following = replace(
            manifest.next(),
            chapters=tuple(chapters),
            ranges=tuple([self._without(writer, each, upto) for each in manifest.ranges]),
            states=tuple([self._state_without(writer, each) for each in manifest.states]),
            erased=max(manifest.erased, upto),
        )
        paths = [each.path for each in manifest.retired] + gone + [each.path for each in self._replaced]
        retired = tuple([Retired(following.version, 0, path) for path in paths])
        return replace(following, retired=retired)

    def _without(self, writer: ArchiveWriter, of: Range, upto: int) -> Range:
        """Returns a range without erased values, itself if it has none."""
        if of.first > upto or not self._may_go_from(of):
            return of
        previous = bytes.fromhex(of.anchor)
        packer, places, altered = SegmentPacker(previous), list[Place](), False
        for segment in self.archive.segments_of(of):
            left, some = segment.erased(self._goes, self._note_left, ERASED_VALUE)
            altered, places = altered or left is not segment, places + some
            resealed = left.resealed(previous)
            packer.add(resealed)
            previous = resealed.checksum
        if not altered:
            return of
        content = packer.object()
        path = f"{SEGMENTS}/{random_name(of.first, of.last, 'dsz')}"
        file = ArchivedFile(path, SEGMENTS, len(content), sha256(content).hexdigest())
        writer.put(file, content)
        self._replaced.append(of.file(SEGMENTS))
        files = [file, *self._columns_without(writer, of, places)]
        earlier = [replace(each, checksum="", sealed="") for each in of.erasures]
        erasure = Erasure(time.time_ns() // 1000, self._who(), len(places), of.checksum, previous.hex())
        self.done.rows, self.done.ranges = self.done.rows + len(places), self.done.ranges + 1
        return replace(of, files=tuple(files), erasures=(*earlier, erasure))

    def _columns_without(
        self, writer: ArchiveWriter, of: Range, places: Sequence[Place]
    ) -> Iterator[ArchivedFile]:
        """Yields the columns of a range; erased rows are among the rows without an object of their own."""
        columns = [each for each in of.files if each.form == COLUMNS]
        if not columns or not places:
            yield from columns
            return
        name = random_name(of.first, of.last, "parquet")
        moved: list[Any] = []
        rest = next((each for each in columns if each.label is None), None)
        for file in columns:
            table = _read(self.archive.content(file))
            gone = _among(table, places)
            erased = table.filter(gone)
            if not erased.num_rows:
                if file is not rest:
                    yield file
                continue
            moved.append(_erased_rows(erased, of.merged > 1))
            self._replaced.append(file)
            if file is rest:
                continue
            kept = table.filter(_compute().invert(gone))
            if kept.num_rows:
                classes = self.archive.manifest.types[f"{file.label}/{file.arity}"]
                column_object = written(kept, file.label, file.arity, classes, order=file.order)
                yield from writer.put_columns([column_object], name)
        if sum([each.num_rows for each in moved]) != len(places):
            raise LogDamaged(f"{self.archive.shown}: columns of epochs {of.first} on differ from segments")
        if rest is not None:
            table = _read(self.archive.content(rest))
            moved.insert(0, table.filter(_compute().invert(_among(table, places))))
            if rest not in self._replaced:
                self._replaced.append(rest)
        arrow = arrow_module()
        plain = [each.replace_schema_metadata(None) for each in moved]
        whole = arrow.concat_tables([each.select(plain[0].column_names) for each in plain])
        keys = [("_epoch", "ascending"), ("_seq", "ascending")]
        column_object = written(whole.take(_compute().sort_indices(whole, sort_keys=keys)), None, -1)
        yield from writer.put_columns([column_object], name)

    def _state_without(self, writer: ArchiveWriter, of: ArchivedState) -> ArchivedState:
        """Returns a state without facts that go, itself if it has none."""
        files: list[ArchivedFile] = []
        for file in of.files:
            if not any(each.may_have(file) for each in self.subjects):
                files.append(file)
                continue
            content = self.archive.content(file)
            keep = [
                not any(
                    each.matches(value) and of.epoch < each.ends.get(key(value), -1) for each in self.subjects
                )
                for *_, value in exact_changes(content)
            ]
            if all(keep):
                files.append(file)
                continue
            self._replaced.append(file)
            files += self._facts(writer, of, file, content, keep)
        if files == list(of.files):
            return of
        self.done.states += 1
        return replace(of, files=tuple(files), rows=sum([each.rows for each in files]))

    def _facts(
        self, writer: ArchiveWriter, of: ArchivedState, file: ArchivedFile, content: bytes, keep: list[bool]
    ) -> Iterable[ArchivedFile]:
        arrow = arrow_module()
        table = _read(content).filter(arrow.array(keep))
        if not table.num_rows:
            return []
        places = arrow.array(range(table.num_rows), arrow.int32())
        table = table.set_column(table.column_names.index("_seq"), "_seq", places)
        classes = "" if file.label is None else self.archive.manifest.types[f"{file.label}/{file.arity}"]
        made = written(table, file.label, file.arity, classes, order=file.order)
        return writer.put_columns([made], f"{of.epoch:012}-{uuid.uuid4().hex[:12]}.parquet", STATES)


class _Found:
    """The changes of one subject that are found while an archive is read in order."""

    def __init__(self, subject: _Subject) -> None:
        self._subject = subject
        self.items: list[tuple[int, Item]] = []
        """Items that match, each with the epoch of its note."""
        self._held: dict[Hashable, int] = {}
        self._rows: dict[Hashable, int] = {}
        self._sent = 0

    def add_epoch(
        self, number: int, added: Iterable[Value], sent: Iterable[Value], removed: Iterable[Value]
    ) -> None:
        """Takes the changes of the next epoch; those after the subject's last epoch do not count."""
        subject = self._subject
        if number > subject.upto:
            return
        matches, held, rows = subject.matches, self._held, self._rows
        self._sent += sum(map(matches, sent))
        for name in map(key, filter(matches, added)):
            held[name] = held.get(name, 0) + 1
            subject.since.setdefault(name, number)
        for name in map(key, filter(matches, removed)):
            rows[name] = rows.get(name, 0) + held.pop(name, 0) + 1
            subject.ends[name] = number
            subject.since.pop(name, None)

    def close(self, oldest: int) -> None:
        """Notes the counts, once all is read; ``oldest`` as of ``item_goes``."""
        subject = self._subject
        subject.holding = len(self._held)
        items = sum([subject.item_goes(number, item, oldest) for number, item in self.items])
        subject.rows = self._sent + sum(self._rows.values()) + items


def _matching(pattern: Value) -> Callable[[Value], bool]:
    match = match_reader(skeleton(pattern))

    def matches(value: Value) -> bool:
        if match(value) is not None:
            return not same(value, ERASED_VALUE)
        return is_dead(value) and match(value.fields[3]) is not None

    return matches


def _read(content: bytes) -> Any:
    from pyarrow import BufferReader, parquet

    return parquet.read_table(BufferReader(content)).combine_chunks()


def _among(table: Any, places: Sequence[Place]) -> Any:
    """Returns which rows of a table are at some places; O(rows)."""
    arrow, compute = arrow_module(), _compute()
    epochs, positions = table.column("_epoch").combine_chunks(), table.column("_seq").combine_chunks()
    joined = compute.add(compute.multiply(epochs, _POSITIONS), positions.cast(arrow.int64()))
    wanted = arrow.array([number * _POSITIONS + at for number, at in places], arrow.int64())
    return compute.is_in(joined, value_set=wanted)


_POSITIONS: Final = 1 << 24
"""More than the positions of an epoch."""


def _erased_rows(table: Any, has_intervals: bool) -> Any:
    """Returns rows as the object of all other rows has them, with nothing of their values."""
    arrow, count = arrow_module(), table.num_rows
    rows = table.select(["_epoch", "_epoch_timestamp", "_seq", "_change_type"])
    rows = rows.append_column("label", arrow.array([ERASED] * count, arrow.string()))
    rows = rows.append_column("arity", arrow.array([0] * count, arrow.int16()))
    rows = rows.append_column("value", arrow.array([pack(ERASED_VALUE)] * count, arrow.binary()))
    for name in ("_since", "_until") if has_intervals else ():
        rows = rows.append_column(name, arrow.nulls(count, arrow.int64()))
    return rows


def _compute() -> Any:
    from pyarrow import compute

    return compute
