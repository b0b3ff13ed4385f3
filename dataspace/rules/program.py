"""The program: rules that come and go, over facts that come and go.

An engine has a fixed set of rules.  The program makes one for the rules that there are, and another when
a rule is added, removed or fails; what observers are told is the difference, so that a rule added late says
what it would have said from the start, and one that fails takes along what it derived and nothing else.

Always: a tick succeeds, whatever rules do in it: one that raises, or runs away, is suspended and named, and
the tick is run again without it; ``facts`` is asked only after it knows of all that the tick is told of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dataspace.rules.derived import Derived
from dataspace.rules.engine import MAX_INSERTED, Engine, Unalias
from dataspace.rules.explaining import Explainer
from dataspace.rules.failures import RuleFailed
from dataspace.rules.outlines import Outline
from dataspace.rules.reading import read_rules
from dataspace.rules.syntax import Rule
from index.errors import UsageError
from index.values import Map, Value, key

logger = logging.getLogger("dataspace")

MAX_SELF_TICKS: Final = 10_000
"""Ticks in a row that ``next`` causes by itself, unless the program is told otherwise."""

MAX_RULES: Final = 1000
"""Rules that are carried out together, unless the program is told otherwise: each change makes all anew."""

LOOPS_FOR_EACH_RULE: Final = 10
"""For each of those there may be so many loops: a body of n atoms has n functions with n loops each."""

SUSPECT: Final = (0, 0, 1 / 4, 1 / 2, 3 / 4)
"""Which share of the rules, the newest, is suspended with those that are heavy when a tick overruns again."""

MAX_REFUSED: Final = 10
"""Texts of one turn that are refused one by one for the cycles that they make."""

RECOMPUTE_FROM: Final = 5000
RECOMPUTE_SHARE: Final = 0.25
"""From how many rows on, and for which share of all facts taken away in one tick, all is computed anew."""

FORBIDDING: Final = 3
"""For how many retractions an addition stands that something is negated by: it takes along what it meets."""


@dataclass(slots=True)
class Entry:
    """One text of rules: ``trouble`` says why it is not carried out, and ``row`` where it went wrong."""

    name: str
    text: str
    rules: tuple[Rule, ...] = ()
    trouble: str = ""
    row: Map = field(default_factory=Map)

    @property
    def loops(self) -> int:
        """What its functions are made of: making them takes up to a millisecond for each."""
        return sum(len(rule.atoms) ** 2 for rule in self.rules)


@dataclass(frozen=True, slots=True)
class ProgramStatistics:
    """Counts: texts, rules in them that are carried out, texts in trouble, engines made so far."""

    texts: int
    rules: int
    troubled: int
    engines: int
    ticks: int


class Program:
    """Named texts of rules and what follows from them.

    ``facts`` gives all claimed facts, for when an engine begins anew; without it the program keeps them.
    ``clock`` gives nanoseconds, and has ``explain`` say what each rule costs; ``deadline`` says by it until
    when the tick that begins may last.
    """

    def __init__(
        self,
        facts: Callable[[], Iterable[Value]] | None = None,
        *,
        max_inserted: int = MAX_INSERTED,
        max_self_ticks: int = MAX_SELF_TICKS,
        max_rules: int = MAX_RULES,
        clock: Callable[[], int] | None = None,
        deadline: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.entries: dict[Hashable, Entry] = {}
        self.engine = Engine(())
        self._own: dict[Hashable, Value] | None = {} if facts is None else None
        self._facts = facts or self._kept
        self._max_inserted = max_inserted
        self._clock = clock
        self._deadline = deadline
        self._max_self_ticks = max_self_ticks
        self._self_ticks = 0
        self._apart: frozenset[Hashable] = frozenset()
        self._claimed = 0
        self._max_rules = max_rules
        self._count = self._loops = 0
        self.troubles = 0  # goes up whenever what is wrong with texts may have changed
        self._engines = 0
        self._ticks = 0
        self._owners: list[Entry] = []

    # -- rules ----------------------------------------------------------------------------------------

    def add(self, name: str, text: str) -> Derived:
        """Adds a text of rules, and says what follows; what is wrong with it is in its entry."""
        return self.change([(name, text)], [])

    def remove(self, name: str, text: str) -> Derived:
        """Removes a text of rules, and says what no longer follows."""
        return self.change([], [(name, text)])

    def change(self, added: Iterable[tuple[str, str]], removed: Iterable[tuple[str, str]]) -> Derived:
        """Adds and removes texts in one tick; begins anew, O(facts + derivations)."""
        if not self.declare(added, removed):
            return Derived()
        return self._begin_anew(())

    def declare(self, added: Iterable[tuple[str, str]], removed: Iterable[tuple[str, str]]) -> bool:
        """The same without a tick: whether the rules that are carried out are others now."""
        gone = [self.entries.pop((name, text), None) for name, text in removed]
        self._count -= sum(len(entry.rules) for entry in gone if entry is not None)
        self._loops -= sum(entry.loops for entry in gone if entry is not None)
        new = dict.fromkeys(pair for pair in added if pair not in self.entries)
        fresh = [Entry(name, text) for name, text in new]
        self.entries.update({(entry.name, entry.text): entry for entry in fresh})
        for entry in fresh:
            self._read(entry)
        self._refuse_cycles([entry for entry in fresh if not entry.trouble])
        self.troubles += 1
        return any(entry is not None and not entry.trouble for entry in [*gone, *fresh])

    def _read(self, entry: Entry) -> None:
        try:
            entry.rules = read_rules(entry.text)
        except UsageError as error:
            entry.trouble = str(error)
        count, loops = self._count + len(entry.rules), self._loops + entry.loops
        most = LOOPS_FOR_EACH_RULE * self._max_rules
        if count > self._max_rules:
            entry.trouble = f"more than {self._max_rules} rules"
        elif loops > most:
            entry.trouble = f"{loops} loops in all rules, limit {most}: a body of n atoms has n × n"
        if entry.trouble:
            entry.rules = ()
        else:
            self._count, self._loops = count, loops

    def _refuse_cycles(self, fresh: list[Entry]) -> None:
        """Refuses, of texts that are new, each that makes a cycle that cannot be put in order.

        All together mostly can.  If not, it is searched for the first that cannot be with those before it.
        """
        new = set(map(id, fresh))
        held = [entry for entry in self._sound() if id(entry) not in new]
        refused = 0
        while (error := self._cycle([*held, *fresh])) is not None:
            good, bad = 0, len(fresh)
            while bad - good > 1:
                middle = (good + bad) // 2
                found = self._cycle([*held, *fresh[:middle]])
                good, bad, error = (middle, bad, error) if found is None else (good, middle, found)
            fresh[good].trouble = str(error)
            held += fresh[:good]
            fresh = fresh[bad:]
            refused += 1
            if refused == MAX_REFUSED:
                for entry in fresh:
                    entry.trouble = f"not looked at: {refused} texts of the same turn were refused"
                return

    def _cycle(self, entries: list[Entry]) -> UsageError | None:
        try:
            Outline([rule for entry in entries for rule in entry.rules], self._apart)
        except UsageError as error:
            return error
        return None

    @property
    def has_trouble(self) -> bool:
        """Whether any text is not carried out; O(texts)."""
        return any(entry.trouble for entry in self.entries.values())

    def _rules(self) -> list[Rule]:
        return [rule for entry in self._sound() for rule in entry.rules]

    def _sound(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if not entry.trouble]

    # -- ticks ----------------------------------------------------------------------------------------

    def tick(
        self, added: Sequence[Value] = (), removed: Sequence[Value] = (), messages: Sequence[Value] = ()
    ) -> Derived:
        """What follows from claimed facts that appeared and vanished, and from messages.

        O(derivations touched); never raises because of a rule.
        """
        self._claimed += len(added) - len(removed)
        if self._own is not None:
            self._keep(self._own, added, removed)
        if not self.pending:  # else a turn of somebody now and then would let a rule go on for ever
            self._self_ticks = 0
        if self._takes_much(added, removed):
            return self._begin_anew(messages)
        return self._run(added, removed, messages)

    def _takes_much(self, added: Sequence[Value], removed: Sequence[Value]) -> bool:
        """Whether so much is taken away that what is left is computed sooner anew.

        What comes never is: it brings no more derivations than beginning anew would make.
        """
        enough = RECOMPUTE_SHARE * self._claimed
        if len(removed) + FORBIDDING * len(added) <= enough or self.engine.rows() < RECOMPUTE_FROM:
            return False
        return len(removed) + FORBIDDING * self.engine.forbidding(added) > enough

    def tick_again(self) -> Derived:
        """The tick that ``next`` has asked for; too many in a row suspend the rules that ask for it."""
        self._self_ticks += 1
        if self._self_ticks > self._max_self_ticks:
            self._self_ticks = 0
            self._stop_asking()
            return self._begin_anew(())
        return self._run((), (), ())

    def declare_and_tick(
        self,
        rules: tuple[Iterable[tuple[str, str]], Iterable[tuple[str, str]]],
        added: Sequence[Value],
        removed: Sequence[Value],
        messages: Sequence[Value],
    ) -> Derived:
        """A tick in which rules change as well: all of it counts from now on."""
        if not self.declare(*rules):
            return self.tick(added, removed, messages)
        self._claimed += len(added) - len(removed)
        if self._own is not None:
            self._keep(self._own, added, removed)
        return self._begin_anew(messages)

    @property
    def pending(self) -> bool:
        """Whether ``next`` asks for a tick."""
        return self.engine.pending

    def _run(self, added: Sequence[Value], removed: Sequence[Value], messages: Sequence[Value]) -> Derived:
        self._ticks += 1
        try:
            return self.engine.tick(added, removed, messages)
        except RuleFailed as failure:
            self._suspend(failure)
        except Unalias as conflict:
            self._apart |= {conflict.label}
        except (
            Exception
        ):  # a fence around a tick: a defect in the engine must not end the turn of somebody else
            logger.exception("the rules failed and are computed anew: this is a defect, please report it")
        return self._begin_anew(messages)

    def _suspend_more(self, failure: RuleFailed, overran: int) -> None:
        """Suspends all that had more than a small part in a tick that overran again, then the newest as well.

        One at a time, a thousand rules that take a second each would hold everybody up for hours.
        """
        newest = int(len(self._owners) * SUSPECT[min(overran, len(SUSPECT)) - 1])
        suspects = dict.fromkeys(self.engine.heavy())
        suspects.update(dict.fromkeys(range(len(self._owners) - newest, len(self._owners))))
        for number in suspects:
            self._suspend(RuleFailed(number, {}, f"had a part in this: {failure.reason}"))

    def _suspend(self, failure: RuleFailed) -> None:
        entry = self._owners[failure.rule]
        if entry.trouble:
            return
        rule = self.engine.outline.rules[failure.rule]
        entry.trouble = f"{failure.reason} (in {rule})"
        self.troubles += 1
        entry.row = Map.of([(name, value) for name, value in failure.row.items()])

    def _stop_asking(self) -> None:
        asking = {head.of for head in self.engine.asking()}
        for entry in self._sound():
            for rule in entry.rules:
                if rule.head.verb == "next" and rule.head.label in asking:
                    self.troubles += 1
                    entry.trouble = (
                        f"{self._max_self_ticks} ticks in a row were caused by next alone (in {rule})"
                    )

    def _begin_anew(self, messages: Sequence[Value]) -> Derived:
        """Another engine for the rules that are sound, and the difference that it makes."""
        before = {key(value): value for value in self.engine.derived()}
        old, facts, overran = self.engine, list(self._facts()), 0
        while True:
            self._owners = [entry for entry in self._sound() for _ in entry.rules]
            engine = Engine(
                self._rules(),
                max_inserted=self._max_inserted,
                apart=self._apart,
                clock=self._clock,
                deadline=self._deadline,
            )
            self._engines += 1
            self.engine = engine
            try:
                said = engine.load(facts, old)
                if messages:
                    said.messages += engine.tick((), (), messages).messages
                break
            except RuleFailed as failure:
                self._suspend(failure)
                overran += failure.overran
                if overran > 1:
                    self._suspend_more(failure, overran)
            except Unalias as conflict:
                self._apart |= {conflict.label}
        self._claimed = len(facts)
        after = {key(value): value for value in engine.derived()}
        return Derived(
            [value for at, value in after.items() if at not in before],
            said.messages,
            [value for at, value in before.items() if at not in after],
        )

    # -- facts ----------------------------------------------------------------------------------------

    @staticmethod
    def _keep(own: dict[Hashable, Value], added: Sequence[Value], removed: Sequence[Value]) -> None:
        for value in added:
            own[key(value)] = value
        for value in removed:
            del own[key(value)]

    def _kept(self) -> Iterable[Value]:
        assert self._own is not None  # it is kept when nobody else does
        return self._own.values()

    # -- looking --------------------------------------------------------------------------------------

    def derived(self) -> list[Value]:
        """All that follows and that nobody claims; O(those)."""
        return list(self.engine.derived())

    def explainer(self) -> Explainer:
        """Who answers why, why not and how."""
        return Explainer(self.engine.outline, self.engine.terms, self.engine.spent)

    def statistics(self) -> ProgramStatistics:
        """Counts, in O(rules)."""
        sound = self._sound()
        return ProgramStatistics(
            texts=len(self.entries),
            rules=sum(len(entry.rules) for entry in sound),
            troubled=len(self.entries) - len(sound),
            engines=self._engines,
            ticks=self._ticks,
        )
