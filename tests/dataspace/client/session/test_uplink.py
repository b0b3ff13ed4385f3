"""A connection is made again when it is lost; its user is told of each welcome, packet and loss in order."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from dataspace.client.session.uplink import Uplink
from dataspace.errors import Broken, Closed, DataspaceError, ProtocolError, Unreachable
from dataspace.wire import packets as p
from dataspace.wire.features import Granted
from index.values.values import Map
from tests.dataspace.client.pipes import ADDRESS, CREDENTIALS, Daemon

Clock = trio.testing.MockClock


class User:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.said: list[object] = []
        self.error: DataspaceError | None = None
        self.gone = trio.Event()

    def hello(self) -> p.Hello:
        return p.Hello(p.VERSION, "~me", "me", Map())

    def is_behind(self, welcome: p.Welcome) -> bool:
        return False

    def welcomed(self, welcome: p.Welcome) -> None:
        self.said.append(("welcomed", welcome.epoch))

    def received(self, packet: p.Packet, size: int) -> None:
        assert size > 0
        self.said.append(packet)

    def lost(self, error: Broken, reason: str) -> None:
        assert reason in str(error)
        self.said.append(("lost", reason))
        self.gone.set()

    def ended(self, error: DataspaceError) -> None:
        assert self.error is None, "told once"
        self.error = error


@asynccontextmanager
async def running(
    daemon: Daemon, user: User, granted: Granted | None = None, *, reconnect: bool = True
) -> AsyncIterator[Uplink]:
    """An uplink that is connected, and stopped at the end of the block."""
    uplink = Uplink([ADDRESS], user, CREDENTIALS, reconnect=reconnect, dial=daemon.dial)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: daemon.greet(granted=granted))
        await nursery.start(uplink.run)
        yield uplink
        nursery.cancel_scope.cancel()


async def test_packets_come_in_order_however_they_are_cut() -> None:
    daemon, user = Daemon(), User()
    async with running(daemon, user) as uplink:
        data = b"".join(daemon.session.send(p.Reached(n, (n,))) for n in range(20))
        for at in range(len(data)):
            daemon.end.send_nowait(data[at : at + 1])
            if at % 7 == 0:
                await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        assert user.said == [("welcomed", 0), *[p.Reached(n, (n,)) for n in range(20)]]
        assert uplink.up and uplink.reconnects == 0
    assert isinstance(user.error, Closed)
    assert (await daemon.hear(p.Bye)).code == ""


async def test_what_a_full_pipe_does_not_take_follows_in_order() -> None:
    daemon, user = Daemon(capacity=200), User()
    async with running(daemon, user) as uplink:
        for n in range(100):
            uplink.send(p.Request(n, "sync", Map()), at_once=n % 3 == 0)
        assert [(await daemon.hear(p.Request)).number for _ in range(100)] == list(range(100))


async def test_a_hello_that_a_full_pipe_does_not_take_at_once_comes_whole(autojump_clock: Clock) -> None:
    daemon, user = Daemon(capacity=5), User()
    uplink = Uplink([ADDRESS], user, CREDENTIALS, dial=daemon.dial)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(uplink.run)
        with trio.fail_after(60):
            assert await daemon.accept() == user.hello()
        nursery.cancel_scope.cancel()


async def test_a_lost_connection_is_made_again_and_nothing_is_sent_between(autojump_clock: Clock) -> None:
    daemon, user = Daemon(), User()
    async with running(daemon, user) as uplink:
        daemon.cut()
        await trio.testing.wait_all_tasks_blocked()
        assert uplink.send(p.Ping(7)) == 0, "there is no connection"
        await daemon.greet(epoch=5)
        await trio.testing.wait_all_tasks_blocked()
        assert daemon.heard_nothing()
        assert user.said == [("welcomed", 0), ("lost", "the daemon closed it"), ("welcomed", 5)]
        assert uplink.up and uplink.reconnects == 1


async def test_pauses_between_attempts_grow_to_some_seconds(autojump_clock: Clock) -> None:
    daemon, user = Daemon(), User()
    async with running(daemon, user) as uplink:
        daemon.refuses = lambda: Unreachable("nobody")
        daemon.cut()
        await trio.sleep(60)
        gaps = [after - before for before, after in zip(daemon.dialled[1:], daemon.dialled[2:], strict=False)]
        assert 9 < len(gaps) < 40 and gaps[0] < 0.5 and all(2 <= gap <= 6 for gap in gaps[7:])
        daemon.refuses = None
        await daemon.greet()
        await uplink.wait_up()
        assert uplink.reconnects == 1, "attempts are not counted"


async def test_while_only_followers_answer_a_client_is_back_within_a_part_of_the_time_lost(
    autojump_clock: Clock,
) -> None:
    daemon, user = Daemon(), User()
    async with running(daemon, user):
        await trio.sleep(10)
        lost = trio.current_time()
        daemon.refuses = lambda: ProtocolError("no-leader", "", "")
        daemon.cut()
        await trio.sleep(60)
        tried = [at - lost for at in daemon.dialled[1:]]
        gaps = [(before, after - before) for before, after in itertools.pairwise(tried)]
        assert all(gap <= max(0.16, 0.24 * before) for before, gap in gaps), gaps
        assert len(gaps) < 60
        daemon.refuses = lambda: ProtocolError("limit", "full", "")
        await trio.sleep(10)
        crowded = len(daemon.dialled)
        await trio.sleep(60)
        assert len(daemon.dialled) - crowded < 31, "a full daemon is left alone for longer"
        daemon.refuses = None


@pytest.mark.parametrize(
    ("code", "stays"), [("timeout", True), ("stalled", True), ("", True), ("superseded", False)]
)
async def test_a_goodbye_says_whether_to_come_back(autojump_clock: Clock, code: str, stays: bool) -> None:
    daemon, user = Daemon(), User()
    ended = pytest.RaisesGroup(ProtocolError, flatten_subgroups=True) if not stays else trio.CancelScope()
    with ended:
        async with running(daemon, user):
            daemon.say(p.Bye(code, "away with you"))
            daemon.end.close()
            if stays:
                await daemon.greet(epoch=1)
                await trio.testing.wait_all_tasks_blocked()
                assert user.said[-1] == ("welcomed", 1)
            else:
                await trio.sleep_forever()
    assert isinstance(user.error, Closed if stays else ProtocolError)


async def test_without_reconnecting_it_ends_with_the_loss() -> None:
    daemon, user = Daemon(), User()
    async with running(daemon, user, reconnect=False) as uplink:
        daemon.cut()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(user.error, Broken) and len(daemon.dialled) == 1
        await uplink.wait_up()  # for good


async def test_a_silent_daemon_is_lost_after_two_intervals_and_hears_pings_before(
    autojump_clock: Clock,
) -> None:
    daemon, user = Daemon(), User()
    async with running(daemon, user, Granted(heartbeat=10.0)):
        began = trio.current_time()
        assert await daemon.hear(p.Ping) == p.Ping(0)
        assert trio.current_time() - began == pytest.approx(10.0)
        await daemon.greet()
        assert trio.current_time() - began == pytest.approx(20.0)
        assert user.said[1] == ("lost", "no data for 20 s")


async def test_bytes_that_a_lost_connection_did_not_take_keep_nothing_busy(autojump_clock: Clock) -> None:
    daemon, user = Daemon(capacity=200), User()
    async with running(daemon, user, Granted(heartbeat=10.0)) as uplink:
        for n in range(100):
            uplink.send(p.Request(n, "sync", Map()))
        daemon.refuses = lambda: Unreachable("nobody")
        await user.gone.wait()
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        assert not uplink.up
        assert trio.lowlevel.current_statistics().tasks_runnable == 0, "a task runs again and again"


async def test_a_daemon_that_is_heard_in_time_is_not_lost(autojump_clock: Clock) -> None:
    daemon, user = Daemon(), User()
    async with running(daemon, user, Granted(heartbeat=10.0)) as uplink:
        for n in range(10):
            await trio.sleep(19)
            daemon.say(p.Pong(n))
            await trio.testing.wait_all_tasks_blocked()
        assert uplink.up and uplink.reconnects == 0


async def test_bytes_that_are_delayed_are_not_lost(autojump_clock: Clock) -> None:
    daemon, user = Daemon(), User()
    async with running(daemon, user):
        daemon.end.other.held = True
        daemon.say(p.Reached(1, (1,)))
        await trio.sleep(100)
        assert user.said == [("welcomed", 0)]
        daemon.end.other.release()
        await trio.testing.wait_all_tasks_blocked()
        assert user.said[-1] == p.Reached(1, (1,))


async def test_a_daemon_that_breaks_the_protocol_is_left_and_tried_again(autojump_clock: Clock) -> None:
    daemon, user = Daemon(), User()
    async with running(daemon, user):
        daemon.end.send_nowait(b"\x00\x00\x00\x01\xc1")
        await trio.testing.wait_all_tasks_blocked()
        assert str(user.said[-1]).startswith("('lost', 'the daemon broke the protocol: ")
        await daemon.greet()


async def test_the_first_connection_must_succeed() -> None:
    daemon, user = Daemon(), User()
    daemon.refuses = lambda: Unreachable("nobody")
    with pytest.RaisesGroup(Unreachable, flatten_subgroups=True):
        async with running(daemon, user):
            raise AssertionError("it is not there")
    assert isinstance(user.error, Closed) and not user.said
