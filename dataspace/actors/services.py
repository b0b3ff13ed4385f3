"""Services: actors that run while they are required and their dependencies are ready.

All of it is facts, so that any actor or client can require a service, add a dependency, or observe one:
``require(service)``, ``depends-on(service, on)`` and ``state(service, state)`` with the states ``waiting``,
``started``, ``ready``, ``failed`` while it pauses after too many crashes, and ``complete`` after an orderly
end.

Always: a service that is not required has no state and does not run; its dependencies are required with it,
and are ready or complete while it runs; a complete service does not run again until it is required anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dataspace.actors.engine.actors import Facet, Handler
from dataspace.actors.engine.records import record
from dataspace.actors.supervision import Restart, Supervised, supervise
from index.patterns.patterns import capture
from index.values.values import Value, key

if TYPE_CHECKING:
    from dataspace.actors.engine.turns import Turn

Require = record("require", "service")
DependsOn = record("depends-on", "service", "on")
State = record("state", "service", "state")

ENOUGH: Final = ("ready", "complete")
"""The states of its dependencies in which a service can run."""


def service(
    turn: Turn, name: Value, boot: Handler, *args: object, on: tuple[Value, ...] = (),
    ready: bool = True, restart: Restart | None = None, watch: Callable[[Supervised], object] | None = None,
) -> None:  # fmt: skip
    """Offers a service; ``boot`` runs, supervised, while it is required and its dependencies are ready.

    ``watch`` is called with each supervised actor that is started for it.
    With ``ready`` it is ready once it runs; otherwise it asserts ``State(name, "ready")`` itself.
    """
    for other in on:
        turn.assert_(DependsOn(name, other))

    @turn.during(Require(name))
    def required(turn: Turn) -> None:
        needed = turn.query_set("needed", DependsOn(name, capture()))
        states = turn.query_set("states", State(capture(), capture()))
        there = turn.derived("there", lambda: [key(each) for each, state in states.value if state in ENOUGH])
        waiting = turn.derived("waiting", lambda: any(key(each) not in there.value for each in needed.value))
        settled = turn.field("settled", False)
        turn.during(DependsOn(name, capture()))(lambda turn, other: turn.assert_(Require(other)))

        @turn.sync
        def known(turn: Turn) -> None:  # the handlers of all dependencies that are there have run by now
            settled.value = True

        running: list[Facet] = []
        states_of = {"running": "ready" if ready else "started", "paused": "failed", "ended": "complete"}
        state = turn.field("state", "running")

        def become(now: str) -> None:
            state.value = now

        def run(turn: Turn) -> None:
            turn.assert_(lambda: State(name, states_of[state.value]))
            supervised, _ = supervise(turn, boot, *args, name=str(name), restart=restart, on_state=become)
            if watch is not None:
                watch(supervised)

        def idle(turn: Turn) -> None:
            turn.assert_(State(name, "waiting"))

        def choose(turn: Turn) -> None:
            if state.value == "ended":
                return
            for facet in running:
                turn.stop(facet)
            running[:] = [turn.react(idle if waiting.value or not settled.value else run)]

        turn.when_true(lambda: settled.value and not waiting.value, choose)
        turn.when_true(lambda: not settled.value or waiting.value, choose)
