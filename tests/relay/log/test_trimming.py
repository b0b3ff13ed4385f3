"""A log that is written trims itself meanwhile, and makes the snapshot that it needs for that."""

from __future__ import annotations

import trio

from dataspace.kernel.changes import Epoch
from index.values.values import Value
from relay.log.log import Log
from relay.log.retention import Retention
from relay.log.segments import encode
from relay.log.writer import GroupCommit, retain
from tests.relay.log.histories import epoch


async def test_old_epochs_go_and_the_state_stays(log: Log) -> None:
    owners: dict[str, dict[int, Value]] = {"durable:EWR": {}}
    commits = GroupCommit(log, state=lambda: owners)

    def submit(number: int) -> None:
        made: Epoch = epoch(number, "x" * 50_000, number)
        for claims in made.claims:
            owners["durable:EWR"].update(claims.asserted)
        commits.submit(made)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commits.run)
            for number in range(1, 30):
                submit(number)
                await commits.wait_durable(number)
            assert log.snapshot_epoch() is None
            nursery.start_soon(lambda: retain(log, commits, lambda: Retention(age=0.0), every=0.01))
            while log.oldest < 29:  # noqa: ASYNC110  # the log has no event for it, and no turn follows
                await trio.sleep(0.01)
            assert log.snapshot_epoch() == 29
            nursery.cancel_scope.cancel()
    assert log.recover().owners == owners


async def test_an_endless_log_is_left_alone(log: Log) -> None:
    log.append([encode(epoch(number, "x")) for number in (1, 2)])
    log.snapshot(log.recover()).step()
    with trio.move_on_after(0.05):
        await retain(log, GroupCommit(log), Retention, every=0.0)
    assert log.oldest == 1
