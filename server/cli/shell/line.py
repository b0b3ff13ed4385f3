"""The one connection of a shell, lent to the commands that are also commands of their own.

A command that lasts gets its ``RemoteSpace``.  For a command that ends at once, it is the ``CommandSpace``.
It is kept in a thread of its own, and comes back when it was lost.

Always: Ctrl-C cancels the command that runs, and leaves the connection as it is.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

import trio

from dataspace.client.blocking.space import BlockingSpace
from dataspace.client.session.events import ConnectionChange, ConnectionEvent
from dataspace.client.session.session import ClientSession
from dataspace.client.space import RemoteSpace
from dataspace.errors import DataspaceError
from dataspace.foreign import tame
from dataspace.kernel.actions import Action
from dataspace.kernel.changes import EpochChanges
from dataspace.kernel.expectations import Expectation
from dataspace.loops.lone import alone
from index.patterns.patterns import capture_names
from index.values.values import Map, Value
from server.cli.connecting import connect
from server.cli.output import redirect

T = TypeVar("T")

MOST_NOTICES: Final = 1_000
"""Lines that wait for the next prompt; the oldest go."""

_TURNS: Final = 5


class LentConnection:
    """The connection, as a context; ``notices`` are lines to show before the next prompt."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.notices: Final[deque[str]] = deque(maxlen=MOST_NOTICES)
        self.running: Final[dict[int, trio.CancelScope]] = {}
        """The commands in the background, by their numbers."""
        self._space = BlockingSpace(lambda: connect(args))
        self.listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._space.close()

    def listen(self) -> None:
        """Notes from now on what becomes of the connection."""
        self._space.on_connection = self._note

    def _note(self, event: ConnectionEvent) -> None:
        if event.change is not ConnectionChange.CONNECTED:
            self.notices.append(f"connection {event}")

    def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Returns what an async function returns that gets the space; Ctrl-C cancels it."""
        return self._space.call(function, *args)

    def run(self, verb: Callable[[argparse.Namespace], Awaitable[int]], args: argparse.Namespace) -> int:
        """Carries out a command that lasts; returns its exit code."""

        async def work(space: RemoteSpace) -> int:
            args.lent = space
            return await verb(args)

        try:
            return self.call(work)
        finally:
            self.listen()  # the command may have listened itself

    # -- for commands that end at once ------------------------------------------------------------------

    def state(self, pattern: Value, as_of: int | None = None) -> EpochChanges:
        """Returns an epoch, the current one or ``as_of``, with all matches under ``added``."""

        async def look(space: RemoteSpace) -> EpochChanges:
            async with space.observe(pattern, quiet=True, as_of=as_of, upto=as_of) as observation:
                state = await observation.next_epoch()
            at = as_of or 0
            return state or EpochChanges(at, 0, at, capture_names(pattern), [], [], [], 0)

        return self.call(look)

    def request(self, verb: str, arguments: Mapping[str, Value]) -> Value:
        """Returns the answer to a request; also of ``status``, from the daemon that the shell has named."""

        async def ask(space: RemoteSpace) -> Value:
            named = space.named
            return await (named if named.answers(verb) else space).request(verb, Map(arguments))

        return self.call(ask)

    def commit(
        self, actions: Sequence[Action], owner: str = "", *, expected: Sequence[Expectation] = ()
    ) -> int:
        """Commits one turn, of the session or of a durable owner; returns its epoch."""

        async def work(space: RemoteSpace) -> int:
            ticket = await space.session.submit(tuple(actions), tuple(expected), owner or None)
            return await ticket.wait()

        return self.call(work)

    def cut(self, actions: Sequence[Action], owner: str = "") -> list[tuple[Action, ...]]:
        """Returns the actions in as many turns as the daemon needs to take them."""
        return self._look(lambda session: session.in_flight.cut(owner, actions))

    def held(self) -> dict[int, Value]:
        """Returns the facts that the shell asserts, by handle."""
        return self._look(lambda session: session.in_flight.held())

    def _look(self, function: Callable[[ClientSession], T]) -> T:
        """Returns what a function finds in the session, in the thread of the connection."""

        async def look(space: RemoteSpace) -> T:
            await trio.lowlevel.checkpoint()
            return function(space.session)

        return self.call(look)

    # -- in the background -----------------------------------------------------------------------------

    def start(
        self, number: int, verb: Callable[[argparse.Namespace], Awaitable[int]], args: argparse.Namespace
    ) -> None:
        """Starts a command that lasts; its lines become notices with its number."""

        async def begin(space: RemoteSpace) -> None:
            args.lent = space
            space.session.start_soon(partial(self._follow, number, partial(verb, args)))

        self.running[number] = trio.CancelScope()
        self.call(begin)

    async def _follow(self, number: int, verb: Callable[[], Awaitable[int]]) -> None:
        redirect(lambda text: self.notices.append(tame(f"[{number}] {text}")))
        with self.running[number]:
            try:
                await verb()
                outcome = "ended"
            except DataspaceError as error:
                outcome = f"ended: {error}"
            except BaseExceptionGroup as group:
                only = alone(group)
                if not isinstance(only, DataspaceError):
                    raise
                outcome = f"ended: {only}"
            self.running.pop(number, None)
            self.notices.append(f"[{number}] {outcome}")

    def end(self, number: int) -> None:
        """Ends a command in the background."""

        async def cancel(_space: RemoteSpace, scope: trio.CancelScope) -> None:
            scope.cancel()

        self.call(cancel, self.running.pop(number))

    def settle(self) -> None:
        """Returns when the changes that have been made until now are noted, if any are observed."""

        async def settle(space: RemoteSpace) -> None:
            await space.sync()  # the changes of a turn are sent before the answer to what follows it
            for _ in range(_TURNS):  # in which tasks that have changes to read read them
                await trio.lowlevel.checkpoint()

        if self.running:
            self.call(settle)
