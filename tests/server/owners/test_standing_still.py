"""What was sent in time is in time, though the daemon stood still and reads it when the time is over."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.session.turns import Draft
from tests.server.processes import DaemonProcess, running
from tests.server.proxies import Proxy

pytestmark = pytest.mark.slow

TTL = 0.8
LEASES = 30


@asynccontextmanager
async def _still(daemon: DaemonProcess, seconds: float = TTL * 1.5) -> AsyncIterator[None]:
    """Stops a daemon; what the block sends lies in the sockets until it goes on, after so many seconds."""
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        yield
        await trio.sleep(seconds)
    finally:
        daemon.process.send_signal(signal.SIGCONT)


async def _removals(space: dataspace.RemoteSpace, pattern: str, gone: list[object]) -> None:
    async with space.observe(pattern, quiet=True, policy="wait") as changes:
        async for epoch in changes.epochs():
            gone.extend(epoch.removed)


async def test_leases_whose_renewals_wait_in_a_socket_go_on(tmp_path: Path) -> None:
    """Behind two hundred turns of the same connection, and beside a busy one."""
    daemon = DaemonProcess(tmp_path / "data")
    with running(daemon), trio.fail_after(60):
        async with (
            dataspace.connect(daemon.url) as space,
            dataspace.connect(daemon.url) as other,
            dataspace.connect(daemon.url) as watcher,
            trio.open_nursery() as nursery,
        ):
            gone: list[object] = []
            nursery.start_soon(_removals, watcher, "held($n)", gone)
            holds = [await space.hold(Record("held", n), ttl=TTL) for n in range(LEASES)]
            late = await space.hold(Record("late", 0), ttl=TTL)
            for held in holds:
                await held.renew()
            async with trio.open_nursery() as renewing:
                async with _still(daemon):
                    for client in other, space:
                        for n in range(200):
                            client.submit_nowait(_turn(client, n))
                    await trio.sleep(0.1)
                    for held in holds:
                        renewing.start_soon(held.renew)
            await watcher.sync()
            assert gone == [] and len(await space.matches("held($n)")) == LEASES
            while await space.matches("late($n)"):  # noqa: ASYNC110  # it ends once what waited has been read
                await trio.sleep(0.01)
            with pytest.raises(dataspace.DataspaceError, match="has ended"):
                await late.renew()  # which was not renewed in time
            nursery.cancel_scope.cancel()


def _turn(space: dataspace.RemoteSpace, n: int) -> Draft:
    draft = space.draft()
    draft.assert_(Record("noise", n, "x" * 500))
    return draft


async def test_a_session_that_waits_to_be_accepted_resumes(tmp_path: Path, nursery: trio.Nursery) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    with running(daemon), trio.fail_after(60):
        proxy = Proxy(daemon.url)
        await nursery.start(proxy.run)
        async with (
            dataspace.connect(proxy.url, grace=TTL) as space,
            dataspace.connect(daemon.url) as watcher,
            trio.open_nursery() as watching,
        ):
            gone: list[object] = []
            watching.start_soon(_removals, watcher, "mine($n)", gone)
            await space.assert_(Record("mine", 1))
            proxy.refusing = True
            proxy.cut()
            await watcher.sync()  # the grace has begun
            async with _still(daemon):
                proxy.refusing = False
            await space.sync()
            await watcher.sync()
            assert gone == [] and await watcher.matches("mine($n)") == [(1,)]
            watching.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def test_a_job_whose_report_waits_in_a_socket_is_done_and_given_to_no_other(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    with running(daemon), trio.fail_after(60):
        async with (
            dataspace.connect(daemon.url) as space,
            dataspace.connect(daemon.url) as other,
            space.consume("job($n)", group="workers", ack_within=TTL) as jobs,
            trio.open_nursery() as nursery,
        ):
            await other.send(Record("job", 1))
            job = await anext(jobs)
            async with other.consume("job($n)", group="workers") as others:
                async with trio.open_nursery() as reporting:
                    async with _still(daemon):
                        reporting.start_soon(job.done)
                with trio.move_on_after(0.3):
                    await anext(others)
                    raise AssertionError("it was given to another member")
            nursery.cancel_scope.cancel()
