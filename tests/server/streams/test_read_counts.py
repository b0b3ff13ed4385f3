"""What a bulk reader has had is a fact of the daemon, for as long as the reader is there."""

from __future__ import annotations

import logging

import pytest
import trio

import dataspace
from dataspace.client.bulk.client import BulkClient
from index.patterns.text import parse_pattern


async def test_reads_are_counted_and_told(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dataspace")
    async with dataspace.connect(url) as space, dataspace.connect(url, space="system") as system:
        for n in range(3):
            await space.assert_(dataspace.Record("p", n))
        await space.sync()
        pattern, read = parse_pattern("p($n:int)"), "read(_, $name, $space, $reads, $rows, $bytes, _)"

        def twice(said: list[tuple[object, ...]]) -> None:
            with BulkClient(url, name="bulk") as link:
                for _ in range(2):
                    rows = sum(len(block) for block in link.columns(pattern, after=0, upto=3))
                    assert rows == 3
                said += trio.from_thread.run(system.matches, read)

        found: list[tuple[object, ...]] = []
        with trio.fail_after(20):
            await trio.to_thread.run_sync(twice, found)
            ((name, hosted, reads, rows, size),) = found
            assert (name, hosted, reads, rows) == ("bulk", "main", 2, 6)
            assert isinstance(size, int) and size > 20
            while await system.matches(read):  # noqa: ASYNC110  # the daemon notices in its own time
                await trio.sleep(0.01)
    assert "rows, " in caplog.text and "up to epoch 3 of p($n:int) in" in caplog.text
