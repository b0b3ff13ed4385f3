"""A real daemon for each test: in this process where its inside is looked at, else in one of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from server.config import Config
from server.daemon import serve


@pytest.fixture
async def url(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[str]:
    """The URL of a daemon that runs in this process, on a real socket and a real disk."""
    addresses = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=tmp_path))
    yield addresses[0].replace("tcp:", "tcp://", 1)
