"""Under asyncio as under trio: members of groups get jobs, settle them, and keep them over a restart."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.groups import test_consuming as under_trio, test_jobs as blocks_under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_turn_does_a_job_and_its_result_together",
            "test_what_is_given_back_comes_again_and_dies_in_the_end",
        ],
    )
    | under_asyncio(
        blocks_under_trio,
        quick=["test_a_block_settles_its_job", "test_a_block_is_cancelled_once_its_job_is_lost"],
    )
)
