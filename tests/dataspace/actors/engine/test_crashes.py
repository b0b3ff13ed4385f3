"""A crash can be told, whatever was raised, and ends nothing but its actor."""

from __future__ import annotations

import sys

import pytest
import trio

from dataspace.actors.engine.handlers import crash_of, described, is_within
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.running.actors import Outside, Shell
from dataspace.testing import Room

Go = record("go")


class Unspeakable(Exception):
    """Cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_an_error_without_words_is_told_by_its_class() -> None:
    assert described(Unspeakable()) == "Unspeakable, whose text raises RuntimeError"
    error = Unspeakable()
    assert crash_of("here", error).__cause__ is error


def test_a_turn_that_raises_what_cannot_be_told_ends_its_actor_only() -> None:
    room = Room(strict=False)

    def bad(turn: Turn) -> None:
        def hook(_: object) -> None:
            raise Unspeakable

        turn.on_exit(hook)

        @turn.on_message("go()")
        def go(turn: Turn) -> None:
            raise Unspeakable

    room.spawn(bad)
    room.spawn(lambda turn: turn.on_message("go()")(lambda turn: room.note("another")))
    room.run()
    room.play(lambda turn: turn.send(Go()))
    assert room.transcript() == "another" and len(room.crashes) == 2
    assert room.trace.records[3].failure == "Unspeakable, whose text raises RuntimeError"


def test_who_leaves_a_program_ends_it_unless_that_is_fenced() -> None:
    room = Room(strict=False)
    room.spawn(lambda turn: sys.exit(3))
    with pytest.raises(SystemExit):
        room.run()
    room.engine.fence = (Exception, SystemExit)
    room.spawn(lambda turn: sys.exit(3), name="leaver")
    room.run()
    assert str(room.crashes[-1]) == "actor leaver, facet leaver, boot: SystemExit: 3"


async def test_a_task_that_leaves_or_whose_own_tasks_fail_ends_its_actor_only() -> None:
    shell = Shell()
    shell.engine.fence = (Exception, SystemExit)
    lines: list[str] = []

    async def leave(_: Outside) -> None:
        await trio.lowlevel.checkpoint()
        sys.exit(4)

    async def several(_: Outside) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave, _)
            nursery.start_soon(trio.sleep, 1000)

    async def last(_: Outside) -> None:
        await trio.testing.wait_all_tasks_blocked()
        lines.append("the program goes on")

    home = shell.engine.home("main")
    for function in leave, several, last:
        shell.engine.spawn(lambda turn, function=function: turn.task(function), home=home)
    with trio.fail_after(60):
        await shell.run()
    assert lines == ["the program goes on"]
    assert [type(crash.__cause__) for crash in shell.engine.crashes] == [SystemExit, BaseExceptionGroup]


def test_a_group_is_fenced_when_all_in_it_are() -> None:
    fence = (Exception, SystemExit)
    assert is_within(BaseExceptionGroup("", [SystemExit(), ValueError()]), fence)
    assert not is_within(BaseExceptionGroup("", [SystemExit(), KeyboardInterrupt()]), fence)
    assert not is_within(KeyboardInterrupt(), fence) and is_within(ValueError(), fence)


@pytest.mark.parametrize("where", ["setup", "block", "handler", "outer"])
def test_a_crash_names_the_facet_in_which_it_was_raised(where: str) -> None:
    room = Room(strict=False)

    def fail(_: object = None) -> None:
        raise RuntimeError("here")

    def inner(turn: Turn) -> None:
        n = turn.field("n", 0)
        turn.dataflow(lambda: fail() if n.value else None)
        turn.on_message("block()")(lambda turn: setattr(n, "value", 1))
        turn.on_message("handler()")(fail)
        turn.on_message("setup()")(lambda turn: turn.react(lambda turn: turn.react(fail, name="innermost")))

    def outer(turn: Turn) -> None:
        turn.react(inner, name="inner")

        @turn.on_message("outer()")
        def caught(turn: Turn) -> None:
            try:
                turn.react(fail, name="caught")
            except RuntimeError:
                pass
            fail()

    room.spawn(outer, name="it")
    room.run()
    room.play(lambda turn: turn.send(record(where)()))
    facet = {"setup": "innermost", "outer": "it"}.get(where, "inner")
    assert str(room.crashes[-1]).startswith(f"actor it, facet {facet}, epoch ")
