"""HTTP, as much as the pages of an operator need: one GET with its headers, and one answer.

It is small enough to be read whole, so that the admin address needs no package for HTTP: no bodies, no
pipelining, no connection that stays open.

Always: a request is understood whole or refused with a status that says why; nothing that a peer sends comes
back in a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

MOST_BYTES: Final = 8192
"""Bytes of the first line and the headers."""

MOST_HEADERS: Final = 64

_FIRST: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP/1\.[01]")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")


class BadRequest(Exception):
    """A request that is not answered; ``status`` says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request: the path as it was sent, and the headers in their order."""

    path: str
    headers: tuple[tuple[str, str], ...]


def read_head(data: bytes) -> Head | None:
    """Returns the head of a request; None until more has come.  Raises ``BadRequest``.

    >>> read_head(b"GET /healthz HTTP/1.1\\r\\nHost: here\\r\\n\\r\\n")
    Head(path='/healthz', headers=(('Host', 'here'),))
    """
    end = data.find(b"\r\n\r\n", 0, MOST_BYTES)
    if end < 0:
        if len(data) >= MOST_BYTES:
            raise BadRequest(431, f"the head of a request is {MOST_BYTES} bytes at most")
        return None
    first, *lines = data[:end].decode("latin-1").split("\r\n")
    found = _FIRST.fullmatch(first)
    if found is None:
        raise BadRequest(400, "the first line must be such as GET /metrics HTTP/1.1")
    method, target = found.groups()
    if method != "GET":
        raise BadRequest(405, "only GET is answered here")
    if len(lines) > MOST_HEADERS:
        raise BadRequest(431, f"a request has {MOST_HEADERS} headers at most")
    headers = [_HEADER.fullmatch(line) for line in lines]
    if None in headers:
        raise BadRequest(400, "a header must be such as Accept: text/plain")
    return Head(target, tuple([(each[1], each[2]) for each in headers if each is not None]))


def response(status: int, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """Returns an answer after which the connection is closed."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "X-Content-Type-Options: nosniff"]
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
