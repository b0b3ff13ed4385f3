"""Under asyncio as under trio: a session that comes back in time."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.sessions import test_grace as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_facts_and_handles_are_as_they_were_and_nobody_saw_a_blink",
            "test_turns_made_meanwhile_are_in_effect_once",
            "test_a_lost_connection_is_drained_and_then_raises_the_reason",
        ],
    )
)
