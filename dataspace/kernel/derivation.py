"""Hosting: the rules of one space, as facts among its facts.

``rule(name, text)`` is a fact like any other; while somebody claims it, it is carried out.  What follows is
claimed by an owner of its own, so that it is counted, logged and restored like what anybody claims, and goes
in the epoch of the turn that took its cause away.  An error in a rule is a fact too, ``rule-error(name, text,
row, reason)``, for as long as the rule is there.

Flows can be attached, which take each turn as a tick (``driving``): they come after the rules, and the same
owner claims their facts.

The space asks before it changes its index: the claims are seen as they will be after the turn.

Always: a fact that a flow asserts, or that follows and that nobody else claims, has exactly one claim by
``RULES``; all others have none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Final

from dataspace.flows.flows import Flow
from dataspace.flows.host import FlowHost, WeightedValues, changes_of, counted, transitions
from dataspace.flows.results import Derived
from dataspace.kernel.changes import Claims, Numbered
from dataspace.kernel.defects import Defects, UndoNotes
from dataspace.kernel.rule_facts import error_of, is_rule, rules_in, rules_of
from dataspace.kernel.turns import KEYED, PendingTurn, keys_in_steps
from dataspace.rules.engine.pool import ProgramStatistics
from dataspace.rules.engine.program import Program
from dataspace.rules.language.hosted import NO_FUNCTIONS, Functions
from dataspace.rules.relations.budgets import Bounds
from dataspace.rules.relations.failures import MAX_NAME, MAX_REASON, complaint
from dataspace.rules.relations.times import Times
from dataspace.steps import Steps, at_once
from index.trie.nodes import At, all_at, at_of
from index.trie.trie import Index
from index.values.values import Record, Value, key

RULES: Final = "rules"
"""The owner of all derived facts."""


class RuleHost:
    """The rules of a space, and the claims that they hold."""

    def __init__(self, index: Index, *, max_rules: int, bounds: Bounds) -> None:
        self.program: Program | None = None
        self.awake = False
        """True if rules or flows must see each turn.  Cached, because every commit reads it."""
        self._flowing = False  # whether flows are to be told, likewise
        self._is_plain = False  # True where a turn without rules in it is just a tick of the program
        self.flows: Final = FlowHost()
        self.clock: Callable[[], int] | None = None  # gives nanoseconds: rules made later are timed by it
        self.functions: Functions = NO_FUNCTIONS  # of the host: rules that are read later may call them
        self._index = index
        self._max_rules = max_rules
        self.bounds: Final = bounds
        self.held: dict[At, int] = {}  # the handle of each fact, which is itself in the index
        self._by_flows: set[At] = set()
        self._last = 0  # the newest handle
        self._rejected: dict[At, int] = {}  # what is wrong with rules that are no entries; of how many it is
        self._errors: dict[Hashable, Record] = {}
        self._error_count = 0  # of the program, when its errors were last looked at
        self._appearing: Sequence[Value] = ()
        self._vanishing: Sequence[Value] = ()
        self._adopted = False
        self._followed: dict[int, At] | None = None  # ``held`` by handle, while another's are followed
        self._kept: Sequence[Value] = ()  # while the last tick is taken up: what rules held in it
        self._is_start = False  # while it is
        self._journal = UndoNotes()
        self.times: Final = Times()
        """What rules over time remember; turns at or after ``times.next`` wait for a turn at it."""
        self.defects: Final = Defects(index, self.times)
        self._resumed: set[str] = set()  # names of texts that the next tick is to carry out again
        self.on_error: Callable[[], None] = _ignored
        """Called in a turn, or its undoing, in which what is wrong with rules may have changed."""

    def _keep_awake(self) -> None:
        """Looks whether there is still anything that turns are to be told to."""
        self._flowing = bool(self.flows)
        self.awake = self.program is not None or self._adopted or self._flowing
        has_all = self.program is not None and self.program.facts is None
        self._is_plain = has_all and not (self._adopted or self._flowing)

    def adopt(self, claims: Mapping[int, Value]) -> None:
        """Takes over what rules held when the log ended; the next turn says what is still right."""
        self.held = {at_of(value): handle for handle, value in claims.items()}
        self._last = max(claims, default=0)
        self._adopted = self.awake = True

    def follow(self, begun: Sequence[tuple[int, Value]], ended: Sequence[int]) -> list[Value]:
        """Takes over what the rules of another process begin and end to claim; returns the ended facts.

        As after ``adopt`` the next turn says what is still right.  O(those), and the first time O(claims).
        """
        if self._followed is None:
            self._followed = {handle: at for at, handle in self.held.items()}
        for handle, value in begun:
            at = at_of(value)
            self.held[at], self._followed[handle] = handle, at
            self._last = max(self._last, handle)
        going = [self._followed.pop(handle) for handle in ended]
        for at, handle in zip(going, ended, strict=True):
            if self.held[at] == handle:  # else it has begun anew in the same epoch
                del self.held[at]
        self._adopted = self.awake = True
        return [self._index.value(at) for at in going]

    @property
    def claimed(self) -> int:
        """How many facts rules and flows claim."""
        return len(self.held)

    @property
    def claims(self) -> dict[int, Value]:
        """Those facts by handle: a copy.  O(those)."""
        return {handle: self._index.value(at) for at, handle in self.held.items()}

    def is_claimed(self, value: Value) -> bool:
        """Whether others than the rules claim a fact."""
        return self._claimed(value) > 0

    # -- turns ----------------------------------------------------------------------------------------

    def _begin(self, draft: PendingTurn) -> None:
        """Begins the journal by which a turn can be undone; ``turn`` has it written out.

        Nothing has to be undone before the turn is marked, which is the last step.
        """
        journal = self._journal
        journal.begun = journal.ended = journal.flows_added = journal.flows_removed = ()
        journal.last = self._last
        journal.was_following = self.program is not None or self._adopted
        self.times.mark()
        draft.is_followed = True

    def undo(self, removed: Sequence[Value]) -> list[Value]:
        """Undoes a turn that is marked ``is_followed``: what rules and flows claim, as before it.

        The index has those facts, unless they are among the ``removed``.  Interrupted rules are in no order,
        so they are computed anew with the next turn, as after a restart.  Flows have seen what has not
        happened: they end, and ``flow-error`` says so.
        """
        journal, held = self._journal, self.held
        for at, handle in journal.begun:
            if held.get(at) == handle:
                del held[at]
        held.update([(at, handle) for at, handle in journal.ended if handle <= journal.last])
        self._last = journal.last
        self._by_flows.difference_update(journal.flows_added)
        self._by_flows.update(journal.flows_removed)
        self.program = None
        self.times.undo()
        self._rejected, self._errors, self._error_count = {}, {}, 0
        self._resumed.clear()
        self.on_error()
        self._appearing = self._vanishing = ()
        self._adopted = journal.was_following or bool(held)
        gone = dict(zip(all_at(removed), removed, strict=True))
        known = {at: gone[at] if at in gone else self._index.value(at) for at in held}
        if self.flows:
            self.flows.abandon([known[at] for at in self._by_flows], "a turn that it saw was undone")
        self._keep_awake()
        return list(known.values())

    def turn(self, draft: PendingTurn) -> tuple[Claims, ...]:
        """Makes what follows from a turn part of it: the claims that this begins and ends."""
        appearing: Sequence[Value]
        vanishing: Sequence[Value]
        added, removed, program = draft.added, draft.removed, self.program
        if program is not None and program.texts.strict:
            program.texts.check_facts(added)
        journal = self._journal  # as ``_begin``
        journal.begun = journal.ended = journal.flows_added = journal.flows_removed = ()
        journal.last = self._last
        journal.was_following = program is not None or self._adopted
        self.times.mark()
        draft.is_followed = True
        if len(added) + len(removed) == 1:  # as mostly: it appears if nobody claims it yet, and so on
            appearing_at, vanishing_at = draft.at or draft.places
            value, at = (added[0], appearing_at[0]) if added else (removed[0], vanishing_at[0])
            claims = self._index.count_at(at)
            if claims and at in self.held and at not in self._by_flows:  # as ``_claimed_at``
                claims -= 1
            appearing, vanishing = (added, removed) if claims == len(removed) else _NEITHER
            if (
                program is not None
                and self._is_plain
                and (value.__class__ is not Record or value.label != "rule")
            ):
                derived = program.tick(appearing, vanishing, draft.messages)  # as ``_follow``
                if program.texts.error_count != self._error_count:
                    derived = self._with_errors(derived)
                return self._claim(derived, draft)
        else:
            appearing, vanishing = self._transitions(draft)
        if self._flowing:
            return self._claim(self._with_flows(draft, appearing, vanishing), draft)
        return self._claim(self._follow(appearing, vanishing, draft.messages), draft)

    def _follow(
        self,
        appearing: Sequence[Value],
        vanishing: Sequence[Value],
        messages: Sequence[Value],
        turn: tuple[list[Value], list[Value]] | None = None,
    ) -> Derived:
        """What rules make of facts that come and go, so far as others than the rules claim them.

        ``turn`` are all facts that come and go in this turn, where this is not the first tick of it.
        """
        if self._adopted:
            self._appearing = self._vanishing = ()
            before = self._take_up()
            further = self._follow(appearing, vanishing, messages, turn)
            whole = [*changes_of(before.added, before.removed), *changes_of(further.added, further.removed)]
            added, removed = transitions(whole, lambda value: int(at_of(value) in self.held))
            return Derived(added, further.messages, removed)
        program = self.program
        if program is None or (appearing and rules_in(appearing)) or (vanishing and rules_in(vanishing)):
            self._appearing, self._vanishing = turn or (appearing, vanishing)
            return self._follow_anew(appearing, vanishing, messages)
        if program.facts is not None:  # it may ask for them in this tick
            self._appearing, self._vanishing = turn or (appearing, vanishing)
        derived = program.tick(appearing, vanishing, messages)
        return derived if program.texts.error_count == self._error_count else self._with_errors(derived)

    def _take_up(self) -> Derived:
        """Returns the corrections of the derived facts from before the log ended, or a turn was undone.

        It is the last tick once more, with the claims and the facts of ``next`` as they were: so the turn
        that follows has the same effects as without the interruption, and messages are not sent again.
        """
        self._adopted, self._followed = False, None
        value = self._index.value
        self._kept = [value(at) for at in self.held]
        self._is_start = True
        try:
            derived = self.defects.made(lambda: self._follow_anew((), (), ()), self._forget_attempt)
        finally:
            self._kept, self._is_start = (), False
        return self._compared(derived)

    def _forget_attempt(self) -> None:
        """Undoes what an attempt to make a program has done that failed."""
        self.program = None
        self.times.undo()
        self._rejected, self._errors, self._error_count = {}, {}, 0

    def _follow_anew(
        self,
        appearing: Sequence[Value],
        vanishing: Sequence[Value],
        messages: Sequence[Value],
    ) -> Derived:
        come, go = appearing, vanishing
        if self.program is None:
            self.program = Program(
                self._facts,
                bounds=self.bounds,
                max_rules=self._max_rules,
                clock=self.clock,
                kept=self._kept,
                start=self._is_start,
                times=self.times,
                functions=self.functions,
                refused=self.defects.refused,
            )
            come, go = [value for value in self._facts() if is_rule(value)], ()
        rejections = [(fact, -1) for value in go if (fact := self._rejection(value)) is not None]
        derived = self.program.declare_and_tick(
            (rules_of(come), rules_of(go)), appearing, vanishing, messages
        )
        self.defects.refused = {}
        derived = self._with_errors(derived)
        rejections += [(fact, +1) for value in come if (fact := self._rejection(value)) is not None]
        self._note_rejections(rejections, derived)
        if not (self.program.entries or self._rejected):
            self.program = None
            self._error_count = 0
            self.on_error()
        self._keep_awake()
        return derived

    def _note_rejections(self, changes: Sequence[tuple[Record, int]], derived: Derived) -> None:
        """Notes the errors of facts that come, and forgets the errors of facts that go."""
        added, removed = transitions(changes, lambda fact: self._rejected.get(at_of(fact), 0))
        derived.added += added
        derived.removed += removed
        for fact, by in changes:
            at = at_of(fact)
            self._rejected[at] = self._rejected.get(at, 0) + by
            if not self._rejected[at]:
                del self._rejected[at]

    def _rejection(self, value: Value) -> Record | None:
        """Returns the error of a fact that is called a rule and is no entry of the program; O(size)."""
        assert self.program is not None  # whoever asks has one
        return None if not is_rule(value) else error_of(value, self.program.entries, self.program.texts.most)

    def advance(self, draft: PendingTurn) -> tuple[Claims, ...]:
        """The tick that ``next``, a flow or time has asked for: what follows is the turn."""
        return at_once(self.advancing(draft))

    def advancing(self, draft: PendingTurn) -> Steps[tuple[Claims, ...]]:
        """Does ``advance`` in steps, as far as an instant is concerned at which much is due.

        Neither turns nor questions to rules may come in between.
        """
        if self._adopted:
            return self.turn(draft)
        self._begin(draft)
        self._appearing = self._vanishing = ()
        derived = Derived([], [], [])
        names, self._resumed = self._resumed, set()
        if self.program is not None and names:
            derived = self._with_errors(self.program.resume(names))
        elif self.program is not None and self.times.next <= self.times.ahead:
            derived = self._with_errors((yield from self.program.ticking()))
        elif self.program is not None and self.program.pending:
            derived = self._with_errors(self.program.tick_again())
        if self.flows:
            derived = self._run_flows([], derived, by_itself=self.flows.next > self.times.ahead)
        if len(derived.added) > KEYED:  # what goes has its keys
            yield from keys_in_steps(derived.added)
        return self._claim(derived, draft)

    @property
    def due(self) -> int:
        """The earliest instant at which a turn is due by time alone, for rules or for flows."""
        return self.flows.next if self.program is None else min(self.times.next, self.flows.next)

    @property
    def is_unsettled(self) -> bool:
        """True if the next turn has to take up what was before a restart, or before a turn was undone."""
        return self._adopted

    @property
    def pending(self) -> bool:
        """Whether ``next``, a flow or a suspended rule asks for a tick, or an instant has come."""
        if self._resumed or self.due <= self.times.ahead:
            return True
        if not self.awake:  # there are neither rules nor flows, as after nearly every turn
            return False
        return (self.program is not None and self.program.pending) or self.flows.pending

    def resume(self, name: str) -> None:
        """Resumes a suspended text of rules with the next turn, for which ``pending`` asks."""
        if self.program is not None:
            self._resumed.add(name)

    def suspended(self) -> list[tuple[str, str, str]]:
        """The texts that are not carried out: names, texts and reasons, long ones cut short.  O(texts)."""
        entries = () if self.program is None else self.program.entries.values()
        return [
            (each.name[:MAX_NAME], each.text[:MAX_REASON], each.error[:MAX_REASON])
            for each in entries
            if each.error
        ]

    # -- flows ----------------------------------------------------------------------------------------

    def attach(self, name: str, flow: Flow) -> None:
        """Attaches a flow, which gets all present facts and then each turn.

        ``Space.advance`` makes that turn if nobody else does.  ``UsageError`` for a name that is taken.
        O(facts × inlets).
        """
        self.flows.attach(name, flow, self._index.values())
        self._keep_awake()

    def detach(self, name: str) -> None:
        """Ends that; what the flow asserts goes with the next turn."""
        self.flows.detach(name)
        self._keep_awake()

    def _with_flows(
        self, draft: PendingTurn, appearing: Sequence[Value], vanishing: Sequence[Value]
    ) -> Derived:
        """Rules first, then flows, then what rules make of what flows assert."""
        derived = Derived([], [], [])
        if self.program is not None or self._adopted or rules_in(appearing):
            derived = self._follow(appearing, vanishing, draft.messages)
        self.flows.tell((), (), draft.messages)
        return self._run_flows(changes_of(draft.added, draft.removed), derived, by_itself=False)

    def _run_flows(self, turn: WeightedValues, derived: Derived, *, by_itself: bool) -> Derived:
        """Passes a turn and its derived facts to flows; returns what follows from both."""
        first = [*turn, *changes_of(derived.added, derived.removed)]
        self.flows.tell(*transitions(first, self._index.count))
        output = self.flows.tick(self.times.ahead, by_itself=by_itself)
        self._keep_awake()
        derived.messages += output.messages
        if not (output.added or output.removed):
            return derived
        asserted = changes_of(output.added, output.removed)
        further = self._follow_flows(turn, asserted)
        derived.messages += further.messages
        later = [*asserted, *changes_of(further.added, further.removed)]
        come, gone = all_at(output.added), all_at(output.removed)
        self._journal.flows_added, self._journal.flows_removed = come, gone
        self._by_flows.update(come)
        self._by_flows.difference_update(gone)
        self.flows.tell(*transitions(later, counted(first, self._index.count)))
        whole = [*changes_of(derived.added, derived.removed), *later]
        derived.added, derived.removed = transitions(whole, lambda value: int(at_of(value) in self.held))
        return derived

    def _follow_flows(self, turn: WeightedValues, asserted: WeightedValues) -> Derived:
        """What rules make of what flows assert, and no longer, after a turn."""
        appearing, vanishing = transitions(asserted, counted(turn, self._claimed))
        if self.program is None and not rules_in(appearing):
            return Derived([], [], [])
        return self._follow(appearing, vanishing, (), transitions([*turn, *asserted], self._claimed))

    # -- claims ---------------------------------------------------------------------------------------

    def _transitions(self, draft: PendingTurn) -> tuple[Sequence[Value], Sequence[Value]]:
        """Which facts appear and vanish, as far as others than the rules claim them."""
        added, removed, claimed = draft.added, draft.removed, self._claimed_at
        at_added, at_removed = draft.places
        if len({*at_added, *at_removed}) < len(added) + len(removed):
            return transitions(changes_of(added, removed), self._claimed)
        return (
            [value for at, value in zip(at_added, added, strict=True) if not claimed(at)],
            [value for at, value in zip(at_removed, removed, strict=True) if claimed(at) == 1],
        )

    def _claimed(self, value: Value) -> int:
        """How many claims on a fact there are by others, flows among them."""
        return self._claimed_at(at_of(value))

    def _claimed_at(self, at: At) -> int:
        count = self._index.count_at(at)
        return count - 1 if count and at in self.held and at not in self._by_flows else count

    def _facts(self) -> Iterator[Value]:
        """All facts that others claim, as they will be after this turn."""
        vanishing = set(all_at(self._vanishing))
        others_only = not self.held  # as mostly when the first rule comes: a call less for each fact
        for at, value in self._index.items():
            if at not in vanishing and (others_only or self._claimed_at(at)):
                yield value
        yield from self._appearing

    def _with_errors(self, derived: Derived) -> Derived:
        """Adds the present errors of rules to the facts that follow from them."""
        assert self.program is not None  # whoever ticks has one
        if self.program.texts.error_count == self._error_count:
            return derived
        self._error_count = self.program.texts.error_count
        self.on_error()
        errors: dict[Hashable, Record] = {}
        for entry in self.program.entries.values():
            if entry.error:
                fact = complaint(entry.name, entry.text, entry.row, entry.error)
                errors[key(fact)] = fact
        derived.added += [fact for at, fact in errors.items() if at not in self._errors]
        derived.removed += [fact for at, fact in self._errors.items() if at not in errors]
        self._errors = errors
        return derived

    def _compared(self, derived: Derived) -> Derived:
        """The difference to what was adopted, where ``derived`` speaks of all."""
        wanted = {at_of(value): value for value in derived.added}
        return Derived(
            [value for at, value in wanted.items() if at not in self.held],
            derived.messages,
            [self._index.value(at) for at in self.held if at not in wanted and at not in self._by_flows],
        )

    def _claim(self, derived: Derived, draft: PendingTurn) -> tuple[Claims, ...]:
        """Makes what follows part of a turn, under handles of our own."""
        added, removed = derived.added, derived.removed
        if derived.messages:
            draft.messages += derived.messages
            self.times.sent = draft.messages, len(derived.messages)
        if not added and not removed:
            return ()
        appearing, vanishing = draft.at or draft.places
        held, first, journal = self.held, self._last + 1, self._journal
        begun: Sequence[tuple[int, Value]] = ()
        ended: list[int] = []
        if len(added) == 1:  # as mostly
            (value,) = added
            at = value._text or value.text if value.__class__ is Record else at_of(value)
            journal.begun = [(at, first)]
            held[at] = first
            appearing.append(at)
            begun = [(first, value)]
        elif added:
            several = all_at(added)
            journal.begun = list(zip(several, range(first, first + len(added)), strict=True))
            held.update(journal.begun)
            appearing += several
            begun = Numbered(first, added)
        if len(removed) == 1:
            (value,) = removed
            at = value._text or value.text if value.__class__ is Record else at_of(value)
            ended.append(held[at])
            journal.ended = [(at, ended[0])]
            del held[at]
            vanishing.append(at)
        elif removed:
            several = all_at(removed)
            ended += map(held.__getitem__, several)
            journal.ended = list(zip(several, ended, strict=True))
            for at in several:
                del held[at]
            vanishing += several
        self._last += len(added)
        draft.added += added
        draft.removed += removed
        return (tuple.__new__(Claims, (RULES, begun, ended)),)  # spares a call, as there is one in each turn

    def costliest(self) -> tuple[str, int, int]:
        """The name of the text that has taken most time, how much, and how much all have: in nanoseconds.

        Estimated, and nothing without a clock.  O(rules).
        """
        return ("", 0, 0) if self.program is None else self.program.costliest()

    def statistics(self) -> ProgramStatistics | None:
        """Counts of the program, if there is one."""
        return None if self.program is None else self.program.statistics()


def _ignored() -> None:
    """The default of ``on_error``: does nothing."""


_NEITHER: Final[tuple[Sequence[Value], Sequence[Value]]] = ((), ())
