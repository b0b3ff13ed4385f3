"""Actors that a daemon may be given: one that is well-behaved, and those that are not."""

from __future__ import annotations

import os
import sys
import time

import trio

from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.running.actors import Outside

Echo = record("echo", "what")


def echo(turn: Turn) -> None:
    """Says again what is said, and counts it."""
    count = turn.field("count", 0)
    turn.assert_(lambda: record("count", "n")(count.value))

    @turn.on_message("say($what)")
    def said(turn: Turn, what: str) -> None:
        count.value += 1
        turn.send(Echo(what))


def termed(turn: Turn, name: str) -> None:
    """Says in which term it runs."""
    turn.assert_(record("term", "name", "n")(name, turn.term))


def raiser(turn: Turn) -> None:
    """Raises on every event."""
    turn.assert_(record("raiser", "here")(True))

    @turn.on_message("say($what)")
    def said(turn: Turn, what: str) -> None:
        turn.assert_(record("never")())
        raise RuntimeError(f"cannot bear {what}")


def leaker(turn: Turn) -> None:
    """Makes facets that nobody ends."""

    @turn.on_message("leak($n)")
    def leak(turn: Turn, n: int) -> None:
        for _ in range(n):
            turn.react(lambda inner: inner.prevent_inert())


def hog(turn: Turn) -> None:
    """Does not yield when it is told to."""

    @turn.on_message("hog($seconds)")
    def stay(turn: Turn, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass


def never(turn: Turn) -> None:
    """Says that it is there, and then never yields."""
    turn.assert_(record("never", "process")(os.getpid()))

    @turn.on_message("hang()")
    def hang(turn: Turn) -> None:
        while True:
            pass


def stone(turn: Turn) -> None:
    """The same, in a single call of the interpreter's, which lets no other thread run either."""
    turn.assert_(record("stone", "process")(os.getpid()))

    @turn.on_message("hang()")
    def hang(turn: Turn) -> None:
        sum(range(1 << 60))


def sleeper(turn: Turn) -> None:
    """Has a task that holds up the whole loop, though no turn of its own lasts long."""
    turn.assert_(record("sleeper", "process")(os.getpid()))

    async def sleep(_: Outside) -> None:
        time.sleep(1000)  # noqa: ASYNC251  which is what it does wrong

    turn.on_message("hang()")(lambda turn: turn.task(sleep))


class Unspeakable(Exception):
    """Cannot even be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def worst(turn: Turn) -> None:
    """Does all that could take a program down which calls it."""
    turn.assert_(record("worst", "here")(True))

    @turn.on_message("worst($how)")
    def go(turn: Turn, how: str) -> None:
        turn.on_exit(lambda _: sys.exit(5))
        turn.send(record("half", "done")(how))
        if how in INTERRUPTIONS:
            raise INTERRUPTIONS[how]
        if how == "interrupting task":
            turn.task(_interrupt)
        elif how.endswith("task"):
            turn.task(_leave if how == "leaving task" else _wordless)
        elif how == "leaving":
            sys.exit(3)
        else:
            raise Unspeakable


INTERRUPTIONS = {"interrupting": KeyboardInterrupt("own"), "closing": GeneratorExit("own")}


async def _interrupt(_: Outside) -> None:
    try:
        await trio.lowlevel.checkpoint()
    finally:
        raise BaseExceptionGroup("own", [KeyboardInterrupt()])


async def _leave(_: Outside) -> None:
    sys.exit(4)


async def _wordless(_: Outside) -> None:
    raise Unspeakable


def clinging(turn: Turn) -> None:
    """Has a task that does not end when it is cancelled."""
    turn.assert_(record("clinging", "here")(True))

    async def cling(_: Outside) -> None:
        while True:
            with trio.CancelScope(shield=True):
                await trio.sleep(1000)

    turn.task(cling)


def family(turn: Turn) -> None:
    """Has nothing to do once its children are there, who are no better than others."""
    turn.spawn(hog, name="junior")
    turn.spawn(_fragile, name="fragile")


def _fragile(turn: Turn) -> None:
    turn.assert_(record("fragile", "process")(os.getpid()))

    @turn.on_message("touch()")
    def touch(turn: Turn) -> None:
        raise RuntimeError("in pieces")


def several(turn: Turn, *words: str) -> None:
    """Holds several facts, and crashes or ends when it is told to."""
    turn.assert_(record("several", "process")(os.getpid()))
    for word in words:
        turn.assert_(record("word", "text")(word))

    @turn.on_message("crash($what)")
    def crash(turn: Turn, what: str) -> None:
        turn.assert_(record("unsaid")())
        raise RuntimeError(f"cannot bear {what}")

    @turn.on_message("leave()")
    def leave(turn: Turn) -> None:
        turn.stop_actor()

    turn.on_message("exit()")(lambda turn: sys.exit(0))


def conversation(turn: Turn) -> None:
    """Uses most of what actors have: fields, conversations, children, timers, queries, snapshots, sync."""
    count = turn.field("count", 0)
    guests = turn.query_set("guests", "guest($who)")
    turn.assert_(lambda: record("guests", "n", "seen")(len(guests.value), count.value))

    @turn.during("guest($who)")
    def guest(turn: Turn, who: str) -> None:
        count.value += 1
        turn.assert_(record("welcome", "who")(who))
        turn.on_stop(lambda turn: turn.send(record("farewell", "who")(who)))

    @turn.during_spawn("job($n)")
    def job(turn: Turn, n: int) -> None:
        turn.assert_(record("working", "n")(n))
        turn.after(0.01)(lambda turn: turn.send(record("worked", "n")(n)))

    @turn.on_message("look()")
    def look(turn: Turn) -> None:
        turn.assert_(record("mine", "n")(1))
        turn.snapshot("mine($n)", lambda turn, rows: turn.send(record("saw", "rows")(len(rows))))
        turn.sync(lambda turn: turn.send(record("synced")()))


def mirror(turn: Turn) -> None:
    """Asserts a fact for each match: at a start it has as many in one turn as came in many."""
    turn.during("in($n)")(lambda turn, n: turn.assert_(record("out", "n")(n)))

    def stop(turn: Turn) -> None:
        turn.stop(whole)
        turn.send(record("stopped")())

    def hold(turn: Turn) -> None:
        for n in range(100):
            turn.assert_(record("held", "n")(n))
        turn.on_stop(lambda turn: turn.send(record("on-stop")()))

    whole = turn.react(hold)
    turn.on_message("stop()")(stop)


def crash_loop(turn: Turn) -> None:
    """Works for a while and raises, at each start."""
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass
    raise RuntimeError("again")
