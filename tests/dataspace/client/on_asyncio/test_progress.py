"""Under asyncio as under trio: marks of progress among the epochs."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.streams import test_progress as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_replay_tells_it_too",
        ],
        without=["test_a_disk_that_fails_while_a_mark_is_waited_for_is_no_defect"],
    )
)
