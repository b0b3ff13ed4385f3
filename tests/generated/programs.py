"""Programs: what owners do, when, and what befalls the space meanwhile.

A program that fails is made smaller: operations are left out, and actions, for as long as it fails alike.

Always: the same seed draws the same program; a program without any of its parts is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias

from index.values.values import Record, Value
from tests.generated.texts import HEADS, LITERALS, text
from tests.model.space import ASSERT, REPLACE, RETRACT, SEND

OWNERS: Final = ("s:1", "d:a")
KEYS: Final = ("a", "b")
HANDLES: Final = 6

Action: TypeAlias = tuple[object, ...]


class Turn(NamedTuple):
    """A turn of one owner."""

    owner: str
    actions: tuple[Action, ...]


class Toggle(NamedTuple):
    """A text of rules comes, or goes if it is there."""

    name: str
    text: str


class End(NamedTuple):
    """These owners end together."""

    owners: tuple[str, ...]


class Pass(NamedTuple):
    """Time passes, in milliseconds."""

    millis: int


class Restart(NamedTuple):
    """The space ends, and goes on from its claims and its log."""


Operation: TypeAlias = Turn | Toggle | End | Pass | Restart
Program: TypeAlias = tuple[Operation, ...]

SIMPLE: Final = ("atom", "not", "comparison", "assert", "aggregate")
PROFILES: Final = (
    (*SIMPLE, "group", "send"),
    (*SIMPLE, "within"),
    (*SIMPLE, "within", "at", "now"),
    (*SIMPLE, "for", "final"),
    (*SIMPLE, "group", "within", "for"),
    (*SIMPLE, "next"),
    ("atom", "assert", "within", "aggregate", "send"),
)
"""Which constructs the rules of one program have: of all at once each pair would be rare."""

assert {each for profile in PROFILES for each in profile} == {*LITERALS, *HEADS, "final"}


def draw(seed: int, length: int = 14) -> Program:
    """Returns a program."""
    random = Random(seed)
    texts = [text(random, PROFILES[seed % len(PROFILES)]) for _ in range(2)]
    return tuple([_operation(random, texts) for _ in range(length)])


def _operation(random: Random, texts: Sequence[str]) -> Operation:
    kind = random.choices(["turn", "toggle", "end", "pass", "restart"], [12, 3, 1, 5, 1])[0]
    match kind:
        case "toggle":
            at = random.randrange(len(texts))
            return Toggle(f"r{at}", texts[at])
        case "end":
            return End(tuple(random.sample(OWNERS, random.choice([1, 1, 2]))))
        case "pass":
            return Pass(random.choice([0, 1, 5, 10, 12, 37, 60]))
        case "restart":
            return Restart()
    return Turn(
        random.choice(OWNERS), tuple([_action(random) for _ in range(random.choice([1, 1, 2, 3, 4]))])
    )


def _fact(random: Random) -> Value:
    key = random.choice(KEYS)
    return random.choice(
        [Record("m", key, random.randrange(2)), Record("n", key), Record("j", random.randrange(2))]
    )


def _action(random: Random) -> Action:
    handle = random.randrange(HANDLES)
    match random.choices([ASSERT, RETRACT, SEND, REPLACE], [8, 5, 6, 2])[0]:
        case 0:
            return ASSERT, handle, _fact(random)
        case 1:
            return RETRACT, handle
        case 2:
            return SEND, _fact(random)
    return REPLACE, handle, random.randrange(HANDLES), _fact(random)


# -- smaller programs ---------------------------------------------------------------------------------

Fails: TypeAlias = Callable[[Program], str | None]
"""Returns what is wrong with a program, or None."""


def kind_of(said: str) -> str:
    """Returns what two failures have in common that are alike: the first words, without values."""
    return re.sub(r"[0-9]+|[({\[].*", "", said.partition(": ")[2])[:40]


def shrunk(program: Program, fails: Fails, tries: int = 400) -> Program:
    """Returns a program that fails alike, from which nothing can be left out, or as small as was found."""
    said = fails(program)
    assert said is not None  # as the caller knows
    kind, smaller = kind_of(said), True
    while smaller and tries > 0:
        smaller = False
        for each in _smaller(program):
            tries -= 1
            if (found := fails(each)) is not None and kind_of(found) == kind:
                program, smaller = each, True
                break
            if tries <= 0:
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    size = len(program) // 2
    while size:
        for at in range(0, len(program), size):
            yield program[:at] + program[at + size :]
        size //= 2
    for at, each in enumerate(program):
        if isinstance(each, Turn) and len(each.actions) > 1:
            for one in range(len(each.actions)):
                less = Turn(each.owner, each.actions[:one] + each.actions[one + 1 :])
                yield (*program[:at], less, *program[at + 1 :])
        if isinstance(each, Toggle) and (rules := each.text.split(". "))[1:]:
            yield (*program[:at], Toggle(each.name, rules[0] + "."), *program[at + 1 :])
