"""What clients are shown of a space: every committed epoch, or only epochs on disk.

The setting ``show`` decides.  Without it epochs are shown as they are committed, until another process may
take over the log: from then on only epochs on disk, since others could be lost that were seen.

Streams wait in the gate of the space.  Other answers about facts wait here, until the epoch of the facts is
on disk: answers to requests, and the reasons of refused turns.  Questions of operators about the daemon
itself, such as its status, are answered from memory.

Always: with ``durable`` an epoch is on disk before any client is told of it or of its facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dataspace.errors import Refused
from dataspace.kernel.expectations import FOUND_BYTES
from dataspace.kernel.space import Space
from dataspace.wire.packets import Refusal
from relay.delivery.gate import DurableGate
from relay.following.following import Following
from relay.log.writer import GroupCommit
from server.config.model import COMMITTED, DURABLE

OF_STATE: Final = frozenset(["expectation", "handle-in-use", "unknown-handle"])
"""The codes of refused turns that tell a client about facts."""


class Visibility:
    """What clients are shown of one space; ``setting`` comes from the configuration."""

    def __init__(
        self, space: Space, commits: GroupCommit | Following, gate: DurableGate, setting: str | None = None
    ) -> None:
        self._space: Final = space
        self._commits: Final = commits
        self.gate: Final = gate
        self._setting = setting
        self._is_followed = False
        self._apply()

    # -- what is in force -----------------------------------------------------------------------------

    @property
    def in_force(self) -> str:
        """Returns ``durable`` or ``committed``."""
        return self._setting or (DURABLE if self._is_followed else COMMITTED)

    def change_setting(self, setting: str | None) -> None:
        """Takes another setting; shows all kept entries if the setting allows it."""
        self._setting = setting
        self._apply()

    def follow(self) -> None:
        """Notes that another process may take over: that decides where the configuration does not."""
        self._is_followed = True
        self._apply()

    def _apply(self) -> None:
        if self.in_force == DURABLE:
            self.gate.close()
        else:
            self.gate.open()

    # -- what waits -----------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """Returns the newest epoch that clients are shown."""
        return self._commits.durable if self.gate.closed else self._space.epoch

    @property
    def is_stuck(self) -> bool:
        """True if the present state cannot be shown until the disk has free space."""
        return self._commits.full is not None and self.gate.keeps(self._space.epoch)

    async def wait(self) -> None:
        """Waits until the present state may be shown; at once if that is so.

        Raises ``Refused`` if the disk has no space for it, ``LogFailed`` if the disk has failed.
        """
        if self.gate.keeps(self._space.epoch):
            if self.is_stuck:
                raise self._stuck()
            await self._commits.wait_durable(self._space.epoch)

    def refuse(self, say: Callable[[Refusal], None], refusal: Refusal) -> None:
        """Says why a turn was refused, once the facts that refused it may be shown."""
        if refusal.code not in OF_STATE or not self.gate.closed:
            say(refusal)
        elif self.is_stuck:
            stuck = self._stuck()
            say(Refusal(refusal.sequence, stuck.code, stuck.text))
        else:
            size = len(refusal.text) + (FOUND_BYTES if refusal.found else 0)
            self.gate.after(self._space.epoch, say, refusal, size)

    def _stuck(self) -> Refused:
        return Refused("disk-full", f"what is to be shown waits for room on the disk: {self._commits.full}")
