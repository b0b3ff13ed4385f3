"""What a turn may hold is the same whatever else is in it; a value beyond costs the turn, not the session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dataspace
from dataspace import Record, Refused
from dataspace.wire.outgoing import FACT_DEPTH
from index.values.values import Map, Value
from server.config.model import Limits

pytestmark = pytest.mark.slow

NESTS: dict[str, Callable[[Value], Value]] = {
    "records": lambda inner: Record("r", inner),
    "sequences": lambda inner: (inner,),
    "maps": lambda inner: Map({"k": inner}),
    "other maps": lambda inner: Map([(1, inner)]),
}


def _nested(kind: str, levels: int) -> Value:
    value: Value = 1
    for _ in range(levels):
        value = NESTS[kind](value)
    return value


@pytest.mark.parametrize("kind", list(NESTS))
@pytest.mark.parametrize("beside", ["", "x" * 300_000], ids=["alone", "beside a long text"])
async def test_facts_of_the_greatest_depth_are_taken_and_one_level_more_is_refused(
    url: str, kind: str, beside: str
) -> None:
    async with dataspace.connect(url) as space:
        async with space.turn() as turn:
            turn.assert_(_nested(kind, FACT_DEPTH))
            turn.assert_(Record("beside", beside))
        assert await space.matches("beside($)") == [(beside,)]
        with pytest.raises(Refused, match=f"more than {FACT_DEPTH} levels"):
            async with space.turn() as turn:
                turn.assert_(_nested(kind, FACT_DEPTH + 1))
                turn.assert_(Record("beside", beside))
        await space.assert_(Record("after"))
        assert space.reconnects == 0


@pytest.mark.parametrize(
    "limits",
    [Limits(frame_bytes=18_000), Limits(frame_elements=20_000)],
    ids=["bytes", "elements"],
)
async def test_a_draft_is_cut_into_turns_that_are_taken(url: str, limits: Limits) -> None:
    async with dataspace.connect(url) as space:
        draft = space.draft()
        for n in range(3_000):
            draft.assert_(Record("n", n, "x" * 20))
        with pytest.raises(Refused):
            await space.commit(draft)
        parts = space.cut(draft)
        assert len(parts) > 1
        assert [action for part in parts for action in part.actions] == draft.actions
        for part in parts:
            await space.commit(part)
        assert sorted(await space.matches("n($)")) == [(n,) for n in range(3_000)]
        assert space.cut(parts[0]) == [parts[0]]


async def test_a_draft_with_an_action_beyond_every_turn_is_not_cut(url: str) -> None:
    async with dataspace.connect(url) as space:
        for value in (Record("big", "x" * 5_000_000), _nested("records", FACT_DEPTH + 1)):
            draft = space.draft()
            draft.send(Record("first"))
            draft.send(value)
            with pytest.raises(Refused, match=r"frame_bytes|levels"):
                space.cut(draft)
