"""Event streams that stay open are bounded, other clients are served meanwhile, and places come back."""

from __future__ import annotations

import pytest
import trio

import dataspace
from dataspace import Record
from server.config.model import Limits
from server.config.principals import Quotas
from tests.server.web_client import Doors, Plain

OBSERVE = b"GET /v1/spaces/main/observe?pattern=seen($n) HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("quotas", [Quotas(connections=9)])
@pytest.mark.parametrize("limits", [Limits(hello_seconds=0.5)])
@pytest.mark.parametrize("count", [40, pytest.param(3000, marks=pytest.mark.torture(long=True))])
async def test_a_flood_of_open_event_streams_is_bounded(count: int, doors: Doors) -> None:
    counts = {200: 0, 503: 0, 0: 0}
    with trio.fail_after(120):
        async with dataspace.connect(doors.url) as space, trio.open_nursery() as nursery:
            together = trio.CapacityLimiter(100)
            answered = [trio.Event() for _ in range(count)]
            for each in answered:
                nursery.start_soon(observe, doors.port, counts, together, each)
            for each in answered:
                await each.wait()
            assert 1 <= counts[200] <= 8 and counts[503] > 0
            assert sum(counts.values()) == count
            await space.assert_(Record("seen", 1))
            nursery.cancel_scope.cancel()
        while await status_of(doors.port) != 200:
            pass  # until the daemon has seen that those have gone


async def observe(
    port: int, counts: dict[int, int], together: trio.CapacityLimiter, answered: trio.Event
) -> None:
    """Opens an event stream and counts the answer, 0 if there is none; one that is open stays so."""
    async with Plain(port) as client:
        async with together:
            await client.shout(OBSERVE)
            while b"\r\n\r\n" not in client.held and await client.more():
                pass
        status = int(client.held.split()[1]) if client.held else 0
        counts[status] += 1
        answered.set()
        if status == 200:
            await trio.sleep_forever()


async def status_of(port: int) -> int:
    """Returns how a further event stream is answered."""
    async with Plain(port) as client:
        await client.shout(OBSERVE)
        return int((await client.until(b"\r\n\r\n")).split()[1])
