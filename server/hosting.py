"""Hosting: actors named in the config, beside the remote sessions, in the same dataspace.

Each is a ``module:function``, supervised: one that crashes is started again, with a pause if it goes on so.
Their turns are committed as everybody's are, through the daemon and its log.

Always: what an actor raises reaches no session and no other actor; other tasks run after ``shell.SLICE``
turns at the latest; an actor that does not yield is named by a watchdog within a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dataspace.actors.engine import Engine
from dataspace.actors.homes import Home
from dataspace.actors.services import Require, service
from dataspace.actors.shell import Shell, log_crash
from dataspace.actors.supervision import Supervised, supervise
from dataspace.actors.turn import Turn
from dataspace.actors.watchdog import Watchdog
from dataspace.errors import UsageError
from index.values import Map
from server.booting import boot_function, traced
from server.config import HostedActor
from server.isolating import Isolated

if TYPE_CHECKING:
    from server.daemon import Daemon
    from server.logged import LoggedSpace


class Hosted:
    """One actor of the configuration, and how it has fared."""

    def __init__(self, daemon: Daemon, settings: HostedActor) -> None:
        self.settings = settings
        self.isolated = Isolated(daemon, settings) if settings.isolate else None
        self.boot = boot_function(settings.run, load=not settings.isolate)
        self.supervised: Supervised | None = None

    def set_up(self, turn: Turn) -> None:
        """Starts it, or offers it as a service."""
        settings = self.settings
        boot, arguments = (
            (self.boot, settings.arguments) if self.isolated is None else (self.isolated.guard, ())
        )
        if not (settings.required or settings.needs):
            self._note(supervise(turn, boot, *arguments, name=settings.title, restart=settings.restart)[0])
            return
        service(
            turn,
            settings.title,
            boot,
            *arguments,
            on=settings.needs,
            restart=settings.restart,
            watch=self._note,
        )
        if not settings.required:
            turn.assert_(Require(settings.title))

    def _note(self, supervised: Supervised) -> None:
        self.supervised = supervised

    def _state(self) -> str:
        if self.isolated is not None and self.isolated.stuck:
            return "stuck"
        return "waiting" if self.supervised is None else self.supervised.state

    def status(self, stalls: int) -> Map:
        """What ``dataspace actors`` shows of it."""
        known, isolated = self.supervised, self.isolated
        counted = isolated or known
        return Map(
            {
                "name": self.settings.title,
                "space": self.settings.space,
                "state": self._state(),
                "process": None if isolated is None else isolated.process,
                "isolated": isolated is not None,
                "turns": 0 if counted is None else counted.turns,
                "facets": 0 if counted is None else counted.facets,
                "crashes": 0 if known is None else known.crashes,
                "stalls": stalls if isolated is None else isolated.stalls,
                "last": None if known is None or known.last is None else str(known.last)[:1000],
            }
        )


class Hosting:
    """The actors of one daemon."""

    def __init__(self, daemon: Daemon, actors: Sequence[HostedActor]) -> None:
        self._daemon = daemon
        self._hosted = [Hosted(daemon, each) for each in actors]
        self._watchdog: Watchdog | None = None
        for each in actors:
            if each.space not in daemon.spaces:
                known = ", ".join(daemon.spaces)
                raise UsageError(f"actor {each.title}: no space named {each.space!r}, there is {known}")

    async def run(self) -> None:
        """Runs them until cancelled."""
        shell = Shell(after=self._after_slice)
        engine = shell.engine
        engine.on_crash = log_crash
        config = self._daemon.config
        for home in self._daemon.spaces.values():
            here = [each for each in self._hosted if each.settings.space == home.name]
            if here:
                engine.spawn(_host, here, home=_home(engine, home), name="host", daemon=True)
        with (
            traced(engine, config.trace),
            Watchdog(engine, limit=config.stall_seconds) as self._watchdog,
        ):
            await shell.run(forever=True)

    def status(self) -> tuple[Map, ...]:
        """What ``dataspace actors`` shows, an entry for each actor."""
        stalls = self._watchdog.stalls if self._watchdog is not None else {}
        return tuple([each.status(stalls.get(each.settings.title, 0)) for each in self._hosted])

    async def _after_slice(self) -> None:
        self._daemon.flush()
        for home in self._daemon.spaces.values():
            await home.commits.wait_room()


def _host(turn: Turn, hosted: Sequence[Hosted]) -> None:
    """The boot script of the actor that supervises the others of one space."""
    turn.prevent_inert()
    for each in hosted:
        turn.react(each.set_up, name=each.settings.title)


def _home(engine: Engine, home: LoggedSpace) -> Home:
    """A space as actors reach it: through the log, as everybody does."""
    return engine.home(
        home.space,
        commit=lambda owner, actions: home.commit(owner, actions, None, 0, None),
        end=lambda owner: home.end_owners((owner,)),
    )
