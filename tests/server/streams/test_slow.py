"""A slow observer costs the daemon a bounded amount of memory, and nobody else anything."""

from __future__ import annotations

from collections.abc import Set

import pytest
import trio

import dataspace
from dataspace import Record, Refused
from dataspace.client.epochs.assembling import Assembler
from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session
from index.patterns.patterns import capture
from index.values.values import Map
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

CHANGES = 60_000
STALLED = 30
PADDING = "x" * 300
"""So that what is sent outgrows what the kernel keeps for a socket that nobody reads."""

PARTS = Assembler(())


class Stalled:
    """An observer that opens a stream with a great deal of credit and then does not read its socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.session = Session(Role.CLIENT)

    @classmethod
    async def connect(cls, port: int, pattern: Record) -> Stalled:
        made = cls(await trio.open_tcp_stream("127.0.0.1", port))
        hello = p.Hello(p.VERSION, f"~stalled {id(made)}", "stalled", Map())
        opening = p.Open(1, Map({"kind": "observe", "pattern": pattern, "quiet": True}), 1 << 40, 1 << 40)
        await made.stream.send_all(made.session.send(hello) + made.session.send(opening))
        got: list[p.Packet] = []
        while not any(isinstance(packet, p.Values) for packet in got):
            got += made.session.feed(await made.stream.receive_some(4096))
        return made

    async def read(self) -> list[p.Packet]:
        """What the socket has now, or the next that comes."""
        return list(self.session.feed(await self.stream.receive_some(1 << 16)))


async def _write(space: dataspace.RemoteSpace) -> None:
    """Changes of facts: a set of a hundred, each replaced again and again."""
    for start in range(0, CHANGES, 100):
        draft = space.draft()
        for n in range(start, start + 100):
            if n >= 100:
                draft.retract(n - 99)
            draft.assert_(Record("n", n % 7, n, PADDING), handle=n + 1)
        await space.submit(draft)
    await space.drain(60)


async def test_many_stalled_observers_are_bounded_and_the_others_see_everything(
    daemon: DaemonProcess,
) -> None:
    async with dataspace.connect(daemon.url, owner="writer") as writer, dataspace.connect(daemon.url) as good:
        async with good.observe("n(_, $n)", quiet=True) as observation:
            await observation.next_epoch()
            before = int(str((await writer.status())["memory_bytes"]))
            pattern = Record("n", capture(), capture(), capture())
            stalled = [await Stalled.connect(daemon.port, pattern) for _ in range(STALLED)]
            seen = 0

            async def follow() -> None:
                nonlocal seen
                while seen < 2 * CHANGES - 100:
                    epoch = await observation.next_epoch()
                    assert epoch is not None and not epoch.conflated
                    seen += len(epoch)

            with trio.fail_after(120):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(follow)
                    await _write(writer)
            after = int(str((await writer.status())["memory_bytes"]))
            assert after - before < 120 << 20, "bounded by the limits, not by what passed"
            state = {row[1] for row in await writer.matches("n($, $)")}
            await _catch_up(stalled[0], state)
            for each in stalled:
                await each.stream.aclose()


async def _catch_up(stalled: Stalled, state: Set[object]) -> None:
    """Reads at last: changes in order, then the net difference, marked as such, and the right state."""
    known: set[object] = set()
    newest, conflated = 0, 0
    with trio.fail_after(30):
        while known != state:
            for packet in await stalled.read():
                assert isinstance(packet, p.Values), packet
                for value in packet.values:
                    epoch, _more = PARTS.part(value)
                    assert epoch.first > newest or epoch.first == epoch.number
                    newest = epoch.number
                    conflated += epoch.conflated
                    known |= {row[1] for row in epoch.added}
                    known -= {row[1] for row in epoch.removed}
    assert conflated, "what did not fit must have been conflated"


async def test_messages_that_nobody_takes_end_the_observation_with_counts(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as writer:
        stalled = await Stalled.connect(daemon.port, Record("say", capture()))
        for start in range(0, 40_000, 1000):
            draft = writer.draft()
            for n in range(start, start + 1000):
                draft.send(Record("say", "x" * 200 + str(n)))
            await writer.submit(draft)
        await writer.drain(60)
        heard: list[object] = []
        with trio.fail_after(30):
            while True:
                for packet in await stalled.read():
                    if isinstance(packet, p.Values):
                        heard += [row[0] for value in packet.values for row in PARTS.part(value)[0].messages]
                    elif isinstance(packet, p.Error):
                        assert packet.code == "slow-observer"
                        assert "messages wait, limit 4096" in packet.text
                        assert heard == ["x" * 200 + str(n) for n in range(len(heard))], (
                            "no gap before the end"
                        )
                        await stalled.stream.aclose()
                        return


async def test_a_replay_waits_for_as_long_as_it_takes(daemon: DaemonProcess) -> None:
    """An observation from the log is not conflated: it is pulled, and whole however slowly it is read."""
    async with dataspace.connect(daemon.url, owner="writer") as writer:
        await _write(writer)
        async with writer.observe("n(_, $n)", after=0, upto=await writer.sync(), quiet=True) as observation:
            seen: list[object] = []
            async for epoch in observation.epochs():
                assert not epoch.conflated
                seen += [row[0] for row in epoch.added]
                await trio.lowlevel.checkpoint()
        assert seen == list(range(CHANGES))


async def test_a_slow_application_of_the_client_library_is_told_the_error(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as writer, dataspace.connect(daemon.url) as reader:
        async with reader.observe("say($n)", snapshot=False) as observation:
            observation.open()
            await reader.sync()
            await writer.send(Record("say", "before"))
            before = await observation.next_epoch()
            assert before is not None and [*before.messages] == [("before",)]
            for start in range(0, 60_000, 2000):
                draft = writer.draft()
                for n in range(start, start + 2000):
                    draft.send(Record("say", "x" * 300 + str(n)))
                await writer.submit(draft)
            await writer.drain(60)
            count = 0
            with pytest.raises(Refused, match="slow-observer"), trio.fail_after(30):
                async for _ in observation:
                    count += 1
            assert count < 60_000
