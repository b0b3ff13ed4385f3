"""Reloading: at a SIGHUP the daemon reads its configuration again, and keeps its connections.

A leaked token can be revoked, a certificate renewed, the rules that the daemon holds edited, an address or an
actor added, and the log made louder, while the facts of other clients stay.  These are applied at once; other
changed settings are named, and need a restart.

Always: an invalid configuration changes nothing; rules that are invalid stay as they were, and are named; a
session that goes on has a token that is valid now, for the same rights.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from dataspace.errors import DataspaceError
from dataspace.transport.addresses import parse_listen
from relay.store.address import StoreAddress
from server.config.model import Config, Limits, Logging, Slow
from server.config.rights import Keys
from server.connections.listeners import Listener, context_for, open_listener
from server.daemon.exposure import warnings
from server.daemon.features import FEATURES
from server.extras import check_extras
from server.hosting.actors import HOSTING
from server.logs import LOGGER, set_form, set_level
from server.sessions.memory import memory_limit, waiting_limit
from server.sessions.peer import PEERS

if TYPE_CHECKING:
    from dataspace.kernel.limits import SpaceLimits
    from server.daemon.daemon import Daemon

logger = logging.getLogger(LOGGER)

TAKEN: Final = frozenset(
    [
        "keys",
        "secret_files",
        "tls",
        "rules",
        "spaces",
        "limits",
        "space_limits",
        "quotas",
        "retention",
        "show",
        "verbose",
        "logging",
        "listen",
        "actors",
    ]
)
"""The fields of ``Config`` that are applied at once; only some limits (``take_limits``), and all of the log
but the audit file."""

SETTINGS: Final = ("limits", "space_limits", "quotas", "retention", "show", "spaces", "verbose")
"""Of these, what is applied without a word of its own is named."""

LATER: Final = frozenset(["identities", "name_bytes", "all_replays", "staged_seconds"])
"""Limits of the daemon that are a part of how something is kept."""

LATER_OF_SPACE: Final = frozenset(
    [
        "rules",
        "derived_per_turn",
        "derived_bytes_per_turn",
        "derived_bytes",
        "derive_work",
        "derive_work_per_action",
        "rule_reads",
        "rule_window",
        "time_rows",
    ]
)
"""Limits of a space that its rules are compiled and run with."""

Kind = TypeVar("Kind", "Limits", "SpaceLimits")


async def reload_on_hangup(
    daemon: Daemon,
    read: Callable[[], Config],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Applies what ``read`` returns at each SIGHUP, and prints the result; until cancelled."""
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            try:
                result = reload(daemon, read())
            except DataspaceError as error:
                result = f"the configuration is not taken: {error}"
            daemon.watch.acted("reloaded", result)
            print(f"dataspace: SIGHUP, {result}", file=sys.stderr, flush=True)


def reload(daemon: Daemon, config: Config) -> str:
    """Applies what can be applied, and ends sessions without a valid token; returns a text about the result.

    Raises ``UsageError`` for an unusable certificate or actor, ``CannotListen`` for an address, and then
    nothing has changed.  O(sessions).
    """
    actors = daemon.parts[HOSTING].prepare(config)
    listeners = _prepare_listeners(daemon, config)
    later = [each.name for each in fields(Config) if _differs(each.name, daemon.config, config)]
    later += ["spaces"] if _places(daemon.config) != _places(config) else []
    daemon.keys = Keys(config.keys)
    before = daemon.config
    taken, limits_later = take_limits(daemon, config)
    later += limits_later
    changed_log = _take_logging(daemon, config)
    later += ["audit"] if config.logging.audit != before.logging.audit else []
    moved = listeners()
    started = actors()
    daemon.config = replace(
        taken,
        keys=config.keys,
        tls=config.tls,
        verbose=config.verbose,
        logging=replace(config.logging, audit=before.logging.audit),
        listen=config.listen,
        actors=config.actors,
    )
    daemon.note_addresses()
    if config.actors and not daemon.parts[HOSTING].is_running:
        daemon.peers.start_soon(daemon.parts[HOSTING].run)
    for warning in sorted({*warnings(daemon.config)} - {*warnings(before)}):
        logger.warning("%s", warning, extra={"event": "warning"})
    changed = [name for name in SETTINGS if getattr(before, name) != getattr(daemon.config, name)]
    changed += changed_log
    ended = _expel(daemon)
    counts = f"{_counted('token', len(daemon.keys))}, {_counted('session', ended)} ended"
    results = [f"the configuration was reloaded: {counts}"]
    results += [f"changed: {', '.join(changed)}"] if changed else []
    results += moved
    results += [f"actors ended or started: {', '.join(started)}"] if started else []
    results += _take_rules(daemon, config)
    results += [f"these have changed and need a restart: {', '.join(later)}"] if later else []
    return "; ".join(results)


def _take_logging(daemon: Daemon, config: Config) -> list[str]:
    """Takes level, form and thresholds of the log; returns the settings that have changed."""
    before, now = daemon.config, config.logging
    if (config.verbose, now.level) != (before.verbose, before.logging.level):
        set_level(verbose=config.verbose, level=now.level)
    if now.format != before.logging.format:
        set_form(now.format)
    daemon.watch.set_thresholds(now.slow)
    changed = [f"log_{name}" for name in ("level", "format") if _other(name, before.logging, now)]
    return changed + [
        f"slow.{each.name}" for each in fields(Slow) if _other(each.name, before.logging.slow, now.slow)
    ]


def _other(name: str, one: Logging | Slow, other: Logging | Slow) -> bool:
    return bool(getattr(one, name) != getattr(other, name))


def _counted(word: str, count: int) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _differs(name: str, before: Config, now: Config) -> bool:
    return name not in TAKEN and getattr(before, name) != getattr(now, name)


def _places(config: Config) -> list[tuple[str, Path | StoreAddress]]:
    """Returns which spaces there are besides ``main``; their rules, limits and retention are taken."""
    return [(each.name, each.data) for each in config.spaces]


def _take_rules(daemon: Daemon, config: Config) -> list[str]:
    """Takes the rules of every space anew; returns the changes, and the errors of rules that are not
    taken."""
    results = []
    for space in config.all_spaces():
        hosted = daemon.spaces.get(space.name)
        if hosted is not None:
            try:
                changed, errors = hosted.take_rules(space.rules)
            except DataspaceError as error:
                changed, errors = False, [f"those of {space.name}: {error}"]
            results += [f"the rules of {space.name} have changed"] if changed else []
            results += [f"rules are not taken: {error}" for error in errors]
    daemon.flushing.flush()
    return results


def _expel(daemon: Daemon) -> int:
    """Ends the sessions whose token is not valid now, or has other rights; returns how many."""
    keys = daemon.keys
    connected = [
        each
        for each in daemon.parts[PEERS].values()
        if each.state is not None and not each.trusted and not keys.stands(each.permit)
    ]
    for each in connected:
        each.dismiss("unauthorized", "the token was removed or its rights have changed")
    waiting = [hosted.sessions.end_waiting(keys.stands) for hosted in daemon.spaces.values()]
    daemon.flushing.flush()
    return len(connected) + sum(waiting)


def take_limits(daemon: Daemon, config: Config) -> tuple[Config, list[str]]:
    """Takes the limits, quotas and retention of a configuration, and what observers are shown; O(spaces +
    principals).

    Returns the configuration that holds now, in these, and the names of limits that need a restart.

    Always: existing state stays, even if it is beyond a new limit: it only cannot grow; open connections keep
    the limits of one connection that they began with; a limit that cannot be taken keeps its old value and is
    named.
    """
    before = daemon.config
    limits, later = _taken(before.limits, config.limits, LATER, "limits")
    daemon.limits = limits
    daemon.memory.limit = memory_limit(limits.memory)
    daemon.delivery.budget.limit = waiting_limit(limits.waiting_bytes, daemon.memory.limit)
    for feature in FEATURES:
        feature.relimit(daemon)
    daemon.accounts.give_quotas(config.quotas_of_tokens(), config.quotas)
    main, more = _taken(before.space_limits, config.space_limits, LATER_OF_SPACE, "limits")
    later += more
    wanted = {each.name: each for each in config.all_spaces()}
    spaces = []
    for space in before.spaces:
        if (now := wanted.get(space.name)) is None:
            spaces.append(space)
            continue
        space_limits, more = _taken(space.limits, now.limits, LATER_OF_SPACE, f"spaces.{space.name}.limits")
        later += [name for name in more if f"limits.{name.rpartition('.')[2]}" not in later]
        spaces.append(replace(space, limits=space_limits, retention=now.retention, show=now.show))
    taken = replace(
        before,
        limits=limits,
        space_limits=main,
        quotas=config.quotas,
        retention=config.retention,
        show=config.show,
        spaces=tuple(spaces),
    )
    for space in taken.all_spaces():
        daemon.spaces[space.name].relimit(limits, space)
    return taken, later


def _taken(before: Kind, wanted: Kind, later: frozenset[str], group: str) -> tuple[Kind, list[str]]:
    """Returns limits with what of the wanted ones can be taken, and the names of the others that differ."""
    kept: dict[str, Any] = {name: getattr(before, name) for name in later}
    return replace(wanted, **kept), [
        f"{group}.{name}" for name in _different(before, wanted) if name in later
    ]


def _different(one: Kind, other: Kind) -> Iterator[str]:
    for each in fields(one):
        if getattr(one, each.name) != getattr(other, each.name):
            yield each.name


def _prepare_listeners(daemon: Daemon, config: Config) -> Callable[[], list[str]]:
    """Opens the addresses that are new; returns a function that takes all, and returns which changed.

    Connections of an address that is closed go on.

    Raises ``CannotListen`` and ``UsageError``, and nothing has happened.
    """
    check_extras(config)
    addresses = [parse_listen(text) for text in config.listen]
    context = context_for(config, addresses)
    left = list(zip(daemon.config.listen, daemon.listeners, strict=True))
    listeners: list[Listener] = []
    opened: list[Listener] = []
    try:
        for text, address in zip(config.listen, addresses, strict=True):
            at = next((at for at, (known, _) in enumerate(left) if known == text), None)
            if at is None:
                opened.append(open_listener(address, context, config.socket_mode))
            listeners.append(opened[-1] if at is None else left.pop(at)[1])
    except BaseException:
        for listener in opened:
            listener.close()
        raise

    def take() -> list[str]:
        for _, listener in left:
            listener.accepting.cancel()
            listener.close()
        for listener in listeners:
            if listener.address.tls:
                listener.context = context
        daemon.listeners = listeners
        for listener in opened:
            daemon.peers.start_soon(daemon.accept_on, listener)
        closed = [f"no longer listening on {listener.name}" for _, listener in left]
        return [*[f"listening on {listener.name}" for listener in opened], *closed]

    return take
