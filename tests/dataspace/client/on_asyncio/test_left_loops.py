"""Under asyncio as under trio: a loop over an observation that is left leaves nothing."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.sessions import test_left_loops as under_trio

globals().update(under_asyncio(under_trio, quick=["test_a_loop_that_is_left_leaves_nothing"]))
