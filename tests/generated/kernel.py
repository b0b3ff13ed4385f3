"""The door of the kernel: a program is carried out on a space in this process, and on the model.

After each operation the epochs, the answers and the facts of both must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from dataspace.errors import Refused
from dataspace.kernel.changes import Epoch
from dataspace.kernel.space import Space
from dataspace.rules.engine.rebuilding import rebuild
from index.values.values import Record, key
from tests.generated.programs import End, Operation, Pass, Program, Restart, Toggle, Turn
from tests.model import space as model
from tests.model.rules import GRID

START: Final = 1_000_000_000
MOST_SETTLING: Final = 20
"""Turns in a row that ``next`` may ask for in these programs."""


class Difference(Exception):
    """The space did what the model does not."""


class Endless(Exception):
    """``next`` asks for one turn after the other; the program says no more."""


class KernelRun:
    """A space and the model, side by side."""

    def __init__(self) -> None:
        self.space = Space("s")
        self.space.submit_timed = self._note
        self.model = model.Space()
        self.time = START
        self.past: list[Epoch] = []
        self.seen: list[Epoch] = []
        self.texts: dict[str, int] = {}
        """The handles of the texts that are there."""
        self.number = 0

    def _note(self, epoch: Epoch) -> None:
        if not epoch.silent:
            self.past.append(epoch)
            self.seen.append(epoch)

    def carry_out(self, operation: Operation) -> None:
        """Does one operation on both; raises ``Difference``."""
        match operation:
            case Turn(owner, actions):
                self._turn(owner, actions)
            case Toggle(name, text):
                self._toggle(name, text)
            case End(owners):
                self._compare(self.model.until(self.time), "an instant before the end of owners")
                ended = self.space.end(owners, self.time)
                self._note_made(ended)
                if any(owner in self.model.claims for owner in owners):
                    self._compare([self.model.end(owners, self.time)], "the end of owners")
            case Pass(millis):
                self._pass(self.time + 1_000 * millis)
            case Restart():
                self._restart()
        self._settle()
        self._compare_facts()

    def _note_made(self, epoch: Epoch | None) -> None:
        if epoch is not None:
            self._note(epoch)

    def _turn(self, owner: str, actions: object) -> None:
        timed: list[model.Epoch | None] = [*self.model.until(self.time)]
        answer = expected = None
        try:
            self._note_made(self.space.commit(owner, actions, self.time))  # type: ignore[arg-type]  # actions
        except Refused as refused:
            answer = refused.code
        try:
            timed.append(self.model.turn(owner, actions, self.time))  # type: ignore[arg-type]  # as above
        except model.Refused as refused:
            expected = refused.args[0]
        if answer != expected:
            raise Difference(f"a turn was answered with {answer}, the model says {expected}")
        self._compare(timed, "a turn")

    def _toggle(self, name: str, text: str) -> None:
        self.number += 1
        if name in self.texts:
            self._turn(f"rules:{name}", ((model.RETRACT, self.texts.pop(name)),))
        else:
            self.texts[name] = self.number
            self._turn(f"rules:{name}", ((model.ASSERT, self.number, Record("rule", name, text)),))

    def _pass(self, until: int) -> None:
        """Lets time pass from instant to instant, as a daemon does, which wakes for each that is due."""
        while self.time < until:
            self.time = min(self.time // GRID * GRID + GRID, until)
            timed = self.model.until(self.time)
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

    def _restart(self) -> None:
        old = self.space
        self.space = Space("s")
        self.space.restore({o: dict(c) for o, c in old.all_claims().items()}, old.epoch, old.time)
        self.space.submit_timed = self._note
        epochs = [(e.number, e.time, e.added, e.messages, e.removed) for e in self.past]
        rebuild(self.space.rules.times, [], START, epochs)
        self._note_made(self.space.advance(self.time))
        self._compare([], "a restart")

    def _compare(self, expected: Sequence[model.Epoch | None], what: str) -> None:
        found, self.seen = [_shown(each) for each in self.seen], []
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

    def _compare_facts(self) -> None:
        found, wanted = {key(each): each for each in self.space.index.values()}, self.model.facts
        if found.keys() != wanted.keys():
            more = [found[at] for at in found.keys() - wanted.keys()]
            less = [wanted[at] for at in wanted.keys() - found.keys()]
            raise Difference(f"facts are there that should not {more}, and facts are missing {less}")


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
