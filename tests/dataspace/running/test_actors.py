"""On trio, tasks and timers belong to facets, and others can enter."""

from __future__ import annotations

import threading
import time

import pytest
import trio
from trio.testing import MockClock

from dataspace.actors.engine.actors import Actor
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.running.actors import Outside, Shell, Watchdog
from dataspace.testing import Room

Seen = record("seen", "what")


async def test_a_program_ends_when_only_daemon_actors_are_left(autojump_clock: MockClock) -> None:
    lines: list[str] = []

    def background(turn: Turn) -> None:
        turn.every(1)(lambda turn: lines.append(f"tick {turn.now - start:.0f}"))

    def main(turn: Turn) -> None:
        turn.spawn(background, daemon=True)
        turn.stop_after(3.5)

    start = trio.current_time()
    shell = Shell()
    shell.engine.spawn(main, home=shell.engine.home("main"))
    await shell.run()
    assert lines == ["tick 1", "tick 2", "tick 3"]


async def test_a_task_has_three_ends(autojump_clock: MockClock) -> None:
    lines: list[str] = []

    async def work(outside: Outside, seconds: float, fail: bool) -> None:
        try:
            await trio.sleep(seconds)
            lines.append(f"done {seconds}")
        except trio.Cancelled:
            lines.append(f"cancelled {seconds}")
            raise
        if fail:
            raise RuntimeError("broken")

    def boot(turn: Turn, seconds: float, fail: bool, keep: bool) -> None:
        turn.task(work, seconds, fail, keep=keep)
        turn.on_stop(lambda turn: lines.append(f"stopped {seconds}"))
        turn.on_exit(lambda crash: lines.append(f"exit {seconds} {crash is not None}"))
        turn.stop_after(10)

    shell = Shell()
    home = shell.engine.home("main")
    for args in ((1, False, False), (2, True, False), (3, False, True), (20, False, False)):
        shell.engine.spawn(boot, *args, home=home)
    await shell.run()
    assert lines[:6] == ["done 1", "stopped 1", "exit 1 False", "done 2", "exit 2 True", "done 3"]
    assert sorted(lines[6:]) == [
        "cancelled 20",
        "exit 20 False",
        "exit 3 False",
        "stopped 20",
        "stopped 3",
    ]


async def test_others_enter_from_tasks_and_threads() -> None:
    seen: list[object] = []

    def boot(turn: Turn) -> None:
        @turn.on_asserted("seen($x)")
        def heard(turn: Turn, what: str) -> None:
            seen.append(what)
            if len(seen) == 2:
                turn.stop_actor()

    shell = Shell()
    actor: Actor = shell.engine.spawn(boot, home=shell.engine.home("main"))
    outside = shell.outside(actor)

    def say(turn: Turn, what: str) -> None:
        turn.claim(Seen(what))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shell.run)
        await trio.testing.wait_all_tasks_blocked()
        outside.external(say, "task")
        thread = threading.Thread(target=outside.external_from_thread, args=(say, "thread"))
        thread.start()
    thread.join()
    assert sorted(map(str, seen)) == ["task", "thread"]
    assert outside.ended


async def test_entering_a_facet_that_has_ended_does_nothing() -> None:
    lines: list[str] = []
    shell = Shell()

    async def late(outside: Outside, other: Outside) -> None:
        assert other.ended and not outside.ended
        other.external(lambda turn: lines.append("never"))
        outside.external(lambda turn: lines.append("here"))

    def boot(turn: Turn) -> None:
        brief = turn.react(lambda inner: inner.prevent_inert())
        turn.task(late, Outside(shell, brief))
        turn.stop(brief)

    shell.engine.spawn(boot, home=shell.engine.home("main"))
    await shell.run()
    assert lines == ["here"]


async def test_the_watchdog_names_who_does_not_yield() -> None:
    told: list[str] = []
    shell = Shell()

    def hog(turn: Turn) -> None:
        end = time.monotonic() + 5
        while not told and time.monotonic() < end:
            pass

    shell.engine.spawn(hog, home=shell.engine.home("main"))
    with Watchdog(shell.engine, limit=0.05, report=told.append):
        await shell.run()
    assert len(told) == 1 and told[0].startswith("actor hog does not yield")


async def test_the_watchdog_names_whose_task_does_not_yield() -> None:
    told: list[str] = []
    shell = Shell()

    async def sleep(_: Outside) -> None:
        for _step in range(2):
            await trio.lowlevel.checkpoint()
            end, before = time.monotonic() + 5, len(told)
            while len(told) == before and time.monotonic() < end:
                pass

    shell.engine.spawn(lambda turn: turn.task(sleep), home=shell.engine.home("main"), name="sleeper")
    with Watchdog(shell.engine, limit=0.05, report=told.append) as watchdog:
        await shell.run()
    assert [each.split(": ")[0] for each in told] == ["actor sleeper does not yield"] * 2
    assert watchdog.stalls == {"sleeper": 2}


async def test_a_task_is_awaited_as_if_nobody_looked(autojump_clock: MockClock) -> None:
    told: list[object] = []
    shell = Shell()

    async def work(outside: Outside) -> None:
        with trio.move_on_after(1) as scope:
            await trio.sleep(10)
        told.append(scope.cancelled_caught)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
        try:
            await trio.sleep(100)
        except trio.Cancelled:
            told.append(trio.current_time() - start)
            raise
        finally:
            told.append(outside.ended)

    start = trio.current_time()
    actor = shell.engine.spawn(
        lambda turn: (turn.task(work), turn.stop_after(3)), home=shell.engine.home("main")
    )
    await shell.run()
    assert told == [True, 3.0, True] and actor.crash is None and shell.engine.stepping is None


@pytest.mark.parametrize(
    ("cost", "rest"), [(0.1, 0.0), (0.3, 0.1), (0.7, 0.0), (0.7, 0.6), (0.1, 0.9), (0.7, 2)]
)
def test_the_watchdog_names_a_program_whose_turns_hold_the_loop_one_after_the_other(
    cost: float, rest: float
) -> None:
    """None of them is as long as the limit; the time is virtual."""
    told: list[str] = []
    room = Room(strict=False)
    watchdog = Watchdog(room.engine, report=told.append)

    def work(turn: Turn) -> None:
        room.time += cost
        raise RuntimeError("and crash")  # each in an actor of its own, as in a loop of crashes

    room.engine.tracer = None
    until = 200.0
    while room.time < until:
        room.spawn(work, name="busy")
        room.engine.run(seconds=0.002)
        watchdog.check(room.time)
        room.time += rest
    share = cost / (cost + rest)
    assert len(told) == (4 if share > 0.5 else 0)  # once in a minute
    assert all(each.startswith("actor busy holds the loop: its turns took") for each in told)
    assert not watchdog.stalls
