"""Everything that a home holds, to be compared."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from relay.backup.copy_home import CopyEnd
from relay.following.following import FollowedLog
from relay.journal.reader import JournalReader
from relay.space_registers import space_registers
from server.copies.copying import source_at


def content(place: Path | str) -> dict[str, Any]:
    """Returns everything that a home holds."""
    with source_at(place) as end:
        return {space: _of_space(end, space) for space in end.spaces} | {"topics": _topics(end)}


def _of_space(end: CopyEnd, space: str) -> Any:
    with closing(FollowedLog.over(end.log(space), registers=space_registers)) as log:
        state = log.recover()
        tables = end.staged(space)
        batches = [] if tables is None else list(tables.rows())
        found = (
            *(log.identity, log.oldest, log.last, log.term, log.reserved, log.gaps(0)),
            {owner: dict(claims.items()) for owner, claims in state.owners.items()},
            *(state.clients, state.registers.rows(), state.epoch, state.time),
            *([*map(repr, log.read(log.oldest - 1))], batches),
        )
        if tables is not None:
            tables.close()
        return found


def _topics(end: CopyEnd) -> Any:
    tables = end.topics()
    if tables is None:
        return []
    with closing(JournalReader(tables)) as journal:
        assert not journal.shortfall()
        return [(journal.topic(slot), [*journal.steps(slot, 0)]) for slot in journal.slots()]
