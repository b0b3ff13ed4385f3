"""A discrimination net finds, among many groups, the groups whose requirements a value may meet.

A node of the trie tries each of its groups with each value, which is the fastest way for a few.  Patterns
with constants, classes or structure at ever other positions make ever more groups, and a value would be read
once for each.  A net asks *questions* instead, such as for the constant at a position, or for its class.
Each *branch* of the net has some questions, and leads by the answer of a value to the branch for those groups
that require it.  A value is not compared with groups below the branches that it does not reach.

What a branch cannot tell apart, or need not because it is little, are its *entries*: one for each leaf of a
group.  A branch with too many entries takes up the question that leaves out the most entries.

Always: each group that a value meets is among those reached, once; an exception at any line leaves a net that
builds its branches again from its forms; a net has memory for its leaves alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from index.patterns.readers import HandlerCode, group_code
from index.patterns.skeletons import Group as GroupKey, Skeleton
from index.trie.nodes import Group, Leaf, Values
from index.trie.questions import HAS, Asked, NetPosition, NetQuestion, questions_of, requirements
from index.values.positions import Class, Shape
from index.values.values import Value

BUCKET: Final = 8
"""Entries that a branch holds without a further question: about as many as are tried as fast as it is
answered."""

GUARDS: Final = 32
"""Answers of a branch that are noted as required by all of its entries."""

WIDE: Final = 16
"""Questions of a branch from which on they are found by the positions that a value has."""

_SPARE: Final = 64
"""Questions that a net keeps at least before it looks which are in use."""

ANY_CLASS: Final[Class] = ()
"""Stands for the label of patterns that have no structure."""

FormKey: TypeAlias = tuple[Shape, GroupKey]
"""What patterns that differ in constants and captures alone have in common."""


class NetForm:
    """The group of the patterns of one form that are in the net, with an entry for each leaf."""

    __slots__ = ("entries", "group", "questions")

    def __init__(self, group: Group, questions: tuple[NetQuestion, ...]) -> None:
        self.group: Final = group
        self.questions: Final = questions
        self.entries: dict[Hashable, LeafEntry] = {}


class LeafEntry:
    """One leaf in the net: the answers that its values give to the questions of its form."""

    __slots__ = ("answers", "branch", "form")

    def __init__(self, form: NetForm, answers: tuple[Hashable, ...]) -> None:
        self.form: Final = form
        self.answers: Final = answers
        self.branch: Branch | None = None

    def required(self) -> dict[NetQuestion, Hashable] | None:
        """Returns the answers by question; None if two differ, so that no value meets them."""
        found: dict[NetQuestion, Hashable] = {}
        for question, answer in zip(self.form.questions, self.answers, strict=True):
            if found.setdefault(question, answer) != answer:
                return None
        return found


class Branch:
    """The entries that require certain answers, below the questions that tell them apart.

    ``groups`` has the groups of its own entries, ``size`` counts all entries from here on.  ``question`` and
    ``answer`` lead here from the branch above.  ``guard`` has answers that all entries require and that are
    not known to be given by then: a value that gives another one goes no further.
    """

    __slots__ = (
        "above", "answer", "entries", "groups", "guard", "limit", "positions", "question", "questions",
        "size",
    )  # fmt: skip

    def __init__(self, above: Branch | None, question: NetQuestion | None, answer: Hashable) -> None:
        self.above: Final = above
        self.question: Final = question
        self.answer: Final = answer
        self.guard: dict[NetQuestion, Hashable] = {}
        self.size = 0
        self.limit = BUCKET
        self.entries: dict[LeafEntry, None] = {}
        self.groups: tuple[Group, ...] = ()
        self.questions: dict[NetQuestion, dict[Hashable, Branch]] = {}
        self.positions: NetPosition | None = None
        """The questions by position, if there are many."""

    def below(self, question: NetQuestion, answer: Hashable) -> Branch:
        """Returns the branch for an answer, created if needed."""
        answers = self.questions.get(question)
        if answers is None:
            answers = self.questions[question] = {}
            if self.positions is not None:
                self.positions.add(question)
            elif len(self.questions) > WIDE:
                self.positions = NetPosition()
                for each in self.questions:
                    self.positions.add(each)
        found = answers.get(answer)
        if found is None:
            found = answers[answer] = Branch(self, question, answer)
        return found

    def drop(self, question: NetQuestion, answer: Hashable) -> None:
        """Removes the branch for an answer, and its question if that was the last."""
        answers = self.questions[question]
        del answers[answer]
        if not answers:
            del self.questions[question]
            if self.positions is not None:
                self.positions.remove(question)
                if len(self.questions) <= WIDE // 2:
                    self.positions = None

    def regroup(self) -> None:
        """Notes the groups of the entries here, each once."""
        self.groups = tuple(dict.fromkeys([entry.form.group for entry in self.entries]))

    def watch(self, required: dict[NetQuestion, Hashable], known: set[NetQuestion]) -> None:
        """Notes what the first entry requires, but for the answers that are known."""
        new = ((question, answer) for question, answer in required.items() if question not in known)
        self.guard = dict(islice(new, GUARDS))

    def admit(self, required: dict[NetQuestion, Hashable]) -> None:
        """Notes that a further entry requires these answers.  Other answers of the guard are left to the
        branches below.  O(branches below) then."""
        for question, answer in list(self.guard.items()):
            if question not in required or required[question] != answer:
                del self.guard[question]
                for answers in self.questions.values():
                    for branch in answers.values():
                        branch.guard[question] = answer

    def known(self) -> set[NetQuestion]:
        """Returns the questions whose answers are known of the values that pass the guard."""
        found = set(self.guard)
        branch = self
        while branch.above is not None and branch.question is not None:
            found.add(branch.question)
            branch = branch.above
            found.update(branch.guard)
        return found


class DiscriminationNet:
    """The forms of one label, or of all values, that are not laid out in the trie."""

    __slots__ = ("_questions", "_top", "_tripled", "forms")

    def __init__(self) -> None:
        self.forms: Final[dict[FormKey, NetForm]] = {}
        self._top: Branch | None = Branch(None, None, None)
        """The branches; None where an exception has left them to be built again."""
        self._questions: dict[Asked, NetQuestion] = {}
        self._tripled = _SPARE

    def reached(self, value: Value) -> list[Group]:
        """Returns the groups that a value may meet, each once; O(branches reached and their questions)."""
        found: dict[Group, None] = {}  # leaves of one group may be below several answers
        known: dict[NetQuestion, Hashable] = {}
        waiting = [self._branches()]
        for branch in waiting:  # which grows
            if branch.guard and not _passes(branch.guard, value, known):
                continue
            for group in branch.groups:
                found[group] = None
            if branch.positions is not None:
                for question, answer in branch.positions.answers(value):
                    below = branch.questions[question].get(answer)
                    if below is not None:
                        waiting.append(below)
                continue
            for question, answers in branch.questions.items():
                if question in known:
                    answer = known[question]
                else:
                    answer = known[question] = question.answer(value)
                below = answers.get(answer)
                if below is not None:
                    waiting.append(below)
        return list(found)

    def open(self, skeleton: Skeleton, usual: HandlerCode, leaf: Leaf) -> Group:
        """Links a leaf at the place of a skeleton; returns its group.  O(positions)."""
        at = skeleton.shape, skeleton.group
        form = self.forms.get(at)
        if form is None:
            code = group_code(skeleton.shape, *skeleton.group, usual, in_trie=False)
            form = NetForm(Group(code, in_trie=False), self._questions_of(skeleton))
        entry = LeafEntry(form, requirements(skeleton))
        top, self._top = self._top, None  # until it is whole again
        form.group.leaves[skeleton.place] = leaf
        form.entries[skeleton.place] = entry
        self.forms[at] = form
        if top is not None:
            _place(top, entry)
            self._top = top
        return form.group

    def close(self, skeleton: Skeleton) -> None:
        """Removes the leaf at the place of a skeleton, if it is there, and its form without leaves; can be
        called again.  O(positions)."""
        at = skeleton.shape, skeleton.group
        form = self.forms.get(at)
        if form is None:
            return
        top, self._top = self._top, None  # until it is whole again
        form.group.leaves.pop(skeleton.place, None)
        entry = form.entries.pop(skeleton.place, None)
        if not form.group.leaves:
            self.forms.pop(at, None)
        if entry is not None and top is not None:
            _remove(entry)
        self._top = top

    def reset(self, values: Values) -> None:
        """Holds exactly these values from now on, in the leaves here; calls no callback.  O(values × branches
        reached)."""
        for form in self.forms.values():
            form.group.reset({})
        self._top = None
        for at, value in values.items():
            for group in self.reached(value):
                group.hold(at, value)

    def branches(self) -> Iterator[Branch]:
        """Yields each branch, those above first."""
        waiting = [self._branches()]
        for branch in waiting:
            yield branch
            for answers in branch.questions.values():
                waiting.extend(answers.values())

    def _branches(self) -> Branch:
        top = self._top
        if top is None:
            top = Branch(None, None, None)
            for form in self.forms.values():
                for entry in form.entries.values():
                    entry.branch = None
                    _place(top, entry)
            self._top = top
        return top

    def _questions_of(self, skeleton: Skeleton) -> tuple[NetQuestion, ...]:
        """Returns the questions of a form; equal ones of a net are one object."""
        if len(self._questions) > self._tripled:  # so it costs less than what was added
            used = [question for form in self.forms.values() for question in form.questions]
            self._questions = {(each.kind, each.path, each.check): each for each in used}
            self._tripled = _SPARE + 3 * len(self._questions)
        asked = questions_of(skeleton)
        for each in asked:
            if each not in self._questions:
                self._questions[each] = NetQuestion(*each)
        return tuple([self._questions[each] for each in asked])


def _passes(guard: dict[NetQuestion, Hashable], value: Value, known: dict[NetQuestion, Hashable]) -> bool:
    """True if a value gives all answers of a guard."""
    for question, required in guard.items():
        if question in known:
            answer = known[question]
        else:
            answer = known[question] = question.answer(value)
        if answer != required:
            return False
    return True


def _place(top: Branch, entry: LeafEntry) -> None:
    """Puts an entry into the branches; O(its positions) for each branch on the way."""
    required = entry.required()
    if required is None:
        return
    branch = top
    known: set[NetQuestion] = set()
    while True:
        branch.admit(required)
        known.update(branch.guard)
        branch.size += 1
        question = _way(branch, required)
        if question is None:
            break
        known.add(question)
        below = branch.below(question, required[question])
        if not below.size:
            below.watch(required, known)
        branch = below
    branch.entries[entry] = None
    entry.branch = branch
    if len(branch.entries) > branch.limit:
        _split(branch)
    else:
        branch.regroup()


def _way(branch: Branch, required: dict[NetQuestion, Hashable]) -> NetQuestion | None:
    """Returns the question of a branch whose answer the fewest entries share with this one; None if it
    requires no answer to any."""
    chosen: NetQuestion | None = None
    least = 0
    if not branch.questions:
        return None
    for question, answer in required.items():
        answers = branch.questions.get(question)
        if answers is not None:
            below = answers.get(answer)
            size = 0 if below is None else below.size
            if chosen is None or size < least:
                chosen, least = question, size
    return chosen


def _split(branch: Branch) -> None:
    """Takes up questions for the entries of a branch that has too many, and in turn for those below."""
    waiting = [branch]
    while waiting:
        branch = waiting.pop()
        if len(branch.entries) > branch.limit:
            known = branch.known()
            while len(branch.entries) > BUCKET:
                question = _best(branch, known)
                if question is None:
                    break
                waiting.extend(_move(branch, question, known))
            branch.limit = max(BUCKET, 2 * len(branch.entries))  # so trying in vain costs O(1) for each
        branch.regroup()


def _best(branch: Branch, known: set[NetQuestion]) -> NetQuestion | None:
    """Returns the question that leaves out the most entries, if each answer to it is as frequent; None if no
    question tells the entries apart."""
    counts: dict[NetQuestion, dict[Hashable, int]] = {}
    for entry in branch.entries:
        for question, answer in (entry.required() or {}).items():
            if question not in known:
                answers = counts.setdefault(question, {})
                answers[answer] = answers.get(answer, 0) + 1
    best: NetQuestion | None = None
    least = 0.0
    for question, answers in counts.items():
        if max(answers.values()) == branch.size:
            continue
        covered = sum(answers.values())
        share = 0.9 if question.kind == HAS else 1 / (len(answers) + 1)  # most values have the part
        score = len(branch.entries) - covered + covered * share
        if best is None or score < least:
            best, least = question, score
    return best


def _move(branch: Branch, question: NetQuestion, known: set[NetQuestion]) -> list[Branch]:
    """Moves the entries that a question concerns to the branches for its answers, which are returned."""
    branches: dict[Branch, None] = {}
    for entry in list(branch.entries):
        required = entry.required()
        if required is None or question not in required:
            continue
        below = branch.below(question, required[question])
        if below in branches:
            below.admit(required)
        else:
            below.watch(required, {question, *known})
        del branch.entries[entry]
        below.entries[entry] = None
        below.size += 1
        entry.branch = below
        branches[below] = None
    return list(branches)


def _remove(entry: LeafEntry) -> None:
    """Takes an entry out of the branches, and the branches that it leaves empty or small."""
    branch = entry.branch
    if branch is None:
        return
    entry.branch = None
    del branch.entries[entry]
    branch.regroup()
    while branch is not None:
        branch.size -= 1
        above, question = branch.above, branch.question
        if branch.questions and branch.size <= BUCKET // 2:
            _gather(branch)
        if not branch.size and above is not None and question is not None:
            above.drop(question, branch.answer)
        branch = above


def _gather(branch: Branch) -> None:
    """Takes all entries from the branches below, which go."""
    waiting = [branch]
    for each in waiting:
        for answers in each.questions.values():
            waiting.extend(answers.values())
    branch.questions.clear()
    branch.positions = None
    for each in waiting[1:]:
        for entry in each.entries:
            branch.entries[entry] = None
            entry.branch = branch
    branch.limit = BUCKET
    branch.regroup()
