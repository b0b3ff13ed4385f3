"""The leader of a directory: whoever listens on the socket there, which is all that a follower asks."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dataspace.client.session.uplink import open_link
from dataspace.errors import Unreachable
from dataspace.transport.addresses import MAX_PATH, Address
from dataspace.transport.credentials import Credentials, Tls
from dataspace.wire import packets as p
from index.values.values import Map
from relay.following.polling import POLL_SECONDS
from server.cluster.reports import LeaderConnection

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link
    from server.sessions.state import DaemonState

logger = logging.getLogger("dataspace")

SOCKET: Final = "leader.sock"
"""The name of a leader's socket in its data directory."""

CONNECT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 0.1
"""Seconds that an attempt to find a leader may take, and until the next one."""

HINTED_SECONDS: Final = 0.1
"""How often a follower looks at the log beside the hints that it gets."""


class LeaderSocket:
    """Where the leader of a directory listens, as a path that is short however long that of the directory
    is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    @property
    def address(self) -> Address:
        """Returns the address; it holds until ``close``."""
        plain = str(self._directory.absolute() / SOCKET)
        if len(os.fsencode(plain)) <= MAX_PATH:
            return Address(path=plain)
        if self._descriptor is None:
            self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        return Address(path=f"/proc/self/fd/{self._descriptor}/{SOCKET}")

    def close(self) -> None:
        """Forgets the directory."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class DirectoryContact(LeaderConnection):
    """The connection to the leader of a directory, which leads all of its spaces."""

    def __init__(self, daemon: DaemonState, directory: Path) -> None:
        spaces = [*daemon.spaces]
        super().__init__(
            daemon,
            spaces,
            pause_seconds=RETRY_SECONDS,
            poll_seconds=POLL_SECONDS,
            hinted_seconds=HINTED_SECONDS,
        )
        self._socket = LeaderSocket(directory)
        self._resets = 0
        """How often the connection broke since the leader last answered."""

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._socket.close()

    async def _dial(self) -> tuple[Link, p.Hello]:
        link = await open_link(self._socket.address, Credentials("", Tls()), timeout=CONNECT_SECONDS)
        return link, p.Hello(p.VERSION, f"~follower-{os.getpid()}", "follower", Map())

    def _note_answer(self, answer: Map, *, is_first: bool) -> None:
        if is_first:
            logger.info("following %s", answer.get("url"))
        self._resets = 0
        self._note_addresses(str(answer.get("url", "")), str(answer.get("web", "")))

    def _note_moved(self) -> None:
        """A directory has one leader for all spaces."""

    def _note_lost(self, reason: Exception | str | None, *, was_up: bool) -> None:
        self._note_addresses("", "")
        level = logging.WARNING
        if isinstance(reason, OSError):
            self._resets += 1
            level = logging.INFO if self._resets == 1 else level  # it ended, and may be back in a moment
        if isinstance(reason, Exception) and not isinstance(reason, Unreachable):  # else nobody listens
            logger.log(level, "the leader of %s does not answer: %s", self._daemon.config.data, reason)

    def _note_addresses(self, url: str, web: str) -> None:
        for hosted in self._daemon.spaces.values():
            hosted.leader.url, hosted.leader.web = url, web
