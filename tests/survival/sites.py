"""Where a program runs: which daemons it reaches, which facts are its own, and what it has seen of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dataspace import DeliveryLost
from index.values.atoms import string_text

HEARTBEAT: Final = 1.0
"""Seconds; the clients, and what they ask of the daemon."""

WAIT: Final = 30.0
"""Seconds in which a client that starts tries to reach a daemon."""

PATIENCE: Final = 40.0
"""Seconds after which a program that has not ended is a failure."""

TTL: Final = 30.0
"""Seconds that a lease outlasts its last renewal: more than any fault takes."""


@dataclass(frozen=True)
class Site:
    """The addresses of daemons of one home, and the first field of all facts of one run of a program."""

    urls: tuple[str, ...]
    tag: str
    grace: float

    @property
    def options(self) -> dict[str, Any]:
        """What the program connects with."""
        return {"wait": WAIT, "heartbeat": HEARTBEAT, "grace": self.grace}

    @contextmanager
    def may_lose_jobs(self) -> Iterator[None]:
        """Lets a job be lost with its session, which without grace ends with its connection: it comes
        again."""
        try:
            yield
        except DeliveryLost:
            if self.grace:
                raise

    def pattern(self, label: str, *rest: str) -> str:
        """Returns the text of a pattern of the program's own facts."""
        return f"{label}({', '.join([string_text(self.tag), *rest])})"


@dataclass
class Seen:
    """What an observer has seen: the state, and the messages in their order."""

    state: set[Any] = field(default_factory=set)
    messages: list[Any] = field(default_factory=list)

    def note(self, change: Any) -> None:
        """Notes a change."""
        if change.kind == "!":
            self.messages.append(change.captures[0])
        elif change.kind == "+":
            self.state.add(change.captures[0])
        else:
            self.state.discard(change.captures[0])
