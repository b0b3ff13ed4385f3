"""What streams need: the connection that opened them, and the space whose facts they carry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.kernel.epochs import Epoch
    from dataspace.kernel.space import Space
    from dataspace.wire.packets import Packet
    from index.values.values import Value
    from relay.delivery.followers import Follower
    from relay.delivery.outbox import OutStream
    from relay.log.log import Log
    from relay.log.recent import Recent
    from relay.store.errors import LogFailed
    from server.config.rights import Permit
    from server.lane import Work
    from server.recalling import Recalling
    from server.streams.request import StreamRequest


class Commits(Protocol):
    """What streams need of epochs on their way to the disk."""

    @property
    def durable(self) -> int:
        """The newest epoch on disk."""

    @property
    def full(self) -> LogFailed | None:
        """The error of a full disk, while it is full."""

    @property
    def recent(self) -> Recent:
        """The latest epochs, in memory."""

    def tail(self, after: int) -> Sequence[Epoch]:
        """Returns the epochs beyond ``after`` that are not known to be on disk yet."""

    async def wait_durable(self, epoch: int) -> None:
        """Waits until an epoch is on disk."""

    async def wait_beyond(self, epoch: int) -> None:
        """Waits until an epoch later than this one is on disk."""


class ReaderAccount(Protocol):
    """The account in which named readers and patterns are counted."""

    def take(self, what: str, count: int = 1) -> None:
        """Counts so many more of something; raises ``Refused`` beyond the quota."""

    def give(self, what: str, count: int = 1) -> None:
        """Counts so many less."""


class SpaceHistory(Protocol):
    """One space with its past."""

    @property
    def name(self) -> str:
        """The name of the space."""

    @property
    def identity(self) -> str:
        """The identity of its log, which no other log has."""

    @property
    def space(self) -> Space:
        """The current facts."""

    @property
    def commits(self) -> Commits:
        """What streams need of epochs on their way to the disk."""

    @property
    def log(self) -> Log:
        """The epochs on disk."""

    @property
    def recalling(self) -> Recalling:
        """Reads epochs of the previous daemon back into memory."""

    def check_space(self, name: str) -> None:
        """Raises ``Refused`` for the name of another space."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""


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
    def home(self) -> SpaceHistory:
        """The space that the session is about."""

    @property
    def account(self) -> ReaderAccount:
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


class ReadSpace(SpaceHistory, Protocol):
    """One space with its past and its named readers."""

    @property
    def reader_accounts(self) -> dict[str, ReaderAccount]:
        """For whom each named reader counts that has come since the start."""


class HistoryReader(Protocol):
    """The connection whose requests are about the past of a space."""

    @property
    def account(self) -> ReaderAccount:
        """What the principal of the client has."""

    @property
    def home(self) -> ReadSpace:
        """The space that the session is about."""

    @property
    def permit(self) -> Permit:
        """What the client may do."""

    def work(self) -> Work:
        """Returns a piece of background work of this client."""
