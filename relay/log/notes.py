"""Notes: silent entries that have no claims, each of a kind by name.

A note stands between two epochs and changes no fact: where the turns of a client come from, or which session
owns claims and may be resumed after a restart.  A program may be older than a kind of note.  So each note
says whether its kind is *required*: a log with a required kind that is not known is refused by the name of
the kind, any other note that is not known is passed over.

Always: ``take_in`` leaves the sessions whose claims outlive the daemon, at a start and at a follower alike; a
note has no secret, only its digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

from dataspace.kernel.changes import Epoch, Origin
from index.values.values import Value
from relay.groups.state import KINDS as OF_GROUPS, GroupStates
from relay.store.errors import LogDamaged

ORIGIN: Final = "origin"
"""The kind that says where the next turns of a client come from."""

SESSION: Final = "session"
"""The kind that precedes the first claim of a session with grace; its fields are ``KnownSession``."""

SESSION_ENDED: Final = "session-ended"
"""The kind whose fields are the owners of sessions that have ended; without fields, all have."""

DERIVED: Final = "derived-messages"
"""The kind behind an epoch whose last messages are not of clients; its field says how many."""

KINDS: Final = frozenset((ORIGIN, SESSION, SESSION_ENDED, DERIVED)) | OF_GROUPS


class Note(NamedTuple):
    """One note; ``required`` if a program that does not know its kind must not read the log."""

    kind: str
    fields: tuple[Value, ...]
    required: bool = False


Notes: TypeAlias = "Sequence[Note] | Callable[[Epoch], Sequence[Note]]"
"""The notes of an epoch, or what makes them once the epoch has its number and is not on its way yet."""


class KnownSession(NamedTuple):
    """A session whose claims outlive the daemon: its owner, its client's identity, its number, the digest of
    its secret, its grace in seconds, and the holder and the principal of its bearer as text.
    """

    owner: str
    client: str
    number: int
    digest: bytes
    grace: float
    holder: str
    principal: str


Sessions = MutableMapping[str, KnownSession]
"""Sessions by their owners."""


def origin(said: Origin) -> Note:
    """Returns the note that says from where the turns of a client come, from the next epoch on."""
    return Note(ORIGIN, said)


def began(session: KnownSession) -> Note:
    """Returns the note that precedes the first claim of a session."""
    return Note(SESSION, session, required=True)


def ended(owners: Iterable[str] = ()) -> Note:
    """Returns the note that precedes the end of these sessions, or of all."""
    return Note(SESSION_ENDED, tuple(owners), required=True)


def derived_messages(count: int) -> Note:
    """Returns the note that follows an epoch in which rules or flows sent the last so many messages."""
    return Note(DERIVED, (count,))


def of_group(kind: str, fields: tuple[Value, ...]) -> Note:
    """Returns a note about a group."""
    return Note(kind, fields, required=True)


def take_in(sessions: Sessions, groups: GroupStates, note: Note) -> None:
    """Does to the sessions and the groups of a state what a note says; O(sessions or items in the note)."""
    if note.kind in OF_GROUPS:
        groups.take_in(note.kind, note.fields)
        return
    match note:
        case Note("session", fields):
            session = KnownSession(*fields)  # type: ignore[arg-type]  # what ``began`` has written
            sessions[session.owner] = session
        case Note("session-ended", ()):
            sessions.clear()
        case Note("session-ended", owners):
            for owner in owners:
                sessions.pop(owner, None)  # type: ignore[arg-type]  # what ``ended`` has written


def digest_of(secret: bytes) -> bytes:
    """Returns the digest by which the log knows the secret of a session."""
    return blake2b(secret, digest_size=32, person=b"session").digest()


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
