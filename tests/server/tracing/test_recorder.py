"""The recorder ends each turn once, when it was answered and its observers were sent the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st

from dataspace.kernel.actions import ASSERT
from dataspace.kernel.interests import Interest
from dataspace.kernel.space import Space
from dataspace.wire.traceparents import Parent
from index.patterns.text import parse_pattern
from index.values.values import Record
from relay.delivery.queue_members import Delivery, QueueMember
from server.config.principals import DAEMON, Principal
from server.spaces.traces import LOOKED_AT, MOST, Recorder, Trace

PARENT = Parent(1, 2, True)


@dataclass
class Sending:
    """A send queue that says what a test wants."""

    is_touched: bool = True
    blocked: bool = False
    looked: int = 0

    def is_blocked(self) -> bool:
        self.looked += 1
        return self.blocked


@dataclass
class Home:
    name: str = "main"


@dataclass
class Peer:
    """A connection, as far as a trace looks at it."""

    sending: Sending = field(default_factory=Sending)
    number: int = 7
    principal: Principal = DAEMON
    hosted: Home = field(default_factory=Home)


@dataclass
class Outlet:
    """Keeps what would be written."""

    is_full: bool = False
    written: list[Trace] = field(default_factory=list)

    def write(self, trace: Trace) -> None:
        self.written.append(trace)


class Observed:
    """A space with observers of one pattern, and the interests that a turn touches."""

    def __init__(self, observers: int) -> None:
        self.space = Space("main")
        delivery = Delivery()
        self.followers = [QueueMember(delivery, lambda _woken: None) for _ in range(observers)]
        for each in self.followers:
            each.follow(self.space, parse_pattern("reading($n)"))

    def commit(self, trace: Trace, n: int) -> None:
        def queued(_epoch: object) -> None:
            trace.queued(self.space.epoch + 1, self._touched())

        self.space.commit("o", [(ASSERT, n, Record("reading", n))], 1, submit=queued)

    def _touched(self) -> Sequence[Interest]:
        return self.space.interests.touched


def begun(recorder: Recorder, peer: Peer) -> Trace:
    trace = recorder.begin("turn", peer, 1, PARENT, 5)
    assert trace is not None
    return trace


@given(st.permutations(range(4)), st.integers(0, 4))
def test_a_turn_is_written_once_after_its_answer_and_its_last_observer(order: list[int], at: int) -> None:
    outlet, peer, observed = Outlet(), Peer(), Observed(4)
    recorder = Recorder(outlet, 0.0)
    trace = begun(recorder, peer)
    observed.commit(trace, 1)
    recorder.follow(trace)
    recorder.answered(trace)
    steps = [*order[:at], None, *order[at:]]
    for step in steps:
        recorder.flushed()
        assert not outlet.written
        if step is None:
            peer.sending.is_touched = False
        else:
            observed.followers[step].take_packed(9, 9999)
    recorder.flushed()
    recorder.flushed()
    assert outlet.written == [trace]
    assert (trace.observers, trace.following, trace.left, trace.late) == (4, 4, 0, 0)
    assert trace.first <= trace.last
    assert trace.outcome == "accepted"


@pytest.mark.parametrize("is_answered", [True, False])
def test_what_does_not_end_is_written_as_it_is(is_answered: bool) -> None:
    outlet, peer, observed = Outlet(), Peer(), Observed(2)
    recorder = Recorder(outlet, 0.0)
    trace = begun(recorder, peer)
    observed.commit(trace, 1)
    recorder.follow(trace)
    recorder.answered(trace)
    peer.sending.is_touched, peer.sending.blocked = False, not is_answered
    observed.followers[0].take_packed(9, 9999)
    recorder.flushed()
    recorder.give_up(before=5)
    assert not outlet.written  # it is not that old
    recorder.give_up(before=6)
    recorder.end()
    assert outlet.written == [trace]
    assert trace.late == 1
    assert trace.outcome == ("accepted" if is_answered else "unanswered")


def test_turns_are_bounded_in_a_second_and_by_what_waits() -> None:
    outlet = Outlet()
    recorder = Recorder(outlet, 1.0)
    for _ in range(MOST):
        begun(recorder, Peer())
    assert recorder.begin("turn", Peer(), 1, PARENT, 5) is None
    outlet.is_full = True
    assert Recorder(outlet, 1.0).begin("turn", Peer(), 1, PARENT, 5) is None
    assert recorder.left_out == 1


@pytest.mark.parametrize(
    ("ratio", "chance", "traced"), [(0.0, 0.0, False), (1.0, 0.999, True), (0.5, 0.5, False)]
)
def test_chance_decides_where_there_is_no_parent(ratio: float, chance: float, traced: bool) -> None:
    recorder = Recorder(Outlet(), ratio, chance=lambda: chance)
    assert recorder.wants(None) is traced
    assert recorder.wants(PARENT)
    assert not recorder.wants(PARENT._replace(sampled=False))


def test_peers_that_do_not_read_cost_a_flush_no_more_however_many_answers_wait() -> None:
    outlet, stalled = Outlet(), Peer(Sending(is_touched=False, blocked=True))
    recorder = Recorder(outlet, 1.0)
    for _ in range(MOST):
        trace = recorder.begin("turn", stalled, 1, None, 5)
        assert trace is not None
        recorder.answered(trace)
    recorder.flushed()
    stalled.sending.looked = 0
    recorder.flushed()
    assert stalled.sending.looked == LOOKED_AT
    stalled.sending.blocked = False
    for _ in range(MOST // LOOKED_AT + 1):
        recorder.flushed()
    assert len(outlet.written) == MOST and all(each.ended for each in outlet.written)
