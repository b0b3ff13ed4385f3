"""What runs later runs under the context variables under which it was handed over, and nobody else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import pytest
import trio

from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.running.actors import Outside, Shell
from dataspace.testing import Room

Tenant: ContextVar[str] = ContextVar("Tenant", default="nobody")
Item = record("item", "n")
Go = record("go", "n")


@contextmanager
def tenant(name: str) -> Iterator[None]:
    token = Tenant.set(name)
    try:
        yield
    finally:
        Tenant.reset(token)


LATER: dict[str, Callable[[Turn, Callable[..., object]], object]] = {
    "message": lambda turn, tell: turn.on_message("go($n)")(tell),
    "asserted": lambda turn, tell: turn.on_asserted("item($n)")(tell),
    "during": lambda turn, tell: turn.during("item($n)")(tell),
    "actor of during": lambda turn, tell: turn.during_spawn("item($n)")(tell),
    "spawn": lambda turn, tell: turn.spawn(tell),
    "link": lambda turn, tell: turn.spawn_link(tell),
    "later": lambda turn, tell: turn.later(tell),
    "snapshot": lambda turn, tell: turn.snapshot("item($n)", tell),
    "timer": lambda turn, tell: turn.after(1)(tell),
    "start": lambda turn, tell: turn.on_start(tell),
    "stop": lambda turn, tell: turn.on_stop(tell),
    "exit": lambda turn, tell: turn.on_exit(tell),
    "continuation": lambda turn, tell: turn.stop_when("item(_)", tell),
    "hook": lambda turn, tell: turn.before_commit(tell),
    "edge": lambda turn, tell: turn.when_true(lambda: True, tell),
    "query": lambda turn, tell: turn.query_set("set", "item($n)", added=tell),
}


@pytest.mark.parametrize("how", LATER)
def test_a_handler_has_what_was_set_around_it(how: str) -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        with tenant("Alice"):
            LATER[how](turn, lambda *_: room.note(Tenant.get()))

    actor = room.spawn(boot)

    def demand(turn: Turn) -> None:
        turn.assert_(Item(1))
        turn.send(Go(1))

    room.play(demand)
    room.advance(2)
    if not actor.ended:
        room.enter(actor, Turn.stop_actor)
    assert room.transcript() == "Alice"


def test_what_is_computed_again_has_it_too() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        n = turn.field("n", 0)
        with tenant("Alice"):
            turn.assert_(lambda: record("computed", "n", "for")(n.value, Tenant.get()))
            turn.dataflow(lambda: room.note(f"{Tenant.get()} {n.value}"))
            name = turn.derived("name", lambda: (n.value, Tenant.get()))

        @turn.on_message("go($n)")
        def go(turn: Turn, x: int) -> None:
            n.value = x
            room.note(str(name.value))

    room.spawn(boot)
    room.play(lambda turn: turn.send(Go(7)))
    assert room.facts() == ['computed(7, "Alice")']
    assert room.transcript().splitlines() == ["Alice 0", "(7, 'Alice')", "Alice 7"]


def test_what_an_actor_makes_later_inherits_it_and_its_neighbours_do_not() -> None:
    room = Room()

    def boot(turn: Turn, who: str) -> None:
        @turn.on_message("go($n)")
        def go(turn: Turn, n: int) -> None:
            turn.spawn(lambda turn: room.note(f"{who} is {Tenant.get()}"))

    for name in "Alice", "Bob":
        with tenant(name):
            room.spawn(boot, name)
    room.spawn(boot, "who")
    room.play(lambda turn: turn.send(Go(1)))
    assert room.transcript().splitlines() == ["Alice is Alice", "Bob is Bob", "who is nobody"]


def test_an_actor_has_its_name_all_the_same() -> None:
    room = Room()

    def clerk(turn: Turn, *_: object) -> None:
        turn.prevent_inert()

    def boot(turn: Turn) -> None:
        turn.assert_(Item(1))
        with tenant("Alice"):
            turn.during_spawn("item($n)")(clerk)

    with tenant("Bob"):
        room.spawn(boot)
    room.run()
    assert [actor.name for actor in room.engine.actors.values()] == ["boot", "clerk"]


def test_what_a_handler_sets_is_forgotten_when_it_returns() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        with tenant("Alice"):

            @turn.on_message("go($n)")
            def go(turn: Turn, n: int) -> None:
                room.note(Tenant.get())
                Tenant.set("Mallory")

    room.spawn(boot)
    for n in 1, 2:
        room.play(lambda turn: turn.send(Go(n)))  # noqa: B023  # played at once
    assert room.transcript().splitlines() == ["Alice", "Alice"] and Tenant.get() == "nobody"


async def test_a_linked_task_has_it() -> None:
    told: list[str] = []

    async def work(_: Outside) -> None:
        await trio.lowlevel.checkpoint()
        told.append(Tenant.get())

    def boot(turn: Turn) -> None:
        with tenant("Alice"):
            turn.task(work)

    shell = Shell()
    shell.engine.spawn(boot, home=shell.engine.home("main"))
    await shell.run()
    assert told == ["Alice"]
