"""``POST …/groups/{group}/take``, ``…/done`` and ``…/again``: jobs of a group for programs without a session;
``GET …/groups/{group}`` looks at them.

A job that was taken by a request goes to another member when its time is over, unless it is settled.

Always: a job is named by its ``delivery``, ``"EPOCH.POSITION.TOKEN"``, which is valid for the caller alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import orjson
from starlette.responses import Response

from dataspace.steps import Steps, batched
from dataspace.wire.consuming import MOST_IN_FLIGHT
from index.values.jsons import captures_json, to_json
from index.values.values import Map, Value
from server.sessions.state import DaemonState
from server.web.inner import inner_session
from server.web.routes.parameters import (
    SPACE,
    Asked,
    Parameter,
    in_steps,
    read_deliveries,
    read_number,
    read_object,
    read_pattern,
    read_text,
    read_value,
)
from server.web.routes.route import IN_SPACE, Row

STEP: Final = 64
"""Jobs that are written as JSON before other work of the daemon has its turn."""

GROUP: Final = Parameter("group", "the name of the group", place="path", needed=True)
PARAMETERS: Final = (SPACE, GROUP)

DELIVERIES: Final[dict[str, object]] = {"type": "array", "minItems": 1, "items": {"type": "string"}}
OPTIONS: Final[Mapping[str, dict[str, object]]] = {
    "ack_within": {"type": "number", "description": "seconds in which a job is to be settled (default 30)"},
    "attempts": {
        "type": "integer",
        "description": "failures after which a job is dead (default 5, 0: never)",
    },
    "backoff": {"description": "seconds before a failed job comes again, or an array of them"},
    "exclusive": {"type": "boolean", "description": "one member has jobs, the next takes over"},
    "key": {"type": "string", "description": "the capture of whose values each has its jobs done in order"},
    "kinds": {"type": "string", "description": "what is divided: of +, - and ! (default +!)"},
    "most_out": {"type": "integer", "description": "jobs that are out of the whole group (0: no limit)"},
    "priority": {"type": "string", "description": "the capture whose higher integers come first"},
    "rate": {"type": "number", "description": "jobs a second of the whole group (0: no limit)"},
    "start": {"description": '"now" (default), "held", an epoch or a time'},
}
"""Options of the group, for the request that makes it."""

NAMED: Final = {"start": "begin"}
"""What the wire calls an option otherwise."""

TAKE: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "pattern": {"type": "string", "description": "makes the group if there is none"},
        "topic": {"type": "string", "description": "the durable topic that the group divides"},
        "most": {"type": "integer", "minimum": 1, "description": "jobs at once (default 1)"},
        "wait": {"type": "integer", "minimum": 0, "description": "seconds to wait for a job (default 20)"},
        **OPTIONS,
    },
}
DONE: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["deliveries"],
    "properties": {"deliveries": DELIVERIES},
}
AGAIN: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["deliveries"],
    "properties": {
        "deliveries": DELIVERIES,
        "after": {"type": "integer", "minimum": 0, "description": "seconds until they come again"},
        "blame": {"type": "boolean", "description": "false: the attempt does not count"},
        "reason": {"type": "string"},
    },
}


async def take(daemon: DaemonState, asked: Asked) -> Response:
    """Returns jobs that are the caller's until their time is over; none if none has come in time."""
    async with inner_session(daemon, asked.caller, asked.space) as session:
        body = await read_object(daemon, asked, ("pattern", "topic", "most", "wait", *OPTIONS))
        arguments: dict[str, Value] = {
            "group": asked.values["group"],
            "most": read_number(body, "most") if "most" in body else 1,
            "wait": 1000 * (read_number(body, "wait") if "wait" in body else 20),
        }
        if "pattern" in body:
            arguments["pattern"] = read_pattern(body, "pattern")
        if "topic" in body:
            arguments["topic"] = read_text(body, "topic")
        if options := await _options(daemon, asked, body):
            arguments["options"] = Map(options)
        answer = await session.request("take", arguments)
    assert isinstance(answer, Map)  # by WIRE.md
    jobs = await in_steps(daemon, asked, _listed(answer, _job))
    return _json({"ack_within": answer["ack_within"], "jobs": jobs})


def _listed(
    answer: Map, shown: Callable[[tuple[str, ...], Value], dict[str, object]]
) -> Steps[list[dict[str, object]]]:
    """Returns the jobs of an answer as JSON has them, some at a time."""
    names, jobs = answer["names"], answer["jobs"]
    assert isinstance(names, tuple) and isinstance(jobs, tuple)  # by WIRE.md
    named, listed = tuple(map(str, names)), []
    for some in batched(jobs, STEP):
        listed += [shown(named, each) for each in some]
        yield
    return listed


async def _options(daemon: DaemonState, asked: Asked, body: dict[str, object]) -> dict[str, Value]:
    """Returns the options of the group in a body, as the wire names them; ``take`` checks them."""
    return {
        NAMED.get(name, name): await in_steps(daemon, asked, read_value(body[name], name))
        for name in OPTIONS
        if name in body
    }


def _job(names: tuple[str, ...], job: Value) -> dict[str, object]:
    assert isinstance(job, tuple)  # by WIRE.md
    epoch, position, time, token, attempt, kind, row = job
    assert isinstance(row, tuple)  # as above
    more: dict[str, object] = {}
    if isinstance(kind, tuple):
        kind, topic_time, more["crashed"] = kind
        more["topic_time"] = to_json(topic_time)
    return more | {
        "delivery": f"{epoch!r}.{position!r}.{token!r}",
        "epoch": epoch,
        "position": position,
        "attempt": attempt,
        "kind": kind,
        "time": to_json(time),
        "captures": captures_json(names, row),
    }


async def done(daemon: DaemonState, asked: Asked) -> Response:
    """Reports jobs as done; returns the epoch up to which that holds, once it is on disk."""
    async with inner_session(daemon, asked.caller, asked.space) as session:
        body = await read_object(daemon, asked, ("deliveries",))
        arguments: dict[str, Value] = {"group": asked.values["group"], "done": _deliveries(body)}
        epoch = await session.request("settle", arguments)
    return _json({"epoch": epoch})


async def again(daemon: DaemonState, asked: Asked) -> Response:
    """Gives jobs back, for anybody after a while."""
    async with inner_session(daemon, asked.caller, asked.space) as session:
        body = await read_object(daemon, asked, ("deliveries", "after", "blame", "reason"))
        arguments: dict[str, Value] = {"group": asked.values["group"], "again": _deliveries(body)}
        if "after" in body:
            arguments["after"] = float(read_number(body, "after"))
        if "blame" in body:
            arguments["blame"] = body["blame"]
        if "reason" in body:
            arguments["reason"] = read_text(body, "reason")
        await session.request("settle", arguments)
    return _json({})


def _deliveries(body: dict[str, object]) -> Value:
    return tuple(read_deliveries(body, "deliveries", MOST_IN_FLIGHT))


async def peek(daemon: DaemonState, asked: Asked) -> Response:
    """Returns the status of a group and jobs that it has, none of which is taken."""
    async with inner_session(daemon, asked.caller, asked.space) as session:
        arguments: dict[str, Value] = {"group": asked.values["group"], "most": asked.values.get("most", 100)}
        answer = await session.request("peek", arguments)
    assert isinstance(answer, Map)  # by WIRE.md
    status = {str(name): to_json(value) for name, value in answer.pairs() if name != "jobs"}
    return _json(status | {"jobs": await in_steps(daemon, asked, _listed(answer, _peeked))})


def _peeked(names: tuple[str, ...], job: Value) -> dict[str, object]:
    assert isinstance(job, Map)  # by WIRE.md
    row = job["captures"]
    shown: dict[str, object] = {str(name): to_json(value) for name, value in job.pairs()}
    return shown | {"captures": captures_json(names, row) if isinstance(row, tuple) else None}


def _json(answer: object) -> Response:
    return Response(orjson.dumps(answer) + b"\n", media_type="application/json")


ROUTES: Final = (
    Row(
        "POST",
        f"{IN_SPACE}/groups/{{group}}/take",
        "jobs of a group, which are the caller's for a while",
        take,
        PARAMETERS,
        TAKE,
    ),
    Row(
        "POST",
        f"{IN_SPACE}/groups/{{group}}/done",
        "report jobs as done",
        done,
        PARAMETERS,
        DONE,
    ),
    Row(
        "POST",
        f"{IN_SPACE}/groups/{{group}}/again",
        "give jobs back",
        again,
        PARAMETERS,
        AGAIN,
    ),
    Row(
        "GET",
        f"{IN_SPACE}/groups/{{group}}",
        "a group and the jobs that it has, without taking any",
        peek,
        (*PARAMETERS, Parameter("most", "jobs that are shown, at most 10 000 (default 100)", kind="number")),
    ),
)
