"""Several streams out of one and one out of several: every value arrives where it belongs, ends included."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st

from dataspace import streams as s
from tests.dataspace.streams.runs import Failure, Scripted
from tests.dataspace.streams.test_promistream import ends


async def collected(stream: Any, into: list[Any]) -> None:
    into.append(await s.pipe(stream, s.collect()).read())


async def all_of(*streams: Any) -> list[list[Any]]:
    """What each stream gives, all read at once."""
    seen: list[list[list[Any]]] = [[] for _ in streams]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for at, stream in enumerate(streams):
                nursery.start_soon(collected, stream, seen[at])
    return [each[0] for each in seen]


@given(st.lists(st.integers(), max_size=60), st.integers(1, 4), st.integers(1, 5))
def test_a_mirror_gives_every_fork_everything(items: list[int], number: int, ahead: int) -> None:
    async def main() -> None:
        forks = s.fork_mirror(s.pipe(s.values(items)), number, ahead=ahead)
        assert await all_of(*forks) == [items] * number

    trio.run(main)


@given(st.lists(st.integers(), max_size=60), st.integers(1, 4))
def test_converging_is_the_reverse_of_dealing(items: list[int], number: int) -> None:
    async def main() -> None:
        forks = s.fork_round_robin(s.pipe(s.values(items)), number)
        with trio.fail_after(60):
            assert await s.pipe(s.converge(*forks), s.collect()).read() == items

    trio.run(main)


@given(st.lists(st.lists(st.integers(0, 9)), min_size=1, max_size=4))
def test_merging_sorts_and_catenating_appends(lists: list[list[int]]) -> None:
    async def main() -> None:
        ordered = [sorted(each) for each in lists]
        merged = s.merge(*(s.pipe(s.values(each)) for each in ordered))
        assert await s.pipe(merged, s.collect()).read() == sorted(chain(*lists))
        put_together = s.cat(*(s.pipe(s.values(each)) for each in lists))
        assert await s.pipe(put_together, s.collect()).read() == list(chain(*lists))

    trio.run(main)


async def test_the_slowest_fork_holds_the_others_back() -> None:
    source = Scripted(99, None, False)
    fast, slow = s.fork_mirror(s.pipe(source), 2, ahead=3)
    assert [await fast.read() for _ in range(3)] == [0, 1, 2]
    with trio.move_on_after(0.01) as scope:
        await fast.read()
    assert scope.cancelled_caught
    assert len(source._values) == 96
    assert await slow.read() == 0
    assert await fast.read() == 3


async def test_a_fork_that_leaves_holds_nobody_back_and_the_last_one_aborts() -> None:
    source = Scripted(99, None, True)
    fast, slow = s.fork_mirror(s.pipe(source), 2, ahead=1)
    assert await fast.read() == 0
    await slow.abort(Failure("slow"))
    assert [await fast.read() for _ in range(3)] == [1, 2, 3]
    assert source.closed == []
    await fast.abort(True)
    assert [repr(reason) for reason in source.closed] == ["Failure('slow')"]


async def test_the_reader_that_drives_may_go_away() -> None:
    source = s.pushable()
    one, two = s.fork_mirror(s.pipe(source))
    seen: list[Any] = []

    async def reader(stream: Any) -> None:
        seen.append(await stream.read())

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.01):
            nursery.start_soon(reader, two)
            await one.read()
        source.push(1)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [1]
    assert await one.read() == 1


async def test_an_error_comes_to_every_fork_after_its_own_values() -> None:
    forks = s.fork_mirror(s.pipe(Scripted(1, Failure("source"), False)))
    for fork in forks:
        assert await ends(fork, 3) == ["0", "Failure('source')", "Aborted(Failure('source'))"]


@pytest.mark.parametrize("join", [s.cat, s.converge, s.merge])
async def test_an_abort_ends_all_inputs(join: Any) -> None:
    inputs = [s.check(Scripted(5, None, True), calm=True) for _ in range(3)]
    stream = s.pipe(join(*(s.pipe(each) for each in inputs)))
    assert await stream.read() == 0
    await stream.abort(True)
    assert [each.stage.closed for each in inputs] == [[True]] * 3  # type: ignore[attr-defined]  # scripted
    assert await ends(stream, 1) == ["Aborted(True)"]


@pytest.mark.parametrize("join", [s.cat, s.converge, s.merge])
async def test_an_input_that_fails_fails_the_others(join: Any) -> None:
    other = Scripted(5, None, True)
    stream = s.pipe(join(s.pipe(Scripted(0, Failure("one"), True)), s.pipe(other)))
    assert await ends(stream, 2) == ["Failure('one')", "Aborted(Failure('one'))"]
    assert [repr(reason) for reason in other.closed] == ["Failure('one')"]


async def test_many_gives_what_comes_and_reads_one_ahead() -> None:
    left, right = s.pushable(), s.pushable()
    async with s.pipe(s.many(s.pipe(left), s.pipe(right))) as stream:
        right.push("r1")
        assert await stream.read() == "r1"
        left.push("l1")
        left.push("l2")
        left.end()
        assert await stream.read() == "l1"
        right.end()
        assert await ends(stream, 2) == ["'l2'", "EndOfStream()"]


async def test_many_can_be_added_to_until_it_is_capped() -> None:
    joined: Any = s.many(open=True)
    async with s.pipe(joined) as stream:
        joined.add(s.pipe(s.once(1)))
        assert await stream.read() == 1
        joined.add(s.pipe(s.once(2)))
        joined.cap()
        assert await ends(stream, 2) == ["2", "EndOfStream()"]


async def test_many_fails_with_the_first_and_aborts_the_others() -> None:
    other = Scripted(1, Failure("never seen"), True)
    async with s.pipe(s.many(s.pipe(s.error(Failure("one"))), s.pipe(other))) as stream:
        seen = await ends(stream, 3)
    assert "Failure('one')" in seen
    assert seen[-1] == "Aborted(Failure('one'))"


# -- lending ------------------------------------------------------------------------------------------


async def test_results_of_borrowers_come_in_the_order_of_the_values() -> None:
    lender = s.lend(s.pipe(s.count(49)), ahead=8)

    async def work(pace: int) -> None:
        async with lender.borrow() as loans:
            async for value in loans:
                for _ in range((value * pace) % 5):
                    await trio.lowlevel.checkpoint()
                loans.answer(value * value)

    async with trio.open_nursery() as nursery:
        for pace in (1, 2, 3):
            nursery.start_soon(work, pace)
        assert await s.pipe(lender, s.collect()).read() == [n * n for n in range(50)]


async def test_what_a_borrower_left_unanswered_is_lent_again() -> None:
    lender = s.lend(s.pipe(s.values([1, 2, 3])))
    results: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collected, lender, results)
        async with lender.borrow() as lazy:
            assert [await lazy.read(), await lazy.read()] == [1, 2]
            lazy.answer("one")
        async with lender.borrow() as diligent:
            assert await diligent.read() == 2
            diligent.answer("two")
            assert await diligent.read() == 3
            diligent.answer("three")
            assert await ends(diligent, 1) == ["EndOfStream()"]
    assert results == [["one", "two", "three"]]


async def test_nothing_is_lent_that_nobody_borrows() -> None:
    source = Scripted(3, None, False)
    lender = s.lend(s.pipe(source))
    with trio.move_on_after(0.01):
        await lender.read()
    assert len(source._values) == 3
