"""Under asyncio as under trio: what a client is told of its connection."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.sessions import test_connection_events as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_lost_session_comes_back_anew_and_says_what_it_asserted",
            "test_a_client_that_is_sent_away_hears_the_reason",
        ],
    )
)
