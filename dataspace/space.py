"""A space: facts, who claims them, and one turn after another.

Sessions and durable owners claim facts under handles of their own; the index counts the claims and knows
who is interested.  ``commit`` takes one turn: it is checked and applied whole, or refused and nothing has
happened.  What it meant comes back as an ``Epoch``, for the log and for whoever waits on it, and goes to
the observers as ``Changes``.  The space reads no clock and writes no file; its caller says what time it is.

Always: a fact is in the index as many times as there are claims on it; an epoch's number and time are
higher and not lower than those before; additions are told before messages, messages before removals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dataspace.assertions import Assertions
from dataspace.changes import Captures
from dataspace.drafts import Draft, InForm, take, take_back
from dataspace.epochs import Claims, Epoch
from dataspace.errors import Refused, UsageError
from dataspace.handles import ALL, FRESH, SECRET, Handles, Held
from dataspace.interests import Interest, Observer
from dataspace.rules.hosting import RULES, RuleHost, rules_in
from dataspace.wire.packets import ASSERT, RETRACT, SEND, Action
from index.patterns import skeleton
from index.trie import NOTHING, Index
from index.values import Value, key


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """What one owner and the whole space may hold; a turn beyond a limit is refused whole."""

    actions_per_turn: int = 65_536
    actions_per_publication: int = 1_000_000
    facts_per_owner: int = 1_000_000
    facts: int = 4_000_000
    rules: int = 1_000
    derived_per_turn: int = 1_000_000
    derive_seconds: int = 10
    """How long rules may derive in one turn, where somebody gives them a clock."""


@dataclass(frozen=True, slots=True)
class SpaceStatistics:
    """Counts of what a space holds: distinct facts, claims on them, owners, observed patterns."""

    epoch: int
    facts: int
    claims: int
    owners: int
    patterns: int
    observers: int


class Space:
    """One dataspace.  Not safe for threads: all turns come from one task."""

    def __init__(self, name: str, *, limits: SpaceLimits | None = None) -> None:
        self.name = name
        self.limits: Final = limits or SpaceLimits()
        self.epoch = 0
        self.time = 0
        self.index: Final = Index()
        self._claims: dict[str, Handles] = {}
        self._claimed = 0
        self._interests: dict[object, Interest] = {}
        self._touched: list[Interest] = []
        self.rules: Final = RuleHost(
            self.index,
            max_rules=self.limits.rules,
            max_facts=self.limits.derived_per_turn,
            max_seconds=self.limits.derive_seconds,
        )

    # -- turns ----------------------------------------------------------------------------------------

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
        now: int,
        *,
        client: str | None = None,
        sequence: int = 0,
        publication: bool = False,
    ) -> Epoch:
        """Applies one turn of one owner, or raises ``Refused`` and leaves everything as it was.

        ``now`` is in microseconds since 1970 UTC.  Raises ``ProtocolError`` for actions that are none, and
        ``UsageError`` for values that are too deep to be written down.
        A turn without net effect gives a silent epoch with the number of the one before.
        O(actions × matching patterns).
        """
        draft = self._drafted(owner, actions, publication)
        claims: tuple[Claims, ...] = ()
        if draft.asserted or draft.retracted:
            claim = owner, draft.asserted, list(draft.retracted or ())
            claims = (tuple.__new__(Claims, claim),)  # as ``_apply`` makes its epoch
        if self.rules.awake or rules_in(draft.added):  # as ``_conclude``, which is for turns that are rarer
            claims += self.rules.turn(draft)
        return self._apply(draft, claims, now, client, sequence)

    def act(self, owner: str, actions: Sequence[Action], now: int) -> None:
        """As ``commit``, sooner, for actors where no log is kept: nobody wants the ``Epoch``.

        What actors do is in form already: values are frozen, handles are new or their own.
        """
        if self.rules.awake:
            self.commit(owner, actions, now)
            return
        if len(actions) == 1 and actions[0][0] == SEND:
            self.index.send(actions[0][1])
        elif not self._act(owner, actions, now):
            return
        self.epoch += 1
        if now > self.time:
            self.time = now
        if self._touched:
            self._tell()

    def end(self, owners: Iterable[str], now: int) -> Epoch | None:
        """Retracts everything that these owners claim, in one turn; None if they claim nothing."""
        draft = Draft([], [], [])
        changed = []
        for owner in owners:
            claims = self._claims.pop(owner, None)
            if claims:
                changed.append(Claims(owner, (), list(claims)))
                draft.removed.extend(claims.values())
        return self._conclude(draft, tuple(changed), now, None, 0) if changed else None

    def replace_all(self, owner: str, values: Sequence[Value], first_handle: int) -> tuple[Action, ...]:
        """The actions that make ``values`` the whole set of what an owner claims; O(both sets).

        Facts in both stay under their handles; new ones get handles from ``first_handle`` upwards.
        """
        wanted = {key(value): value for value in values}
        actions: list[Action] = []
        kept = set()
        for handle, value in self._claims.get(owner, {}).items():
            at = key(value)
            if at in wanted and at not in kept:
                kept.add(at)
            else:
                actions.append((RETRACT, handle))
        fresh = [value for at, value in wanted.items() if at not in kept]
        actions.extend((ASSERT, first_handle + n, value) for n, value in enumerate(fresh))
        return tuple(actions)

    def advance(self, now: int) -> Epoch | None:
        """The turn that rules ask for by ``next``, or that a restart leaves to them; None if there is none.

        ``rules.pending`` tells whether there is another one.
        """
        draft = Draft([], [], [])
        if self.rules.pending:
            return self._apply(draft, self.rules.advance(draft), now, None, 0)
        epoch = self._conclude(draft, (), now, None, 0)
        return epoch if epoch.claims or not epoch.silent else None

    def restore(self, owners: Mapping[str, Mapping[int, Value]], epoch: int, time: int) -> None:
        """Puts back what a log holds, into a space that is still empty; tells nobody."""
        if self._claimed or self.epoch:
            raise UsageError(f"space {self.name} is not empty")
        self._claims = {
            owner: Handles(claims.items()) for owner, claims in owners.items() if claims and owner != RULES
        }
        if RULES in owners:
            self.rules.adopt(owners[RULES])
        facts = [value for claims in owners.values() for value in claims.values()]
        self._claimed = len(facts)
        self.index.patch(facts, ())
        self.epoch, self.time = epoch, time

    # -- observers ------------------------------------------------------------------------------------

    def observe(self, pattern: Value, observer: Observer) -> Interest:
        """Lets an observer be told of the changes of a pattern from the next epoch on.

        Raises ``UsageError`` for a pattern that is none.  What matches now is ``matches(pattern)``.
        """
        at = key(pattern)
        interest = self._interests.get(at)
        if interest is None:
            interest = Interest(pattern, skeleton(pattern), self._touched)
            self.index.add_handler(interest.skeleton, interest.notice)
            interest.forget()
            self._touched.clear()
            self._interests[at] = interest
        interest.observers[observer] = None
        return interest

    def ignore(self, interest: Interest, observer: Observer) -> None:
        """Stops telling an observer; the last one takes the pattern out of the index."""
        del interest.observers[observer]
        if not interest.observers:
            self.index.remove_handler(interest.skeleton, interest.notice)
            del self._interests[key(interest.pattern)]

    def matches(self, pattern: Value) -> list[Captures]:
        """The distinct captures of a pattern now; O(matches) if it is observed, else O(facts alike)."""
        return self.index.matches(skeleton(pattern))

    # -- looking --------------------------------------------------------------------------------------

    def claims(self, owner: str) -> Mapping[int, Value]:
        """What an owner claims, by handle."""
        return self.rules.claims if owner == RULES else self._claims.get(owner, {})

    def fresh_handle(self, owner: str) -> int:
        """A handle that no client will come upon; as ``Handles.fresh``."""
        held = self._claims.get(owner)
        return FRESH.start if held is None else held.fresh()

    def all_claims(self) -> Mapping[str, Held]:
        """What every owner claims, by owner and handle: not a copy, but for what rules do.

        O(owners + derived facts).
        """
        return {**self._claims, RULES: self.rules.claims} if self.rules.claimed else self._claims

    def owners(self) -> list[str]:
        """All who claim something."""
        return [*self._claims, RULES] if self.rules.claimed else list(self._claims)

    def statistics(self) -> SpaceStatistics:
        """Counts, in O(patterns)."""
        return SpaceStatistics(
            epoch=self.epoch,
            facts=len(self.index),
            claims=self._claimed,
            owners=len(self.owners()),
            patterns=len(self._interests),
            observers=sum(len(interest.observers) for interest in self._interests.values()),
        )

    # -- how a turn is made ---------------------------------------------------------------------------

    def _drafted(self, owner: str, actions: Sequence[Action], publication: bool = False) -> Draft:
        """The turn, checked and taken into the claims of its owner; or it raises, and nothing is changed."""
        if len(actions) > self.limits.actions_per_turn:
            self._check_length(actions, publication)
        held = self._claims.get(owner)
        places = {} if held is None else held.places
        if publication and actions.__class__ is Assertions:
            actions.take(places)
            draft = Draft(list(actions.values), [], [], list(enumerate(actions.values, actions.first)))
        else:
            draft = take(places, actions)
        if held is not None and held.highest is not None:
            last = draft.asserted[-1:] if actions.__class__ is Assertions else draft.asserted
            held.note([handle for handle, _ in last])
        if draft.added or not places:
            self._keep(owner, held, places, actions, draft.added, draft.removed)
        return draft

    def _act(self, owner: str, actions: Sequence[InForm], now: int) -> bool:
        """As ``_drafted`` and ``_apply``, for actions that are in form: whether there is an epoch.

        Its own lists and no draft of theirs, one walk and no calls: this is most of a turn.
        """
        if len(actions) > self.limits.actions_per_turn:
            self._check_length(actions, publication=False)
        held = self._claims.get(owner)
        places = {} if held is None else held.places
        added, messages, removed = [], [], []
        for action in actions:
            verb = action[0]
            if verb == SEND:
                messages.append(action[1])
                continue
            if verb != ASSERT:
                removed.append(places.pop(action[1] * SECRET & ALL))
            if verb != RETRACT:
                places[action[-2] * SECRET & ALL] = action[-1]
                added.append(action[-1])
        if held is not None:
            held.highest = None  # who wants to know counts them; actors number their own
        self._keep(owner, held, places, actions, added, removed)
        if rules_in(added):
            self._conclude(Draft(added, messages, removed), (), now, None, 0)
            return False
        self._claimed += len(added) - len(removed)
        if len(added) == len(removed) == 1 and not messages:
            return self.index.replace(added[0], removed[0]) != NOTHING
        net = self.index.patch(added, removed, messages)
        return bool(net.added or net.removed or messages)

    def _keep(
        self,
        owner: str,
        held: Handles | None,
        places: dict[int, Value],
        actions: Sequence[Action],
        added: list[Value],
        removed: list[Value],
    ) -> None:
        """Keeps what an owner claims now, unless that is too much: then takes all back."""
        limits, grown = self.limits, len(added) - len(removed)
        if added and (len(places) > limits.facts_per_owner or self._claimed + grown > limits.facts):
            said = self._no_room(owner, len(places), grown)
            take_back(places, actions, removed)
            raise said
        if not places:
            self._claims.pop(owner, None)
        elif held is None:
            self._claims[owner] = Handles.at(places)

    def _check_length(self, actions: Sequence[Action], publication: bool) -> None:
        what = "publication" if publication else "turn"
        limit = self.limits.actions_per_publication if publication else self.limits.actions_per_turn
        if len(actions) > limit:
            raise Refused("limit", f"{what} of {len(actions)} actions, limit actions_per_{what}={limit}")

    def _no_room(self, owner: str, claims: int, grown: int) -> Refused:
        limits, total = self.limits, self._claimed + grown
        if claims > limits.facts_per_owner:
            said = f"{claims} facts of {owner}, limit facts_per_owner={limits.facts_per_owner}"
        else:
            said = f"{total} facts in the space, limit facts={limits.facts}"
        return Refused("limit", said)

    def _conclude(
        self, draft: Draft, claims: tuple[Claims, ...], now: int, client: str | None, sequence: int
    ) -> Epoch:
        """The turn is valid: what follows from it by rules is part of it, and all of it is applied."""
        if self.rules.awake or rules_in(draft.added):
            claims += self.rules.turn(draft)
        return self._apply(draft, claims, now, client, sequence)

    def _apply(
        self, draft: Draft, claims: tuple[Claims, ...], now: int, client: str | None, sequence: int
    ) -> Epoch:
        """Changes the index, numbers the epoch, tells the observers."""
        messages = draft.messages
        coming, going = draft.at or draft.places
        self._claimed += len(coming) - len(going)
        added, removed = self.index.patch_at(coming, draft.added, going, draft.removed, messages)
        silent = not (added or removed or messages)
        if not silent:
            self.epoch += 1
            if now > self.time:
                self.time = now
            if self._touched:
                self._tell()
        epoch = (self.epoch, self.time, added, messages, removed, claims, client, sequence, silent)
        return tuple.__new__(Epoch, epoch)  # spares a call, and there is one in each turn

    def _tell(self) -> None:
        if len(self._touched) == 1:  # as mostly: no copy
            self._touched.pop().close(self.epoch, self.time)
            return
        touched = self._touched[:]
        self._touched.clear()
        for interest in touched:
            interest.close(self.epoch, self.time)
