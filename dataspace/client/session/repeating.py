"""Which requests are sent again when the connection is lost before their answer?

The daemon may have carried the lost request out, so a request is sent again only where twice is as good as
once.  The caller of any other one gets ``Broken``, which says that it may have taken effect.

Always: every request of WIRE.md is in ``REQUESTS``; a request that is not listed is never sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from index.values.values import Map

AWAY_SECONDS: Final = 0.25
"""Seconds until a daemon that does not reach its store is asked again."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """What becomes of a request without an answer.

    ``is_safe`` if it is sent again after a reconnect.  ``changes`` if it has an effect, so that it is not
    sent again to another space.  ``happened`` are the refusals of a repeated request that mean: the first one
    has taken effect.
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

ByArguments: TypeAlias = Callable[[Map], Repetition]


def _group_alter(arguments: Map) -> Repetition:
    """Options are set, and set again; a group that was deleted may have been made anew."""
    return SAME if arguments.get("what") in ("pause", "resume", "alter") else UNSAFE


def _rules(arguments: Map) -> Repetition:
    return SAME if arguments.get("ask") == "resume" else READS


REQUESTS: Final[dict[str, Repetition | ByArguments]] = {
    **dict.fromkeys(
        (
            *("sync", "status", "frontier", "within", "who", "owners", "index", "actors", "sessions"),
            *("groups", "lookup", "prepare", "topic-frontier", "topic-epochs", "topic-number"),
        ),
        READS,
    ),
    **dict.fromkeys(
        (
            *("lease", "renew", "withdraw", "acknowledge", "topic-acknowledge", "discard", "erase"),
            "publish",  # which has a number
            "join",  # of a lost connection, the first producer has crashed, or is taken up by its name
        ),
        SAME,
    ),
    **dict.fromkeys(("stage", "take", "settle", "end-topic", "end-session", "drain", "follow"), UNSAFE),
    "release": RELEASE,
    "group-alter": _group_alter,
    "rules": _rules,
}


def repetition(verb: str, arguments: Map) -> Repetition:
    """Returns what becomes of a request whose answer is lost with its connection."""
    found = REQUESTS.get(verb, UNSAFE)
    return found if isinstance(found, Repetition) else found(arguments)
