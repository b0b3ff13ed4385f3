"""Runs a daemon: opens the logs, restores what was durable, and only then listens.

Always: no connection is served before everything durable is restored.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

import trio

from dataspace.transport.addresses import parse_listen
from dataspace.transport.reactor import Reactor, is_available
from dataspace.version import __version__
from relay.backup.manifest import is_backup
from relay.journal.writer import TopicWriter
from relay.log.log import Log
from relay.log.writer import GroupCommit
from server.config.model import Config
from server.connections.listeners import Listener, open_listener, open_listeners
from server.daemon.daemon import Daemon, check_extras
from server.daemon.exposure import warnings
from server.daemon.lock import DataUnusable, locked
from server.daemon.reloading import reload_on_hangup
from server.logs import AUDIT, Throttle, audit_to
from server.monitoring.pages import exposition
from server.monitoring.state import measure_lag, watch_rules
from server.tracing.tracing import Tracing, tracing_by

SWITCH_SECONDS: Final = 0.00005
"""How long one thread may keep the interpreter while another wants it.

The loop loses it with each call of the system, so Python's own 5 ms would be some 20 ms for each packet
beside one busy thread.  And a thread that waits counts anew each time the loop comes back from a call, which
a busy loop does every 0.1 ms: with a longer interval the writer of the log waits for half a second.
"""

logger = logging.getLogger("dataspace")


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
    async with tracing_by(config.traces) as tracing:
        await _serve(config, reread, tracing, ending, task_status)


async def _serve(
    config: Config,
    reread: Callable[[], Config] | None,
    tracing: Tracing | None,
    ending: trio.Event | None,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    gc.set_threshold(100_000, 50, 100)
    sys.setswitchinterval(SWITCH_SECONDS)
    throttle = Throttle()
    if is_backup(config.data):
        raise DataUnusable(
            f"{config.data} is a backup, with the identity and the numbers of its original; "
            "restore it to another directory: dataspace restore BACKUP DIR"
        )
    with ExitStack() as held:
        audits = Throttle(least=logging.INFO)
        for log_of, kept in ((logger, throttle), (logging.getLogger(AUDIT), audits)):
            log_of.addFilter(kept)
            held.callback(log_of.removeFilter, kept)
        held.enter_context(audit_to(config.logging.audit))
        logs = []
        for each in config.all_spaces():
            held.enter_context(locked(each.data))
            log = Log.open(each.data, accept_damage=config.accept_damage)
            held.callback(log.close)
            logs.append((each, log))
        admin = _open_admin(config)
        if admin is not None:
            held.callback(admin.close)
        daemon = Daemon(config, logs, tracing)
        held.callback(daemon.durable_topics.writer.journal.close)
        for hosted in daemon.spaces.values():
            held.callback(hosted.staging.close)
        for warning in warnings(config):
            logger.warning("%s", warning, extra={"event": "warning"})
        gc.collect()
        gc.freeze()
        daemon.watch.acted("started", f"version {__version__}")
        held.callback(daemon.watch.acted, "stopped", "")
        for kept in (throttle, audits):
            held.callback(kept.finish)
        ending = trio.Event() if ending is None else ending
        await _run(daemon, reread, (throttle, audits), admin, ending, task_status)


def _open_admin(config: Config) -> Listener | None:
    """Returns the socket of the admin address, if there is to be one.

    Raises ``CannotListen``, and ``UsageError`` where the package for metrics is not installed.
    """
    if config.admin is None:
        return None
    exposition()
    return open_listener(parse_listen(config.admin), None)


async def _run(
    daemon: Daemon,
    reread: Callable[[], Config] | None,
    throttles: Iterable[Throttle],
    admin: Listener | None,
    ending: trio.Event,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    daemon.listeners = await open_listeners(daemon.config)
    spaces = daemon.spaces.values()
    async with trio.open_nursery() as nursery:
        writers: list[GroupCommit | TopicWriter] = [hosted.commits for hosted in spaces]
        writers.append(daemon.durable_topics.writer)
        scopes = [trio.CancelScope(shield=True) for _ in writers]
        for writer, scope in zip(writers, scopes, strict=True):
            nursery.start_soon(_write_log, writer, scope)
        if daemon.config.loop != "task" and is_available():
            daemon.reactor = Reactor(daemon.flush)
            for hosted in spaces:
                hosted.commits.reactor = daemon.reactor
            scopes.append(trio.CancelScope(shield=True))
            nursery.start_soon(_react, daemon.reactor, scopes[-1])
        if admin is not None:  # it answers from before the daemon is ready until all is on disk
            scopes.append(trio.CancelScope(shield=True))
            nursery.start_soon(_answer, daemon, admin, scopes[-1])
        try:
            for hosted in spaces:
                await hosted.commits.wait_durable(hosted.space.epoch)
            async with trio.open_nursery() as daemon.peers:
                for listener in daemon.listeners:
                    daemon.peers.start_soon(daemon.accept_on, listener)
                for hosted in spaces:
                    daemon.peers.start_soon(hosted.run)
                daemon.peers.start_soon(daemon.durable_topics.run)
                daemon.peers.start_soon(daemon.flushing.run)
                daemon.peers.start_soon(daemon.delivery.pacing.run, daemon.flush)
                daemon.peers.start_soon(daemon.memory.run)
                for throttle in throttles:
                    daemon.peers.start_soon(throttle.run)
                daemon.peers.start_soon(measure_lag, daemon.loop_lag)
                daemon.peers.start_soon(daemon.rates.run, daemon.connections.values)
                daemon.peers.start_soon(watch_rules, daemon.spaces.values, daemon.watch.rules_took)
                if daemon.tracing is not None:
                    daemon.peers.start_soon(daemon.tracing.recorder.run)
                if daemon.config.actors:
                    daemon.peers.start_soon(daemon.hosting.run)
                if reread is not None:
                    await daemon.peers.start(reload_on_hangup, daemon, reread)
                daemon.readiness.begin()
                task_status.started([*daemon.addresses, *([] if admin is None else [admin.address.http])])
                daemon.peers.start_soon(_end_when, daemon, ending)
                await daemon.draining.wanted.wait()
                daemon.readiness.end()
                await daemon.draining.run(daemon, daemon.listeners)
                ending.set()
                daemon.peers.cancel_scope.cancel()
        finally:
            daemon.readiness.end()
            daemon.has_ended = True
            try:
                for peer in [*daemon.connections.values()]:
                    peer.end()
            finally:
                for listener in daemon.listeners:
                    listener.close()
                with trio.CancelScope(shield=True):
                    async with trio.open_nursery() as closing:
                        for writer in writers:
                            closing.start_soon(writer.close)
                for scope in scopes:
                    scope.cancel()


async def _end_when(daemon: Daemon, ending: trio.Event) -> None:
    await ending.wait()
    daemon.draining.begin()


async def _write_log(writer: GroupCommit | TopicWriter, scope: trio.CancelScope) -> None:
    with scope:
        await writer.run()


async def _react(reactor: Reactor, scope: trio.CancelScope) -> None:
    with scope:
        await reactor.run()


async def _answer(daemon: Daemon, admin: Listener, scope: trio.CancelScope) -> None:
    from server.monitoring.admin import Admin  # h11 is loaded where it is used

    names = (admin.address.host.lower(), *daemon.config.admin_names)
    with scope:
        await Admin(daemon.pages.answer, names).run(admin.socket)
