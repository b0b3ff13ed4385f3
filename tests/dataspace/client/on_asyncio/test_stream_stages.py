"""Under asyncio as under trio: every stage."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.dataspace.streams import test_stages as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_lines_of_a_file_and_into_a_file",
        ],
        # channels of trio, or fixtures in trio's own loop
        without=[
            "test_channels_at_both_ends",
            "test_a_sink_into_a_channel_that_is_cancelled_sends_what_it_had_taken",
            "test_a_receiver_that_is_gone_fails_the_stream",
            "test_an_observation_in_this_process_gives_whole_epochs_the_state_first",
            "test_the_log_is_a_source",
        ],
    )
)
