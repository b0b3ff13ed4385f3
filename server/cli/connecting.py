"""The options with which every command reaches its daemon, and the connection that they describe.

Always: the command line takes precedence over the environment; a token is never printed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from dataspace.client.bulk.short import ShortClient
    from dataspace.client.space import RemoteSpace
    from dataspace.transport.credentials import Tls
    from index.values.values import Value


def add_to(command: argparse.ArgumentParser) -> None:
    """Adds the options to a command."""
    group = command.add_argument_group("the daemon")
    group.add_argument(
        "--url", metavar="URL", help="tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH (or $DATASPACE_URL)"
    )
    group.add_argument(
        "--wait",
        metavar="TIME",
        default="0s",
        help="wait for the daemon to listen, and for a topic to appear, such as 10s",
    )
    group.add_argument(
        "--space",
        metavar="NAME",
        default="main",
        help="one of its dataspaces (default main); 'system' describes the daemon itself",
    )
    group.add_argument("--token", metavar="TEXT", help="present this token (or $DATASPACE_TOKEN)")
    group.add_argument(
        "--token-file", metavar="FILE", help="read the token from FILE (or $DATASPACE_TOKEN_FILE)"
    )
    group.add_argument(
        "--tls-ca", metavar="FILE", help="accept certificates signed by FILE (or $DATASPACE_TLS_CA)"
    )
    group.add_argument(
        "--tls-certificate", metavar="FILE", help="present this certificate (or $DATASPACE_TLS_CERTIFICATE)"
    )
    group.add_argument("--tls-key", metavar="FILE", help="key of the certificate (or $DATASPACE_TLS_KEY)")


def connect(
    args: argparse.Namespace, *, owner: str = "", grace: float = 0.0, lease: float = 0.0, space: str = ""
) -> AbstractAsyncContextManager[RemoteSpace]:
    """Returns the connection that the options of a command describe, or that of the shell it runs in."""
    lent = getattr(args, "lent", None)
    if lent is not None:
        from contextlib import nullcontext

        return nullcontext(lent)
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


def connect_short(args: argparse.Namespace) -> ShortClient:
    """Returns the connection of a command that asks for one thing; it loads no event loop.

    In a shell it is that of the shell (``server.cli.shell.line.LentClient``).
    """
    lent = getattr(args, "lent", None)
    if lent is not None:
        return lent  # type: ignore[no-any-return]  # it has what is used of a short client
    from dataspace.client.bulk.short import ShortClient
    from dataspace.transport.addresses import default_url

    return ShortClient(
        args.url or default_url(),
        name=f"dataspace {args.command}",
        space=args.space,
        token=_token(args),
        tls=_tls(args),
    )


def _token(args: argparse.Namespace) -> str | None:
    """Returns the token in the options, or None for that of the environment."""
    from dataspace.transport.credentials import read_token  # as above

    return read_token(args.token_file) if args.token_file else args.token


def _tls(args: argparse.Namespace) -> Tls:
    """Returns the TLS settings in the options, completed from the environment."""
    from dataclasses import replace

    from dataspace.transport.credentials import Tls  # as above

    said = {"ca": args.tls_ca, "certificate": args.tls_certificate, "key": args.tls_key}
    return replace(Tls.default(), **{name: value for name, value in said.items() if value})


def durable_handle(value: Value) -> int:
    """Returns the handle under which commands claim a fact of a durable owner: several runs must agree on
    it."""
    from hashlib import blake2b  # it loads OpenSSL, and few commands need it

    from index.values.values import text_of

    return int.from_bytes(blake2b(text_of(value).encode(), digest_size=7).digest(), "big")
