"""The table of routes: for each its path, what it takes, what it returns, and what answers it.

Always: the application and the OpenAPI description are made from this table alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from starlette.types import ASGIApp

from server.web.inner import ServingDaemon
from server.web.routes import events, facts, groups, log, rules, topics, turns
from server.web.routes.parameters import Asked, Parameter

Answer: TypeAlias = Callable[[ServingDaemon, Asked], Awaitable[ASGIApp]]


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

ROUTES: Final = (
    Row(
        "GET",
        f"{IN_SPACE}/facts",
        "the state of a pattern",
        facts.facts,
        facts.PARAMETERS,
        returns={200: "application/json", 304: ""},
    ),
    Row(
        "GET",
        f"{IN_SPACE}/observe",
        "the changes of a pattern as server-sent events",
        events.observe,
        events.PARAMETERS,
        returns={200: "text/event-stream", 204: ""},
    ),
    Row(
        "GET",
        f"{IN_SPACE}/log",
        "the past of a pattern as JSON lines",
        log.log,
        log.PARAMETERS,
        returns={200: "application/x-ndjson"},
    ),
    Row(
        "POST", f"{IN_SPACE}/turns", "several actions as one turn", turns.turns, turns.PARAMETERS, turns.TURN
    ),
    Row(
        "POST",
        f"{IN_SPACE}/groups/{{group}}/take",
        "jobs of a group, which are the caller's for a while",
        groups.take,
        groups.PARAMETERS,
        groups.TAKE,
    ),
    Row(
        "POST",
        f"{IN_SPACE}/groups/{{group}}/done",
        "report jobs as done",
        groups.done,
        groups.PARAMETERS,
        groups.DONE,
    ),
    Row(
        "POST",
        f"{IN_SPACE}/groups/{{group}}/again",
        "give jobs back",
        groups.again,
        groups.PARAMETERS,
        groups.AGAIN,
    ),
    Row(
        "POST",
        f"{IN_SPACE}/messages",
        "messages, in one turn",
        turns.messages,
        turns.PARAMETERS,
        turns.MESSAGES,
    ),
    Row("GET", f"{IN_SPACE}/rules", "the rules", rules.rules, rules.RULES),
    Row("GET", f"{IN_SPACE}/why", "why a fact is derived", rules.why, rules.WHY),
    Row("GET", f"{IN_SPACE}/why-not", "why a fact is not derived", rules.why_not, rules.WHY_NOT),
    Row("GET", f"{IN_SPACE}/explain", "how the rules run", rules.explain, rules.RULES),
    Row(
        "POST", "/v1/topics/{topic}", "items to a durable topic", topics.publish, topics.PUBLISH, topics.ITEMS
    ),
    Row(
        "GET",
        "/v1/topics/{topic}/events",
        "the completed epochs of a durable topic as server-sent events",
        topics.subscribe,
        topics.SUBSCRIBE,
        returns={200: "text/event-stream"},
    ),
    Row("GET", "/v1/status", "the status of the daemon", rules.status, rules.STATUS),
)

DESCRIPTION: Final = "/v1/openapi.json"
"""Where the description of these routes is; it needs no token."""
