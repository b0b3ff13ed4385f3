"""A space with a real log, whose groups tests drive without sockets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dataspace.kernel.actions import Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.space import Space
from dataspace.kernel.turns import Part
from relay.delivery.gate import DurableGate
from relay.delivery.memory import MemoryBudget
from relay.log.log import Log
from relay.log.notes import Notes
from relay.log.writer import GroupCommit
from relay.space_registers import space_registers
from relay.store.levels import LATEST
from relay.store.staging import Staging
from server.config.model import Limits, SpaceConfig
from server.groups.space.groups import SpaceGroups
from server.lane import Lane
from server.owners.turn_numbers import Clients
from server.spaces.roles import Leading
from server.spaces.space import HostedSpace
from server.spaces.visibility import Visibility
from tests.relay.store.memory import MemoryStaged


class BareSpace(HostedSpace):
    """A space that has no more than its groups need, over a real log."""

    def __init__(self, directory: Path, *, leads: bool = True) -> None:
        """Without ``leads``, the state is not there until ``begin``."""
        self.name, self.limits = "main", Limits()
        self.own_log = Log.open(directory, registers=space_registers)
        self.settings = SpaceConfig(self.name, directory)
        self.budget, self._directory = MemoryBudget(), directory
        self.lane = Lane()
        self.now = 0
        self.clock = lambda: self.now
        self.flush = lambda: None
        self.groups = SpaceGroups(self)
        if leads:
            self.begin()

    @property
    def level(self) -> int:
        return LATEST

    def begin(self) -> None:
        """Takes the state from the log, and leads the groups."""
        log = self.own_log
        state = log.recover()
        self.space = Space("main")
        self.space.restore(state.owners, state.epoch, state.time)
        self.space.epoch = max(self.space.epoch, log.next_epoch - 1)
        commits = GroupCommit(log, state=self.space.all_claims)
        visibility = Visibility(self.space, commits, DurableGate(self.budget))
        staging = Staging(MemoryStaged.open(self._directory))
        self.role = Leading(log, commits, Clients({}), visibility, staging)
        self.now = 1_000_000 * log.term
        self.groups.lead(log, was_clean=True)

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
        others: Sequence[Part] = (),
        *,
        notes: Notes = (),
        **_of_clients: object,
    ) -> Epoch:
        submit = partial(self.commits.submit, notes=notes)
        return self.space.commit(owner, actions, self.now, submit=submit, others=others)
