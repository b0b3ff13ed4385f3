"""A trace has every turn with its cause and effects, and a drawing of it is a diagram whatever is in it."""

from __future__ import annotations

import re

import trio

from dataspace.actors.engine.records import record
from dataspace.actors.engine.tracing import Trace, TurnRecord
from dataspace.actors.engine.turns import Turn
from dataspace.actors.rendering import BEGINNING, REMEMBERED, Diagram, mermaid, readable
from dataspace.running.actors import Outside, Shell
from dataspace.testing import Room

Say = record("say", "x")


def ear(turn: Turn) -> None:
    """Repeats what it hears, and cannot bear everything."""

    @turn.on_message("say($x)")
    def heard(turn: Turn, x: str) -> None:
        turn.claim(record("heard", "x")(x))
        if x == "too much":
            raise RuntimeError("broken")


def played() -> Room:
    room = Room(strict=False)
    room.spawn(ear, name="an ear: the end")
    room.run()
    for word in "hi", "too much":
        room.play(lambda turn: turn.send(Say(word)))  # noqa: B023  # played at once
    return room


def test_as_text() -> None:
    text = readable(played().trace.records)
    assert 'turn 3 an ear: the end: epoch 2 of main (caused by 2)\n    + heard("hi")' in text
    assert text.endswith("(caused by 4)\n    crashed: RuntimeError: broken"), "and nothing that never was"


def test_as_a_diagram() -> None:
    lines = mermaid(played().trace.records).splitlines()
    assert lines[:2] == BEGINNING.splitlines()
    (name,) = re.findall(r"participant (\S+) as an ear: the end", "\n".join(lines))
    assert f"    a_.3c.lambda.3e.->>{name}: epoch 2 of main" in lines
    assert f'    Note over {name}: + heard("hi")' in lines
    assert lines[-1] == f"    Note over {name}: crashed: RuntimeError: broken"


def test_whatever_is_said_stays_on_its_line() -> None:
    made = TurnRecord(1, "end", "a;b", 0, ('! say("#1 %% <b>\n    outside->>end: x")',), None)
    assert mermaid([made]).splitlines() == [
        *BEGINNING.splitlines(),
        "    participant a_end as end",
        "    outside->>a_end: a#59;b",
        '    Note over a_end: ! say("#35;1 #37;#37; #60;b#62;     outside-#62;#62;end: x")',
    ]


def test_a_diagram_that_goes_on_for_ever_forgets_whose_turns_the_first_were() -> None:
    diagram = Diagram()
    for number in range(1, REMEMBERED + 10):
        diagram.of(TurnRecord(number, "one", "event", number - 1, (), None))
    assert len(diagram._actors) == REMEMBERED


async def test_a_linked_task_that_crashes_its_actor_is_in_it() -> None:
    async def fail(_: Outside) -> None:
        raise RuntimeError("broken")

    shell, trace = Shell(), Trace()
    shell.engine.tracer = trace
    home = shell.engine.home("main")

    def worker(turn: Turn) -> None:
        turn.assert_(Say("here"))
        turn.task(fail)

    shell.engine.spawn(  # first: a slice may end, and the task crash, before the second boots
        lambda turn: turn.on_retracted("say(_)")(lambda turn: turn.stop()), home=home, name="boss"
    )
    shell.engine.spawn(worker, home=home)
    with trio.fail_after(60):  # seconds after which something hangs
        await shell.run()
    crash, heard = trace.records[-2:]
    assert (crash.actor, crash.event, crash.failure) == ("worker", "linked task", "RuntimeError: broken")
    assert (heard.actor, heard.cause) == ("boss", crash.number), "what comes of it is known to"
