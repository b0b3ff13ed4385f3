"""The validator of groups finds nothing wrong in a real history, and each fault that is planted in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.kernel.changes import Epoch
from index.values.values import Value
from relay.log.log import Log
from relay.log.notes import Note
from server.config.model import Config
from server.daemon.serve import serve
from tests.guarantees.groups import GroupHistory, Told, broken_groups, left


def matches(value: Value) -> bool:
    return isinstance(value, Record) and value.label == "job" and len(value.fields) >= 2


def key(value: Value) -> Value:
    assert isinstance(value, Record)
    return value.fields[0]


def read(directory: Path, told: list[Told]) -> GroupHistory:
    """The history that the log of a stopped daemon has."""
    log = Log.open(directory)
    entries = [item for segment in log.segments(0, log.last) for item in segment.items()]
    log.close()
    return GroupHistory("w", matches, entries, told, key)


@pytest.fixture
async def history(tmp_path: Path) -> GroupHistory:
    """Six jobs of two keys, of which five are done, two of them in one turn and one at the second attempt."""
    told: list[Told] = []
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve, Config(("tcp:127.0.0.1:0",), tmp_path))
        async with dataspace.connect(url) as space:
            async with space.consume("job($who, $id)", group="w", key="who", in_flight=2) as jobs:

                async def take() -> dataspace.Job:
                    job = await jobs.next_job()
                    assert job is not None
                    told.append(Told((job.epoch, job.position), job.token))
                    return job

                for number in range(6):
                    await space.send(Record("job", "ab"[number % 2], number))
                one, two = await take(), await take()
                async with space.turn(done=[one, two]) as turn:
                    turn.assert_(Record("result", 1), owner="results")
                await (await take()).again(blame=False)
                for _ in range(3):
                    await (await take()).done()
        nursery.cancel_scope.cancel()
    return read(tmp_path, told)


def done_at(history: GroupHistory) -> list[int]:
    return [
        at for at, each in enumerate(history.entries) if isinstance(each, Note) and each.kind == "group-done"
    ]


async def test_a_real_history_breaks_nothing(history: GroupHistory) -> None:
    assert broken_groups(history) == []
    assert len(left(history)) == 1 and len(done_at(history)) == 4


def twice(history: GroupHistory) -> None:
    """The note of a done item is there again."""
    at = done_at(history)[0]
    history.entries.append(history.entries[at])


def of_nothing(history: GroupHistory) -> None:
    """An item is done that is none."""
    history.entries.append(Note("group-done", ("w", 10_000, 0), required=True))


def before_it_was(history: GroupHistory) -> None:
    """An item is done before it is in the log."""
    at = done_at(history)[-1]
    history.entries.insert(2, history.entries.pop(at))


def lost_epoch(history: GroupHistory) -> None:
    """The epoch of an item is gone, and its note is not."""
    at = next(
        at
        for at, each in enumerate(history.entries)
        if isinstance(each, Epoch) and any(map(matches, each.messages))
    )
    del history.entries[at]


def out_of_order(history: GroupHistory) -> None:
    """Of a key, the later item is done first."""
    first = done_at(history)[0]
    history.entries.append(history.entries.pop(first))


def one_token_twice(history: GroupHistory) -> None:
    """Two items were delivered under one token, as by a counter that began anew."""
    history.told.append(Told((9_999, 0), history.told[0].token))


def to_nobody(history: GroupHistory) -> None:
    """An item is done that no member was told."""
    history.told[:] = [each for each in history.told if each.at != history.told[0].at]


PLANTED = (twice, of_nothing, before_it_was, lost_epoch, out_of_order, one_token_twice, to_nobody)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
async def test_a_planted_fault_is_found(history: GroupHistory, plant: Callable[[GroupHistory], None]) -> None:
    plant(history)
    assert broken_groups(history)
