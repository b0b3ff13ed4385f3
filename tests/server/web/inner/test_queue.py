"""A route gets packets as they are, and values in batches that cost what their frames would."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from dataspace.errors import Broken, ProtocolError
from dataspace.transport.sockets import SocketLink
from dataspace.wire import packets as p
from dataspace.wire.frames import HEAD
from index.patterns.patterns import capture
from index.values.values import Record
from relay.delivery.outbox import OutStream
from relay.delivery.packed import Backlog
from server.sessions.flushing import Flushing, Surety
from server.sessions.peer import PEERS, Peer
from server.sessions.sending import SendQueue
from server.web.inner import Caller, EventBatch, RouteDoor, RouteQueue, decoded, inner_session
from tests.server.streams.inside import inside

NUMBERS = st.integers(1, 2**53) | st.integers(1, 300)


class Waiting:
    """A backlog of so many values."""

    used = 1
    failure = None

    def __init__(self, left: int) -> None:
        self.left = left

    def __len__(self) -> int:
        return self.left

    def take_packed(self, count: int, _size: int) -> tuple[int, bytes]:
        taken = min(count, self.left, 2)
        self.left -= taken
        return taken, b"\x01\x02"[:taken]


class Shared:
    """What peers share, as far as a queue asks."""

    def __init__(self) -> None:
        self.is_sure = True
        self.surety = Surety(lambda: self.is_sure, 0.0)
        self.flushing = Flushing()


class Space:
    """The space of a peer, as far as a queue asks."""

    visibility = SimpleNamespace(newest=4)


class Nobody:
    """A peer of which nothing is asked but this."""

    trusted = is_here = False
    is_led = True
    hosted = Space()

    def __init__(self) -> None:
        self.shared = Shared()
        self.streams: dict[int, OutStream] = {}
        self.sending: RouteQueue | SendQueue = RouteQueue(cast("Peer", self))

    def close(self, _stream: OutStream) -> None:
        raise AssertionError("no stream ends by itself here")

    lose = defect = close

    def reached(self) -> list[p.Packet]:
        return [p.Reached(7, (1,))]

    def wake(self, stream: OutStream) -> None:
        self.sending.wake(stream)

    def send_by(self, queue: SendQueue) -> None:
        self.sending = queue
        for stream in self.streams.values():
            queue.wake(stream)

    def flush(self) -> None:
        self.shared.flushing.flush()


def queue() -> RouteQueue:
    sending = Nobody().sending
    assert isinstance(sending, RouteQueue)
    return sending


def opened(number: int, left: int, *, items: int = 1 << 20, sent: int = 0) -> OutStream:
    stream = OutStream(number, sent + items, 1 << 60)
    stream.sent_items = sent
    stream.backlog = cast("Backlog", Waiting(left))
    return stream


@given(number=NUMBERS, sent=NUMBERS, left=st.integers(1, 300))
def test_a_batch_costs_what_its_frame_costs(number: int, sent: int, left: int) -> None:
    framed, batched = (opened(number, left, sent=sent) for _ in range(2))
    frame = framed.next_frame()
    assert frame is not None
    route = queue()
    route.wake(batched)
    batch = route.next_nowait()
    assert isinstance(batch, EventBatch)
    assert (batch.stream, batch.size) == (number, len(frame[0]) - HEAD) == (number, batched.sent_bytes)
    assert (batch.count, batch.values) == (frame[1], (1, 2)[: frame[1]])
    assert batched.sent_items == framed.sent_items
    assert decoded(batch.count, batch.body) == batch.values


async def test_values_leave_their_stream_only_as_the_route_takes_them() -> None:
    route, stream = queue(), opened(1, 5, items=3)
    route.wake(stream)
    assert (stream.sent_items, len(cast("Waiting", stream.backlog))) == (0, 5)
    route.say(p.Reached(4, (1,)))  # a packet goes before values
    taken = [await route.next() for _ in range(3)]
    assert taken[0] == p.Reached(4, (1,))
    assert [each.count for each in taken[1:] if isinstance(each, EventBatch)] == [2, 1]
    assert route.next_nowait() is None and stream.sent_items == 3  # as far as its credit


async def test_a_goodbye_is_the_last_packet_and_then_the_session_is_over() -> None:
    route = queue()
    route.say(p.Pong(1))
    route.part("closing", "the daemon ends")
    route.say(p.Pong(2))
    route.wake(opened(1, 5))
    route.close()
    assert [await route.next(), await route.next()] == [p.Pong(1), p.Bye("closing", "the daemon ends")]
    for _ in range(2):
        with pytest.raises(Broken):
            await route.next()


async def test_a_cancelled_route_takes_nothing() -> None:
    route = queue()
    with trio.move_on_after(0) as scope:
        await route.next()
    assert scope.cancelled_caught
    route.say(p.Pong(1))
    with trio.CancelScope() as late:
        late.cancel()
        await route.next()
    assert await route.next() == p.Pong(1)


async def test_an_idle_route_is_pinged_and_a_busy_one_told_the_progress(
    autojump_clock: trio.testing.MockClock,
) -> None:
    route = queue()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(route.run)
        route.beat_at(10)
        assert [await route.next(), await route.next()] == [p.Reached(7, (1,)), p.Ping(0)]
        assert trio.current_time() == pytest.approx(10)
        route.say(p.Pong(1))
        assert [await route.next(), await route.next()] == [p.Pong(1), p.Reached(7, (1,))]
        assert trio.current_time() == pytest.approx(20)
        assert route.next_nowait() is None
        nursery.cancel_scope.cancel()


async def test_a_session_begins_with_the_newest_epoch_once_the_daemon_is_sure_to_lead() -> None:
    peer = Nobody()
    route, peer.shared.is_sure = cast("RouteQueue", peer.sending), False
    route.begin()
    assert route.next_nowait() is None
    peer.shared.is_sure = True
    assert await route.next() == p.Reached(4, ())


def text_of(packet: p.Packet) -> bytes:
    return b"<%d>" % p.NUMBERS[type(packet)]


def framed(_stream: int, _first: int, count: int, body: bytes, _left: int) -> tuple[bytes, int]:
    return b"(" + body + b")", count


async def test_what_was_held_and_what_comes_is_written_by_the_queue_that_pours() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer, stream = Nobody(), opened(1, 4)
        route, peer.streams[1] = cast("RouteQueue", peer.sending), stream
        peer.shared.is_sure = False
        route.say(p.Reached(4, (1,)))
        assert route.next_nowait() is None
        peer.shared.is_sure = True
        poured = route.pour(SocketLink(ours), text_of, framed)
        assert peer.sending is poured
        cast("Waiting", stream.backlog).left = 1
        route.wake(stream)  # as what waits in the stream was told to
        peer.flush()
        poured.part("closing", "the daemon ends")
        peer.flush()
        said = [text_of(each) for each in (p.Reached(4, (1,)), p.Bye("closing", ""))]
        assert theirs.recv(100) == said[0] + b"(\x01\x02)(\x01\x02)(\x01)" + said[1]


async def test_a_goodbye_that_the_route_has_not_taken_is_the_last_that_is_poured() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Nobody()
        route = cast("RouteQueue", peer.sending)
        route.part("closing", "the daemon ends")
        poured = route.pour(SocketLink(ours), text_of, framed)
        peer.streams[1] = stream = opened(1, 4)
        route.wake(stream)
        poured.say(p.Pong(1))
        peer.flush()
        assert poured.parted and theirs.recv(100) == text_of(p.Bye("closing", ""))


async def test_a_session_that_is_dismissed_says_why_and_gives_all_back(tmp_path: Path) -> None:
    async with inside(tmp_path) as made, trio.open_nursery() as nursery:
        daemon = made.daemon
        daemon.peers = nursery
        with pytest.raises(ProtocolError, match="an administrator has ended this session"):
            async with inner_session(daemon, Caller("10.0.0.7:80", "")) as session:
                (peer,) = daemon.parts[PEERS].values()
                assert isinstance(peer.door, RouteDoor) and peer.own.owner
                reading = session.open({"pattern": Record("some", capture("n"))})
                await reading.next()
                assert daemon.guests.streams == 1 and len(made.hosted.space.index) == 1  # its interest
                peer.dismiss("ended", "an administrator has ended this session")
                while True:
                    await reading.next()
        assert not daemon.parts[PEERS] and not daemon.guests and not daemon.guests.streams
        assert not len(made.hosted.space.index)


async def test_a_session_ends_with_its_route(tmp_path: Path) -> None:
    async with inside(tmp_path) as made, trio.open_nursery() as nursery:
        daemon = made.daemon
        daemon.peers = nursery
        with trio.move_on_after(0.05):
            async with inner_session(daemon, Caller("10.0.0.7:80", "")) as session:
                (peer,) = daemon.parts[PEERS].values()
                await session.open({"pattern": Record("some", capture("n"))}).next()
                await trio.sleep_forever()
        await peer.tasks.ended.wait()
        assert not daemon.guests and not daemon.guests.streams and not len(made.hosted.space.index)
