"""Clients of one daemon share a room of facts: through real sockets, the real client and a real log."""

from __future__ import annotations

import pytest
import trio

import dataspace
from dataspace import EpochChanges, Record, Refused, Unreachable, UsageError
from dataspace.values import literal
from index.values.values import Map, Value


def present(who: str) -> Record:
    return Record("present", who)


def rows(epoch: EpochChanges | None) -> tuple[list[Value], list[Value], list[Value]]:
    assert epoch is not None
    return (
        sorted(row[0] for row in epoch.added),  # type: ignore[type-var]  # text in these tests
        [row[0] for row in epoch.messages],
        sorted(row[0] for row in epoch.removed),  # type: ignore[type-var]  # as above
    )


async def test_an_observer_is_told_the_state_and_then_every_change(url: str) -> None:
    async with dataspace.connect(url) as writer, dataspace.connect(url) as reader:
        alice = await writer.assert_(present("Alice"))
        async with reader.observe("present($who)") as observation:
            state = await observation.next_epoch()
            assert state is not None and state.snapshot
            assert rows(state) == (["Alice"], [], [])
            bob = await writer.assert_(present("Bob"))
            assert rows(await observation.next_epoch()) == (["Bob"], [], [])
            await writer.send(present("a message"))
            assert rows(await observation.next_epoch()) == ([], ["a message"], [])
            await writer.retract(alice)
            assert rows(await observation.next_epoch()) == ([], [], ["Alice"])
            await writer.replace(bob, present("Carol"))
            assert rows(await observation.next_epoch()) == (["Carol"], [], ["Bob"])


async def test_a_turn_is_one_epoch_in_the_documented_order(url: str) -> None:
    async with dataspace.connect(url) as space:
        old = await space.assert_(present("old"))
        async with space.observe("present($who)", snapshot=False) as observation:
            async with space.turn() as turn:
                turn.retract(old)
                turn.send(present("said"))
                turn.assert_(present("new"))
            kinds = [(await anext(observation)) for _ in range(3)]
    assert [(change.kind, change.who) for change in kinds] == [("+", "new"), ("!", "said"), ("-", "old")]
    assert {change.epoch for change in kinds} == {turn.epoch}


async def test_a_refused_turn_leaves_no_trace(url: str) -> None:
    async with dataspace.connect(url) as space:
        kept = await space.assert_(present("kept"))
        before = await space.sync()
        draft = space.draft()
        draft.assert_(present("never"))
        draft.retract(kept)
        draft.retract(999)
        with pytest.raises(Refused, match="unknown-handle: handle 999"):
            await space.commit(draft)
        assert await space.matches("present($who)") == [("kept",)]
        assert await space.sync() == before
        await space.retract(kept)


async def test_what_two_claim_goes_with_the_last(url: str) -> None:
    async with dataspace.connect(url) as one, dataspace.connect(url) as two:
        async with two.observe("present($who)") as observation:
            await observation.next_epoch()
            mine = await one.assert_(present("Alice"))
            yours = await two.assert_(present("Alice"))
            assert rows(await observation.next_epoch()) == (["Alice"], [], [])
            await one.retract(mine)
            await two.retract(yours)
            assert rows(await observation.next_epoch()) == ([], [], ["Alice"])


async def test_the_facts_of_a_session_go_with_it_in_one_turn(url: str) -> None:
    async with dataspace.connect(url) as reader, reader.observe("present($who)") as observation:
        await observation.next_epoch()
        async with dataspace.connect(url) as writer:
            await writer.assert_(present("Alice"))
            await writer.assert_(present("Bob"))
            await observation.next_epoch()
            await observation.next_epoch()
        assert rows(await observation.next_epoch()) == ([], [], ["Alice", "Bob"])


@pytest.mark.parametrize(("client", "turns"), [("", 0), ("the clock", 1)])
async def test_durable_facts_stay(url: str, client: str, turns: int) -> None:
    async with dataspace.connect(url, owner="the clock", client=client) as writer:
        alice = await writer.assert_(present("Alice"))
    async with dataspace.connect(url, owner="the clock", client=client) as again:
        assert again.sequence == turns, "turns are numbered by the identity, which an owner does not give"
        assert await again.matches("present($who)") == [("Alice",)]
        bob = await again.assert_(present("Bob"))
        assert bob.handle != alice.handle
        await again.retract(alice)
        assert await again.matches("present($who)") == [("Bob",)]


async def test_interest_is_a_fact_unless_it_is_quiet(url: str) -> None:
    async with dataspace.connect(url) as one, dataspace.connect(url) as two:
        async with one.observe("Observe(present(_))", quiet=True) as interests:
            state = await interests.next_epoch()
            assert state is not None and len(state) == 0
            async with two.observe("present($who)") as observation:
                await observation.next_epoch()
                appeared = await interests.next_epoch()
                assert appeared is not None and [*appeared.added] == [()]
            vanished = await interests.next_epoch()
            assert vanished is not None and [*vanished.removed] == [()]


async def test_types_are_told_apart_all_the_way(url: str) -> None:
    things: list[Value] = [1, 1.0, True, "1", b"1", None, (1,), Map({"k": 1}), 2**70, float("nan"), -0.0, 0.0]
    async with dataspace.connect(url) as space:
        async with space.turn() as turn:
            for thing in things:
                turn.assert_(Record("thing", thing))
        found = await space.matches("thing($what)")
        assert sorted(map(repr, found)) == sorted(repr((thing,)) for thing in things)
        assert await space.matches("thing(1)") == [()]


async def test_an_observation_may_begin_at_an_epoch_of_the_past(url: str) -> None:
    async with dataspace.connect(url) as space:
        claims = [await space.assert_(present(f"n{n}")) for n in range(5)]
        second = 2
        await space.retract(claims[0])
        async with space.observe("present($who)", after=second, quiet=True) as observation:
            seen = [rows(await observation.next_epoch()) for _ in range(4)]
            assert seen == [(["n2"], [], []), (["n3"], [], []), (["n4"], [], []), ([], [], ["n0"])]
            await space.assert_(present("later"))
            assert rows(await observation.next_epoch()) == (["later"], [], [])
        async with space.observe("present($who)", after=0, upto=3, quiet=True) as bounded:
            whole = [rows(epoch) async for epoch in bounded.epochs()]
        assert whole == [(["n0"], [], []), (["n1"], [], []), (["n2"], [], [])]


async def test_replay_and_live_join_without_gap_or_double(url: str) -> None:
    """While one client writes, others begin at every epoch of the past and all see the same."""
    async with dataspace.connect(url) as writer, dataspace.connect(url) as reader:
        seen: dict[int, list[int]] = {}

        async def follow(after: int) -> None:
            async with reader.observe("tick($n)", after=after, quiet=True) as observation:
                async for change in observation:
                    seen.setdefault(after, []).append(change.n)  # type: ignore[arg-type]  # a number
                    if change.n == 199:
                        return

        async with trio.open_nursery() as nursery:
            for n in range(200):
                draft = writer.draft()
                draft.send(Record("tick", n))
                ticket = await writer.submit(draft)
                if n % 10 == 0:
                    await ticket.wait()  # so that the epoch to begin at is there
                    nursery.start_soon(follow, n // 2)
        for after, ticks in seen.items():
            assert ticks == list(range(after, 200))
        assert len(seen) == 20


async def test_an_epoch_that_is_not_there_is_refused(url: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(Refused, match="epoch-ahead"):
            await anext(space.observe("present($who)", after=1000))


async def test_a_large_state_arrives_whole(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.turn() as turn:
            for n in range(10_000):
                turn.assert_(Record("n", n))
        assert len(await space.matches("n($)")) == 10_000
        async with space.observe("n($)", after=0, quiet=True) as observation:
            epoch = await observation.next_epoch()
            assert epoch is not None and len(epoch) == 10_000 and epoch.number == turn.epoch


async def test_nobody_there_is_said_with_what_to_do() -> None:
    with pytest.raises(Unreachable, match=r"start one with: dataspace serve --listen tcp:127\.0\.0\.1:1"):
        async with dataspace.connect("tcp://127.0.0.1:1"):
            pass


async def test_an_error_in_the_block_leaves_as_it_is(url: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with dataspace.connect(url):
            1 / 0  # noqa: B018  # raises


@pytest.mark.parametrize("verb", ["assert_", "send", "replace"])
async def test_text_that_reads_as_a_record_is_refused_unless_it_is_meant(url: str, verb: str) -> None:
    text = 'present("Alice")'

    async def say(space: dataspace.RemoteSpace, value: object) -> None:
        before = [await space.assert_(present("before"))] if verb == "replace" else []
        await getattr(space, verb)(*before, value)

    async with dataspace.connect(url) as space, space.observe("$all", snapshot=False, quiet=True) as heard:
        with pytest.raises(UsageError, match="is text, though it reads as a record"):
            await say(space, text)
        with pytest.raises(UsageError, match="is text, though it reads as a record"):
            async with space.turn() as turn:
                turn.send("it is not sent either")
                getattr(turn, verb)(*([0] if verb == "replace" else []), text)
        await say(space, literal(text))
        await space.send("done")
        values: list[Value] = []
        async for change in heard:
            if change.captures == ("done",):
                break
            values += change.captures
    assert [value for value in values if isinstance(value, str)] == [text]
