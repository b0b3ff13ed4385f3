"""What connections report as it happens: refusals, goodbyes, what took long, and acts of administrators.

What took long is a line of the log (the *slow log*).  Refused logins, refused rights and acts of
administrators go to the audit log, with who did it and from where.

Always: reported events are rare, so they may cost some microseconds; frequent ones are counted where they
happen, and read from there.  No text has a token or the path of the data.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from server.logs import AUDIT, LOGGER
from server.monitoring.counts import Counts, count

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link
    from index.values.values import Map, Value
    from server.config.model import Slow
    from server.config.principals import Principal

logger = logging.getLogger(LOGGER)
audit = logging.getLogger(AUDIT)

TEXT: Final = 400
"""Characters of a reason that are written."""


class Peer(Protocol):
    """The connection that something is reported of."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def link(self) -> Link: ...
    @property
    def principal(self) -> Principal: ...


P = TypeVar("P", bound=Peer)


class Watch:
    """The reports of all connections of one daemon."""

    def __init__(self, counts: Counts, slow: Slow) -> None:
        self._counts: Final = counts
        self.take(slow)

    def take(self, slow: Slow) -> None:
        """Takes thresholds of the slow log, from now on."""
        self._slow = {kind: getattr(slow, kind) or inf for kind in ("turn", "request", "replay", "rules")}
        self.slow_turn: float = self._slow["turn"]
        """Seconds from which on a turn is slow; every bundle of packets reads it."""

    # -- what took long -------------------------------------------------------------------------------

    def took(self, peer: Peer, kind: str, what: str, seconds: float) -> None:
        """Logs what a connection did if it took too long; ``kind`` is a threshold of ``Slow``."""
        if seconds >= self._slow[kind]:
            self.was_slow(kind, what, seconds, who(peer))

    def rules_took(self, space: str, rule: str, seconds: float) -> None:
        """Logs a rule that has used too much of the last second."""
        if seconds >= self._slow["rules"]:
            self.was_slow("rules", f"rule {rule!r:.200} of space {space}", seconds, {"space": space})

    def was_slow(self, kind: str, what: str, seconds: float, fields: dict[str, object]) -> None:
        """Writes a line of the slow log."""
        count(self._counts.slow, kind)
        said = "; ".join([f"{name} {value}" for name, value in fields.items()])
        logger.warning(
            f"slow {kind}: %.3f s: %s (%s)",
            seconds,
            what,
            said,
            extra={
                "event": f"slow-{kind}",
                "fields": {"kind": kind, "seconds": round(seconds, 6), "what": what, **fields},
            },
        )

    def timed(
        self, verb: str, carry_out: Callable[[P, Map], Awaitable[Value]]
    ) -> Callable[[P, Map], Awaitable[Value]]:
        """Returns a request that is logged if it takes too long; a request that was asked to wait is not."""

        async def timed(peer: P, arguments: Map) -> Value:
            began = perf_counter()
            try:
                answer = await carry_out(peer, arguments)
                if (act := _act_of(verb, arguments)) is not None:
                    self.acted(*act, peer)
                return answer
            finally:
                if "wait" not in arguments:
                    self.took(peer, "request", verb, perf_counter() - began)

        return timed

    # -- refusals ---------------------------------------------------------------------------------------

    def refused(self, peer: Peer, code: str, text: str) -> None:
        """Notes that a turn, a request or a stream was refused."""
        count(self._counts.refused, code)
        if code == "not-allowed":
            self._audit("right-refused", peer, text, text.partition("(")[0])

    def parted(self, peer: Peer, code: str, text: str) -> None:
        """Notes that the daemon ends a connection."""
        if code:
            count(self._counts.goodbyes, code)
        if code == "unauthorized" and peer.name:
            self._audit("token-ended", peer, text, code)

    def login_refused(self, peer: Peer, code: str, text: str) -> None:
        """Notes that a hello was refused."""
        if code == "unauthorized":
            self._counts.logins_refused += 1
        self._audit("login-refused", peer, f"{code}: {text}", code)

    def _audit(self, event: str, peer: Peer, text: str, about: str) -> None:
        """Writes a refusal; refusals of one principal about one object are throttled together."""
        fields = {"act": event, **who(peer), "text": text[:TEXT]}
        audit.info(
            f"{event}: %s (%s)",
            text[:TEXT],
            _words(fields),
            extra={"event": event, "fields": fields, "of": str(peer.principal), "about": about[:TEXT]},
        )

    # -- acts of administrators -------------------------------------------------------------------------

    def acted(self, act: str, text: str, peer: Peer | None = None) -> None:
        """Notes what an administrator did: by a connection, or by the configuration, a signal or a start."""
        fields = {"act": act, **({} if peer is None else who(peer)), "text": text[:TEXT]}
        audit.info(
            f"{act}: %s (%s)",
            text[:TEXT],
            _words(fields),
            extra={"event": act, "fields": fields, "counted": True},
        )


def _act_of(verb: str, arguments: Map) -> tuple[str, str] | None:
    """Returns what a request does that only administrators do, and to what."""
    if verb == "rules" and arguments.get("ask") == "resume":
        return "rule-resumed", f"rule {arguments.get('about')!r:.200}"
    if verb == "acknowledge" and arguments.get("forget") is True:
        return "reader-forgotten", f"reader {arguments.get('reader')!r:.200}"
    return ("topic-ended", f"topic {arguments.get('topic')!r:.200}") if verb == "end-topic" else None


def who(peer: Peer) -> dict[str, object]:
    """Returns who did something, as fields of a line; names that clients choose are quoted."""
    return {
        "connection": peer.number,
        "name": f"{peer.name!r:.100}",
        "principal": str(peer.principal),
        "address": peer.link.peer,
    }


def _words(fields: dict[str, object]) -> str:
    return "; ".join([f"{name} {value}" for name, value in fields.items() if name not in ("act", "text")])
