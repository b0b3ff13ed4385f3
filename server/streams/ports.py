"""What streams need: the connection that opened them, and the space whose facts they carry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.wire.packets import Packet
    from index.values.values import Value
    from relay.delivery.followers import Follower
    from relay.delivery.outbox import OutStream
    from server.config.rights import Permit
    from server.lane import Work
    from server.owners.accounts import Account
    from server.spaces.space import HostedSpace
    from server.streams.request import StreamRequest


class SessionInterests(Protocol):
    """The session that opened the streams: its interests are facts of the space."""

    @property
    def number(self) -> int:
        """The number of the session."""

    def announce(self, stream: int, pattern: Value) -> None:
        """Asserts the interest of a stream, unless it is asserted already."""

    def withdraw(self, stream: int) -> None:
        """Retracts the interest of a stream, if it was asserted."""


class StreamPeer(Protocol):
    """The connection that opened the streams."""

    @property
    def home(self) -> HostedSpace:
        """The space that the session is about."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def permit(self) -> Permit:
        """What the client may do."""

    @property
    def own(self) -> SessionInterests:
        """The session."""

    @property
    def name(self) -> str:
        """What the client calls itself."""

    @property
    def gone(self) -> bool:
        """True once the connection has ended, or its session belongs to another one."""

    @property
    def streams(self) -> Mapping[int, OutStream]:
        """The streams that are open."""

    def start(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Runs a task that ends with the connection."""

    def say(self, packet: Packet) -> None:
        """Queues a control packet."""

    def wake(self, stream: OutStream) -> None:
        """Notes that a stream has something to send."""

    def work(self) -> Work:
        """Returns a piece of background work of this client."""

    def fail(self, stream: OutStream, code: str, text: str) -> None:
        """Ends a stream with an error."""


class Feeding(Protocol):
    """The streams of one connection, as a replay uses them."""

    def backlog(self, stream: OutStream, request: StreamRequest) -> Follower:
        """Returns what waits behind a stream; made when it is first asked for."""

    async def prepare(self, pattern: Value, work: Work) -> None:
        """Prepares the index for the first observer of a pattern, in a turn of the lane that goes on."""


class HistoryReader(Protocol):
    """The connection whose requests are about the past of a space."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def home(self) -> HostedSpace:
        """The space that the session is about."""

    @property
    def permit(self) -> Permit:
        """What the client may do."""

    def work(self) -> Work:
        """Returns a piece of background work of this client."""
