"""Turns of several owners: committed, numbered and counted like those of one.

Apart from ``HostedSpace.commit``, which is on the path of every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from dataspace.kernel.epochs import Epoch
from dataspace.kernel.shared_turns import Part, commit_shared
from dataspace.kernel.space import Space
from relay.log.writer import GroupCommit
from server.owners.accounts import Account, Holdings
from server.owners.turn_numbers import Client


class SharedTurn(NamedTuple):
    """A turn of several owners; ``on_durable`` is called with its epoch once that is on disk, and what it
    asserts counts for the ``account``."""

    parts: Sequence[Part]
    client: Client
    sequence: int
    on_durable: Callable[[Epoch], None] | None
    account: Account

    def commit(self, space: Space, commits: GroupCommit, holdings: Holdings, now: int) -> Epoch:
        """Commits the turn; raises ``Refused``, and nothing has happened.

        The turn counts, under its number, once the log has taken it.
        """
        commits.check_open()
        holdings.writer = self.account
        before = commits.latest
        try:
            epoch = commit_shared(
                space,
                self.parts,
                now,
                client=self.client.name,
                sequence=self.sequence,
                submit=partial(commits.submit, on_durable=self.on_durable),
                admit=self.account.admit,
            )
        finally:
            if commits.latest is not before:  # whatever was raised since
                self.client.applied(self.sequence, commits.latest.number)
        for owner, _ in self.parts:
            holdings.note(owner, self.account, *space.held(owner))
            if owner in space.rule_quotas:
                holdings.note_rules(owner, self.account, *space.rules_held(owner))
        return epoch
