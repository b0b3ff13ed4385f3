"""The connection loop: one connection to a daemon, made again whenever it is lost.

It connects, sends hello, reads, writes what the kernel did not take at once, and reconnects after pauses that
grow to a few seconds: to the last good address, then the others, or where the daemon sends it
(``Candidates``).  Its ``User`` decides on the packets, so that the life of a connection can be read, and
changed, without knowledge of turns or observations.

Always: the user is called with each welcome, then with each packet in order, then with the loss, and at last,
once, with the end, which is also the loss where the daemon has ended the session; between a loss and the next
welcome nothing is sent.  A failed attempt to connect raises ``Unreachable`` with the system's reason, and
leaves no open socket.
"""

from __future__ import annotations

import math
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from dataspace.errors import (
    Broken,
    Closed,
    DataspaceError,
    ProtocolError,
    Refused,
    Unreachable,
    UsageError,
)
from dataspace.loops.here import loop
from dataspace.loops.primitives import TaskStatus
from dataspace.transport.addresses import Address, unreachable
from dataspace.transport.candidates import EACH_SECONDS, Candidates, one_of
from dataspace.transport.credentials import Credentials, said_by_tls
from dataspace.transport.forks import of_this_process
from dataspace.transport.sockets import Link, SocketLink
from dataspace.transport.tls import TlsLink
from dataspace.wire import packets as p
from dataspace.wire.features import Granted
from dataspace.wire.session import Heartbeat, Role, Session

CLIENT_FRAME: Final = 64 << 20
"""Bytes, and so elements, that a client accepts in one frame from the daemon it chose to trust."""

CONNECT_SECONDS: Final = 10.0
LASTING: Final = 0.5
"""Seconds after which a connection counts as having worked."""

_CROWDED: Final = frozenset(["limit", "timeout", "closing", *p.ELSEWHERE])
"""The same for goodbyes in place of a welcome: after a restart of the daemon all its clients connect at
once."""

_PAUSES: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)

_LEADERLESS: Final = 0.15
"""While only followers answer, a pause is at most this part of the time since the leader was lost: clients
are with the next one soon after it leads, and do not press where none does for long."""


class User(Protocol):
    """Uses a connection loop: decides what is sent, and receives what comes."""

    def hello(self) -> p.Hello:
        """Returns the first packet of a connection."""

    def is_behind(self, welcome: p.Welcome) -> bool:
        """Returns whether the user has seen a later state of this space than the daemon has."""

    def welcomed(self, welcome: p.Welcome) -> None:
        """Called when there is a connection, for the first time or again."""

    def received(self, packet: p.Packet, size: int) -> None:
        """Called with each packet, which came in a frame of ``size`` bytes."""

    def lost(self, error: Broken, reason: str) -> None:
        """Called when the connection is lost, for this reason; the loop tries to reconnect."""

    def ended(self, error: DataspaceError) -> None:
        """Called once, when there will be no further connection."""


class Uplink:
    """The connection of one user; ``run`` keeps it up.

    ``addresses`` are of daemons of one store, ``shuffled`` if each daemon will do; with ``stays`` no daemon
    sends the user to another address.  ``wait`` is how many seconds the first attempts may fail because
    nothing answers; ``dial`` opens a socket to an address.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        user: User,
        credentials: Credentials,
        *,
        reconnect: bool = True,
        wait: float = 0.0,
        shuffled: bool = False,
        stays: bool = False,
        dial: Callable[[Address, Credentials], Awaitable[Link]] | None = None,
    ) -> None:
        self.candidates: Final = Candidates(addresses, shuffled=shuffled, stays=stays)
        self._loop: Final = loop()
        self._credentials = credentials
        if not 0 <= wait < math.inf:
            raise UsageError(f"wait is in seconds, 0 or more, not {wait!r}")
        self._reconnect = reconnect
        self._wait: Final = wait
        self.reconnects = 0
        """How often a lost connection was made again."""
        self.began = 0.0
        """When the packets in work were received, on the clock of ``perf_counter``."""
        self._received_at = 0.0
        self._gap = (0.0, 0.0)
        self._user = user
        self._seconds: Final = CONNECT_SECONDS if len(addresses) == 1 else EACH_SECONDS
        self._dial: Final = dial or partial(open_link, timeout=self._seconds)
        self._link: Link | None = None
        self._session = _new_session()
        self._out = bytearray()
        self._kick = self._loop.event()
        self._beat = Heartbeat()
        self._connected = self._loop.event()
        self._dismissal: ProtocolError | None = None
        self._farewell = ""
        self._leaving = False
        self._is_leaderless = False
        """True if the last daemon that answered has sent this client to another one."""
        self.is_elsewhere = False
        """True where the daemon of the last connection has said that it follows, and so takes no turns."""
        self._over = self._welcomed = False

    # -- sending ---------------------------------------------------------------------------------------

    @property
    def address(self) -> Address:
        """The address of the connection, or of the last attempt."""
        return self.candidates.now

    @property
    def up(self) -> bool:
        """True if there is a connection now."""
        return self._link is not None

    async def wait_up(self) -> None:
        """Returns when there is a connection, or when there will be none any more; it may be lost at once."""
        await self._connected.wait()

    def send(self, packet: p.Packet, *, at_once: bool = True) -> int:
        """Sends a packet if there is a connection, else does nothing; returns its size in bytes."""
        if self._link is None:
            return 0
        framed = self._session.send(packet)
        self.write(framed, at_once=at_once)
        return len(framed)

    def write(self, framed: bytes, *, at_once: bool) -> None:
        """Writes bytes to the socket now, or together with what else is sent before the next pause."""
        self._out += framed
        if at_once:
            self.flush()
        else:
            self._kick.set()

    def flush(self) -> None:
        """Writes to the socket as much as the kernel takes."""
        if self._link is not None and (self._out or self._link.pending):
            try:
                sent = self._link.send_nowait(self._out)
            except OSError:
                return  # the reader detects the loss
            del self._out[:sent]
            if sent:
                self._beat.said(self._loop.current_time())
            if self._out or self._link.pending:
                self._kick.set()

    async def _write_rest(self) -> None:
        """Writes the rest of the buffer, and a ping when nothing else was sent for an interval."""
        while True:
            with self._loop.move_on_at(self._beat.due):
                await self._kick.wait()
            self._kick = self._loop.event()
            if not self._out and self._beat.due <= self._loop.current_time():
                self._beat.said(self._loop.current_time())
                self.send(p.Ping(0))
            self.flush()
            while self._link is not None and (self._out or self._link.pending):
                try:
                    await self._link.wait_writable()
                except (OSError, trio.ClosedResourceError):
                    break  # the reader detects the loss
                self.flush()

    # -- life -----------------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps the connection up until cancelled; the first one must succeed.

        With ``reconnect=False`` returns when the connection is lost, after the user was called with the
        reason.
        """
        try:
            async with self._loop.open_nursery() as nursery:
                nursery.start_soon(self._write_rest)
                try:
                    await self._enter()
                    task_status.started()
                    await self._stay()
                except (
                    ProtocolError
                ) as error:  # caught here, where the nursery has not wrapped it in a group yet
                    self._shut(error)
                    raise
                nursery.cancel_scope.cancel()
        finally:
            self._shut(Closed(f"the connection to {self.address.url} is closed"))

    async def _enter(self) -> None:
        """Connects for the first time: while nothing answers, tries for as long as the application wants to
        wait; while the daemon is full, for as long as connecting may take at least."""
        began, attempt = self._loop.current_time(), 0
        while True:
            try:
                await self._reach()
                return
            except (Unreachable, Broken):
                if self._loop.current_time() - began >= self._wait:
                    raise
            except ProtocolError as refusal:
                patience = max(CONNECT_SECONDS, self._wait)
                if refusal.code not in _CROWDED or self._loop.current_time() - began > patience:
                    raise
            attempt += 1
            await self._pause(min(attempt, 4))  # half a second at most: somebody waits for it

    async def _stay(self) -> None:
        """Reads from one connection after another; raises ``ProtocolError`` when the daemon has ended the
        session."""
        if not self._reconnect:
            self._shut(await self._read())
            return
        attempt, lost = 0, self._loop.current_time()
        while True:
            since = self._loop.current_time()
            await self._read()
            if self._over:
                return  # in a forked child
            if self._loop.current_time() - since > LASTING:
                attempt, lost = 0, self._loop.current_time()
                self.candidates.lasted()
            else:
                attempt += 1
            while True:
                if not self.candidates.is_sent_on:
                    await self._pause(attempt, lost if self._is_leaderless else None)
                try:
                    await self._reach()
                    break
                except (Unreachable, Broken):
                    attempt += 1
                except ProtocolError as refusal:
                    if refusal.code not in _CROWDED:
                        raise
                    attempt += 1

    async def _pause(self, attempt: int, lost: float | None = None) -> None:
        """Waits between attempts: not at first, then longer and longer, with jitter so that clients do not
        return at once.  ``lost`` is since when only the leader is missing."""
        seconds = _PAUSES[min(attempt, len(_PAUSES) - 1)]
        if lost is not None and attempt:
            seconds = min(seconds, max(_PAUSES[2], _LEADERLESS * (self._loop.current_time() - lost)))
        await self._loop.sleep(seconds * (0.5 + random.random()))

    async def _reach(self) -> None:
        """Connects to one of the addresses; raises the error where none serves this client.

        A daemon that is behind what the user has seen serves it only if no other one does.
        """
        candidates, failed = self.candidates, list[DataspaceError]()
        behind: Address | None = None
        candidates.begin()
        while (address := candidates.next_address()) is not None:
            try:
                await self._connect(address)
                return
            except _BehindError:
                behind = behind or address
            except (Unreachable, Broken) as error:
                failed.append(error)
            except ProtocolError as refusal:
                if refusal.code not in _CROWDED:
                    raise
                failed.append(refusal)
                self._sent_away(refusal)
        if behind is not None:
            candidates.now = behind
            await self._connect(behind, latest=True)
        elif failed:
            raise one_of(failed)

    async def _connect(self, address: Address, *, latest: bool = False) -> None:
        """Sends hello, waits for the welcome, and calls the user, which restores its state.

        Raises ``_BehindError`` for a daemon that is behind, unless that is known to be the latest state.
        """
        link = await self._dial(address, self._credentials)
        self._session = _new_session()
        try:
            self.candidates.check_reached(link.peer)
            with self._loop.move_on_after(self._seconds):
                try:
                    await send_whole(link, self._session.send(self._user.hello()))
                except OSError as error:  # it was killed between its kernel's accept and its own
                    raise Broken(f"{self.address.url} was lost before the hello: {error}") from error
                while chunk := await link.receive():
                    packets = [(packet, self._session.size) for packet in self._session.feed(chunk)]
                    if packets:
                        self._begin(link, packets[0][0], latest=latest)
                        self._deliver(packets[1:])
                        return
            raise Broken(f"no welcome from {self.address.url}")
        except BaseException:
            if self._link is link:
                self._link = None  # the application has raised, and nothing must wait for what is closed
            link.close()
            raise

    def _begin(self, link: Link, first: p.Packet, *, latest: bool) -> None:
        if isinstance(first, p.Bye):
            raise ProtocolError(*first)
        assert isinstance(first, p.Welcome)  # the session machine returns nothing else
        if len(self.candidates.listed) > 1 and not latest and self._user.is_behind(first):
            raise _BehindError
        self.candidates.welcomed()
        self._leaving = self.is_elsewhere = self._is_leaderless = False
        self._out.clear()
        self._link = link
        self._beat = Heartbeat(Granted.read(first.features).heartbeat, now=self._loop.current_time())
        self._kick.set()
        self._connected.set()
        self.reconnects += self._welcomed
        self._welcomed = True
        self._user.welcomed(first)
        self._received_at = time.time()
        self._gap = (0.0, 0.0)

    async def _read(self) -> Broken:
        """Reads until the connection is lost, and returns the reason."""
        link = self._link
        assert link is not None  # connected
        reason = "the daemon closed it"
        if not self._leaving:
            self._farewell = ""
        try:
            while not self._leaving and await self._listen(link):
                if self._beat.lost > self._loop.current_time():
                    continue
                chunk = link.receive_nowait()  # it may be this process that was stopped
                if chunk is None:
                    raise TimeoutError(f"no data for {2 * self._beat.interval:g} s")
                if not chunk:
                    break
                self._take_in(chunk)
            if self._leaving:
                reason = self._farewell
            elif self._farewell:
                reason += f": {self._farewell}"
        except TimeoutError as silence:
            reason = str(silence)
        except (ProtocolError, UsageError) as error:  # the second for values that nest too deeply to be kept
            reason = f"the daemon broke the protocol: {error}"
        return self._lose(reason)

    async def _listen(self, link: Link) -> bool:
        """Takes in what comes; returns True when the daemon would be lost had nothing come, False at the end.

        A scope for each read would be a fifth of what an event costs a client.
        """
        with self._loop.move_on_at(self._beat.lost):
            while chunk := await link.receive():
                self._take_in(chunk)
                if self._leaving:
                    break
            return False
        return True

    def _take_in(self, chunk: bytes) -> None:
        """Passes the packets that these bytes complete to the user."""
        session = self._session
        self.began = time.perf_counter()
        self._beat.heard(self._loop.current_time())
        self._note_received(time.time())
        self._deliver((packet, session.size) for packet in session.feed(chunk))

    @property
    def good_until(self) -> float:
        """Returns when data last came from the daemon in time, in seconds since 1970.

        A process that was stopped reads, when it goes on, what the daemon sent before it closed the
        connection: that did not come in time.
        """
        began, ended = self._gap
        return began if ended and time.time() - ended < 2 * self._beat.interval else self._received_at

    def _note_received(self, now: float) -> None:
        if now - self._received_at > 2 * self._beat.interval:
            self._gap = (self._received_at, now)
        self._received_at = now

    def _deliver(self, packets: Iterable[tuple[p.Packet, int]]) -> None:
        for packet, size in packets:
            match packet:
                case p.Bye(code, text, url):
                    if code not in p.PASSING:  # another attempt would end the same way
                        self._dismissal = ProtocolError(*packet)
                    elif url or code in p.ELSEWHERE:
                        self._sent_away(ProtocolError(*packet))
                        self.is_elsewhere = self.is_elsewhere or code in p.FOLLOWING
                    self._farewell = text
                case p.Ping(number):
                    self.send(p.Pong(number))
                case _:
                    self._user.received(packet, size)

    def leave(self, reason: Refused) -> bool:
        """Goes to another daemon, if there may be further connections: this one does not serve the user.

        The connection is lost once the packets are received that came with the reason.  Returns False where
        the client cannot go on: the caller gets the reason.
        """
        if not self._reconnect:
            return False
        if not self._leaving:
            sent = ProtocolError(reason.code, reason.text, reason.url)
            if self.candidates.is_stuck(sent):
                return False
            self._leaving, self._farewell = True, str(reason)
            self.is_elsewhere = reason.code in p.FOLLOWING
            self._sent_away(sent)
        return True

    def _sent_away(self, reason: ProtocolError) -> None:
        self._is_leaderless = reason.code in p.ELSEWHERE
        self.candidates.sent_away(reason)

    def _lose(self, reason: str) -> Broken:
        """Handles the loss of the connection: the user waits for the next one, or ``ProtocolError`` has the
        reason."""
        if self._link is not None:
            self._link.close()
            self._link = None
            self._out.clear()  # else the task that writes the rest finds some again and again
        if self._dismissal is not None:  # the user is called with that alone, as the end
            raise self._dismissal
        self._connected = self._loop.event()
        broken = Broken(f"the connection to {self.address.url} was lost: {reason}")
        self._user.lost(broken, reason)
        return broken

    def _shut(self, error: DataspaceError) -> None:
        if not self._over:
            self._over = True
            self._send_goodbye()
            self._user.ended(error)
            self._connected.set()

    def forked(self) -> None:
        """Leaves the connection to the parent of this process: sends no goodbye, and makes no other one."""
        self._link, self._over = None, True

    def _send_goodbye(self) -> None:
        """Sends goodbye, if there is a connection."""
        if self._link is not None:
            if not self._session.parted:
                try:
                    self._link.send_nowait(bytes(self._out) + self._session.send(p.Bye("", "")))
                except OSError:
                    pass  # it is closed already
            self._link.close()
            self._link = None


async def send_whole(link: Link, data: bytes) -> None:
    """Returns when the socket has taken it all."""
    left = bytearray(data)
    del left[: link.send_nowait(left)]
    while left or link.pending:
        await link.wait_writable()
        del left[: link.send_nowait(left)]


class _BehindError(Exception):
    """A daemon has not seen yet what the user has."""


def _new_session() -> Session:
    return Session(Role.CLIENT, max_frame=CLIENT_FRAME, max_elements=CLIENT_FRAME)


# -- dialing ---------------------------------------------------------------------------------------


async def open_link(address: Address, credentials: Credentials, *, timeout: float) -> Link:
    """Returns a socket connected to a daemon; ``Unreachable`` has the reason and how to start one.  In
    seconds."""
    context = credentials.context() if address.tls else None
    error: OSError | None = None
    with loop().move_on_after(timeout) as patience:
        try:
            link = SocketLink(of_this_process(await _connected(address)))
        except OSError as refused:
            error = refused
        else:
            if context is None:
                return link
            secured = TlsLink(link, context, server_name=credentials.server_name(address.host))
            try:
                await secured.shake_hands()
            except BaseException as failure:
                link.close()
                if isinstance(failure, ssl.SSLError):
                    raise Unreachable(f"no TLS with {address.url}: {said_by_tls(failure)}") from failure
                raise
            return secured
    raise unreachable(address, None if patience.cancelled_caught else error)


async def _connected(address: Address) -> socket.socket:
    if address.descriptor is not None:
        return socket.socket(fileno=address.descriptor)
    if address.path:
        return await loop().open_unix(address.path)
    return await loop().open_tcp(address.host, address.port)
