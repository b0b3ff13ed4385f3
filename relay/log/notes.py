"""Notes: silent entries that have no claims, each of a kind by name; and registers, which they build up.

A note stands between two epochs and changes no fact: where the turns of a client come from, or what a feature
keeps in the log.  A program may be older than a kind of note.  So each note says whether its kind is
*required*: a log with a required kind that is not known is refused by the name of the kind, any other note
that is not known is passed over.

A feature that keeps state in the log has a *register*: it applies the notes of its kinds, returns the rows
that rebuild its state for a snapshot, and says which epochs it reads again.  So the log knows no feature.
Whoever opens a log gives it a function that makes its registers (``relay/space_registers.py``).

Always: a snapshot has what all notes before it have built up.  A log that was opened without a register for a
required kind is read like any other, but no snapshot of it is written, and no epoch deleted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from dataspace.errors import UsageError
from dataspace.kernel.changes import Epoch, Origin
from index.values.values import Value
from relay.store.errors import LogDamaged

ORIGIN: Final = "origin"
"""The kind that says where the next turns of a client come from."""

DERIVED: Final = "derived-messages"
"""The kind behind an epoch whose last messages are not of clients; its field says how many."""

KINDS: Final = frozenset((ORIGIN, DERIVED)) | {
    *("session", "session-ended", "zones"),
    *("group", "group-done", "group-again", "group-ended", "group-undone", "group-read", "group-parked"),
}
"""The kinds that this program reads (LOG.md).

They are listed here, and not asked of registers, since a reader of epochs has none and must still refuse a
kind that only a later program knows.
"""

Fields: TypeAlias = tuple[Value, ...]


class Note(NamedTuple):
    """One note; ``required`` if a program that does not know its kind must not read the log."""

    kind: str
    fields: Fields
    required: bool = False


Notes: TypeAlias = "Sequence[Note] | Callable[[Epoch], Sequence[Note]]"
"""The notes of an epoch, or what makes them once the epoch has its number and is not on its way yet."""


def origin(said: Origin) -> Note:
    """Returns the note that says from where the turns of a client come, from the next epoch on."""
    return Note(ORIGIN, said)


def derived_messages(count: int) -> Note:
    """Returns the note that follows an epoch in which rules or flows sent the last so many messages."""
    return Note(DERIVED, (count,))


# -- as entries ---------------------------------------------------------------------------------------


def form_of(number: int, time: int, note: Note) -> tuple[object, ...]:
    """Returns a note as an entry: without claims, with one row that nothing counts or claims."""
    row = (note.kind, *note.fields)
    return (number, time, 0, 0, 0, (row,), (), (), None, int(note.required), True)


def note_of(entry: Any) -> Note | None:
    """Returns the note that an entry is; None for any other entry.

    Raises ``LogDamaged`` for a required kind that is not known.
    """
    _, _, added, messages, removed, rows, plain, claims, client, required, silent = entry
    if not silent or claims or plain or client is not None or len(rows) != 1 or added + messages + removed:
        return None
    kind, *fields = rows[0]
    check_kind(kind, required)
    return Note(kind, tuple(fields), bool(required))


def check_kind(kind: object, required: object) -> None:
    """Raises ``LogDamaged`` for a required kind that is not known."""
    if required and kind not in KINDS:
        raise LogDamaged(
            f"the log has entries of the kind {kind!r:.80}, which this program does not know and must not "
            f"pass over; UPGRADE.md says which version reads them"
        )


def origin_of(entry: Any) -> Origin | None:
    """Returns the origin of turns that an entry states; None if it states none."""
    note = note_of(entry)
    if note is None or note.kind != ORIGIN or len(note.fields) != len(Origin._fields):
        return None
    return Origin(*note.fields)  # type: ignore[arg-type]  # what ``origin`` has written


# -- registers ---------------------------------------------------------------------------------------


RegisterRows: TypeAlias = tuple[str, Sequence[Fields]]
"""A kind of note, and the fields of such notes: what one chunk of a snapshot has."""


class Register(ABC):
    """The state of one feature, as its notes have built it up.  By default it needs no epoch."""

    KINDS: ClassVar[frozenset[str]]
    """The kinds of notes that it applies."""

    NOTES_ALONE: ClassVar[bool] = False
    """True if nothing but notes changes it, so that a check of the log can build it once more."""

    @abstractmethod
    def apply(self, kind: str, fields: Any) -> None:
        """Does what a note says; O(its fields)."""

    @abstractmethod
    def rows(self) -> Sequence[RegisterRows]:
        """Returns notes that rebuild this state, which nothing changes any more; O(state)."""

    def saved(self, rows: Sequence[Fields]) -> None:  # noqa: B027  # most have nothing to note
        """Notes that a snapshot with these rows is on disk."""

    def needs_after(self) -> int | None:
        """Returns the epoch after which it needs the log; None if it does not.  Any thread calls this."""
        return None

    def differences(self, noted: Any) -> Iterator[str]:
        """Yields how it differs from a register of its class that was built of notes, in words."""
        yield from ()


R = TypeVar("R", bound=Register)


class Registers:
    """The registers of one log, in the order in which a snapshot has them.

    ``lacking`` is a required kind of which there was a note, and no register; empty if there was none.
    """

    def __init__(self, *registers: Register) -> None:
        self._all: Final = registers
        self._of = {kind: each for each in registers for kind in each.KINDS}
        self.lacking = ""

    def of(self, kind: type[R]) -> R:
        """Returns the register of a class; ``UsageError`` if there is none."""
        for each in self._all:
            if isinstance(each, kind):
                return each
        raise UsageError(f"the log was opened without {kind.__name__}")

    def apply(self, note: Note) -> None:
        """Does what a note says; O(its fields)."""
        register = self._of.get(note.kind)
        if register is not None:
            register.apply(note.kind, note.fields)
        elif note.required:
            self.lacking = note.kind

    def restore(self, rows: Iterable[RegisterRows]) -> None:
        """Does what the rows of such registers say."""
        for kind, some in rows:
            for fields in some:
                self.apply(Note(kind, fields, required=True))

    def check_whole(self) -> None:
        """Raises ``UsageError`` if there was a note of a required kind, and no register for it."""
        if self.lacking:
            raise UsageError(f"the log has {self.lacking!r} entries: open it with registers=space_registers")

    def rows(self) -> list[RegisterRows]:
        """Returns the rows of all registers, which nothing changes any more; O(state)."""
        return [rows for each in self._all for rows in each.rows()]

    def saved(self, rows: Iterable[RegisterRows]) -> None:
        """Notes that a snapshot with these rows is on disk."""
        for kind, some in rows:
            self._of[kind].saved(some)

    def needs_after(self) -> int | None:
        """Returns the epoch after which some register needs the log; None if none does."""
        needed = [each.needs_after() for each in self._all]
        return min([each for each in needed if each is not None], default=None)

    def of_notes_alone(self) -> Registers:
        """Returns the registers that nothing but notes changes."""
        return Registers(*[each for each in self._all if each.NOTES_ALONE])

    def differences(self, noted: Registers) -> Iterator[str]:
        """Yields how these registers differ from some of their classes that notes have built, in words."""
        for each in noted._all:
            yield from self.of(type(each)).differences(each)
