"""Every block of code in ACTORS.md runs as it stands, and what it asserts holds."""

from __future__ import annotations

import re
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace.actors.engine.endpoints import PatternWatch
from dataspace.actors.engine.fields import Field
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.actors.layers import Quit, inbound, layer, outbound
from dataspace.actors.rendering import readable
from dataspace.actors.services import Require, service
from dataspace.actors.supervision import Restart, supervise
from dataspace.errors import UsageError
from dataspace.running.actors import Outside, run
from dataspace.testing import Room
from index.patterns.patterns import capture

DOCUMENT = Path(dataspace.__file__).parent / "ACTORS.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
KINDS = (ContextVar, Outside, Restart, Room, Turn, datetime)
FUNCTIONS = (capture, inbound, layer, outbound, readable, record, run, service, supervise)
NAMES = {each.__name__: each for each in (*KINDS, *FUNCTIONS, trio)} | {
    "Quit": Quit,
    "Require": Require,
    "UTC": UTC,
}


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[re.split(r"\W+", each)[1] for each in SNIPPETS])
def test_a_block_runs(snippet: str) -> None:
    exec(compile(snippet, str(DOCUMENT), "exec"), dict(NAMES))


def test_there_are_as_many_as_there_are_nouns() -> None:
    assert len(SNIPPETS) >= 10


def test_what_is_refused_is_refused_in_those_words() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").split("## What is refused")[1].split("\n## ")[0]
    told = re.findall(r"^\| .* \| `([^`…]*)…?` \|$", text, re.MULTILINE)
    assert len(told) == 17
    room, said = Room(strict=False), list[str]()
    turns: list[Turn] = []
    fields: list[Field[int]] = []

    def alice(turn: Turn) -> None:
        turns.append(turn)
        fields.append(turn.field("count", 0))
        turn.prevent_inert()

    def total(turn: Turn) -> None:
        turn.dataflow(lambda: turn.assert_(record("x")()), name="total")

    def grow(turn: Turn) -> None:
        a = turn.field("a", 0)
        turn.dataflow(lambda: setattr(a, "value", a.value + 1), name="grow")

    def ended(turn: Turn) -> None:
        turn.facet.ended = True
        turn.assert_(record("x")())

    async def boot(turn: Turn) -> None:
        """Waits."""

    async def work(outside: Outside) -> None:
        """Waits as well."""

    def bare(turn: Turn) -> None:
        @turn.on_message  # as people write it
        def heard(turn: Turn) -> None: ...

    def greet(turn: Turn) -> None:
        """Takes nothing that is captured."""

    def endless(turn: Turn) -> None:
        turn.prevent_inert()
        turn.before_commit(endless)

    room.spawn(alice)
    room.spawn(lambda turn: fields[0].value, name="bob")
    for each in (
        total,
        grow,
        lambda turn: setattr(turn.derived("total", lambda: 1), "value", 2),
        lambda turn: turn.spawn(boot),
        lambda turn: turn.retract(7),
        lambda turn: record("present", "who")(1, 2),
        lambda turn: turn.task(work),
        lambda turn: turn.react(ended, name="3"),
        bare,
        lambda turn: turn.during("present($who)"),
        lambda turn: turn.on_asserted(record("present", "who")(capture("who")))(greet),
        lambda turn: turn.assert_('present("Alice")'),
        lambda turn: room.engine.run(),
        lambda turn: turn.react(endless, name="3"),
    ):
        room.spawn(each, name="alice")
    room.run()
    said = [re.sub(r"test_\S+<locals>\.", "", str(crash.__cause__)) for crash in room.crashes]
    with pytest.raises(UsageError) as outside:
        turns[0].assert_(record("x")())
    said.append(str(outside.value))
    endpoints: list[PatternWatch] = []
    room.enter(turns[0].actor, lambda turn: endpoints.append(turn.observe("x()")))
    room.enter(room.spawn(Turn.prevent_inert, name="bob"), lambda turn: endpoints[0].close())
    said.append(str(room.crashes[-1].__cause__))
    for each in told:
        assert any(line.startswith(each) for line in said), (each, said)
