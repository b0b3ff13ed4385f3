"""Snapshots: the claims of all owners after a segment, so that a start need not read the whole log.

A snapshot is written in chunks, each a transaction of its own between two appends, so that a large state
does not hold up the turns; a last transaction declares it complete and drops the ones before.  It holds the
newest turn of each client as well, so that turns stay recognised when the log that had them is gone, and the
rows of registers; and since when rows of rules over time have been there, which no epoch says any more once
retention has deleted their beginning.

Always: an incomplete snapshot is never read; the newest complete one is never dropped; its chunks are
chained by checksums like the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dataspace.codec import pack, unpack_own
from dataspace.kernel.changes import Epoch
from dataspace.kernel.handles import Handles, Held
from dataspace.steps import batched
from index.values.values import Value
from relay.log.notes import Note, RegisterRows, Registers, check_kind
from relay.log.segments import CHECKSUM_BYTES, checksum, rows_of, table
from relay.store.errors import LogDamaged
from relay.store.header import Header
from relay.store.ports import LogTables, Row, SnapshotMoment

CHUNK_CLAIMS: Final = 4096
"""Claims, or clients, in one chunk."""

CHUNK_BYTES: Final = 8 << 20
"""Bytes of claims in one chunk at most, unless one claim alone is larger: a reader has it in memory."""

PAST: Final = "rules-past"
"""The kind of the chunks that say since when rows of rules have been there.  A program that does not know it
passes them over, and these rows are younger to it."""

Past = tuple[int, Sequence[tuple[Value, ...]]]
"""An epoch, and since when rows of rules had been there after it."""

Owners = Mapping[str, Held]

ClaimedValues = tuple[Sequence[Any], Sequence[int]]
"""Values as ``rows_of`` wrote them: rows, and the places of those that are not records."""


@dataclass(slots=True)
class RecoveredState:
    """What holds after ``segment``: claims by owner and handle, the newest turn and epoch of each client, and
    what notes have built up."""

    owners: dict[str, Held] = field(default_factory=dict)
    clients: dict[str, tuple[int, int]] = field(default_factory=dict)
    registers: Registers = field(default_factory=Registers)
    rows: Sequence[RegisterRows] | None = None
    """The rows of the registers, where the registers themselves go on to change."""
    epoch: int = 0
    time: int = 0
    oldest: int = 1
    segment: int = 0
    past: Iterable[tuple[Value, ...]] | None = None
    """Since when rows of rules had been there after ``past_epoch``; None where nothing says that."""
    past_epoch: int = 0

    def apply(self, epoch: Epoch | Note, *, strict: bool = True) -> None:
        """Takes in the next epoch or note; O(its claims).

        Raises ``LogDamaged`` if it ends a claim that was never made; ignores that if not ``strict``.
        """
        if isinstance(epoch, Note):
            self.registers.apply(epoch)
            return
        for change in epoch.claims:
            claims = self.owners.setdefault(change.owner, Handles())
            claims.update(change.asserted)
            for handle in change.retracted:
                if claims.pop(handle, self) is self and strict:
                    raise LogDamaged(f"epoch {epoch.number} ends claim {handle} of {change.owner}, unknown")
            if not claims:
                del self.owners[change.owner]
        self.apply_notes(epoch)

    def apply_notes(self, epoch: Epoch) -> None:
        """Takes in what the next epoch says beside its claims; O(1)."""
        if epoch.client is not None:
            self.clients[epoch.client] = (epoch.sequence, epoch.number)
        self.epoch, self.time = epoch.number, epoch.time


class SnapshotWriter:
    """Writes one snapshot, a chunk at each ``step``; the state must not change meanwhile.

    Raises ``UsageError`` for a state that lacks what notes have built up.
    """

    __slots__ = ("_bodies", "_checksum", "_chunk", "_header", "_snapshot", "_state", "_tables", "done")

    def __init__(self, tables: LogTables, header: Header, state: RecoveredState) -> None:
        state.registers.check_whole()
        self._tables = tables
        self._header = header
        self._bodies = _bodies(state)
        self._chunk = 0
        self._checksum = bytes(CHECKSUM_BYTES)
        self.done = False
        self._state = state.segment, state.epoch, state.time
        self._snapshot: Final = tables.begin_snapshot(*self._state)

    def step(self) -> bool:
        """Writes the next chunk, or ends the snapshot; True if there is more to do.  O(chunk)."""
        if not self.done:
            body = next(self._bodies, None)
            if body is None:
                self._complete()
            else:
                self._write(body)
        return not self.done

    def _write(self, body: bytes) -> None:
        self._checksum = _chained(self._checksum, self._snapshot, self._chunk, body)
        self._tables.put_chunk(self._snapshot, self._chunk, self._checksum, body)
        self._chunk += 1

    def _complete(self) -> None:
        row = (self._snapshot, *self._state, self._chunk)
        with self._header.changing({"snapshot": pack(row)}) as names:
            self._tables.complete_snapshot(self._snapshot, self._chunk, names)
        self.done = True


Head = tuple[int, int, int, int, int]
"""Number, segment, epoch, time and chunks of a snapshot."""


def newest(tables: LogTables, registers: Callable[[], Registers]) -> RecoveredState | None:
    """Returns the state of the newest complete snapshot, or None.  ``LogDamaged`` if it was altered.

    ``registers`` makes the registers of that state, empty.
    """
    with tables.newest_snapshot() as found:
        head = head_of(found)
        return _load(found, head, registers()) if head else None


def newest_head(tables: LogTables) -> Head | None:
    """Returns where the newest complete snapshot was made, or None.  ``LogDamaged`` as ``newest``."""
    with tables.newest_snapshot() as found:
        return head_of(found)


def head_of(found: SnapshotMoment) -> Head | None:
    """Returns where a snapshot was made; raises ``LogDamaged`` if another snapshot was completed last."""
    row = found.row
    if found.named is not None and found.named != pack(row or (None,) * 5):
        number, _, epoch, _, _ = row or (None,) * 5
        raise LogDamaged(f"snapshot {number}, after epoch {epoch}, is not the one that was made last")
    return None if row is None else (row[0], row[1], row[2], row[3], row[4])


def _load(moment: SnapshotMoment, head: Head, registers: Registers) -> RecoveredState:
    _, segment, epoch, time, _ = head
    state = RecoveredState(registers=registers, epoch=epoch, time=time, segment=segment)
    for form in _forms(moment, head):
        _take_in(state, form)
    return state


@contextmanager
def newest_claimed(tables: LogTables) -> Iterator[tuple[int, Iterable[ClaimedValues]]]:
    """Lends the epoch of the newest complete snapshot, 0 if there is none, and its claimed values in parts.

    A value comes once for each claim; one part is in memory.  ``LogDamaged`` as ``newest``, at the end too.
    """
    with tables.newest_snapshot() as found:
        head = head_of(found)
        yield (0, ()) if head is None else (head[2], _claimed(_forms(found, head)))


def _claimed(forms: Iterable[Any]) -> Iterator[ClaimedValues]:
    for form in forms:
        if form[0] is not None:
            yield form[2], form[3]
        elif isinstance(form[1], str):
            check_kind(form[1], form[2])


def _forms(moment: SnapshotMoment, head: Head) -> Iterator[Any]:
    """Yields what the chunks of a snapshot have; raises ``LogDamaged`` for an altered one, and for none."""
    snapshot, _, epoch, _, chunks = head
    seal = bytes(CHECKSUM_BYTES)
    read = 0
    for found, body in moment.chunks:
        seal = _chained(seal, snapshot, read, body)
        if found != seal:
            break
        yield unpack_own(body)
        read += 1
    if read != chunks:
        raise LogDamaged(f"snapshot at epoch {epoch}: chunk {read} of {chunks} was altered or is gone")


def renumbered_chunks(rows: Iterable[Row], number: int) -> Iterator[Row]:
    """Yields chunks of a snapshot as chunks of one with another number; ``LogDamaged`` at an altered one."""
    before = after = bytes(CHECKSUM_BYTES)
    for snapshot, chunk, found, body in rows:
        before = _chained(before, snapshot, chunk, body)
        if found != before:
            raise LogDamaged(f"snapshot {snapshot}: chunk {chunk} was altered")
        after = _chained(after, number, chunk, body)
        yield number, chunk, after, body


def _chained(previous: bytes, snapshot: int, chunk: int, body: bytes) -> bytes:
    return checksum(previous, (snapshot, chunk, 0, 0, 0, 0, 0), body)


def _bodies(state: RecoveredState) -> Iterator[bytes]:
    for owner, claims in state.owners.items():
        for part in _parts(list(claims.items())):
            yield from _claims_bodies(owner, part)
    for part in _parts(list(state.clients.items())):
        yield pack((None, [(client, *turn) for client, turn in part]))
    for kind, some in state.registers.rows() if state.rows is None else state.rows:
        yield pack((None, kind, True, some))
    if state.past is not None:
        yield pack((None, PAST, False, (state.past_epoch,)))
        for several in batched(state.past, CHUNK_CLAIMS):
            yield pack((None, PAST, False, (state.past_epoch, *several)))


def _claims_bodies(owner: str, part: Sequence[tuple[int, Value]]) -> Iterator[bytes]:
    rows, plain = rows_of([value for _, value in part])
    body = pack((owner, [handle for handle, _ in part], rows, plain))
    if len(body) > CHUNK_BYTES and len(part) > 1:
        half = len(part) // 2
        yield from _claims_bodies(owner, part[:half])
        yield from _claims_bodies(owner, part[half:])
    else:
        yield body


def _parts(whole: list[Any]) -> Iterator[list[Any]]:
    return (whole[at : at + CHUNK_CLAIMS] for at in range(0, len(whole), CHUNK_CLAIMS))


def _take_in(state: RecoveredState, form: Any) -> None:
    if form[0] is None and isinstance(form[1], str):
        _, kind, required, rows = form
        check_kind(kind, required)
        if kind == PAST:
            state.past_epoch = rows[0]
            past: list[Any] = [*(state.past or ()), *rows[1:]]
            state.past = past
        elif required:
            state.registers.restore([(kind, rows)])
        return
    if form[0] is None:
        state.clients.update((client, (sequence, epoch)) for client, sequence, epoch in form[1])
        return
    owner, handles, rows, plain = form
    claims = state.owners.setdefault(owner, Handles())
    claims.update(zip(handles, table(rows, plain, len(rows)), strict=True))
