"""Under asyncio as under trio: topics: epochs arrive whole."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.topics import test_topics as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_epochs_arrive_whole_from_two_producers",
            "test_a_subscription_whose_line_breaks_misses_nothing_that_is_retained",
            "test_a_block_that_fails_has_crashed_and_the_group_goes_on",
            "test_what_was_is_told_to_those_who_ask_for_it",
        ],
        # a daemon in the test's own loop, or a socket with trio's own options
        without=[
            "test_a_producer_that_vanishes_is_reported",
        ],
    )
)
