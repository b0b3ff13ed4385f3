"""Texts: named texts of rules, and the errors of each.

A text is carried out as a whole, or not at all.  It is not carried out if it cannot be read, is one too many,
makes a cycle that cannot be put in order, or has failed.  Then its entry has the error, until it is removed
or resumes.

Always: the rules of the texts that are carried out can be put in order; a rule has a number of its own, and
later texts have higher numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from dataspace.errors import Refused
from dataspace.rules.engine.components import PlacedRule, placed
from dataspace.rules.engine.dependencies import DependencyGraph
from dataspace.rules.language.declarations import (
    MAX_RELATIONS,
    Declaration,
    Declarations,
    check_all,
    check_fact,
)
from dataspace.rules.language.hosted import NO_FUNCTIONS, Functions, reads_zones
from dataspace.rules.language.lowering import lowered
from dataspace.rules.language.parser import ReadText, read_text
from dataspace.rules.language.syntax import Atom, Literal, Rule, Verb, duration_text, with_parts
from dataspace.rules.relations.failures import shown_name, shown_whole
from index.errors import UsageError
from index.patterns.patterns import matcher
from index.values.values import Map, Record, Value, key, same

logger = logging.getLogger("dataspace")

MAX_RULES: Final = 1000
"""Default of the rules that are carried out together."""

TEXTS_FOR_EACH_RULE: Final = 2
"""So many texts are looked at for each rule: refused texts are looked through now and then."""

LOOPS_FOR_EACH_RULE: Final = 10
"""For each of those there may be so many loops: a body of n atoms has n functions with n loops each."""

MAX_RULE_SHOWN: Final = 500
MAX_REASON_SHOWN: Final = 1500
"""Characters of a reason, and of the rule in it, so that a complaint can show both."""

MOST_LABELS: Final = 10_000
"""Labels of facts that are remembered as unlike all declared ones."""

MAX_REFUSED: Final = 10
"""Texts of one turn that are refused one by one for the cycles that they make."""


_NONE: Final[Mapping[tuple[str, str], str]] = {}


@dataclass(slots=True, eq=False)
class Entry:
    """One text of rules: ``error`` says why it is not carried out, and ``row`` where it went wrong."""

    name: str
    text: str
    rules: tuple[Rule, ...] = ()
    error: str = ""
    row: Map = field(default_factory=Map)
    placed: tuple[PlacedRule, ...] = ()
    declared: Declarations = field(default_factory=dict)
    written: tuple[Rule, ...] = ()
    """The rules as they were read."""
    has_defect: bool = False
    """True if it is not carried out since a defect came of it."""

    @property
    def loops(self) -> int:
        """Returns the number of loops in its functions: to make them takes up to a millisecond for each."""
        return sum(len(rule.atoms) * max(rule.loops, len(rule.atoms)) for rule in self.rules)


class Carried(NamedTuple):
    """What a text had, with the rules beside it, when a row suspended it: it may have that again at once.

    ``facts`` were read or derived, ``size`` are the bytes of the derived ones, ``work`` what they had cost.
    """

    facts: int = 0
    size: int = 0
    work: int = 0


def check_windows(rules: Iterable[Rule], most: int | None) -> None:
    """Raises ``UsageError`` for a rule that looks back for more than so many microseconds."""
    for rule in rules:
        if most is not None and rule.form is not None and rule.form.span > most:
            raise UsageError(
                f"{rule.form.shown} looks back for longer than limits.rule_window ({duration_text(most)}):"
                " write a shorter time, or raise the limit"
            )


class Texts:
    """The texts of a program; ``held`` gives the rules that are carried out, and that new ones would join.

    ``fits`` is True if it is known without them that new rules can be put in order.
    ``errors`` are the complaints of a program that has ended: the texts that it had suspended stay so.
    ``functions`` are the functions of the host.
    """

    def __init__(
        self,
        max_rules: int,
        held: Callable[[Sequence[PlacedRule]], Iterable[PlacedRule]],
        fits: Callable[[Sequence[PlacedRule]], bool],
        errors: Iterable[Record] = (),
        window: int | None = None,
        functions: Functions = NO_FUNCTIONS,
    ) -> None:
        self.entries: dict[Pair, Entry] = {}
        self.resuming: Final = Resuming()
        self.only_timed = False
        """True if only the rules are carried out that ``lowering`` makes for times."""
        self.refused: Mapping[Pair, str] = _NONE
        """Texts that the first change suspends unread, with the reason."""
        self.error_count = 0
        """Goes up whenever what is wrong with texts may have changed."""
        self.most: Final = TEXTS_FOR_EACH_RULE * max_rules
        """How many entries there may be."""
        self._max_rules = max_rules
        self._window = window
        self._functions = functions
        self._held = held
        self._fits = fits
        self.strict: Declarations = {}
        self.reads_zones = False
        """True once a text was taken that reads zones of time."""
        """The declarations that clients are held to."""
        self._declared: dict[str, Declaration] = {}
        self._carried: dict[Pair, Carried] = {}
        self._unrelated: set[Value] = set()  # labels that are like no declared one
        self._count = self._loops = 0
        self._numbered = 0
        self._owners: dict[int, Entry] = {}  # by the number of a rule, where that is carried out
        self._errors = {tuple(map(key, each.fields[:2])): each for each in errors}  # until the first change

    def change(
        self, added: Iterable[tuple[str, str]], removed: Iterable[tuple[str, str]]
    ) -> tuple[list[PlacedRule], list[PlacedRule]]:
        """Adds and removes texts; returns the rules that are carried out from now on, and the rules that were
        before.

        A text for which there is no room is no entry, until it is removed and added anew.
        O(rules that the new ones could be connected with).
        """
        self.error_count += 1
        added, removed = list(added), list(removed)
        for pair in removed:
            self.resuming.forget(pair, for_good=pair not in added)
            if pair not in added:
                self._carried.pop(pair, None)
        gone = [self.entries.pop(pair, None) for pair in removed]
        lost = [rule for entry in gone if entry is not None for rule in self._retire(entry)]
        self._count -= sum(len(entry.rules) for entry in gone if entry is not None)
        self._loops -= sum(entry.loops for entry in gone if entry is not None)
        new = dict.fromkeys(pair for pair in added if pair not in self.entries)
        room = max(0, self.most - len(self.entries))
        fresh = [Entry(name, text) for name, text in islice(new, room)]
        self.entries.update({(entry.name, entry.text): entry for entry in fresh})
        sound = [entry for entry in self.entries.values() if not entry.error and entry not in fresh]
        self._declared = {label: each for entry in sound for label, each in entry.declared.items()}
        for entry in sorted(fresh, key=self._late):
            if reason := self.refused.get((entry.name, entry.text)):
                entry.error = reason
                logger.warning("rule %.80r is suspended: %.400s", entry.name, reason)
                continue
            self._read(entry)
            if self._errors and not entry.error:
                self._stay_suspended(entry)
        self._errors.clear()
        self.refused = _NONE
        self._refuse_cycles([entry for entry in fresh if entry.placed], {each.number for each in lost})
        self._unrelated.clear()
        self.strict = {label: each for label, each in self._declared.items() if each.strict}
        come = [rule for entry in fresh if not entry.error for rule in entry.placed]
        self._owners.update({rule.number: entry for entry in fresh for rule in entry.placed})
        return come, lost

    def _read(self, entry: Entry) -> None:
        try:
            read = read_text(entry.text, self._functions)
            self._check_declared(entry, read)
            entry.rules = lowered(read.rules, entry.name, entry.text)
            check_windows(entry.rules, self._window)
            if self.only_timed:
                entry.rules = tuple([rule for rule in entry.rules if rule.head.verb is Verb.HIDDEN])
        except UsageError as error:
            entry.error = str(error)
        count, loops = self._count + len(entry.rules), self._loops + entry.loops
        most = LOOPS_FOR_EACH_RULE * self._max_rules
        if count > self._max_rules:
            entry.error = f"more than {self._max_rules} rules"
        elif loops > most:
            entry.error = f"{loops} loops in all rules, limit {most}: a body of n atoms has n × n"
        if entry.error:
            entry.rules, entry.declared, entry.written = (), {}, ()
        else:
            self._declared.update(entry.declared)
            self._count, self._loops = count, loops
            self.reads_zones |= any(map(reads_zones, entry.rules))
        entry.placed = tuple([placed(self._numbered + at, rule) for at, rule in enumerate(entry.rules)])
        self._numbered += len(entry.rules)

    def _late(self, entry: Entry) -> tuple[bool, bool]:
        """Orders texts of one turn: those refused before a restart at last, and declarations first."""
        is_refused = (key(shown_name(entry.name)), key(entry.text)) in self._errors
        return is_refused, "relation" not in entry.text

    def _check_declared(self, entry: Entry, read: ReadText) -> None:
        """Raises ``UsageError`` where a text and the declarations of all texts contradict each other.

        O(rules of all texts) for a text with declarations, else O(its rules).
        """
        for label, each in read.declared.items():
            other = self._declared.get(label)
            if other is not None and other != each:
                raise UsageError(f"{label} is declared otherwise by another text: {other}")
        declared = {**self._declared, **read.declared}
        if len(declared) > MAX_RELATIONS:
            raise UsageError(f"{len(declared)} relations are declared in all texts, limit {MAX_RELATIONS}")
        check_all(read.rules, declared)
        for beside in self.entries.values() if read.declared else ():
            if beside is not entry and not beside.error:
                try:
                    check_all(beside.written, read.declared)
                except UsageError as error:
                    raise UsageError(f"the rules called {beside.name} do not agree: {error}") from None
        entry.declared, entry.written = read.declared, read.rules

    def check_facts(self, facts: Iterable[Value]) -> None:
        """Raises ``Refused`` for a fact that contradicts a ``strict`` declaration."""
        for fact in facts:
            label = fact.label if isinstance(fact, Record) else None
            if label in self._unrelated:
                continue
            try:
                check_fact(fact, self.strict)
            except UsageError as error:
                raise Refused("bad-request", str(error)) from None
            if isinstance(label, str) and label not in self.strict and len(self._unrelated) < MOST_LABELS:
                self._unrelated.add(label)

    def _stay_suspended(self, entry: Entry) -> None:
        """Leaves a text suspended that was so when the program before ended; it waits for the same facts."""
        error = self._errors.get((key(shown_name(entry.name)), key(entry.text)))
        if error is None:
            return
        reason, row = error.fields[3], error.fields[2]
        rule = next((rule for rule in entry.rules if str(reason).endswith(_where(rule))), None)
        if rule is None or not isinstance(reason, str) or not isinstance(row, Map):
            return  # it was refused, and is again if the reason is still there
        entry.error, entry.row, entry.placed = reason, row, ()
        logger.warning("rule %.80r is suspended since before the start: %.400s", entry.name, reason)
        if row:  # what ran away has none
            known = {str(at): value for at, value in shown_whole(row).pairs()}
            self.resuming.watch((entry.name, entry.text), _watched(rule, entry.rules), known, 0)

    def _refuse_cycles(self, fresh: list[Entry], lost: set[int]) -> None:
        """Refuses each new text that makes a cycle which cannot be put in order.

        All together mostly can.  If not, it is searched for the first that cannot be with those before it.
        """
        new = [rule for entry in fresh for rule in entry.placed]
        if new and self._fits(new):
            return
        near = self._held(new)
        held = [each.rule for each in sorted(near) if each.number not in lost]
        refused = 0
        while (error := _cycle(held, fresh)) is not None:
            good, bad = 0, len(fresh)
            while bad - good > 1:
                middle = (good + bad) // 2
                found = _cycle(held, fresh[:middle])
                good, bad, error = (middle, bad, error) if found is None else (good, middle, found)
            self._refuse(fresh[good], str(error))
            held += [rule for entry in fresh[:good] for rule in entry.rules]
            fresh = fresh[bad:]
            refused += 1
            if refused == MAX_REFUSED:
                for entry in fresh:
                    self._refuse(entry, f"not looked at: {refused} texts of the same turn were refused")
                return

    def _refuse(self, entry: Entry, error: str) -> None:
        entry.error = error
        entry.placed = ()

    def _retire(self, entry: Entry) -> tuple[PlacedRule, ...]:
        """Ends the rules of a text; returns the rules that were carried out."""
        gone, entry.placed = entry.placed, ()
        for rule in gone:
            del self._owners[rule.number]
        return gone

    def suspend(
        self, number: int, reason: str, row: Map | None = None, *, tick: int | None = None
    ) -> tuple[PlacedRule, ...]:
        """Suspends the text of a rule for a reason; returns its rules, none if it was suspended already.

        It waits for the facts of ``row`` to change where the ``tick`` is given in which they broke it.
        """
        entry = self._owners.get(number)
        if entry is None:
            return ()
        self.error_count += 1
        rule = next(each.rule for each in entry.placed if each.number == number)
        entry.error = f"{reason:.{MAX_REASON_SHOWN}}{_where(rule)}"
        entry.row = row or Map()
        logger.warning("rule %.80r is suspended: %.400s", entry.name, entry.error)
        if tick is not None:
            known = {str(at): value for at, value in entry.row.pairs()}
            self.resuming.watch((entry.name, entry.text), _watched(rule, entry.rules), known, tick)
        return self._retire(entry)

    def carry(self, number: int, had: Carried) -> None:
        """Notes what the text of a rule had that is suspended now because of a row."""
        entry = self._owners.get(number)
        if entry is not None:
            self._carried[entry.name, entry.text] = had

    def carried(self, rules: Iterable[PlacedRule]) -> Carried:
        """Returns what texts had that come with these rules and were suspended by a row; O(rules)."""
        entries = {id(entry): entry for rule in rules if (entry := self._owners.get(rule.number)) is not None}
        had = [self._carried.get((entry.name, entry.text), Carried()) for entry in entries.values()]
        return Carried(*[sum(each) for each in zip(Carried(), *had, strict=True)])

    def is_sound(self, rule: PlacedRule) -> bool:
        """True if a rule is carried out; O(1)."""
        return rule.number in self._owners

    def entry_of(self, number: int) -> Entry:
        """Returns the text of a rule that is carried out."""
        return self._owners[number]

    def stated(self, number: int) -> Record:
        """Returns the fact that a rule is from which is carried out."""
        entry = self._owners[number]
        return Record("rule", entry.name, entry.text)

    @property
    def rules(self) -> int:
        """Returns how many rules are carried out."""
        return len(self._owners)


def _where(rule: Rule) -> str:
    """Returns how a reason ends that suspends a text because of one of its rules."""
    return f" (in {rule.text:.{MAX_RULE_SHOWN}})"


def _watched(rule: Rule, rules: Sequence[Rule]) -> Rule:
    """Returns a rule with the atoms of its groups added, both plain and negated."""
    body: list[Literal] = list(rule.atoms)
    for atom in rule.atoms:
        label = atom.pattern.label if isinstance(atom.pattern, Record) else None
        for each in rules:
            if each.head.verb is Verb.HIDDEN and same(each.head.label, label):
                inside = _watched(each, rules).atoms
                body += [Atom(part.pattern, negated) for part in inside for negated in (False, True)]
    return Rule(rule.head, tuple(body))


def _blocks(rule: Rule) -> bool:
    """True if a rule has an input that blocks."""
    return rule.collects or any(atom.negated for atom in rule.atoms)


def _cycle(held: Sequence[Rule], entries: Sequence[Entry]) -> UsageError | None:
    if not entries:
        return None
    rules = [rule for entry in entries for rule in entry.rules]
    if any(map(_blocks, held)) or any(map(_blocks, rules)):
        rules[:0] = held  # else nothing that blocks can be in a cycle, however long that is
    try:
        DependencyGraph(rules)
    except UsageError as error:
        return error
    return None


Pair: TypeAlias = tuple[str, str]
"""The name and the text of an entry."""

WAITS: Final = (0, 16, 256, 4096)
"""Ticks that a text waits before its first, second, third and any further attempt."""


@dataclass(slots=True)
class _Record:
    """How often a text was suspended in a row, and in which tick it last was."""

    failures: int = 0
    tick: int = 0

    @property
    def ready(self) -> int:
        """Returns the first tick in which it may be tried again."""
        return self.tick + WAITS[min(self.failures, len(WAITS)) - 1]


class Resuming:
    """The suspended texts of a program that wait for facts to change, and the texts that may be tried
    again.

    A rule is suspended when it cannot calculate something, because of values that are in facts. When one of
    these facts goes, or one comes that a negation reads, the reason may be gone, and the rule is tried again
    in that tick. After each failure it waits for longer: each attempt makes a component anew, and any client
    that may assert a fact could cause one in each turn.

    Always: a text is tried again only after one of the facts that broke it has changed; it waits for a number
    of ticks, not for a time.
    """

    def __init__(self) -> None:
        self.watched: Final[dict[Pair, _Watch]] = {}
        self._due: dict[Pair, None] = {}
        self._records: dict[Pair, _Record] = {}

    def watch(self, pair: Pair, rule: Rule, row: Mapping[str, Value], tick: int) -> None:
        """Waits for what broke a rule to change; ``row`` is what its variables were."""
        record = self._records.setdefault(pair, _Record())
        if tick - record.tick > WAITS[-1]:
            record.failures = 0
        record.failures += 1
        record.tick = tick
        self.watched[pair] = _Watch(rule, row)
        self._due.pop(pair, None)

    def forget(self, pair: Pair, *, for_good: bool) -> None:
        """Waits no longer; ``for_good`` where the text is no entry any more."""
        self.watched.pop(pair, None)
        self._due.pop(pair, None)
        if for_good:
            self._records.pop(pair, None)

    def note(self, added: Iterable[Value], removed: Iterable[Value]) -> None:
        """Looks which texts concern facts that have come and gone.  O(facts × watched texts)."""
        for pair, watch in self.watched.items():
            if pair not in self._due and watch.concerns(added, removed):
                self._due[pair] = None

    def ready(self, tick: int) -> list[Pair]:
        """Returns the texts that are to be tried in this tick.  O(texts that are due)."""
        return [pair for pair in self._due if self._records[pair].ready <= tick]


class _Watch:
    """The cause of one rule's failure: patterns of the present facts, and of the missing ones."""

    def __init__(self, rule: Rule, row: Mapping[str, Value]) -> None:
        patterns = [(_pattern(atom.pattern, row), atom.negated) for atom in rule.atoms]
        self._there = [matcher(pattern) for pattern, negated in patterns if not negated]
        self._absent = [matcher(pattern) for pattern, negated in patterns if negated]

    def concerns(self, added: Iterable[Value], removed: Iterable[Value]) -> bool:
        """True if the rule may work again since these facts have come or gone."""
        return any(read(value) is not None for value in removed for read in self._there) or any(
            read(value) is not None for value in added for read in self._absent
        )


def _pattern(pattern: Value, row: Mapping[str, Value]) -> Value:
    """Returns a pattern with the values of its variables, or as it is where these are too large."""
    filled = _filled(pattern, row)
    try:
        matcher(filled)
    except UsageError:
        return pattern
    return filled


def _filled(pattern: Value, row: Mapping[str, Value]) -> Value:
    match pattern:
        case Record(label="$", fields=(str(name), _, _)) if name in row:
            return Record.of("lit", (row[name],))
        case Record(label="lit" | "$" | "_"):
            return pattern
    return with_parts(pattern, lambda part: _filled(part, row))
