"""A daemon that listens for HTTP too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from relay.log.log import Log
from relay.space_registers import space_registers
from server.cluster.homes import home_of
from server.config.model import Config, Limits, Web
from server.config.principals import Quotas
from server.connections.listeners import accept, open_listeners
from server.daemon.daemon import Daemon
from server.daemon.serve import serve
from server.topics.part import TOPICS
from server.web.connection import WebDoor
from server.web.exchange import App
from tests.server.web_client import Doors


@pytest.fixture
def web() -> Web:
    """What its HTTP listener allows; a test parametrizes it to have others."""
    return Web()


@pytest.fixture
async def doors(
    tmp_path: Path, nursery: trio.Nursery, limits: Limits, quotas: Quotas, web: Web
) -> AsyncIterator[Doors]:
    """A daemon in this process, with both listeners."""
    listen = ("tcp:127.0.0.1:0", "http:127.0.0.1:0")
    addresses = await nursery.start(serve, Config(listen, tmp_path, limits=limits, quotas=quotas, web=web))
    tcp, http = [address.rpartition(":")[2] for address in addresses]
    yield Doors(f"tcp://127.0.0.1:{tcp}", int(http))


Listen = Callable[..., Awaitable[int]]


@pytest.fixture
async def listen(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Listen]:
    """Listens for HTTP with an application of the test; returns the port."""
    with ExitStack() as held:

        async def listening(app: App, *, web: Web | None = None, limits: Limits | None = None) -> int:
            config = Config(("http:127.0.0.1:0",), tmp_path, limits=limits or Limits(), web=web or Web())
            logs = [(each, Log.open(tmp_path, registers=space_registers)) for each in config.all_spaces()]
            made = Daemon(config, logs, home_of(config))
            held.callback(logs[0][1].close)
            held.callback(made.parts[TOPICS].durable.writer.journal.close)
            held.callback(made.main.leading.staging.close)
            made.peers = nursery
            (listener,) = await open_listeners(config)
            held.callback(listener.close)
            door = WebDoor(made, made.serve, listener, config.web, app, nursery)
            nursery.start_soon(accept, door, listener)
            return listener.address.port

        yield listening
        nursery.cancel_scope.cancel()
