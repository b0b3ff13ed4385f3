"""Addresses: where a daemon listens and where clients find it, as text.

``tcp:HOST:PORT``, ``tls:HOST:PORT`` and ``unix:/PATH`` are what a daemon listens on, ``tcp://HOST:PORT``,
``tls://HOST:PORT`` and ``unix:///PATH`` what a client connects to; each form is also accepted where the other
belongs.  IPv6 hosts stand in brackets.  A daemon also listens on ``http:HOST:PORT`` and ``https:HOST:PORT``.
``fd:NUMBER`` is for a process that inherited a socket to its daemon.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final

from dataspace.errors import Unreachable, UsageError

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7377

MAX_PATH: Final = 100
"""Bytes of the path of a Unix socket: systems allow 104 or 108, including what they add."""

WEB_EXTRA: Final = ("h11", "orjson", "starlette")
"""What a daemon needs beside itself to listen for HTTP."""

_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for all of a machine, and the address by which it reaches itself."""

_OWN_NAMES: Final = frozenset(
    ["", "localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"]
)
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")

_HOST: Final = r":(?://)?(?P<host>\[[^\]]+\]|[^:/\[\]]+)"
_LISTEN: Final = re.compile(r"(?P<scheme>tcp|tls|http|https)" + _HOST + r":(?P<port>\d{1,5})")
_URL: Final = re.compile(r"(?P<scheme>tcp|tls)" + _HOST + r"(:(?P<port>\d{1,5}))?/?")
_INHERITED: Final = re.compile(r"fd:(\d{1,7})")
_UNIX: Final = re.compile(r"unix:(?://)?(?P<path>/[^\0]+)")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, with TLS or without, or the path of a Unix socket; port 0 lets the system choose.

    One of the ``web`` is for HTTP and WebSocket, and only to listen on.
    """

    host: str = ""
    port: int = 0
    tls: bool = False
    path: str = ""
    descriptor: int | None = None
    web: bool = False

    @property
    def listen(self) -> str:
        """The address as a daemon's configuration has it."""
        return f"unix:{self.path}" if self.path else f"{self._scheme}:{self._host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as a client's URL."""
        if self.descriptor is not None:
            return f"fd:{self.descriptor}"
        return f"unix://{self.path}" if self.path else f"{self._scheme}://{self._host}:{self.port}"

    @property
    def http(self) -> str:
        """The address of a host and a port as the address of a page."""
        return f"{'https' if self.tls else 'http'}://{self._host}:{self.port}"

    @property
    def _scheme(self) -> str:
        if self.web:
            return "https" if self.tls else "http"
        return "tls" if self.tls else "tcp"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_listen(text: str) -> Address:
    """Returns the address to listen on; ``UsageError`` shows the forms.

    >>> parse_listen("tcp:127.0.0.1:0").port
    0
    >>> parse_listen("unix:/run/dataspace.sock").url
    'unix:///run/dataspace.sock'
    """
    forms = "tcp:HOST:PORT, tls:HOST:PORT, http:HOST:PORT, https:HOST:PORT or unix:/PATH"
    return _parsed(_LISTEN, text, f"{forms}, as in tcp:127.0.0.1:7377")


def parse_url(text: str) -> Address:
    """Returns the address to connect to; ``UsageError`` shows the forms.

    >>> parse_url("tls://[::1]:7377").url
    'tls://[::1]:7377'
    """
    inherited = _INHERITED.fullmatch(text)
    if inherited is not None:
        return Address(descriptor=int(inherited[1]))
    return _parsed(_URL, text, "tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH, as in tcp://127.0.0.1:7377")


def page_of(listen: str, host: str = "") -> str:
    """Returns where the page of a daemon is that listens on an address; empty where that is not for HTTP.

    ``host`` stands for a daemon that listens on all addresses of its machine.

    >>> page_of("http:127.0.0.1:7378"), page_of("https:0.0.0.0:443", "example.org"), page_of("tcp:[::1]:7377")
    ('http://127.0.0.1:7378/', 'https://example.org:443/', '')
    """
    found = _LISTEN.fullmatch(listen)
    if found is None or not found["scheme"].startswith("http") or listen.startswith(("http://", "https://")):
        return ""
    return f"{on_this_machine(parse_listen(listen), host).http}/"


def on_this_machine(address: Address, host: str = "") -> Address:
    """Returns an address to listen on as one to connect to; ``host`` stands for all of a machine.

    >>> on_this_machine(parse_listen("tcp:0.0.0.0:7377")).url
    'tcp://127.0.0.1:7377'
    """
    return replace(address, host=host or _ANY[address.host]) if address.host in _ANY else address


def is_own_machine(host: str) -> bool:
    """True for each spelling of an address by which a machine reaches itself alone; a name is not resolved.

    >>> [is_own_machine(each) for each in ("LOCALHOST", "127.1", "0.0.0.0", "::ffff:127.0.0.1", "10.0.0.1")]
    [True, True, True, True, False]
    """
    name = host.strip("[]").rstrip(".").lower()
    if name in _OWN_NAMES or name.endswith(".localhost"):
        return True
    address = _numeric(name)
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped
        if inner is None and (0 < int(address) >> 24 < 256 or address in _TRANSLATED):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        address = inner or address
    return address is not None and (address.is_loopback or address.is_unspecified or address in _THIS_NETWORK)


def _numeric(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Returns the address that a resolver reads in a text without asking anyone: ``0x7f.1`` is one."""
    try:
        return ipaddress.IPv4Address(socket.inet_aton(name))
    except (OSError, ValueError):  # the second for a character that no address has
        pass
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None


def can_listen_for_web() -> bool:
    """Returns whether what a daemon needs to listen for HTTP is installed."""
    return all(find_spec(name) is not None for name in WEB_EXTRA)


def default_url() -> str:
    """Returns the URL that clients connect to by default: ``$DATASPACE_URL``, else the default port on this
    host."""
    return os.environ.get("DATASPACE_URL") or Address(DEFAULT_HOST, DEFAULT_PORT).url


def _parsed(form: re.Pattern[str], text: str, forms: str) -> Address:
    local = _UNIX.fullmatch(text)
    if local is not None:
        return _unix(local["path"])
    found = form.fullmatch(text)
    if found is None or int(found["port"] or DEFAULT_PORT) > 65_535:
        raise UsageError(f"{text!r} is no address, write {forms}")
    port = int(found["port"] or DEFAULT_PORT)
    scheme = found["scheme"]
    web = scheme.startswith("http")
    return Address(found["host"].strip("[]"), port, tls=scheme in ("tls", "https"), web=web)


def _unix(path: str) -> Address:
    size = len(os.fsencode(path))
    if size > MAX_PATH:
        raise UsageError(f"the path of a Unix socket has at most {MAX_PATH} bytes, {path!r} has {size}")
    return Address(path=path)


def peer_of(connected: socket.socket) -> str:
    """Returns the address of the other end of a socket: ``HOST:PORT``, ``unix``, or ``unknown`` once it is
    gone."""
    try:
        name = connected.getpeername()
    except OSError:
        return "unknown"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"


def unreachable(address: Address, error: OSError | None) -> Unreachable:
    """Returns the error for an address where nothing answers, with the system's reason if there is one."""
    reason = "no answer" if error is None else _reason(error)
    return Unreachable(
        f"no daemon at {address.url} ({reason}); start one with: dataspace serve --listen {address.listen}"
    )


def _reason(error: OSError) -> str:
    """Returns the system's reason, without the groups and causes that the attempts at each address add."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        elif isinstance(inner, socket.gaierror):  # it has numbers of its own
            return f"the name does not resolve: {inner.strerror or inner}".lower()
        elif isinstance(inner, OSError) and inner.errno:
            return os.strerror(inner.errno).lower()
        else:
            inner = inner.__cause__
    return str(error)
