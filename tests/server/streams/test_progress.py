"""An observer can ask through which epoch it has been told everything, where nothing else says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import EpochChanges, Record, RemoteSpace
from dataspace.wire import packets as p
from index.patterns.text import parse_pattern
from index.values.values import Map
from relay.store.errors import LogFailed
from tests.server.streams.inside import inside


async def upto_mark(observation: dataspace.Observation, number: int) -> list[EpochChanges]:
    """The epochs until one is a mark at or after that epoch."""
    seen = []
    with trio.fail_after(10):
        async for epoch in observation.epochs():
            seen.append(epoch)
            if epoch.progress and epoch.number >= number:
                return seen
    raise AssertionError("it ended")


async def epochs_of(space: RemoteSpace, count: int) -> list[int]:
    epochs = []
    for n in range(count):
        async with space.turn() as turn:
            turn.assert_(Record("even" if n % 2 == 0 else "odd", n))
        assert turn.epoch is not None
        epochs.append(turn.epoch)
    return epochs


async def test_a_live_observer_hears_of_epochs_that_do_not_concern_it(url: str) -> None:
    async with dataspace.connect(url) as space, space.observe("even($n)", progress=True) as even:
        epochs = await epochs_of(space, 6)
        seen = await upto_mark(even, epochs[-1])
        rows = [row for each in seen for row in each.added]
        assert rows == [(0,), (2,), (4,)]
        numbers = [each.number for each in seen]
        assert numbers == sorted(numbers) and seen[-1].number >= epochs[5] > epochs[4]


async def test_a_replay_tells_it_too(url: str) -> None:
    async with dataspace.connect(url) as space:
        epochs = await epochs_of(space, 6)
        async with space.observe("even($n)", after=0, upto=epochs[-1], progress=True, quiet=True) as even:
            seen = [each async for each in even.epochs()]
        assert seen[-1].progress and seen[-1].number == epochs[-1]
        assert [row for each in seen for row in each.added] == [(0,), (2,), (4,)]


async def test_without_asking_there_are_no_marks(url: str) -> None:
    async with dataspace.connect(url) as space, space.observe("even($n)") as even:
        await epochs_of(space, 6)
        with trio.fail_after(10):
            assert not any([(await even.next_epoch()).progress for _ in range(4)])  # type: ignore[union-attr]  # it goes on


async def test_the_state_of_an_epoch_in_the_past_comes_first_if_wanted(url: str) -> None:
    async with dataspace.connect(url) as space:
        epochs = await epochs_of(space, 4)
        async with space.observe("even($n)", as_of=epochs[1], upto=epochs[3]) as even:
            seen = [(each.snapshot, [*each.added]) async for each in even.epochs()]
        assert seen == [(True, [(0,)]), (False, [(2,)])]


async def test_a_net_difference_leaves_out_what_came_and_went(url: str) -> None:
    async with dataspace.connect(url) as space:
        before = await space.sync()
        gone = await space.assert_(Record("even", 0))
        await space.retract(gone)
        await space.assert_(Record("even", 2))
        async with space.observe("even($n)", after=before, net=True) as even:
            epoch = await even.next_epoch()
            assert epoch is not None and (epoch.conflated, epoch.added, epoch.removed) == (True, ((2,),), ())


async def test_a_disk_that_fails_while_a_mark_is_waited_for_is_no_defect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = Map({"pattern": parse_pattern("even($n)"), "progress": True, "space": "main"})
    with pytest.RaisesGroup(LogFailed, flatten_subgroups=True):
        async with inside(tmp_path / "data") as life:
            wire = life.connect()
            await wire.greet()
            await wire.say(p.Open(1, spec, 100, 1 << 20))
            with trio.fail_after(10):
                while True:
                    if life.hosted.leading.commits._settled.statistics().tasks_waiting:
                        break
                    await trio.sleep(0.01)
            life.hosted.leading.commits.fail("the disk has failed")
            await trio.sleep_forever()
    assert "defect" not in caplog.text
