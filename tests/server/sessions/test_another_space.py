"""A client that comes back to another space applies nothing there that was meant for the one before."""

from __future__ import annotations

import pytest
import trio

import dataspace
from dataspace import AnotherSpace, ConnectionChange, ConnectionEvent, Record
from tests.server.proxies import Proxy
from tests.server.sessions.test_connection_events import Events


async def _back(events: Events) -> ConnectionEvent:
    while (event := await events.take()).change in (ConnectionChange.CONNECTED, ConnectionChange.LOST):
        pass
    return event


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"grace": 20.0}, {"lease": 20.0}, {"owner": "people"}],
    ids=lambda options: str([*options]),
)
async def test_turns_without_an_answer_are_not_applied_in_another_space(
    proxy: Proxy, other: str, options: dict[str, object]
) -> None:
    async with dataspace.connect(other, client="me", name="before") as space:
        for n in range(5):  # the other space has seen turns of these numbers
            await space.send(Record("old", n))
    events = Events()
    async with (
        dataspace.connect(other) as there,
        there.observe("kept($n)") as seen,
        dataspace.connect(proxy.url, client="me", on_connection=events, **options) as space,  # type: ignore[arg-type]  # as named above
    ):
        assert space.welcome is not None
        before = space.welcome.space
        kept = await space.assert_(Record("kept", 1))
        proxy.silent = True
        sent = [await space.submit(_turn(space, "sent", n)) for n in range(2)]
        await proxy.move_to(other, refusing=True)
        while (await events.take()).change is not ConnectionChange.LOST:
            pass
        held = await space.submit(_turn(space, "held", 1))
        proxy.refusing = False
        back = await _back(events)
        assert (back.change, back.before, back.turns) == (ConnectionChange.ANOTHER_SPACE, before, 3)
        assert "; 3 turns without an answer are not sent to it" in str(back)
        for ticket in (*sent, held):
            with pytest.raises(AnotherSpace, match=f"another space .* is {back.space}, and was {before}"):
                await ticket.wait()
        facts = [] if options == {"owner": "people"} else [(1,)]
        if facts:
            with trio.fail_after(10):
                assert (await anext(aiter(seen))).captures == facts[0]
            await space.replace(kept, Record("kept", 2))
        await space.send(Record("after", 1))
        assert await there.matches("sent($n)") == await there.matches("held($n)") == []
        assert len(await there.matches("kept($n)")) == len(facts)


def _turn(space: dataspace.RemoteSpace, label: str, n: int) -> dataspace.Draft:
    draft = space.draft()
    draft.assert_(Record(label, n))
    return draft


async def test_a_blocking_client_raises_the_same(proxy: Proxy, other: str, nursery: trio.Nursery) -> None:
    def hold() -> None:
        events: list[ConnectionEvent] = []
        with dataspace.connect_blocking(proxy.url, on_connection=events.append) as space:
            space.sync()
            trio.from_thread.run_sync(setattr, proxy, "silent", True)
            trio.from_thread.run_sync(nursery.start_soon, move)
            with pytest.raises(AnotherSpace, match=r"turn 1 .* lost"):
                space.assert_(Record("sent", 1))
            assert events[-1].change is ConnectionChange.ANOTHER_SPACE
            assert space.matches("sent($n)") == []
            space.assert_(Record("sent", 2))
            assert space.matches("sent($n)") == [(2,)]

    async def move() -> None:
        await proxy.move_to(other)

    await trio.to_thread.run_sync(hold)


async def test_a_publication_that_may_be_away_does_not_go_on_in_another_space(
    proxy: Proxy, other: str
) -> None:
    """Although a topic and a producer of the same names are there."""
    joined = {"partition": 0, "durable": True, "name": "p", "away": 60.0}
    async with dataspace.connect(other) as space:
        with pytest.raises(ZeroDivisionError):
            async with space.publish("t", **joined) as publication:  # type: ignore[arg-type]  # as named above
                await publication.send("old")
                await publication.flush()
                publication.crash = lambda _reason: None  # type: ignore[method-assign,assignment]  # it stays behind
                raise ZeroDivisionError
    events = Events()
    async with dataspace.connect(proxy.url, on_connection=events) as space:
        with pytest.raises(AnotherSpace):
            async with space.publish("t", **joined) as publication:  # type: ignore[arg-type]  # as named above
                await publication.flush()
                proxy.silent = True
                await publication.send("new")
                await proxy.move_to(other, refusing=True)
                while (await events.take()).change is not ConnectionChange.LOST:
                    pass
                proxy.refusing = False
                assert (await _back(events)).change is ConnectionChange.ANOTHER_SPACE
                await publication.flush()
