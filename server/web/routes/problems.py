"""Problems: errors as ``application/problem+json`` (RFC 9457), with the codes of the wire.

Always: each code of WIRE.md has one HTTP status; ``detail`` is the text of the wire, with the found and the
allowed values; 307 has the address of the same request at the leader.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import orjson
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dataspace.errors import Broken, DataspaceError, DeliveryLost, ProtocolError, Refused, UsageError
from dataspace.wire.features import MAIN
from server.web.inner import NotAdmitted

MEDIA_TYPE: Final = "application/problem+json"

STATUS: Final = {
    "bad-request": 400,
    "malformed": 400,
    "unauthorized": 401,
    "not-allowed": 403,
    "read-only": 403,
    "no-session": 404,
    "no-daemon": 404,
    "no-cluster": 409,
    "last-daemon": 409,
    "no-space": 404,
    "no-topic": 404,
    "no-rule": 404,
    "no-group": 404,
    "no-producer": 404,
    "no-archive": 404,
    "epoch-ahead": 404,
    "elsewhere": 307,
    "topics-elsewhere": 421,
    "timeout": 408,
    "stalled": 408,
    "closed": 409,
    "group-differs": 409,
    "level": 409,
    "group-failed": 503,
    "not-yours": 409,
    "out-of-order": 409,
    "handle-in-use": 409,
    "no-lease": 409,
    "not-applied": 409,
    "not-durable": 409,
    "not-owner": 409,
    "not-staged": 409,
    "old-sequence": 409,
    "superseded": 409,
    "suspended": 409,
    "topic-differs": 409,
    "unknown-handle": 409,
    "writer-taken": 409,
    "epoch-gone": 410,
    "epoch-lost": 410,
    "limit": 429,
    "overrun": 429,
    "slow-observer": 429,
    "slow-subscriber": 429,
    "internal": 500,
    "unexpected": 500,
    "unknown-packet": 500,
    "unknown-verb": 500,
    "version": 500,
    "disk-failed": 500,
    "erasure-failed": 500,
    "log-damaged": 500,
    "expectation": 412,
    "archive-away": 503,
    "behind": 503,
    "ended": 503,
    "moved": 503,
    "no-leader": 503,
    "store-away": 503,
    "closing": 503,
    "disk-full": 507,
}
"""The status of each code of the wire."""

ALSO: Final = {
    "no-route": 404,
    "no-method": 405,
    "media-type": 415,
    "stopping": 503,
}
"""Codes that only HTTP has."""


class Problem(DataspaceError):
    """An error that is answered with a problem of this code; ``status`` where it is not the code's own."""

    def __init__(
        self,
        code: str,
        text: str,
        status: int = 0,
        headers: dict[str, str] | None = None,
        more: dict[str, object] | None = None,
    ) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.status = status or STATUS.get(code) or ALSO.get(code, 400)
        self.more = more or {}
        """Further members of its JSON."""
        self.headers = {**_headers(code, self.status), **(headers or {})}

    def body(self) -> bytes:
        """Returns the JSON of the problem."""
        members = {
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.text,
            **self.more,
        }
        return orjson.dumps(members)

    def response(self) -> Response:
        """Returns the problem as the answer to a request."""
        return Response(self.body(), self.status, self.headers, MEDIA_TYPE)


ELSEWHERE: Final = "elsewhere"
BEHIND: Final = "behind"
MISDIRECTED: Final = 421
"""The status of a request that only the leader answers, if that has no address for HTTP."""


def answer_of(error: DataspaceError) -> ASGIApp:
    """Returns the answer to a request that an error has ended."""
    problem = problem_of(error)
    if problem.code not in (ELSEWHERE, BEHIND):
        return problem.response()

    async def elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
        await _elsewhere(problem, scope).response()(scope, receive, send)

    return elsewhere


def _elsewhere(problem: Problem, scope: Scope) -> Problem:
    """Returns the problem with the address of the request at the leader."""
    query = scope["query_string"].decode("ascii")
    web: str = scope["app"].state.leader_web(QueryParams(query).get("space", MAIN))
    if not web and problem.code == BEHIND:
        return problem
    if not web:
        text = f"{problem.text}, which has no address for HTTP"
        return Problem(ELSEWHERE, text, MISDIRECTED, more=problem.more)
    path = scope["raw_path"].decode("ascii")
    target = f"{web.rstrip('/')}{path}{'?' if query else ''}{query}"
    return Problem(problem.code, problem.text, 307, headers={"location": target}, more=problem.more)


def problem_of(error: DataspaceError, *, limit: int = 0) -> Problem:
    """Returns the problem for an error; ``limit`` is the status of the code ``limit`` in this place."""
    match error:
        case Problem():
            return error
        case NotAdmitted(code="limit"):
            return Problem("limit", error.text, 503)
        case Refused(code="unauthorized") | ProtocolError(code="unauthorized"):
            return Problem(error.code, f"{error.text}; HTTP has it in the header Authorization: Bearer TOKEN")
        case DeliveryLost():
            lost = [f"{epoch}.{position}" for epoch, position in error.lost]
            return Problem(error.code, error.text, more={"lost": lost})
        case Refused() | ProtocolError():
            more: dict[str, object] = {"url": error.url} if error.url else {}
            return Problem(error.code, error.text, limit if error.code == "limit" else 0, more=more)
        case UsageError():
            return Problem("bad-request", str(error))
        case Broken():
            return Problem("stopping", str(error))
        case _:
            return Problem("internal", str(error))


def _headers(code: str, status: int) -> dict[str, str]:
    headers = {"cache-control": "no-store"}
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="dataspace"'
    if (
        code in ("limit", "ended", "closing", "stopping", "disk-full", "behind", "moved", "no-leader")
        and status != 413
    ):
        headers["retry-after"] = "1"
    return headers
