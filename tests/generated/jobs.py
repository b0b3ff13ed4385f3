"""Programs of a group: jobs, what its members do with them, and starts in between.

Members are named by letters, and the jobs that they have by their places, so that a program stays one when
something is left out.

Always: the same seed draws the same program.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple, TypeAlias

KEYS: Final = ("a", "b")
MEMBERS: Final = ("m", "n", "o")
PLACES: Final = 4


class Options(NamedTuple):
    """The options of the group, with which a program begins; without them it has no key and no limit.

    With ``levels`` the number of a job is its priority; with ``parks`` values of jobs that wait for long are
    read again.  Endings are jobs of groups with a key.
    """

    is_keyed: bool = False
    attempts: int = 0
    most_out: int = 0
    rate: float = 0.0
    exclusive: bool = False
    levels: bool = False
    endings: bool = False
    backoffs: tuple[float, ...] = ()
    parks: bool = False


class Come(NamedTuple):
    """An epoch of rows, each a key, a number, and whether it is a message; a group that keeps up reads it."""

    rows: tuple[tuple[str, int, bool], ...]
    keeps_up: bool = True


class Go(NamedTuple):
    """A fact goes, if it is there."""

    key: str
    number: int


class Read(NamedTuple):
    """The group reads so many rows that it has not read."""

    most: int


class Join(NamedTuple):
    """A member comes, with room for so many jobs; one that is there comes again, and keeps what it has."""

    member: str
    in_flight: int


class Leave(NamedTuple):
    """A member goes; if its session has ended, what it had begun has failed."""

    member: str
    is_ended: bool


class Fall(NamedTuple):
    """A member gets nothing: its connection is gone, or a deadline is over."""

    member: str
    is_gone: bool


class Hear(NamedTuple):
    """A member whose deadline was over says something."""

    member: str


class HandOut(NamedTuple):
    """The group hands out what it can."""


class Begin(NamedTuple):
    """The program of a member takes the first job that it has not taken."""

    member: str


class Done(NamedTuple):
    """A member reports jobs, by their places: its own, others', of former deliveries, or ahead."""

    member: str
    cells: tuple[tuple[str, int], ...]


class Again(NamedTuple):
    """A member gives a job back, by its place, for so many seconds; perhaps it is to blame."""

    member: str
    place: int
    after: float
    blame: bool


class Retry(NamedTuple):
    """All dead letters are to be done."""


class Pass(NamedTuple):
    """Time passes."""

    seconds: float


class Save(NamedTuple):
    """A checkpoint is written, and what the log is not needed for any more is deleted."""


class Start(NamedTuple):
    """The daemon starts again; its members are gone."""


class Keep(NamedTuple):
    """A member says that it still has a job, of a former delivery by its place."""

    member: str
    place: int


Operation: TypeAlias = (
    Options
    | Come
    | Go
    | Read
    | Join
    | Leave
    | Fall
    | Hear
    | HandOut
    | Begin
    | Done
    | Again
    | Retry
    | Pass
    | Save
    | Start
    | Keep
)
Program: TypeAlias = tuple[Operation, ...]


def draw(seed: int) -> Program:
    """Returns the program of a seed."""
    random = Random(f"jobs {seed}")
    options = Options(random.random() < 0.5, random.choice((0, 0, 2, 3)))
    if random.random() < 0.6:
        options = _further(random, options)
    if random.random() < 0.1:
        options = Options(attempts=options.attempts, backoffs=(20.0,), levels=options.levels, parks=True)
    keeps_up = random.choice((1.0, 0.9, 0.5))
    starts = random.choice((0, 0, 2, 5))
    joins = [Join(each, random.choice((1, 2, 4))) for each in MEMBERS[: random.randint(1, 3)]]
    weights = {
        _come: 10, _go: 3, _read: 4, _join: 3, _leave: 3, _hand_out: 12, _begin: 6, _done: 10, _again: 8,
        _retry: 2, _pass: 5, _save: 2, _start: starts, _keep: starts * 2,
        _fall: random.choice((0, 0, 2)), _hear: 1,
    }  # fmt: skip
    length = random.randint(100, 200) if random.random() < 0.05 else random.randint(10, 50)
    kinds = random.choices(list(weights), list(weights.values()), k=length)
    drawn = [kind(random, keeps_up) for kind in kinds]
    drawn_out = [
        [each, *[HandOut()] * (isinstance(each, (Come, Join, Pass)) and random.random() < 0.5)]
        for each in drawn
    ]
    return (options, *joins, *[each for some in drawn_out for each in some])


def _further(random: Random, options: Options) -> Options:
    """Returns options with some of those that most groups do not have."""
    return options._replace(
        most_out=random.choice((0, 0, 1, 2, 4, 5)),
        rate=random.choice((0.0, 0.0, 0.0, 1.0, 5.0, 30.0)),
        exclusive=random.random() < 0.2,
        levels=random.random() < 0.4,
        endings=options.is_keyed and random.random() < 0.4,
        backoffs=random.choice(((), (), (0.2, 30.0), (20.0,))),
        parks=random.random() < 0.5,
    )


def less(operation: Operation) -> Iterator[Operation]:
    """Yields an operation without one of its parts."""
    match operation:
        case Come(rows, keeps_up) if len(rows) > 1:
            yield from [Come((*rows[:at], *rows[at + 1 :]), keeps_up) for at in range(len(rows))]
        case Done(member, cells) if len(cells) > 1:
            yield from [Done(member, (*cells[:at], *cells[at + 1 :])) for at in range(len(cells))]
        case Options():
            usual = Options()
            for name in Options._fields:
                if getattr(operation, name) != getattr(usual, name):
                    without = operation._replace(**{name: getattr(usual, name)})
                    yield without if without.is_keyed else without._replace(endings=False)


def _come(random: Random, keeps_up: float) -> Operation:
    rows = [
        (random.choice(KEYS), random.randrange(3), random.random() < 0.6)
        for _ in range(random.choice((1, 1, 1, 2, 3, 6)))
    ]
    return Come(tuple(sorted(rows, key=lambda each: each[2])), random.random() < keeps_up)


def _go(random: Random, _: float) -> Operation:
    return Go(random.choice(KEYS), random.randrange(3))


def _read(random: Random, _: float) -> Operation:
    return Read(random.randint(1, 3))


def _join(random: Random, _: float) -> Operation:
    return Join(random.choice(MEMBERS), random.choice((1, 2, 4)))


def _leave(random: Random, _: float) -> Operation:
    return Leave(random.choice(MEMBERS), random.random() < 0.6)


def _hand_out(_random: Random, _: float) -> Operation:
    return HandOut()


def _begin(random: Random, _: float) -> Operation:
    return Begin(random.choice(MEMBERS))


def _done(random: Random, _: float) -> Operation:
    kinds = random.choices(("mine", "mine", "mine", "other", "former", "ahead"), k=random.choice((1, 1, 2)))
    return Done(random.choice(MEMBERS), tuple([(each, random.randrange(PLACES)) for each in kinds]))


def _again(random: Random, _: float) -> Operation:
    after = random.choice((0.0, 0.0, 0.05, 1.0))
    return Again(random.choice(MEMBERS), random.randrange(PLACES), after, random.random() < 0.5)


def _retry(_random: Random, _: float) -> Operation:
    return Retry()


def _fall(random: Random, _: float) -> Operation:
    return Fall(random.choice(MEMBERS), random.random() < 0.5)


def _hear(random: Random, _: float) -> Operation:
    return Hear(random.choice(MEMBERS))


def _pass(random: Random, _: float) -> Operation:
    return Pass(random.choice((0.03, 0.1, 0.2, 2.0, 31.0)))


def _save(_random: Random, _: float) -> Operation:
    return Save()


def _start(_random: Random, _: float) -> Operation:
    return Start()


def _keep(random: Random, _: float) -> Operation:
    return Keep(random.choice(MEMBERS), random.randrange(PLACES))
