"""A pipe: stages put together, checked, bound, and of the same shape as a stage.

``pipe(source, through, …)`` is a stream to read: by ``read``, by ``async for``, or wherever trio takes a
receive channel.  With a sink at its end, one ``read`` runs it all.  Without a source it is a through or a
sink made of several, to be used in other pipes.

A block (``async with``) is the life of a pipe: stages that work in tasks of their own have them there, and
leaving it ends the pipe: after a ``break`` the abort is waited for, by an exception the pipe fails with it,
by cancellation it is only indicated.

A stage is bound to what is before it, with nothing in between: ``read`` of a bound stage is the stage's own
coroutine, so binding costs no frame for each value.

Always: an error in the combination of stages is raised here, before the first read, and its message names the
stage and its place; an exception leaves the block as it is, not in a group.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import Any, Final, Generic, Self, TypedDict, TypeVar, Unpack, cast, overload

import trio

from dataspace.errors import UsageError
from dataspace.loops.here import loop
from dataspace.loops.primitives import Nursery
from dataspace.streams.pipes.checker import Checker
from dataspace.streams.stages.base import Kind, check_depth, frames_of, lacks_source
from dataspace.streams.stages.protocol import VERSION, AnyStage, Iteration, Reason, Stage, Upstream
from dataspace.streams.throughs.maps import fused

T = TypeVar("T")
_Answer = Coroutine[Any, Any, T]


class _Nothing:
    """The upstream of a source: it has no values, and ending it does nothing."""

    async def read(self) -> Any:
        raise UsageError(
            "there is no stage before this one to read from: a pipe that is read begins with a source"
        )

    async def read_some(self, limit: int) -> Any:
        return await self.read()

    async def peek(self) -> bool:
        return False

    async def abort(self, reason: Reason = True) -> None:
        pass

    def abort_nowait(self, reason: Reason = True) -> None:
        pass


NOTHING: Final[Any] = _Nothing()


class BoundStage(Generic[T]):
    """A stage and its upstream as one ``Upstream``."""

    __slots__ = ("abort", "abort_nowait", "peek", "read", "read_some", "stage")

    def __init__(self, stage: AnyStage, source: Upstream[Any]) -> None:
        self.stage = stage
        self.read: Callable[[], _Answer[T]] = partial(stage.read, source)
        some = getattr(stage, "read_some", None)
        self.read_some: Callable[[int], _Answer[list[T]]] = (
            self._read_one if some is None else partial(some, source=source)
        )
        self.peek: Callable[[], _Answer[bool]] = partial(stage.peek, source)
        self.abort: Callable[..., _Answer[None]] = _ending(stage.abort, source)
        self.abort_nowait: Callable[..., None] = _ending(stage.abort_nowait, source)

    async def _read_one(self, _limit: int) -> list[T]:
        return [await self.read()]


def _ending(call: Callable[[Reason, Upstream[Any]], T], source: Upstream[Any]) -> Callable[..., T]:
    """Returns ``abort`` or ``abort_nowait`` of a stage, with its default; a closure takes one frame and not
    two."""

    def end(reason: Reason = True) -> T:
        return call(reason, source)

    return end


A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")

MEMBERS: Final = ("promistream_version", "description", "read", "peek", "abort", "abort_nowait")
ABORT_TIMEOUT: Final = 1.0
"""Seconds that leaving a block waits for an abort to be confirmed."""


PIPE_FRAMES: Final = 3
"""Frames that a pipe itself takes where it is an input of another stream or a part of another pipe."""


@dataclass(frozen=True, slots=True)
class PipeStatistics:
    """The stages of a pipe, after fusion, and whether its tasks can run."""

    stages: tuple[str, ...]
    kind: Kind
    running: bool


class Pipe(Iteration[T], trio.abc.ReceiveChannel[T]):
    """Stages connected to one another.  Made by ``pipe``."""

    promistream_version: Final = VERSION

    def __init__(self, stages: Sequence[AnyStage], *, abort_timeout: float, opaque: bool = False) -> None:
        self._stages = tuple(stages)
        self._abort_timeout = abort_timeout
        self._manager: Any = None
        self.kind: Final = _kind_of(stages)
        self.description: Final = " → ".join(stage.description for stage in stages)
        self.needs_tasks: Final = any(getattr(stage, "needs_tasks", False) for stage in stages)
        self.whole: Final = (
            self.kind is Kind.SINK and getattr(stages[0], "kind", Kind.SOURCE) is Kind.SOURCE
        ) or getattr(stages[0], "whole", False)
        """True if it begins with a source and ends in a sink: one read runs it."""
        self.frames: Final = PIPE_FRAMES + sum(frames_of(stage) for stage in stages)
        self.bound_stages: Sequence[Any] = ()
        self.opaque: Final = opaque
        """True if its stages must stay as they are where it becomes a part of another pipe."""
        self._bound: object = None
        self._nursery: Nursery | None = None
        self._source: Upstream[Any] | None = None
        self._links: tuple[BoundStage[Any], ...] = ()
        self._lacks_source: Final = lacks_source(self)
        if not self._lacks_source:
            self._link_to(NOTHING)

    def __repr__(self) -> str:
        return f"<pipe {self.description}>"

    def statistics(self) -> PipeStatistics:
        """Returns what the pipe is made of; O(stages)."""
        names = tuple(stage.description for stage in self._stages)
        return PipeStatistics(names, self.kind, self._manager is not None)

    # -- the protocol ---------------------------------------------------------------------------------

    def read(self, source: Upstream[Any] = NOTHING) -> Coroutine[Any, Any, T]:
        """Returns one value, or the result of the sink; raises ``EndOfStream``, ``Aborted`` or an error."""
        if source is not self._source:
            self._link_to(source)
            self._check_source()
        if self.needs_tasks and self.whole and self._manager is None:
            return self._run()
        return cast("Coroutine[Any, Any, T]", self._links[-1].read())

    def read_some(self, limit: int, source: Upstream[Any] = NOTHING) -> Coroutine[Any, Any, list[T]]:
        """Returns at least one value and at most ``limit``: those at hand."""
        if limit < 1:
            raise UsageError(f"at least one value can be read, limit {limit}")
        if source is not self._source:
            self._link_to(source)
            self._check_source()
        return self._links[-1].read_some(limit)

    async def peek(self, source: Upstream[Any] = NOTHING) -> bool:
        """Waits for a value and reserves it for a later read; False at the end."""
        if source is not self._source:
            self._link_to(source)
            self._check_source()
        return await self._links[-1].peek()

    async def abort(self, reason: Reason = True, source: Upstream[Any] = NOTHING) -> None:
        """Ends the stream, with an error if there is one, and returns when all stages have ended."""
        if source is not self._source:
            self._link_to(source)
        await self._links[-1].abort(reason)

    def abort_nowait(self, reason: Reason = True, source: Upstream[Any] = NOTHING) -> None:
        """Ends the stream as ``abort`` does, without waiting."""
        if source is not self._source:
            self._link_to(source)
        self._links[-1].abort_nowait(reason)

    # -- as a channel, an iterator and a block --------------------------------------------------------

    async def receive(self) -> T:
        """Returns one value, under the name that trio's channels use."""
        return await self.read()

    async def aclose(self) -> None:
        """Ends the stream on purpose."""
        await self.abort(True)

    async def __aenter__(self) -> Self:
        if self.needs_tasks:
            self._manager = loop().open_nursery()
            self.enter(await self._manager.__aenter__())
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self._abort_in_time(True)
            elif isinstance(error, Exception):
                await self._abort_in_time(error)
            else:
                self.abort_nowait(True)
        finally:
            await self._end_tasks()

    async def _abort_in_time(self, reason: Reason) -> None:
        """Aborts and waits for a limited time; then indicates the abort to the stages that are left."""
        with loop().move_on_after(self._abort_timeout, shield=True) as scope:
            await self.abort(reason)
        if scope.cancelled_caught:
            for link in self._links:
                link.abort_nowait(reason)

    async def _end_tasks(self) -> None:
        """Cancels the tasks of the stages; by hand, so that no error is put into a group."""
        manager, self._manager = self._manager, None
        if manager is not None:
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()
            self.enter(None)
            alone: BaseException | None = None
            try:
                await manager.__aexit__(None, None, None)
            except BaseExceptionGroup as group:
                if len(group.exceptions) > 1:
                    raise
                alone = group.exceptions[0]  # of a task, whose error a nursery puts into a group
            if alone is not None:
                raise alone

    async def _run(self) -> T:
        """Runs a pipe that ends in a sink by one read, in a block of its own."""
        async with self:
            return await self.read()

    # -- as a stage -----------------------------------------------------------------------------------

    def bind(self, pipe: object) -> None:
        """Makes this pipe a part of another one."""
        if self._bound is not None:
            raise UsageError(f"{self.description} is in a pipe already; make another, or release() that one")
        self._bound = pipe

    def release(self, pipe: object = None) -> None:
        """Without a pipe: releases the stages, to be bound again.  Else: this is no part of that pipe any
        more."""
        if pipe is None:
            for stage in self.bound_stages:
                if hasattr(stage, "release"):
                    stage.release(self)
        elif self._bound is pipe:
            self._bound = None

    def enter(self, nursery: Nursery | None) -> None:
        """Gives the stages a nursery for their tasks, or takes it back."""
        self._nursery = nursery
        for stage in self._stages:
            if getattr(stage, "needs_tasks", False):
                stage.enter(nursery)  # type: ignore[attr-defined]  # a member of those that need tasks

    def _check_source(self) -> None:
        if self._lacks_source and self._source is NOTHING:
            self._source = None
            raise UsageError(
                f"{self.description} has no source to read from: put one first, or put it behind one"
            )

    def _link_to(self, source: Upstream[Any]) -> None:
        links: list[BoundStage[Any]] = []
        self._source = source
        for stage in self._stages:
            links.append(BoundStage(stage, source))
            source = cast("Upstream[Any]", links[-1])
        self._links = tuple(links)


# -- making one ---------------------------------------------------------------------------------------


class Options(TypedDict, total=False):
    """Options of a pipe.

    ``fuse=False`` keeps neighbouring pure stages apart (to find out which is slow); ``checked=True`` puts a
    checker behind each stage; ``abort_timeout`` is the time that leaving a block waits, in seconds.
    """

    fuse: bool
    checked: bool
    abort_timeout: float


@overload
def pipe(a: Stage[Any, A], /, **options: Unpack[Options]) -> Pipe[A]: ...
@overload
def pipe(a: Stage[Any, A], b: Stage[A, B], /, **options: Unpack[Options]) -> Pipe[B]: ...
@overload
def pipe(a: Stage[Any, A], b: Stage[A, B], c: Stage[B, C], /, **options: Unpack[Options]) -> Pipe[C]: ...
@overload
def pipe(
    a: Stage[Any, A], b: Stage[A, B], c: Stage[B, C], d: Stage[C, D], /, **options: Unpack[Options]
) -> Pipe[D]: ...
@overload
def pipe(
    a: Stage[Any, A],
    b: Stage[A, B],
    c: Stage[B, C],
    d: Stage[C, D],
    e: Stage[D, E],
    /,
    **options: Unpack[Options],
) -> Pipe[E]: ...
@overload
def pipe(*stages: AnyStage, **options: Unpack[Options]) -> Pipe[Any]: ...
def pipe(*stages: Any, **options: Unpack[Options]) -> Pipe[Any]:
    """Puts stages together, from the source to the last; O(stages).

    Raises ``UsageError`` for an object that is no stage, stands where it cannot, or is in another pipe
    already.

    >>> from dataspace import streams as s
    >>> trio.run(pipe(s.values([1, 2, 3]), s.map(lambda n: n * 2), s.collect()).read)
    [2, 4, 6]
    """
    _check(stages)
    checked = options.get("checked", False)
    opaque = checked or not options.get("fuse", True)
    pipe_stages = _opened(stages)
    if not opaque:
        pipe_stages = _fuse(pipe_stages)
    if checked:
        pipe_stages = [Checker(stage) for stage in pipe_stages]
    frames = sum(frames_of(stage) for stage in pipe_stages)
    check_depth(frames, f"{len(pipe_stages)} stages one behind the other")
    timeout = options.get("abort_timeout", ABORT_TIMEOUT)
    made: Pipe[Any] = Pipe(pipe_stages, abort_timeout=timeout, opaque=opaque)
    _bind(stages, made)
    return made


def _opened(stages: Sequence[Any]) -> list[AnyStage]:
    """Returns the stages, with nested pipes replaced by their stages: a nested pipe costs no depth."""
    done: list[AnyStage] = []
    for stage in stages:
        done.extend(stage._stages if isinstance(stage, Pipe) and not stage.opaque else [stage])
    return done


def _bind(stages: Sequence[Any], pipe: Pipe[Any]) -> None:
    """Binds all stages to a pipe, or none."""
    bound: list[Any] = []
    try:
        for stage in stages:
            if hasattr(stage, "bind"):
                stage.bind(pipe)
                bound.append(stage)
    except UsageError:
        for stage in bound:
            stage.release(pipe)
        raise
    pipe.bound_stages = stages


def _check(stages: Sequence[Any]) -> None:
    if not stages:
        raise UsageError("a pipe needs at least one stage")
    for at, stage in enumerate(stages):
        _check_shape(at, stage)
    seen: dict[int, int] = {}
    for at, stage in enumerate(stages):
        _check_place(at, stage, len(stages))
        first = seen.setdefault(id(stage), at)
        if first != at:
            raise UsageError(
                f"stage {at} ({stage.description}) is stage {first} as well, "
                "and would wait for itself; make another"
            )


def _check_shape(at: int, stage: Any) -> None:
    missing = [name for name in MEMBERS if not hasattr(stage, name)]
    if missing:
        hint = "; call it to make one" if callable(stage) else ""
        raise UsageError(f"stage {at} is no stream, it has no {missing[0]}: {stage!r:.80}{hint}")
    if stage.promistream_version != VERSION:
        found = stage.promistream_version
        raise UsageError(f"stage {at} ({stage.description}) is of version {found!r}, there is {VERSION}")


def _check_place(at: int, stage: Any, length: int) -> None:
    kind = getattr(stage, "kind", None)
    where = f"stage {at} ({stage.description})"
    if kind is Kind.SOURCE and at > 0:
        raise UsageError(f"{where} is a source, which can only be first")
    if kind is Kind.SINK and at < length - 1:
        raise UsageError(f"{where} is a sink, which can only be last")
    if kind is Kind.SINK and getattr(stage, "whole", False) and length > 1:
        raise UsageError(f"{where} has a source and a sink: nothing can come before or after it")


def _fuse(stages: Sequence[AnyStage]) -> list[AnyStage]:
    """Returns the same stages with each run of pure ones as one."""
    done: list[AnyStage] = []
    for pure, run in groupby(stages, lambda stage: bool(getattr(stage, "steps", ()))):
        some = list(run)
        done.extend([fused(some)] if pure and len(some) > 1 else some)
    return done


def _kind_of(stages: Sequence[AnyStage]) -> Kind:
    """Returns the kind of several stages together; a first one without a kind is taken for a source."""
    last = getattr(stages[-1], "kind", None)
    first = getattr(stages[0], "kind", Kind.SOURCE)
    if last is Kind.SINK:
        return Kind.SINK
    return Kind.SOURCE if first is Kind.SOURCE else Kind.THROUGH
