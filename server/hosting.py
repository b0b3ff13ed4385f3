"""Hosting: actors named in the config, beside the remote sessions, in the same dataspace.

Each is a ``module:function``, supervised: one that crashes is started again, with a pause if it goes on so.
Their turns are committed as everybody's are, through the daemon and its log.

Always: what an actor raises reaches no session and no other actor; other tasks run after ``shell.SLICE``
turns at the latest; an actor that does not yield is named by a watchdog within a second.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dataspace.actors.facets import Handler
from dataspace.actors.shell import Shell, Watchdog, log_crash
from dataspace.actors.supervision import Supervised, supervise
from dataspace.actors.tracing import Trace
from dataspace.actors.turn import Turn
from dataspace.epochs import Epoch
from dataspace.errors import UsageError
from dataspace.wire.packets import Action
from index.values import Map

if TYPE_CHECKING:
    from server.daemon import Daemon

logger = logging.getLogger("dataspace.actors")


class Hosting:
    """The actors of one daemon."""

    def __init__(self, daemon: Daemon, named: Sequence[str], trace: Path | None) -> None:
        self._daemon = daemon
        self._boots = [(name, boot_function(name)) for name in named]
        self._trace = trace
        self._hosted: list[Supervised] = []
        self._watchdog: Watchdog | None = None

    async def run(self) -> None:
        """Runs them until cancelled."""
        shell = Shell(after=self._after_slice)
        engine = shell.engine
        engine.on_crash = log_crash
        home = engine.home(self._daemon.space, commit=self._commit, end=self._end)
        trace = self._open_trace()
        try:
            if trace is not None:
                engine.tracer = Trace(write=_writer(trace), keep=False)
            engine.spawn(self._host, home=home, name="host", daemon=True)
            with Watchdog(engine) as self._watchdog:
                await shell.run(forever=True)
        finally:
            if trace is not None:
                trace.close()

    def status(self) -> tuple[Map, ...]:
        """What ``dataspace actors`` shows, an entry for each actor."""
        stalls = self._watchdog.stalls if self._watchdog is not None else {}
        return tuple(
            [
                Map(
                    {
                        "name": each.name,
                        "state": each.state,
                        "turns": each.turns,
                        "facets": each.facets,
                        "crashes": each.crashes,
                        "stalls": stalls.get(each.name, 0),
                        "last": str(each.last)[:1000] if each.last is not None else None,
                    }
                )
                for each in self._hosted
            ]
        )

    def _host(self, turn: Turn) -> None:
        for name, boot in self._boots:
            supervised, _ = supervise(turn, boot, name=name)
            self._hosted.append(supervised)

    def _commit(self, owner: str, actions: Sequence[Action]) -> Epoch:
        return self._daemon.commit(owner, actions, None, 0, None)

    def _end(self, owner: str) -> None:
        self._daemon.end_owners((owner,))

    async def _after_slice(self) -> None:
        self._daemon.flush()
        await self._daemon.commits.wait_room()

    def _open_trace(self) -> TextIO | None:
        return None if self._trace is None else self._trace.open("a", encoding="utf-8", buffering=1)


def _writer(file: TextIO) -> Callable[[str], object]:
    return lambda line: file.write(line + "\n")


def boot_function(name: str) -> Handler:
    """The function that ``module:function`` names; ``UsageError`` if there is none.

    Modules in the current directory are found, as with ``python -m``.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise UsageError(f"an actor is named module:function, got {name!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise UsageError(f"actor {name}: {error}") from error
    if not callable(found):
        raise UsageError(f"actor {name}: module {module} has no function {function!r}")
    return found  # type: ignore[no-any-return]  # callable, as just checked
