"""The OpenAPI description of the routes, made from their table."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from dataspace.version import __version__
from server.web.routes.parameters import Parameter
from server.web.routes.problems import MEDIA_TYPE
from server.web.routes.table import DESCRIPTION, ROUTES, Row

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
        },
    },
}


def description() -> dict[str, Any]:
    """Returns the description, as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for row in ROUTES:
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
    said: dict[str, Any] = {"summary": row.summary, "parameters": _parameters(row.parameters)}
    if row.body is not None:
        said["requestBody"] = {"required": True, "content": {"application/json": {"schema": row.body}}}
    said["responses"] = _responses(row.returns)
    return said


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
    said: dict[str, Any] = {}
    for status, kind in returns.items():
        said[str(status)] = {"description": HTTPStatus(status).phrase}
        if kind:
            said[str(status)]["content"] = {kind: {}}
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    for some in PROBLEMS:
        said[some] = {"description": "a problem", "content": {MEDIA_TYPE: problem}}
    return said
