"""The validator of groups finds nothing wrong in a real history, and each fault that is planted in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import Record
from index.patterns.text import parse_pattern
from index.values.values import Value
from relay.log.log import Log
from server.config.model import Config
from server.daemon.serve import serve
from tests.guarantees.groups import entries_of
from tests.model import groups as model
from tests.model.groups import GroupHistory, Report, Told, broken_groups, left
from tests.model.patterns import match

PATTERN = "job($who, $id)"
captures = partial(match, parse_pattern(PATTERN))


def key(value: Value) -> Value:
    assert isinstance(value, Record)
    return value.fields[0]


def read(directory: Path, told: list[Told]) -> GroupHistory:
    """The history that the log of a stopped daemon has."""
    log = Log.open(directory)
    entries = [item for segment in log.segments(0, log.last) for item in segment.items()]
    log.close()
    me = told[0].member
    reports = [Report(me, tuple([(each.at, each.token) for each in told[:2]]), is_taken=True)]
    return GroupHistory(captures, entries_of(entries, "w"), told, key, reports)


@pytest.fixture
async def history(tmp_path: Path) -> GroupHistory:
    """Six jobs of two keys, of which five are done, two of them in one turn and one at the second attempt.

    The sixth comes last, and is out.
    """
    told: list[Told] = []
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve, Config(("tcp:127.0.0.1:0",), tmp_path))
        async with dataspace.connect(url) as space:
            async with space.consume(PATTERN, group="w", key="who", in_flight=2) as jobs:

                async def take() -> dataspace.Job:
                    job = await jobs.next_job()
                    assert job is not None
                    at = job.epoch, job.position
                    told.append(Told(at, job.token, "me", job.captures, job.attempt))
                    return job

                for number in range(5):
                    await space.send(Record("job", "ab"[number % 2], number))
                one, two = await take(), await take()
                async with space.turn(done=[one, two]) as turn:
                    turn.assert_(Record("result", 1), owner="results")
                await (await take()).again(blame=True)
                for _ in range(3):
                    await (await take()).done()
                await space.send(Record("job", "b", 5))
                await take()
        nursery.cancel_scope.cancel()
    return read(tmp_path, told)


def done_at(history: GroupHistory) -> list[int]:
    return [at for at, each in enumerate(history.entries) if isinstance(each, model.Done)]


async def test_a_real_history_breaks_nothing(history: GroupHistory) -> None:
    assert broken_groups(history) == []
    assert len(left(history)) == 1 and len(done_at(history)) == 4


def twice(history: GroupHistory) -> None:
    """The note of a done item is there again."""
    at = done_at(history)[0]
    history.entries.append(history.entries[at])


def twice_at_once(history: GroupHistory) -> None:
    """A note has an item twice."""
    first = history.entries[done_at(history)[-1]]
    assert isinstance(first, model.Done)
    history.entries[done_at(history)[-1]] = model.Done([*first.items, *first.items])


def of_nothing(history: GroupHistory) -> None:
    """An item is done that is none."""
    history.entries.append(model.Done([(10_000, 0)]))


def before_it_was(history: GroupHistory) -> None:
    """An item is done before it is in the log."""
    at = done_at(history)[-1]
    history.entries.insert(2, history.entries.pop(at))


def lost_epoch(history: GroupHistory) -> None:
    """The epoch of an item is gone, and its note is not."""
    at = next(
        at
        for at, each in enumerate(history.entries)
        if isinstance(each, model.Epoch) and any(captures(value) for value in each.messages)
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
    """An item is done that no member was told, nor has reported as taken."""
    history.told[:] = [each for each in history.told if each.at != history.told[-2].at]


def other_captures(history: GroupHistory) -> None:
    """A member is told another value than the log has."""
    history.told[0] = replace(history.told[0], captures=("a", 7))


def after_it_was_done(history: GroupHistory) -> None:
    """An item is handed out again after a later item that came once it was done."""
    history.told.append(replace(history.told[0], token=history.told[-1].token + 1))


def after_it_had_gone(history: GroupHistory) -> None:
    """The same of a fact that had gone."""
    first = history.told[0].at
    at = next(
        at
        for at, each in enumerate(history.entries)
        if isinstance(each, model.Epoch) and each.number == first[0]
    )
    epoch = history.entries[at]
    assert isinstance(epoch, model.Epoch)
    history.entries[at] = epoch._replace(added=epoch.messages, messages=())
    history.entries.insert(at + 1, model.Epoch(first[0], (), (), epoch.messages))
    history.entries[:] = [each for each in history.entries if not isinstance(each, model.Done)]
    history.told.append(replace(history.told[0], token=history.told[-1].token + 1))


def failed_for_nothing(history: GroupHistory) -> None:
    """A job that has failed is handed out as the first attempt."""
    history.entries.append(model.Failed(history.told[-1].at, 1))
    history.entries.append(model.Epoch(9_999, (), (Record("job", "c", 1),), ()))
    history.told.append(Told((9_999, 0), history.told[-1].token + 1))
    history.told.append(replace(history.told[-2], token=history.told[-1].token + 1))


def by_another_member(history: GroupHistory) -> None:
    """What one member has is taken from another one."""
    history.reports[0] = history.reports[0]._replace(member="you")


PLANTED: Final[dict[Callable[[GroupHistory], None], Callable[[GroupHistory], Iterator[str]]]] = {
    twice: model.done_once,
    twice_at_once: model.done_once,
    of_nothing: model.done_once,
    before_it_was: model.done_once,
    lost_epoch: model.done_once,
    out_of_order: model.done_in_order,
    one_token_twice: model.told_one_item_for_a_token,
    to_nobody: model.done_as_it_was_told,
    other_captures: model.told_what_there_is,
    after_it_was_done: model.told_no_more_once_done,
    after_it_had_gone: model.told_no_more_once_done,
    failed_for_nothing: model.told_each_attempt,
    by_another_member: model.done_by_who_was_told,
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
async def test_a_planted_fault_is_found(history: GroupHistory, plant: Callable[[GroupHistory], None]) -> None:
    plant(history)
    assert list(PLANTED[plant](history))


def test_each_promise_has_a_planted_fault() -> None:
    assert set(PLANTED.values()) == set(model.PROMISES)
