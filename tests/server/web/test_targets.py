"""A request may name this daemon in its target, as RFC 9112 has it, and no other server."""

from __future__ import annotations

import h11
import pytest

from server.web.connection import in_origin_form
from tests.server.web_client import Doors, Plain


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        (b"/v1/status?space=main", b"/v1/status?space=main", b"here"),
        (b"http://there:80/v1/status?a=b", b"/v1/status?a=b", b"there:80"),
        (b"HTTPS://there", b"/", b"there"),
        (b"http://there?a=b", b"/?a=b", b"there"),
        (b"*", b"*", b"here"),
        (b"/http://there/", b"/http://there/", b"here"),
        (b"http:///v1/status", b"http:///v1/status", b"here"),
        (b"http://user@there/", b"http://user@there/", b"here"),
    ],
)
def test_the_authority_of_a_target_stands_for_the_host(target: bytes, path: bytes, host: bytes) -> None:
    request = h11.Request(method="GET", target=target, headers=[(b"Host", b"here"), (b"A", b"b")])
    found = in_origin_form(request)
    assert (found.target, dict(found.headers)) == (path, {b"host": host, b"a": b"b"})


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://127.0.0.1:{port}/v1/status", 200),
        ("http://localhost:{port}/v1/status", 200),
        ("http://evil.example/v1/status", 421),
        ("/v1/status", 200),
    ],
)
async def test_a_daemon_answers_for_its_own_names_alone(doors: Doors, target: str, status: int) -> None:
    async with Plain(doors.port) as client:
        said = f"GET {target.format(port=doors.port)} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        await client.shout(said.encode())
        assert (await client.response())[0] == status
