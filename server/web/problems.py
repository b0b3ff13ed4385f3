"""Problems: errors over HTTP as JSON (RFC 9457), with the codes of WIRE.md."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final, TypeAlias

from server.web.guard import safe

Headers: TypeAlias = list[tuple[bytes, bytes]]

MEDIA_TYPE: Final = b"application/problem+json"


def problem(status: int, code: str, text: str) -> tuple[Headers, bytes]:
    """Returns the headers and the body of an error.

    >>> problem(404, "no-space", "there is no space 'x'")[1]
    b'{"status": 404, "title": "Not Found", "code": "no-space", "detail": "there is no space \\'x\\'"}'
    """
    said = {"status": status, "title": HTTPStatus(status).phrase, "code": code, "detail": text}
    body = json.dumps(said).encode()
    return [
        (b"content-type", MEDIA_TYPE),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ], body


def turned_away(text: str) -> bytes:
    """Returns a whole response for a connection for which there is no room, before it has sent a request."""
    headers, body = problem(503, "limit", text)
    more = [(b"connection", b"close"), (b"retry-after", b"1")]
    lines = [b"%s: %s\r\n" % each for each in safe([*headers, *more])]
    return b"HTTP/1.1 503 Service Unavailable\r\n" + b"".join(lines) + b"\r\n" + body
