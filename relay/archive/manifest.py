"""The manifest of an archive: which ranges of epochs it has, in which objects.

Manifests are numbered and never change.  A manifest is created only if no other has its number, so two
writers never both write one version.  A manifest names its predecessor by checksum.  So that it stays small,
all but the newest ranges stand in *chapters*, objects of up to 1 000 ranges that never change either.

ARCHIVE.md specifies the form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

from dataspace.topics.times import Time
from relay.store.errors import LogDamaged
from relay.store.ports import Start

FORMAT: Final = 1

SEGMENTS: Final = "segments"
"""The form of an object with the bytes of the log."""

COLUMNS: Final = "columns"
"""The form of an object in Parquet with the changes of a range."""

STATES: Final = "states"
"""The form of an object in Parquet with facts that held after an epoch."""

CHAPTER: Final = 1_000
"""Ranges that one chapter has; a manifest has up to twice as many itself."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One object of a range: its name below the space's folder, its form, its bytes and their SHA-256.

    Columns have a label and the number of their fields, None and -1 for all rows without an object of their
    own, the number of rows, the fields with values of other classes (None where that is not known), and the
    fields that rows are ordered by, before epoch and position.
    """

    path: str
    form: str
    size: int
    sha256: str
    label: str | None = None
    arity: int = -1
    rows: int = 0
    others: tuple[int, ...] | None = None
    order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Erasure:
    """An erasure in a range: its time (microseconds since 1970), its author, and the number of rows.

    ``checksum`` is what a segment was sealed with in the log, ``sealed`` what it is sealed with now: the
    segment after it is sealed to the former.  Both are empty once a later erasure sealed all anew.
    """

    at: int
    by: str
    rows: int
    checksum: str
    sealed: str


@dataclass(frozen=True, slots=True)
class Range:
    """Whole segments of a log in a row, numbered and chained as in the log they were read from.

    ``first`` and ``last`` are epochs, ``since`` and ``until`` times in microseconds since 1970,
    ``bytes`` the size of the segments' bodies.  ``anchor`` is the checksum of the segment before the first,
    ``checksum`` the checksum of the last.  ``net`` is how many facts more there are after it than before.
    ``merged`` is how many ranges became this one, 1 for a range as it was archived; columns of merged ranges
    have intervals.  ``checksum`` stays the log's own where rows were erased (``Erasure``).
    """

    first: int
    last: int
    since: int
    until: int
    entries: int
    changes: int
    bytes: int
    segments: tuple[int, int]
    anchor: str
    checksum: str
    files: tuple[ArchivedFile, ...]
    net: int = 0
    merged: int = 1
    erasures: tuple[Erasure, ...] = ()

    def file(self, form: str) -> ArchivedFile:
        """Returns the object of a form; each range has one of that."""
        return next(each for each in self.files if each.form == form)

    @property
    def stored(self) -> int:
        """Returns the bytes of its objects."""
        return sum([each.size for each in self.files])


@dataclass(frozen=True, slots=True)
class ArchivedState:
    """The facts that held after an epoch, and when that was, in microseconds since 1970.

    ``_until`` of its rows is right up to epoch ``upto``, the last of the merged range that follows.
    """

    epoch: int
    time: int
    rows: int
    upto: int
    files: tuple[ArchivedFile, ...]


class Retired(NamedTuple):
    """An object that was replaced: the first version that does not name it, when that was written, its name.

    ``time`` is in seconds by the clock of the store; 0 for an object that is deleted at once.
    """

    version: int
    time: float
    path: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """Up to 1 000 ranges in an object of their own, with their first and last epoch and the time of that."""

    path: str
    size: int
    sha256: str
    first: int
    last: int
    until: int
    ranges: int


@dataclass(frozen=True, slots=True)
class ChapterBody:
    """The content of a chapter: its ranges, the starts of the log and the states within them."""

    ranges: tuple[Range, ...]
    starts: tuple[Start, ...]
    states: tuple[ArchivedState, ...] = ()


@dataclass(frozen=True, slots=True)
class ArchivedShape:
    """A durable topic: its number, name, dimensions and partitions.

    From epoch ``oldest`` on all are in its archive; items at times covered by ``forgotten`` may not be.
    """

    number: int
    name: str
    dimensions: int
    partitions: int
    oldest: int
    forgotten: tuple[Time, ...]


@dataclass(frozen=True, slots=True)
class ArchiveManifest:
    """One version of an archive.

    All epochs from ``first`` to ``upto`` are here.  ``missing`` has the first and last number of each stretch
    of epochs that the log let go before they were archived.  ``starts`` has the starts of the log
    (see ``LogReader``) after the chapters.  ``term`` is the number of the writing daemon's term, ``writer`` a
    random word of its own, ``archive`` a random word that all versions have, the identity of the archive.
    ``types`` has the class of each field of columns, by ``label/arity``.  ``states`` has the states after the
    chapters.  ``retired`` has the objects that were replaced lately.

    The archive of a durable topic has positions of steps in the place of epochs, and numbers of completed
    epochs in the place of times; ``topic`` is None in any other.
    """

    space: str
    identity: str
    version: int = 0
    previous: str = ""
    term: int = 0
    writer: str = ""
    first: int = 1
    upto: int = 0
    chapters: tuple[Chapter, ...] = ()
    ranges: tuple[Range, ...] = ()
    starts: tuple[Start, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    states: tuple[ArchivedState, ...] = ()
    retired: tuple[Retired, ...] = ()
    topic: ArchivedShape | None = None
    erased: int = 0
    """The newest epoch that an erasure reached."""
    archive: str = ""
    digest: str = field(default="", compare=False)
    """The SHA-256 of its bytes, as its successor names it."""

    @property
    def until(self) -> int:
        """Returns the time of the newest archived epoch, in microseconds; 0 for an empty archive."""
        held: Sequence[Chapter | Range] = self.ranges or self.chapters
        return held[-1].until if held else 0

    def followed_by(
        self, added: Range, starts: Sequence[Start], oldest: int, types: Mapping[str, str]
    ) -> ArchiveManifest:
        """Returns the next version, with one more range and the starts within it.

        ``oldest`` is the oldest epoch that the log had when the range was begun: the epochs between it and
        the newest archived one, or the first of all, are missing.  ``types`` are newly settled.
        """
        gap = oldest > self.upto + 1
        return replace(
            self,
            version=self.version + 1,
            previous=self.digest,
            first=oldest if gap else self.first,
            upto=added.last,
            ranges=(*self.ranges, added),
            starts=(*self.starts, *starts),
            types={**self.types, **types},
            missing=(*self.missing, (self.upto + 1, oldest - 1)) if gap else self.missing,
            digest="",
        )

    def next(self) -> ArchiveManifest:
        """Returns the next version, with the same content so far."""
        return replace(self, version=self.version + 1, previous=self.digest, digest="")


def packed(of: ArchiveManifest | ChapterBody) -> bytes:
    """Returns a manifest or a chapter as its object has it."""
    body = {"format": FORMAT, **asdict(of)}
    body.pop("digest", None)
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def manifest_of(content: bytes, place: str) -> ArchiveManifest:
    """Returns the manifest that an object has; ``LogDamaged`` for anything else."""
    body = _body(content, place)
    try:
        return ArchiveManifest(
            body["space"],
            body["identity"],
            int(body["version"]),
            body["previous"],
            int(body["term"]),
            body["writer"],
            int(body["first"]),
            int(body["upto"]),
            tuple([Chapter(**each) for each in body["chapters"]]),
            tuple(map(_range, body["ranges"])),
            _pairs(body["starts"]),
            _pairs(body["missing"]),
            dict(body["types"]),
            tuple(map(_state, body.get("states", ()))),
            tuple([Retired(*each) for each in body.get("retired", ())]),
            _shape(body.get("topic")),
            int(body.get("erased", 0)),
            str(body.get("archive", "")),
            sha256(content).hexdigest(),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LogDamaged(f"{place} is no manifest of an archive: {error!r:.200}") from None


def chapter_of(content: bytes, chapter: Chapter, place: str) -> ChapterBody:
    """Returns a chapter's ranges and starts; ``LogDamaged`` if it is another than the manifest names."""
    if sha256(content).hexdigest() != chapter.sha256:
        raise LogDamaged(f"{place} was altered: its SHA-256 is not that of the manifest")
    body = _body(content, place)
    states = tuple(map(_state, body.get("states", ())))
    return ChapterBody(tuple(map(_range, body["ranges"])), _pairs(body["starts"]), states)


def _body(content: bytes, place: str) -> Mapping[str, Any]:
    try:
        body: Mapping[str, Any] = json.loads(content)
        found = body["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise LogDamaged(f"{place} cannot be read: {error!r:.200}") from None
    if found != FORMAT:
        raise LogDamaged(f"{place} has format {found!r:.20}, this program reads {FORMAT}")
    return body


def _range(body: Mapping[str, Any]) -> Range:
    first, last = body["segments"]
    files = tuple(map(_file, body["files"]))
    erasures = tuple([Erasure(**each) for each in body.get("erasures", ())])
    return Range(**{**body, "segments": (first, last), "files": files, "erasures": erasures})


def _state(body: Mapping[str, Any]) -> ArchivedState:
    return ArchivedState(**{**body, "files": tuple(map(_file, body["files"]))})


def _file(body: Mapping[str, Any]) -> ArchivedFile:
    others, order = body.get("others"), tuple(body.get("order", ()))
    return ArchivedFile(**{**body, "others": None if others is None else tuple(others), "order": order})


def _shape(body: Mapping[str, Any] | None) -> ArchivedShape | None:
    if body is None:
        return None
    forgotten = [tuple(each) if isinstance(each, list) else each for each in body["forgotten"]]
    return ArchivedShape(**{**body, "forgotten": tuple(forgotten)})


def _pairs(body: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple([(int(one), int(other)) for one, other in body])
