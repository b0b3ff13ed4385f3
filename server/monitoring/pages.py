"""The pages of an operator: ``/metrics``, ``/healthz`` and ``/readyz``, wherever HTTP is answered.

Always: metrics are read at most once in a second, however often they are asked for; answers name no client,
no fact and no path.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import trio

from dataspace.errors import Refused, UsageError
from server.monitoring.metrics import all_metrics, readings
from server.monitoring.survey import survey

if TYPE_CHECKING:
    from server.features import Feature
    from server.metrics import Metric, Reading
    from server.monitoring.exposition import Exposition
    from server.sessions.state import DaemonState

FRESH_SECONDS: Final = 1.0
"""Seconds for which what was read is answered again."""

METRICS: Final = "/metrics"
PATHS: Final = (METRICS, "/healthz", "/readyz")

Headers = list[tuple[str, str]]
Answer = tuple[int, Headers, bytes]
"""A status of HTTP, headers, and a body."""

STUCK_SECONDS: Final = 10.0
"""Seconds that one write to the disk may take before the log counts as not writable."""


def exposition(metrics: Sequence[Metric[Any]] = ()) -> Exposition:
    """Returns what writes metrics; raises ``UsageError`` where the extra ``metrics`` is not installed."""
    try:
        from server.monitoring.exposition import Exposition  # only where metrics are asked for
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "prometheus_client":
            raise
        raise UsageError(
            "metrics need the package prometheus-client: pip install 'dataspace-server[metrics]', "
            "or start without admin"
        ) from None
    return Exposition(metrics)


class AdminPages:
    """The pages of one daemon."""

    def __init__(self, daemon: DaemonState, features: Sequence[Feature]) -> None:
        self._daemon = daemon
        self._features = features
        self._exposition: Exposition | None = None
        self._reading = trio.Lock()
        self._read: list[Reading] = []
        self._read_at = -math.inf

    async def answer(self, path: str, headers: Iterable[tuple[str, str]] = ()) -> Answer:
        """Returns the answer to a GET of a path; 404 for another one.  ``/readyz`` alone reads its query.

        Raises ``UsageError`` if metrics are asked for and cannot be written here.
        """
        await trio.lowlevel.checkpoint()
        page, _, query = path.partition("?")
        match page:
            case "/metrics":
                accept = ",".join([value for name, value in headers if name.lower() == "accept"])
                return await self._metrics(accept)
            case "/healthz":
                return _verdict(list(ailments(self._daemon)))
            case "/readyz":
                role = dict(parse_qsl(query)).get("role", "")
                if role not in ROLES:
                    return _text(400, f"role is {role!r:.20}, give leader or reader\n")
                reason = self._daemon.readiness.reason
                unfit = ROLES[role](self._daemon)
                return _verdict([*([reason] if reason else []), *ailments(self._daemon), *unfit])
        return _text(404, f"there is no such page, but {', '.join(PATHS)}\n")

    async def _metrics(self, accept: str) -> Answer:
        if self._exposition is None:
            self._exposition = exposition(all_metrics(self._features))
        async with self._reading:
            if trio.current_time() - self._read_at >= FRESH_SECONDS:
                found = await survey(self._daemon, time.time_ns() // 1000)
                self._read = readings(self._daemon, self._features, found)
                self._read_at = trio.current_time()
        kind, body = self._exposition.text(self._read, accept)
        return 200, [("Content-Type", kind)], body


def _any(_daemon: DaemonState) -> Iterator[str]:
    yield from ()


def _leader(daemon: DaemonState) -> Iterator[str]:
    """Yields why turns should be sent to another daemon."""
    if not daemon.leads:
        yield "main is followed here"
    elif not daemon.surety.is_sure():
        yield "another daemon may lead main by now"


def _reader(daemon: DaemonState) -> Iterator[str]:
    """Yields why new readers should be sent to another daemon."""
    for name, hosted in daemon.spaces.items():
        try:
            if not hosted.leads:
                hosted.leader.check_lag(hosted.commits.durable)
        except Refused:
            yield f"space {name} is more than {hosted.leader.most_lag:g} s behind"


ROLES: Final[Mapping[str, Callable[[DaemonState], Iterator[str]]]] = {
    "": _any,
    "leader": _leader,
    "reader": _reader,
}
"""What a probe may ask for in the query of ``/readyz``."""


def _verdict(reasons: list[str]) -> Answer:
    """Returns 200 for no reasons, else 503 with them."""
    return _text(503, "".join([f"{each}\n" for each in reasons])) if reasons else _text(200, "ok\n")


def _text(status: int, text: str) -> Answer:
    return (
        status,
        [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")],
        text.encode(),
    )


def ailments(daemon: DaemonState) -> Iterator[str]:
    """Yields what keeps the daemon from writing its logs, without paths; O(spaces).

    A daemon is *healthy* if its loop turns and its logs can be written: restart it if it is not for long. It
    is *ready* if it is healthy, has started and does not end: send new clients elsewhere if it is not.

    Always: an answer shows that the loop turns; a disk that does not answer is noticed by the write that
    waits for it.
    """
    for name, writer in daemon.writers():
        if writer.failure is not None:
            yield f"{name} has failed, the daemon's log says why"
        elif writer.full is not None:
            yield f"{name} waits for room on the disk"
        elif writer.writing_since and (spent := time.perf_counter() - writer.writing_since) > STUCK_SECONDS:
            yield f"{name}: the disk has not answered for {spent:.0f} s"
