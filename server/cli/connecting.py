"""The connection of a command, as its options and the environment describe it.

Always: the command line takes precedence over the environment; a token is never printed.
"""

from __future__ import annotations

import argparse
import socket
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from dataspace.errors import UsageError
from dataspace.transport.addresses import Address, default_url
from dataspace.transport.candidates import parse_urls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from dataspace.client.space import RemoteSpace
    from dataspace.kernel.actions import Action
    from dataspace.kernel.changes import EpochChanges
    from dataspace.kernel.expectations import Expectation
    from dataspace.transport.credentials import Tls
    from index.values.values import Value


class CommandSpace(Protocol):
    """What a command that ends at once does in a space, by a ``ShortClient`` or on the shell's connection."""

    def state(self, pattern: Value, as_of: int | None = None) -> EpochChanges:
        """Returns an epoch, the current one or ``as_of``, with all matches under ``added``."""

    def request(self, verb: str, arguments: dict[str, Value]) -> Value:
        """Returns the answer to a request of WIRE.md."""

    def commit(
        self, actions: Sequence[Action], owner: str = "", *, expected: Sequence[Expectation] = ()
    ) -> int:
        """Commits one turn, of the session or of a durable owner; returns its epoch."""

    def cut(self, actions: Sequence[Action], owner: str = "") -> Sequence[Sequence[Action]]:
        """Returns the actions in as many turns as the daemon needs to take them."""


def is_lent(args: argparse.Namespace) -> bool:
    """True if a command runs in a shell, whose connection it uses."""
    return getattr(args, "lent", None) is not None


def held_here(args: argparse.Namespace) -> dict[int, Value]:
    """Returns the facts that the shell asserts in which a command runs, by handle."""
    return args.lent.held()  # type: ignore[no-any-return]  # a ``LentConnection``


def refuse_in_shell(args: argparse.Namespace, what: str) -> None:
    """Raises ``UsageError`` in a shell, for a command that would read the standard input."""
    if is_lent(args):
        raise UsageError(f"{what} reads the standard input, which the shell does")


def connect(
    args: argparse.Namespace, *, owner: str = "", grace: float = 0.0, lease: float = 0.0, space: str = ""
) -> AbstractAsyncContextManager[RemoteSpace]:
    """Returns the connection that the options of a command describe.

    In a shell it is the shell's connection, unless the command needs one of another owner or space.
    """
    if is_lent(args) and not (owner or grace or lease) and space in ("", args.space):
        from contextlib import nullcontext

        return nullcontext(args.lent)
    from dataspace.client.connect import connect  # the daemon need not load the client

    return connect(
        args.url,
        name=f"dataspace {args.command}",
        owner=owner,
        grace=grace,
        lease=lease,
        space=space or args.space,
        token=_token(args),
        tls=_tls(args),
    )


def connect_short(
    args: argparse.Namespace, *, reads: bool = False, here: bool = False
) -> AbstractContextManager[CommandSpace]:
    """Returns the connection of a command that asks for one thing; it loads no event loop.

    With ``reads`` the command only reads, so that a daemon that follows another one serves it as well.  With
    ``here`` it is about the named daemon itself, whatever that leads, and no daemon sends it on.  Where
    several daemons are named, both go to the leader, and the client refuses to act on a daemon.
    In a shell it is the shell's connection, which asks the daemon that the shell has named.
    """
    if is_lent(args):
        return nullcontext(args.lent)
    from dataspace.client.bulk.short import ShortClient

    is_one = len(parse_urls(args.url)) == 1
    return ShortClient(
        args.url or default_url(),
        read="any" if reads and is_one else "leader",
        here=here and is_one,
        name=f"dataspace {args.command}",
        space=args.space,
        token=_token(args),
        tls=_tls(args),
    )


# -- waiting -------------------------------------------------------------------------------------------

PAUSE: Final = 0.1
"""Seconds between two attempts."""


def wait_for_daemon(args: argparse.Namespace) -> None:
    """Returns when a daemon listens at one of the addresses, or after the time of ``--wait``.

    It tries with a socket of its own, so that the command itself connects, and reports that there is no
    daemon, as without ``--wait``.  A daemon listens only when everything durable is restored.
    """
    from server.config.units import duration  # few commands wait

    addresses, until = parse_urls(args.url), time.monotonic() + duration(args.wait)
    while time.monotonic() < until:
        seconds = max(PAUSE, (until - time.monotonic()) / len(addresses))
        if any(_listens(address, seconds) for address in addresses):
            return
        time.sleep(PAUSE)


def patient_stores(args: argparse.Namespace) -> None:
    """Has the addresses of stores among the arguments say how long each is waited for."""
    from server.config.units import duration  # as above

    for name in ("data", "source", "target"):
        place = getattr(args, name, None)
        if isinstance(place, str) and place.startswith("postgres"):
            setattr(args, name, f"{place}{'&' if '?' in place else '?'}wait={duration(args.wait):g}")


def _listens(address: Address, seconds: float) -> bool:
    try:
        if not address.path:
            socket.create_connection((address.host, address.port), seconds).close()
            return True
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(seconds)
            probe.connect(address.path)
            return True
    except OSError:
        return False


# -- options -------------------------------------------------------------------------------------------


def _token(args: argparse.Namespace) -> str | None:
    """Returns the token in the options, or None for the token of the environment."""
    from dataspace.transport.credentials import read_token  # as above

    return read_token(args.token_file) if args.token_file else args.token


def _tls(args: argparse.Namespace) -> Tls:
    """Returns the TLS settings in the options, completed from the environment."""
    from dataclasses import replace

    from dataspace.transport.credentials import Tls  # as above

    said = {"ca": args.tls_ca, "certificate": args.tls_certificate, "key": args.tls_key}
    return replace(Tls.default(), **{name: value for name, value in said.items() if value})
