"""Under asyncio as under trio: live maps, over connections that are cut."""

from __future__ import annotations

from tests.dataspace.client import test_live as under_trio
from tests.dataspace.client.on_asyncio.runs import under_asyncio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_changes_are_the_net_difference_since_they_were_last_taken",
            "test_it_goes_on_where_it_was_by_the_net_difference",
            "test_a_waiting_task_learns_of_the_end",
            "test_one_task_takes_changes",
        ],
    )
)
