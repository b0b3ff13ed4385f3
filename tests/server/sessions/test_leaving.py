"""Clients that leave in the same moment leave together; what each owned is gone when it is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace.kernel.actions import ASSERT
from dataspace.wire import packets as p
from index.values.values import Value
from server.sessions.peer import PEERS
from server.spaces.endings import Departures
from tests.server.peers import Peer, fact, opening, turn
from tests.server.streams.inside import inside

MANY = 16


def _close(peer: Peer) -> None:
    """Closes a socket at once, as the system does for a process that was killed."""
    peer.socket.socket.close()


async def _here(url: str, held: AsyncExitStack, count: int, *, observing: bool = False) -> list[Peer]:
    """Returns so many peers, each with two facts, and perhaps an interest."""
    peers = []
    for n in range(count):
        peer = await held.enter_async_context(Peer(url))
        await peer.greet(f"~leaving {n}")
        if observing:
            await peer.say(opening(pattern=fact(n), quiet=False))
        await peer.say(turn(1, (ASSERT, 1, fact(2 * n)), (ASSERT, 2, fact(2 * n + 1))))
        while not isinstance(await peer.hear(), p.Accepted):
            pass
        peers.append(peer)
    return peers


def _rows(state: p.Values) -> tuple[Value, ...]:
    """Returns the rows of a state."""
    (changes,) = state.values
    assert isinstance(changes, tuple)
    rows = changes[3]
    assert isinstance(rows, tuple)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("observing", [False, True])
@pytest.mark.parametrize("leave", [_close, Peer.reset])
async def test_all_that_are_killed_together_are_gone_in_few_epochs(
    url: str, leave: Callable[[Peer], None], observing: bool
) -> None:
    async with AsyncExitStack() as held, dataspace.connect(url) as watching:
        peers = await _here(url, held, MANY, observing=observing)
        async with watching.observe("fact($n)", quiet=True) as observation:
            state = await observation.next_epoch()
            assert state is not None and len(state) == 2 * MANY
            for peer in peers:
                leave(peer)
            gone: list[list[int]] = []
            while sum(map(len, gone)) < 2 * MANY:
                epoch = await observation.next_epoch()
                assert epoch is not None and not epoch.added
                gone.append([n for (n,) in epoch.removed if isinstance(n, int)])
        assert sorted(n for some in gone for n in some) == [*range(2 * MANY)]
        assert len(gone) <= MANY // 4
        assert all({n ^ 1 for n in some} == {*some} for some in gone), "a session has ended in two turns"


async def test_a_goodbye_is_answered_once_the_facts_are_gone(url: str) -> None:
    async with AsyncExitStack() as held:
        watching = await held.enter_async_context(Peer(url))
        await watching.greet("~watching")
        for n, peer in enumerate(await _here(url, held, 5), 1):
            await peer.say(p.Bye("", ""))
            assert await peer.rest() == [p.Bye("", "")]
            await watching.say(opening(n))
            while not isinstance(state := await watching.hear(), p.Values):
                pass
            assert len(_rows(state)) == 2 * (5 - n)
            await watching.say(p.Abort(n, "", True))
            assert await watching.hear() == p.Done(n)


async def test_what_comes_after_a_goodbye_is_not_acted_on(url: str) -> None:
    async with Peer(url) as watching, Peer(url) as peer:
        await peer.greet()
        await peer.say(p.Bye("", ""), turn(1, (ASSERT, 1, fact(1))), p.Ping(3))
        assert await peer.rest() == [p.Bye("", "")]
        await watching.greet("~watching")
        await watching.say(opening())
        state = await watching.hear()
        assert isinstance(state, p.Values)
        assert _rows(state) == ()


async def test_a_client_that_comes_back_as_the_same_finds_its_facts_gone(url: str) -> None:
    async with AsyncExitStack() as held:
        (first,) = await _here(url, held, 1)
        again = await held.enter_async_context(Peer(url))
        with trio.fail_after(10):
            welcome = await again.greet("~leaving 0")
            assert welcome.epoch == 2
            assert (await first.farewell()).code == "superseded"


async def test_a_session_ends_whose_connection_is_cancelled_while_it_waits_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside(tmp_path) as daemon:
        wire, hosted = daemon.connect(), daemon.hosted
        await wire.greet()
        await wire.say(turn(1, (ASSERT, 1, fact(1))))
        assert isinstance(await wire.hear(), p.Accepted)
        (connection,) = daemon.daemon.parts[PEERS].values()
        soon = Departures.soon

        def end_and_cancel(departures: Departures, owners: Sequence[str]) -> None:
            soon(departures, owners)
            connection.cancel()

        monkeypatch.setattr(Departures, "soon", end_and_cancel)
        wire.link.close()
        with trio.fail_after(10):
            await connection.tasks.ended.wait()
        assert not len(hosted.space.index)
