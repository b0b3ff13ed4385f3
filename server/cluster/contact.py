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
    from server.spaces.space import HostedSpace

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
        self._standings = home.standings
        self.is_up = False
        """True while each space that is followed has a leader."""
        self._terms: dict[str, int] = {}
        self._running = trio.CancelScope()

    def end(self) -> None:
        self._running.cancel()

    async def run(self) -> None:
        for each in self._followings:
            each.poll = POLL_SECONDS
        with self._running:
            while True:
                try:
                    standings = await trio.to_thread.run_sync(self._standings, abandon_on_cancel=True)
                    for hosted in self._daemon.spaces.values():
                        if isinstance(hosted.commits, Following):
                            await self._take(hosted, hosted.commits, standings[hosted.name])
                except LogFailed as failure:
                    logger.warning("%s; the leader is not known", failure)
                    for hosted in self._daemon.spaces.values():
                        hosted.leader.url = hosted.leader.web = ""
                followed = [each for each in self._daemon.spaces.values() if not each.leads]
                self.is_up = all(each.leader.url for each in followed)
                await trio.sleep(LOOK_SECONDS)

    async def _take(self, hosted: HostedSpace, commits: Following, standing: Standing) -> None:
        """Takes over who leads a space; it goes on to the number with which a new leader has begun."""
        leader = hosted.leader
        if standing.term != self._terms.get(hosted.name):
            start = await trio.to_thread.run_sync(commits.log.newest_start)
            commits.expect(start - 1)
            self._terms[hosted.name] = standing.term
        before, leader.url, leader.web = leader.url, "", ""
        if standing.lives and standing.url:
            if standing.url != before:
                logger.info("space %s: following %s at %s", hosted.name, standing.name, standing.url)
            leader.url, leader.web = standing.url, standing.web or ""
