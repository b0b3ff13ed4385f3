"""Under asyncio as under trio: locks, elections, puts and the first match."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.coordination import test_verbs as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_block_that_ends_without_noticing_the_loss_does_not_end_silently",
            "test_clients_that_wait_for_a_lock_take_turns_in_the_order_in_which_they_came",
            "test_the_first_match_is_there_or_comes",
        ],
    )
)
