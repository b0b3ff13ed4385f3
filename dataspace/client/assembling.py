"""Assembling: stream values back into whole epochs.

A large epoch travels in several values, all but the last marked ``MORE``.  An application must never see
a part of one, so the parts wait here until the last has come.

Always: what comes out is whole epochs in ascending order.
"""

from __future__ import annotations

from dataspace.client.changes import EpochChanges
from dataspace.errors import ProtocolError
from dataspace.wire.packets import MORE, SNAPSHOT
from index.values import Value


class Assembler:
    """Collects the values of one stream; ``names`` are those of the pattern's captures."""

    __slots__ = ("_open", "names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._open: EpochChanges | None = None

    def feed(self, value: Value) -> EpochChanges | None:
        """The epoch that this value completes, if it does."""
        epoch, more = self.part(value)
        if self._open is not None:
            _join(self._open, epoch)
            epoch = self._open
        self._open = epoch if more else None
        return None if more else epoch

    def part(self, value: Value) -> tuple[EpochChanges, bool]:
        """One value by itself, and whether its epoch goes on."""
        try:
            number, micros, flags, added, messages, removed, first = value  # type: ignore[misc, union-attr]
            epoch = EpochChanges(number, micros, first, self.names, snapshot=bool(flags & SNAPSHOT))  # type: ignore
            epoch.added, epoch.messages, epoch.removed = list(added), list(messages), list(removed)  # type: ignore
        except (TypeError, ValueError):
            raise ProtocolError("malformed", f"no epoch of changes: {value!r:.80}") from None
        return epoch, bool(flags & MORE)  # type: ignore[operator]  # a number, or the line above had raised


def _join(whole: EpochChanges, part: EpochChanges) -> None:
    whole.added += part.added
    whole.messages += part.messages
    whole.removed += part.removed
