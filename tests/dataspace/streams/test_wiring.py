"""What is put together wrongly is refused where that is done; what is equal, and who comes first,."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from dataspace import streams as s
from dataspace.errors import UsageError
from tests.dataspace.streams.runs import Failure, Naive
from tests.dataspace.streams.test_promistream import ends


class _Odd:
    """Equal by a number, and written down alike whatever it is."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Odd) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return "<odd>"


class _Loud(_Odd):
    def __repr__(self) -> str:
        return f"<loud {id(self)}>"


@pytest.mark.parametrize("kind", [_Odd, _Loud])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: (v,), lambda v: [1, v], lambda v: {"k": v}])
async def test_unique_compares_by_equality_and_hash_and_not_by_what_is_written(
    kind: type[_Odd], wrap: Callable[[Any], Any]
) -> None:
    things = [wrap(kind(n)) for n in (1, 2, 1, 3, 2)]
    once = await s.pipe(s.values(things), s.unique(), s.collect()).read()
    assert [id(thing) for thing in once] == [id(things[at]) for at in (0, 1, 3)]
    again = await s.pipe(s.values(things), s.non_unique(), s.collect()).read()
    assert [id(thing) for thing in again] == [id(things[at]) for at in (2, 4)]


THINGS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, -0.0, 1.0, "1", b"1", "", frozenset({1}), frozenset({True})])
    | st.builds(_Odd, st.integers(0, 2)),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from([1, True, "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def _same(left: Any, right: Any) -> bool:
    """The rule for ``unique``, written down the long way."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            any(_same(at, other) and _same(left[at], right[other]) for other in right) for at in left
        )
    if isinstance(left, frozenset):
        return len(left) == len(right) and all(any(_same(a, b) for b in right) for a in left)
    if isinstance(left, float):
        return repr(left) == repr(right)
    return bool(left == right)


@pytest.mark.slow
@given(st.lists(THINGS, max_size=8))
def test_unique_gives_the_first_of_each_kind_and_non_unique_all_others(things: list[Any]) -> None:
    firsts = [
        at for at, thing in enumerate(things) if not any(_same(thing, before) for before in things[:at])
    ]
    once = trio.run(s.pipe(s.values(things), s.unique(), s.collect()).read)
    again = trio.run(s.pipe(s.values(things), s.non_unique(), s.collect()).read)
    assert list(map(id, once)) == [id(things[at]) for at in firsts]
    assert list(map(id, again)) == [id(thing) for at, thing in enumerate(things) if at not in firsts]


async def test_senders_that_wait_come_in_the_order_of_their_calls() -> None:
    for _ in range(20):  # trio runs tasks that become ready together in any order
        source = s.pushable(2)
        for value in range(2):
            source.push(value)
        async with trio.open_nursery() as nursery:
            for value in range(2, 8):
                nursery.start_soon(source.send, value)
                await trio.testing.wait_all_tasks_blocked()
            assert [await source.read() for _ in range(8)] == list(range(8))
        with pytest.raises(trio.WouldBlock):
            for value in range(3):
                source.push(value)


async def test_a_sender_that_goes_away_has_sent_nothing_and_holds_up_no_other() -> None:
    source = s.pushable(1)
    source.push(0)
    scopes = [trio.CancelScope() for _ in range(4)]

    async def send(at: int) -> None:
        with scopes[at]:
            await source.send(at)

    async with trio.open_nursery() as nursery:
        for at in (1, 2, 3):
            nursery.start_soon(send, at)
            await trio.testing.wait_all_tasks_blocked()
        scopes[2].cancel()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.WouldBlock):
            source.push(9)
        assert [await source.read() for _ in range(3)] == [0, 1, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda stage: s.pipe(s.values([1]), stage, stage),
        lambda stage: s.pipe(s.values([1]), stage, s.map(str), stage, fuse=False),
        lambda stage: s.pipe(s.values([1]), s.check(stage), s.check(stage)),
        lambda stage: s.pipe(s.values([1]), s.pipe(stage), stage),
        lambda stage: s.pipe(s.values([1]), stage, s.pipe(stage, s.map(str)), s.drain()),
    ],
)
def test_a_stage_stands_in_a_pipe_once(make: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match=r"is stage 1 as well|is in a pipe already"):
        make(s.map(lambda n: n))


def test_a_pipe_that_is_refused_has_taken_none_of_its_stages() -> None:
    free, taken = s.map(str), s.map(str)
    s.pipe(s.values([1]), taken)
    with pytest.raises(UsageError, match="in a pipe already"):
        s.pipe(s.values([2]), free, taken)
    s.pipe(s.values([3]), free)


@pytest.mark.parametrize(
    "make", [lambda: [s.map(str)], lambda: [s.filter(str)], lambda: [s.map(str), s.drain()]]
)
async def test_a_pipe_without_a_source_says_so_and_can_still_be_put_behind_one(
    make: Callable[[], list[Any]],
) -> None:
    half = s.pipe(*make())
    for request in (half.read, half.peek, lambda: half.read_some(1), half.read):
        with pytest.raises(UsageError, match="has no source to read from"):
            await request()
    whole = s.pipe(s.values([1, 2]), half)
    assert await whole.read() in ("1", 1, 2)
    unused = s.pipe(*make())
    await unused.abort(True)
    async with s.pipe(*make()):
        pass


async def test_a_source_that_is_missing_is_named_however_it_is_read() -> None:
    with pytest.raises(UsageError, match="no stage before this one"):
        await s.pipe(Naive()).read()


@pytest.mark.parametrize("join", [s.cat, s.converge, s.merge, s.many])
def test_what_is_joined_are_streams_with_a_source_and_each_once(join: Any) -> None:
    with pytest.raises(UsageError, match=r"and \[1\] is none: it has no read.*values"):
        join([1], [2])
    with pytest.raises(UsageError, match=r"map.str. has none"):
        join(s.pipe(s.values([1])), s.pipe(s.map(str)))
    with pytest.raises(UsageError, match=r"map.str. has none"):
        join(s.map(str))
    same = s.pipe(s.values([1]))
    with pytest.raises(UsageError, match="the same stream twice"):
        join(same, same)


def test_what_is_forked_lent_deferred_or_added_is_a_stream() -> None:
    deferred = s.defer()
    refusing: list[Any] = [s.fork_mirror, s.fork_round_robin, s.lend, deferred.resolve, s.many(open=True).add]
    for refuse in refusing:
        with pytest.raises(UsageError, match="is none: it has no read"):
            refuse([1])
    with pytest.raises(UsageError, match="with itself"):
        deferred.resolve(deferred)


async def test_flatten_reads_a_stream_by_its_shape_alone_and_takes_no_iterator_apart_ahead() -> None:
    class Ones(Naive):
        left = 2

        async def read(self, source: Any = None) -> Any:
            self.left -= 1
            if self.left < 0:
                raise s.EndOfStream
            return 1

    made = 0

    def numbers() -> Iterator[int]:
        nonlocal made
        while True:
            made += 1
            yield made

    stream: Any = s.pipe(s.values([Ones(), numbers()]), s.flatten(), s.take(5))
    assert [value async for value in stream] == [1, 1, 1, 2, 3]
    assert made == 3
    with pytest.raises(UsageError, match="flatten reads streams that have a source"):
        await s.pipe(s.once(s.map(str)), s.flatten()).read()


async def test_flatten_gives_what_an_iterator_gave_before_it_failed_or_ended_the_stream() -> None:
    def numbers(last: Callable[[], object]) -> Iterator[int]:
        yield 0
        yield 1
        last()
        yield 2

    def fails() -> None:
        raise Failure("inner")

    stream = s.pipe(s.once(numbers(fails)), s.flatten())
    assert await stream.read_some(5) == [0, 1]
    assert await ends(stream, 2) == ["Failure('inner')", "Aborted(Failure('inner'))"]

    inner = numbers(lambda: stream.abort_nowait(True))
    stream = s.pipe(s.once(inner), s.flatten())
    assert await stream.read_some(2) == [0, 1]
    assert await ends(stream, 1) == ["Aborted(True)"]
    assert list(inner) == [], "it was not closed"
