"""Live maps: what matches a pattern now, by key.

``space.live`` observes a pattern and keeps its state as a mapping.  The rows are moved in the task of the
connection, where epochs are decoded, so a program that never waits for a change reads the newest state.  They
are the table that the observation has anyway (``epochs/tables.py``), read by key.

Always: the map is the state at a whole epoch; what is taken as changes leads from the state at the last
taking to that of now; memory is bounded by the state, however slow the program is.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import (
    AsyncIterator,
    Callable,
    ItemsView,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypedDict, TypeVar

from dataspace.client.epoch_streams import EpochStream
from dataspace.client.epochs.reopening import copied
from dataspace.client.epochs.tables import KeyedTable, KeyForm, LiveChange, places_of
from dataspace.client.observations import ABORT_SECONDS, Observing
from dataspace.client.typed import RowType, is_row_class
from dataspace.errors import Closed, UsageError
from dataspace.kernel.changes import Captures, EpochChanges
from dataspace.loops.blocks import block
from dataspace.loops.here import loop
from dataspace.streams.stages.functions import check_plain, check_sync
from dataspace.streams.stages.protocol import own_error
from dataspace.wire.observing import ObserveOptions
from index.patterns.text import unparse_pattern
from index.values.values import Map

if TYPE_CHECKING:
    from dataspace.client.session.session import ClientSession
    from index.patterns.patterns import Pattern

R = TypeVar("R")
T = TypeVar("T")

INSTEAD: Final = "use `async for change in temps` instead"

WAIT: Final = 5_000
"""Milliseconds that the daemon is asked to wait for an epoch."""

PAUSE: Final = 0.05
"""Seconds for changes that are on their way, before the daemon is asked again how far it is."""


class Living(TypedDict, total=False):
    """Options of ``live``; what is not here is in ``observe``."""

    sort: Callable[[Any], Any] | None
    follow: bool
    as_of: int | None
    identity: str
    durable: bool
    quiet: bool
    pace: float | None


def checked(pattern: Pattern | str, options: Living) -> tuple[ObserveOptions, Callable[[Any], Any] | None]:
    """Returns the options of the observation, and ``sort``; raises ``UsageError`` for others."""
    if unknown := options.keys() - Living.__optional_keys__:
        name, known = min(unknown), ", ".join(sorted(["many", "row", *Living.__optional_keys__]))
        if name not in Observing.__optional_keys__:
            raise TypeError(f"RemoteSpace.live() got an unexpected keyword argument {name!r}")
        raise UsageError(f"live has no {name}, as a slow program gets the net difference; there are {known}")
    sort, follow, as_of = options.pop("sort", None), options.pop("follow", False), options.get("as_of")
    if follow and as_of is None:
        raise UsageError("follow goes on from as_of, which is not given")
    return ObserveOptions.of(pattern, upto=None if follow else as_of, **options), sort


def form_of(
    names: Sequence[str],
    by: str | Sequence[str],
    row: Callable[..., R] | None,
    *,
    many: bool,
    sort: Callable[[Any], Any] | None,
) -> KeyForm[R]:
    """Returns how rows are kept and shown; raises ``UsageError`` for what does not fit the captures."""
    at, single = places_of(by, names), isinstance(by, str)
    for name, function in ("row", row), ("sort", sort):
        if function is not None and not callable(function):
            raise UsageError(f"{name} is a class or a function, not {function!r:.80}")
    if row is None:
        return KeyForm(at, single=single, many=many, show=_plain(tuple(names)), sort=sort)
    make: Any = RowType(row, names) if is_row_class(row) else _called(row)  # type: ignore[arg-type]  # as just asked
    return KeyForm(at, single=single, many=many, make=make, sort=sort)


@lru_cache(64)
def _plain(names: tuple[str, ...]) -> Callable[[Captures], Any]:
    """Returns what shows a row with its captures as attributes; a tuple where a name is none of Python's."""
    try:
        made: Any = namedtuple("row", names)  # type: ignore[misc]  # the names are the pattern's
    except ValueError:
        return tuple
    return made._make


def _called(row: Callable[..., R]) -> Callable[[Captures], R]:
    check_sync(row, "row")
    return lambda captures: row(*captures)


class LiveMapping(Mapping[Any, R]):
    """What a program reads of a table: keys, and the row of each, or with ``many`` the list of its rows.

    Keys are compared as values: ``1``, ``1.0`` and ``True`` are three.  ``keys``, ``values``, ``items`` and
    iteration are over the state of the moment in which they begin; O(n), and O(n log n) with ``sort``.
    """

    def __init__(self, table: KeyedTable[R]) -> None:
        self.table: Final = table

    def __getitem__(self, at: Any) -> R:
        return self.table.seen(at)

    def __contains__(self, at: object) -> bool:
        return self.table.has(at)

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table.keys())

    def keys(self) -> KeysView[Any]:
        """Returns the keys of now, in their order."""
        return KeysView(LiveMapping(self.table.copy()))

    def values(self) -> ValuesView[R]:
        """Returns the rows of now, in the order of the keys."""
        return ValuesView(LiveMapping(self.table.copy()))

    def items(self) -> ItemsView[Any, R]:
        """Returns the keys and rows of now, in their order."""
        return ItemsView(LiveMapping(self.table.copy()))


class LiveStream(EpochStream):
    """An observation of which nothing is held but its table: an epoch is taken as soon as it is decoded."""

    def __init__(
        self,
        session: ClientSession,
        options: ObserveOptions,
        table: KeyedTable[Any],
        call: Callable[[], None],
    ) -> None:
        """``call`` is called after each epoch with rows, and at the end."""
        super().__init__(session, options, None, table)
        self.session: Final = session
        self.pattern: Final = options.pattern
        self.is_whole = False
        """True once the first state is here."""
        self.failure: Exception | None = None
        """The exception of the program's own function, which has ended it."""
        self.epoch = 0
        self._begin: Final = table.begin
        self._call: Final = call

    @property
    def is_over(self) -> bool:
        """True if nothing more will come."""
        return self._over

    def error(self) -> Exception | None:
        """Returns why nothing more will come, newly made; None while it goes on."""
        if not self._over:
            return None
        if self.failure is not None:
            return self.failure
        if self._error is not None:
            return copied(self._error)
        whole = self.is_whole and self._end is None
        return Closed(
            f"the map is complete, as of epoch {self.epoch}" if whole else "the live map was closed"
        )

    async def wait_arrival(self) -> None:
        """Returns when something has come, or the stream has ended."""
        await self._arrival.park()
        self.pace.begin()

    async def wait_whole(self) -> None:
        """Returns when the first state is here; raises what has ended the stream before."""
        self.open()
        while not self.is_whole:
            if (error := self.error()) is not None:
                raise error
            await self._arrival.park()

    def reach(self, epoch: int) -> None:
        """Notes that everything up to this epoch has come."""
        super().reach(epoch)
        if self.is_whole and not self._catching_up:
            self.epoch = max(self.epoch, epoch)
            self._arrival.unpark_all()

    def _take_in(self, epoch: EpochChanges) -> None:
        if self._over:  # it has ended amid a frame
            return
        try:
            super()._take_in(epoch)
        except Exception as error:  # noqa: BLE001  # of the program's function: it ends the map, not the connection
            self._stop(error)

    def _hold(self, epoch: EpochChanges) -> None:
        self.epoch = epoch.number
        if not self.is_whole:
            self.is_whole = True
            self._begin()
        items, size = self._pending_items, self._pending_bytes
        self._pending_items = self._pending_bytes = 0
        if self._window.consume(items, size):
            self._want(0)
        if epoch.added or epoch.removed:
            self._call()

    def _may_skip(self) -> bool:
        return self._options.upto is None  # a state has nothing to miss, also where it began in the past

    def _end_wire(self) -> None:
        super()._end_wire()
        if self._end is None:
            try:
                self._call()
            except Exception as error:  # noqa: BLE001  # as above
                self._stop(error)

    def _stop(self, error: Exception) -> None:
        self.failure = own_error(error, "live")
        self.abort_nowait(self.failure)


class LiveMap(LiveMapping[R], Generic[R]):
    """What matches a pattern now, by key: a mapping that is always the state at a whole epoch, ``epoch``.

    ``await temps.changed()`` or ``async for change in temps`` wait for changes, each with ``key, old, new``.
    One task at a time does so: what it has taken is behind it.  ``subscribe`` is for any number.  Once it has
    ended, the map stays readable, and ``error`` says why.
    """

    def __init__(self, session: ClientSession, options: ObserveOptions, form: KeyForm[R]) -> None:
        super().__init__(KeyedTable(form))
        self._stream: Final = LiveStream(session, options, self.table, self._notify)
        self._functions: Final[dict[object, Callable[[Any], object]]] = {}
        self._is_awaited = False

    def __repr__(self) -> str:
        pattern = unparse_pattern(self._stream.pattern)
        keys = f"{len(self)} key{'s' * (len(self) != 1)}"
        return f"<live {pattern}: {keys} as of epoch {self.epoch}>"

    @property
    def epoch(self) -> int:
        """The epoch of which the map is the state."""
        return self._stream.epoch

    @property
    def error(self) -> Exception | None:
        """Why the map is not kept up to date any more; None as long as it is."""
        return self._stream.error()

    async def changed(self, timeout: float | None = None) -> list[LiveChange[R]]:
        """Waits for a difference to what was last taken, and returns it: a change for each key.

        ``a → b → a`` is no change.  Nothing is awaited after the difference is taken, so the map is as the
        changes say when this returns; the next ``await`` may move it.  Raises ``TimeoutError`` after so many
        seconds, and once the map has ended and everything is taken, its ``error``: ``Closed``, unless it
        failed.
        """
        with self._reading():
            await loop().checkpoint()
            if timeout is None:
                return await self._next(self.table.take)
            if changes := self.table.take():
                return changes
            with loop().move_on_after(timeout):
                return await self._next(self.table.take)
        raise TimeoutError(f"nothing has changed within {timeout:g} s")

    async def at(self, epoch: int, timeout: float | None = None) -> None:
        """Returns once the map has everything up to an epoch, as that of a turn of this program.

        It costs requests only where no change up to that epoch has come.  Raises ``TimeoutError`` after so
        many seconds, and the map's ``error`` if it has ended before.
        """
        await loop().checkpoint()
        if timeout is None:
            return await self._reach(epoch)
        with loop().move_on_after(timeout):
            return await self._reach(epoch)
        raise TimeoutError(f"epoch {epoch} has not come within {timeout:g} s, the map is as of {self.epoch}")

    def subscribe(self, function: Callable[[Self], object]) -> Callable[[], None]:
        """Calls a plain function with this map after each epoch that has changed it, and at its end; returns
        what ends that.

        It runs in the task of the connection, so it must be quick.  An exception of it ends the map.
        """
        check_sync(function, "subscribe", instead=INSTEAD)
        token = object()  # the same function may be given twice
        self._functions[token] = function
        return lambda: self._functions.pop(token, None) and None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LiveChange[R]:
        pace = self._stream.pace
        pace.passed += 1
        if pace.passed < pace.run and not self._is_awaited:
            change = self.table.take_one()
            if change is not None:
                return change
        with self._reading():
            if pace.passed >= pace.run:
                await pace.rest()
            try:
                return await self._next(self.table.take_one)
            except Closed:
                raise StopAsyncIteration from None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if self._is_awaited:
            raise UsageError(
                "another task waits for the changes of this live map: use subscribe, or another map"
            )
        self._is_awaited = True
        try:
            yield
        finally:
            self._is_awaited = False

    async def _next(self, take: Callable[[], T | None]) -> T:
        while not (taken := take()):
            if (error := self._stream.error()) is not None:
                raise error
            await self._stream.wait_arrival()
        return taken

    async def _reach(self, epoch: int) -> None:
        stream = self._stream
        asked = Map({"after": epoch - 1, "wait": WAIT})
        while stream.epoch < epoch:
            if (error := stream.error()) is not None:
                raise error
            answer = await stream.session.request("frontier", asked)
            known = answer.get("epoch") if isinstance(answer, Map) else None
            if stream.epoch < epoch and isinstance(known, int) and known >= epoch:
                await stream.session.request("sync", Map({"reached": True}))
                if stream.epoch < epoch:
                    with loop().move_on_after(PAUSE):
                        await stream.wait_arrival()

    def _notify(self) -> None:
        for function in [*self._functions.values()]:
            answer = function(self)
            if answer is not None:
                check_plain(answer, "subscribe", instead=INSTEAD)

    async def begin(self) -> None:
        """Opens the observation and returns when the first state is here."""
        await self._stream.session.patience.wait(self._stream.wait_whole)

    async def end(self, error: BaseException | None) -> None:
        """Ends the observation; for a short time it waits for the daemon to confirm that."""
        if error is None or isinstance(error, Exception):
            with loop().move_on_after(ABORT_SECONDS, shield=True):
                await self._stream.abort(True)
        self._stream.abort_nowait(True)


@block("async with space.live(…, by=…) as temps")
async def living(
    session: ClientSession, options: ObserveOptions, form: KeyForm[R]
) -> AsyncIterator[LiveMap[R]]:
    """Keeps a live map for as long as the block runs."""
    live, error = LiveMap(session, options, form), None
    try:
        await live.begin()
        live.table.take()  # changes are those of the state that the block begins with
        yield live
    except BaseException as raised:
        error = raised
        raise
    finally:
        await live.end(error)
