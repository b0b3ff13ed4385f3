"""No turn is lost, doubled or overtaken, however often the line breaks and whatever the daemon forgot; none
is applied in another space."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dataspace.client.session.in_flight import InFlight
from dataspace.client.session.turns import ClaimSet, Others, Ticket
from dataspace.codec import unpack
from dataspace.errors import AnotherSpace, Closed, Refused
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from dataspace.wire import packets as p
from dataspace.wire.frames import HEAD
from dataspace.wire.outgoing import TurnLimits


class LineMachine(RuleBasedStateMachine):
    """A client, a pipe that delays and cuts, and a daemon that applies each turn number once."""

    def __init__(self) -> None:
        super().__init__()
        self.line: deque[p.Turn] = deque()
        self.answers: deque[tuple[int, int]] = deque()
        self.up = False
        self.follows = self.has_led = False
        """Whether the present daemon follows, and whether there was ever a connection to one that leads."""
        self.flight = InFlight("main", ClaimSet(), self._write)
        self.flight.limits = TurnLimits(actions_per_turn=2)
        self.tickets: list[Ticket] = []
        self.applied: dict[int, p.Turn] = {}
        self.durable: list[Any] = []
        self.wanted_durable: list[Any] = []
        self.sequence = 0
        self.facts: dict[int, Any] = {}
        self.wanted: dict[int, Any] = {}
        self.messages: list[Any] = []
        self.sent: list[Any] = []
        self.handle = self.said = 0

    def _write(self, framed: bytes, _at_once: bool) -> None:
        if self.up:
            packet = p.read(unpack(framed[HEAD:]))
            assert isinstance(packet, p.Turn)
            self.line.append(packet)

    def _submit(self, *actions: Action, others: Others = ()) -> None:
        self.tickets.append(self.flight.submit("", actions, others=others))

    # -- the application ------------------------------------------------------------------------------

    @rule()
    def asserts(self) -> None:
        self.handle += 1
        self.wanted[self.handle] = f"fact {self.handle}"
        self._submit((ASSERT, self.handle, f"fact {self.handle}"))

    @rule()
    def asserts_for_a_durable_owner_as_well(self) -> None:
        self.handle += 1
        self.wanted[self.handle] = f"fact {self.handle}"
        self.wanted_durable.append(self.handle)
        action = (ASSERT, self.handle, f"fact {self.handle}")
        self._submit(action, others=(("results", (action,)),))

    @rule()
    def asserts_for_a_durable_owner_alone(self) -> None:
        self.handle += 1
        self.wanted_durable.append(self.handle)
        self.tickets.append(self.flight.submit("results", ((ASSERT, self.handle, "alone"),)))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.wanted)))
        del self.wanted[handle]
        self._submit((RETRACT, handle))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def replaces(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.wanted)))
        self.handle += 1
        del self.wanted[handle]
        self.wanted[self.handle] = f"fact {self.handle}"
        self._submit((REPLACE, handle, self.handle, f"fact {self.handle}"))

    @rule()
    def sends(self) -> None:
        self.said += 1
        self.sent.append(self.said)
        self._submit((SEND, self.said))

    # -- the line and the daemon ----------------------------------------------------------------------

    @precondition(lambda self: self.line)
    @rule(count=st.integers(1, 5))
    def passes_on(self, count: int) -> None:
        for _ in range(0 if self.follows else min(count, len(self.line))):
            turn = self.line.popleft()
            if turn.sequence > self.sequence:
                self._apply(turn)
            assert self.applied[turn.sequence].actions == turn.actions, "one number is one turn"
            self.answers.append((turn.sequence, turn.sequence))

    def _apply(self, turn: p.Turn) -> None:
        self.sequence = turn.sequence
        self.applied[turn.sequence] = turn
        durable = [actions for _, actions in turn.others]
        if turn.owner:
            self.durable += [action[1] for action in turn.actions]
            return
        self.durable += [action[1] for actions in durable for action in actions]
        for action in turn.actions:
            match action:
                case (0, int(handle), value):
                    assert handle not in self.facts, "no fact is asserted twice"
                    self.facts[handle] = value
                case (1, int(handle)):
                    del self.facts[handle]
                case (3, int(old), int(new), value):
                    self.facts[new] = value
                    del self.facts[old]
                case (_, value):
                    self.messages.append(value)

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_arrives(self, data: st.DataObject) -> None:
        """Those to old turns are overtaken by others, since the daemon looks them up meanwhile."""
        at = data.draw(st.integers(0, len(self.answers) - 1))
        self.answers.rotate(-at)
        self.flight.accept(*self.answers.popleft())
        self.answers.rotate(at)

    @precondition(lambda self: self.up)
    @rule()
    def breaks(self) -> None:
        self._end(is_elsewhere=self.follows)  # as its welcome said

    def _end(self, *, is_elsewhere: bool) -> None:
        self.up = self.follows = False
        self.line.clear()
        self.answers.clear()
        self.flight.lose(is_elsewhere=is_elsewhere)

    @precondition(lambda self: not self.up)
    @rule(behind=st.integers(0, 3), released=st.booleans())
    def comes_to_a_follower(self, behind: int, released: bool) -> None:
        """A daemon that knows the turns of a moment ago, and takes none."""
        self.up = self.follows = True
        self.flight.hold(max(0, self.sequence - behind))
        if released:  # else the connection waits for a lease
            self.flight.release(restate=True)

    @precondition(lambda self: self.follows)
    @rule()
    def is_sent_on(self) -> None:
        self._end(is_elsewhere=True)

    @precondition(lambda self: not self.has_led)
    @rule()
    def another_bearer_of_the_identity_makes_a_turn(self) -> None:
        """As long as this one has reached no leader."""
        self.sequence += 1

    @precondition(lambda self: not self.up)
    @rule(resumed=st.booleans())
    def comes_back(self, resumed: bool) -> None:
        if not resumed:
            self.facts.clear()
        self.up = self.has_led = True
        self.flight.hold(self.sequence)
        self.flight.release(restate=not resumed)

    @precondition(lambda self: not self.up)
    @rule(sequence=st.integers(0, 40))
    def comes_back_to_another_space(self, sequence: int) -> None:
        """One in which this client has made turns before; what was answered holds there, no more."""
        open_before = [ticket for ticket in self.tickets if not ticket.done]
        self.up, self.sequence, self.has_led = True, sequence, True
        for each in (self.applied, self.facts, self.messages, self.sent, self.wanted):
            each.clear()
        self.durable, self.wanted_durable = [], []
        for ticket in self.tickets:
            if ticket.epoch is not None and not ticket.owner:
                _wish(self.wanted, ticket.actions)
        abandoned = self.flight.abandon(lambda ticket: AnotherSpace(f"turn {ticket.sequence}"))
        assert abandoned == len(open_before) and all(ticket.done for ticket in open_before)
        self.flight.hold(sequence)
        assert self.flight.release(restate=True) == len(self.wanted)

    @invariant()
    def nothing_is_doubled_or_overtaken(self) -> None:
        assert self.messages == self.sent[: len(self.messages)]
        assert self.durable == self.wanted_durable[: len(self.durable)]

    def teardown(self) -> None:
        """With a line that holds, everything gets there."""
        if self.follows:
            self.is_sent_on()
        if not self.up:
            self.comes_back(resumed=False)
        while self.line:
            self.passes_on(len(self.line))
        while self.answers:
            self.flight.accept(*self.answers.popleft())
        assert self.messages == self.sent
        assert self.facts == self.wanted
        assert self.durable == self.wanted_durable, "once each, and never again"
        assert all(ticket.done for ticket in self.tickets) and not len(self.flight)
        assert [t.sequence for t in self.tickets] == sorted({t.sequence for t in self.tickets})


def _wish(wanted: dict[int, Any], actions: tuple[Action, ...]) -> None:
    for action in actions:
        match action:
            case (0, int(handle), value):
                wanted[handle] = value
            case (1, int(handle)):
                wanted.pop(handle, None)  # the turn that asserted it may have had no answer
            case (3, int(old), int(new), value):
                wanted.pop(old, None)
                wanted[new] = value


TestLine = pytest.mark.slow(LineMachine.TestCase)


def test_a_turn_that_is_too_large_is_refused_and_takes_no_number() -> None:
    flight = InFlight("main", ClaimSet(), lambda _framed, _at_once: None)
    flight.limits = TurnLimits(frame_bytes=100)
    with pytest.raises(Refused, match=r"limits\.frame_bytes=100"):
        flight.submit("", ((SEND, "x" * 200),))
    assert (flight.sequence, len(flight)) == (0, 0)


def test_a_refused_turn_is_not_claimed_anew() -> None:
    claims, sent = ClaimSet(), list[bytes]()
    flight = InFlight("main", claims, lambda framed, _at_once: sent.append(framed))
    flight.release(restate=False)
    kept, refused = (flight.submit("", ((ASSERT, n, n),)) for n in (1, 2))
    flight.accept(1, 10)
    flight.refuse(2, Refused("handle-in-use", "2"))
    flight.hold(1)
    assert flight.release(restate=True) == 1
    assert (kept.epoch, refused.done, refused.epoch, len(claims)) == (10, True, None, 1)


def test_at_the_end_nothing_waits() -> None:
    flight = InFlight("main", ClaimSet(), lambda _framed, _at_once: None)
    held = flight.submit("", ((SEND, 1),))
    flight.fail(lambda turn: Closed(f"turn {turn.sequence}"))
    assert held.done and held.epoch is None
