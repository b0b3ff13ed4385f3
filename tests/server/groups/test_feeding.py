"""What one turn gives to many groups is done in bounded steps and within a bound of memory, each row once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from dataspace.kernel.actions import SEND
from dataspace.wire.consuming import ConsumeOptions
from index.patterns.text import parse_pattern
from index.values.values import Record
from relay.groups.members import JobDelivery
from relay.groups.memory import LEAST
from relay.groups.state import END
from server.groups.space import feeding
from server.groups.space.definitions import joined
from server.groups.space.group import StreamMember, WorkGroup
from server.groups.space.groups import HANDED
from server.groups.space.reading import PORTION_LEAST, feed_on, read_behind, take_pending
from tests.server.groups.spaces import BareSpace

PATTERN: Final = parse_pattern("job($id)")


@asynccontextmanager
async def _space(tmp_path: Path, *tasks: Callable[..., object]) -> AsyncIterator[BareSpace]:
    bare = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        with trio.fail_after(20):
            for task in (read_behind, *tasks):
                nursery.start_soon(task, bare.groups)  # type: ignore[arg-type]  # async functions
            yield bare
        nursery.cancel_scope.cancel()


async def _group(bare: BareSpace, name: str) -> WorkGroup:
    group = await joined(bare.groups, ConsumeOptions(name, PATTERN))
    while not group.state.is_live:  # noqa: ASYNC110  # no event says so
        await trio.sleep(0.001)
    return group


async def _send(bare: BareSpace, count: int) -> int:
    epoch = bare.commit("boss", [(SEND, Record("job", number)) for number in range(count)])
    await bare.commits.wait_durable(epoch.number)
    return epoch.number


async def test_a_checkpoint_in_the_middle_of_an_epoch_has_no_more_than_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "AT_ONCE", 4)
    async with _space(tmp_path) as bare:
        group = await _group(bare, "one")
        later = await _group(bare, "later")
        bare.groups.feeding.renew()
        before = bare.groups.states.fed
        epoch = await _send(bare, 10)
        assert not bare.groups.feeding.is_over and 0 < len(group.state.undone) < 10
        (_, ((_, *read, _, undone, _, _),)), *_ = bare.groups.states.rows()
        assert (epoch, 0) <= tuple(read) < (epoch, 9) and len(undone) == read[1] + 1  # type: ignore[arg-type,operator]  # a tuple, a position
        for _ in bare.groups.feeding.steps():
            assert bare.groups.states.fed in (before, epoch)
        for _, (fields,) in bare.groups.states.rows():
            assert fields[1:3] == (epoch, END), "it is read whole"
        for each in (group, later):
            assert [*each.state.undone] == [(epoch, number) for number in range(10)]


async def test_a_group_that_has_read_what_still_waits_takes_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "AT_ONCE", 4)
    async with _space(tmp_path) as bare:
        group = await _group(bare, "one")
        other = await _group(bare, "other")
        bare.groups.feeding.renew()
        epoch = await _send(bare, 10)
        bare.groups.fall_behind(other, (epoch, 0))
        other.state.read = (epoch - 1, END)
        other.state.undone.clear()
        other.begin_anew(0)
        bare.groups.behind.set()
        while not other.state.is_live:  # noqa: ASYNC110  # no event says so
            await trio.sleep(0.001)
        assert not bare.groups.feeding.is_over and bare.groups.states.fed < epoch
        for _ in bare.groups.feeding.steps():
            pass
        assert [*other.state.undone] == [*group.state.undone] == [(epoch, number) for number in range(10)]
        assert other.core.held == group.core.held, "each once"


@pytest.mark.parametrize("waiting", [0, 1 << 20], ids=["falls behind", "waits"])
async def test_items_of_many_groups_are_bounded_in_memory_and_in_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    """The groups take as much as their share, and come to the rest once they have done that."""
    monkeypatch.setattr(feeding, "WAITING_BYTES", waiting)
    count, jobs = 12, 400
    async with _space(tmp_path, feed_on) as bare:
        bare.groups.items.limit = 100_000
        groups = [await _group(bare, f"g{number}") for number in range(count)]
        for _ in range(3):
            at = bare.groups.feeding._allowance
            await _send(bare, jobs)
            assert at - bare.groups.feeding._allowance <= feeding.AT_ONCE + count + 1
            await trio.sleep(0.02)
            assert bare.groups.items.used <= bare.groups.items.limit + count * (LEAST + PORTION_LEAST + 1_000)
            assert bare.groups.items.used == sum([each.core.held for each in groups])
        for group in groups:
            seen: list[tuple[int, int]] = []
            while len(seen) < 3 * jobs:
                some = [*group.state.undone]
                assert len(some) < 3 * jobs, "not all at once"
                seen += some
                group.core.done(some)
                bare.groups.touched(group)
                bare.groups.deliver()
                await trio.sleep(0.001)
            assert seen == sorted(set(seen)), "each once, in order"
        assert bare.groups.items.used == 0


async def test_what_is_ready_is_handed_out_in_bounded_steps(tmp_path: Path) -> None:
    async with _space(tmp_path) as bare:
        given: dict[str, list[JobDelivery]] = {"one": [], "other": []}
        for name, got in given.items():
            group = await _group(bare, name)

            def give(_group: WorkGroup, delivery: JobDelivery, got: list[JobDelivery] = got) -> None:
                got.append(delivery)

            member = StreamMember(name, 10_000, "me", give, lambda _mark: None)
            bare.groups.join(group, member, "session", ())
        await _send(bare, 2 * HANDED)
        for _ in bare.groups.feeding.steps():
            pass
        before = sum(map(len, given.values()))
        bare.groups.deliver()
        assert sum(map(len, given.values())) - before <= HANDED
        assert bare.groups.feeding.more.is_set()
        while sum(map(len, given.values())) < 4 * HANDED:
            before = sum(map(len, given.values()))
            bare.groups.deliver()
            assert 0 < sum(map(len, given.values())) - before <= HANDED
        for got in given.values():
            assert [each.item.at[1] for each in got] == [*range(2 * HANDED)]


async def test_what_was_read_and_waits_counts_and_is_taken(tmp_path: Path) -> None:
    async with _space(tmp_path) as bare:
        group = await _group(bare, "one")
        epoch = await _send(bare, 40)
        for _ in bare.groups.feeding.steps():
            pass
        items = [*group.state.undone.values()]
        group.core.done([each.at for each in items])
        bare.groups.items.limit = 1
        group.state.read = (epoch - 1, END)
        group.read(items)
        assert bare.groups.items.used == group.pending_bytes == group.core.held > 0
        for _ in take_pending(group):
            pass
        assert not group.pending and group.pending_bytes == 0 and group.core.held > 0, "the share is 64 KiB"
        group.read([])
        group.begin_anew(1)
        assert bare.groups.items.used == group.core.held
        bare.groups.drop(group.name)
        assert bare.groups.items.used == bare.groups.items.groups == 0
