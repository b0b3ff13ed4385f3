"""A fact that is asserted for a block ends with it, wherever the block is cancelled."""

from __future__ import annotations

import signal

import pytest
import trio
import trio.testing

import dataspace
from dataspace import Record, Refused
from dataspace.kernel.limits import SpaceLimits
from tests.server.processes import DaemonProcess


@pytest.mark.slow
async def test_a_block_that_is_cancelled_before_the_answer_leaves_no_fact(daemon: DaemonProcess) -> None:
    """The turn is on its way, and the daemon, which is stopped, takes it when it goes on."""
    async with dataspace.connect(daemon.url) as space, dataspace.connect(daemon.url) as other:
        await space.assert_(Record("first"))
        daemon.process.send_signal(signal.SIGSTOP)
        async with trio.open_nursery() as nursery:

            async def hold() -> None:
                async with space.asserting(Record("present", "me")):
                    raise AssertionError("the daemon is stopped")

            nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        daemon.process.send_signal(signal.SIGCONT)
        await space.sync()
        assert await other.matches("present($)") == []
        assert await other.matches("first()") == [()]


@pytest.mark.parametrize("space_limits", [SpaceLimits(facts=1)])
async def test_a_fact_that_is_refused_is_not_retracted(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.asserting(Record("first")):
            with pytest.raises(Refused, match="facts"):
                async with space.asserting(Record("second")):
                    raise AssertionError
        assert await space.matches("first()") == []
