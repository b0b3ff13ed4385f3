"""Openings: what an opened stream is asked to carry, checked.

Apart from those who feed streams, from a space, from the log or by the column, because all of them are asked
the same.

Always: a ``Request`` makes sense by itself; what it asks for may still not be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataspace.errors import Refused
from index.values.values import Map, Value
from relay.delivery.policies import Policy

_OPTIONS: Final = frozenset(
    [
        "kind",
        "space",
        "pattern",
        "snapshot",
        "after",
        "as_of",
        "upto",
        "durable",
        "quiet",
        "net",
        "policy",
        "progress",
    ]
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a stream is asked to carry, checked."""

    pattern: Value
    snapshot: bool
    after: int | None
    as_of: int | None
    upto: int | None
    durable: bool
    quiet: bool
    net: bool
    policy: Policy
    progress: bool
    columns: bool

    @property
    def live(self) -> bool:
        """Whether no log is needed: the state now, and what follows."""
        return not (self.columns or self.durable) and self.after is self.as_of is self.upto is None

    @property
    def wants_state(self) -> bool:
        """Whether the state where it begins comes first, for a stream from the log."""
        return self.as_of is not None or (self.snapshot and self.after is None and not self.columns)


def read_request(spec: Map) -> Request:
    """The request in an ``Open``; ``Refused`` says what is wrong with it."""
    unknown = [str(name) for name in spec if name not in _OPTIONS]
    if unknown:
        raise Refused("bad-request", f"no option {unknown[0]!r}, known are {', '.join(sorted(_OPTIONS))}")
    kind = spec.get("kind", "observe")
    if kind != "observe" and kind != "columns":
        raise Refused("bad-request", f"no kind {kind!r:.60} of stream, there are 'observe' and 'columns'")
    if "pattern" not in spec:
        raise Refused("bad-request", "a pattern is needed")
    return Request(
        pattern=spec["pattern"],
        snapshot=_flag(spec, "snapshot", default=True),
        after=_epoch(spec, "after"),
        as_of=_epoch(spec, "as_of"),
        upto=_epoch(spec, "upto"),
        durable=_flag(spec, "durable", default=False),
        quiet=_flag(spec, "quiet", default=False),
        net=_flag(spec, "net", default=False),
        policy=_policy(spec),
        progress=_flag(spec, "progress", default=False),
        columns=kind == "columns",
    )


def _flag(spec: Map, name: str, *, default: bool) -> bool:
    value = spec.get(name, default)
    if value.__class__ is not bool:
        raise Refused("bad-request", f"{name} must be true or false, got {value!r:.60}")
    return value


def _policy(spec: Map) -> Policy:
    value = spec.get("policy", Policy.CONFLATE.value)
    known = {each.value: each for each in Policy}
    if value.__class__ is not str or value not in known:
        raise Refused("bad-request", f"policy must be one of {', '.join(known)}, got {value!r:.60}")
    return known[value]


def _epoch(spec: Map, name: str) -> int | None:
    value = spec.get(name)
    if value is not None and (value.__class__ is not int or value < 0):
        raise Refused("bad-request", f"{name} must be the number of an epoch, got {value!r:.60}")
    return value
