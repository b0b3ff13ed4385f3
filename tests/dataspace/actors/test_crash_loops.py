"""An actor that crashes again and again leaves nothing behind, and pauses grow whatever a crash costs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.actors.supervision import GROWTH, Restart, supervise
from dataspace.errors import ActorCrashed
from dataspace.testing import Room

In, Out, Computed = record("in", "n"), record("out", "n"), record("computed", "n", "m")

FACTS = 25


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The garbage collector, on again after each test."""
    yield
    gc.enable()


def _crash(how: str) -> object:
    """Returns the boot of an actor that has much of everything when it ends in a way."""

    def boot(turn: Turn) -> None:
        field = turn.field("field", 0)
        turn.every(3600)(lambda turn: None)
        turn.derived("derived", lambda: field.value + 1)
        turn.query_set("all", "in($n)")
        turn.inside.on_asserted("idea($x)")(lambda turn, x: None)
        turn.sync(lambda turn: None)
        turn.claim(Out(-1))

        @turn.during("in($n)")
        def each(turn: Turn, n: int) -> None:
            turn.assert_(Out(n))
            turn.assert_(lambda: Computed(n, field.value))
            turn.on_asserted(Out(n))(lambda turn: None)
            turn.after(500)(lambda turn: None)
            turn.on_stop(lambda turn: None)
            turn.during("in(0)")(lambda turn: None)
            if how == "while it begins" and n == FACTS - 1:
                raise RuntimeError("full")

        def fail(turn: Turn) -> None:
            field.value += 1
            raise RuntimeError("later")

        if how == "later":
            turn.after(1)(fail)
        elif how == "while it stops":
            turn.on_stop(fail)
            turn.after(1)(lambda turn: turn.stop())
        elif how == "by a missing name":
            turn.after(1)(lambda turn: turn.nothing)
        elif how == "in good order":
            turn.after(1)(lambda turn: turn.stop_actor())
        elif how == "by its link":
            turn.spawn_link(lambda turn: turn.after(1)(fail))

    return boot


WAYS = ("while it begins", "later", "while it stops", "by a missing name", "in good order", "by its link")


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("how", WAYS)
def test_after_n_crashes_everything_is_as_before(how: str, collects: bool) -> None:
    room = Room(strict=False)
    room.engine.tracer, room.engine.on_crash = None, lambda crash: None  # they are reported, as in a daemon
    room.spawn(lambda turn: [turn.assert_(In(n)) for n in range(FACTS)] and turn.prevent_inert())

    def once() -> None:
        room.spawn(_crash(how), name="it")  # type: ignore[arg-type]  # a handler
        room.advance(2)

    def counts() -> tuple[object, ...]:
        gc.collect()
        space = room.home.space
        return (
            room.engine.statistics().actors, room.engine.statistics().facets, len(space.interests),
            space.interests.observers, space.statistics().claims, space.owners(), room.facts(),
        )  # fmt: skip

    for _ in range(3):
        once()
    before, objects = counts(), len(gc.get_objects())
    if not collects:
        gc.disable()
    for _ in range(10):
        once()
    found = gc.get_objects() if not collects else (gc.collect() and gc.get_objects()) or gc.get_objects()
    # an actor and its root, and what is kept of its crash: nothing that grows with what it had
    assert len(found) - objects < 10 * (12 if collects else 60), Counter(
        type(each).__name__ for each in found
    )
    del found
    assert counts() == before
    assert len(room.engine.timers._heap) <= 64


def test_what_a_failed_turn_had_closed_is_closed() -> None:
    """An observation or a timer that a turn ended before it failed belongs to no facet any more."""
    room = Room(strict=False)
    fired: list[str] = []

    def boot(turn: Turn) -> None:
        def inner(turn: Turn) -> None:
            turn.on_asserted("x()")(lambda turn: fired.append("observed"))
            turn.after(5)(lambda turn: fired.append("timer"))

        made = turn.react(inner)
        pattern = turn.field("pattern", "y()")
        turn.observe(lambda: pattern.value, added=lambda turn: None)

        @turn.after(1)
        def later(turn: Turn) -> None:
            pattern.value = "z()"
            turn.stop(made, then=lambda turn: 1 / 0)

    room.spawn(boot)
    room.advance(2)
    assert len(room.crashes) == 1 and len(room.home.space.interests) == 0
    room.play(lambda turn: turn.assert_(record("x")()))
    room.advance(10)
    assert fired == []


def test_only_the_text_of_a_reported_crash_is_kept() -> None:
    seen: list[BaseException | None] = []
    room = Room(strict=False)
    room.engine.on_crash = lambda crash: seen.append(crash.__cause__)

    def boot(turn: Turn) -> None:
        turn.on_exit(lambda crash: seen.append(crash and crash.__cause__))
        raise KeyError("it")

    room.spawn(boot, name="boot")
    room.run()
    assert [repr(each) for each in seen] == ["KeyError('it')"] * 2  # while it is reported
    (crash,) = room.crashes
    assert "KeyError: 'it'" in str(crash) and crash.__cause__ is None
    assert seen[0] is not None and seen[0].__traceback__ is None


# -- supervision -----------------------------------------------------------------------------------


def _boots(room: Room, cost: float, until: float, *, others: int = 0, busy: bool = False) -> list[float]:
    """Returns when an actor was booted that crashes in its first turn after the boot, which takes time."""
    boots: list[float] = []

    def looping(turn: Turn, mine: bool) -> None:
        if mine:
            boots.append(room.time)

        @turn.on_asserted("in($n)")  # in a turn after the boot, as for what is there already
        def first(turn: Turn, n: int) -> None:
            room.time += cost
            raise ActorCrashed("again")

    def never_rests(turn: Turn) -> None:
        def again(turn: Turn) -> None:
            room.time += 0.5
            if room.time < until:
                turn.later(again)

        again(turn)

    room.spawn(lambda turn: turn.assert_(In(0)))
    for at in range(1 + others):
        room.spawn(lambda turn, mine=not at: supervise(turn, looping, mine))
    if busy:
        room.spawn(never_rests)
    room.advance(until - room.time)
    return boots


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("others", [0, 9])
@pytest.mark.parametrize("cost", [0.0, 0.1, 0.3, 0.7])
def test_pauses_grow_whatever_a_crash_costs(cost: float, others: int, busy: bool) -> None:
    restart = Restart()
    boots = _boots(Room(strict=False), cost, 700.0, others=others, busy=busy)
    together = restart.intensity + 1
    rounds = [boots[at : at + together] for at in range(0, len(boots), together)]
    if busy:
        assert len(boots) <= together * 7  # pauses are longer where timers come late
        return
    pauses = [after[0] - before[-1] for before, after in pairwise(rounds)]
    slack = cost * (1 + others) * together + 1e-6
    for at, pause in enumerate(pauses):
        wanted = restart.pause * min(2**at, GROWTH)
        assert wanted <= pause <= wanted + slack
    assert 5 <= len(rounds) <= 7


def test_pauses_begin_anew_after_it_has_run_longer_than_it_paused() -> None:
    room = Room(strict=False)
    boots: list[float] = []

    def now_and_then(turn: Turn) -> None:
        boots.append(room.time)
        if len(boots) % 2 == 0:
            turn.after(100)(lambda turn: 1 / 0)
        else:
            raise RuntimeError("at once")

    room.spawn(lambda turn: supervise(turn, now_and_then, restart=Restart(intensity=0, period=200, pause=10)))
    room.advance(1000)
    waits = [round(after - before) for before, after in pairwise(boots)]
    assert waits[:6] == [10, 110, 20, 110, 20, 110]


def test_crashes_that_are_far_apart_are_followed_by_no_pause() -> None:
    room = Room(strict=False)
    boots: list[float] = []

    def each_second(turn: Turn) -> None:
        boots.append(room.time)
        turn.after(2)(lambda turn: 1 / 0)

    room.spawn(lambda turn: supervise(turn, each_second))
    room.advance(100)
    assert boots == [2.0 * n for n in range(51)]
