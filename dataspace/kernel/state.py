"""The state of a space: its facts, who claims them, and who observes them.

What a log holds is put back into it, and epochs that another process commits are applied to it; turns of its
own are in ``space``.

Always: a fact is in the index as many times as there are claims on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import Final

from dataspace.errors import InternalError, UsageError
from dataspace.kernel.changes import Captures, Epoch
from dataspace.kernel.derivation import RULES, RuleHost
from dataspace.kernel.handles import FRESH, ClaimPlaces, Handles, Held
from dataspace.kernel.interests import Interest, Interests, tell_each
from dataspace.kernel.limits import SpaceLimits, SpaceStatistics, size_of, weight_of, weights
from dataspace.kernel.rule_facts import RuleQuotas, bounds_of, rules_in
from dataspace.steps import Steps, batched, emptying
from index.patterns.patterns import skeleton
from index.trie.nodes import all_at
from index.trie.trie import Index
from index.values.values import Value

logger = logging.getLogger("dataspace")

RESTORED: Final = 256
"""Facts that are put back in one step."""


class SpaceState:
    """The content of one dataspace.  Not safe for threads."""

    def __init__(self, name: str, *, limits: SpaceLimits | None = None) -> None:
        self.name = name
        self.limits = limits or SpaceLimits()
        self.epoch = 0
        self.time = 0
        self.index: Final = Index()
        self._claims: dict[str, Handles] = {}
        self._claimed = 0
        self.facts_bytes = 0
        self._counting = True
        self._touched: list[Interest] = []
        self.interests: Final = Interests(self.index, self._touched, self.limits)
        self.observe: Final = self.interests.observe
        self.ignore: Final = self.interests.ignore
        self.most_actions = self.limits.actions_per_turn
        self.damage: BaseException | None = None
        """Why a turn that failed could not be undone; from then on every turn raises ``InternalError``."""
        self.submit_timed: Callable[[Epoch], None] | None = None
        """Takes the epochs into the log that come by time alone."""
        self.timed_turns = 0
        """How many turns there have been by time alone."""
        self.timed_late = 0
        """By how many microseconds the last of them was late."""
        self.rule_quotas: Final = RuleQuotas(self.limits)
        self.rules: Final = RuleHost(self.index, max_rules=self.limits.rules, bounds=bounds_of(self.limits))

    # -- what a log says ------------------------------------------------------------------------------

    def restore(self, owners: Mapping[str, Mapping[int, Value]], epoch: int, time: int) -> None:
        """Puts back what a log holds, into a space that is still empty; calls no observer."""
        for _ in self.restoring(owners, epoch, time):
            pass

    def restoring(
        self, owners: Mapping[str, Mapping[int, Value]], epoch: int, time: int
    ) -> Generator[None, None, None]:
        """Does it in steps of some facts; the space is not to be used before the last."""
        if self._claimed or self.epoch:
            raise UsageError(f"space {self.name} is not empty")
        facts: list[list[Value]] = []
        has_rules = RULES in owners  # a rule need not have derived anything yet
        for owner, claims in owners.items():
            held = Handles()
            for some in batched(claims.items(), RESTORED):
                values = [value for _, value in some]
                has_rules = has_rules or rules_in(values)
                facts.append(values)
                held.update(some)
                held.size += size_of(len(values), weight_of(values))
                yield
            if held and owner != RULES:
                self._claims[owner] = held
        if has_rules:
            self.rules.adopt(owners.get(RULES, {}))
        self.facts_bytes = sum([held.size for held in self._claims.values()])
        self._claimed = sum(map(len, facts))
        facts.reverse()
        while facts:  # none of these lists is needed twice
            self.index.patch(facts.pop(), ())
            yield
        self.epoch, self.time = epoch, time

    def emptying(self) -> Steps[None]:
        """Forgets the facts in steps, calling no observer; the space is not to be used any more."""
        for held in self._claims.values():
            yield from emptying(held.places)
        yield from self.index.emptying()

    def follow(self, epoch: Epoch) -> None:
        """Applies an epoch that another process has committed, with its number, and calls the observers.

        No rule runs and no limit holds: that process has seen to both.  If the epoch does not fit, the space
        is damaged.  O(changes × matching patterns).
        """
        self._check_sound()
        try:
            coming: list[Value] = []
            going: list[Value] = []
            for owner, asserted, retracted in epoch.claims:
                if owner == RULES:
                    coming += [value for _, value in asserted]
                    going += self.rules.follow(asserted, retracted)
                else:
                    self._follow_owner(owner, asserted, retracted, (coming, going))
            self.index.patch(coming, going, epoch.messages)
        except BaseException as error:
            self.damage, self.most_actions = error, -1
            raise self._unsound() from error
        self._claimed += len(coming) - len(going)
        self.epoch, self.time = epoch.number, epoch.time
        if self._touched:
            self._tell()

    def _follow_owner(
        self,
        owner: str,
        asserted: Sequence[tuple[int, Value]],
        retracted: Sequence[int],
        moved: tuple[list[Value], list[Value]],
    ) -> None:
        """Takes over what an owner begins and ends to claim, and adds it to what comes and goes.

        A handle may begin twice in an epoch, or begin and end: the last counts, as where a log is read.
        """
        held = self._claims.get(owner)
        if held is None:
            held = self._claims[owner] = Handles()
        begun = dict(asserted)
        ended = [held.pop(handle) for handle in retracted if handle not in begun]
        for handle in begun:
            if handle in held:
                ended.append(held.pop(handle))
        for handle in retracted:
            begun.pop(handle, None)
        held.update(begun)
        values = list(begun.values())
        grown = size_of(len(values), weight_of(values)) - size_of(len(ended), weight_of(ended))
        held.size += grown
        self.facts_bytes += grown
        if not held:
            del self._claims[owner]
        if rules_in(values):
            self.rules.follow((), ())
        moved[0].extend(values)
        moved[1].extend(ended)

    # -- observers ------------------------------------------------------------------------------------

    def matches(self, pattern: Value) -> list[Captures]:
        """The distinct captures of a pattern now; O(matches) if it is observed, else O(facts alike)."""
        return self.index.matches(skeleton(pattern))

    # -- looking --------------------------------------------------------------------------------------

    def claims(self, owner: str) -> Mapping[int, Value]:
        """What an owner claims, by handle."""
        return self.rules.claims if owner == RULES else self._claims.get(owner, {})

    def places(self, owner: str) -> Mapping[Hashable, Value]:
        """What an owner claims, by place (``handles.handle_at``), or by key for rules: no copy.  O(1)."""
        if owner == RULES:
            return ClaimPlaces(self.rules.held, self.index.value)
        held = self._claims.get(owner)
        return {} if held is None else held.places  # type: ignore[return-value]  # it is only read

    def fresh_handle(self, owner: str) -> int:
        """A handle that no client will come upon; as ``Handles.fresh``."""
        held = self._claims.get(owner)
        return FRESH.start if held is None else held.fresh()

    def all_claims(self) -> Mapping[str, Held]:
        """What every owner claims, by owner and handle: not a copy, but for what rules do.

        O(owners + derived facts).
        """
        return {**self._claims, RULES: self.rules.claims} if self.rules.claimed else self._claims

    def held(self, owner: str) -> tuple[int, int]:
        """How many facts an owner claims, and their bytes as limits count them; O(1)."""
        held = self._claims.get(owner)
        return (0, 0) if held is None else (len(held.places), held.size)

    def rules_held(self, owner: str) -> tuple[int, int]:
        """How many rules an owner asserts, and the bytes of their names and texts; O(those)."""
        held = self._claims.get(owner)
        return (0, 0) if held is None else self.rule_quotas.held(owner, held.places)

    def owners(self) -> list[str]:
        """All owners with claims."""
        return [*self._claims, RULES] if self.rules.claimed else list(self._claims)

    def statistics(self) -> SpaceStatistics:
        """Counts, in O(patterns); O(facts) where bytes are not counted as turns come."""
        return SpaceStatistics(
            epoch=self.epoch,
            facts=len(self.index),
            claims=self._claimed,
            owners=len(self.owners()),
            patterns=len(self.interests),
            observers=self.interests.observers,
            facts_bytes=self.facts_bytes if self._counting else self._count(),
            patterns_bytes=self.interests.size,
        )

    # -- parts ----------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """The turn is committed: tells every observer, and raises then what one of them has raised.

        What an exception kept from all observers reaches them when the next turn begins.
        """
        number, time, touched = self.epoch, self.time, self._touched
        try:
            for interest in touched:
                interest.close(number, time)
        except BaseException:
            tell_each([interest.close for interest in touched], number, time)
            raise
        finally:
            touched.clear()

    def _count(self) -> int:
        """Counts the bytes of what each owner claims; returns all of them."""
        for held in self._claims.values():
            held.size = size_of(len(held), weights(all_at(list(held.values()))))
        return sum([held.size for held in self._claims.values()])

    def _check_sound(self) -> None:
        if self.damage is not None:
            raise self._unsound()

    def _unsound(self) -> InternalError:
        return InternalError(
            f"space {self.name}: a turn failed and could not be undone ({self.damage!r:.200}); "
            "nothing more is done here, start the daemon again"
        )


class SteadyClock:
    """The time of the epochs of a space, which goes on while the clock of the machine is behind them.

    Epochs never have an earlier time than the one before.  Without this, all windows would stand still for an
    hour after the clock was put back by an hour.  Instead they go on a sixteenth slower, until the clock has
    caught up.  Both clocks give integers: ``wall`` microseconds since 1970, ``elapsed`` nanoseconds.
    """

    def __init__(self, space: SpaceState, wall: Callable[[], int], elapsed: Callable[[], int]) -> None:
        self._space = space
        self._wall = wall
        self._elapsed = elapsed
        self._behind: tuple[int, int] | None = None  # a time of the space, and ``elapsed`` at it

    def now(self) -> int:
        """Returns the time of the next epoch, in microseconds since 1970."""
        wall, newest, seen = self._wall(), self._space.time, self._space.rules.times.ahead
        if seen > newest:  # of a turn that had no effect
            newest = seen
        if wall >= newest and self._behind is None:  # as mostly
            return wall
        elapsed = self._elapsed()
        if self._behind is None:
            logger.warning("space %s: the clock is %.3f s behind", self._space.name, (newest - wall) / 1e6)
            self._behind = newest, elapsed
        since, begun = self._behind
        steady = since + (elapsed - begun) // 1000 * 15 // 16
        if wall >= steady:
            self._behind = None
            return wall
        return steady
