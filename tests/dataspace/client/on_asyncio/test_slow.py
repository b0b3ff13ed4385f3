"""Under asyncio as under trio: a reader that is too slow hears it."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.streams import test_slow as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[],
        # a daemon in the test's own loop, or a socket with trio's own options
        without=[
            "test_many_stalled_observers_are_bounded_and_the_others_see_everything",
            "test_messages_that_nobody_takes_end_the_observation_with_counts",
        ],
    )
)
