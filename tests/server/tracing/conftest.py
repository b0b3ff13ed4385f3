"""A collector, and daemons that send their spans there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from server.config.model import Config, Traces
from server.daemon.serve import serve
from tests.server.tracing.collectors import Collector, collecting

Serving = Callable[..., AbstractAsyncContextManager[list[str]]]


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that takes everything."""
    with collecting() as collector:
        yield collector


@pytest.fixture
def serving(tmp_path: Path, collector: Collector) -> Serving:
    """Serves a daemon for a block, at the end of which its spans have been sent."""

    @asynccontextmanager
    async def serving(ratio: float = 1.0, *, to: str = "", **more: Any) -> AsyncIterator[list[str]]:
        settings = {"listen": ("tcp:127.0.0.1:0",), "data": tmp_path / "data", **more}
        traces = Traces(f"{to or collector.url}/v1/traces", ratio)
        ending = trio.Event()
        async with trio.open_nursery() as nursery:
            start = Config(**settings, traces=traces)
            yield await nursery.start(
                lambda task_status: serve(start, ending=ending, task_status=task_status)
            )
            ending.set()

    return serving
