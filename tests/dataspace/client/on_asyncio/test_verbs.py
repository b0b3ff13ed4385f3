"""Under asyncio as under trio: the verbs, epochs in order, and what an observer is shown."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.daemon import test_daemon as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_an_observer_is_told_the_state_and_then_every_change",
            "test_a_turn_is_one_epoch_in_the_documented_order",
            "test_a_refused_turn_leaves_no_trace",
            "test_an_error_in_the_block_leaves_as_it_is",
            "test_the_facts_of_a_session_go_with_it_in_one_turn",
            "test_nobody_there_is_said_with_what_to_do",
        ],
    )
)
