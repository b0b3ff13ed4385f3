"""The header: a few named numbers by which everything else is read, under one seal.

A log's header has its oldest epoch, the numbers that may have been issued, the newest snapshot; a journal's
has the count of its steps.  They change in place, so they cannot be chained like segments.  The seal covers
them and the starts of a log.

Always: what ``changing`` gave to a write that raised is not in the header; one change at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final

from dataspace.codec import pack
from relay.store.errors import LogDamaged
from relay.store.ports import Names, Start

SEAL: Final = "seal"

SEAL_BYTES: Final = 16

UNFINISHED: Final = 0
"""The format of tables that are being copied."""


def refuse(damage: str) -> None:
    """Raises ``LogDamaged``: the reaction to damage unless the caller handles it."""
    raise LogDamaged(damage)


def seal_of(names: Mapping[str, Any], starts: Iterable[Start]) -> bytes:
    """Returns the seal of a header, whose own row does not count; O(starts)."""
    rows = sorted([(name, value) for name, value in names.items() if name != SEAL], key=_name)
    body = pack((tuple(rows), tuple([tuple(each) for each in starts])))
    return blake2b(body, digest_size=SEAL_BYTES, person=b"meta").digest()


def _name(row: tuple[str, Any]) -> str:
    return str(row[0])  # an altered name may be of another type


def unsealed(
    names: Mapping[str, Any], starts: Iterable[Start], place: str, found: Callable[[str], None] = refuse
) -> dict[str, Any]:
    """Returns the names of a header without its seal; O(starts).

    Damage is passed to ``found``; if that returns, the names are returned as they are.
    """
    if names.get(SEAL, b"") not in (b"", seal_of(names, starts)):
        found(f"{place}: the header of the log was altered")
    return {name: value for name, value in names.items() if name != SEAL}


class Header:
    """The header of tables that this process alone writes."""

    def __init__(self, names: Names, starts: Iterable[Start] = ()) -> None:
        self._names = dict(names)
        self._starts = dict(starts)
        self._changing = threading.Lock()

    @contextmanager
    def changing(self, named: Names, *, start: Start | None = None, oldest_start: int = 0) -> Iterator[Names]:
        """Returns names to write, with the seal of the header that they make; the block writes them.

        ``start`` is written with them, and starts before ``oldest_start`` are deleted.  O(starts).
        """
        with self._changing:
            starts = {first: before for first, before in self._starts.items() if first >= oldest_start}
            if start is not None:
                starts[start[0]] = start[1]
            names = self._names | dict(named)
            seal = seal_of(names, sorted(starts.items()))
            yield {**named, SEAL: seal}
            self._names, self._starts = names, starts


def check_format(place: str, names: Names, reads: int, earlier: Sequence[int] = ()) -> None:
    """Raises ``LogDamaged`` for tables whose header names another format; without a header they are new."""
    found = names.get("format", "1 without a number")
    if found == UNFINISHED and found not in earlier:
        raise LogDamaged(f"{place} is a copy that has not ended; the same `dataspace log copy` continues it")
    if names and found != reads and found not in earlier:
        raise LogDamaged(
            f"{place} has format {found}, this program reads {reads}; UPGRADE.md says which version reads it"
        )
