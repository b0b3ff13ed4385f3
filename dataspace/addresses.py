"""Addresses: where a daemon listens and where clients find it, as text.

``tcp:HOST:PORT`` is what a daemon listens on, ``tcp://HOST:PORT`` what a client connects to; whoever copies
one to where the other belongs is understood.  IPv6 hosts stand in brackets.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from dataspace.errors import UsageError

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7377

_LISTEN: Final = re.compile(r"tcp:(?://)?(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>\d{1,5})")
_URL: Final = re.compile(r"tcp:(?://)?(?P<host>\[[^\]]+\]|[^:/\[\]]+)(:(?P<port>\d{1,5}))?/?")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 lets the system choose."""

    host: str
    port: int

    @property
    def listen(self) -> str:
        """As a daemon is told it."""
        return f"tcp:{self._host}:{self.port}"

    @property
    def url(self) -> str:
        """As a client is told it."""
        return f"tcp://{self._host}:{self.port}"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_listen(text: str) -> Address:
    """What to listen on; ``UsageError`` shows the form.

    >>> parse_listen("tcp:127.0.0.1:0")
    Address(host='127.0.0.1', port=0)
    """
    return _parsed(_LISTEN.fullmatch(text), text, "tcp:HOST:PORT, as in tcp:127.0.0.1:7377")


def parse_url(text: str) -> Address:
    """Where to connect to; ``UsageError`` shows the form.

    >>> parse_url("tcp://[::1]:7377").url
    'tcp://[::1]:7377'
    """
    return _parsed(_URL.fullmatch(text), text, "tcp://HOST:PORT, as in tcp://127.0.0.1:7377")


def default_url() -> str:
    """Where clients look for a daemon unless told: ``$DATASPACE_URL``, else the default port here."""
    return os.environ.get("DATASPACE_URL") or Address(DEFAULT_HOST, DEFAULT_PORT).url


def _parsed(found: re.Match[str] | None, text: str, form: str) -> Address:
    if found is None or int(found["port"] or DEFAULT_PORT) > 65_535:
        raise UsageError(f"{text!r} is no address, write {form}")
    return Address(found["host"].strip("[]"), int(found["port"] or DEFAULT_PORT))
