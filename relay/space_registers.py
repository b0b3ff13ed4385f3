"""What a daemon keeps in the log of a space beside facts: sessions that may be resumed, groups, and the
release of the zones of rules.

Whoever opens such a log, to write it or to rebuild what it holds, gives it ``space_registers``.  It is apart
from ``relay/log``, which knows no feature.

Always: the register has the sessions whose claims outlive the daemon, at a start and at a follower alike; a
note has no secret, only its digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from dataspace.steps import batched
from relay.groups.state import GroupStates
from relay.log.notes import Note, Register, RegisterRows, Registers
from relay.log.snapshots import CHUNK_CLAIMS

SESSION: Final = "session"
"""The kind that precedes the first claim of a session with grace; its fields are ``KnownSession``."""

SESSION_ENDED: Final = "session-ended"
"""The kind whose fields are the owners of sessions that have ended; without fields, all have."""


ZONES: Final = "zones"
"""The kind whose field is the release of the zones of time."""


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


class KnownSessions(dict[str, KnownSession], Register):
    """The sessions that may be resumed, by their owners."""

    KINDS = frozenset((SESSION, SESSION_ENDED))
    NOTES_ALONE = True

    def apply(self, kind: str, fields: Any) -> None:
        if kind == SESSION:
            session = KnownSession(*fields)
            self[session.owner] = session
        elif fields:
            for owner in fields:
                self.pop(owner, None)
        else:
            self.clear()

    def rows(self) -> Sequence[RegisterRows]:
        return [(SESSION, part) for part in batched(self.values(), CHUNK_CLAIMS)]

    def differences(self, noted: KnownSessions) -> Iterator[str]:
        for owner in {*self, *noted}:
            if self.get(owner) != noted.get(owner):
                yield f"what it says of {owner}, which may be resumed, is not what the notes say"


class ZoneData(Register):
    """The ``release`` of the zones of time with which rules were carried out; empty if they read none."""

    KINDS = frozenset((ZONES,))
    NOTES_ALONE = True

    def __init__(self) -> None:
        self.release = ""

    def apply(self, kind: str, fields: Any) -> None:
        (self.release,) = fields

    def rows(self) -> Sequence[RegisterRows]:
        return [(ZONES, [(self.release,)])] if self.release else []

    def differences(self, noted: ZoneData) -> Iterator[str]:
        if self.release != noted.release:
            yield f"zones of {self.release or 'no release'} are not what the notes say"


def space_registers() -> Registers:
    """Returns the registers of a space, empty."""
    return Registers(KnownSessions(), GroupStates(), ZoneData())


def with_zones(release: str) -> Note:
    """Returns the note that says with which release of the zones of time rules are carried out from now on.

    A program that does not know it may read the log.
    """
    return Note(ZONES, (release,))


def began(session: KnownSession) -> Note:
    """Returns the note that precedes the first claim of a session."""
    return Note(SESSION, session, required=True)


def ended(owners: Iterable[str] = ()) -> Note:
    """Returns the note that precedes the end of these sessions, or of all."""
    return Note(SESSION_ENDED, tuple(owners), required=True)


def digest_of(secret: bytes) -> bytes:
    """Returns the digest by which the log knows the secret of a session."""
    return blake2b(secret, digest_size=32, person=b"session").digest()
