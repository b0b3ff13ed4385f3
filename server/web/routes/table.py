"""The routes of the core; features have theirs beside them (``server/daemon/features.py``)."""

from __future__ import annotations

from typing import Final

from server.web.routes import events, facts, log, rules, turns
from server.web.routes.route import IN_SPACE, Row

ROUTES: Final[tuple[Row, ...]] = (
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
    Row("GET", "/v1/status", "the status of the daemon", rules.status, rules.STATUS),
)

DESCRIPTION: Final = "/v1/openapi.json"
"""Where the description of these routes is; it needs no token."""
