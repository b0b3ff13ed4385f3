"""The daemon: one space, its log, and everybody who is connected.

It opens the log, puts back what was durable, lets the rest be seen to go, and only then listens.  Every
turn, whoever sends it, passes through ``commit``: the space makes the epoch, the log gets it, and the
connections with something to say are flushed when the current bundle of work is done.

Always: one task at a time touches the space; an epoch is acknowledged only when it is on disk; the end of
a connection retracts all it owned in one turn.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import trio

from dataspace.epochs import Epoch
from dataspace.errors import Closed, Refused
from dataspace.space import Space
from dataspace.wire.packets import RETRACT, Action
from index.values import Map
from relay.journal.journal import Journal
from relay.journal.writing import TopicWriter
from relay.log import Log, LogFailed
from relay.log.commits import GroupCommit
from relay.log.retaining import retain
from relay.log.staging import Staging
from relay.policies import SlowCounts
from relay.rooms import Room
from server.clients import Client, Clients
from server.config import Config
from server.hosting import Hosting
from server.keys import Keys
from server.leases import Leases
from server.listeners import accept, open_listeners
from server.locking import locked
from server.ruling import OWNER, actions_to_hold, rules_of_files
from server.sessions import Sessions
from server.topic_keeping import Keeping
from server.topics import SYSTEM, Topics

if TYPE_CHECKING:
    from server.connection import Connection

logger = logging.getLogger("dataspace")

SPACE: Final = "main"


def now() -> int:
    """The time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


class Daemon:
    """All that connections share."""

    def __init__(self, config: Config, log: Log) -> None:
        self.config = config
        self.log = log
        self.identity = log.identity
        self.started = now()
        self.addresses: list[str] = []
        self.connections: dict[int, Connection] = {}
        self.dirty: list[Connection] = []
        self.publishing = trio.Lock()
        self.rules_due = trio.Event()
        self.slow = SlowCounts()
        self.room = Room(config.limits.waiting_bytes)
        self.sessions = Sessions(self)
        self.leases = Leases(self)
        self.keys = Keys(config.keys)
        self.topics = Topics(now)
        self.keeping = Keeping(
            self.topics, Journal(config.data, accept_damage=config.accept_damage), self.flush
        )
        self.space = Space(SPACE, limits=config.space_limits)
        self.commits = GroupCommit(log, after_group=self.flush, state=self.space.all_claims)
        self.staging = Staging(config.data, limit=config.limits.staged_bytes)
        self._recover()
        self.hosting = Hosting(self, config.actors, config.trace)

    def _recover(self) -> None:
        """Puts back what the log holds; whoever did not survive is seen to go, in one epoch."""
        state = self.log.recover()
        self.clients = Clients(self.log.clients)
        self.space.restore(state.owners, state.epoch, state.time)
        self.space.epoch = max(self.space.epoch, self.log.next_epoch - 1)
        self.incarnation = self.space.epoch
        gone = [owner for owner in self.space.owners() if owner.startswith(("session:", "actor:"))]
        ended = self.space.end(gone, now())
        if ended is not None:
            self.commits.submit(ended)
        self.leases.recover()
        self.keeping.recover(accept_damage=self.config.accept_damage)
        rules = actions_to_hold(self.space, rules_of_files(self.config.rules))
        held = self.space.commit(OWNER, rules, now()) if rules else self.space.advance(now())
        if held is not None:
            self.commits.submit(held)
        logger.info(
            "recovered %d facts at epoch %d, %d owners did not survive",
            len(self.space.index),
            state.epoch,
            len(gone),
        )

    # -- turns ----------------------------------------------------------------------------------------

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
        client: Client | None,
        sequence: int,
        on_durable: Callable[[Epoch], None] | None,
        *,
        publication: bool = False,
    ) -> Epoch:
        """Commits one turn; ``on_durable`` is called with its epoch once that is on disk.

        Raises ``Refused`` or ``ProtocolError``, and nothing has happened.
        """
        if self.commits.full is not None:
            self._check_room(actions, internal=client is None and not publication)
        name = client.name if client else None
        epoch = self.space.commit(
            owner, actions, now(), client=name, sequence=sequence, publication=publication
        )
        if client is not None:
            client.applied(sequence, epoch.number)
        self.commits.submit(epoch, on_durable)
        if self.space.rules.pending:
            self.rules_due.set()
        return epoch

    async def advance(self) -> None:
        """Makes the turns that rules ask for by ``next``, until cancelled, in between those of others."""
        while True:
            self.rules_due = trio.Event()
            while self.space.rules.pending:
                epoch = self.space.advance(now())
                if epoch is not None:
                    self.commits.submit(epoch)
                self.flush()
                await self.commits.wait_room()
                await trio.lowlevel.checkpoint()
            await self.rules_due.wait()

    def _check_room(self, actions: Sequence[Action], *, internal: bool) -> None:
        """Refuses a turn while the disk is full, unless it only retracts or is the daemon's own."""
        if internal and not self.commits.is_behind:
            return
        if any(action[0] != RETRACT for action in actions):
            raise Refused("disk-full", f"nothing is taken on that has to be kept: {self.commits.full}")

    def check_space(self, name: str) -> None:
        """Refuses a space that this daemon does not have."""
        if name == SYSTEM:
            raise Refused("read-only", f"space {SYSTEM!r} can only be observed, and only now")
        if name != SPACE:
            raise Refused("no-space", f"no space named {name!r}, there is {SPACE!r}")

    async def find_turn(self, client: str, sequence: int) -> int | None:
        """The epoch of an old turn, looked up in the log; O(log), for what nobody remembers."""

        return await trio.to_thread.run_sync(self.log.find_turn, client, sequence)

    def flush(self) -> None:
        """Lets every connection with something to say hand it to the kernel; O(those)."""
        while self.dirty:
            dirty, self.dirty = self.dirty, []
            for connection in dirty:
                connection.flush()

    # -- connections ----------------------------------------------------------------------------------

    def end_owners(self, owners: Sequence[str]) -> None:
        """Retracts in one turn all that some owners claim."""
        ended = self.space.end(owners, now())
        try:
            if ended is not None:
                self.commits.submit(ended)
            if self.space.rules.pending:
                self.rules_due.set()
        except (LogFailed, Closed):
            pass  # the daemon is ending, and the next one has them go

    def left(self, connection: Connection, reason: str) -> None:
        """A connection is over."""
        self.sessions.leave(connection)
        self.connections.pop(connection.number, None)
        self.flush()
        logger.info(
            "session %d ended: %s (%d turns, %d bytes in, %d out)",
            connection.number,
            reason,
            connection.turns,
            connection.received,
            connection.sent,
        )

    # -- looking --------------------------------------------------------------------------------------

    def limits_map(self) -> Map:
        """The limits that a client is told of at its welcome."""
        spaces = asdict(self.config.space_limits)
        mine = asdict(self.config.limits)
        told = ("frame_bytes", "frame_elements", "streams", "replays")
        return Map({**{name: mine[name] for name in told}, **spaces})

    def status(self) -> Map:
        """What ``dataspace status`` shows: counts, bytes and times in microseconds."""
        from dataspace import __version__  # the package imports the client

        figures = asdict(self.space.statistics())
        return Map(
            {
                **figures,
                "version": __version__,
                "space": SPACE,
                "identity": self.identity,
                "addresses": list(self.addresses),
                "process": os.getpid(),
                "started": self.started,
                "now": now(),
                "sessions": len(self.connections),
                "sessions_waiting": self.sessions.waiting,
                "sessions_resumed": self.sessions.resumed,
                "leases": len(self.leases),
                "topics": len(self.topics),
                "streams": sum(len(each.streams) for each in self.connections.values()),
                "waiting_bytes": self.room.used,
                "slow_conflated_epochs": self.slow.conflated,
                "slow_dropped_changes": self.slow.dropped,
                "slow_failed_streams": self.slow.failed,
                "slow_fallen_behind": self.slow.fallen_behind,
                "durable_epoch": self.commits.durable,
                "oldest_epoch": self.log.oldest,
                "disk_full": self.commits.full is not None,
                "waiting_epochs": self.commits.statistics().backlog_epochs,
                "readers": Map({each.name: each.epoch for each in self.log.readers}),
                "memory_bytes": resident_bytes(),
                "memory_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "disk_bytes": disk_bytes(self.config),
                "data": str(self.config.data),
            }
        )


def resident_bytes() -> int:
    """Resident memory of this process now, or 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:  # a line of the kernel's, not a file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def disk_bytes(config: Config) -> int:
    """Bytes that the data directory holds."""
    return sum(each.stat().st_size for each in config.data.iterdir() if each.is_file())


async def serve(
    config: Config, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
) -> None:
    """Runs a daemon until it is cancelled; then says goodbye, retracts what sessions own, and closes the log.

    ``task_status`` gets the addresses that are listened on, once everything durable is back.
    """
    gc.set_threshold(100_000, 50, 100)
    with locked(config.data):
        log = Log.open(config.data, accept_damage=config.accept_damage)
        try:
            daemon = Daemon(config, log)
            gc.collect()
            gc.freeze()
            try:
                await _run(daemon, task_status)
            finally:
                daemon.staging.close()
                daemon.keeping.writer.journal.close()
        finally:
            log.close()


async def _run(daemon: Daemon, task_status: trio.TaskStatus[list[str]]) -> None:
    listeners = await open_listeners(daemon.config)
    daemon.addresses = [listener.name for listener in listeners]
    async with trio.open_nursery() as nursery:
        writers: tuple[GroupCommit | TopicWriter, ...] = (daemon.commits, daemon.keeping.writer)
        scopes = [trio.CancelScope(shield=True) for _ in writers]
        for writer, scope in zip(writers, scopes, strict=True):
            nursery.start_soon(_write_log, writer, scope)
        try:
            await daemon.commits.wait_durable(daemon.space.epoch)
            async with trio.open_nursery() as peers:
                for listener in listeners:
                    peers.start_soon(accept, daemon, listener, peers)
                peers.start_soon(daemon.sessions.run)
                peers.start_soon(retain, daemon.log, daemon.commits, daemon.config.retention)
                peers.start_soon(daemon.leases.run)
                peers.start_soon(daemon.keeping.run)
                peers.start_soon(daemon.advance)
                if daemon.config.actors:
                    peers.start_soon(daemon.hosting.run)
                task_status.started(daemon.addresses)
                await trio.sleep_forever()
        finally:
            for listener in listeners:
                listener.close()
            with trio.CancelScope(shield=True):
                await daemon.commits.close()
                await daemon.keeping.writer.close()
            for scope in scopes:
                scope.cancel()


async def _write_log(writer: GroupCommit | TopicWriter, scope: trio.CancelScope) -> None:
    with scope:
        await writer.run()
