"""The same verbs without ``async``: for scripts, notebooks and threads.

A ``BlockingSpace`` runs the asynchronous client in a thread of its own and waits for it, so that there is
one client, not two.  It may be used from several threads.

Always: what it does is what ``RemoteSpace`` does; closing it ends the thread.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Literal, Self, TypeVar

import trio

from dataspace.client.connect import HEARTBEAT, connect
from dataspace.client.observations import Observation
from dataspace.client.publications import Publication
from dataspace.client.session.turns import Claim, Draft
from dataspace.client.space import RemoteSpace
from dataspace.client.subscriptions import TopicEpoch
from dataspace.errors import Closed, DataspaceError
from dataspace.kernel.epoch_changes import Change, EpochChanges
from dataspace.topics.times import Time
from dataspace.transport.credentials import Tls
from index.patterns.patterns import Pattern
from index.values.values import Map, Value

T = TypeVar("T")


class BlockingSpace:
    """A connection to a daemon, made by ``connect_blocking``; close it, or use it as a context manager."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[RemoteSpace]]) -> None:
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._remote: RemoteSpace
        self._token: trio.lowlevel.TrioToken
        self._stop: trio.Event
        self._closed = False

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
        """Says goodbye and ends the thread; the session's facts go.  May be called again."""
        if not self._closed:
            self._closed = True
            try:
                self._token.run_sync_soon(self._stop.set)
            except trio.RunFinishedError:
                pass  # it has ended by itself
            self._thread.join()

    def assert_(self, value: object) -> Claim:
        """Asserts a fact; see ``RemoteSpace.assert_``."""
        return self._run(self._remote.assert_, value)

    def retract(self, claim: Claim | int) -> int:
        """Ends a claim; its epoch."""
        return self._run(self._remote.retract, claim)

    def replace(self, claim: Claim | int, value: object) -> Claim:
        """Asserts a fact and ends a claim in one turn."""
        return self._run(self._remote.replace, claim, value)

    def send(self, value: object) -> int:
        """Sends a message; its epoch."""
        return self._run(self._remote.send, value)

    @contextmanager
    def asserting(self, value: object) -> Iterator[Claim]:
        """Asserts a fact for as long as the block runs."""
        claim = self.assert_(value)
        try:
            yield claim
        finally:
            self.retract(claim)

    @contextmanager
    def turn(self) -> Iterator[Draft]:
        """Collects actions and commits them as one turn at the end of the block, or none on an error."""
        draft = self._remote.draft()
        yield draft
        draft.epoch = self._run(self._remote.commit, draft)

    def matches(self, pattern: Pattern | str) -> list[tuple[Value, ...]]:
        """What matches a pattern now, as rows of captures."""
        return self._run(self._remote.matches, pattern)

    def sync(self) -> int:
        """Waits until everything sent before is handled and on disk; the newest epoch."""
        return self._run(self._remote.sync)

    def status(self) -> Map:
        """What the daemon says of itself."""
        return self._run(self._remote.status)

    def observe(
        self,
        pattern: Pattern | str,
        *,
        snapshot: bool = True,
        after: int | None = None,
        upto: int | None = None,
        quiet: bool = False,
        durable: bool = False,
        policy: str = "conflate",
        window: int | None = None,
        as_of: int | None = None,
        net: bool = False,
        progress: bool = False,
    ) -> BlockingObservation:
        """The changes of a pattern; iterate over it.  Arguments as for ``RemoteSpace.observe``."""

        async def opened() -> Observation:
            observation = self._remote.observe(
                pattern,
                snapshot=snapshot,
                after=after,
                upto=upto,
                quiet=quiet,
                durable=durable,
                policy=policy,
                window=window,
                as_of=as_of,
                net=net,
                progress=progress,
            )
            observation.open()
            return observation

        return BlockingObservation(self._run, self._run(opened))

    @contextmanager
    def publish(
        self,
        topic: str,
        *,
        partition: int = 0,
        partitions: int = 1,
        dimensions: int = 0,
        time: Time | None = None,
        retain: int = 0,
        durable: bool = False,
        age: float | None = None,
        name: str = "",
        away: float = 0.0,
    ) -> Iterator[BlockingPublication]:
        """Publishes to a topic for as long as the block runs; see ``RemoteSpace.publish``."""
        made = self._remote.publish(
            topic,
            partition=partition,
            partitions=partitions,
            dimensions=dimensions,
            time=time,
            retain=retain,
            durable=durable,
            age=age,
            name=name,
            away=away,
        )
        publication = self._run(made.__aenter__)
        try:
            yield BlockingPublication(self._run, publication)
        except BaseException as error:
            if not self._closed:
                publication_ended = partial(made.__aexit__, type(error), error, error.__traceback__)
                with suppress(type(error)):
                    self._run(publication_ended)
            raise
        self._run(made.__aexit__, None, None, None)

    @contextmanager
    def subscribe(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        atomic: bool = True,
        as_of: list[Time] | Time | None = None,
        up_to: Time | None = None,
        slow: Literal["fail", "wait"] = "fail",
        timeout: float = 0.0,
    ) -> Iterator[Iterator[TopicEpoch]]:
        """The epochs of a topic, each whole, for as long as the block runs; see ``RemoteSpace.subscribe``."""
        subscription = self._remote.subscribe(
            topic,
            partitions=partitions,
            atomic=atomic,
            as_of=as_of,
            up_to=up_to,
            slow=slow,
            timeout=timeout,
        )
        self._run(subscription.open)

        def epochs() -> Iterator[TopicEpoch]:
            while (epoch := self._run(subscription.next_epoch)) is not None:
                yield epoch

        try:
            yield epochs()
        finally:
            if not self._closed:
                self._run(subscription.aclose)

    def _run(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        if self._closed:
            raise Closed("the connection is closed")
        try:
            return trio.from_thread.run(function, *args, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):  # the second of who asked while it was ending
            raise self._ended() from self._failure

    def _ended(self) -> DataspaceError:
        """Why there is no connection any more, as an error of whoever asks now."""
        self._thread.join()  # which says why, right after the end
        if isinstance(self._failure, DataspaceError):
            return type(self._failure)(*self._failure.args)
        return Closed(f"the connection has ended: {self._failure or 'it was closed'}")


class BlockingPublication:
    """One producer of a topic; see ``Publication``."""

    def __init__(self, run: Callable[..., T], publication: Publication) -> None:
        self._run = run
        self._publication = publication

    @property
    def time(self) -> Time | None:
        """Where the first capability stands."""
        return self._publication.time

    def send(self, *items: object, at: Time | None = None) -> None:
        """Sends items at a time."""
        self._run(partial(self._publication.send, *items, at=at))

    def advance(self, time: Time) -> None:
        """Nothing before this time comes from here any more."""
        self._run(self._publication.advance, time)

    def flush(self) -> None:
        """Waits until the daemon has taken all that was said."""
        self._run(self._publication.flush)


class BlockingObservation:
    """Changes of one pattern; iterate, or call ``next_epoch`` with a timeout."""

    def __init__(self, run: Callable[..., T], observation: Observation) -> None:
        self._run = run
        self._observation = observation

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the captures, in order."""
        return self._observation.names

    def __iter__(self) -> Iterator[Change]:
        for epoch in self.epochs():
            yield from epoch

    def epochs(self) -> Iterator[EpochChanges]:
        """Whole epochs, for as long as there are more."""
        while (epoch := self.next_epoch()) is not None:
            yield epoch

    def next_epoch(self, timeout: float | None = None) -> EpochChanges | None:
        """The next whole epoch, or None at the end; ``TimeoutError`` after so many seconds, with no loss."""

        async def take() -> EpochChanges | None:
            if timeout is None:
                return await self._observation.next_epoch()
            with trio.move_on_after(timeout):
                return await self._observation.next_epoch()
            raise TimeoutError(f"no epoch within {timeout} s")

        return self._run(take)  # type: ignore[return-value]  # what take gives

    def close(self) -> None:
        """Ends the observation."""
        self._run(self._observation.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def connect_blocking(
    url: str | None = None,
    *,
    name: str = "",
    owner: str = "",
    client: str = "",
    space: str = "main",
    heartbeat: float = HEARTBEAT,
    grace: float = 0.0,
    lease: float = 0.0,
    token: str | None = None,
    tls: Tls | ssl.SSLContext | None = None,
) -> BlockingSpace:
    """A connection to a daemon without ``async``; arguments as for ``connect``."""
    how = partial(
        connect,
        url,
        name=name,
        owner=owner,
        client=client,
        space=space,
        heartbeat=heartbeat,
        grace=grace,
        lease=lease,
        token=token,
        tls=tls,
    )
    return BlockingSpace(how)
