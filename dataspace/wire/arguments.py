"""Arguments of requests: the kinds that there are, their bounds, and how one is read.

The table of verbs (``verbs.py``) is made of these.  A kind says what a value must be to be read at all; what
only the daemon knows, such as whether a pattern is valid, a topic there, or a limit of its configuration
kept, is checked where the request is carried out.

Always: a refusal has the name of the argument, the allowed values, and the found value.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from dataspace.errors import Refused
from dataspace.kernel.expectations import are_expectations
from dataspace.wire.packets import are_done
from index.values.values import Map, Value

MOST_TEXT: Final = 4_096
"""Characters of text."""

HIGHEST: Final = (1 << 63) - 1
MOST_CELLS: Final = 10_000
"""Deliveries in one argument."""


class ArgumentKind(enum.Enum):
    """What an argument is."""

    NUMBER = "number"
    EPOCH = "epoch"
    """The number of an epoch; -1 is before the first."""
    TIME = "time"
    """Microseconds since 1970."""
    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"
    TEXT = "text"
    FLAG = "flag"
    CHOICE = "choice"
    """One of some words."""
    MAP = "map"
    VALUE = "value"
    PATTERN = "pattern"
    """Any value: a pattern is checked where it is compiled."""
    TOPIC_TIME = "time of a topic"
    """Any value: the topic has its order."""
    SESSION = "session"
    """The name of a session, or its number."""
    START = "start"
    """An epoch, a time, or null for now."""
    PAIR = "pair"
    """Two numbers."""
    HINTS = "hints"
    """The name of a socket, or an array of spaces."""
    KEY = "key"
    KEYS = "keys"
    """Keys, and packed operations in place of keys."""
    OPERATIONS = "operations"
    ROWS = "rows"
    """Packed operations."""
    EXPECTATIONS = "expectations"
    CELLS = "cells"
    """Deliveries, each as epoch, position and token."""
    DONE = "done"
    """Pairs of a group and its deliveries."""


class Names(enum.Enum):
    """Whose names an argument is from."""

    OWNER = "owner"
    LEASE = "lease"
    CLIENT = "client"
    READER = "reader"
    GROUP = "group"
    TOPIC = "topic"
    PRODUCER = "producer"
    RULE = "rule"


class Absent(enum.Enum):
    """Why an argument has no default."""

    NEEDED = "needed"
    """A request without it is refused."""
    LEFT_OUT = "left out"
    """Every value has a meaning, null as well, and so has its absence."""


Default: TypeAlias = Value | Absent
NEEDED: Final = Absent.NEEDED


@dataclass(frozen=True, slots=True)
class RequestArgument:
    """One argument of a verb: its kind, its default and its bounds.

    Values that are lower than ``least`` or higher than ``most`` are refused, or, of a ``is_cut`` argument,
    read as that bound.  Of text and arrays these bound the length.
    """

    kind: ArgumentKind
    allowed: str
    """The allowed values, in words."""
    fits: Callable[[Value], bool]
    """True for a value that can be read; the default can be, whatever it is."""
    default: Default = NEEDED
    least: float = 0
    most: float = HIGHEST
    of: Names | None = None
    choices: tuple[str, ...] = ()
    is_cut: bool = False

    def read(self, name: str, value: Value) -> Value:
        """Returns the value of the argument ``name``; raises ``Refused`` for a value that is not allowed."""
        if self.fits(value):
            return self._cut(value) if self.is_cut else value
        if value is self.default:
            return value
        raise self.refusal(name, f"{value!r:.60}")

    def refusal(self, name: str, found: str = "nothing") -> Refused:
        """Returns what is raised for an argument that was found to be something else."""
        return Refused("bad-request", f"{name} must be {self.allowed}, got {found}")

    def _cut(self, value: Value) -> Value:
        return max(self.least, min(value, self.most))  # type: ignore[type-var]  # a number


# -- numbers -----------------------------------------------------------------------------------------


def number(
    default: Default = NEEDED,
    least: int = -1,
    most: int = HIGHEST,
    *,
    kind: ArgumentKind = ArgumentKind.NUMBER,
) -> RequestArgument:
    """Returns an argument that is an integer."""
    top = "2^63-1" if most == HIGHEST else str(most)
    return RequestArgument(kind, f"a number from {least} to {top}", _whole(least, most), default, least, most)


def epoch(default: Default = NEEDED) -> RequestArgument:
    """Returns an argument that is the number of an epoch."""
    return number(default, kind=ArgumentKind.EPOCH)


def time(default: Default = NEEDED) -> RequestArgument:
    """Returns an argument that is a time in microseconds since 1970."""
    return number(default, kind=ArgumentKind.TIME)


def at_most(default: Default, most: int) -> RequestArgument:
    """Returns an argument that is a count; one beyond ``most`` is read as that."""
    return _cut(ArgumentKind.NUMBER, default, most)


def milliseconds(default: Default, most: int) -> RequestArgument:
    """Returns an argument that is a time to wait; one beyond ``most`` is read as that."""
    return _cut(ArgumentKind.MILLISECONDS, default, most)


def seconds(default: Default, most: float, *, above: bool = False) -> RequestArgument:
    """Returns an argument that is a number of seconds from 0, or ``above`` it."""

    def fits(value: Value) -> bool:
        return (
            (value.__class__ is float or value.__class__ is int)
            and 0 <= value <= most
            and not (above and value == 0)
        )

    said = f"{'above 0 and up' if above else '0'} to {most:.0f} seconds"
    return RequestArgument(ArgumentKind.SECONDS, said, fits, default, 0, most)


def _cut(kind: ArgumentKind, default: Default, most: int) -> RequestArgument:
    return RequestArgument(
        kind, "a number from -1 to 2^63-1", _whole(-1, HIGHEST), default, 0, most, is_cut=True
    )


def _whole(least: int, most: int) -> Callable[[Value], bool]:
    def fits(value: Value) -> bool:
        return value.__class__ is int and least <= value <= most

    return fits


# -- texts and others --------------------------------------------------------------------------------


def text(
    default: Default = NEEDED, *, of: Names | None = None, least: int = 0, most: int = MOST_TEXT
) -> RequestArgument:
    """Returns an argument that is text of so many characters."""

    def fits(value: Value) -> bool:
        return value.__class__ is str and least <= len(value) <= most

    said = f"text of {f'{least} to' if least else 'at most'} {most} characters"
    return RequestArgument(ArgumentKind.TEXT, said, fits, default, least, most, of)


def choice(words: str, default: Default = NEEDED) -> RequestArgument:
    """Returns an argument that is one of some words."""
    choices = tuple(words.split())
    said = f"{', '.join(choices[:-1])} or {choices[-1]}"
    return RequestArgument(
        ArgumentKind.CHOICE, said, lambda value: value in choices, default, choices=choices
    )


def flag(default: bool = False) -> RequestArgument:
    """Returns an argument that is true or false."""
    return RequestArgument(ArgumentKind.FLAG, "true or false", lambda value: value.__class__ is bool, default)


def value(
    default: Default = NEEDED, kind: ArgumentKind = ArgumentKind.VALUE, *, of: Names | None = None
) -> RequestArgument:
    """Returns an argument that may be any value."""
    return RequestArgument(kind, f"a {kind.value}", lambda _value: True, default, of=of)


def pattern(default: Default = NEEDED) -> RequestArgument:
    """Returns an argument that is a pattern."""
    return value(default, ArgumentKind.PATTERN)


def pair(default: Default, of: str) -> RequestArgument:
    """Returns an argument that is two numbers."""
    return RequestArgument(ArgumentKind.PAIR, f"two {of}", _is_pair, default)


def cells(default: Default = ()) -> RequestArgument:
    """Returns an argument that is an array of deliveries."""
    said = f"an array of at most {MOST_CELLS} deliveries, each epoch, position and token"
    return RequestArgument(ArgumentKind.CELLS, said, _are_cells, default, 0, MOST_CELLS)


def key(default: Default = NEEDED) -> RequestArgument:
    """Returns an argument that is a key of staged operations."""
    return RequestArgument(ArgumentKind.KEY, "an array of text", is_key, default, 1)


def is_key(value: Value) -> bool:
    """True for an array of text, such as the key of staged operations."""
    return isinstance(value, tuple) and bool(value) and all(each.__class__ is str for each in value)


def _is_pair(value: Value) -> bool:
    return isinstance(value, tuple) and [*map(type, value)] == [int, int]


def _are_cells(value: Value) -> bool:
    if not isinstance(value, tuple) or len(value) > MOST_CELLS:
        return False
    for cell in value:
        if not isinstance(cell, tuple) or len(cell) != 3:
            return False
        epoch, position, token = cell
        if not (epoch.__class__ is position.__class__ is token.__class__ is int):
            return False
    return True


def _are_keys(value: Value) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, bytes) or is_key(each) for each in value)


def _is_session(value: Value) -> bool:
    return value.__class__ is int or (isinstance(value, str) and len(value) <= MOST_TEXT)


def _is_start(value: Value) -> bool:
    return value is None or value.__class__ is int or isinstance(value, datetime)


def _are_hints(value: Value) -> bool:
    return isinstance(value, tuple) or (isinstance(value, str) and len(value) <= MOST_TEXT)


_OTHERS: Final[dict[ArgumentKind, tuple[str, Callable[[Value], bool]]]] = {
    ArgumentKind.MAP: ("a map", lambda value: isinstance(value, Map)),
    ArgumentKind.SESSION: ("the name of a session such as 2.5, or its number", _is_session),
    ArgumentKind.START: ("an epoch, a time, or null for now", _is_start),
    ArgumentKind.HINTS: ("the name of a socket, or an array of spaces", _are_hints),
    ArgumentKind.KEYS: ("an array of keys, each an array of text, or of binary in place of one", _are_keys),
    ArgumentKind.OPERATIONS: ("an array of operations", lambda value: isinstance(value, tuple)),
    ArgumentKind.ROWS: ("binary", lambda value: isinstance(value, bytes)),
    ArgumentKind.EXPECTATIONS: ("an array of expectations", are_expectations),
    ArgumentKind.DONE: ("an array of pairs of a group and its deliveries", are_done),
}


def other(kind: ArgumentKind, default: Default = NEEDED) -> RequestArgument:
    """Returns an argument of a kind without bounds."""
    allowed, fits = _OTHERS[kind]
    return RequestArgument(kind, allowed, fits, default)
