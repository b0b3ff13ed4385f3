"""What n facts or messages cost in a space: as they come, as time passes, as they go, and after a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from dataspace.instants import GRID
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from dataspace.kernel.changes import Changes, Epoch
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.engine.rebuilding import rebuild
from index.values.values import Record, Value
from tests.costs.counting import Cost, cost

START: Final = 1_000_000_000
SECOND: Final = 1_000_000
LONG: Final = 200 * SECOND
"""After it all windows of the tables are over."""

PLENTY: Final = 1 << 40
ENDLESS: Final = SpaceLimits(derive_work=PLENTY, rule_reads=PLENTY, derived_per_turn=PLENTY)
MOST_SETTLING: Final = 20

Part: TypeAlias = tuple[str, list[Action]]
Spread: TypeAlias = Callable[[Sequence[Action]], list[Part]]


class Watcher:
    """An observer that counts what it is told."""

    def __init__(self) -> None:
        self.count = 0

    def offer(self, changes: Changes) -> None:
        self.count += len(changes.added) + len(changes.messages) + len(changes.removed)


class MeasuredSpace:
    """A space whose work is measured, by the name of what is done."""

    def __init__(self, rules: Sequence[str] = (), before: Iterable[Value] = ()) -> None:
        self.space = self._begun()
        self.time = START
        self.costs: dict[str, Cost] = {}
        texts = [Record("rule", f"r{at}", text) for at, text in enumerate(rules)]
        for owner, facts in (("texts", texts), ("before", list(before))):
            if facts:
                self._turn(owner, [(ASSERT, at, fact) for at, fact in enumerate(facts)])

    def _begun(self) -> Space:
        space = Space("s", limits=ENDLESS)
        space.submit_timed = self._note
        self.past: list[Epoch] = []
        return space

    def _note(self, epoch: Epoch | None) -> None:
        if epoch is not None and not epoch.silent:
            self.past.append(epoch)

    def _turn(self, owner: str, actions: Sequence[Action]) -> None:
        self._note(self.space.commit(owner, actions, self.time))
        self._settle()

    def _settle(self) -> None:
        for _ in range(MOST_SETTLING):
            if not self.space.rules.pending:
                break
            self._note(self.space.advance(self.time))

    def check(self) -> None:
        """Raises if a rule was suspended: what it does not do any more costs nothing."""
        assert not (failed := list(self.space.rules.suspended())), failed

    # -- what is measured -----------------------------------------------------------------------------

    def turns(self, name: str, parts: Sequence[Part]) -> None:
        """Makes one turn after the other, each at an instant of its own."""

        def work() -> None:
            for owner, actions in parts:
                self.time += GRID
                self._turn(owner, actions)

        self.costs[name] = cost(work)
        self.check()

    def end(self, name: str, owners: Sequence[str]) -> None:
        """Ends owners, in one turn."""
        self.costs[name] = cost(lambda: self._note(self.space.end(owners, self.time)))
        self.check()

    def wait(self, name: str) -> None:
        """Lets time pass, as a daemon does that wakes for each instant at which something is due."""

        def work() -> None:
            self.space.until(self.time)
            self._settle()

        self.time += LONG
        self.costs[name] = cost(work)
        self.check()

    def restart(self, name: str) -> None:
        """Goes on with a new space, which has the claims and the epochs of this one."""
        old, past = self.space, self.past
        self.space = self._begun()
        epochs = [(each.number, each.time, each.added, each.messages, each.removed) for each in past]
        self.past = past

        def work() -> None:
            space = self.space
            claims = {owner: dict(held) for owner, held in old.all_claims().items()}
            space.restore(claims, old.epoch, old.time)
            rebuild(space.rules.times, [], START, epochs)
            self._note(space.advance(self.time))
            self._settle()

        self.costs[name] = cost(work)
        self.check()


def one_turn(actions: Sequence[Action]) -> list[Part]:
    return [("a", list(actions))]


def n_turns(actions: Sequence[Action]) -> list[Part]:
    return [("a", [action]) for action in actions]


def n_owners(actions: Sequence[Action]) -> list[Part]:
    return [(f"a{at}", [action]) for at, action in enumerate(actions)]


SPREADS: Final[dict[str, Spread]] = {
    "in one turn": one_turn,
    "in n turns": n_turns,
    "of n owners": n_owners,
}

Life: TypeAlias = Callable[[MeasuredSpace, Spread, list[Value]], None]


def facts(space: MeasuredSpace, spread: Spread, values: list[Value]) -> None:
    """Facts come, are there after a restart, are replaced by equal facts in another order, and go."""
    numbered = list(enumerate(values))
    space.turns("facts come", spread([(ASSERT, at, value) for at, value in numbered]))
    space.restart("a restart with facts")
    space.wait("time passes over facts")
    replaced: list[Action] = [(REPLACE, at, at + PLENTY, values[-1 - at]) for at, _ in numbered]
    space.turns("facts are replaced", spread(replaced))
    space.turns("facts go", spread([(RETRACT, at + PLENTY) for at, _ in numbered]))
    space.wait("time passes after facts")
    space.turns("facts come again", spread([(ASSERT, at, value) for at, value in numbered]))
    space.end("owners end", list({owner: None for owner, _ in spread([(RETRACT, at) for at, _ in numbered])}))


def messages(space: MeasuredSpace, spread: Spread, values: list[Value]) -> None:
    """Messages come, and are remembered after a restart until time has passed."""
    space.turns("messages come", spread([(SEND, value) for value in values]))
    space.restart("a restart with messages")
    space.wait("time passes over messages")


LIVES: Final[tuple[Life, ...]] = (facts, messages)
