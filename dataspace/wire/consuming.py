"""What a member of a group says when it joins: one record for the clients and the daemon.

``RemoteSpace.consume`` says what each option means; WIRE.md, what stands in the ``spec`` of an ``Open``.

Always: a record that exists makes sense by itself; the group may still have other options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self, TypeAlias

from dataspace.errors import UsageError
from index.values.values import Map, Value

MOST_IN_FLIGHT: Final = 10_000
LONGEST_SECONDS: Final = 43_200.0
"""Seconds that a deadline or a postponement may be: 12 hours."""

MOST_ATTEMPTS: Final = 1_000
MOST_OUT: Final = 100_000
MOST_RATE: Final = 1_000_000.0
"""Jobs a second."""

MOST_BACKOFFS: Final = 100
KINDS: Final = "+-!"
"""What a group may divide: facts that appear, facts that go, and messages."""

MOST_NAME: Final = 256
AHEAD: Final = 64
"""Values beside its deliveries that a member asks for ahead: marks about what it has."""

Start: TypeAlias = "str | int | datetime"
STARTS: Final = ("now", "held")
OPTIONS: Final = frozenset(
    [
        "kind",
        "space",
        "pattern",
        "group",
        "in_flight",
        "key",
        "ack_within",
        "attempts",
        "begin",
        "holding",
        "quiet",
        "topic",
        "most_out",
        "backoff",
        "rate",
        "exclusive",
        "kinds",
        "priority",
    ]
)


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """Options of one member of a group; without a pattern or a topic it joins a group that exists.

    ``holding`` are the deliveries of an earlier connection, each as epoch, position and token.  Raises
    ``UsageError`` for an option that has no such value.
    """

    group: str
    pattern: Value = None
    in_flight: int = 1
    key: str | None = None
    ack_within: float | None = None
    attempts: int | None = None
    begin: Start = "now"
    holding: tuple[tuple[int, int, int], ...] = ()
    quiet: bool = False
    topic: str | None = None
    most_out: int | None = None
    backoff: float | tuple[float, ...] | None = None
    rate: float | None = None
    exclusive: bool | None = None
    kinds: str | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        check_group(self.group)
        _check("in_flight", self.in_flight, _whole(1, MOST_IN_FLIGHT), f"1 to {MOST_IN_FLIGHT}")
        _check("key", self.key, lambda key: key is None or key.__class__ is str, "the name of a capture")
        within = f"more than 0 and at most {LONGEST_SECONDS:.0f} seconds"
        _check("ack_within", self.ack_within, _seconds, within)
        attempts = f"0 to {MOST_ATTEMPTS}, 0 for no limit"
        _check("attempts", self.attempts, lambda n: n is None or _whole(0, MOST_ATTEMPTS)(n), attempts)
        _check("start", self.begin, _is_start, "'now', 'held', an epoch or a time")
        _check("quiet", self.quiet, lambda quiet: quiet.__class__ is bool, "true or false")
        _check("topic", self.topic, _is_topic, f"the name of a topic, of at most {MOST_NAME} characters")
        if self.topic is not None and self.begin == "held":
            raise UsageError("start='held' means facts, and a topic has none: start=1 is its beginning")
        _check("most_out", self.most_out, is_most_out, f"0 to {MOST_OUT}, 0 for no limit")
        _check("backoff", self.backoff, is_backoff, BACKOFF_ALLOWED)
        _check("rate", self.rate, is_rate, f"0 to {MOST_RATE:.0f} jobs a second, 0 for no limit")
        _check(
            "exclusive", self.exclusive, lambda flag: flag is None or flag.__class__ is bool, "true or false"
        )
        _check("kinds", self.kinds, _are_kinds, f"one or more of {KINDS!r}, each once and in this order")
        _check(
            "priority",
            self.priority,
            lambda name: name is None or name.__class__ is str,
            "the name of a capture",
        )
        self._check_together()
        _check("holding", self.holding, _are_cells, "deliveries: epoch, position and token")

    def _check_together(self) -> None:
        """Raises ``UsageError`` for kinds that do not go with another option."""
        if self.kinds is None:
            return
        if self.topic is not None and self.kinds != "+!":
            raise UsageError(f"kinds={self.kinds!r} are of facts and messages, and a topic has neither")
        if self.begin == "held" and "+" not in self.kinds:
            raise UsageError(f"start='held' means facts that hold, and kinds={self.kinds!r} leaves facts out")

    @classmethod
    def read(cls, spec: Map) -> Self:
        """Returns the options in the ``spec`` of an ``Open``; ``UsageError`` says what is wrong with it."""
        unknown = [str(name) for name in spec if name not in OPTIONS]
        if unknown:
            raise UsageError(f"no option {unknown[0]!r}, known are {', '.join(sorted(OPTIONS))}")
        if "group" not in spec:
            raise UsageError("the name of a group is needed")
        given = {str(name): value for name, value in spec.pairs() if name not in ("kind", "space")}
        return cls(**given)  # type: ignore[arg-type]  # checked as it is made

    def spec(self) -> dict[str, Value]:
        """Returns what an ``Open`` says of this, without what is usual."""
        spec: dict[str, Value] = {"kind": "consume", "group": self.group}
        if self.pattern is not None:
            spec["pattern"] = self.pattern
        for name, usual in _USUAL.items():
            value = getattr(self, name)
            if value != usual:
                spec[name] = value
        return spec


_USUAL: Final[dict[str, object]] = {
    "in_flight": 1,
    "key": None,
    "ack_within": None,
    "attempts": None,
    "begin": "now",
    "holding": (),
    "quiet": False,
    "topic": None,
    "most_out": None,
    "backoff": None,
    "rate": None,
    "exclusive": None,
    "kinds": None,
    "priority": None,
}


def check_group(name: object) -> None:
    """Raises ``UsageError`` for an object that is no name of a group."""
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or " @ " in name:
        raise UsageError(f"a group is named by text of 1 to {MOST_NAME} characters, got {name!r:.60}")


def _check(name: str, value: object, is_right: Callable[[object], bool], allowed: str) -> None:
    if not is_right(value):
        raise UsageError(f"{name} must be {allowed}, got {value!r:.60}")


def _whole(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and value.__class__ is int and least <= value <= most


def _seconds(value: object) -> bool:
    return value is None or (
        isinstance(value, int | float) and value.__class__ is not bool and 0 < value <= LONGEST_SECONDS
    )


BACKOFF_ALLOWED: Final = (
    f"0 to {LONGEST_SECONDS:.0f} seconds, which double each time, or 1 to {MOST_BACKOFFS} such waits,"
    " one after the other"
)


def is_backoff(value: object) -> bool:
    """True for what ``backoff`` may be, None included."""
    waits = value if isinstance(value, tuple) else (value,)
    return value is None or (
        0 < len(waits) <= MOST_BACKOFFS and all(_number(LONGEST_SECONDS)(each) for each in waits)
    )


def is_most_out(value: object) -> bool:
    """True for what ``most_out`` may be, None included."""
    return value is None or _whole(0, MOST_OUT)(value)


def is_rate(value: object) -> bool:
    """True for what ``rate`` may be, None included."""
    return value is None or _number(MOST_RATE)(value)


def _number(most: float) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int | float) and value.__class__ is not bool and 0 <= value <= most


def _are_kinds(value: object) -> bool:
    return value is None or (
        isinstance(value, str) and bool(value) and value == "".join([each for each in KINDS if each in value])
    )


def _is_start(value: object) -> bool:
    if value.__class__ is int:
        return _whole(0, (1 << 63) - 1)(value)
    return value in STARTS or (isinstance(value, datetime) and value.tzinfo is not None)


def _is_topic(value: object) -> bool:
    return value is None or (isinstance(value, str) and 0 < len(value) <= MOST_NAME)


def _are_cells(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(each, tuple) and len(each) == 3 and all(map(_whole(0, (1 << 63) - 1), each))
        for each in value
    )
