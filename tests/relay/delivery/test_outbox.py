"""What leaves a connection: no more than was asked for, in order, control before values, streams in turns."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.kernel.changes import Changes
from dataspace.wire import packets as p
from dataspace.wire.observing import Policy
from dataspace.wire.session import Role, Session, State, encode
from index.values.values import Map, Value
from relay.delivery.backlog import DeliveryQueue
from relay.delivery.outbox import FRAME_BYTES, FRAME_ITEMS, REWRITTEN_BYTES, Outbox, OutStream, values_size

PLENTY = 1 << 40


def message(number: int, size: int = 1) -> Changes:
    """An epoch of one message."""
    return Changes(number, 0, (), [("x" * size,)])


class Told:
    """A peer with some streams: what it is told, as packets."""

    def __init__(self) -> None:
        self.over: list[OutStream] = []
        self.outbox = Outbox(encode, self.over.append)
        self._session = Session(Role.CLIENT)
        list(self._session.feed(encode(p.Welcome(1, 1, "", 0, 0, Map({}), Map({})))))
        assert self._session.state is State.TALKING

    def open(
        self, number: int, items: int = PLENTY, size: int = PLENTY, *, policy: Policy = Policy.CONFLATE
    ) -> OutStream:
        stream = OutStream(number, items, size)
        stream.backlog = DeliveryQueue(lambda: self.outbox.wake(stream), policy=policy, limit=100)
        return stream

    def fill(self, budget: int = 1 << 20) -> list[p.Packet]:
        return list(self._session.feed(self.outbox.fill(budget)))


def offer(stream: OutStream, epochs: Iterable[Changes]) -> None:
    assert isinstance(stream.backlog, DeliveryQueue)
    for changes in epochs:
        stream.backlog.offer(changes)


def numbers(packet: p.Packet) -> list[object]:
    """The epochs in a frame of values."""
    assert isinstance(packet, p.Values)
    return [value[0] for value in packet.values]  # type: ignore[index]  # by WIRE.md


def test_credit_is_a_total_and_a_lower_one_is_ignored() -> None:
    told = Told()
    stream = told.open(1, items=2)
    offer(stream, [message(n) for n in range(1, 10)])
    assert [(each, numbers(each)) for each in told.fill()] == [
        (p.Values(1, 0, (told_form(1), told_form(2)), 7), [1, 2])
    ]
    for items in (2, 0, 1):
        stream.ask(items, PLENTY)
        told.outbox.wake(stream)
        assert told.fill() == []
    for _ in range(3):
        stream.ask(3, PLENTY)
        told.outbox.wake(stream)
    assert told.fill() == [p.Values(1, 2, (told_form(3),), 6)]


def told_form(number: int) -> Value:
    return (number, 0, 0, (), (("x",),), (), number)


def test_one_value_may_overdraw_the_bytes_and_none_may_follow() -> None:
    told = Told()
    stream = told.open(1, size=1)
    offer(stream, [message(1, 5000), message(2)])
    (frame,) = told.fill()
    assert numbers(frame) == [1]
    cost = stream.sent_bytes
    assert cost > 5000, "the whole body counts, its head included"
    for size, more in ((cost, []), (cost + 1, [2])):
        stream.ask(PLENTY, size)
        told.outbox.wake(stream)
        assert [number for each in told.fill() for number in numbers(each)] == more


def test_control_goes_before_values_that_waited_longer() -> None:
    told = Told()
    stream = told.open(1)
    offer(stream, [message(1)])
    told.outbox.say(p.Pong(7))
    assert [type(each) for each in told.fill()] == [p.Pong, p.Values]


def test_streams_take_turns_of_a_frame() -> None:
    """However much the first one has, and however small the budget of one flush is."""
    told = Told()
    full, small = told.open(1, policy=Policy.DROP), told.open(2)
    assert isinstance(full.backlog, DeliveryQueue)
    for n in range(1, 3 * FRAME_ITEMS):
        full.backlog.extend(message(n))
    told.outbox.wake(full)
    offer(small, [message(1)])
    order = [each.stream for _ in range(5) for each in told.fill(1) if isinstance(each, p.Values)]
    assert order == [1, 2, 1, 1]


def test_a_frame_is_bounded_in_items_and_in_bytes() -> None:
    told = Told()
    stream = told.open(1)
    assert isinstance(stream.backlog, DeliveryQueue)
    for n in range(1, 2 * FRAME_ITEMS):
        stream.backlog.extend(message(n, 10))
    for n in range(20):
        stream.backlog.extend(message(2 * FRAME_ITEMS + n, 5000))
    told.outbox.wake(stream)
    for each in told.fill():
        assert isinstance(each, p.Values) and 0 < len(each.values) <= FRAME_ITEMS
        assert len(encode(each)) <= FRAME_BYTES + 5100, "one value beyond"


def test_frames_are_smaller_where_values_are_written_anew() -> None:
    """Each small row takes as long as a microsecond then, and one frame is one step."""
    sizes: list[int] = []

    def framed(stream: int, first: int, count: int, body: bytes, left: int) -> tuple[bytes, int]:
        sizes.append(len(body))
        return b"", values_size(stream, first, count, body, left)

    outbox = Outbox(encode, lambda _: None, framed)
    stream = OutStream(1, PLENTY, PLENTY)
    stream.backlog = waiting = DeliveryQueue(lambda: outbox.wake(stream))
    for n in range(1, FRAME_ITEMS):
        waiting.extend(message(n, 100))
    outbox.wake(stream)
    outbox.fill(1 << 20)
    assert len(sizes) > FRAME_ITEMS * 100 // REWRITTEN_BYTES and max(sizes) <= REWRITTEN_BYTES + 200


def test_an_end_needs_no_credit_and_nothing_follows_it() -> None:
    told = Told()
    empty, failed = told.open(1, 0, 0), told.open(2, 0, 0, policy=Policy.FAIL)
    empty.complete = True
    told.outbox.wake(empty)
    offer(failed, [message(n) for n in range(1, 200)])
    done, error = told.fill()
    assert done == p.Done(1) and isinstance(error, p.Error) and error.code == "slow-observer"
    assert told.over == [empty, failed]
    for stream in (empty, failed):
        stream.ask(PLENTY, PLENTY)
        offer(stream, [message(300)])
        told.outbox.wake(stream)
    assert told.fill() == []


def test_what_is_complete_ends_after_its_last_value() -> None:
    told = Told()
    stream = told.open(1, items=1)
    offer(stream, [message(1), message(2)])
    stream.complete = True
    assert [type(each) for each in told.fill()] == [p.Values]
    stream.ask(2, PLENTY)
    told.outbox.wake(stream)
    assert [type(each) for each in told.fill()] == [p.Values, p.Done]


def test_a_peek_is_answered_once_and_costs_no_credit() -> None:
    told = Told()
    stream = told.open(1, items=1)
    offer(stream, [message(1)])
    told.fill()
    stream.peeked = 2
    told.outbox.wake(stream)
    assert told.fill() == []
    offer(stream, [message(2), message(3)])
    assert told.fill() == [p.Available(1, 3)]
    told.outbox.wake(stream)
    assert told.fill() == [] and stream.sent_items == 1


def test_after_the_goodbye_only_what_was_said_before_leaves() -> None:
    told = Told()
    stream = told.open(1)
    offer(stream, [message(1)])
    told.outbox.say(p.Bye("", ""))
    told.outbox.end()
    told.outbox.wake(stream)
    assert told.fill() == [p.Bye("", "")]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(1, 3), st.integers(1, 30)),
        st.tuples(st.just("ask"), st.integers(1, 3), st.integers(0, 40)),
        st.tuples(st.just("fill"), st.just(0), st.sampled_from([1, 200, 1 << 20])),
    ),
    max_size=40,
)


@pytest.mark.parametrize("by", ["items", "bytes"])
@given(steps)
def test_no_stream_is_told_more_than_it_asked_for_nor_out_of_order(
    by: str, schedule: list[tuple[str, int, int]]
) -> None:
    told = Told()
    credit = dict.fromkeys((1, 2, 3), 0)
    streams = {
        number: told.open(number, *((0, PLENTY) if by == "items" else (PLENTY, 0)), policy=Policy.FAIL)
        for number in credit
    }
    offered, heard = dict.fromkeys(credit, 0), dict.fromkeys(credit, 0)
    for step, number, amount in [*schedule, ("fill", 0, 1 << 20)]:
        if step == "offer":
            offer(streams[number], [message(offered[number] + 1, amount)])
            offered[number] += 1
        elif step == "ask":
            unit = 1 if by == "items" else 16
            credit[number] = max(credit[number], unit * amount)
            streams[number].ask(*((amount, 0) if by == "items" else (0, unit * amount)))
            told.outbox.wake(streams[number])
        for each in told.fill(amount) if step == "fill" else ():
            assert isinstance(each, p.Values)
            at, first = each.stream, each.first
            assert first == heard[at], "each once and in order"
            assert numbers(each) == list(range(first + 1, first + 1 + len(each.values)))
            heard[at] += len(each.values)
            assert each.available == offered[at] - heard[at]
            spent = heard[at] if by == "items" else streams[at].sent_bytes - len(encode(each)) + 4
            assert spent <= credit[at] if by == "items" else spent < credit[at]
    for number, stream in streams.items():
        known = stream.sent_items if by == "items" else stream.sent_bytes
        assert heard[number] == offered[number] or known >= credit[number], "what was asked for is sent"


async def test_whoever_waits_for_values_to_leave_sees_the_next_ones_leave() -> None:
    """However often one gave up waiting before, and for as many as wait."""
    told, over = Told(), list[int]()
    stream = told.open(1)

    async def wait(number: int) -> None:
        await stream.wait_taken()
        over.append(number)

    for turn in range(2):
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.wait_taken()
        over.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, 1)
            nursery.start_soon(wait, 2)
            await trio.testing.wait_all_tasks_blocked()
            assert not over
            offer(stream, [message(turn)])
            told.fill()
        assert sorted(over) == [1, 2]


class Words:
    """Any backlog will do: texts, each a value of the wire."""

    def __init__(self, *waiting: str) -> None:
        self.waiting = [Word(each) for each in waiting]
        self.failure: Refused | None = None

    @property
    def used(self) -> int:
        return sum(len(each.packed) for each in self.waiting)

    def __len__(self) -> int:
        return len(self.waiting)

    def take_packed(self, count: int, size: int) -> tuple[int, bytes]:
        taken: list[Word] = []
        while self.waiting and len(taken) < count and size > 0:
            taken.append(self.waiting.pop(0))
            size -= len(taken[-1].packed)
        return len(taken), b"".join([each.packed for each in taken])


class Word:
    def __init__(self, text: str) -> None:
        self.packed = pack(text)


def test_a_stream_sends_from_any_backlog() -> None:
    told = Told()
    stream = OutStream(3, 2, PLENTY)
    stream.backlog = waiting = Words("to", "be", "or")
    told.outbox.wake(stream)
    assert told.fill() == [p.Values(3, 0, ("to", "be"), 1)]
    stream.ask(3, PLENTY)
    stream.complete = True
    told.outbox.wake(stream)
    assert told.fill() == [p.Values(3, 2, ("or",), 0), p.Done(3)]
    assert told.over == [stream]
    assert not len(waiting)


def test_a_stream_ends_with_the_failure_of_its_backlog() -> None:
    told = Told()
    stream = OutStream(3, PLENTY, PLENTY)
    stream.backlog = waiting = Words()
    waiting.failure = Refused("slow-observer", "9 messages wait, limit 8")
    told.outbox.wake(stream)
    assert told.fill() == [p.Error(3, "slow-observer", "9 messages wait, limit 8")]
