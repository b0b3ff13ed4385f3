"""The guard: which pages may use the daemon, by the ``Host``, ``Origin`` and ``Sec-Fetch-Site`` of a request.

A browser sends requests for any page that is open in it, to this machine too.  ``Origin`` says which page it
is, ``Sec-Fetch-Site`` where the page comes from if there is no ``Origin`` (a link, a frame, an image); a page
whose name was made to lead to this machine (DNS rebinding) is told by its name in ``Host``.  Programs send no
such header, and are not held back.

Always: a request of another origin is refused unless ``web.origins`` has it, or it opens a page that does
nothing by itself; without tokens, a request to a name that this machine may not have is refused as well.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from server.config.model import ANY, Web

_HOST: Final = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_PORTS: Final = {"http": "80", "https": "443"}


SAFE: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Headers of every response that has none of its own: nothing is shown in a frame or embedded elsewhere."""

_HARMLESS: Final = frozenset(["same-origin", "none"])
"""``Sec-Fetch-Site`` of the daemon's own pages, and of an address that a user has typed."""

API: Final = "/v1/"
"""Where the routes are that do something; every other path shows a page."""

Headers = Sequence[tuple[bytes, bytes]]


def safe(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns the headers of a response with the headers of ``SAFE`` that it lacks."""
    known = list(headers)
    names = {name.lower() for name, _ in known}
    return known + [each for each in SAFE if each[0] not in names]


def refusal(
    web: Web, headers: Headers, *, path: str, scheme: str, with_tokens: bool
) -> tuple[int, str, str] | None:
    """Returns status, code and text of why a request is not served; None if it is.

    >>> here, there = (b"host", b"127.0.0.1:7378"), (b"host", b"evil.example")
    >>> own, evil = (b"origin", b"http://127.0.0.1:7378"), (b"origin", b"https://evil.example")
    >>> for said in ([here, own], [here, evil], [there], [here, (b"sec-fetch-site", b"cross-site")]):
    ...     print((refusal(Web(), said, path="/v1/status", scheme="http", with_tokens=False) or [200])[0])
    200
    403
    421
    403
    """
    hosts, origins = _said(headers, b"host"), _said(headers, b"origin")
    if len(origins) > 1:
        return 400, "malformed", f"{len(origins)} headers Origin, one is allowed"
    host = hosts[0] if hosts else None
    names = [_name_of(each.partition("://")[2]) for each in web.origins]
    if ANY not in web.origins and host is not None and not with_tokens and not is_own(host, names):
        reason = f"this daemon has no tokens and does not answer for the name {host:.100}"
        return 421, "not-allowed", f"{reason}; add its origin to web.origins, or use its address"
    if ANY in web.origins:
        return None
    if not origins:
        return _refusal_of_site(headers, path)
    origin = origins[0]
    if origin in web.origins or (host is not None and _plain(origin) == _plain(f"{scheme}://{host}")):
        return None
    return 403, "not-allowed", f"the origin {origin:.100} is not in web.origins"


def _refusal_of_site(headers: Headers, path: str) -> tuple[int, str, str] | None:
    """Returns why a request without an origin is not served: a page of another site made it."""
    sites = _said(headers, b"sec-fetch-site")
    if _HARMLESS.issuperset(sites):
        return None
    opens = _said(headers, b"sec-fetch-mode"), _said(headers, b"sec-fetch-dest")
    if opens == (["navigate"], ["document"]) and not path.startswith(API):
        return None  # a link to a page, which does nothing by itself
    return (
        403,
        "not-allowed",
        f"a page of another site asks for this (Sec-Fetch-Site: {', '.join(sites):.100})",
    )


def _said(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip().lower() for at, value in headers if at == name]


def is_own(host: str, also: Collection[str]) -> bool:
    """True if a ``Host`` is an address, a name of this machine, or one of the names in ``also``.

    >>> is_own("127.0.0.1:7378", []), is_own("evil.example", []), is_own("Box.example:80", ["box.example"])
    (True, False, True)
    """
    name = _name_of(host)
    own = ("localhost", socket.gethostname().lower(), *also)
    return bool(name) and (name in own or _is_address(name))


def _name_of(host: str) -> str:
    """Returns the name or address of a ``Host``, without its port; empty for text that is none."""
    found = _HOST.fullmatch(host.lower())
    return found["host"] if found else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _plain(origin: str) -> str:
    """Returns an origin without the port that its scheme has anyway."""
    scheme = origin.partition("://")[0]
    return origin.removesuffix(f":{_PORTS[scheme]}") if scheme in _PORTS else origin
