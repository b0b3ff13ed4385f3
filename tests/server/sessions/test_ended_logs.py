"""A log that ends under its clients, as where a daemon has lost its lease or its disk.

Whoever waits for it, or comes then, is told that this daemon closes, and comes back to the next one; nothing
of that is a defect, and no session ends for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest
import trio

from dataspace.kernel.actions import ASSERT, SEND
from dataspace.wire import packets as p
from index.patterns.text import parse_pattern
from index.values.values import Map, Record
from relay.log.writer import GroupCommit
from relay.store.errors import LogFailed
from tests.server.peers import turn
from tests.server.streams.inside import Inside, Wire, inside

ALL: Final = parse_pattern("f($n)")
CREDIT: Final = (1 << 20, 1 << 20)
WAITING: Final[dict[str, p.Packet]] = {
    "nothing": p.Ping(1),
    "a group that is made": p.Open(1, Map({"kind": "consume", "group": "g", "pattern": ALL}), *CREDIT),
    "jobs that are asked for": p.Request(
        1, "take", Map({"group": "g", "pattern": ALL, "most": 1, "wait": 60_000})
    ),
    "an observation": p.Open(1, Map({"kind": "observe", "pattern": ALL}), *CREDIT),
    "a replay": p.Open(1, Map({"kind": "observe", "pattern": ALL, "after": 0, "durable": True}), *CREDIT),
    "a replay without credit": p.Open(
        1, Map({"kind": "observe", "pattern": ALL, "after": 0, "upto": 1, "quiet": False}), 0, 0
    ),
    "an old turn": turn(2, (ASSERT, 2, Record("f", 2))),
    "a lease": p.Request(1, "release", Map({"owner": "lease:1000:l"})),
    "an epoch": p.Request(1, "frontier", Map({"after": 1 << 40, "wait": 60_000})),
}
"""What a client has asked when the log ends; all of it waits for the disk, or for credit."""

CREDITS: Final = p.Ask(1, *CREDIT)


def _is_over(commits: GroupCommit) -> None:
    """As where the task that writes is cancelled."""
    commits._is_over = True
    commits._settled.unpark_all()


def _has_failed(commits: GroupCommit) -> None:
    commits.fail("the disk has failed")


async def _hear_goodbye(wire: Wire) -> tuple[p.Bye | None, list[p.Packet]]:
    heard = list[p.Packet]()
    while (packet := await wire.hear()) is not None:
        if isinstance(packet, p.Bye):
            return packet, heard
        heard.append(packet)
    return None, heard


@pytest.mark.parametrize("ends", [_is_over, _has_failed])
@pytest.mark.parametrize("asked", WAITING)
async def test_clients_are_sent_to_the_next_daemon(
    tmp_path: Path, asked: str, ends: Callable[[GroupCommit], None], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises((LogFailed, ExceptionGroup)) if ends is _has_failed else nullcontext():
        async with inside(tmp_path) as daemon:
            await _is_sent_away(daemon, asked, ends)
    assert "defect" not in caplog.text


async def _is_sent_away(daemon: Inside, asked: str, ends: Callable[[GroupCommit], None]) -> None:
    wire = daemon.connect()
    await wire.greet("me")
    await wire.say(p.Request(0, "lease", Map({"owner": "lease:1000:l"})))
    while not isinstance(await wire.hear(), p.Answer):
        pass
    await wire.say(turn(1, (ASSERT, 1, Record("f", 1))))
    while not isinstance(await wire.hear(), p.Accepted):
        pass
    daemon.hold()
    await wire.say(turn(2, (ASSERT, 2, Record("f", 2))), WAITING[asked])
    await trio.testing.wait_all_tasks_blocked(0.02)
    ends(daemon.hosted.leading.commits)
    await trio.testing.wait_all_tasks_blocked(0.02)
    if asked == "a replay without credit":
        await wire.say(CREDITS)
        await trio.testing.wait_all_tasks_blocked(0.02)
    await wire.say(turn(3, (SEND, Record("f", 3))))
    with trio.fail_after(10):
        bye, heard = await _hear_goodbye(wire)
    assert bye is not None and bye.code == "closing", (bye, heard)
    errors = [each for each in heard if isinstance(each, p.Error | p.Denied | p.Refusal)]
    assert {each.code for each in errors} <= {"closing", "log-failed"}, errors
