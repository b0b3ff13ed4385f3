"""Whatever many queries stage at once, the daemon holds next to nothing of it in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.packed import PackedColumns
from index.values.values import Map
from tests.server.processes import DaemonProcess

QUERIES = 32
PIECES = 12
ROWS = 5_000
"""Rows in a piece: numbers are nine bytes each, and several times that once they are read."""

ALLOWED = 40 << 20
"""What the daemon may grow by: pieces on their way to the disk, and what Python does not give back."""


def memory(daemon: DaemonProcess) -> int:
    with BulkClient(daemon.url) as link:
        told = link.request("status", {})
    assert isinstance(told, Map)
    return int(told["memory_bytes"])  # type: ignore[arg-type]  # a number, by WIRE.md


def stage(daemon: DaemonProcess, query: int) -> int:
    """What one query stages; its bytes."""
    numbers = [float(n) for n in range(ROWS)]
    piece = PackedColumns("assert", "p", [numbers] * 4, ROWS)
    with BulkClient(daemon.url) as link:
        for number in range(PIECES):
            link.stage((f"query {query}", "0", str(number)), piece)
    return PIECES * len(piece.packed())


@pytest.mark.slow
def test_many_queries_at_once_are_staged_on_disk(daemon: DaemonProcess) -> None:
    stage(daemon, QUERIES)
    before = memory(daemon)
    with ThreadPoolExecutor(QUERIES) as pool:
        staged = sum(pool.map(lambda query: stage(daemon, query), range(QUERIES)))
    assert staged > ALLOWED
    grown = memory(daemon) - before
    assert grown < ALLOWED, f"{grown} bytes for {staged} staged"
