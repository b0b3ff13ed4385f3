"""Questions: what a discrimination net asks of a value to find the groups that it may meet.

A question is about one position: which constant is there, which structure, which class of atom, how many
parts, anything at all, or the same as elsewhere?  What a group requires of values are answers to questions
(``requirements``).

Forms may be told apart by ever other positions, such as one key of many in a map.  A branch with as many
questions as that would ask each of them, though a value has few of the positions.  So its questions are kept
by *position* as well, and are found by going down the value and the positions together.

Always: the answer for a part that is missing fits no requirement.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeAlias

from index.patterns.skeletons import ATOM_CLASSES, Check, CheckKind, Skeleton
from index.values.positions import MISSING, Missing, Path, Step, class_of, project, size_of
from index.values.values import Map, Record, Value, key

CONSTANT: Final = 0
STRUCTURE: Final = 1
CLASS: Final = 2
SIZE: Final = 3
SAME: Final = 4
HAS: Final = 5

_KINDS: Final[dict[CheckKind, int]] = {
    CheckKind.CLASS: CLASS,
    CheckKind.SIZE: SIZE,
    CheckKind.SAME: SAME,
    CheckKind.HAS: HAS,
}


class NetQuestion:
    """What a net asks of a value: the key, the structure, the class, the size or the existence of a part,
    or if it is the same as another part."""

    __slots__ = ("check", "kind", "path")

    def __init__(self, kind: int, path: Path, check: Check | None) -> None:
        self.kind: Final = kind
        self.path: Final = path
        self.check: Final = check

    def answer(self, value: Value) -> Hashable:
        """Returns the answer for a value; O(path), and O(size) for the key of a large part."""
        part = project(value, self.path)
        return MISSING if isinstance(part, Missing) else self.answer_at(part, value)

    def answer_at(self, part: Value, value: Value) -> Hashable:
        """Returns the answer for the part of a value at its position."""
        kind = self.kind
        if kind == CONSTANT:
            return key(part)
        if kind == STRUCTURE:
            return class_of(part)
        if kind == CLASS:
            return part.__class__  # type: ignore[return-value]  # a class is hashable
        if kind == SIZE:
            return size_of(part)
        return self.check is None or self.check.holds(value)


Asked: TypeAlias = tuple[int, Path, Check | None]
"""What makes a question: its kind, its position, and its check where two positions are compared."""


def questions_of(skeleton: Skeleton) -> list[Asked]:
    """Returns what is asked for a skeleton, constants first; the label of its values is known."""
    asked: list[Asked] = []
    asked += [(CONSTANT, path, None) for path, _ in skeleton.constants]
    asked += [(STRUCTURE, path, None) for path, _ in skeleton.shape[1:]]
    for check in skeleton.checks:
        kind = _KINDS[check.kind]
        asked.append((kind, check.path, check if kind == SAME else None))
    return asked


def requirements(skeleton: Skeleton) -> tuple[Hashable, ...]:
    """Returns the answers that a skeleton requires, in the order of its questions."""
    answers: list[Hashable] = [key(constant) for _, constant in skeleton.constants]
    answers += [of_class for _, of_class in skeleton.shape[1:]]
    for check in skeleton.checks:
        if check.kind is CheckKind.CLASS:
            answers.append(ATOM_CLASSES[check.argument])  # type: ignore[index]  # a name of one
        else:
            answers.append(check.argument if check.kind is CheckKind.SIZE else True)
    return tuple(answers)


class NetPosition:
    """The questions about one position, and the positions below it."""

    __slots__ = ("below", "questions")

    def __init__(self) -> None:
        self.below: dict[Step, NetPosition] = {}
        self.questions: dict[NetQuestion, None] = {}

    def add(self, question: NetQuestion) -> None:
        """Adds a question about a position from here; O(path)."""
        at = self
        for by in question.path:
            below = at.below.get(by)
            if below is None:
                below = at.below[by] = NetPosition()
            at = below
        at.questions[question] = None

    def remove(self, question: NetQuestion) -> None:
        """Removes a question, and positions without any; O(path)."""
        way = [self]
        for by in question.path:
            way.append(way[-1].below[by])
        del way[-1].questions[question]
        for by in reversed(question.path):
            at = way.pop()
            if at.questions or at.below:
                return
            del way[-1].below[by]

    def all(self) -> list[NetQuestion]:
        """Returns all questions, in no particular order."""
        found: list[NetQuestion] = []
        waiting = [self]
        for at in waiting:
            found += at.questions
            waiting.extend(at.below.values())
        return found

    def answers(self, value: Value) -> list[tuple[NetQuestion, Hashable]]:
        """Returns the questions about parts that a value has, with its answers; O(positions here or parts of
        the value, whichever are fewer at each level)."""
        found: list[tuple[NetQuestion, Hashable]] = []
        waiting: list[tuple[NetPosition, Value]] = [(self, value)]
        for at, part in waiting:  # which grows
            for question in at.questions:
                found.append((question, question.answer_at(part, value)))
            if at.below:
                _go_down(at.below, part, waiting)
        return found


def _go_down(below: dict[Step, NetPosition], whole: Value, waiting: list[tuple[NetPosition, Value]]) -> None:
    """Adds the positions that a whole has parts at, with these."""
    if isinstance(whole, Map):
        entries = whole._entries
        if len(entries) < len(below):
            for at, entry in entries.items():
                known = below.get((at,))
                if known is not None:
                    waiting.append((known, entry[1]))
            return
        for by, position in below.items():
            if not isinstance(by, int) and by[0] in entries:
                waiting.append((position, entries[by[0]][1]))
        return
    parts = whole.fields if isinstance(whole, Record) else whole
    if not isinstance(parts, tuple):
        return
    if len(parts) < len(below):
        for index in range(len(parts)):
            known = below.get(index)
            if known is not None:
                waiting.append((known, parts[index]))
        return
    for by, position in below.items():
        if isinstance(by, int) and by < len(parts):
            waiting.append((position, parts[by]))
