"""The table of verbs: what each request is about, which rights it needs, what it does, and its arguments.

The daemon reads requests by the table.  Clients learn from it which request is sent again after a
lost connection, and which daemon is asked.  A test compares WIRE.md with it.

A verb is about one daemon, about a space, or about topics.  A daemon that follows sends questions about
spaces and topics on to their leader.  A verb about a daemon is for the daemon that the client has named: sent
on, ``drain`` would end another daemon, and ``sessions`` would list clients of another one.

Always: an argument that its verb does not have is refused, since nothing of what the client expects would be
done; a request that is not known is never sent again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dataspace.errors import Refused, UsageError
from dataspace.wire.arguments import (
    NEEDED,
    Absent,
    ArgumentKind,
    Names,
    RequestArgument,
    at_most,
    cells,
    choice,
    epoch,
    flag,
    key,
    milliseconds,
    number,
    other,
    pair,
    pattern,
    seconds,
    text,
    time,
    value,
)
from dataspace.wire.consuming import LONGEST_SECONDS
from index.values.values import Map, Value

Arguments: TypeAlias = Mapping[str, Any]
"""The arguments of a request once read: each name of its verb, with the default where one was absent."""

MOST: Final = 10_000
"""Rows of one answer, of verbs that list."""

MOST_BOXES: Final = 1_000
MOST_WAIT: Final = 60_000
"""Milliseconds that a request may wait."""

LONGEST_DRAIN: Final = 86_400_000
MOST_AGE: Final = 1e10
"""Seconds that a durable topic keeps its epochs: about 300 years."""

MOST_ACTORS: Final = 100
"""Actors in the tree of one hosted actor, and turns of it."""


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


@dataclass(frozen=True, slots=True)
class Repetition:
    """What becomes of a request whose connection is lost before its answer.

    The daemon may have carried it out, so it ``is_safe`` to send it again only where twice is as good as
    once.  ``changes`` if it has an effect, so that it is not sent again to another space.  ``happened`` are
    the refusals of a repeated request that mean: the first one has taken effect.
    """

    is_safe: bool
    changes: bool
    happened: frozenset[str] = frozenset()


READS: Final = Repetition(is_safe=True, changes=False)
"""It changes nothing."""

SAME: Final = Repetition(is_safe=True, changes=True)
"""It changes something, and twice has the effect of once."""

UNSAFE: Final = Repetition(is_safe=False, changes=True)
"""Twice is not once: it adds, takes, or concerns what another client may have made anew meanwhile."""

RELEASE: Final = Repetition(is_safe=True, changes=True, happened=frozenset(["no-lease"]))
"""The end of a lease."""

MEMBER: Final = "member"
"""No right of a token: only a follower of the daemon, or a member of its cluster, may ask."""


@dataclass(frozen=True)
class RequestVerb:
    """A row of the table.

    A request of a bearer that lacks one of the ``rights`` is denied with ``not-allowed``; its function does
    that, as it knows from the arguments what the right is for.  ``by`` has other repetitions for some values
    of an argument.
    """

    name: str
    subject: Subject
    rights: tuple[str, ...]
    _repetition: Repetition
    arguments: Mapping[str, RequestArgument]
    by: tuple[str, Mapping[str, Repetition]] = ("", {})
    _defaults: dict[str, Value | Absent] = field(init=False)

    def __post_init__(self) -> None:
        given = {name: each.default for name, each in self.arguments.items()}
        object.__setattr__(
            self, "_defaults", {name: usual for name, usual in given.items() if usual is not Absent.NEEDED}
        )

    @property
    def changes(self) -> bool:
        """True if a request of this verb may change something."""
        return any(each.changes for each in (self._repetition, *self.by[1].values()))

    def repetition(self, arguments: Map) -> Repetition:
        """Returns what becomes of a request whose answer is lost with its connection."""
        name, by = self.by
        said = arguments.get(name) if name else None
        return by.get(said, self._repetition) if isinstance(said, str) else self._repetition

    def read(self, arguments: Map) -> Arguments:
        """Returns the arguments of a request, as the table has them; O(size of the arrays among them).

        Raises ``Refused`` for an argument of another name, of another kind or beyond its bounds, and for a
        missing argument.
        """
        known, found = self.arguments, self._defaults.copy()
        for name, stated in arguments.pairs():
            argument = known.get(name)  # type: ignore[arg-type]  # any value may be a name
            if argument is None:
                raise self._unknown(name)
            found[name] = argument.read(name, stated)  # type: ignore[index, arg-type]  # a name of the table
        if len(found) < len(known):
            missing = next(name for name in known if name not in found)
            raise known[missing].refusal(missing)
        return found

    def need(self, found: Arguments, *names: str) -> None:
        """Raises ``Refused`` for the first of these arguments that a request has not; each may be absent."""
        for name in names:
            if found[name] is None:
                raise self.arguments[name].refusal(name)

    def _unknown(self, name: Value) -> Refused:
        known = ", ".join(self.arguments) or "none"
        return Refused("bad-request", f"{self.name} has no argument {name!r:.60}, known are {known}")


_DAEMON: Final = Subject.DAEMON
_STATE: Final = Subject.STATE
_LEADER: Final = Subject.LEADER
_TOPICS: Final = Subject.TOPICS
_OWNER: Final = text(of=Names.OWNER)
_LEASE: Final = text(of=Names.LEASE)
_GROUP: Final = text(of=Names.GROUP)
_TOPIC: Final = text(of=Names.TOPIC)
_READER: Final = text(of=Names.READER, least=1)
_WAIT: Final = milliseconds(0, MOST_WAIT)
_FLAG: Final = flag()
_LISTED: Final = number(1_000, 1, MOST)

VERBS: Final = {
    each.name: each
    for each in (
        # -- about a daemon ----------------------------------------------------------------------
        RequestVerb("status", _DAEMON, (), READS, {}),
        RequestVerb(
            "index",
            _DAEMON,
            ("inspect",),
            READS,
            {
                "form": choice("text mermaid dot rows", "text"),
                "most": number(20, 1, MOST_BOXES),
                "value": value(Absent.LEFT_OUT),
            },
        ),
        RequestVerb(
            "actors",
            _DAEMON,
            ("inspect",),
            READS,
            {"most": at_most(0, MOST_ACTORS), "turns": at_most(0, MOST_ACTORS)},
        ),
        RequestVerb("sessions", _DAEMON, ("inspect",), READS, {"most": at_most(MOST, MOST)}),
        RequestVerb(
            "end-session", _DAEMON, ("administer",), UNSAFE, {"session": other(ArgumentKind.SESSION)}
        ),
        RequestVerb(
            "drain",
            _DAEMON,
            ("administer",),
            UNSAFE,
            {"within": milliseconds(NEEDED, LONGEST_DRAIN), "reason": text("")},
        ),
        # -- about a space, as any daemon has it -------------------------------------------------
        RequestVerb(
            "cluster",
            _STATE,
            ("administer",),
            SAME,
            {"name": text(NEEDED), "do": choice("look drain resume", "look")},
        ),
        RequestVerb("sync", _STATE, (), READS, {"reached": flag()}),
        RequestVerb(
            "frontier",
            _STATE,
            (),
            READS,
            {"after": epoch(-1), "wait": _WAIT, "at": time(None), "erased": pair((), "epochs")},
        ),
        RequestVerb(
            "within",
            _STATE,
            ("observe",),
            READS,
            {
                "after": epoch(None),
                "upto": epoch(None),
                "changes": number(),
                "pattern": pattern(None),
                "as_of": epoch(None),
                "low": number(None),
                "asserted": _FLAG,
                "owners": _FLAG,
                "bytes": number(None, 0),
                "counted": _FLAG,
            },
        ),
        RequestVerb(
            "who",
            _STATE,
            ("inspect", "observe"),
            READS,
            {"pattern": pattern(), "after": epoch(None), "upto": epoch(None), "most": _LISTED},
        ),
        # -- about a space, as its leader has it -------------------------------------------------
        RequestVerb(
            "erase",
            _LEADER,
            ("administer",),
            SAME,
            {"pattern": pattern(), "before": time(), "wait": _WAIT},
        ),
        RequestVerb(
            "owners", _LEADER, ("inspect", "observe"), READS, {"pattern": pattern(), "most": _LISTED}
        ),
        RequestVerb(
            "acknowledge",
            _LEADER,
            ("observe", "readers"),
            SAME,
            {"reader": _READER, "epoch": epoch(None), "forget": _FLAG},
        ),
        RequestVerb(
            "follow",
            _LEADER,
            (MEMBER,),
            UNSAFE,
            {
                "name": text(),
                "url": text(""),
                "web": text(""),
                "hints": other(ArgumentKind.HINTS, ""),
                "stand_by": _FLAG,
                "epochs": other(ArgumentKind.MAP, None),
                "lag": other(ArgumentKind.MAP, None),
            },
        ),
        RequestVerb("lease", _LEADER, ("assert",), SAME, {"owner": _LEASE}),
        RequestVerb("renew", _LEADER, (), SAME, {"owner": _LEASE}),
        RequestVerb("release", _LEADER, (), RELEASE, {"owner": _LEASE}),
        RequestVerb(
            "withdraw", _LEADER, ("durable", "observe"), SAME, {"owner": _OWNER, "pattern": pattern()}
        ),
        RequestVerb(
            "stage",
            _LEADER,
            ("assert",),
            UNSAFE,
            {
                "key": key(),
                "operations": other(ArgumentKind.OPERATIONS, None),
                "rows": other(ArgumentKind.ROWS, None),
            },
        ),
        RequestVerb("prepare", _LEADER, ("assert",), READS, {"rows": other(ArgumentKind.ROWS)}),
        RequestVerb("discard", _LEADER, (), SAME, {"key": key(), "close": key(None)}),
        RequestVerb(
            "publish",
            _LEADER,
            ("assert", "durable"),
            SAME,  # as it has a number
            {
                "keys": other(ArgumentKind.KEYS),
                "owner": _OWNER,
                "client": text(of=Names.CLIENT),
                "sequence": number(None),
                "replace": _FLAG,
                "by": pattern(None),
                "once": _FLAG,
                "expect": other(ArgumentKind.EXPECTATIONS, ()),
                "exclusive": _FLAG,
                "discard": key(None),
                "close": key(None),
                "traceparent": text(""),
                "done": other(ArgumentKind.DONE, ()),
            },
        ),
        RequestVerb(
            "rules",
            _LEADER,
            ("inspect",),
            READS,
            {
                "ask": choice("explain why why-not graph monotone resume"),
                "about": value(None, of=Names.RULE),
                "form": choice("text rows", "text"),
            },
            ("ask", {"resume": SAME}),
        ),
        RequestVerb(
            "take",
            _LEADER,
            ("groups", "observe"),
            UNSAFE,
            {
                "group": _GROUP,
                "pattern": pattern(None),
                "topic": text("", of=Names.TOPIC),
                "options": other(ArgumentKind.MAP, None),
                "most": number(1, 1, MOST),
                "wait": _WAIT,
            },
        ),
        RequestVerb(
            "settle",
            _LEADER,
            ("groups", "observe"),
            UNSAFE,
            {
                "group": _GROUP,
                "done": cells(),
                "again": cells(),
                "dead": cells(),
                "extend": cells(),
                "after": seconds(0.0, LONGEST_SECONDS),
                "blame": flag(True),
                "reason": text(""),
            },
        ),
        RequestVerb("groups", _LEADER, (), READS, {"group": text("", of=Names.GROUP), "out": _FLAG}),
        RequestVerb("peek", _LEADER, ("observe",), READS, {"group": _GROUP, "most": number(100, 0, MOST)}),
        RequestVerb(
            "group-alter",
            _LEADER,
            ("groups", "observe"),
            UNSAFE,  # a group that was deleted may have been made anew
            {
                "group": _GROUP,
                "what": choice("pause resume alter retry seek delete"),
                "to": other(ArgumentKind.START, None),
                "why": text("paused"),
                "options": other(ArgumentKind.MAP, None),
                "pattern": pattern(None),
            },
            ("what", {"pause": SAME, "resume": SAME, "alter": SAME}),
        ),
        # -- about topics ------------------------------------------------------------------------
        RequestVerb(
            "join",
            _TOPICS,
            ("topics",),
            SAME,  # of a lost connection, the first producer has crashed, or is taken up by its name
            {
                "topic": _TOPIC,
                "partition": number(0),
                "partitions": number(1),
                "dimensions": number(0),
                "retain": number(0),
                "time": value(None, ArgumentKind.TOPIC_TIME),
                "durable": _FLAG,
                "age": seconds(None, MOST_AGE, above=True),
                "name": text("", of=Names.PRODUCER),
                "away": number(0),
                "back": _FLAG,
            },
        ),
        RequestVerb("lookup", _TOPICS, ("topics",), READS, {"topic": _TOPIC, "wait": _WAIT, "detail": _FLAG}),
        RequestVerb("end-topic", _TOPICS, ("topics",), UNSAFE, {"topic": _TOPIC}),
        RequestVerb(
            "topic-frontier",
            _TOPICS,
            ("topics",),
            READS,
            {"topic": _TOPIC, "after": epoch(-1), "wait": _WAIT},
        ),
        RequestVerb(
            "topic-epochs",
            _TOPICS,
            ("topics",),
            READS,
            {
                "topic": _TOPIC,
                "id": number(),
                "after": epoch(),
                "upto": epoch(),
                "at": pair(None, "numbers, a place in an epoch"),
            },
        ),
        RequestVerb(
            "topic-number",
            _TOPICS,
            ("topics",),
            READS,
            {"topic": _TOPIC, "id": number(), "time": value(kind=ArgumentKind.TOPIC_TIME)},
        ),
        RequestVerb(
            "topic-acknowledge",
            _TOPICS,
            ("topics", "readers"),
            SAME,
            {"reader": _READER, "topic": _TOPIC, "id": number(), "number": epoch()},
        ),
    )
}

ACTS: Final = frozenset(name for name, each in VERBS.items() if each.subject is _DAEMON and each.changes)
"""The verbs about a daemon that change it: done at another daemon, or twice, they would do harm."""


def repetition(verb: str, arguments: Map) -> Repetition:
    """Returns what becomes of a request whose answer is lost with its connection."""
    known = VERBS.get(verb)
    return UNSAFE if known is None else known.repetition(arguments)


def is_of_daemon(verb: str) -> bool:
    """True if a client asks the verb of the daemon that it has named.

    Not so ``status``, with which a session learns which daemon serves it; commands ask it of the named one.
    """
    return verb in VERBS and verb != "status" and VERBS[verb].subject is _DAEMON


def check_one_address(verb: str, count: int) -> None:
    """Raises ``UsageError`` for an act on a daemon by a client that names ``count`` daemons."""
    if verb in ACTS and count > 1:
        raise UsageError(
            f"{verb} is about one daemon, and this client names {count}: connect to that one alone"
        )
