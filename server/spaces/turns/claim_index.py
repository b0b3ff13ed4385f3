"""The claim index: finds an owner's claims by fact or by key, from one publication to the next.

A publication names facts, and a claim is ended by its handle.  So to retract a fact, or to replace it by
another one with the same key, the claim must be found.  A scan of all claims of the owner would make each
small batch cost as much as all batches before it.  So an index is built when it is first needed, and is
updated from then on with each publication.

To plan a million operations takes longer than to carry them out, so it is done in steps, between which
others have the thread.  A plan for claims that have changed meanwhile is none, and is made again.

Always: an index agrees with the claims; it is dropped when anything else changes them, or when a publication
fails; the size of all indexes is bounded, and the least recently used are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from dataspace.errors import Refused
from dataspace.facts import usual_key
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.kernel.bulk_assertions import Assertions, replacing_in_steps
from dataspace.steps import Steps, at_once, batched
from index.patterns.patterns import DISCARD, capture, matcher
from index.trie.nodes import At, at_of
from index.values.values import Record, Value, key, keys, same
from server.spaces.turns.packed import Operations

if TYPE_CHECKING:
    from dataspace.kernel.space import Space

KNOWN: Final = 1_000_000
"""Facts or keys that all indexes of a space hold together, some 120 bytes for each key, 190 for each fact."""

STEP: Final = 128
"""Operations, or claims, that are looked at in one step, in about a millisecond."""

T = TypeVar("T")
NO_KEY: Final = object()
"""Stands for the key of a fact that has none."""

Places: TypeAlias = dict[Hashable, tuple[int, ...]]
"""Handles of the claims on each fact, or on all facts with a key; never empty."""


@dataclass(frozen=True, slots=True)
class ClaimIndexStatistics:
    """Counts: indexes that are kept, facts or keys in them, and claims read to build indexes so far."""

    indexes: int
    known: int
    read: int


class ClaimIndexes:
    """The indexes of a space.  Publications come one at a time: ``plan``, the commit, ``settle``."""

    def __init__(self, space: Space, *, known: int = KNOWN) -> None:
        self._space = space
        self._limit = known
        self._kept: OrderedDict[str, ClaimIndex] = OrderedDict()
        self._known = self._read = 0
        self._planned = ""
        self._is_changed = False

    def plan(
        self,
        owner: str,
        operations: Operations,
        *,
        replace: bool = False,
        by: Value = None,
        once: bool = False,
    ) -> Plan:
        """Does ``planning`` in one step."""
        plan = at_once(self.planning(owner, operations, replace=replace, by=by, once=once))
        assert plan is not None  # nothing came between
        return plan

    def planning(
        self,
        owner: str,
        operations: Operations,
        *,
        replace: bool = False,
        by: Value = None,
        once: bool = False,
    ) -> Steps[Plan | None]:
        """Returns the effect of some operations on what an owner claims now, in steps.

        Returns None if what the owner claims has changed between them (``forget``).

        Retracting by value ends one claim on that fact, an earlier one of the owner's or one of this batch;
        retracting what the owner does not claim changes nothing.  With ``replace``, what is asserted becomes
        the owner's whole set: facts that stay are not touched.  With a pattern ``by``, a fact takes the place
        of the owner's facts that have the same captures, an equal fact stays, and retracting ends exactly
        that fact.  There the operations of one key are counted, since operations of several tasks have no
        order: a fact that is asserted as often as it is retracted stays as it was.  Raises ``Refused`` for a
        fact that has no key, and where a key is left with several facts.

        With ``once``, an owner has one claim on a fact: the last operation on the fact counts, asserting a
        fact that the owner claims changes nothing, and retracting ends all claims of the owner on that fact,
        also claims under handles of clients.

        O(operations), and O(claims of the owner) for ``replace`` and where an index must be built.
        """
        verbs, values = operations
        if by is not None and len(values) == 1:
            by = _of_all_keys(by, values[0])
        self._planned, self._is_changed = owner, False
        fresh = self._space.fresh_handle(owner)
        index = self._taken(owner)
        if replace:
            actions = yield from self._unchanged(_replacing(self._space, owner, operations, fresh))
            return None if actions is None else Plan(actions)
        adds = by is None and "retract" not in verbs  # the usual case: needs no look at the claims
        if adds and once:
            known = yield from self._unchanged(self._knowing(operations))
            if known is None:
                return None
            adds = not known
        plain = adds and verbs.count("assert") == len(verbs)
        if index is None or not same(index.by, by):
            if adds:
                return Plan(Assertions(fresh, values) if plain else _added(operations, fresh))
            claims = self._space.claims(owner)
            self._read += len(claims)
            index = yield from self._unchanged(ClaimIndex(by).reading(claims))
            if index is None:
                return None
        draft = IndexChange(index, self._space.claims(owner), fresh, once=once)
        if (yield from self._unchanged(draft.taking(operations))) is None:
            return None
        planned = Assertions(fresh, values) if plain else draft.actions
        return Plan(planned, partial(self._settling, owner, index, draft.changed), draft.ended)

    def _knowing(self, operations: Operations) -> Steps[bool]:
        """Returns, in steps, whether one of the asserted facts is in the space, or is asserted twice."""
        count, seen = self._space.index.count_at, set[At]()
        for some in batched(zip(*operations, strict=True), STEP):
            for verb, value in some:
                if verb == "assert":
                    at = at_of(value)
                    if at in seen or count(at):
                        return True
                    seen.add(at)
            yield
        return False

    def forget(self, owner: str) -> None:
        """Drops the indexes of an owner whose claims changed otherwise than by a publication; O(1)."""
        if owner == self._planned:
            self._is_changed = True
        if owner in self._kept:
            self._taken(owner)

    def _unchanged(self, steps: Steps[T]) -> Steps[T | None]:
        """Does steps that read the claims, until these have changed: then returns None, and does no other."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("T", end.value)
            yield
            if self._is_changed:
                return None

    def statistics(self) -> ClaimIndexStatistics:
        """Returns counts, in O(1)."""
        return ClaimIndexStatistics(len(self._kept), self._known, self._read)

    def _taken(self, owner: str) -> ClaimIndex | None:
        index = self._kept.pop(owner, None)
        self._known -= 0 if index is None else len(index.places)
        return index

    def _settling(self, owner: str, index: ClaimIndex, changed: dict[Hashable, list[int]]) -> Steps[None]:
        """Takes into an index what was published, and keeps it, unless its claims change meanwhile."""
        if (yield from self._unchanged(index.taking(changed))) is None or not index.places:
            return  # owners without claims would be kept for ever
        self._kept[owner] = index
        self._known += len(index.places)
        while self._known > self._limit:
            self._taken(next(iter(self._kept)))


def _nothing() -> Steps[None]:
    yield


def _of_all_keys(by: Value, fact: Value) -> Value:
    """Returns the pattern of the usual keys of all such facts, if ``by`` is the usual key of this one.

    One index then serves puts of one owner after the other.  With an index for each key, each put would read
    all claims of its owner.
    """
    usual = usual_key(fact)
    if not isinstance(fact, Record) or usual is None or key(usual) != key(by):
        return by
    keyed = [capture(f"key-{at}") for at in range(len(fact.fields) - 1)]
    return Record("exact", Record(fact.label, *keyed, DISCARD))


class Plan:
    """The actions of a publication; ``settling`` once it is committed, and not at all if it fails.

    Nothing may change the claims of the owner between the plan and the commit.
    """

    __slots__ = ("actions", "ended", "settling")

    def __init__(
        self,
        actions: Sequence[Action],
        settling: Callable[[], Steps[None]] = _nothing,
        ended: int = 0,
    ) -> None:
        self.actions: Final = actions
        self.settling: Final = settling
        self.ended: Final = ended
        """On how many facts, where an owner has one claim on each (``once``), its claims end."""

    @property
    def began(self) -> int:
        """How many claims begin; O(actions)."""
        return sum([action[0] == ASSERT for action in self.actions])

    def settle(self) -> None:
        """Does ``settling`` in one step."""
        at_once(self.settling())


class ClaimIndex:
    """One owner's claims by fact, or by the captures of the pattern ``by``."""

    __slots__ = ("at", "by", "places")

    def __init__(self, by: Value) -> None:
        self.by: Final = by
        self.at: Final[Callable[[Value], Hashable]] = key if by is None else _keyed(by)
        self.places: Final[Places] = {}

    def reading(self, claims: Mapping[int, Value]) -> Steps[ClaimIndex]:
        """Reads claims into an empty index, and returns it; those without a key are left out."""
        found: dict[Hashable, list[int]] = {}
        for some in batched(claims.items(), STEP):
            for handle, value in some:
                at = self.at(value)
                if at is not NO_KEY:
                    found.setdefault(at, []).append(handle)
            yield
        yield from self.taking(found)
        return self

    def taking(self, changed: Mapping[Hashable, Sequence[int]]) -> Steps[bool]:
        """Takes the handles of keys that have changed; returns True."""
        for some in batched(changed.items(), STEP):
            for at, handles in some:
                if handles:
                    self.places[at] = tuple(handles)
                else:
                    self.places.pop(at, None)
            yield
        return True


class KeyChange:
    """The sum of several operations on the facts of one key, counted: operations of several tasks have no
    order."""

    __slots__ = ("asserts", "facts", "net")

    def __init__(self) -> None:
        self.asserts: Final[set[Hashable]] = set()
        self.net: Final[dict[Hashable, int]] = {}
        self.facts: Final[dict[Hashable, Value]] = {}

    def add(self, verb: str, value: Value) -> None:
        """Counts one operation."""
        at = key(value)
        self.facts.setdefault(at, value)
        self.net[at] = self.net.get(at, 0) + (1 if verb == "assert" else -1)
        if verb == "assert":
            self.asserts.add(at)

    def ends(self, fact: Hashable) -> bool:
        """True if one more claim on a fact is to end; counts it."""
        if self.net.get(fact, 0) >= 0:
            return False
        self.net[fact] += 1
        return True

    def standing(self, there: Iterable[Hashable]) -> list[Hashable]:
        """The facts that are asserted more often than retracted, or as often where they are there."""
        known = set(there)
        return [fact for fact in self.net if fact in self.asserts and self.net[fact] >= (fact not in known)]


class IndexChange:
    """The changes of a publication that is being planned; the index and the claims stay as they are."""

    __slots__ = (
        "_claims",
        "_fresh",
        "_last",
        "_index",
        "_made",
        "_once",
        "_wanted",
        "actions",
        "changed",
        "ended",
    )

    def __init__(
        self, index: ClaimIndex, claims: Mapping[int, Value], fresh: int, *, once: bool = False
    ) -> None:
        self._index = index
        self._once = once
        self._last: dict[Hashable, tuple[str, Value, bool]] = {}
        """For each fact its last operation, and whether one of them retracts it."""
        self._claims = claims
        self._fresh = fresh
        self._made: dict[int, Value] = {}
        self._wanted: dict[Hashable, KeyChange | tuple[str, Value]] = {}
        self.actions: Final[list[Action]] = []
        self.changed: Final[dict[Hashable, list[int]]] = {}
        self.ended = 0
        """Facts whose claims end, where an owner has one claim on each fact."""

    def taking(self, operations: Operations) -> Steps[bool]:
        """Plans operations; returns True."""
        take = self.take_keyed
        if self._index.by is None:
            take = self.take_once if self._once else self.plan
        for some in batched(zip(*operations, strict=True), STEP):
            for verb, value in some:
                take(verb, value)
            yield
        yield from self.settling_facts()
        yield from self.settling_keys()
        return True

    def plan(self, verb: str, value: Value) -> None:
        """Plans one operation by value."""
        if verb == "send":
            self.actions.append((SEND, value))
            return
        here = self._here(key(value))
        if verb == "assert":
            here.append(self._assert(value))
        elif here:
            self.actions.append((RETRACT, here.pop()))  # the latest: there may be a million, of one fact

    def take_once(self, verb: str, value: Value) -> None:
        """Plans one operation of an owner that has one claim on a fact; the last on a fact counts."""
        if verb == "send":
            self.actions.append((SEND, value))
            return
        at = key(value)
        before = self._last.pop(at, None)  # additions come in the order in which they were made
        self._last[at] = (verb, value, verb == "retract" or (before is not None and before[2]))

    def settling_facts(self) -> Steps[None]:
        """Gives each fact of ``take_once`` its claim, or ends all of them."""
        for some in batched(self._last.items(), STEP):
            for at, (verb, value, is_retracted) in some:
                here = self._here(at)
                if verb == "retract":
                    self.ended += bool(here)
                    self._leave(at, [])
                elif not here:
                    here.append(self._assert(value))
                elif is_retracted:
                    self._leave(at, here[:1])
            yield

    def take_keyed(self, verb: str, value: Value) -> None:
        """One operation by key; what becomes of a key is decided by ``settling_keys``, once all are known."""
        if verb == "send":
            self.actions.append((SEND, value))
            return
        at = self._index.at(value)
        if at is NO_KEY:
            reason = f"{value!r:.80} does not match {self._index.by!r:.80}, which gives the key"
            raise Refused("bad-request", reason)
        before = self._wanted.get(at)
        if before is None:  # as mostly, and a million keys need no counts of their own
            self._wanted[at] = (verb, value)
            return
        if isinstance(before, tuple):
            first, self._wanted[at] = before, (before := KeyChange())
            before.add(*first)
        before.add(verb, value)

    def settling_keys(self) -> Steps[None]:
        """Gives each key the fact that its operations leave it; ``Refused`` if they leave it several."""
        for some in batched(self._wanted.items(), STEP):
            for at, change in some:
                if isinstance(change, tuple):
                    self._settle_single(at, *change)
                else:
                    self._settle_key(at, change)
            yield

    def _settle_single(self, at: Hashable, verb: str, value: Value) -> None:
        """The one operation of a key."""
        here = self._here(at)
        if not here:  # a key that is new
            if verb == "assert":
                here.append(self._assert(value))
            return
        equal = [handle for handle in here if same(self._value(handle), value)]
        there = equal[0] if equal else None
        ended = equal if self._once else equal[:1]
        staying = [handle for handle in here if handle not in ended] if verb == "retract" else equal[:1]
        if verb == "assert" and there is None:
            staying.append(self._assert(value))
        self._leave(at, staying)

    def _settle_key(self, at: Hashable, change: KeyChange) -> None:
        """Several operations of a key, counted."""
        here = self._here(at)
        facts = {handle: key(self._value(handle)) for handle in here}
        if not change.asserts:
            ends = change.net.__contains__ if self._once else change.ends
            self._leave(at, [handle for handle in here if not ends(facts[handle])])
            return
        standing = change.standing(facts.values())
        if len(standing) > 1:
            first, second = [change.facts[fact] for fact in standing[:2]]
            raise Refused(
                "bad-request",
                f"two facts with one key, {first!r:.80} and {second!r:.80}: publish one of them, the newest "
                f"for instance, or add a column to the key",
            )
        staying = [handle for handle in here if facts[handle] in standing][:1]
        if standing and not staying:
            staying.append(self._assert(change.facts[standing[0]]))
        self._leave(at, staying)

    def _leave(self, at: Hashable, staying: list[int]) -> None:
        """Ends the claims of a key but for the staying ones; assertions come before retractions."""
        kept = set(staying)
        self.actions.extend([(RETRACT, handle) for handle in self._here(at) if handle not in kept])
        self.changed[at] = staying

    def _here(self, at: Hashable) -> list[int]:
        """Returns the present handles, in a list that may be changed."""
        here = self.changed.get(at)
        if here is None:
            here = self.changed[at] = list(self._index.places.get(at, ()))
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
    """Returns the actions of operations that only assert and send, with handles from ``fresh`` on."""
    return [
        (SEND, value) if verb == "send" else (ASSERT, handle, value)
        for handle, (verb, value) in enumerate(zip(*operations, strict=True), fresh)
    ]


def _replacing(space: Space, owner: str, operations: Operations, fresh: int) -> Steps[Sequence[Action]]:
    """Returns the actions that make the asserted facts the owner's whole set; messages are sent."""
    verbs, values = operations
    asserted = [value for verb, value in zip(verbs, values, strict=True) if verb == "assert"]
    sent = [(SEND, value) for verb, value in zip(verbs, values, strict=True) if verb == "send"]
    return [*(yield from replacing_in_steps(space.claims(owner), asserted, fresh, STEP)), *sent]
