"""Parameters: what a route takes, declared once for reading, for refusals and for the OpenAPI description.

Always: a parameter that is not declared, comes twice or has no such value is refused with the found and the
allowed values; a token is never among them, since URLs are logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

from starlette.requests import Request

from dataspace.wire.observing import Policy
from index.patterns.text import parse, parse_pattern
from server.web.inner.sessions import Caller
from server.web.routes.problems import Problem

Kind: TypeAlias = Literal["text", "number", "flag", "pattern", "value"]
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
    "flag": {"type": "boolean"},
    "pattern": {"type": "string", "description": "a pattern as text, such as present($who)"},
    "value": {"type": "string", "description": 'a value as text, such as present("Alice")'},
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; ``words`` are the only values, where there are some."""

    name: str
    about: str
    kind: Kind = "text"
    place: Place = "query"
    needed: bool = False
    words: tuple[str, ...] = ()

    def read(self, said: str) -> Any:
        """Returns what the text of a request means; raises ``Problem`` or ``UsageError``."""
        match self.kind:
            case "number":
                if not (said.isascii() and said.isdigit() and int(said[:20]) <= MOST):
                    raise _wrong(self.name, "a number from 0 to 2^63-1", said)
                return int(said)
            case "flag":
                if said not in ("true", "false"):
                    raise _wrong(self.name, "true or false", said)
                return said == "true"
            case "pattern":
                return parse_pattern(said)
            case "value":
                return parse(said)
            case _:
                if self.words and said not in self.words:
                    raise _wrong(self.name, f"one of {', '.join(self.words)}", said)
                return said

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
    for each in parameters:
        said = _given(request, each)
        if len(said) > 1:
            raise Problem("bad-request", f"{each.name} was given {len(said)} times, once is allowed")
        if said:
            found[each.name] = each.read(said[0])
        elif each.needed:
            raise Problem("bad-request", f"{each.name} is needed: {each.about}")
    return found


def _given(request: Request, parameter: Parameter) -> list[str]:
    match parameter.place:
        case "path":
            return [unquote(request.path_params[parameter.name])]
        case "header":
            return request.headers.getlist(parameter.name)
        case _:
            return request.query_params.getlist(parameter.name)


def _wrong(name: str, allowed: str, said: str) -> Problem:
    return Problem("bad-request", f"{name} must be {allowed}, got {said!r:.60}")


SPACE: Final = Parameter("space", "the name of the dataspace, such as main", place="path", needed=True)
PATTERN: Final = Parameter("pattern", "what to look for", kind="pattern", needed=True)
POLICY: Final = Parameter(
    "policy",
    "what becomes of changes that are not read in time",
    words=tuple(each.value for each in Policy),
)
