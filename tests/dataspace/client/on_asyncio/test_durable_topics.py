"""Under asyncio as under trio: topics on disk."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.topics import test_durable_topics as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_completed_epochs_are_the_same_each_time",
            "test_a_line_that_breaks_loses_and_doubles_nothing",
            "test_the_client_reads_by_number_too",
        ],
        # a daemon in the test's own loop, or a socket with trio's own options
        without=[
            "test_an_orderly_end_of_the_daemon_leaves_all_as_it_was",
            "test_another_process_takes_up_what_a_name_held",
            "test_a_successor_is_told_what_was_sent_of_epochs_that_are_open",
            "test_what_is_left_of_a_long_past_can_be_had_after_a_restart",
            "test_a_reader_by_name_holds_back_what_age_would_let_go",
        ],
    )
)
