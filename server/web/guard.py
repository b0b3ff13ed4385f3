"""The guard: which pages may use the daemon, told by the ``Host`` and the ``Origin`` that browsers send.

A browser sends requests for any page that is open in it, to this machine too.  ``Origin`` says which page it
is; a page whose name was made to lead to this machine (DNS rebinding) is told by its name in ``Host``.
Programs send no ``Origin``, and are not held back.

Always: a request of another origin is refused unless ``web.origins`` has it; without tokens, a request to a
name that this machine may not have is refused as well.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection
from typing import Final

from server.config.web import ANY, Web

_HOST: Final = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_PORTS: Final = {"http": "80", "https": "443"}


def refusal(
    web: Web, host: str | None, origin: str | None, *, scheme: str, with_tokens: bool
) -> tuple[int, str, str] | None:
    """Returns status, code and text of why a request is not served; None if it is.

    >>> refusal(Web(), "127.0.0.1:7378", "http://127.0.0.1:7378", scheme="http", with_tokens=False)
    >>> refusal(Web(), "127.0.0.1:7378", "https://evil.example", scheme="http", with_tokens=True)[0]
    403
    >>> refusal(Web(), "evil.example:7378", None, scheme="http", with_tokens=False)[0]
    421
    """
    host = None if host is None else host.lower()
    names = [_name_of(each.partition("://")[2]) for each in web.origins]
    if ANY not in web.origins and host is not None and not with_tokens and not is_own(host, names):
        said = f"this daemon has no tokens and does not answer for the name {host:.100}"
        return 421, "not-allowed", f"{said}; add its origin to web.origins, or use its address"
    if origin is None or ANY in web.origins:
        return None
    origin = origin.lower()
    if origin in web.origins or (host is not None and _plain(origin) == _plain(f"{scheme}://{host}")):
        return None
    return 403, "not-allowed", f"the origin {origin:.100} is not in web.origins"


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
