"""Parameters and bodies: what a route takes.

A parameter is declared once for reading, for refusals and for the OpenAPI description.

Always: a parameter that is not declared, comes twice or has no such value is refused with the found and the
allowed values; a token is never among them, since URLs are logged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

from starlette.requests import Request

from dataspace.errors import ProtocolError, UsageError
from dataspace.facts import record_of
from dataspace.steps import Steps
from dataspace.wire.observing import Policy
from index.patterns.text import parse, parse_pattern
from index.values.jsons import to_json
from index.values.values import Value
from server.config.principals import Principal
from server.sessions.state import DaemonState
from server.web.inner import Caller
from server.web.jsons import reading, value_of
from server.web.routes.problems import Problem

Kind: TypeAlias = Literal["text", "number", "position", "flag", "pattern", "value"]
Place: TypeAlias = Literal["query", "path", "header"]

PRECONDITIONS: Final = ("If-Match", "If-Unmodified-Since")
"""Headers by which a client wants nothing done unless something holds."""

OF_CACHES: Final = ("If-None-Match", "If-Modified-Since")
"""The same, which a GET may ignore: the whole answer is right then."""

NOT_JUDGED: Final = (
    "is not judged here; a turn may expect"
    ' {"unchanged": PATTERN, "since": EPOCH}, with the epoch that facts has answered'
)

MOST: Final = (1 << 63) - 1

SCHEMAS: Final[Mapping[Kind, dict[str, object]]] = {
    "text": {"type": "string"},
    "number": {"type": "integer", "minimum": 0, "maximum": MOST},
    "position": {"type": "string", "pattern": "^[0-9]+(-[0-9a-f]+)?$"},
    "flag": {"type": "boolean"},
    "pattern": {"type": "string", "description": "a pattern as text, such as present($who)"},
    "value": {"type": "string", "description": 'a value as text, such as present("Alice")'},
}


IDENTITY: Final = 8
"""Characters of the identity of a space in an entity tag or an id."""

POSITION: Final = "a number from 0 to 2^63-1, or the id of an event, such as 12-83f3ebbe"


class Position(NamedTuple):
    """Where a stream goes on: after the epoch with a number, in the space or topic with an identity.

    A space, or a topic, that is made anew counts from 0 again.  So the id of an event has both, and a number
    alone, which has no identity, is one for which the client vouches.
    """

    number: int
    identity: str = ""

    @classmethod
    def read(cls, name: str, text: str) -> Position:
        """Returns what the text of a request means; raises ``Problem``."""
        number, dash, identity = text.partition("-")
        is_known = 8 <= len(identity) <= 64 and not identity.strip("0123456789abcdef")
        if not _is_number(number) or (dash and not is_known):
            raise _wrong(name, POSITION, text)
        return cls(int(number), identity)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text[:20]) <= MOST


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; ``words`` are the only values, where there are some."""

    name: str
    about: str
    kind: Kind = "text"
    place: Place = "query"
    needed: bool = False
    words: tuple[str, ...] = ()

    def read(self, text: str) -> Any:
        """Returns what the text of a request means; raises ``Problem`` or ``UsageError``."""
        match self.kind:
            case "number":
                if not _is_number(text):
                    raise _wrong(self.name, "a number from 0 to 2^63-1", text)
                return int(text)
            case "position":
                return Position.read(self.name, text)
            case "flag":
                if text not in ("true", "false"):
                    raise _wrong(self.name, "true or false", text)
                return text == "true"
            case "pattern":
                return parse_pattern(text)
            case "value":
                return parse(text)
            case _:
                if self.words and text not in self.words:
                    raise _wrong(self.name, f"one of {', '.join(self.words)}", text)
                return text

    def schema(self) -> dict[str, object]:
        """Returns the JSON schema of its values."""
        return {**SCHEMAS[self.kind], **({"enum": list(self.words)} if self.words else {})}


class Asked:
    """A request whose parameters were read; ``values`` has the given parameters."""

    def __init__(self, request: Request, parameters: tuple[Parameter, ...]) -> None:
        self.request = request
        self.values: dict[str, Any] = _read(request, parameters)

    @property
    def space(self) -> str:
        """The space in the path."""
        return str(self.values["space"])

    @property
    def caller(self) -> Caller:
        """The sender of the request; raises ``Problem`` for credentials that are no token."""
        name = f"http {self.request.method} {self.request.url.path:.200}"
        given = self.request.headers.getlist("authorization")
        if not given:
            return self._caller("", name)
        scheme, _, token = given[0].partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer" or not token.strip():
            raise Problem("unauthorized", f"Authorization must be 'Bearer TOKEN', got {scheme!r:.40}")
        return self._caller(token.strip(), name)

    def _caller(self, token: str, name: str) -> Caller:
        lent = self.request.scope.get("state", {}).get("lent", nullcontext)
        return Caller(_peer(self.request), token, name, lent)


def _peer(request: Request) -> str:
    """Returns the address of the client as the daemon writes it."""
    known = request.scope.get("state", {}).get("peer")
    if known is not None:
        return str(known)
    return "unix" if request.client is None else f"{request.client.host}:{request.client.port}"


def _read(request: Request, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    known = [each.name for each in parameters if each.place == "query"]
    for name in request.query_params:
        if name not in known:
            listed = f"known are {', '.join(known)}" if known else "there are none"
            raise Problem("bad-request", f"no parameter {name!r:.60}, {listed}")
    understood = [each.name for each in parameters if each.place == "header"]
    for name in PRECONDITIONS if request.method in ("GET", "HEAD") else (*PRECONDITIONS, *OF_CACHES):
        if name in request.headers and name not in understood:
            raise Problem("bad-request", f"{name} {NOT_JUDGED}")
    found: dict[str, Any] = {}
    for parameter in parameters:
        given = _given(request, parameter)
        if len(given) > 1:
            raise Problem("bad-request", f"{parameter.name} was given {len(given)} times, once is allowed")
        if given:
            found[parameter.name] = parameter.read(given[0])
        elif parameter.needed:
            raise Problem("bad-request", f"{parameter.name} is needed: {parameter.about}")
    return found


def _given(request: Request, parameter: Parameter) -> list[str]:
    match parameter.place:
        case "path":
            return [unquote(request.path_params[parameter.name])]
        case "header":
            return request.headers.getlist(parameter.name)
        case _:
            return request.query_params.getlist(parameter.name)


def _wrong(name: str, allowed: str, text: str) -> Problem:
    return Problem("bad-request", f"{name} must be {allowed}, got {text!r:.60}")


SPACE: Final = Parameter("space", "the name of the dataspace, such as main", place="path", needed=True)
PATTERN: Final = Parameter("pattern", "what to look for", kind="pattern", needed=True)
POLICY: Final = Parameter(
    "policy",
    "what becomes of changes that are not read in time",
    words=tuple(each.value for each in Policy),
)


# -- Bodies ----------------------------------------------------------------------------------------
# Always: no more than the limit is held, whatever a client sends or claims to send; a body is read
# in the steps of background work; a body must say that it is JSON, which a page of another origin
# cannot without being asked first (CORS).


T = TypeVar("T")

VALUE_DEPTH: Final = 53
"""Levels of a fact, as in a turn on the wire."""

SMALL: Final = 32
"""Elements of an array that are read in one step, if they are small."""


async def read_object(daemon: DaemonState, asked: Asked, known: Iterable[str]) -> dict[str, Any]:
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
    document = await in_steps(daemon, asked, _parsing(body, daemon.limits.frame_elements))
    if not isinstance(document, dict):
        raise Problem("bad-request", f"the body must be an object, got {_kind(document)}")
    listed = list(known)
    for name in document:
        if name not in listed:
            raise Problem("bad-request", f"no member {name!r:.60}, known are {', '.join(listed)}")
    return document


async def in_steps(daemon: DaemonState, asked: Asked, steps: Steps[T]) -> T:
    """Does the steps of reading a body, and returns their value; requests of one address share its turns."""
    return await daemon.lane.work(Principal.of_peer(asked.caller.peer)).do(steps)


def _parsing(body: bytes, elements: int) -> Steps[object]:
    try:
        return (yield from reading(body, elements))
    except ProtocolError as error:
        if error.code == "limit":
            text = f"the body has {error.text} (limits.frame_elements): send several requests"
            raise Problem("limit", text, 413) from None
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


def read_text(members: dict[str, Any], name: str, path: str = "") -> str:
    """Returns a member that is text; ``path`` is where the object stands."""
    value = members.get(name)
    if not isinstance(value, str):
        raise Problem("bad-request", f"{_at(path, name)} must be text, got {_kind(value)}")
    return value


def read_pattern(members: dict[str, Any], name: str, path: str = "") -> Value:
    """Returns a member that is a pattern as text."""
    text = read_text(members, name, path)
    try:
        return parse_pattern(text)
    except UsageError as error:
        raise Problem("bad-request", f"{_at(path, name)}: {error}") from None


def read_number(members: dict[str, Any], name: str, path: str = "") -> int:
    """Returns a member that is a number from 0."""
    value = members.get(name)
    if value.__class__ is not int or not 0 <= value < 1 << 63:
        where = _at(path, name)
        raise Problem("bad-request", f"{where} must be a number from 0 to 2^63-1, got {value!r:.60}")
    return int(value)


def read_list(members: dict[str, Any], name: str, most: int, *, least: int = 1, path: str = "") -> list[Any]:
    """Returns a member that is an array of ``least`` to ``most`` elements."""
    value, where = members.get(name), _at(path, name)
    if not isinstance(value, list):
        raise Problem("bad-request", f"{where} must be an array, got {_kind(value)}")
    if not least <= len(value) <= most:
        raise Problem("bad-request", f"{where} must have {least} to {most} elements, got {len(value)}")
    return value


def read_deliveries(
    members: dict[str, Any], name: str, most: int, *, path: str = ""
) -> list[tuple[int, int, int]]:
    """Returns a member that is an array of deliveries of jobs, ``"EPOCH.POSITION.TOKEN"``."""
    found: list[tuple[int, int, int]] = []
    for at, delivery in enumerate(read_list(members, name, most, path=path)):
        parts = delivery.split(".") if isinstance(delivery, str) else []
        if len(parts) != 3 or not all(part.isdecimal() and len(part) < 20 for part in parts):
            where = f"{_at(path, name)}[{at}]"
            raise Problem("bad-request", f"{where} must be EPOCH.POSITION.TOKEN, got {delivery!r:.60}")
        epoch, position, token = map(int, parts)
        found.append((epoch, position, token))
    return found


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def read_value(item: object, path: str) -> Steps[Value]:
    """Reads a value in its JSON form, in steps; raises ``Problem`` with where it stands."""
    try:
        return (yield from value_of(item, VALUE_DEPTH))
    except (UsageError, ProtocolError) as error:
        raise Problem("bad-request", f"{path}: {getattr(error, 'text', error)}") from None


def read_fact(item: object, path: str) -> Steps[Value]:
    """Reads a value that is stated or sent, in steps; raises ``Problem`` for text that reads as a record.

    Patterns are text here and facts are JSON, so such text would be a fact that no pattern for the record
    matches.  Clients refuse it alike.
    """
    value = yield from read_value(item, path)
    if isinstance(value, str):
        meant = record_of(value)
        if meant is not None:
            shown = json.dumps(to_json(meant), ensure_ascii=False)
            text = f"{value!r:.80} is text, though it reads as a record: for the record give {shown:.200}"
            raise Problem("bad-request", f"{path}: {text}")
    return value


def read_each(listed: list[Any], name: str, read: Callable[[Any, str], Steps[T]]) -> Steps[list[T]]:
    """Reads each element of an array with its path, in steps."""
    results = []
    for at, element in enumerate(listed):
        results.append((yield from read(element, f"{name}[{at}]")))
        if at % SMALL == 0:
            yield
    return results


def _kind(item: object) -> str:
    names = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(item), "a number")
