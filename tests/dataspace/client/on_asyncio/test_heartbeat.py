"""Under asyncio as under trio: silence is noticed on both sides."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.sessions import test_heartbeat as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_times_that_are_none_are_refused",
        ],
    )
)
