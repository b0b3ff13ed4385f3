"""Turns as a client makes them: the actions of a turn, its number, and a ticket for its epoch.

They are apart from the session because a draft needs no connection, and is also used by the blocking client.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dataspace.errors import DataspaceError, UsageError
from dataspace.facts import fact_of
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from dataspace.kernel.expectations import Expectation
from dataspace.loops.here import loop
from dataspace.loops.primitives import Event
from index.values.values import Value


class Ticket:
    """A submitted turn: ``await ticket.wait()`` returns its epoch, once that is on disk.

    ``restating`` turns assert the session's claims again, and nothing waits for them.
    """

    __slots__ = ("_done", "_error", "actions", "epoch", "expected", "owner", "restating", "sequence")

    def __init__(
        self,
        sequence: int,
        owner: str,
        actions: tuple[Action, ...],
        *,
        expected: tuple[Expectation, ...] = (),
        restating: bool = False,
    ) -> None:
        self.expected = expected
        self.restating = restating
        self.sequence = sequence
        self.owner = owner
        self.actions = actions
        self.epoch: int | None = None
        self._error: DataspaceError | None = None
        self._done: Event | None = None

    @property
    def done(self) -> bool:
        """True if the answer is there."""
        return self.epoch is not None or self._error is not None

    async def wait(self) -> int:
        """Returns the epoch of this turn; raises ``Refused`` if the daemon refused it, ``Closed`` if that is
        not known."""
        await self.settled()
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        assert self.epoch is not None  # done without an error has an epoch
        return self.epoch

    async def settled(self) -> None:
        """Returns when there is an answer, whatever it is."""
        if not self.done:
            if self._done is None:
                self._done = loop().event()
            await self._done.wait()

    def accept(self, epoch: int) -> None:
        """Settles the turn with its epoch: it is on disk."""
        self.epoch = epoch
        self._wake()

    def fail(self, error: DataspaceError) -> None:
        """Settles the turn with an error: it did not happen, or that cannot be known."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._done is not None:
            self._done.set()


@dataclass(slots=True, unsafe_hash=True)
class Claim:
    """One claim on a fact: returned by ``assert_``, taken by ``retract``.

    ``epoch`` is the one in which it was accepted, None until then.
    """

    handle: int
    value: Value
    epoch: int | None = field(default=None, compare=False)


class HandleNumbers:
    """Numbers for claims: shared by all drafts of a client, which may be filled at the same time."""

    __slots__ = ("_lock", "_next")

    def __init__(self, first: int) -> None:
        self._next = first
        self._lock = threading.Lock()  # the drafts of a blocking client are filled in its caller's threads

    def take(self, wanted: int | None = None) -> int:
        """Returns the next number, or ``wanted``; numbers below that are not used afterwards."""
        with self._lock:
            handle = self._next if wanted is None else wanted
            self._next = max(self._next, handle + 1)
            return handle


class Draft:
    """Collects the actions of one turn: nothing happens before it is committed.

    ``expected`` is what must hold then, or the turn is refused with ``ExpectationFailed``.
    """

    __slots__ = ("_claims", "_handles", "actions", "epoch", "expected")

    def __init__(self, handles: HandleNumbers, expected: Iterable[Expectation] = ()) -> None:
        self.actions: list[Action] = []
        self.expected: list[Expectation] = [*expected]
        self.epoch: int | None = None
        self._claims: list[Claim] = []
        self._handles = handles

    def assert_(self, value: object, *, handle: int | None = None) -> Claim:
        """Asserts a fact; ``handle`` is the owner's own number for it, else the next free one.

        Raises ``UsageError``, here and below, for what is no value, and for text that reads as a record.
        """
        fact = fact_of(value)
        handle = self._handles.take(handle)
        self.actions.append((ASSERT, handle, fact))
        return self._begun(handle, fact)

    def retract(self, claim: Claim | int) -> None:
        """Ends a claim."""
        self.actions.append((RETRACT, _handle(claim)))

    def replace(self, claim: Claim | int, value: object) -> Claim:
        """Asserts a fact and then ends the claim on the previous one."""
        fact = fact_of(value)
        handle = self._handles.take()
        self.actions.append((REPLACE, _handle(claim), handle, fact))
        return self._begun(handle, fact)

    def send(self, value: object) -> None:
        """Sends a message."""
        self.actions.append((SEND, fact_of(value)))

    def accepted(self, epoch: int) -> None:
        """Notes the epoch of the turn, which its claims have from now on."""
        self.epoch = epoch
        for claim in self._claims:
            claim.epoch = epoch

    def _begun(self, handle: int, fact: Value) -> Claim:
        claim = Claim(handle, fact)
        self._claims.append(claim)
        return claim


def _handle(claim: Claim | int) -> int:
    handle = claim.handle if isinstance(claim, Claim) else claim
    if handle.__class__ is not int:
        raise UsageError(f"a claim or a handle is needed, got {claim!r}")
    return handle


class ClaimSet:
    """The claims of the session or of a lease, kept so that they can be asserted again when it has ended.

    Kept as of the newest turn that was answered.
    """

    __slots__ = ("_held", "owner")

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self._held: dict[int, Value] = {}

    def apply(self, ticket: Ticket) -> None:
        """Adds the effects of a turn; those that restate claims add nothing."""
        if ticket.owner != self.owner or ticket.restating:
            return
        for action in ticket.actions:
            verb = action[0]
            if verb == ASSERT:
                self._held[action[1]] = action[2]  # type: ignore[index]  # a handle
            elif verb == RETRACT:
                self._held.pop(action[1], None)  # type: ignore[arg-type]  # a handle
            elif verb == REPLACE:
                self._held.pop(action[1], None)  # type: ignore[arg-type]  # a handle
                self._held[action[2]] = action[3]  # type: ignore[index]  # a handle

    def forget(self) -> None:
        """Notes that the claims have ended, and are not asserted again."""
        self._held.clear()

    def after(self, tickets: Iterable[Ticket]) -> ClaimSet:
        """Returns what the claims are once these turns are answered as well; O(claims)."""
        claims = ClaimSet(self.owner)
        claims._held.update(self._held)
        for ticket in tickets:
            claims.apply(ticket)
        return claims

    def again(self) -> Iterator[Action]:
        """Yields the actions that assert all claims again."""
        for handle, value in self._held.items():
            yield (ASSERT, handle, value)

    def __len__(self) -> int:
        return len(self._held)


__all__ = ["SEND", "Claim", "ClaimSet", "Draft", "HandleNumbers", "Ticket"]
