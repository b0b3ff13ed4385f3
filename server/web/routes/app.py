"""The application: what answers each request that is no WebSocket, and describes all of them in OpenAPI.

Always: every error is a problem, with a code; an error of one request ends no other; a request that writes is
sent to the leader before its body is read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import orjson
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dataspace.errors import DataspaceError, UsageError
from dataspace.version import __version__
from dataspace.wire.features import MAIN
from server.sessions.state import DaemonState
from server.web.inner import inner_session
from server.web.inspector.files import files
from server.web.routes.parameters import Asked, Parameter
from server.web.routes.problems import MEDIA_TYPE, Problem, answer_of
from server.web.routes.route import Row
from server.web.routes.table import DESCRIPTION

logger = logging.getLogger("dataspace")


READ: Final = ("GET", "HEAD")

ASKED: Final = ("Authorization", "Content-Type", "If-None-Match", "Last-Event-ID")
"""Headers that pages of other origins may send."""

PREFLIGHT_SECONDS: Final = 600

Pages: TypeAlias = Callable[
    [str, Iterable[tuple[str, str]]], Awaitable[tuple[int, list[tuple[str, str]], bytes]]
]
"""Returns the status, the headers and the body of a page of an operator, from its path and the headers."""


def application(
    daemon: DaemonState, rows: Sequence[Row], pages: Pages, origins: Sequence[str] = ()
) -> ASGIApp:
    """Returns the ASGI application of a daemon; pages of these ``origins`` may read its answers (CORS)."""
    routes = [_route(row.path, row.methods, _endpoint(daemon, row)) for row in rows]
    routes.append(_route(DESCRIPTION, READ, _describe(rows)))
    routes += [_route(path, READ, _page(daemon, pages)) for path in PAGES]
    routes += [_route(path, READ, answer) for path, answer in files().items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route, Exception: _defect})
    app.state.leader_web = daemon.leader_web
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=ASKED,
            expose_headers=("ETag",),
            max_age=PREFLIGHT_SECONDS,
        )
    return app


def _route(path: str, methods: Sequence[str], endpoint: Callable[[Request], Awaitable[ASGIApp]]) -> Route:
    route = Route(path, endpoint, methods=methods)
    route.methods = {
        *methods
    }  # Starlette adds HEAD to each GET, and a stream has no end to which it could run
    return route


def _endpoint(daemon: DaemonState, row: Row) -> Callable[[Request], Awaitable[ASGIApp]]:
    async def endpoint(request: Request) -> ASGIApp:
        try:
            asked = Asked(request, row.parameters)
            space = asked.values.get("space", MAIN)
            if row.method == "POST" and daemon.follows(space):
                async with inner_session(daemon, asked.caller, space):
                    daemon.check_leads(space)
            return await row.answer(daemon, asked)
        except DataspaceError as error:
            return answer_of(error)
        except ClientDisconnect:
            return _nothing  # the listener has said what was wrong with the body, or there is no client

    return endpoint


def _page(daemon: DaemonState, pages: Pages) -> Callable[[Request], Awaitable[ASGIApp]]:
    async def endpoint(request: Request) -> ASGIApp:
        try:
            return await page(daemon, pages, request)
        except DataspaceError as error:
            return answer_of(error)

    return endpoint


async def _nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Sends no response."""
    await trio.lowlevel.checkpoint()


def _describe(rows: Sequence[Row]) -> Callable[[Request], Awaitable[ASGIApp]]:
    body = orjson.dumps(description(rows))

    async def endpoint(_request: Request) -> ASGIApp:
        return Response(body, media_type="application/json")

    return endpoint


async def _no_route(request: Request, error: Exception) -> Response:
    """Answers a path or a method that there is not."""
    assert isinstance(error, HTTPException)  # of no other it is called
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        text = f"{request.method} is not allowed at {request.url.path}, only {allowed}"
        return Problem("no-method", text, headers={"allow": allowed}).response()
    text = f"there is nothing at {request.url.path:.200}, see {DESCRIPTION}"
    return Problem("no-route", text, error.status_code).response()


async def _defect(request: Request, _error: Exception) -> Response:
    """Answers a request that has met a defect of the daemon, which is raised to the listener as well."""
    return Problem(
        "internal", f"a defect in the daemon ended {request.method} {request.url.path:.200}"
    ).response()


# -- The pages of an operator ----------------------------------------------------------------------
# Always: metrics are shown to bearers that may inspect; health, to every client.


METRICS: Final = "/metrics"
PAGES: Final = (METRICS, "/healthz", "/readyz")


async def page(daemon: DaemonState, pages: Pages, request: Request) -> Response:
    """Returns one of ``PAGES``; raises ``Problem`` where metrics cannot be written, or may not be seen."""
    path = request.url.path
    if path == METRICS:
        async with inner_session(daemon, Asked(request, ()).caller, MAIN, here=True) as session:
            await session.request("sessions", {"most": 0})  # the right that it needs is the one to inspect
    try:
        asked = f"{path}?{request.url.query}"
        status, headers, body = await pages(asked, request.headers.items())
    except UsageError as error:
        raise Problem("bad-request", str(error), 501) from None
    return Response(body, status, dict(headers))


# -- The OpenAPI description -----------------------------------------------------------------------


PROBLEMS = "4XX", "5XX"

SCHEMAS: dict[str, Any] = {
    "Value": {"description": 'a value in its JSON form: a record is {"@": LABEL, "fields": [...]} (TEXT.md)'},
    "Problem": {
        "type": "object",
        "required": ["status", "title", "code", "detail"],
        "properties": {
            "status": {"type": "integer"},
            "title": {"type": "string"},
            "code": {"type": "string", "description": "a code of WIRE.md, or one of HTTP.md"},
            "detail": {"type": "string", "description": "what was found, and what is allowed"},
            "url": {"type": "string", "description": "the address of the leader, over TCP"},
        },
    },
}


def description(rows: Sequence[Row]) -> dict[str, Any]:
    """Returns the description of routes, as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    paths[DESCRIPTION] = {
        "get": {
            "summary": "this description",
            "security": [],
            "responses": _responses({200: "application/json"}),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "dataspace", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(row: Row) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": row.summary, "parameters": _parameters(row.parameters)}
    if row.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": row.body}}}
    operation["responses"] = _responses(row.returns)
    return operation


def _parameters(parameters: Iterable[Parameter]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "in": each.place,
            "required": each.needed,
            "description": each.about,
            "schema": each.schema(),
        }
        for each in parameters
    ]


def _responses(returns: dict[int, str]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in returns.items():
        responses[str(status)] = {"description": HTTPStatus(status).phrase}
        if kind:
            responses[str(status)]["content"] = {kind: {}}
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    for some in PROBLEMS:
        responses[some] = {"description": "a problem", "content": {MEDIA_TYPE: problem}}
    return responses
