"""Under asyncio as under trio: while the daemon is away."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.sessions import test_away as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_the_fact_of_a_block_that_ended_meanwhile_is_gone_after_the_return",
            "test_a_turn_that_was_not_sent_is_dropped_when_patience_ends",
            "test_a_turn_that_was_sent_is_said_to_be_unknown_and_happens_once",
        ],
    )
)
