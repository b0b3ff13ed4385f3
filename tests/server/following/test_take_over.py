"""A stand-by leads once its leader has ended: no acknowledged turn is lost, and no fact blinks."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.wire import packets as p
from dataspace.wire.features import Granted
from tests.server.peers import Peer, fact, turn
from tests.server.processes import DaemonProcess, follower, running, stand_by
from tests.server.successions import witnessed

pytestmark = pytest.mark.slow

SOON = 60
TAKE_OVERS = 10 if "TORTURE_ROUNDS" in os.environ else 4


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    daemons = DaemonProcess(tmp_path / "data"), stand_by(tmp_path / "data")
    with running(*daemons):
        yield daemons


@pytest.fixture
def third(pair: tuple[DaemonProcess, DaemonProcess]) -> Iterator[DaemonProcess]:
    """A daemon that only follows."""
    daemon = follower(pair[0].data)
    with running(daemon):
        yield daemon


@pytest.mark.torture
async def test_leaders_are_killed_one_after_the_other(
    pair: tuple[DaemonProcess, DaemonProcess], third: DaemonProcess
) -> None:
    first, second = pair
    with trio.fail_after(SOON * 2):
        async with witnessed([first.url, second.url], [third.url]) as witness:
            leader, other = first, second
            for _ in range(TAKE_OVERS):
                await trio.sleep(0.05)
                await trio.to_thread.run_sync(leader.kill)
                await witness.answered()
                leader.more = second.more  # it stands by from now on
                await trio.to_thread.run_sync(leader.start)
                leader, other = other, leader


async def test_a_session_with_grace_that_a_stand_by_began_has_it_once_that_leads(
    pair: tuple[DaemonProcess, DaemonProcess],
) -> None:
    first, second = pair
    with trio.fail_after(SOON):
        async with (
            dataspace.connect(second.url, grace=30) as writer,
            dataspace.connect(second.url, grace=30) as observer,
        ):
            assert await writer.matches("here($x)") == await observer.matches("here($x)") == []
            await trio.to_thread.run_sync(first.kill)
            while not (await writer.status())["leads"]:  # noqa: ASYNC110  # what another process does
                await trio.sleep(0.01)
            await writer.assert_(Record("here", 1))
            async with observer.observe("here($x)") as seen:
                assert await seen.next_epoch() is not None
            for each in (writer, observer):
                assert each._session.welcome is not None
                granted = Granted.read(each._session.welcome.features)
                assert granted.grace == 30 and granted.secret


async def test_a_leader_that_is_only_stopped_stays_the_leader(
    pair: tuple[DaemonProcess, DaemonProcess],
) -> None:
    first, second = pair
    with trio.fail_after(SOON):
        async with dataspace.connect(first.url, owner="map") as space:
            await space.assert_(Record("here", 1))
        first.process.send_signal(signal.SIGSTOP)
        async with dataspace.connect(second.url, read="leader") as reader:
            await trio.sleep(0.7)
            status = await reader.status()
            assert await reader.matches("here($x)") == [(1,)]
        first.process.send_signal(signal.SIGCONT)
        async with dataspace.connect([second.url, first.url], owner="map") as space:
            await space.assert_(Record("here", 2))
            assert (await space.status())["process"] == first.process.pid
        assert status["process"] == second.process.pid


async def test_after_an_orderly_end_the_stand_by_leads_as_well(
    pair: tuple[DaemonProcess, DaemonProcess],
) -> None:
    first, second = pair
    with trio.fail_after(SOON):
        async with dataspace.connect([first.url, second.url], owner="map") as space:
            await space.assert_(Record("here", 1))
            await trio.to_thread.run_sync(first.stop)
            await space.assert_(Record("here", 2))
            status = await space.status()
            assert status["process"] == second.process.pid
            assert status["show"] == "durable", "before any follower has said so"
            assert sorted(await space.matches("here($x)")) == [(1,), (2,)]


async def test_a_connection_that_began_at_a_follower_gets_no_turn_through(
    pair: tuple[DaemonProcess, DaemonProcess],
) -> None:
    """Turns are on their way while the stand-by takes over: the first refused, and the rest applied.

    And a client whose connection breaks there may have been told too low a number by its welcome.
    """
    first, second = pair
    plain = turn(1, (SEND, fact(1)))
    with trio.fail_after(SOON):
        async with Peer(second.url) as early, Peer(second.url) as patient:
            await early.greet("~early")
            await patient.greet("~patient")
            for each in (plain, plain._replace(expected=((0, fact(1)),))):
                await early.say(each)
                refusal = await early.hear()
                assert isinstance(refusal, p.Refusal) and refusal.code in ("elsewhere", "no-leader")
            await trio.to_thread.run_sync(first.kill)
            async with dataspace.connect(second.url) as space:
                await space.send(fact(0))
            for each in (
                turn(2, (SEND, fact(2))),
                turn(3, (SEND, fact(3)))._replace(expected=((0, fact(3)),)),
            ):
                await early.say(each)
                refusal = await early.hear()
                assert isinstance(refusal, p.Refusal), "it would be applied, and the one before was not"
                assert (refusal.code, refusal.url) == ("elsewhere", second.url)
            await patient.say(plain)
            refusal = await patient.hear()
            assert isinstance(refusal, p.Refusal) and (refusal.code, refusal.url) == ("elsewhere", second.url)


async def test_a_follower_accepts_no_turn_that_its_copy_has(
    pair: tuple[DaemonProcess, DaemonProcess],
) -> None:
    """What it has read may be lost by a database that had not confirmed it: the leader answers."""
    first, second = pair
    again = turn(1, (ASSERT, 1, fact(1)))
    with trio.fail_after(SOON):
        async with Peer(first.url) as peer, Peer(second.url) as late:
            await peer.greet("writer")
            await peer.say(again)
            assert isinstance(await peer.hear(), p.Accepted)
            async with dataspace.connect(second.url, read="any") as reader:
                assert await reader.first("fact($x)") == (1,)
            await late.greet("writer")
            await late.say(again)
            refusal = await late.hear()
            assert isinstance(refusal, p.Refusal) and (refusal.code, refusal.url) == ("elsewhere", first.url)
