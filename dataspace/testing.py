"""Testing: a room for actors that a test steps by hand, with a clock that jumps and a transcript.

    room = Room()
    room.watch("present($who)")
    room.spawn(boot)
    room.run()
    assert room.transcript() == "+ present($who) 'Alice'"

It is part of what users get, so that their tests need neither a daemon nor an event loop.  ``check`` holds a
transcript against the one in a file.

Always: nothing happens but within ``run`` and ``advance``; time stands still but within ``advance``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from dataspace.actors.engine.actors import Actor, Call, Handler
from dataspace.actors.engine.engine import Engine
from dataspace.actors.engine.records import pattern_of
from dataspace.actors.engine.tracing import Trace
from dataspace.actors.engine.turns import Turn
from dataspace.errors import ActorCrashed
from dataspace.kernel.changes import Changes
from index.patterns.text import unparse, unparse_pattern
from index.values.values import Value

__all__ = ["Room", "check"]


class _Ear:
    """An observer that takes down what it hears."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name = name
        self.lines = lines

    def offer(self, changes: Changes) -> None:
        for sign, rows in ("+", changes.added), ("!", changes.messages), ("-", changes.removed):
            for row in rows:
                self.lines.append(f"{sign} {self.name} {' '.join(map(unparse, row))}".rstrip())


class Room:
    """One space and its actors.  ``lines`` is the transcript: watched changes, and notes.

    ``run``, ``play``, ``enter`` and ``advance`` raise ``ActorCrashed`` if an actor has crashed meanwhile,
    once all is quiet: a test should not pass for want of looking.  ``strict=False`` only keeps crashes.
    """

    def __init__(self, name: str = "main", *, strict: bool = True) -> None:
        self.strict = strict
        self.time = 0.0
        self.lines: list[str] = []
        self.engine = Engine(clock=lambda: self.time, wall=lambda: int(self.time * 1e6))
        self.home = self.engine.home(name)
        self.trace = Trace()
        self.engine.tracer = self.trace

    def spawn(self, boot: Handler, *args: object, name: str = "", daemon: bool = False) -> Actor:
        """Starts an actor; it boots in the next ``run``."""
        return self.engine.spawn(boot, *args, home=self.home, name=name, daemon=daemon)

    def play(self, script: Callable[[Turn], object]) -> None:
        """Runs one script as an actor of its own, and every turn that follows."""
        self.spawn(script)
        self.run()

    def enter(self, actor: Actor, function: Handler, *args: object) -> None:
        """Calls a function in a turn of an actor, and runs every turn that follows."""
        self.engine.enqueue(Call(actor.root, "entry", function, *args))
        self.run()

    def run(self, limit: int = 100_000) -> int:
        """Runs until all is quiet: how many turns; ``AssertionError`` if it does not become quiet."""
        before = self.engine.crashed
        done = self.engine.run(limit)
        crashes = self.engine.crashed - before
        if crashes and self.strict:  # the first of those that are kept
            raise self.engine.crashes[max(-crashes, -len(self.engine.crashes))]
        assert self.engine.is_idle, f"not quiet after {limit} turns"
        return done

    def advance(self, seconds: float) -> None:
        """Advances the clock, from one timer to the next."""
        end = self.time + seconds
        self.run()
        while (due := self.engine.timers.next) is not None and due <= end:
            self.time = max(self.time, due)
            self.engine.fire()
            self.run()
        self.time = end

    def watch(self, pattern: object) -> None:
        """Takes down from now on what happens to a pattern; quietly, no actor sees this interest."""
        asked = pattern_of(pattern)
        self.home.space.observe(asked, _Ear(unparse_pattern(asked), self.lines))

    def note(self, line: str) -> None:
        """Adds a line to the transcript."""
        self.lines.append(line)

    def matches(self, pattern: object) -> list[tuple[Value, ...]]:
        """What matches now."""
        return self.home.space.matches(pattern_of(pattern))

    @property
    def crashes(self) -> Sequence[ActorCrashed]:
        """The last hundred crashes of actors, whether or not they were raised here."""
        return tuple(self.engine.crashes)

    def facts(self) -> list[str]:
        """All facts but interests, as sorted text."""
        values = self.home.space.index.values()
        return sorted([unparse(value) for value in values if getattr(value, "label", None) != "Observe"])

    def transcript(self) -> str:
        """The lines until now, and begins a new one."""
        lines = "\n".join(self.lines)
        self.lines.clear()
        return lines


def check(told: str, file: Path) -> None:
    """Holds what was told against a file; with ``REWRITE=1`` in the environment writes it there, to be read.

    Raises ``AssertionError`` where they differ.
    """
    if os.environ.get("REWRITE"):
        file.write_text(told + "\n", encoding="utf-8")
    assert told + "\n" == file.read_text(encoding="utf-8"), f"not as in {file}; REWRITE=1 writes it anew"
