"""``GET …/rules``, ``…/why``, ``…/why-not``, ``…/explain``, and the status of the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson
from starlette.responses import Response

from dataspace.kernel.actions import MORE
from dataspace.wire.features import MAIN
from index.patterns.text import parse_pattern
from index.values.jsons import Json, to_json
from index.values.values import Map, Value
from server.sessions.state import DaemonState
from server.web.inner import EventBatch, InnerSession, inner_session
from server.web.routes.parameters import SPACE, Asked, Parameter
from server.web.routes.streaming import part_of

FACT: Final = Parameter(
    "fact", "the fact that is derived, or a pattern of which the first is meant", kind="pattern", needed=True
)
MISSING: Final = Parameter(
    "pattern", "the fact that is not derived, or a pattern", kind="pattern", needed=True
)
WITHIN: Final = Parameter("space", "the dataspace whose counts are shown (default: main)")

WHY: Final = (SPACE, FACT)
WHY_NOT: Final = (SPACE, MISSING)
RULES: Final = (SPACE,)
STATUS: Final = (WITHIN,)


async def why(daemon: DaemonState, asked: Asked) -> Response:
    """Returns the proof of a fact, a row for each step; none if it does not hold."""
    return await _ask(daemon, asked, "why", asked.values["fact"])


async def why_not(daemon: DaemonState, asked: Asked) -> Response:
    """Returns what is missing for a fact to be derived, a row for each rule."""
    return await _ask(daemon, asked, "why-not", asked.values["pattern"])


async def explain(daemon: DaemonState, asked: Asked) -> Response:
    """Returns how the rules run: their plans, counts and costs, a row for each."""
    return await _ask(daemon, asked, "explain", None)


async def _ask(daemon: DaemonState, asked: Asked, question: str, about: Value) -> Response:
    async with inner_session(daemon, asked.caller, asked.space) as session:
        arguments: dict[str, Value] = {"ask": question, "about": about, "form": "rows"}
        answer = await session.request("rules", arguments)
    return _json({"rows": to_json(answer)})


async def rules(daemon: DaemonState, asked: Asked) -> Response:
    """Returns the texts that are rules, by name, and which are suspended and why."""
    async with inner_session(daemon, asked.caller, asked.space) as session:
        texts = await _matches(session, asked.space, "rule($name:str, $text:str)")
        errors = await _matches(session, asked.space, "rule-error($name, $text, $row, $why)")
    reasons = {row[:2]: row[2:] for row in errors}
    listed: list[Json] = []
    for name, text in sorted(texts):
        row, reason = reasons.get((name, text), (Map(), None))
        listed.append(
            {"name": str(name), "text": str(text), "suspended": to_json(reason), "row": to_json(row)}
        )
    return _json({"rules": listed})


async def _matches(session: InnerSession, space: str, pattern: str) -> list[tuple[Value, ...]]:
    reading = session.open({"space": space, "pattern": parse_pattern(pattern), "quiet": True})
    rows: list[tuple[Value, ...]] = []
    while True:
        packet = await reading.next()
        if isinstance(packet, EventBatch):
            for value in packet.values:
                part = part_of(value)
                rows += map(tuple, part.added)
                if not part.flags & MORE:
                    return rows


async def status(daemon: DaemonState, asked: Asked) -> Response:
    """Returns counts, bytes and times of the daemon and of one space."""
    async with inner_session(daemon, asked.caller, asked.values.get("space", MAIN), here=True) as session:
        return _json({"status": to_json(await session.request("status", {}))}["status"])


def _json(said: Json | Mapping[str, Json]) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(orjson.dumps(said) + b"\n", headers=headers, media_type="application/json")
