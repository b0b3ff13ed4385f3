"""How the leader of a store knows that a connection is of a daemon that follows it there.

A follower has no token of the configuration.  In place of one it shows a *proof*: a digest of the nonces of
its leader and of itself, which only a reader of the store can make.  Neither nonce is on the wire.

Always: a proof is valid between two members, while both live; proofs are compared in constant time; however
many are shown, the store is asked at most every ``PAUSE_SECONDS``.
"""

from __future__ import annotations

import hmac
import logging
import math
from typing import TYPE_CHECKING, Final

import trio

from relay.store.errors import LogFailed
from server.config.principals import MEMBER

if TYPE_CHECKING:
    from uuid import UUID

    from relay.store.postgres.members import Membership

logger = logging.getLogger("dataspace")

PAUSE_SECONDS: Final = 0.2
"""Seconds between two questions who lives."""

PATIENCE: Final = 2.0
"""Seconds after which a proof that the store has not confirmed is not valid."""

_CONTEXT: Final = b"dataspace member 1"


def proof_of(leader: UUID, follower: UUID) -> str:
    """Returns the proof of a follower for a leader, by their nonces."""
    return MEMBER + hmac.digest(leader.bytes + follower.bytes, _CONTEXT, "sha256").hex()


class FollowerProofs:
    """Recognizes the followers of a member that leads."""

    def __init__(self, member: Membership) -> None:
        self._member: Final = member
        self._asking: Final = trio.Lock()
        self._asked_at = -math.inf
        self._living: list[tuple[UUID, str]] = []
        self.questions = 0
        """How often the store was asked."""

    async def follower(self, proof: str) -> str | None:
        """Returns the name of the living member whose proof this is; None if there is none."""
        came, name, shown = trio.current_time(), None, proof.encode(errors="replace")
        with trio.move_on_after(PATIENCE):
            async with self._asking:
                if self._asked_at <= came:  # else it was asked meanwhile, for all that wait
                    await self._ask()
            for nonce, each in self._living:  # all of them, so that the time tells nothing
                if hmac.compare_digest(proof_of(self._member.nonce, nonce).encode(), shown):
                    name = each
        return name

    async def _ask(self) -> None:
        await trio.sleep_until(self._asked_at + PAUSE_SECONDS)
        self._asked_at, self._living = trio.current_time(), []
        self.questions += 1
        try:
            self._living = await trio.to_thread.run_sync(self._member.others, abandon_on_cancel=True)
        except LogFailed as failure:
            logger.warning("%s; no follower is admitted", failure)
