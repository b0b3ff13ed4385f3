"""Under asyncio as under trio: senders and requests in order."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.dataspace.streams import test_wiring as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_sender_that_goes_away_has_sent_nothing_and_holds_up_no_other",
        ],
    )
)
