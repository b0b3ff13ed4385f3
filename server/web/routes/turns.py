"""``POST …/turns`` and ``POST …/messages``: several actions, or several messages, as one turn.

A turn names facts, since a request has no handles, so it is carried out as a publication: for a durable owner
or a lease that the body names, numbered by ``client`` and ``sequence`` where these are given.

Always: a body happens whole in one epoch or not at all; a number that was applied before changes nothing and
is answered with its epoch.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

import orjson
from starlette.responses import Response

from dataspace.codec import array_head, pack
from dataspace.errors import DataspaceError, ExpectationFailed
from dataspace.kernel.actions import SEND
from dataspace.kernel.expectations import MOST_EXPECTED, Expectation, absent, exactly, unchanged
from dataspace.steps import Steps
from dataspace.wire.consuming import MOST_IN_FLIGHT
from dataspace.wire.features import SYSTEM
from dataspace.wire.packets import MAX_TEXT
from index.patterns.patterns import capture_names
from index.values.values import Map, Value
from server.sessions.state import DaemonState
from server.web.inner import InnerSession, inner_session
from server.web.routes.parameters import (
    SPACE,
    Asked,
    Parameter,
    in_steps,
    read_deliveries,
    read_each,
    read_fact,
    read_list,
    read_number,
    read_object,
    read_pattern,
    read_text,
    read_value,
)
from server.web.routes.problems import Problem, problem_of
from server.web.routes.streaming import rows_json

VALUE: Final[dict[str, object]] = {"$ref": "#/components/schemas/Value"}
ACTION: Final = {
    "oneOf": [
        *[
            {"type": "object", "properties": {verb: VALUE}, "required": [verb], "additionalProperties": False}
            for verb in ("assert", "retract", "send")
        ],
        {
            "type": "object",
            "properties": {"replace": VALUE, "with": VALUE},
            "required": ["replace", "with"],
            "additionalProperties": False,
        },
    ]
}
PATTERN_TEXT: Final[dict[str, object]] = {"type": "string", "description": "a pattern as text"}
ROWS: Final[dict[str, object]] = {
    "type": "array",
    "items": {"type": ["object", "array"]},
    "description": "captures, by name as facts has them, or in their order",
}
EPOCH: Final[dict[str, object]] = {"type": "integer", "minimum": 0}
EXPECTATIONS: Final[dict[str, dict[str, dict[str, object]]]] = {
    "absent": {"absent": PATTERN_TEXT},
    "exactly": {"exactly": PATTERN_TEXT, "rows": ROWS},
    "unchanged": {"unchanged": PATTERN_TEXT, "since": EPOCH},
}
"""The members of each expectation, by the name of its pattern."""

EXPECTATION: Final[dict[str, object]] = {
    "oneOf": [
        {"type": "object", "properties": each, "required": list(each), "additionalProperties": False}
        for each in EXPECTATIONS.values()
    ]
}
TRACEPARENT: Final = Parameter(
    "traceparent", "the trace that the turn is a part of, as W3C Trace Context has it", place="header"
)
PARAMETERS: Final = (SPACE, TRACEPARENT)

TURN: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["owner", "actions"],
    "properties": {
        "owner": {
            "type": "string",
            "description": "a durable owner, or lease:MILLISECONDS:NAME, which is begun or renewed",
        },
        "client": {"type": "string", "description": "who numbers its turns; with sequence"},
        "sequence": {
            "type": "integer",
            "minimum": 0,
            "description": "higher than in any turn of this client before: a retry changes nothing",
        },
        "by": {
            "type": "string",
            "description": "a pattern: a fact takes the place of those of the owner with the same captures",
        },
        "expect": {
            "type": "array",
            "maxItems": MOST_EXPECTED,
            "items": EXPECTATION,
            "description": "what must hold in the state before the turn, or it is answered with 412",
        },
        "actions": {"type": "array", "minItems": 1, "items": ACTION},
        "done": {
            "type": "object",
            "additionalProperties": {"type": "array", "minItems": 1, "items": {"type": "string"}},
            "description": "deliveries of jobs, by group, that are done with the turn",
        },
    },
}
MESSAGES: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["messages"],
    "properties": {"messages": {"type": "array", "minItems": 1, "items": VALUE}},
}

VERBS: Final = frozenset(["assert", "retract", "send"])
MEMBERS: Final = ("owner", "client", "sequence", "by", "expect", "actions", "done")
EXPECTED_FORMS: Final = (
    '{"absent": PATTERN}, {"exactly": PATTERN, "rows": [...]} and {"unchanged": PATTERN, "since": EPOCH}'
)
FORMS: Final = '{"assert": VALUE}, {"retract": VALUE}, {"replace": VALUE, "with": VALUE} and {"send": VALUE}'

MOST_ROWS: Final = 1 << 20
"""Rows of one expectation: more than a body has; ``limits.expected_facts`` bounds them."""

TOO_MUCH: Final = 422
"""The status of the code ``limit`` where a turn is too much as it is: to send it again is of no use."""


async def turns(daemon: DaemonState, asked: Asked) -> Response:
    """Commits actions as one turn of an owner; returns its epoch once it is on disk."""
    async with inner_session(daemon, asked.caller, asked.space) as session:
        body = await read_object(daemon, asked, MEMBERS)
        arguments = _publication(body)
        names: list[tuple[str, ...]] = []
        if "expect" in body:
            expect = read_list(body, "expect", MOST_EXPECTED, least=0)
            expectations = await in_steps(daemon, asked, read_each(expect, "expect", _expectation))
            arguments["expect"] = tuple([each.packed() for each in expectations])
            names = [capture_names(each.pattern) for each in expectations]
        listed = read_list(body, "actions", session.actions_per_turn)
        operations = await in_steps(daemon, asked, read_each(listed, "actions", _packed))
        count = sum([pairs for pairs, _ in operations])
        arguments["keys"] = (array_head(count) + b"".join([packed for _, packed in operations]),)
        if "done" in body:
            arguments["done"] = _done(body)
        if "traceparent" in asked.values:
            arguments["traceparent"] = asked.values["traceparent"][:MAX_TEXT]
        if asked.space == SYSTEM:
            raise Problem("read-only", f"space {SYSTEM!r} can only be observed")
        return await _epoch(_published(session, arguments), names)


async def messages(daemon: DaemonState, asked: Asked) -> Response:
    """Sends messages in one turn; returns its epoch once it is on disk."""
    async with inner_session(daemon, asked.caller, asked.space) as session:
        body = await read_object(daemon, asked, ["messages"])
        listed = read_list(body, "messages", session.actions_per_turn)
        values = await in_steps(daemon, asked, read_each(listed, "messages", read_fact))
        actions = tuple([(SEND, value) for value in values])
        traceparent = asked.values.get("traceparent", "")[:MAX_TEXT]
        return await _epoch(session.turn(asked.space, actions, traceparent))


async def _published(session: InnerSession, arguments: dict[str, Value]) -> Value:
    """Returns the epoch of a publication in which an owner has one claim on a fact."""
    answer = await session.request("publish", arguments)
    assert isinstance(answer, Map)  # by WIRE.md
    return answer["epoch"]


def _publication(body: dict[str, Any]) -> dict[str, Value]:
    """Returns the arguments of the request that carries out a turn, but for its actions."""
    numbered = [name for name in ("client", "sequence") if name in body]
    if len(numbered) == 1:
        raise Problem("bad-request", f"client and sequence belong together, got {numbered[0]} alone")
    arguments: dict[str, Value] = {
        "owner": read_text(body, "owner"),
        "client": read_text(body, "client") if numbered else f"~http-{uuid.uuid4().hex}",
        "sequence": read_number(body, "sequence") if numbered else 1,
        "once": True,
    }
    if "by" in body:
        arguments["by"] = read_pattern(body, "by")
    return arguments


def _done(body: dict[str, Any]) -> Value:
    """Returns the deliveries that are done with a turn, as the wire has them."""
    by_group = body["done"]
    if not isinstance(by_group, dict):
        raise Problem("bad-request", f"done must be an object of groups and deliveries, got {by_group!r:.60}")
    return tuple(
        [
            (group, tuple(chain.from_iterable(read_deliveries(by_group, group, MOST_IN_FLIGHT, path="done"))))
            for group in by_group
        ]
    )


def _expectation(item: object, path: str) -> Steps[Expectation]:
    """Reads one expectation."""
    kind = next((each for each in EXPECTATIONS if isinstance(item, dict) and each in item), None)
    if not isinstance(item, dict) or kind is None or item.keys() != EXPECTATIONS[kind].keys():
        raise Problem("bad-request", f"{path} must be one of {EXPECTED_FORMS}, got {_shown(item)}")
    pattern = read_pattern(item, kind, path)
    match kind:
        case "absent":
            return absent(pattern)
        case "unchanged":
            return unchanged(pattern, since=read_number(item, "since", path))
    names = capture_names(pattern)
    rows = []
    for at, row in enumerate(read_list(item, "rows", MOST_ROWS, least=0, path=path)):
        where = f"{path}.rows[{at}]"
        if isinstance(row, dict):
            if row.keys() != set(names):
                raise Problem("bad-request", f"{where} must have {_listed(names)}, got {_listed(row)}")
            row = [row[name] for name in names]
        if not isinstance(row, list):
            raise Problem("bad-request", f"{where} must be an object or an array of captures")
        rows.append((yield from read_value(row, where)))
    return exactly(pattern, rows)  # type: ignore[arg-type]  # arrays, as was checked


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))[:200] or "no members"


def _shown(item: object) -> str:
    return f"an object with {_listed(item)}" if isinstance(item, dict) else f"{item!r:.60}"


def _packed(item: object, path: str) -> Steps[tuple[int, bytes]]:
    """Returns how many operations of a publication an action is, and these, packed."""
    if isinstance(item, dict):
        if len(item) == 1 and not VERBS.isdisjoint(item):
            ((verb, value),) = item.items()
            read = read_value if verb == "retract" else read_fact
            return 1, pack((verb, (yield from read(value, f"{path}.{verb}"))))
        if item.keys() == {"replace", "with"}:
            gone = pack(("retract", (yield from read_value(item["replace"], f"{path}.replace"))))
            # the last operation on a fact counts, and a fact that takes its own place stays
            return 2, gone + pack(("assert", (yield from read_fact(item["with"], f"{path}.with"))))
    raise Problem("bad-request", f"{path} must be one of {FORMS}, got {_shown(item)}")


async def _epoch(committed: Awaitable[Value], names: Sequence[tuple[str, ...]] = ()) -> Response:
    """Returns the epoch of a turn as the answer; a turn beyond a limit cannot be taken as it is.

    ``names`` has the names of captures, for each expectation.
    """
    try:
        epoch = await committed
    except ExpectationFailed as failed:
        rows = b"[%b]" % rows_json(names[failed.number - 1], failed.rows)
        found = {"expectation": failed.number, "rows": orjson.Fragment(rows), "count": failed.count}
        if failed.epoch:
            found["epoch"] = failed.epoch
        raise Problem(failed.code, failed.text, more=found) from None
    except DataspaceError as error:
        raise problem_of(error, limit=TOO_MUCH) from None
    return Response(orjson.dumps({"epoch": epoch}) + b"\n", media_type="application/json")
