"""The states that replays hold are counted, bounded together, and given back."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.wire import packets as p
from index.values.values import Map, Record
from relay.delivery.memory import ROW_BYTES, STATES_PART, HeldState, MemoryBudget
from server.config.model import Limits
from tests.server.peers import PLENTY
from tests.server.streams.inside import Inside, inside

ROWS = 1000


def test_a_state_alone_may_be_of_any_size_and_beside_others_is_bounded() -> None:
    budget = MemoryBudget(STATES_PART * 10 * ROW_BYTES)
    first, second = HeldState(budget), HeldState(budget)
    first.holds(50)
    with pytest.raises(Refused, match="a state of 1 rows, beside 12800 bytes in states of replays"):
        second.holds(1)
    first.holds(5)
    second.holds(5)
    with pytest.raises(Refused):
        first.holds(6)
    second.close()
    first.holds(60)
    first.close()
    first.close()
    assert budget.states == 0


async def _facts(daemon: Inside) -> int:
    """A state of many rows at epoch 1, and epochs of messages after it."""
    facts = [(ASSERT, n, Record("row", n)) for n in range(ROWS)]
    daemon.hosted.commit("durable:a", facts)
    for n in range(20):
        daemon.hosted.commit("durable:a", [(SEND, Record("row", "x" * 20_000, n))])
    await daemon.hosted.commits.wait_durable(daemon.hosted.space.epoch)
    return daemon.hosted.space.epoch


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"as_of": 1}, {"after": 1}], ids=["state", "changes"])
async def test_replays_whose_states_are_too_much_together_are_refused(
    tmp_path: Path, options: dict[str, int]
) -> None:
    limits = Limits(waiting_bytes=STATES_PART * 2 * ROWS * ROW_BYTES)
    pattern = Record("row", Record("$", None, None, Record("_")))
    with trio.fail_after(60):
        async with inside(tmp_path, limits) as daemon:
            last = await _facts(daemon)
            wire = daemon.connect()
            await wire.greet()
            for number in range(1, 6):
                spec = {"kind": "observe", "pattern": pattern, "quiet": True, "upto": last, **options}
                await wire.say(p.Open(number, Map(spec), 0, PLENTY))
                await trio.testing.wait_all_tasks_blocked(0.05)
            room = daemon.daemon.delivery.budget
            assert 0 < room.states <= 2 * ROWS * ROW_BYTES
            refused = []
            await wire.say(*[p.Abort(n, "", True) for n in range(1, 6)])
            for _ in range(5):
                while not isinstance(packet := await wire.hear(), p.Done | p.Error):
                    assert packet is not None
                if isinstance(packet, p.Error):
                    refused.append(packet.code)
            assert refused == ["limit"] * 3
            await trio.testing.wait_all_tasks_blocked()
            assert room.states == 0
