"""A turn that comes again is answered with what became of it, and the session does not wait for that."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.wire import packets as p
from server.connections.dispatch import ClientPeer
from server.owners.turn_numbers import WINDOW
from server.sessions import requests
from server.sessions.peer import PEERS
from tests.server.peers import Peer, fact, turn
from tests.server.streams.inside import Inside, Wire, inside


async def _code(peer: Peer | Wire) -> str:
    refused = await peer.hear()
    assert isinstance(refused, p.Refusal), refused
    return refused.code


async def test_a_refused_turn_that_comes_again_after_a_later_one_was_not_applied(url: str) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(turn(1, (RETRACT, 7)), turn(2, (SEND, fact(1))), turn(5, (SEND, fact(2))))
        assert await _code(peer) == "unknown-handle"
        applied = [await peer.hear() for _ in range(2)]
        epochs = {each.first: each.epochs for each in applied if isinstance(each, p.Accepted)}
        for sequence, expected in ((1, None), (2, epochs[2]), (3, None), (4, None), (5, epochs[5])):
            await peer.say(turn(sequence, (SEND, fact(9))))
            if expected is None:
                assert await _code(peer) == "not-applied"
            else:
                assert await peer.hear() == p.Accepted(sequence, expected)


async def test_a_turn_without_effect_that_comes_again_is_answered_once_it_is_on_disk(tmp_path: Path) -> None:
    """It has the number of the epoch before, which is there already."""
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        await wire.greet("me")
        await wire.say(turn(1, (ASSERT, 1, fact(1))))
        assert isinstance(await wire.hear(), p.Accepted)
        daemon.hold()
        await wire.say(turn(2, (ASSERT, 2, fact(1))), turn(2, (ASSERT, 2, fact(1))), p.Ping(1))
        assert await wire.hear() == p.Pong(1)
        daemon.release()
        assert [type(await wire.hear()) for _ in range(2)] == [p.Accepted, p.Accepted]


async def _many_turns(wire: Wire, newest: int) -> None:
    """All applied but every third one, which is refused."""
    for begin in range(1, newest + 1, 500):
        some = range(begin, min(begin + 500, newest + 1))
        await wire.say(*[turn(at, (RETRACT, 7) if at % 3 == 0 else (SEND, fact(at))) for at in some])
        answered = 0
        while answered < len(some):
            heard = await wire.hear()
            answered += len(heard.epochs) if isinstance(heard, p.Accepted) else 1


def _answers(heard: list[p.Packet | None]) -> dict[int, str]:
    told: dict[int, str] = {}
    for each in heard:
        if isinstance(each, p.Accepted):
            told |= dict.fromkeys(range(each.first, each.first + len(each.epochs)), "applied")
        elif isinstance(each, p.Refusal):
            told[each.sequence] = each.code
    return told


@pytest.mark.slow
async def test_turns_that_only_the_log_remembers_do_not_hold_the_session_up(tmp_path: Path) -> None:
    newest = 2 * WINDOW + 1200
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        await wire.greet("me")
        await _many_turns(wire, newest)
        assert daemon.hosted.clients.get("me").epoch_of(100) is None, "it is not remembered"
        old = range(1, 1001)
        async with daemon.daemon.lane.work("another"):  # others work
            await wire.say(*[turn(at, (SEND, fact(at))) for at in old])
            await wire.say(p.Ping(1), turn(newest + 2, (ASSERT, 1, fact(0))), p.Ping(2))
            with trio.fail_after(30):
                later = [await wire.hear() for _ in range(3)]
        assert {type(each) for each in later} == {p.Pong, p.Accepted}
        assert _answers(later) == {newest + 2: "applied"}
        heard = [await wire.hear() for _ in old]
        assert _answers(heard) == {at: "not-applied" if at % 3 == 0 else "applied" for at in old}


@pytest.mark.slow
async def test_old_turns_that_wait_are_bounded_and_all_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MOST_OLD_TURNS", 10)
    newest = 2 * WINDOW + 1200
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        await wire.greet("me")
        await _many_turns(wire, newest)
        old = range(1, 101)
        async with daemon.daemon.lane.work("another"):
            await wire.say(*[turn(at, (SEND, fact(at))) for at in old], p.Ping(1))
            await _settle(daemon)
            connection = daemon.daemon.parts[PEERS][1]
            assert isinstance(connection, ClientPeer) and connection._old_turns is not None
            assert len(connection._old_turns._wanted) <= 10
        heard = [await wire.hear() for _ in range(len(old) + 1)]
        assert _answers(heard) == {at: "not-applied" if at % 3 == 0 else "applied" for at in old}


async def _settle(daemon: Inside) -> None:
    """Until the session waits."""
    while daemon.daemon.lane.statistics().waiting < 1:
        await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()


async def test_a_daemon_that_was_started_again_knows_what_was_applied(tmp_path: Path) -> None:
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        await wire.greet("me")
        await _many_turns(wire, 10)
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        assert (await wire.greet("me")).sequence == 10
        await wire.say(*[turn(at, (SEND, fact(at))) for at in range(1, 11)])
        heard = [await wire.hear() for _ in range(10)]
        assert _answers(heard) == {at: "not-applied" if at % 3 == 0 else "applied" for at in range(1, 11)}
