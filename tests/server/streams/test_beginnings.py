"""A stream begins where the daemon was when it was opened, however late it is served."""

from __future__ import annotations

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.wire.observing import ObserveOptions
from server.spaces.space import HostedSpace
from server.streams import replay

SOON = 20


@pytest.mark.parametrize("snapshot", [True, False])
async def test_what_is_said_after_a_durable_stream_is_opened_is_in_it(
    url: str, snapshot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = 0
    catch_up = replay.catch_up

    async def late(hosted: HostedSpace, request: ObserveOptions) -> None:
        await hosted.commits.wait_durable(said)
        await catch_up(hosted, request)

    monkeypatch.setattr(replay, "catch_up", late)
    with trio.fail_after(SOON):
        async with dataspace.connect(url) as space:
            await space.assert_(Record("fact", 0))
            said = 3
            async with space.observe("fact($n)", durable=True, snapshot=snapshot) as seen:
                seen.open()
                await space.send(Record("fact", 1))
                await space.assert_(Record("fact", 2))
                heard = []
                async for change in seen:
                    heard.append((change.kind, change.captures[0]))
                    if change.captures == (2,):
                        break
    assert heard == [*[("+", 0)] * snapshot, ("!", 1), ("+", 2)]
