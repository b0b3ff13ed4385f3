"""Runs a daemon: opens the logs, restores what was durable, and only then listens.

Always: no connection is served before everything durable is restored.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

import trio

from dataspace.loops.lone import lone_nursery
from dataspace.loops.primitives import Scope
from dataspace.transport.addresses import parse_listen
from dataspace.transport.reactor import Reactor, is_available
from dataspace.version import __version__
from relay.following.following import FollowedLog
from relay.log.log import Log
from relay.log.writer import GroupCommit
from relay.store.errors import LogAway, LogFenced
from relay.store.group_writer import GroupWriter
from relay.store.staging import Staging
from server.cluster.homes import home_of
from server.config.model import Config
from server.connections.listeners import Listener, open_listener, open_listeners
from server.daemon.anew import RoleFailed, fence_role
from server.daemon.daemon import Daemon
from server.daemon.exposure import warnings
from server.daemon.moving import leave, move_spaces
from server.daemon.reloading import reload_on_hangup
from server.extras import check_extras
from server.home import Home, SteppedDown
from server.logs import AUDIT, Throttle, audit_to
from server.monitoring.pages import exposition
from server.sessions.peer import PEERS
from server.spaces.keeping import DAEMON, keep
from server.spaces.space import HostedSpace
from server.tracing.tracing import Tracing, tracing_by

SWITCH_SECONDS: Final = 0.00005
"""How long one thread may keep the interpreter while another wants it.

The loop loses it with each call of the system, so Python's own 5 ms would be some 20 ms for each packet
beside one busy thread.  And a thread that waits counts anew each time the loop comes back from a call, which
a busy loop does every 0.1 ms: with a longer interval the writer of the log waits for half a second.
"""

AWAY_SECONDS: Final = 1.0
"""Seconds until a database that was not reached is asked again."""

MUTE_SECONDS: Final = 5.0
"""Seconds after which a start says that it waits for what does not answer, and again."""

logger = logging.getLogger("dataspace")

T = TypeVar("T")


async def serve(
    config: Config,
    reread: Callable[[], Config] | None = None,
    *,
    ending: trio.Event | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a daemon until it is cancelled or drained; then ends the sessions and closes the logs.

    Where ``ending`` is set it says goodbye to the sessions and ends; when it was drained it sets that itself.

    ``reread`` reads the configuration again at a SIGHUP; without it the signal is not handled.
    ``task_status`` gets the listening addresses, once everything durable is restored.
    """
    check_extras(config)
    ending = trio.Event() if ending is None else ending
    async with tracing_by(config.traces) as tracing:
        began, before = False, _Before(ending)
        while True:
            try:
                await _serve(config, reread, tracing, before, task_status)
            except (BaseExceptionGroup, LogAway) as failures:
                reason = _reason_to_follow(failures)
                waits = isinstance(reason, LogAway) and not reason.is_refusal
                if reason is None or (not began and failures is reason and not waits):
                    raise
                if ending.is_set() or before.is_drained:
                    logger.warning("%s, while this daemon ends", reason)
                    ending.set()
                    if not before.has_started:
                        task_status.started([])
                    return
                if not began and failures is reason:
                    logger.warning("this daemon waits for its database: %s", reason)
                    with trio.move_on_after(AWAY_SECONDS):
                        await ending.wait()
                    continue
                logger.warning("%s: this daemon follows from now on", reason)
                if isinstance(reason, LogAway | RoleFailed):
                    with trio.move_on_after(AWAY_SECONDS):
                        await ending.wait()
                began, task_status = True, trio.TASK_STATUS_IGNORED
                config = replace(config, listen=before.bound or config.listen)  # the same free ports again
            except _EndedError:
                if not before.has_started:
                    task_status.started([])
                return
            else:
                return


class _EndedError(Exception):
    """The daemon is to end while it waits for its leader."""


async def _until_ending(
    ending: trio.Event, what: str, function: Callable[..., Awaitable[T]], *args: Any
) -> T:
    """Returns as ``function``; raises ``_EndedError`` once the daemon is to end.

    Says again and again for ``what`` it waits: a pooler answers nothing while all its connections are used.
    """

    async def cancel(scope: Scope) -> None:
        await ending.wait()
        scope.cancel()

    async def say() -> None:
        while True:
            await trio.sleep(MUTE_SECONDS)
            logger.warning("this daemon waits for %s", what)

    async with lone_nursery() as nursery:
        nursery.start_soon(partial(cancel, nursery.cancel_scope))
        nursery.start_soon(say)
        found = await function(*args)
        nursery.cancel_scope.cancel()
        return found
    raise _EndedError


@dataclass
class _Before:
    """The end of a daemon, its home in its last role, and the addresses on which it listened."""

    ending: trio.Event
    """Set when the daemon is to end."""
    home: Home | None = None
    bound: tuple[str, ...] = ()
    has_started: bool = False
    """True once it was said where it listens."""
    is_drained: bool = False
    """True once the daemon is to end, so that it takes no other role."""


def _reason_to_follow(failures: BaseException) -> BaseException | None:
    """Returns why this daemon leads no longer, if it did not fail otherwise."""
    if isinstance(failures, BaseExceptionGroup):
        reasons = [_reason_to_follow(each) for each in failures.exceptions]
        return None if None in reasons else reasons[0]
    return failures if isinstance(failures, SteppedDown | LogFenced | LogAway | RoleFailed) else None


async def _serve(
    config: Config,
    reread: Callable[[], Config] | None,
    tracing: Tracing | None,
    before: _Before,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    """Runs a daemon for as long as it has one role, and notes that for the next one."""
    gc.set_threshold(100_000, 50, 100)
    sys.setswitchinterval(SWITCH_SECONDS)
    throttle = Throttle()
    with ExitStack() as held:
        audits = Throttle(least=logging.INFO)
        for log_of, kept in ((logger, throttle), (logging.getLogger(AUDIT), audits)):
            log_of.addFilter(kept)
            held.callback(log_of.removeFilter, kept)
        held.enter_context(audit_to(config.logging.audit))
        before.home = home = home_of(config, before.home)
        led = await _until_ending(before.ending, f"an answer of {home.place}", home.enter, held)
        logs = [
            (each, await _opened(config, before, each.name, held, leads=each.name in led))
            for each in config.all_spaces()
        ]
        admin = _open_admin(config)
        if admin is not None:
            held.callback(admin.close)
        daemon = Daemon(config, logs, home, tracing)
        _close_with(held, daemon)
        for warning in warnings(config):
            logger.warning("%s", warning, extra={"event": "warning"})
        gc.collect()
        gc.freeze()
        daemon.watch.acted("started", f"version {__version__}")
        held.callback(daemon.watch.acted, "stopped", "")
        for kept in (throttle, audits):
            held.callback(kept.finish)
        daemon.throttles = (throttle, audits)
        daemon.listeners = await open_listeners(daemon.config)
        daemon.note_addresses()
        before.bound = tuple(daemon.addresses)
        await _run(daemon, held, reread, admin, before, task_status)


async def _opened(
    config: Config, before: _Before, space: str, held: ExitStack, *, leads: bool
) -> Log | FollowedLog:
    """Opens a log to write it, or to follow it once there is one; it is closed with ``held``."""
    log: Log | FollowedLog
    home = before.home
    assert home is not None  # which was entered
    if leads or await _until_ending(before.ending, f"the log of space {space}", home.wait_log, space):
        log = home.open_log(space, accept_damage=config.accept_damage)
    else:
        log = home.follow_log(space, held)
    held.callback(log.close)
    return log


def _close_with(held: ExitStack, daemon: Daemon) -> None:
    """Closes with ``held`` what a daemon has opened beside its logs."""
    held.callback(daemon.disk_part.closing())
    for hosted in daemon.spaces.values():
        if hosted.leads:
            held.callback(hosted.leading.staging.close)


def _open_admin(config: Config) -> Listener | None:
    """Returns the socket of the admin address, if there is to be one.

    Raises ``CannotListen``, and ``UsageError`` where the package for metrics is not installed.
    """
    if config.admin is None:
        return None
    exposition()
    return open_listener(parse_listen(config.admin), None)


class _Writers:
    """What writes to the disk: each runs until it is closed, whatever is cancelled."""

    def __init__(self, daemon: Daemon, nursery: trio.Nursery) -> None:
        self._daemon = daemon
        self._nursery = nursery
        self._begun: list[tuple[GroupWriter[Any], trio.CancelScope]] = []

    def begin(self) -> None:
        """Runs the writers of what the daemon leads, as far as they do not run yet."""
        running = [each for each, _ in self._begun]
        for _, writer in self._daemon.writers():
            if writer in running:
                continue
            if isinstance(writer, GroupCommit):
                writer.reactor = self._daemon.reactor
            scope = trio.CancelScope(shield=True)
            self._begun.append((writer, scope))
            self._nursery.start_soon(_write_log, writer, scope)

    async def stop(self, hosted: HostedSpace) -> None:
        """Writes what waits for the log of one space, and ends its writer."""
        writer = hosted.leading.commits
        writer.end_snapshots()  # its pause would be longer
        await writer.close()
        for each in [each for each in self._begun if each[0] is writer]:
            each[1].cancel()
            self._begun.remove(each)

    async def close(self) -> None:
        """Writes what waits, and ends all."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as closing:
                for writer, _ in self._begun:
                    closing.start_soon(writer.close)
        for _, scope in self._begun:
            scope.cancel()


async def _run(
    daemon: Daemon,
    held: ExitStack,
    reread: Callable[[], Config] | None,
    admin: Listener | None,
    before: _Before,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    async with trio.open_nursery() as nursery:
        scopes: list[trio.CancelScope] = []
        if daemon.config.loop != "task" and is_available():
            daemon.reactor = Reactor(daemon.flushing.flush)
            scopes.append(trio.CancelScope(shield=True))
            nursery.start_soon(_react, daemon.reactor, scopes[-1])
        scopes.append(trio.CancelScope(shield=True))  # for as long as it writes
        nursery.start_soon(_keep, daemon.home, scopes[-1])
        writers = _Writers(daemon, nursery)
        writers.begin()
        if admin is not None:  # it answers from before the daemon is ready until all is on disk
            scopes.append(trio.CancelScope(shield=True))
            nursery.start_soon(_answer, daemon, admin, scopes[-1])
        try:
            for hosted in daemon.spaces.values():
                await hosted.commits.wait_durable(hosted.space.epoch)
            async with trio.open_nursery() as daemon.peers:
                for listener in daemon.listeners:
                    daemon.peers.start_soon(daemon.accept_on, listener)
                daemon.begin()
                succession = _Succession(daemon, held, writers)
                daemon.peers.start_soon(succession.run)
                start: Callable[..., None] = partial(daemon.peers.start_soon, keep, DAEMON)  # type: ignore[arg-type]  # whose types are of each call
                start("what many connections are sent", daemon.flushing.run)
                start("observers with a pace", daemon.delivery.pacing.run, daemon.flushing.flush)
                start("figures of memory", daemon.memory.run)
                for throttle in daemon.throttles:
                    start("counts of warnings", throttle.run)
                if reread is not None:
                    await daemon.peers.start(reload_on_hangup, daemon, reread)
                daemon.readiness.begin()
                before.has_started = True
                task_status.started([*daemon.addresses, *([] if admin is None else [admin.address.http])])
                daemon.peers.start_soon(_end_when, daemon, before.ending)
                await daemon.draining.wanted.wait()
                before.is_drained = True
                daemon.readiness.end()
                for listener in daemon.listeners:
                    listener.close()
                await succession.end()
                await leave(daemon, writers.stop)
                await daemon.draining.run(daemon)
                before.ending.set()
                daemon.peers.cancel_scope.cancel()
        finally:
            daemon.readiness.end()
            daemon.has_ended = True
            try:
                # Before the writers close, since the ends of peers are retractions that they write.
                for peer in [*daemon.parts[PEERS].values()]:
                    peer.end()
            finally:
                try:
                    for listener in daemon.listeners:
                        listener.close()
                finally:
                    await writers.close()
                for scope in scopes:
                    scope.cancel()


class _Succession:
    """Takes spaces over, and hands them over, until the daemon is to end."""

    def __init__(self, daemon: Daemon, held: ExitStack, writers: _Writers) -> None:
        self._daemon = daemon
        self._held = held
        self._writers = writers
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    async def run(self) -> None:
        """Runs until ``end``, if this daemon stands by at all."""
        daemon, held, writers = self._daemon, self._held, self._writers
        try:
            if daemon.home.stands_by:
                with self._scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(fence_role, "taking over", _stand_by, daemon, held, writers)
                        nursery.start_soon(
                            fence_role, "handing over", move_spaces, daemon, held, writers.stop
                        )
        finally:
            self._ended.set()

    async def end(self) -> None:
        """Ends it; a take-over or a move that has begun is done first."""
        self._scope.cancel()
        await self._ended.wait()


async def _stand_by(daemon: Daemon, held: ExitStack, writers: _Writers) -> None:
    """Leads spaces once their leader has ended; observers stay connected."""
    while True:
        taken = await daemon.home.wait_turn(held, lambda: daemon.followed)
        began = perf_counter()
        with trio.CancelScope(shield=True):  # half of it would be a space that neither leads nor follows
            await _promote(daemon, held, writers, taken)
        if not daemon.followed:  # a space may have been handed over meanwhile
            daemon.link.end()
        daemon.flushing.flush()
        seconds = perf_counter() - began
        daemon.peers.start_soon(daemon.home.note_served, taken)
        said = ", ".join(taken)
        logger.warning("the leader has ended, this daemon leads %s after %.3f s", said, seconds)
        daemon.watch.acted("promoted", f"{said} after {seconds:.3f} s")


async def _promote(daemon: Daemon, held: ExitStack, writers: _Writers, taken: Collection[str]) -> None:
    """Makes this daemon the leader of these spaces, which it has followed."""
    spaces, logs, staged = [daemon.spaces[name] for name in taken], list[Log](), list[Staging]()
    unsaved = list[int]()
    followings = [hosted.followed.commits for hosted in spaces]
    for hosted, commits in zip(spaces, followings, strict=True):
        await commits.catch_up()
        opened = partial(daemon.home.open_log, hosted.name, accept_damage=daemon.config.accept_damage)
        logs.append(await trio.to_thread.run_sync(opened))
        held.callback(logs[-1].close)
        unsaved.append(await trio.to_thread.run_sync(logs[-1].changes_since_snapshot))
        staged.append(await trio.to_thread.run_sync(hosted.open_staging))
        held.callback(staged[-1].close)
    beside = None
    if daemon.main in spaces:
        if (following := daemon.disk_part.following) is not None:
            await following.catch_up()
        beside = await trio.to_thread.run_sync(daemon.disk_part.prepare)
        held.callback(beside.close)
    # In one step, without waiting: clients may ask for all of it from here on, and find no space that leads
    # while its topics still follow.
    for hosted, log, staging, changes in zip(spaces, logs, staged, unsaved, strict=True):
        hosted.lead(log, staging, changes)
        daemon.guests.begin_term(daemon.home.numbering(log))
    if beside is not None:
        beside.lead()
    writers.begin()
    daemon.begin_leading(spaces)


async def _end_when(daemon: Daemon, ending: trio.Event) -> None:
    await ending.wait()
    daemon.draining.begin()


async def _write_log(writer: GroupWriter[Any], scope: trio.CancelScope) -> None:
    with scope:
        await writer.run()


async def _keep(home: Home, scope: trio.CancelScope) -> None:
    with scope:
        await home.keep()


async def _react(reactor: Reactor, scope: trio.CancelScope) -> None:
    with scope:
        await reactor.run()


async def _answer(daemon: Daemon, admin: Listener, scope: trio.CancelScope) -> None:
    from server.monitoring.admin import Admin  # h11 is loaded where it is used

    names = (admin.address.host.lower(), *daemon.config.admin_names)
    with scope:
        await Admin(daemon.pages.answer, names).run(admin.socket)
