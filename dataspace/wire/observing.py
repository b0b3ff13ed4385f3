"""What an observation is opened with: one record for both clients, the daemon and bulk readers.

``RemoteSpace.observe`` says what each option means; WIRE.md, what stands in the ``spec`` of an ``Open``.

Always: a record that exists makes sense by itself, and ``read(options.spec())`` equals ``options``; its
epochs may still not be there.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, fields, replace
from typing import Final, Self

from dataspace.errors import UsageError
from dataspace.kernel.actions import NUMBERS as NUMBERS
from index.patterns.text import parse_pattern
from index.values.values import Map, Value

MOST_PACE: Final = 60_000
"""Milliseconds that the pace of an observation may have."""

LEAST_IDENTITY: Final = 8
MOST_IDENTITY: Final = 64
"""Characters of the identity of a space, or of the beginning that stands for it."""

KINDS: Final = ("observe", "columns")


class Policy(enum.Enum):
    """The reaction at the bound of an observer's waiting values."""

    WAIT = "wait"
    CONFLATE = "conflate"
    FAIL = "fail"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class ObserveOptions:
    """Options of one observation; ``columns`` has epochs come in blocks, by the column.

    Of these, ``captures`` says which captures are sent, by their numbers, and with ``places`` they say which
    change of its epoch each row is, with ``asserted`` since when it was there, with ``owners`` by whose claim
    it came.  ``share`` makes it a part of the state at ``as_of``: the rows with numbers from the first on and
    below the second.

    ``identity`` is the identity of the space, or its beginning, when ``after``, ``as_of`` and ``upto`` were
    epochs: a space that was made anew counts from 0 again.  Empty if the caller does not know it.

    ``policy`` may be given by its name, ``pace`` is in milliseconds, 0 for none.  Raises ``UsageError`` for
    an option that has no such value.
    """

    pattern: Value
    snapshot: bool = True
    after: int | None = None
    as_of: int | None = None
    upto: int | None = None
    identity: str = ""
    durable: bool = False
    quiet: bool = False
    net: bool = False
    policy: Policy = Policy.CONFLATE
    progress: bool = False
    pace: int = 0
    captures: tuple[int, ...] | None = None
    places: bool = False
    asserted: bool = False
    owners: bool = False
    share: tuple[int, int] | None = None
    columns: bool = False

    def __post_init__(self) -> None:
        for name in ("snapshot", "durable", "quiet", "net", "progress", "places", "asserted", "owners"):
            value = getattr(self, name)
            if value.__class__ is not bool:
                raise UsageError(f"{name} must be true or false, got {value!r:.60}")
        for name in ("after", "as_of", "upto"):
            value = getattr(self, name)
            if value is not None and (value.__class__ is not int or value < 0):
                raise UsageError(f"{name} must be the number of an epoch, got {value!r:.60}")
        if self.identity != "" or self.identity.__class__ is not str:
            self._check_identity()
        if self.policy.__class__ is not Policy:
            object.__setattr__(self, "policy", _policy(self.policy))
        bulk = self.places or self.asserted or self.owners
        if bulk or self.captures is not None or self.share is not None:
            self._check_columns()
        if self.pace != 0 or self.pace.__class__ is not int:
            self._check_pace()

    def _check_identity(self) -> None:
        identity: object = self.identity  # of a packet
        if not isinstance(identity, str) or not LEAST_IDENTITY <= len(identity) <= MOST_IDENTITY:
            raise UsageError(
                f"identity must be text of {LEAST_IDENTITY} to {MOST_IDENTITY} characters, "
                f"got {identity!r:.60}"
            )

    def _check_columns(self) -> None:
        if not self.columns:
            raise UsageError("captures, places, asserted, owners and share are for streams of kind=columns")
        numbers = () if self.captures is None else self.captures
        if numbers.__class__ is not tuple or not all(each.__class__ is int and each >= 0 for each in numbers):
            raise UsageError(f"captures must be numbers of captures, got {numbers!r:.60}")
        if self.share is not None:
            self._check_share()

    def _check_share(self) -> None:
        match self.share:
            case (int(low), int(high)) if 0 <= low < high <= NUMBERS and bool not in map(type, self.share):
                if self.as_of is None or self.upto != self.as_of:
                    raise UsageError("a share is of a state: as_of and upto must be its epoch")
            case _:
                raise UsageError(
                    f"share must be two ascending numbers from 0 to {NUMBERS}, got {self.share!r:.60}"
                )

    def _check_pace(self) -> None:
        if self.pace.__class__ is not int or not 0 <= self.pace <= MOST_PACE:
            raise UsageError(f"pace must be 0 to {MOST_PACE} milliseconds, got {self.pace!r:.60}")
        if self.policy is not Policy.CONFLATE:
            raise UsageError(
                f"a pace puts epochs together, which needs the policy conflate, not {self.policy.value}"
            )
        unfit = {
            "kind=columns": self.columns,
            "durable": self.durable,
            "progress": self.progress,
            "upto": self.upto is not None,
        }
        for name, given in unfit.items():
            if given:
                raise UsageError(f"a pace is for streams that go on with what happens, not with {name}")

    @classmethod
    def of(
        cls,
        pattern: Value,
        *,
        policy: str | Policy = Policy.CONFLATE,
        pace: float | None = None,
        **options: object,
    ) -> Self:
        """Returns the options for a pattern that may be given as text, and a pace in seconds."""
        form = parse_pattern(pattern) if isinstance(pattern, str) else pattern
        return cls(form, policy=policy, pace=_milliseconds(pace), **options)  # type: ignore[arg-type]  # checked as it is made

    @classmethod
    def read(cls, spec: Map) -> Self:
        """Returns the options in the ``spec`` of an ``Open``; ``UsageError`` says what is wrong with it."""
        unknown = [str(name) for name in spec if name not in OPTIONS]
        if unknown:
            raise UsageError(f"no option {unknown[0]!r}, known are {', '.join(sorted(OPTIONS))}")
        kind = spec.get("kind", "observe")
        if kind not in KINDS:
            raise UsageError(f"no kind {kind!r:.60} of stream, there are 'observe' and 'columns'")
        if "pattern" not in spec:
            raise UsageError("a pattern is needed")
        given = {str(name): value for name, value in spec.pairs() if name not in ("kind", "space")}
        return cls(**given, columns=kind == "columns")  # type: ignore[arg-type]  # checked as it is made

    def spec(self) -> Map:
        """Returns what an ``Open`` says of this, without what is usual."""
        spec: dict[str, Value] = {"kind": "columns" if self.columns else "observe", "pattern": self.pattern}
        for name, usual in _USUAL:
            value = getattr(self, name)
            if value is not usual:
                spec[name] = value.value if isinstance(value, Policy) else value
        return Map(spec)

    @property
    def live(self) -> bool:
        """True if no log is needed: the state now, and what follows."""
        return not (self.columns or self.durable) and self.after is self.as_of is self.upto is None

    @property
    def wants_state(self) -> bool:
        """True if the state where it begins comes first, for a stream from the log."""
        return self.as_of is not None or (self.snapshot and self.after is None and not self.columns)

    def at(self, epoch: int) -> Self:
        """Returns the same options, with the newest epoch as the beginning where they state none."""
        if self.after is not None or self.as_of is not None:
            return self
        return replace(self, as_of=epoch) if self.wants_state else replace(self, after=epoch)


_USUAL: Final = tuple(
    (each.name, each.default) for each in fields(ObserveOptions) if each.name not in ("pattern", "columns")
)
OPTIONS: Final = frozenset(["kind", "space", "pattern", *[name for name, _ in _USUAL]])


def of_another_space(before: str, now: str) -> str:
    """Returns the text of a refusal: an epoch is of a space with the identity ``before``, not ``now``."""
    return f"the epoch is of space {before}, and this one is {now[: max(8, len(before))]}: it was made anew"


def _milliseconds(pace: float | None) -> int:
    """Returns a pace of so many seconds as it stands in a ``spec``, rounded up; 0 for None.

    >>> _milliseconds(0.1), _milliseconds(None), _milliseconds(0.00025)
    (100, 0, 1)
    """
    if pace is None:
        return 0
    if pace.__class__ not in (int, float) or not 0 <= pace <= MOST_PACE / 1000:
        raise UsageError(f"pace must be 0 to {MOST_PACE // 1000} seconds, got {pace!r:.60}")
    return math.ceil(round(pace * 1000, 6))


def _policy(value: object) -> Policy:
    known = {each.value: each for each in Policy}
    if value.__class__ is not str or value not in known:
        raise UsageError(f"policy must be one of {', '.join(known)}, got {value!r:.60}")
    return known[value]
