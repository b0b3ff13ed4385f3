"""States of an archive: the facts that held after an epoch, as columns, and what follows from them.

A state is written where a merged range begins, if more has changed since the state before than the new state
has facts, so that states have at most as many rows as there are changes.  The facts after any epoch follow
from the nearest state and the changes since.

Always: the state at an epoch, from whatever files this names, is what held in the log then.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataspace.errors import UsageError
from index.values.values import Value
from relay.archive.archive import Archive, labelled, may_have
from relay.archive.manifest import COLUMNS, ArchivedFile, ArchivedState, Range


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The objects for the facts after an epoch: the nearest state, and the changes since.

    ``state`` is None where nothing held before the changes.  A fact held if its insertions outnumber its
    deletions among the rows with an ``_epoch`` up to the epoch; all rows of a state are insertions.  With
    ``intervals`` a fact held for each such insertion whose ``_until`` is null or later.
    """

    state: ArchivedState | None
    facts: tuple[ArchivedFile, ...]
    changes: tuple[tuple[Range, ArchivedFile], ...]
    intervals: bool


def state_files(archive: Archive, epoch: int, pattern: Value = None) -> StateFiles:
    """Returns the objects for the facts after an epoch; with a pattern, for the facts that may match it.

    Raises ``UsageError`` for an epoch that the archive does not have, if the state before its first epoch is
    not known, if a range has no columns, or for a pattern without a label.  O(ranges since the state).
    """
    flat = None if pattern is None else labelled(pattern)
    manifest = archive.manifest
    if not manifest.first - 1 <= epoch <= manifest.upto:
        raise UsageError(
            f"{archive.shown} has epochs {manifest.first} to {manifest.upto}, not the state after {epoch}"
        )
    found = nearest_state(archive, epoch)
    if found is None and manifest.first > 1:
        raise UsageError(
            f"{archive.shown} begins with epoch {manifest.first}, and has no state of an epoch up to {epoch}"
        )
    begin = 0 if found is None else found.epoch
    ranges = list(archive.ranges(begin, epoch)) if epoch > begin else []
    for range_ in ranges:
        if range_.changes and not any(file.form == COLUMNS for file in range_.files):
            raise UsageError(
                f"{archive.shown} has no columns of epochs {range_.first} to {range_.last}: they were "
                "archived without pyarrow; `dataspace log archive --merge` makes them"
            )
    return StateFiles(
        found,
        tuple([file for file in found.files if flat is None or may_have(file, flat)] if found else ()),
        tuple(
            [
                (each, file)
                for each in ranges
                for file in each.files
                if file.form == COLUMNS and (flat is None or may_have(file, flat))
            ]
        ),
        not ranges or (len(ranges) == 1 and _has_intervals(ranges[0], found)),
    )


def _has_intervals(of: Range, state: ArchivedState | None) -> bool:
    return of.merged > 1 and (state is None or state.upto == of.last)


def nearest_state(archive: Archive, epoch: int) -> ArchivedState | None:
    """Returns the latest state of an epoch up to this one, None if there is none."""
    found = None
    for state in archive.states():
        if state.epoch > epoch:
            break
        if state.epoch >= archive.oldest - 1:
            found = state
    return found
