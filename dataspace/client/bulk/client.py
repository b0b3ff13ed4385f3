"""The bulk client: one plain blocking socket to a daemon, for readers and writers without an event loop.

Spark's planners and executors read a range of epochs, stage what they write, and publish it; each is a
request with an answer or a stream with an end.  None needs live observation, reconnecting or another thread,
so this is the session machine on a blocking socket and nothing more, quick to import and to start.

Always: one thing at a time; an error of the connection leaves the client closed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator, Iterator, Sequence
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from dataspace.client.bulk.blocks import Block, block
from dataspace.client.bulk.frontiers import LogFrontier
from dataspace.client.bulk.packed import PackedColumns, Pairs
from dataspace.client.bulk.sockets import connected
from dataspace.client.epochs.assembling import Assembler
from dataspace.codec import most_elements, pack
from dataspace.errors import (
    Broken,
    Closed,
    DataspaceError,
    ProtocolError,
    Refused,
    Unreachable,
    UsageError,
    refusal_of,
)
from dataspace.kernel.changes import EpochChanges
from dataspace.transport.addresses import Address, peer_of
from dataspace.transport.candidates import EACH_SECONDS, HOPS, READ, Candidates, joined, one_of, parse_urls
from dataspace.transport.credentials import Credentials, Tls
from dataspace.transport.forks import check_process
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN, SYSTEM, Wanted
from dataspace.wire.observing import ObserveOptions
from dataspace.wire.outgoing import TurnLimits
from dataspace.wire.session import Role, Session
from dataspace.wire.verbs import check_one_address, is_of_daemon, repetition
from index.patterns.patterns import capture_names
from index.values.values import Map, Value

if TYPE_CHECKING:
    import ssl

MAX_FRAME: Final = 64 << 20
PAUSE: Final = 0.1
"""Seconds between two attempts to connect."""

LEADER_SECONDS: Final = 10.0
"""How long connecting may take where daemons answer, and none leads."""

WINDOW: Final = 8192
WINDOW_BYTES: Final = 4 << 20
PUBLISH_SECONDS: Final = 600.0
"""Seconds that a publication may take in addition to the timeout of other requests: a million facts are one
turn."""

STAGE_OPERATIONS: Final = 8192
"""Operations that one request stages."""

PREPARING: Final = 16
"""Answers to ``prepare`` that may be left unread in the socket."""


class BulkClient:
    """A connection to a daemon; ``timeout`` bounds every wait for it, in seconds.

    A daemon that does not answer yet is tried again for ``wait`` seconds.  ``url`` may have the addresses of
    several daemons of one store, with commas or as a sequence: the client connects to the leader, or with
    ``read="any"`` to any daemon, and then only reads.  With ``here`` it asks about the daemon itself, and
    goes to no address that was not named.

    Raises ``Unreachable`` if nothing answers, ``ProtocolError`` if the peer is no daemon, ``Broken`` when the
    connection is lost in the middle: of a request that changes something it says whether that may have
    happened.  Nothing is sent again: make another client.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        name: str = "",
        timeout: float = 30.0,
        wait: float = 0.0,
        read: str = "leader",
        here: bool = False,
        space: str = MAIN,
        token: str | None = None,
        tls: Tls | ssl.SSLContext | None = None,
    ) -> None:
        if read not in READ:
            raise UsageError(f"read is one of {', '.join(READ)}, not {read!r:.40}")
        read = "any" if here else read
        candidates = Candidates(parse_urls(url), shuffled=read == "any", stays=here)
        self.url = joined(candidates.listed)
        self.space = space
        self.timeout = timeout
        self._packets: list[tuple[p.Packet, int]] = []
        self._next = 1
        self._preparing: set[int] = set()
        credentials = Credentials.complete(token, tls)
        home = MAIN if space == SYSTEM else space
        wanted = Wanted(
            space=home, token=credentials.token, reads=read == "any", leader=read != "any", here=here
        ).packed()
        self._hello: Final = p.Hello(p.VERSION, f"~{os.urandom(16).hex()}", name, wanted)
        self._candidates: Final = candidates
        self._is_here: Final = here
        self._process: Final = os.getpid()
        self._credentials: Final = credentials
        self.welcome = self._reach(wait)

    def _reach(self, wait: float = 0.0) -> p.Welcome:
        """Connects to the first address that serves this client, and returns the welcome.

        Waits while no daemon leads as well; raises the error of the last round.
        """
        began, candidates = time.monotonic(), self._candidates
        while True:
            candidates.begin()
            failed: list[DataspaceError] = []
            patience = wait
            while (address := candidates.next_address()) is not None:
                try:
                    return self._enter(address, several=len(candidates.listed) > 1)
                except (Unreachable, Broken) as error:
                    failed.append(error)
                except ProtocolError as refusal:
                    if refusal.code not in p.ELSEWHERE:
                        raise
                    candidates.sent_away(refusal)
                    failed.append(refusal)
                    patience = max(wait, LEADER_SECONDS)
            if time.monotonic() - began >= patience:
                raise one_of(failed)
            time.sleep(PAUSE)

    def _enter(self, address: Address, *, several: bool) -> p.Welcome:
        seconds = min(self.timeout, EACH_SECONDS) if several else self.timeout
        self._socket = connected(address, self._credentials, seconds)
        try:
            self._candidates.check_reached(peer_of(self._socket))
        except Unreachable:
            self._socket.close()
            raise
        self._session = Session(Role.CLIENT, max_frame=MAX_FRAME, max_elements=MAX_FRAME)
        self._packets.clear()
        try:
            self._send(self._hello)
            welcome, _ = self._receive()
            if not isinstance(welcome, p.Welcome):
                raise self._wrong(welcome)
        except BaseException:
            self._socket.close()
            raise
        return welcome

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Sends goodbye and closes; may be called again."""
        if self._socket.fileno() >= 0:
            with contextlib.suppress(OSError, Closed, UsageError):  # the last in a forked child
                self._send(p.Bye("", ""))
            self._socket.close()

    @property
    def limits(self) -> TurnLimits:
        """The daemon's limits for one request."""
        return TurnLimits.read(self.welcome.limits)

    @property
    def closed(self) -> bool:
        """True if the client cannot be used any more."""
        return self._socket.fileno() < 0

    # -- reading --------------------------------------------------------------------------------------

    def frontier(self, after: int | None = None, timeout: float = 0.0) -> LogFrontier:
        """Returns how far the log extends, after up to ``timeout`` seconds for an epoch beyond ``after``."""
        answer = self._ask(
            "frontier", {"after": -1 if after is None else after, "wait": int(timeout * 1000)}, extra=timeout
        )
        assert isinstance(answer, Map)  # by WIRE.md
        numbers = answer["epoch"], answer["oldest"], answer["space"], answer["gaps"]
        return LogFrontier(*numbers, erased=answer.get("erased", 0))  # type: ignore[arg-type]  # by WIRE.md

    def epoch_at(self, micros: int) -> int:
        """Returns the newest epoch that was made at a time, in microseconds since 1970, or before it."""
        answer = self._ask("frontier", {"at": micros})
        if not isinstance(answer, Map) or answer.get("at").__class__ is not int:
            raise Refused("unknown-verb", "this daemon finds no epochs by time: name an epoch")
        return answer["at"]  # type: ignore[return-value]  # as just checked

    def within(self, after: int, upto: int, changes: int, size: int | None = None) -> int:
        """Returns the last epoch of (after, upto] that no more than ``changes`` lead to, but at least one.

        With ``size``, no more than so many bytes of the log as well.
        """
        bound = {} if size is None else {"bytes": size}
        answer = self._ask("within", {"after": after, "upto": upto, "changes": changes, **bound})
        return int(answer)  # type: ignore[arg-type]  # a number, by WIRE.md

    def counted(self, after: int, upto: int, most: int) -> int:
        """Returns how many changes there are in (after, upto], or more than ``most`` if there are more."""
        answer = self._ask("within", {"after": after, "upto": upto, "changes": most, "counted": True})
        assert isinstance(answer, tuple)  # by WIRE.md
        last, changes = answer
        return int(changes) if last == upto else most + 1  # type: ignore[arg-type]  # numbers, by WIRE.md

    def acknowledge(self, reader: str, epoch: int) -> int:
        """Acknowledges all epochs up to one for a named reader, so that the log need not keep them.

        Epochs that a named reader has not acknowledged are kept for it, within the daemon's bounds.  Returns
        the oldest epoch that is kept.  Costs one write to the disk; raises ``Refused("epoch-ahead")``.
        """
        return self._oldest({"reader": reader, "epoch": epoch})

    def forget(self, reader: str) -> int:
        """Ends a named reader, for which nothing is kept any more; returns the oldest epoch that is kept."""
        return self._oldest({"reader": reader, "forget": True})

    def _oldest(self, arguments: dict[str, Value]) -> int:
        answer = self._ask("acknowledge", arguments)
        if answer.__class__ is not Map or answer.get("oldest").__class__ is not int:
            raise ProtocolError("malformed", f"no answer to acknowledge: {answer!r:.80}")
        return answer["oldest"]  # type: ignore[return-value]  # as just checked

    def changes(
        self, pattern: Value, *, after: int | None = None, upto: int, as_of: int | None = None
    ) -> Iterator[EpochChanges]:
        """Yields the durable epochs in ``(after, upto]``; with ``as_of``, first the state at that epoch.

        A large epoch comes in several pieces with the same number, in order.  Raises
        ``Refused("epoch-gone")`` for epochs that are not retained, ``Refused("epoch-ahead")`` for epochs not
        yet made.  Must be read to the end, or closed, before the client is used again.
        """
        assembler = Assembler(capture_names(pattern))
        options = ObserveOptions(pattern, after=after, upto=upto, as_of=as_of, durable=True, quiet=True)
        with contextlib.closing(self._stream(options)) as values:
            for value in values:
                yield assembler.part(value)[0]

    def columns(
        self,
        pattern: Value,
        *,
        after: int | None = None,
        upto: int,
        as_of: int | None = None,
        captures: Sequence[int] | None = None,
        places: bool = False,
        asserted: bool = False,
        owners: bool = False,
        share: tuple[int, int] | None = None,
    ) -> Iterator[Block]:
        """Yields the same by the column: several times faster for callers that want columns, and for the
        daemon.

        ``captures`` are the numbers of those to be sent, in order; all others are empty columns, and the rows
        are the same.  With ``places``, blocks say which change of its epoch each row is; with ``asserted``,
        since when it was there, and with ``owners``, by whose claim it came, which needs the right to
        inspect; for these the daemon reads its log from the oldest epoch on.  ``share`` is a
        part of the state: its rows with numbers from the first on and below the second, in their order.
        """
        options = ObserveOptions(
            pattern,
            after=after,
            upto=upto,
            as_of=as_of,
            durable=True,
            quiet=True,
            captures=None if captures is None else tuple(captures),
            places=places,
            asserted=asserted,
            owners=owners,
            share=share,
            columns=True,
        )
        with contextlib.closing(self._stream(options)) as values:
            for value in values:
                yield block(value, captures)

    def _stream(self, options: ObserveOptions) -> Generator[Value, None, None]:
        """Yields the values of a stream, to its end or to where the caller stops."""
        number, self._next = self._next, self._next + 1
        spec = Map({"space": self.space, **dict(options.spec().pairs())})
        self._send(p.Open(number, spec, WINDOW, WINDOW_BYTES))
        finished = False
        try:
            taken, taken_bytes, asked, asked_bytes = 0, 0, WINDOW, WINDOW_BYTES
            while True:
                packet, size = self._receive()
                match packet:
                    case p.Values(stream, _, values, _) if stream == number:
                        taken += len(values)
                        taken_bytes += size
                        if asked - taken < WINDOW // 2 or asked_bytes - taken_bytes < WINDOW_BYTES // 2:
                            asked, asked_bytes = taken + WINDOW, taken_bytes + WINDOW_BYTES
                            self._send(p.Ask(number, asked, asked_bytes))
                        yield from values
                    case p.Done(stream) if stream == number:
                        finished = True
                        return
                    case p.Error(stream, code, text, url) if stream == number:
                        finished = True
                        raise self._refused(Refused(code, text, url))
                    case _:
                        self._unasked(packet)
        finally:
            if not finished:
                self._abandon(number)

    # -- writing --------------------------------------------------------------------------------------

    def stage(
        self, key: tuple[str, ...], operations: Sequence[tuple[str, Value]] | PackedColumns | Pairs
    ) -> None:
        """Stores operations on the daemon's disk under a key: ``("assert" | "retract" | "send", value)``."""
        if isinstance(operations, PackedColumns | Pairs):
            self._stage(key, operations)
            return
        for start in range(0, len(operations), STAGE_OPERATIONS):
            self._stage(key, Pairs(operations[start : start + STAGE_OPERATIONS]))

    def _stage(self, key: tuple[str, ...], operations: PackedColumns | Pairs) -> None:
        """Stages operations in one request, or in several where they are too large for one."""
        body = operations.packed()
        if most_elements(body) > self.limits.portion_bytes - len(pack(key)) and len(operations) > 1:
            for half in operations.halves():
                self._stage(key, half)
        else:
            self._ask("stage", {"key": key, "rows": body})

    def discard(self, key_prefix: tuple[str, ...], *, close: tuple[str, ...] | None = None) -> None:
        """Drops what is staged under keys with this prefix; keys below ``close`` can no longer be staged."""
        closing: dict[str, Value] = {} if close is None else {"close": close}
        self._ask("discard", {"key": key_prefix, **closing})

    def prepare(self, rows: bytes) -> None:
        """Sends packed operations that are about to be published, for the daemon to parse meanwhile.

        Does not wait for that, and ignores the daemon's answer: only publishing counts.
        """
        while len(self._preparing) >= PREPARING:
            self._unasked(self._receive()[0])
        number, self._next = self._next, self._next + 1
        self._send(p.Request(number, "prepare", Map({"rows": rows})))
        self._preparing.add(number)

    def publish(
        self,
        keys: Sequence[tuple[str, ...] | bytes],
        *,
        client: str,
        sequence: int,
        owner: str,
        replace: bool = False,
        by: Value = None,
        exclusive: bool = False,
        discard: tuple[str, ...] | None = None,
        close: tuple[str, ...] | None = None,
    ) -> int:
        """Makes one turn of the operations staged under these keys and returns its epoch.

        Packed operations (``bulk.packed``) may stand in place of a key, and need no staging then.

        A ``(client, sequence)`` that was published before changes nothing and returns its old epoch.

        With ``replace``, the asserted facts become the whole set of the owner; with the pattern ``by``, a
        fact replaces the owner's facts that have the same captures.  With ``exclusive`` the owner belongs to
        this client until another one begins to publish so: then ``Refused("writer-taken")``.

        ``discard`` and ``close`` drop staged operations in the same step, as ``discard`` does; else what was
        published is dropped.
        """
        dropping: dict[str, Value] = {
            name: key for name, key in (("discard", discard), ("close", close)) if key is not None
        }
        epoch = self._ask(
            "publish",
            {
                "keys": tuple(keys),
                "client": client,
                "sequence": sequence,
                "owner": owner,
                "replace": replace,
                "by": by,
                "exclusive": exclusive,
                **dropping,
            },
            extra=PUBLISH_SECONDS,
        )
        return int(epoch)  # type: ignore[arg-type]  # a number, by WIRE.md

    def lease(self, owner: str, *, keep: bool = True) -> None:
        """Begins or renews a lease, ``lease:MILLISECONDS:NAME``; without ``keep`` ends it."""
        self._ask("lease" if keep else "release", {"owner": owner})

    def request(self, verb: str, arguments: dict[str, Value], *, extra: float = 0.0) -> Value:
        """Sends one of the requests of WIRE.md and returns its answer, after ``extra`` seconds more; or
        raises ``Refused``.

        A request about the daemon itself goes to the daemon that the client has named.
        """
        if not is_of_daemon(verb):
            return self._ask(verb, arguments, extra=extra)
        listed = self._candidates.listed
        check_one_address(verb, len(listed))
        if self._is_here or len(listed) > 1 or self._candidates.is_named:
            return self._answer(verb, arguments, extra=extra)
        with BulkClient(
            self.url,
            name=self._hello.name,
            timeout=self.timeout,
            here=True,
            space=self.space,
            token=self._credentials.token,
            tls=self._credentials.tls,
        ) as apart:
            return apart.request(verb, arguments, extra=extra)

    # -- the socket -----------------------------------------------------------------------------------

    def _ask(self, verb: str, arguments: dict[str, Value], *, extra: float = 0.0) -> Value:
        for at in count(1):
            try:
                return self._answer(verb, arguments, extra=extra)
            except Refused as refusal:
                if not self._went_on(refusal, at=at):
                    raise
        raise AssertionError("counting has no end")

    def _answer(self, verb: str, arguments: dict[str, Value], *, extra: float) -> Value:
        """Returns the answer to a request; ``Broken`` says whether it may have taken effect."""
        number, self._next = self._next, self._next + 1
        asked = p.Request(number, verb, Map(arguments))
        self._send(asked)
        try:
            while True:
                packet, _ = self._receive(extra=extra)
                match packet:
                    case p.Answer(answered, value) if answered == number:
                        return value
                    case p.Denied(answered, code, text, found, url) if answered == number:
                        raise refusal_of(code, text, found, url)
                    case _:
                        self._unasked(packet)
        except Broken as lost:
            if not repetition(verb, asked.arguments).changes:
                raise
            raise Broken(f"{lost}: {verb} was sent, so it may have taken effect") from None

    def _went_on(self, refusal: Refused, *, at: int) -> bool:
        """Connects to another daemon where this one does not serve the client; False where it does.

        Raises ``Broken`` for the refusal ``at`` which the client has been sent on too often.
        """
        if refusal.code not in p.ELSEWHERE or self._is_here:
            return False
        error = self._broken(str(refusal))
        if at > (LEADER_SECONDS / PAUSE if refusal.code == "no-leader" else HOPS):
            raise error
        if refusal.code == "no-leader":
            time.sleep(PAUSE)
        self._candidates.sent_away(ProtocolError(refusal.code, refusal.text, refusal.url))
        self._preparing.clear()
        self.welcome = self._reach()
        return True

    def _refused(self, refusal: Refused) -> DataspaceError:
        """Returns the error for a refusal; a daemon that does not serve this client is of no further use."""
        return self._broken(str(refusal)) if refusal.code in p.ELSEWHERE else refusal

    def _check_open(self) -> None:
        check_process(self._process)
        if self.closed:
            raise Closed(f"the link to {self.url} is closed")

    def _send(self, packet: p.Packet) -> None:
        self._check_open()
        try:
            self._socket.sendall(self._session.send(packet))
        except OSError as error:
            raise self._broken(f"{error}, before all of {type(packet).__name__} was sent") from error

    def _receive(self, *, extra: float = 0.0) -> tuple[p.Packet, int]:
        while not self._packets:
            self._check_open()
            try:
                self._socket.settimeout(self.timeout + extra)
                chunk = self._socket.recv(256 << 10)
            except TimeoutError:
                raise self._broken(f"no answer within {self.timeout + extra:g} s") from None
            except OSError as error:
                raise self._broken(str(error)) from error
            if not chunk:
                raise self._broken("the daemon closed it")
            for packet in self._session.feed(chunk):
                self._packets.append((packet, self._session.size))
            self._packets.reverse()
        return self._packets.pop()

    def _unasked(self, packet: p.Packet) -> None:
        """Handles what no caller waits for: answers to abandoned requests, pings, goodbyes."""
        match packet:
            case p.Answer(number, _) | p.Denied(number, _, _):
                self._preparing.discard(number)
            case p.Ping(number):
                self._send(p.Pong(number))
            case p.Bye(code, text):
                self._socket.close()
                if code in p.PASSING:
                    raise Broken(f"the daemon at {self.url} said goodbye{text and ': '}{text}")
                raise ProtocolError(*packet)
            case _:
                pass

    def _abandon(self, number: int) -> None:
        with contextlib.suppress(Broken, Closed):
            if not self.closed:
                self._send(p.Abort(number, "", False))

    def _broken(self, why: str) -> Broken:
        self._socket.close()
        return Broken(f"the connection to {self.url} was lost: {why}")

    def _wrong(self, packet: p.Packet) -> ProtocolError:
        self._socket.close()
        if isinstance(packet, p.Bye):
            return ProtocolError(*packet)
        return ProtocolError("unexpected", f"{type(packet).__name__} instead of a welcome")
