"""A client that was away, or came back to something else, is told so; the same in all clients."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import ConnectionChange, ConnectionEvent, ProtocolError, Record
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy

Kinds = list[ConnectionChange]


class Events:
    """Events as they come; ``take`` waits for the next."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[ConnectionEvent](100)

    def __call__(self, event: ConnectionEvent) -> None:
        self._send.send_nowait(event)

    async def take(self) -> ConnectionEvent:
        with trio.fail_after(20):
            return await self._receive.receive()


async def test_a_lost_session_comes_back_anew_and_says_what_it_asserted(proxy: Proxy) -> None:
    events = Events()
    began = time.time()
    async with dataspace.connect(proxy.url, on_connection=events) as space:
        first = await events.take()
        assert space.welcome is not None
        assert (first.change, first.space) == (ConnectionChange.CONNECTED, space.welcome.space)
        for n in range(3):
            await space.assert_(Record("present", n))
        proxy.cut()
        lost, back = await events.take(), await events.take()
        assert (lost.change, lost.reason) == (ConnectionChange.LOST, "the daemon closed it")
        assert (back.change, back.facts, back.before) == (ConnectionChange.ANEW, 3, "")
        assert began <= lost.since == back.since <= time.time() and back.seconds >= 0
        assert str(lost) == "lost: the daemon closed it"
        assert str(back).endswith(" s as a new session, 3 facts were asserted anew")


async def test_what_the_application_raises_at_an_event_comes_alone(proxy: Proxy) -> None:
    """The connection is closed then, and there is more to write than the kernel takes."""

    class Interrupted(BaseException):
        """Such as Ctrl-C."""

    def interrupt(event: ConnectionEvent) -> None:
        if event.change is ConnectionChange.ANEW:
            raise Interrupted

    with pytest.raises(Interrupted), trio.fail_after(20):
        async with dataspace.connect(proxy.url, on_connection=interrupt) as space:
            for n in range(40):
                await space.assert_(Record("long", n, "x" * 100_000))
            proxy.cut()
            await trio.sleep_forever()


async def test_a_session_with_grace_is_resumed_and_nothing_had_gone(proxy: Proxy) -> None:
    events = Events()
    async with dataspace.connect(proxy.url, grace=20.0, on_connection=events) as space:
        await space.assert_(Record("present", 1))
        proxy.cut()
        changes = [(await events.take()).change for _ in range(3)]
        assert changes == [ConnectionChange.CONNECTED, ConnectionChange.LOST, ConnectionChange.RESUMED]


async def test_a_lease_that_still_stands_is_resumed(proxy: Proxy) -> None:
    events = Events()
    async with dataspace.connect(proxy.url, lease=20.0, on_connection=events) as space:
        await space.assert_(Record("present", 1))
        proxy.cut()
        changes = [(await events.take()).change for _ in range(3)]
        assert changes == [ConnectionChange.CONNECTED, ConnectionChange.LOST, ConnectionChange.RESUMED]


@pytest.mark.slow
@pytest.mark.parametrize("grace", [0.0, 20.0])
async def test_another_data_directory_at_the_same_address_is_another_space(
    tmp_path: Path, grace: float
) -> None:
    one, other = DaemonProcess(tmp_path / "one"), DaemonProcess(tmp_path / "other")
    await trio.to_thread.run_sync(one.start)
    other.port = one.port
    events = Events()
    try:
        async with dataspace.connect(one.url, grace=grace, on_connection=events) as space:
            before = (await events.take()).space
            await space.assert_(Record("present", 1))
            await trio.to_thread.run_sync(one.kill)
            assert (await events.take()).change is ConnectionChange.LOST
            await trio.to_thread.run_sync(other.start)
            back = await events.take()
            assert (back.change, back.before, back.facts) == (ConnectionChange.ANOTHER_SPACE, before, 1)
            assert space.welcome is not None and back.space == space.welcome.space != before
            assert f"in another space: it is {back.space}, and was {before}" in str(back)
            assert await space.matches("present($n)") == [(1,)]
    finally:
        for daemon in (one, other):
            daemon.stop()


@pytest.mark.slow
@pytest.mark.parametrize("lease", [0.0, 0.5])
def test_a_holder_that_was_paused_learns_that_its_facts_had_gone(tmp_path: Path, lease: float) -> None:
    """The process is stopped; the daemon takes it for dead, and others see its facts go."""
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    program = f"""
import dataspace
def say(event):
    print(event.change.value, event.facts, event.seconds > 0.5, flush=True)
with dataspace.connect_blocking({daemon.url!r}, heartbeat=0.2, lease={lease}, on_connection=say) as space:
    space.assert_(dataspace.Record("held", 1))
    print("asserted", flush=True)
    input()
"""
    try:
        holder = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "connected 0 False\n"
        assert holder.stdout.readline() == "asserted\n"
        with dataspace.connect_blocking(daemon.url) as space, space.observe("held($n)") as held:
            assert next(iter(held)).kind == "+"
            holder.send_signal(signal.SIGSTOP)
            gone = held.next_epoch(timeout=20)
            assert gone is not None and [*gone.removed] == [(1,)]
            paused = time.monotonic()
            while time.monotonic() < paused + 0.6:
                space.sync()
            holder.send_signal(signal.SIGCONT)
            back = held.next_epoch(timeout=20)
            assert back is not None and [*back.added] == [(1,)]
        said = [holder.stdout.readline(), holder.stdout.readline()]
        assert said[0].startswith(("lost 0", "lease-ended 0"))
        assert said[1] == "anew 1 True\n"
        holder.communicate("\n", timeout=20)
    finally:
        holder.kill()
        holder.wait()
        daemon.stop()


@pytest.mark.slow
async def test_the_blocking_client_says_the_same(proxy: Proxy) -> None:
    events: queue.Queue[ConnectionEvent] = queue.Queue()

    def hold() -> Kinds:
        with dataspace.connect_blocking(proxy.url) as space:
            space.on_connection = events.put
            space.assert_(Record("present", 1))
            trio.from_thread.run_sync(proxy.cut)
            changes = [events.get(timeout=20).change for _ in range(2)]
            space.sync()
            assert space.reconnects == 1
            return changes

    assert await trio.to_thread.run_sync(hold) == [ConnectionChange.LOST, ConnectionChange.ANEW]


async def test_a_client_that_is_sent_away_hears_the_reason(url: str) -> None:
    events = Events()
    with pytest.raises(ProtocolError, match="superseded"):
        async with dataspace.connect(url, client="me", on_connection=events):
            async with dataspace.connect(url, client="me", name="the other"):
                assert (await events.take()).change is ConnectionChange.CONNECTED
                ended = await events.take()
                assert ended.change is ConnectionChange.ENDED and "the other" in ended.reason
                assert str(ended).startswith("ended: superseded")
