"""The options of ``dataspace serve``; apart from the command itself, which loads the daemon.

Always: each option stands for one setting of the file.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], _client: argparse.ArgumentParser
) -> None:
    """Adds the command."""
    serve = commands.add_parser(
        "serve",
        help="run the daemon in the foreground",
        epilog="An option takes precedence over $DATASPACE_SERVE_NAME, and that over the file."
        " SIGINT and SIGTERM end the daemon; SIGHUP reloads tokens, certificates, rules and limits.",
    )
    serve.add_argument("--config", metavar="FILE", help="read this TOML file (or $DATASPACE_SERVE_CONFIG)")
    serve.add_argument(
        "--check", action="store_true", help="print the settings and where each comes from; run nothing"
    )
    serve.add_argument(
        "--ready-fd",
        type=int,
        metavar="N",
        help="write the addresses to descriptor N when the daemon listens, and close it",
    )
    _add_watching(serve.add_argument_group("metrics and logs"))
    _add_access(serve.add_argument_group("access"))
    _add_data(serve.add_argument_group("data"))
    _add_hosted(serve.add_argument_group("rules, actors and flows"))


def _add_watching(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--admin",
        metavar="HOST:PORT",
        help="serve /metrics, /healthz and /readyz over HTTP, such as on 127.0.0.1:7379 (default: do not)",
    )
    group.add_argument("--verbose", action="store_true", help="log every session")
    group.add_argument(
        "--log-format", metavar="FORMAT", help="write log lines as text or json (default text)"
    )
    group.add_argument(
        "--log-level", metavar="LEVEL", help="write debug, info, warning or error on (default warning)"
    )
    group.add_argument(
        "--audit",
        metavar="FILE",
        type=path,
        help="append refused logins and rights, and administrative acts, to FILE as JSON lines",
    )
    group.add_argument(
        "--traces",
        metavar="URL",
        help="send OpenTelemetry spans of turns to a collector, such as http://127.0.0.1:4318 (default: make"
        " none)",
    )
    group.add_argument(
        "--traces-ratio",
        metavar="SHARE",
        help="trace this share of the turns that state no trace of their own, from 0 to 1 (default 0.01)",
    )


def _add_access(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--listen",
        metavar="ADDRESS",
        action="append",
        help="listen on tcp:HOST:PORT, tls:HOST:PORT or unix:/PATH, or for browsers and curl on"
        " http:HOST:PORT or https:HOST:PORT; may be given several times; port 0 picks a free one"
        " (default tcp:127.0.0.1:7377)",
    )
    group.add_argument("--socket-mode", metavar="MODE", help="permissions of Unix sockets (default 0600)")
    group.add_argument("--tls-certificate", metavar="FILE", help="certificate for tls: addresses (PEM)")
    group.add_argument("--tls-key", metavar="FILE", help="key of the certificate, if in another file")
    group.add_argument("--tls-client-ca", metavar="FILE", help="require client certificates signed by these")
    group.add_argument(
        "--heartbeat",
        metavar="TIME",
        help="send a ping after TIME without other data; close the connection after twice that (default 15s)",
    )
    group.add_argument(
        "--grace",
        metavar="TIME",
        help="keep sessions for at most TIME after a lost connection (default 5m); 0s for none",
    )


def _add_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data", metavar="DIR", type=path, help="directory of the log (default ~/.local/state/dataspace)"
    )
    group.add_argument(
        "--host-space", metavar="NAME", action="append", help="host another dataspace beside main"
    )
    group.add_argument(
        "--accept-damage",
        action="store_true",
        help="start with a log that lost its end, and log what is missing",
    )
    add_keeping(group)


def _add_hosted(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--rules",
        metavar="FILE",
        type=path,
        action="append",
        default=[],
        help="add the rules in FILE; may be given several times",
    )
    group.add_argument(
        "--without-rules",
        action="store_true",
        help="evaluate no rules; they stay facts, so that a harmful one can be retracted",
    )
    group.add_argument(
        "--actor",
        metavar="MODULE:FUNCTION",
        action="append",
        help="host an actor; may be given several times",
    )
    group.add_argument(
        "--flow",
        metavar="MODULE:FUNCTION",
        action="append",
        help="run a flow in the turns of main; may be given several times",
    )
    group.add_argument(
        "--trace",
        metavar="FILE",
        type=path,
        help="write every turn of hosted actors to FILE, as a mermaid diagram if it ends in .mmd",
    )


def add_keeping(command: argparse._ActionsContainer) -> None:
    """Adds the options for retention."""
    command.add_argument(
        "--keep-for", metavar="TIME", help="delete epochs older than TIME, such as 7d (default: keep)"
    )
    command.add_argument(
        "--keep-bytes", metavar="SIZE", help="delete the oldest epochs beyond SIZE, such as 10GiB"
    )
    command.add_argument(
        "--keep-unread",
        action="store_true",
        help="delete epochs that all named readers acknowledged; unread ones are always kept, up to 8GiB",
    )


def path(text: str) -> Path:
    """Returns the path in an option; apart from ``Path``, which takes as long to load as all options."""
    from pathlib import Path

    return Path(text)
