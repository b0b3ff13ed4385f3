"""Under asyncio as under trio: readers leave, and lose nothing."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.dataspace.streams import test_leaving as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_reads_let_other_tasks_run",
        ],
        # channels of trio, or fixtures in trio's own loop
        without=[
            "test_the_end_of_a_block_leaves_no_task_behind",
            "test_a_pipe_is_a_receive_channel",
        ],
    )
)
