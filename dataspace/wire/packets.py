"""Packets: what the two sides of a connection can say to each other.

Each packet is a named tuple; on the wire it is a msgpack array of its number and its fields in order.
The table at the end is the whole vocabulary: the number of each packet, who may send it, and what each
field must be.  WIRE.md describes the same table for people; a test holds the two against each other.

Always: ``read`` answers with a packet whose fields have the stated types, down to the actions of a turn, or
raises ``ProtocolError``; fields beyond the known ones are ignored, so that later ones may be added.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple, TypeAlias, overload

from dataspace.errors import ProtocolError
from dataspace.kernel.actions import Action, are_actions
from dataspace.kernel.expectations import are_expectations
from index.values.values import Map, Value

EMPTY: Final = Map()

VERSION: Final = 1
"""The version of a hello, and of the welcome that answers it."""

VERSIONS: Final = (1, 1)
"""The lowest and the highest version that a daemon speaks."""


class Hello(NamedTuple):
    """The client's first packet.  ``client`` is its identity: turns are numbered per identity."""

    version: int
    client: str
    name: str
    features: Map


class Turn(NamedTuple):
    """One atomic turn in one space; ``owner`` is empty for the session, else a durable owner's name.

    ``expected`` must hold in the state before the turn, or the turn does not happen.  ``others`` are further
    owners with their actions, each as ``(owner, actions)``.  ``traceparent`` names the trace that the turn is
    a part of, as W3C Trace Context writes it.  ``done`` are deliveries of groups that are done with the turn:
    each group with epoch, position and token of each.
    """

    sequence: int
    space: str
    owner: str
    actions: tuple[Action, ...]
    expected: tuple[tuple[Value, ...], ...] = ()
    others: tuple[tuple[str, tuple[Action, ...]], ...] = ()
    traceparent: str = ""
    done: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Open(NamedTuple):
    """Opens a stream with its first credit, in totals of items and bytes."""

    stream: int
    spec: Map
    items: int
    bytes: int


class Ask(NamedTuple):
    """Raises a stream's credit to these totals since it was opened; lower totals are ignored."""

    stream: int
    items: int
    bytes: int


class Abort(NamedTuple):
    """Ends a stream from below; answered with ``Done`` unless ``answer`` is false."""

    stream: int
    reason: str
    answer: bool


class Request(NamedTuple):
    """A question with a number that the answer repeats; ``verb`` is one of those in WIRE.md."""

    number: int
    verb: str
    arguments: Map


class Produce(NamedTuple):
    """Steps of a producer of a topic, in order; answered like a request of that number."""

    number: int
    producer: int
    steps: tuple[Value, ...]


class Ping(NamedTuple):
    """Asks for a ``Pong`` with the same number."""

    number: int


class Pong(NamedTuple):
    """Answers a ``Ping``."""

    number: int


class Bye(NamedTuple):
    """The last packet of a side that ends the session: an empty code is an orderly end.

    ``url`` is the address of the daemon to connect to instead, if there is one, as in a refusal.
    """

    code: str
    text: str
    url: str = ""


FOLLOWING: Final = frozenset(["elsewhere", "no-leader", "behind"])
"""Codes of a daemon that follows, which has applied no turn of this connection."""

ELSEWHERE: Final = FOLLOWING | {"moved"}
"""Codes with which a daemon sends a client to another one, named or not; nothing has happened."""

TOPICS_ELSEWHERE: Final = "topics-elsewhere"
"""The code where another daemon leads the topics, for a session about a space that stays where it is."""

STORE_AWAY: Final = "store-away"
"""The code of an answer that a daemon cannot give while it does not reach the database of its store."""

PASSING: Final = frozenset(["", "timeout", "stalled", "closing", *ELSEWHERE])
"""Codes of a ``Bye`` after which a client may connect again: only this connection is over."""


class Offer(NamedTuple):
    """Offers a stream of values to the daemon, which asks for them as ``Ask`` says."""

    stream: int
    spec: Map


class Peek(NamedTuple):
    """Asks to be told when so many values, in total since the stream was opened, were sent or are ready.

    It asks for no value, and takes the place of the peek before it.
    """

    stream: int
    items: int


class Welcome(NamedTuple):
    """The server's first packet: ``epoch`` is the space's newest, ``sequence`` the client's last turn.

    ``features`` are the granted features of the hello.
    """

    version: int
    session: int
    space: str
    epoch: int
    sequence: int
    limits: Map
    features: Map


class Accepted(NamedTuple):
    """Turns from ``first`` on are on disk, one epoch number for each."""

    first: int
    epochs: tuple[int, ...]


class Refusal(NamedTuple):
    """The turn of this sequence did not happen, and why.

    ``found`` is empty, or the state that was found in place of an expectation of the turn.
    """

    sequence: int
    code: str
    text: str
    found: Map = EMPTY
    url: str = ""


class Values(NamedTuple):
    """Stream values in order, the number of the first, and how many more are ready."""

    stream: int
    first: int
    values: tuple[Value, ...]
    available: int


class Available(NamedTuple):
    """Answers a ``Peek``: so many values, in total since the stream was opened, were sent or are ready."""

    stream: int
    items: int


class Reached(NamedTuple):
    """These streams have been told all to this epoch, which is on disk: they can go on after it."""

    epoch: int
    streams: tuple[int, ...]


class Done(NamedTuple):
    """The stream is complete, or its abort is confirmed."""

    stream: int


class Error(NamedTuple):
    """The stream failed; nothing more comes of it."""

    stream: int
    code: str
    text: str
    url: str = ""


class Answer(NamedTuple):
    """The answer to the request with this number."""

    number: int
    value: Value


class Denied(NamedTuple):
    """The request of this number was refused; nothing of it happened.

    ``found`` has the same content as in a ``Refusal``.
    """

    number: int
    code: str
    text: str
    found: Map = EMPTY
    url: str = ""


Packet: TypeAlias = (
    Hello
    | Turn
    | Open
    | Ask
    | Abort
    | Request
    | Produce
    | Ping
    | Pong
    | Bye
    | Offer
    | Peek
    | Welcome
    | Accepted
    | Refusal
    | Values
    | Done
    | Error
    | Answer
    | Denied
    | Available
    | Reached
)

_Check: TypeAlias = Callable[[Value], bool]

MAX_TEXT: Final = 4096
"""Characters in a text of a packet itself."""


def _number(value: Value) -> bool:
    return value.__class__ is int and 0 <= value < 1 << 63


def _text(value: Value) -> bool:
    return value.__class__ is str and len(value) <= MAX_TEXT


def _map(value: Value) -> bool:
    return value.__class__ is Map


def _flag(value: Value) -> bool:
    return value.__class__ is bool


def _sequence(value: Value) -> bool:
    return value.__class__ is tuple


def _numbers(value: Value) -> bool:
    return value.__class__ is tuple and all(map(_number, value))


def _others(value: Value) -> bool:
    return value.__class__ is tuple and all(
        each.__class__ is tuple and len(each) == 2 and _text(each[0]) and are_actions(each[1])
        for each in value
    )


def are_done(value: Value) -> bool:
    """True for pairs of a group and its deliveries, each delivery as epoch, position and token."""
    return value.__class__ is tuple and all(
        each.__class__ is tuple
        and len(each) == 2
        and _text(each[0])
        and each[1].__class__ is tuple
        and _numbers(each[1])
        and len(each[1]) % 3 == 0
        for each in value
    )


def _any(_value: Value) -> bool:
    return True


_NAMES: Final = {
    _number: "a number from 0 to 2^63-1",
    _text: "text of at most 4096 characters",
    _map: "a map",
    _flag: "true or false",
    _sequence: "an array",
    _numbers: "an array of numbers",
    are_actions: "an array",
    are_expectations: "an array",
    _others: "an array of pairs of an owner and its actions",
    are_done: "an array of pairs of a group and its deliveries",
    _any: "any value",
}

# number: packet, checks of its fields
TABLE: Final[dict[int, tuple[type[Packet], tuple[_Check, ...]]]] = {
    1: (Hello, (_number, _text, _text, _map)),
    2: (Turn, (_number, _text, _text, are_actions, are_expectations, _others, _text, are_done)),
    3: (Open, (_number, _map, _number, _number)),
    4: (Ask, (_number, _number, _number)),
    5: (Abort, (_number, _text, _flag)),
    6: (Request, (_number, _text, _map)),
    7: (Ping, (_number,)),
    8: (Pong, (_number,)),
    9: (Bye, (_text, _text, _text)),
    10: (Produce, (_number, _number, _sequence)),
    11: (Offer, (_number, _map)),
    12: (Peek, (_number, _number)),
    33: (Welcome, (_number, _number, _text, _number, _number, _map, _map)),
    34: (Accepted, (_number, _numbers)),
    35: (Refusal, (_number, _text, _text, _map, _text)),
    36: (Values, (_number, _number, _sequence, _number)),
    37: (Done, (_number,)),
    38: (Error, (_number, _text, _text, _text)),
    39: (Answer, (_number, _any)),
    40: (Denied, (_number, _text, _text, _map, _text)),
    41: (Available, (_number, _number)),
    42: (Reached, (_number, _numbers)),
}

NUMBERS: Final[dict[type[Packet], int]] = {kind: number for number, (kind, _) in TABLE.items()}

DEFAULTS: Final[dict[type[Packet], tuple[Value, ...]]] = {
    Turn: ((), (), "", ()),
    Refusal: (EMPTY, ""),
    Denied: (EMPTY, ""),
    Error: ("",),
    Bye: ("",),
}
"""The values of last fields that are left out on the wire where they and all after them are empty."""

_PLAIN: Final = DEFAULTS[Turn]


def written(packet: Packet) -> tuple[Value, ...]:
    """Returns a packet as the array that is on the wire: its number, and its fields without empty optional
    ones at the end.

    >>> written(Turn(1, "main", "", ()))
    (2, 1, 'main', '', ())
    """
    kind = packet.__class__
    fields: tuple[Value, ...] = (NUMBERS[kind], *packet)
    optional = DEFAULTS.get(kind)
    if optional is not None:
        end = len(fields)
        least = end - len(optional)
        while end > least and not fields[end - 1]:
            end -= 1
        return fields[:end]
    return fields


@overload
def read(value: Value) -> Packet: ...
@overload
def read(value: Value, expected: Container[type]) -> Packet | None: ...
def read(value: Value, expected: Container[type] | None = None) -> Packet | None:
    """Returns the packet that a decoded frame is, without fields that are not known.

    Returns None for a packet that is not ``expected``, whatever its fields: to check them may take long.
    Raises ``ProtocolError``, which says what is wrong with it.
    """
    if value.__class__ is not tuple or not value:
        raise ProtocolError("malformed", "a packet is an array that begins with its number")
    entry = TABLE.get(value[0]) if value[0].__class__ is int else None
    if entry is None:
        raise ProtocolError("unknown-packet", f"packet {_brief(value[0])}, known are {sorted(TABLE)}")
    kind, checks = entry
    if expected is not None and kind not in expected:
        return None
    fields: tuple[Value, ...] = value[1 : len(checks) + 1]
    if kind is Turn and len(value) == 5 and _is_turn(*fields):
        return tuple.__new__(Turn, fields + _PLAIN)  # sooner, as most packets are turns
    missing = len(checks) - len(fields)
    if missing:
        defaults = DEFAULTS.get(kind, ())
        if missing > len(defaults):
            least = len(checks) - len(defaults)
            raise ProtocolError("malformed", f"{kind.__name__} has {least} fields, got {len(fields)}")
        fields += defaults[len(defaults) - missing :]
    for check, field in zip(checks, fields, strict=True):
        if not check(field):
            raise _wrong_field(kind, checks, fields)
    return tuple.__new__(kind, fields)  # as the class does, without its call


def _is_turn(sequence: Value, space: Value, owner: Value, actions: Value) -> bool:
    """True if the fields of a turn pass their checks, in one call."""
    return (
        sequence.__class__ is int
        and 0 <= sequence < 1 << 63
        and space.__class__ is str
        and owner.__class__ is str
        and len(space) <= MAX_TEXT
        and len(owner) <= MAX_TEXT
        and are_actions(actions)
    )


def _wrong_field(kind: type[Packet], checks: Sequence[_Check], fields: Sequence[Value]) -> ProtocolError:
    """Returns what is wrong with the first field that does not pass its check."""
    at = next(at for at, check in enumerate(checks) if not check(fields[at]))
    found = f"must be {_NAMES[checks[at]]}, got {_brief(fields[at])}"
    return ProtocolError("malformed", f"{kind.__name__}.{kind._fields[at]} {found}")


def check_version(body: bytes) -> None:
    """Refuses a hello of a version that is not spoken, whatever its other fields are; O(1).

    Reads the bytes, since a later version may write the rest in ways that cannot be decoded here.  Raises
    ``ProtocolError("version")``; anything but a hello that states its version passes.
    """
    head = body[:1]
    at = {b"\xdc": 3, b"\xdd": 5}.get(head, 1 if 0x90 <= int.from_bytes(head, "big") < 0xA0 else 0)
    number, at = _unsigned(body, at) if at else (None, 0)
    version = _unsigned(body, at)[0] if number == 1 else None
    lowest, highest = VERSIONS
    if version is not None and not lowest <= version <= highest:
        raise ProtocolError("version", f"spoken {lowest} to {highest}, got {version}")


def _unsigned(body: bytes, at: int) -> tuple[int | None, int]:
    """The msgpack integer at a place if it is one from 0 on, and the place behind it."""
    head = body[at] if at < len(body) else 0xC1
    if head < 0x80:
        return head, at + 1
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(head, 0)
    whole = body[at + 1 : at + 1 + size]
    return (int.from_bytes(whole, "big") if size and len(whole) == size else None), at + 1 + size


def _brief(value: Value) -> str:
    said = repr(value)
    return said if len(said) <= 60 else said[:57] + "…"
