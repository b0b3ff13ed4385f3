"""Programs of clients of a real daemon: what each sends, how, and what befalls connections and the daemon.

Always: the same seed draws the same program; a program without any of its parts is one, since what an
operation is about is named by its role: *the first of these handles*, *the last turn*, never by a number that
depends on what came before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from dataspace.wire.outgoing import FACT_DEPTH
from index.values.values import Record, Value
from tests.generated.limits import nested
from tests.generated.programs import HANDLES
from tests.generated.texts import text
from tests.model.conditions import ABSENT, EXACTLY, UNCHANGED
from tests.model.space import ASSERT, PUT, REPLACE, RETRACT, SEND, STATE, SWEEP, UNSTATE

GRACES: Final = {"a": 0, "b": 300, "c": 900}
"""The clients, and for how many milliseconds their sessions may be without a connection."""
DURABLE: Final = "d"
LEASE: Final = "lease:400:L"
TEXTS: Final = "texts"
"""The owner of the rules of a program."""
PATTERNS: Final = ("m($, $)", 'm("a", $)', "m(_, _)", "n($x)", "m($x:str, 1)", "$x", "q($x, $x)", "n(_)")

Action: TypeAlias = tuple[Any, ...]


class Turn(NamedTuple):
    """A turn of a client: of its session (an empty owner), a durable owner, or a lease; others with it."""

    owner: str
    actions: tuple[Action, ...]
    others: tuple[tuple[str, tuple[Action, ...]], ...] = ()
    expected: tuple[tuple[Any, ...], ...] = ()


class Again(NamedTuple):
    """The last turn, or one that was sent so many turns before it, is sent again under its number."""

    back: int


class Lease(NamedTuple):
    """A request about the lease: ``lease``, ``renew`` or ``release``."""

    verb: str


class Watch(NamedTuple):
    """A pattern is observed, or no longer if it is: an interest, which is a fact.

    It begins with a state, or after an epoch, by its role.
    """

    pattern: str
    after: str = ""


Step: TypeAlias = Turn | Again | Lease | Watch


class Burst(NamedTuple):
    """Steps of a client in one write; then nothing, a goodbye in the same write, or the end of its line."""

    client: str
    steps: tuple[Step, ...]
    end: str = ""


BYE, CUT = "bye", "cut"


class Stall(NamedTuple):
    """The daemon stands still for some milliseconds, in which bursts come; then it goes on, or is killed."""

    bursts: tuple[Burst, ...]
    millis: int
    kills: bool = False


class Strike(NamedTuple):
    """A burst, and so many milliseconds later the daemon is killed, and started again."""

    burst: Burst
    millis: int


class Come(NamedTuple):
    """A client connects: with the secret of its session, if it has one, or anew; in place of an earlier
    connection, if that is there."""

    client: str
    anew: bool = False


class Restart(NamedTuple):
    """The daemon is killed, or ends in good order, and is started again."""

    orderly: bool


class Pass(NamedTuple):
    """Nobody does anything for some milliseconds."""

    millis: int


class Post(NamedTuple):
    """A turn over HTTP: ``number`` is 0 for one that has none, and else the place in the turns with one."""

    owner: str
    actions: tuple[Action, ...]
    expected: tuple[tuple[Any, ...], ...] = ()
    number: int = 0


class Outlast(NamedTuple):
    """Everybody waits until sessions without a connection and leases are over."""


class Forget(NamedTuple):
    """The log lets go all epochs so far that it need not keep."""


Operation: TypeAlias = Burst | Stall | Strike | Come | Restart | Pass | Post | Outlast | Forget
Program: TypeAlias = tuple[Operation, ...]


class Profile(NamedTuple):
    """What one program is about: weights of operations and of steps, by name, and constructs of its rules."""

    operations: dict[str, int]
    steps: dict[str, int]
    rules: tuple[str, ...] = ()


_USUAL: Final = {"burst": 8, "come": 2}
PROFILES: Final = (
    Profile({**_USUAL}, {"turn": 8, "again": 2}),
    Profile({**_USUAL, "pass": 2}, {"turn": 6, "watch": 3}),
    Profile({**_USUAL, "pass": 2, "stall": 1}, {"turn": 5, "lease": 4}),
    Profile({"burst": 4, "post": 6}, {"turn": 1, "durable": 2}),
    Profile({"burst": 6, "stall": 3, "come": 2}, {"turn": 6, "again": 1, "watch": 1}),
    Profile({**_USUAL}, {"turn": 1, "conditional": 5}),
    Profile({**_USUAL, "pass": 3}, {"turn": 1}, ("atom", "not", "comparison", "assert", "within", "send")),
    Profile({"post": 6, "pass": 1, "burst": 4}, {"lease": 3, "turn": 3, "conditional": 1}),
)
RESTARTING: Final = (
    Profile({**_USUAL, "restart": 2, "strike": 1}, {"turn": 6, "again": 2, "watch": 1, "lease": 1}),
    Profile({**_USUAL, "restart": 2, "post": 2}, {"turn": 3, "conditional": 3, "again": 2}),
    Profile({"burst": 5, "strike": 2, "stall": 1}, {"turn": 6, "again": 3}),
)
"""Profiles with a daemon that ends, which costs a start each time."""
_FORGET: Final = {"forget": 4, "restart": 1, "burst": 9}
FORGETTING: Final = (
    Profile({**_USUAL, **_FORGET}, {"turn": 5, "again": 3, "watch": 2, "resume": 4}),
    Profile(
        {**_USUAL, **_FORGET, "post": 2, "strike": 1}, {"turn": 3, "conditional": 5, "again": 3, "resume": 1}
    ),
    Profile({**_USUAL, **_FORGET, "pass": 3}, {"turn": 2, "resume": 1}, ("resting",)),
    Profile(
        {**_USUAL, **_FORGET, "pass": 3},
        {"turn": 2, "lease": 1},
        ("atom", "not", "comparison", "assert", "send", "within", "at", "for", "now", "final"),
    ),
)
"""Profiles with a log that forgets, and a daemon that ends."""
GOING_ON: Final = (
    Profile({**_USUAL, "restart": 1, "strike": 1, "pass": 1}, {"turn": 4, "watch": 1}, ("resting",)),
    Profile(
        {**_USUAL, "restart": 1, "pass": 3, "stall": 1},
        {"turn": 4},
        ("atom", "at", "for", "now", "send", "assert"),
    ),
    Profile({**_USUAL, "post": 3, "pass": 2}, {"turn": 2, "conditional": 2, "lease": 1}, ("resting",)),
)
"""Profiles of rules that go on by themselves: for ``next``, and with each construct of time."""
EACH: Final = 40
"""Of so many programs one is of each of those three."""
FURTHER: Final = 1_000_000
"""From this seed on most programs are wide."""
WIDE: Final = (8, 40, 200)
"""Steps in one write of a client, in half of the bursts of a wide program."""
EXTREMES: Final[tuple[Value, ...]] = (
    *(2**63 - 1, -(2**63), 2**63, math.nan, -0.0, 0.0, math.inf, True, "", "\x00", "x" * 5_000),
    *(nested(FACT_DEPTH - 8, lambda value: (value,)), nested(20, lambda value: Record("m", value, 1))),
)
"""Values at limits, among few others."""


def profile_of(seed: int) -> Profile:
    """Returns what the program of a seed is about: one profile, or two together."""
    further = PROFILES[seed // 7 % len(PROFILES)]
    if seed % EACH == EACH - 1:
        return _together(RESTARTING[seed // EACH % len(RESTARTING)], further)
    for at, profiles in enumerate((FORGETTING, GOING_ON), 2):
        if seed % EACH == EACH - at:
            profile = profiles[seed // EACH % len(profiles)]
            return _together(profile, further) if seed // EACH % 3 else profile
    profile = PROFILES[seed % len(PROFILES)]
    return _together(profile, further) if seed % 3 == 0 else profile


def is_wide(seed: int) -> bool:
    """True if a program of a seed has bursts of many steps."""
    if seed >= FURTHER:
        return seed % 4 > 0
    return seed % 21 == 13 or seed % (4 * EACH) == 3 * EACH - 1


def _beside(burst: Burst, longest: Burst) -> Burst:
    """Returns a burst that waits together with a longer one: of three long ones, in any order, nobody finds
    what has caused an epoch."""
    return burst if burst is longest else burst._replace(steps=burst.steps[: WIDE[0]])


def _together(one: Profile, other: Profile) -> Profile:
    operations, steps = {**other.operations, **one.operations}, {**other.steps, **one.steps}
    return Profile(operations, steps, one.rules or other.rules)


def draw(seed: int, length: int = 14) -> Program:
    """Returns a program."""
    drawing = _Drawing(Random(seed), profile_of(seed), WIDE if is_wide(seed) else ())
    operations = [drawing.operation() for _ in range(length)]
    if drawing.profile.rules:
        for at in range(3):
            operations.insert(drawing.random.randrange(length // 2), drawing.toggled(at % 2))
    if drawing.random.random() < 0.2:
        operations.append(Outlast())
    return tuple(operations)


class _Drawing:
    """What the operations of one program are drawn from."""

    def __init__(self, random: Random, profile: Profile, wide: Sequence[int] = ()) -> None:
        self.random = random
        self.profile = profile
        self.wide = wide
        self.texts = [text(random, profile.rules) for _ in range(2)] if profile.rules else []
        self.latest: list[Value] = []

    def operation(self) -> Operation:
        random = self.random
        match self._chosen(self.profile.operations):
            case "come":
                return Come(self._client(), random.random() < 0.3)
            case "pass":
                return Pass(random.choice([10, 40, 100, 350, 450]))
            case "forget":
                return Forget()
            case "restart":
                return Restart(random.random() < 0.4)
            case "stall":
                bursts = [self._burst() for _ in range(random.choice([1, 2, 2, 3]))]
                alone = {each.client: each for each in bursts}
                longest = max(alone.values(), key=lambda each: len(each.steps))
                beside = tuple([_beside(each, longest) for each in alone.values()])
                return Stall(beside, random.choice([0, 0, 450]))
            case "strike":
                return Strike(self._burst(), random.choice([0, 1, 3, 8]))
            case "post":
                owner = random.choice([DURABLE, DURABLE, LEASE]) if "lease" in self.profile.steps else DURABLE
                actions = tuple([self._stated() for _ in range(random.choice([1, 1, 2, 3]))])
                expected = self._expected(0.15, (ABSENT, UNCHANGED))
                return Post(owner, actions, expected, random.choice([0, 0, 1, 2, 3]))
        return self._burst()

    def toggled(self, at: int) -> Operation:
        """Returns an operation by which a text of rules comes, or goes if it is there."""
        rule = Record("rule", f"r{at}", self.texts[at])
        verb = self.random.choice([STATE, STATE, UNSTATE])
        return Post(TEXTS, ((verb, rule),))

    def _chosen(self, weights: dict[str, int]) -> str:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def _client(self) -> str:
        return self.random.choice(list(GRACES))

    def _burst(self) -> Burst:
        random = self.random
        is_wide = self.wide and random.random() < 0.5
        steps = tuple([self._step() for _ in range(random.choice(self.wide if is_wide else [1, 1, 2, 3]))])
        return Burst(self._client(), steps, random.choices(["", BYE, CUT], [7, 1, 1])[0])

    def _step(self) -> Step:
        random, kind = self.random, self._chosen(self.profile.steps)
        match kind:
            case "again":
                return Again(random.choice([0, 0, 1]))
            case "lease":
                return Lease(random.choice(["lease", "lease", "renew", "release"]))
            case "watch":
                return Watch(random.choice(PATTERNS[:4]))
            case "resume":
                is_late = not self.wide or random.random() < 0.03  # each may be told at any time
                after = random.choice([NOW, EARLIER, FIRST]) if is_late else ""
                return Watch(random.choice(PATTERNS[:4]), after)
        owners = ["", "", DURABLE, *[LEASE for _ in range(2 * ("lease" in self.profile.steps))]]
        if kind == "durable":  # the owner of turns over HTTP, which claims by value
            return Turn(DURABLE, self._actions())
        first, second = random.sample(owners, 2)
        others = ((second, self._actions()),) if first != second and random.random() < 0.15 else ()
        return Turn(first, self._actions(), others, self._expected(0.8 if kind == "conditional" else 0.05))

    def _actions(self) -> tuple[Action, ...]:
        return tuple([self._action() for _ in range(self.random.choice([1, 1, 2, 3]))])

    def _action(self) -> Action:
        random = self.random
        verb = random.choices([ASSERT, RETRACT, SEND, REPLACE, SWEEP, PUT], [8, 5, 4, 3, 1, 2])[0]
        handle, other = random.sample(range(HANDLES), 2)  # roles
        match verb:
            case 0:
                return ASSERT, handle, self._fact()
            case 1:
                return RETRACT, handle
            case 3:
                return REPLACE, handle, other, self._fact()
            case 4:
                return SWEEP, random.choice(PATTERNS)
            case 5:
                return PUT, handle, self._pair(), None
        return SEND, self._fact()

    def _stated(self) -> Action:
        return self.random.choice([STATE, STATE, UNSTATE, SEND]), self._fact()

    def _pair(self) -> Value:
        return Record("m", self.random.choice("ab"), self.random.randrange(2))

    def _fact(self) -> Value:
        """Returns a fact: often one of the latest, so that several owners claim it, and messages equal it."""
        random = self.random
        if self.latest and random.random() < 0.35:
            return random.choice(self.latest[-3:])
        if not self.profile.rules and random.random() < 0.03:  # rules calculate with small numbers
            return Record("m", random.choice("ab"), random.choice(EXTREMES))
        one = Record("n", random.choice("ab"))
        pair = Record("q", random.randrange(2), random.randrange(2))
        self.latest.append(random.choice([self._pair(), self._pair(), one, pair]))
        return self.latest[-1]

    def _expected(
        self, share: float, kinds: Sequence[int] = (ABSENT, EXACTLY, UNCHANGED, UNCHANGED)
    ) -> tuple[tuple[Any, ...], ...]:
        random, expected = self.random, list[tuple[Any, ...]]()
        while random.random() < share:
            share /= 3
            pattern = random.choice(PATTERNS)
            kind = random.choice(kinds)
            if kind == EXACTLY:
                rows = random.choice([(), (("a",),), (("a", 0),), ((),)])
                expected.append((kind, pattern, rows))
            elif kind == UNCHANGED:
                expected.append((kind, pattern, random.choice([NOW, NOW, EARLIER, FIRST, AHEAD])))
            else:
                expected.append((kind, pattern))
        return tuple(expected)


NOW, EARLIER, FIRST, AHEAD = "now", "earlier", "first", "ahead"
"""Epochs by their roles: the newest that was shown, the one before, none, one that is still to come."""


def less(operation: Operation) -> Iterator[Operation]:
    """Yields an operation without one of its parts."""
    match operation:
        case Burst(client, steps, end):
            yield from [Burst(client, each, end) for each in _shorter(steps, _less)]
            if end:
                yield Burst(client, steps)
        case Stall(bursts, millis):
            yield from [operation._replace(bursts=each) for each in _shorter(bursts, less)]
            if millis:
                yield operation._replace(millis=0)
            yield from bursts
        case Strike(burst):
            yield from [operation._replace(burst=each) for each in less(burst) if isinstance(each, Burst)]
        case Post(_, actions):
            yield from [operation._replace(actions=each) for each in _shorter(actions)]
            if operation.expected:
                yield operation._replace(expected=())
            if operation.number:
                yield operation._replace(number=0)


def _less(step: Step) -> Iterator[Step]:
    if isinstance(step, Watch) and step.after:
        yield step._replace(after="")
    if isinstance(step, Turn):
        yield from [step._replace(actions=each) for each in _shorter(step.actions)]
        if step.others:
            yield step._replace(others=())
        for at in range(len(step.expected)):
            yield step._replace(expected=(*step.expected[:at], *step.expected[at + 1 :]))


def _shorter(parts: Sequence[Any], less: Any = lambda _: ()) -> Iterator[tuple[Any, ...]]:
    """Yields parts without a half of them, or less down to one, and with less of one of them."""
    size = len(parts) // 2
    while size:
        for at in range(0, len(parts), size):
            yield (*parts[:at], *parts[at + size :])
        size //= 2
    for at, part in enumerate(parts):
        for smaller in less(part):
            yield (*parts[:at], smaller, *parts[at + 1 :])
