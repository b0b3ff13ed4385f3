"""How a daemon that follows knows its leader: by the row of the leader in the store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from relay.following.following import Following
from relay.store.errors import LogFailed
from server.cluster.store import StoreHome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.following.polling import Polled
    from relay.store.postgres.members import Standing
    from server.monitoring.state import DaemonState

logger = logging.getLogger("dataspace")

LOOK_SECONDS: Final = 0.25
"""How often a follower looks who leads."""

POLL_SECONDS: Final = 0.05
"""How often it looks whether there is something new."""


class StoreContact:
    """What a follower learns of its leader from the store."""

    def __init__(self, daemon: DaemonState, followings: Sequence[Polled]) -> None:
        home = daemon.home
        assert isinstance(home, StoreHome)  # by ``contact_of``
        self._daemon = daemon
        self._followings = followings
        self._standing = home.standing
        self.is_up = False
        self._term = 0
        self._running = trio.CancelScope()

    def end(self) -> None:
        self._running.cancel()

    async def run(self) -> None:
        for each in self._followings:
            each.poll = POLL_SECONDS
        with self._running:
            while True:
                try:
                    standing = await trio.to_thread.run_sync(self._standing, abandon_on_cancel=True)
                    if standing.term != self._term:
                        await self._expect_start()
                        self._term = standing.term
                    self._take(standing)
                except LogFailed as failure:
                    logger.warning("%s; the leader is not known", failure)
                    self._lose()
                await trio.sleep(LOOK_SECONDS)

    async def _expect_start(self) -> None:
        """Has each space go on to the number with which its leader has begun."""
        for hosted in self._daemon.spaces.values():
            if isinstance(hosted.commits, Following):
                start = await trio.to_thread.run_sync(hosted.commits.log.newest_start)
                hosted.commits.expect(start - 1)

    def _take(self, standing: Standing) -> None:
        if not standing.lives or not standing.url:
            self._lose()
            return
        if not self.is_up:
            logger.info("following %s at %s", standing.name, standing.url)
        self.is_up = True
        for hosted in self._daemon.spaces.values():
            hosted.leader.url, hosted.leader.web = standing.url, standing.web or ""

    def _lose(self) -> None:
        self.is_up = False
        for hosted in self._daemon.spaces.values():
            hosted.leader.url = hosted.leader.web = ""
