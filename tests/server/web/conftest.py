"""A daemon that listens for HTTP too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from server.config.model import Config, Limits
from server.config.quotas import Quotas
from server.config.web import Web
from server.daemon.serve import serve
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
