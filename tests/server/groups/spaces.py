"""A space with a real log, whose groups tests drive without sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dataspace.kernel.actions import Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.space import Space
from relay.groups.memory import ItemMemory
from relay.log.log import Log
from relay.log.notes import Note, Notes
from relay.log.writer import GroupCommit
from server.config.model import Limits, SpaceConfig
from server.lane import Lane
from server.spaces.groups.groups import SpaceGroups


class BareSpace:
    """``server.spaces.groups.group.GroupSpace`` over a real log."""

    name = "main"
    limits = Limits()

    def __init__(self, directory: Path, *, leads: bool = True) -> None:
        """Without ``leads``, the state is not there until ``lead``."""
        self.own_log = Log.open(directory)
        self.settings = SpaceConfig(self.name, directory)
        self.group_items = ItemMemory()
        self.lane = Lane()
        self.groups = SpaceGroups(self)
        if leads:
            self.lead()

    def lead(self) -> None:
        """Takes the state from the log, and leads the groups."""
        log = self.own_log
        state = log.recover()
        self.space = Space("main")
        self.space.restore(state.owners, state.epoch, state.time)
        self.space.epoch = max(self.space.epoch, log.next_epoch - 1)
        self.term = log.term
        self.commits = GroupCommit(log, state=self.space.all_claims)
        self.now = 1_000_000 * log.term
        self.groups.lead(log.groups, was_clean=True)

    @property
    def clock(self) -> Callable[[], int]:
        return lambda: self.now

    @property
    def flush(self) -> Callable[[], None]:
        return lambda: None

    def commit(self, owner: str, actions: Sequence[Action], *, notes: Notes = ()) -> Epoch:
        submit = partial(self.commits.submit, notes=notes)
        return self.space.commit(owner, actions, self.now, submit=submit)

    def note(self, note: Note) -> None:
        self.commits.note(self.space.epoch, self.space.time, note)
