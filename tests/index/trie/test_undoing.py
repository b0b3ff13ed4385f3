"""A handler is installed, prepared and removed whole or not at all, whatever raises at whatever line."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from index.patterns.events import Captures, Event
from index.patterns.patterns import DISCARD, capture, exact, skeleton
from index.trie.trie import Index
from index.values.values import COMPILED, Map, Record, Value, keys
from tests.striking import strike

pytestmark = pytest.mark.skipif(COMPILED, reason="machine code has no lines that could be struck")

THOROUGH = "TORTURE_ROUNDS" in os.environ
STRIDE = 71
"""Without torture each operation is struck at some lines only, and not all of them at the same ones."""

X = capture("x")


def p(*fields: Value) -> Record:
    return Record("p", *fields)


FACTS: tuple[Value, ...] = (
    *[p(n, Record("q", n)) for n in range(3)],
    p(1, Record("q", 2)),
    p(Map({"k": 1}), 1),
    p(Record("q"), 1),
    p(1),
    (1,),
    1,
)
LATER: tuple[Value, ...] = (p(1, Record("q", 5)), p(5, Record("q", 5)), p(Map({"k": 2}), 2), (5,))
BASE: tuple[Value, ...] = (p(1, DISCARD), p(X), (X,))
"""What is observed all the time."""


class _Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []

    def __call__(self, event: Event, row: Captures) -> None:
        self.heard.append((event.value, keys(row)))


class _Room:
    """An index with facts and handlers, and the ear and the list that operations use."""

    def __init__(self, prepare: Callable[[_Room], object], in_trie: int) -> None:
        self.index = Index(in_trie=in_trie)
        self.index.patch(FACTS, ())
        self.ears = [_Ear() for _ in BASE]
        for pattern, ear in zip(BASE, self.ears, strict=True):
            self.index.add_handler(skeleton(pattern), ear)
        self.ear, self.second, self.held = _Ear(), _Ear(), list[Captures]()
        prepare(self)

    def add(self, pattern: Value, *, tells: bool = True, second: bool = False, cleans: bool = False) -> None:
        self.index.add_handler(
            skeleton(pattern),
            self.second if second else self.ear,
            tells=tells,
            cleanup=self.held.extend if cleans else None,
        )

    def add_both(self, pattern: Value) -> None:
        self.add(pattern)
        self.add(pattern, second=True)

    def remove(self, pattern: Value) -> None:
        self.index.remove_handler(skeleton(pattern), self.ear)

    def fill(self, pattern: Value, steps: int, count: int = 2) -> None:
        for _ in range(steps):
            self.index.fill(skeleton(pattern), count)

    def state(self, pattern: Value) -> Any:
        """The handlers of a pattern and all others, once what is pending is filed."""
        index, form = self.index, skeleton(pattern)
        rows = index.matches(form)
        installed = [index.has_handler(form, ear) for ear in (self.ear, self.second)]
        counts = [index.row_count(form, row) for row in rows if any(installed)]
        index.check()
        drawn = sorted(index.draw(most=100).splitlines())
        return index.statistics(), drawn, installed, [keys(row) for row in rows], counts


Act = Callable[[_Room, Value], object]


def _nothing(_room: _Room, _pattern: Value) -> None: ...


OPERATIONS: dict[str, tuple[Act, Act]] = {
    "add": (_nothing, lambda room, pattern: room.add(pattern)),
    "add in silence": (_nothing, lambda room, pattern: room.add(pattern, tells=False)),
    "add with a cleanup": (_nothing, lambda room, pattern: room.add(pattern, cleans=True)),
    "add a second": (
        lambda room, pattern: room.add(pattern),
        lambda room, pattern: room.add(pattern, second=True),
    ),
    "add a second to one with a cleanup": (
        lambda room, pattern: room.add(pattern, cleans=True),
        lambda room, pattern: room.add(pattern, second=True),
    ),
    "begin": (_nothing, lambda room, pattern: room.fill(pattern, 1)),
    "fill": (lambda room, pattern: room.fill(pattern, 1), lambda room, pattern: room.fill(pattern, 2)),
    "fill all": (lambda room, pattern: room.fill(pattern, 1), lambda room, pattern: room.fill(pattern, 9)),
    "add what is half filled": (
        lambda room, pattern: room.fill(pattern, 2),
        lambda room, pattern: room.add(pattern),
    ),
    "add what is filled": (
        lambda room, pattern: room.fill(pattern, 9),
        lambda room, pattern: room.add(pattern, tells=False),
    ),
    "match what is half filled": (
        lambda room, pattern: room.fill(pattern, 2),
        lambda room, pattern: room.index.matches(skeleton(pattern)),
    ),
    "drop": (
        lambda room, pattern: room.fill(pattern, 2),
        lambda room, pattern: room.index.drop_idle(skeleton(pattern)),
    ),
    "remove": (lambda room, pattern: room.add(pattern), lambda room, pattern: room.remove(pattern)),
    "remove with a cleanup": (
        lambda room, pattern: room.add(pattern, cleans=True),
        lambda room, pattern: room.remove(pattern),
    ),
    "remove one of two": (
        lambda room, pattern: room.add_both(pattern),
        lambda room, pattern: room.remove(pattern),
    ),
}
PATTERNS: dict[str, Value] = {
    "a new shape below": p(X, Record("q", X)),
    "a shape of its own": (Record("q", X), X),
    "a new group": p(X, X),
    "of a repeated name one level down": p(Record("q", X), X),
    "a map": p(Map({"k": X}), X),
    "a new constant": p(2, DISCARD),
    "an idle constant of several": p(1, X),
    "everything": X,
    "exactly": exact(p(X)),
    "further captures of a leaf": p(1, capture(None, None, DISCARD)),
}


def _following(room: _Room, pattern: Value) -> Any:
    """What all ears hear of later changes, with the pattern observed once more; and that all can go."""
    index, ear = room.index, _Ear()
    for each in (*room.ears, room.ear, room.second):
        each.heard.clear()
    index.patch(LATER[:2], [FACTS[0]], [LATER[2]])
    index.add(LATER[3])
    index.check()
    while not index.fill(skeleton(pattern), 3):
        pass
    index.add_handler(skeleton(pattern), ear)
    index.replace(LATER[2], LATER[3])
    index.remove(FACTS[1])
    index.send(FACTS[1])
    index.check()
    heard = [sorted(map(repr, each.heard)) for each in (*room.ears, room.ear, room.second, ear)]
    order = [row for _, row in ear.heard]
    index.remove_handler(skeleton(pattern), ear)
    for base, each in zip(BASE, room.ears, strict=True):
        index.remove_handler(skeleton(base), each)
    for each in (room.ear, room.second):
        if index.has_handler(skeleton(pattern), each):
            index.remove_handler(skeleton(pattern), each)
    index.check()
    parts = index.statistics()
    assert (parts.nodes, parts.groups, parts.leaves, parts.handlers) == (1, 0, 0, 0)
    return heard, order


def _check(name: str, pattern: Value, at: int, error: type[BaseException], in_trie: int) -> bool:
    """One operation that is struck, beside rooms where it was not: whether it was long enough for that."""
    prepare, act = OPERATIONS[name]
    rooms = [_Room(lambda room: prepare(room, pattern), in_trie) for _ in range(4)]
    room, before, done, dropped = rooms
    is_struck = False
    try:
        with strike(at, error):
            act(room, pattern)
    except error as raised:
        assert "struck" in str(raised)
        is_struck = True
    if not is_struck:
        return False
    room.index.calm()  # as its caller does: it may have been struck where a callback had ended
    act(done, pattern)
    dropped.index.drop_idle(skeleton(pattern))  # a preparation that fails is dropped
    held, state = room.held[:], room.state(pattern)
    like = [each for each in (before, done, dropped) if each.state(pattern) == state]
    assert like, "it is as before, or done, or nothing is prepared"
    assert held in ([], done.held), "a cleanup is called once at most"
    assert _following(room, pattern) == _following(like[0], pattern)
    return True


@pytest.mark.torture
@pytest.mark.parametrize(
    ("error", "in_trie"), [(KeyboardInterrupt, 16), (RuntimeError, 16), (KeyboardInterrupt, 0)]
)
@pytest.mark.parametrize("of", PATTERNS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_exception_at_any_line_leaves_all_or_nothing(
    name: str, of: str, error: type[BaseException], in_trie: int
) -> None:
    at = 1 + (0 if THOROUGH else (len(name) + len(of) + len(error.__name__)) % STRIDE)
    while _check(name, PATTERNS[of], at, error, in_trie):
        at += 1 if THOROUGH else STRIDE
    assert at > 10
