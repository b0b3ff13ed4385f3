"""Under asyncio as under trio: what was meant for one space is not done in another."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.sessions import test_another_space as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[],
    )
)
