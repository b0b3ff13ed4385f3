"""The daemon: its dataspaces, and everybody who is connected.

It opens the logs, puts back what was durable, lets the rest be seen to go, and only then listens.

Always: nobody is served before everything durable is back; the end of a connection retracts all it owned in
one turn.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import trio

from dataspace.errors import Refused
from dataspace.version import __version__
from dataspace.wire.features import MAIN
from index.values.values import Map
from relay.delivery.memory import Room
from relay.delivery.policies import SlowCounts
from relay.journal.journal import Journal
from relay.journal.writer import TopicWriter
from relay.log.log import Log
from relay.log.writer import GroupCommit
from server.config.model import Config, SpaceConfig
from server.config.tokens import Keys
from server.daemon.lock import locked
from server.daemon.reloading import reload_on_hangup
from server.daemon.space import LoggedSpace, now
from server.hosting.actors import Hosting
from server.sessions.listeners import Listener, accept, open_listeners
from server.system import SystemSpace
from server.topics.catalogue import Topics
from server.topics.durable import Keeping

if TYPE_CHECKING:
    from server.sessions.connection import Connection
    from server.sessions.sending import Sending

logger = logging.getLogger("dataspace")


class Daemon:
    """All that connections share."""

    peers: trio.Nursery
    """Runs connections, and all else that ends before the logs are closed."""

    def __init__(self, config: Config, logs: Sequence[tuple[SpaceConfig, Log]]) -> None:
        self.config = config
        self.started = now()
        self.listeners: list[Listener] = []
        self.connections: dict[int, Connection] = {}
        self.strangers: set[Connection] = set()
        """Those of them that have not said hello."""
        self.streams = 0
        """Those that are open, of all connections."""
        self._dirty: list[Sending] = []
        self.slow = SlowCounts()
        self.room = Room(config.limits.waiting_bytes)
        self.replays = trio.Semaphore(config.limits.all_replays)
        """Replays that may hold a part of the log in memory at once; the others wait for their turn."""
        self.keys = Keys(config.keys)
        self.system = SystemSpace(now)
        self.topics = Topics(now, self.system)
        self.keeping = Keeping(
            self.topics, Journal(config.data, accept_damage=config.accept_damage), self.flush
        )
        self.keeping.recover(accept_damage=config.accept_damage)
        self.spaces = {each.name: LoggedSpace(self, each, log) for each, log in logs}
        self.main = self.spaces[MAIN]
        self.hosting = Hosting(self, config.actors)

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return [listener.name for listener in self.listeners]

    def find_space(self, name: str) -> LoggedSpace:
        """The dataspace of that name; ``Refused`` if there is none."""
        found = self.spaces.get(name)
        if found is None:
            raise self.no_space(name)
        return found

    def no_space(self, name: str) -> Refused:
        """What to tell of a dataspace that is not there."""
        return Refused(
            "no-space", f"no space named {name!r:.80}, there is {', '.join(map(repr, self.spaces))}"
        )

    def touch(self, sending: Sending) -> None:
        """Notes that somebody has something to say when all are flushed."""
        self._dirty.append(sending)

    def flush(self) -> None:
        """Lets every connection with something to say hand it to the kernel; O(those)."""
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for sending in dirty:
                sending.flush()

    # -- connections ----------------------------------------------------------------------------------

    def left(self, connection: Connection, reason: str) -> None:
        """A connection is over."""
        connection.home.sessions.leave(connection)
        self.connections.pop(connection.number, None)
        self.strangers.discard(connection)
        self.flush()
        logger.info(
            "session %d ended: %s (%d turns, %d bytes in, %d out)",
            connection.number,
            reason,
            connection.turns,
            connection.received,
            connection.sending.sent,
        )

    # -- looking --------------------------------------------------------------------------------------

    def status(self, home: LoggedSpace) -> Map:
        """What ``dataspace status`` shows of a space: counts, bytes and times in microseconds."""

        told = {
            **home.status(),
            "version": __version__,
            "spaces": Map({name: len(each.space.index) for name, each in self.spaces.items()}),
            "addresses": self.addresses,
            "process": os.getpid(),
            "started": self.started,
            "now": now(),
            "sessions": len(self.connections),
            "topics": len(self.topics),
            "streams": self.streams,
            "waiting_bytes": self.room.used,
            "replays_reading": self.config.limits.all_replays - self.replays.value,
            "slow_conflated_epochs": self.slow.conflated,
            "slow_dropped_changes": self.slow.dropped,
            "slow_failed_streams": self.slow.failed,
            "slow_fallen_behind": self.slow.fallen_behind,
            "memory_bytes": resident_bytes(),
            "memory_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        return Map(told)


def resident_bytes() -> int:
    """Resident memory of this process now, or 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:  # a line of the kernel's, not a file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


async def serve(
    config: Config,
    reread: Callable[[], Config] | None = None,
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a daemon until it is cancelled; then says goodbye, retracts what sessions own, closes the logs.

    ``reread`` gives the configuration anew when SIGHUP asks for it; without it the signal is left alone.
    ``task_status`` gets the addresses that are listened on, once everything durable is back.
    """
    gc.set_threshold(100_000, 50, 100)
    with ExitStack() as held:
        logs = []
        for each in config.all_spaces():
            held.enter_context(locked(each.data))
            log = Log.open(each.data, accept_damage=config.accept_damage)
            held.callback(log.close)
            logs.append((each, log))
        daemon = Daemon(config, logs)
        held.callback(daemon.keeping.writer.journal.close)
        for home in daemon.spaces.values():
            held.callback(home.staging.close)
        gc.collect()
        gc.freeze()
        await _run(daemon, reread, task_status)


async def _run(
    daemon: Daemon, reread: Callable[[], Config] | None, task_status: trio.TaskStatus[list[str]]
) -> None:
    daemon.listeners = await open_listeners(daemon.config)
    spaces = daemon.spaces.values()
    async with trio.open_nursery() as nursery:
        writers: list[GroupCommit | TopicWriter] = [home.commits for home in spaces]
        writers.append(daemon.keeping.writer)
        scopes = [trio.CancelScope(shield=True) for _ in writers]
        for writer, scope in zip(writers, scopes, strict=True):
            nursery.start_soon(_write_log, writer, scope)
        try:
            for home in spaces:
                await home.commits.wait_durable(home.space.epoch)
            async with trio.open_nursery() as daemon.peers:
                for listener in daemon.listeners:
                    daemon.peers.start_soon(accept, daemon, listener)
                for home in spaces:
                    daemon.peers.start_soon(home.run)
                daemon.peers.start_soon(daemon.keeping.run)
                if daemon.config.actors:
                    daemon.peers.start_soon(daemon.hosting.run)
                if reread is not None:
                    await daemon.peers.start(reload_on_hangup, daemon, reread)
                task_status.started(daemon.addresses)
                await trio.sleep_forever()
        finally:
            for listener in daemon.listeners:
                listener.close()
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as closing:
                    for writer in writers:
                        closing.start_soon(writer.close)
            for scope in scopes:
                scope.cancel()


async def _write_log(writer: GroupCommit | TopicWriter, scope: trio.CancelScope) -> None:
    with scope:
        await writer.run()
