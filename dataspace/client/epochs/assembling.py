"""The assembler, which joins the values of a stream into whole epochs.

A large epoch travels in several values, all but the last marked ``MORE``.  An application must never see a
part of one, so the parts wait here until the last has come.

Always: epochs come out whole and in ascending order.
"""

from __future__ import annotations

from typing import Any

from dataspace.errors import ProtocolError
from dataspace.kernel.actions import MORE
from dataspace.kernel.changes import EpochChanges
from index.values.values import Record, Value


class Assembler:
    """Joins the values of one stream; ``names`` are the names of the pattern's captures."""

    __slots__ = ("_open", "names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._open: EpochChanges | None = None

    def feed(self, value: Value) -> EpochChanges | None:
        """Returns the epoch that this value completes, or None if more of it follows."""
        epoch, more = self.part(value)
        whole, self._open = self._open, None
        if whole is None:
            whole = epoch
        else:
            whole.extend(epoch)
        if more:
            self._open = whole
            return None
        if whole is not epoch:
            whole.added, whole.messages, whole.removed = map(
                tuple, (whole.added, whole.messages, whole.removed)
            )
        return whole

    def part(self, value: Value) -> tuple[EpochChanges, bool]:
        """Returns the changes in one value by itself, and whether more of its epoch follows."""
        if isinstance(value, Record):
            return self._mark(value), False
        if value.__class__ is not tuple or len(value) != 7:
            raise ProtocolError("malformed", f"no epoch of changes: {value!r:.80}")
        number, micros, flags, added, messages, removed, first = value
        if not number.__class__ is micros.__class__ is flags.__class__ is first.__class__ is int:
            raise ProtocolError("malformed", f"no epoch of changes: {value!r:.80}")
        if not (added.__class__ is tuple and messages.__class__ is tuple and removed.__class__ is tuple):
            raise ProtocolError("malformed", f"no rows of captures: {value!r:.80}")
        came: Any = added  # rows of captures: the daemon is trusted, and nothing is copied
        sent: Any = messages
        went: Any = removed
        return EpochChanges(number, micros, first, self.names, came, sent, went, flags), bool(flags & MORE)

    def _mark(self, value: Record) -> EpochChanges:
        """Returns a mark among the epochs, which states what was dropped there."""
        if value.label != "lost" or [each.__class__ for each in value.fields] != [int, int, int]:
            raise ProtocolError("malformed", f"no mark that is known: {value!r:.80}")
        count, first, number = value.fields
        return EpochChanges(number, 0, first, self.names, (), (), (), lost=count)  # type: ignore[arg-type]  # as just checked
