"""Programs: what owners do, when, and what befalls the space meanwhile.

Always: the same seed draws the same program; a program without any of its parts is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias

from index.values.values import Value
from tests.generated.texts import CYCLE, HEADS, LITERALS, fact, neighbour, pattern, text
from tests.model.space import ASSERT, REPLACE, RETRACT, SEND

OWNERS: Final = ("s:1", "d:a")
HANDLES: Final = 6

Action: TypeAlias = tuple[object, ...]


class Turn(NamedTuple):
    """A turn of one owner, or of several: the others with their actions.

    One that is ``lost`` is undone, since the log does not take it.
    """

    owner: str
    actions: tuple[Action, ...]
    others: tuple[tuple[str, tuple[Action, ...]], ...] = ()
    lost: bool = False


class Toggle(NamedTuple):
    """A text of rules comes, or goes if it is there, in one turn with what owners do beside."""

    name: str
    text: str
    beside: tuple[tuple[str, tuple[Action, ...]], ...] = ()


class End(NamedTuple):
    """These owners end together; or do not, where the end is ``lost``."""

    owners: tuple[str, ...]
    lost: bool = False


class Watch(NamedTuple):
    """Observers of these patterns come, or go if they are there."""

    patterns: tuple[str, ...]


class Ask(NamedTuple):
    """A pattern is asked for its captures, whether or not it is observed."""

    pattern: str


class Pass(NamedTuple):
    """Time passes, in milliseconds; or the clock is put back."""

    millis: int


class Restart(NamedTuple):
    """The space ends, and goes on from its claims and its log.

    Of the log there are all epochs, or those of the last windows and what a snapshot has of the time before;
    or a space that has followed it goes on.
    """

    form: str


ANEW, RETAINED, RESTED, FOLLOWED = "anew", "retained", "rested", "followed"
"""Of a rested log retention has left the newest epoch, since nothing has happened for a while."""

Operation: TypeAlias = Turn | Toggle | End | Watch | Ask | Pass | Restart
Program: TypeAlias = tuple[Operation, ...]

SIMPLE: Final = ("atom", "not", "comparison", "assert", "aggregate")
FLAT, EDGES, WIDE = ("m", "m", "n", "j", "a", "b"), ("e", "e", "e", "j"), ("w",)


ALONE: Final = 4
"""Patterns that come and go alone."""


class Profile(NamedTuple):
    """Which constructs the rules of one program have, and the labels of its facts: of all at once each pair
    would be rare."""

    kinds: tuple[str, ...]
    labels: tuple[str, ...] = FLAT
    crowd: int = 0
    """Patterns that come and go together: so many that some are in a net."""


PROFILES: Final = (
    Profile((*SIMPLE, "group", "send")),
    Profile((*SIMPLE, "within")),
    Profile((*SIMPLE, "within", "at", "now")),
    Profile((*SIMPLE, "for", "final")),
    Profile((*SIMPLE, "group", "within", "for")),
    Profile((*SIMPLE, "next")),
    Profile(("atom", "assert", "within", "aggregate", "group", "send")),
    Profile(("atom", "at", "at", "assert")),
    Profile((CYCLE,), EDGES),
    Profile((*SIMPLE, "aggregate", "maybe", "maybe")),
    Profile(("atom", "assert"), WIDE, crowd=30),
)

assert {kind for profile in PROFILES for kind in profile.kinds} == {*LITERALS, *HEADS, "final", CYCLE}


def draw(seed: int, length: int = 18) -> Program:
    """Returns a program."""
    random = Random(seed)
    profile = PROFILES[seed % len(PROFILES)]
    texts = [text(random, profile.kinds) for _ in range(2)]
    watched: list[tuple[str, ...]] = [(pattern(random, profile.labels),) for _ in range(ALONE - 1)]
    watched.append((neighbour(watched[0][0]),))
    if profile.crowd:
        drawn = [pattern(random, profile.labels) for _ in range(profile.crowd)]
        crowd = tuple(dict.fromkeys([*drawn, *map(neighbour, drawn)]))
        parts = [crowd, crowd[: random.randrange(len(crowd))], crowd[random.choice([3, 5, 8]) :]]
        watched += [part for part in parts if part]
    drawing = _Drawing(random, profile.labels, texts, watched)
    first = [Toggle(f"r{at}", texts[at]) for at in range(random.choice([0, 1, 1, 2]))]
    return (*first, *[drawing.operation() for _ in range(length)])


class _Drawing:
    """What the operations of one program are drawn from; and which handles its owners claim by then, so that
    most actions name a handle as they may."""

    def __init__(
        self,
        random: Random,
        labels: Sequence[str],
        texts: Sequence[str],
        watched: Sequence[tuple[str, ...]],
    ) -> None:
        self.random = random
        self.labels = labels
        self.texts = texts
        self.watched = watched
        self.held: dict[str, set[int]] = {owner: set() for owner in OWNERS}
        self.latest: list[Value] = []

    def operation(self) -> Operation:
        random = self.random
        kinds = {"turn": 12, "toggle": 3, "end": 1, "pass": 5, "restart": 2, "watch": 4, "ask": 1}
        kinds["watch"] += 5 * (len(self.watched) > ALONE)
        is_lost = random.random() < 0.15
        match random.choices(list(kinds), list(kinds.values()))[0]:
            case "toggle":
                at = random.randrange(len(self.texts))
                return Toggle(f"r{at}", self.texts[at], self._parts(random.choice([0, 0, 1])))
            case "end":
                owners = tuple(random.sample(OWNERS, random.choice([1, 1, 2])))
                self.held.update({} if is_lost else {owner: set() for owner in owners})
                return End(owners, is_lost)
            case "pass":
                return Pass(random.choice([0, 1, 5, 10, 12, 37, 60, -7, -80]))
            case "restart":
                return Restart(random.choice([ANEW, RETAINED, RESTED, FOLLOWED]))
            case "watch":
                return Watch(random.choice(self.watched))
            case "ask":
                return Ask(random.choice(random.choice(self.watched)))
        parts = self._parts(random.choice([1, 1, 1, 2]), is_lost)
        return Turn(*parts[0], parts[1:], is_lost)

    def _parts(self, count: int, is_lost: bool = False) -> tuple[tuple[str, tuple[Action, ...]], ...]:
        """Returns what some owners do in one turn."""
        before = {owner: set(held) for owner, held in self.held.items()}
        parts = [(owner, self._actions(owner)) for owner in self.random.sample(OWNERS, count)]
        if is_lost or not all(_are_right(actions, before[owner]) for owner, actions in parts):
            self.held = before
        return tuple(parts)

    def _actions(self, owner: str) -> tuple[Action, ...]:
        return tuple([self._action(self.held[owner]) for _ in range(self.random.choice([1, 1, 2, 3, 4]))])

    def _action(self, held: set[int]) -> Action:
        """Returns an action, and changes what is ``held`` as it does."""
        random = self.random
        verb = random.choices([ASSERT, RETRACT, SEND, REPLACE], [8, 5, 6, 2])[0]
        if verb == SEND:
            return SEND, self._fact()
        free, known = [each for each in range(HANDLES) if each not in held], sorted(held)
        if random.random() < 0.1:
            free = known = list(range(HANDLES))
        if verb == RETRACT and known:
            old = random.choice(known)
            held.discard(old)
            return RETRACT, old
        new = random.choice(free or known)
        if verb == REPLACE and known:
            old = random.choice(known)
            held.discard(old)
            held.add(new)
            return REPLACE, old, new, self._fact()
        held.add(new)
        return ASSERT, new, self._fact()

    def _fact(self) -> Value:
        """Returns a fact: often one of the latest, so that several owners claim it, and messages equal it."""
        if self.latest and self.random.random() < 0.35:
            return self.random.choice(self.latest[-3:])
        self.latest.append(fact(self.random, self.labels))
        return self.latest[-1]


def _are_right(actions: Sequence[Action], held: set[int]) -> bool:
    """True if each action names a handle as it may, after those that are ``held``."""
    now = set(held)
    for verb, *rest in actions:
        if verb in (ASSERT, REPLACE) and rest[-2] in now:
            return False
        if verb in (RETRACT, REPLACE):
            if rest[0] not in now:
                return False
            now.discard(rest[0])
        if verb in (ASSERT, REPLACE):
            now.add(rest[-2])  # type: ignore[arg-type]  # as above
    return True


# -- smaller programs ---------------------------------------------------------------------------------


def less(operation: Operation) -> Iterator[Operation]:
    """Yields an operation without one of its parts."""
    match operation:
        case Turn(_, actions, others):
            for one in range(len(actions) if len(actions) > 1 else 0):
                yield operation._replace(actions=actions[:one] + actions[one + 1 :])
            if others:
                yield operation._replace(others=())
        case Toggle(_, text, beside):
            if beside:
                yield operation._replace(beside=())
            if (rules := text.split(". "))[1:]:
                yield operation._replace(text=rules[0] + ".")
        case Watch(patterns) if len(patterns) > 1:
            size = max(len(patterns) // 4, 1)
            for one in range(0, len(patterns), size):
                yield Watch(patterns[:one] + patterns[one + size :])
