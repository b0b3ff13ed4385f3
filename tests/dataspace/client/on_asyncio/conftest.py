"""Daemons and proxies for tests under asyncio: in a thread that runs trio."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataspace.kernel.limits import SpaceLimits
from server.config.model import Config, Limits
from server.config.principals import Quotas
from server.daemon.serve import serve
from tests.dataspace.client.on_asyncio.runs import Host
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy


@pytest.fixture
def host() -> Iterator[Host]:
    """The thread."""
    with Host() as running:
        yield running


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
def url(tmp_path: Path, host: Host, limits: Limits, space_limits: SpaceLimits, quotas: Quotas) -> str:
    """The URL of a daemon that runs in the thread, on a real socket and a real disk."""
    config = Config(("tcp:127.0.0.1:0",), tmp_path, limits=limits, space_limits=space_limits, quotas=quotas)
    return str(host.start(serve, config)[0])


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory, host: Host) -> str:
    """The URL of a second daemon, with a data directory of its own."""
    data = tmp_path_factory.mktemp("other")
    return str(host.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=data))[0])


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon in a process of its own."""
    process = DaemonProcess(tmp_path / "data")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def proxy(url: str, host: Host) -> Any:
    """A link to that daemon that can be cut or silenced."""
    made = HostedProxy(Proxy(url), host)
    host.start(made.inner.run)
    return made


class HostedProxy:
    """A proxy in the thread, with the methods of one in the same loop."""

    def __init__(self, inner: Proxy, host: Host) -> None:
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "host", host)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    def cut(self) -> None:
        """Cuts all links."""
        self.host.call(self.inner.cut)

    async def move_to(self, url: str, *, refusing: bool = False) -> None:
        """As the proxy's."""
        import anyio.to_thread

        await anyio.to_thread.run_sync(
            lambda: self.host.run(lambda: self.inner.move_to(url, refusing=refusing))
        )
