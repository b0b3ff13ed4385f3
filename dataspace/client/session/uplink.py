"""An uplink: one connection to a daemon, made again whenever it is lost.

It connects, says hello, reads, writes what the kernel would not take at once, and comes back with pauses
that grow to a few seconds.  What is said over it is the business of its ``User``, so that the life of a
connection can be read, and changed, without knowing what turns or observations are.

Always: the user is told of each welcome, then of each packet in order, then of the loss, and at last, once,
of the end, which is also the loss where the daemon has sent us away; between a loss and the next welcome
nothing is sent.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

import trio

from dataspace.errors import Broken, Closed, DataspaceError, ProtocolError, Unreachable, UsageError
from dataspace.transport.addresses import Address
from dataspace.transport.credentials import Credentials
from dataspace.transport.dialing import open_link
from dataspace.transport.sockets import Link
from dataspace.wire import packets as p
from dataspace.wire.features import Granted
from dataspace.wire.heartbeat import Heartbeat
from dataspace.wire.session import Role, Session

CLIENT_FRAME: Final = 64 << 20
"""Bytes, and so elements, that a client takes in one frame from the daemon it chose to trust."""

CONNECT_SECONDS: Final = 10.0
LASTING: Final = 1.0
"""Seconds after which a connection counts as having worked."""

_PATIENT: Final = frozenset(["timeout", "stalled"])
"""Codes of goodbyes after which it makes sense to come back."""

_CROWDED: Final = frozenset(["limit", "timeout"])
"""The same of those that come in place of a welcome: when a daemon is back, all its clients are at once."""

_PAUSES: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


class User(Protocol):
    """Who speaks over an uplink."""

    def hello(self) -> p.Hello:
        """What to introduce ourselves with."""

    def welcomed(self, welcome: p.Welcome) -> None:
        """The connection is there, for the first time or again."""

    def heard(self, packet: p.Packet, size: int) -> None:
        """A packet has come, in a frame of ``size`` bytes."""

    def lost(self, error: Broken, reason: str) -> None:
        """The connection is gone, for this reason; another will be tried."""

    def ended(self, error: DataspaceError) -> None:
        """There will be no connection any more."""


class Uplink:
    """The connection of one user; ``run`` keeps it up.  ``dial`` opens a link; by default, to the address."""

    def __init__(
        self,
        address: Address,
        user: User,
        credentials: Credentials,
        *,
        reconnect: bool = True,
        dial: Callable[[Address, Credentials], Awaitable[Link]] | None = None,
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._reconnect = reconnect
        self.reconnects = 0
        """How often a lost connection was made again."""
        self._heard_at = 0.0
        self._gap = (0.0, 0.0)
        self._user = user
        self._dial: Final = dial or _dial
        self._link: Link | None = None
        self._session = _new_session()
        self._out = bytearray()
        self._kick = trio.Event()
        self._beat = Heartbeat()
        self._connected = trio.Event()
        self._dismissal: ProtocolError | None = None
        self._over = self._welcomed = False

    # -- saying ---------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Whether there is a connection now."""
        return self._link is not None

    async def wait_up(self) -> None:
        """Returns when there is a connection, or when there will be none any more; it may go at once."""
        await self._connected.wait()

    def send(self, packet: p.Packet, *, at_once: bool = True) -> int:
        """Sends a packet if there is a connection, else nothing happens; how many bytes it was."""
        if self._link is None:
            return 0
        framed = self._session.send(packet)
        self.write(framed, at_once=at_once)
        return len(framed)

    def write(self, framed: bytes, *, at_once: bool) -> None:
        """Hands bytes to the kernel now, or with what else is said before the next pause."""
        self._out += framed
        if at_once:
            self.flush()
        else:
            self._kick.set()

    def flush(self) -> None:
        """Hands to the kernel what it takes."""
        if self._link is not None and (self._out or self._link.pending):
            try:
                sent = self._link.send_nowait(self._out)
            except OSError:
                return  # the reader finds out
            del self._out[:sent]
            if sent:
                self._beat.said(trio.current_time())
            if self._out or self._link.pending:
                self._kick.set()

    async def _write_rest(self) -> None:
        """Writes what is left over, and a ping when nothing else was said for an interval."""
        while True:
            with trio.move_on_at(self._beat.due):
                await self._kick.wait()
            self._kick = trio.Event()
            if not self._out and self._beat.due <= trio.current_time():
                self._beat.said(trio.current_time())
                self.send(p.Ping(0))
            self.flush()
            while self._link is not None and (self._out or self._link.pending):
                try:
                    await self._link.wait_writable()
                except (OSError, trio.ClosedResourceError):
                    break  # the reader finds out
                self.flush()

    # -- life -----------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps the connection up until cancelled; the first one must succeed.

        Where it is not to be made again, returns when it is lost, and the user has been told why.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_rest)
                try:
                    await self._enter()
                    task_status.started()
                    await self._stay()
                except ProtocolError as error:  # in here, where the nursery has not boxed it yet
                    self._shut(error)
                    raise
                nursery.cancel_scope.cancel()
        finally:
            self._shut(Closed(f"the connection to {self.address.url} is closed"))

    async def _enter(self) -> None:
        """The first connection: where there is no room just now, tries for as long as connecting may take."""
        deadline, attempt = trio.current_time() + CONNECT_SECONDS, 0
        while True:
            try:
                await self._connect()
                return
            except ProtocolError as refusal:
                if refusal.code not in _CROWDED or trio.current_time() > deadline:
                    raise
            attempt += 1
            await self._pause(attempt)

    async def _stay(self) -> None:
        """Reads from one connection after another; raises ``ProtocolError`` when we are not wanted."""
        if not self._reconnect:
            self._shut(await self._read())
            return
        attempt = 0
        while True:
            since = trio.current_time()
            await self._read()
            attempt = 0 if trio.current_time() - since > LASTING else attempt + 1
            while True:
                await self._pause(attempt)
                try:
                    await self._connect()
                    break
                except (Unreachable, Broken):
                    attempt += 1
                except ProtocolError as refusal:
                    if refusal.code not in _CROWDED:
                        raise
                    attempt += 1

    async def _pause(self, attempt: int) -> None:
        """Between attempts: none at first, then longer and longer, and never all clients at once."""
        await trio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)] * (0.5 + random.random()))

    async def _connect(self) -> None:
        """Says hello, waits for the welcome, and has the user put everything back as it was."""
        link = await self._dial(self.address, self._credentials)
        self._session = _new_session()
        try:
            with trio.move_on_after(CONNECT_SECONDS):
                try:
                    link.send_nowait(self._session.send(self._user.hello()))
                except OSError as error:  # it was killed between its kernel's welcome and its own
                    raise Broken(f"{self.address.url} was lost before the hello: {error}") from error
                while chunk := await link.receive():
                    heard = [(packet, self._session.size) for packet in self._session.feed(chunk)]
                    if heard:
                        self._begin(link, heard[0][0])
                        self._hear(heard[1:])
                        return
            raise Broken(f"no welcome from {self.address.url}")
        except BaseException:
            link.close()
            raise

    def _begin(self, link: Link, first: p.Packet) -> None:
        if isinstance(first, p.Bye):
            raise ProtocolError(*first)
        assert isinstance(first, p.Welcome)  # the session machine lets nothing else pass
        self._out.clear()
        self._link = link
        self._beat = Heartbeat(Granted.read(first.features).heartbeat, now=trio.current_time())
        self._kick.set()
        self._connected.set()
        self.reconnects += self._welcomed
        self._welcomed = True
        self._user.welcomed(first)
        self._heard_at = time.time()
        self._gap = (0.0, 0.0)

    async def _read(self) -> Broken:
        """Reads until the connection is lost, and says why it was."""
        link, session = self._link, self._session
        assert link is not None  # connected
        reason = "the daemon closed it"
        try:
            while chunk := await self._receive(link):
                self._hear((packet, session.size) for packet in session.feed(chunk))
        except TimeoutError as silence:
            reason = str(silence)
        except (ProtocolError, UsageError) as error:  # the second for values that nest too deeply to be kept
            reason = f"the daemon broke the protocol: {error}"
        return self._lose(reason)

    async def _receive(self, link: Link) -> bytes:
        """Some bytes, or none at the end; ``TimeoutError`` when the daemon has been silent for too long."""
        chunk = None
        with trio.move_on_at(self._beat.lost):
            chunk = await link.receive()
        if chunk is None:
            chunk = link.receive_nowait()  # it may be we who slept
        if chunk is None:
            raise TimeoutError(f"nothing was heard for {2 * self._beat.interval:g} s")
        self._beat.heard(trio.current_time())
        if chunk:
            self._note_heard(time.time())
        return chunk

    @property
    def good_until(self) -> float:
        """When the daemon was last heard in time, in seconds since 1970.

        A process that was stopped reads, when it goes on, what the daemon said before it gave the client up:
        that was not heard in time.
        """
        began, ended = self._gap
        return began if ended and time.time() - ended < 2 * self._beat.interval else self._heard_at

    def _note_heard(self, now: float) -> None:
        if now - self._heard_at > 2 * self._beat.interval:
            self._gap = (self._heard_at, now)
        self._heard_at = now

    def _hear(self, packets: Iterable[tuple[p.Packet, int]]) -> None:
        for packet, size in packets:
            match packet:
                case p.Bye(code, _):
                    if code and code not in _PATIENT:  # to come back would end the same way
                        self._dismissal = ProtocolError(*packet)
                case p.Ping(number):
                    self.send(p.Pong(number))
                case _:
                    self._user.heard(packet, size)

    def _lose(self, reason: str) -> Broken:
        """The connection is gone: everything waits for the next one, or ``ProtocolError`` says why not."""
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._dismissal is not None:  # the user is told of that alone, as the end
            raise self._dismissal
        self._connected = trio.Event()
        broken = Broken(f"the connection to {self.address.url} was lost: {reason}")
        self._user.lost(broken, reason)
        return broken

    def _shut(self, error: DataspaceError) -> None:
        if not self._over:
            self._over = True
            self._part()
            self._user.ended(error)
            self._connected.set()

    def _part(self) -> None:
        """Says goodbye, if there is somebody to hear it."""
        if self._link is not None:
            if not self._session.parted:
                try:
                    self._link.send_nowait(bytes(self._out) + self._session.send(p.Bye("", "")))
                except OSError:
                    pass  # it is gone already
            self._link.close()
            self._link = None


async def _dial(address: Address, credentials: Credentials) -> Link:
    return await open_link(address, credentials, timeout=CONNECT_SECONDS)


def _new_session() -> Session:
    return Session(Role.CLIENT, max_frame=CLIENT_FRAME, max_elements=CLIENT_FRAME)
