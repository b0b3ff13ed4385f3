"""What a log says of a group, as the entries of ``tests.model.groups``: it knows the notes of LOG.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dataspace.kernel.changes import Epoch
from relay.log.notes import Note
from tests.model import groups as model


def entries_of(log: Iterable[Epoch | Note], group: str) -> list[model.Entry]:
    """Returns the epochs of a log, and what its notes say of one group."""
    found: list[model.Entry] = []
    for entry in log:
        if isinstance(entry, Note):
            found += _of_note(entry, group)
        elif not entry.silent:
            found.append(model.Epoch(entry.number, entry.added, entry.messages, entry.removed))
    return found


def _of_note(note: Note, group: str) -> Iterator[model.Entry]:
    fields: Any = note.fields
    if fields[:1] != (group,):
        return
    match note.kind:
        case "group":
            _, epoch, position, _, undone, above, failed, *_ = fields
            yield model.Begun(
                (epoch, position), _items(undone), list(zip(above[::2], above[1::2], strict=True))
            )
            for packed in undone:
                yield model.Failed((packed[0], packed[1]), packed[3])
            for epoch, position, attempts, _ in failed:
                yield model.Failed((epoch, position), attempts)
        case "group-done":
            yield model.Done(list(_cells(fields[1:])))
        case "group-again":
            yield model.Failed((fields[1], fields[2]), fields[3])
        case "group-undone":
            yield model.Revived(_items(fields[1:]))


def _items(packed: Sequence[Any]) -> list[tuple[model.At, Any]]:
    return [((each[0], each[1]), each[6]) for each in packed]


def _cells(cells: Sequence[int]) -> Iterator[model.At]:
    epoch = 0
    for difference, position in zip(cells[::2], cells[1::2], strict=True):
        epoch += difference
        yield epoch, position
