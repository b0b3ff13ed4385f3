"""A space that follows a log while it is written, snapshotted and trimmed ends with what the log holds."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import trio

from dataspace.errors import Closed, Refused
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.kernel.changes import Epoch
from dataspace.kernel.space import Space
from index.values.values import Record, key
from relay.following.following import FollowedLog, Following
from relay.log.log import Log
from relay.log.retention import Retention
from relay.log.segments import encode
from relay.log.snapshots import RecoveredState
from relay.log.writer import GroupCommit
from server.spaces.roles import difference

pytestmark = pytest.mark.usefixtures("home")

EVERYTHING = Retention(age=0.0)
LATE = 10**15


class Leader:
    """A space whose epochs are written to a log at once."""

    def __init__(self, directory: Path) -> None:
        self.log = Log.open(directory)
        self.space = Space("leader")

    def turns(self, count: int) -> None:
        for at in range(count):
            self.space.commit(
                f"owner {at % 2}",
                [(ASSERT, self.space.epoch, Record("n", at)), (SEND, Record("said", at))],
                1,
                submit=lambda epoch: self.log.append([encode(epoch)]),
            )
        if count:
            self.space.commit(
                "owner 0",
                [(RETRACT, next(iter(self.space.claims("owner 0"))))],
                1,
                submit=lambda epoch: self.log.append([encode(epoch)]),
            )

    def snapshot(self) -> None:
        owners = {owner: claims.copy() for owner, claims in self.space.all_claims().items()}
        state = RecoveredState(owners, epoch=self.space.epoch, time=self.space.time)
        state.segment = self.log.last_segment
        writer = self.log.snapshot(state)
        while writer.step():
            pass


class Follower:
    """A space that follows that log."""

    def __init__(self, directory: Path) -> None:
        self.log = FollowedLog.open(directory)
        self.space = Space("follower")
        self.jumps = 0
        state = self.log.recover()
        self.space.restore(state.owners, state.epoch, state.time)
        state.owners = {}
        self.following = Following(
            self.log,
            state,
            apply=self.space.follow,
            flush=lambda: None,
            refusal=lambda: Refused("elsewhere", "a leader takes turns", "tcp://a:1"),
            jump=self._jump,
        )

    def _jump(self, state: RecoveredState) -> None:
        self.jumps += 1
        self.space.follow(Epoch(state.epoch, state.time, claims=difference(self.space, state.owners)))


def _held(space: Space) -> object:
    claims = {
        owner: sorted((at, key(value)) for at, value in space.claims(owner).items())
        for owner in space.owners()
    }
    return claims, space.epoch, space.statistics().facts


async def _follow(follower: Follower, epoch: int) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.following.run)
        with trio.fail_after(10):
            await follower.following.wait_durable(epoch)
        await follower.following.close()


GRID = list(product((0, 3), (False, True), (0, 4), (False, True), (False, True)))


@pytest.mark.parametrize(("before", "early", "later", "snapshot", "trimmed"), GRID)
async def test_it_holds_what_the_log_holds(
    tmp_path: Path, before: int, early: bool, later: int, snapshot: bool, trimmed: bool
) -> None:
    leader = Leader(tmp_path)
    leader.turns(before)
    if early:
        leader.snapshot()
    follower = Follower(tmp_path)
    assert _held(follower.space) == _held(leader.space)
    leader.turns(later)
    if snapshot:
        leader.snapshot()
    if trimmed:
        leader.log.trim(EVERYTHING, LATE)
    await _follow(follower, leader.space.epoch)
    assert _held(follower.space) == _held(leader.space)
    follower.space.index.check()
    assert follower.jumps == (trimmed and snapshot and later > 0), "only where epochs are gone"
    leader.turns(2)
    again = Follower(tmp_path)
    assert _held(again.space) == _held(leader.space)
    for each in (follower, again):
        each.log.close()
    leader.log.close()


@pytest.mark.parametrize("turns", [0, 2])
async def test_it_reaches_the_number_with_which_a_leader_begins_that_has_written_nothing(
    tmp_path: Path, turns: int
) -> None:
    first = Leader(tmp_path)
    first.turns(turns)
    follower = Follower(tmp_path)
    leader = Leader(tmp_path)  # the first one is killed: it gives no number back
    begun = leader.log.next_epoch - 1
    assert begun > first.space.epoch == follower.following.durable
    again = Follower(tmp_path)
    assert (again.following.durable, again.space.epoch) == (begun, begun)
    follower.following.expect(begun)
    await _follow(follower, begun)
    first.space.epoch = begun
    assert _held(follower.space) == _held(again.space) == _held(first.space)
    for each in (first.log, leader.log, follower.log, again.log):
        each.close()


async def test_it_reaches_no_start_before_what_was_written_until_then(tmp_path: Path) -> None:
    first = Leader(tmp_path)
    follower = Follower(tmp_path)
    first.turns(2)
    leader = Leader(tmp_path)
    again = Follower(tmp_path)
    begun = leader.log.next_epoch - 1
    follower.following.expect(begun)
    assert await follower.following._read_on()
    assert follower.following.durable == first.space.epoch
    assert not await follower.following._read_on()
    assert follower.following.durable == again.following.durable == begun
    for each in (first.log, leader.log, follower.log, again.log):
        each.close()


async def test_who_waits_is_woken_in_time_and_goes_on_with_a_successor(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    follower = Follower(tmp_path)
    following = follower.following
    woken: list[str] = []

    async def wait(name: str, epoch: int) -> None:
        await following.wait_durable(epoch)
        woken.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(following.run)
        nursery.start_soon(wait, "first", 1)
        nursery.start_soon(wait, "later", 4)
        leader.turns(2)
        with trio.fail_after(10):
            while woken != ["first"]:  # noqa: ASYNC110  # what appends it is the code under test
                await trio.sleep(0.001)
        with pytest.raises(Refused) as refused:
            following.submit(Epoch(9, 9))
        assert (refused.value.code, refused.value.url) == ("elsewhere", "tcp://a:1")
        await following.catch_up()
        leader.log.close()
        log = Log.open(tmp_path)
        log.recover()
        commits = GroupCommit(log)
        nursery.start_soon(commits.run)
        following.succeed(commits)
        number = log.next_epoch
        commits.submit(Epoch(number, 1, (Record("x", 1),)))
        with trio.fail_after(10):
            await following.wait_beyond(3)
            while len(woken) < 2:  # noqa: ASYNC110  # as above
                await trio.sleep(0.001)
        assert following.durable == commits.durable == number
        await commits.close()
    follower.log.close()
    log.close()


async def test_a_closed_one_wakes_who_waits_with_an_error(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    follower = Follower(tmp_path)
    ended: list[str] = []

    async def wait() -> None:
        try:
            await follower.following.wait_durable(10)
        except Closed:
            ended.append("closed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.following.run)
        nursery.start_soon(wait)
        await trio.sleep(0.02)
        await follower.following.close()
    assert ended == ["closed"]
    follower.log.close()
    leader.log.close()
