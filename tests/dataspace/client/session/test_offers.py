"""An offer sends no more than it was asked for, and says how it ended."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from dataspace.client.session.pending import OutgoingOffer
from dataspace.codec import unpack
from dataspace.errors import Broken, Refused
from dataspace.wire import packets as p
from dataspace.wire.frames import HEAD

PLENTY = 1 << 40


class Line:
    """What an offer writes, as packets."""

    def __init__(self) -> None:
        self.packets: list[p.Packet] = []
        self.bytes = 0

    def write(self, framed: bytes) -> None:
        packet = p.read(unpack(framed[HEAD:]))
        self.packets.append(packet)
        self.bytes += len(framed) - HEAD if isinstance(packet, p.Values) else 0

    @property
    def values(self) -> list[object]:
        return [value for packet in self.packets if isinstance(packet, p.Values) for value in packet.values]


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def offer(line: Line) -> OutgoingOffer:
    return OutgoingOffer(7, line.write)


async def _send(offer: OutgoingOffer, count: int) -> None:
    for n in range(count):
        await offer.send(n)


async def test_nothing_is_sent_before_it_is_asked_for(
    line: Line, offer: OutgoingOffer, nursery: trio.Nursery
) -> None:
    nursery.start_soon(_send, offer, 10)
    await trio.testing.wait_all_tasks_blocked()
    assert not line.packets and offer.sent == 0
    offer.ask(3, PLENTY)
    await trio.testing.wait_all_tasks_blocked()
    assert line.values == [0, 1, 2]
    offer.ask(2, 1)  # lower totals mean nothing
    await trio.testing.wait_all_tasks_blocked()
    assert line.values == [0, 1, 2]
    offer.ask(10, PLENTY)
    await trio.testing.wait_all_tasks_blocked()
    assert line.values == list(range(10)) and offer.sent == 10
    firsts = [packet.first for packet in line.packets if isinstance(packet, p.Values)]
    assert firsts == list(range(10)), "counted from the beginning of the stream"


async def test_bytes_are_overdrawn_by_one_value_at_most(
    line: Line, offer: OutgoingOffer, nursery: trio.Nursery
) -> None:
    nursery.start_soon(_send, offer, 100)
    for credit in range(1, 200, 23):
        offer.ask(1000, credit)
        await trio.testing.wait_all_tasks_blocked()
        last = line.bytes // len(line.values)
        assert credit <= line.bytes < credit + last + 1
    nursery.cancel_scope.cancel()


async def test_a_peek_is_answered_when_so_many_are_sent_or_wait(
    line: Line, offer: OutgoingOffer, nursery: trio.Nursery
) -> None:
    offer.peek(1)
    assert not line.packets, "nothing waits yet"
    nursery.start_soon(_send, offer, 2)
    await trio.testing.wait_all_tasks_blocked()
    assert line.packets == [p.Available(7, 1)]
    offer.ask(1, PLENTY)
    await trio.testing.wait_all_tasks_blocked()
    offer.peek(2)
    assert line.packets[-1] == p.Available(7, 2), "one was sent, and one waits"
    nursery.cancel_scope.cancel()


async def test_the_end_is_confirmed(line: Line, offer: OutgoingOffer) -> None:
    offer.ask(10, PLENTY)
    await _send(offer, 3)
    counts = []

    async def finish() -> None:
        counts.append(await offer.finish())

    async with trio.open_nursery() as inner:
        inner.start_soon(finish)
        await trio.testing.wait_all_tasks_blocked()
        assert line.packets[-1] == p.Done(7) and not counts
        offer.done()
    assert counts == [3]
    offer.abort()
    assert line.packets[-1] == p.Done(7), "it is over already"


@pytest.mark.parametrize("error", [Refused("disk-full", "no room"), Broken("the connection was lost")])
async def test_a_failure_reaches_whatever_waits_and_all_that_follows(
    offer: OutgoingOffer, error: Broken | Refused
) -> None:
    async def fail() -> None:
        await trio.testing.wait_all_tasks_blocked()
        offer.fail(error)

    async with trio.open_nursery() as inner:
        inner.start_soon(fail)
        with pytest.raises(type(error), match=str(error)):
            await offer.send(1)
    for again in (offer.send(2), offer.finish()):
        with pytest.raises(type(error)):
            await again


async def test_one_that_is_left_early_says_so_once(line: Line, offer: OutgoingOffer) -> None:
    offer.abort()
    assert line.packets == [p.Error(7, "", "aborted")]
