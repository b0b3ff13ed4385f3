"""Bodies of requests: JSON, bounded before it is read.

Always: no more than the limit is held, whatever a client sends or claims to send; a body must say that it is
JSON, which a page of another origin cannot without being asked first (CORS).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson
from starlette.requests import Request

from dataspace.errors import UsageError
from index.values.jsons import from_json
from index.values.values import Value
from server.config.model import Limits
from server.web.routes.problems import Problem

VALUE_DEPTH: Final = 53
"""Levels of a fact, as in a turn on the wire."""


async def read_object(request: Request, limits: Limits, known: Iterable[str]) -> dict[str, Any]:
    """Returns the JSON object in a body, which has no other keys than those ``known``; raises ``Problem``."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem("media-type", f"the body must be application/json, got {kind!r:.60}")
    body = await _bounded(request, limits.frame_bytes)
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Problem("malformed", f"the body is no JSON: {error}") from None
    if not isinstance(said, dict):
        raise Problem("bad-request", f"the body must be an object, got {_kind(said)}")
    listed = list(known)
    for name in said:
        if name not in listed:
            raise Problem("bad-request", f"no member {name!r:.60}, known are {', '.join(listed)}")
    return said


async def _bounded(request: Request, most: int) -> bytes:
    stated = request.headers.get("content-length", "0")
    if stated.isascii() and stated.isdigit() and int(stated[:20]) > most:
        raise _too_large(f"a body of {stated[:20]} bytes", most)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise _too_large(f"a body of more than {most} bytes", most)
    return bytes(body)


def _too_large(found: str, most: int) -> Problem:
    return Problem("limit", f"{found}, the limit is limits.frame_bytes={most}: send several requests", 413)


def read_text(said: dict[str, Any], name: str, default: str | None = None) -> str:
    """Returns a member that is text."""
    value = said.get(name, default)
    if not isinstance(value, str):
        raise Problem("bad-request", f"{name} must be text, got {_kind(value)}")
    return value


def read_number(said: dict[str, Any], name: str) -> int:
    """Returns a member that is a number from 0."""
    value = said.get(name)
    if value.__class__ is not int or not 0 <= value < 1 << 63:
        raise Problem("bad-request", f"{name} must be a number from 0 to 2^63-1, got {value!r:.60}")
    return int(value)


def read_list(said: dict[str, Any], name: str, most: int) -> list[Any]:
    """Returns a member that is an array of 1 to ``most`` elements."""
    value = said.get(name)
    if not isinstance(value, list):
        raise Problem("bad-request", f"{name} must be an array, got {_kind(value)}")
    if not 1 <= len(value) <= most:
        raise Problem("bad-request", f"{name} must have 1 to {most} elements, got {len(value)}")
    return value


def read_value(said: object, path: str, limits: Limits) -> Value:
    """Returns a value in its JSON form; raises ``Problem`` with where it stands."""
    try:
        return from_json(said, depth=VALUE_DEPTH, elements=limits.frame_elements)
    except UsageError as error:
        raise Problem("bad-request", f"{path}: {error}") from None


def _kind(said: object) -> str:
    names = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(said), "a number")
