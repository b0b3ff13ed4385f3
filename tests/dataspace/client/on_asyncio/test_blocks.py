"""Under asyncio as under trio: a block that is not entered says what to write."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.sessions import test_blocks as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_an_object_that_is_used_otherwise_says_how_to_use_it",
            "test_a_connection_that_is_not_entered_says_so",
            "test_a_call_that_was_not_awaited_is_no_value_and_no_claim",
        ],
    )
)
