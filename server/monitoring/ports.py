"""What metrics, health and the list of sessions need of the daemon and its spaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import trio

    from dataspace.transport.sockets import Link
    from relay.delivery.followers import Delivery
    from relay.delivery.outbox import OutStream
    from relay.store.durations import Durations
    from server.config.model import Limits
    from server.config.principals import Principal
    from server.config.rights import Permit
    from server.lane import Lane, Work
    from server.monitoring.counts import Counts
    from server.monitoring.rates import Rates
    from server.monitoring.readiness import Readiness
    from server.monitoring.watch import Watch
    from server.spaces.sessions import SessionState
    from server.spaces.space import HostedSpace
    from server.topics.catalogue import Topics


class WatchedSending(Protocol):
    """The send queue of a connection."""

    sent: int

    @property
    def unheard(self) -> int:
        """Bytes of answers that the peer has not received, about."""


class WatchedConnection(Protocol):
    """A connection of the daemon."""

    number: int
    name: str
    turns: int
    received: int
    since: float
    asked: int

    @property
    def home(self) -> HostedSpace: ...
    @property
    def link(self) -> Link: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def permit(self) -> Permit: ...
    @property
    def sending(self) -> WatchedSending: ...
    @property
    def streams(self) -> Mapping[int, OutStream]: ...
    @property
    def state(self) -> SessionState | None: ...
    def work(self) -> Work:
        """Returns a piece of background work of this client."""

    def dismiss(self, code: str, text: str) -> None:
        """Ends the connection with a goodbye that gives the reason."""


class WatchedMemory(Protocol):
    """The memory of the daemon."""

    used: int
    trims: int

    @property
    def limit(self) -> int: ...
    def refresh(self) -> None:
        """Adds up what is in use."""


class WatchedWriter(Protocol):
    """What brings a log to the disk."""

    @property
    def failure(self) -> object: ...
    @property
    def full(self) -> object: ...
    @property
    def writing_since(self) -> float: ...
    @property
    def durations(self) -> Durations: ...


class Watched(Protocol):
    """The daemon."""

    streams: int

    @property
    def connections(self) -> Mapping[int, WatchedConnection]: ...
    @property
    def strangers(self) -> Sized: ...
    @property
    def spaces(self) -> Mapping[str, HostedSpace]: ...
    @property
    def counts(self) -> Counts: ...
    @property
    def watch(self) -> Watch: ...
    @property
    def readiness(self) -> Readiness: ...
    @property
    def loop_lag(self) -> Durations: ...
    @property
    def memory(self) -> WatchedMemory: ...
    @property
    def delivery(self) -> Delivery: ...
    @property
    def topics(self) -> Topics: ...
    @property
    def lane(self) -> Lane: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def replays(self) -> trio.Semaphore: ...
    @property
    def topic_writer(self) -> WatchedWriter:
        """What writes durable topics."""

    @property
    def writers(self) -> Iterable[tuple[str, WatchedWriter]]:
        """All writers to the disk, by name."""

    @property
    def spans(self) -> tuple[int, int]:
        """The counts of spans that the collector has taken, and of dropped spans."""

    @property
    def rates(self) -> Rates:
        """How much each connection has done in the last seconds."""

    @property
    def directories(self) -> Mapping[str, Path]:
        """The directory of each space."""
