"""Each of the four policies does over the wire what WIRE.md says of it, and its counters count."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

import dataspace
from dataspace import Record, RemoteSpace, UsageError
from dataspace.client.epochs.assembling import Assembler
from dataspace.kernel.changes import EpochChanges
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from tests.server.peers import PLENTY, Peer, opening

pytestmark = pytest.mark.slow

TURNS = 300
EACH = 100
"""More changes than wait for an observer."""


@pytest.fixture
async def writer(url: str) -> AsyncIterator[RemoteSpace]:
    async with dataspace.connect(url) as space:
        yield space


class Reader:
    """A peer with one stream, which it reads only when it is told to."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.epochs: list[EpochChanges] = []
        self.end: p.Packet | None = None
        self._assembler = Assembler(("n",))

    async def open(self, **spec: object) -> None:
        await self.peer.greet()
        await self.peer.say(opening(1, Record("n", capture("n")), items=1, **spec))  # type: ignore[arg-type]  # values
        await self.peer.hear()

    async def read(self, last: int) -> None:
        """Reads all, until a change of this number has come."""
        await self.peer.say(p.Ask(1, PLENTY, PLENTY))
        with trio.fail_after(30):
            while self.end is None and not any(
                (last,) in (*each.messages, *each.added) for each in self.epochs
            ):
                packet = await self.peer.hear()
                if isinstance(packet, p.Values):
                    whole = [self._assembler.feed(value) for value in packet.values]
                    self.epochs += [epoch for epoch in whole if epoch is not None]
                else:
                    self.end = packet


async def _write(writer: RemoteSpace, *, messages: bool) -> None:
    for start in range(0, TURNS * EACH, EACH):
        draft = writer.draft()
        for n in range(start, start + EACH):
            if messages:
                draft.send(Record("n", n))
            else:
                draft.assert_(Record("n", n))
        await writer.submit(draft)
    await writer.drain(60)


def _numbers(epochs: list[EpochChanges]) -> list[object]:
    return [row[0] for epoch in epochs for row in (*epoch.added, *epoch.messages)]


@pytest.mark.parametrize("messages", [True, False])
async def test_wait_tells_everything_from_the_log_and_then_goes_live_again(
    url: str, writer: RemoteSpace, messages: bool
) -> None:
    async with Peer(url) as peer:
        reader = Reader(peer)
        await reader.open(policy="wait")
        await _write(writer, messages=messages)
        await reader.read(TURNS * EACH - 1)
        assert _numbers(reader.epochs) == list(range(TURNS * EACH))
        assert not any(epoch.conflated or epoch.lost for epoch in reader.epochs)
        assert str((await writer.status())["slow_fallen_behind"]) >= "1"
        reader.epochs.clear()
        await writer.send(Record("n", -1))
        await reader.read(-1)
        assert _numbers(reader.epochs) == [-1]


async def test_conflate_keeps_the_net_difference(url: str, writer: RemoteSpace) -> None:
    async with Peer(url) as peer:
        reader = Reader(peer)
        await reader.open(policy="conflate")
        await _write(writer, messages=False)
        await reader.read(TURNS * EACH - 1)
        (difference,) = [epoch for epoch in reader.epochs if epoch.conflated]
        assert sorted(_numbers(reader.epochs)) == list(range(TURNS * EACH))  # type: ignore[type-var]  # numbers
        conflated = (await writer.status())["slow_conflated_epochs"]
        assert conflated == difference.number - difference.first + 1


async def test_fail_ends_the_stream_with_the_counts(url: str, writer: RemoteSpace) -> None:
    async with Peer(url) as peer:
        reader = Reader(peer)
        await reader.open(policy="fail")
        await _write(writer, messages=False)
        await reader.read(-1)
        assert isinstance(reader.end, p.Error) and reader.end.code == "slow-observer"
        assert reader.end.text.startswith("16400 changes wait, 0 of them messages, in ")
        assert (await writer.status())["slow_failed_streams"] == 1


@pytest.mark.parametrize("messages", [True, False])
async def test_drop_says_how_many_it_dropped(url: str, writer: RemoteSpace, messages: bool) -> None:
    async with Peer(url) as peer:
        reader = Reader(peer)
        await reader.open(policy="drop")
        await _write(writer, messages=messages)
        await reader.read(TURNS * EACH - 1)
        mark, *rest = reader.epochs
        assert _numbers(rest) == list(range(mark.lost, TURNS * EACH))
        assert (await writer.status())["slow_dropped_changes"] == mark.lost
        assert [(change.kind, change.lost) for change in mark] == [("?", mark.lost)]


async def test_a_policy_that_is_none_is_refused(writer: RemoteSpace) -> None:
    """By the client, and by the daemon where a client does not look."""
    with pytest.raises(UsageError, match="policy must be one of wait, conflate, fail, drop, got 'perhaps'"):
        writer.observe("n($n)", policy="perhaps")
