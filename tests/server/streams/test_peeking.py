"""A peek over the wire tells that there is more and takes nothing, from either side, however often."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

import dataspace
from dataspace import ConnectionChange, ConnectionEvent, Record
from dataspace.wire import packets as p
from dataspace.wire.frames import frame
from tests.server.impostors import impostor
from tests.server.peers import Peer, fact, opening
from tests.server.proxies import Proxy

pytestmark = pytest.mark.usefixtures("url")


@pytest.fixture
async def peer(url: str) -> AsyncIterator[Peer]:
    async with Peer(url) as made:
        await made.greet()
        yield made


async def _tell(url: str, *numbers: int) -> None:
    async with dataspace.connect(url) as space:
        for n in numbers:
            await space.send(fact(n))


# -- the daemon answers -----------------------------------------------------------------------------------


async def test_a_peek_is_answered_when_there_is_a_value_and_nothing_is_sent(url: str, peer: Peer) -> None:
    await peer.say(opening(1, fact(7), items=0, snapshot=False), p.Peek(1, 1), p.Ping(1))
    assert [await peer.hear(), await peer.hear()] == [p.Reached(0, (1,)), p.Pong(1)], (
        "nothing has happened yet"
    )
    await _tell(url, 7)
    assert await peer.hear() == p.Available(1, 1)
    await peer.say(p.Peek(1, 1), p.Ping(2))
    assert [await peer.hear(), await peer.hear()] == [p.Pong(2), p.Available(1, 1)], "it was not taken"
    await peer.say(p.Ask(1, 1, 1000))
    values = await peer.hear()
    assert isinstance(values, p.Values) and len(values.values) == 1


async def test_peeks_are_about_totals(url: str, peer: Peer) -> None:
    await peer.say(opening(1, fact(7), items=1, snapshot=False))
    assert await peer.hear() == p.Reached(0, (1,))
    await _tell(url, 7)
    assert isinstance(await peer.hear(), p.Values)
    await peer.say(p.Peek(1, 3))
    await _tell(url, 7)
    await peer.say(p.Ping(1))
    assert await peer.hear() == p.Pong(1), "two are not three"
    await _tell(url, 7)
    assert await peer.hear() == p.Available(1, 3)
    await peer.say(p.Peek(1, 0))
    assert await peer.hear() == p.Available(1, 3), "what is known is told at once"


async def test_the_end_answers_a_peek(url: str, peer: Peer) -> None:
    await _tell(url, 7)
    await peer.say(opening(1, fact(7), items=0, after=0, upto=1), p.Peek(1, 9))
    await peer.say(p.Ask(1, 5, 1000))
    assert [type(await peer.hear()) for _ in range(2)] == [p.Values, p.Done]
    await peer.say(p.Peek(1, 9), p.Ping(1))
    assert await peer.hear() == p.Pong(1), "the stream is over, as it was told"


async def test_a_flood_of_peeks_leaves_one_that_waits(url: str, peer: Peer) -> None:
    await peer.say(opening(1, fact(7), items=0, snapshot=False))
    await peer.say(*[p.Peek(1, 1 + n % 2) for n in range(20_000)], p.Peek(1, 2), p.Ping(1))
    assert [await peer.hear(), await peer.hear()] == [p.Reached(0, (1,)), p.Pong(1)]
    await _tell(url, 7, 7)
    await peer.say(p.Ping(2))
    heard = [await peer.hear(), await peer.hear()]
    assert p.Available(1, 2) in heard and p.Pong(2) in heard


async def test_to_peek_into_a_stream_that_was_never_opened_breaks_the_protocol(peer: Peer) -> None:
    await peer.say(p.Peek(3, 1))
    assert await peer.farewell() == p.Bye("unexpected", "stream 3 was never opened")


# -- the client asks --------------------------------------------------------------------------------------


async def test_a_stream_without_a_window_asks_for_nothing_ahead(url: str) -> None:
    async with dataspace.connect(url) as writer, dataspace.connect(url) as space:
        async with space.observe("n($n)", snapshot=False, window=0, quiet=True) as seen:
            await space.sync()
            await writer.send(Record("n", 1))
            await writer.send(Record("n", 2))
            assert await seen.epochs().peek() and await seen.epochs().peek()
            with trio.move_on_after(0.05) as patience:
                await seen.epochs().peek()
            assert patience.cancelled_caught, "each promise is for one value"
            counts = seen.epochs().statistics()
            assert (counts.held, counts.ready, counts.came) == (0, 2, 0)
            told = await writer.status()
            assert told["waiting_bytes"] != 0, "both are still at the daemon"
            assert [change.n for change in [await seen.read(), await seen.read()]] == [1, 2]


async def test_without_a_window_as_many_values_come_as_reads_wait(url: str) -> None:
    async with dataspace.connect(url) as writer, dataspace.connect(url) as space:
        async with space.observe("n($n)", snapshot=False, window=0, quiet=True) as seen:
            await space.sync()
            read: list[object] = []

            async def take() -> None:
                read.append([*(await seen.epochs().read()).messages])

            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(take)
                await trio.testing.wait_all_tasks_blocked()
                for n in range(3):
                    await writer.send(Record("n", n))
            assert read == [[(0,)], [(1,)]]
            assert (await writer.status())["waiting_bytes"] != 0, "the third is at the daemon"


async def test_a_promise_outlives_the_connection(proxy: Proxy, url: str) -> None:
    async with dataspace.connect(url) as writer, dataspace.connect(proxy.url) as space:
        async with space.observe("n($n)", window=0, quiet=True) as seen:
            await seen.next_epoch()
            promised: list[bool] = []

            async def peek() -> None:
                promised.append(await seen.epochs().peek())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(peek)
                await trio.testing.wait_all_tasks_blocked()
                back = trio.Event()
                space.on_connection = lambda event: (
                    back.set() if event.change is ConnectionChange.ANEW else None
                )
                proxy.cut()
                await back.wait()
                await writer.assert_(Record("n", 1))
            assert promised == [True]
            assert (await seen.read()).n == 1


async def test_peek_is_false_at_the_end_and_after_an_error(url: str) -> None:
    async with dataspace.connect(url) as space:
        epoch = await space.send(Record("n", 1))
        async with space.observe("n($n)", after=0, upto=epoch) as seen:
            assert [change.n async for change in seen] == [1]
            assert await seen.epochs().peek() is False and await seen.peek() is False
        wrong = space.observe("n($n)", as_of=epoch + 1000)
        assert await wrong.epochs().peek() is False
        with pytest.raises(dataspace.Refused, match=f"epoch {epoch + 1000} is wanted"):
            await wrong.read()


async def test_peeking_here_takes_nothing(url: str) -> None:
    async with dataspace.connect(url) as writer, writer.observe("n($n)", snapshot=False) as seen:
        await writer.sync()
        await writer.send(Record("n", 1))
        assert await seen.peek()
        assert (await seen.read()).n == 1
        with trio.move_on_after(0.05) as patience:
            await seen.peek()
        assert patience.cancelled_caught, "whether there is another is not known yet"


# -- the client answers -----------------------------------------------------------------------------------


async def test_a_client_says_what_it_has_to_offer(nursery: trio.Nursery) -> None:
    """The daemon opens with no credit, and peeks before it asks."""
    staged: list[int] = []
    async with impostor() as daemon:

        async def offer() -> None:
            async with dataspace.connect(daemon.url, reconnect=False) as space:
                staged.append(await space.stage(["job"], [("send", 1), ("send", 2)]))

        nursery.start_soon(offer)
        await daemon.welcome()
        await daemon.hear(p.Offer)
        await daemon.say(p.Peek(1, 1))
        assert await daemon.hear(p.Available) == p.Available(1, 1)
        await daemon.say(p.Ask(1, 1, 1000))
        assert await daemon.hear(p.Values) == p.Values(1, 0, (("send", 1),), 0)
        await daemon.say(p.Peek(1, 2))
        assert await daemon.hear(p.Available) == p.Available(1, 2)
        await daemon.say(p.Ask(1, 2, 1000))
        await daemon.hear(p.Values)
        await daemon.hear(p.Done)
        await daemon.say(p.Done(1))
        await daemon.hear(p.Bye)
        await daemon.close()
    assert staged == [2]


# -- a daemon that sends what it was not asked for ----------------------------------------------------------

EPOCH = (1, 0, 0, (("x",),), (), (), 1)


def _deep(levels: int) -> bytes:
    """A frame of values with a capture that no daemon would have taken from anybody."""
    row = b"\x91\x91" + b"\x91" * levels + b"\x00"
    return frame(b"\x95\x24\x01\x00\x91\x97\x01\x00\x00" + row + b"\x90\x90\x01\x00")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param(
            _deep(980),
            "nested too deeply",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="such a value can be written down"),
        ),
        (_deep(2000), "nested"),
        ((p.Values(1, 0, (EPOCH, EPOCH, EPOCH), 0),), "3 values were not asked for"),
        ((p.Values(1, 0, (EPOCH, EPOCH), 0), p.Values(1, 2, (EPOCH,), 0)), "3 values were not asked for"),
        ((p.Values(1, 1, (EPOCH,), 0),), "values from 1, expected 0"),
    ],
)
async def test_values_that_were_not_asked_for_lose_the_daemon_its_client(
    nursery: trio.Nursery, values: tuple[p.Packet, ...] | bytes, said: str
) -> None:
    reasons: list[str] = []
    told = trio.Event()

    def note(event: ConnectionEvent) -> None:
        reasons.append(event.reason)
        told.set()

    async with impostor() as daemon:

        async def observe() -> None:
            async with dataspace.connect(daemon.url, reconnect=False) as space:
                space.on_connection = note
                seen = space.observe("n($x)", window=2)  # kept: values without a reader are dropped unread
                seen.open()
                await told.wait()

        nursery.start_soon(observe)
        await daemon.welcome()
        await daemon.hear(p.Open)
        if isinstance(values, bytes):
            await daemon.shout(values)
        else:
            await daemon.say(*values)
        with trio.fail_after(10):
            await told.wait()
        await daemon.close()
    assert reasons[0].startswith("the daemon broke the protocol") and said in reasons[0]
