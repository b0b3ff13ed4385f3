"""What connections report as it happens: refusals, goodbyes, what took long, and acts of administrators.

What took long is a line of the log (the *slow log*).  Refused logins, refused rights and acts of
administrators go to the audit log, with who did it and from where.

Always: reported events are rare, so they may cost some microseconds; frequent ones are counted where they
happen, and read from there.  No text has a token or the path of the data.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from server.logs import AUDIT, LOGGER
from server.sessions.counts import Counts, count
from server.spaces.traces import TRACED

if TYPE_CHECKING:
    from server.config.model import Slow
    from server.config.principals import Principal

logger = logging.getLogger(LOGGER)
audit = logging.getLogger(AUDIT)

TEXT: Final = 400
"""Characters of a reason that are written."""


class Who(NamedTuple):
    """The client that something is reported of."""

    session: str
    """The name of the session, as in ``dataspace sessions``."""
    name: str
    """What the client calls itself."""
    principal: Principal
    address: str

    def fields(self) -> dict[str, object]:
        """Returns the fields of a line; names that clients choose are quoted."""
        return {
            "session": self.session,
            "name": f"{self.name!r:.100}",
            "principal": str(self.principal),
            "address": self.address,
        }


class Watch:
    """The reports of all connections of one daemon."""

    def __init__(self, counts: Counts, slow: Slow) -> None:
        self._counts: Final = counts
        self.set_thresholds(slow)

    def set_thresholds(self, slow: Slow) -> None:
        """Takes thresholds of the slow log, from now on."""
        self._slow = {kind: getattr(slow, kind) or inf for kind in ("turn", "request", "replay", "rules")}
        self.slow_turn: float = self._slow["turn"]
        """Seconds from which on a turn is slow; every bundle of packets reads it."""

    # -- what took long -------------------------------------------------------------------------------

    def took(self, who: Who, kind: str, what: str, seconds: float) -> None:
        """Logs what a connection did if it took too long; ``kind`` is a threshold of ``Slow``."""
        if seconds >= self._slow[kind]:
            self.was_slow(kind, what, seconds, who.fields())

    def rules_took(self, space: str, rule: str, seconds: float) -> None:
        """Logs a rule that has used too much of the last second."""
        if seconds >= self._slow["rules"]:
            self.was_slow("rules", f"rule {rule!r:.200} of space {space}", seconds, {"space": space})

    def was_slow(self, kind: str, what: str, seconds: float, fields: dict[str, object]) -> None:
        """Writes a line of the slow log."""
        count(self._counts.slow, kind)
        details = "; ".join([f"{name} {value}" for name, value in fields.items()])
        logger.warning(
            f"slow {kind}: %.3f s: %s (%s)",
            seconds,
            what,
            details,
            extra={
                "event": f"slow-{kind}",
                "fields": {"kind": kind, "seconds": round(seconds, 6), "what": what, **fields},
            },
        )

    # -- refusals ---------------------------------------------------------------------------------------

    def refused(self, who: Who, code: str, text: str) -> None:
        """Notes that a turn, a request or a stream was refused."""
        count(self._counts.refused, code)
        if (trace := TRACED.get()) is not None:
            trace.code = code
        if code == "not-allowed":
            self._audit("right-refused", who, text, text.partition("(")[0])

    def parted(self, who: Who, code: str, text: str) -> None:
        """Notes that the daemon ends a connection."""
        if code:
            count(self._counts.goodbyes, code)
        if code == "unauthorized" and who.name:
            self._audit("token-ended", who, text, code)

    def login_refused(self, who: Who, code: str, text: str) -> None:
        """Notes that a hello was refused."""
        if code == "unauthorized":
            self._counts.logins_refused += 1
        self._audit("login-refused", who, f"{code}: {text}", code)

    def _audit(self, event: str, who: Who, text: str, about: str) -> None:
        """Writes a refusal; refusals of one principal about one object are throttled together."""
        fields = {"act": event, **who.fields(), "text": text[:TEXT]}
        audit.info(
            f"{event}: %s (%s)",
            text[:TEXT],
            _words(fields),
            extra={"event": event, "fields": fields, "of": str(who.principal), "about": about[:TEXT]},
        )

    # -- acts of administrators -------------------------------------------------------------------------

    def acted(self, act: str, text: str, who: Who | None = None) -> None:
        """Notes what an administrator did: by a connection, or by the configuration, a signal or a start."""
        fields = {"act": act, **({} if who is None else who.fields()), "text": text[:TEXT]}
        audit.info(
            f"{act}: %s (%s)",
            text[:TEXT],
            _words(fields),
            extra={"event": act, "fields": fields, "counted": True},
        )


def _words(fields: dict[str, object]) -> str:
    return "; ".join([f"{name} {value}" for name, value in fields.items() if name not in ("act", "text")])
