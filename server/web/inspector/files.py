"""What serves the inspector's page: its files, their entity tags, and what a browser may load beside them.

The page has no rights of its own: it is files alone, needs no token, and shows what its reader may see
through the same requests and streams as any client.

Always: only files that are in the package are served, each under a name of the list that was made when the
daemon began to listen; no file asks anything of another host.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

HOME: Final = "/"
CLIENT: Final = "/static/"
INSPECTOR: Final = "/inspect/"

_ICON: Final = "icon.svg"

_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_POLICY: Final = (
    "default-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # kept, but asked for anew: a newer daemon has other files
}

Answer = Callable[[Request], Awaitable[Response]]


def files() -> dict[str, Answer]:
    """Returns what answers a GET of each path of the page.

    >>> sorted(path for path in files() if "/" not in path[1:])
    ['/', '/favicon.ico']
    """
    root = Path(__file__).parent
    found = {
        f"{INSPECTOR}{each.relative_to(root).as_posix()}": each
        for each in sorted(root.rglob("*"))
        if each.suffix in _KINDS
    }
    found |= {f"{CLIENT}{each.name}": each for each in sorted((root.parent / "static").glob("*.js"))}
    found[HOME] = root / "index.html"
    found["/favicon.ico"] = root / _ICON
    return {path: _answer(file.read_bytes(), _KINDS[file.suffix]) for path, file in found.items()}


def _answer(body: bytes, kind: str) -> Answer:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = _HEADERS | {"etag": tag}

    async def answer(request: Request) -> Response:
        if _is_known(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return answer


def _is_known(tags: str, tag: str) -> bool:
    """Returns whether a browser has this version; proxies may have made its tag a weak one.

    >>> _is_known('"a", W/"b"', '"b"'), _is_known("*", '"b"'), _is_known("", '"b"')
    (True, True, False)
    """
    return tags.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in tags.split(",")]
