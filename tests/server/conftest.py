"""A real daemon for each test: in this process where its inside is looked at, else in one of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.kernel.limits import SpaceLimits
from server.config.model import Config, Limits
from server.config.principals import Quotas
from server.daemon.serve import serve
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy


@pytest.fixture
def limits() -> Limits:
    """What the daemon of ``url`` allows; a test parametrizes it to have others."""
    return Limits()


@pytest.fixture
def space_limits() -> SpaceLimits:
    """The same for what its space holds."""
    return SpaceLimits()


@pytest.fixture
def quotas() -> Quotas:
    """The same for what one principal may have: here all peers are one."""
    return Quotas()


@pytest.fixture
async def url(
    tmp_path: Path, nursery: trio.Nursery, limits: Limits, space_limits: SpaceLimits, quotas: Quotas
) -> AsyncIterator[str]:
    """The URL of a daemon that runs in this process, on a real socket and a real disk."""
    config = Config(("tcp:127.0.0.1:0",), tmp_path, limits=limits, space_limits=space_limits, quotas=quotas)
    addresses = await nursery.start(serve, config)
    yield addresses[0]


@pytest.fixture
async def other(tmp_path_factory: pytest.TempPathFactory, nursery: trio.Nursery) -> AsyncIterator[str]:
    """The URL of a second daemon, with a data directory of its own."""
    data = tmp_path_factory.mktemp("other")
    addresses = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=data))
    yield addresses[0]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon in a process of its own."""
    process = DaemonProcess(tmp_path / "data")
    process.start()
    yield process
    process.stop()


@pytest.fixture
async def proxy(url: str, nursery: trio.Nursery) -> AsyncIterator[Proxy]:
    """A link to that daemon that can be cut or silenced."""
    made = Proxy(url)
    await nursery.start(made.run)
    yield made


@pytest.fixture
async def bystander(url: str, caplog: pytest.LogCaptureFixture) -> AsyncIterator[dataspace.RemoteSpace]:
    """A good client beside the bad: served before and after, on one connection, and nothing is logged."""
    async with dataspace.connect(url, name="bystander") as space:
        claim = await space.assert_(Record("bystander", 1))
        yield space
        with trio.fail_after(10):
            await space.replace(claim, Record("bystander", 2))
            assert await space.matches("bystander($n)") == [(2,)]
        assert space.reconnects == 0
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
