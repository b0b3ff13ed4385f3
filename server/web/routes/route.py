"""One route: its path, what it takes, what it returns, and what answers it.

Always: the application and the OpenAPI description are made from such rows alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from starlette.types import ASGIApp

from server.sessions.state import DaemonState
from server.web.routes.parameters import Asked, Parameter

Answer: TypeAlias = Callable[[DaemonState, Asked], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Row:
    """One route; ``body`` is the schema of its JSON, and ``returns`` the media types by status."""

    method: str
    path: str
    summary: str
    answer: Answer
    parameters: tuple[Parameter, ...] = ()
    body: dict[str, object] | None = None
    returns: dict[int, str] = field(default_factory=lambda: {200: "application/json"})

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods at its path: HEAD beside a GET whose answer has an end."""
        is_whole = self.returns.get(200) == "application/json"
        return ("GET", "HEAD") if self.method == "GET" and is_whole else (self.method,)


IN_SPACE: Final = "/v1/spaces/{space}"
