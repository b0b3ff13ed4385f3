"""Patience: how long a call waits for a daemon that is away.

A client reconnects for as long as it lives, so a call waits for the daemon as long.  Where that is too long,
as in a request handler, a call has the patience of its connection: the call ends with ``Unreachable`` once
the daemon has been away for so many seconds.

Always: while there is a connection to a daemon that serves the client nothing here ends a call.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from dataspace.errors import Refused, Unreachable, UsageError
from dataspace.loops.here import loop
from dataspace.loops.primitives import Scope

T = TypeVar("T")


class AwayLimit:
    """Of one client, for the daemon at ``url``: ``seconds`` for each call, None to wait for ever."""

    def __init__(self, url: str, seconds: float | None) -> None:
        if seconds is not None and not seconds > 0:
            raise UsageError(f"timeout is in seconds, more than 0, or None to wait for ever, not {seconds!r}")
        self._url: Final = url
        self._seconds: Final = math.inf if seconds is None else seconds
        self._loop: Final = loop()
        self._scopes: dict[Scope, tuple[float, float]] = {}
        """The seconds of each call, and when it began."""
        self._is_away = True
        self._since = 0.0

    def check(self, began: float, reason: Refused) -> None:
        """Raises ``Unreachable`` for a call that has waited too long for a daemon that cannot answer."""
        if self._loop.current_time() - began >= self._seconds:
            raise Unreachable(f"the daemon at {self._url} has not answered for {self._seconds:g} s: {reason}")

    def lost(self, *, served: bool = True) -> None:
        """Notes that the connection is lost: the time of all calls begins, or goes on.

        It goes on where the connection has ``served`` nothing, since its daemon sent the client away at once.
        """
        self._is_away = True
        if served:
            self._since = self._loop.current_time()
        for scope, (seconds, began) in self._scopes.items():
            scope.deadline = max(self._since, began) + seconds

    def returned(self) -> None:
        """Notes that there is a connection: calls wait for the daemon's answer."""
        self._is_away = False
        for scope in self._scopes:
            scope.deadline = math.inf

    async def wait(self, function: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Returns the result of a function; raises ``Unreachable`` when the daemon has been away for so many
        seconds, by default the connection's, since the call began."""
        least = self._seconds if seconds is None else seconds
        if least == math.inf:
            return await function()
        with self._loop.scope() as scope:
            now = self._loop.current_time()
            self._scopes[scope] = least, now
            if self._is_away:
                scope.deadline = now + least
            try:
                return await function()
            finally:
                del self._scopes[scope]
        raise Unreachable(f"the daemon at {self._url} has been away for {least:g} s")
