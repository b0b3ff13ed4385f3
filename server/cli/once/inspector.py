"""The command ``dataspace inspect``: finds the daemon's page, prints its address and opens a browser.

Always: a token is never a part of the address; the page asks for one.
"""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from typing import Final
from urllib.parse import urlencode

from dataspace.errors import DataspaceError
from dataspace.transport.addresses import Address, default_url, page_of, parse_listen
from dataspace.transport.candidates import parse_urls
from index.values.values import Map, Value
from server.cli.connecting import connect_short

SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""If no variable here is set, a browser would open in the terminal, if at all."""

LOCAL: Final = ("127.0.0.1", "localhost", "::1")


class NoPage(DataspaceError):
    """The daemon has no page, or does not say where."""


def inspect(args: argparse.Namespace) -> int:
    """Prints where the inspector is, and opens it in a browser unless that is not wanted."""
    page = _page(args)
    if args.space != "main":
        page += f"#/overview?{urlencode({'space': args.space})}"
    print(page, flush=True)
    if not args.no_open and not _open(page):
        print("dataspace: no browser was found here; open the address in one", file=sys.stderr)
    return 0


def _page(args: argparse.Namespace) -> str:
    """Returns the address of the page; raises ``NoPage`` where there is none."""
    url = args.url or default_url()
    if url.startswith(("http:", "https:")):
        return f"{parse_listen(url.rstrip('/')).http}/"
    with connect_short(args, here=True) as space:
        answer = space.request("status", {})
    assert isinstance(answer, Map)  # by WIRE.md
    there = parse_urls(url)[0]
    pages = _pages(dict(answer.pairs()), there)
    page = pages[0]
    host = page.partition("://")[2].rpartition(":")[0].strip("[]")
    if host in LOCAL and there.host and there.host not in LOCAL:
        raise NoPage(
            f"the page is at {page} of the daemon's machine alone; reach it by ssh -L, or have the daemon "
            "listen on an address of its network"
        )
    return page


def _pages(status: dict[Value, Value], there: Address) -> list[str]:
    """Returns the addresses of the pages of a daemon that was reached at an address."""
    addresses = status.get("addresses")
    if not isinstance(addresses, tuple):
        raise NoPage(
            "the daemon does not tell its addresses to this token, which may not inspect; "
            "give the page's address: dataspace inspect --url http://HOST:PORT"
        )
    pages = list(filter(None, [page_of(str(each), there.host) for each in addresses]))
    if not pages:
        raise NoPage(
            f"the daemon does not listen for HTTP, only on {', '.join(map(str, addresses))}; start it with: "
            "dataspace serve --listen tcp:127.0.0.1:7377 --listen http:127.0.0.1:7378 "
            "(pip install 'dataspace-server[web]')"
        )
    return pages


def _open(page: str) -> bool:
    """Opens a page in a browser; returns False if there is none with a screen."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in SCREENS):
        return False
    return webbrowser.open(page)
