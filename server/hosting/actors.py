"""Hosted actors: named in the configuration, they run in the daemon, in the same dataspaces as remote
sessions.

Each is a ``module:function``, supervised: a crashed actor is started again, with a pause if it crashes
repeatedly.  Their turns are committed like turns of clients, through the space and its log.

Always: an error of an actor reaches no session and no other actor; other tasks run after 2 ms, or after the
single handler that takes longer, and then for an equal time; the remaining turns then wait for the lane; a
watchdog logs an actor that does not yield, or whose turns take most of the time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import trio

from dataspace.actors.engine.actors import Actor, ActorEvent, ActorSpace, Effects, Facet
from dataspace.actors.engine.engine import Engine
from dataspace.actors.engine.tracing import Trace, TurnRecord
from dataspace.actors.engine.turns import Turn
from dataspace.actors.services import Require, service
from dataspace.actors.supervision import Supervised, supervise
from dataspace.errors import Refused, UsageError
from dataspace.running.actors import SLICE_SECONDS, Shell, Watchdog, log_crash
from dataspace.wire.verbs import MOST_ACTORS, Arguments
from index.values.values import Map, Value
from server.config.hosted import HostedActor
from server.config.model import Config
from server.hosting.guardian import Guardian, Serve
from server.hosting.loading import boot_function, traced
from server.lane import Lane
from server.parts import PartKey
from server.sessions.peer import Peer
from server.spaces.rules import RESUME, ask_rules
from server.spaces.space import HostedSpace

if TYPE_CHECKING:
    from dataspace.actors.engine.tracing import Tracer


logger = logging.getLogger("dataspace.actors")

LOOK_SECONDS: Final = 0.01
"""How often it looks for actors that have ended."""

LONG_SECONDS: Final = 0.02
PART: Final = 10
MOST_SECONDS: Final = 0.02
"""After a slice of ``LONG_SECONDS`` actors rest for a part of its time, at most for so many seconds.

What others wait for takes several passes of the loop and a write to disk; while nothing is ready the thread
would go to the next handler, and a round trip would wait for one in each of its steps.
"""

LATE_SECONDS: Final = 2.0
"""Seconds after which the actors whose tasks delay the end of the daemon are logged."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The details of actors beyond their counts: how many in the tree, how many turns, and where these
    are."""

    tree: int = 0
    turns: int = 0
    recent: RecentTurns | None = None


NOTHING: Final = Looked()


class Hosted:
    """One actor of the configuration with all actors that it spawns, and their counts."""

    def __init__(self, config: Config, settings: HostedActor, serve: Serve) -> None:
        self.settings = settings
        self.isolated = Guardian(config, settings, serve, self.note_crash) if settings.isolate else None
        self.boot = boot_function(settings.run, load=not settings.isolate)
        self.program = f"{settings.title} in {settings.space}"
        """The common name of its actors."""
        self._supervised: Supervised | None = None
        self._host: Actor | None = None
        self._turns_before = 0
        self._crashes = 0
        self._last: str | None = None

    def start(self, engine: Engine, hosted: ActorSpace) -> None:
        """Spawns the actor that supervises it."""
        self._host = engine.spawn(
            self._set_up, home=hosted, name=f"host of {self.settings.title}", daemon=True
        )
        self._host.program = self.program

    def end(self) -> None:
        """Ends it in good order, with all actors that it has spawned, when the engine runs next."""
        if self._host is not None:
            self._host.engine.end(self._host, "it is no longer in the configuration")

    def _set_up(self, turn: Turn) -> None:
        """Starts the actor, or registers it as a service."""
        settings = self.settings
        boot, arguments = (
            (self.boot, settings.arguments) if self.isolated is None else (self.isolated.guard, ())
        )
        turn.prevent_inert()
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
        self._supervised = supervised

    def note_crash(self, said: str) -> None:
        """Notes that one of its actors has crashed."""
        self._crashes += 1
        self._last = said[:1000]

    def note_end(self, actor: Actor) -> None:
        """Notes that one of its actors has ended."""
        self._turns_before += actor.turns
        if actor.crash is not None:
            self.note_crash(str(actor.crash))

    def status(self, actors: Sequence[Actor], stalls: int, looked: Looked = NOTHING) -> Map:
        """Returns its entry for ``dataspace actors``, given its live actors, and the requested details."""
        isolated = self.isolated
        living = [actor for actor in actors if actor is not self._host]
        counts = {
            "actors": len(living),
            "turns": self._turns_before + sum(actor.turns for actor in living),
            "facets": sum(actor.facets for actor in living),
            "stalls": stalls,
        }
        if isolated is not None:  # only its guardian runs here
            counts = {name: getattr(isolated, name) for name in counts}
        return Map(
            {
                "name": self.settings.title,
                "space": self.settings.space,
                "state": self._state(counts["actors"]),
                "process": None if isolated is None else isolated.process,
                "isolated": isolated is not None,
                **counts,
                "crashes": self._crashes,
                "last": self._last,
                **self._looked(living, looked),
            }
        )

    def _looked(self, living: Sequence[Actor], looked: Looked) -> Mapping[str, Value]:
        """Returns the tree and the last turns, as far as asked for; an isolated one has none here."""
        shown: dict[str, Value] = {}
        if looked.tree and self.isolated is None:
            shown["tree"] = tree(living, looked.tree)
        if looked.turns and looked.recent is not None and self.isolated is None:
            shown["recent"] = looked.recent.of(self.program, looked.turns)
        return shown

    def _state(self, actors: int) -> str:
        if self.isolated is not None and self.isolated.stuck:
            return "stuck"
        state = "waiting" if self._supervised is None else self._supervised.state
        return "running" if state == "ended" and actors else state


class HostedActors:
    """The actors of one daemon."""

    def __init__(
        self,
        config: Config,
        spaces: Mapping[str, HostedSpace],
        serve: Serve,
        flush: Callable[[], None],
        lane: Lane,
    ) -> None:
        """Calls ``serve`` to connect the process of an isolated actor, and ``flush`` after turns."""
        self._lane = lane
        self._slice = lane.work(self)
        self._config = config
        self._spaces = spaces
        self._serve = serve
        self._flush = flush
        self._hosted = {each.program: each for each in self._made(config, config.actors)}
        self._engine: Engine | None = None
        self._watchdog: Watchdog | None = None
        self._recent: RecentTurns | None = None
        self._has_begun = False
        self._homes: dict[str, ActorSpace] = {}
        """The spaces in which actors run."""

    def _made(self, config: Config, actors: Iterable[HostedActor]) -> list[Hosted]:
        for each in actors:
            if each.space not in self._spaces:
                known = ", ".join(self._spaces)
                raise UsageError(f"actor {each.title}: no space named {each.space!r}, there is {known}")
        return [Hosted(config, each, self._serve) for each in actors]

    def prepare(self, config: Config) -> Callable[[], list[str]]:
        """Returns a function that replaces the actors by the actors of another configuration, and returns the
        changed ones.

        It ends actors that are gone or have other settings, and starts actors that are new or have them.  A
        module that is loaded already is not read again.  Raises ``UsageError``, and nothing has happened, for
        an actor without a function or a space.
        """
        before = {program: each.settings for program, each in self._hosted.items()}
        wanted = {each.program: each for each in self._made(config, config.actors)}
        fresh = {at: each for at, each in wanted.items() if before.get(at) != each.settings}
        gone = [at for at in before if at not in wanted or at in fresh]

        def take() -> list[str]:
            for program in gone:
                self._hosted.pop(program).end()
            self._hosted.update(fresh)
            self._start(fresh.values())
            return sorted({*gone, *fresh})

        return take

    @property
    def is_running(self) -> bool:
        """True once ``run`` has begun."""
        return self._engine is not None

    def lead(self, spaces: Collection[str], nursery: trio.Nursery) -> None:
        """Starts the actors of spaces that this daemon leads from now on; they run in the nursery."""
        led = [each for each in self._hosted.values() if each.settings.space in spaces]
        if self._engine is None and self._config.actors and not self._has_begun:
            self._has_begun = True
            nursery.start_soon(self.run)  # with all that are led by then
        else:
            self._start(led)

    async def leave(self, space: str) -> None:
        """Ends the actors of a space in good order, since another daemon leads it from now on."""
        left = {program for program, each in self._hosted.items() if each.settings.space == space}
        for program in left:
            self._hosted[program].end()
        engine = self._engine
        while engine is not None and any(each.program in left for each in engine.actors.values()):  # noqa: ASYNC110
            await trio.sleep(LOOK_SECONDS)
        self._homes.pop(space, None)

    def _start(self, actors: Iterable[Hosted]) -> None:
        """Starts actors of spaces that this daemon leads, once they run at all."""
        if (engine := self._engine) is None:
            return
        for actor in actors:
            hosted = self._spaces[actor.settings.space]
            if hosted.leads:
                if hosted.name not in self._homes:
                    self._homes[hosted.name] = _home(engine, hosted)
                actor.start(engine, self._homes[hosted.name])

    async def run(self) -> None:
        """Runs the actors of the spaces that this daemon leads, until cancelled."""
        shell = Shell(before=self._slice.enter, after=self._after_slice)
        self._engine = engine = shell.engine
        self._recent = RecentTurns(engine)
        engine.fence = (BaseException,)  # a Ctrl-C is a signal here, and raises nothing in any actor
        engine.on_crash = log_crash
        engine.on_end = self._note_end
        self._start(self._hosted.values())
        config = self._config
        with traced(engine, config.trace), Watchdog(engine, limit=config.stall_seconds) as self._watchdog:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_name_late, shell)
                    await shell.run(forever=True)
            finally:
                self._slice.leave()

    def status(self, *, most: int = 0, turns: int = 0) -> tuple[Map, ...]:
        """Returns what ``dataspace actors`` shows, an entry for each actor; O(actors).

        With ``most`` also a tree of so many actors of each, with ``turns`` so many of their last turns.
        """
        looked = Looked(most, turns, self._recent)
        living: dict[str, list[Actor]] = {program: [] for program in self._hosted}
        for actor in self._engine.actors.values() if self._engine is not None else ():
            if actor.program in living:  # else it is about to end, as the configuration has it no longer
                living[actor.program].append(actor)
        stalls = self._watchdog.stalls if self._watchdog is not None else {}
        return tuple(
            [
                each.status(living[program], stalls.get(program, 0), looked)
                for program, each in self._hosted.items()
            ]
        )

    def _note_end(self, actor: Actor) -> None:
        if (hosted := self._hosted.get(actor.program)) is not None:
            hosted.note_end(actor)

    async def _after_slice(self, used: float) -> None:
        """Gives the thread to others for as long as a whole slice took, and leaves the lane."""
        self._flush()
        if used >= SLICE_SECONDS:
            await self._lane.yield_thread(used)
        if used >= LONG_SECONDS:  # a client's turn is then on disk before the next handler runs
            await trio.sleep(min(used / PART, MOST_SECONDS))
        self._slice.leave()
        for hosted in self._spaces.values():
            await hosted.commits.wait_room()


async def _name_late(shell: Shell) -> None:
    """Logs the actors whose tasks were cancelled but still run, and so delay the end."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(LATE_SECONDS, shield=True) as waiting:
            await shell.ended.wait()
        if waiting.cancelled_caught:
            late = sorted({task.facet.actor.name for task in shell.running})
            logger.error("these actors have tasks that were cancelled and do not end: %s", ", ".join(late))


def _home(engine: Engine, hosted: HostedSpace) -> ActorSpace:
    """Returns a space as actors use it: their turns go through the log, like turns of clients."""
    home = engine.home(
        hosted.space,
        commit=lambda owner, actions, _now: hosted.commit(owner, actions, own=True),
        end=lambda owner: hosted.end_owners((owner,)),
    )
    home.term = hosted.term
    return home


def hosting_verbs(hosting: HostedActors) -> Mapping[str, Callable[[Peer, Arguments], Awaitable[Value]]]:
    """Returns the requests that hosted code answers, by the names that they have on the wire."""

    async def _actors(inspector: Peer, arguments: Arguments) -> Value:
        """Returns the actors that the daemon hosts; their turns show facts, so they need every right."""
        await trio.lowlevel.checkpoint()
        inspector.permit.check_inspect("the actors")
        turns = arguments["turns"]
        if turns and not inspector.permit.open:
            raise Refused("not-allowed", "the turns of actors are shown to a token that may do everything")
        return hosting.status(most=arguments["most"], turns=turns)

    return {"actors": _actors, "rules": _rules}


async def _rules(inspector: Peer, arguments: Arguments) -> Value:
    """Answers a question about the rules: how they run, or why a fact is derived or not."""
    await trio.lowlevel.checkpoint()
    inspector.permit.check_inspect("the rules")
    space, about, ask = inspector.hosted.space, arguments["about"], arguments["ask"]
    if ask == RESUME:
        inspector.permit.check_rules()
        return inspector.hosted.resume_rule(about)
    now = inspector.hosted.rule_turns.now()
    return ask_rules(space, inspector.permit, ask, about, arguments["form"], now)


# -- The view of running actors --------------------------------------------------------------------
# Turns are recorded for some seconds after each question; without questions a turn costs nothing more.
#
# Always: the view is bounded, in items and in characters; the engine's earlier tracer gets every
# turn.


FACETS: Final = 200
"""Facets that are shown of one actor."""

WATCHED: Final = 10.0
"""Seconds for which turns are recorded after a question."""

ACTIONS: Final = 8
"""Actions of one turn that are shown."""

SHOWN: Final = 200
"""Characters of a name or of an action that are shown."""


def tree(actors: Sequence[Actor], most: int) -> tuple[Map, ...]:
    """Returns the first ``most`` actors with their facets, each facet as ``[depth, name, endpoints]``."""
    return tuple(
        [
            Map(
                {
                    "number": each.number,
                    "name": each.name[:SHOWN],
                    "turns": each.turns,
                    "facets": each.facets,
                    "tree": tuple(islice(_facets(each.root), FACETS)),
                }
            )
            for each in actors[:most]
        ]
    )


def _facets(root: Facet) -> Iterator[tuple[Value, ...]]:
    """Yields a facet and all below it, parents first."""
    waiting = [(0, root)]
    while waiting:
        depth, facet = waiting.pop()
        yield depth, str(facet)[:SHOWN], len(facet.endpoints)
        # of a facet with very many below it no more are copied than are shown
        below = list(islice(facet.children, FACETS))
        waiting.extend((depth + 1, child) for child in reversed(below))


class RecentTurns:
    """The last turns of an engine, by the name that the actors of a program have in common."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._trace = Trace(report=self._take, keep=False)
        self._before: Tracer | None = None
        self._until = 0.0
        self._program = ""
        self._kept: dict[str, deque[TurnRecord]] = {}

    def of(self, program: str, most: int) -> tuple[Map, ...]:
        """Returns the last turns of a program, the newest last, and records for some seconds more."""
        self._until = self._engine.clock() + WATCHED
        if self._engine.tracer is not self:
            self._before, self._engine.tracer = self._engine.tracer, self
            self._kept.clear()
        kept = self._kept.get(program, ())
        return tuple([_shown(each) for each in list(kept)[-most:]])

    def turn(self, number: int, event: ActorEvent, effects: Effects, failure: BaseException | None) -> None:
        """Records a turn, or records no more if nothing has been asked for some time."""
        if self._before is not None:
            self._before.turn(number, event, effects, failure)
        if self._goes_on():
            self._program = event.actor.program
            self._trace.turn(number, event, effects, failure)

    def fell(self, number: int, actor: str, event: str, failure: BaseException) -> None:
        """Records the crash of an actor outside of its turns."""
        if self._before is not None:
            self._before.fell(number, actor, event, failure)
        if self._goes_on():
            found = [each.program for each in self._engine.actors.values() if each.name == actor]
            self._program = found[0] if found else ""
            self._trace.fell(number, actor, event, failure)

    def _goes_on(self) -> bool:
        if self._engine.tracer is not self:  # the file of the tracer before failed, and it has ended tracing
            return False
        if self._engine.clock() < self._until:
            return True
        self._engine.tracer, self._before = self._before, None
        self._kept.clear()
        return False

    def _take(self, turn: TurnRecord) -> None:
        self._kept.setdefault(self._program, deque(maxlen=MOST_ACTORS)).append(turn)


def _shown(turn: TurnRecord) -> Map:
    actions = [each[:SHOWN] for each in turn.actions[:ACTIONS]]
    return Map(
        {
            "turn": turn.number,
            "actor": turn.actor[:SHOWN],
            "event": turn.event[:SHOWN],
            "cause": turn.cause,
            "actions": tuple(actions),
            "more": max(0, len(turn.actions) - ACTIONS),
            "failure": None if turn.failure is None else turn.failure[:1000],
        }
    )


HOSTING: Final = PartKey[HostedActors]("hosting")
