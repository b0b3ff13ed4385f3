"""Under asyncio as under trio: streams end once, with the first cause."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.dataspace.streams import test_ending as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_pushable_that_ends_tells_the_senders_that_wait",
            "test_an_input_that_failed_while_the_reader_went_away_fails_the_next_read",
        ],
        # channels of trio, or fixtures in trio's own loop
        without=[
            "test_the_receiver_behind_a_slow_stage_is_not_left_for_ever",
            "test_a_channel_is_closed_at_every_end",
        ],
    )
)
