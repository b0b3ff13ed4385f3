"""Uses that the types must allow, and what they make of them; read by mypy, run by nobody."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple, assert_type

import dataspace
from dataspace.actors.engine.actors import Facet
from dataspace.actors.engine.fields import DerivedField, Field
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.client.blocking.space import BlockingTypedObservation
from dataspace.client.query.rows import Rows
from dataspace.client.session.turns import Claim
from dataspace.kernel.changes import Change
from index.patterns.patterns import capture
from index.values.freezing import freeze
from index.values.values import Map, Record, Value, key, order_key, same


class Reading(NamedTuple):
    device: str
    value: float


def values() -> list[Value]:
    return [
        None,
        True,
        1,
        1.5,
        "text",
        b"bytes",
        datetime.now(UTC),
        (1, "two", (3.0,)),
        Map([("k", 1)]),
        Record("p"),
    ]


def frozen() -> None:
    assert_type(freeze([1, {"k": [2]}]), Value)
    assert_type(same(1, 1.0), bool)
    sorted(values(), key=order_key)
    {key(value): value for value in values()}


async def conversations() -> None:
    async with dataspace.connect("tcp://127.0.0.1:7377", owner="name") as space:
        claim = await space.assert_(Record("present", "Alice"))
        assert_type(claim, Claim)
        assert_type(await space.replace(claim, Record("present", "Bob")), Claim)
        assert_type(await space.retract(claim), int)
        assert_type(await space.send(["a list is frozen on entry"]), int)
        async with space.turn() as turn:
            turn.assert_(Record("x", 1), handle=7)
            turn.send(Record("y"))
        assert_type(turn.epoch, int | None)
        async with space.observe("present($who)") as changes:
            async for change in changes:
                assert_type(change, Change)
                assert_type(change.captures, tuple[Value, ...])
        assert_type(await space.matches("present($who)"), list[tuple[Value, ...]])
        assert_type(await space.matches("reading($device, $value)", row=Reading), list[Reading])
        assert_type(await space.query("reading($device, $value)"), Rows)
        rows: dataspace.TypedRows[Reading] = await space.query("reading($device, $value)", row=Reading)
        assert_type(rows[0].value, float)
        async with space.observe("reading($device, $value)", row=Reading, policy="wait") as readings:
            async for reading in readings:
                assert_type(reading.row.device, str)


def blocking() -> None:
    with dataspace.connect_blocking("tcp://127.0.0.1:7377", owner="name") as space:
        claim = space.assert_(Record("present", "Alice"))
        assert_type(claim, Claim)
        assert_type(space.replace(claim, Record("present", "Bob")), Claim)
        assert_type(space.retract(claim), int)
        with space.asserting(Record("busy")) as held:
            assert_type(held, Claim)
        with space.turn() as turn:
            turn.assert_(Record("x", 1), handle=7)
        with space.observe("present($who)", policy="wait") as changes:
            for change in changes:
                assert_type(change, Change)
            assert_type(changes.next_epoch(timeout=1), dataspace.EpochChanges | None)
        with space.publish("readings") as publication:
            publication.send(1, at=1)
        with space.subscribe("readings", timeout=1.0) as epochs:
            assert_type(next(epochs), dataspace.TopicEpoch)
        assert_type(space.matches("present($who)"), list[tuple[Value, ...]])
        assert_type(space.matches("reading($device, $value)", row=Reading), list[Reading])
        assert_type(space.query("reading($device, $value)")[0], tuple[Value, ...])
        assert_type(space.query("reading($device, $value)", row=Reading)[0].value, float)
        for typed in space.observe("reading($device, $value)", row=Reading, policy="wait"):
            assert_type(typed.row.device, str)
        epochs_of_rows: BlockingTypedObservation[Reading] = space.observe("reading($, $)", row=Reading)
        for epoch in epochs_of_rows.epochs():
            assert_type(epoch.added, list[Reading])


Present = record("present", "who")


def conversation(turn: Turn, first: str) -> None:
    @turn.on_message(Present(capture("who")))
    def heard(turn: Turn, who: str) -> int:
        return len(who)

    assert_type(heard(turn, "a decorated handler is what it was"), int)

    @turn.during("present($who)")
    def guest(turn: Turn, who: str) -> None:
        turn.assert_(Present(who))
        turn.on_stop(lambda turn: turn.send(Present(who)))

    @turn.after(1.5)
    def later(turn: Turn) -> None:
        turn.stop(then=lambda turn: turn.react(conversation, "arguments go with it"))

    count = turn.field("count", 0)
    assert_type(count, Field[int])
    name = turn.derived("name", lambda: f"{first} {count.value}")
    assert_type(name, DerivedField[str])
    assert_type(name.value, str)
    turn.assert_(lambda: Present(name.value), when=lambda: count.value > 0)
    assert_type(turn.react(conversation, "x"), Facet)
    turn.spawn(conversation, "x", initial=[Present("x")])
