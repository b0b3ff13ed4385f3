"""Under asyncio as under trio: facts of a lease outlast the connection."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.server.owners import test_leases as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_lost_connection_does_not_touch_the_facts",
            "test_a_lease_that_is_not_granted_is_said_at_once",
        ],
        # a daemon in the test's own loop, or a socket with trio's own options
        without=[
            "test_a_restart_gives_a_lease_its_whole_time_anew",
        ],
    )
)
