"""A turn that is no turn ends its session and nothing else: nothing of it is there, nor after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT
from dataspace.wire import packets as p
from index.values.values import Map
from server.cli.main import main
from tests.server.peers import Peer, turn
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

JUNK = {
    "a number": 1,
    "null": None,
    "a record": Record("x", 1),
    "a map": Map({0: 1}),
    "text": "assert",
    "a text as verb": ("assert", 9, 1),
    "too short": (ASSERT, 9),
    "too long": (RETRACT, 1, 2),
    "a handle that is none": (REPLACE, 1, 1.5, 2),
}


@pytest.mark.parametrize("owner", ["", "half", "lease:60000:half"])
def test_a_half_turn_leaves_nothing(tmp_path: Path, owner: str) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    trio.run(_send_half_turns, daemon.url, owner)
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.errors
    assert main(["log", "verify", "--data", str(daemon.data)]) == 0
    daemon.start()
    trio.run(_find_no_ghost, daemon.url, owner)
    assert daemon.stop() == 0


async def _send_half_turns(url: str, owner: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url, reconnect=False) as bystander:
            for at, junk in enumerate(JUNK.values()):
                async with Peer(url) as peer:
                    await peer.greet(f"~{at}")
                    if owner.startswith("lease:"):
                        await peer.say(p.Request(1, "lease", Map({"owner": owner})))
                        assert isinstance(await peer.hear(), p.Answer)
                    await peer.say(turn(1, (ASSERT, 2 * at, Record("b")), owner=owner))
                    assert isinstance(await peer.hear(), p.Accepted)
                    actions = ((ASSERT, 99, Record("ghost", at)), (RETRACT, 2 * at), junk)
                    await peer.say(turn(2, *actions, owner=owner))  # type: ignore[arg-type]  # on purpose
                    assert (await peer.farewell()).code == "malformed"
            assert await bystander.matches("ghost($n)") == []
            assert await bystander.sync() > 0


async def _find_no_ghost(url: str, owner: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url, reconnect=False) as space:
            assert await space.matches("ghost($n)") == []
            assert await space.matches("b()") == ([()] if owner else [])
