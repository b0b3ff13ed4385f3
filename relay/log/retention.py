"""Retention: which epochs are kept, and for which named readers?

An epoch may be deleted for its age, for the bytes of later epochs, or because every named reader has
acknowledged it.  A named reader that has not acknowledged it keeps it.  A reader that never comes back must
not fill the disk, so the bytes held for readers are bounded, and a reader that was silent for long holds
nothing.

This file only decides; the log itself refuses to delete what its newest snapshot does not contain yet.

Always: without a setting, everything is kept; an acknowledgement is on disk before it counts, and never goes
back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dataspace.errors import Refused

if TYPE_CHECKING:
    from relay.log.chain import Chain
    from relay.store.ports import LogTables


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules of deletion.  Ages are in seconds, sizes in bytes of the log's file that are in use.

    ``age``: epochs older than this may go.  ``size``: the oldest may go while the file has more than this in
    use, the newest snapshot included.  ``acknowledged``: what every named reader is done with may go (nothing
    while there is no reader).  ``reader_size``: the most that is held for late readers, beyond the other
    reasons.  ``reader_age``: a reader that has been silent for so long holds nothing back.  ``archived``:
    there is an archive; epochs that it lacks are kept, ``archive_size`` bytes of them at most, and archived
    epochs are not kept for readers.  ``windows``: epochs of so many last seconds are kept, since rules over
    time need them after a restart, up to ``reader_size`` bytes.
    """

    age: float | None = None
    size: int | None = None
    acknowledged: bool = False
    reader_size: int = 8 << 30
    reader_age: float = 7 * 86_400.0
    archived: bool = False
    archive_size: int | None = None
    windows: float = 0.0

    @property
    def endless(self) -> bool:
        """True if nothing is ever deleted."""
        return self.age is None and self.size is None and not self.acknowledged

    def first_kept(self, chain: Chain, readers: Readers, now: int, archived: int = 0) -> int:
        """Returns the ordinal of the first segment to be kept; ``now`` in microseconds.

        ``archived`` is the ordinal of the newest segment that an archive has.  O(log segments + what may go).
        """
        wanted = self._past_readers(chain, readers, now, archived)
        if self.windows:
            needed = chain.since(int(now - self.windows * 1e6))
            wanted = min(wanted, max(needed, _newest_of(chain, self.reader_size)))
        if not self.archived or wanted <= archived + 1:
            return wanted
        most = chain.first if self.archive_size is None else _newest_of(chain, self.archive_size)
        return min(wanted, max(archived + 1, most))

    def kept_for_registers(self, chain: Chain, wanted: int, after: int | None, archived: int = 0) -> int:
        """Returns the ordinal of the first segment to be kept, where registers need the epochs after one.

        ``reader_size`` bounds the bytes that are held for them; they read from an archive where there is one.
        """
        if after is None:
            return wanted
        needed = max(chain.beyond(after), archived + 1 if self.archived else chain.first)
        return min(wanted, max(needed, _newest_of(chain, self.reader_size)))

    def _past_readers(self, chain: Chain, readers: Readers, now: int, archived: int) -> int:
        alive = [each.epoch for each in readers if each.seen >= now - self.reader_age * 1e6]
        done = chain.beyond(min(alive)) if alive else None
        if done is not None and self.archived:
            done = max(done, archived + 1)
        wanted = chain.first
        if self.age is not None:
            wanted = max(wanted, chain.since(int(now - self.age * 1e6)))
        if self.size is not None:
            wanted = max(wanted, _newest_of(chain, self.size))
        if done is None:
            return wanted
        if self.acknowledged:
            wanted = max(wanted, done)
        return min(wanted, max(done, _newest_of(chain, self.reader_size)))


def _newest_of(chain: Chain, size: int) -> int:
    """Returns where the newest segments of so many bytes begin."""
    excess = chain.used() - size
    return chain.portion(chain.last + 1, excess)[0] if excess > 0 else chain.first


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim did: the oldest epoch now held, bytes dropped, whether there is more to drop now.

    ``held_back`` is how many bytes could go as soon as there is a newer snapshot.
    """

    oldest: int
    bytes: int
    more: bool
    held_back: int


READERS: Final = 1024
"""Names that are kept."""

READER_BYTES: Final = 1024
"""Bytes of the name of a reader."""


@dataclass(frozen=True, slots=True)
class NamedReader:
    """A name, the epoch up to which it is done, and when it said so last, in microseconds."""

    name: str
    epoch: int
    seen: int


class Readers:
    """The named readers of one log.  One thread at a time changes them."""

    def __init__(self, tables: LogTables) -> None:
        self._tables = tables
        rows = tables.readers()
        self._known = {name: NamedReader(name, epoch, seen) for name, epoch, seen in rows}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[NamedReader]:
        return iter(list(self._known.values()))

    def get(self, name: str) -> NamedReader | None:
        """Returns the reader of this name, or None."""
        return self._known.get(name)

    def acknowledge(self, name: str, epoch: int, now: int) -> None:
        """Notes that a reader is done with everything up to an epoch; one small write.

        An epoch lower than before is taken for a sign of life only.  Raises ``Refused("limit")`` for one
        name too many.
        """
        before = self._known.get(name)
        if before is None and len(self._known) >= READERS:
            raise Refused("limit", f"{len(self._known)} named readers, limit {READERS}: forget one")
        if before is None and (size := len(name.encode(errors="surrogatepass"))) > READER_BYTES:
            raise Refused(
                "limit", f"a reader's name of {size} bytes, limit {READER_BYTES}: choose a shorter one"
            )
        reader = NamedReader(name, max(epoch, before.epoch if before else 0), now)
        self._tables.put_reader(name, reader.epoch, reader.seen)
        self._known[name] = reader

    def forget(self, name: str) -> bool:
        """Forgets a reader; True if there was one."""
        self._tables.delete_reader(name)
        return self._known.pop(name, None) is not None
