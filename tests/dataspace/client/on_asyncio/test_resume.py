"""Under asyncio as under trio: a lost connection loses nothing."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.sessions import test_resume as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_turn_whose_acceptance_was_lost_is_in_effect_once",
            "test_a_second_connection_of_the_same_client_replaces_the_first",
        ],
    )
)
