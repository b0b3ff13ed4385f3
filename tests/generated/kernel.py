"""The door of the kernel: a program is carried out on a space in this process, and on the model.

After each operation the epochs, the answers and the facts of both must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from dataspace.errors import Refused
from dataspace.instants import GRID
from dataspace.kernel.changes import Epoch
from dataspace.kernel.derivation import RULES
from dataspace.kernel.space import Space
from dataspace.rules.engine.rebuilding import PastEpoch, forms_of, rebuild
from index.patterns.text import parse_pattern
from index.values.values import Record, Value, key
from tests.generated.programs import (
    FOLLOWED,
    RESTED,
    RETAINED,
    Ask,
    End,
    Operation,
    Pass,
    Program,
    Restart,
    Toggle,
    Turn,
    Watch,
)
from tests.generated.watching import Watchers, captures
from tests.model import space as model

START: Final = 1_000_000_000
REST: Final = 120_000
"""Microseconds after which no window here needs an epoch."""
MOST_SETTLING: Final = 20
"""Turns in a row that ``next`` may ask for in these programs."""


class Full(Exception):
    """The log does not take an epoch."""


def _lose(_epoch: Epoch) -> None:
    raise Full


class Difference(Exception):
    """The space did what the model does not."""


class Endless(Exception):
    """``next`` asks for one turn after the other; the program says no more."""


class KernelRun:
    """A space, another one that follows it, and the model, side by side."""

    def __init__(self) -> None:
        self.space = Space("s")
        self.space.submit_timed = self._note
        self.follower = Space("s")
        self.model = model.Space()
        self.watchers = Watchers()
        self.time = START
        self.past: list[Epoch] = []
        self.seen: list[Epoch] = []
        self.number = 0

    def _note(self, epoch: Epoch) -> None:
        if epoch.claims or not epoch.silent:
            self.follower.follow(epoch)
        if not epoch.silent:
            self.past.append(epoch)
            self.seen.append(epoch)

    def carry_out(self, operation: Operation) -> None:
        """Does one operation on both; raises ``Difference``."""
        match operation:
            case Turn():
                self._turn(operation)
            case Toggle():
                self._toggle(operation)
            case End(owners, lost):
                self._end(owners, lost)
            case Watch(patterns):
                self.watchers.toggle(self.space, patterns, list(self.model.facts.values()))
            case Ask(pattern):
                self._ask(parse_pattern(pattern))
            case Pass(millis) if millis < 0:
                self.time = max(START, self.time + 1_000 * millis)
            case Pass(millis):
                self._pass(self.time + 1_000 * millis)
            case Restart(form):
                self._restart(form)
        self._settle()
        self._compare_facts()
        self._compare_claims()

    def _note_made(self, epoch: Epoch | None) -> None:
        if epoch is not None:
            self._note(epoch)

    def _turn(self, turn: Turn) -> None:
        timed: list[model.Epoch | None] = [*self.model.until(self.time)]
        submit = _lose if turn.lost else None
        answer = expected = None
        try:
            epoch = self.space.commit(
                *(turn.owner, turn.actions, self.time),  # type: ignore[arg-type]  # actions
                others=turn.others,  # type: ignore[arg-type]  # as above
                submit=submit,
            )
            self._note(epoch)
        except Refused as refused:
            answer = refused.code
        except Full:
            answer = "full"
        try:
            parts = [(turn.owner, turn.actions), *turn.others]
            timed.append(self.model.turn(parts, self.time, is_lost=turn.lost))
        except model.Refused as refused:
            expected = refused.args[0]
        if answer != expected:
            raise Difference(f"a turn was answered with {answer}, the model says {expected}")
        self._compare(timed, "a turn")

    def _end(self, owners: Sequence[str], lost: bool) -> None:
        self._compare([*self.model.until(self.time)], "an instant before the end of owners")
        ended: list[model.Epoch | None] = []
        is_any = any(owner in self.model.claims for owner in owners)
        try:
            self._note_made(self.space.end(owners, self.time, submit=_lose if lost else None))
        except Full:
            if not (lost and is_any):
                raise
        if is_any and not lost:
            ended.append(self.model.end(owners, self.time))
        self._compare(ended, "the end of owners")

    def _ask(self, pattern: Value) -> None:
        found = [key(row) for row in self.space.matches(pattern)]
        wanted = captures(pattern, self.model.facts.values())
        if len(found) != len(wanted) or set(found) != wanted:
            raise Difference(f"a question is answered with {found}, the model says {wanted}")

    def _toggle(self, toggle: Toggle) -> None:
        owner = f"rules:{toggle.name}"
        handle = next(iter(self.model.claims.get(owner, ())), None)
        self.number += 1
        rule = Record("rule", toggle.name, toggle.text)
        action = (model.ASSERT, self.number, rule) if handle is None else (model.RETRACT, handle)
        self._turn(Turn(owner, (action,), toggle.beside))

    def _pass(self, until: int) -> None:
        """Lets time pass from instant to instant, as a daemon does, which wakes for each that is due."""
        while self.time < until:
            self.time = min(self.time // GRID * GRID + GRID, until)
            timed = [*self.model.until(self.time)]
            self.space.until(self.time)
            self._compare(timed, "time passes")
            self._settle()

    def _settle(self) -> None:
        """Makes the turns that ``next`` asks for."""
        for _ in range(MOST_SETTLING):
            is_due = self.space.rules.pending
            if is_due == self.model.is_settled:
                raise Difference(f"another turn is due: {is_due}, the model says the contrary")
            if not is_due:
                return
            self._note_made(self.space.advance(self.time))
            self._compare([self.model.settle(self.time)], "a turn of next")
        raise Endless

    def _restart(self, form: str) -> None:
        """A start knows the times of epochs alone: a clock that is behind what the model has seen after the
        newest one is right again by then."""
        if form == RESTED:
            self._pass(self.time + REST)
        seen = max([self.model.latest, *self.model.past.times[-1:]])
        if seen > (self.past[-1].time if self.past else 0):
            self.time = max(self.time, seen)
        old = self.space
        claims = {owner: dict(held) for owner, held in old.all_claims().items()}
        self.space = self.follower if form == FOLLOWED else Space("s")
        if form == FOLLOWED:
            self.follower = Space("s")
            self.follower.restore(claims, old.epoch, old.time)
        else:
            self.space.restore(claims, old.epoch, old.time)
        self.space.submit_timed = self._note
        rules, epochs = self.space.rules.times, [_of_log(each) for each in self.past]
        if form in (RETAINED, RESTED) and epochs:
            kept = self._kept(old)
            facts = _state(epochs[: len(epochs) - kept])
            since = epochs[-kept - 1][1] if kept < len(epochs) else START
            past = old.epoch, list(old.rules.times.past())
            rebuild(rules, facts, since, epochs[len(epochs) - kept :], past=past)
        else:
            rebuild(rules, [], START, epochs)
        self._note_made(self.space.advance(self.time))
        self._compare([], "a restart")
        self.watchers.move(self.space)

    def _kept(self, old: Space) -> int:
        """Returns how many epochs windows need now, at the end of the log, of which the newest stays."""
        texts = [fact for fact in old.index.values() if isinstance(fact, Record) and fact.label == "rule"]
        begun = self.time - GRID - max([form.span for form in forms_of(texts)], default=0)
        return sum(epoch.time > begun for epoch in self.past[:-1]) + 1

    def _compare(self, expected: Sequence[model.Epoch | None], what: str) -> None:
        seen, self.seen = self.seen, []
        found = [_shown(each) for each in seen]
        wanted = [each for each in expected if each is not None]
        for told, due in zip(found, wanted, strict=False):
            if told[:2] != due[:2] or told[4] != due.removed:
                raise Difference(f"{what} gives {told}, the model says {due}")
            said = told[2][len(due.messages) :]
            if told[2][: len(due.messages)] != due.messages or frozenset(said) != due.said:
                raise Difference(f"{what} sends {told[2]}, the model says {due}")
        if len(found) != len(wanted):
            raise Difference(
                f"{what} gives {len(found)} epochs, the model says {len(wanted)}: {found or wanted}"
            )
        last = self.past[-len(seen) - 1].number if len(self.past) > len(seen) else 0
        if [each.number for each in seen] != list(range(last + 1, last + 1 + len(seen))):
            raise Difference(f"{what} gives epochs {seen} after the number {last}")
        if (different := self.watchers.different(seen)) is not None:
            raise Difference(different)

    def _compare_facts(self) -> None:
        found, wanted = {key(each): each for each in self.space.index.values()}, self.model.facts
        if found.keys() != wanted.keys():
            more = [found[at] for at in found.keys() - wanted.keys()]
            less = [wanted[at] for at in wanted.keys() - found.keys()]
            raise Difference(f"facts are there that should not {more}, and facts are missing {less}")

    def _compare_claims(self) -> None:
        for space, who in (self.space, "the space"), (self.follower, "a space that follows"):
            wanted = {owner: held for owner, held in self.model.claims.items() if held}
            derived = self.model.derived
            found = {owner: dict(held) for owner, held in space.all_claims().items() if held}
            if {key(each) for each in found.pop(RULES, {}).values()} != derived.keys():
                raise Difference(f"{who} has derived {space.claims(RULES)}, the model says {derived}")
            if found != wanted:
                raise Difference(f"{who} has the claims {found}, the model says {wanted}")
        if self.follower.facts_bytes != self.space.facts_bytes:
            raise Difference(f"bytes: {self.space.facts_bytes}, and in a space that follows others")
        if len(self.follower.index) != len(self.space.index):
            raise Difference("facts: a space that follows has others")


def _of_log(epoch: Epoch) -> PastEpoch:
    return epoch.number, epoch.time, epoch.added, epoch.messages, epoch.removed


def _state(epochs: Sequence[PastEpoch]) -> list[Value]:
    """Returns the facts after some epochs."""
    facts: dict[object, Value] = {}
    for _, _, added, _, removed in epochs:
        facts.update({key(each): each for each in added})
        for each in removed:
            del facts[key(each)]
    return list(facts.values())


_Shown: TypeAlias = "tuple[int, frozenset[object], tuple[object, ...], None, frozenset[object]]"


def _shown(epoch: Epoch) -> _Shown:
    added, messages, removed = (
        [key(each) for each in values] for values in (epoch.added, epoch.messages, epoch.removed)
    )
    return epoch.time, frozenset(added), tuple(messages), None, frozenset(removed)


def failure(program: Program) -> str | None:
    """Returns what is different for a program, with the number of the operation; None if nothing is."""
    one = KernelRun()
    for at, operation in enumerate(program):
        try:
            one.carry_out(operation)
        except Endless:
            return None
        except Difference as difference:
            return f"{at}: {difference}"
        except Exception as error:  # noqa: BLE001  # whatever a space raises is a difference
            return f"{at}: {error!r}"
    return None
