"""Actors that a daemon may be given: one that is well-behaved, and those that are not."""

from __future__ import annotations

import time

from dataspace.actors import Turn, record

Echo = record("echo", "what")


def echo(turn: Turn) -> None:
    """Says again what is said, and counts it."""
    count = turn.field("count", 0)
    turn.assert_(lambda: record("count", "n")(count.value))

    @turn.on_message("say($what)")
    def said(turn: Turn, what: str) -> None:
        count.value += 1
        turn.send(Echo(what))


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
