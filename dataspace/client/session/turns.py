"""Turns as a client makes them: the actions of a turn, its number, and a ticket for its epoch.

They are apart from the session because a draft needs no connection, and is also used by the blocking client.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Coroutine, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from dataspace.errors import DataspaceError, UsageError
from dataspace.facts import fact_of, key_pattern, put_fact
from dataspace.kernel.actions import (
    ASSERT,
    PUT,
    REPLACE,
    RETRACT,
    SEND,
    WITHDRAW,
    Action,
    are_by_handle,
)
from dataspace.kernel.expectations import Expectation, pattern_of
from dataspace.kernel.searches import Search
from dataspace.loops.here import loop
from dataspace.loops.primitives import Event
from dataspace.steps import at_once
from index.patterns.patterns import Pattern
from index.values.values import Value

Others: TypeAlias = tuple[tuple[str, tuple[Action, ...]], ...]
"""What a turn does for further owners: each with its actions."""

Done: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Deliveries that are done with a turn: each group with epoch, position and token of each."""


class Ticket:
    """A submitted turn: ``await ticket.wait()`` returns its epoch, once that is on disk.

    ``restating`` turns assert the session's claims again, and nothing waits for them.
    """

    __slots__ = (
        "_done",
        "_error",
        "actions",
        "deliveries",
        "epoch",
        "expected",
        "others",
        "owner",
        "parting",
        "restating",
        "sequence",
        "traceparent",
    )

    def __init__(
        self,
        sequence: int,
        owner: str,
        actions: tuple[Action, ...],
        *,
        expected: tuple[Expectation, ...] = (),
        others: Others = (),
        restating: bool = False,
        traceparent: str = "",
        deliveries: Done = (),
    ) -> None:
        self.traceparent = traceparent
        self.deliveries = deliveries
        self.expected = expected
        self.others = others
        self.restating = restating
        self.parting = False
        """True if it only ends claims that end with the session: nobody waits for it without a connection."""
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

    @property
    def refused(self) -> bool:
        """True if the answer is there, and is that nothing has happened, or that this cannot be known."""
        return self._error is not None

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

    ``epoch`` is the one in which it was accepted, None until then.  ``owner`` is the durable owner that it
    was asserted for, empty for the client's own.
    """

    handle: int
    value: Value
    epoch: int | None = field(default=None, compare=False)
    owner: str = ""


class HandleNumbers:
    """Numbers for claims: shared by all drafts of a client, which may be filled at the same time."""

    __slots__ = ("_lock", "_next")

    def __init__(self, first: int) -> None:
        self._next = first
        self._lock = threading.Lock()  # the drafts of a blocking client are filled in its caller's threads

    @classmethod
    def durable(cls) -> HandleNumbers:
        """Returns numbers for durable owners, which may have claims of other runs and of other clients.

        They start at random, so that they avoid these numbers, and this high, so that they avoid the numbers
        that the daemon chooses (``dataspace.kernel.handles.FRESH``).
        """
        return cls(1 << 60 | random.getrandbits(60))

    def take(self, wanted: int | None = None) -> int:
        """Returns the next number, or ``wanted``; numbers below that are not used afterwards."""
        with self._lock:
            handle = self._next if wanted is None else wanted
            self._next = max(self._next, handle + 1)
            return handle


class Draft:
    """Collects the actions of one turn: nothing happens before it is committed.

    ``actions`` concern the client's own facts, ``others`` the facts of durable owners by their names.
    ``expected`` must hold then, or the turn is refused with ``ExpectationFailed``.  ``traceparent`` names the
    trace of the turn; empty for the current trace at submission, if the client states traces.
    """

    __slots__ = (
        "_claims",
        "_durable",
        "_handles",
        "_has_ended",
        "_own",
        "actions",
        "deliveries",
        "epoch",
        "expected",
        "others",
        "traceparent",
    )

    def __init__(
        self,
        handles: HandleNumbers,
        expected: Iterable[Expectation] = (),
        *,
        durable: HandleNumbers,
        own: str = "",
        traceparent: str = "",
    ) -> None:
        """``handles`` are for facts of the client, whose owner is called ``own`` if it has a name, and
        ``durable`` for facts of durable owners."""
        self.traceparent = traceparent
        self.actions: list[Action] = []
        self.others: dict[str, list[Action]] = {}
        self.expected: list[Expectation] = [*expected]
        self.deliveries: Done = ()
        self.epoch: int | None = None
        self._claims: list[Claim] = []
        self._has_ended = False
        self._handles = handles
        self._durable = durable
        self._own = own

    def assert_(self, value: object, *, handle: int | None = None, owner: str = "") -> Claim:
        """Asserts a fact; ``handle`` is the owner's own number for it, else the next free one.

        With ``owner`` the fact belongs to that durable owner, and stays until it is retracted.  Raises
        ``UsageError``, here and below, for an object that is no value, and for text that reads as a record.
        """
        fact = fact_of(value)
        owner, actions, handles = self._of(owner)
        handle = handles.take(handle)
        actions.append((ASSERT, handle, fact))
        return self._begun(handle, fact, owner)

    def retract(self, claim: Claim | int, *, owner: str = "") -> None:
        """Ends a claim; a handle is one of the client's own facts, or of the ``owner``."""
        _, actions, _ = self._of(_owner(claim, owner))
        actions.append((RETRACT, _handle(claim)))

    def replace(self, claim: Claim | int, value: object, *, owner: str = "") -> Claim:
        """Asserts a fact of the same owner and then ends the claim on the previous one."""
        fact = fact_of(value)
        owner, actions, handles = self._of(_owner(claim, owner))
        before, handle = _handle(claim), handles.take()
        actions.append((REPLACE, before, handle, fact))
        return self._begun(handle, fact, owner)

    def put(self, *fact: object, by: Pattern | str | None = None, owner: str = "") -> Claim:
        """Asserts a fact in place of its owner's facts with the same key; see ``RemoteSpace.put``.

        The daemon finds those facts in the state in which the turn is committed, after the earlier actions of
        the owner in this turn.  Raises ``UsageError`` for a fact that has no such key.
        """
        value = put_fact(fact)
        pattern = key_pattern(value, by)
        owner, actions, handles = self._of(owner)
        handle = handles.take()
        actions.append((PUT, handle, value, None if by is None else pattern))
        return self._begun(handle, value, owner)

    def withdraw(self, pattern: Pattern | str, *, owner: str = "") -> None:
        """Ends the owner's claims on all facts that match a pattern when the turn is committed.

        Facts that the turn asserts before this action are withdrawn, later ones stay.  The client needs the
        right to observe the pattern.
        """
        form = pattern_of(pattern)
        _, actions, _ = self._of(owner)
        actions.append((WITHDRAW, form))

    def send(self, value: object) -> None:
        """Sends a message."""
        if self._has_ended:
            raise _ended()
        self.actions.append((SEND, fact_of(value)))

    def end(self) -> None:
        """Takes no action from now on: the block that filled it has ended."""
        self._has_ended = True

    def accepted(self, epoch: int) -> None:
        """Notes the epoch of the turn, which its claims have from now on."""
        self.epoch = epoch
        for claim in self._claims:
            claim.epoch = epoch

    def parts(self) -> tuple[str | None, tuple[Action, ...], Others]:
        """Returns the first owner of the turn (None: the client's own), its actions, and the actions of
        further owners."""
        others = tuple([(owner, tuple(actions)) for owner, actions in self.others.items() if actions])
        if self.actions or not others:
            return None, tuple(self.actions), others
        return *others[0], others[1:]

    def _of(self, owner: str) -> tuple[str, list[Action], HandleNumbers]:
        """Returns an owner, empty for the client itself, its actions, and the numbers for its claims."""
        if self._has_ended:
            raise _ended()
        if not owner or owner == self._own:
            return "", self.actions, self._handles
        check_durable(owner)
        return owner, self.others.setdefault(owner, []), self._durable

    def _begun(self, handle: int, fact: Value, owner: str) -> Claim:
        claim = Claim(handle, fact, None, owner)
        self._claims.append(claim)
        return claim


def _ended() -> UsageError:
    return UsageError(
        "this turn has ended with its block, and nothing more can be part of it: do it in the block, or begin"
        " another one (async with space.turn() as turn; without async in a blocking client)"
    )


def check_durable(owner: object) -> None:
    """Raises ``UsageError`` for an object that is no name of a durable owner."""
    if not isinstance(owner, str) or owner.startswith("lease:"):
        raise UsageError(f"owner is the name of a durable owner, such as 'results', not {owner!r:.60}")


def _owner(claim: Claim | int, owner: str) -> str:
    """Returns whose claim it is; raises ``UsageError`` if it is said to be another owner's."""
    if isinstance(claim, Claim):
        if owner not in ("", claim.owner):
            raise UsageError(f"{claim!r:.80} is a claim of {claim.owner or 'the client'!r}, not of {owner!r}")
        return claim.owner
    return owner


def _handle(claim: Claim | int) -> int:
    if isinstance(claim, Coroutine):
        raise UsageError("a claim or a handle is needed, got a call: write `await` before it")
    handle = claim.handle if isinstance(claim, Claim) else claim
    if handle.__class__ is not int:
        raise UsageError(f"a claim or a handle is needed, got {claim!r}")
    return handle


def _same(handle: Hashable) -> int:
    return handle  # type: ignore[return-value]  # claims are kept by their handles here


class ClaimSet:
    """The claims of the session or of a lease, kept so that they can be asserted again when it has ended.

    Kept as of the newest turn that was answered.
    """

    __slots__ = ("_held", "owner")

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self._held: dict[int, Value] = {}

    def apply(self, ticket: Ticket) -> None:
        """Adds the effects of a turn; turns that restate claims add nothing."""
        if ticket.owner != self.owner or ticket.restating:
            return
        actions: Iterable[Action] = ticket.actions
        if not are_by_handle(ticket.actions):
            actions = self._by_handle(ticket.actions)
        for action in actions:
            verb = action[0]
            if verb == ASSERT:
                self._held[action[1]] = action[2]  # type: ignore[index]  # a handle
            elif verb == RETRACT:
                self._held.pop(action[1], None)  # type: ignore[arg-type]  # a handle
            elif verb == REPLACE:
                self._held.pop(action[1], None)  # type: ignore[arg-type]  # a handle
                self._held[action[2]] = action[3]  # type: ignore[index]  # a handle

    def _by_handle(self, actions: tuple[Action, ...]) -> list[Action]:
        """Returns the actions by handle, as the daemon has found them; O(claims)."""
        search = Search(actions)
        at_once(search.reading())
        for handle, value in self._held.items():
            search.claim(_same, handle, value)
        return search.settled(lambda _handle, _value: True)

    def held(self) -> dict[int, Value]:
        """Returns the facts by handle; O(claims)."""
        return dict(self._held)

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
