"""Bodies of requests: JSON, bounded before it is read.

Always: no more than the limit is held, whatever a client sends or claims to send; a body is read in the steps
of background work; a body must say that it is JSON, which a page of another origin cannot without being asked
first (CORS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from starlette.requests import Request

from dataspace.errors import ProtocolError, UsageError
from dataspace.steps import Steps
from index.patterns.text import parse_pattern
from index.values.values import Value
from server.config.principals import Principal
from server.web.inner.sessions import ServingDaemon
from server.web.jsons import reading, value_of
from server.web.routes.parameters import Asked
from server.web.routes.problems import Problem

T = TypeVar("T")

VALUE_DEPTH: Final = 53
"""Levels of a fact, as in a turn on the wire."""

SMALL: Final = 32
"""Elements of an array that are read in one step, if they are small."""


async def read_object(daemon: ServingDaemon, asked: Asked, known: Iterable[str]) -> dict[str, Any]:
    """Returns the JSON object in a body, which has no other keys than those ``known``; raises ``Problem``."""
    request = asked.request
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        text = f"the body must not be encoded, got Content-Encoding: {coding:.60}"
        raise Problem("media-type", text, headers={"accept-encoding": "identity"})
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem("media-type", f"the body must be application/json, got {kind!r:.60}")
    body = await _bounded(request, daemon.limits.frame_bytes)
    said = await in_steps(daemon, asked, _parsing(body, daemon.limits.frame_elements))
    if not isinstance(said, dict):
        raise Problem("bad-request", f"the body must be an object, got {_kind(said)}")
    listed = list(known)
    for name in said:
        if name not in listed:
            raise Problem("bad-request", f"no member {name!r:.60}, known are {', '.join(listed)}")
    return said


async def in_steps(daemon: ServingDaemon, asked: Asked, steps: Steps[T]) -> T:
    """Does the steps of reading a body, and returns their value; requests of one address share its turns."""
    return await daemon.lane.work(Principal.of_peer(asked.caller.peer)).do(steps)


def _parsing(body: bytes, elements: int) -> Steps[object]:
    try:
        return (yield from reading(body, elements))
    except ProtocolError as error:
        if error.code == "limit":
            said = f"the body has {error.text} (limits.frame_elements): send several requests"
            raise Problem("limit", said, 413) from None
        raise Problem("malformed", f"the body is {error.text}") from None
    except UnicodeDecodeError as error:
        raise Problem("malformed", f"the body must be UTF-8: {error.reason}") from None


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


def read_text(said: dict[str, Any], name: str, path: str = "") -> str:
    """Returns a member that is text; ``path`` is where the object stands."""
    value = said.get(name)
    if not isinstance(value, str):
        raise Problem("bad-request", f"{_at(path, name)} must be text, got {_kind(value)}")
    return value


def read_pattern(said: dict[str, Any], name: str, path: str = "") -> Value:
    """Returns a member that is a pattern as text."""
    text = read_text(said, name, path)
    try:
        return parse_pattern(text)
    except UsageError as error:
        raise Problem("bad-request", f"{_at(path, name)}: {error}") from None


def read_number(said: dict[str, Any], name: str, path: str = "") -> int:
    """Returns a member that is a number from 0."""
    value = said.get(name)
    if value.__class__ is not int or not 0 <= value < 1 << 63:
        where = _at(path, name)
        raise Problem("bad-request", f"{where} must be a number from 0 to 2^63-1, got {value!r:.60}")
    return int(value)


def read_list(said: dict[str, Any], name: str, most: int, *, least: int = 1, path: str = "") -> list[Any]:
    """Returns a member that is an array of ``least`` to ``most`` elements."""
    value, where = said.get(name), _at(path, name)
    if not isinstance(value, list):
        raise Problem("bad-request", f"{where} must be an array, got {_kind(value)}")
    if not least <= len(value) <= most:
        raise Problem("bad-request", f"{where} must have {least} to {most} elements, got {len(value)}")
    return value


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def read_value(said: object, path: str) -> Steps[Value]:
    """Reads a value in its JSON form, in steps; raises ``Problem`` with where it stands."""
    try:
        return (yield from value_of(said, VALUE_DEPTH))
    except (UsageError, ProtocolError) as error:
        raise Problem("bad-request", f"{path}: {getattr(error, 'text', error)}") from None


def read_each(listed: list[Any], name: str, read: Callable[[Any, str], Steps[T]]) -> Steps[list[T]]:
    """Reads each element of an array with its path, in steps."""
    made = []
    for at, each in enumerate(listed):
        made.append((yield from read(each, f"{name}[{at}]")))
        if at % SMALL == 0:
            yield
    return made


def _kind(said: object) -> str:
    names = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(said), "a number")
