"""A space: facts, who claims them, and one turn after another.

Sessions and durable owners claim facts under handles of their own; the index counts the claims and knows who
is interested.  ``commit`` takes one turn: it is checked and applied whole, or refused and nothing has
happened.  Its effects come back as an ``Epoch``, for the log and for callers that wait for it, and go to the
observers as ``Changes``.  The space reads no clock and writes no file; its caller says what time it is.

The *commit point* of a turn is where the caller's ``submit`` returns, or, without one, where the epoch has
its number.  An exception before it, whatever it is and wherever it strikes, undoes all of the turn: claims,
index, rules, number.  After it the turn stands: all observers are notified, and then the exception goes on.
What a defect interrupts in the index or in rules is made anew from the claims: O(space), and rules begin
again as after a restart, but for the facts that they hold.

Always: a fact is in the index as many times as there are claims on it; an epoch's number and time are
higher and not lower than those before; additions come before messages, messages before removals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from dataspace.instants import GRID
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action, check_actions
from dataspace.kernel.bulk_assertions import Assertions
from dataspace.kernel.changes import Claims, Epoch, EpochChanges
from dataspace.kernel.defects import RulesFailed, until_made
from dataspace.kernel.handles import ALL, SECRET, Handles
from dataspace.kernel.limits import SpaceLimits, size_of, weights
from dataspace.kernel.rule_facts import rules_in
from dataspace.kernel.state import SpaceState
from dataspace.kernel.turns import Admit, InForm, Part, PendingTurn, Sender, SeveralOwners, take, take_back
from dataspace.steps import Steps, at_once
from index.trie.trie import NOTHING
from index.values.values import Value

Submit: TypeAlias = Callable[[Epoch], None]
"""Takes an epoch into the log, or raises and takes nothing: then the turn has not happened."""


MOST_INSTANTS: Final = 1000
"""Turns that are made by time alone before another turn."""

Was: TypeAlias = tuple[int, int, int, int, int]
"""Before a turn: epoch, time, claims and bytes of all owners, and the bytes of the owner of the turn."""


class Space(SpaceState):
    """One dataspace.  Not safe for threads: all turns come from one task."""

    def __init__(self, name: str, *, limits: SpaceLimits | None = None) -> None:
        super().__init__(name, limits=limits)
        self._made: Steps[None] | None = None
        """The steps of the turn of an instant that has been begun."""

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
        own: bool = False,
        submit: Submit | None = None,
        admit: Admit | None = None,
        in_form: bool = False,
        others: Sequence[Part] = (),
    ) -> Epoch:
        """Applies one turn, or raises and leaves everything as it was.

        A daemon's ``own`` turn may have as many actions as a publication: a start or an end does at once what
        came in many turns.  ``now`` is in microseconds since 1970 UTC.  ``others`` are further owners with
        their actions, which share the epoch.  With ``in_form`` the form of actions is not checked again, as a
        packet's was before.
        Raises ``Refused``, ``ProtocolError`` for actions that are none, ``UsageError`` for values too
        deep to be written down, and what ``submit`` raises.  A turn without net effect gives a silent epoch
        with the number of the one before.
        O(actions × matching patterns).
        """
        if others:
            return self._commit_together([(owner, actions), *others], now, (client, sequence), submit, admit)
        if len(actions) > self.most_actions:
            self._check_length(actions, publication, own)
        if self._touched:
            self._tell()
        now = self.until(now)
        held = self._claims.get(owner)
        was = self.epoch, self.time, self._claimed, self.facts_bytes, 0 if held is None else held.size
        draft = PendingTurn([], [], [])
        if not (in_form or publication):
            check_actions(actions)
        try:
            claims = self._take(owner, held, actions, draft, publication, admit)
            if self.rules.awake or draft.brings_rules:  # as ``_conclude``, for turns that are rarer
                claims += self.rules.turn(draft)
            epoch = self._apply(draft, claims, now, client, sequence)
            if submit is not None:
                submit(epoch)
        except BaseException:
            self._undo(owner, held, actions, draft, len(draft.asserted), was)
            raise
        if self._touched:
            self._tell()
        return epoch

    def _commit_together(
        self, parts: Sequence[Part], now: int, by: Sender, submit: Submit | None, admit: Admit | None
    ) -> Epoch:
        """Applies one turn of several owners, whose actions are in form already."""
        now = self.until(now)
        was = self._begin()
        self._check_length([action for _, actions in parts for action in actions], publication=False)
        several = SeveralOwners([(*part, self._claims.get(part[0])) for part in parts])
        whole = several.whole
        claims: tuple[Claims, ...] = ()
        try:
            for one in several.in_turn(admit):
                claims += self._take(one.owner, one.held, one.actions, one.draft, False, several.admit)
                self._claimed += one.grown
            self._claimed = was[2]  # it was counted up for the limits, and ``_apply`` counts it
            if self.rules.awake or whole.brings_rules:
                claims += self.rules.turn(whole)
            epoch = self._apply(whole, claims, now, *by)
            if submit is not None:
                submit(epoch)
        except BaseException:
            self._restore(lambda: several.put_back(self._claims), whole, was)
            raise
        if self._touched:
            self._tell()
        return epoch

    def act(self, owner: str, actions: Sequence[Action], now: int) -> None:
        """Like ``commit`` without an ``Epoch``, and quicker: for actors in a space without a log.

        What actors do is in form already: values are frozen, handles are new or their own.  From then on no
        bytes of facts are counted, and their limits do not hold.
        """
        self._counting = False
        if self.rules.awake:
            self.commit(owner, actions, now, own=True)
            return
        if len(actions) > self.most_actions:
            self._check_length(actions, publication=False, own=True)
        if self._touched:
            self._tell()
        was = self.epoch, self.time, self._claimed, self.facts_bytes, 0
        if len(actions) == 1 and actions[0][0] == SEND:
            try:
                self.index.send(actions[0][1])
                if now > self.time:
                    self.time = now
                self.epoch += 1
            except BaseException:
                self.epoch, self.time = was[:2]
                self._forget_news()
                raise
        else:
            self._act(owner, actions, now, was)
        if self._touched:
            self._tell()

    def end(self, owners: Iterable[str], now: int, *, submit: Submit | None = None) -> Epoch | None:
        """Retracts everything that these owners claim, in one turn; None if they claim nothing.

        As ``commit``: all of them, or an exception and none.
        """
        now = self.until(now)
        was = self._begin()
        draft = PendingTurn([], [], [])
        ending = {owner: self._claims[owner] for owner in owners if owner in self._claims}
        if not ending:
            return None
        changed = []
        for owner, claims in ending.items():
            changed.append(Claims(owner, (), list(claims)))
            draft.removed.extend(claims.values())
        try:
            for owner, claims in ending.items():
                del self._claims[owner]
                self.facts_bytes -= claims.size
            epoch = self._conclude(draft, tuple(changed), now)
            if submit is not None:
                submit(epoch)
        except BaseException:
            self._restore(lambda: self._claims.update(ending), draft, was)
            raise
        if self._touched:
            self._tell()
        return epoch

    def advance(self, now: int, *, submit: Submit | None = None) -> Epoch | None:
        """The turn that rules ask for by ``next``, or that a restart leaves to them; None if there is none.

        ``rules.pending`` tells whether there is another one.  Turns that are due by time alone
        before ``now`` are made first, each at its own time.
        """
        now = self.until(now)
        was = self._begin()
        draft = PendingTurn([], [], [])
        pending = self.rules.pending
        try:
            if pending:
                epoch = self._apply(draft, self.rules.advance(draft), now, None, 0)
            else:
                epoch = self._conclude(draft, (), now)
            is_any = pending or bool(epoch.claims) or not epoch.silent
            if is_any and submit is not None:
                submit(epoch)
        except BaseException:
            self._restore(lambda: None, draft, was)
            raise
        if self._touched:
            self._tell()
        return epoch if is_any else None

    def until(self, now: int) -> int:
        """Makes the turns that are due by time alone, up to the time of a turn that is to be made; returns
        that time.

        It is ``now``, or the latest that a turn was to have, if the clock was set back since: rules know that
        one, also if the turn was refused or had no effect, and epochs must not be before it.
        The turns by time are each at its own instant.  After a long pause they are ``MOST_INSTANTS``, at
        chosen instants, and each has what has come due since the one before.  Raises what ``submit_timed``
        raises; then the turn at hand is not made either.
        """
        times = self.rules.times
        now = now if now > times.ahead else times.ahead
        now = now if now > self.time else self.time
        if times.next <= now or self.rules.flows.next <= now:
            self._make_due(now)
        times.ahead = now
        return now

    def making_instant(self) -> Steps[None]:
        """Makes the turn of the earliest instant in steps, between which nothing of it is seen.

        A turn that comes before the last of them does the rest at once, and so does ``finish``.
        """
        self.finish()
        self._made = steps = self._making(self.rules.due)
        while self._made is steps:
            if next(steps, steps) is steps:
                return
            yield

    @property
    def is_making(self) -> bool:
        """True while a turn is made in steps."""
        return self._made is not None

    def finish(self) -> None:
        """Does the rest of a turn that is made in steps, if there is one; raises what that raises."""
        if self._made is not None:
            at_once(self._made)

    def abandon(self) -> None:
        """Undoes what there is of such a turn."""
        if self._made is not None:
            self._made.close()
            self._made = None

    def _make_due(self, now: int) -> None:
        rules, times = self.rules, self.rules.times
        if self._made is not None:
            self.finish()
            if rules.due > now:
                return
        self.timed_late = now - rules.due
        if rules.is_unsettled:
            self._make_timed(max(self.time, times.time))
        if rules.due + MOST_INSTANTS * GRID <= now:
            for instant in times.due(now, MOST_INSTANTS):
                self._make_timed(instant)
            if rules.due <= now:
                self._make_timed(now // GRID * GRID)
        while (instant := rules.due) <= now:
            self._make_timed(instant)

    def _make_timed(self, instant: int) -> None:
        """Makes the turn of an instant at which rows come or go by time alone.

        Raises what ``submit_timed`` raises.  A defect of the rules suspends texts, and ends nothing.
        """

        def failed(error: Exception, attempt: int) -> None:
            if not isinstance(error, RulesFailed):
                raise error
            self.rules.defects.choose(error.error, attempt)

        until_made(lambda: at_once(self._making(instant)), failed)

    def _making(self, instant: int) -> Steps[None]:
        """Does it in steps where that is much."""
        was = self._begin()
        self.rules.times.ahead = instant
        self.timed_turns += 1
        draft = PendingTurn([], [], [])
        try:
            try:
                claims = yield from self.rules.advancing(draft)
                epoch = self._apply(draft, claims, instant, None, 0)
            except Exception as error:
                raise RulesFailed(error) from error
            finally:
                self._made = None
            if self.submit_timed is not None and (epoch.claims or not epoch.silent):
                self.submit_timed(epoch)
        except BaseException:
            self._restore(lambda: None, draft, was)
            raise
        if self._touched:
            self._tell()

    # -- how a turn is made ---------------------------------------------------------------------------

    def _take(
        self,
        owner: str,
        held: Handles | None,
        actions: Sequence[Action],
        draft: PendingTurn,
        publication: bool,
        admit: Admit | None,
    ) -> tuple[Claims, ...]:
        """Checks the turn and takes it into the claims of its owner; returns the changes of the claims."""
        places = {} if held is None else held.places
        if publication and actions.__class__ is Assertions:
            actions.claim(places, draft.asserted)
            draft.added += actions.values
            draft.size = size_of(len(actions), weights(draft.places[0]))
            draft.brings_rules = rules_in(actions.values)
        else:
            take(places, actions, draft)
        if draft.brings_rules:
            self.rule_quotas.retain(self._claims)
            self.rule_quotas.check(owner, places, draft.asserted)
        if held is not None and held.highest is not None:
            last = draft.asserted[-1:] if actions.__class__ is Assertions else draft.asserted
            held.raise_highest([handle for handle, _ in last])
        size = draft.size if self._counting else 0
        if draft.added or held is None or not places:
            self._keep(owner, held, places, len(draft.added) - len(draft.removed), size, admit)
        else:
            held.size += size
            self.facts_bytes += size
        if draft.asserted or draft.retracted:
            claim = owner, draft.asserted, list(draft.retracted)
            return (tuple.__new__(Claims, claim),)  # as ``_apply`` makes its epoch
        return ()

    def _act(self, owner: str, actions: Sequence[InForm], now: int, was: Was) -> None:
        """As ``_take`` and ``_apply``, for actions that are in form.

        Its own lists and no draft of theirs, one walk and no calls: this is most of a turn.
        """
        added, messages, removed = [], [], []
        draft: PendingTurn | None = None
        is_patching = False
        held = self._claims.get(owner)
        try:
            places = {} if held is None else held.places
            for action in actions:
                verb = action[0]
                if verb == SEND:
                    messages.append(action[1])
                    continue
                if verb != ASSERT:
                    place = action[1] * SECRET & ALL
                    removed.append(places[place])
                    del places[place]
                if verb != RETRACT:
                    added.append(action[-1])
                    places[action[-2] * SECRET & ALL] = action[-1]
            if held is not None:
                held.highest = None  # who wants to know counts them; actors number their own
            self._keep(owner, held, places, len(added) - len(removed), 0, None)
            if rules_in(added):
                self.rule_quotas.check(owner, places, None)
                draft = PendingTurn(added, messages, removed)
                self._conclude(draft, (), now)
                return
            self._claimed += len(added) - len(removed)
            is_patching = True
            if len(added) == len(removed) == 1 and not messages:
                is_any = self.index.replace(added[0], removed[0]) != NOTHING
            else:
                net = self.index.patch(added, removed, messages)
                is_any = bool(net.added or net.removed or messages)
            if is_any:
                if now > self.time:
                    self.time = now
                self.epoch += 1
        except BaseException:
            draft = draft or PendingTurn(added, messages, removed)
            draft.is_patching |= is_patching
            self._undo(owner, held, actions, draft, len(added), was)
            raise

    def _keep(
        self,
        owner: str,
        held: Handles | None,
        places: dict[int, Value],
        grown: int,
        size: int,
        admit: Admit | None,
    ) -> None:
        """Keeps what an owner claims now, ``grown`` claims and ``size`` bytes more; ``Refused`` if too much.

        What rules derive is bounded apart, and no part of it.
        """
        own, total = size if held is None else held.size + size, self.facts_bytes + size
        if grown > 0 or size > 0:
            limits = self.limits
            count = self._claimed + grown
            if (
                len(places) > limits.facts_per_owner
                or own > limits.facts_bytes_per_owner
                or total > limits.facts_bytes
                or (count > limits.facts and count - self.rules.claimed > limits.facts)
            ):
                raise limits.no_room(owner, (len(places), own), (count - self.rules.claimed, total))
            if admit is not None:
                admit(grown, size)
        if not places:
            self._claims.pop(owner, None)
        elif held is None:
            held = self._claims[owner] = Handles.at(places)
            held.size = size
        else:
            held.size = own
        self.facts_bytes = total

    def _check_length(self, actions: Sequence[Action], publication: bool, own: bool = False) -> None:
        """Refuses a turn that is too long.

        What a publication or the daemon takes the place of does not count: it came in many turns, and could
        not be replaced any more otherwise.
        """
        self._check_sound()
        length = len(actions)
        if (publication or own) and length > self.limits.actions_per_publication:
            length = sum([action[0] != RETRACT for action in actions])
        self.limits.check_length(length, publication=publication, own=own)

    def _conclude(self, draft: PendingTurn, claims: tuple[Claims, ...], now: int) -> Epoch:
        """The turn is valid: what follows from it by rules is part of it, and all of it is applied."""
        if self.rules.awake or rules_in(draft.added):
            claims += self.rules.turn(draft)
        return self._apply(draft, claims, now, None, 0)

    def _apply(
        self, draft: PendingTurn, claims: tuple[Claims, ...], now: int, client: str | None, sequence: int
    ) -> Epoch:
        """Changes the index and numbers the epoch; the observers are notified when it is committed."""
        messages = draft.messages
        coming, going = draft.at or draft.places
        draft.is_patching = True
        self._claimed += len(coming) - len(going)
        added, removed = self.index.patch_at(coming, draft.added, going, draft.removed, messages)
        silent = not (added or removed or messages)
        if not silent:
            self.epoch += 1
            if now > self.time:
                self.time = now
        epoch = (self.epoch, self.time, added, messages, removed, claims, client, sequence, silent)
        return tuple.__new__(Epoch, epoch)  # spares a call, and there is one in each turn

    # -- how a turn is undone -------------------------------------------------------------------------

    def _undo(
        self,
        owner: str,
        held: Handles | None,
        actions: Sequence[InForm],
        draft: PendingTurn,
        begun: int,
        was: Was,
    ) -> None:
        """Puts back the claims of an owner, and all else as ``_restore``."""

        def put_back() -> None:
            if held is None:
                self._claims.pop(owner, None)
            else:
                take_back(held.places, actions, begun, draft.removed)
                held.highest = None
                held.size = was[4] if self._counting else 0
                self._claims[owner] = held

        self._restore(put_back, draft, was)

    def _restore(self, put_back: Callable[[], None], draft: PendingTurn, was: Was) -> None:
        """Puts back claims, numbers, and what rules and the index were; or notes that this failed as well."""
        try:
            put_back()
            self.epoch, self.time, self._claimed, self.facts_bytes, _ = was
            derived = self.rules.undo(draft.removed) if draft.is_followed else ()
            if draft.is_patching:
                claimed = [value for held in self._claims.values() for value in held.values()]
                self.index.reset([*claimed, *derived])
                self._forget_news()
        except BaseException as error:
            self.damage, self.most_actions = error, -1
            raise self._unsound() from error

    def _forget_news(self) -> None:
        """Drops what was collected for observers, by an index that was interrupted anywhere."""
        self.index.calm()
        self.interests.forget()

    def _begin(self) -> Was:
        """What a turn must put back if it fails; ``commit`` and ``act`` have this written out."""
        self._check_sound()
        if self._touched:
            self._tell()
        return self.epoch, self.time, self._claimed, self.facts_bytes, 0


class Mirror(Space):
    """A copy of a space elsewhere; observed like any space."""

    def apply(self, epoch: EpochChanges) -> None:
        """Applies an epoch and notifies the observers; O(changes × matching patterns)."""
        added, messages, removed = (
            [row[0] for row in rows] for rows in (epoch.added, epoch.messages, epoch.removed)
        )
        self.index.patch(added, removed, messages)
        self.epoch, self.time = epoch.number, epoch.micros
        self._tell()
