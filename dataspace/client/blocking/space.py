"""The verbs of a remote space without ``async``: for scripts, notebooks and threads.

A ``BlockingSpace`` runs the asynchronous client in a thread of its own and waits for it, so that there is one
client, not two.  Its verbs are made of the verbs of ``RemoteSpace``, with the same arguments and the same
documentation.  It may be used from several threads.

Always: it behaves as ``RemoteSpace``; closing it ends the thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial, wraps
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import trio

from dataspace.client.blocking.jobs import BlockingJobs
from dataspace.client.blocking.publications import BlockingPublication
from dataspace.client.blocking.waiting import Blocking, Waiter, documented_by, waiting
from dataspace.client.connect import connect
from dataspace.client.holds import RELEASED, Hold
from dataspace.client.locks import Held, Lock
from dataspace.client.observations import Observation, Observing
from dataspace.client.session.events import ConnectionEvent
from dataspace.client.space import RemoteSpace
from dataspace.errors import Closed, DataspaceError
from dataspace.kernel.changes import Change, EpochChanges
from dataspace.kernel.expectations import Expectation
from dataspace.loops.blocks import BlockingBlock, BlockingOnly, blocking_block
from dataspace.topics.epochs import TopicEpoch
from dataspace.transport.forks import check_process

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar

    from dataspace.client.blocking.live import BlockingLiveMap
    from dataspace.client.live import Living
    from dataspace.client.typed import RowType, TypedChange, TypedEpoch, TypedObservation
    from index.patterns.patterns import Pattern

    C = DefaultingTypeVar("C", default=Change)
    E = DefaultingTypeVar("E", default=EpochChanges)
else:
    C, E = TypeVar("C"), TypeVar("E")  # defaults are for type checkers, and Python 3.11 has none

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")


_LAST_SECONDS: Final = 5.0
"""Seconds that an interrupted call may take to end."""

BLOCKS: Final = {
    "asserting": "claim",
    "turn": "turn",
    "consume": "jobs: for job in jobs",
    "publish": "publication",
    "subscribe": "epochs: for epoch in epochs",
    "live": "temps",
}
"""What follows ``as`` where a verb is written, for errors."""


def entering(
    verb: Callable[Concatenate[RemoteSpace, P], AbstractAsyncContextManager[B]],
    form: Callable[[BlockingSpace, B], T],
    *,
    last: bool = True,
) -> Callable[Concatenate[BlockingSpace, P], BlockingBlock[T]]:
    """Returns the verb for a ``with`` block, which gets the blocking form of what ``async with`` would.

    With ``last`` something is sent at the end of the block: raises ``Closed`` where that cannot be.
    """

    @wraps(verb)
    def enter(self: BlockingSpace, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        block = verb(self._remote, *args, **kwargs)
        entered = self._wait(block.__aenter__)
        try:
            yield form(self, entered)
        except BaseException as error:
            if not self._closed:
                with suppress(type(error)):
                    self._wait(block.__aexit__, type(error), error, error.__traceback__)
            raise
        if last or not self._closed:
            self._wait(block.__aexit__, None, None, None)

    return blocking_block(enter, f"with space.{verb.__name__}(…) as {BLOCKS[verb.__name__]}")


def locking(
    verb: Callable[Concatenate[RemoteSpace, P], Held],
) -> Callable[Concatenate[BlockingSpace, P], BlockingBlock[BlockingLock]]:
    """Returns the verb for a ``with`` block, which holds a lock and is not interrupted."""

    @wraps(verb)
    def hold(self: BlockingSpace, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[BlockingLock]:
        held = verb(self._remote, *args, **kwargs)
        lock = BlockingLock(held.lock, self._wait)
        self._wait(held.take)
        try:
            yield lock
            lock.check()
        finally:
            if not self._closed:
                self._wait(held.lock.release)

    return blocking_block(hold, f"with space.{verb.__name__}(…) as lock")


class BlockingSpace(BlockingOnly, Blocking[RemoteSpace]):
    """A connection to a daemon, made by ``connect_blocking``; close it, or use it as a context manager."""

    _usage = "with dataspace.connect_blocking(…) as space"

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[RemoteSpace]]) -> None:
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._remote: RemoteSpace
        self._token: trio.lowlevel.TrioToken
        self._stop: trio.Event
        self._closed = False
        self._process = os.getpid()

        async def main() -> None:
            async with opening() as self._remote:
                self._token = trio.lowlevel.current_trio_token()
                self._stop = trio.Event()
                self._ready.set()
                await self._stop.wait()

        def run() -> None:
            try:
                trio.run(main)
            except BaseException as error:  # noqa: BLE001  # carried over to the thread that waits for it
                self._failure = error
            finally:
                self._ready.set()

        self._thread = threading.Thread(target=run, name="dataspace client", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Sends goodbye and ends the thread; the session's facts are retracted.  May be called again."""
        if not self._closed:
            self._closed = True
            if os.getpid() != self._process:
                return  # the thread is in the parent, to which the connection belongs
            try:
                self._token.run_sync_soon(self._stop.set)
            except trio.RunFinishedError:
                pass  # it has ended by itself
            self._thread.join()

    assert_ = waiting(RemoteSpace.assert_)
    retract = waiting(RemoteSpace.retract)
    replace = waiting(RemoteSpace.replace)
    send = waiting(RemoteSpace.send)
    sync = waiting(RemoteSpace.sync)
    status = waiting(RemoteSpace.status)
    peek = waiting(RemoteSpace.peek)
    request = waiting(RemoteSpace.request)
    end_topic = waiting(RemoteSpace.end_topic)
    put = waiting(RemoteSpace.put)
    first = waiting(RemoteSpace.first)
    withdraw = waiting(RemoteSpace.withdraw)
    matches = waiting(RemoteSpace.matches)
    query = waiting(RemoteSpace.query)
    lock = locking(RemoteSpace.lock)
    elect = locking(RemoteSpace.elect)
    asserting = entering(RemoteSpace.asserting, lambda _space, claim: claim)
    turn = entering(RemoteSpace.turn, lambda _space, draft: draft)
    consume = entering(RemoteSpace.consume, lambda space, each: BlockingJobs(each, space._wait), last=False)
    publish = entering(RemoteSpace.publish, lambda space, each: BlockingPublication(each, space._wait))
    subscribe = entering(RemoteSpace.subscribe, lambda space, each: space._each(each.next_epoch), last=False)

    @documented_by(RemoteSpace.hold)
    def hold(self, fact: object, *, ttl: float, name: str = "", renew: bool = False) -> BlockingHold:
        made = partial(self._remote.hold, fact, ttl=ttl, name=name, renew=renew)
        return BlockingHold(self._wait(made), self._wait)

    @overload
    def observe(
        self, pattern: Pattern | str, *, row: None = None, **options: Unpack[Observing]
    ) -> BlockingObservation: ...

    @overload
    def observe(
        self, pattern: Pattern | str, *, row: type[T], **options: Unpack[Observing]
    ) -> BlockingTypedObservation[T]: ...

    @documented_by(RemoteSpace.observe)
    def observe(
        self, pattern: Pattern | str, *, row: type[Any] | None = None, **options: Unpack[Observing]
    ) -> BlockingObservation[Any, Any]:
        async def opened() -> Observation | TypedObservation[Any]:
            observation = self._remote.observe(pattern, row=row, **options)
            observation.open()
            return observation

        observation = self._wait(opened)
        if isinstance(observation, Observation):
            return BlockingObservation(observation, self._wait)
        return BlockingObservation(observation.untyped, self._wait, observation.make)

    @overload
    def live(
        self,
        pattern: Pattern | str,
        *,
        by: str | Sequence[str],
        row: None = None,
        many: bool = False,
        **options: Unpack[Living],
    ) -> BlockingBlock[BlockingLiveMap[Any]]: ...

    @overload
    def live(
        self,
        pattern: Pattern | str,
        *,
        by: str | Sequence[str],
        row: Callable[..., T],
        many: Literal[False] = False,
        **options: Unpack[Living],
    ) -> BlockingBlock[BlockingLiveMap[T]]: ...

    @overload
    def live(
        self,
        pattern: Pattern | str,
        *,
        by: str | Sequence[str],
        row: Callable[..., T],
        many: Literal[True],
        **options: Unpack[Living],
    ) -> BlockingBlock[BlockingLiveMap[list[T]]]: ...

    @documented_by(RemoteSpace.live)
    def live(
        self,
        pattern: Pattern | str,
        *,
        by: str | Sequence[str],
        row: Callable[..., Any] | None = None,
        many: bool = False,
        **options: Unpack[Living],
    ) -> BlockingBlock[BlockingLiveMap[Any]]:
        from dataspace.client.blocking.live import BlockingLiveMap  # few programs have one

        verb: Any = RemoteSpace.live
        made: Any = entering(verb, lambda space, live: BlockingLiveMap(live, space._wait), last=False)
        return made(self, pattern, by=by, row=row, many=many, **options)  # type: ignore[no-any-return]  # as it is made

    def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Returns what an async function returns that gets the ``RemoteSpace`` of this one, before ``args``.

        It runs under trio in the client's own thread.  Ctrl-C cancels it, and is raised once it has ended.
        """
        scope, ended = trio.CancelScope(), threading.Event()
        result: list[T] = []

        async def work() -> None:
            try:
                with scope:
                    result.append(await function(self._remote, *args))
            finally:
                ended.set()

        try:
            self._wait(work)
        except KeyboardInterrupt:
            self._token.run_sync_soon(scope.cancel)
            ended.wait(_LAST_SECONDS)
            raise
        return result[0]

    @property
    def on_connection(self) -> Callable[[ConnectionEvent], None]:
        """The function called with each event of the connection, in the client's own thread, where no verb
        may be used."""
        return self._remote.on_connection

    @on_connection.setter
    def on_connection(self, call: Callable[[ConnectionEvent], None]) -> None:
        self._remote.on_connection = call

    @property
    def reconnects(self) -> int:
        """How often a lost connection was made again."""
        return self._remote.reconnects

    def _each(self, take: Callable[[], Awaitable[TopicEpoch | None]]) -> Iterator[TopicEpoch]:
        while (epoch := self._wait(take)) is not None:
            yield epoch

    def _wait(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        if self._closed:
            raise Closed("the connection is closed")
        check_process(self._process)  # whose thread it needs
        try:
            return trio.from_thread.run(function, *args, trio_token=self._token)
        except (
            trio.RunFinishedError,
            trio.Cancelled,
        ):  # the second for callers that came while it was ending
            raise self._ended() from self._failure

    def _ended(self) -> DataspaceError:
        """Returns the reason why there is no connection any more, as an error for the caller."""
        self._thread.join()  # it stores the reason just before it ends
        if isinstance(self._failure, DataspaceError):
            return type(self._failure)(*self._failure.args)
        return Closed(f"the connection has ended: {self._failure or 'it was closed'}")


class BlockingHold(Blocking[Hold]):
    """A fact under a lease of its own; see ``Hold``."""

    def __init__(self, hold: Hold, wait: Waiter) -> None:
        self._remote = hold
        self._wait = wait

    @property
    def owner(self) -> str:
        """The owner of the fact."""
        return self._remote.owner

    @property
    def epoch(self) -> int:
        """The epoch in which the fact was last stated."""
        return self._remote.epoch

    @property
    def reason(self) -> str:
        """Why the hold has ended, as far as this client knows; empty while it runs."""
        return self._remote.reason

    @property
    def ended(self) -> bool:
        """True once this client knows that the hold has ended."""
        return self._remote.ended.is_set()

    put = waiting(Hold.put)
    renew = waiting(Hold.renew)
    release = waiting(Hold.release)

    def check(self) -> None:
        """Raises ``Refused("no-lease")`` if the hold has ended, as far as this client knows."""
        self._remote.check()

    def __enter__(self) -> Self:
        """Begins a block whose end releases the hold.

        A thread cannot be cancelled: a block whose hold has ended goes on to its end, and raises
        ``Refused("no-lease")`` there; a long one calls ``check``.
        """
        self.check()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None and self.reason != RELEASED:
            self.check()
        if not self.ended:
            with suppress(DataspaceError):  # if it cannot be released, the fact ends by itself
                self.release()


class BlockingLock:
    """A lock, or an election, that is held; see ``Lock``."""

    def __init__(self, lock: Lock, wait: Waiter) -> None:
        self._lock = lock
        self._wait = wait

    @property
    def token(self) -> int:
        """The epoch of the claim; of two holders, the later one has the higher token."""
        return self._lock.token

    @property
    def identity(self) -> str:
        """The identity of the space: tokens of another one cannot be compared."""
        return self._lock.identity

    @property
    def held(self) -> Expectation:
        """What a turn expects that must happen under this lock only."""
        return self._lock.held

    @property
    def remaining(self) -> float:
        """Seconds for which the lock is surely held, if it is not renewed."""

        async def ask() -> float:
            return self._lock.remaining

        return self._wait(ask)

    @property
    def valid(self) -> bool:
        """True while the lock is surely held; reads the clock."""
        return self.remaining > 0

    def check(self) -> None:
        """Raises ``LockLost`` unless the lock is surely held now."""

        async def ask() -> None:
            self._lock.check()

        self._wait(ask)


class BlockingObservation(BlockingOnly, Blocking[Observation], Generic[C, E]):
    """Changes of one pattern; iterate, or call ``next_epoch`` with a timeout.

    With ``make`` they have rows of a class; see ``TypedObservation``.
    """

    def __init__(self, observation: Observation, wait: Waiter, make: RowType[Any] | None = None) -> None:
        self._remote = observation
        self._wait = wait
        self._make: Final[Any] = make  # its changes are those of C, or without it the observation's own
        self._usage = f"for change in space.observe(…{'' if make is None else ', row=…'})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the captures, in order."""
        return self._remote.names

    @property
    def untyped(self) -> BlockingObservation:
        """The observation without a class of rows; changes read from one of them are not in the other."""
        return BlockingObservation(self._remote, self._wait)

    def __iter__(self) -> Iterator[C]:
        make = self._make
        while (epoch := self._next_epoch(None)) is not None:
            if make is None:
                yield from epoch  # type: ignore[misc]  # C is Change then
            else:
                for change in epoch:
                    yield make.change(change)

    def epochs(self) -> Iterator[E]:
        """Yields whole epochs, until the observation is complete."""
        while (epoch := self.next_epoch()) is not None:
            yield epoch

    def next_epoch(self, timeout: float | None = None) -> E | None:
        """Returns the next whole epoch, or None at the end; raises ``TimeoutError`` after so many seconds,
        with no loss."""
        epoch: Any = self._next_epoch(timeout)
        if epoch is not None and self._make is not None:
            epoch = self._make.epoch(epoch)
        return cast("E | None", epoch)

    def _next_epoch(self, timeout: float | None) -> EpochChanges | None:
        async def take() -> EpochChanges | None:
            if timeout is None:
                return await self._remote.next_epoch()
            with trio.move_on_after(timeout):
                return await self._remote.next_epoch()
            raise TimeoutError(f"no epoch within {timeout} s")

        return self._wait(take)

    def each(self, function: Callable[[C], object]) -> None:
        """Calls a function with each change; see ``Observation.each``.

        It runs in the client's own thread, where no verb may be used.  Ctrl-C ends the observation.
        """
        try:
            self._wait(self._remote.each, function if self._make is None else self._make.calling(function))
        except KeyboardInterrupt:
            self.close()
            raise

    def close(self) -> None:
        """Ends the observation."""
        self._wait(self._remote.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


if TYPE_CHECKING:
    BlockingTypedObservation: TypeAlias = BlockingObservation[TypedChange[T], TypedEpoch[T]]
else:
    BlockingTypedObservation = BlockingObservation  # by its former name


def _blocking(
    connecting: Callable[P, AbstractAsyncContextManager[RemoteSpace]],
) -> Callable[P, BlockingSpace]:
    @wraps(connecting, assigned=())  # its signature only
    def connect_blocking(*args: P.args, **kwargs: P.kwargs) -> BlockingSpace:
        """Returns a connection to a daemon without ``async``: close it, or use it in a ``with`` block.

        Arguments and errors are the same as for ``connect``.
        """
        return BlockingSpace(partial(connecting, *args, **kwargs))

    return connect_blocking


connect_blocking = _blocking(connect)
