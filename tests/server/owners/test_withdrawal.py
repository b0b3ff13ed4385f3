"""What an owner claims can be retracted by pattern: that owner's claims, what matches, and nothing else."""

from __future__ import annotations

import pytest

import dataspace
from dataspace import Record, Refused, RemoteSpace
from index.patterns.text import parse_pattern
from index.values.values import Map, Value
from server.turns.claims import TURN


async def withdraw(space: RemoteSpace, owner: str, pattern: str) -> tuple[Value, tuple[Value, ...]]:
    answer = await space.request("withdraw", Map({"owner": owner, "pattern": parse_pattern(pattern)}))
    assert isinstance(answer, Map) and isinstance(answer["epochs"], tuple)
    return answer["retracted"], answer["epochs"]


async def held(space: RemoteSpace, pattern: str) -> list[str]:
    return sorted(str(row[0]) for row in await space.matches(pattern))


async def test_what_matches_goes_whichever_handle_it_has(url: str) -> None:
    async with dataspace.connect(url, owner="me") as me, dataspace.connect(url, owner="you") as you:
        await me.assert_(Record("task", 1, "open"))
        for number in (2, 3):
            await me.assert_(Record("task", number, "done"))
        await you.assert_(Record("task", 3, "done"))
        await you.assert_(Record("task", 4, "done"))
        count, epochs = await withdraw(me, "me", 'task(_, "done")')
        assert (count, len(epochs)) == (2, 1)
        assert await held(you, "task($n, _)") == ["1", "3", "4"], "of you there is all"
        assert await withdraw(me, "me", 'task(_, "done")') == (0, ())
        assert await withdraw(you, "you", "task(3, _)") == (1, (await you.sync(),))
        assert await held(you, "task($n, _)") == ["1", "4"]


async def test_a_fact_that_is_claimed_twice_is_retracted_twice(url: str) -> None:
    async with dataspace.connect(url, owner="me") as me:
        for _ in range(2):
            await me.assert_(Record("twice"))
        assert (await withdraw(me, "me", "twice()"))[0] == 2
        assert await me.matches("$") == []


async def test_a_lease_is_withdrawn_from_by_its_bearer_while_it_lasts(url: str) -> None:
    async with dataspace.connect(url, lease=60.0) as leased, dataspace.connect(url) as other:
        await leased.assert_(Record("kept", 1))
        await leased.assert_(Record("gone", 1))
        assert (await withdraw(other, leased.owner, "gone(_)"))[0] == 1
        assert (await held(other, "gone($n)"), await held(other, "kept($n)")) == ([], ["1"])
    async with dataspace.connect(url) as other:
        with pytest.raises(Refused, match="no-lease"):
            await withdraw(other, leased.owner, "kept(_)")


async def test_nothing_else_is_an_owner(url: str) -> None:
    async with dataspace.connect(url) as space:
        await space.assert_(Record("mine", 1))
        for owner in ("", "lease:1"):
            with pytest.raises(Refused):
                await withdraw(space, owner, "mine(_)")
        with pytest.raises(Refused, match="bad-request"):
            await space.request("withdraw", Map({"owner": "me"}))
        assert await held(space, "mine($n)") == ["1"]


@pytest.mark.slow
async def test_very_much_goes_in_several_turns(url: str) -> None:
    async with dataspace.connect(url, owner="me") as me:
        many = me.draft()
        for number in range(TURN + 1):
            many.assert_(Record("n", number))
        await me.commit(many)
        count, epochs = await withdraw(me, "me", "n(_)")
        assert (count, len(epochs)) == (TURN + 1, 2)
        assert await me.matches("$") == []
