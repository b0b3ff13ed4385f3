"""Turns in flight: submitted, not yet answered, and sent again after a connection or a lease ended.

The daemon's welcome contains the number of the last turn of this client that took effect.  Turns up to it are
sent again unchanged, to get their epochs.  The others are *held*, together with those submitted meanwhile,
until it is known whether the owner's claims still hold; if they have ended, they are asserted again first, in
turns of their own.

It is apart from the connection because it depends only on its arguments, and because this is the place where
a turn could be lost or applied twice.

In another space nothing is sent again but the claims: turns without an answer are *abandoned*.

Always: numbers ascend in the order of submission, and the daemon has applied none of the held turns; no turn
that restates claims exceeds the daemon's limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dataspace.client.session.turns import ClaimSet, Done, Others, Ticket
from dataspace.errors import DataspaceError, Refused
from dataspace.kernel.actions import Action
from dataspace.kernel.expectations import Expectation
from dataspace.wire import packets as p
from dataspace.wire.outgoing import TurnLimits, portions
from dataspace.wire.session import encode
from index.values.values import Value


class InFlight:
    """The turns of one client; calls ``write`` with frames to send, and whether to send them at once."""

    def __init__(self, space: str, claims: ClaimSet, write: Callable[[bytes, bool], None]) -> None:
        self.limits = TurnLimits()
        self.sequence = 0
        """Number of the newest turn, or of the last turn that the daemon had applied at the start."""
        self.newest = 0
        """The newest epoch of a turn of this client."""
        self._space = space
        self._applied = 0
        self._claims: Final = claims
        self._write = write
        self._sent: dict[int, Ticket] = {}  # by ascending numbers
        self._answered: dict[int, Ticket] = {}
        """Turns that were answered before older ones."""
        self._held: list[Ticket] | None = []
        self._numbers: list[tuple[Ticket, int]] = []
        """The turns that were sent before the present connection and are held by it, with their numbers."""

    def __len__(self) -> int:
        return len(self._sent) + len(self._held or ())

    def tickets(self) -> Iterator[Ticket]:
        """Yields the tickets without an answer, in order."""
        yield from list(self._sent.values())
        yield from list(self._held or ())

    def submit(
        self,
        owner: str,
        actions: tuple[Action, ...],
        expected: tuple[Expectation, ...] = (),
        others: Others = (),
        traceparent: str = "",
        deliveries: Done = (),
    ) -> Ticket:
        """Sends a turn, or holds it; raises ``Refused("limit")`` if it exceeds the daemon's limits."""
        ticket = Ticket(
            self.sequence + 1,
            owner,
            actions,
            expected=expected,
            others=others,
            traceparent=traceparent,
            deliveries=deliveries,
        )
        data = encode(self._turn_of(ticket))
        if others:
            self.limits.check_frame(data)  # their facts are deeper in it than those of other turns
        else:
            self.limits.check(data, ticket.actions)
        self.sequence += 1
        if self._held is not None:
            self._held.append(ticket)
        else:
            self._sent[ticket.sequence] = ticket
            self._write(data, len(self._sent) == 1)
        return ticket

    def cut(self, owner: str, actions: Sequence[Action]) -> list[tuple[Action, ...]]:
        """Returns the actions whole if the daemon takes them in one turn, else in as few as it surely takes.

        Raises ``Refused("limit")`` if one of them is too large or nested too deeply for any turn.
        """
        limits = self.limits
        whole = tuple(actions)
        if len(whole) <= limits.actions_per_turn:
            try:
                self._check(owner, whole)
            except Refused:
                pass
            else:
                return [whole]
        parts = [
            tuple(part) for part in portions(whole, most=limits.actions_per_turn, size=limits.portion_bytes)
        ]
        for part in parts:
            self._check(owner, part)
        return parts

    def _check(self, owner: str, actions: tuple[Action, ...]) -> None:
        ticket = Ticket(self.sequence + 1, owner, actions)
        self.limits.check(encode(self._turn_of(ticket)), actions)

    def accept(self, sequence: int, epoch: int) -> None:
        """Settles a turn that is on the daemon's disk, with its epoch."""
        ticket = self._sent.pop(sequence, None)
        if ticket is not None:
            self._applied = max(self._applied, sequence)
            self.newest = max(self.newest, epoch)
            if self._answered or next(iter(self._sent), sequence) < sequence:
                self._answered[sequence] = ticket
                self._count(sequence)
            else:  # as mostly: no older one waits
                self._claims.apply(ticket)
            ticket.accept(epoch)

    def refuse(self, sequence: int, refusal: Refused) -> Ticket | None:
        """Settles a turn that the daemon refused, and returns its ticket."""
        ticket = self._sent.pop(sequence, None)
        if ticket is not None:
            self._count(sequence)
            ticket.fail(refusal)
        return ticket

    def _count(self, settled: int) -> None:
        """Adds the effects of answered turns to the claims, in order: answers may overtake one another."""
        oldest = next(iter(self._sent), self.sequence + 1)
        if settled < oldest:  # else an older one still waits, as before
            for sequence in sorted(self._answered):
                if sequence > oldest:
                    break
                self._claims.apply(self._answered.pop(sequence))

    def fail(self, error: Callable[[Ticket], DataspaceError]) -> None:
        """Fails all turns: they will not be answered."""
        for ticket in self.tickets():
            ticket.fail(error(ticket))

    def abandon(self, error: Callable[[Ticket], DataspaceError]) -> int:
        """Fails all turns, which are not sent again, and returns the number of turns that an application
        waits for.

        Claims are as of the turns that were answered.
        """
        tickets = list(self.tickets())
        self._sent.clear()
        self.newest = 0
        self._count(0)
        self._held = [] if self._held is not None else None
        for ticket in tickets:
            ticket.fail(error(ticket))
        return sum(not ticket.restating for ticket in tickets)

    # -- sending again ----------------------------------------------------------------------------------

    def hold(self, applied: int | None = None) -> None:
        """Sends nothing until ``release``.

        With ``applied`` the connection is a new one, and the daemon has applied turns up to that number:
        those are sent again, and those beyond it have not taken effect.
        """
        self._held = self._held or []
        if applied is not None:
            before = [self._sent.pop(at) for at in list(self._sent) if at > applied]
            self._numbers = [(ticket, ticket.sequence) for ticket in before]
            self._held[:0] = before
            for ticket in self._sent.values():
                self._send(ticket)
            self._applied = applied
            self.sequence = max(self.sequence, applied)

    def lose(self, *, is_elsewhere: bool) -> None:
        """Notes the end of a connection, whose daemon has applied none of its turns if ``is_elsewhere``."""
        if is_elsewhere or self._held is not None:  # what was held it was not sent
            self._take_back()
        self._held = self._held or []

    def withdraw(self, ticket: Ticket) -> bool:
        """Drops a turn if it is held, and so has not taken effect; returns whether it was.  O(held turns)."""
        if self._held is None or ticket not in self._held:
            return False
        self._held.remove(ticket)
        return True

    def is_of(self, owner: str, sequence: int) -> bool:
        """True if a turn without an answer is one of this owner."""
        ticket = self._sent.get(sequence)
        return ticket is not None and ticket.owner == owner

    def keep(self, sequence: int) -> None:
        """Holds a turn that was refused because its lease had ended, to be sent under another number."""
        ticket = self._sent.pop(sequence, None)
        if ticket is not None:
            self._count(sequence)
            self._held = self._held or []
            self._held.append(ticket)

    def _take_back(self) -> None:
        """Makes turns as they were before the present connection, whose daemon has applied none.

        Its welcome may have had too low a number: a turn that was applied elsewhere had a higher one since,
        and a turn that was sent nowhere else the number of another one.  So the latter are held.
        """
        left = {id(ticket): ticket for ticket in self.tickets() if not ticket.restating}
        sent = [ticket for at, ticket in self._sent.items() if at <= self._applied]
        for ticket in sent:
            left.pop(id(ticket), None)
        for ticket, number in self._numbers:
            if left.pop(id(ticket), None) is not None or ticket.restating:
                ticket.sequence = number
                sent.append(ticket)
        self._numbers = []
        self._sent = {ticket.sequence: ticket for ticket in sorted(sent, key=_number)}
        self._held = list(left.values())

    def forget(self) -> None:
        """Drops the claims, which have ended and are not to be asserted again."""
        self._claims.forget()

    def release(self, *, restate: bool) -> int:
        """Sends what was held, after the claims of the owner if they have ended; O(claims + turns).

        Returns how many facts are asserted again.

        Every turn that was sent before and not refused has been applied by now, whether or not the answer has
        arrived.  Numbers go on from the last one applied.
        """
        known = sorted([*self._answered.items(), *self._sent.items()], key=lambda pair: pair[0])
        claims = self._claims.after([ticket for _, ticket in known]) if restate else self._claims
        held, self._held = sorted(self._held or [], key=lambda ticket: ticket.sequence), None
        last = max(self._applied, *self._sent, 0)
        if restate:
            held = [*self._restating(claims), *[ticket for ticket in held if not ticket.restating]]
        for ticket in held:
            last = ticket.sequence = max(last + 1, ticket.sequence)
            self._sent[last] = ticket
            self._send(ticket)
        self.sequence = max(self.sequence, last)
        return len(claims) if restate else 0

    def held(self) -> dict[int, Value]:
        """Returns the facts that the owner claims by handle, as of the newest turn that was answered."""
        return self._claims.held()

    def _restating(self, claims: ClaimSet) -> Iterator[Ticket]:
        limits = self.limits
        for part in portions(claims.again(), most=limits.actions_per_turn, size=limits.portion_bytes):
            yield Ticket(0, claims.owner, tuple(part), restating=True)

    def _send(self, ticket: Ticket) -> None:
        self._write(encode(self._turn_of(ticket)), False)

    def _turn_of(self, ticket: Ticket) -> p.Turn:
        expected = tuple([each.packed() for each in ticket.expected])
        return p.Turn(
            ticket.sequence,
            self._space,
            ticket.owner,
            ticket.actions,
            expected,
            ticket.others,
            ticket.traceparent,
            ticket.deliveries,
        )


def _number(ticket: Ticket) -> int:
    return ticket.sequence
