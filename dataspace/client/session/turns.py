"""Turns as a client makes them: actions collected, a number, and a promise of an epoch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import trio

from dataspace.errors import DataspaceError, UsageError
from dataspace.facts import fact_of
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from index.values.values import Value


class Ticket:
    """A turn on its way: ``await ticket.wait()`` gives its epoch, once that is on disk.

    ``restating`` ones say again what the session claims, and nobody waits for them; ``counted`` ones have
    been taken into those claims.
    """

    __slots__ = ("_done", "_error", "actions", "counted", "epoch", "owner", "restating", "sequence")

    def __init__(
        self, sequence: int, owner: str, actions: tuple[Action, ...], *, restating: bool = False
    ) -> None:
        self.restating = self.counted = restating
        self.sequence = sequence
        self.owner = owner
        self.actions = actions
        self.epoch: int | None = None
        self._error: DataspaceError | None = None
        self._done: trio.Event | None = None

    @property
    def done(self) -> bool:
        """Whether the answer is there."""
        return self.epoch is not None or self._error is not None

    async def wait(self) -> int:
        """The epoch of this turn; raises ``Refused`` if the daemon refused it, ``Closed`` if nobody knows."""
        await self.settled()
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        assert self.epoch is not None  # done, and no error
        return self.epoch

    async def settled(self) -> None:
        """Returns when there is an answer, whatever it is."""
        if not self.done:
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()

    def accept(self, epoch: int) -> None:
        """The turn is on disk."""
        self.epoch = epoch
        self._wake()

    def fail(self, error: DataspaceError) -> None:
        """The turn did not happen, or nobody can tell."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._done is not None:
            self._done.set()


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim on a fact: what ``assert_`` gives and ``retract`` takes."""

    handle: int
    value: Value


class HandleNumbers:
    """Numbers that no claim has had: shared by all drafts of a client, which may be filled side by side."""

    __slots__ = ("_lock", "_next")

    def __init__(self, first: int) -> None:
        self._next = first
        self._lock = threading.Lock()  # the drafts of a blocking client are filled in its caller's threads

    def take(self, wanted: int | None = None) -> int:
        """The next number, or the one that is wanted, below which none is taken afterwards."""
        with self._lock:
            handle = self._next if wanted is None else wanted
            self._next = max(self._next, handle + 1)
            return handle


class Draft:
    """The actions of one turn, collected: nothing happens before it is committed."""

    __slots__ = ("_handles", "actions", "epoch")

    def __init__(self, handles: HandleNumbers) -> None:
        self.actions: list[Action] = []
        self.epoch: int | None = None
        self._handles = handles

    def assert_(self, value: object, *, handle: int | None = None) -> Claim:
        """Asserts a fact; ``handle`` is the owner's own number for it, else the next free one.

        ``UsageError``, here and below, for what is no value, and for text that reads as a record.
        """
        fact = fact_of(value)
        handle = self._handles.take(handle)
        self.actions.append((ASSERT, handle, fact))
        return Claim(handle, fact)

    def retract(self, claim: Claim | int) -> None:
        """Ends a claim."""
        self.actions.append((RETRACT, _handle(claim)))

    def replace(self, claim: Claim | int, value: object) -> Claim:
        """Asserts a fact and then ends the claim on the one before it."""
        fact = fact_of(value)
        handle = self._handles.take()
        self.actions.append((REPLACE, _handle(claim), handle, fact))
        return Claim(handle, fact)

    def send(self, value: object) -> None:
        """Sends a message."""
        self.actions.append((SEND, fact_of(value)))


def _handle(claim: Claim | int) -> int:
    handle = claim.handle if isinstance(claim, Claim) else claim
    if handle.__class__ is not int:
        raise UsageError(f"a claim or a handle is needed, got {claim!r}")
    return handle


class ClaimSet:
    """What the session or a lease claims, so that it can be said again when it has ended.

    Kept as of the newest turn that the daemon is known to have applied.
    """

    __slots__ = ("_held", "owner")

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self._held: dict[int, Value] = {}

    def apply(self, ticket: Ticket) -> None:
        """A turn has taken effect; once, however often that is learnt."""
        if ticket.owner != self.owner or ticket.counted:
            return
        ticket.counted = True
        for action in ticket.actions:
            verb = action[0]
            if verb == ASSERT:
                self._held[action[1]] = action[2]  # type: ignore[index]  # a handle
            elif verb == RETRACT:
                self._held.pop(action[1], None)  # type: ignore[arg-type]  # a handle
            elif verb == REPLACE:
                self._held.pop(action[1], None)  # type: ignore[arg-type]  # a handle
                self._held[action[2]] = action[3]  # type: ignore[index]  # a handle

    def again(self) -> Iterator[Action]:
        """The actions that assert all of it anew."""
        for handle, value in self._held.items():
            yield (ASSERT, handle, value)

    def __len__(self) -> int:
        return len(self._held)


__all__ = ["SEND", "Claim", "ClaimSet", "Draft", "HandleNumbers", "Ticket"]
