"""The verbs of requests: what each is about, its arguments, and how these are read.

A verb is about one daemon, about a space, or about topics.  A daemon that follows sends questions about
spaces and topics on to their leader.  A verb about a daemon is for the daemon that the client has named: sent
on, ``drain`` would end another daemon, and ``sessions`` would list clients of another one.

Always: an argument that its verb does not have is refused: nothing of what the client expects would be done;
each verb is about one subject.
"""

from __future__ import annotations

import enum
from typing import Final

from dataspace.errors import Refused, UsageError
from index.values.values import Map, Value

ARGUMENTS: Final = {
    "sync": "",
    "drain": "within reason",
    "erase": "pattern before wait",
    "status": "",
    "owners": "pattern most",
    "index": "form most value",
    "actors": "most turns",
    "who": "pattern after upto most",
    "sessions": "most",
    "end-session": "session",
    "acknowledge": "reader epoch forget",
    "frontier": "after wait at erased",
    "follow": "name url web hints stand_by epochs lag",
    "lease": "owner",
    "renew": "owner",
    "release": "owner",
    "withdraw": "owner pattern",
    "within": "after upto changes pattern as_of low asserted owners",
    "stage": "key operations rows",
    "prepare": "rows",
    "discard": "key close",
    "publish": "keys owner client sequence replace by once expect exclusive discard close traceparent done",
    "rules": "ask about form",
    "take": "group pattern topic most wait",
    "settle": "group done again dead extend after blame reason",
    "groups": "group out",
    "group-alter": "group what to why options pattern",
    "join": "topic partition partitions dimensions retain time durable age name away back",
    "lookup": "topic wait detail",
    "end-topic": "topic",
    "topic-frontier": "topic after wait",
    "topic-epochs": "topic id after upto at",
    "topic-number": "topic id time",
    "topic-acknowledge": "reader topic id number",
}
"""The arguments of each verb, as WIRE.md lists them."""


class Subject(enum.Enum):
    """What a verb is about, and so which daemon answers it."""

    DAEMON = "daemon"
    """The daemon that the client has named, whatever that leads or follows."""
    STATE = "state"
    """A space, as any daemon has read it: a follower answers from its log."""
    LEADER = "leader"
    """A space, as the daemon that leads it has it."""
    TOPICS = "topics"
    """Topics, which are led with ``main``."""


_VERBS_OF: Final = {
    Subject.DAEMON: "status index actors sessions end-session drain",
    Subject.STATE: "sync frontier within who",
    Subject.LEADER: "erase owners acknowledge follow lease renew release withdraw stage prepare discard"
    " publish rules take settle groups group-alter",
    Subject.TOPICS: "join lookup end-topic topic-frontier topic-epochs topic-number topic-acknowledge",
}

SUBJECTS: Final = {verb: about for about, verbs in _VERBS_OF.items() for verb in verbs.split()}
"""What each verb is about."""

ACTS: Final = frozenset(["drain", "end-session"])
"""The verbs about a daemon that change it: done at another daemon, or twice, they would do harm."""


def is_of_daemon(verb: str) -> bool:
    """True if a client asks the verb of the daemon that it has named.

    Not so ``status``, with which a session learns which daemon serves it; commands ask it of the named one.
    """
    return verb != "status" and SUBJECTS.get(verb) is Subject.DAEMON


def check_one_address(verb: str, count: int) -> None:
    """Raises ``UsageError`` for an act on a daemon by a client that names ``count`` daemons."""
    if verb in ACTS and count > 1:
        raise UsageError(
            f"{verb} is about one daemon, and this client names {count}: connect to that one alone"
        )


_KNOWN: Final = {verb: frozenset(names.split()) for verb, names in ARGUMENTS.items()}


def check_known(verb: str, arguments: Map) -> None:
    """Raises ``Refused`` for an argument that a verb does not have."""
    for name in arguments:
        if name not in _KNOWN[verb]:
            known = ", ".join(ARGUMENTS[verb].split()) or "none"
            raise Refused("bad-request", f"{verb} has no argument {name!r:.60}, known are {known}")


def text(arguments: Map, name: str, default: str | None = None) -> str:
    """Returns a text argument, of at most 4 096 characters."""
    value = arguments.get(name, default)
    if value.__class__ is not str or len(value) > 4096:
        raise Refused("bad-request", f"{name} must be text of at most 4096 characters, got {value!r:.60}")
    return value


def number(arguments: Map, name: str, default: int | None = None) -> int:
    """Returns an integer argument, from -1 to 2^63-1."""
    value = arguments.get(name, default)
    if value.__class__ is not int or not -1 <= value < 1 << 63:
        raise Refused("bad-request", f"{name} must be a number from -1 to 2^63-1, got {value!r:.60}")
    return value


def texts(arguments: Map, name: str) -> tuple[str, ...]:
    """Returns an argument that is an array of text."""
    return key(arguments.get(name))


def key(value: Value) -> tuple[str, ...]:
    """Returns a value that is an array of text, such as the key of staged operations."""
    if value.__class__ is tuple and value and all(each.__class__ is str for each in value):
        return value  # type: ignore[return-value]  # as just checked
    raise Refused("bad-request", f"a key is an array of text, got {value!r:.60}")
