"""Segments: epochs as bytes, and bytes as epochs.

A segment is the content of one group commit: some epochs in order, one after the other, and a checksum that
covers them and the checksum of the segment before, so that a log is one chain and a lost or altered link
shows.  LOG.md describes the bytes.  They are apart from the database that keeps them because a reader of the
log needs the one and not the other.

An epoch's values are written once, in a table; added, sent and removed values come first in it and in that
order, so that only counts are needed to separate them, and claims point into it.  A record is written as the
plain array of its label and fields: it is what nearly all values are, and an array costs a third of an
extension to read.

Always: ``decode(encode(epoch))`` is the same epoch; bytes that were altered do not pass ``checksum``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import is_
from typing import Any, Final

from dataspace.codec import array_head, pack, unpack_own
from dataspace.kernel.changes import Claims, Epoch, Origin
from index.values.values import Record, Value
from relay.log.notes import ORIGIN, Note, form_of, note_of, origin_of

FORMAT: Final = 2
"""The version of these bytes; it stands in the log's ``meta`` table."""

EARLIER: Final = (1,)
"""Versions that are read as well, since this one has all of theirs; a start makes such a log one of this."""

SEGMENT_BYTES: Final = 64 << 10
"""A segment is closed when it has this much; one epoch is never divided."""

CHECKSUM_BYTES: Final = 16

PIECE: Final = 1024
"""Values that are packed in one call, which keeps the interpreter to itself."""

Change = tuple[int, int, Sequence[Value], Sequence[Value], Sequence[Value]]
"""Number, time, added, messages, removed: an epoch without its claims."""


Place = tuple[int, int]
"""An epoch, and a position among its changes."""

Rows = tuple[int, int, tuple[int, int, int], Sequence[Any], Sequence[int]]
"""Number, time, how many values were added, sent and removed, and a table of them as ``rows_of`` wrote it."""


class Encoded:
    """One epoch as bytes, with the numbers that the log needs."""

    __slots__ = ("body", "changes", "number", "time")

    def __init__(self, number: int, time: int, body: bytes, changes: int) -> None:
        self.number = number
        self.time = time
        self.body = body
        self.changes = changes


@dataclass(frozen=True, slots=True)
class Segment:
    """Some epochs in a row, numbered ``first`` to ``last``, of the times ``since`` to ``until``."""

    ordinal: int
    first: int
    last: int
    entries: int
    changes: int
    since: int
    until: int
    checksum: bytes
    body: bytes

    def sealed_by(self, previous: bytes) -> bool:
        """True if this segment is unaltered and follows the one with the checksum ``previous``."""
        return self.checksum == checksum(
            previous,
            (self.ordinal, self.first, self.last, self.entries, self.changes, self.since, self.until),
            self.body,
        )

    def epochs(self) -> Iterator[Epoch]:
        """Yields the epochs, whole; a note is a silent one without claims.

        Raises ``LogDamaged`` for a note of a required kind that is not known; other methods do as well.
        """
        for entry in self._entries():
            if entry[10]:
                note_of(entry)
            yield _epoch(entry)

    def items(self) -> Iterator[Epoch | Note]:
        """Yields the epochs, whole, and the notes between them."""
        for entry in self._entries():
            note = note_of(entry) if entry[10] else None
            yield _epoch(entry) if note is None else note

    def origins(self) -> Iterator[tuple[int, Origin]]:
        """Yields where clients' turns come from, each with the number of the epoch before it."""
        if _ORIGIN in self.body:
            for entry in self._entries():
                if (origin := origin_of(entry)) is not None:
                    yield entry[0], origin

    def notes(self, kinds: Collection[str], upto: int) -> Iterator[tuple[int, Note]]:
        """Yields the notes of some kinds up to an epoch, each with the number of the epoch before it.

        A search of the bytes where there is no such note, else O(entries).
        """
        if any(pack(kind) in self.body for kind in kinds):
            for entry in self._entries():
                note = note_of(entry) if entry[10] and entry[0] <= upto else None
                if note is not None and note.kind in kinds:
                    yield entry[0], note

    def every_entry(self) -> Sequence[Any]:
        """Returns the entries as they are written, silent ones included."""
        return self._entries()

    def encoded_until(self, upto: int) -> list[Encoded]:
        """Returns the entries up to an epoch anew, as bytes."""
        found = [each for each in self._entries() if each[0] <= upto]
        return [_encoded(each) for each in found]

    def beyond(self, epoch: int) -> Segment:
        """Returns what is new to a reader that has all up to an epoch, under the old seal; itself if all is.

        A silent entry has the number of the epoch before it, and is new where that is in a segment before.
        """
        if self.first > epoch or all(each[10] for each in self._entries() if each[0] <= epoch):
            return self
        left = [_encoded(each) for each in self._entries() if each[0] > epoch]
        changes = sum([each.changes for each in left])
        ends = left[0].number, self.last, len(left), changes, left[0].time, self.until
        return Segment(self.ordinal, *ends, self.checksum, b"".join([each.body for each in left]))

    def resealed(self, previous: bytes) -> Segment:
        """Returns the same segment, sealed to another checksum before it."""
        head = (self.ordinal, self.first, self.last, self.entries, self.changes, self.since, self.until)
        return Segment(*head, checksum(previous, head, self.body), self.body)

    def erased(
        self,
        goes: Callable[[int, str, Value], bool],
        without: Callable[[int, Note], Note],
        instead: Record,
    ) -> tuple[Segment, list[Place]]:
        """Returns the segment under its old seal, with ``instead`` for erased values, and their places.

        ``goes`` is asked with the epoch, the kind and the value, ``claim`` for a value that is claimed again;
        a place is the epoch and the position among its changes.  ``without`` returns a note behind an epoch
        as it is left, itself if nothing goes from it.  Returns itself if nothing goes.
        """
        bodies: list[bytes] = []
        places: list[Place] = []
        altered, row = False, (instead.label, *instead.fields)
        for entry in self._entries():
            number, time, added, sent, removed, rows, plain, *rest = entry
            if entry[10] and (note := note_of(entry)) is not None:
                left = without(number, note)
                altered = altered or left is not note
                bodies.append(pack(entry if left is note else form_of(number, time, left)))
                continue
            kinds = ["insert"] * added + ["message"] * sent + ["delete"] * removed
            kinds += ["claim"] * (len(rows) - len(kinds))
            values = table(rows, plain, len(rows))
            gone = {at for at, kind in enumerate(kinds) if goes(number, kind, values[at])}
            if gone:
                altered = True
                rows = [row if at in gone else each for at, each in enumerate(rows)]
                plain = [at for at in plain if at not in gone]
                entry = (number, time, added, sent, removed, rows, plain, *rest)
                places += [(number, at) for at in sorted(gone) if kinds[at] != "claim"]
            bodies.append(pack(entry))
        if not altered:
            return self, places
        ends = self.first, self.last, self.entries, self.changes, self.since, self.until
        return Segment(self.ordinal, *ends, self.checksum, b"".join(bodies)), places

    def changes_after(self, after: int, upto: int) -> Iterator[Change]:
        """Facts and messages of the epochs in (after, upto], without claims and without silent ones."""
        for entry in self._entries():
            number, time, added, sent, removed, rows, plain, _, _, _, silent = entry
            if silent:
                note_of(entry)
                continue
            if not after < number <= upto:
                continue
            count = added + sent + removed
            values = table(rows, plain, count)
            if added == count:
                yield number, time, values, (), ()
            elif sent == count:
                yield number, time, (), values, ()
            else:
                sent += added
                yield number, time, values[:added], values[added:sent], values[sent:]

    def rows_after(self, after: int, upto: int) -> Iterator[Rows]:
        """Yields the same with the values as they are written, and perhaps more of them than counted."""
        for entry in self._entries():
            if entry[10]:
                note_of(entry)
            elif after < entry[0] <= upto:
                yield entry[0], entry[1], (entry[2], entry[3], entry[4]), entry[5], entry[6]

    def owned_rows_after(self, after: int, upto: int) -> Iterator[tuple[Rows, Sequence[str | None]]]:
        """Yields the same with the owner of each added value: the first owner that claimed it then."""
        for entry in self._entries():
            if entry[10]:
                note_of(entry)
            elif after < entry[0] <= upto:
                yield (entry[0], entry[1], (entry[2], entry[3], entry[4]), entry[5], entry[6]), _owners(entry)

    def _entries(self) -> Sequence[Any]:
        whole = array_head(self.entries) + self.body
        return unpack_own(whole)  # type: ignore[return-value]  # what encode has packed


class Extent:
    """How far a reader goes at once: at most so many changes and bytes, but at least one epoch with changes.

    ``size`` is in bytes of segments' bodies, None for any.  Of a segment of which not all epochs are taken,
    each change counts as many bytes as the others.
    """

    __slots__ = ("_bytes", "_most", "_size", "changes", "last")

    def __init__(self, after: int, most: int, size: int | None) -> None:
        self.last = after
        self.changes = 0
        self._bytes = 0
        self._most = most
        self._size = size

    def admits(self, changes: int, size: int) -> bool:
        """True if so much more is within the bounds."""
        return self.changes + changes <= self._most and (
            self._size is None or self._bytes + size <= self._size
        )

    def add(self, last: int, changes: int, size: int) -> None:
        """Adds all epochs up to one."""
        self.last, self.changes, self._bytes = last, self.changes + changes, self._bytes + size

    def take(self, segment: Segment, upto: int) -> bool:
        """Adds epochs of a segment up to one; False once the next epoch is beyond the bounds."""
        for number, _, counts, _, _ in segment.rows_after(self.last, upto):
            changes = sum(counts)
            size = len(segment.body) * changes // max(1, segment.changes)
            if self.changes and not self.admits(changes, size):
                return False
            self.add(number, changes, size)
        return True


# -- epochs -------------------------------------------------------------------------------------------


def encode(epoch: Epoch) -> Encoded:
    """Returns the bytes of an epoch; O(size).

    Raises ``UsageError`` for values that are nested too deeply to be packed.
    """
    number, time, added, messages, removed, all_claims, client, sequence, silent = epoch
    came, sent, went = len(added), len(messages), len(removed)
    changes = came + sent + went
    values = [*added, *messages, *removed] if changes > came else list(added)
    claims = _claims_form(all_claims, values)
    rows, plain = rows_of(values)
    if len(rows) <= PIECE:
        body = pack((number, time, came, sent, went, rows, plain, claims, client, sequence, silent))
    else:
        body = _packed_in_pieces(
            (number, time, came, sent, went), rows, (plain, claims, client, sequence, silent)
        )
    return Encoded(number, time, body, changes)


def encode_note(number: int, time: int, note: Note) -> Encoded:
    """Returns the bytes of a note, with the number and the time of the epoch before it."""
    return Encoded(number, time, pack(form_of(number, time, note)), 0)


def _encoded(entry: Any) -> Encoded:
    note = note_of(entry) if entry[10] else None
    return encode(_epoch(entry)) if note is None else encode_note(entry[0], entry[1], note)


def _packed_in_pieces(head: Sequence[Any], rows: Sequence[Value], tail: Sequence[Any]) -> bytes:
    """Returns the same bytes as one call, in many: other threads run in between."""
    plain, claims, *rest = tail
    pieces = [array_head(len(head) + 1 + len(tail)), *map(pack, head)]
    pieces += _array_in_pieces(rows)
    pieces += _array_in_pieces(plain)
    pieces.append(array_head(len(claims)))
    for owner, handles, positions, retracted in claims:
        pieces += [array_head(4), pack(owner), *_array_in_pieces(handles)]
        pieces += [pack(None)] if positions is None else _array_in_pieces(positions)
        pieces += _array_in_pieces(retracted)
    return b"".join([*pieces, *map(pack, rest)])


def _array_in_pieces(values: Sequence[Any]) -> Iterator[bytes]:
    yield array_head(len(values))
    for start in range(0, len(values), PIECE):
        some = values[start : start + PIECE]
        yield pack(some)[len(array_head(len(some))) :]


def decode(body: bytes) -> Epoch:
    """Returns the epoch that ``encode`` made these bytes of."""
    return _epoch(unpack_own(body))


def _claims_form(claims: Sequence[Claims], values: list[Value]) -> list[object]:
    """Returns claims with their values as positions in the table, which gains the values that it lacks.

    Values are distinguished by identity: the kernel names the same objects in both places, and where it
    does not, a value is written twice and nothing else happens.
    """
    forms: list[object] = []
    known: dict[int, int] = {}
    for owner, asserted, retracted in claims:
        handles = [handle for handle, _ in asserted]
        claimed = [value for _, value in asserted]
        if len(claimed) <= len(values) and all(map(is_, claimed, values)):  # as in all but a few turns
            forms.append((owner, handles, None, retracted))
            continue
        known = known or {id(value): at for at, value in enumerate(values)}
        positions: list[int] = []
        for value in claimed:
            at = known.get(id(value))
            if at is None:
                at = known[id(value)] = len(values)
                values.append(value)
            positions.append(at)
        forms.append((owner, handles, positions, retracted))
    return forms


def _epoch(entry: Any) -> Epoch:
    number, time, added, messages, removed, rows, plain, claims, client, sequence, silent = entry
    values = table(rows, plain, len(rows))
    sent = added + messages
    return Epoch(
        number,
        time,
        values[:added],
        values[added:sent],
        values[sent : sent + removed],
        [_claims(form, values) for form in claims],
        client,
        sequence,
        silent,
    )


def _claims(form: Any, values: list[Value]) -> Claims:
    owner, handles, positions, retracted = form
    asserted = values if positions is None else [values[at] for at in positions]
    return Claims(owner, list(zip(handles, asserted, strict=False)), retracted)


def _owners(entry: Any) -> list[str | None]:
    """Returns the first owner that claimed each added value, None for a value without a claim; O(claims)."""
    owners: list[str | None] = [None] * entry[2]
    for owner, places in reversed([*claimed(entry)]):
        for at in places:
            owners[at] = owner
    return owners


def claimed(entry: Any) -> Iterator[tuple[str, Iterable[int]]]:
    """Yields each owner of an entry with the places of the added values that it claimed; O(claims).

    A value that was claimed as another object than the added one is written twice: it is found by its bytes,
    and the added values are packed for that.
    """
    _, _, added, _, _, rows, plain, claims, *_ = entry
    bare = known = None
    for owner, handles, positions, _ in claims if added else ():
        places = range(len(handles)) if positions is None else positions
        if places and (places[-1] if positions is None else max(places)) >= added:
            if bare is None or known is None:
                bare = {*plain}
                known = {(at in bare, pack(rows[at])): at for at in range(added)}
            found = [at if at < added else known.get((at in bare, pack(rows[at]))) for at in places]
            places = [at for at in found if at is not None]
        yield owner, places


_ORIGIN: Final = pack(ORIGIN)


# -- tables of values ---------------------------------------------------------------------------------


_RECORDS: Final = {Record}


def rows_of(values: Sequence[Value]) -> tuple[list[Value], list[int]]:
    """Returns values in their written form, and the positions of the values that are not records."""
    if set(map(type, values)) == _RECORDS:  # as nearly always
        records: Sequence[Record] = values  # type: ignore[assignment]  # a cast would be a call for each turn
        return [(each.label, *each.fields) for each in records], []
    rows = [(each.label, *each.fields) if each.__class__ is Record else each for each in values]
    plain = [at for at, each in enumerate(values) if each.__class__ is not Record]
    return rows, plain


def table(rows: Sequence[Any], plain: Sequence[int], count: int) -> list[Value]:
    """Returns the first ``count`` values of a table as ``rows_of`` wrote it."""
    record = Record.of
    if not plain:
        return [record(row[0], row[1:]) for row in (rows if count == len(rows) else rows[:count])]
    bare = set(plain)
    return [row if at in bare else record(row[0], row[1:]) for at, row in enumerate(rows[:count])]


# -- chains -------------------------------------------------------------------------------------------

_HEAD: Final = struct.Struct(">7q")


def checksum(previous: bytes, head: tuple[int, ...], body: bytes) -> bytes:
    """Returns the checksum of a segment: over the one before it, its numbers, and its epochs; O(bytes)."""
    digest = blake2b(previous, digest_size=CHECKSUM_BYTES)
    digest.update(_HEAD.pack(*head))
    digest.update(body)
    return digest.digest()


def cut(entries: Iterable[Encoded], ordinal: int, previous: bytes) -> Iterator[Segment]:
    """Yields entries in order as segments, numbered from ``ordinal`` on and chained to ``previous``."""
    group: list[Encoded] = []
    size = 0
    for entry in entries:
        if group and size + len(entry.body) > SEGMENT_BYTES:
            segment = _seal(group, ordinal, previous)
            yield segment
            ordinal, previous, group, size = ordinal + 1, segment.checksum, [], 0
        group.append(entry)
        size += len(entry.body)
    if group:
        yield _seal(group, ordinal, previous)


def joined(group: Sequence[Segment], ordinal: int, previous: bytes) -> Segment:
    """Returns one segment of the epochs of several that follow each other."""
    first, last = group[0], group[-1]
    entries, changes = sum([each.entries for each in group]), sum([each.changes for each in group])
    body = b"".join([each.body for each in group])
    head = (ordinal, first.first, last.last, entries, changes, first.since, last.until)
    return Segment(*head, checksum(previous, head, body), body)


def _seal(group: Sequence[Encoded], ordinal: int, previous: bytes) -> Segment:
    first, last = group[0], group[-1]
    changes = sum([entry.changes for entry in group])
    body = b"".join([entry.body for entry in group])
    head = (ordinal, first.number, last.number, len(group), changes, first.time, last.time)
    return Segment(*head, checksum(previous, head, body), body)
