"""Ledgers: where an owner's claims are, by fact or by key, kept from one publication to the next.

A publication speaks of facts, and a claim ends by its handle.  So to retract a fact, or to put another one in
its place by their key, the claim has to be found.  Looking through all that the owner claims would make each
small batch cost as much as all batches before it.  So a ledger is worked out when it is first asked for, and
follows from then on what is published.

Always: a ledger says what the claims say; whatever else changes them has it forgotten, and so has a
publication that fails; what all ledgers know is bounded, and those go first that were not used for longest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.kernel.bulk_assertions import Assertions
from index.patterns.patterns import matcher
from index.values.values import Value, key, keys, same
from server.publication.packed import Operations

if TYPE_CHECKING:
    from dataspace.kernel.space import Space

KNOWN: Final = 1_000_000
"""Facts or keys that all ledgers of a space together know, some 120 bytes for each key, 190 for each fact."""

NO_KEY: Final = object()
"""What stands for the key of a fact that has none."""

Places: TypeAlias = dict[Hashable, tuple[int, ...]]
"""The handles of the claims on each fact, or on all facts with a key; never none."""


@dataclass(frozen=True, slots=True)
class LedgerStatistics:
    """Counts: ledgers that are kept, facts or keys that they know, claims read to work ledgers out so far."""

    ledgers: int
    known: int
    read: int


class Ledgers:
    """The ledgers of a space.  Publications come one at a time: ``plan``, the commit, ``settle``."""

    def __init__(self, space: Space, *, known: int = KNOWN) -> None:
        self._space = space
        self._limit = known
        self._kept: OrderedDict[str, Ledger] = OrderedDict()
        self._known = self._read = 0

    def plan(self, owner: str, operations: Operations, *, replace: bool = False, by: Value = None) -> Plan:
        """What some operations mean for what an owner claims now.

        Retracting by value ends one claim on that fact, an earlier one of the owner's or one of this batch;
        retracting what the owner does not claim changes nothing.  With ``replace``, what is asserted becomes
        the owner's whole set: facts that stay are not touched.  With a pattern ``by``, a fact takes the place
        of those of the owner that have the same captures, one that is there already stays, and retracting
        ends exactly that fact; raises ``Refused`` for a fact that has no key.

        O(operations), and O(claims of the owner) for ``replace`` and where a ledger has to be worked out.
        """
        verbs, values = operations
        fresh = self._space.fresh_handle(owner)
        ledger = self._taken(owner)
        if replace:
            return Plan(_replacing(self._space, owner, operations, fresh))
        plain = by is None and verbs.count("assert") == len(verbs)  # as mostly: no look at what it claims
        if ledger is None or not same(ledger.by, by):
            if plain or (by is None and "retract" not in verbs):
                return Plan(Assertions(fresh, values) if plain else _added(operations, fresh))
            claims = self._space.claims(owner)
            self._read += len(claims)
            ledger = Ledger(claims, by)
        draft = LedgerChange(ledger, self._space.claims(owner), fresh)
        take = draft.take if by is None else draft.take_keyed
        for verb, value in zip(verbs, values, strict=True):
            take(verb, value)
        actions = Assertions(fresh, values) if plain else draft.actions
        return Plan(actions, partial(self._settle, owner, ledger, draft.changed))

    def forget(self, owner: str) -> None:
        """The owner's claims are changed by something else than a publication; O(1)."""
        if owner in self._kept:
            self._taken(owner)

    def statistics(self) -> LedgerStatistics:
        """Counts, in O(1)."""
        return LedgerStatistics(len(self._kept), self._known, self._read)

    def _taken(self, owner: str) -> Ledger | None:
        ledger = self._kept.pop(owner, None)
        self._known -= 0 if ledger is None else len(ledger.places)
        return ledger

    def _settle(self, owner: str, ledger: Ledger, changed: dict[Hashable, list[int]]) -> None:
        for at, handles in changed.items():
            if handles:
                ledger.places[at] = tuple(handles)
            else:
                ledger.places.pop(at, None)
        if not ledger.places:  # or owners without claims would be kept for ever
            return
        self._kept[owner] = ledger
        self._known += len(ledger.places)
        while self._known > self._limit:
            self._taken(next(iter(self._kept)))


class Plan:
    """What a publication does; ``settle`` is to be called once it is done, and not at all if it fails."""

    __slots__ = ("actions", "settle")

    def __init__(self, actions: Sequence[Action], settle: Callable[[], None] = lambda: None) -> None:
        self.actions: Final = actions
        self.settle: Final = settle


class Ledger:
    """One owner's claims by fact, or by the captures of the pattern ``by``."""

    __slots__ = ("at", "by", "places")

    def __init__(self, claims: Mapping[int, Value], by: Value) -> None:
        """O(claims); claims without a key are nobody's concern."""
        self.by: Final = by
        self.at: Final[Callable[[Value], Hashable]] = key if by is None else _keyed(by)
        found: dict[Hashable, list[int]] = {}
        for handle, value in claims.items():
            at = self.at(value)
            if at is not NO_KEY:
                found.setdefault(at, []).append(handle)
        self.places: Final[Places] = {at: tuple(handles) for at, handles in found.items()}


class LedgerChange:
    """A publication while it is worked out; the ledger and the claims stay as they are."""

    __slots__ = ("_claims", "_fresh", "_ledger", "_made", "actions", "changed")

    def __init__(self, ledger: Ledger, claims: Mapping[int, Value], fresh: int) -> None:
        self._ledger = ledger
        self._claims = claims
        self._fresh = fresh
        self._made: dict[int, Value] = {}
        self.actions: Final[list[Action]] = []
        self.changed: Final[dict[Hashable, list[int]]] = {}

    def take(self, verb: str, value: Value) -> None:
        """One operation by value."""
        if verb == "send":
            self.actions.append((SEND, value))
            return
        here = self._here(key(value))
        if verb == "assert":
            here.append(self._assert(value))
        elif here:
            self.actions.append((RETRACT, here.pop()))  # the latest: there may be a million, of one fact

    def take_keyed(self, verb: str, value: Value) -> None:
        """One operation by key."""
        if verb == "send":
            self.actions.append((SEND, value))
            return
        at = self._ledger.at(value)
        if at is NO_KEY:
            said = f"{value!r:.80} does not match {self._ledger.by!r:.80}, which gives the key"
            raise Refused("bad-request", said)
        here = self._here(at)
        there = next((handle for handle in here if same(self._value(handle), value)), None)
        staying = [handle for handle in here if (handle == there) == (verb == "assert")]
        if verb == "assert" and there is None:
            staying.append(self._assert(value))
        going = [handle for handle in here if (handle == there) == (verb == "retract")]
        self.actions.extend([(RETRACT, handle) for handle in going])
        self.changed[at] = staying

    def _here(self, at: Hashable) -> list[int]:
        """The handles that are there by now, to be changed."""
        here = self.changed.get(at)
        if here is None:
            here = self.changed[at] = list(self._ledger.places.get(at, ()))
        return here

    def _value(self, handle: int) -> Value:
        return self._made[handle] if handle in self._made else self._claims[handle]

    def _assert(self, value: Value) -> int:
        handle, self._fresh = self._fresh, self._fresh + 1
        self._made[handle] = value
        self.actions.append((ASSERT, handle, value))
        return handle


def _keyed(by: Value) -> Callable[[Value], Hashable]:
    match = matcher(by)

    def at(value: Value) -> Hashable:
        row = match(value)
        return NO_KEY if row is None else keys(row)

    return at


def _added(operations: Operations, fresh: int) -> list[Action]:
    """Operations that only assert and send, under handles from ``fresh`` on."""
    return [
        (SEND, value) if verb == "send" else (ASSERT, handle, value)
        for handle, (verb, value) in enumerate(zip(*operations, strict=True), fresh)
    ]


def _replacing(space: Space, owner: str, operations: Operations, fresh: int) -> tuple[Action, ...]:
    """What makes the asserted facts the owner's whole set; messages are sent."""
    verbs, values = operations
    asserted = [value for verb, value in zip(verbs, values, strict=True) if verb == "assert"]
    sent = [(SEND, value) for verb, value in zip(verbs, values, strict=True) if verb == "send"]
    return (*space.replace_all(owner, asserted, fresh), *sent)
