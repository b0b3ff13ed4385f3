"""Under asyncio as under trio: one stream as several, several as one."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.dataspace.streams import test_forks_and_joins as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[],
    )
)
